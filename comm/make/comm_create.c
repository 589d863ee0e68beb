/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/comm_create.c - the first communicator of a job: its ranks meet,
 * and each builds its own end.
 *
 * Whatever can fail on one rank alone happens between the meeting's welcome
 * and its verdict, or is told there if it failed before, so that all ranks
 * succeed or all learn which one did not, and why.
 */
#include "base/descriptors.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/control/channel.h"
#include "comm/core/reserve.h"
#include "comm/engine/engine.h"
#include "comm/make/cancel.h"
#include "comm/make/comm.h"
#include "comm/make/hosts.h"
#include "comm/make/net_measure.h"
#include "comm/make/route_join.h"
#include "comm/make/single_copy.h"
#include "comm/make/staging_trial.h"
#include "comm/net/net.h"
#include "comm/oob/bootstrap.h"
#include "comm/post/post.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STACK_LEAST_BYTES = 256 << 10, /* to create one in this thread */
    LIST_BYTES = 1 << 20           /* that one is taken to need, with all that
                                       a process touches beside */
};

/*
 * How many ranks there are for a core. Each of the domain is asked by its own
 * mask: bound one to a core, they have a core each, and not one for all. Ranks
 * of other domains on this host have cores of it too, but which cannot be
 * asked.
 */
static int count_ranks_per_core(const wefti_membership *members)
{
    cpu_set_t all, one;
    int local = 0, on_host = 0;
    CPU_ZERO(&all);
    for (int rank = 0; rank < members->nranks; rank++) {
        const wefti_member *member = &members->members[rank];
        on_host += member->host == members->members[members->rank].host;
        if (!wefti_membership_is_local(members, rank)) {
            continue;
        }
        local++;
        if (sched_getaffinity(member->pid, sizeof(one), &one) == 0) {
            CPU_OR(&all, &all, &one);
        }
    }
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const int asked = CPU_COUNT(&all) > 0 ? CPU_COUNT(&all) : 1;
    const int by_mask = (local + asked - 1) / asked;
    const int by_host = cores > 0 ? (on_host + cores - 1) / cores : 1;
    return by_mask > by_host ? by_mask : by_host;
}

/* What a rank brings to the meeting, and takes home from it. */
typedef struct building {
    wefti_engine *engine;      /* NULL if it could not be made */
    wefti_membership *members; /* likewise */
    const weft_comm_config *config;
    weft_status early; /* failed before the meeting: the others must know */
    char early_text[512];
    weft_comm *comm;
} building;

static weft_status build_world(const building *own,
                               const wefti_membership *members,
                               const wefti_tuning *tuning, weft_comm **comm_out)
{
    int *world_ranks = calloc((size_t)members->nranks, sizeof(*world_ranks));
    if (!world_ranks) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for the members");
    }
    for (int rank = 0; rank < members->nranks; rank++) {
        world_ranks[rank] = rank;
    }
    wefti_comm_parts parts = {
        .engine = own->engine,
        .rank = members->rank,
        .nranks = members->nranks,
        .members = members,
        .id = 1,
        .world_ranks = world_ranks,
        .memory_fd = members->nranks > 1 ? members->memory_fd : -1,
        .config = own->config,
        .tuning = *tuning,
    };
    weft_status status = wefti_comm_build(&parts, comm_out);
    free(world_ranks);
    return status == WEFT_OK && members->nranks > 1
               ? wefti_single_copy_offer(*comm_out, members)
               : status;
}

/* A file beyond the limit is refused by a signal, so the limit is asked. */
static weft_status size_memory(int memory_fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < WEFTI_MEMORY_REACH_BYTES) {
        return wefti_error(WEFT_ERR_SYSTEM,
                           "the limit on file sizes (RLIMIT_FSIZE, ulimit -f) "
                           "is %llu bytes; the job's shared memory is a file "
                           "of %llu, most of it holes: set it to unlimited",
                           (unsigned long long)limit.rlim_cur,
                           (unsigned long long)WEFTI_MEMORY_REACH_BYTES);
    }
    if (ftruncate(memory_fd, (off_t)WEFTI_MEMORY_REACH_BYTES) != 0) {
        return wefti_error_system(
            "cannot size the job's shared memory (ftruncate)");
    }
    return WEFT_OK;
}

/* A lack of memory is most often a limit, and then which one must be said. */
static weft_status name_limit(weft_status status, const wefti_tuning *tuning,
                              const wefti_membership *members)
{
    struct rlimit limit;
    if (status != WEFT_ERR_NO_MEMORY ||
        strstr(weft_error_text(), "RLIMIT_AS") ||
        getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return status;
    }
    return wefti_error(
        status,
        "%s: the limit on address space (RLIMIT_AS, ulimit -v) "
        "is %llu bytes, and a communicator of %d ranks maps "
        "%zu: raise it by as much, or to unlimited",
        weft_error_text(), (unsigned long long)limit.rlim_cur, members->nranks,
        wefti_comm_map_bytes(tuning, members->nranks,
                             wefti_membership_count_local(members), NULL));
}

