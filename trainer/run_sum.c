/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_sum.c - what a run ends with: generated text, and the summary.
 */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/printable.h"
#include "trainer/generate.h"

#include <inttypes.h>
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

/* Ids as they may be given to --generate again. */
static weft_status print_ids(const int32_t *ids, size_t count, FILE *file)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "%" PRId32 "%c", ids[i], i + 1 < count ? ' ' : '\n');
    }
    return fflush(file) == 0 ? WEFT_OK
                             : wefti_error_system("writing generated ids");
}

/*
 * What the model goes on from; free() it. Every text begins after the end of
 * another one; of ids the first one of the data stands for no prompt.
 */
static weft_status read_prompt(const wefti_run_state *state, int32_t **ids_out,
                               size_t *count_out)
{
    const char *prompt = state->how.options->generate;
    const bool is_ids = state->data.text == NULL;
    size_t length = prompt ? strlen(prompt) : 0;
    if (is_ids && prompt) {
        weft_status status = wefti_generate_parse(
            prompt, (size_t)state->config.model.vocab, ids_out, count_out);
        if (status != WEFT_OK || *count_out > 0) {
            return status;
        }
        length = 0;
    }
    *count_out = 1 + (is_ids ? 0 : length);
    *ids_out = malloc(*count_out * sizeof(**ids_out));
    if (!*ids_out) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu tokens",
                           *count_out);
    }
    (*ids_out)[0] = '\n';
    for (size_t i = 1; i < *count_out; i++) {
        (*ids_out)[i] = (unsigned char)prompt[i - 1];
    }
    if (is_ids) {
        wefti_data_read(&state->data, 0, 1, *ids_out);
    }
    return WEFT_OK;
}

/* Rank 0's: into the summary, and where --generate asks for it. */
static weft_status show_generated(wefti_run_state *state, const int32_t *tokens,
                                  size_t count)
{
    const bool asked = state->how.options->generate != NULL;
    if (!state->data.text) {
        wefti_summary_set_ids(&state->summary, tokens, count);
        return asked ? print_ids(tokens, count, state->how.out) : WEFT_OK;
    }
    char *bytes = malloc(count);
    if (!bytes) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes",
                           count);
    }
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (char)(unsigned char)tokens[i];
    }
    wefti_summary_set_generated(&state->summary, bytes, count);
    weft_status status =
        asked ? print_generated(bytes, count, state->how.out) : WEFT_OK;
    free(bytes);
    return status;
}

weft_status wefti_run_generate(wefti_run_state *state)
{
    const wefti_config *config = &state->config;
    int64_t seed =
        config->generate.seed < 0 ? config->train.seed : config->generate.seed;
    wefti_generate_config how = {.is_text = state->data.text != NULL,
                                 .vocab = (size_t)config->model.vocab,
                                 .temperature = config->generate.temperature,
                                 .top_k = (size_t)config->generate.top_k,
                                 .top_p = config->generate.top_p,
                                 .seed = (uint64_t)seed};
    size_t count = (size_t)config->generate.bytes;
    int32_t *prompt = NULL;
    int32_t *tokens = malloc(count * sizeof(*tokens));
    weft_status status = tokens
                             ? read_prompt(state, &prompt, &how.prompt_count)
                             : wefti_error(WEFT_ERR_NO_MEMORY,
                                           "no memory for %zu tokens", count);
    how.prompt = prompt;
    if (status == WEFT_OK) {
        status = wefti_generate(&state->replica, &how, tokens, count);
    }
    if (status == WEFT_OK && wefti_run_prints(state)) {
        status = show_generated(state, tokens, count);
    }
    free(prompt);
    free(tokens);
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
    summary->expert_loads = &state->expert_loads;
    summary->placed = state->replica.place;
    summary->overlap = state->overlap;
    wefti_overlap_find(&state->config, &state->replica.mesh.mesh,
                       summary->overlaps);
    weft_status status = wefti_expert_loads_place(&state->expert_loads);
    if (status == WEFT_OK) {
        status = wefti_summary_set_ngrams(summary, &state->data);
    }
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
