/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_options.c - nccl-tests' flags where they exist, weft's beside them.
 */
#include "perf/perf_options.h"

#include "perf/perf_foreign.h"
#include "perf/perf_sizes.h"

#include "base/check.h"
#include "base/error.h"
#include "base/plain_number.h"
#include "weft/moe.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEVICE = 256,
    INPLACE,
    MEMORY,
    OVERLAP,
    BARE,
    PLAN,
    GRAPH,
    ALGO,
    REGRET,
    SAMPLES,
    SIZES,
    REGISTERED,
    UNREGISTERED,
    TOKENS,
    HIDDEN,
    EXPERTS,
    TOPK,
    HOPS,
    MATRIX,
    FP8,
    TABLE,
    VERSION
};

static const char short_flags[] =
    ":b:e:i:f:n:w:d:o:r:c:z:J:h" WEFTI_PERF_FOREIGN_FLAGS;

static const struct option long_flags[] = {
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"datatype", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"root", required_argument, NULL, 'r'},
    {"check", required_argument, NULL, 'c'},
    {"blocking", required_argument, NULL, 'z'},
    {"json", required_argument, NULL, 'J'},
    {"output_file", required_argument, NULL, 'J'},
    {"nthreads", required_argument, NULL, 't'},
    {"ngpus", required_argument, NULL, 'g'},
    {"run_cycles", required_argument, NULL, 'N'},
    {"timeout", required_argument, NULL, 'T'},
    {"cudagraph", required_argument, NULL, 'G'},
    {"local_register", required_argument, NULL, 'R'},
    {"average", required_argument, NULL, 'a'},
    {"agg_iters", required_argument, NULL, 'm'},
    {"unalign", required_argument, NULL, 'u'},
    {"parallel_init", required_argument, NULL, 'p'},
    {"stream_null", required_argument, NULL, 'y'},
    {"report_cputime", required_argument, NULL, 'C'},
    {"report_timestamps", required_argument, NULL, 'S'},
    {"cta_policy", required_argument, NULL, 'x'},
    {"device_implementation", required_argument, NULL, 'D'},
    {"device_cta_count", required_argument, NULL, 'V'},
    {"memory_report", required_argument, NULL, 'M'},
    {"nccl-tests", no_argument, NULL, TABLE},
    {"inplace", no_argument, NULL, INPLACE},
    {"device", required_argument, NULL, DEVICE},
    {"memory", required_argument, NULL, MEMORY},
    {"overlap", no_argument, NULL, OVERLAP},
    {"bare", no_argument, NULL, BARE},
    {"plan", no_argument, NULL, PLAN},
    {"graph", no_argument, NULL, GRAPH},
    {"algo", required_argument, NULL, ALGO},
    {"regret", no_argument, NULL, REGRET},
    {"samples", no_argument, NULL, SAMPLES},
    {"sizes", required_argument, NULL, SIZES},
    {"registered", no_argument, NULL, REGISTERED},
    {"unregistered", no_argument, NULL, UNREGISTERED},
    {"tokens", required_argument, NULL, TOKENS},
    {"hidden", required_argument, NULL, HIDDEN},
    {"experts", required_argument, NULL, EXPERTS},
    {"topk", required_argument, NULL, TOPK},
    {"hops", required_argument, NULL, HOPS},
    {"matrix", required_argument, NULL, MATRIX},
    {"fp8", no_argument, NULL, FP8},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},
    {0}};

/* nccl-tests' names, where they differ from weft's. */
typedef struct other_name {
    const char *name; /* NULL: the end */
    int value;
} other_name;

static const other_name other_dtypes[] = {
    {"int8", WEFT_DTYPE_I8},       {"uint8", WEFT_DTYPE_U8},
    {"int32", WEFT_DTYPE_I32},     {"uint32", WEFT_DTYPE_U32},
    {"int64", WEFT_DTYPE_I64},     {"uint64", WEFT_DTYPE_U64},
    {"half", WEFT_DTYPE_F16},      {"float16", WEFT_DTYPE_F16},
    {"float", WEFT_DTYPE_F32},     {"double", WEFT_DTYPE_F64},
    {"bfloat16", WEFT_DTYPE_BF16}, {0}};
