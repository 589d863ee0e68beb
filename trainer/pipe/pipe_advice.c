/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_advice.c - the question, and the command that asks it.
 */
#include "trainer/pipe/pipe_advice.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHOICES_MOST = 8 };

/* Other numbers of micro-batches, of a quarter to four times as many, that
 * cut the sequences evenly. */
static int list_choices(int microbatches, int sequences,
                        int choices[CHOICES_MOST])
{
    int count = 0;
    for (int m = (microbatches + 3) / 4;
         m <= sequences && m <= 4 * microbatches && count < CHOICES_MOST; m++) {
        if (m > 0 && sequences % m == 0 && m != microbatches) {
            choices[count++] = m;
        }
    }
    return count;
}

/* KEY=NUMBER of what an end of the model takes. */
static void put_end(FILE *file, const char *flag, const weft_stage_cost *end)
{
    fprintf(file, " %s F=%.6g,I=%.6g,W=%.6g,B=%.6g", flag, end->f, end->i,
            end->w, end->b);
}

/* The question as a weft-sched command; NULL: no memory. */
static char *write_command(const weft_advice_config *question, bool pairs)
{
    const weft_schedule_cost *cost = question->cost;
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (!file) {
        return NULL;
    }
    fprintf(file, "weft-sched compare --ranks %d --layers %d --microbatches %d",
            question->ranks, question->layers, question->microbatches);
    for (int k = 0; k < question->choice_count; k++) {
        fprintf(file, ",%d", question->choices[k]);
    }
    fprintf(file, " --cost F=%.6g,I=%.6g,W=%.6g,B=%.6g", cost->f, cost->i,
            cost->w, cost->b);
    if (pairs) { /* else they take as long as their halves */
        fprintf(file, ",FB=%.6g", cost->fb);
    }
    fprintf(file, ",p2p=%.6g", cost->p2p);
    if (question->chunks > 0) {
        fprintf(file, " --chunks %d", question->chunks);
    }
    if (question->group > 0) {
        fprintf(file, " --group %d", question->group);
    }
    put_end(file, "--first", question->first);
    put_end(file, "--last", question->last);
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

weft_status wefti_pipe_advice_init(wefti_pipe_advice *advice,
                                   const wefti_pipe_job *job,
                                   const wefti_pipe_basis *basis)
{
    int choices[CHOICES_MOST];
    weft_schedule_cost cost =
        wefti_pipe_basis_rank(basis, job->ranks, job->layers);
    weft_advice_config question = {
        .size_bytes = sizeof(question),
        .ranks = job->ranks,
        .microbatches = job->microbatches,
        .choices = choices,
        .choice_count =
            list_choices(job->microbatches, job->sequences, choices),
        .layers = job->layers,
        .cost = &cost,
        .first = &basis->layer.first,
        .last = &basis->layer.last,
        .chunks = job->chunks,
        .group = job->group};
    *advice = (wefti_pipe_advice){.microbatches = job->microbatches};
    weft_status status = weft_schedule_advise(&question, &advice->found);
    if (status == WEFT_OK) {
        advice->command = write_command(&question, basis->hidden > 0);
        status = advice->command ? WEFT_OK
                                 : wefti_error(WEFT_ERR_NO_MEMORY, "a command");
    }
    if (status != WEFT_OK) {
        wefti_pipe_advice_fini(advice);
    }
    return status;
}

void wefti_pipe_advice_fini(wefti_pipe_advice *advice)
{
    weft_advice_fini(&advice->found);
    free(advice->command);
    *advice = (wefti_pipe_advice){0};
}
