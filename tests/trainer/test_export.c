/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     an export that fails anywhere ends every rank with an error and
 *          leaves nothing behind; a name that another takes meanwhile costs no
 *          model.
 * Method   each call that changes the disk fails in turn, on one rank and in a
 *          pipeline, until the export has made its last one and is complete.
 */
#include "tests/trainer/job.h"
#include "trainer/exchange/hugging_face.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Calls of rank 0's export still to go well; below 0: none fails. */
static _Thread_local bool exporting;
static int left = -1;
static bool takes_name; /* somebody, just before it is taken */

static bool fails(void)
{
    if (!exporting || left < 0) {
        return false;
    }
    if (left-- == 0) {
        errno = ENOSPC;
        return true;
    }
    return false;
}

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
weft_status __real_wefti_hugging_face_export(wefti_replica *replica,
                                             const char *dir);
weft_status __wrap_wefti_hugging_face_export(wefti_replica *replica,
                                             const char *dir);

int __wrap_open(const char *path, int flags, mode_t mode)
{
    return fails() ? -1 : __real_open(path, flags, mode);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    return fails() ? -1 : __real_write(fd, bytes, count);
}

int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    return fails() ? -1 : __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to)
{
    char inside[600];
    if (fails()) {
        return -1;
    }
    if (exporting && takes_name) {
        snprintf(inside, sizeof(inside), "%.500s/theirs", to);
        scratch_require(__real_mkdir(to, 0700) == 0, to);
        scratch_require(__real_mkdir(inside, 0700) == 0, inside);
    }
    return __real_rename(from, to);
}

weft_status __wrap_wefti_hugging_face_export(wefti_replica *replica,
                                             const char *dir)
{
    exporting = replica->rank == 0;
    weft_status status = __real_wefti_hugging_face_export(replica, dir);
    exporting = false;
    return status;
}

/* How many names in the scratch folder begin so. */
static int count_names(const scratch *own, const char *start)
{
    int count = 0;
    DIR *folder = opendir(own->dir);
    scratch_require(folder != NULL, own->dir);
    for (struct dirent *entry = readdir(folder); entry;
         entry = readdir(folder)) {
        count += strncmp(entry->d_name, start, strlen(start)) == 0;
    }
    closedir(folder);
    return count;
}

static job_result export_to(scratch *own, const char *place, bool piped)
{
    const job what = {.nranks = piped ? 2 : 1,
                      .settings = {"train.steps=0",
                                   "data.validation_fraction=0",
                                   piped ? "parallel.pipeline_model_parallel_"
                                           "size=2"
                                         : NULL},
                      .export_hf = place};
    return job_run(own, &what);
}

static void fail_each_call(bool piped)
{
    scratch own;
    char place[300];
    weft_status status = WEFT_ERR_SYSTEM;
    int calls = 0;
    scratch_open(&own);
    job_prepare(&own, 5);
    snprintf(place, sizeof(place), "%.250s/llama", own.dir);
    for (; status != WEFT_OK; calls++) {
        left = calls;
        job_result result = export_to(&own, place, piped);
        status = result.status;
        if (left < 0 && status != WEFT_OK) { /* the call has failed */
            assert_int_equal(status, WEFT_ERR_SYSTEM);
            assert_non_null(strstr(result.error, "No space left"));
            /* Where only its last fsync has failed it has its name. */
            int there = count_names(&own, "llama");
            bool named = access(place, F_OK) == 0;
            bool kept = strstr(result.error, "and stays") != NULL;
            assert_int_equal(there, named || kept);
            if (there) {
                assert_true(calls > 10);
                scratch_close(&own);
                scratch_open(&own);
                job_prepare(&own, 5);
                snprintf(place, sizeof(place), "%.250s/llama", own.dir);
            }
        }
        job_result_fini(&result);
    }
    assert_true(left >= 0); /* all calls have gone well */
    assert_true(calls > 20);
    assert_int_equal(count_names(&own, "llama"), 1);
    left = -1;
    scratch_close(&own);
}

static void test_export_failing_at_any_call_leaves_nothing(void **state)
{
    (void)state;
    fail_each_call(false);
    fail_each_call(true);
}

static void test_export_whose_name_is_taken_stays_beside_it(void **state)
{
    (void)state;
    scratch own;
    char place[300];
    scratch_open(&own);
    job_prepare(&own, 6);
    snprintf(place, sizeof(place), "%.250s/llama", own.dir);
    takes_name = true;
    job_result result = export_to(&own, place, false);
    takes_name = false;
    assert_int_equal(result.status, WEFT_ERR_SYSTEM);
    assert_non_null(strstr(result.error, "cannot have its name, and stays"));
    assert_int_equal(access(scratch_path(&own, "llama/theirs"), F_OK), 0);
    assert_int_equal(count_names(&own, "llama."), 1);
    job_result_fini(&result);
    scratch_close(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_export_failing_at_any_call_leaves_nothing),
        cmocka_unit_test(test_export_whose_name_is_taken_stays_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
