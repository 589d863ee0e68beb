/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/control/channel.c - the channel's life, and asking for outcomes.
 */
#include "comm/control/channel_crew.h"
#include "comm/control/channel_state.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

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
    free(control->asked_ns);
    free(control->watched);
    free(control->refused);
    free(control->told);
    free(control->polled_as);
    free(control);
}

static bool allocate(wefti_control *control, size_t ranks)
{
    control->probe_count = PROBES_EACH * (int)ranks + PROBES_MORE;
    control->polled_room = control->probe_count + (int)ranks;
    control->domains = calloc(ranks, sizeof(*control->domains));
    control->addresses = calloc(ranks, sizeof(*control->addresses));
    control->probes =
        calloc((size_t)control->probe_count, sizeof(*control->probes));
    control->lost_ns = calloc(ranks, sizeof(*control->lost_ns));
    control->asked_ns = calloc(ranks, sizeof(*control->asked_ns));
    control->watched = calloc(ranks, sizeof(*control->watched));
    control->refused = calloc(ranks, sizeof(*control->refused));
    control->told = calloc(ranks, sizeof(*control->told));
    control->polled_as =
        calloc((size_t)control->polled_room, sizeof(*control->polled_as));
    return control->domains && control->addresses && control->probes &&
           control->lost_ns && control->asked_ns && control->watched &&
           control->refused && control->told && control->polled_as;
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
    control->posted_end = &control->posted;
    control->self.rank = control->herald = membership->rank;
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

weft_status wefti_control_start(wefti_control *control, uint64_t job)
{
    control->job = job;
    return wefti_crew_join(control);
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
    control->ports = header->ports;
    uint16_t port;
    memcpy(&port, control->addresses[control->self.rank] + 1, sizeof(port));
    atomic_store(&control->ports[control->self.rank], port);
    control->began_ns = wefti_clock_ns();
    atomic_store(&control->active, true);
    wefti_crew_wake(control->crew);
}

void wefti_control_close(wefti_control *control)
{
    if (!control) {
        return;
    }
    atomic_store(&control->closing, true);
    if (control->crew) {
        wefti_crew_leave(control);
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
