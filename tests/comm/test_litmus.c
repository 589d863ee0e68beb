/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whoever sees a flag of comm/fabric/shared.h sees what was written
 * before it, in every round; and no counter minds that it passes 2^32, nor,
 * where it is compared by equality or difference, 2^64.
 *
 * Method: the smallest program for each flag, over and over for a fixed time:
 * two or three threads, data that depend on the round, every word checked. The
 * threads call the library's own functions on its own memory. Counters are set
 * shortly before the wrap; operations are numbered by 64 bits, never from 0
 * again, so theirs are set before 2^32 only. The doorbell has its own such
 * test, tests/base/test_doorbell.c.
 */
#include "base/clock.h"
#include "comm/control/fault.h"
#include "comm/core/core.h"
#include "tests/comm/world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    WORDS = 24,
    LINE_WORDS = WEFTI_LINE_BYTES / 8,
    BEFORE = 200,
    ROUND_NS = 150000000
};
static const uint64_t wraps[] = {0, UINT64_C(1) << 32};

static uint64_t word_of(uint64_t round, uint64_t i)
{
    return (round + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
}

static void write_words(uint64_t *words, uint64_t round)
{
    for (uint64_t i = 0; i < WORDS; i++) {
        words[i] = word_of(round, i);
    }
}

static uint64_t wrong_of(const uint64_t *words, uint64_t count, uint64_t round)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        wrong += words[i] != word_of(round, i);
    }
    return wrong;
}

static uint64_t wrong_words(const uint64_t *words, uint64_t round)
{
    return wrong_of(words, WORDS, round);
}

/* ---- a message is posted; it is consumed ----------------------------------
 */

/* Two ranks' ends of one memory, and how far each has come. */
typedef struct link {
    wefti_fabric ends[2];
    wefti_doorbell bells[2];
    wefti_doorbell *bell_pointers[2];
    uint64_t rounds, sleeps, wrong;
    _Atomic uint64_t last; /* the sender's last, plus 1, once it is known */
} link_state;

static const wefti_fabric_path to_reader = {
    .peer = 1, .op_slot = 3, .channel = 1};
static const wefti_fabric_path to_sender = {
    .peer = 0, .op_slot = 3, .channel = 1};

/* Every third message lies in its own line. */
static bool is_in_line(uint64_t round)
{
    return round % 3 == 0;
}

static void *send_messages(void *argument)
{
    link_state *link = argument;
    wefti_fabric *end = &link->ends[0];
    const int64_t stop_ns = wefti_clock_ns() + ROUND_NS;
    uint64_t round = 0;
    while (round < 2 * BEFORE || wefti_clock_ns() < stop_ns) {
        if (!wefti_fabric_has_room(end, to_reader)) {
            sched_yield();
            continue;
        }
        uint64_t *staged = wefti_fabric_stage(
            end, to_reader, 2,
            (size_t)(wefti_fabric_posted(end, to_reader) % WEFTI_DEPTH) * 512);
        write_words(staged, round);
        wefti_outgoing outgoing = {.data = staged,
                                   .bytes = WORDS * sizeof(*staged),
                                   .ready_ns = (int64_t)round,
                                   .signature = {round, ~round, round * 3}};
        if (is_in_line(round)) {
            outgoing.bytes = WEFTI_LINE_BYTES;
            outgoing.place = WEFTI_PLACE_LINE;
        }
        wefti_fabric_post(end, to_reader, &outgoing);
        round++;
    }
    atomic_store(&link->last, round + 1);
    wefti_doorbell_ring(&link->bells[1]);
    return NULL;
}

/* Whether there is a message, or will never be one again. */
static bool have_news(link_state *link, wefti_incoming *message)
{
    int64_t due_ns = INT64_MAX;
    return wefti_fabric_peek(&link->ends[1], to_sender, message, &due_ns) ||
           atomic_load(&link->last) == link->rounds + 1;
}

