/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/page_schedule.c - a pipeline on the page: planned above
 * measured, rank by rank, and which schedule would be best.
 */
#include "trainer/report/page_part.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_SHOWN = 64, ACTIONS_DRAWN = 20000 };

/* ---- the step -------------------------------------------------------------
 */

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void put_run(FILE *file, const char *name, const weft_schedule_run *run)
{
    fprintf(file,
            "<tr><td>%s</td><td>%.4g</td><td>%.4g</td><td>%.1f%%</td>"
            "<td>%.1f%%</td><td>%.4g</td>",
            name, run->makespan, run->bubble,
            percent(run->bubble, run->makespan),
            percent(run->bubble, run->ideal), run->activations);
}

static void put_costs(FILE *file, const wefti_page_plan *plan)
{
    const weft_schedule_cost *cost = &plan->cost;
    fprintf(file,
            "<p class=\"soft\">Step %" PRIu64
            ", the median one of the last steps by its length (at most 50). "
            "Planned with the costs that were "
            "measured in it, stage by stage; a rank's, on average: F %.4g, I "
            "%.4g, W %.4g, B %.4g, FB %.4g ms, a message %.4g ms%s. Bubble is "
            "all of the step in which a rank does not compute, of the worst "
            "rank; imbalance is that part of it which unequal stages cause, "
            "however many micro-batches there are; "
            "activations are in micro-batches through all layers of a "
            "rank.</p>\n",
            plan->step, cost->f, cost->i, cost->w, cost->b, cost->fb, cost->p2p,
            plan->found.split_known ? "" : " (I and W: half of B each)");
}

static void put_step(const wefti_page_view *view)
{
    const wefti_page_plan *plan = &view->page->plan;
    FILE *file = view->file;
    fputs("<table id=\"schedule\"><tr><th></th><th>step, ms</th><th>bubble, ms"
          "</th><th>of the step</th><th>of ideal</th><th>peak activation</th>"
          "<th>imbalance, of the step</th></tr>\n",
          file);
    put_run(file, "planned", &plan->planned);
    fprintf(file, "<td>%.1f%%</td></tr>\n",
            percent(plan->imbalance, plan->planned.makespan));
    put_run(file, "measured", &plan->measured);
    fputs("<td></td></tr>\n</table>\n", file);
    put_costs(file, plan);
    if (view->median && wefti_page_is_oversubscribed(view->median)) {
        fputs("<p>The ranks had no cores of their own and took turns: how long "
              "an action took depends on what else ran just then. These costs, "
              "and what is planned and advised with them, are those of this "
              "crowd.</p>\n",
              file);
    }
}

/* ---- rank by rank ---------------------------------------------------------
 */

static void put_rank(FILE *file, const wefti_page_plan *plan, int rank)
{
    const weft_schedule_rank *on_paper = &plan->planned.ranks[rank];
    const weft_schedule_rank *ran = &plan->measured.ranks[rank];
    size_t deferred, waiting;
    wefti_page_plan_deferred(plan->schedule, rank, &deferred, &waiting);
    fprintf(file,
            "<tr><td>%d</td><td>%.4g</td><td>%.4g</td><td>%.4g</td><td>%.4g"
            "</td><td>%.4g</td><td>%.4g</td><td>%zu</td><td>%zu</td></tr>\n",
            rank, on_paper->busy, ran->busy, on_paper->bubble, ran->bubble,
            on_paper->activations, ran->activations, deferred, waiting);
}

static void put_ranks(FILE *file, const wefti_page_plan *plan)
{
    int count = plan->planned.rank_count;
    fputs("<div class=\"wide\"><table id=\"stages\"><tr><th>rank</th>"
          "<th>busy planned</th><th>measured</th><th>bubble planned</th>"
          "<th>measured</th><th>peak planned</th><th>measured</th>"
          "<th>W put off</th><th>waiting at most</th></tr>\n",
          file);
    for (int rank = 0; rank < count && rank < RANKS_SHOWN; rank++) {
        put_rank(file, plan, rank);
    }
    fputs("</table></div>\n", file);
    if (count > RANKS_SHOWN) {
        fprintf(file, "<p class=\"soft\">The first %d of %d ranks.</p>\n",
                RANKS_SHOWN, count);
    }
}

/* ---- advice ---------------------------------------------------------------
 */

