/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a schedule goes through its text unharmed, and what is no schedule is
 * refused with row and column.
 *
 * Method: every generated schedule, with and without messages, written and read
 * back; then texts with one fault each, and where it must be found.
 */
#include "tests/overlap/schedules.h"

#include <stdlib.h>

/* The schedule's CSV; to be freed. */
static char *write_text(const weft_schedule *schedule, unsigned flags)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *file = open_memstream(&text, &text_bytes);
    assert_non_null(file);
    ASSERT_OK(weft_schedule_write(schedule, flags, file));
    assert_int_equal(fclose(file), 0);
    return text;
}

static weft_schedule *read_text(const char *text, int directions,
                                unsigned flags)
{
    weft_schedule *schedule = NULL;
    ASSERT_OK(
        weft_schedule_read(text, strlen(text), directions, flags, &schedule));
    return schedule;
}

static weft_schedule_info get_info(const weft_schedule *schedule)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    ASSERT_OK(weft_schedule_get_info(schedule, &info));
    return info;
}

static void assert_round_trip(const weft_schedule *schedule)
{
    char *text = write_text(schedule, 0);
    weft_schedule *again = read_text(text, 0, 0);
    char *text_again = write_text(again, 0);
    weft_schedule_info was = get_info(schedule), is = get_info(again);
    assert_string_equal(text, text_again);
    assert_int_equal(was.ranks, is.ranks);
    assert_int_equal(was.stages, is.stages);
    assert_int_equal(was.directions, is.directions);
    assert_int_equal(was.chunks, is.chunks);
    assert_int_equal(was.microbatches, is.microbatches);
    assert_int_equal(was.lowered, is.lowered);
    assert_int_equal(was.messages, is.messages);
    for (int s = 0; s < was.stages; s++) {
        assert_int_equal(weft_schedule_get_rank(schedule, s),
                         weft_schedule_get_rank(again, s));
    }
    weft_schedule_destroy(again);
    free(text);
    free(text_again);
}

static void test_csv_every_schedule_comes_back(void **state)
{
    (void)state;
    for (int n = 0; weft_schedule_name(n); n++) {
        for (int ranks = 2; ranks <= 6; ranks += 2) {
            weft_schedule *schedule =
                make_schedule(weft_schedule_name(n), ranks, 2 * ranks, 0);
            assert_non_null(weft_schedule_meaning(n));
            assert_round_trip(schedule);
            ASSERT_OK(weft_schedule_reduce(schedule, true));
            ASSERT_OK(weft_schedule_optimize(schedule));
            ASSERT_OK(weft_schedule_lower(schedule, WEFT_LOWERING_SENDER));
            ASSERT_OK(weft_schedule_release(schedule));
            assert_round_trip(schedule);
            weft_schedule_destroy(schedule);
        }
    }
    assert_null(weft_schedule_name(-1));
}

static void test_csv_for_torch_leaves_out_what_torch_lacks(void **state)
{
    (void)state;
    weft_schedule *schedule = read_text(
        "0GATHER_PARAM,0UNSHARD,0F0,0RELEASE0,0B0,0REDUCE_GRAD,0OPT,0EMA\n", 0,
        0);
    char *text = write_text(schedule, WEFT_CSV_TORCH);
    assert_string_equal(text, "0UNSHARD,0F0,0B0,0REDUCE_GRAD\n");
    free(text);
    weft_schedule_destroy(schedule);
}

static void test_csv_idle_cells_blanks_and_line_ends_mean_nothing(void **state)
{
    (void)state;
    weft_schedule *schedule = read_text(
        ",0F0, 0F1 ,,,0B0\t,0B1,\r\n,,1F0,1B0,1F1,1B1\r\n\r\n\n", 0, 0);
    assert_int_equal(get_info(schedule).ranks, 2);
    assert_string_equal(list_text(schedule, 0), "0F0 0F1 0B0 0B1");
    assert_string_equal(list_text(schedule, 1), "1F0 1B0 1F1 1B1");
    weft_schedule_destroy(schedule);
}

