/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_nccl_api.c - the stand-in's communicators, and their workers.
 * With FAKE_NCCL_LACKS it lacks two functions.
 */
#include "tests/fake/fake_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAGIC    UINT64_C(0x66616b656e63636c)
#define RELEASED (UINT64_C(1) << 62)

/* Words that a stream may still look at. */
typedef struct retired {
    struct retired *next;
    nccl_words *words;
    CUcontext context;
    uint64_t submitted;
} retired;

static pthread_mutex_t retired_lock = PTHREAD_MUTEX_INITIALIZER;
static retired *retirees;

static _Thread_local char last_error[160];

int nccl_fail(int result, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return result;
}

void nccl_demand(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "fake NCCL: %s\n", what);
        abort();
    }
}

void nccl_check_comm(const struct ncclComm *comm)
{
    nccl_demand(comm && comm->magic == MAGIC,
                "not a communicator, or its end came");
}

static int number_of(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text && *text ? (int)strtol(text, NULL, 10) : fallback;
}

int ncclGetVersion(int *version)
{
    *version = number_of("WEFT_FAKE_NCCL_VERSION", 22809);
    return WEFTI_NCCL_SUCCESS;
}

int ncclGetUniqueId(wefti_nccl_id *id)
{
    return nccl_job_make_id(id)
               ? WEFTI_NCCL_SUCCESS
               : nccl_fail(WEFTI_NCCL_SYSTEM_ERROR, "no memory to share");
}

const char *ncclGetErrorString(int result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(struct ncclComm *comm)
{
    (void)comm;
    return last_error;
}

/* ---- the worker -----------------------------------------------------------
 */

static void delay(struct ncclComm *comm)
{
    const int draw = rand_r(&comm->seed) % 16;
    const struct timespec pause = {.tv_nsec = draw == 0 ? 2000000 : 10000};
    if (draw < 6) {
        (void)nanosleep(&pause, NULL);
    }
}

/* Until all ranks are there, on a GPU each. */
static int attach_all(struct ncclComm *comm)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const bool stuck = strcmp(comm->fault.kind, "stuck") == 0 &&
                       (comm->fault.rank < 0 || comm->fault.rank == comm->rank);
    if (!stuck) {
        atomic_fetch_add(&comm->job->attached, 1);
    }
    while (atomic_load(&comm->job->attached) < comm->nranks) {
        if (atomic_load(&comm->aborting)) {
            return WEFTI_NCCL_INTERNAL_ERROR;
        }
        (void)nanosleep(&pause, NULL);
    }
    for (int one = 0; one < comm->nranks; one++) {
        for (int other = 0; other < one; other++) {
            if (strcmp(comm->job->buses[one], comm->job->buses[other]) == 0) {
                return WEFTI_NCCL_INVALID_USAGE;
            }
        }
    }
    return WEFTI_NCCL_SUCCESS;
}

