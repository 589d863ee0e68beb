/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     What kernels/math/onednn_api.h declares for itself is oneDNN's
 *          interface.
 * Method   dnnl.h beside it, where it is installed: constants and layouts are
 *          compared when this compiles, and so are the types of functions but
 *          for handles and enumerations.
 */
#include "kernels/math/onednn_api.h"

#include <oneapi/dnnl/dnnl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#define SAME(own, theirs)                                                      \
    _Static_assert((long long)(own) == (long long)(theirs), #theirs)
SAME(WEFTI_DNNL_VERSION, DNNL_VERSION_MAJOR);
SAME(WEFTI_DNNL_NO_MEMORY, dnnl_out_of_memory);
SAME(WEFTI_DNNL_CPU, dnnl_cpu);
SAME(WEFTI_DNNL_BF16, dnnl_bf16);
SAME(WEFTI_DNNL_F32, dnnl_f32);
SAME(WEFTI_DNNL_SRC, DNNL_ARG_SRC);
SAME(WEFTI_DNNL_WEIGHTS, DNNL_ARG_WEIGHTS);
SAME(WEFTI_DNNL_DST, DNNL_ARG_DST);
SAME(WEFTI_DNNL_IN_ORDER, dnnl_stream_default_flags);
SAME(WEFTI_DNNL_IMPLEMENTATION, dnnl_query_impl_info_str);
SAME(WEFTI_DNNL_DIMS, DNNL_MAX_NDIMS);
SAME(WEFTI_DNNL_ISA_AVX512, dnnl_cpu_isa_avx512_core);
SAME(WEFTI_DNNL_ISA_BF16, dnnl_cpu_isa_avx512_core_bf16);
SAME(WEFTI_DNNL_ISA_AMX, dnnl_cpu_isa_avx512_core_amx);
SAME(0, dnnl_success);

#define SIZES(own, theirs)                                                     \
    _Static_assert(sizeof(own) >= sizeof(theirs), #theirs)
SIZES(wefti_dnnl_memory_desc, dnnl_memory_desc_t);
SIZES(wefti_dnnl_matmul_desc, dnnl_matmul_desc_t);
SAME(sizeof(wefti_dnnl_arg), sizeof(dnnl_exec_arg_t));
SAME(sizeof(wefti_dnnl_version), sizeof(dnnl_version_t));
SAME(sizeof(int64_t), sizeof(dnnl_dim_t));
SAME(sizeof(int), sizeof(dnnl_data_type_t));
SAME(sizeof(int), sizeof(dnnl_status_t));

SAME(offsetof(wefti_dnnl_arg, memory), offsetof(dnnl_exec_arg_t, memory));
SAME(offsetof(wefti_dnnl_version, patch), offsetof(dnnl_version_t, patch));

#define ROOM(name, what)                                                       \
    _Static_assert(sizeof(&(name)) == sizeof(void *), what);
#define DECLARED(type, name, arguments) ROOM(name, #name)
WEFTI_DNNL_FUNCTIONS(DECLARED)

/* The header's library is the one that weft would open. */
static void test_library_fills_no_more_than_there_is_room_for(void **state)
{
    wefti_dnnl_memory_desc own[2];
    const dnnl_dims_t extents = {2, 3}, strides = {3, 1};

    (void)state;
    memset(own, 0x5a, sizeof(own));
    assert_int_equal(dnnl_version()->major, WEFTI_DNNL_VERSION);
    assert_int_equal(
        dnnl_memory_desc_init_by_strides((dnnl_memory_desc_t *)(void *)&own[0],
                                         2, extents, dnnl_bf16, strides),
        dnnl_success);
    for (size_t i = 0; i < sizeof(own[1].bytes); i++)
        assert_int_equal(own[1].bytes[i], 0x5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_fills_no_more_than_there_is_room_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
