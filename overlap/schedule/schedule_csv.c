/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/schedule_csv.c - schedules as CSV: one row per rank, one
 * action per cell.
 *
 * The text is read twice: first where stages are and how many there are of
 * everything, then the actions themselves, which can so be refused where they
 * stand. What is accepted here is well-formed, not yet valid:
 * weft_schedule_check decides that.
 */
#include "overlap/schedule/schedule.h"

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/printable.h"

#include <stdlib.h>
#include <string.h>

/* So many cells of a row have numbers that a place can hold. */
enum { COLUMNS_MOST = 1 << 30 };

/* The cell that is being read. */
typedef struct cursor {
    const char *at, *end; /* what follows it */
    int row, column;      /* its own, from 1 */
    const char *cell;
    size_t cell_bytes; /* without the blanks around it, and the bar */
    bool bar;          /* it ended in one: the group of messages ends here */
} cursor;

typedef struct reader {
    const char *text;
    size_t text_bytes;
    unsigned flags;
    int ranks, stages, per_stage;
    int last_row, last_column; /* where the last stage was first seen */
    int32_t *row_of;           /* [stages] from 1; 0: not seen */
    size_t row_room;           /* of row_of */
    uint64_t actions;
} reader;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim(cursor *c)
{
    while (c->cell_bytes > 0 && is_blank(c->cell[0])) {
        c->cell++;
        c->cell_bytes--;
    }
    while (c->cell_bytes > 0 && is_blank(c->cell[c->cell_bytes - 1])) {
        c->cell_bytes--;
    }
    c->bar = c->cell_bytes > 0 && c->cell[c->cell_bytes - 1] == '|';
    c->cell_bytes -= c->bar;
}

/* Goes to the next cell; false where the text ends. */
static bool next_cell(cursor *c)
{
    bool first = c->row == 0;
    if (c->at == c->end) {
        return false;
    }
    bool new_row = first || *c->at == '\n';
    c->at += !first;
    if (c->at == c->end && new_row) {
        return false; /* the end of the last row begins none */
    }
    c->row += new_row;
    c->column = new_row ? 1 : c->column + 1;
    c->cell = c->at;
    while (c->at < c->end && *c->at != ',' && *c->at != '\n') {
        c->at++;
    }
    c->cell_bytes = (size_t)(c->at - c->cell);
    trim(c);
    return true;
}

/* Empty rows behind the last are no ranks. */
static cursor begin_text(const reader *in)
{
    size_t bytes = in->text_bytes;
    while (bytes > 0 &&
           (is_blank(in->text[bytes - 1]) || in->text[bytes - 1] == '\n')) {
        bytes--;
    }
    return (cursor){.at = in->text, .end = in->text + bytes};
}

/* Text of today from that of older torch: BW is B, and B is I. */
static weft_status unpack_old(const cursor *c, weft_action *action)
{
    char text[WEFT_ACTION_TEXT_BYTES];
    size_t kept = 0;
    bool full = false;
    for (size_t i = 0; i < c->cell_bytes && kept < sizeof(text); i++) {
        bool drop = c->cell[i] == 'W' && i > 0 && c->cell[i - 1] == 'B';
        full = full || drop;
        text[kept] = c->cell[i];
        kept += !drop;
    }
    weft_status status = weft_action_unpack(text, kept, action);
    if (status == WEFT_OK && action->type == WEFT_ACTION_B && !full) {
        action->type = WEFT_ACTION_I;
    }
    return status;
}

static weft_status refuse_cell(const cursor *c, const char *why)
{
    char shown[4 * 40 + 1];
    size_t bytes = c->cell_bytes + c->bar;
    wefti_printable(c->cell, bytes < 40 ? bytes : 40, shown, sizeof(shown));
    return wefti_error(WEFT_ERR_INVALID, "row %d, column %d: \"%s\" %s", c->row,
                       c->column, shown, why);
}