static void *take_messages(void *argument)
{
    link_state *link = argument;
    wefti_doorbell *bell = &link->bells[1];
    while (atomic_load(&link->last) != link->rounds + 1) {
        wefti_incoming message = {0};
        if (!have_news(link, &message)) {
            uint32_t seen = wefti_doorbell_arm(bell);
            if (!have_news(link, &message)) {
                wefti_doorbell_sleep(bell, seen, 20000000000);
                link->sleeps++;
            }
            wefti_doorbell_disarm(bell, seen);
        }
        if (!message.data) {
            continue;
        }
        const uint64_t round = link->rounds++;
        const bool in_line = is_in_line(round);
        const uint64_t words = in_line ? LINE_WORDS : WORDS;
        link->wrong += wrong_of(message.data, words, round) +
                       (message.bytes != words * sizeof(uint64_t)) +
                       (message.ready_ns != (in_line ? 0 : (int64_t)round)) +
                       (message.place != WEFTI_PLACE_STAGED) +
                       (message.signature.count != round) +
                       (message.signature.kind != ~round) +
                       (message.signature.cut != round * 3);
        wefti_fabric_release(&link->ends[1], to_sender);
    }
    return NULL;
}

/* Both ends have already exchanged so many messages. */
static void start_link_at(link_state *link, uint64_t start)
{
    link->ends[0].posted[wefti_fabric_cell(&to_reader)] = start;
    link->ends[1].taken[wefti_fabric_cell(&to_sender)] = start;
    atomic_store(wefti_shared_get_consumed(&link->ends[0].shared, 1, 0,
                                           to_reader.op_slot,
                                           to_reader.channel),
                 start);
}

static void test_message_posted_seen_whole_past_any_wrap(void **state)
{
    (void)state;
    const size_t bytes = wefti_layout_plan(2, 2).total_bytes;
    for (size_t w = 0; w < 2; w++) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        link_state link = {0};
        for (int rank = 0; rank < 2; rank++) {
            wefti_doorbell_init(&link.bells[rank]);
            link.bell_pointers[rank] = &link.bells[rank];
            assert_int_equal(
                wefti_fabric_init(&link.ends[rank], rank, 2, memory, NULL),
                WEFT_OK);
            link.ends[rank].bells = link.bell_pointers;
        }
        start_link_at(&link, wraps[w] - BEFORE);
        pthread_t reader;
        assert_int_equal(pthread_create(&reader, NULL, take_messages, &link),
                         0);
        send_messages(&link);
        pthread_join(reader, NULL);
        print_message("%llu messages, %llu sleeps\n",
                      (unsigned long long)link.rounds,
                      (unsigned long long)link.sleeps);
        assert_int_equal(link.wrong, 0);
        assert_int_equal(wefti_fabric_read_by(&link.ends[0], to_reader),
                         wraps[w] - BEFORE + link.rounds);
        for (int rank = 0; rank < 2; rank++) {
            wefti_fabric_fini(&link.ends[rank]);
        }
        munmap(memory, bytes);
    }
}

/* ---- an operation is entered; it is completed -----------------------------
 */

/* All of this rank's operations up to number are over. */
static void start_operations_at(weft_comm *comm, uint64_t number)
{
    pthread_mutex_lock(&comm->engine->lock);
    comm->number = comm->completed = comm->settled = number;
    comm->peers_done = 0; /* to be looked up */
    atomic_store(
        &wefti_shared_get_page(&comm->fabric.shared, comm->rank)->completed,
        number);
    pthread_mutex_unlock(&comm->engine->lock);
}

