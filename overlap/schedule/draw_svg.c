/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/draw_svg.c - a timeline as SVG, complete in itself.
 *
 *     title                                        legend
 *     planned    rank 0 |F0|F1|  |B0| ...          one row per rank,
 *                       11111222233...             its steps under it
 *                rank 1 ...
 *                0 ------------ time ------------
 *     measured   the same, on the same scale
 */
#include "overlap/schedule/draw.h"

#include "base/error.h"

#include <math.h>

enum {
    LEFT = 64, /* room for the ranks' names */
    RIGHT = 24,
    TOP = 62,  /* title and legend */
    NOTE = 16, /* a line below the legend */
    STRIP = 8, /* the steps under a row */
    GAP = 6,   /* between rows */
    AXIS = 34, /* under a panel */
    WIDTH_LEAST = 760,
    WIDTH_MOST = 9000,
    BOX_WIDE = 17, /* the shortest action, where there is room */
    BOX_MOST = 68, /* an action on average, however short another one is */
    LABEL_WIDE = 6 /* one digit */
};

typedef struct canvas {
    const weft_schedule *schedule;
    FILE *file;
    const char *unit;
    double width, scale; /* of the time axis; pixels per unit of time */
    int row;             /* height of a rank's boxes */
    bool steps;          /* the list says which steps its actions are of */
    bool pairs, others;  /* it has FB; RECOMPUTE or OPT */
} canvas;

static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        default:
            fputc(*text, file);
        }
    }
}

/* ---- colours --------------------------------------------------------------
 */

typedef struct shade {
    const char *name;
    int red, green, blue;
} shade;

static const shade shades[] = {
    [WEFT_ACTION_F] = {"F forward", 74, 125, 205},
    [WEFT_ACTION_I] = {"I backward for inputs", 62, 160, 150},
    [WEFT_ACTION_W] = {"W backward for weights", 232, 164, 60},
    [WEFT_ACTION_B] = {"B full backward", 92, 168, 88},
};
static const shade encoder_shades[] = {
    [WEFT_ACTION_F] = {"F of the encoder", 164, 74, 148},
    [WEFT_ACTION_I] = {"I of the encoder", 204, 112, 170},
    [WEFT_ACTION_W] = {"W of the encoder", 222, 140, 130},
    [WEFT_ACTION_B] = {"B of the encoder", 126, 84, 168},
};
static const shade other_shade = {"other", 150, 130, 180};

/* Whether any branch has several stages on a rank. */
static bool has_tints(const canvas *c)
{
    return wefti_draw_count_tints(c->schedule, false) > 1 ||
           wefti_draw_count_tints(c->schedule, true) > 1;
}

/* Later stages of a rank are lighter: by this share of white. */
static double find_white(const canvas *c, int stage)
{
    int tints = wefti_draw_count_tints(
        c->schedule, wefti_draw_is_encoder(c->schedule, stage));
    int tint = wefti_draw_tint(c->schedule, stage);
    return tints > 1 ? 0.55 * tint / (tints - 1) : 0;
}

static void put_fill(canvas *c, weft_action_type type, int stage)
{
    const shade *own =
        wefti_draw_is_encoder(c->schedule, stage) ? encoder_shades : shades;
    const shade *s = type <= WEFT_ACTION_B ? &own[type] : &other_shade;
    double white = find_white(c, stage);
    fprintf(c->file, "fill=\"#%02x%02x%02x\"",
            (int)(s->red + white * (255 - s->red)),
            (int)(s->green + white * (255 - s->green)),
            (int)(s->blue + white * (255 - s->blue)));
}

/* ---- one row --------------------------------------------------------------
 */

static int digits(int number)
{
    return number < 10 ? 1 : number < 100 ? 2 : number < 1000 ? 3 : 5;
}

