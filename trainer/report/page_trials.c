/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_trials.c - the schedules that were tried before the run,
 * side by side: what the costs of one predicted for the others, and how they
 * ran.
 */
#include "trainer/report/page_part.h"

#include <string.h>

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

enum { RANKS_LISTED = 8 };

/* W that were put off: of all ranks, and of which. */
static void put_deferred(FILE *file, const wefti_trial *trial)
{
    int ranks = trial->planned.rank_count;
    size_t sum = 0, deferred, waiting;
    for (int rank = 0; rank < ranks; rank++) {
        wefti_page_plan_deferred(trial->schedule, rank, &deferred, &waiting);
        sum += deferred;
    }
    fprintf(file, "<td>%zu", sum);
    for (int rank = 0; sum > 0 && ranks <= RANKS_LISTED && rank < ranks;
         rank++) {
        wefti_page_plan_deferred(trial->schedule, rank, &deferred, &waiting);
        fprintf(file, "%s%zu%s", rank == 0 ? " (" : ", ", deferred,
                rank == ranks - 1 ? ")" : "");
    }
    fputs("</td>", file);
}

static void put_trial(FILE *file, const wefti_trials *trials, size_t k)
{
    const wefti_trial *trial = &trials->items[k];
    const weft_schedule_run *ran = &trial->runs[trial->median];
    bool is_basis = strcmp(trial->name, "1f1b") == 0;
    fprintf(file,
            "<tr><td>%s%s</td><td>%d</td><td>%.4g</td><td>%.4g</td>"
            "<td>%+.1f%%</td><td>%.1f%%</td><td>%.1f%%</td><td>%.4g</td>"
            "<td>%.4g</td><td>%.4g</td>",
            trial->name, trial == trials->chosen ? ", chosen" : "",
            trial->chunks, trial->planned.makespan, ran->makespan,
            100 * wefti_trial_error(trial),
            percent(trial->planned.bubble, trial->planned.makespan),
            percent(ran->bubble, ran->makespan), trial->planned.activations,
            ran->activations, trial->step_ms);
    put_deferred(file, trial);
    fprintf(file, "<td>%.4g</td><td>%.4g</td>", trial->least_ms,
            trial->most_ms);
    fprintf(file, "<td class=\"left\">%s%s%s</td></tr>\n",
            trial->emulated ? "emulated" : "",
            trial->emulated && is_basis ? "; " : "",
            !is_basis         ? ""
            : trial->emulated ? "its costs plan the emulated"
                              : "its costs plan the others");
}

static void put_table(FILE *file, const wefti_trials *trials)
{
    fputs("<div class=\"wide\"><table id=\"trials\"><tr><th>schedule</th>"
          "<th>V</th><th>planned, ms</th><th>measured</th><th>difference</th>"
          "<th>bubble planned</th><th>measured</th><th>peak planned</th>"
          "<th>measured</th><th>whole step, ms</th><th>W put off</th>"
          "<th>least</th><th>most</th><th class=\"left\"></th>"
          "</tr>\n",
          file);
    for (size_t k = 0; k < trials->count; k++) {
        put_trial(file, trials, k);
    }
    fputs("</table></div>\n", file);
}

static void put_words(FILE *file, const wefti_trials *trials)
{
    bool emulated = trials->count > 1 && trials->items[1].emulated;
    const wefti_pipe_basis *basis =
        emulated ? &trials->emulated : &trials->real;
    const wefti_layer_cost *cost = &basis->layer;
    fprintf(
        file,
        "<p class=\"soft\">Each ran %d steps before the run, all in turn "
        "and again, so that what slows the machine for a while slows all of "
        "them; shown is the one of median length, and of whole steps the least "
        "and the most too. Planned are all of them with the costs "
        "of 1f1b alone: a layer F %.4g and B %.4g ms, the model's ends "
        "beside their layers F %.4g and %.4g, B %.4g and %.4g, a message "
        "%.4g ms. Planned and measured are the pipeline; a whole step has "
        "also the update and its transfers. W put off: weight gradients that "
        "did not follow their I at once, of all ranks (rank by rank).</p>\n",
        WEFTI_TRIAL_ROUNDS, cost->layer.f, cost->layer.b, cost->first.f,
        cost->last.f, cost->first.b, cost->last.b, basis->p2p);
    if (emulated) {
        fputs("<p>A host has more ranks than cores, on which compute has no "
              "length of its own. Emulated: in place of compute, waits as "
              "long as 1f1b's compute was; messages and reductions are real, "
              "and so are the costs of 1f1b with those waits.</p>\n",
              file);
    }
    if (trials->chosen) {
        fputs("<p>Schedule auto chooses ", file);
        wefti_page_text(file, trials->reason);
        fputs(".</p>\n", file);
    }
}

weft_status wefti_page_put_trials(const wefti_page_view *view)
{
    const wefti_trials *trials = view->page->trials;
    FILE *file = view->file;
    weft_status status = WEFT_OK;
    if (!trials || trials->count == 0) {
        return WEFT_OK;
    }
    fputs("<section><h2>Schedules side by side</h2>\n", file);
    put_table(file, trials);
    put_words(file, trials);
    for (size_t k = 0; k < trials->count && status == WEFT_OK; k++) {
        const wefti_trial *trial = &trials->items[k];
        fprintf(file, "<h3>%s%s</h3>\n", trial->name,
                trial->emulated ? ", emulated" : "");
        status = wefti_page_put_lines(file, trial->schedule, &trial->planned,
                                      &trial->runs[trial->median]);
    }
    fputs("</section>\n", file);
    return status;
}
