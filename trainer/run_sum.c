/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_sum.c - what a run ends with: generated text, and the summary.
 */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/printable.h"
#include "trainer/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ESCAPE_CHARS = 4 };

/* For a terminal: lines stay lines, what it would interpret is shown as \xNN.
 */
static weft_status print_escaped(const char *bytes, size_t count, FILE *file)
{
    size_t shown_bytes = ESCAPE_CHARS * count + 1;
    char *shown = malloc(shown_bytes);
    if (!shown) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           shown_bytes);
    }
    for (const char *end = bytes + count; bytes < end;) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        const char *stop = newline ? newline : end;
        fputs(
            wefti_printable(bytes, (size_t)(stop - bytes), shown, shown_bytes),
            file);
        fputc('\n', file);
        bytes = stop + 1;
    }
    free(shown);
    return WEFT_OK;
}

/* To a file or a pipe: the bytes and nothing else. */
static weft_status print_generated(const char *bytes, size_t count, FILE *file)
{
    weft_status status = WEFT_OK;
    if (isatty(fileno(file))) {
        status = print_escaped(bytes, count, file);
    } else {
        fwrite(bytes, 1, count, file);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return fflush(file) == 0 ? WEFT_OK
                             : wefti_error_system("writing generated text");
}

weft_status wefti_run_generate(wefti_run_state *state)
{
    const char *prompt = state->how.options->generate;
    const wefti_config *config = &state->config;
    int64_t seed =
        config->generate.seed < 0 ? config->train.seed : config->generate.seed;
    wefti_generate_config how = {.prompt = prompt ? prompt : "",
                                 .temperature = config->generate.temperature,
                                 .top_k = (size_t)config->generate.top_k,
                                 .top_p = config->generate.top_p,
                                 .seed = (uint64_t)seed};
    size_t count = (size_t)config->generate.bytes;
    char *bytes = malloc(count);
    if (!bytes) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           count);
    }
    weft_status status = wefti_generate(&state->replica, &how, bytes, count);
    if (status == WEFT_OK && wefti_run_prints(state)) {
        wefti_summary_set_generated(&state->summary, bytes, count);
        status =
            prompt ? print_generated(bytes, count, state->how.out) : WEFT_OK;
    }
    free(bytes);
    return status;
}

weft_status wefti_run_sum_up(wefti_run_state *state)
{
    const wefti_options *options = state->how.options;
    wefti_summary *summary = &state->summary;
    summary->nranks = (int)state->replica.nranks;
    summary->parameters = state->replica.plan.parameter_count;
    summary->step = state->replica.step;
    summary->measured = options->measure ? &state->measured : NULL;
    weft_status status = wefti_summary_set_ngrams(summary, &state->data);
    if (status == WEFT_OK) {
        status = wefti_run_generate(state);
    }
    if (status != WEFT_OK) {
        return status;
    }
    bool out_is_taken = options->generate ||
                        (options->json && !strcmp(options->json, "-")) ||
                        (options->metrics && !strcmp(options->metrics, "-"));
    FILE *file = out_is_taken ? state->how.err : state->how.out;
    wefti_summary_print(summary, file);
    if (options->json) {
        status = wefti_summary_write(summary, options->json);
    }
    if (options->report && status == WEFT_OK) {
        status = wefti_page_write(&state->page, &state->config, summary);
        if (status == WEFT_OK) {
            fprintf(file, "%-18s %s, %s\n", "report", state->page.path,
                    state->page.trace_path);
        }
    }
    return status;
}
