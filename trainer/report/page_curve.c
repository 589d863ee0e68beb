/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_curve.c - what went over the steps: loss, where the time
 * went, tokens per second.
 *
 * A point of a curve stands for history.stride steps: its line is their mean,
 * its band goes from the least to the greatest.
 */
#include "trainer/report/chart.h"
#include "trainer/report/page_part.h"

#include "trainer/numbers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST = WEFTI_HISTORY_POINTS, TERMS = 10 };

typedef struct term {
    wefti_history_series series;
    const char *class_name, *name;
} term;

/* In the order in which metrics take them, from below. */
static const term terms[TERMS] = {{WEFTI_HISTORY_COMPUTE, "compute", "compute"},
                                  {WEFTI_HISTORY_TP, "tp", "exposed tp"},
                                  {WEFTI_HISTORY_CP, "cp", "exposed cp"},
                                  {WEFTI_HISTORY_EP, "ep", "exposed ep"},
                                  {WEFTI_HISTORY_PP, "pp", "exposed pp"},
                                  {WEFTI_HISTORY_DP, "dp", "exposed dp"},
                                  {WEFTI_HISTORY_MEM, "mem", "exposed mem"},
                                  {WEFTI_HISTORY_BUBBLE, "bubble", "bubble"},
                                  {WEFTI_HISTORY_SKEW, "skew", "skew"},
                                  {WEFTI_HISTORY_IDLE, "idle", "idle"}};

/* One series, point by point; x in the middle of the steps. */
typedef struct curve {
    double x[MOST], mean[MOST], least[MOST], most[MOST];
    size_t count;
    double bottom, top; /* of least and most; NAN: nothing is known */
} curve;

static void read_curve(const wefti_history *history,
                       wefti_history_series series, curve *out)
{
    out->count = history->count;
    out->bottom = out->top = (double)NAN;
    for (size_t k = 0; k < history->count; k++) {
        const wefti_history_point *point = &history->points[k];
        const wefti_history_value *value = &point->values[series];
        bool known = value->count > 0;
        out->x[k] = ((double)point->first + (double)point->last) / 2;
        out->mean[k] = wefti_history_mean(point, series);
        out->least[k] = known ? value->least : (double)NAN;
        out->most[k] = known ? value->most : (double)NAN;
        out->bottom = fmin(out->bottom, out->least[k]); /* fmin skips NAN */
        out->top = fmax(out->top, out->most[k]);
    }
}

static void put_stride(const wefti_page_view *view, bool band)
{
    uint64_t stride = view->page->history.stride;
    if (stride > 1) {
        fprintf(view->file,
                " Each point stands for %" PRIu64 " steps: their mean%s.",
                stride,
                band ? "; bands reach from the least to the greatest" : "");
    }
}

static void put_key(FILE *file, const char *class_name, const char *name)
{
    fprintf(file,
            "<li><svg viewBox=\"0 0 12 12\" aria-hidden=\"true\"><rect "
            "width=\"12\" height=\"12\" rx=\"2\" class=\"%s\"/></svg>%s</li>\n",
            class_name, name);
}

/* ---- loss -----------------------------------------------------------------
 */

static void put_losses(const wefti_page_view *view)
{
    const wefti_summary *summary = view->summary;
    const struct {
        const char *name;
        double loss;
    } rows[] = {{"validation before", summary->first_val_loss},
                {"after", summary->val_loss},
                {"a 2-gram model of the same text", summary->bigram_loss},
                {"a 4-gram", summary->fourgram_loss}};
    fputs("<p class=\"soft\">", view->file);
    bool any = false;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        if (!isnan(rows[k].loss)) {
            fprintf(view->file, "%s%s %.4f", any ? ", " : "", rows[k].name,
                    rows[k].loss);
            any = true;
        }
    }
    fprintf(view->file, "%s</p>\n", any ? " nats a byte." : "No validation.");
}

/* The greatest beside the rest: the first step, or a stall. A frame that shows
 * it shows nothing else, so it may be cut, and is stated. */
