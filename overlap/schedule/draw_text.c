/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/draw_text.c - a timeline for a terminal.
 *
 * Each column is what runs in its middle; the first columns of an action say
 * which it is.
 */
#include "overlap/schedule/draw.h"

#include "base/error.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { COLUMNS_LEAST = 40, COLUMNS_MOST = 1000, LABEL = 10, WIDEST = 5 };

/* Columns for the whole run: no action needs more than WIDEST. */
static int choose_width(const weft_schedule *schedule,
                        const weft_schedule_run *run, int columns)
{
    double shortest = run->makespan;
    for (int r = 0; r < schedule->ranks; r++) {
        for (size_t k = 0; k < schedule->lists[r].count; k++) {
            const weft_schedule_span *span = &run->ranks[r].spans[k];
            double time = span->end - span->begin;
            if (wefti_draw_has_box(&schedule->lists[r].items[k]) && time > 0) {
                shortest = fmin(shortest, time);
            }
        }
    }
    double wide = shortest > 0 ? WIDEST * run->makespan / shortest : columns;
    return (int)fmin(columns - LABEL, ceil(wide));
}

static char letter(const weft_schedule *schedule, char type, int stage)
{
    return wefti_draw_tint(schedule, stage) > 0 ? (char)tolower(type) : type;
}

/* "e": it is the encoder's. */
static const char *branch(const weft_schedule *schedule, int stage)
{
    return wefti_draw_is_encoder(schedule, stage) ? "e" : "";
}

static void name_action(const weft_schedule *schedule,
                        const weft_action *action, char *name, size_t bytes)
{
    static const char types[] = "FIWB";
    if (action->type == WEFT_ACTION_FB) {
        snprintf(name, bytes, "%s%c%d%s%c%d", branch(schedule, action->stage),
                 letter(schedule, 'F', action->stage), action->microbatch,
                 branch(schedule, action->pair_stage),
                 letter(schedule, 'B', action->pair_stage),
                 action->pair_microbatch);
        return;
    }
    char type = action->type <= WEFT_ACTION_B     ? types[action->type]
                : action->type == WEFT_ACTION_OPT ? 'O'
                                                  : 'R';
    type = letter(schedule, type, action->stage);
    if (action->microbatch < 0) {
        snprintf(name, bytes, "%s%c", branch(schedule, action->stage), type);
    } else {
        snprintf(name, bytes, "%s%c%d", branch(schedule, action->stage), type,
                 action->microbatch);
    }
}

static const char *colour_of(const weft_action *action)
{
    switch (action->type) {
    case WEFT_ACTION_F:
        return "\033[44;97m";
    case WEFT_ACTION_B:
        return "\033[42;30m";
    case WEFT_ACTION_I:
        return "\033[46;30m";
    case WEFT_ACTION_W:
        return "\033[43;30m";
    case WEFT_ACTION_FB:
        return "\033[45;97m";
    default:
        return "\033[47;30m";
    }
}

/* The action that runs at time; NULL: none. */
static const weft_action *find_at(const wefti_actions *list,
                                  const weft_schedule_span *spans, double time,
                                  size_t *from)
{
    while (*from < list->count && (!wefti_draw_has_box(&list->items[*from]) ||
                                   spans[*from].end <= time)) {
        (*from)++;
    }
    bool runs = *from < list->count && spans[*from].begin <= time;
    return runs ? &list->items[*from] : NULL;
}

static void draw_rank(const weft_schedule *schedule,
                      const weft_schedule_run *run, int rank, int width,
                      bool colour, FILE *file)
{
    const weft_action *last = NULL;
    char name[32] = "";
    size_t from = 0, written = 0;
    fprintf(file, "%*d ", LABEL - 3, rank);
    fputc('|', file);
    for (int x = 0; x < width; x++) {
        double time = (x + 0.5) * run->makespan / width;
        const weft_action *action = find_at(
            &schedule->lists[rank], run->ranks[rank].spans, time, &from);
        if (colour && action != last) {
            fputs(action ? colour_of(action) : "\033[0m", file);
        }
        if (action && action != last) {
            name_action(schedule, action, name, sizeof(name));
            written = 0;
        }
        if (!action) {
            fputc('.', file);
        } else if (written < strlen(name)) {
            fputc(name[written++], file);
        } else {
            fputc(colour ? ' ' : '-', file);
        }
        last = action;
    }
    fputs(colour ? "\033[0m|\n" : "|\n", file);
}

weft_status weft_schedule_draw_text(const weft_schedule *schedule,
                                    const weft_schedule_run *run, int columns,
                                    bool colour, FILE *file)
{
    weft_status status = wefti_draw_check(schedule, run);
    if (status != WEFT_OK) {
        return status;
    }
    if (columns < COLUMNS_LEAST || columns > COLUMNS_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "columns %d: allowed is %d .. %d",
                           columns, COLUMNS_LEAST, COLUMNS_MOST);
    }
    int width = choose_width(schedule, run, columns);
    fprintf(file, "%*s  0%*.6g\n", LABEL - 3, "rank", width - 1, run->makespan);
    for (int r = 0; r < schedule->ranks; r++) {
        draw_rank(schedule, run, r, width, colour, file);
    }
    if (fflush(file) != 0 || ferror(file) != 0) {
        return wefti_error_system("drawing a schedule");
    }
    return WEFT_OK;
}
