/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a report's page is well-formed whatever is in it, no text of a run ends
 * the element that holds its facts, it stays small however long the run was,
 * has a schedule where there is one, and takes the place of an older one only
 * when it is whole.
 *
 * Method: pages of runs that were made up, read back with an XML parser and
 * their facts with a JSON parser; names full of signs that mean something in
 * HTML and scripts; ten thousand steps; a folder that is gone when the page is
 * to be written. What a real run writes is compared with its metrics, and what
 * the page's script draws of it, by test_report.py.
 */
#include "tests/trainer/scratch.h"
#include "trainer/report/page.h"

#include <cjson/cJSON.h>
#include <expat.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE_BYTES_MOST = 700000 };

static const char config_text[] =
    "model: {layers: 1, hidden_size: 16, heads: 2, kv_heads: 1, ffn_size: 24}\n"
    "data: {paths: ['a<b>&\"c.txt', '</script><script>x()</script>',"
    " '<!--<script>', ']]>', '\xe2\x80\xa8']}\n"
    "train: {steps: 6}\n";

#define ASSERT_OK(call)                                                        \
    do {                                                                       \
        if ((call) != WEFT_OK) {                                               \
            fail_msg("%s: %s", #call, weft_error_text());                      \
        }                                                                      \
    } while (0)

/* A run that never was. */
typedef struct fake {
    wefti_page page;
    wefti_config config;
    wefti_summary summary;
} fake;

static void make_steps(fake *f, uint64_t count)
{
    for (uint64_t k = 1; k <= count; k++) {
        wefti_metrics_step step;
        wefti_metrics_step_init(&step);
        step.step = k;
        step.loss = 2 + 3 * exp(-(double)k / 300) + (k % 7) * 0.01;
        step.step_ms = 10 + (double)(k % 13) / 10 + (k == 1 ? 400 : 0);
        for (int c = 0; c < WEFT_CLASS_COUNT; c++) {
            step.exposed_ms[c] = 0;
        }
        step.exposed_ms[WEFT_CLASS_DP] = 1.5;
        step.bubble_ms = 0;
        step.skew_ms = 0.25;
        step.idle_ms = 0.25;
        step.compute_ms = step.step_ms - 2;
        step.tokens_per_s = 1e6 / step.step_ms;
        step.overlap_ratio = 0.75;
        step.cpu_share = 1;
        wefti_page_note(&f->page, &step);
        wefti_page_add(&f->page, &step);
        wefti_summary_add(&f->summary, &step);
    }
}

static void make_fake(fake *f, const char *path, uint64_t steps)
{
    *f = (fake){0};
    ASSERT_OK(wefti_page_init(&f->page, path));
    ASSERT_OK(wefti_config_init_text(&f->config, "odd <&\"'> name.yaml",
                                     config_text, sizeof(config_text) - 1, NULL,
                                     0));
    wefti_summary_init(&f->summary);
    f->summary.step = steps;
    make_steps(f, steps);
    f->page.nranks = 2;
    f->page.fabric = "shm";
    f->page.machine = strdup("host0 <a> & \"b\"\n");
    f->page.trace.ranks = calloc(2, sizeof(wefti_rank_facts));
    assert_non_null(f->page.trace.ranks);
    for (int r = 0; r < 2; r++) {
        wefti_rank_facts *facts = &f->page.trace.ranks[r];
        snprintf(facts->host, sizeof(facts->host), "h<%d>", r);
        facts->sums = f->page.sums;
        facts->traced_steps = 4;
        facts->calls[WEFT_COLLECTIVE_ALLGATHER] = 8;
        facts->bytes[WEFT_COLLECTIVE_ALLGATHER] = 8000;
    }
}

static void fini_fake(fake *f)
{
    wefti_page_fini(&f->page);
    wefti_config_fini(&f->config);
}

static char *read_all(const char *path)
{
    struct stat what;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &what), 0);
    char *text = calloc(1, (size_t)what.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)what.st_size, file), what.st_size);
    (void)fclose(file);
    return text;
}

/* Well-formed, and nothing in it is fetched from anywhere. */
static void check_page(const char *text)
{
    XML_Parser parser = XML_ParserCreate("UTF-8");
    assert_non_null(parser);
    if (XML_Parse(parser, text, (int)strlen(text), 1) != XML_STATUS_OK) {
        fail_msg("line %lu, column %lu: %s", XML_GetCurrentLineNumber(parser),
                 XML_GetCurrentColumnNumber(parser),
                 XML_ErrorString(XML_GetErrorCode(parser)));
    }
    XML_ParserFree(parser);
    const char *at = text;
    while ((at = strstr(at, "http")) != NULL) { /* the name of SVG is none */
        static const char name[] = "http://www.w3.org/2000/svg\"";
        assert_memory_equal(at, name, sizeof(name) - 1);
        at += 4;
    }
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "href="));
    assert_null(strstr(text, "@import"));
}

