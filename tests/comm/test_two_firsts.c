/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: two processes that both say they are rank 0 are refused at once, with
 * the numbers of both, and so are the ranks that wait with them; at an address
 * and by a file.
 *
 * Method: real processes with the variables that a user would set; one rank of
 * the job never comes, so that no bootstrap can end well. Each checks its
 * status, its text and the time it took.
 */
#include "base/clock.h"
#include "weft/weft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOON_MS = 10000, LIMIT_MS = 60000, NRANKS = 4, MOST = 4 };

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

/* A free port; the next one to ask may get it as well. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* A rank's process: 0 if it was refused as it should be. */
static int come_as(int rank)
{
    weft_comm *comm = NULL;
    const int64_t begin_ns = wefti_clock_ns();
    set_number("WEFT_RANK", rank);
    weft_status status = weft_comm_create(NULL, &comm);
    const int64_t took_ms = (wefti_clock_ns() - begin_ns) / 1000000;
    if (status == WEFT_ERR_BOOTSTRAP && took_ms < SOON_MS &&
        strstr(weft_error_text(), "already joined as rank 0")) {
        return 0;
    }
    fprintf(stderr, "as rank %d: %s after %lld ms: %s\n", rank,
            weft_status_text(status), (long long)took_ms, weft_error_text());
    return 1;
}

static void come(const int *ranks, int count)
{
    pid_t pids[MOST];
    for (int i = 0; i < count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(come_as(ranks[i]));
        }
    }
    for (int i = 0; i < count; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void come_in_all_ways(void)
{
    static const int two[] = {0, 0}, more[] = {1, 0, 0, 2};
    come(two, 2);
    come(more, 4);
}

static void test_two_firsts_at_an_address_all_fail(void **state)
{
    (void)state;
    char where[40];
    snprintf(where, sizeof(where), "127.0.0.1:%d", free_port());
    setenv("WEFT_RENDEZVOUS", where, 1);
    come_in_all_ways();
}

static void test_two_firsts_by_a_file_all_fail(void **state)
{
    (void)state;
    char path[] = "/tmp/weft-two-firsts-XXXXXX", where[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(where, sizeof(where), "file:%s", path);
    setenv("WEFT_RENDEZVOUS", where, 1);
    come_in_all_ways();
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_firsts_at_an_address_all_fail),
        cmocka_unit_test(test_two_firsts_by_a_file_all_fail),
    };
    unsetenv("WEFT_RENDEZVOUS_FD");
    setenv("WEFT_SECRET", "0123456789abcdef0123", 1);
    set_number("WEFT_NRANKS", NRANKS);
    set_number("WEFT_TIMEOUT_MS", LIMIT_MS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
