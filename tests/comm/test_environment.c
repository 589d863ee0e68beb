/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    what the WEFT_* variables say about a rendezvous is taken exactly, or
 *         refused with a text that names the variable and what is allowed.
 * Method  variables are set to good and bad values, one at a time; secrets in
 *         files of several modes; time limits are short and measured.
 */
#include "base/clock.h"
#include "base/error.h"
#include "comm/core/board.h"
#include "comm/oob/endpoint.h"
#include "comm/oob/secret.h"
#include "tests/comm/crowd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static const wefti_bootstrap_request from_environment = {.warn_ms = 60000,
                                                         .timeout_ms = 200};

static int forget_variables(void **state)
{
    static const char *const names[] = {
        "WEFT_RANK",    "WEFT_NRANKS",      "WEFT_RENDEZVOUS",
        "WEFT_SECRET",  "WEFT_SECRET_FILE", "WEFT_RENDEZVOUS_FD",
        "WEFT_BOARD_FD"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
    return 0;
}

static void assert_refused(weft_status expected, const char *text)
{
    wefti_membership membership;
    weft_status status = wefti_bootstrap_join(&from_environment, &membership);
    if (status != expected || !strstr(weft_error_text(), text)) {
        print_message("%d: %s\n", status, weft_error_text());
    }
    assert_int_equal(status, expected);
    assert_non_null(strstr(weft_error_text(), text));
}

static void test_environment_missing_variables_are_named(void **state)
{
    (void)state;
    setenv("WEFT_NRANKS", "2", 1);
    assert_refused(WEFT_ERR_INVALID, "WEFT_RANK");
    setenv("WEFT_RANK", "1", 1);
    assert_refused(WEFT_ERR_INVALID, "WEFT_RENDEZVOUS is not set: 2 ranks");
    setenv("WEFT_RENDEZVOUS", "127.0.0.1:1", 1);
    assert_refused(WEFT_ERR_INVALID, "neither WEFT_SECRET nor");
    setenv("WEFT_RANK", "2", 1);
    assert_refused(WEFT_ERR_INVALID, "WEFT_RANK=2: allowed is 0..1");
    setenv("WEFT_RANK", "one", 1);
    assert_refused(WEFT_ERR_INVALID, "WEFT_RANK=one");
    unsetenv("WEFT_NRANKS");
    assert_refused(WEFT_ERR_INVALID, "WEFT_NRANKS=(not set): where "
                                     "WEFT_RENDEZVOUS is set");
    unsetenv("WEFT_RENDEZVOUS");
    setenv("WEFT_RANK", "1", 1);
    assert_refused(WEFT_ERR_INVALID, "WEFT_RANK=1: allowed is 0..0");
}

static void test_environment_wrong_limits_are_named(void **state)
{
    (void)state;
    weft_unique_id id = {{0}};
    wefti_membership membership;
    wefti_bootstrap_request request = from_environment;
    request.timeout_ms = 0;
    assert_int_equal(wefti_bootstrap_join(&request, &membership),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "timeout_ms 0: allowed"));
    request = from_environment;
    request.rank = -1;
    request.nranks = 2;
    assert_int_equal(wefti_bootstrap_join(&request, &membership),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "rank -1: allowed is 0..1"));
    request.rank = 0;
    request.nranks = 4097;
    assert_int_equal(wefti_bootstrap_join(&request, &membership),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "nranks 4097: allowed"));
    request.nranks = 2;
    request.id = &id;
    assert_int_equal(wefti_bootstrap_join(&request, &membership),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "config.id: not made by"));
}

static void test_environment_no_listener_ends_in_time(void **state)
{
    (void)state;
    crowd_set_environment();
    setenv("WEFT_NRANKS", "2", 1);
    setenv("WEFT_RANK", "1", 1);
    const int64_t start_ns = wefti_clock_ns();
    assert_refused(WEFT_ERR_TIMEOUT, "(rank 0) cannot be reached");
    assert_in_range((wefti_clock_ns() - start_ns) / 1000000, 100, 10000);
}

