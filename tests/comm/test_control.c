/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    unauthenticated peers at the control channel change nothing: not
 *         noise, not a crowd of connections, not a wrong key, not a recorded
 *         note sent again, nor a rank that the job has not; a peer that knows
 *         the key is accepted.
 * Method  ranks as threads in two domains; one throws all that at another's
 *         port while all of them work, and in the end shows, with the job's
 *         key, that a fault comes in by the same door. Threads and descriptors
 *         are counted before and after.
 */
#include "comm/control/channel_state.h"
#include "tests/comm/raw_peer.h"
#include "tests/comm/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dirent.h>

enum { RANKS = 4, CROWD = 300 };

static int port_of(const weft_comm *comm, int rank)
{
    const unsigned char *packed = comm->engine->control->addresses[rank];
    return packed[1] << 8 | packed[2];
}

static wefti_secret key_of(const weft_comm *comm)
{
    wefti_secret secret;
    wefti_secret_init(&secret, comm->engine->members->job_key,
                      WEFTI_JOB_KEY_BYTES);
    return secret;
}

/* Other ranks still end the operations that the reporting rank had entered. */
static uint64_t completed_by(const weft_comm *comm)
{
    return atomic_load(
        &wefti_shared_get_page(&comm->fabric.shared, comm->rank)->completed);
}

static wefti_oob_message fault_of(const weft_comm *comm, const char *text)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTE};
    wefti_note note = {.kind = WEFTI_NOTE_FAULT,
                       .serial = 1,
                       .comm = comm->fabric.id,
                       .status = WEFT_ERR_PEER,
                       .rank = 1,
                       .completed = completed_by(comm)};
    snprintf(note.text, sizeof(note.text), "%s", text);
    wefti_note_encode(&note, &message);
    return message;
}

static wefti_oob_message presence_of(int rank)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_NOTE};
    const wefti_note note = {.kind = WEFTI_NOTE_PRESENT, .rank = rank};
    wefti_note_encode(&note, &message);
    return message;
}

/* More connections than there are places, with and without noise in them. */
static void crowd(int port)
{
    int fds[CROWD];
    unsigned char noise[64];
    for (int i = 0; i < CROWD; i++) {
        fds[i] = raw_connect(port);
        raw_require(fds[i] >= 0);
        if (i % 2) {
            randombytes_buf(noise, sizeof(noise));
            raw_send(fds[i], noise, sizeof(noise));
        }
    }
    for (int i = 0; i < CROWD; i++) {
        close(fds[i]);
    }
}

/* Sends a fault with a key that is not the job's. */
static void lie(const weft_comm *comm, int port)
{
    wefti_secret secret;
    raw_peer peer;
    wefti_secret_init(&secret, "not the key of the job", 22);
    wefti_oob_message hello = presence_of(0);
    wefti_oob_message fault = fault_of(comm, "a lie");
    if (raw_greet(&peer, port, &secret)) {
        raw_say(peer.fd, &peer.session, &hello);
        raw_say(peer.fd, &peer.session, &fault);
        raw_require(!raw_hear(peer.fd, &peer.session, &peer.message));
    }
    close(peer.fd);
}

/* A rank's own bytes, recorded on one connection, on another. */
static void replay(const weft_comm *comm, int port)
{
    const wefti_secret secret = key_of(comm);
    raw_peer first, second;
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    const wefti_oob_message hello = presence_of(0);
    raw_require(raw_greet(&first, port, &secret));
    size_t bytes = wefti_oob_message_encode(&hello, frame);
    wefti_oob_session_seal(&first.session, frame, bytes);
    raw_require(raw_greet(&second, port, &secret));
    raw_send(second.fd, frame, bytes);
    raw_require(!raw_hear(second.fd, &second.session, &second.message));
    close(first.fd);
    close(second.fd);
}