static void test_csv_of_older_torch_is_read_with_the_flag(void **state)
{
    (void)state;
    weft_schedule *schedule =
        read_text("0F0,0SEND_F0,0RECV_B0,0BW0\n1RECV_F0,1F0,1B0,1SEND_B0,1W0\n",
                  0, WEFT_CSV_OLD_TORCH);
    assert_string_equal(list_text(schedule, 0), "0F0 0SEND_F0 0RECV_B0 0B0");
    assert_string_equal(list_text(schedule, 1),
                        "1RECV_F0 1F0 1I0 1SEND_B0 1W0");
    weft_schedule_destroy(schedule);
}

static void test_csv_directions_are_seen_or_given(void **state)
{
    (void)state;
    const char *v = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n";
    const char *two = "0F0,3F0,0B0,3B0\n2F0,1F0,1B0,2B0\n";
    weft_schedule *schedule = read_text(v, 0, 0);
    assert_int_equal(get_info(schedule).directions, 1);
    assert_int_equal(get_info(schedule).chunks, 2);
    weft_schedule_destroy(schedule);
    schedule = read_text(two, 0, 0);
    assert_int_equal(get_info(schedule).directions, 2);
    assert_int_equal(get_info(schedule).chunks, 1);
    assert_int_equal(get_info(schedule).microbatches, 2);
    weft_schedule_destroy(schedule);
    schedule = read_text(two, 1, 0);
    assert_int_equal(get_info(schedule).directions, 1);
    weft_schedule_destroy(schedule);
}

typedef struct fault {
    const char *text, *where, *why;
} fault;

static const fault faults[] = {
    {"", "row 1, column 1", "computes"},
    {"\n\n", "row 1, column 1", "computes"},
    {"0F0,0B0\n1F0,1Q0\n", "row 2, column 2", "no such type"},
    {"0F0,0WHATEVER0\n", "row 1, column 2", "no such type"},
    {"0F0,,0f1\n", "row 1, column 3", "no such type"},
    {"0F0,F1\n", "row 1, column 2", "stage number"},
    {"0F0,0F\n", "row 1, column 2", "micro-batch"},
    {"0F0,0F1x\n", "row 1, column 2", "follows its end"},
    {"0F0,0F 1\n", "row 1, column 2", "micro-batch"},
    {"0F0,0UNSHARD1\n", "row 1, column 2", "follows its end"},
    {"0F0,-1F1\n", "row 1, column 2", "stage number"},
    {"0F0,0F99999999999999999999\n", "row 1, column 2", "micro-batch"},
    {"99999999999F0\n", "row 1, column 1", "stage number"},
    {"0F0,(0F1;0B0)OVERLAP\n", "row 1, column 2", "OVERLAP_F_B"},
    {"0F0,(0F1)OVERLAP_F_B\n", "row 1, column 2", ";"},
    {"0F0,(0B1;0F0)OVERLAP_F_B\n", "row 1, column 2", "one F and one B"},
    {"0F0,\"0F1\"\n", "row 1, column 2", "\"\"0F1\"\" is quoted"},
    {"'0F0'\n", "row 1, column 1", "is quoted"},
    {"\xef\xbb\xbf"
     "0F0,0B0\n",
     "row 1, column 1", "byte-order mark"},
    {"\xff\xfe"
     "0",
     "row 1, column 1", "UTF-16"},
    {"\xfe\xff"
     "0",
     "row 1, column 1", "UTF-16"},
    {"0F0,0\x1b[2J\n", "row 1, column 2", "\"0\\x1b[2J\""},
    {"0F0,\xff\xc3\n", "row 1, column 2", "\"\\xff\\xc3\""},
    {"0F0\r0B0\n", "row 1, column 1", "\"0F0\\x0d0B0\""},
    {"0F0,0B0|\n", "row 1, column 2", "\"0B0|\" ends in |"},
    {"0F0,|\n", "row 1, column 2", "stage number"},
    {"0F0,0SEND_F0||\n1F0\n", "row 1, column 2", "follows its end"},
    {"0F0,0B0\n0F1\n", "row 2, column 1", "row 1"},
    {"0F0,0B0\n,,\n1F0\n", "row 2, column 1", "computes nothing"},
    {"0F0,0B0\n,2F0\n", "row 2, column 2", "without gaps"},
    {"0F0,1SEND_B0\n1F0\n", "row 1, column 2", "does not compute"},
    {"0F0,0SEND_F7\n1F0\n", "row 1, column 2", "micro-batch"},
    {"0F0,5UNSHARD\n", "row 1, column 2", "does not compute"},
};

