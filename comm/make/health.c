/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/health.c - how a communicator and its ranks are, for people and
 * for programs.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/watch/peer_life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank as it looks now. */
typedef struct rank_view {
    const char *state;
    uint64_t completed, entered;
    const char *what;
    double age_s;
} rank_view;

static rank_view view(weft_comm *comm, int rank)
{
    rank_view seen = {.state = "alive", .what = ""};
    int64_t when_ns = 0;
    const bool died = comm->engine->members && wefti_peer_has_died(comm, rank);
    if (wefti_peer_has_left(comm, rank)) {
        seen.state = "left";
    } else if (died) {
        seen.state = wefti_peer_is_cut(comm, rank) ? "unreachable" : "dead";
    }
    seen.completed = wefti_peer_finished(comm, rank);
    seen.entered = wefti_peer_last_entered(comm, rank, &seen.what, &when_ns);
    if (seen.entered < seen.completed) { /* of another host: it did not say */
        seen.entered = seen.completed;
        seen.what = NULL;
    }
    int64_t age_ns = wefti_clock_ns() - when_ns;
    seen.age_s = age_ns > 0 ? (double)age_ns / 1e9 : 0;
    return seen;
}

static void write_rank_text(FILE *out, int rank, const rank_view *seen)
{
    fprintf(out, "rank %d: %s, ", rank, seen->state);
    if (seen->entered == 0) {
        fprintf(out, "no operation yet\n");
        return;
    }
    if (!seen->what) {
        fprintf(out, "completed #%llu\n", (unsigned long long)seen->completed);
        return;
    }
    fprintf(out, "last #%llu %s %.3f s ago, completed #%llu\n",
            (unsigned long long)seen->entered, seen->what, seen->age_s,
            (unsigned long long)seen->completed);
}

static void write_text(weft_comm *comm, const weft_fault *fault,
                       const weft_comm_bytes *bytes, FILE *out)
{
    fprintf(out, "\"%s\": %s, rank %d of %d over %s\n", comm->name,
            fault->status == WEFT_OK ? "healthy" : "failed", comm->rank,
            comm->nranks, wefti_fabric_name(&comm->fabric));
    if (fault->status != WEFT_OK) {
        fprintf(out, "fault: %s: %s\n", weft_status_text(fault->status),
                fault->text);
    }
    fprintf(out,
            "memory: %llu bytes of this rank's own, %llu shared by all ranks, "
            "%llu of address space\n",
            (unsigned long long)bytes->own_bytes,
            (unsigned long long)bytes->shared_bytes,
            (unsigned long long)bytes->reserved_bytes);
    for (int rank = 0; rank < comm->nranks; rank++) {
        rank_view seen = view(comm, rank);
        write_rank_text(out, rank, &seen);
    }
}

static void write_fault(wefti_json *json, const weft_fault *fault)
{
    if (fault->status == WEFT_OK) {
        wefti_json_null(json, "fault");
        return;
    }
    wefti_json_object_open(json, "fault");
    wefti_json_text(json, "status", weft_status_text(fault->status));
    wefti_json_int(json, "code", fault->status);
    wefti_json_int(json, "rank", fault->rank);
    wefti_json_uint(json, "op", fault->op_number);
    wefti_json_text(json, "text", fault->text);
    wefti_json_object_close(json);
}

static void write_rank_json(wefti_json *json, int rank, const rank_view *seen)
{
    wefti_json_object_open(json, NULL);
    wefti_json_int(json, "rank", rank);
    wefti_json_text(json, "state", seen->state);
    wefti_json_uint(json, "completed", seen->completed);
    wefti_json_uint(json, "last_op", seen->entered);
    if (seen->entered && seen->what) {
        wefti_json_text(json, "last_what", seen->what);
        wefti_json_real(json, "age_s", seen->age_s);
    } else {
        wefti_json_null(json, "last_what");
        wefti_json_null(json, "age_s");
    }
    wefti_json_object_close(json);
}

static weft_status write_json(weft_comm *comm, const weft_fault *fault,
                              const weft_comm_bytes *bytes, FILE *out)
{
    wefti_json json;
    wefti_json_init(&json, out);
    wefti_json_object_open(&json, NULL);
    wefti_json_text(&json, "name", comm->name);
    wefti_json_text(&json, "state",
                    fault->status == WEFT_OK ? "healthy" : "failed");
    wefti_json_int(&json, "rank", comm->rank);
    wefti_json_int(&json, "nranks", comm->nranks);
    wefti_json_text(&json, "fabric", wefti_fabric_name(&comm->fabric));
    write_fault(&json, fault);
    wefti_json_object_open(&json, "bytes");
    wefti_json_uint(&json, "own", bytes->own_bytes);
    wefti_json_uint(&json, "shared", bytes->shared_bytes);
    wefti_json_uint(&json, "reserved", bytes->reserved_bytes);
    wefti_json_object_close(&json);
    wefti_json_array_open(&json, "ranks");
    for (int rank = 0; rank < comm->nranks; rank++) {
        rank_view seen = view(comm, rank);
        write_rank_json(&json, rank, &seen);
    }
    wefti_json_array_close(&json);
    wefti_json_object_close(&json);
    return wefti_json_fini(&json);
}

static weft_status describe(weft_comm *comm, weft_comm_format format, FILE *out)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    weft_comm_bytes bytes = {.size_bytes = sizeof(bytes)};
    weft_status status = weft_comm_get_fault(comm, &fault);
    if (status == WEFT_OK) {
        status = weft_comm_get_bytes(comm, &bytes);
    }
    if (status == WEFT_OK && format == WEFT_COMM_JSON) {
        status = write_json(comm, &fault, &bytes, out);
    } else if (status == WEFT_OK) {
        write_text(comm, &fault, &bytes, out);
    }
    return status;
}

weft_status weft_comm_get_health(weft_comm *comm, weft_comm_format format,
                                 char *text_out, size_t text_bytes)
{
    char *whole = NULL;
    size_t whole_bytes = 0;
    if (!wefti_comm_is_live(comm)) {
        return wefti_comm_refuse(comm, "comm");
    }
    if (!text_out || text_bytes == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "text_out is NULL or text_bytes 0: allowed is room "
                           "for text");
    }
    if (format != WEFT_COMM_TEXT && format != WEFT_COMM_JSON) {
        return wefti_error(WEFT_ERR_INVALID,
                           "format %d: allowed is %d (WEFT_COMM_TEXT) or %d "
                           "(WEFT_COMM_JSON)",
                           (int)format, (int)WEFT_COMM_TEXT,
                           (int)WEFT_COMM_JSON);
    }
    text_out[0] = '\0';
    FILE *out = open_memstream(&whole, &whole_bytes);
    if (!out) {
        return wefti_error_system("no memory for a report");
    }
    weft_status status = describe(comm, format, out);
    if (fclose(out) != 0 && status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a report");
    }
    if (status == WEFT_OK && whole_bytes >= text_bytes) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "text_bytes %zu: allowed is %zu or more here",
                             text_bytes, whole_bytes + 1);
    }
    if (status == WEFT_OK) {
        memcpy(text_out, whole, whole_bytes + 1);
    }
    free(whole);
    return status;
}
