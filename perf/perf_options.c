/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_options.c - nccl-tests' flags where they exist, weft's beside them.
 */
#include "perf/perf_options.h"

#include "base/check.h"
#include "base/error.h"
#include "base/plain_number.h"

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
    VERSION
};

static const char short_flags[] = ":b:e:f:n:w:d:o:r:c:z:J:h";

static const struct option long_flags[] = {
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"datatype", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"root", required_argument, NULL, 'r'},
    {"check", required_argument, NULL, 'c'},
    {"blocking", required_argument, NULL, 'z'},
    {"json", required_argument, NULL, 'J'},
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
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},
    {0}};

static const char help_text[] =
    "usage: weft-run -n N weft-perf OP [flags]\n"
    "\n"
    "Measures one operation of weft over a range of sizes. Before each call\n"
    "the data are rewritten and the ranks meet; a call takes as long as on "
    "its\n"
    "slowest rank. Every result is verified.\n"
    "\n"
    "OP:\n";

static const char flags_text[] =
    "\n"
    "  -b MIN -e MAX    sizes in bytes, K M G are powers of 1024 (8, 16M)\n"
    "  -f FACTOR        from one size to the next (8); 1 comes after 0\n"
    "  --sizes LIST     exactly these sizes instead: 8,64K,4M\n"
    "  -n ITERS         timed calls a size (300 up to 64K, fewer above)\n"
    "  -w WARMUP        calls before them (a tenth of ITERS + 3)\n"
    "  -d DTYPE         i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2\n"
    "                   or nccl-tests' names (half, float); all (f32)\n"
    "  -o REDOP         sum prod min max avg premulsum, of integers also band\n"
    "                   bor bxor; all (sum)\n"
    "  -r ROOT          of broadcast, reduce, gather(v) and scatter(v) (0)\n"
    "  -c CHECKS        calls whose whole output is verified; 0: none (1)\n"
    "  -z 0|1           1: blocking calls, 0: through a stream (1)\n"
    "  -J, --json FILE  the same facts as JSON; - is stdout\n"
    "  --inplace        send and receive in one buffer, where that is legal\n"
    "  --memory KIND    host, cuda, or shadow (host memory that only a device\n"
    "                   may touch, and does so late)\n"
    "  --device INDEX   which of that kind, for all ranks; without it GPUs go\n"
    "                   round: rank r takes r modulo their number\n"
    "  --overlap        with a calibrated compute beside it, which makes the "
    "data in\n"
    "                   the order that they are sent in: O, H, s_C, s_M;\n"
    "                   of an overlapped call and rank: wake-ups of weft's\n"
    "                   threads (also a MiB out and in), preemptions of the\n"
    "                   compute, CPU time of these threads\n"
    "  --bare           with --overlap, in the same rounds: two blocking "
    "threads\n"
    "                   on plain TCP sockets move as many bytes behind the "
    "same\n"
    "                   compute, in the same order, each rank to the next; "
    "H_bare,\n"
    "                   H / H_bare, and their CPU time\n"
    "  --plan           calls post plans made beforehand; not of puts\n"
    "  --graph          calls launch CUDA graphs captured beforehand, of one\n"
    "                   call each: --memory cuda and WEFT_ROUTE=streams\n"
    "  --algo NAMES     as WEFT_ALGO=OP:NAMES, such as tree, or oneshot/tree: "
    "what\n"
    "                   costs least of them; what none can do is refused\n"
    "  --regret         at each size every algorithm that can do it, in turn: "
    "the\n"
    "                   choice, the best, and how much longer the choice "
    "takes\n"
    "  --samples        every single time in the JSON too\n"
    "  --registered     buffers of a weft_mem, which ranks of one host read\n"
    "                   where they lie\n"
    "  --unregistered   buffers that only their rank knows (so it is)\n"
    "  --version\n"
    "\n"
    "Sizes are nccl-tests': the buffer that has a part for each rank, or the\n"
    "only one. alltoallv: the mean send buffer; rank a sends rank b w/4 of "
    "the\n"
    "mean part, w from 0 to 8 and the same for the pair in every run. The "
    "other v\n"
    "forms: the same for the rank. put_round: what goes from one to the next; "
    "its\n"
    "busbw is that of one hop.\n"
    "\n"
    "Ranks: weft-run's, or WEFT_RANKS_PER_PROCESS threads of this process.\n"
    "\n"
    "SIGUSR1 prints on stderr what all ranks do and did last.\n"
    "\n"
    "examples:\n"
    "  weft-run -n 2 weft-perf all_reduce -b 8 -e 64M -f 4\n"
    "  weft-run -n 4 weft-perf reduce_scatter -b 1M -e 1M -d bf16 -J out.json\n"
    "  weft-run -n 2 weft-perf all_reduce -b 16M -e 16M --overlap\n"
    "  weft-run -n 2 --bind core --net-emulate 2x1,1gbit weft-perf all_gather "
    "-b 4M\n"
    "      -e 16M -f 4 --overlap --bare\n"
    "  weft-run -n 3 weft-perf all_reduce -d all -o all -b 1M -e 1M -n 5\n"
    "  weft-run -n 2 weft-perf all_gather --memory cuda -z 0 -e 256M\n"
    "  weft-run -n 2 weft-perf put_round -b 8 -e 64K\n"
    "  weft-run -n 4 --net-emulate 2x2 weft-perf sendrecv_list -e 1M --plan\n"
    "  weft-run -n 4 weft-perf all_reduce --regret -b 8 -e 64M -f 4 -J "
    "out.json\n"
    "  weft-run -n 4 weft-perf reduce --algo tree -e 1M\n"
    "  WEFT_RANKS_PER_PROCESS=3 weft-perf broadcast -r 2 -e 1M\n";

