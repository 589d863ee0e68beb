/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/weft_perf.c - weft-perf: how fast an operation is.
 *
 * Each rank is a thread; all run the same loop over the sizes, and the one
 * with rank 0 prints. Whatever fails ends the run with one line on stderr.
 */
#include "base/descriptors.h"
#include "base/error.h"
#include "base/output.h"
#include "base/settings.h"
#include "comm/oob/source.h"
#include "comm/watch/flight.h"
#include "perf/perf_hiding.h"
#include "perf/perf_measure.h"
#include "perf/perf_regret.h"
#include "perf/perf_table.h"
#include "weft/version.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the ranks of this process share. */
typedef struct job {
    const wefti_perf_options *options;
    int first_rank, nranks;
    const weft_unique_id *id; /* NULL: by environment */
    double emulated_GBps;     /* 0: no limit */
    wefti_flight *flight;     /* SIGUSR1 asks it where all ranks are */
    atomic_bool failed;
} job;

typedef struct rank_thread {
    pthread_t thread;
    job *world;
    int rank;
} rank_thread;

/* Rank 0's output. */
typedef struct output {
    bool text;
    int lost_errno; /* why text was lost; 0: it was not */
    bool has_json;
    wefti_output file; /* of the JSON */
    wefti_json json;
    int points, cheap_points; /* of --regret; those that cost little */
    double most_regret;
    wefti_perf_table table; /* all rows' sums */
} output;

/* What the choice may cost more than the best and still be called cheap. */
#define CHEAP_REGRET 0.1

static void complain(job *world, int rank)
{
    fprintf(stderr, "weft-perf: rank %d: %s\n", rank, weft_error_text());
    atomic_store(&world->failed, true);
}

/* ---- rank 0's output ------------------------------------------------------
 */

static weft_status open_output(output *out, const job *world,
                               const wefti_perf_rank *self)
{
    const wefti_perf_options *options = world->options;
    const char *path = options->json_path;
    bool to_stdout = path && strcmp(path, "-") == 0;
    *out = (output){.text = !to_stdout, .has_json = path != NULL};
    if (path) {
        weft_status status = wefti_output_open(&out->file, "--json", path);
        if (status != WEFT_OK) {
            return status;
        }
    }
    const char *barrier = self->line ? "shared memory" : "weft";
    if (out->text && options->table) {
        wefti_perf_table_head(options, world->nranks);
    } else if (out->text) {
        printf(
            "# %s%s, %d rank%s, memory %s, started together by %s; time of a "
            "call = slowest rank; GB = 1e9 bytes\n",
            options->op->name,
            options->graph  ? " in graphs"
            : options->plan ? " by plans"
                            : "",
            world->nranks, world->nranks == 1 ? "" : "s", options->memory,
            barrier);
        if (world->emulated_GBps > 0) {
            printf("# WEFT_EMULATE_GBPS: each rank's sending is limited to %g "
                   "GB/s; these are not this machine's own figures\n",
                   world->emulated_GBps);
        }
        wefti_perf_row_print_head(options);
    }
    if (out->has_json) {
        wefti_json_init(&out->json, out->file.file);
        wefti_json_object_open(&out->json, NULL);
        wefti_json_text(&out->json, "program", "weft-perf");
        wefti_json_text(&out->json, "version", weft_version_text());
        wefti_json_text(&out->json, "memory", options->memory);
        wefti_json_text(&out->json, "barrier", barrier);
        wefti_json_real(&out->json, "emulated_GBps",
                        world->emulated_GBps > 0 ? world->emulated_GBps
                                                 : (double)NAN);
        wefti_json_array_open(&out->json, "rows");
    }
    return WEFT_OK;
}

static void sum_up_regret(const output *out)
{
    if (out->text) {
        printf("# the choice takes at most %.0f%% longer than the best at %d "
               "of %d points (%.0f%%), and never more than %.1f%% longer\n",
               100 * CHEAP_REGRET, out->cheap_points, out->points,
               100.0 * out->cheap_points / out->points, 100 * out->most_regret);
    }
}

static weft_status close_output(output *out)
{
    weft_status status = WEFT_OK;
    if (out->points > 0) {
        sum_up_regret(out);
    }
    if (out->lost_errno) {
        errno = out->lost_errno;
        status = wefti_error_system("output was lost");
    }
    if (!out->has_json) {
        return status;
    }
    wefti_json_array_close(&out->json);
    if (out->points > 0) {
        wefti_json_int(&out->json, "points", out->points);
        wefti_json_int(&out->json, "cheap_points", out->cheap_points);
        wefti_json_real(&out->json, "most_regret", out->most_regret);
    }
    wefti_json_object_close(&out->json);
    weft_status written =
        wefti_output_end(&out->file, wefti_json_fini(&out->json));
    return written == WEFT_OK ? status : written;
}