static const other_name other_redops[] = {{"mulsum", WEFT_REDOP_PREMULSUM},
                                          {0}};

static const char *dtype_text(int value)
{
    return weft_dtype_text((weft_dtype)value);
}

static const char *redop_text(int value)
{
    return weft_redop_text((weft_redop)value);
}

/* One name, or all, as a bit set. */
static weft_status read_choice(const char *flag, const char *text, int count,
                               const char *(*name_of)(int value),
                               const other_name *others, uint32_t *set_out)
{
    char names[160] = "";
    uint32_t set = strcmp(text, "all") == 0 ? (1u << count) - 1 : 0;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s ", name_of(i));
        set |= strcmp(text, name_of(i)) == 0 ? 1u << i : 0;
    }
    for (; others->name; others++) {
        set |= strcmp(text, others->name) == 0 ? 1u << others->value : 0;
    }
    *set_out = set;
    return set ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID, "%s %s: allowed is %sall", flag,
                             text, names);
}

static weft_status read_memory(const char *text, const char **memory_out)
{
    static const char *const kinds[] = {"host", "cuda", "shadow"};
    for (size_t i = 0; i < WEFTI_COUNT_OF(kinds); i++) {
        if (strcmp(text, kinds[i]) == 0) {
            *memory_out = kinds[i];
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "--memory %s: allowed is host, cuda or shadow", text);
}

static weft_status read_step(const char *text, size_t *bytes_out)
{
    weft_status status = wefti_perf_size_read("-i", text, bytes_out);
    return status != WEFT_OK || *bytes_out > 0
               ? status
               : wefti_error(WEFT_ERR_INVALID,
                             "-i %s: allowed is a size from 1 on", text);
}

static weft_status read_flag(int flag, const char *value,
                             wefti_perf_options *options)
{
    weft_status status = WEFT_OK;
    int number = 0;
    switch (flag) {
    case 'b':
        return wefti_perf_size_read("-b", value, &options->min_bytes);
    case 'e':
        return wefti_perf_size_read("-e", value, &options->max_bytes);
    case 'i':
        return read_step(value, &options->step_bytes);
    case 'f':
        status = wefti_plain_flag("-f", value, 2, 1 << 20, &number);
        options->factor = (size_t)number;
        return status;
    case 'n':
        return wefti_plain_flag("-n", value, 1, 1000000, &options->iterations);
    case 'w':
        return wefti_plain_flag("-w", value, 0, 1000000, &options->warmup);
    case 'd':
        return read_choice("-d", value, WEFT_DTYPE_COUNT, dtype_text,
                           other_dtypes, &options->dtypes);
    case 'o':
        return read_choice("-o", value, WEFT_REDOP_COUNT, redop_text,
                           other_redops, &options->redops);
    case 'r':
        return wefti_plain_flag("-r", value, 0, INT_MAX, &options->root);
    case 'c':
        return wefti_plain_flag("-c", value, 0, 1000000, &options->checks);
    case 'z':
        status = wefti_plain_flag("-z", value, 0, 1, &number);
        options->blocking = number == 1;
        return status;
    case 'J':
        options->json_path = value;
        return WEFT_OK;
    case DEVICE:
        return wefti_plain_flag("--device", value, 0, INT_MAX,
                                &options->device);
    case SIZES:
        return wefti_perf_sizes_list(value, options);
    case MEMORY:
        return read_memory(value, &options->memory);
    case ALGO:
        options->algorithms = value;
        return WEFT_OK;
    case TOKENS:
        return wefti_plain_flag("--tokens", value, 1, 1 << 24,
                                &options->moe.tokens);
    case HIDDEN:
        return wefti_plain_flag("--hidden", value, 1, 1 << 20,
                                &options->moe.hidden);
    case EXPERTS:
        return wefti_plain_flag("--experts", value, 1, 1 << 16,
                                &options->moe.experts);
    case TOPK:
        return wefti_plain_flag("--topk", value, 1, WEFT_MOE_SLOTS_MOST,
                                &options->moe.slots);
    case HOPS:
        return wefti_plain_flag("--hops", value, 1, 2, &options->moe.hops);
    case MATRIX:
        options->matrix_path = value;
        return WEFT_OK;
    default:
        if (flag < DEVICE && flag != 'h') {
            return wefti_perf_foreign_read(flag, value, options);
        }
        options->moe.fp8 |= flag == FP8;
        options->inplace |= flag == INPLACE;
        options->overlap |= flag == OVERLAP;
        options->bare |= flag == BARE;
        options->registered |= flag == REGISTERED;
        options->unregistered |= flag == UNREGISTERED;
        options->plan |= flag == PLAN;
        options->graph |= flag == GRAPH;
        options->regret |= flag == REGRET;
        options->samples |= flag == SAMPLES;
        options->table |= flag == TABLE;
        options->version |= flag == VERSION;
        options->help |= flag == 'h';
        return WEFT_OK;
    }
}

static weft_status read_op(int argc, char **argv, wefti_perf_options *options)
{
    char names[400];
    wefti_perf_op_list(names, sizeof(names));
    if (optind + 1 < argc) {
        return wefti_error(WEFT_ERR_INVALID, "%s: one operation at a time",
                           argv[optind + 1]);
    }
    if (optind == argc) {
        return wefti_error(WEFT_ERR_INVALID, "which operation? there is: %s",
                           names);
    }
    options->op = wefti_perf_op_get(argv[optind]);
    if (!options->op) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: no such operation; there is: %s", argv[optind],
                           names);
    }
    return WEFT_OK;
}