static nccl_group *next_group(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    while (!comm->first && !atomic_load(&comm->leaving) &&
           !atomic_load(&comm->aborting)) {
        pthread_cond_wait(&comm->queued, &comm->lock);
    }
    nccl_group *group = atomic_load(&comm->aborting) ? NULL : comm->first;
    if (group) {
        comm->first = group->next;
        if (!comm->first) {
            comm->last = &comm->first;
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return group;
}

static size_t place_of(uint64_t number)
{
    return (size_t)(number % NCCL_WORDS);
}

static uint64_t turn_of(uint64_t number)
{
    return number / NCCL_WORDS + 1;
}

static void *work(void *argument)
{
    struct ncclComm *comm = argument;
    nccl_group *group;
    nccl_demand(cuCtxSetCurrent(comm->context) == CUDA_SUCCESS, "no context");
    atomic_store(&comm->state, attach_all(comm));
    while ((group = next_group(comm)) != NULL) {
        const size_t at = place_of(group->number);
        const uint64_t turn = turn_of(group->number);
        bool well = nccl_work_await(comm, &comm->words->start[at], turn);
        if (well) {
            delay(comm);
            well = nccl_work_run(comm, group);
        }
        free(group);
        if (well) {
            atomic_store(&comm->words->end[at], turn);
            pthread_mutex_lock(&comm->lock);
            comm->done++;
            pthread_mutex_unlock(&comm->lock);
        }
    }
    return NULL;
}

/* ---- communicators --------------------------------------------------------
 */

/* KIND[@K][:RANK] */
static nccl_fault read_fault(void)
{
    nccl_fault fault = {.at = 1, .rank = -1};
    const char *text = getenv("WEFT_FAKE_NCCL_FAULT");
    if (text) {
        const char *at = strchr(text, '@'), *rank = strchr(text, ':');
        snprintf(fault.kind, sizeof(fault.kind), "%.*s",
                 (int)strcspn(text, "@:"), text);
        fault.at = at ? strtoul(at + 1, NULL, 10) : 1;
        fault.rank = rank ? (int)strtol(rank + 1, NULL, 10) : -1;
    }
    return fault;
}

/* As NCCL, it takes ranks with other names of their hosts for those of other
 * machines, whose GPUs are others too. */
static void add_host(char *bus, size_t room)
{
    const char *host = getenv("NCCL_HOSTID");
    const size_t used = strlen(bus);
    snprintf(bus + used, room - used, " %s", host ? host : "");
}

static bool open_gpu(struct ncclComm *comm)
{
    CUdevice device = 0;
    void *words = NULL;
    if (cuCtxGetCurrent(&comm->context) != CUDA_SUCCESS || !comm->context ||
        cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        cuDeviceGetPCIBusId(comm->job->buses[comm->rank],
                            sizeof(comm->job->buses[0]),
                            device) != CUDA_SUCCESS ||
        cuStreamCreateWithPriority(&comm->copies, CU_STREAM_NON_BLOCKING, 0) !=
            CUDA_SUCCESS ||
        cuMemHostAlloc(&words, sizeof(*comm->words), 0) != CUDA_SUCCESS) {
        return false;
    }
    add_host(comm->job->buses[comm->rank], sizeof(comm->job->buses[0]));
    memset(words, 0, sizeof(*comm->words));
    comm->words = words;
    return true;
}

int ncclCommInitRankConfig(struct ncclComm **comm_out, int nranks,
                           wefti_nccl_id id, int rank,
                           wefti_nccl_config *config)
{
    const nccl_fault fault = read_fault();
    *comm_out = NULL;
    if (nranks < 1 || nranks > NCCL_RANKS || rank < 0 || rank >= nranks ||
        config->magic != WEFTI_NCCL_MAGIC || config->size < 24) {
        return nccl_fail(WEFTI_NCCL_INVALID_ARGUMENT,
                         "bad rank, or bad config");
    }
    if (strcmp(fault.kind, "refuse") == 0 &&
        (fault.rank < 0 || fault.rank == rank)) {
        return nccl_fail(WEFTI_NCCL_SYSTEM_ERROR, "refused on demand");
    }
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    nccl_demand(comm != NULL, "no memory");
    comm->magic = MAGIC;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->fault = fault;
    comm->blocking = config->blocking != 0;
    comm->seed = (unsigned)(rank + 7 * nranks);
    comm->last = &comm->first;
    comm->state = WEFTI_NCCL_IN_PROGRESS;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->queued, NULL);
    if (!nccl_job_attach(comm, &id) || !open_gpu(comm) ||
        pthread_create(&comm->worker, NULL, work, comm) != 0) {
        nccl_job_detach(comm);
        free(comm);
        return nccl_fail(WEFTI_NCCL_UNHANDLED_CUDA_ERROR, "no GPU, or no job");
    }
    *comm_out = comm;
    while (comm->blocking &&
           atomic_load(&comm->state) == WEFTI_NCCL_IN_PROGRESS) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return atomic_load(&comm->state);
}

void nccl_launch(struct ncclComm *comm, nccl_group *group, CUstream stream)
{
    const size_t at = place_of(group->number);
    const uint64_t turn = turn_of(group->number);
    nccl_words *words = comm->words;
    group->next = NULL;
    pthread_mutex_lock(&comm->lock);
    *comm->last = group;
    comm->last = &group->next;
    pthread_cond_signal(&comm->queued);
    pthread_mutex_unlock(&comm->lock);
    (void)cuStreamWriteValue64_v2(
        stream, (CUdeviceptr)(uintptr_t)&words->start[at], turn, 0);
    (void)cuStreamWaitValue64_v2(stream,
                                 (CUdeviceptr)(uintptr_t)&words->end[at], turn,
                                 CU_STREAM_WAIT_VALUE_GEQ);
    (void)cuStreamWriteValue64_v2(
        stream, (CUdeviceptr)(uintptr_t)&words->passed[at], turn, 0);
}

int ncclCommGetAsyncError(struct ncclComm *comm, int *result)
{
    nccl_check_comm(comm);
    *result = atomic_load(&comm->state);
    if (*result == WEFTI_NCCL_SUCCESS && comm->held) {
        *result = WEFTI_NCCL_IN_PROGRESS;
        if (comm->questions-- <= 0) {
            nccl_group *group = comm->held;
            comm->held = NULL;
            nccl_launch(comm, group, comm->held_stream);
            *result = WEFTI_NCCL_SUCCESS;
        }
    }
    if (*result == WEFTI_NCCL_SUCCESS && comm->finalizing) {
        pthread_mutex_lock(&comm->lock);
        const bool done = comm->done == comm->submitted;
        pthread_mutex_unlock(&comm->lock);
        *result = done && atomic_load(&comm->job->finished) >= comm->nranks
                      ? WEFTI_NCCL_SUCCESS
                      : WEFTI_NCCL_IN_PROGRESS;
    }
    const int error = atomic_load(&comm->error);
    if (error != WEFTI_NCCL_SUCCESS) {
        *result = nccl_fail(error, "an error on demand");
    } else if (*result == WEFTI_NCCL_INVALID_USAGE) {
        (void)nccl_fail(*result, "Duplicate GPU detected");
    }
    return WEFTI_NCCL_SUCCESS;
}

int ncclCommFinalize(struct ncclComm *comm)
{
    nccl_check_comm(comm);
    nccl_demand(!comm->held, "finalize while a call is in progress");
    comm->finalizing = true;
    atomic_fetch_add(&comm->job->finished, 1);
    return WEFTI_NCCL_IN_PROGRESS;
}

/* Words of communicators that have ended, once no stream looks at them. */
static void free_retired(void)
{
    pthread_mutex_lock(&retired_lock);
    for (retired **at = &retirees; *at;) {
        retired *one = *at;
        bool passed = true;
        for (uint64_t n = 1; n <= one->submitted && passed; n++) {
            passed =
                atomic_load(&one->words->passed[place_of(n)]) >= turn_of(n);
        }
        if (passed && cuCtxPushCurrent_v2(one->context) == CUDA_SUCCESS) {
            CUcontext own;
            *at = one->next;
            (void)cuMemFreeHost(one->words);
            (void)cuCtxPopCurrent_v2(&own);
            free(one);
        } else {
            at = &one->next;
        }
    }
    pthread_mutex_unlock(&retired_lock);
}

static void end(struct ncclComm *comm)
{
    pthread_join(comm->worker, NULL);
    while (comm->first) {
        nccl_group *group = comm->first;
        comm->first = group->next;
        free(group);
    }
    const uint64_t launched = comm->submitted - (comm->held != NULL);
    free(comm->held);
    for (size_t i = 0; i < NCCL_WORDS; i++) {
        atomic_store(&comm->words->end[i], RELEASED);
    }
    (void)cuStreamDestroy_v2(comm->copies);
    retired *one = malloc(sizeof(*one));
    nccl_demand(one != NULL, "no memory");
    *one = (retired){
        .words = comm->words, .context = comm->context, .submitted = launched};
    pthread_mutex_lock(&retired_lock);
    one->next = retirees;
    retirees = one;
    pthread_mutex_unlock(&retired_lock);
    free_retired();
    nccl_job_detach(comm);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->queued);
    comm->magic = 0;
    free(comm);
}

static void wake_worker(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    pthread_cond_signal(&comm->queued);
    pthread_mutex_unlock(&comm->lock);
}

int ncclCommDestroy(struct ncclComm *comm)
{
    nccl_check_comm(comm);
    atomic_store(&comm->leaving, true);
    wake_worker(comm);
    end(comm);
    return WEFTI_NCCL_SUCCESS;
}

#ifndef FAKE_NCCL_LACKS
int ncclCommAbort(struct ncclComm *comm)
{
    nccl_check_comm(comm);
    if (!comm->finalizing) {
        atomic_fetch_add(&comm->job->finished, 1);
    }
    atomic_store(&comm->aborting, true);
    wake_worker(comm);
    end(comm);
    return WEFTI_NCCL_SUCCESS;
}
#endif
