/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel.c - the channel's life, and asking for outcomes.
 */
#include "comm/control/channel_state.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    PROBES_EACH = 2, /* two may call each other at once */
    PROBES_MORE = 16,
    SILENT_LEAST_NS = 250000000,
    SILENT_PART = 4 /* of the time limit */
};
static const int64_t silent_most_ns = 10 * INT64_C(1000000000);

static weft_status listen_on(wefti_control *control, uint32_t address)
{
    wefti_endpoint own;
    int fd;
    control->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->wake_fd < 0) {
        return wefti_error_system("control channel (eventfd)");
    }
    wefti_endpoint_v4("the control channel", address, 0, &own);
    weft_status status = wefti_endpoint_listen(&own, &fd);
    if (status == WEFT_OK) {
        wefti_oob_listener_init(&control->listener, fd, &control->self.secret);
        wefti_endpoint_pack(&own, control->addresses[control->self.rank]);
    }
    return status;
}

static void tear(wefti_control *control)
{
    for (int i = 0; control->probes && i < control->probe_count; i++) {
        wefti_peer_probe_close(&control->probes[i]);
    }
    wefti_oob_listener_close(&control->listener);
    if (control->wake_fd >= 0) {
        close(control->wake_fd);
    }
    wefti_notices_take(control, 0);
    while (control->notices) {
        wefti_notice *next = control->notices->next;
        free(control->notices);
        control->notices = next;
    }
    pthread_mutex_destroy(&control->lock);
    wefti_secret_fini(&control->self.secret);
    free(control->domains);
    free(control->addresses);
    free(control->probes);
    free(control->lost_ns);
    free(control->watched);
    free(control->polled);
    free(control->polled_as);
    free(control);
}

static bool allocate(wefti_control *control, size_t ranks)
{
    control->probe_count = PROBES_EACH * (int)ranks + PROBES_MORE;
    /* Contacts, processes, our own bell, and the listener's. */
    control->polled_room = control->probe_count + (int)ranks + 1;
    const size_t room = (size_t)control->polled_room;
    control->domains = calloc(ranks, sizeof(*control->domains));
    control->addresses = calloc(ranks, sizeof(*control->addresses));
    control->probes =
        calloc((size_t)control->probe_count, sizeof(*control->probes));
    control->lost_ns = calloc(ranks, sizeof(*control->lost_ns));
    control->watched = calloc(ranks, sizeof(*control->watched));
    control->polled =
        calloc(room + WEFTI_OOB_LISTENER_POLLED, sizeof(*control->polled));
    control->polled_as = calloc(room, sizeof(*control->polled_as));
    return control->domains && control->addresses && control->probes &&
           control->lost_ns && control->watched && control->polled &&
           control->polled_as;
}

weft_status wefti_control_open(wefti_engine *engine,
                               const wefti_membership *membership,
                               uint32_t address, wefti_control **control_out)
{
    wefti_control *control = calloc(1, sizeof(*control));
    if (!control) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for the control channel");
    }
    control->engine = engine;
    control->wake_fd = -1;
    control->posted_end = &control->posted;
    control->self.rank = membership->rank;
    control->self.nranks = membership->nranks;
    wefti_secret_init(&control->self.secret, membership->job_key,
                      WEFTI_JOB_KEY_BYTES);
    pthread_mutex_init(&control->lock, NULL);
    wefti_oob_listener_init(&control->listener, -1, NULL);
    weft_status status = allocate(control, (size_t)membership->nranks)
                             ? listen_on(control, address)
                             : wefti_error(WEFT_ERR_NO_MEMORY,
                                           "no memory for the control channel");
    if (status != WEFT_OK) {
        tear(control);
        return status;
    }
    for (int rank = 0; rank < membership->nranks; rank++) {
        control->domains[rank] = membership->members[rank].domain;
    }
    *control_out = control;
    return WEFT_OK;
}

unsigned char *wefti_control_get_address(wefti_control *control, int rank)
{
    return control->addresses[rank];
}

weft_status wefti_control_start(wefti_control *control)
{
    control->started =
        wefti_thread_start(wefti_control_run, control, &control->thread) == 0;
    return control->started ? WEFT_OK
                            : wefti_error_system("thread of the control "
                                                 "channel (pthread_create)");
}

static void wake(const wefti_control *control)
{
    const uint64_t one = 1;
    ssize_t written = write(control->wake_fd, &one, sizeof(one));
    (void)written;
}

void wefti_control_activate(wefti_control *control, int64_t timeout_ns)
{
    const wefti_engine *engine = control->engine;
    wefti_shared_header *header = wefti_mapping_get_base(engine->mapping);
    int64_t silent_ns = timeout_ns / SILENT_PART;
    silent_ns = silent_ns < SILENT_LEAST_NS ? SILENT_LEAST_NS : silent_ns;
    control->self.silent_ns =
        silent_ns > silent_most_ns ? silent_most_ns : silent_ns;
    for (int rank = 0; rank < control->self.nranks; rank++) {
        control->watched[rank] = engine->members->members[rank].pidfd >= 0;
    }
    control->outcomes = header->outcomes;
    control->began_ns = wefti_clock_ns();
    atomic_store(&control->active, true);
    wake(control);
}

void wefti_control_close(wefti_control *control)
{
    if (!control) {
        return;
    }
    atomic_store(&control->closing, true);
    if (control->started) {
        wake(control);
        pthread_join(control->thread, NULL);
    }
    tear(control);
}

wefti_rank_outcome wefti_control_get_outcome(const wefti_control *control,
                                             int rank)
{
    return atomic_load(&control->active)
               ? (wefti_rank_outcome)atomic_load(&control->outcomes[rank])
               : WEFTI_RANK_OUTCOME_NONE;
}