static weft_status unpack_cell(const reader *in, const cursor *c,
                               weft_action *action)
{
    if (c->column > COLUMNS_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "row %d, column %d: allowed are up to %d cells",
                           c->row, c->column, COLUMNS_MOST);
    }
    if (c->cell_bytes > 0 && (c->cell[0] == '"' || c->cell[0] == '\'')) {
        return refuse_cell(c, "is quoted: allowed is the action alone, as in "
                              "0F0");
    }
    bool old = (in->flags & WEFT_CSV_OLD_TORCH) != 0;
    weft_status status =
        old ? unpack_old(c, action)
            : weft_action_unpack(c->cell, c->cell_bytes, action);
    if (status != WEFT_OK) {
        return wefti_error(status, "row %d, column %d: %s", c->row, c->column,
                           weft_error_text());
    }
    if (c->bar && !wefti_action_is_message(action)) {
        return refuse_cell(c, "ends in |, which only a SEND or a RECV can");
    }
    return WEFT_OK;
}

/* Notes that row computes stage. */
static weft_status note_stage(reader *in, const cursor *c, int stage)
{
    if (!in->row_of || (size_t)stage >= in->row_room) {
        size_t room = 2 * (size_t)stage + 16;
        int32_t *row_of = realloc(in->row_of, room * sizeof(*row_of));
        if (!row_of) {
            return wefti_error(WEFT_ERR_NO_MEMORY, "%d stages", stage);
        }
        memset(row_of + in->row_room, 0,
               (room - in->row_room) * sizeof(*row_of));
        in->row_of = row_of;
        in->row_room = room;
    }
    if (in->row_of[stage] != 0 && in->row_of[stage] != c->row) {
        return wefti_error(WEFT_ERR_INVALID,
                           "row %d, column %d: stage %d is computed in row %d "
                           "already, and a stage is on one rank",
                           c->row, c->column, stage, in->row_of[stage]);
    }
    in->row_of[stage] = c->row;
    if (stage >= in->stages) {
        in->stages = stage + 1;
        in->last_row = c->row;
        in->last_column = c->column;
    }
    return WEFT_OK;
}

static weft_status survey_cell(reader *in, const cursor *c)
{
    weft_action action, parts[2];
    if (c->row > WEFT_SCHEDULE_RANKS_MOST) {
        return wefti_error(WEFT_ERR_INVALID, "row %d: allowed are up to %d",
                           c->row, WEFT_SCHEDULE_RANKS_MOST);
    }
    in->ranks = c->row;
    if (c->cell_bytes + c->bar == 0) {
        return WEFT_OK;
    }
    weft_status status = unpack_cell(in, c, &action);
    in->actions++;
    if (status != WEFT_OK || !wefti_action_is_compute(&action)) {
        return status;
    }
    int count = wefti_action_split(&action, parts);
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        status = note_stage(in, c, parts[i].stage);
        if (parts[i].microbatch >= in->per_stage) {
            in->per_stage = parts[i].microbatch + 1;
        }
    }
    return status;
}

/* A rank without a stage has nothing to do here. */
static weft_status check_rows(const reader *in)
{
    uint8_t *used = calloc((size_t)in->ranks, 1);
    if (!used) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d rows", in->ranks);
    }
    for (int s = 0; s < in->stages; s++) {
        used[in->row_of[s] - 1] = 1;
    }
    int row = 1;
    while (row <= in->ranks && used[row - 1]) {
        row++;
    }
    free(used);
    return row > in->ranks
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "row %d, column 1: this row computes nothing; "
                             "every rank has a stage",
                             row);
}

static weft_status survey(reader *in)
{
    cursor c = begin_text(in);
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_cell(&c)) {
        status = survey_cell(in, &c);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (in->stages == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "row 1, column 1: no action computes anything");
    }
    for (int s = 0; s < in->stages; s++) {
        if (in->row_of[s] == 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "row %d, column %d: stage %d is computed here, "
                               "stage %d in no row: stages are numbered "
                               "without gaps",
                               in->last_row, in->last_column, in->stages - 1,
                               s);
        }
    }
    return check_rows(in);
}