static void test_environment_silent_server_ends_in_time(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    char text[40];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 4), 0);
    getsockname(fd, (struct sockaddr *)&address, &bytes);
    snprintf(text, sizeof(text), "127.0.0.1:%d", ntohs(address.sin_port));
    crowd_set_environment();
    setenv("WEFT_RENDEZVOUS", text, 1);
    setenv("WEFT_NRANKS", "2", 1);
    setenv("WEFT_RANK", "1", 1);
    const int64_t start_ns = wefti_clock_ns();
    assert_refused(WEFT_ERR_TIMEOUT, "(rank 0) did not answer within 200 ms");
    assert_in_range((wefti_clock_ns() - start_ns) / 1000000, 199, 10000);
    close(fd);
}

static void test_environment_port_in_use_is_named(void **state)
{
    (void)state;
    crowd_set_environment();
    wefti_endpoint taken;
    int fd;
    assert_int_equal(wefti_endpoint_parse("WEFT_RENDEZVOUS",
                                          getenv("WEFT_RENDEZVOUS"), &taken),
                     WEFT_OK);
    assert_int_equal(wefti_endpoint_listen(&taken, &fd), WEFT_OK);
    assert_true(wefti_endpoint_is_listened_by(&taken, fd));
    setenv("WEFT_NRANKS", "2", 1);
    setenv("WEFT_RANK", "0", 1);
    assert_refused(WEFT_ERR_SYSTEM, "Address already in use");
    close(fd);
    assert_false(wefti_endpoint_is_listened_by(&taken, fd));
}

static void test_environment_inherited_socket_is_used(void **state)
{
    (void)state;
    char number[16];
    wefti_endpoint endpoint;
    crowd all;
    int fd;
    wefti_endpoint_loopback(0, &endpoint);
    assert_int_equal(wefti_endpoint_listen(&endpoint, &fd), WEFT_OK);
    crowd_set_environment();
    setenv("WEFT_RENDEZVOUS", endpoint.text, 1);
    snprintf(number, sizeof(number), "%d", fd);
    setenv("WEFT_RENDEZVOUS_FD", number, 1);
    crowd_init(&all, 3, NULL);
    crowd_join(&all);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(all.ranks[i].status, WEFT_OK);
    }
    crowd_fini(&all);
    /* It was taken, and closed with the bootstrap. */
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void test_endpoint_other_forms_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "host",
                                        ":5555",
                                        "127.0.0.1:",
                                        "127.0.0.1:0",
                                        "1.2.3.4:65536",
                                        "1.2.3.4:5x",
                                        "::1:5555",
                                        "[]:5555",
                                        "[::1:5555",
                                        "0.0.0.0:5555",
                                        "[::]:5555",
                                        "127.0.0.1:-1"};
    static const char *const right[] = {"127.0.0.1:5555", "[::1]:1",
                                        "127.0.0.2:65535"};
    (void)state;
    wefti_endpoint endpoint;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(
            wefti_endpoint_parse("WEFT_RENDEZVOUS", wrong[i], &endpoint),
            WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), "WEFT_RENDEZVOUS="));
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(
            wefti_endpoint_parse("WEFT_RENDEZVOUS", right[i], &endpoint),
            WEFT_OK);
        assert_string_equal(endpoint.text, right[i]);
    }
}

/* Writes text into a new file of this mode; its path is in WEFT_SECRET_FILE. */
static void use_secret_file(const char *text, mode_t mode)
{
    char path[] = "/tmp/weft-secret-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    setenv("WEFT_SECRET_FILE", path, 1);
}

static weft_status load_and_remove(wefti_secret *secret)
{
    weft_status status = wefti_secret_load(secret);
    unlink(getenv("WEFT_SECRET_FILE"));
    return status;
}

