/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/gpu.hpp - tensors on a GPU: operations as work of streams.
 *
 *   current stream   .. inputs .. ready               end .. outputs ..
 *                                    \                /   (work.wait())
 *   a lane's stream                   weft's operation
 *
 * Each lane is a stream of weft's, so what is asked for runs beside what the
 * program computes. No CUDA header is needed: torch does with streams and
 * events of any device what c10::Event and its guards say. Tensors live until
 * the stream has come past the operation.
 */
#ifndef WEFT_TORCH_GPU_HPP
#define WEFT_TORCH_GPU_HPP

#include "work.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/core/StreamGuard.h>

namespace weft_torch
{

/* What streams have not come past, and nobody keeps any more; and what works
 * know of their group. */
class shelf
{
  public:
    std::mutex streams;          /* held while a lane's stream is used */
    bool is_closed = false;      /* lanes have no streams any more */
    std::atomic<int> waiting{0}; /* threads, for a work */

    void put(begun &&rest)
    {
        {
            std::lock_guard<std::mutex> hold(lock_);
            kept_.push_back(std::move(rest));
        }
        sweep();
    }
    /* What has been posted without a mark of its end: until the group's. */
    void put_for_good(begun &&rest)
    {
        std::lock_guard<std::mutex> hold(lock_);
        unmarked_.push_back(std::move(rest));
    }
    void close()
    {
        std::list<begun> over;
        {
            std::lock_guard<std::mutex> hold(lock_);
            over.swap(unmarked_);
        }
        sweep();
    }
    void sweep()
    {
        std::list<begun> over; /* given back without the lock */
        std::lock_guard<std::mutex> hold(lock_);
        for (auto it = kept_.begin(); it != kept_.end();) {
            const auto next = std::next(it);
            if (is_over(*it)) {
                over.splice(over.end(), kept_, it);
            }
            it = next;
        }
    }
    static bool has_ended(const begun &what)
    {
        return std::all_of(what.ends.begin(), what.ends.end(),
                           [](const auto &end) { return end->query(); });
    }
    /* For those who may not throw: a GPU that answers with an error does no
     * more work, nor writes anything. */
    static bool is_over(const begun &what) noexcept
    {
        return std::all_of(what.ends.begin(), what.ends.end(),
                           [](const auto &end) { return has_passed(*end); });
    }
    static bool has_passed(const c10::Event &event) noexcept
    {
        try {
            return event.query();
        } catch (...) {
            return true;
        }
    }

  private:
    std::mutex lock_;
    std::list<begun> kept_;
    std::list<begun> unmarked_;
};

class gpu_work : public Work
{
  public:
    gpu_work(int rank, OpType type, const char *title, uint64_t number,
             bool holds_host, begun &&what, std::shared_ptr<shelf> rest)
        : Work(rank, type, title, what.shown), number_(number),
          holds_host_(holds_host), place_(what.ends[0]->device()),
          what_(std::move(what)), rest_(std::move(rest))
    {
        if (recordFunctionEndCallback_) {
            recordFunctionEndCallback_(); /* it has been queued */
        }
    }
    ~gpu_work() override
    {
        if (!shelf::is_over(what_)) {
            rest_->put(std::move(what_));
        }
    }

