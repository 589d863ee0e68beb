/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/mail.hpp - messages with tags, from one rank or from any.
 *
 * weft matches what two ranks send each other in the order of posting. So each
 * message goes behind a head that says its tag and size, and the bytes are
 * received once the head has been read, where they belong:
 *
 *   rank 0: send(a, 1, tag 7)            rank 1: recv(b, 0, tag 7)
 *           [head: 7] [bytes of a]  -->          [head] who waits for tag 7?
 *                                                [bytes] to b
 *
 * Heads of a rank are read only while somebody expects a message of it. What
 * nobody expects then is kept aside until somebody does. Who waits for a
 * message reads heads himself; for those that nobody waits for a thread looks,
 * so that no sender is held up.
 */
#ifndef WEFT_TORCH_MAIL_HPP
#define WEFT_TORCH_MAIL_HPP

#include "office.hpp"

#include <torch/extension.h>

#include <chrono>
#include <list>
#include <thread>
#include <vector>

namespace weft_torch
{

/* ---- letters --------------------------------------------------------------
 */

using moment = std::chrono::steady_clock::time_point;

/* 0 is weft's own, by which groups shrink, 1 that of GPUs. */
constexpr int kMailQueue = 2;

struct letterhead {
    int64_t tag;
    uint64_t count;
    uint64_t dtype;
};

inline weft_p2p head_part(weft_p2p_kind kind, letterhead *head, int peer)
{
    weft_p2p part = {};
    part.size_bytes = sizeof(part);
    part.kind = kind;
    part.buffer = head;
    part.count = sizeof(*head);
    part.dtype = WEFT_DTYPE_U8;
    part.peer = peer;
    part.class_id = WEFT_CLASS_PP;
    part.queue = kMailQueue;
    part.label = "head of a message";
    return part;
}

constexpr int kAnyone = -1;
constexpr int64_t kFarewell = INT64_MIN; /* no program's tag */

/* What somebody waits for; all of it under the office's lock. */
struct letter {
    weft_p2p part; /* where the bytes go; its peer may be kAnyone */
    int tag;
    moment end;        /* where nothing of weft's ends the wait */
    int sender = -1;   /* once it has come, like bytes */
    request_ptr bytes; /* their receive */
    at::Tensor aside;  /* where they went, if not to the part's buffer */
    std::exception_ptr failure;

    bool wants(int peer) const
    {
        return part.peer == peer || part.peer == kAnyone;
    }
    bool is_found() const
    {
        return bytes || failure;
    }
};
using letter_ptr = std::shared_ptr<letter>;

/* ---- mail -----------------------------------------------------------------
 */

class mail
{
  public:
    mail(std::shared_ptr<office> at, int rank, int size)
        : at_(std::move(at)), rank_(rank), boxes_(size)
    {
    }
    ~mail()
    {
        stop();
    }

    /* Adds a message to a list; its head lives in what is returned. */
    at::Tensor enclose(std::vector<weft_p2p> &list, const weft_p2p &part,
                       int tag)
    {
        require(part.peer >= 0 && part.peer < (int)boxes_.size(),
                WEFT_ERR_INVALID,
                "send to rank " + std::to_string(part.peer) + " of " +
                    std::to_string(boxes_.size()));
        const at::Tensor kept =
            at::empty({(int64_t)sizeof(letterhead)}, at::kByte);
        auto *head = static_cast<letterhead *>(kept.data_ptr());
        *head = {tag, part.count, (uint64_t)part.dtype};
        list.push_back(head_part(WEFT_P2P_SEND, head, part.peer));
        list.back().timeout_ms = part.timeout_ms;
        list.push_back(part);
        return kept;
    }

    /* The work raises what is wrong with it: others of its list may be under
     * way. */
    void expect(const letter_ptr &one)
    {
        std::lock_guard<std::mutex> hold(at_->lock);
        at_->check_here();
        for (const int peer : senders(*one)) {
            if (take_aside(*one, peer)) {
                return;
            }
        }
        waiting_.push_back(one);
        look_for(*one);
        if (!one->is_found()) {
            call_reader();
        }
    }

    bool is_done(letter &one)
    {
        std::lock_guard<std::mutex> hold(at_->lock);
        look_for(one);
        return one.failure ||
               (one.bytes &&
                weft_request_test(one.bytes.get()) != WEFT_INPROGRESS);
    }

    void wait(letter &one)
    {
        auto nap = kShortNap;
        std::unique_lock<std::mutex> hold(at_->lock);
        for (look_for(one); !one.is_found(); look_for(one)) {
            const request_ptr head =
                has_limit(one) ? boxes_[one.part.peer].request : nullptr;
            hold.unlock();
            if (head) {
                at_->await(head.get());
            } else {
                std::this_thread::sleep_for(nap);
                nap = std::min(nap * 2, kLongNap);
            }
            hold.lock();
        }
        const request_ptr bytes = one.bytes;
        hold.unlock();
        if (bytes) {
            at_->await(bytes.get());
        }
    }