static double find_top(const curve *c)
{
    double sorted[MOST];
    size_t count = 0;
    for (size_t k = 0; k < c->count; k++) {
        if (!isnan(c->mean[k])) {
            sorted[count++] = c->mean[k];
        }
    }
    if (count == 0) {
        return 1;
    }
    double median = wefti_numbers_median(sorted, count); /* sorts */
    size_t odd = count < 4 ? 0 : count < 40 ? 1 : count / 20;
    double usual = sorted[count - 1 - odd];
    double room = 1.15 * fmax(usual, 1.5 * median);
    return fmin(sorted[count - 1] * 1.05, room);
}

static void put_cut(const wefti_page_view *view, const curve *c, double top,
                    const char *unit)
{
    size_t cut = 0;
    for (size_t k = 0; k < c->count; k++) {
        cut += c->mean[k] > top;
    }
    if (cut > 0) {
        fprintf(
            view->file,
            " %zu point%s lie%s above the frame, the highest step at %.0f %s.",
            cut, cut == 1 ? "" : "s", cut == 1 ? "s" : "", c->top, unit);
    }
}

static double first_x(const curve *c)
{
    return c->count > 0 ? c->x[0] : 0;
}

static double last_x(const curve *c)
{
    return c->count > 0 ? c->x[c->count - 1] : 1;
}

void wefti_page_put_loss(const wefti_page_view *view)
{
    curve train, val;
    wefti_chart chart;
    read_curve(&view->page->history, WEFTI_HISTORY_LOSS, &train);
    read_curve(&view->page->history, WEFTI_HISTORY_VAL_LOSS, &val);
    double bottom = fmin(train.bottom, val.bottom);
    double top = fmax(train.top, val.top);
    double room = 0.04 * (top - bottom);
    fputs("<section><h2>Loss</h2>\n", view->file);
    put_losses(view);
    if (isnan(bottom)) {
        fputs("<p>No step was done.</p></section>\n", view->file);
        return;
    }
    fputs("<figure>\n", view->file);
    wefti_chart_open(&chart, view->file, 1, "Loss over the steps", "step",
                     "nats a byte", first_x(&train), last_x(&train),
                     bottom - room, top + room);
    if (view->page->history.stride > 1) {
        wefti_chart_band(&chart, "loss", train.x, train.least, train.most,
                         train.count);
    }
    wefti_chart_line(&chart, "loss", train.x, train.mean, train.count);
    wefti_chart_dots(&chart, "val", val.x, val.mean, val.count);
    if (train.count == 1) {
        wefti_chart_dots(&chart, "loss", train.x, train.mean, 1);
    }
    wefti_chart_close(&chart);
    fputs("<ul class=\"key\">\n", view->file);
    put_key(view->file, "keyloss", "training, over the whole global batch");
    if (!isnan(val.top)) {
        put_key(view->file, "keyval", "validation");
    }
    fputs("</ul><figcaption>Lower is better.", view->file);
    put_stride(view, true);
    fputs("</figcaption></figure></section>\n", view->file);
}

/* ---- where the time went --------------------------------------------------
 */

static bool is_used(const wefti_history *history, wefti_history_series series)
{
    for (size_t k = 0; k < history->count; k++) {
        if (history->points[k].values[series].most > 0) {
            return true;
        }
    }
    return false;
}

/* Each term stands on those before it. */
static void put_stack(const wefti_page_view *view, const curve *step,
                      double top)
{
    const wefti_history *history = &view->page->history;
    double x[MOST], low[MOST], high[MOST];
    wefti_chart chart;
    wefti_chart_open(&chart, view->file, 2, "Step time by term over the steps",
                     "step", "ms of rank 0", first_x(step), last_x(step), 0,
                     top);
    for (size_t k = 0; k < history->count; k++) {
        x[k] = step->x[k];
        low[k] = 0;
    }
    for (int t = 0; t < TERMS; t++) {
        for (size_t k = 0; k < history->count; k++) {
            double own =
                wefti_history_mean(&history->points[k], terms[t].series);
            high[k] = low[k] + (isnan(own) ? 0 : own);
        }
        if (is_used(history, terms[t].series)) {
            wefti_chart_band(&chart, terms[t].class_name, x, low, high,
                             history->count);
        }
        memcpy(low, high, sizeof(low));
    }
    wefti_chart_close(&chart);
}