/* The same as lie, with the key; an unsealed or foreign frame ends it. */
static void tell(const weft_comm *comm, int port)
{
    const wefti_secret secret = key_of(comm);
    raw_peer peer;
    wefti_note note;
    const wefti_oob_message hello = presence_of(0);
    const wefti_oob_message fault = fault_of(comm, "told by rank 0");
    raw_require(raw_greet(&peer, port, &secret));
    raw_say(peer.fd, &peer.session, &hello);
    raw_require(raw_hear(peer.fd, &peer.session, &peer.message));
    raw_require(wefti_note_decode(&peer.message, &note) &&
                note.kind == WEFTI_NOTE_PRESENT && note.rank == 2);
    raw_say(peer.fd, &peer.session, &fault);
    raw_require(raw_hear(peer.fd, &peer.session, &peer.message));
    raw_require(wefti_note_decode(&peer.message, &note) &&
                note.kind == WEFTI_NOTE_ACK && note.known);
    close(peer.fd);
}

/* The outcome of a rank beyond the last: its sender is dropped. */
static void name_absent_rank(const weft_comm *comm, int port)
{
    const wefti_secret secret = key_of(comm);
    const wefti_note notes[] = {{.kind = WEFTI_NOTE_PRESENT, .rank = 0},
                                {.kind = WEFTI_NOTE_RANK_OUTCOME,
                                 .rank = RANKS,
                                 .outcome = WEFTI_RANK_OUTCOME_DEAD},
                                {.kind = WEFTI_NOTE_PING, .serial = 7}};
    raw_peer peer;
    raw_require(raw_greet(&peer, port, &secret));
    for (int i = 0; i < 3; i++) {
        wefti_oob_message message = {.kind = WEFTI_OOB_NOTE};
        wefti_note_encode(&notes[i], &message);
        raw_say(peer.fd, &peer.session, &message);
    }
    raw_require(raw_hear(peer.fd, &peer.session, &peer.message)); /* PRESENT */
    raw_require(!raw_hear(peer.fd, &peer.session, &peer.message));
    close(peer.fd);
}

static int run_attacked(weft_comm *comm, void *context)
{
    const int rank = weft_comm_get_rank(comm);
    weft_fault fault = {.size_bytes = sizeof(fault)};
    int failures = 0;
    (void)context;
    if (rank == 0) {
        const int port = port_of(comm, 2);
        crowd(port);
        lie(comm, port);
        replay(comm, port);
        name_absent_rank(comm, port);
    }
    for (int i = 0; i < 20; i++) {
        failures += weft_barrier(comm, NULL) != WEFT_OK;
    }
    failures +=
        weft_comm_get_fault(comm, &fault) != WEFT_OK || fault.status != WEFT_OK;
    for (int other = 0; other < RANKS; other++) {
        failures += wefti_control_get_outcome(comm->engine->control, other) !=
                    WEFTI_RANK_OUTCOME_NONE;
    }
    failures += weft_barrier(comm, NULL) != WEFT_OK;
    if (rank == 0) {
        tell(comm, port_of(comm, 2));
    }
    /* What all have entered before they check still ends well. */
    weft_status status = weft_barrier(comm, NULL);
    for (int i = 0; i < 1000 && status == WEFT_OK; i++) {
        status = weft_barrier(comm, NULL);
    }
    failures += status != WEFT_ERR_PEER;
    failures += strcmp(weft_error_text(), "told by rank 0") != 0;
    if (failures) {
        fprintf(stderr, "rank %d: %s\n", rank, weft_error_text());
    }
    return failures;
}

static void test_control_unauthenticated_peers_change_nothing(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = run_attacked};
    assert_int_equal(world_run_threads(&world), 0);
}

static int count_entries(const char *folder)
{
    int entries = 0;
    DIR *open_folder = opendir(folder);
    raw_require(open_folder != NULL);
    while (readdir(open_folder)) {
        entries++;
    }
    closedir(open_folder);
    return entries;
}

static int meet(weft_comm *comm, void *context)
{
    (void)context;
    return weft_barrier(comm, NULL) != WEFT_OK;
}

static void test_control_leaves_no_thread_and_no_descriptor(void **state)
{
    (void)state;
    struct world world = {.nranks = RANKS, .call = meet};
    assert_int_equal(world_run_threads(&world), 0);
    const int descriptors = count_entries("/proc/self/fd");
    const int threads = count_entries("/proc/self/task");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(world_run_threads(&world), 0);
    }
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

int main(void)
{
    setenv("WEFT_DOMAIN", "a,a,b,b", 1);
    setenv("WEFT_NET_INTERFACE", "lo", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_unauthenticated_peers_change_nothing),
        cmocka_unit_test(test_control_leaves_no_thread_and_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
