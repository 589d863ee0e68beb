/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/meeting.hpp - what the ranks of a group tell each other
 * through torch's store: how they meet, by which name, and who has come to a
 * monitored barrier. That one works while weft's communicator waits or has
 * failed.
 */
#ifndef WEFT_TORCH_MEETING_HPP
#define WEFT_TORCH_MEETING_HPP

#include "errors.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace weft_torch
{

using store_ptr = c10::intrusive_ptr<c10d::Store>;

inline weft_unique_id share_id(const store_ptr &store, int rank)
{
    weft_unique_id id;
    if (rank == 0) {
        check(weft_unique_id_create(&id));
        store->set("weft_id",
                   std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
    } else {
        const std::vector<uint8_t> bytes = store->get("weft_id");
        require(bytes.size() == sizeof(id.bytes), WEFT_ERR_INVALID,
                "the store holds something else as weft_id");
        std::copy(bytes.begin(), bytes.end(), id.bytes);
    }
    return id;
}

/* A group's name in its options, which older releases do not have. */
template <typename options> void set_name(options &of, const std::string &name)
{
    if constexpr (requires { of.group_name; }) {
        of.group_name = name;
    }
}

template <typename options>
std::string name_of(const c10::intrusive_ptr<options> &of,
                    const std::string &otherwise)
{
    if constexpr (requires { of->group_name; }) {
        return of && !of->group_name.empty() ? of->group_name : otherwise;
    }
    return otherwise;
}

/* Rank 0 sees who comes, and tells the others; the n-th of a group. The texts
 * are those that programs know from gloo. */
class roll_call
{
  public:
    roll_call(store_ptr store, int rank, int size, uint64_t number,
              std::chrono::milliseconds timeout)
        : store_(std::move(store)), rank_(rank), size_(size), number_(number),
          timeout_(timeout), end_(std::chrono::steady_clock::now() + timeout)
    {
    }

    void run(bool names_all)
    {
        if (rank_) {
            answer();
        } else {
            call(names_all);
        }
    }

  private:
    std::string key(const std::string &of, uint64_t number) const
    {
        return "weft_roll/" + std::to_string(number) + "/" + of;
    }

    bool comes(const std::string &name)
    {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end_ - std::chrono::steady_clock::now());
        try {
            if (left.count() > 0) {
                store_->wait({name}, left);
            }
        } catch (const std::exception &) {
            /* Over; the store is asked once more. */
        }
        return store_->check({name});
    }

    void answer()
    {
        const std::string all = key("all", number_);
        store_->set(key(std::to_string(rank_), number_), "here");
        const bool told = comes(all);
        const std::string text = told ? store_->get_to_str(all)
                                      : "it has not answered in " +
                                            std::to_string(timeout_.count()) +
                                            " ms";
        require(told && text == "here", WEFT_ERR_TIMEOUT,
                "Rank " + std::to_string(rank_) +
                    " successfully reached monitoredBarrier, but received "
                    "errors while waiting for send/recv from rank 0: " +
                    text);
    }

    void call(bool names_all)
    {
        std::string missing;
        int count = 0;
        for (int peer = 1; peer < size_ && (names_all || !count); peer++) {
            if (!comes(key(std::to_string(peer), number_))) {
                missing += (count++ ? ", " : "") + std::to_string(peer);
            }
        }
        std::string text = "here";
        if (count && timeout_.count() == 0) {
            text = "Rank 0 timed out in monitoredBarrier after 0 ms";
        } else if (count) {
            text = (count > 1 ? "Ranks " : "Rank ") + missing +
                   " failed to pass monitoredBarrier in " +
                   std::to_string(timeout_.count()) + " ms";
        }
        store_->set(key("all", number_), text);
        if (!count) {
            forget();
        }
        require(!count, WEFT_ERR_TIMEOUT, text);
    }

    /* All have come here, so none looks at what the one before has left. */
    void forget()
    {
        for (int peer = 1; peer < size_; peer++) {
            store_->deleteKey(key(std::to_string(peer), number_));
        }
        if (number_) {
            store_->deleteKey(key("all", number_ - 1));
        }
    }

    store_ptr store_;
    const int rank_;
    const int size_;
    const uint64_t number_;
    const std::chrono::milliseconds timeout_;
    const std::chrono::steady_clock::time_point end_;
};

} // namespace weft_torch

#endif
