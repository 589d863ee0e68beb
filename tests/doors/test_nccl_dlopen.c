/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a program that opens the library itself, as inference servers do, finds
 * every name by its handle and nothing of weft's, and ranks can talk.
 *
 * Method: dlopen with RTLD_LOCAL, dlsym of each name of door_abi.h. This
 * program is not linked with the library.
 */
#include "doors/nccl/door_abi.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* WEFT_ROUTE=nccl asks for NCCL, and what bears that name here is weft. */
static void test_library_does_not_take_itself_for_nccl(void **state)
{
    void *library = open_library();
    struct ncclComm *comm = NULL;
    float value = 4;
    (void)state;
    FIND(CommInitAll);
    FIND(AllReduce);
    FIND(CommDestroy);
    setenv("WEFT_ROUTE", "nccl", 1);
    setenv("WEFT_NCCL", NCCL_LIBRARY, 1);
    assert_int_equal(CommInitAll(&comm, 1, NULL), WEFTI_DOOR_SUCCESS);
    assert_int_equal(AllReduce(&value, &value, 1, 7, 0, comm, NULL),
                     WEFTI_DOOR_SUCCESS);
    assert_int_equal(CommDestroy(comm), WEFTI_DOOR_SUCCESS);
    unsetenv("WEFT_ROUTE");
    unsetenv("WEFT_NCCL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_name_is_found),
        cmocka_unit_test(test_ranks_talk_through_the_handle),
        cmocka_unit_test(test_library_does_not_take_itself_for_nccl)};
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