static double term_of(const wefti_metrics_step *step, int t)
{
    switch (terms[t].series) {
    case WEFTI_HISTORY_COMPUTE:
        return step->compute_ms;
    case WEFTI_HISTORY_BUBBLE:
        return step->bubble_ms;
    case WEFTI_HISTORY_SKEW:
        return step->skew_ms;
    case WEFTI_HISTORY_IDLE:
        return step->idle_ms;
    default: /* classes follow one another in both lists */
        return step
            ->exposed_ms[WEFT_CLASS_TP + (terms[t].series - WEFTI_HISTORY_TP)];
    }
}

static void put_median(const wefti_page_view *view)
{
    const wefti_metrics_step *median = view->median;
    FILE *file = view->file;
    double sum = 0;
    fprintf(file,
            "<table id=\"median\"><tr><th>median step, number %" PRIu64
            "</th><th>ms</th><th>of the step</th></tr>\n",
            median->step);
    for (int t = 0; t < TERMS; t++) {
        double ms = term_of(median, t);
        sum += ms;
        if (ms > 0 || t == 0 || terms[t].series >= WEFTI_HISTORY_BUBBLE) {
            fprintf(file, "<tr><td>%s</td><td>%.3f</td><td>%.1f%%</td></tr>\n",
                    terms[t].name, ms, 100 * ms / median->step_ms);
        }
    }
    fprintf(file,
            "<tr class=\"sum\"><td>together</td><td>%.3f</td><td>%.1f%%</td>"
            "</tr>\n<tr><td>the step, by its own clock</td><td>%.3f</td><td>"
            "</td></tr></table>\n",
            sum, 100 * sum / median->step_ms, median->step_ms);
    fputs("<p class=\"soft\">The median one of the last steps (at most 50), "
          "by its time, on rank 0. Terms not listed are 0.</p>\n",
          file);
}

void wefti_page_put_breakdown(const wefti_page_view *view)
{
    curve step;
    FILE *file = view->file;
    if (!view->median) {
        return;
    }
    read_curve(&view->page->history, WEFTI_HISTORY_STEP, &step);
    double top = find_top(&step);
    fputs("<section><h2>Where the time of a step goes</h2>\n<figure>\n", file);
    put_stack(view, &step, top);
    fputs("<ul class=\"key\">\n", file);
    for (int t = 0; t < TERMS; t++) {
        if (is_used(&view->page->history, terms[t].series)) {
            put_key(file, terms[t].class_name, terms[t].name);
        }
    }
    fputs("</ul><figcaption>The terms add up to the step; transfers under "
          "compute take no time of their own and are not seen here.",
          file);
    put_stride(view, false);
    put_cut(view, &step, top, "ms");
    fputs("</figcaption></figure>\n", file);
    put_median(view);
    fputs("</section>\n", file);
}

void wefti_page_put_throughput(const wefti_page_view *view)
{
    curve tokens;
    wefti_chart chart;
    if (!view->median) {
        return;
    }
    read_curve(&view->page->history, WEFTI_HISTORY_TOKENS, &tokens);
    fputs("<section><h2>Throughput</h2>\n<figure>\n", view->file);
    wefti_chart_open(&chart, view->file, 3, "Tokens per second over the steps",
                     "step", "tokens/s, all ranks", first_x(&tokens),
                     last_x(&tokens), 0, tokens.top * 1.05);
    if (view->page->history.stride > 1) {
        wefti_chart_band(&chart, "loss", tokens.x, tokens.least, tokens.most,
                         tokens.count);
    }
    wefti_chart_line(&chart, "loss", tokens.x, tokens.mean, tokens.count);
    wefti_chart_close(&chart);
    fputs("<figcaption>Validation and saving fall into the time of the step "
          "after them: such steps dip.",
          view->file);
    put_stride(view, true);
    fputs("</figcaption></figure></section>\n", view->file);
}
