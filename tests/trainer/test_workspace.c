/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: making room for several programs leaves memory of others alone, also
 * where a stream has not cleared that room yet.
 * Method: a shadow device, whose stream stands at a gate while two programs
 * reserve, the second more than the first, and while others' memory is
 * allocated between them and behind, and filled. The stream goes on then, and
 * what was filled must be as it was.
 */
#include "trainer/model/workspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SMALL_ELEMS = 5000, LARGE_ELEMS = 90000, FILLED = 7 };

static const size_t bytes = SMALL_ELEMS * sizeof(real);

static void reserve(wefti_workspace *workspace, size_t elems)
{
    const wefti_program program = {.elems = {[WEFTI_REGION_SLOT + 1] = elems}};
    assert_int_equal(wefti_workspace_reserve(workspace, &program), WEFT_OK);
}

static void copy(weft_device *device, void *to, const void *from)
{
    assert_int_equal(weft_device_copy(device, to, from, bytes, NULL), WEFT_OK);
}

static void test_workspace_of_several_programs_is_cleared_alone(void **state)
{
    const wefti_model_shape shape = {
        .seq = 8, .head_dim = 4, .rope_theta = 10000};
    unsigned char *here = malloc(2 * bytes), *read = here + bytes;
    weft_device *device;
    weft_stream *compute;
    weft_gate *gate;
    wefti_workspace workspace;
    void *between, *behind;
    (void)state;
    assert_non_null(here);
    memset(here, FILLED, bytes);
    assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
    assert_int_equal(weft_stream_create(device, 0, &compute), WEFT_OK);
    assert_int_equal(weft_gate_create(device, 1, &gate), WEFT_OK);
    assert_int_equal(weft_gate_wait(gate, 0, 1, compute), WEFT_OK);
    assert_int_equal(
        wefti_workspace_init(&workspace, device, compute, &shape, 1), WEFT_OK);
    reserve(&workspace, SMALL_ELEMS);
    assert_int_equal(weft_device_alloc(device, bytes, &between), WEFT_OK);
    reserve(&workspace, LARGE_ELEMS);
    assert_int_equal(wefti_workspace_alloc(&workspace), WEFT_OK);
    assert_int_equal(weft_device_alloc(device, bytes, &behind), WEFT_OK);
    copy(device, between, here);
    copy(device, behind, here);
    assert_int_equal(weft_gate_signal(gate, 0, 1, NULL), WEFT_OK);
    assert_int_equal(weft_stream_wait(compute), WEFT_OK);
    copy(device, read, between);
    assert_memory_equal(read, here, bytes);
    copy(device, read, behind);
    assert_memory_equal(read, here, bytes);

    weft_device_free(device, between);
    weft_device_free(device, behind);
    wefti_workspace_fini(&workspace);
    weft_gate_destroy(gate);
    weft_stream_destroy(compute);
    weft_device_close(device);
    free(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workspace_of_several_programs_is_cleared_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