    /* Throws what the GPU says, once that is an error. */
    bool isCompleted() override
    {
        return shelf::has_ended(what_);
    }
    bool isSuccess() const override
    {
        return shelf::has_ended(what_) && what_.at->fault().status == WEFT_OK;
    }
    std::exception_ptr exception() const override
    {
        try {
            check_fault();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }
    tensors result() override
    {
        return what_.results;
    }
    uint64_t getSequencenumber() const override
    {
        return number_;
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

    /* The caller's stream waits, not the caller. */
    void synchronize() override
    {
        const c10::impl::VirtualGuardImpl device(place_.type());
        for (const auto &end : what_.ends) {
            end->block(device.getStream(place_));
        }
    }

    /* With a limit of time, and of a barrier, the caller waits as well. */
    bool wait(milliseconds timeout) override
    {
        const waiter here(*rest_);
        check_fault();
        if (timeout > kNoTimeout) {
            await(timeout, [this] { return isCompleted(); });
        } else if (holds_host_) {
            for (const auto &end : what_.ends) {
                end->synchronize();
            }
        }
        check_fault();
        synchronize();
        return true;
    }

    /* Done for torch when it is queued: who waits for it, its stream does. */
    intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        std::lock_guard<std::mutex> hold(lock_);
        if (!future_) {
            auto made = c10::make_intrusive<c10::ivalue::Future>(
                c10::ListType::create(c10::TensorType::get()),
                std::vector<c10::Device>{place_});
            std::lock_guard<std::mutex> still(rest_->streams);
            std::optional<c10::StreamGuard> on;
            if (!rest_->is_closed) {
                on.emplace(*what_.lane);
            }
            synchronize();
            made->markCompleted(c10::IValue(what_.results));
            future_ = std::move(made);
        }
        return future_;
    }

  private:
    struct waiter {
        explicit waiter(shelf &rest) : at(rest)
        {
            at.waiting++;
        }
        ~waiter()
        {
            at.waiting--;
        }
        shelf &at;
    };

    void check_fault() const
    {
        const weft_fault fault = what_.at->fault();
        check(fault.status, fault.text);
    }

    const uint64_t number_;
    const bool holds_host_;
    const c10::Device place_;
    begun what_;
    std::shared_ptr<shelf> rest_;
    std::mutex lock_;
    intrusive_ptr<c10::ivalue::Future> future_;
};

/* Lanes of streams besides kCollectives and lane_of_sends(peer). */
constexpr int kLists = -2;
inline int lane_of_receives(int peer)
{
    return -3 - peer;
}

/* A message may come this long after its receive has begun, once its rank
 * leaves. */
constexpr milliseconds kGrace{5000};

/* The GPU of a group: that of its first tensor there, or of device_id. Any
 * thread may call it. */
class gpu
{
  public:
    explicit gpu(std::shared_ptr<office> at)
        : at_(std::move(at)), rest_(std::make_shared<shelf>())
    {
    }
    ~gpu()
    {
        close();
    }

    std::optional<c10::Device> place()
    {
        std::lock_guard<std::mutex> hold(lock_);
        return device_ ? std::optional(place_) : std::nullopt;
    }
    const std::shared_ptr<shelf> &rest() const
    {
        return rest_;
    }

    void open(c10::Device place)
    {
        std::lock_guard<std::mutex> alone(lock_);
        require(!device_ || place == place_, WEFT_ERR_INVALID,
                "a tensor on " + place.str() + ": this group's GPU is " +
                    place_.str() + ", and a group has one");
        if (device_) {
            return;
        }
        const c10::DeviceGuard guard(place);
        weft_device *device = nullptr;
        check(weft_device_open("cuda", place.index(), &device));
        std::lock_guard<std::mutex> hold(at_->lock);
        const weft_status status = at_->comm
                                       ? weft_comm_set_device(at_->comm, device)
                                       : WEFT_ERR_INVALID;
        if (status != WEFT_OK) {
            const std::string why = weft_error_text();
            weft_device_close(device);
            at_->check_here();
            check(status, why.c_str());
        }
        device_ = device;
        place_ = place;
    }

    /* One more of the same GPU, for another communicator of this rank; or none
     * where this one has none. The caller's. */
    weft_device *reopen()
    {
        std::lock_guard<std::mutex> alone(lock_);
        weft_device *device = nullptr;
        if (device_) {
            const c10::DeviceGuard guard(place_);
            check(weft_device_open("cuda", place_.index(), &device));
        }
        return device;
    }

    /* A device that its communicator has from the start. */
    void take(weft_device *device, c10::Device place)
    {
        std::lock_guard<std::mutex> alone(lock_);
        device_ = device;
        place_ = place;
    }

    bool is_busy()
    {
        bool is_stuck = false;
        return has_more(is_stuck) && at_->fault().status == WEFT_OK;
    }

    /* Posts on a lane what the current stream has made ready; copies back
     * follow it there. Where it throws, nothing has been posted, or the tensors
     * of what has are kept. */
    template <typename post_call>
    void launch(int number, begun &made, bool receives, const post_call &post)
    {
        std::lock_guard<std::mutex> alone(lock_);
        require(device_ != nullptr, WEFT_ERR_INVALID,
                "this process group has been shut down");
        const c10::impl::VirtualGuardImpl streams(place_.type());
        const c10::DeviceGuard guard(place_);
        lane &mine = get_lane(number);
        rest_->sweep();
        drop_passed(mine);
        const mark posted{std::make_shared<c10::Event>(place_.type()),
                          std::make_shared<c10::Event>(place_.type()), receives,
                          std::nullopt};
        posted.ready->record(streams.getStream(place_));
        posted.ready->block(mine.shown);
        mine.posted.push_back(posted); /* until its end is marked: over */
        made.at = at_;
        made.lane = mine.shown;
        {
            std::lock_guard<std::mutex> hold(at_->lock);
            at_->check_here();
            check(post(at_->comm, mine.stream));
        }
        bool is_marked = false;
        try {
            posted.end->record(mine.shown);
            made.ends.push_back(posted.end);
            is_marked = true;
            copy_back(made, mine.shown);
        } catch (...) {
            if (is_marked) {
                rest_->put(std::move(made));
            } else {
                rest_->put_for_good(std::move(made));
            }
            throw;
        }
    }

