/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/math_job.c - the host's kernels behind the arguments of
 * math_launch.h. A job owns all that it needs when it is posted, so that
 * running it can not fail.
 *
 *   bf16 arrays     |  piece  |  piece  |  piece  |      rows of them all
 *                       | widen   ^ round once
 *                       v         |
 *   f32 copies      [ a piece ] --> kernel over f32
 *
 * so that no copy of a large array is made.
 */
#include "kernels/math/math_job.h"

#include "base/check.h"
#include "base/error.h"
#include "kernels/math/experts_bf16.h"
#include "kernels/math/gemm_bf16.h"
#include "kernels/math/math_host.h"
#include "kernels/math/math_table.h"

#include <stdlib.h>
#include <string.h>

/* What the copies of one piece may take, where a unit is not larger. */
enum { PIECE_BYTES = 256 * 1024, PIECE_UNITS = 64 };

typedef struct job {
    wefti_math_op op;
    wefti_math_type type;
    wefti_math_args args; /* with pointers of the host's */
    size_t use_count;
    wefti_math_use uses[WEFTI_MATH_USES];
    bool narrow[WEFTI_MATH_USES]; /* it is of bf16, */
    real *wide[WEFTI_MATH_USES];  /* and this stands for a piece of it */
    wefti_math_cut cut;
    size_t piece_units;
    real *scratch; /* of attention */
} job;

/* Whose kernel reads bf16 itself. */
static bool is_product_of_bf16(const job *of)
{
    return of->op == WEFTI_MATH_OP_gemm &&
           (of->type == WEFTI_MATH_BF16 || of->type == WEFTI_MATH_BF16_F32);
}

static bool is_expert_of_bf16(const job *of)
{
    return wefti_experts_bf16_has(of->op, of->type);
}

/* Rows are copied as they are, so that the table is not widened. */
static bool is_gather_of_bf16(const job *of)
{
    return of->op == WEFTI_MATH_OP_embedding_forward &&
           of->type == WEFTI_MATH_BF16;
}

static void gather(const wefti_math_embedding_forward *a)
{
    uint16_t *out = a->out;
    const uint16_t *table = a->table;
    for (size_t t = 0; t < a->tokens; t++) {
        if (a->ids[t] < 0) {
            memset(out + t * a->width, 0, a->width * sizeof(*out));
            continue;
        }
        WEFTI_ASSERT((size_t)a->ids[t] < a->vocab);
        memcpy(out + t * a->width, table + (size_t)a->ids[t] * a->width,
               a->width * sizeof(*out));
    }
}

static void *read_pointer(const wefti_math_args *args, size_t place)
{
    void *at;
    memcpy(&at, (const char *)args + place, sizeof(at));
    return at;
}

static void set_pointer(wefti_math_args *args, size_t place, void *at)
{
    memcpy((char *)args + place, &at, sizeof(at));
}

/* The rows of units units from first on, in an array's own elements. */
static wefti_math_use cut_use(const job *of, size_t i, size_t first,
                              size_t units)
{
    wefti_math_use part = of->uses[i];
    if (part.step == 0) {
        return part;
    }
    if (part.rows == 1) {
        const size_t left = part.width - first * part.step;
        part.width = left < units * part.step ? left : units * part.step;
        part.stride = part.width;
    } else {
        part.rows = part.rows / of->cut.units * units;
    }
    return part;
}

