/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_sum.c - what a run ends with: generated text, and the summary.
 */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/printable.h"
#include "trainer/generate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GENERATED_BYTES = 200, ESCAPE_CHARS = 4 };

/* For a terminal: lines stay lines, what it would interpret is shown as \xNN.
 */
static void print_escaped(const char *bytes, size_t count, FILE *file)
{
    char shown[ESCAPE_CHARS * GENERATED_BYTES + 1];
    for (const char *end = bytes + count; bytes < end;) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        const char *stop = newline ? newline : end;
        fputs(wefti_printable(bytes, (size_t)(stop - bytes), shown,
                              sizeof(shown)),
              file);
        fputc('\n', file);
        bytes = stop + 1;
    }
}

/* To a file or a pipe: the bytes and nothing else. */
static weft_status print_generated(const char *bytes, size_t count, FILE *file)
{
    if (isatty(fileno(file))) {
        print_escaped(bytes, count, file);
    } else {
        fwrite(bytes, 1, count, file);
    }
    return fflush(file) == 0 ? WEFT_OK
                             : wefti_error_system("writing generated text");
}

weft_status wefti_run_generate(wefti_run_state *state)
{
    const char *prompt = state->how.options->generate;
    wefti_generate_config config = {.prompt = prompt ? prompt : "",
                                    .temperature = WEFTI_GENERATE_TEMPERATURE,
                                    .seed = (uint64_t)state->config.train.seed};
    char bytes[GENERATED_BYTES];
    weft_status status =
        wefti_generate(&state->replica, &config, bytes, sizeof(bytes));
    if (status != WEFT_OK || !wefti_run_prints(state)) {
        return status;
    }
    wefti_summary_set_generated(&state->summary, bytes, sizeof(bytes));
    return prompt ? print_generated(bytes, sizeof(bytes), state->how.out)
                  : WEFT_OK;
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
