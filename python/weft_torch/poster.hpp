/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/poster.hpp - what all calls of a group go through: begun on
 * the host, posted on a GPU's stream, or kept for the end of a batch; with it
 * messages, barriers and the group's life.
 */
#ifndef WEFT_TORCH_POSTER_HPP
#define WEFT_TORCH_POSTER_HPP

#include "buffers.hpp"
#include "gpu.hpp"
#include "meeting.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace weft_torch
{

class poster : public c10d::Backend
{
  public:
    poster(const store_ptr &store, int rank, int size, milliseconds timeout,
           const std::string &name)
        : Backend(rank, size), store_(store),
          office_(std::make_shared<office>()),
          futures_(std::make_shared<completer>()), timeout_(timeout),
          name_(name)
    {
        init();
        const weft_unique_id id = share_id(store, rank);
        weft_comm_config config = {};
        const std::string short_name = name.substr(0, 31);
        config.size_bytes = sizeof(config);
        config.id = &id;
        config.rank = rank;
        config.nranks = size;
        config.name = short_name.c_str();
        config.timeout_ms = timeout.count();
        office_->open(config);
        mail_ = std::make_shared<mail>(office_, rank, size);
        gpu_ = std::make_unique<gpu>(office_);
    }

    /* A group of what is left of another: its communicator, and the GPU that
     * it has or nullptr, are this one's. */
    poster(const store_ptr &store, weft_comm *comm, weft_device *device,
           c10::Device place, milliseconds timeout, const std::string &name)
        : Backend(weft_comm_get_rank(comm), weft_comm_get_nranks(comm)),
          store_(store), office_(std::make_shared<office>()),
          futures_(std::make_shared<completer>()), timeout_(timeout),
          name_(name)
    {
        init();
        office_->take(comm);
        mail_ = std::make_shared<mail>(office_, getRank(), getSize());
        gpu_ = std::make_unique<gpu>(office_);
        if (device) {
            gpu_->take(device, place);
        }
    }

    ~poster() override
    {
        leave();
    }

    const std::string getBackendName() const override
    {
        return "weft";
    }
    /* Without "override", here and below: older releases have no such call. */
    bool supportsCoalescing() const
    {
        return true;
    }
    uint64_t getSequenceNumberForGroup() override
    {
        return number_;
    }
    void setSequenceNumberForGroup() override
    {
    }

    /* device_id of init_process_group. */
    void eagerConnectSingleDevice(at::Device device) override
    {
        if (device.is_cuda()) {
            gpu_->open(device);
        }
    }

    /* Of what is called from now on. */
    void setTimeout(milliseconds timeout)
    {
        require(timeout > kNoTimeout, WEFT_ERR_INVALID,
                "a timeout of " + std::to_string(timeout.count()) +
                    " ms: allowed is 1 or more");
        timeout_ = timeout;
        is_timeout_set_ = true;
    }

    intrusive_ptr<Options> getBackendOptions()
    {
        auto options = c10::make_intrusive<Options>("weft", timeout_.load());
        set_name(*options, name_);
        return options;
    }

    /* Until all that has been called is done, or has failed. */
    void waitForPendingWorks() override
    {
        office_->drain();
        for (auto nap = kShortNap; mail_->is_busy() || gpu_->is_busy();
             nap = std::min(nap * 2, kLongNap)) {
            std::this_thread::sleep_for(nap);
        }
    }

    void enableCollectivesTiming() override
    {
        fail(WEFT_ERR_UNSUPPORTED, kUntimed);
    }

    void registerOnCompletionHook(
        std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&) override
    {
        fail(WEFT_ERR_UNSUPPORTED,
             "weft: there are no hooks of completion: a work's future calls "
             "what get_future().then() is given");
    }

    void abort()
    {
        office_->abort();
    }

    void shutdown()
    {
        leave();
    }

    intrusive_ptr<Work> barrier(const c10d::BarrierOptions &opts) override
    {
        const batch_call whole(*this);
        const weft_op op =
            make_op(WEFT_COLLECTIVE_BARRIER, "barrier", opts.timeout);
        begun made;
        if (const std::optional<c10::Device> place = gpu_->place()) {
            begin_on(*place, op, made);
            return end(OpType::BARRIER, "weft:barrier", std::move(made));
        }
        return end(OpType::BARRIER, "weft:barrier", begin(op, made));
    }

    void monitoredBarrier(const c10d::BarrierOptions &opts,
                          bool names_all) override
    {
        const milliseconds timeout = opts.timeout == c10d::kUnsetTimeout
                                         ? timeout_.load()
                                         : opts.timeout;
        roll_call(store_, getRank(), getSize(), roll_calls_++, timeout)
            .run(names_all);
    }

    /* ---- messages ---------------------------------------------------------
     */

    intrusive_ptr<Work> send(tensors &list, int peer, int tag) override
    {
        const batch_call whole(*this);
        begun made;
        const at::Tensor dense = take_in(made, only(list));
        if (!dense.device().is_cpu()) {
            return pass(OpType::SEND, "weft:send", std::move(made),
                        limited(message(WEFT_P2P_SEND, dense, peer, "send")),
                        tag);
        }
        check_batch(dense.device());
        std::vector<weft_p2p> parts;
        std::vector<weft_p2p> &to = coalesces_ ? list_ : parts;
        made.kept.push_back(mail_->enclose(
            to, limited(message(WEFT_P2P_SEND, dense, peer, "send")), tag));
        if (!coalesces_) {
            post(parts, made);
        }
        return end(OpType::SEND, "weft:send", std::move(made),
                   lane_of_sends(peer));
    }

    intrusive_ptr<Work> recv(tensors &list, int peer, int tag) override
    {
        const batch_call whole(*this);
        require(peer >= 0 && peer < getSize(), WEFT_ERR_INVALID,
                "recv from rank " + std::to_string(peer) + " of " +
                    std::to_string(getSize()));
        return receive(OpType::RECV, "weft:recv", list, peer, tag);
    }

    intrusive_ptr<Work> recvAnysource(tensors &list, int tag) override
    {
        const batch_call whole(*this);
        return receive(OpType::RECVANYSOURCE, "weft:recvAnySource", list,
                       kAnyone, tag);
    }

    void startCoalescing() override
    {
        const batch_call whole(*this);
        require(!coalesces_, WEFT_ERR_INVALID,
                "a batch before has not ended, so this one does not begin: one "
                "within another, or one in which torch has raised; nothing of "
                "the messages of either is sent");
        coalesces_ = true;
        batch_is_placed_ = false;
    }

    /* Messages begin here, as one list; collectives have begun. */
    intrusive_ptr<Work> endCoalescing() override
    {
        require(coalesces_, WEFT_ERR_INVALID, "coalescing has not begun");
        coalesces_ = false;
        begun made = std::move(batch_);
        std::vector<weft_p2p> list = std::move(list_);
        batch_ = begun();
        list_.clear();
        const std::vector<letter_ptr> letters = std::move(made.letters);
        const bool has_messages = !list.empty() || !letters.empty();
        made.letters.clear();
        try {
            if (!list.empty() && !batch_place_.is_cpu()) {
                post_on_gpu(kLists, list, made);
            } else if (!list.empty()) {
                post(list, made);
            }
            for (const letter_ptr &one : letters) {
                mail_->expect(one);
                made.letters.push_back(one);
            }
        } catch (...) {
            let_go(std::move(made));
            throw;
        }
        return end(OpType::COALESCED, "weft:coalesced", std::move(made),
                   has_messages ? kAnyOrder : kCollectives);
    }

  protected:
    /* ---- groups from this one ---------------------------------------------
     */

    /* Where the next one meets, the same on all ranks that make it. */
    store_ptr next_store(const store_ptr &store, const char *kind)
    {
        return c10::make_intrusive<c10d::PrefixStore>(
            kind + std::to_string(children_++), store);
    }

    milliseconds limit_of(const intrusive_ptr<Options> &options) const
    {
        return options ? options->timeout : timeout_.load();
    }

    const std::string &own_name() const
    {
        return name_;
    }
    const store_ptr &store() const
    {
        return store_;
    }

    struct remains {
        weft_comm *comm;
        weft_device *device; /* nullptr: none */
        c10::Device place;
    };

    /* Those that are left must be who the caller says, or the ranks that torch
     * gives them would be others'. */
    remains leave_out(const std::vector<int64_t> &ranks, bool aborts,
                      milliseconds timeout)
    {
        const std::vector<int> list(ranks.begin(), ranks.end());
        const int expected = getSize() - (int)list.size();
        remains made{nullptr, gpu_->reopen(),
                     gpu_->place().value_or(c10::Device(c10::kCPU))};
        weft_comm_config config = {};
        config.size_bytes = sizeof(config);
        config.device = made.device;
        config.timeout_ms = timeout.count();
        try {
            if (aborts) {
                office_->abort();
            }
            std::lock_guard<std::mutex> hold(office_->lock);
            office_->check_here();
            check(weft_comm_shrink_without(office_->comm, list.data(),
                                           (int)list.size(), &config,
                                           &made.comm));
            const int left = weft_comm_get_nranks(made.comm);
            require(left == expected, WEFT_ERR_PEER,
                    "of the " + std::to_string(expected) +
                        " ranks that would go on, " + std::to_string(left) +
                        " are left: leave out those that are lost, too");
            /* Who is first here may end the old group at once, which others
             * still agree by. */
            check(weft_barrier(made.comm, nullptr));
        } catch (...) {
            weft_comm_destroy(made.comm);
            weft_device_close(made.device);
            throw;
        }
        return made;
    }

    /* ---- what several calls do --------------------------------------------
     */

    /* Stands first in each call that may be coalesced: one that throws ends its
     * batch, since torch ends none that a call has thrown in. */
    class batch_call
    {
      public:
        explicit batch_call(poster &of)
            : of_(of), before_(std::uncaught_exceptions())
        {
        }
        ~batch_call()
        {
            if (std::uncaught_exceptions() > before_) {
                of_.drop_batch();
            }
        }

      private:
        poster &of_;
        const int before_;
    };

    /* What has begun and will have no work: its tensors live until it ends. */
    void let_go(begun &&rest)
    {
        if (!rest.ends.empty()) {
            gpu_->rest()->put(std::move(rest));
        } else if (!rest.requests.empty() || !rest.letters.empty()) {
            c10::make_intrusive<weft_work>(getRank(), OpType::UNKNOWN, nullptr,
                                           number_, kAnyOrder, std::move(rest),
                                           futures_);
        }
    }

    /* Messages of it have not been posted, collectives have. */
    void drop_batch()
    {
        if (coalesces_) {
            begun rest = std::move(batch_);
            coalesces_ = false;
            batch_ = begun();
            list_.clear();
            rest.letters.clear();
            let_go(std::move(rest));
        }
    }

    /* An operation that nothing is wrong with; counts are those it points to.
     */
    struct prepared {
        weft_op op;
        begun made;
        std::vector<size_t> counts;
    };

    begun begin_all(std::vector<prepared> &&list)
    {
        begun all;
        for (const prepared &one : list) {
            const c10::Device first = list[0].made.place();
            const c10::Device place = one.made.place();
            require(place == first, WEFT_ERR_INVALID,
                    "tensors on " + first.str() + " and on " + place.str() +
                        " in one call");
        }
        try {
            for (prepared &one : list) {
                all.merge(begin(one.op, one.made));
            }
        } catch (...) {
            let_go(std::move(all));
            throw;
        }
        return all;
    }

    /* With the group's limit, where it has been set and the call has none. */
    template <typename call> call limited(call of) const
    {
        if (is_timeout_set_ && !of.timeout_ms) {
            of.timeout_ms = (uint64_t)timeout_.load().count();
        }
        return of;
    }

    /* What is coalesced is all in one place. */
    void check_batch(c10::Device place)
    {
        require(!coalesces_ || !batch_is_placed_ || place == batch_place_,
                WEFT_ERR_INVALID,
                "tensors on " + batch_place_.str() + " and on " + place.str() +
                    " are coalesced");
        batch_place_ = place;
        batch_is_placed_ = true;
    }

    void begin_on(c10::Device place, const weft_op &op, begun &made)
    {
        check_batch(place);
        gpu_->open(place);
        gpu_->launch(kCollectives, made, false,
                     [&](weft_comm *comm, weft_stream *stream) {
                         const weft_op own = limited(op);
                         return weft_op_post(&own, 0, comm, stream);
                     });
        number_++;
    }

    begun begin(const weft_op &op, begun &made)
    {
        const c10::Device place = made.place();
        if (!place.is_cpu()) {
            begin_on(place, op, made);
            return std::move(made);
        }
        check_batch(place);
        std::lock_guard<std::mutex> hold(office_->lock);
        weft_request *request = nullptr;
        office_->check_here();
        const weft_op own = limited(op);
        check(weft_op_begin(&own, 0, office_->comm, &request));
        number_++;
        made.at = office_;
        office_->keep(request);
        made.requests.push_back(request);
        return std::move(made);
    }

    void post(const std::vector<weft_p2p> &list, begun &made)
    {
        std::lock_guard<std::mutex> hold(office_->lock);
        made.at = office_;
        made.requests.push_back(office_->begin(list));
        office_->keep(made.requests.back());
    }

    void post_on_gpu(int lane, const std::vector<weft_p2p> &list, begun &made)
    {
        const bool receives =
            std::any_of(list.begin(), list.end(), [](const weft_p2p &part) {
                return part.kind == WEFT_P2P_RECV;
            });
        gpu_->launch(
            lane, made, receives, [&](weft_comm *comm, weft_stream *stream) {
                return weft_p2p_post(list.data(), list.size(), comm, stream);
            });
    }

    /* A message of a GPU's memory: matched in the order of posting, in a queue
     * apart from the heads and messages of the mail. */
    intrusive_ptr<Work> pass(OpType type, const char *title, begun &&made,
                             weft_p2p part, int tag)
    {
        require(tag == 0, WEFT_ERR_UNSUPPORTED,
                "tag " + std::to_string(tag) +
                    ": messages of tensors on a GPU are matched in the order "
                    "of posting; allowed is 0");
        require(part.peer >= 0 && part.peer < getSize(), WEFT_ERR_INVALID,
                std::string(part.label) + ": rank " +
                    std::to_string(part.peer) + " of " +
                    std::to_string(getSize()));
        const bool sends = part.kind == WEFT_P2P_SEND;
        const c10::Device place = made.place();
        check_batch(place);
        gpu_->open(place);
        part.queue = 1;
        if (coalesces_) {
            list_.push_back(part);
        } else {
            post_on_gpu(sends ? lane_of_sends(part.peer)
                              : lane_of_receives(part.peer),
                        {part}, made);
        }
        return end(type, title, std::move(made));
    }

    intrusive_ptr<Work> end(OpType type, const char *title, begun &&made,
                            int lane = kCollectives)
    {
        if (coalesces_) {
            batch_.merge(std::move(made));
            return nullptr;
        }
        if (!made.ends.empty()) {
            return c10::make_intrusive<gpu_work>(
                getRank(), type, title, number_, type == OpType::BARRIER,
                std::move(made), gpu_->rest());
        }
        return c10::make_intrusive<weft_work>(getRank(), type, title, number_,
                                              lane, std::move(made), futures_);
    }

    /* Expected from now on, or from the end of a batch. */
    intrusive_ptr<Work> receive(OpType type, const char *title, tensors &list,
                                int peer, int tag)
    {
        begun made;
        const at::Tensor dense = take_out(made, only(list));
        made.shown.push_back(list[0]);
        if (!dense.device().is_cpu()) {
            require(peer != kAnyone, WEFT_ERR_UNSUPPORTED,
                    "a receive from any rank, of a tensor on a GPU");
            return pass(type, title, std::move(made),
                        limited(message(WEFT_P2P_RECV, dense, peer, "recv")),
                        tag);
        }
        check_batch(dense.device());
        auto one = std::make_shared<letter>();
        one->part = limited(message(WEFT_P2P_RECV, dense, peer, "recv"));
        one->tag = tag;
        one->end = std::chrono::steady_clock::now() + timeout_.load();
        made.letters.push_back(one);
        made.post = mail_;
        if (!coalesces_) {
            mail_->expect(one);
        }
        return end(type, title, std::move(made), kAnyOrder);
    }

  private:
    /* ---- life -------------------------------------------------------------
     */

    /* Ends what is pending, then the threads that wait for it; these may need
     * Python's lock to tell. */
    void leave()
    {
        std::unique_ptr<pybind11::gil_scoped_release> others;
        if (PyGILState_Check()) {
            others = std::make_unique<pybind11::gil_scoped_release>();
        }
        bool is_endless = false;
        if (mail_) {
            mail_->stop();
            is_endless = mail_->is_awaited();
        }
        if (gpu_ && !is_endless) {
            is_endless = gpu_->is_endless(timeout_.load());
        }
        office_->close(is_endless);
        gpu_->close();
        futures_->stop();
    }

    store_ptr store_;
    std::shared_ptr<office> office_;
    std::shared_ptr<mail> mail_;
    std::atomic<uint64_t> number_{0};
    std::shared_ptr<completer> futures_;
    std::atomic<milliseconds> timeout_;
    std::atomic<bool> is_timeout_set_{false}; /* not the communicator's */
    const std::string name_;
    uint64_t roll_calls_ = 0;
    uint64_t children_ = 0;
    std::unique_ptr<gpu> gpu_;
    bool coalesces_ = false;
    bool batch_is_placed_ = false;
    c10::Device batch_place_{c10::kCPU};
    begun batch_;
    std::vector<weft_p2p> list_;
};

} // namespace weft_torch

#endif