/* units units from first on: bf16 is widened, computed, and rounded once. */
static void run_piece(const job *of, size_t first, size_t units)
{
    wefti_math_args args = of->args;
    wefti_math_use parts[WEFTI_MATH_USES];
    char *at[WEFTI_MATH_USES];
    size_t count;
    memcpy(&count, (const char *)&args + of->cut.place, sizeof(count));
    const size_t left = count - first * of->cut.per_unit;
    count = left < units * of->cut.per_unit ? left : units * of->cut.per_unit;
    memcpy((char *)&args + of->cut.place, &count, sizeof(count));
    for (size_t i = 0; i < of->use_count; i++) {
        at[i] = read_pointer(&args, of->uses[i].place);
        if (!at[i]) {
            continue;
        }
        parts[i] = cut_use(of, i, first, units);
        at[i] += first * parts[i].step * weft_dtype_bytes(parts[i].dtype);
        set_pointer(&args, parts[i].place,
                    of->narrow[i] ? (void *)of->wide[i] : at[i]);
        if (of->narrow[i] && parts[i].reads) {
            wefti_math_get()->widen_rows(of->wide[i], (const uint16_t *)at[i],
                                         parts[i].rows, parts[i].width,
                                         parts[i].stride);
        }
    }
    wefti_math_host_run(of->op, &args, of->scratch);
    for (size_t i = 0; i < of->use_count; i++) {
        if (of->narrow[i] && parts[i].writes) {
            wefti_math_get()->narrow_rows((uint16_t *)at[i], of->wide[i],
                                          parts[i].rows, parts[i].width,
                                          parts[i].stride);
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
    if (is_product_of_bf16(of)) {
        wefti_gemm_bf16(&of->args.gemm, of->type == WEFTI_MATH_BF16_F32);
    } else if (is_gather_of_bf16(of)) {
        gather(&of->args.embedding_forward);
    } else if (is_expert_of_bf16(of)) {
        wefti_experts_bf16_run(of->op, of->type, &of->args);
    } else if (of->piece_units == 0) {
        wefti_math_host_run(of->op, &of->args, of->scratch);
    } else {
        for (size_t first = 0; first < of->cut.units;
             first += of->piece_units) {
            const size_t left = of->cut.units - first;
            run_piece(of, first,
                      left < of->piece_units ? left : of->piece_units);
        }
    }
    free_job(of);
}

static bool has_type(wefti_math_op op, wefti_math_type type)
{
    if (op == WEFTI_MATH_OP_clip || op == WEFTI_MATH_OP_expert_order ||
        op == WEFTI_MATH_OP_expert_load) {
        return true; /* double or whole numbers in every build */
    }
    return WEFTI_REAL_DTYPE == WEFT_DTYPE_F64 ? type == WEFTI_MATH_F64
                                              : type != WEFTI_MATH_F64;
}

/* Where the array is for the host. */
static weft_status place(job *of, size_t i, const weft_stream *stream,
                         const char *name)
{
    const size_t bytes = wefti_math_use_bytes(&of->uses[i]);
    void *at = read_pointer(&of->args, of->uses[i].place);
    if (!at || bytes == 0) {
        return WEFT_OK;
    }
    weft_status status = wefti_stream_place(stream, name, at, bytes, &at);
    set_pointer(&of->args, of->uses[i].place, at);
    of->narrow[i] = of->uses[i].dtype == WEFT_DTYPE_BF16 &&
                    !is_product_of_bf16(of) && !is_gather_of_bf16(of) &&
                    !is_expert_of_bf16(of);
    return status;
}

/* How many units are done at a time, and room for as much of each array. */
static weft_status find_pieces(job *of, const char *name)
{
    size_t unit_bytes = 0;
    bool any = false;
    for (size_t i = 0; i < of->use_count; i++) {
        unit_bytes += of->narrow[i] ? of->uses[i].step * sizeof(real) : 0;
        any |= of->narrow[i];
    }
    if (!any) {
        return WEFT_OK;
    }
    of->cut = wefti_math_op_cut(of->op, &of->args);
    if (of->cut.units == 0) {
        return WEFT_OK;
    }
    size_t units = unit_bytes > 0 ? PIECE_BYTES / unit_bytes : of->cut.units;
    units = units > PIECE_UNITS ? units / PIECE_UNITS * PIECE_UNITS : units;
    units = units < of->cut.units ? units : of->cut.units;
    of->piece_units = units > 0 ? units : 1;
    for (size_t i = 0; i < of->use_count; i++) {
        const wefti_math_use part = cut_use(of, i, 0, of->piece_units);
        const size_t elems = wefti_math_use_bytes(&part) / sizeof(uint16_t);
        of->wide[i] = of->narrow[i] ? malloc(elems * sizeof(real)) : NULL;
        if (of->narrow[i] && !of->wide[i]) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "%s: no memory for %zu bytes in f32", name,
                               elems * sizeof(real));
        }
    }
    return WEFT_OK;
}

static weft_status find_scratch(job *of, const char *name)
{
    const size_t elems = wefti_math_host_scratch_elems(of->op, &of->args);
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
        status = find_pieces(made, name);
    }
    if (status == WEFT_OK) {
        status = wefti_stream_compute(stream, run_job, made);
    }
    if (status < 0) {
        free_job(made);
    }
    return status;
}