static void print_row(const wefti_perf_rank *self, const wefti_perf_row *row)
{
    if (!self->options->table) {
        wefti_perf_row_print(row);
    } else if (self->inplace) {
        wefti_perf_table_end(self->options, row);
    } else {
        wefti_perf_table_begin(self->options, row);
        if (!wefti_perf_op_has_inplace(row->subject.op)) {
            wefti_perf_table_end(self->options, NULL);
        }
    }
}

static void put_row(output *out, const wefti_perf_rank *self,
                    const wefti_perf_row *row)
{
    if (row->regret) {
        double regret = wefti_perf_regret_get(row->regret);
        out->points++;
        out->cheap_points += regret <= CHEAP_REGRET;
        out->most_regret =
            regret > out->most_regret ? regret : out->most_regret;
    }
    if (!self->options->overlap && !self->options->regret) {
        wefti_perf_table_count(&out->table, row);
    }
    if (out->text) {
        print_row(self, row);
        if (fflush(stdout) != 0 && !out->lost_errno) {
            out->lost_errno = errno;
        }
    }
    if (out->has_json) {
        wefti_perf_row_write(row, &out->json);
    }
}

/* ---- every rank -----------------------------------------------------------
 */

/* One size. wrong_out counts wrong elements over all ranks. */
static weft_status run_size(wefti_perf_rank *self, size_t bytes, output *out,
                            int64_t *wrong_out)
{
    wefti_perf_row row;
    wefti_perf_hiding hiding;
    wefti_perf_regret regret;
    int64_t *samples_ns = NULL;
    weft_status status =
        self->options->overlap
            ? wefti_perf_hiding_measure(self, bytes, &row, &hiding)
        : self->options->regret
            ? wefti_perf_regret_measure(self, bytes, &row, &regret)
            : wefti_perf_measure(self, bytes, &row, &samples_ns);
    if (status == WEFT_OK) {
        *wrong_out += row.wrong;
        if (out) {
            put_row(out, self, &row);
        }
    }
    free(samples_ns);
    return status;
}

static weft_status run_sizes(wefti_perf_rank *self, output *out,
                             int64_t *wrong_out)
{
    const wefti_perf_options *options = self->options;
    const bool both = options->table && wefti_perf_op_has_inplace(options->op);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < options->size_count && status == WEFT_OK; i++) {
        status = run_size(self, options->sizes[i], out, wrong_out);
        if (both && status == WEFT_OK) {
            self->inplace = true;
            status = run_size(self, options->sizes[i], out, wrong_out);
            self->inplace = false;
        }
    }
    return status;
}

/* Every type and reduction asked for that go together. */
static weft_status run_pairs(wefti_perf_rank *self, output *out,
                             int64_t *wrong_out)
{
    const wefti_perf_options *options = self->options;
    weft_status status = WEFT_OK;
    for (int pair = 0; pair < WEFT_DTYPE_COUNT * WEFT_REDOP_COUNT; pair++) {
        weft_dtype dtype = (weft_dtype)(pair / WEFT_REDOP_COUNT);
        weft_redop redop = (weft_redop)(pair % WEFT_REDOP_COUNT);
        if (status == WEFT_OK && options->dtypes >> dtype & 1 &&
            options->redops >> redop & 1 && weft_redop_applies(redop, dtype)) {
            wefti_perf_rank_set(self, dtype, redop);
            status = run_sizes(self, out, wrong_out);
        }
    }
    return status;
}

static weft_status run_cycles(wefti_perf_rank *self, output *out,
                              int64_t *wrong_out)
{
    const int cycles = self->options->cycles;
    weft_status status = WEFT_OK;
    for (int i = 0; status == WEFT_OK && (cycles == 0 || i < cycles); i++) {
        status = run_pairs(self, out, wrong_out);
    }
    return status;
}

static void sum_up(const output *out, const wefti_perf_options *options)
{
    if (out->text && options->table) {
        wefti_perf_table_sum(&out->table, options);
    } else if (out->text && options->least_GBps > 0) {
        wefti_perf_table_rate(&out->table, options);
    }
}

static weft_status check_rate(const output *out,
                              const wefti_perf_options *options)
{
    return !wefti_perf_table_is_slow(&out->table, options)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM,
                             "the mean bus bandwidth is %g GB/s: below nine "
                             "tenths of NCCL_TESTS_MIN_BW, %g",
                             wefti_perf_table_busbw(&out->table),
                             options->least_GBps);
}

static weft_status run_output(const job *world, wefti_perf_rank *self,
                              int64_t *wrong_out)
{
    if (self->rank != 0) {
        return run_cycles(self, NULL, wrong_out);
    }
    output out;
    weft_status status = open_output(&out, world, self);
    if (status != WEFT_OK) {
        return status;
    }
    status = run_cycles(self, &out, wrong_out);
    if (status == WEFT_OK) {
        sum_up(&out, self->options);
    }
    weft_status closed = close_output(&out);
    if (status == WEFT_OK && closed == WEFT_OK) {
        status = check_rate(&out, self->options);
    }
    return status != WEFT_OK ? status : closed;
}

