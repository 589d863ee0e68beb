/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/summary.c - the median one of a run's last steps, and the
 * closing lines. The terms are all of that one step, so that they add up to it.
 */
#include "trainer/report/summary.h"

#include "base/error.h"
#include "base/output.h"
#include "base/settings.h"
#include "trainer/data/ngram.h"
#include "trainer/numbers.h"
#include "trainer/report/run_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void wefti_summary_init(wefti_summary *summary)
{
    const double unknown = (double)NAN;
    *summary = (wefti_summary){.first_val_loss = unknown,
                               .val_loss = unknown,
                               .val_loss_ema = unknown,
                               .loss_unit = "nats a byte",
                               .bigram_loss = unknown,
                               .fourgram_loss = unknown,
                               .peak_gflops = unknown,
                               .non_causal = unknown};
}

void wefti_summary_add(wefti_summary *summary, const wefti_metrics_step *step)
{
    summary->steps[summary->step_count++ % WEFTI_SUMMARY_STEPS] = *step;
    summary->dropped += step->dropped;
}

weft_status wefti_summary_set_ngrams(wefti_summary *summary,
                                     const wefti_data *data)
{
    size_t validation_bytes = data->token_count - data->train_count;
    const struct {
        int order;
        double *loss;
    } rows[] = {{2, &summary->bigram_loss}, {4, &summary->fourgram_loss}};
    snprintf(summary->loss_unit, sizeof(summary->loss_unit), "nats a %s",
             data->text ? "byte" : "token");
    if (!data->text || wefti_data_validation_windows(data) == 0) {
        return WEFT_OK;
    }
    for (size_t i = 0; i < 2; i++) {
        weft_status status = wefti_ngram_measure(
            rows[i].order, data->text, data->train_count,
            data->text + data->train_count, validation_bytes, rows[i].loss);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* How many bytes of a line at text say something: up to its end. */
static size_t line_length(const char *text, size_t count)
{
    const char *end = memchr(text, '\n', count);
    return end ? (size_t)(end - text) : count;
}

void wefti_summary_set_generated(wefti_summary *summary, const char *bytes,
                                 size_t count)
{
    const size_t telling = 24; /* shorter lines are passed over */
    size_t length = line_length(bytes, count);
    while (length < telling && length < count) {
        bytes += length + 1;
        count -= length + 1;
        length = line_length(bytes, count);
    }
    size_t most = sizeof(summary->generated) - 1;
    length = length < most ? length : most;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        summary->generated[i] = byte < ' ' || byte > '~' ? ' ' : (char)byte;
    }
    summary->generated[length] = '\0';
}

void wefti_summary_set_ids(wefti_summary *summary, const int32_t *ids,
                           size_t count)
{
    size_t used = 0;
    summary->generated[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        char id[16];
        int length =
            snprintf(id, sizeof(id), "%s%" PRId32, i > 0 ? " " : "", ids[i]);
        if (used + (size_t)length >= sizeof(summary->generated)) {
            return;
        }
        memcpy(summary->generated + used, id, (size_t)length + 1);
        used += (size_t)length;
    }
}

double wefti_summary_exposed(const wefti_metrics_step *step)
{
    double sum = 0;
    for (int i = 0; i < WEFT_CLASS_COUNT; i++) {
        sum += isnan(step->exposed_ms[i]) ? 0 : step->exposed_ms[i];
    }
    return sum;
}

/* The median of one value over the kept steps; unknown ones do not count. */
static double median_of(const wefti_summary *summary,
                        double (*value)(const wefti_metrics_step *step))
{
    double values[WEFTI_SUMMARY_STEPS];
    size_t count = 0;
    for (size_t i = 0;
         i < summary->step_count && i < (size_t)WEFTI_SUMMARY_STEPS; i++) {
        double one = value(&summary->steps[i]);
        if (!isnan(one)) {
            values[count++] = one;
        }
    }
    return count ? wefti_numbers_median(values, count) : (double)NAN;
}

static double overlap_ratio_of(const wefti_metrics_step *step)
{
    return step->overlap_ratio;
}

static double cpu_share_of(const wefti_metrics_step *step)
{
    return step->cpu_share;
}

static int by_step_ms(const void *a, const void *b)
{
    double left = (*(const wefti_metrics_step *const *)a)->step_ms;
    double right = (*(const wefti_metrics_step *const *)b)->step_ms;
    return (left > right) - (left < right);
}

/* The kept steps by their time; how many. */
static size_t sort_steps(const wefti_summary *summary,
                         const wefti_metrics_step **sorted)
{
    size_t count = 0;
    for (; count < summary->step_count && count < (size_t)WEFTI_SUMMARY_STEPS;
         count++) {
        sorted[count] = &summary->steps[count];
    }
    if (count > 0) {
        qsort(sorted, count, sizeof(sorted[0]), by_step_ms);
    }
    return count;
}

const wefti_metrics_step *wefti_summary_median(const wefti_summary *summary)
{
    const wefti_metrics_step *sorted[WEFTI_SUMMARY_STEPS];
    size_t count = sort_steps(summary, sorted);
    return count > 0 ? sorted[(count - 1) / 2] : NULL;
}

wefti_summary_terms wefti_summary_sum_up(const wefti_summary *summary)
{
    const wefti_metrics_step *sorted[WEFTI_SUMMARY_STEPS];
    wefti_metrics_step none;
    wefti_metrics_step_init(&none);
    sorted[0] = &none;
    size_t count = sort_steps(summary, sorted);
    const size_t last = count > 0 ? count - 1 : 0;
    const wefti_metrics_step *median = sorted[last / 2];
    wefti_summary_terms terms = {
        .tokens_per_s = median->tokens_per_s,
        .step_ms = median->step_ms,
        .compute_ms = median->compute_ms,
        .exposed_ms = count > 0 ? wefti_summary_exposed(median) : (double)NAN,
        .bubble_ms = median->bubble_ms,
        .skew_ms = median->skew_ms,
        .idle_ms = median->idle_ms,
        .fastest_step_ms = sorted[0]->step_ms,
        .slowest_step_ms = sorted[last]->step_ms,
        .overlap_ratio = median_of(summary, overlap_ratio_of),
        .cpu_share = median_of(summary, cpu_share_of),
        .mfu = median->mfu,
        .mfu_non_causal = median->mfu * summary->non_causal};
    memcpy(terms.transfer_ms, median->transfer_ms, sizeof(terms.transfer_ms));
    memcpy(terms.moved_bytes, median->moved_bytes, sizeof(terms.moved_bytes));
    return terms;
}

double wefti_summary_emulated_gbps(void)
{
    double gbps;
    return wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS, &gbps) == WEFT_OK
               ? gbps
               : 0.0;
}

