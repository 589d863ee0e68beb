/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_args.c - what the arguments of each kernel of kernels/wire
 * and kernels/math point to (launch.h, math_op.h there). A kernel that is
 * emulated on the host must not access device addresses, which fault; it gets
 * the fake's own.
 */
#include "tests/fake/fake_launch.h"

#include "kernels/wire/pack.h"

#include <stdlib.h>
#include <string.h>

/* The types' names, sizes, and sizes of the wide types (reduce.h). */
static const struct {
    const char *name;
    size_t bytes, wide_bytes;
} types[] = {
    {"i8", 1, 1},  {"u8", 1, 1},  {"i32", 4, 4},    {"u32", 4, 4},
    {"i64", 8, 8}, {"u64", 8, 8}, {"f16", 2, 4},    {"bf16", 2, 4},
    {"f32", 4, 4}, {"f64", 8, 8}, {"f8e4m3", 1, 4}, {"f8e5m2", 1, 4},
};

typedef struct kernel_kind {
    const char *prefix;
    size_t args_bytes;
    void (*translate)(fake_uses *uses, void *args, size_t bytes,
                      size_t wide_bytes);
} kernel_kind;

/* Replaces one address; `bytes` of 0 are no access. */
static void translate(fake_uses *uses, const void *field, size_t bytes)
{
    void *address;
    memcpy(&address, field, sizeof(address));
    if (bytes == 0 || uses->failed) {
        return;
    }
    if (uses->count == uses->capacity) {
        unsigned capacity = uses->capacity ? 2 * uses->capacity : 72;
        fake_range **ranges =
            realloc(uses->ranges, capacity * sizeof(*uses->ranges));
        uses->failed = !ranges;
        if (!ranges) {
            return;
        }
        uses->ranges = ranges;
        uses->capacity = capacity;
    }
    address =
        fake_range_use(uses->ordinal, (CUdeviceptr)(uintptr_t)address, bytes,
                       false, uses->kernel, &uses->ranges[uses->count]);
    uses->failed = !address;
    uses->count += address != NULL;
    memcpy((void *)(uintptr_t)field, &address, sizeof(address));
}

static void of_reduce(fake_uses *uses, void *args, size_t bytes, size_t wide)
{
    wefti_reduce_args *reduce = args;
    (void)wide;
    translate(uses, &reduce->dst, reduce->elems * bytes);
    for (uint32_t i = 0; i < reduce->source_count && i < WEFTI_LAUNCH_SOURCES;
         i++) {
        translate(uses, &reduce->sources[i], reduce->elems * bytes);
    }
}

static void of_widen(fake_uses *uses, void *args, size_t bytes, size_t wide)
{
    wefti_cast_args *cast = args;
    translate(uses, &cast->dst, cast->elems * wide);
    translate(uses, &cast->src, cast->elems * bytes);
}

static void of_narrow(fake_uses *uses, void *args, size_t bytes, size_t wide)
{
    wefti_cast_args *cast = args;
    translate(uses, &cast->dst, cast->elems * bytes);
    translate(uses, &cast->src, cast->elems * wide);
}

static void of_scale(fake_uses *uses, void *args, size_t bytes, size_t wide)
{
    wefti_scale_args *scale = args;
    (void)wide;
    translate(uses, &scale->dst, scale->elems * bytes);
    translate(uses, &scale->src, scale->elems * bytes);
    translate(uses, &scale->scalar, scale->elems ? bytes : 0);
}

static void of_copy(fake_uses *uses, void *args, size_t bytes, size_t wide)
{
    wefti_copy_args *copy = args;
    (void)bytes;
    (void)wide;
    translate(uses, &copy->dst, copy->bytes);
    translate(uses, &copy->src, copy->bytes);
}

/* The list of pieces is itself memory of the device; the kernel gets a copy. */
static void of_pack(fake_uses *uses, void *args, size_t bytes, size_t wide)
{
    wefti_pack_args *pack = args;
    size_t listed = pack->piece_count * sizeof(wefti_piece), end = 0;
    (void)bytes;
    (void)wide;
    translate(uses, &pack->pieces, listed);
    wefti_piece *pieces = malloc(listed + 1);
    uses->pieces = pieces;
    uses->failed = uses->failed || !pieces;
    if (uses->failed || listed == 0) {
        return;
    }
    memcpy(pieces, pack->pieces, listed);
    pack->pieces = pieces;
    for (size_t i = 0; i < pack->piece_count; i++) {
        translate(uses, &pieces[i].at, pieces[i].bytes);
        if (pieces[i].bytes &&
            pieces[i].packed_offset + pieces[i].bytes > end) {
            end = pieces[i].packed_offset + pieces[i].bytes;
        }
    }
    translate(uses, &pack->packed, end);
}

/* NULL is no array. */
static void translate_any(fake_uses *uses, const void *field, size_t bytes)
{
    const void *address;
    memcpy(&address, field, sizeof(address));
    translate(uses, field, address ? bytes : 0);
}