static void *run_rank(void *arg)
{
    rank_thread *thread = arg;
    job *world = thread->world;
    int rank = thread->rank;
    int64_t wrong = 0;
    wefti_perf_rank *self = malloc(sizeof(*self));
    if (!self) {
        (void)wefti_error(WEFT_ERR_NO_MEMORY, "a rank's tiles");
        complain(world, rank);
        return NULL;
    }
    if (wefti_perf_rank_init(self, world->options, rank, world->nranks,
                             world->id) != WEFT_OK) {
        complain(world, rank);
        goto err_free;
    }
    wefti_flight_watch(world->flight, self->comm);
    if (run_output(world, self, &wrong) != WEFT_OK) {
        complain(world, rank);
        if (self->line) {
            wefti_startline_cancel(self->line);
        }
    } else if (wrong > 0) {
        atomic_store(&world->failed, true);
        if (rank == 0) {
            fprintf(stderr, "weft-perf: %lld elements are wrong\n",
                    (long long)wrong);
        }
    }
    wefti_flight_unwatch(world->flight, self->comm);
    wefti_perf_rank_fini(self);
err_free:
    free(self);
    return NULL;
}

/* ---- the process ----------------------------------------------------------
 */

/* Which ranks this process runs; without a launcher it is the whole job. */
static weft_status read_world(job *world, int *count_out, weft_unique_id *id)
{
    int64_t per_process;
    weft_status status =
        wefti_setting_int(WEFTI_SETTING_RANKS_PER_PROCESS, &per_process);
    if (status == WEFT_OK) {
        status = wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS,
                                    &world->emulated_GBps);
    }
    if (status == WEFT_OK) {
        status =
            wefti_launch_source_find_rank(&world->first_rank, &world->nranks);
    }
    if (status == WEFT_OK && world->nranks == 1) {
        world->nranks = (int)per_process;
        status = weft_unique_id_create(id);
        world->id = id;
    }
    if (status != WEFT_OK) {
        return status;
    }
    int left = world->nranks - world->first_rank;
    *count_out = left < per_process ? left : (int)per_process;
    return WEFT_OK;
}

static weft_status run_threads(job *world, int count)
{
    rank_thread *threads = calloc((size_t)count, sizeof(*threads));
    if (!threads) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", count);
    }
    int started = 0;
    weft_status status = WEFT_OK;
    for (; started < count; started++) {
        threads[started].world = world;
        threads[started].rank = world->first_rank + started;
        if (pthread_create(&threads[started].thread, NULL, run_rank,
                           &threads[started]) != 0) {
            status = wefti_error(WEFT_ERR_SYSTEM, "no thread for rank %d",
                                 world->first_rank + started);
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i].thread, NULL);
    }
    free(threads);
    return status;
}

static int fail(bool speak)
{
    if (speak) {
        fprintf(stderr, "weft-perf: %s\n", weft_error_text());
    }
    return EXIT_FAILURE;
}

/* All ranks find the same mistakes of the command line: one says so. */
static bool speaks_for_all(void)
{
    int64_t rank = 0;
    return !wefti_setting_given(WEFTI_SETTING_RANK) ||
           wefti_setting_int(WEFTI_SETTING_RANK, &rank) != WEFT_OK || rank == 0;
}

static int run(const wefti_perf_options *options)
{
    job all = {.options = options};
    weft_unique_id id;
    int count = 0;
    weft_status status = wefti_flight_open(&all.flight);
    if (status == WEFT_OK) {
        status = read_world(&all, &count, &id);
    }
    if (status == WEFT_OK) {
        status = run_threads(&all, count);
    }
    int code = status == WEFT_OK ? EXIT_SUCCESS : fail(true);
    wefti_flight_close(all.flight);
    return atomic_load(&all.failed) ? EXIT_FAILURE : code;
}

int main(int argc, char **argv)
{
    wefti_perf_options options;
    int code = EXIT_SUCCESS;
    bool speak = speaks_for_all();
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit just fails */
    if (wefti_descriptors_reserve() != WEFT_OK ||
        wefti_perf_options_read(argc, argv, &options) != WEFT_OK) {
        return fail(speak);
    }
    if (options.help) {
        wefti_perf_options_print_help();
    } else if (options.version) {
        printf("weft-perf %s\n", weft_version_text());
    } else {
        code = run(&options);
    }
    wefti_perf_options_fini(&options);
    if (wefti_output_close(stdout) != WEFT_OK && code == EXIT_SUCCESS) {
        return fail(true);
    }
    return code;
}