/* Of the operation's collective. Lists and puts have no algorithms. */
static weft_status read_algorithms(wefti_perf_options *options)
{
    const wefti_perf_op *op = options->op;
    char list[WEFTI_ALGORITHMS_ROOM];
    const char *names = options->algorithms;
    wefti_algorithms all = wefti_algorithms_of(op->collective);
    if (!all && (names || options->regret)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %s has one way only: allowed is none",
                           names ? "--algo" : "--regret", op->name);
    }
    if (options->regret && (options->overlap || options->plan)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--regret: allowed is without --overlap and --plan");
    }
    if (!names) {
        return WEFT_OK;
    }
    options->allowed =
        wefti_algorithms_read(op->collective, names, strlen(names));
    wefti_algorithms_list(all, '|', list, sizeof(list));
    return options->allowed
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "--algo %s: allowed for %s is %s, or several "
                             "with / between",
                             names, op->name, list);
}

/* Bits of reductions mean nothing without a reduction, and band nothing of a
 * float. */
static weft_status check_reductions(wefti_perf_options *options)
{
    if (!options->op->reduces) {
        options->redops = 1u << WEFT_REDOP_SUM;
    }
    for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
        for (int redop = 0; redop < WEFT_REDOP_COUNT; redop++) {
            if (options->dtypes >> dtype & 1 && options->redops >> redop & 1 &&
                weft_redop_applies((weft_redop)redop, (weft_dtype)dtype)) {
                return WEFT_OK;
            }
        }
    }
    int redop = __builtin_ctz(options->redops);
    return wefti_error(WEFT_ERR_INVALID,
                       "-o %s -d %s: bits are only those of integers; allowed "
                       "is -d i8 u8 i32 u32 i64 u64",
                       redop_text(redop),
                       dtype_text(__builtin_ctz(options->dtypes)));
}

/* The library refuses what can not be captured, and says why. */
static weft_status check_graph(wefti_perf_options *options)
{
    if (options->graph && (strcmp(options->memory, "cuda") != 0 ||
                           options->overlap || options->regret)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--graph with --memory %s: allowed is cuda, without "
                           "--overlap and --regret",
                           options->memory);
    }
    options->blocking &= !options->graph;
    return check_reductions(options);
}

