/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/weft_train.c - the program weft-train: its command line, and one
 * thread for each rank that this process runs.
 */
#include "base/descriptors.h"
#include "base/output.h"
#include "base/settings.h"
#include "comm/oob/source.h"
#include "trainer/config/config_key.h"
#include "trainer/print_program.h"
#include "trainer/run.h"
#include "weft/version.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* A rank that is a thread. */
typedef struct rank_thread {
    pthread_t thread;
    wefti_run_config config;
    bool failed;
} rank_thread;

static bool run_rank(const wefti_run_config *config)
{
    char error[WEFTI_RUN_ERROR_BYTES];
    bool everywhere;
    if (wefti_run(config, error, &everywhere) == WEFT_OK) {
        return true;
    }
    int rank = config->rank, nranks;
    if (config->nranks == 0 &&
        wefti_launch_source_find_rank(&rank, &nranks) != WEFT_OK) {
        rank = 0;
    }
    if (!everywhere || rank == 0) {
        fprintf(stderr, "weft-train: %s\n", error);
    }
    return false;
}

static void *run_thread(void *argument)
{
    rank_thread *rank = argument;
    rank->failed = !run_rank(&rank->config);
    return NULL;
}

/* Ranks first .. first + count - 1 of nranks as threads of this process. */
static int run_threads(const wefti_run_config *base, int first, int count,
                       int nranks)
{
    rank_thread *ranks = calloc((size_t)count, sizeof(*ranks));
    int started = 0;
    bool failed = !ranks;
    for (; !failed && started < count; started++) {
        ranks[started].config = *base;
        ranks[started].config.rank = first + started;
        ranks[started].config.nranks = nranks;
        if (pthread_create(&ranks[started].thread, NULL, run_thread,
                           &ranks[started]) != 0) {
            fprintf(stderr, "weft-train: no thread for rank %d\n",
                    first + started);
            exit(EXIT_FAILED); /* the ranks already running wait for it */
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(ranks[i].thread, NULL);
        failed |= ranks[i].failed;
    }
    free(ranks);
    return failed ? EXIT_FAILED : 0;
}

static int run_ranks(const wefti_options *options, wefti_flight *flight)
{
    wefti_run_config config = {
        .options = options, .out = stdout, .err = stderr, .flight = flight};
    int64_t per_process;
    int first = 0, nranks = 1;
    weft_unique_id id;
    weft_status status =
        wefti_setting_int(WEFTI_SETTING_RANKS_PER_PROCESS, &per_process);
    if (status == WEFT_OK && per_process == 1) {
        return run_rank(&config) ? 0 : EXIT_FAILED;
    }
    if (status == WEFT_OK) {
        status = wefti_launch_source_find_rank(&first, &nranks);
    }
    if (status == WEFT_OK && nranks == 1) { /* these are the whole job */
        nranks = (int)per_process;
        config.id = &id;
        status = weft_unique_id_create(&id);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-train: %s\n", weft_error_text());
        return EXIT_FAILED;
    }
    int left = nranks - first;
    return run_threads(&config, first,
                       left < per_process ? left : (int)per_process, nranks);
}

/* Where a launcher has started several, rank 0 prints. */
static int print_program(const wefti_options *options)
{
    int rank = 0, nranks;
    weft_status status = wefti_launch_source_find_rank(&rank, &nranks);
    if (status == WEFT_OK && rank == 0) {
        status = wefti_print_program(options, stdout);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "weft-train: %s\n", weft_error_text());
    }
    return status == WEFT_OK ? 0 : EXIT_FAILED;
}

/* With SIGUSR1 as the way to ask where all ranks are. */
static int run_watched(const wefti_options *options)
{
    wefti_flight *flight;
    if (wefti_flight_open(&flight) != WEFT_OK) {
        fprintf(stderr, "weft-train: %s\n", weft_error_text());
        return EXIT_FAILED;
    }
    int exit_status = run_ranks(options, flight);
    wefti_flight_close(flight);
    return exit_status;
}

int main(int argc, char **argv)
{
    wefti_options options;
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit just fails */
    if (wefti_descriptors_reserve() != WEFT_OK ||
        wefti_options_init(&options, argc, argv) != WEFT_OK) {
        fprintf(stderr, "weft-train: %s\n", weft_error_text());
        return EXIT_USAGE;
    }
    int exit_status = 0;
    if (options.help) {
        wefti_options_help(stdout);
    } else if (options.keys) {
        wefti_config_keys_print(stdout);
    } else if (options.version) {
        printf("weft-train %s\n", weft_version_text());
    } else if (options.print_program) {
        exit_status = print_program(&options);
    } else {
        exit_status = run_watched(&options);
    }
    wefti_options_fini(&options);
    if (wefti_output_close(stdout) != WEFT_OK && exit_status == 0) {
        fprintf(stderr, "weft-train: %s\n", weft_error_text());
        return EXIT_FAILED;
    }
    return exit_status;
}
