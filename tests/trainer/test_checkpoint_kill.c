/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whatever instant a saving process is killed at, every step listed as
 * complete reads back whole, the last good one among them, and the next save
 * leaves nothing of the killed one behind.
 * Method: (1) every system call that changes the disk goes through a wrapper
 * here; a forked writer is killed before, and in the middle of or after, its
 * first such call, its second, and so on until it finishes; (2) writers in a
 * loop are killed at random times. Both print how often each phase was hit.
 */
#include "base/check.h"
#include "saving.h"
#include "scratch.h"
#include "tests/seed.h"
#include "trainer/checkpoint/checkpoint_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

/* X(name, text): where a kill struck, as the folder shows it afterwards. */
#define PHASE_LIST(X)                                                          \
    X(IDLE, "between saves")                                                   \
    X(WRITING, "files being written")                                          \
    X(PLACING, "new step sealed, not yet in its place, or one replaced")       \
    X(REMOVING, "older ones being removed")

enum phase {
#define PHASE_ENUM(name, text) PHASE_##name,
    PHASE_LIST(PHASE_ENUM)
#undef PHASE_ENUM
        PHASE_COUNT
};

static const char *const phase_texts[] = {
#define PHASE_TEXT(name, text) text,
    PHASE_LIST(PHASE_TEXT)
#undef PHASE_TEXT
};

/* In the child: disk calls left until the kill; below 0: never. */
static int calls_left = -1;
static bool kill_after; /* let that call happen, or half of it */

static bool is_last_call(void)
{
    if (calls_left < 0) {
        return false;
    }
    bool last = calls_left == 0;
    calls_left--;
    if (last && !kill_after) {
        kill(getpid(), SIGKILL);
    }
    return last;
}

static void end_call(bool last)
{
    if (last) {
        kill(getpid(), SIGKILL);
    }
}

/* The linker sends the calls of the code under test here (-Wl,--wrap). */
#define WRAP(name, parameters, arguments)                                      \
    int __real_##name parameters;                                              \
    int __wrap_##name parameters;                                              \
    int __wrap_##name parameters                                               \
    {                                                                          \
        bool last = is_last_call();                                            \
        int result = __real_##name arguments;                                  \
        end_call(last);                                                        \
        return result;                                                         \
    }

WRAP(fsync, (int fd), (fd))
WRAP(mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP(unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
WRAP(renameat, (int from_fd, const char *from, int to_fd, const char *to),
     (from_fd, from, to_fd, to))
WRAP(renameat2,
     (int from_fd, const char *from, int to_fd, const char *to, unsigned flags),
     (from_fd, from, to_fd, to, flags))
/* Variadic in the library; the mode is passed on though it may not be there. */
WRAP(open, (const char *path, int flags, mode_t mode), (path, flags, mode))
WRAP(openat, (int fd, const char *path, int flags, mode_t mode),
     (fd, path, flags, mode))

ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    bool last = is_last_call();
    ssize_t result = __real_write(fd, bytes, last ? count / 2 : count);
    end_call(last);
    return result;
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    bool last = is_last_call();
    ssize_t result = __real_pwrite(fd, bytes, last ? count / 2 : count, offset);
    end_call(last);
    return result;
}

static void assert_good(weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
}

/* Whether the temporary folder holds a whole DONE. */
static bool is_sealed(int fd, const wefti_checkpoint_folder *folder)
{
    char name[WEFTI_CHECKPOINT_FOLDER_BYTES], path[2 * sizeof(name)];
    struct stat what;
    wefti_checkpoint_folder_name(folder->step, folder->state, folder->session,
                                 name);
    snprintf(path, sizeof(path), "%s/DONE", name);
    return fstatat(fd, path, &what, 0) == 0 && what.st_size > 60;
}

/* The leftovers of a scene: see make_scene. */
static bool is_made_by_hand(const wefti_checkpoint_folder *folder)
{
    return folder->step == 30 && !folder->damaged;
}

/* The state of the folder after a kill, with keep complete steps allowed. */
static enum phase find_phase(const char *dir, size_t keep)
{
    wefti_checkpoint_folder *folders = NULL;
    size_t count = 0;
    size_t complete = 0;
    enum phase seen = PHASE_IDLE;
    int fd = open(dir, O_RDONLY | O_DIRECTORY, 0);
    assert_good(wefti_checkpoint_folder_scan(fd, dir, &folders, &count));
    for (size_t i = 0; i < count; i++) {
        enum phase here = PHASE_IDLE;
        if (folders[i].state == WEFTI_CHECKPOINT_NEW) {
            here = is_sealed(fd, &folders[i]) ? PHASE_PLACING : PHASE_WRITING;
        } else if (folders[i].state == WEFTI_CHECKPOINT_OLD) {
            here = PHASE_REMOVING;
        }
        /* A step without DONE is never to be seen. */
        assert_true(folders[i].state != WEFTI_CHECKPOINT_SAVED ||
                    folders[i].complete || is_made_by_hand(&folders[i]));
        complete += folders[i].complete;
        seen = here > seen ? here : seen;
    }
    close(fd);
    free(folders);
    return complete > keep ? PHASE_REMOVING : seen;
}

/* All listed steps read back; returns the newest, which must be there. */
static uint64_t verify_all(const char *dir)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    assert_good(wefti_checkpoint_list(dir, &steps, &count));
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert_good(saving_verify(dir, steps[i]));
    }
    uint64_t newest = steps[0];
    free(steps);
    return newest;
}