/* Entries that carry words, now and then messages; rank 0 says when to end. */
static int enter_operations(weft_comm *comm, void *context)
{
    enum { MANY = 3000 };
    uint64_t rounds = 0, wrong = 0, more = 1;
    uint64_t words[WORDS + 1], sums[WORDS + 1], many[MANY];
    const uint64_t ranks = (uint64_t)weft_comm_get_nranks(comm);
    weft_status status = weft_barrier(comm, NULL);
    start_operations_at(comm, *(const uint64_t *)context - BEFORE);
    const int64_t stop_ns = wefti_clock_ns() + ROUND_NS;
    for (; more && status == WEFT_OK; rounds++) {
        write_words(words, rounds);
        words[WORDS] = comm->rank == 0 &&
                       (rounds < 2 * BEFORE || wefti_clock_ns() < stop_ns);
        status = weft_allreduce(words, sums, WORDS + 1, WEFT_DTYPE_U64,
                                WEFT_REDOP_SUM, comm, NULL);
        for (uint64_t i = 0; i < WORDS; i++) {
            wrong += sums[i] != ranks * word_of(rounds, i);
        }
        more = sums[WORDS];
        for (size_t i = 0; i < MANY && rounds % 16 == 0; i++) {
            many[i] = rounds + i;
        }
        if (rounds % 16 == 0 && status == WEFT_OK) {
            status = weft_allreduce(many, many, MANY, WEFT_DTYPE_U64,
                                    WEFT_REDOP_SUM, comm, NULL);
        }
        for (size_t i = 0; i < MANY && rounds % 16 == 0; i++) {
            wrong += many[i] != ranks * (rounds + i);
        }
    }
    if (status != WEFT_OK || wrong || comm->number < *(uint64_t *)context) {
        fprintf(stderr, "rank %d: %llu wrong in %llu rounds: %s\n", comm->rank,
                (unsigned long long)wrong, (unsigned long long)rounds,
                status == WEFT_OK ? "done" : weft_error_text());
        return 1;
    }
    return 0;
}