/* A box with its micro-batch, if that fits. */
static void put_box(canvas *c, const weft_action *part, double x, double y,
                    double width, double height)
{
    fprintf(c->file,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" ", x, y,
            width, height);
    put_fill(c, (weft_action_type)part->type, part->stage);
    fputs("/>", c->file);
    bool room = part->microbatch >= 0 && height >= 8 &&
                width >= LABEL_WIDE * digits(part->microbatch) + 2;
    if (room) {
        fprintf(c->file, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\">%d</text>",
                find_white(c, part->stage) > 0.25 ? "n d" : "n", x + width / 2,
                y + height / 2 + 3, part->microbatch);
    }
}

static void put_action(canvas *c, const weft_action *action,
                       const weft_schedule_span *span, double top)
{
    char text[WEFT_ACTION_TEXT_BYTES];
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    double x = LEFT + span->begin * c->scale;
    double width = (span->end - span->begin) * c->scale;
    double height = (double)c->row / count;
    weft_action_pack(action, text);
    fprintf(c->file, "<g><title>%s: %.6g to %.6g", text, span->begin,
            span->end);
    if (span->wait != WEFT_WAIT_NONE) {
        fprintf(c->file, ", waited for: %s",
                weft_schedule_wait_text(span->wait));
        if (span->wait_rank >= 0) {
            fprintf(c->file, " (rank %d)", span->wait_rank);
        }
    }
    fputs("</title>", c->file);
    for (int p = 0; p < count; p++) {
        put_box(c, &parts[p], x, top + p * height, width, height);
    }
    fputs("</g>\n", c->file);
}

/* Which step the row is in, from its first action's start to its last's end. */
static void put_step(canvas *c, int step, double begin, double end, double top)
{
    static const char *const fills[8] = {"#4c5566", "#8a6d3b", "#2f7f8f",
                                         "#7b4a9e", "#4f7a3b", "#a14d4d",
                                         "#3b539a", "#6e6b2f"};
    double width = (end - begin) * c->scale;
    fprintf(c->file,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\" "
            "fill=\"%s\"><title>step %d</title></rect>",
            LEFT + begin * c->scale, top, width, STRIP - 1, fills[step % 8],
            step);
    if (width >= LABEL_WIDE) {
        fprintf(c->file, "<text class=\"s\" x=\"%.2f\" y=\"%.2f\">%d</text>",
                LEFT + begin * c->scale + width / 2, top + STRIP - 2, step);
    }
    fputc('\n', c->file);
}

static void put_steps(canvas *c, const wefti_actions *list,
                      const weft_schedule_span *spans, double top)
{
    int step = 0;
    double begin = 0, end = 0;
    for (size_t k = 0; k < list->count; k++) {
        if (!wefti_draw_has_box(&list->items[k])) {
            continue;
        }
        if (list->items[k].step != step) {
            if (step > 0) {
                put_step(c, step, begin, end, top);
            }
            step = list->items[k].step;
            begin = spans[k].begin;
        }
        end = spans[k].end;
    }
    if (step > 0) {
        put_step(c, step, begin, end, top);
    }
}

static double row_pitch(const canvas *c)
{
    return c->row + GAP + (c->steps ? STRIP : 0);
}

static void put_rank(canvas *c, const weft_schedule_run *run, int rank,
                     double top)
{
    const wefti_actions *list = &c->schedule->lists[rank];
    const weft_schedule_rank *r = &run->ranks[rank];
    fprintf(c->file,
            "<text x=\"%d\" y=\"%.2f\" text-anchor=\"end\">rank %d</text>"
            "<rect class=\"idle\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" "
            "height=\"%d\"><title>rank %d: busy %.6g, bubble %.6g, holds %.6g "
            "activations</title></rect>\n",
            LEFT - 8, top + c->row / 2.0 + 4, rank, LEFT, top,
            run->makespan * c->scale, c->row, rank, r->busy, r->bubble,
            r->activations);
    for (size_t k = 0; k < list->count; k++) {
        if (wefti_draw_has_box(&list->items[k])) {
            put_action(c, &list->items[k], &r->spans[k], top);
        }
    }
    if (c->steps) {
        put_steps(c, list, r->spans, top + c->row + 1);
    }
}