static void print_phases(const char *series, const int *hits)
{
    for (int i = 0; i < PHASE_COUNT; i++) {
        printf("%s: %5d times: %s\n", series, hits[i], phase_texts[i]);
    }
}

/* The steps saved before, the one whose saving is killed, what is legal. */
static const struct scene {
    uint64_t before[4]; /* 0-ended */
    uint64_t step;
    uint64_t newest[3]; /* 0-ended: which may be the newest afterwards */
    bool leftovers;
} scenes[] = {{{10, 20}, 30, {20, 30}, false},
              {{10, 20}, 20, {20}, false},
              {{10, 20, 30}, 15, {30}, false},
              {{10, 20}, 30, {20, 30}, true}};

static void make_scene(const struct scene *scene, scratch *own)
{
    for (size_t i = 0; scene->before[i] != 0; i++) {
        assert_good(saving_step(own->dir, scene->before[i], 3));
    }
    if (scene->leftovers) {
        scratch_folder(own, ".step_00000030.0123456789abcdef.new");
        scratch_text(
            own, ".step_00000030.0123456789abcdef.new/rank_00000.safetensors",
            "half");
        scratch_folder(own, "step_00000030");
        scratch_folder(own, ".step_00000010.old");
    }
}

/* One kill at disk call number call; false: the writer finished before it. */
static bool kill_at(const struct scene *scene, int call, bool after, int *hits)
{
    scratch own;
    int status = 0;
    scratch_open(&own);
    make_scene(scene, &own);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        kill_after = after;
        calls_left = call;
        weft_status saved = saving_step(own.dir, scene->step, 2);
        calls_left = -1;
        _exit(saved == WEFT_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    assert_true(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    hits[find_phase(own.dir, 3)]++;
    uint64_t newest = verify_all(own.dir);
    bool legal = false;
    for (size_t i = 0; i < 3; i++) {
        legal = legal || newest == scene->newest[i];
    }
    assert_true(legal && (killed || newest >= scene->step));
    assert_good(saving_step(own.dir, 40, 1));
    assert_int_equal(verify_all(own.dir), 40);
    assert_int_equal(find_phase(own.dir, 1), PHASE_IDLE);
    scratch_close(&own);
    return killed;
}

static void test_checkpoint_killed_at_each_disk_call_stays_whole(void **state)
{
    (void)state;
    int hits[PHASE_COUNT] = {0};
    int total = 0;
    for (size_t s = 0; s < WEFTI_COUNT_OF(scenes); s++) {
        for (int after = 0; after < 2; after++) {
            int call = 0;
            while (kill_at(&scenes[s], call, after != 0, hits)) {
                call++;
            }
            assert_true(call > 20);
            total += call;
        }
    }
    print_phases("each call", hits);
    printf("each call: %d kills\n", total);
    for (int i = 0; i < PHASE_COUNT; i++) {
        assert_true(hits[i] > 0);
    }
}

static void run_writer(const char *dir, uint64_t step)
{
    while (saving_step(dir, step, 2) == WEFT_OK) {
        step++;
    }
    _exit(1);
}

static void test_checkpoint_killed_at_random_times_stays_whole(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    int kills = getenv("WEFT_TEST_LONG") != NULL ? 3000 : 200;
    int hits[PHASE_COUNT] = {0};
    scratch own;
    scratch_open(&own);
    assert_good(saving_step(own.dir, 1, 2));
    uint64_t newest = 1;
    for (int i = 0; i < kills; i++) {
        int status = 0;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            run_writer(own.dir, newest + 1);
        }
        long wait_ns = (long)(random_next(&seed) % 6000000);
        nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        hits[find_phase(own.dir, 2)]++;
        uint64_t found = verify_all(own.dir);
        assert_true(found >= newest);
        newest = found;
    }
    print_phases("random", hits);
    printf("random: %d kills, %llu steps saved\n", kills,
           (unsigned long long)newest);
    assert_true(newest > 1 && hits[PHASE_WRITING] > 0);
    scratch_close(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint_killed_at_each_disk_call_stays_whole),
        cmocka_unit_test(test_checkpoint_killed_at_random_times_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