static void test_operation_entered_seen_whole_past_2_to_the_32(void **state)
{
    (void)state;
    uint64_t start = UINT64_C(1) << 32;
    for (int nranks = 2; nranks <= 3; nranks++) {
        struct world world = {
            .nranks = nranks, .call = enter_operations, .context = &start};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* ---- a peer's memory is written, its counter raised -----------------------
 */

static int put_and_signal(weft_comm *comm, void *context)
{
    const uint64_t start = *(const uint64_t *)context - BEFORE;
    const int peer = 1 - weft_comm_get_rank(comm);
    const bool first = peer == 1;
    const size_t bytes = (WORDS + 1) * sizeof(uint64_t);
    uint64_t words[WORDS + 1], wrong = 0, round = 0;
    weft_mem *mem;
    weft_status status = weft_mem_create(comm, 2 * bytes, &mem);
    const uint64_t *own = weft_mem_get_base(mem);
    /* In two steps: neither may be 2^63 or more, nor may a wait be. */
    for (int step = 0; step < 2 && status == WEFT_OK; step++) {
        uint64_t half = step ? start - start / 2 : start / 2;
        status = weft_mem_signal(mem, 7, half, peer, NULL);
        if (status == WEFT_OK) {
            status = weft_mem_wait(mem, 7, step ? start : half, peer, NULL);
        }
        if (status == WEFT_OK) {
            status = weft_barrier(comm, NULL);
        }
    }
    const int64_t stop_ns = wefti_clock_ns() + ROUND_NS;
    for (uint64_t more = 1; more && status == WEFT_OK; round++) {
        const size_t half = (round % 2) * (WORDS + 1);
        if (!first) {
            status = weft_mem_wait(mem, 7, start + round + 1, peer, NULL);
            wrong += wrong_words(own + half, round);
            more = own[half + WORDS];
        } else {
            more = round < 2 * BEFORE || wefti_clock_ns() < stop_ns;
        }
        write_words(words, round);
        words[WORDS] = more;
        if (status == WEFT_OK) {
            status = weft_mem_put(mem, half * sizeof(uint64_t), words,
                                  WORDS + 1, WEFT_DTYPE_U64, peer, NULL);
        }
        if (status == WEFT_OK) {
            status = weft_mem_signal(mem, 7, 1, peer, NULL);
        }
        if (first && status == WEFT_OK) {
            status = weft_mem_wait(mem, 7, start + round + 1, peer, NULL);
            wrong += wrong_words(own + half, round);
        }
    }
    if (status == WEFT_OK) {
        status = weft_barrier(comm, NULL);
    }
    if (status != WEFT_OK || wrong) {
        fprintf(stderr, "rank %d: %llu wrong in %llu rounds: %s\n", 1 - peer,
                (unsigned long long)wrong, (unsigned long long)round,
                status == WEFT_OK ? "done" : weft_error_text());
    }
    weft_mem_destroy(mem);
    return status != WEFT_OK || wrong > 0;
}

static void test_signal_raised_put_seen_past_any_wrap(void **state)
{
    (void)state;
    for (size_t w = 0; w < 2; w++) {
        uint64_t start = wraps[w];
        struct world world = {
            .nranks = 2, .call = put_and_signal, .context = &start};
        assert_int_equal(world_run_threads(&world), 0);
    }
}

/* ---- a fault is published -------------------------------------------------
 */

/* Shared by the ranks: who has ended which round. */
typedef struct blame {
    _Atomic uint64_t present, published, read;
    _Atomic bool over;
} blame;

/* Ranks 1 and 2 publish at once; rank 0 reads what one of them wrote. */
static uint64_t read_fault(weft_comm *comm, blame *shared, uint64_t round)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    char text[sizeof(fault.text)];
    while (weft_comm_get_fault(comm, &fault) == WEFT_OK &&
           fault.status == WEFT_OK) {
        sched_yield();
    }
    snprintf(text, sizeof(text), "round %llu by rank %d, and more to be read",
             (unsigned long long)round, fault.rank);
    uint64_t wrong = fault.status != WEFT_ERR_PEER || fault.rank < 1 ||
                     fault.rank > 2 || fault.op_number != round ||
                     strcmp(text, fault.text) != 0;
    while (atomic_load(&shared->published) != 2 * (round + 1)) {
        sched_yield();
    }
    if (wrong) {
        print_message("round %llu: status %d, rank %d, op %llu: %s\n",
                      (unsigned long long)round, fault.status, fault.rank,
                      (unsigned long long)fault.op_number, fault.text);
    }
    atomic_store(&comm->fabric.shared.header->fault.state, 0);
    return wrong;
}

static int blame_each_other(weft_comm *comm, void *context)
{
    blame *shared = context;
    uint64_t wrong = 0, round = 0;
    /* Nobody is in a call that would act on a fault, and keep it. */
    atomic_fetch_add(&shared->present, 1);
    while (atomic_load(&shared->present) != 3) {
        sched_yield();
    }
    const int64_t stop_ns = wefti_clock_ns() + ROUND_NS;
    for (; !atomic_load(&shared->over); round++) {
        if (comm->rank == 0) {
            wrong += read_fault(comm, shared, round);
            atomic_store(&shared->over, wefti_clock_ns() >= stop_ns);
            atomic_store(&shared->read, round + 1);
            continue;
        }
        wefti_fault_publish(comm, WEFT_ERR_PEER, comm->rank, round,
                            "round %llu by rank %d, and more to be read",
                            (unsigned long long)round, comm->rank);
        atomic_fetch_add(&shared->published, 1);
        while (atomic_load(&shared->read) != round + 1) {
            sched_yield();
        }
    }
    return wrong > 0;
}

static void test_fault_published_by_two_one_seen_whole(void **state)
{
    (void)state;
    blame shared = {0};
    struct world world = {
        .nranks = 3, .call = blame_each_other, .context = &shared};
    /* Each round is logged. */
    int kept = dup(STDERR_FILENO);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(kept >= 0 && nowhere >= 0);
    dup2(nowhere, STDERR_FILENO);
    int wrong = world_run_threads(&world);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(nowhere);
    print_message("%llu faults\n", (unsigned long long)shared.read);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_posted_seen_whole_past_any_wrap),
        cmocka_unit_test(test_operation_entered_seen_whole_past_2_to_the_32),
        cmocka_unit_test(test_signal_raised_put_seen_past_any_wrap),
        cmocka_unit_test(test_fault_published_by_two_one_seen_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