/*
 * Pages count for a memory cgroup once they are touched, and beyond its limit
 * the kernel ends a process without a word: so it is asked whether one large
 * operation of all ranks of the domain has room.
 */
static weft_status check_memory(wefti_engine *engine,
                                const wefti_membership *members)
{
    const uint64_t each =
        WEFTI_STAGING_BYTES + WEFTI_FLAT_STEP_LISTS * LIST_BYTES;
    const uint64_t needed =
        each * (uint64_t)wefti_membership_count_local(members);
    wefti_memory_limit_read("", &engine->memory);
    if (members->nranks > 1 && engine->memory.bytes < needed) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "the memory limit %s is %llu bytes; the ranks here "
                           "need %llu for one large operation: raise it",
                           engine->memory.file,
                           (unsigned long long)engine->memory.bytes,
                           (unsigned long long)needed);
    }
    return WEFT_OK;
}

/* Between the welcome and the verdict: everything that can still fail. */
static weft_status prepare(void *context, const wefti_membership *members,
                           wefti_client *client)
{
    building *own = context;
    wefti_tuning tuning;
    memcpy(&tuning, members->tuning, sizeof(tuning));
    weft_status status =
        client ? wefti_net_join(own->engine, members, client) : WEFT_OK;
    if (status == WEFT_OK && members->nranks > 1) {
        status = size_memory(members->memory_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    own->engine->ranks_per_core = count_ranks_per_core(members);
    own->engine->oversubscribed = own->engine->ranks_per_core > 1;
    status = check_memory(own->engine, members);
    if (status == WEFT_OK) {
        status = build_world(own, members, &tuning, &own->comm);
    }
    if (status == WEFT_OK && own->engine->net) {
        status = wefti_net_start(own->engine->net, wefti_engine_attend);
        if (status == WEFT_OK && tuning.machines) {
            status = wefti_hosts_read(own->engine, members);
        }
    }
    return name_limit(status, &tuning, members);
}

/* Meets the other ranks; the engine then owns the membership. */
static weft_status meet(building *own, const wefti_tuning *tuning)
{
    const weft_comm_config *config = own->config;
    wefti_bootstrap_request request = {.id = config->id,
                                       .rank = config->rank,
                                       .nranks = config->nranks,
                                       .refused = own->early,
                                       .refused_text = own->early_text,
                                       .warn_ms = config->warn_ms,
                                       .timeout_ms = config->timeout_ms,
                                       .cancel_fd =
                                           wefti_cancel_get_fd(config->cancel),
                                       .prepare = prepare,
                                       .context = own};
    _Static_assert(sizeof(*tuning) <= sizeof(request.tuning),
                   "tuning must fit into the meeting's message");
    memcpy(request.tuning, tuning, sizeof(*tuning));
    wefti_membership members;
    weft_status status = wefti_bootstrap_join(&request, &members);
    if (status != WEFT_OK) {
        return status;
    }
    *own->members = members;
    pthread_mutex_lock(&own->engine->lock);
    own->engine->members = own->members;
    own->members = NULL;
    pthread_mutex_unlock(&own->engine->lock);
    if (own->engine->control) {
        wefti_control_activate(own->engine->control,
                               config->timeout_ms * 1000000);
    }
    return WEFT_OK;
}

/* A fault on the way is the communicator's: its next operation says so. */
static weft_status trade_hosts(weft_comm *world)
{
    wefti_hosts *hosts = world->engine->hosts;
    weft_status status =
        hosts ? wefti_hosts_trade(world, WEFTI_PURPOSE_CREATE, hosts) : WEFT_OK;
    return status == WEFT_ERR_NO_MEMORY ? status : WEFT_OK;
}

/*
 * The ranks' first operations. A rank that is lost in them has been seen in
 * some by one peer and not by another, and no further round could mend that. So
 * the verdict stays the meeting's, which all heard: the communicator is made,
 * and each rank hears of the fault in its own next operation.
 */
static weft_status begin_together(weft_comm *comm)
{
    const weft_op barrier = {.size_bytes = sizeof(barrier),
                             .collective = WEFT_COLLECTIVE_BARRIER,
                             .dtype = WEFT_DTYPE_U8};
    const bool alone = comm->nranks == 1;
    wefti_rank_page *pages[] = {
        wefti_shared_get_page(&comm->fabric.shared, comm->rank),
        wefti_shared_get_page(&comm->fabric.shared, 0)};
    if (!alone) {
        atomic_store(&pages[0]->ranks_per_core,
                     (uint32_t)comm->engine->ranks_per_core);
        wefti_single_copy_attempt(comm);
    }
    weft_status status =
        alone || comm->fabric.net
            ? wefti_post_for(WEFTI_PURPOSE_CREATE, &barrier, comm)
            : wefti_staging_trial(comm);
    if (status == WEFT_OK && !alone) {
        wefti_single_copy_conclude(comm);
        if (!comm->fabric.net) { /* all take rank 0's word */
            comm->ranks_per_core = (int)atomic_load(&pages[1]->ranks_per_core);
        }
    }
    if (status == WEFT_OK) {
        status = trade_hosts(comm);
    }
    if (status == WEFT_OK) {
        status = wefti_net_measure(comm);
    }
    weft_fault fault = {.size_bytes = sizeof(fault)};
    bool failed =
        weft_comm_get_fault(comm, &fault) == WEFT_OK && fault.status != WEFT_OK;
    return failed ? WEFT_OK : status;
}

static weft_status create(const weft_comm_config *config, weft_comm **comm_out)
{
    weft_comm_config full;
    wefti_tuning tuning;
    building own = {.config = &full};
    own.early = wefti_comm_read_config(config, NULL, &full);
    if (!full.size_bytes) {
        return own.early;
    }
    if (own.early == WEFT_OK) {
        own.early = wefti_descriptors_reserve();
    }
    if (own.early == WEFT_OK) {
        own.early = wefti_engine_create(&own.engine);
    }
    if (own.early == WEFT_OK) {
        own.members = calloc(1, sizeof(*own.members));
        own.early = own.members ? wefti_log_check()
                                : wefti_error(WEFT_ERR_NO_MEMORY,
                                              "no memory for the members");
    }
    if (own.early == WEFT_OK) {
        own.early = wefti_tuning_read(&tuning);
        if (full.flags & WEFT_COMM_SUM_FLAT) {
            tuning.sum_flat = true;
        }
    }
    if (own.early != WEFT_OK) {
        memset(&tuning, 0, sizeof(tuning));
        snprintf(own.early_text, sizeof(own.early_text), "%s",
                 weft_error_text());
    }
    weft_status status = meet(&own, &tuning);
    weft_comm *comm = own.comm;
    free(own.members); /* NULL once the engine has it */
    if (status != WEFT_OK && !comm) {
        if (own.engine) {
            wefti_engine_release(own.engine);
        }
        return status;
    }
    if (status == WEFT_OK) {
        wefti_cancel_attach(full.cancel, comm);
        status = begin_together(comm);
        wefti_cancel_detach(full.cancel);
    }
    if (status == WEFT_OK && wefti_cancel_is_posted(full.cancel)) {
        status = wefti_error(WEFT_ERR_ABORTED,
                             "rank %d: its creation was cancelled", comm->rank);
    }
    if (status != WEFT_OK) {
        weft_comm_destroy(comm);
        return status;
    }
    wefti_log(WEFTI_LOG_INFO, comm->rank,
              "%d rank%s, of which %d share memory with this one: %s",
              comm->nranks, comm->nranks == 1 ? "" : "s", comm->local_count - 1,
              wefti_fabric_name(&comm->fabric));
    if (comm->tuning.emulate_gbps > 0 && comm->rank == 0) {
        wefti_log(WEFTI_LOG_WARN, comm->rank,
                  "WEFT_EMULATE_GBPS: every rank's sending is limited to %g "
                  "GB/s",
                  comm->tuning.emulate_gbps);
    }
    wefti_route_join(comm);
    *comm_out = comm;
    return WEFT_OK;
}

/* A call of create by a thread with room for it. */
typedef struct creation {
    const weft_comm_config *config;
    weft_comm *comm;
    weft_status status;
    char text[512];
} creation;

static void *create_there(void *argument)
{
    creation *own = argument;
    own->status = create(own->config, &own->comm);
    if (own->status != WEFT_OK) {
        snprintf(own->text, sizeof(own->text), "%s", weft_error_text());
    }
    return NULL;
}

/* The network's library takes more than small stacks have while it loads. */
static weft_status create_with_room(const weft_comm_config *config,
                                    weft_comm **comm_out)
{
    creation own = {.config = config};
    pthread_t thread;
    if (wefti_thread_start(create_there, &own, &thread) != 0) {
        return wefti_error_system("thread to create a communicator (this one's "
                                  "stack is too small)");
    }
    (void)pthread_join(thread, NULL);
    *comm_out = own.comm;
    return own.status == WEFT_OK ? WEFT_OK
                                 : wefti_error(own.status, "%s", own.text);
}

weft_status weft_comm_create(const weft_comm_config *config,
                             weft_comm **comm_out)
{
    if (!comm_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "comm_out is NULL: allowed is a place for the "
                           "communicator");
    }
    *comm_out = NULL;
    const size_t left = wefti_thread_stack_left();
    return left > 0 && left < STACK_LEAST_BYTES
               ? create_with_room(config, comm_out)
               : create(config, comm_out);
}