static void put_candidate(FILE *file, const weft_schedule_candidate *c)
{
    fprintf(file, "<tr><td>%s%s</td>", c->name, c->overlap ? ", FB" : "");
    if (isnan(c->makespan)) {
        fprintf(file, "<td></td><td>%d</td>", c->microbatches);
        fputs("<td></td><td></td><td></td><td></td><td></td><td></td>", file);
    } else {
        fprintf(file,
                "<td>%d</td><td>%d</td><td>%.4g</td><td>%.1f%%</td><td>%.1f%%"
                "</td><td>%.4g</td><td>%d</td><td>%zu</td>",
                c->chunks, c->microbatches, c->makespan, 100 * c->bubble_ratio,
                100 * c->imbalance_ratio, c->activations, c->param_copies,
                c->messages);
    }
    fputs("<td class=\"left\">", file);
    wefti_page_text(file, c->why);
    fputs("</td></tr>\n", file);
}

static void put_advice(FILE *file, const wefti_page_plan *plan,
                       const wefti_trials *trials)
{
    const weft_advice *advice = &plan->advice->found;
    fputs("<h3>Which schedule</h3>\n<p>On paper, ", file);
    wefti_page_text(file, advice->reason);
    fputs(".</p>\n", file);
    if (trials && trials->chosen) {
        fputs("<p>Schedule auto had the same advice, tried what it says, and "
              "chose ",
              file);
        wefti_page_text(file, trials->reason);
        fputs(".</p>\n", file);
    }
    if (advice->warning[0]) {
        fputs("<ul class=\"warn\"><li>", file);
        wefti_page_text(file, advice->warning);
        fputs(".</li></ul>\n", file);
    }
    fputs("<div class=\"wide\"><table id=\"advice\"><tr><th>schedule</th>"
          "<th>V</th><th>m</th><th>step, "
          "ms</th><th>bubble</th><th>imbalance</th><th>activations</th>"
          "<th>copies</th><th>messages</th><th class=\"left\"></th></tr>\n",
          file);
    for (size_t k = 0; k < advice->count; k++) {
        put_candidate(file, &advice->candidates[k]);
    }
    fprintf(file,
            "</table></div>\n<p class=\"soft\">Simulated, all with the same "
            "costs of a layer and of the model's ends, as they were in %s; "
            "times in ms, "
            "activations and memory in micro-batches as they are, with m = "
            "%d, through all layers of a rank. To ask again, with other "
            "numbers:</p>\n<pre class=\"command\" id=\"command\">",
            plan->advice == &plan->own ? "the step above"
                                       : "1f1b's first steps, before the run",
            plan->advice->microbatches);
    wefti_page_text(file, plan->advice->command);
    fputs("</pre>\n", file);
}

/* Where all of it fits, small but whole, and larger for reading; else with a
 * scroll bar. */
static void put_sizes(FILE *file, const char *picture)
{
    const double fits = 2600; /* pixels that may become a page's 1000 */
    const char *width = strstr(picture, "width=\"");
    if (width && strtod(width + 7, NULL) <= fits) {
        fprintf(file,
                "<div class=\"paper whole\">\n%s</div>\n<details><summary>"
                "The same, larger</summary>\n",
                picture);
        fprintf(file, "<div class=\"paper\">\n%s</div></details>\n", picture);
    } else {
        fprintf(file, "<div class=\"paper\">\n%s</div>\n", picture);
    }
}

weft_status wefti_page_put_lines(FILE *file, const weft_schedule *schedule,
                                 const weft_schedule_run *planned,
                                 const weft_schedule_run *ran)
{
    char *text = NULL;
    size_t bytes = 0;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(schedule, &info);
    if (status != WEFT_OK) {
        return status;
    }
    if (info.actions > ACTIONS_DRAWN) {
        fprintf(file, "<p>%zu actions are too many to draw.</p>\n",
                info.actions);
        return WEFT_OK;
    }
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "--report: a schedule's picture");
    }
    status = weft_schedule_draw_svg(schedule, planned, ran, NULL, "ms", memory);
    if (fclose(memory) != 0 && status == WEFT_OK) {
        status =
            wefti_error(WEFT_ERR_NO_MEMORY, "--report: a schedule's picture");
    }
    if (status == WEFT_OK) {
        put_sizes(file, text);
    }
    free(text);
    return status;
}

weft_status wefti_page_put_schedule(const wefti_page_view *view)
{
    const wefti_page_plan *plan = &view->page->plan;
    FILE *file = view->file;
    if (!plan->schedule) {
        return WEFT_OK;
    }
    fputs("<section><h2>Pipeline</h2>\n", file);
    put_step(view);
    weft_status status = wefti_page_put_lines(file, plan->schedule,
                                              &plan->planned, &plan->measured);
    put_ranks(file, plan);
    put_advice(file, plan, view->page->trials);
    fputs("</section>\n", file);
    return status;
}
