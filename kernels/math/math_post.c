/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_post.c - tensors checked, launches posted.
 */
#include "kernels/math/math_post.h"

#include "base/error.h"
#include "kernels/math/math_job.h"

#include <stdio.h>

enum { BLOCKS_OF_MULTIPROCESSOR = 8 };

weft_status wefti_math_find_types(const char *op, const char *name,
                                  const wefti_math_tensor *own,
                                  const wefti_math_tensor *mixed,
                                  wefti_math_types *types_out)
{
    if (!own) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %s is NULL: allowed is a tensor", op, name);
    }
    const bool small = own->dtype == WEFT_DTYPE_BF16;
    const bool both = small && mixed && mixed->dtype == WEFT_DTYPE_F32;
    if (!small && own->dtype != WEFT_DTYPE_F32 &&
        own->dtype != WEFT_DTYPE_F64) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %s is of %s: allowed is f32, bf16 or f64", op,
                           name, weft_dtype_text(own->dtype));
    }
    *types_out = (wefti_math_types){
        .own = own->dtype,
        .mixed = both ? WEFT_DTYPE_F32 : own->dtype,
        .wide = small ? WEFT_DTYPE_F32 : own->dtype,
        .type = both                           ? WEFTI_MATH_BF16_F32
                : small                        ? WEFTI_MATH_BF16
                : own->dtype == WEFT_DTYPE_F64 ? WEFTI_MATH_F64
                                               : WEFTI_MATH_F32,
        .wide_type =
            own->dtype == WEFT_DTYPE_F64 ? WEFTI_MATH_F64 : WEFTI_MATH_F32};
    return WEFT_OK;
}

static bool has_stride(const wefti_math_want *wanted)
{
    const wefti_math_tensor *t = wanted->tensor;
    return wanted->stride    ? t->stride == wanted->stride
           : wanted->strided ? t->stride >= t->width
                             : t->stride == t->width || t->rows <= 1;
}

static weft_status refuse(const char *op, const wefti_math_want *wanted)
{
    const wefti_math_tensor *t = wanted->tensor;
    char stride[48] = "each other";
    if (wanted->stride) {
        snprintf(stride, sizeof(stride), "%zu elements apart", wanted->stride);
    } else if (wanted->strided) {
        snprintf(stride, sizeof(stride), "the width or more apart");
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "%s: %s is %s [%zu][%zu], its rows %zu elements apart: "
        "allowed is %s [%zu][%zu], %s%s",
        op, wanted->name, weft_dtype_text(t->dtype), t->rows, t->width,
        t->stride, weft_dtype_text(wanted->dtype), wanted->rows, wanted->width,
        wanted->stride || wanted->strided ? "rows " : "rows next to ", stride);
}

weft_status wefti_math_check(const char *op, const wefti_math_want *wants,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const wefti_math_want *wanted = &wants[i];
        const wefti_math_tensor *t = wanted->tensor;
        if (!t && wanted->optional) {
            continue;
        }
        if (!t || (!t->at && t->rows > 0 && t->width > 0)) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: %s is NULL: allowed is a tensor", op,
                               wanted->name);
        }
        if (t->dtype != wanted->dtype || t->rows != wanted->rows ||
            t->width != wanted->width || !has_stride(wanted)) {
            return refuse(op, wanted);
        }
    }
    return WEFT_OK;
}

static weft_status launch(weft_stream *stream, wefti_math_op op,
                          wefti_math_type type, const void *args)
{
    char name[WEFTI_MATH_NAME_BYTES];
    const int sms = weft_stream_get_sms(stream);
    const size_t most = (size_t)(sms > 0 ? sms : 1) * BLOCKS_OF_MULTIPROCESSOR;
    const size_t blocks = wefti_math_op_blocks(op, type, args);
    wefti_math_op_name(op, type, name);
    return wefti_stream_launch(
        stream,
        &(wefti_launch){.kernel = name,
                        .blocks = (unsigned)(blocks < most ? blocks : most),
                        .threads = WEFTI_MATH_THREADS,
                        .shared_bytes = wefti_math_op_shared_bytes(op, type),
                        .args = args,
                        .args_bytes = wefti_math_op_args_bytes(op)});
}

weft_status wefti_math_post(weft_stream *stream, wefti_math_op op,
                            wefti_math_type type, const void *args)
{
    return wefti_stream_computes(stream)
               ? wefti_math_job_post(stream, op, type, args)
               : launch(stream, op, type, args);
}
