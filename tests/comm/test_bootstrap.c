/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    ranks connect, by a unique id and by the environment, as threads of
 *         one process: all get the same job, or all the same refusal.
 * Method  every rank is a thread; memberships are compared field by field, and
 *         the memory is shown to be one by writing through one descriptor and
 *         reading through another. Time limits are short and checked.
 */
#include "base/clock.h"
#include "base/error.h"
#include "comm/oob/bootstrap.h"
#include "tests/comm/crowd.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

/* The server of a unique id closes its last descriptor in its own time. */
static void assert_descriptors_become(int expected)
{
    const int64_t until_ns = wefti_clock_ns() + INT64_C(5000000000);
    while (count_descriptors() != expected && wefti_clock_ns() < until_ns) {
        sched_yield();
    }
    assert_int_equal(count_descriptors(), expected);
}

static void assert_all_ok(const crowd *all)
{
    for (int i = 0; i < all->count; i++) {
        if (all->ranks[i].status != WEFT_OK) {
            print_message("rank %d: %s\n", i, all->ranks[i].text);
        }
        assert_int_equal(all->ranks[i].status, WEFT_OK);
    }
}

static void assert_same_job(const crowd *all)
{
    const wefti_membership *first = &all->ranks[0].membership;
    const uint64_t mark = 0x5eed5eed5eed5eedu;
    assert_int_equal(ftruncate(first->memory_fd, 4096), 0);
    assert_int_equal(pwrite(first->memory_fd, &mark, sizeof(mark), 64),
                     sizeof(mark));
    for (int i = 0; i < all->count; i++) {
        const wefti_membership *own = &all->ranks[i].membership;
        uint64_t found = 0;
        assert_int_equal(own->rank, i);
        assert_int_equal(own->nranks, all->count);
        assert_memory_equal(own->job_key, first->job_key, sizeof(own->job_key));
        assert_memory_equal(own->tuning, first->tuning, sizeof(own->tuning));
        assert_int_equal(own->tuning[0], 0xa0); /* rank 0's, see crowd.h */
        assert_int_equal(pread(own->memory_fd, &found, sizeof(found), 64),
                         sizeof(found));
        assert_true(found == mark);
        assert_int_equal(fcntl(own->memory_fd, F_GETFD), FD_CLOEXEC);
        for (int peer = 0; peer < all->count; peer++) {
            assert_int_equal(own->members[peer].pid, getpid());
            assert_int_equal(own->members[peer].pidfd, -1);
        }
    }
}

static void test_join_by_id_all_ranks_connect(void **state)
{
    static const int sizes[] = {1, 2, 3, 16, 64};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int before = count_descriptors();
        weft_unique_id id;
        crowd all;
        assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
        crowd_init(&all, sizes[i], &id);
        crowd_join(&all);
        assert_all_ok(&all);
        assert_same_job(&all);
        crowd_fini(&all);
        assert_descriptors_become(before);
    }
}