static int count(const char *text, const char *word)
{
    int found = 0;
    while ((text = strstr(text, word)) != NULL) {
        found++;
        text++;
    }
    return found;
}

/* The page's facts, checked to be an element of their own. */
static cJSON *read_facts(const char *text)
{
    static const char begin[] = "id=\"weft-report\">";
    assert_int_equal(count(text, "<script"), 2);
    assert_int_equal(count(text, "</script"), 2);
    assert_int_equal(count(text, "]]>"), 2); /* of style and script */
    const char *from = strstr(text, begin);
    assert_non_null(from);
    from += sizeof(begin) - 1;
    const char *to = strchr(from, '<');
    assert_memory_equal(to, "</script>", 9);
    cJSON *facts = cJSON_ParseWithLength(from, (size_t)(to - from));
    assert_non_null(facts);
    return facts;
}

static const cJSON *get(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) {
        fail_msg("no %s", name);
    }
    return item;
}

/* data.paths, as they were given. */
static void check_paths(const cJSON *settings, const wefti_config *config)
{
    const cJSON *one;
    size_t found = 0;
    cJSON_ArrayForEach(one, settings)
    {
        if (strcmp(get(one, "key")->valuestring, "paths") == 0) {
            const cJSON *path;
            cJSON_ArrayForEach(path, get(one, "value"))
            {
                assert_string_equal(path->valuestring,
                                    config->data.paths[found++]);
            }
        }
    }
    assert_int_equal(found, 5);
}

static void test_page_odd_names_are_text(void **state)
{
    const char *folder = ((scratch *)*state)->dir;
    char path[512];
    fake f;
    snprintf(path, sizeof(path), "%.250s/odd.html", folder);
    make_fake(&f, path, 40);
    ASSERT_OK(wefti_page_try(&f.page));
    f.page.trace_error = strdup("</script><!--");
    wefti_summary_set_generated(&f.summary, "</ScRiPt ><script>", 18);
    assert_int_equal(wefti_page_write(&f.page, &f.config, &f.summary),
                     WEFT_ERR_SYSTEM); /* for the trace's sake */
    char *text = read_all(path);
    check_page(text);
    cJSON *facts = read_facts(text);
    assert_string_equal(get(facts, "config")->valuestring,
                        "odd <&\"'> name.yaml");
    assert_string_equal(get(facts, "name")->valuestring,
                        "odd <&\"'> name.yaml");
    assert_string_equal(
        get(cJSON_GetArrayItem(get(facts, "ranks"), 1), "host")->valuestring,
        "h<1>");
    assert_string_equal(get(facts, "machine")->valuestring,
                        "host0 <a> & \"b\"\n");
    assert_string_equal(get(get(facts, "trace"), "error")->valuestring,
                        "</script><!--");
    assert_string_equal(get(get(facts, "summary"), "generated")->valuestring,
                        "</ScRiPt ><script>");
    const cJSON *traffic = cJSON_GetArrayItem(get(facts, "traffic"), 0);
    assert_int_equal(get(traffic, "bytes")->valueint, 16000);
    assert_int_equal(get(get(facts, "history"), "stride")->valueint, 1);
    check_paths(get(facts, "settings"), &f.config);
    cJSON_Delete(facts);
    free(text);
    fini_fake(&f);
}

static void test_page_of_no_step_is_well_formed(void **state)
{
    const char *folder = ((scratch *)*state)->dir;
    char path[512];
    fake f;
    snprintf(path, sizeof(path), "%.250s/none.html", folder);
    make_fake(&f, path, 0);
    ASSERT_OK(wefti_page_write(&f.page, &f.config, &f.summary));
    char *text = read_all(path);
    check_page(text);
    cJSON *facts = read_facts(text);
    assert_true(cJSON_IsNull(get(facts, "median_step")));
    assert_int_equal(cJSON_GetArraySize(get(get(facts, "history"), "loss")), 0);
    cJSON_Delete(facts);
    free(text);
    fini_fake(&f);
}

