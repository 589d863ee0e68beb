/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_job.c - the host's kernels behind the arguments of
 * math_launch.h. A job owns all that it needs when it is posted, so that
 * running it can not fail.
 */
#include "kernels/math/math_job.h"

#include "base/error.h"
#include "base/small_float.h"
#include "kernels/math/gemm_bf16.h"
#include "kernels/math/math_run.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    wefti_math_op op;
    wefti_math_type type;
    wefti_math_args args; /* with pointers of the host's */
    size_t use_count;
    wefti_math_use uses[WEFTI_MATH_USES];
    uint16_t *narrow[WEFTI_MATH_USES]; /* bf16 arrays; NULL: of other types */
    real *wide[WEFTI_MATH_USES];       /* what stands for them */
    real *scratch;                     /* of attention */
} job;

/* Whose kernel reads bf16 itself. */
static bool is_product_of_bf16(const job *of)
{
    return of->op == WEFTI_MATH_OP_gemm &&
           (of->type == WEFTI_MATH_BF16 || of->type == WEFTI_MATH_BF16_F32);
}

static void widen_rows(const job *of, size_t i)
{
    const wefti_math_use *u = &of->uses[i];
    for (size_t row = 0; row < u->rows; row++) {
        for (size_t at = row * u->stride; at < row * u->stride + u->width;
             at++) {
            of->wide[i][at] = (real)wefti_bf16_widen(of->narrow[i][at]);
        }
    }
}

static void narrow_rows(const job *of, size_t i)
{
    const wefti_math_use *u = &of->uses[i];
    for (size_t row = 0; row < u->rows; row++) {
        for (size_t at = row * u->stride; at < row * u->stride + u->width;
             at++) {
            of->narrow[i][at] = wefti_bf16_narrow((float)of->wide[i][at]);
        }
    }
}

static void free_job(job *freed)
{
    for (size_t i = 0; i < freed->use_count; i++) {
        free(freed->wide[i]);
    }
    free(freed->scratch);
    free(freed);
}

static void run_job(void *arg)
{
    job *of = arg;
    for (size_t i = 0; i < of->use_count; i++) {
        if (of->wide[i] && of->uses[i].reads) {
            widen_rows(of, i);
        }
    }
    if (is_product_of_bf16(of)) {
        wefti_gemm_bf16(&of->args.gemm, of->type == WEFTI_MATH_BF16_F32);
    } else {
        wefti_math_run(of->op, &of->args, of->scratch);
    }
    for (size_t i = 0; i < of->use_count; i++) {
        if (of->wide[i] && of->uses[i].writes) {
            narrow_rows(of, i);
        }
    }
    free_job(of);
}

static bool has_type(wefti_math_op op, wefti_math_type type)
{
    if (op == WEFTI_MATH_OP_clip) {
        return true; /* double in every build */
    }
    return WEFTI_REAL_DTYPE == WEFT_DTYPE_F64 ? type == WEFTI_MATH_F64
                                              : type != WEFTI_MATH_F64;
}

/* Where the array is for the host; of bf16 a copy stands for it. */
static weft_status place(job *of, size_t i, const weft_stream *stream,
                         const char *name)
{
    char *field = (char *)&of->args + of->uses[i].place;
    const size_t bytes = wefti_math_use_bytes(&of->uses[i]);
    void *at, *found;
    memcpy(&at, field, sizeof(at));
    if (!at || bytes == 0) {
        return WEFT_OK;
    }
    weft_status status = wefti_stream_place(stream, name, at, bytes, &found);
    if (status == WEFT_OK && of->uses[i].dtype == WEFT_DTYPE_BF16 &&
        !is_product_of_bf16(of)) {
        of->narrow[i] = found;
        of->wide[i] = malloc(bytes / sizeof(uint16_t) * sizeof(real));
        if (!of->wide[i]) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "%s: no memory for %zu bytes in f32", name,
                               bytes / sizeof(uint16_t) * sizeof(real));
        }
        found = of->wide[i];
    }
    memcpy(field, &found, sizeof(found));
    return status;
}

static weft_status find_scratch(job *of, const char *name)
{
    const size_t elems = wefti_math_run_scratch_elems(of->op, &of->args);
    of->scratch = elems > 0 ? calloc(elems, sizeof(real)) : NULL;
    return of->scratch || elems == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "%s: no memory for %zu elements of scratch", name,
                             elems);
}

weft_status wefti_math_job_post(weft_stream *stream, wefti_math_op op,
                                wefti_math_type type, const void *args)
{
    char name[WEFTI_MATH_NAME_BYTES];
    wefti_math_op_name(op, type, name);
    if (!has_type(op, type)) {
        return wefti_error(
            WEFT_ERR_UNSUPPORTED,
            "%s: this build's kernels of the host are for " WEFTI_REAL_NAME,
            name);
    }
    job *made = calloc(1, sizeof(*made));
    if (!made) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%s: no memory for its launch",
                           name);
    }
    made->op = op;
    made->type = type;
    memcpy(&made->args, args, wefti_math_op_args_bytes(op));
    made->use_count = wefti_math_op_uses(op, type, &made->args, made->uses);
    weft_status status = find_scratch(made, name);
    for (size_t i = 0; i < made->use_count && status == WEFT_OK; i++) {
        status = place(made, i, stream, name);
    }
    if (status == WEFT_OK) {
        status = wefti_stream_compute(stream, run_job, made);
    }
    if (status < 0) {
        free_job(made);
    }
    return status;
}
