/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/work.hpp - what a call of c10d has begun: requests of weft
 * that end by themselves, tested, waited for, and told to futures.
 *
 * What lies in pieces, or is not dense, goes through one dense tensor, which is
 * copied back by whoever finds the work done first. Futures are completed by
 * threads, made when somebody asks for a future: one for collectives and one
 * for the sends to each peer wait in the order of posting; one for receives,
 * and for lists of messages, looks for those that are done, in whatever order
 * they come.
 */
#ifndef WEFT_TORCH_WORK_HPP
#define WEFT_TORCH_WORK_HPP

#include "mail.hpp"

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <deque>
#include <map>

namespace weft_torch
{

using c10::intrusive_ptr;
using c10d::OpType;
using c10d::Work;
using milliseconds = std::chrono::milliseconds;
using tensors = std::vector<at::Tensor>;

/* ---- work -----------------------------------------------------------------
 */

/* Until is_done(), or the limit is over, which it throws. */
template <typename question> void await(milliseconds limit, question is_done)
{
    const moment end = std::chrono::steady_clock::now() + limit;
    auto nap = std::chrono::microseconds(1);
    while (!is_done()) {
        if (std::chrono::steady_clock::now() >= end) {
            fail(WEFT_ERR_TIMEOUT,
                 "weft: the timeout is over: not done after " +
                     std::to_string(limit.count()) + " ms of wait");
        }
        std::this_thread::sleep_for(nap);
        nap = std::min(nap * 2, std::chrono::microseconds(1000));
    }
}

/* What has been begun, and what has to live and to happen until it is done. */
struct begun {
    std::vector<weft_request *> requests;
    std::vector<letter_ptr> letters; /* with the mail that brings them */
    std::shared_ptr<mail> post;
    std::shared_ptr<office> at;
    tensors kept;
    tensors shown; /* inputs, for the profiler */
    tensors results;
    std::vector<std::function<void()>> after; /* copies back */
    /* On a GPU in place of requests: when streams have come past them. */
    std::vector<std::shared_ptr<c10::Event>> ends;
    std::optional<c10::Stream> lane; /* the last one's stream */

    /* Where its tensors are: one device. */
    c10::Device place() const
    {
        c10::Device found(c10::kCPU);
        bool has = false;
        for (const tensors *list : {&shown, &results}) {
            for (const at::Tensor &tensor : *list) {
                require(!has || tensor.device() == found, WEFT_ERR_INVALID,
                        "tensors on " + found.str() + " and on " +
                            tensor.device().str() + " in one call");
                found = tensor.device();
                has = true;
            }
        }
        return found;
    }

    void merge(begun &&other)
    {
        requests.insert(requests.end(), other.requests.begin(),
                        other.requests.end());
        letters.insert(letters.end(), other.letters.begin(),
                       other.letters.end());
        post = other.post ? other.post : post;
        at = other.at ? other.at : at;
        kept.insert(kept.end(), other.kept.begin(), other.kept.end());
        shown.insert(shown.end(), other.shown.begin(), other.shown.end());
        results.insert(results.end(), other.results.begin(),
                       other.results.end());
        after.insert(after.end(), other.after.begin(), other.after.end());
        ends.insert(ends.end(), other.ends.begin(), other.ends.end());
        lane = other.lane ? other.lane : lane;
        other.requests.clear();
    }
};

class weft_work;

constexpr char kUntimed[] =
    "weft: works are not timed: torch.profiler shows how long each call took";

/* Lanes: what is in one ends in order, but for receives and for what nobody
 * keeps. */
constexpr int kCollectives = 0;
constexpr int kAnyOrder = -1;
inline int lane_of_sends(int peer)
{
    return 1 + peer;
}

/* Threads that complete futures, one for each lane. */
class completer
{
  public:
    ~completer()
    {
        stop();
    }
    void add(int lane, intrusive_ptr<weft_work> work);
    void stop(); /* once all requests have ended */

  private:
    struct line {
        std::deque<intrusive_ptr<weft_work>> waiting;
        std::thread thread;
    };
    void run_in_order(line &mine);
    void run_in_any_order(line &mine);

    std::mutex lock_;
    std::condition_variable changed_;
    std::map<int, line> lines_;
    bool stopped_ = false;
};

class weft_work : public Work
{
  public:
    weft_work(int rank, OpType type, const char *title, uint64_t number,
              int lane, begun &&what, std::shared_ptr<completer> futures)
        : Work(rank, type, title, what.shown), number_(number), lane_(lane),
          what_(std::move(what)), futures_(std::move(futures))
    {
    }

    /* What nobody waits for any more goes on: its buffers live until it ends.
     */
    ~weft_work() override
    {
        if (!done_ && !has_ended()) {
            begun rest = std::move(what_);
            what_.requests.clear();
            futures_->add(kAnyOrder, c10::make_intrusive<weft_work>(
                                         rank_, opType_, nullptr, number_,
                                         kAnyOrder, std::move(rest), futures_));
        }
        for (weft_request *request : what_.requests) {
            what_.at->release(request);
        }
    }

    /* Of a receive from any rank, once it is done. */
    int sourceRank() const override
    {
        require(what_.letters.size() == 1, WEFT_ERR_INVALID,
                "only one receive has a source");
        return what_.letters[0]->sender;
    }

    bool isCompleted() override
    {
        return settle();
    }

    bool isSuccess() const override
    {
        std::lock_guard<std::mutex> hold(lock_);
        return done_ && !failure_;
    }

    std::exception_ptr exception() const override
    {
        std::lock_guard<std::mutex> hold(lock_);
        return failure_;
    }