void wefti_perf_options_print_help(void)
{
    fputs(help_text, stdout);
    for (const wefti_perf_op *op = wefti_perf_ops; op->name; op++) {
        printf("  %-15s  %s\n", op->name, op->meaning);
    }
    fputs(flags_text, stdout);
}

/* Bytes with an optional K, M or G, up to 1 TiB. */
static weft_status read_bytes(const char *flag, const char *text,
                              size_t *bytes_out)
{
    const unsigned long long most = 1ull << 40;
    const char *suffixes = "KkMmGg";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    int shift = suffix ? 10 * ((int)(suffix - suffixes) / 2 + 1) : 0;
    bool clean = text[0] >= '0' && text[0] <= '9' && !errno &&
                 (!*end || (suffix && !end[1]));
    if (!clean || value > most >> shift) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %s: allowed is a size such as 8, 64K, 16M, 1G",
                           flag, text);
    }
    *bytes_out = (size_t)value << shift;
    return WEFT_OK;
}

enum { SIZES_MOST = 64, SIZE_CHARS = 32 };

static weft_status add_size(wefti_perf_options *options, size_t bytes)
{
    if (!options->sizes) {
        options->sizes = calloc(SIZES_MOST, sizeof(*options->sizes));
    }
    if (!options->sizes) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "the list of sizes");
    }
    if (options->size_count == SIZES_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "allowed is up to %d sizes",
                           SIZES_MOST);
    }
    options->sizes[options->size_count++] = bytes;
    return WEFT_OK;
}

static weft_status read_sizes(const char *list, wefti_perf_options *options)
{
    options->size_count = 0;
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        char text[SIZE_CHARS];
        size_t chars = strcspn(at, ","), bytes = 0;
        /* One too long for text is no size, cut or not. */
        int length = snprintf(text, sizeof(text), "%.*s", (int)chars, at);
        weft_status status =
            length < SIZE_CHARS
                ? read_bytes("--sizes", text, &bytes)
                : wefti_error(WEFT_ERR_INVALID,
                              "--sizes %.*s: allowed is a size such as 8, 64K, "
                              "16M, 1G",
                              (int)chars, at);
        if (status == WEFT_OK) {
            status = add_size(options, bytes);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* From -b to -e by -f, after 0 from 1, unless --sizes has listed them. */
static weft_status make_sizes(wefti_perf_options *options)
{
    if (options->op->kind == WEFTI_PERF_BARRIER) {
        options->size_count = 0;
        return add_size(options, 0);
    }
    size_t bytes = options->min_bytes;
    weft_status status = WEFT_OK;
    bool more = options->size_count == 0;
    while (more && status == WEFT_OK) {
        status = add_size(options, bytes);
        more = bytes > 0 ? bytes <= options->max_bytes / options->factor
                         : options->max_bytes > 0;
        bytes = bytes > 0 ? bytes * options->factor : 1;
    }
    return status;
}

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

static weft_status read_flag(int flag, const char *value,
                             wefti_perf_options *options)
{
    weft_status status = WEFT_OK;
    int number = 0;
    switch (flag) {
    case 'b':
        return read_bytes("-b", value, &options->min_bytes);
    case 'e':
        return read_bytes("-e", value, &options->max_bytes);
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
        return read_sizes(value, options);
    case MEMORY:
        return read_memory(value, &options->memory);
    case ALGO:
        options->algorithms = value;
        return WEFT_OK;
    default:
        options->inplace |= flag == INPLACE;
        options->overlap |= flag == OVERLAP;
        options->bare |= flag == BARE;
        options->registered |= flag == REGISTERED;
        options->unregistered |= flag == UNREGISTERED;
        options->plan |= flag == PLAN;
        options->graph |= flag == GRAPH;
        options->regret |= flag == REGRET;
        options->samples |= flag == SAMPLES;
        options->version |= flag == VERSION;
        options->help |= flag == 'h';
        return WEFT_OK;
    }
}

/* Users of other versions look for these. */
static const char *const absent[] = {"moe_dispatch", "moe_combine"};

static weft_status read_op(int argc, char **argv, wefti_perf_options *options)
{
    char names[320];
    wefti_perf_op_list(names, sizeof(names));
    if (optind + 1 < argc) {
        return wefti_error(WEFT_ERR_INVALID, "%s: one operation at a time",
                           argv[optind + 1]);
    }
    if (optind == argc) {
        return wefti_error(WEFT_ERR_INVALID, "which operation? there is: %s",
                           names);
    }
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        if (strcmp(argv[optind], absent[i]) == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s: not an operation of this version of weft; "
                               "there is: %s",
                               absent[i], names);
        }
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

static weft_status check_together(wefti_perf_options *options)
{
    if (options->min_bytes > options->max_bytes) {
        return wefti_error(WEFT_ERR_INVALID,
                           "-b %zu -e %zu: the least size is above the most",
                           options->min_bytes, options->max_bytes);
    }
    wefti_perf_kind kind = options->op->kind;
    bool puts = wefti_perf_op_puts(options->op);
    bool rings = wefti_perf_op_rings(options->op);
    if (options->inplace &&
        (kind == WEFTI_PERF_SENDRECV || kind == WEFTI_PERF_BARRIER ||
         kind == WEFTI_PERF_ALLTOALL || kind == WEFTI_PERF_ALLTOALLV ||
         kind == WEFTI_PERF_SENDRECV_LIST || rings || puts)) {
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
            status = make_sizes(options_out);
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