/* An array of elements of 4 bytes. */
static void translate_words(fake_uses *uses, const void *field, size_t count)
{
    translate_any(uses, field, count * sizeof(int32_t));
}

static void translate_sizes(fake_uses *uses, const void *field, size_t count)
{
    translate_any(uses, field, count * sizeof(size_t));
}

static bool verb_is(const fake_uses *uses, const char *verb)
{
    const char *name = uses->kernel + strlen("wefti_rows_");
    return strncmp(name, verb, strlen(verb)) == 0;
}

/* Rows of experts, or of tokens. */
static void of_rows(fake_uses *uses, void *given, size_t bytes, size_t wide)
{
    wefti_rows_args *args = given;
    const size_t sent = args->tokens * args->slots;
    const size_t come = args->rows_most * args->slots;
    const size_t tokens = args->tokens * args->hidden * bytes;
    const size_t rows = args->capacity * args->hidden * bytes;
    (void)wide;
    translate_words(uses, &args->nodes, args->nranks);
    translate_words(uses, &args->turns, args->nranks);
    translate_any(uses, &args->out, args->out_bytes);
    translate_any(uses, &args->in, args->in_bytes);
    translate_sizes(uses, &args->out_begins, args->nranks);
    translate_sizes(uses, &args->in_begins, args->nranks);
    translate_words(uses, &args->expert, sent);
    translate_words(uses, &args->weight, sent);
    translate_words(uses, &args->kept_experts, sent);
    translate_words(uses, &args->kept_weights, sent);
    translate_words(uses, &args->sent, sent);
    translate_sizes(uses, &args->out_rows, args->nranks);
    translate_sizes(uses, &args->firsts, args->nranks + 1);
    translate_words(uses, &args->here, come);
    translate_words(uses, &args->places, come);
    translate_words(uses, &args->row_weights, come);
    translate_words(uses, &args->products, come);
    translate_words(uses, &args->expert_rows, args->experts_here);
    translate_words(uses, &args->trouble, 1);
    translate_sizes(uses, &args->gone, args->nranks);
    translate_sizes(uses, &args->come, args->nranks);
    translate_any(uses, &args->other, rows);
    translate_any(uses, &args->from, verb_is(uses, "reduce") ? rows : tokens);
    translate_any(uses, &args->to,
                  args->of_slots            ? sent * sizeof(float)
                  : verb_is(uses, "finish") ? tokens
                                            : rows);
}

static const kernel_kind kinds[] = {
    {"wefti_rows_", sizeof(wefti_rows_args), of_rows},
    {"wefti_reduce_", sizeof(wefti_reduce_args), of_reduce},
    {"wefti_widen_", sizeof(wefti_cast_args), of_widen},
    {"wefti_narrow_", sizeof(wefti_cast_args), of_narrow},
    {"wefti_scale_", sizeof(wefti_scale_args), of_scale},
    {"wefti_copy_", sizeof(wefti_copy_args), of_copy},
    {"wefti_pack_", sizeof(wefti_pack_args), of_pack},
    {"wefti_unpack_", sizeof(wefti_pack_args), of_pack},
};

static const kernel_kind *find_kind(const char *kernel)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(kernel, kinds[i].prefix, strlen(kinds[i].prefix)) == 0) {
            return &kinds[i];
        }
    }
    return NULL;
}

static bool of_math(fake_uses *uses, void *args)
{
    wefti_math_op op;
    wefti_math_type type;
    wefti_math_use used[WEFTI_MATH_USES];
    if (!wefti_math_op_find(uses->kernel, &op, &type)) {
        return false;
    }
    size_t count = wefti_math_op_uses(op, type, args, used);
    for (size_t i = 0; i < count; i++) {
        const void *place = (const char *)args + used[i].place;
        const void *address;
        memcpy(&address, place, sizeof(address));
        translate(uses, place, address ? wefti_math_use_bytes(&used[i]) : 0);
    }
    return true;
}

size_t fake_args_bytes(const char *kernel)
{
    const kernel_kind *kind = find_kind(kernel);
    wefti_math_op op;
    wefti_math_type type;
    size_t bytes = kind ? kind->args_bytes
                   : wefti_math_op_find(kernel, &op, &type)
                       ? wefti_math_op_args_bytes(op)
                       : 0;
    return bytes <= FAKE_LAUNCH_BYTES ? bytes : 0;
}

bool fake_args_translate(fake_uses *uses, void *args)
{
    if (of_math(uses, args)) {
        return !uses->failed;
    }
    const kernel_kind *kind = find_kind(uses->kernel);
    const char *type = strrchr(uses->kernel, '_') + 1;
    size_t bytes = 1, wide_bytes = 1;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, type) == 0) {
            bytes = types[i].bytes;
            wide_bytes = types[i].wide_bytes;
        }
    }
    kind->translate(uses, args, bytes, wide_bytes);
    return !uses->failed;
}

void fake_args_done(fake_uses *uses)
{
    for (unsigned i = 0; i < uses->count; i++) {
        fake_range_done(uses->ranges[i]);
    }
    free(uses->ranges);
    free(uses->pieces);
}