    /* Of one that is done: throws, or its bytes are where they belong. */
    void finish(letter &one)
    {
        std::lock_guard<std::mutex> hold(at_->lock);
        if (one.failure) {
            std::rethrow_exception(one.failure);
        }
        check(weft_request_test(one.bytes.get()));
        if (one.aside.defined() && one.aside.nbytes() > 0) {
            memcpy(one.part.buffer, one.aside.data_ptr(), one.aside.nbytes());
        }
    }

    /* Nobody looks for messages from now on. Others may have asked for the next
     * head: they are told that there is none. */
    void stop()
    {
        {
            std::lock_guard<std::mutex> hold(at_->lock);
            if (!stopped_ && at_->comm) {
                take_leave();
            }
            stopped_ = true;
            called_.notify_all();
        }
        if (reader_.joinable()) {
            reader_.join();
        }
    }

    /* Whether somebody waits for what has not been sent. */
    bool is_awaited()
    {
        std::lock_guard<std::mutex> hold(at_->lock);
        look_for_all();
        return !waiting_.empty();
    }

    /* Whether what somebody has asked for has yet to come. */
    bool is_busy()
    {
        std::lock_guard<std::mutex> hold(at_->lock);
        look_for_all();
        drop_ended();
        return at_->comm && (!waiting_.empty() || !coming_.empty());
    }

  private:
    struct kept_aside {
        letterhead head;
        at::Tensor bytes;
        request_ptr request;
    };

    /* What comes from one rank. */
    struct box {
        letterhead head;
        request_ptr request; /* the next head's; none: not asked for */
        bool is_endless = false;
        bool is_gone = false; /* has taken leave */
        std::list<kept_aside> aside;
    };

    std::vector<int> senders(const letter &one) const
    {
        std::vector<int> all;
        for (int peer = 0; peer < (int)boxes_.size(); peer++) {
            if (one.part.peer == peer ||
                (one.part.peer == kAnyone && peer != rank_)) {
                all.push_back(peer);
            }
        }
        return all;
    }

    request_ptr receive(const weft_p2p &part) const
    {
        return request_ptr(at_->begin({part}), weft_request_destroy);
    }

    /* Bytes of a letter. */
    void come(letter &one, request_ptr bytes)
    {
        one.bytes = std::move(bytes);
        if (coming_.size() >= coming_most_) {
            drop_ended();
            coming_most_ = 2 * coming_.size() + 16;
        }
        coming_.push_back(one.bytes);
    }

    void drop_ended()
    {
        std::erase_if(coming_, [](const std::weak_ptr<weft_request> &weak) {
            const request_ptr bytes = weak.lock();
            return !bytes || weft_request_test(bytes.get()) != WEFT_INPROGRESS;
        });
    }

    bool is_wanted(int peer) const
    {
        for (const letter_ptr &one : waiting_) {
            if (one->part.peer == peer ||
                (one->part.peer == kAnyone && !boxes_[peer].is_gone)) {
                return true;
            }
        }
        return false;
    }

    /* Whether weft's own limit of time ends the wait for it. */
    bool has_limit(const letter &one) const
    {
        return one.part.peer != kAnyone && !boxes_[one.part.peer].is_endless;
    }

    /* A rank from which nothing has to come may say nothing for ever. */
    void ask_for_head(int peer)
    {
        box &from = boxes_[peer];
        weft_p2p part = head_part(WEFT_P2P_RECV, &from.head, peer);
        from.is_endless = true;
        for (const letter_ptr &one : waiting_) {
            if (one->part.peer == peer) {
                from.is_endless = false;
                part.timeout_ms = one->part.timeout_ms;
                break;
            }
        }
        if (from.is_endless) {
            part.timeout_ms = UINT64_MAX;
        }
        from.request = receive(part);
    }

    /* All that have come, while somebody waits for them. */
    void read_heads(int peer)
    {
        box &from = boxes_[peer];
        try {
            while (is_wanted(peer)) {
                require(!from.is_gone, WEFT_ERR_PEER,
                        "rank " + std::to_string(peer) + " has left the group");
                if (!from.request) {
                    ask_for_head(peer);
                }
                const weft_status status =
                    weft_request_test(from.request.get());
                if (status == WEFT_INPROGRESS) {
                    return;
                }
                check(status);
                from.request.reset();
                deliver(peer);
            }
        } catch (...) {
            give_up(peer, std::current_exception());
        }
    }

    void deliver(int peer)
    {
        box &from = boxes_[peer];
        if (from.head.tag == kFarewell) {
            from.is_gone = true;
            return;
        }
        for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
            letter &one = **it;
            if (one.wants(peer) && one.tag == from.head.tag) {
                weft_p2p part = one.part;
                part.peer = peer;
                come(one, receive(part));
                one.sender = peer;
                waiting_.erase(it);
                return;
            }
        }
        keep_aside(peer);
    }