/* Whether a message is posted with what stands before it in its row. */
static bool is_joined(const wefti_actions *list, const weft_action *action,
                      bool bar_before)
{
    return !bar_before && list->count > 0 && wefti_action_is_message(action) &&
           wefti_action_is_message(&list->items[list->count - 1]);
}

/* bar: of the last cell that held an action; and of this one. */
static weft_status fill_cell(const reader *in, const cursor *c, bool *bar,
                             weft_schedule *schedule)
{
    weft_action action = {0};
    weft_status status = unpack_cell(in, c, &action);
    if (status != WEFT_OK) {
        return status;
    }
    bool ours =
        action.stage < in->stages && (action.type == WEFT_ACTION_BARRIER ||
                                      in->row_of[action.stage] == c->row);
    if (!ours) {
        return refuse_cell(c, "names a stage that this row does not compute");
    }
    if (action.microbatch >= in->per_stage) {
        return wefti_error(WEFT_ERR_INVALID,
                           "row %d, column %d: \"%.*s\" names a micro-batch "
                           "that nothing computes; they end at %d",
                           c->row, c->column, (int)c->cell_bytes, c->cell,
                           in->per_stage - 1);
    }
    wefti_actions *list = &schedule->lists[c->row - 1];
    schedule->lowered = schedule->lowered || wefti_action_is_message(&action);
    action.joined = is_joined(list, &action, *bar);
    *bar = c->bar;
    wefti_actions_add_cell(list, action, (uint32_t)c->column);
    return WEFT_OK;
}

static weft_status fill(const reader *in, weft_schedule *schedule)
{
    cursor c = begin_text(in);
    weft_status status = WEFT_OK;
    bool bar = false;
    while (status == WEFT_OK && next_cell(&c)) {
        if (c.cell_bytes > 0) {
            status = fill_cell(in, &c, &bar, schedule);
        }
    }
    return status == WEFT_OK ? wefti_schedule_settle(schedule) : status;
}

/*
 * Ranks r with stages r and 2P-1-r are a V of one direction or two directions;
 * on the last rank the first begins with stage P-1, the second with stage P.
 */
static bool has_two_directions(const weft_schedule *schedule)
{
    int ranks = schedule->ranks;
    if (schedule->stages != 2 * ranks) {
        return false;
    }
    for (int r = 0; r < ranks; r++) {
        if (schedule->rank_of[r] != r ||
            schedule->rank_of[2 * ranks - 1 - r] != r) {
            return false;
        }
    }
    const wefti_actions *last = &schedule->lists[ranks - 1];
    for (size_t k = 0; k < last->count; k++) {
        if (last->items[k].type == WEFT_ACTION_F) {
            return last->items[k].stage == ranks;
        }
    }
    return false;
}

/* How many stages of one direction the fullest rank has. */
static weft_status count_chunks(weft_schedule *schedule)
{
    int *held = calloc((size_t)schedule->ranks, sizeof(*held));
    int most = 0;
    if (!held) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", schedule->ranks);
    }
    for (int s = 0; s < schedule->stages; s++) {
        int count = ++held[schedule->rank_of[s]];
        most = count > most ? count : most;
    }
    free(held);
    schedule->chunks = (most + schedule->directions - 1) / schedule->directions;
    return WEFT_OK;
}

static weft_status set_directions(weft_schedule *schedule, int directions)
{
    if (directions == 0) {
        directions = has_two_directions(schedule) ? 2 : 1;
    }
    if (schedule->stages % directions != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "directions 2: %d stages cannot be halved",
                           schedule->stages);
    }
    int half = schedule->stages / 2;
    for (int s = 0; s < half && directions == 2; s++) {
        if (schedule->rank_of[s] == schedule->rank_of[s + half]) {
            return wefti_error(WEFT_ERR_INVALID,
                               "directions 2: stages %d and %d are copies of "
                               "one, but both in row %d",
                               s, s + half, schedule->rank_of[s] + 1);
        }
    }
    schedule->directions = directions;
    return count_chunks(schedule);
}