    tensors result() override
    {
        return what_.results;
    }
    uint64_t getSequencenumber() const override
    {
        return number_;
    }
    void synchronize() override
    {
    }

    void abort() override
    {
        fail(WEFT_ERR_UNSUPPORTED, "weft: one operation of a group cannot be "
                                   "aborted; the group can");
    }
    float getDuration() const override
    {
        fail(WEFT_ERR_UNSUPPORTED, kUntimed);
    }

    bool wait(milliseconds timeout) override
    {
        if (timeout > kNoTimeout) {
            await(timeout, [this] { return settle(); });
        } else {
            block();
        }
        std::exception_ptr failure = exception();
        if (failure) {
            std::rethrow_exception(failure);
        }
        return true;
    }

    intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        bool adds = false;
        {
            std::lock_guard<std::mutex> hold(lock_);
            if (!future_) {
                future_ = c10::make_intrusive<c10::ivalue::Future>(
                    c10::ListType::create(c10::TensorType::get()));
                adds = !done_;
                if (done_) {
                    tell(future_);
                }
            }
        }
        if (adds) {
            futures_->add(
                lane_,
                intrusive_ptr<weft_work>::unsafe_reclaim_from_nonowning(this));
        }
        return future_;
    }

    /* Until it is done. */
    void block()
    {
        for (weft_request *request : what_.requests) {
            what_.at->await(request);
        }
        for (const letter_ptr &one : what_.letters) {
            what_.post->wait(*one);
        }
        settle();
    }

  private:
    /* Whether it is done; the first to see that copies back and tells. */
    bool settle()
    {
        intrusive_ptr<c10::ivalue::Future> future;
        {
            std::lock_guard<std::mutex> hold(lock_);
            if (done_) {
                return true;
            }
            if (!has_ended()) {
                return false;
            }
            failure_ = find_failure();
            done_ = true;
            if (recordFunctionEndCallback_) {
                recordFunctionEndCallback_();
            }
            future = future_;
        }
        if (future) {
            tell(future);
        }
        return true;
    }

    bool has_ended() const
    {
        for (weft_request *request : what_.requests) {
            if (what_.at->test(request) == WEFT_INPROGRESS) {
                return false;
            }
        }
        for (const letter_ptr &one : what_.letters) {
            if (!what_.post->is_done(*one)) {
                return false;
            }
        }
        return true;
    }

    /* The first one; without, what has come is put where it belongs. */
    std::exception_ptr find_failure()
    {
        try {
            for (weft_request *request : what_.requests) {
                check(what_.at->test(request));
            }
            for (const letter_ptr &one : what_.letters) {
                what_.post->finish(*one);
            }
            at::NoGradGuard guard;
            for (auto &copy : what_.after) {
                copy();
            }
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    void tell(const intrusive_ptr<c10::ivalue::Future> &future) const
    {
        if (failure_) {
            future->setError(failure_);
        } else {
            future->markCompleted(c10::IValue(what_.results));
        }
    }

    const uint64_t number_;
    const int lane_;
    begun what_;
    std::shared_ptr<completer> futures_;
    mutable std::mutex lock_;
    bool done_ = false;
    std::exception_ptr failure_;
    intrusive_ptr<c10::ivalue::Future> future_;
};

inline void completer::add(int lane, intrusive_ptr<weft_work> work)
{
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (!stopped_) {
            line &mine = lines_[lane];
            mine.waiting.push_back(std::move(work));
            if (!mine.thread.joinable()) {
                mine.thread =
                    std::thread(lane == kAnyOrder ? &completer::run_in_any_order
                                                  : &completer::run_in_order,
                                this, std::ref(mine));
            }
            changed_.notify_all();
            return;
        }
    }
    work->block(); /* the communicator is gone: all its requests have ended */
}

inline void completer::run_in_order(line &mine)
{
    std::unique_lock<std::mutex> hold(lock_);
    for (;;) {
        changed_.wait(hold, [&] { return stopped_ || !mine.waiting.empty(); });
        if (mine.waiting.empty()) {
            return;
        }
        intrusive_ptr<weft_work> work = std::move(mine.waiting.front());
        mine.waiting.pop_front();
        hold.unlock();
        work->block();
        work.reset();
        hold.lock();
    }
}

/* Not in order: the first may come last, or never. Nobody is in the
 * communicator meanwhile, so that it can end what is left when it goes. */
inline void completer::run_in_any_order(line &mine)
{
    std::deque<intrusive_ptr<weft_work>> pending;
    auto nap = kShortNap;
    std::unique_lock<std::mutex> hold(lock_);
    for (;;) {
        if (pending.empty()) {
            changed_.wait(hold,
                          [&] { return stopped_ || !mine.waiting.empty(); });
        } else {
            changed_.wait_for(hold, nap);
        }
        if (pending.empty() && mine.waiting.empty()) {
            return;
        }
        nap = std::min(nap * 2, kLongNap);
        if (!mine.waiting.empty()) {
            nap = kShortNap;
        }
        std::move(mine.waiting.begin(), mine.waiting.end(),
                  std::back_inserter(pending));
        mine.waiting.clear();
        hold.unlock();
        if (std::erase_if(pending,
                          [](auto &work) { return work->isCompleted(); })) {
            nap = kShortNap;
        }
        hold.lock();
    }
}

inline void completer::stop()
{
    {
        std::lock_guard<std::mutex> hold(lock_);
        stopped_ = true;
        changed_.notify_all();
    }
    for (auto &entry : lines_) {
        if (entry.second.thread.joinable()) {
            entry.second.thread.join();
        }
    }
}

} // namespace weft_torch

#endif
