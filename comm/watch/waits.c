/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/watch/waits.c - one record per rank, in its page of every
 * communicator.
 *
 * A rank that waits renews it every 20 to 80 ms; one that is not renewed counts
 * no more, so nothing is taken back when a wait ends, and the path of an
 * operation that does not wait is as short as it was.
 */
#include "comm/watch/waits.h"

#include "base/clock.h"
#include "comm/engine/ticket.h"
#include "comm/net/remote.h"
#include "comm/streams/streams.h"

#include <stdio.h>
#include <string.h>

enum {
    RENEW_NS = 100000000, /* another wait of this rank may be shown then */
    LOOK_NS = 20000000
};

/* The words of a wefti_wait_page. */
enum { KIND, PEER, NUMBER, COUNT, EPOCH, NAME };

static wefti_wait_page *page_of(const weft_comm *comm, int rank)
{
    return &wefti_shared_get_page(&comm->fabric.shared, rank)->wait;
}

static void pack(const wefti_wait_record *record,
                 uint64_t words_out[WEFTI_WAIT_WORDS])
{
    /* Of a signature's kind: purpose, dtype and collective; root is left. */
    const uint64_t purpose = record->signature >> 56;
    words_out[KIND] = (uint64_t)record->kind << 56 | purpose << 16 |
                      (record->signature & 0xffff);
    words_out[PEER] = (uint64_t)(record->peer + 1);
    words_out[NUMBER] = record->number;
    words_out[COUNT] = record->count;
    words_out[EPOCH] = record->epoch;
    memcpy(&words_out[NAME], record->name, sizeof(record->name));
}

static void unpack(const uint64_t words[WEFTI_WAIT_WORDS],
                   wefti_wait_record *record_out)
{
    record_out->kind = (wefti_wait_kind)(words[KIND] >> 56);
    record_out->signature =
        (words[KIND] >> 16 & 0xff) << 56 | (words[KIND] & 0xffff);
    record_out->peer = (int)(uint32_t)words[PEER] - 1;
    record_out->number = words[NUMBER];
    record_out->count = words[COUNT];
    record_out->epoch = words[EPOCH];
    memcpy(record_out->name, &words[NAME], sizeof(record_out->name));
    record_out->name[sizeof(record_out->name) - 1] = '\0';
}

static void show(weft_comm *comm, const uint64_t words[WEFTI_WAIT_WORDS],
                 int64_t since_ns, int64_t now_ns)
{
    wefti_wait_page *own = page_of(comm, comm->rank);
    for (int i = 0; i < WEFTI_WAIT_WORDS; i++) {
        atomic_store_explicit(&own->words[i], words[i], memory_order_relaxed);
    }
    atomic_store(&own->since_ns, since_ns);
    atomic_store(&own->seen_ns, now_ns);
}

/* Whether another wait is shown that says more. */
static bool is_outdone(const wefti_shown_wait *shown, const void *wait,
                       wefti_wait_weight weight, int64_t since_ns,
                       int64_t now_ns)
{
    if (shown->wait == wait || now_ns - shown->seen_ns > RENEW_NS) {
        return false;
    }
    return shown->weight != (int)weight ? shown->weight > (int)weight
                                        : shown->since_ns <= since_ns;
}

void wefti_waits_note(weft_comm *comm, const void *wait,
                      wefti_wait_record *found, wefti_wait_weight weight,
                      int64_t since_ns, int64_t now_ns, bool remote)
{
    wefti_engine *engine = comm->engine;
    uint64_t words[WEFTI_WAIT_WORDS];
    if (is_outdone(&engine->shown, wait, weight, since_ns, now_ns)) {
        return;
    }
    engine->shown = (wefti_shown_wait){wait, (int)weight, since_ns, now_ns};
    found->since_ns = since_ns;
    memcpy(found->name, comm->name, sizeof(found->name));
    pack(found, words);
    for (weft_comm *other = engine->comms; other; other = other->next) {
        if (other->failed == WEFT_OK) {
            show(other, words, since_ns, now_ns);
            if (remote) {
                wefti_remote_tell_waiting(&other->fabric);
            }
        }
    }
}

int64_t wefti_waits_patience(const weft_comm *comm, int64_t limit_ns)
{
    const int64_t half_ns = limit_ns / 2;
    return comm->warn_ns < half_ns ? comm->warn_ns : half_ns;
}

/* A stream that stands at a gate of weft's own waits in another operation. */
static bool is_own_gate(const wefti_engine *engine, const weft_gate *gate)
{
    for (weft_comm *comm = engine->comms; comm; comm = comm->next) {
        if (wefti_tickets_own(comm, gate) ||
            wefti_streams_own(comm->streams, gate)) {
            return true;
        }
    }
    return false;
}

void wefti_waits_note_stream(weft_comm *comm, weft_device *device,
                             weft_stream *stream, wefti_wait_record *found)
{
    const int64_t now_ns = wefti_clock_coarse_ns();
    wefti_stream_stand stand;
    if (now_ns - comm->stream_look_ns < LOOK_NS) {
        return;
    }
    comm->stream_look_ns = now_ns;
    const bool at_gate = wefti_stream_get_stand(device, stream, &stand);
    if (at_gate && is_own_gate(comm->engine, stand.gate)) {
        return;
    }
    if (comm->stream_since_ns == 0 ||
        now_ns - comm->stream_seen_ns > 2 * RENEW_NS) {
        comm->stream_since_ns = now_ns;
    }
    comm->stream_seen_ns = now_ns;
    found->kind = WEFTI_WAITS_STREAM;
    found->peer = -1;
    found->count = at_gate ? stand.chunk : 0;
    found->epoch = at_gate ? stand.epoch : 0;
    const int64_t limit_ns = comm->timeout_ns;
    const int64_t since_ns = comm->stream_since_ns;
    wefti_waits_note(comm, stream, found, WEFTI_WEIGHT_OWN, since_ns, now_ns,
                     now_ns - since_ns >
                         wefti_waits_patience(comm, limit_ns) / 2);
}