static void test_secret_of_file_and_variable_agree(void **state)
{
    (void)state;
    wefti_secret from_variable, from_file;
    setenv("WEFT_SECRET", "sixteen letters!", 1);
    assert_int_equal(wefti_secret_load(&from_variable), WEFT_OK);
    unsetenv("WEFT_SECRET");
    use_secret_file("sixteen letters!\n", 0600);
    assert_int_equal(load_and_remove(&from_file), WEFT_OK);
    assert_memory_equal(&from_file, &from_variable, sizeof(from_file));
    use_secret_file("sixteen letters?\n", 0400);
    assert_int_equal(load_and_remove(&from_file), WEFT_OK);
    assert_memory_not_equal(&from_file, &from_variable, sizeof(from_file));
}

static void test_secret_that_is_none_is_refused(void **state)
{
    (void)state;
    wefti_secret secret;
    char long_text[300];
    memset(long_text, 'x', sizeof(long_text));
    long_text[257] = '\0';
    use_secret_file("sixteen letters!", 0640);
    assert_int_equal(load_and_remove(&secret), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "mode 0640 lets others in"));
    use_secret_file("fifteen letters\n\n", 0600);
    assert_int_equal(load_and_remove(&secret), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "15 characters"));
    use_secret_file(long_text, 0600);
    assert_int_equal(load_and_remove(&secret), WEFT_ERR_INVALID);
    setenv("WEFT_SECRET_FILE", "/tmp", 1);
    assert_int_equal(wefti_secret_load(&secret), WEFT_ERR_INVALID);
    setenv("WEFT_SECRET_FILE", "/nowhere/at/all", 1);
    assert_int_equal(wefti_secret_load(&secret), WEFT_ERR_SYSTEM);
    setenv("WEFT_SECRET", "short", 1);
    assert_int_equal(wefti_secret_load(&secret), WEFT_ERR_INVALID);
    assert_null(strstr(weft_error_text(), "short:"));
}

static void test_board_line_of_each_rank_is_its_own(void **state)
{
    (void)state;
    enum { RANKS = 40 }; /* more than one page */
    char number[16], name[32];
    wefti_board_line *lines[RANKS], *none;
    assert_int_equal(wefti_board_open(0, &none), WEFT_OK);
    assert_null(none);
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)wefti_board_bytes(RANKS)), 0);
    snprintf(number, sizeof(number), "%d", fd);
    setenv("WEFT_BOARD_FD", number, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(wefti_board_open(rank, &lines[rank]), WEFT_OK);
        snprintf(name, sizeof(name), "comm %d", rank);
        wefti_board_set_name(lines[rank], name);
        wefti_board_note(lines[rank], (uint64_t)rank + 1,
                         WEFT_COLLECTIVE_BROADCAST);
    }
    const wefti_board_line *all =
        mmap(NULL, wefti_board_bytes(RANKS), PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    for (int rank = 0; rank < RANKS; rank++) {
        char found[32];
        snprintf(name, sizeof(name), "comm %d", rank);
        wefti_board_get_name(&all[rank], found);
        assert_string_equal(found, name);
        assert_int_equal(atomic_load(&lines[rank]->op_number), rank + 1);
        wefti_board_close(lines[rank]);
    }
    munmap((void *)(uintptr_t)all, wefti_board_bytes(RANKS));
    assert_int_equal(wefti_board_open(RANKS, &none), WEFT_ERR_INVALID);
    close(fd);
    assert_int_equal(wefti_board_open(0, &none), WEFT_ERR_SYSTEM);
    wefti_board_close(NULL);
}

#define TEST(name)                                                             \
    cmocka_unit_test_setup_teardown(name, forget_variables, forget_variables)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_environment_missing_variables_are_named),
        TEST(test_environment_wrong_limits_are_named),
        TEST(test_environment_no_listener_ends_in_time),
        TEST(test_environment_silent_server_ends_in_time),
        TEST(test_environment_port_in_use_is_named),
        TEST(test_environment_inherited_socket_is_used),
        TEST(test_endpoint_other_forms_are_refused),
        TEST(test_secret_of_file_and_variable_agree),
        TEST(test_secret_that_is_none_is_refused),
        TEST(test_board_line_of_each_rank_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