static void test_page_of_ten_thousand_steps_is_small_and_says_so(void **state)
{
    const char *folder = ((scratch *)*state)->dir;
    char path[512];
    fake f;
    snprintf(path, sizeof(path), "%.250s/long.html", folder);
    make_fake(&f, path, 10000);
    ASSERT_OK(wefti_page_write(&f.page, &f.config, &f.summary));
    char *text = read_all(path);
    check_page(text);
    assert_true(strlen(text) < PAGE_BYTES_MOST);
    cJSON *facts = read_facts(text);
    assert_int_equal(get(get(facts, "history"), "stride")->valueint, 32);
    cJSON_Delete(facts);
    free(text);
    fini_fake(&f);
}

/* A step that ran just as the simulator says, as if it had been measured. */
static void make_plan(fake *f, const char *name, double p2p,
                      weft_schedule **schedule_out, double *makespan_out)
{
    weft_schedule_config shape = {.size_bytes = sizeof(shape),
                                  .name = name,
                                  .ranks = 2,
                                  .microbatches = 8};
    weft_stage_cost stages[4] = {
        {1, 1.25, 0.75, 2}, {1.5, 1, 0.5, 1.5}, {1, 1, 1, 2}, {2, 1, 1, 2}};
    weft_schedule_cost cost = {.size_bytes = sizeof(cost),
                               .f = 3,
                               .i = 2.5,
                               .w = 2,
                               .b = 4,
                               .fb = 5.5,
                               .stages = stages,
                               .p2p = p2p};
    weft_schedule_run measured;
    ASSERT_OK(weft_schedule_create(&shape, schedule_out));
    ASSERT_OK(weft_schedule_simulate(*schedule_out, &cost, true, &measured));
    *makespan_out = measured.makespan;
    const wefti_pipe_job job = {.ranks = 2, .microbatches = 8, .layers = 4};
    ASSERT_OK(wefti_page_plan_init(&f->page.plan, *schedule_out, &measured,
                                   &job, NULL));
}

static void test_page_plan_finds_the_costs_it_ran_with(void **state)
{
    static const char *const names[] = {"gpipe", "1f1b",     "interleaved",
                                        "zb_h1", "zbv",      "dualpipe",
                                        "zb_h2", "dualpipev"};
    (void)state;
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        for (int slow = 0; slow < 2; slow++) {
            fake f = {0};
            weft_schedule *schedule;
            double makespan;
            make_plan(&f, names[k], slow * 0.25, &schedule, &makespan);
            const wefti_page_plan *plan = &f.page.plan;
            if (fabs(plan->planned.makespan - makespan) > 1e-9) {
                fail_msg("%s, p2p %g: planned %.17g, ran %.17g", names[k],
                         slow * 0.25, plan->planned.makespan, makespan);
            }
            assert_true(fabs(plan->cost.p2p - slow * 0.25) < 1e-9);
            assert_true(plan->found.stages[0].f == 1 &&
                        plan->found.stages[0].b == 2);
            bool splits = strncmp(names[k], "zb", 2) == 0;
            bool whole = k < 3; /* has B alone */
            assert_true(!splits || plan->found.split_known);
            assert_true(!whole || !plan->found.split_known);
            assert_true(plan->advice->found.count >= 8);
            wefti_page_plan_fini(&f.page.plan);
            weft_schedule_destroy(schedule);
        }
    }
}

static void test_page_plan_counts_what_was_put_off(void **state)
{
    weft_schedule *schedule;
    size_t deferred, waiting;
    static const char list[] = "0F0,0F1,0I0,0W0,0I1\n1F0,1I0,1F1,1I1,1W0,1W1\n";
    (void)state;
    ASSERT_OK(weft_schedule_read(list, sizeof(list) - 1, 1, 0, &schedule));
    wefti_page_plan_deferred(schedule, 0, &deferred, &waiting);
    assert_int_equal(deferred, 0);
    assert_int_equal(waiting, 1);
    wefti_page_plan_deferred(schedule, 1, &deferred, &waiting);
    assert_int_equal(deferred, 2);
    assert_int_equal(waiting, 2);
    weft_schedule_destroy(schedule);
}

