/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/office.hpp - a communicator, which has one caller at a
 * time, and those who wait in it: none may be left when it is destroyed.
 */
#ifndef WEFT_TORCH_OFFICE_HPP
#define WEFT_TORCH_OFFICE_HPP

#include "errors.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace weft_torch
{

/* Between two looks, of somebody whom nothing wakes. */
constexpr std::chrono::microseconds kShortNap{10};
constexpr std::chrono::microseconds kLongNap{1000};

using request_ptr = std::shared_ptr<weft_request>;

class office
{
  public:
    std::mutex lock;
    weft_comm *comm = nullptr;

    /* Lock held. */
    void check_here() const
    {
        require(comm != nullptr && !closes_, WEFT_ERR_INVALID,
                "this process group has been shut down");
    }

    void open(const weft_comm_config &config)
    {
        check(weft_comm_create(&config, &comm));
        std::lock_guard<std::mutex> hold(life_);
        alive_ = comm;
    }

    /* One that has been made already. */
    void take(weft_comm *made)
    {
        comm = made;
        std::lock_guard<std::mutex> hold(life_);
        alive_ = comm;
    }

    /* Until what it keeps has ended. */
    void drain()
    {
        std::unique_lock<std::mutex> hold(lock);
        wait_for_ends(hold);
    }

    /* The last one that was known, once the communicator is gone. It and
     * abort() never wait for a caller that is in the communicator. */
    weft_fault fault()
    {
        std::lock_guard<std::mutex> hold(life_);
        if (alive_) {
            (void)!weft_comm_get_fault(alive_, &last_);
        }
        return last_;
    }

    void abort()
    {
        std::lock_guard<std::mutex> hold(life_);
        if (alive_) {
            check(weft_comm_abort(alive_));
        }
    }

    /* Lock held. */
    weft_request *begin(const std::vector<weft_p2p> &list) const
    {
        weft_request *request = nullptr;
        check_here();
        check(weft_p2p_begin(list.data(), list.size(), comm, &request));
        return request;
    }

    /* Lock held. What the communicator waits for before it goes. */
    void keep(weft_request *request)
    {
        std::lock_guard<std::mutex> counting(counts_);
        under_way_.insert(request);
    }

    void release(weft_request *request)
    {
        {
            std::lock_guard<std::mutex> counting(counts_);
            under_way_.erase(request);
        }
        weft_request_destroy(request);
    }

    weft_status test(weft_request *request)
    {
        std::lock_guard<std::mutex> hold(lock);
        return weft_request_test(request);
    }

    /* Until it has ended, which it has where nothing is left to wait in. */
    void await(weft_request *request)
    {
        std::unique_lock<std::mutex> hold(lock);
        left_.wait(hold, [&] { return !closes_ || !comm; });
        if (comm) {
            const auto mine = awaited_.insert(request);
            hold.unlock();
            (void)!weft_request_wait(request);
            hold.lock();
            awaited_.erase(mine);
            left_.notify_all();
        }
    }

    /* Nobody may be in a communicator that is destroyed: who waits for what
     * has not ended comes out by an abort. So does what would never end; other
     * works are waited for here, where another thread's abort() still reaches
     * them. What the mail has under way the communicator's end waits for. */
    void close(bool is_endless)
    {
        std::unique_lock<std::mutex> hold(lock);
        closes_ = true;
        for (weft_request *request : awaited_) {
            is_endless |= weft_request_test(request) == WEFT_INPROGRESS;
        }
        if (comm && is_endless) {
            (void)!weft_comm_abort(comm);
        }
        left_.wait(hold, [&] { return awaited_.empty(); });
        wait_for_ends(hold);
        (void)fault();
        {
            std::lock_guard<std::mutex> none(life_);
            alive_ = nullptr;
        }
        weft_comm_destroy(comm);
        comm = nullptr;
        left_.notify_all();
    }

  private:
    void wait_for_ends(std::unique_lock<std::mutex> &hold)
    {
        for (auto nap = kShortNap; comm && goes_on();
             nap = std::min(nap * 2, kLongNap)) {
            left_.wait_for(hold, nap);
        }
    }

    bool goes_on()
    {
        std::lock_guard<std::mutex> counting(counts_);
        return std::any_of(
            under_way_.begin(), under_way_.end(), [](weft_request *request) {
                return weft_request_test(request) == WEFT_INPROGRESS;
            });
    }

    std::mutex life_; /* taken last */
    weft_comm *alive_ = nullptr;
    weft_fault last_ = {sizeof(weft_fault), WEFT_OK, -1, 0, ""};
    std::multiset<weft_request *> awaited_;
    std::mutex counts_; /* not held by a call that waits; taken last */
    std::set<weft_request *> under_way_; /* counts_ */
    std::condition_variable left_;
    bool closes_ = false;
};

} // namespace weft_torch

#endif
