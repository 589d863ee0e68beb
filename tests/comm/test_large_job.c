/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    as many ranks as a job may have meet: each is told who all are, in
 *         messages of bounded size, and the infos of others, without the server
 *         keeping more than a bounded amount of them in memory.
 * Method  the server is the real one; the ranks are raw sockets of one thread,
 *         each played message by message, in the order that makes the server
 *         wait for them most: none reads before all have written.
 */
#include "base/clock.h"
#include "comm/oob/bootstrap.h"
#include "comm/oob/limits.h"
#include "tests/comm/raw_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { DOMAIN_RANKS = 64, INFO_RANKS = 512 };

/* A sanitizer sees in a part of them what it would in all. */
static int count_ranks(int usual, int part)
{
    return getenv("WEFT_TEST_FEW") ? usual / part : usual;
}

static raw_peer *peers;
static int count;

/* The server has a connection to each of them, in this process. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(limit.rlim_cur > 2 * WEFTI_JOB_RANKS_MOST + 64);
}

/* So many ranks to a domain, in order. */
static void begin(int nranks)
{
    weft_unique_id id;
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    const wefti_secret secret = raw_id_secret(&id);
    wefti_oob_message join = raw_join_message(0, (uint32_t)nranks);
    count = nranks;
    peers = calloc((size_t)count, sizeof(*peers));
    assert_non_null(peers);
    join.as.join.timeout_ms = 100000;
    join.as.join.warn_ms = 100000;
    for (int rank = 0; rank < count; rank++) {
        const int domain = rank / DOMAIN_RANKS;
        join.as.join.rank = (uint32_t)rank;
        join.as.join.pid = 1000 + (uint32_t)rank;
        memcpy(join.as.join.place.host, &domain, sizeof(domain));
        memcpy(join.as.join.place.domain, &domain, sizeof(domain));
        assert_true(raw_greet(&peers[rank], raw_id_port(&id), &secret));
        raw_say(peers[rank].fd, &peers[rank].session, &join);
    }
    for (int rank = 0; rank < count; rank++) {
        raw_peer *own = &peers[rank];
        assert_true(raw_hear(own->fd, &own->session, &own->message));
        assert_int_equal(own->message.kind, WEFTI_OOB_ACCEPTED);
    }
}

static const wefti_oob_message *hear(int rank, wefti_oob_message_kind kind)
{
    raw_peer *own = &peers[rank];
    assert_true(raw_hear(own->fd, &own->session, &own->message));
    assert_int_equal(own->message.kind, kind);
    return &own->message;
}

static void hear_welcome(int rank)
{
    for (int next = 0; next < count;) {
        const wefti_oob_message_welcome *welcome =
            &hear(rank, WEFTI_OOB_WELCOME)->as.welcome;
        assert_int_equal(welcome->nranks, count);
        assert_int_equal(welcome->first, next);
        for (uint32_t i = 0; i < wefti_welcome_count(welcome); i++, next++) {
            assert_int_equal(welcome->pids[i], 1000 + next);
            assert_int_equal(welcome->domains[i],
                             next / DOMAIN_RANKS * DOMAIN_RANKS);
            assert_int_equal(welcome->hosts[i], welcome->domains[i]);
        }
    }
}

/* Each says its rank so often that the infos are large. */
static void say_info(int rank, int round)
{
    wefti_oob_message message = {.kind = WEFTI_OOB_INFO};
    wefti_oob_message_info *info = &message.as.info;
    info->round = (uint32_t)round;
    info->rank = (uint32_t)rank;
    info->used_bytes = WEFTI_INFO_BYTES;
    memset(info->bytes, rank % 251 + round, sizeof(info->bytes));
    raw_say(peers[rank].fd, &peers[rank].session, &message);
}

static void hear_infos(int rank, int round)
{
    for (int other = 0; other < count; other += round ? 1 : DOMAIN_RANKS) {
        if (other / DOMAIN_RANKS == rank / DOMAIN_RANKS) {
            continue;
        }
        const wefti_oob_message_info *info =
            &hear(rank, WEFTI_OOB_INFO)->as.info;
        assert_int_equal(info->round, round);
        assert_int_equal(info->rank, other);
        assert_int_equal(info->used_bytes, WEFTI_INFO_BYTES);
        assert_int_equal(info->bytes[0], other % 251 + round);
        assert_int_equal(info->bytes[WEFTI_INFO_BYTES - 1], info->bytes[0]);
    }
}

static void end(void)
{
    const wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
    for (int rank = 0; rank < count; rank++) {
        raw_say(peers[rank].fd, &peers[rank].session, &report);
    }
    for (int rank = 0; rank < count; rank++) {
        assert_int_equal(hear(rank, WEFTI_OOB_VERDICT)->as.verdict.status,
                         WEFT_OK);
        close(peers[rank].fd);
    }
    free(peers);
}

static void test_job_of_most_ranks_meets(void **state)
{
    (void)state;
    const int64_t begin_ns = wefti_clock_ns();
    begin(count_ranks(WEFTI_JOB_RANKS_MOST, 4));
    for (int rank = 0; rank < count; rank++) {
        hear_welcome(rank);
    }
    for (int rank = 0; rank < count; rank++) {
        say_info(rank, 0);
    }
    for (int rank = 0; rank < count; rank++) {
        hear_infos(rank, 0);
    }
    end();
    print_message("%d ranks met in %.1f s\n", count,
                  (double)(wefti_clock_ns() - begin_ns) / 1e9);
}

static size_t read_rss_bytes(void)
{
    size_t pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &pages, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* A rank that has all of one round is in the next while others still wait. */
static void test_infos_are_dealt_as_they_are_read(void **state)
{
    enum { MOST_BYTES = 48 << 20 };
    (void)state;
    begin(count_ranks(INFO_RANKS, 2));
    for (int rank = 0; rank < count; rank++) {
        hear_welcome(rank);
    }
    for (int round = 0; round < WEFTI_INFO_ROUNDS; round++) {
        const size_t before = read_rss_bytes();
        if (round == 0) {
            for (int rank = 0; rank < count; rank++) {
                say_info(rank, round);
            }
        }
        for (int rank = 0; rank < count; rank++) {
            hear_infos(rank, round);
            if (round + 1 < WEFTI_INFO_ROUNDS) {
                say_info(rank, round + 1);
            }
        }
        const size_t after = read_rss_bytes();
        print_message("round %d: %zu MiB more\n", round,
                      after > before ? (after - before) >> 20 : 0);
        assert_true(after < before + MOST_BYTES);
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_of_most_ranks_meets),
        cmocka_unit_test(test_infos_are_dealt_as_they_are_read),
    };
    raise_descriptor_limit();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
