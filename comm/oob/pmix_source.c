/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/pmix_source.c - under mpirun, srun --mpi=pmix, or any other
 * launcher that speaks PMIx: it knows which rank this is, and carries rank 0's
 * invitation to the others.
 *
 *   rank 0: listen, put "weft.<n>", commit     all: fence     get it from rank
 * 0
 *
 * PMIx belongs to the process, and so does what is kept here, from the first
 * bootstrap to the process's end: leaving and coming back would race with the
 * others' fences. A rank is a process, and bootstraps are counted: the n-th of
 * a process is the n-th of all, and no key is used twice. PMIx counts its users
 * it, so MPI may do so too, before or after.
 *
 * Source: PMIx Standard 4.1, chapters 5 to 7.
 */
#include "comm/oob/pmix_library.h"
#include "comm/oob/rendezvous.h"
#include "comm/oob/source.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A connection to the launcher's daemon. */
typedef struct launcher {
    wefti_pmix_library library;
    pmix_proc_t self;
    int nranks;
    bool one_host;
} launcher;

/* A fence under way; the one that drops it last frees it. */
typedef struct fence {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done, abandoned;
    pmix_status_t status;
} fence;

static bool applies(const wefti_bootstrap_request *request)
{
    (void)request;
    return wefti_setting_foreign("PMIX_RANK") &&
           wefti_setting_foreign("PMIX_NAMESPACE");
}

static weft_status refuse(const launcher *self, const char *what,
                          pmix_status_t why)
{
    return wefti_error(WEFT_ERR_BOOTSTRAP, "PMIx: %s: %s", what,
                       self->library.error_string(why));
}

/* A number that the launcher knows about the whole job. */
static weft_status ask(launcher *self, const char *key, uint32_t *number_out)
{
    pmix_proc_t job = self->self;
    pmix_value_t *value = NULL;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_status_t got = self->library.get(&job, key, NULL, 0, &value);
    if (got == PMIX_SUCCESS && value->type != PMIX_UINT32) {
        got = PMIX_ERR_TYPE_MISMATCH;
    }
    if (got == PMIX_SUCCESS) {
        *number_out = value->data.uint32;
    }
    free(value);
    return got == PMIX_SUCCESS ? WEFT_OK : refuse(self, key, got);
}

static weft_status launcher_init(launcher *self)
{
    weft_status status = wefti_pmix_library_open(&self->library);
    if (status != WEFT_OK) {
        return status;
    }
    pmix_status_t begun = self->library.init(&self->self, NULL, 0);
    if (begun != PMIX_SUCCESS) {
        return refuse(self, "cannot reach the launcher", begun);
    }
    uint32_t nranks = 0, beside = 0;
    status = ask(self, PMIX_JOB_SIZE, &nranks);
    if (status == WEFT_OK && (nranks < 1 || self->self.rank >= nranks ||
                              nranks > WEFTI_JOB_RANKS_MOST)) {
        status = wefti_error(WEFT_ERR_BOOTSTRAP,
                             "PMIx: rank %u of %u: allowed is a job of 1 to %d",
                             self->self.rank, nranks, WEFTI_JOB_RANKS_MOST);
    }
    self->nranks = (int)nranks;
    self->one_host =
        ask(self, PMIX_LOCAL_SIZE, &beside) == WEFT_OK && beside == nranks;
    if (status != WEFT_OK) {
        (void)self->library.fini(NULL, 0);
    }
    return status;
}

/* The process's own, from the first use to its end. */
static struct {
    pthread_mutex_t lock;
    pid_t pid; /* 0: not open; another's: a forked child's copy */
    launcher launcher;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* mpirun takes a process that leaves without PMIx_Finalize for one that
 * crashed. */
static void take_leave(void)
{
    if (process.pid == getpid()) {
        (void)process.launcher.library.fini(NULL, 0);
    }
}

static weft_status launcher_open(launcher **launcher_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&process.lock);
    if (process.pid != getpid()) {
        status = launcher_init(&process.launcher);
        if (status == WEFT_OK) {
            process.pid = getpid();
            if (atexit(take_leave) != 0) {
                status = wefti_error(WEFT_ERR_NO_MEMORY,
                                     "no memory for an exit handler");
            }
        }
    }
    pthread_mutex_unlock(&process.lock);
    *launcher_out = &process.launcher;
    return status;
}

static weft_status find_rank(int *rank_out, int *nranks_out)
{
    launcher *self;
    weft_status status = launcher_open(&self);
    if (status == WEFT_OK) {
        *rank_out = (int)self->self.rank;
        *nranks_out = self->nranks;
    }
    return status;
}

static void fence_free(fence *own)
{
    pthread_cond_destroy(&own->ended);
    pthread_mutex_destroy(&own->lock);
    free(own);
}

/* On a thread of PMIx. */
static void fence_ended(pmix_status_t status, void *context)
{
    fence *own = context;
    pthread_mutex_lock(&own->lock);
    bool abandoned = own->abandoned;
    own->done = true;
    own->status = status;
    pthread_cond_signal(&own->ended);
    pthread_mutex_unlock(&own->lock);
    if (abandoned) {
        fence_free(own);
    }
}

static weft_status fence_create(fence **fence_out)
{
    fence *own = calloc(1, sizeof(*own));
    if (!own) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a fence");
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&own->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&own->lock, NULL);
    *fence_out = own;
    return WEFT_OK;
}

/* Until the fence ends or until_ns; whether it has. Lock held. */
static bool fence_wait(fence *own, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000,
                             .tv_nsec = until_ns % 1000000000};
    while (!own->done &&
           pthread_cond_timedwait(&own->ended, &own->lock, &until) == 0) {
    }
    return own->done;
}

