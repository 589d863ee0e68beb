/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: pictures show what runs when, and only that.
 *
 * Method: a small schedule drawn for the terminal, compared letter by letter;
 * SVGs of all schedules, in which boxes, micro-batches and steps are counted.
 */
#include "tests/overlap/schedules.h"

static weft_schedule_run simulate(const weft_schedule *schedule, bool spans)
{
    weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 1, .i = 1, .w = 1};
    weft_schedule_run run;
    ASSERT_OK(weft_schedule_simulate(schedule, &cost, spans, &run));
    return run;
}

static char *draw_text(const weft_schedule *schedule, bool colour)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *file = open_memstream(&text, &text_bytes);
    weft_schedule_run run = simulate(schedule, true);
    ASSERT_OK(weft_schedule_draw_text(schedule, &run, 120, colour, file));
    assert_int_equal(fclose(file), 0);
    weft_schedule_run_fini(&run);
    return text;
}

static char *draw_svg(const weft_schedule *schedule, bool twice,
                      const char *title)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *file = open_memstream(&text, &text_bytes);
    weft_schedule_run run = simulate(schedule, true);
    ASSERT_OK(weft_schedule_draw_svg(schedule, &run, twice ? &run : NULL, title,
                                     "ms", file));
    assert_int_equal(fclose(file), 0);
    weft_schedule_run_fini(&run);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void test_draw_text_small_schedule_is_as_expected(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("1f1b", 2, 2, 0);
    char *text = draw_text(schedule, false);
    assert_string_equal(
        text, "   rank  0                                           9\n"
              "      0 |F0---F1---..........B0--------.....B1--------|\n"
              "      1 |.....F0---B0--------F1---B1--------..........|\n");
    free(text);
    text = draw_text(schedule, true);
    assert_int_equal(count_of(text, "\033[44;97m"), 4);
    assert_int_equal(count_of(text, "\033[42;30m"), 4);
    free(text);
    weft_schedule_destroy(schedule);
}

static void test_draw_svg_has_each_action_once(void **state)
{
    (void)state;
    for (int n = 0; n < NAMES; n++) {
        weft_schedule *schedule = make_schedule(names[n], 4, 12, 0);
        weft_schedule_info info = {.size_bytes = sizeof(info)};
        ASSERT_OK(weft_schedule_get_info(schedule, &info));
        for (int twice = 0; twice < 2; twice++) {
            char *svg = draw_svg(schedule, twice, "a < b & c");
            assert_int_equal(count_of(svg, "<g><title>"),
                             info.actions * (size_t)(1 + twice));
            assert_int_equal(count_of(svg, "a &lt; b &amp; c"), 1);
            assert_int_equal(count_of(svg, ">planned<"), 1);
            assert_int_equal(count_of(svg, ">measured<"), (size_t)twice);
            assert_int_equal(count_of(svg, "<g>"), count_of(svg, "</g>"));
            assert_int_equal(count_of(svg, "nan"), 0);
            free(svg);
        }
        weft_schedule_destroy(schedule);
    }
}

/* Each rank of DualPipe's outer ones goes through all eight. */
static void test_draw_svg_dualpipe_shows_its_eight_steps(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("dualpipe", 8, 20, 0);
    char *svg = draw_svg(schedule, false, NULL);
    for (int step = 1; step <= 8; step++) {
        char part[64];
        size_t most = step == 2 || step == 4 || step == 6 || step == 8 ? 8 : 6;
        snprintf(part, sizeof(part), "<title>step %d</title>", step);
        assert_int_equal(count_of(svg, part), most);
    }
    free(svg);
    weft_schedule_destroy(schedule);
}

/* The text states what a reader cannot guess, where it is, and only there. */
static void test_draw_svg_explains_what_it_shows(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t paler, pairs, dark;
    } cases[] = {{"1f1b", 0, 0, 0}, {"zbv", 1, 0, 1}, {"dualpipev", 1, 1, 1}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
        weft_schedule *schedule = make_schedule(cases[k].name, 4, 12, 0);
        char *svg = draw_svg(schedule, false, NULL);
        assert_int_equal(count_of(svg, "Paler: "), cases[k].paler);
        assert_int_equal(count_of(svg, "F above B: "), cases[k].pairs);
        assert_int_equal(count_of(svg, "Violet: "), 0);
        assert_int_equal(count_of(svg, "Under each row: "), 1);
        /* dark digits on pale boxes */
        assert_int_equal(count_of(svg, "\"n d\"") > 0, cases[k].dark);
        free(svg);
        weft_schedule_destroy(schedule);
    }
}

/* One action that took next to no time, as happens where cores are shared. */
static void test_draw_svg_stays_narrow_beside_a_short_action(void **state)
{
    (void)state;
    char *svg = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&svg, &bytes);
    weft_schedule *schedule = make_schedule("1f1b", 4, 8, 0);
    weft_schedule_run run = simulate(schedule, true);
    run.ranks[1].spans[3].end = run.ranks[1].spans[3].begin + 1e-3;
    ASSERT_OK(weft_schedule_draw_svg(schedule, &run, &run, NULL, "ms", file));
    assert_int_equal(fclose(file), 0);
    const char *width = strstr(svg, "width=\"");
    assert_non_null(width);
    assert_true(strtod(width + 7, NULL) < 1500);
    free(svg);
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
}

static void test_draw_without_spans_or_room_is_refused(void **state)
{
    (void)state;
    weft_schedule *schedule = make_schedule("1f1b", 2, 2, 0);
    weft_schedule_run run = simulate(schedule, false);
    assert_int_equal(
        weft_schedule_draw_svg(schedule, &run, NULL, NULL, NULL, stdout),
        WEFT_ERR_INVALID);
    weft_schedule_run_fini(&run);
    run = simulate(schedule, true);
    assert_int_equal(weft_schedule_draw_text(schedule, &run, 20, false, stdout),
                     WEFT_ERR_INVALID);
    weft_schedule_run_fini(&run);
    weft_schedule_destroy(schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_text_small_schedule_is_as_expected),
        cmocka_unit_test(test_draw_svg_has_each_action_once),
        cmocka_unit_test(test_draw_svg_dualpipe_shows_its_eight_steps),
        cmocka_unit_test(test_draw_svg_explains_what_it_shows),
        cmocka_unit_test(test_draw_svg_stays_narrow_beside_a_short_action),
        cmocka_unit_test(test_draw_without_spans_or_room_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
