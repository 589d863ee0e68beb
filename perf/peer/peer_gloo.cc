/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_gloo.cc - Gloo as a peer, over tcp: its options are made anew
 * for each call, as PyTorch makes them. It has no reduce_scatter but an old one
 * bound to its buffers, in place; that is left out.
 *
 * FOLDER/interface, where there is one, names the network interface to use;
 * else it is the loopback.
 */
#include "perf/peer/peer_library.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

namespace
{
std::shared_ptr<gloo::rendezvous::Context> context;
uint64_t slot; /* of the next sendrecv, the same on all ranks */

const char *version()
{
    static const std::string text = "Gloo " +
                                    std::to_string(GLOO_VERSION_MAJOR) + "." +
                                    std::to_string(GLOO_VERSION_MINOR) + "." +
                                    std::to_string(GLOO_VERSION_PATCH);
    return text.c_str();
}

void connect(int rank, int nranks, const char *folder)
{
    wefti_peer_guard([=] {
        gloo::transport::tcp::attr attributes;
        std::ifstream named(std::string(folder) + "/interface");
        if (!(named >> attributes.iface)) {
            attributes.iface = "lo";
        }
        auto device = gloo::transport::tcp::CreateDevice(attributes);
        gloo::rendezvous::FileStore store(folder);
        context = std::make_shared<gloo::rendezvous::Context>(rank, nranks);
        context->connectFullMesh(store, device);
    });
}

void finish()
{
    context.reset();
}

using reducer = void (*)(void *, const void *, const void *, size_t);
const reducer sum = &gloo::sum<float>;

void all_reduce(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::AllreduceOptions options(context);
        options.setInput(it->send, it->count);
        options.setOutput(it->recv, it->count);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
    });
}

void all_gather(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::AllgatherOptions options(context);
        options.setInput(it->send, it->count);
        options.setOutput(it->recv, it->count * (size_t)it->nranks);
        gloo::allgather(options);
    });
}

void broadcast(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::BroadcastOptions options(context);
        options.setOutput(it->recv, it->count);
        options.setRoot(it->root);
        gloo::broadcast(options);
    });
}

void reduce(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::ReduceOptions options(context);
        options.setInput(it->send, it->count);
        options.setOutput(it->recv, it->count);
        options.setRoot(it->root);
        options.setReduceFunction(sum);
        gloo::reduce(options);
    });
}

void alltoall(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::AlltoallOptions options(context);
        options.setInput(it->send, it->count * (size_t)it->nranks);
        options.setOutput(it->recv, it->count * (size_t)it->nranks);
        gloo::alltoall(options);
    });
}

void alltoallv(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::AlltoallvOptions options(context);
        options.setInput(it->send,
                         std::vector<int64_t>(it->send_counts,
                                              it->send_counts + it->nranks));
        options.setOutput(it->recv,
                          std::vector<int64_t>(it->recv_counts,
                                               it->recv_counts + it->nranks));
        gloo::alltoallv(options);
    });
}

void gather(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::GatherOptions options(context);
        options.setInput(it->send, it->count);
        if (it->rank == it->root) {
            options.setOutput(it->recv, it->count * (size_t)it->nranks);
        }
        options.setRoot(it->root);
        gloo::gather(options);
    });
}

void scatter(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        gloo::ScatterOptions options(context);
        if (it->rank == it->root) {
            std::vector<float *> parts((size_t)it->nranks);
            for (size_t rank = 0; rank < parts.size(); rank++) {
                parts[rank] = it->send + rank * it->count;
            }
            options.setInputs(parts, it->count);
        }
        options.setOutput(it->recv, it->count);
        options.setRoot(it->root);
        gloo::scatter(options);
    });
}

void sendrecv(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        size_t bytes = it->count * sizeof(float);
        auto send = context->createUnboundBuffer(it->send, bytes);
        auto recv = context->createUnboundBuffer(it->recv, bytes);
        recv->recv(it->from, slot);
        send->send(it->to, slot);
        slot++;
        recv->waitRecv(nullptr, context->getTimeout());
        send->waitSend(nullptr, context->getTimeout());
    });
}

void barrier(const wefti_peer_call *)
{
    wefti_peer_guard([] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    });
}
} // namespace

extern "C" {
extern const wefti_peer_library wefti_peer_library_used;
/* In the order of its members; nullptr: it has no such operation. */
const wefti_peer_library wefti_peer_library_used = {
    version,
    nullptr /* start */,
    connect,
    finish,
    all_reduce,
    all_gather,
    nullptr /* reduce_scatter */,
    broadcast,
    reduce,
    alltoall,
    alltoallv,
    gather,
    scatter,
    sendrecv,
    barrier,
    0 /* shares_buffers */};
}