/* All ranks of the job have come this far, and what they put is with all. */
static weft_status pass_fence(launcher *self,
                              const wefti_bootstrap_request *request)
{
    fence *own;
    weft_status status = fence_create(&own);
    if (status != WEFT_OK) {
        return status;
    }
    pmix_proc_t job = self->self;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_info_t collect = {.key = PMIX_COLLECT_DATA,
                           .value = {.type = PMIX_BOOL, .data.flag = true}};
    const int64_t begin_ns = wefti_clock_ns();
    pmix_status_t begun =
        self->library.fence_nb(&job, 1, &collect, 1, fence_ended, own);
    if (begun != PMIX_SUCCESS) {
        fence_free(own);
        return refuse(self, "fence", begun);
    }
    pthread_mutex_lock(&own->lock);
    bool done = fence_wait(own, begin_ns + request->warn_ms * 1000000);
    if (!done) {
        wefti_log(WEFTI_LOG_WARN, request->rank,
                  "waits for the other processes of the PMIx job: all %d must "
                  "create the communicator",
                  request->nranks);
        done = fence_wait(own, begin_ns + request->timeout_ms * 1000000);
    }
    own->abandoned = !done;
    pmix_status_t ended = own->status;
    pthread_mutex_unlock(&own->lock);
    if (!done) {
        return wefti_error(WEFT_ERR_TIMEOUT,
                           "rank %d: not all %d processes of the PMIx job have "
                           "come to create the communicator within %lld ms",
                           request->rank, request->nranks,
                           (long long)request->timeout_ms);
    }
    fence_free(own);
    return ended == PMIX_SUCCESS ? WEFT_OK : refuse(self, "fence", ended);
}

static weft_status put(launcher *self, const char *key, char *text)
{
    pmix_value_t value = {.type = PMIX_STRING, .data.string = text};
    pmix_status_t stored = self->library.put(PMIX_GLOBAL, key, &value);
    if (stored == PMIX_SUCCESS) {
        stored = self->library.commit();
    }
    return stored == PMIX_SUCCESS ? WEFT_OK : refuse(self, "put", stored);
}

static weft_status get(launcher *self, const char *key,
                       char text_out[WEFTI_INVITATION_BYTES])
{
    pmix_proc_t first = self->self;
    pmix_value_t *value = NULL;
    first.rank = 0;
    pmix_status_t got = self->library.get(&first, key, NULL, 0, &value);
    if (got != PMIX_SUCCESS) {
        return refuse(self, "rank 0's invitation", got);
    }
    bool text = value->type == PMIX_STRING && value->data.string;
    snprintf(text_out, WEFTI_INVITATION_BYTES, "%s",
             text ? value->data.string : "");
    if (text) {
        free(value->data.string);
    }
    free(value);
    return WEFT_OK;
}

/* The address of this machine that the others can reach; NULL: loopback. */
static const char *find_host(const launcher *self, char *room,
                             size_t room_bytes)
{
    if (wefti_setting_given(WEFTI_SETTING_HOST)) {
        return wefti_setting_text(WEFTI_SETTING_HOST);
    }
    if (self->one_host || gethostname(room, room_bytes) != 0) {
        return NULL;
    }
    return room;
}

/* Rank 0 invites, the others read the invitation; then all join. */
static weft_status join_all(launcher *self,
                            const wefti_bootstrap_request *request,
                            uint64_t bootstrap,
                            wefti_membership *membership_out)
{
    char key[32], text[WEFTI_INVITATION_BYTES], room[256];
    wefti_endpoint endpoint;
    wefti_secret secret = {{0}};
    int listen_fd = -1;
    weft_status status = WEFT_OK;
    snprintf(key, sizeof(key), "weft.%llu", (unsigned long long)bootstrap);
    if (request->rank == 0) {
        status = wefti_invitation_create("WEFT_HOST",
                                         find_host(self, room, sizeof(room)),
                                         &endpoint, &secret, &listen_fd, text);
        if (status == WEFT_OK) {
            status = put(self, key, text);
        }
    }
    /* The others wait there, whatever rank 0 has run into. */
    weft_status fenced = pass_fence(self, request);
    status = status == WEFT_OK ? fenced : status;
    if (status == WEFT_OK && request->rank != 0) {
        status = get(self, key, text);
        if (status == WEFT_OK) {
            status = wefti_invitation_read("what rank 0 has put into PMIx",
                                           text, &endpoint, &secret);
        }
    }
    if (status == WEFT_OK) {
        status = wefti_rendezvous_join(request, &endpoint, &secret, listen_fd,
                                       membership_out);
    } else if (listen_fd >= 0) {
        close(listen_fd);
    }
    sodium_memzero(text, sizeof(text));
    wefti_secret_fini(&secret);
    return status;
}

static weft_status join(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    static _Atomic uint64_t bootstraps; /* alone: a number for each */
    launcher *self;
    weft_status status = launcher_open(&self);
    if (status != WEFT_OK) {
        return status;
    }
    if (request->rank != (int)self->self.rank ||
        request->nranks != self->nranks) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "rank %d of %d: the PMIx launcher says rank %u of %d, and a "
            "process is one rank: give a unique id, or neither",
            request->rank, request->nranks, self->self.rank, self->nranks);
    }
    return join_all(self, request, atomic_fetch_add(&bootstraps, 1),
                    membership_out);
}

const wefti_launch_source wefti_launch_source_pmix = {
    .name = "PMIx",
    .sign = "PMIX_RANK and PMIX_NAMESPACE are set",
    .applies = applies,
    .find_rank = find_rank,
    .join = join,
};