/* ---- a panel --------------------------------------------------------------
 */

/* 1, 2 or 5 times a power of ten, so that there are 5 to 12 of them. */
static double choose_tick(double makespan)
{
    double tick = pow(10, floor(log10(makespan / 5)));
    if (makespan / tick > 25) {
        return 5 * tick;
    }
    return makespan / tick > 12 ? 2 * tick : tick;
}

static void put_axis(canvas *c, double makespan, double y)
{
    double tick = makespan > 0 ? choose_tick(makespan) : 0;
    int count = tick > 0 ? (int)(makespan / tick * (1 + 1e-12)) : 0;
    for (int k = 0; k <= count; k++) {
        double x = LEFT + k * tick * c->scale;
        fprintf(c->file,
                "<path d=\"M%.2f %.2fv5\" stroke=\"#555\"/><text class=\"a\" "
                "x=\"%.2f\" y=\"%.2f\">%.6g%s%s</text>\n",
                x, y, x, y + 16, k * tick, k == count && c->unit ? " " : "",
                k == count && c->unit ? c->unit : "");
    }
}

static double put_panel(canvas *c, const weft_schedule_run *run,
                        const char *name, double top)
{
    fprintf(c->file,
            "<text x=\"%d\" y=\"%.2f\"><tspan font-weight=\"bold\">%s</tspan>: "
            "%.6g in all, bubble %.6g on the worst rank (%.1f%%), at most %.6g "
            "activations</text>\n",
            LEFT, top, name, run->makespan, run->bubble,
            100 * wefti_draw_bubble_ratio(run), run->activations);
    top += 8;
    for (int r = 0; r < c->schedule->ranks; r++) {
        put_rank(c, run, r, top);
        top += row_pitch(c);
    }
    put_axis(c, run->makespan, top);
    return top + AXIS + 12;
}

static void put_legend(canvas *c)
{
    double x = LEFT;
    for (int type = WEFT_ACTION_F; type <= WEFT_ACTION_B; type++) {
        fprintf(c->file,
                "<rect x=\"%.0f\" y=\"30\" width=\"12\" height=\"12\" "
                "fill=\"#%02x%02x%02x\"/><text x=\"%.0f\" y=\"40\">%s</text>\n",
                x, shades[type].red, shades[type].green, shades[type].blue,
                x + 17, shades[type].name);
        x += type == WEFT_ACTION_F ? 90 : 175;
    }
    fprintf(c->file,
            "<rect class=\"idle\" x=\"%.0f\" y=\"30\" width=\"12\" "
            "height=\"12\"/><text x=\"%.0f\" y=\"40\">bubble</text>\n",
            x, x + 17);
}

static bool has_note(const canvas *c)
{
    return c->steps || c->pairs || c->others || has_tints(c) ||
           c->schedule->encoder_stages > 0;
}

/* What a reader cannot guess, of what there is. */
static void put_note(canvas *c)
{
    fprintf(c->file, "<text class=\"o\" x=\"%d\" y=\"56\">%s%s%s%s%s</text>\n",
            LEFT,
            c->schedule->encoder_stages > 0
                ? "Red and violet: F, I, W and B of the encoder. "
                : "",
            has_tints(c) ? "Paler: the rank's further stages. " : "",
            c->pairs ? "F above B: a pair that overlaps. " : "",
            c->others ? "Violet: RECOMPUTE or OPT. " : "",
            c->steps ? "Under each row: the steps of the recipe." : "");
}

/* ---- the whole ------------------------------------------------------------
 */