static void print_loss(FILE *file, const wefti_summary *summary,
                       const char *name, double loss)
{
    if (!isnan(loss)) {
        fprintf(file, "%-18s %7.4f %s\n", name, loss, summary->loss_unit);
    }
}

/* Of each class that moved anything. */
static void print_transfers(const wefti_summary_terms *terms, FILE *file)
{
    bool any = false;
    for (int i = 0; i < WEFT_CLASS_COUNT; i++) {
        double share = terms->transfer_ms[i] / terms->compute_ms;
        if (terms->transfer_ms[i] > 0) {
            fprintf(file, "%-*s%s %.1f%%%s", any ? 2 : 19,
                    any ? "" : "comm/compute", weft_class_text((weft_class)i),
                    100 * share,
                    share > WEFTI_SUMMARY_TRANSFERS_WARNED ? " (above 30%)"
                                                           : "");
            any = true;
        }
    }
    if (any) {
        fprintf(file, "\n");
    }
}

/* H where it is known: time under compute may be no time saved. */
static void print_hidden(const wefti_measure_result *measured,
                         const wefti_summary_terms *parts, FILE *file)
{
    if (measured && !isnan(measured->hiding_ratio)) {
        fprintf(file, "%-18s %7.2f %s  (O %.1f%%, s_C %.2f)\n", "H",
                measured->hiding_ratio,
                wefti_measure_verdict(measured, WEFT_CLASS_COUNT),
                100 * measured->overlap_ratio, measured->s_C);
    } else if (isnan(parts->overlap_ratio)) {
        fprintf(file, "%-18s     n/a\n", "O");
    } else {
        fprintf(file, "%-18s %6.1f%% of transfers under compute%s\n", "O",
                100 * parts->overlap_ratio,
                parts->cpu_share < 0.9 ? "  (oversubscribed)" : "");
    }
}