/* Whether a listener is at 127.0.0.last. */
static bool is_open(unsigned char last, const unsigned char port[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(0x7f000000u | last);
    memcpy(&address.sin_port, port, 2);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int refused =
        connect(fd, (const struct sockaddr *)&address, sizeof(address));
    close(fd);
    return refused == 0;
}

static void test_join_by_id_at_a_chosen_address_all_ranks_connect(void **state)
{
    static const unsigned char chosen[] = {127, 0, 0, 9};
    (void)state;
    const int before = count_descriptors();
    weft_unique_id id;
    crowd all;
    setenv("WEFT_HOST", "127.0.0.9", 1);
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    unsetenv("WEFT_HOST"); /* the others need not know */
    assert_memory_equal(id.bytes + 49, chosen, sizeof(chosen));
    assert_true(is_open(9, id.bytes + 47));
    assert_false(is_open(1, id.bytes + 47));
    crowd_init(&all, 3, &id);
    crowd_join(&all);
    assert_all_ok(&all);
    assert_same_job(&all);
    crowd_fini(&all);
    assert_descriptors_become(before);
}

static void test_id_at_no_address_of_this_machine_is_refused(void **state)
{
    weft_unique_id id;
    wefti_membership membership;
    (void)state;
    const int before = count_descriptors();
    setenv("WEFT_HOST", "0.0.0.0", 1);
    assert_int_equal(weft_unique_id_create(&id), WEFT_ERR_INVALID);
    assert_non_null(
        strstr(weft_error_text(), "WEFT_HOST=0.0.0.0: allowed is one address"));
    setenv("WEFT_HOST", "192.0.2.1", 1);
    assert_int_equal(weft_unique_id_create(&id), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "192.0.2.1"));
    unsetenv("WEFT_HOST");
    setenv("WEFT_TIMEOUT_MS", "100", 1); /* of the server; no rank joins */
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    unsetenv("WEFT_TIMEOUT_MS");
    const wefti_bootstrap_request request = {
        .id = &id, .nranks = 2, .warn_ms = 1000, .timeout_ms = 1000};
    const unsigned char kinds[] = {0, 5, 6}; /* a v6 of no port is none */
    for (size_t i = 0; i < sizeof(kinds); i++) {
        id.bytes[46] = kinds[i];
        memset(id.bytes + 47, 0, i == 2 ? 2 : 0);
        assert_int_equal(wefti_bootstrap_join(&request, &membership),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "config.id: not made by"));
    }
    assert_descriptors_become(before);
}

static void test_join_by_environment_all_ranks_connect(void **state)
{
    (void)state;
    const int before = count_descriptors();
    crowd all;
    crowd_set_environment();
    /* Twice at the same port: nothing of the first bootstrap is in the way. */
    for (int meeting = 0; meeting < 2; meeting++) {
        crowd_init(&all, 4, NULL);
        crowd_join(&all);
        assert_all_ok(&all);
        assert_same_job(&all);
        crowd_fini(&all);
        assert_int_equal(count_descriptors(), before);
    }
    crowd_clear_environment();
}

static void test_join_alone_needs_no_settings(void **state)
{
    (void)state;
    const int before = count_descriptors();
    const wefti_bootstrap_request request = {.warn_ms = 1000,
                                             .timeout_ms = 1000};
    wefti_membership membership;
    assert_int_equal(wefti_bootstrap_join(&request, &membership), WEFT_OK);
    assert_int_equal(membership.nranks, 1);
    assert_int_equal(membership.rank, 0);
    assert_int_equal(membership.members[0].pid, getpid());
    assert_int_equal(ftruncate(membership.memory_fd, 100), 0);
    assert_int_equal(count_descriptors(), before + 1);
    wefti_membership_fini(&membership);
    assert_int_equal(count_descriptors(), before);
}

static void test_join_missing_rank_is_named_to_all(void **state)
{
    (void)state;
    weft_unique_id id;
    crowd all;
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    crowd_init(&all, 4, &id);
    all.ranks[2].absent = true;
    for (int i = 0; i < 4; i++) {
        all.ranks[i].request.timeout_ms = 400;
        all.ranks[i].request.warn_ms = 100;
    }
    int64_t start_ns = wefti_clock_ns();
    crowd_join(&all);
    int64_t took_ms = (wefti_clock_ns() - start_ns) / 1000000;
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            assert_int_equal(all.ranks[i].status, WEFT_ERR_TIMEOUT);
            assert_non_null(strstr(all.ranks[i].text,
                                   "rank 2 has not joined (ranks 0 1 3 are "
                                   "here)"));
        }
    }
    assert_in_range(took_ms, 200, 5000);
    crowd_fini(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_by_id_all_ranks_connect),
        cmocka_unit_test(test_join_by_id_at_a_chosen_address_all_ranks_connect),
        cmocka_unit_test(test_id_at_no_address_of_this_machine_is_refused),
        cmocka_unit_test(test_join_by_environment_all_ranks_connect),
        cmocka_unit_test(test_join_alone_needs_no_settings),
        cmocka_unit_test(test_join_missing_rank_is_named_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