/* Rows of tokens: what other operations do with a buffer is not theirs. */
static weft_status check_moe(const wefti_perf_options *options)
{
    const wefti_perf_moe_options *moe = &options->moe;
    const uint32_t rows =
        1u << WEFT_DTYPE_F32 | 1u << WEFT_DTYPE_BF16 | 1u << WEFT_DTYPE_F16;
    const bool takes = options->op->kind == WEFTI_PERF_ALLTOALLV;
    if (!wefti_perf_op_is_moe(options->op)) {
        return moe->tokens || moe->hidden || moe->experts || moe->slots ||
                       moe->hops || moe->fp8 || (options->matrix_path && !takes)
                   ? wefti_error(
                         WEFT_ERR_INVALID,
                         "--tokens --hidden --experts --topk --hops "
                         "--matrix --fp8: allowed with moe_dispatch and "
                         "moe_combine, --matrix with alltoallv, not %s",
                         options->op->name)
                   : WEFT_OK;
    }
    if (options->inplace || options->overlap || options->plan ||
        options->graph || options->registered || (options->dtypes & ~rows)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: allowed is f32, bf16 or f16, without --inplace "
                           "--overlap --plan --graph --registered",
                           options->op->name);
    }
    if (options->matrix_path && (moe->tokens || moe->slots > 1)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--matrix %s: it says how many tokens go where; "
                           "allowed is without --tokens and --topk",
                           options->matrix_path);
    }
    return WEFT_OK;
}

/* With a matrix there is one size, by whatever flag: the room for it. */
static weft_status set_room(wefti_perf_options *options)
{
    const bool list = options->size_count > 0;
    if (options->op->kind != WEFTI_PERF_ALLTOALLV || !options->matrix_path ||
        !options->sized) {
        return WEFT_OK;
    }
    if (list) {
        options->min_bytes = options->max_bytes = options->sizes[0];
    } else if (!options->most_given) {
        options->max_bytes = options->min_bytes;
    } else if (!options->least_given) {
        options->min_bytes = options->max_bytes;
    }
    if (options->size_count > 1) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--sizes with %zu sizes: %s says the sizes; allowed "
                           "is one that a rank's bytes have room in",
                           options->size_count, options->matrix_path);
    }
    return options->min_bytes == options->max_bytes
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "-b %zu -e %zu: %s says the sizes; allowed is one "
                             "that a rank's bytes have room in",
                             options->min_bytes, options->max_bytes,
                             options->matrix_path);
}