bool wefti_waits_get(weft_comm *comm, int rank, int64_t fresh_ns,
                     wefti_wait_record *found_out)
{
    const wefti_wait_page *page = page_of(comm, rank);
    const int64_t seen_ns = atomic_load(&page->seen_ns);
    uint64_t words[WEFTI_WAIT_WORDS];
    if (!seen_ns || wefti_clock_coarse_ns() - seen_ns > fresh_ns) {
        return false;
    }
    for (int i = 0; i < WEFTI_WAIT_WORDS; i++) {
        words[i] = atomic_load_explicit(&page->words[i], memory_order_relaxed);
    }
    unpack(words, found_out);
    found_out->since_ns = atomic_load(&page->since_ns);
    return true;
}

int wefti_waits_member(const weft_comm *comm, int world_rank)
{
    if (world_rank >= 0 && world_rank < comm->nranks &&
        comm->peers[world_rank].world_rank == world_rank) {
        return world_rank;
    }
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (comm->peers[rank].world_rank == world_rank) {
            return rank;
        }
    }
    return -1;
}

bool wefti_waits_find(weft_comm *comm, int world_rank, int64_t fresh_ns,
                      wefti_wait_record *found_out)
{
    int rank = wefti_waits_member(comm, world_rank);
    if (rank >= 0) {
        return wefti_waits_get(comm, rank, fresh_ns, found_out);
    }
    for (weft_comm *other = comm->engine->comms; other; other = other->next) {
        rank = wefti_waits_member(other, world_rank);
        if (rank >= 0 && other->failed == WEFT_OK) {
            return wefti_waits_get(other, rank, fresh_ns, found_out);
        }
    }
    return false;
}

/* "rank 3", or of who is no member: "rank 3 of the job". */
static void write_peer(const weft_comm *comm, int world_rank, char *text_out,
                       size_t text_bytes)
{
    const int rank = wefti_waits_member(comm, world_rank);
    snprintf(text_out, text_bytes,
             world_rank < 0 ? "any rank"
             : rank < 0     ? "rank %d of the job"
                            : "rank %d",
             rank < 0 ? world_rank : rank);
}

static void write_message(const wefti_wait_record *record, const char *peer,
                          char *text_out, size_t text_bytes)
{
    const weft_dtype dtype = (weft_dtype)(record->signature >> 8 & 0xff);
    const bool send = record->kind == WEFTI_WAITS_SEND;
    snprintf(text_out, text_bytes, "in %s #%llu %s %s of %llu %s",
             send ? "send" : "recv", (unsigned long long)record->number,
             send ? "to" : "from", peer, (unsigned long long)record->count,
             weft_dtype_text(dtype));
}

/* `all_reduce #1`, or, of another communicator, `all_reduce #1 on "tp"`. */
static void write_operation(const weft_comm *comm,
                            const wefti_wait_record *record, char *text_out,
                            size_t text_bytes)
{
    const bool here = strcmp(record->name, comm->name) == 0;
    snprintf(text_out, text_bytes, "%s #%llu%s%s%s",
             record->kind == WEFTI_WAITS_SEND ? "send"
             : record->kind == WEFTI_WAITS_RECV
                 ? "recv"
                 : wefti_signature_name(record->signature),
             (unsigned long long)record->number, here ? "" : " on \"",
             here ? "" : record->name, here ? "" : "\"");
}

void wefti_waits_text(const weft_comm *comm, const wefti_wait_record *record,
                      char *text_out, size_t text_bytes)
{
    char peer[40], what[96];
    const bool here = strcmp(record->name, comm->name) == 0;
    const unsigned long long count = record->count, epoch = record->epoch;
    write_peer(comm, record->peer, peer, sizeof(peer));
    write_operation(comm, record, what, sizeof(what));
    switch (record->kind) {
    case WEFTI_WAITS_SIGNAL:
        snprintf(text_out, text_bytes,
                 "in signal slot %llu from %s to come to %llu",
                 (unsigned long long)record->number, peer, count);
        break;
    case WEFTI_WAITS_GATE:
    case WEFTI_WAITS_WRITABLE:
        snprintf(text_out, text_bytes,
                 "for chunk %llu of the %s gate of %s to reach epoch %llu",
                 count, record->kind == WEFTI_WAITS_GATE ? "ready" : "writable",
                 what, epoch);
        break;
    case WEFTI_WAITS_STREAM:
        if (epoch) {
            snprintf(text_out, text_bytes,
                     "for its stream to come to %s: it stands at a gate, for "
                     "chunk %llu to reach epoch %llu",
                     what, count, epoch);
        } else {
            snprintf(text_out, text_bytes, "for its stream to come to %s",
                     what);
        }
        break;
    case WEFTI_WAITS_DEVICE:
        snprintf(text_out, text_bytes, "for its device's copy in %s", what);
        break;
    case WEFTI_WAITS_SEND:
    case WEFTI_WAITS_RECV:
        if (here) {
            write_message(record, peer, text_out, text_bytes);
            break;
        }
        __attribute__((fallthrough));
    default:
        snprintf(text_out, text_bytes, "in %s for %s", what, peer);
        break;
    }
}