static void test_csv_faults_are_refused_with_row_and_column(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
        weft_schedule *schedule = NULL;
        weft_status status = weft_schedule_read(
            faults[k].text, strlen(faults[k].text), 0, 0, &schedule);
        if (status != WEFT_ERR_INVALID ||
            !strstr(weft_error_text(), faults[k].where) ||
            !strstr(weft_error_text(), faults[k].why)) {
            fail_msg("\"%s\": %s: %s", faults[k].text, weft_status_text(status),
                     weft_error_text());
        }
        assert_null(schedule);
    }
}

/* A NUL is no end: what stands behind it is text too. */
static void test_csv_with_nul_bytes_is_refused_where_they_are(void **state)
{
    static const struct {
        const char *text;
        size_t text_bytes;
        const char *error;
    } texts[] = {
        {"0\0F\0000\0", 6, "row 1, column 1: the text is encoded as "},
        {"\0000\0F\0000", 6, "row 1, column 1: the text is encoded as "},
        {"0F0,0\0B0\n", 9, "row 1, column 2: \"0\\x00B0\""}};
    (void)state;
    for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
        weft_schedule *schedule = NULL;
        assert_int_equal(weft_schedule_read(texts[k].text, texts[k].text_bytes,
                                            0, 0, &schedule),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), texts[k].error));
    }
}

/* Which messages are posted together: those in a row, up to a bar. */
static void test_csv_groups_are_the_messages_in_a_row(void **state)
{
    static const char text[] =
        "0F0,0SEND_F0,,0F1,0SEND_F1|,0RECV_B0,,0RECV_B1,0B0,0B1\n"
        "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";
    static const bool joined[2][9] = {{[5] = true}, {[1] = true}};
    (void)state;
    weft_schedule *schedule = read_text(text, 0, 0);
    for (int r = 0; r < 2; r++) {
        for (size_t k = 0; k < schedule->lists[r].count; k++) {
            if (schedule->lists[r].items[k].joined != joined[r][k]) {
                fail_msg("rank %d, action %zu", r, k);
            }
        }
    }
    char *written = write_text(schedule, 0);
    assert_non_null(strstr(written, "0SEND_F1|,0RECV_B0,0RECV_B1,"));
    assert_int_equal(strcspn(written, "|"),
                     strlen("0F0,0SEND_F0,0F1,0SEND_F1"));
    free(written);
    written = write_text(schedule, WEFT_CSV_TORCH);
    assert_null(strchr(written, '|'));
    free(written);
    weft_schedule_destroy(schedule);
}

static void test_action_texts_are_torchs(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "3SEND_F2", "0RECV_F11",     "12SEND_B0",
        "1RECV_B4", "2UNSHARD",      "2RESHARD",
        "1F0",      "1I5",           "1W5",
        "1B1",      "7REDUCE_GRAD",  "(0F4;7B1)OVERLAP_F_B",
        "0OPT",     "0GATHER_PARAM", "1048575F1048575"};
    for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
        weft_action action;
        char text[WEFT_ACTION_TEXT_BYTES];
        ASSERT_OK(weft_action_unpack(texts[k], strlen(texts[k]), &action));
        assert_int_equal(weft_action_pack(&action, text), strlen(texts[k]));
        assert_string_equal(text, texts[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv_every_schedule_comes_back),
        cmocka_unit_test(test_csv_for_torch_leaves_out_what_torch_lacks),
        cmocka_unit_test(test_csv_idle_cells_blanks_and_line_ends_mean_nothing),
        cmocka_unit_test(test_csv_of_older_torch_is_read_with_the_flag),
        cmocka_unit_test(test_csv_directions_are_seen_or_given),
        cmocka_unit_test(test_csv_faults_are_refused_with_row_and_column),
        cmocka_unit_test(test_csv_with_nul_bytes_is_refused_where_they_are),
        cmocka_unit_test(test_csv_groups_are_the_messages_in_a_row),
        cmocka_unit_test(test_action_texts_are_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