static weft_status check_together(wefti_perf_options *options)
{
    weft_status status = check_moe(options);
    if (status == WEFT_OK) {
        status = wefti_perf_foreign_check(options);
    }
    if (status == WEFT_OK) {
        status = wefti_perf_foreign_environment(options);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if ((options->table || options->average != WEFTI_PERF_MOST) &&
        (options->overlap || options->regret)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--nccl-tests, -a: allowed is without --overlap "
                           "and --regret");
    }
    if (options->table && options->inplace) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--nccl-tests: its table has both forms; allowed is "
                           "without --inplace");
    }
    status = set_room(options);
    if (status != WEFT_OK) {
        return status;
    }
    if (options->min_bytes > options->max_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "-b %zu -e %zu: the least size is above the most",
                           options->min_bytes, options->max_bytes);
    }
    wefti_perf_kind kind = options->op->kind;
    bool puts = wefti_perf_op_puts(options->op);
    bool rings = wefti_perf_op_rings(options->op);
    if (options->inplace && !wefti_perf_op_has_inplace(options->op)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--inplace: %s has no form in place",
                           options->op->name);
    }
    if (options->registered &&
        (options->unregistered || puts || kind == WEFTI_PERF_BARRIER ||
         strcmp(options->memory, "host") != 0)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--registered %s with --memory %s%s: allowed is "
                           "host memory of what is neither put nor a barrier",
                           options->op->name, options->memory,
                           options->unregistered ? " --unregistered" : "");
    }
    if (options->overlap &&
        (kind == WEFTI_PERF_BARRIER || kind == WEFTI_PERF_GATHER ||
         kind == WEFTI_PERF_SCATTER || kind == WEFTI_PERF_SENDRECV_LIST ||
         rings || puts || wefti_perf_op_is_uneven(options->op))) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--overlap: %s is not measured in parts; allowed "
                           "is all_reduce all_gather reduce_scatter broadcast "
                           "reduce alltoall sendrecv",
                           options->op->name);
    }
    if (options->bare && (!options->overlap || options->op->rooted)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--bare %s: allowed is with --overlap, of "
                           "all_reduce all_gather reduce_scatter alltoall "
                           "sendrecv",
                           options->op->name);
    }
    if (options->plan && (puts || rings || options->overlap)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--plan %s: allowed is without, or an operation "
                           "that can be planned",
                           puts || rings ? options->op->name : "--overlap");
    }
    if (options->device >= 0 && strcmp(options->memory, "host") == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--device %d: allowed with --memory cuda or shadow",
                           options->device);
    }
    if (puts && strcmp(options->memory, "host") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--memory %s: %s writes into host memory; allowed "
                           "is host",
                           options->memory, options->op->name);
    }
    return check_graph(options);
}

static weft_status read_flags(int argc, char **argv,
                              wefti_perf_options *options)
{
    bool least_given = false, most_given = false;
    int flag;
    optind = 1;
    while ((flag = getopt_long(argc, argv, short_flags, long_flags, NULL)) !=
           -1) {
        if (flag == '?' || flag == ':') {
            return wefti_error(
                WEFT_ERR_INVALID, "%s: %s; --help lists what is allowed",
                argv[optind - 1],
                flag == ':' ? "a value is missing" : "no such flag");
        }
        weft_status status = read_flag(flag, optarg, options);
        if (status != WEFT_OK) {
            return status;
        }
        least_given |= flag == 'b';
        most_given |= flag == 'e';
    }
    options->least_given = least_given;
    options->most_given = most_given;
    options->sized = least_given || most_given || options->size_count > 0;
    /* One bound alone beyond the other's default is that one size. */
    if (options->min_bytes > options->max_bytes && least_given != most_given) {
        options->max_bytes =
            least_given ? options->min_bytes : options->max_bytes;
        options->min_bytes = options->max_bytes;
    }
    return WEFT_OK;
}

weft_status wefti_perf_options_read(int argc, char **argv,
                                    wefti_perf_options *options_out)
{
    *options_out = (wefti_perf_options){.min_bytes = 8,
                                        .max_bytes = (size_t)16 << 20,
                                        .factor = 8,
                                        .warmup = -1,
                                        .dtypes = 1u << WEFT_DTYPE_F32,
                                        .redops = 1u << WEFT_REDOP_SUM,
                                        .checks = 1,
                                        .cycles = 1,
                                        .group = 1,
                                        .matrix_scale = 1,
                                        .average = WEFTI_PERF_MOST,
                                        .blocking = true,
                                        .memory = "host",
                                        .device = -1};
    weft_status status = read_flags(argc, argv, options_out);
    if (status == WEFT_OK && !options_out->help && !options_out->version) {
        status = read_op(argc, argv, options_out);
        if (status == WEFT_OK) {
            status = check_together(options_out);
        }
        if (status == WEFT_OK) {
            status = read_algorithms(options_out);
        }
        if (status == WEFT_OK) {
            status = wefti_perf_sizes_make(options_out);
        }
    }
    if (status != WEFT_OK) {
        wefti_perf_options_fini(options_out);
    }
    return status;
}

void wefti_perf_options_fini(wefti_perf_options *options)
{
    free(options->sizes);
    options->sizes = NULL;
}
