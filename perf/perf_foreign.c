/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_foreign.c - nccl-tests' flags and variables.
 */
#include "perf/perf_foreign.h"

#include "base/check.h"
#include "base/error.h"
#include "base/plain_number.h"
#include "base/settings.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- flags ----------------------------------------------------------------
 */

/* Flags that have one value here, which is so anyway, or none. */
typedef struct fixed_flag {
    int flag;
    const char *allowed; /* NULL: none */
    const char *why;
} fixed_flag;

static const fixed_flag fixed_flags[] = {
    {'t', "1", "WEFT_RANKS_PER_PROCESS has ranks as threads"},
    {'g', "1", "each rank has a device: more ranks have more"},
    {'p', "1", "each rank makes its own end of the communicator, all at once"},
    {'y', "0", "operations go by streams of weft's, or -z 1 by none"},
    {'C', "0", "a call's time is until it is done; --overlap has CPU times"},
    {'S', "0", "rows have no time of day"},
    {'x', "0",
     "it is NCCL's; of weft's own streams only a program can say how "
     "much of a GPU they take"},
    {'D', "0",
     "there are no kernels of the bench's own; --algo names weft's "
     "algorithms"},
    {'V', NULL, "there are no kernels of the bench's own"},
    {'M', "0", "weft_comm_get_bytes tells a program what a communicator costs"},
    {'U', "0", "rows have their algorithm without --nccl-tests, and with -J"},
    {'K', "0", "-w has calls that do not count"}};

static weft_status read_fixed(int flag, const char *value)
{
    for (size_t i = 0; i < WEFTI_COUNT_OF(fixed_flags); i++) {
        const fixed_flag *fixed = &fixed_flags[i];
        if (fixed->flag != flag) {
            continue;
        }
        if (fixed->allowed && strcmp(value, fixed->allowed) == 0) {
            return WEFT_OK;
        }
        return wefti_error(WEFT_ERR_INVALID, "-%c %s: allowed is %s; %s", flag,
                           value, fixed->allowed ? fixed->allowed : "none",
                           fixed->why);
    }
    return wefti_error(WEFT_ERR_INVALID, "-%c: no such flag", flag);
}

weft_status wefti_perf_foreign_read(int flag, const char *value,
                                    wefti_perf_options *options)
{
    int number = 0;
    weft_status status;
    switch (flag) {
    case 'N':
        return wefti_plain_flag("-N", value, 0, INT_MAX, &options->cycles);
    case 'T':
        return wefti_plain_flag("-T", value, 0, INT_MAX / 1000,
                                &options->timeout_s);
    case 'G':
        status = wefti_plain_flag("-G", value, 0, 1, &number);
        options->graph |= number == 1;
        return status;
    case 'R':
        /* Memory of a weft_mem is symmetric: both are the same. */
        status = wefti_plain_flag("-R", value, 0, 2, &number);
        options->registered |= number > 0;
        return status;
    case 'a':
        status =
            wefti_plain_flag("-a", value, 0, WEFTI_PERF_AVERAGES - 1, &number);
        options->average = (wefti_perf_average)number;
        return status;
    case 'm':
        return wefti_plain_flag("-m", value, 1, WEFTI_PERF_GROUP_MOST,
                                &options->group);
    case 'u':
        return wefti_plain_flag("-u", value, 0, 1 << 20, &options->first_elem);
    case 'I':
        status = wefti_plain_flag("-I", value, 0, 1, &number);
        options->spread = number == 1;
        return status;
    default:
        return read_fixed(flag, value);
    }
}

weft_status wefti_perf_foreign_check(wefti_perf_options *options)
{
    const wefti_perf_op *op = options->op;
    if (options->group > 1 &&
        (options->overlap || options->regret || wefti_perf_op_puts(op) ||
         wefti_perf_op_rings(op) || wefti_perf_op_is_moe(op))) {
        return wefti_error(WEFT_ERR_INVALID,
                           "-m %d: calls of %s%s are not posted together; "
                           "allowed is 1",
                           options->group, op->name,
                           options->overlap  ? " with --overlap"
                           : options->regret ? " with --regret"
                                             : "");
    }
    if (options->first_elem > 0 && wefti_perf_op_is_moe(op)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "-u %d: rows of %s begin where weft_moe has them; "
                           "allowed is 0",
                           options->first_elem, op->name);
    }
    if (options->spread && !options->table) {
        return wefti_error(WEFT_ERR_INVALID,
                           "-I 1: allowed is with --nccl-tests; other rows "
                           "have it without");
    }
    options->blocking &= options->group == 1;
    return WEFT_OK;
}

/* ---- the environment ------------------------------------------------------
 */

static weft_status read_real(const char *name, double most, double *value)
{
    const char *text = wefti_setting_foreign(name);
    if (!text) {
        return WEFT_OK;
    }
    char *end;
    errno = 0;
    const double read = strtod(text, &end);
    if (errno || *end || !(read >= 0 && read <= most)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s=%s: allowed is a number from 0 to %g", name,
                           text, most);
    }
    *value = read;
    return WEFT_OK;
}

static weft_status read_matrix(wefti_perf_options *options)
{
    const char *spread = wefti_setting_foreign("NCCL_TESTS_ALLTOALLV_SPREAD");
    const char *path =
        wefti_setting_foreign("NCCL_TESTS_ALLTOALLV_MATRIX_FILE");
    if (!options->matrix_path) {
        options->matrix_path = path;
    }
    if (!options->matrix_path && spread) {
        return wefti_error(WEFT_ERR_INVALID,
                           "NCCL_TESTS_ALLTOALLV_SPREAD=%s: uneven parts are "
                           "drawn; allowed is not set, or a matrix",
                           spread);
    }
    return read_real("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE", 1e6,
                     &options->matrix_scale);
}

weft_status wefti_perf_foreign_environment(wefti_perf_options *options)
{
    weft_status status =
        read_real("NCCL_TESTS_MIN_BW", 1e6, &options->least_GBps);
    if (status == WEFT_OK && options->least_GBps > 0 &&
        (options->overlap || options->regret)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "NCCL_TESTS_MIN_BW=%g: allowed is without "
                             "--overlap and --regret, whose rows have no one "
                             "bandwidth",
                             options->least_GBps);
    }
    if (status == WEFT_OK && options->op->kind == WEFTI_PERF_ALLTOALLV) {
        status = read_matrix(options);
    }
    return status;
}