static void print_steps(const wefti_summary *summary, FILE *file)
{
    wefti_summary_terms parts = wefti_summary_sum_up(summary);
    size_t counted = summary->step_count < WEFTI_SUMMARY_STEPS
                         ? summary->step_count
                         : WEFTI_SUMMARY_STEPS;
    fprintf(file, "%-18s %7.0f on %d rank%s\n", "tokens/s", parts.tokens_per_s,
            summary->nranks, summary->nranks == 1 ? "" : "s");
    fprintf(file,
            "%-18s %7.2f ms = compute %.2f + exposed %.2f + bubble %.2f + skew "
            "%.2f + idle %.2f  (the median one of the last %zu, %.2f to %.2f "
            "ms)\n",
            "step", parts.step_ms, parts.compute_ms, parts.exposed_ms,
            parts.bubble_ms, parts.skew_ms, parts.idle_ms, counted,
            parts.fastest_step_ms, parts.slowest_step_ms);
    print_hidden(summary->measured, &parts, file);
    print_transfers(&parts, file);
    if (!isnan(parts.mfu)) {
        fprintf(
            file,
            "%-18s %6.1f%% of %.1f GF/s, at which %d rank%s multipl%s %s by %s"
            "  (%.1f%% if attention had no mask)\n",
            "MFU", 100 * parts.mfu, summary->peak_gflops, summary->nranks,
            summary->nranks == 1 ? "" : "s", summary->nranks == 1 ? "ies" : "y",
            summary->multiplied, summary->blas_kernel,
            100 * parts.mfu_non_causal);
    }
    if (summary->expert_loads && !summary->placed) {
        wefti_expert_loads_print(summary->expert_loads, file);
    }
    wefti_expert_placed_print(summary->placed, file);
    if (summary->dropped > 0) {
        fprintf(file,
                "%-18s %7" PRIu64 " records: the ledger was full, the times "
                "above are incomplete\n",
                "not recorded", summary->dropped);
    }
}

void wefti_summary_print(const wefti_summary *summary, FILE *file)
{
    fprintf(file, "\n%-18s %7zu\n", "parameters", summary->parameters);
    print_loss(file, summary, "validation before", summary->first_val_loss);
    print_loss(file, summary, "validation loss", summary->val_loss);
    print_loss(file, summary, "of the average", summary->val_loss_ema);
    print_loss(file, summary, "2-gram", summary->bigram_loss);
    print_loss(file, summary, "4-gram", summary->fourgram_loss);
    if (summary->step_count) {
        print_steps(summary, file);
    }
    if (summary->generated[0]) {
        fprintf(file, "%-18s %s\n", "generated", summary->generated);
    }
    wefti_overlap_verdict_print(&summary->overlap, file);
    if (summary->measured) {
        wefti_measure_print(summary->measured, file);
        wefti_overlap_hint(&summary->overlap, summary->measured,
                           summary->overlaps, file);
    }
    double gbps = wefti_summary_emulated_gbps();
    if (gbps > 0) {
        fprintf(file, "%-18s links limited to %g GB/s by WEFT_EMULATE_GBPS\n",
                "emulated", gbps);
    }
}

weft_status wefti_summary_try(const char *path)
{
    return wefti_output_try("--json", path);
}

weft_status wefti_summary_write(const wefti_summary *summary, const char *path)
{
    wefti_json json;
    wefti_output out;
    weft_status status = wefti_output_open(&out, "--json", path);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_json_init(&json, out.file);
    wefti_facts_summary(&json, NULL, summary);
    return wefti_output_end(&out, wefti_json_fini(&json));
}
