/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a program that opens the library itself, as inference servers do, finds
 * every name by its handle and nothing of weft's, and ranks can talk;
 * what they did is logged on request.
 *
 * Method: dlopen with RTLD_LOCAL, dlsym of each name of door_abi.h. This
 * program is not linked with the library.
 */
#include "doors/nccl/door_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void *open_library(void)
{
    void *library = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        print_error("%s\n", dlerror());
    }
    assert_non_null(library);
    return library;
}

static void test_every_name_is_found(void **state)
{
    static const char *const names[] = {
#define NAME(type, name, arguments) "nccl" #name, "pnccl" #name,
        WEFTI_DOOR_FUNCTION_LIST(NAME) WEFTI_DOOR_KERNEL_LIST(NAME)
#undef NAME
    };
    void *library = open_library();
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_non_null(dlsym(library, names[i]));
    }
    /* Nothing of weft's is to be seen. */
    assert_null(dlsym(library, "weft_comm_create"));
    assert_null(dlsym(RTLD_DEFAULT, "ncclGetVersion"));
}

#define FIND(name)                                                             \
    __typeof__(nccl##name) *name;                                              \
    do {                                                                       \
        void *found = dlsym(library, "nccl" #name);                            \
        memcpy(&name, &found, sizeof(found));                                  \
    } while (0)

static void test_ranks_talk_through_the_handle(void **state)
{
    void *library = open_library();
    struct ncclComm *comms[2];
    double sent[2] = {1, 2}, got[2] = {0, 0};
    (void)state;
    FIND(CommInitAll);
    FIND(GroupStart);
    FIND(GroupEnd);
    FIND(AllReduce);
    FIND(CommDestroy);
    assert_int_equal(CommInitAll(comms, 2, NULL), WEFTI_DOOR_SUCCESS);
    assert_int_equal(GroupStart(), WEFTI_DOOR_SUCCESS);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(AllReduce(&sent[r], &got[r], 1, 8, 0, comms[r], NULL),
                         WEFTI_DOOR_SUCCESS);
    }
    assert_int_equal(GroupEnd(), WEFTI_DOOR_SUCCESS);
    for (int r = 0; r < 2; r++) {
        assert_true(got[r] == 3);
        assert_int_equal(CommDestroy(comms[r]), WEFTI_DOOR_SUCCESS);
    }
}

/* What it logs while report is wanted. */
static void read_log(char *text_out, size_t text_bytes, void (*call)(void))
{
    FILE *kept = tmpfile();
    const int own = dup(STDERR_FILENO);
    assert_non_null(kept);
    assert_true(dup2(fileno(kept), STDERR_FILENO) >= 0);
    call();
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    rewind(kept);
    text_out[fread(text_out, 1, text_bytes - 1, kept)] = '\0';
    fclose(kept);
}

static void add_up_twice(void)
{
    void *library = open_library();
    struct ncclComm *comm = NULL;
    float values[7] = {1};
    FIND(CommInitAll);
    FIND(AllReduce);
    FIND(CommDestroy);
    assert_int_equal(CommInitAll(&comm, 1, NULL), WEFTI_DOOR_SUCCESS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(AllReduce(values, values, 7, 7, 0, comm, NULL),
                         WEFTI_DOOR_SUCCESS);
    }
    assert_int_equal(CommDestroy(comm), WEFTI_DOOR_SUCCESS);
}

static void test_report_is_logged_when_wanted(void **state)
{
    char text[2000];
    (void)state;
    read_log(text, sizeof(text), add_up_twice);
    assert_null(strstr(text, "report"));
    setenv("WEFT_NCCL_REPORT", "1", 1);
    read_log(text, sizeof(text), add_up_twice);
    unsetenv("WEFT_NCCL_REPORT");
    assert_non_null(strstr(text, "all_reduce: 2 calls, 56 bytes"));
}

static void test_report_goes_to_the_file_that_is_named(void **state)
{
    char path[] = "/tmp/weft_report_XXXXXX", text[2000];
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    setenv("WEFT_NCCL_REPORT", path, 1);
    read_log(text, sizeof(text), add_up_twice);
    unsetenv("WEFT_NCCL_REPORT");
    assert_non_null(strstr(text, "all_reduce: 2 calls, 56 bytes"));
    const ssize_t bytes = read(fd, text, sizeof(text) - 1);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    assert_non_null(strstr(text, "\", \"carrier\": \"weft\", \"rank\": 0"));
    assert_non_null(strstr(text, "\"rank\": 0, \"nranks\": 1, "));
    assert_non_null(
        strstr(text, "{\"op\": \"all_reduce\", \"calls\": 2, \"bytes\": 56"));
    const char *table = strchr(text, '\n');
    assert_non_null(table);
    assert_true(text[bytes - 1] == '\n' &&
                strchr(table + 1, '\n') + 1 == &text[bytes]);
    close(fd);
    unlink(path);
}

/* A rank that comes a while later than the other. */
static void *add_late(void *handle)
{
    void *library = open_library();
    float value = 1;
    FIND(AllReduce);
    usleep(60000);
    assert_int_equal(AllReduce(&value, &value, 1, 7, 0, handle, NULL),
                     WEFTI_DOOR_SUCCESS);
    return NULL;
}

static void wait_for_a_rank(void)
{
    void *library = open_library();
    struct ncclComm *comms[2];
    pthread_t late;
    float value = 1;
    FIND(CommInitAll);
    FIND(AllReduce);
    FIND(CommDestroy);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(CommInitAll(comms, 2, NULL), WEFTI_DOOR_SUCCESS);
        assert_int_equal(pthread_create(&late, NULL, add_late, comms[1]), 0);
        assert_int_equal(AllReduce(&value, &value, 1, 7, 0, comms[0], NULL),
                         WEFTI_DOOR_SUCCESS);
        pthread_join(late, NULL);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(CommDestroy(comms[r]), WEFTI_DOOR_SUCCESS);
        }
    }
}

static void test_table_says_whom_ranks_waited_for(void **state)
{
    char path[] = "/tmp/weft_report_XXXXXX", text[6000];
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    setenv("WEFT_NCCL_REPORT", path, 1);
    read_log(text, sizeof(text), wait_for_a_rank);
    unsetenv("WEFT_NCCL_REPORT");
    assert_non_null(strstr(text, "waiting  slowest       left"));
    const ssize_t bytes = read(fd, text, sizeof(text) - 1);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    int tables = 0;
    for (const char *at = text; (at = strstr(at, "\"table\": [")); tables++) {
        double took_ms = 0, waiting_ms = 0;
        at = strstr(at, "\"time_ms\": ");
        assert_non_null(at);
        assert_int_equal(sscanf(at,
                                "\"time_ms\": %lf, \"waiting_ms\": %lf, "
                                "\"slowest_rank\": 1, \"left\": 0}",
                                &took_ms, &waiting_ms),
                         2);
        assert_non_null(strstr(at, "\"slowest_rank\": 1, \"left\": 0}"));
        assert_true(waiting_ms > 15 && waiting_ms < took_ms);
    }
    assert_int_equal(tables, 2);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_name_is_found),
        cmocka_unit_test(test_ranks_talk_through_the_handle),
        cmocka_unit_test(test_report_is_logged_when_wanted),
        cmocka_unit_test(test_report_goes_to_the_file_that_is_named),
        cmocka_unit_test(test_table_says_whom_ranks_waited_for)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