    void keep_aside(int peer)
    {
        box &from = boxes_[peer];
        const auto dtype = (weft_dtype)from.head.dtype;
        weft_p2p part = head_part(WEFT_P2P_RECV, nullptr, peer);
        kept_aside kept = {
            from.head,
            at::empty({(int64_t)(from.head.count * weft_dtype_bytes(dtype))},
                      at::kByte),
            nullptr};
        part.buffer = kept.bytes.data_ptr();
        part.count = from.head.count;
        part.dtype = dtype;
        part.label = "recv";
        kept.request = receive(part);
        from.aside.push_back(std::move(kept));
    }

    static std::exception_ptr find_mismatch(const letter &one,
                                            const letterhead &head)
    {
        try {
            require(head.count == one.part.count &&
                        head.dtype == (uint64_t)one.part.dtype,
                    WEFT_ERR_INVALID,
                    "recv from rank " + std::to_string(one.sender) + ", tag " +
                        std::to_string(one.tag) + ": of " +
                        std::to_string(one.part.count) +
                        " elements, or of another type; sent were " +
                        std::to_string(head.count));
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    bool take_aside(letter &one, int peer)
    {
        std::list<kept_aside> &aside = boxes_[peer].aside;
        for (auto it = aside.begin(); it != aside.end(); ++it) {
            if (it->head.tag != one.tag) {
                continue;
            }
            one.sender = peer;
            one.failure = find_mismatch(one, it->head);
            if (one.failure) {
                return true; /* the next receive of that tag may fit */
            }
            come(one, it->request);
            one.aside = it->bytes;
            aside.erase(it);
            return true;
        }
        return false;
    }

    void look_for(letter &one)
    {
        for (const int peer : senders(one)) {
            if (!one.is_found()) {
                read_heads(peer);
            }
        }
        if (one.is_found() || has_limit(one)) {
            return;
        }
        if (has_nobody(one)) {
            lose(one, WEFT_ERR_PEER, "all others have left the group");
        } else if (std::chrono::steady_clock::now() >= one.end) {
            lose(one, WEFT_ERR_TIMEOUT,
                 "the timeout is over: nobody has sent it");
        }
    }

    void look_for_all()
    {
        const std::vector<letter_ptr> now(waiting_.begin(), waiting_.end());
        for (const letter_ptr &one : now) {
            look_for(*one);
        }
    }

    bool has_nobody(const letter &one) const
    {
        const std::vector<int> all = senders(one);
        return std::all_of(all.begin(), all.end(),
                           [&](int peer) { return boxes_[peer].is_gone; });
    }

    void lose(letter &one, weft_status status, const char *why)
    {
        const std::string from = one.part.peer == kAnyone
                                     ? std::string("any rank")
                                     : "rank " + std::to_string(one.part.peer);
        try {
            fail(status, "weft: recv from " + from + ", tag " +
                             std::to_string(one.tag) + ": " + why);
        } catch (...) {
            one.failure = std::current_exception();
        }
        waiting_.remove_if([&](const letter_ptr &it) { return &*it == &one; });
    }

    /* Others may send what is welcome of any rank, after one has left. */
    void give_up(int peer, const std::exception_ptr &failure)
    {
        waiting_.remove_if([&](const letter_ptr &one) {
            const bool fails = boxes_[peer].is_gone ? one->part.peer == peer
                                                    : one->wants(peer);
            if (fails) {
                one->failure = failure;
            }
            return fails;
        });
    }

    void take_leave()
    {
        std::vector<weft_p2p> list;
        farewell_.tag = kFarewell;
        for (int peer = 0; peer < (int)boxes_.size(); peer++) {
            if (peer != rank_) {
                list.push_back(head_part(WEFT_P2P_SEND, &farewell_, peer));
            }
        }
        weft_request *request = nullptr;
        if (!list.empty() && weft_p2p_begin(list.data(), list.size(), at_->comm,
                                            &request) == WEFT_OK) {
            weft_request_destroy(request);
        }
    }

    /* ---- the reader -------------------------------------------------------
     */

    void call_reader()
    {
        if (!reader_.joinable() && !stopped_) {
            reader_ = std::thread([this] { read(); });
        } else if (sleeps_) {
            called_.notify_all();
        }
    }

    /* It looks from time to time, and never waits in the communicator, which
     * may go at any time: heads of ranks that say nothing stay behind. */
    void read()
    {
        std::unique_lock<std::mutex> hold(at_->lock);
        while (!stopped_) {
            sleeps_ = waiting_.empty();
            if (sleeps_) {
                called_.wait(hold);
            } else {
                called_.wait_for(hold, kLongNap);
            }
            sleeps_ = false;
            look_for_all();
        }
    }

    std::shared_ptr<office> at_;
    const int rank_;
    letterhead farewell_ = {};
    std::vector<box> boxes_;
    std::list<letter_ptr> waiting_; /* in the order of posting */
    std::vector<std::weak_ptr<weft_request>> coming_; /* some have ended */
    size_t coming_most_ = 16;
    std::condition_variable called_;
    std::thread reader_;
    bool sleeps_ = false;
    bool stopped_ = false;
};

} // namespace weft_torch

#endif
