/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/progress.c - a line about the step just done.
 */
#include "trainer/report/progress.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>

/* How often something new is shown at most. */
#define TERMINAL_NS INT64_C(100000000)
#define PLAIN_NS    INT64_C(5000000000)

/* Share of the newest step in the smoothed figures. */
#define NEWEST 0.1

void wefti_progress_init(wefti_progress *progress, FILE *file, bool on_terminal,
                         uint64_t first_step, uint64_t last_step)
{
    *progress = (wefti_progress){.file = file,
                                 .on_terminal = on_terminal,
                                 .first_step = first_step,
                                 .last_step = last_step,
                                 .loss = (double)NAN,
                                 .tokens_per_s = (double)NAN};
}

static double smooth(double so_far, double newest)
{
    return isnan(so_far) ? newest : so_far + NEWEST * (newest - so_far);
}

/* "1h02m", "3m04s" or "5s" */
static void describe_time(double seconds, char *text, size_t text_bytes)
{
    long whole = seconds < 1e8 ? lround(seconds) : 100000000;
    if (whole >= 3600) {
        snprintf(text, text_bytes, "%ldh%02ldm", whole / 3600, whole / 60 % 60);
    } else if (whole >= 60) {
        snprintf(text, text_bytes, "%ldm%02lds", whole / 60, whole % 60);
    } else {
        snprintf(text, text_bytes, "%lds", whole);
    }
}

/* "  3m04s left", from the steps since the first one. */
static void describe_left(const wefti_progress *progress, uint64_t step,
                          int64_t now_ns, char *text, size_t text_bytes)
{
    char time[32];
    double done = (double)(step - progress->first_step);
    double steps_left =
        step < progress->last_step ? (double)(progress->last_step - step) : 0;
    double passed_s = (double)(now_ns - progress->warm_ns) * 1e-9;
    describe_time(passed_s / done * steps_left, time, sizeof(time));
    snprintf(text, text_bytes, "  %s left", time);
}

static void describe(const wefti_progress *progress,
                     const wefti_metrics_step *step, int64_t now_ns, char *text,
                     size_t text_bytes)
{
    char left[48] = "";
    char hidden[32] = "O n/a";
    char validation[48] = "";
    if (step->step > progress->first_step) {
        describe_left(progress, step->step, now_ns, left, sizeof(left));
    }
    if (!isnan(step->overlap_ratio)) { /* H is measured after training */
        snprintf(hidden, sizeof(hidden), "O %.0f%%", step->overlap_ratio * 100);
    }
    if (!isnan(step->val_loss)) {
        snprintf(validation, sizeof(validation), "  validation %.4f",
                 step->val_loss);
    }
    snprintf(text, text_bytes,
             "step %" PRIu64 "/%" PRIu64
             "  loss %.4f (smoothed)%s  %.0f tokens/s  %s%s",
             step->step, progress->last_step, progress->loss, validation,
             progress->tokens_per_s, hidden, left);
}

/* Ends a rewritten line, so that the next begins on its own. */
static void end_line(wefti_progress *progress)
{
    if (progress->line_open) {
        fputc('\n', progress->file);
        progress->line_open = false;
    }
}

void wefti_progress_show(wefti_progress *progress,
                         const wefti_metrics_step *step, int64_t now_ns)
{
    char text[256];
    if (step->step == progress->first_step) {
        progress->warm_ns = now_ns;
    }
    progress->loss = smooth(progress->loss, step->loss);
    progress->tokens_per_s = smooth(progress->tokens_per_s, step->tokens_per_s);
    bool stays = step->step == progress->last_step || !isnan(step->val_loss);
    int64_t pause_ns = progress->on_terminal ? TERMINAL_NS : PLAIN_NS;
    if (!stays && step->step != progress->first_step &&
        now_ns - progress->shown_ns < pause_ns) {
        return;
    }
    progress->shown_ns = now_ns;
    describe(progress, step, now_ns, text, sizeof(text));
    if (progress->on_terminal) {
        /* Back to the first column; what is longer on the old line goes. */
        fprintf(progress->file, "\r%s\x1b[K%s", text, stays ? "\n" : "");
        progress->line_open = !stays;
    } else {
        fprintf(progress->file, "%s\n", text);
    }
    fflush(progress->file);
}

void wefti_progress_note(wefti_progress *progress, const char *line)
{
    end_line(progress);
    fprintf(progress->file, "%s\n", line);
    fflush(progress->file);
}

void wefti_progress_fini(wefti_progress *progress)
{
    end_line(progress);
    fflush(progress->file);
}
