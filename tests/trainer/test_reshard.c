/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     what any layout has saved, any other goes on from: ranks, pipelines,
 *          schedules, buckets, embeddings tied or not. Parameters and both
 *          moments are what was saved, bit by bit, and later losses and norms
 *          those of the run that nobody stopped.
 * Method   each layout saves once, and two others go on from that, or one where
 *          that is slow (WEFT_TEST_LONG: all). The linker sends the read of a
 * savepoint here, after which the shares of all ranks are put together and
 *          compared with the files. Three copies are summed in another order,
 *          and so are the two ends of a tied embedding by how many ranks have
 *          them: losses are compared between layouts of one order.
 */
#include "tests/seed.h"
#include "tests/trainer/image.h"
#include "tests/trainer/job.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/checkpoint/savepoint.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STEPS = 4, SAVED = 2 };

static scratch own;

/* ---- what the ranks have read ---------------------------------------------
 */

/* Of all ranks; under the lock. The step's index is read by the test. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_checkpoint_index index_read;
static real **tensors; /* [index_read.count] at a tensor's first section */
static size_t elems_read;

static size_t find_tensor(const char *name)
{
    for (size_t i = 0; i < index_read.count; i++) {
        if (strcmp(index_read.sections[i].piece.name, name) == 0) {
            return i;
        }
    }
    fail_msg("no tensor %s in the index", name);
    return 0;
}

static void keep_piece(const wefti_checkpoint_piece *piece)
{
    size_t at = find_tensor(piece->name);
    assert_true(piece->elems > 0);
    memcpy(tensors[at] + piece->offset, piece->live,
           piece->elems * sizeof(real));
    elems_read += piece->elems;
}

weft_status __real_wefti_savepoint_read(const wefti_savepoint *point,
                                        wefti_replica *replica);
weft_status __wrap_wefti_savepoint_read(const wefti_savepoint *point,
                                        wefti_replica *replica);
weft_status __wrap_wefti_savepoint_read(const wefti_savepoint *point,
                                        wefti_replica *replica)
{
    wefti_state_list list;
    weft_status status = __real_wefti_savepoint_read(point, replica);
    if (status == WEFT_OK && tensors) {
        assert_int_equal(wefti_state_list_shares(replica, false, &list),
                         WEFT_OK);
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < list.count; i++) {
            keep_piece(&list.pieces[i]);
        }
        pthread_mutex_unlock(&lock);
        wefti_state_list_fini(&list);
    }
    return status;
}

static uint64_t count_elems(const wefti_checkpoint_piece *piece)
{
    return (piece->rows ? piece->rows : 1) * piece->columns;
}

static void open_index(void)
{
    image text = image_load(&own, "ckpt/step_00000002/index.json");
    assert_int_equal(wefti_checkpoint_index_unpack(text.path,
                                                   (char *)text.bytes,
                                                   text.count, &index_read),
                     WEFT_OK);
    tensors = calloc(index_read.count, sizeof(*tensors));
    assert_non_null(tensors);
    for (size_t i = 0; i < index_read.count; i++) {
        const wefti_checkpoint_piece *piece = &index_read.sections[i].piece;
        if (piece->offset == 0) {
            tensors[i] = calloc(count_elems(piece), sizeof(real));
            assert_non_null(tensors[i]);
        }
    }
}

/* Against the bytes of the files, section by section. */
static void close_index(void)
{
    size_t elems = 0, first = 0;
    for (size_t i = 0; i < index_read.count; i++) {
        const wefti_checkpoint_section *section = &index_read.sections[i];
        char name[96];
        snprintf(name, sizeof(name), "ckpt/step_00000002/rank_%05u.safetensors",
                 (unsigned)section->file);
        image file = image_load(&own, name);
        first = section->piece.offset == 0 ? i : first;
        assert_memory_equal(file.bytes + section->at_bytes,
                            tensors[first] + section->piece.offset,
                            section->piece.elems * sizeof(real));
        elems += section->piece.elems;
        free(file.bytes);
    }
    assert_int_equal(elems, elems_read);
    for (size_t i = 0; i < index_read.count; i++) {
        free(tensors[i]);
    }
    free(tensors);
    tensors = NULL;
    elems_read = 0;
    wefti_checkpoint_index_fini(&index_read);
}

/* ---- layouts --------------------------------------------------------------
 */

#define PIPELINE(ranks) "parallel.pipeline_model_parallel_size=" #ranks
#define SCHEDULE(name)  "parallel.schedule=" #name
#define CHUNKS(count)   "parallel.virtual_pipeline_model_parallel_size=" #count
#define BUCKETS(mb)     "overlap.bucket_mb=" #mb
#define TIED            "model.tie_embeddings=true"

typedef struct layout {
    int nranks;
    const char *settings[5];
} layout;