    /* Until all that has been posted is over, or the group has failed. True:
     * that would never be, as far as one can see: a receive has begun, and no
     * message comes; or somebody waits. */
    bool is_endless(milliseconds limit)
    {
        const moment end = std::chrono::steady_clock::now() + limit;
        auto nap = kShortNap;
        bool is_stuck = false;
        while (has_more(is_stuck) && at_->fault().status == WEFT_OK) {
            if (is_stuck || rest_->waiting > 0 ||
                std::chrono::steady_clock::now() >= end) {
                return true;
            }
            std::this_thread::sleep_for(nap);
            nap = std::min(nap * 2, kLongNap);
        }
        return false;
    }

    /* Once the communicator is gone. */
    void close()
    {
        std::lock_guard<std::mutex> alone(lock_);
        {
            std::lock_guard<std::mutex> hold(rest_->streams);
            rest_->is_closed = true;
            for (const auto &entry : lanes_) {
                weft_stream_destroy(entry.second.stream);
            }
            lanes_.clear();
        }
        rest_->close();
        weft_device_close(device_);
        device_ = nullptr;
    }

  private:
    struct mark {
        std::shared_ptr<c10::Event> ready;
        std::shared_ptr<c10::Event> end;
        bool receives;
        std::optional<moment> begun_at; /* when that was seen */
    };
    struct lane {
        weft_stream *stream;
        c10::Stream shown;       /* to torch, which does not own it */
        std::deque<mark> posted; /* the first has not ended */
    };

    static void copy_back(begun &made, const c10::Stream &stream)
    {
        if (made.after.empty()) {
            return;
        }
        const c10::StreamGuard on(stream);
        const at::NoGradGuard plain;
        for (auto &copy : made.after) {
            copy();
        }
        made.after.clear();
        made.ends.back()->record(stream);
    }

    static void drop_passed(lane &of)
    {
        while (!of.posted.empty() &&
               shelf::has_passed(*of.posted.front().end)) {
            of.posted.pop_front();
        }
    }

    bool has_more(bool &is_stuck)
    {
        std::lock_guard<std::mutex> alone(lock_);
        const moment now = std::chrono::steady_clock::now();
        bool any = false;
        for (auto &entry : lanes_) {
            drop_passed(entry.second);
            if (entry.second.posted.empty()) {
                continue;
            }
            any = true;
            mark &first = entry.second.posted.front();
            if (!first.receives || !shelf::has_passed(*first.ready)) {
                continue;
            }
            first.begun_at = first.begun_at.value_or(now);
            is_stuck |= now - *first.begun_at >= kGrace;
        }
        return any;
    }

    lane &get_lane(int number)
    {
        const auto found = lanes_.find(number);
        if (found != lanes_.end()) {
            return found->second;
        }
        weft_stream *stream = nullptr;
        check(weft_stream_create(device_, 0, &stream));
        void *native = weft_stream_get_native(stream);
        /* A stream of others is its address to torch. */
        const c10::Stream shown(c10::Stream::UNSAFE, place_,
                                (c10::StreamId)(intptr_t)native);
        if (native_of(c10::impl::VirtualGuardImpl(place_.type()), shown) !=
            native) {
            weft_stream_destroy(stream);
            fail(WEFT_ERR_UNSUPPORTED, "weft: this torch knows streams of "
                                       "others by something else than their "
                                       "address");
        }
        return lanes_.emplace(number, lane{stream, shown, {}}).first->second;
    }

    template <typename guard_impl>
    static void *native_of(const guard_impl &streams, const c10::Stream &stream)
    {
        if constexpr (requires { streams.getStreamNativeHandle(stream); }) {
            return streams.getStreamNativeHandle(stream);
        } else {
            return (void *)(intptr_t)stream.id(); /* nobody to ask */
        }
    }

    std::shared_ptr<office> at_;
    std::shared_ptr<shelf> rest_;
    std::mutex lock_; /* before the office's */
    weft_device *device_ = nullptr;
    c10::Device place_{c10::kCPU};
    std::map<int, lane> lanes_;
};

} // namespace weft_torch

#endif