/* Each action once, under the times it was planned and ran at. */
static void check_timeline(const cJSON *found, const wefti_page_plan *plan)
{
    const weft_action *actions;
    char text[WEFT_ACTION_TEXT_BYTES];
    const cJSON *timeline = get(found, "timeline");
    assert_int_equal(cJSON_GetArraySize(timeline), 2);
    for (int r = 0; r < 2; r++) {
        const cJSON *rank = cJSON_GetArrayItem(timeline, r);
        size_t count_of =
            weft_schedule_get_actions(plan->schedule, r, &actions);
        const weft_schedule_span *spans = plan->planned.ranks[r].spans;
        assert_int_equal(cJSON_GetArraySize(rank), count_of);
        const cJSON *one = rank->child;
        for (size_t k = 0; k < count_of; k++) {
            const cJSON *begin = get(one, "planned_ms")->child;
            weft_action_pack(&actions[k], text);
            assert_string_equal(get(one, "action")->valuestring, text);
            assert_true(!(begin->valuedouble < spans[k].begin) &&
                        !(begin->valuedouble > spans[k].begin) &&
                        !(begin->next->valuedouble < spans[k].end) &&
                        !(begin->next->valuedouble > spans[k].end));
            assert_int_equal(cJSON_GetArraySize(get(one, "measured_ms")), 3);
            one = one->next;
        }
    }
}

static void test_page_with_pipeline_has_plan_and_run(void **state)
{
    const char *folder = ((scratch *)*state)->dir;
    char path[512];
    fake f;
    weft_schedule *schedule;
    double makespan;
    snprintf(path, sizeof(path), "%.250s/pipeline.html", folder);
    make_fake(&f, path, 5);
    make_plan(&f, "zbv", 0.25, &schedule, &makespan);
    ASSERT_OK(wefti_page_write(&f.page, &f.config, &f.summary));
    char *text = read_all(path);
    check_page(text);
    cJSON *facts = read_facts(text);
    const cJSON *found = get(facts, "schedule");
    const cJSON *measured = get(found, "measured");
    assert_true(fabs(get(measured, "makespan_ms")->valuedouble - makespan) <
                1e-9);
    assert_true(fabs(get(get(found, "planned"), "bubble_ms")->valuedouble -
                     f.page.plan.planned.bubble) < 1e-9);
    assert_non_null(
        strstr(get(found, "advice")->valuestring, "is the fastest"));
    assert_int_equal(cJSON_GetArraySize(get(found, "candidates")),
                     f.page.plan.advice->found.count);
    check_timeline(found, &f.page.plan);
    cJSON_Delete(facts);
    free(text);
    fini_fake(&f);
    weft_schedule_destroy(schedule);
}

static void test_page_that_cannot_be_written_is_refused(void **state)
{
    const char *folder = ((scratch *)*state)->dir;
    char path[512], gone[512];
    wefti_page page;
    assert_int_equal(wefti_page_init(&page, "-"), WEFT_ERR_INVALID);
    assert_int_equal(wefti_page_init(&page, ""), WEFT_ERR_INVALID);
    snprintf(path, sizeof(path), "%.250s/none/a.html", folder);
    ASSERT_OK(wefti_page_init(&page, path));
    assert_int_equal(wefti_page_try(&page), WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "cannot be written"));
    wefti_page_fini(&page);
    ASSERT_OK(wefti_page_init(&page, folder));
    assert_int_equal(wefti_page_try(&page), WEFT_ERR_INVALID);
    wefti_page_fini(&page);
    /* What is there stays until the new one is whole. */
    fake f;
    snprintf(gone, sizeof(gone), "%.250s/sub", folder);
    assert_int_equal(mkdir(gone, 0700), 0);
    snprintf(path, sizeof(path), "%.250s/sub/old.html", folder);
    FILE *old = fopen(path, "w");
    assert_non_null(old);
    fputs("old", old);
    (void)fclose(old);
    make_fake(&f, path, 3);
    ASSERT_OK(wefti_page_try(&f.page));
    char *text = read_all(path);
    assert_string_equal(text, "old");
    free(text);
    ASSERT_OK(wefti_page_write(&f.page, &f.config, &f.summary));
    text = read_all(path);
    check_page(text);
    free(text);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(gone), 0); /* nothing else was left in it */
    assert_int_equal(wefti_page_write(&f.page, &f.config, &f.summary),
                     WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), "old.html: cannot be written"));
    fini_fake(&f);
}

static int open_folder(void **state)
{
    static scratch own;
    scratch_open(&own);
    *state = &own;
    return 0;
}

static int close_folder(void **state)
{
    scratch_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_odd_names_are_text),
        cmocka_unit_test(test_page_of_no_step_is_well_formed),
        cmocka_unit_test(test_page_of_ten_thousand_steps_is_small_and_says_so),
        cmocka_unit_test(test_page_plan_finds_the_costs_it_ran_with),
        cmocka_unit_test(test_page_plan_counts_what_was_put_off),
        cmocka_unit_test(test_page_with_pipeline_has_plan_and_run),
        cmocka_unit_test(test_page_that_cannot_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