static const layout layouts[] = {
    {1, {BUCKETS(0.5)}},
    {4, {PIPELINE(4)}},
    {2, {PIPELINE(2), SCHEDULE(zbv), BUCKETS(0.05)}},
    {3, {BUCKETS(0.02), "train.elastic=true"}},
    {4, {PIPELINE(2), SCHEDULE(dualpipe)}},
    {2, {BUCKETS(0.001)}},
    {4, {PIPELINE(4), SCHEDULE(interleaved), CHUNKS(2)}},
    {4, {PIPELINE(2), SCHEDULE(dualpipev), BUCKETS(0.1)}},
    {4, {BUCKETS(0.012)}},
    {2, {PIPELINE(2)}},
    {4, {PIPELINE(4), SCHEDULE(zbv), BUCKETS(0.003)}},
    {4, {PIPELINE(2), SCHEDULE(interleaved), CHUNKS(4)}}};

enum { LAYOUTS = sizeof(layouts) / sizeof(*layouts) };

static job_result run_layout(const layout *cut, bool tied, const char *every,
                             const char *resume)
{
    job what = {.nranks = cut->nranks,
                .settings = {"model.layers=8", "model.hidden_size=16",
                             "model.heads=2", "model.ffn_size=24",
                             JOB_TOKENS(12, 4), "train.steps=4",
                             "train.validate_every=2", every},
                .resume = resume};
    for (size_t i = 0; cut->settings[i]; i++) {
        what.settings[8 + i] = cut->settings[i];
    }
    for (size_t i = 8; tied; i++) {
        if (!what.settings[i]) {
            what.settings[i] = TIED;
            break;
        }
    }
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks, %s: %s", cut->nranks, cut->settings[0],
                 result.error);
    }
    return result;
}

/* How sums are ordered: alike where this is. With a tied embedding it is by how
 * many ranks have its ends. */
static int find_order(const layout *cut, bool tied)
{
    const char *first = cut->settings[0];
    bool piped = strncmp(first, "parallel", 8) == 0;
    if (!piped || !tied) {
        return cut->nranks == 3 ? 3 : 1;
    }
    bool both_ways = cut->settings[1] &&
                     strstr(cut->settings[1], "=dualpipe") &&
                     !strstr(cut->settings[1], "=dualpipev");
    int copies = cut->nranks / (first[strlen(first) - 1] - '0');
    return 10 * copies + both_ways;
}

static void check_same(const job_result *wanted, const job_result *got)
{
    assert_int_equal(got->steps, STEPS - SAVED);
    for (size_t i = 0; i < got->steps; i++) {
        assert_true(wanted->loss[SAVED + i] == got->loss[i]);
        assert_true(wanted->grad_norm[SAVED + i] == got->grad_norm[i]);
    }
    assert_true(wanted->val_loss == got->val_loss);
    assert_int_equal(wanted->parameter_count, got->parameter_count);
    assert_memory_equal(wanted->parameters, got->parameters,
                        got->parameter_count * sizeof(real));
}

static void remove_folder(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%.250s/%.200s", own.dir, name);
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void go_on(const layout *from, const layout *to, bool tied,
                  const job_result *wanted)
{
    char dir[512];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    open_index();
    job_result got = run_layout(to, tied, "checkpoint.every=0", dir);
    close_index();
    if (find_order(from, tied) == find_order(to, tied)) {
        check_same(wanted, &got);
    }
    assert_int_equal(got.steps, STEPS - SAVED);
    if (got.head_copy) { /* the embedding is the first tensor */
        assert_memory_equal(got.head_copy, got.parameters,
                            got.head_elems * sizeof(real));
    }
    job_result_fini(&got);
}

/* Where that is slow every other layout saves, and the others with ties. */
static void check_matrix(bool tied, size_t others)
{
    const size_t by = others == 1 ? 2 : 1;
    for (size_t i = tied ? by - 1 : 0; i < LAYOUTS; i += by) {
        remove_folder("ckpt");
        job_result wanted =
            run_layout(&layouts[i], tied, "checkpoint.every=2", NULL);
        remove_folder("ckpt/step_00000004");
        for (size_t k = 1; k <= others; k++) {
            go_on(&layouts[i],
                  &layouts[(i + (others > 2 ? k : k * k)) % LAYOUTS], tied,
                  &wanted);
        }
        job_result_fini(&wanted);
    }
}

/* How many others go on from each. */
static size_t count_others(void)
{
    return getenv("WEFT_TEST_LONG") ? LAYOUTS - 1 : job_is_sanitized() ? 1 : 2;
}

static void test_reshard_from_each_layout_to_others(void **state)
{
    (void)state;
    check_matrix(false, count_others());
}

static void test_reshard_with_tied_embeddings(void **state)
{
    (void)state;
    check_matrix(true, count_others());
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshard_from_each_layout_to_others),
        cmocka_unit_test(test_reshard_with_tied_embeddings),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