/* Lists that double take up to twice what is in them. */
static weft_status predict(const reader *in)
{
    if (in->actions > WEFT_SCHEDULE_ACTIONS_MOST) {
        return wefti_error(
            WEFT_ERR_INVALID, "%llu actions: allowed are up to %d",
            (unsigned long long)in->actions, WEFT_SCHEDULE_ACTIONS_MOST);
    }
    return wefti_memory_check(
        "its list", 2 * in->actions * (sizeof(weft_action) + sizeof(uint32_t)));
}

static weft_status build(const reader *in, int directions,
                         weft_schedule **schedule_out)
{
    weft_schedule *schedule = NULL;
    weft_status status = predict(in);
    if (status == WEFT_OK) {
        status = wefti_schedule_make("csv", in->ranks, in->stages, 1,
                                     in->per_stage, &schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int s = 0; s < in->stages; s++) {
        schedule->rank_of[s] = in->row_of[s] - 1;
    }
    status = fill(in, schedule);
    if (status == WEFT_OK) {
        status = set_directions(schedule, directions);
    }
    if (status != WEFT_OK) {
        weft_schedule_destroy(schedule);
        return status;
    }
    *schedule_out = schedule;
    return WEFT_OK;
}

/* What editors and spreadsheets put before or between plain characters. */
static weft_status check_encoding(const char *text, size_t text_bytes)
{
    const char *found = NULL;
    if (text_bytes >= 2 &&
        (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0 ||
         !text[0] || !text[1])) {
        found = "is encoded as UTF-16 or UTF-32";
    } else if (text_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        found = "begins with a byte-order mark (EF BB BF)";
    }
    return found ? wefti_error(WEFT_ERR_INVALID,
                               "row 1, column 1: the text %s: allowed is "
                               "ASCII without a byte-order mark",
                               found)
                 : WEFT_OK;
}

weft_status weft_schedule_read(const char *text, size_t text_bytes,
                               int directions, unsigned flags,
                               weft_schedule **schedule_out)
{
    if (!text || !schedule_out || directions < 0 || directions > 2) {
        return wefti_error(WEFT_ERR_INVALID,
                           "text and schedule_out must not be NULL, directions "
                           "%d: allowed is 0, 1 or 2",
                           directions);
    }
    reader in = {.text = text, .text_bytes = text_bytes, .flags = flags};
    weft_status status = check_encoding(text, text_bytes);
    if (status == WEFT_OK) {
        status = survey(&in);
    }
    if (status == WEFT_OK) {
        status = build(&in, directions, schedule_out);
    }
    free(in.row_of);
    return status;
}

static bool torch_knows(uint8_t type)
{
    static const bool known[WEFT_ACTION_COUNT] = {
#define WEFT_ACTION_TORCH(name, text, microbatch, torch)                       \
    [WEFT_ACTION_##name] = torch,
        WEFT_ACTION_LIST(WEFT_ACTION_TORCH)
#undef WEFT_ACTION_TORCH
    };
    return known[type];
}

/* A message whose group ends here, though another message comes next. */
static bool ends_group(const wefti_actions *list, size_t k)
{
    return k + 1 < list->count && !list->items[k + 1].joined &&
           wefti_action_is_message(&list->items[k]) &&
           wefti_action_is_message(&list->items[k + 1]);
}

weft_status weft_schedule_write(const weft_schedule *schedule, unsigned flags,
                                FILE *file)
{
    bool for_torch = (flags & WEFT_CSV_TORCH) != 0;
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        const char *comma = "";
        for (size_t k = 0; k < list->count; k++) {
            char text[WEFT_ACTION_TEXT_BYTES];
            if (for_torch && !torch_knows(list->items[k].type)) {
                continue;
            }
            size_t bytes = weft_action_pack(&list->items[k], text);
            fputs(comma, file);
            fwrite(text, 1, bytes, file);
            if (!for_torch && ends_group(list, k)) {
                fputc('|', file);
            }
            comma = ",";
        }
        fputc('\n', file);
    }
    if (fflush(file) != 0 || ferror(file) != 0) {
        return wefti_error_system("writing a schedule");
    }
    return WEFT_OK;
}