static canvas make_canvas(const weft_schedule *schedule,
                          const weft_schedule_run *planned, double makespan,
                          const char *unit, FILE *file)
{
    canvas c = {.schedule = schedule, .file = file, .unit = unit};
    double shortest = makespan;
    size_t busiest = 0; /* spans of a rank */
    for (int r = 0; r < schedule->ranks; r++) {
        size_t spans = 0;
        for (size_t k = 0; k < schedule->lists[r].count; k++) {
            const weft_schedule_span *span = &planned->ranks[r].spans[k];
            double time = span->end - span->begin;
            spans += time > 0;
            shortest = time > 0 ? fmin(shortest, time) : shortest;
            const weft_action *action = &schedule->lists[r].items[k];
            c.steps = c.steps || action->step > 0;
            c.pairs = c.pairs || action->type == WEFT_ACTION_FB;
            c.others = c.others || (wefti_draw_has_box(action) &&
                                    !wefti_action_is_compute(action));
        }
        busiest = spans > busiest ? spans : busiest;
    }
    c.width = shortest > 0 ? makespan / shortest * BOX_WIDE : 0;
    c.width = fmin(c.width, (double)busiest * BOX_MOST);
    c.width = fmin(fmax(c.width, WIDTH_LEAST), WIDTH_MOST);
    c.scale = makespan > 0 ? c.width / makespan : 0;
    c.row = schedule->ranks <= 32 ? 24 : 10;
    return c;
}

static void put_title(canvas *c, const char *title)
{
    const weft_schedule *s = c->schedule;
    fprintf(c->file, "<text x=\"%d\" y=\"18\" class=\"t\">", LEFT);
    if (title) {
        put_text(c->file, title);
    } else {
        fprintf(c->file, "%s, %d ranks, %d micro-batches, %d %s a rank%s",
                s->name, s->ranks, s->per_stage * s->directions, s->chunks,
                s->chunks == 1 ? "chunk" : "chunks",
                s->directions == 2 ? " in each of two directions" : "");
    }
    fputs("</text>\n", c->file);
}

static void put_picture(canvas *c, const weft_schedule_run *planned,
                        const weft_schedule_run *measured, const char *title)
{
    double panel = c->schedule->ranks * row_pitch(c) + AXIS + 20;
    double head = TOP + (has_note(c) ? NOTE : 0);
    fprintf(c->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n"
            "<style>.n{font-size:9px;text-anchor:middle;fill:#fff}"
            ".s{font-size:7px;text-anchor:middle;fill:#fff}.d{fill:#1c2733}"
            ".a{font-size:10px;text-anchor:middle;fill:#555}"
            ".o{font-size:11px;fill:#555}"
            ".t{font-size:15px;font-weight:bold}"
            ".idle{fill:#e4e6ea}g rect{stroke:#fff;stroke-width:.6}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            LEFT + c->width + RIGHT, head + (measured ? 2 : 1) * panel,
            LEFT + c->width + RIGHT, head + (measured ? 2 : 1) * panel);
    put_title(c, title);
    put_legend(c);
    if (has_note(c)) {
        put_note(c);
    }
    double top = put_panel(c, planned, "planned", head);
    if (measured) {
        put_panel(c, measured, "measured", top);
    }
    fputs("</svg>\n", c->file);
}

weft_status weft_schedule_draw_svg(const weft_schedule *schedule,
                                   const weft_schedule_run *planned,
                                   const weft_schedule_run *measured,
                                   const char *title, const char *unit,
                                   FILE *file)
{
    weft_status status = wefti_draw_check(schedule, planned);
    if (status == WEFT_OK && measured) {
        status = wefti_draw_check(schedule, measured);
    }
    if (status != WEFT_OK) {
        return status;
    }
    double makespan = planned->makespan;
    if (measured) {
        makespan = fmax(makespan, measured->makespan);
    }
    canvas c = make_canvas(schedule, planned, makespan, unit, file);
    put_picture(&c, planned, measured, title);
    if (fflush(file) != 0 || ferror(file) != 0) {
        return wefti_error_system("drawing a schedule");
    }
    return WEFT_OK;
}
