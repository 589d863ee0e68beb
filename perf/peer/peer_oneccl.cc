/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/peer/peer_oneccl.cc - oneCCL on the host as a peer. Every call waits
 * for the event that it gets. Left out: gather and scatter, which it has not,
 * and sendrecv, whose send and receive are two blocking calls.
 *
 * Its ranks find each other over libfabric, whose providers lie beside libccl
 * in the Python package; what the environment says goes before.
 */
#include "perf/peer/peer_library.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <oneapi/ccl.hpp>

namespace
{
std::unique_ptr<ccl::communicator> comm;
const auto f32 = ccl::datatype::float32;
const auto sum = ccl::reduction::sum;

const char *version()
{
    static const std::string text = [] {
        auto it = ccl::get_library_version();
        return "oneCCL " + std::to_string(it.major) + "." +
               std::to_string(it.minor) + "." + std::to_string(it.update);
    }();
    return text.c_str();
}

void start(int *, int *)
{
    Dl_info where;
    auto known = reinterpret_cast<void *>(&ccl::get_library_version);
    if (dladdr(known, &where) && where.dli_fname) {
        std::string folder = where.dli_fname;
        setenv("FI_PROVIDER_PATH", folder.substr(0, folder.rfind('/')).c_str(),
               0);
    }
    setenv("CCL_ATL_TRANSPORT", "ofi", 0); /* its default needs an MPI */
    setenv("CCL_LOG_LEVEL", "error", 0);
    wefti_peer_guard([] { ccl::init(); });
}

void connect(int rank, int nranks, const char *)
{
    wefti_peer_guard([=] {
        ccl::shared_ptr_class<ccl::kvs> store;
        ccl::kvs::address_type mine{};
        if (rank == 0) {
            store = ccl::create_main_kvs();
            mine = store->get_address();
        }
        std::vector<ccl::kvs::address_type> all((size_t)nranks);
        wefti_peer_gather(mine.data(), mine.size(), all.data());
        if (rank != 0) {
            store = ccl::create_kvs(all[0]);
        }
        comm = std::make_unique<ccl::communicator>(
            ccl::create_communicator(nranks, rank, store));
    });
}

void finish()
{
    wefti_peer_guard([] { comm.reset(); });
}

void all_reduce(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        ccl::allreduce(it->send, it->recv, it->count, f32, sum, *comm).wait();
    });
}

void all_gather(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        std::vector<size_t> counts((size_t)it->nranks, it->count);
        ccl::allgatherv(it->send, it->count, it->recv, counts, f32, *comm)
            .wait();
    });
}

void reduce_scatter(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        ccl::reduce_scatter(it->send, it->recv, it->count, f32, sum, *comm)
            .wait();
    });
}

void broadcast(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        ccl::broadcast(it->recv, it->count, f32, it->root, *comm).wait();
    });
}

void reduce(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        ccl::reduce(it->send, it->recv, it->count, f32, sum, it->root, *comm)
            .wait();
    });
}

void alltoall(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        ccl::alltoall(it->send, it->recv, it->count, f32, *comm).wait();
    });
}

void alltoallv(const wefti_peer_call *it)
{
    wefti_peer_guard([=] {
        std::vector<size_t> send(it->send_counts, it->send_counts + it->nranks);
        std::vector<size_t> recv(it->recv_counts, it->recv_counts + it->nranks);
        ccl::alltoallv(it->send, send, it->recv, recv, f32, *comm).wait();
    });
}

void barrier(const wefti_peer_call *)
{
    wefti_peer_guard([] { ccl::barrier(*comm).wait(); });
}
} // namespace

extern "C" {
extern const wefti_peer_library wefti_peer_library_used;
/* In the order of its members; nullptr: it has no such operation. */
const wefti_peer_library wefti_peer_library_used = {version,
                                                    start,
                                                    connect,
                                                    finish,
                                                    all_reduce,
                                                    all_gather,
                                                    reduce_scatter,
                                                    broadcast,
                                                    reduce,
                                                    alltoall,
                                                    alltoallv,
                                                    nullptr /* gather */,
                                                    nullptr /* scatter */,
                                                    nullptr /* sendrecv */,
                                                    barrier,
                                                    0 /* shares_buffers */};
}
