/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: modules are found beside the program itself, wherever it is started and
 * by whatever name, and nowhere else.
 * Method: this program, copied into a folder with a module beside it, and
 * started in another folder that has files of the same names.
 */
#include "base/module.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char module[] = "weft_test_module.so";

/* In the child: whether the module is the one of that folder, or none is found
 * where the folder is "". */
static int find(const char *folder)
{
    char path[PATH_MAX], want[PATH_MAX];
    const bool found = wefti_module_find(module, path);
    if (!*folder) {
        return found ? 1 : 0;
    }
    snprintf(want, sizeof(want), "%s/%s", folder, module);
    char *one = realpath(want, NULL), *other = realpath(path, NULL);
    const bool same = found && one && other && strcmp(one, other) == 0;
    if (!same) {
        fprintf(stderr, "found %s, not %s\n", found ? path : "none", want);
    }
    free(one);
    free(other);
    return same ? 0 : 1;
}

static void make_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
}

static void copy_self(const char *to)
{
    char bytes[1 << 16];
    const int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(in >= 0 && out >= 0);
    ssize_t got;
    while ((got = read(in, bytes, sizeof(bytes))) > 0) {
        assert_int_equal(write(out, bytes, (size_t)got), got);
    }
    assert_int_equal(got, 0);
    close(in);
    close(out);
}

/* Starts program in a folder under a name of its own; its exit status. */
static int start(const char *program, const char *where, const char *name,
                 const char *folder)
{
    pid_t child = fork();
    if (child == 0) {
        if (chdir(where) == 0) {
            execl(program, name, "look", folder, (char *)NULL);
        }
        _exit(99);
    }
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void remove_all(const char *base, const char *const *names)
{
    char path[PATH_MAX];
    for (; *names; names++) {
        snprintf(path, sizeof(path), "%s/%s", base, *names);
        remove(path);
    }
    rmdir(base);
}

static void test_module_is_sought_beside_the_program_itself(void **state)
{
    (void)state;
    char base[] = "/tmp/weft-module-XXXXXX";
    char home[64], decoy[64], program[128];
    static const char *const made[] = {"home/program",
                                       "home/weft_test_module.so",
                                       "home",
                                       "decoy/program",
                                       "decoy/weft_test_module.so",
                                       "decoy",
                                       NULL};
    assert_non_null(mkdtemp(base));
    snprintf(home, sizeof(home), "%s/home", base);
    snprintf(decoy, sizeof(decoy), "%s/decoy", base);
    snprintf(program, sizeof(program), "%s/program", home);
    assert_int_equal(mkdir(home, 0700), 0);
    assert_int_equal(mkdir(decoy, 0700), 0);
    copy_self(program);
    make_file(decoy, "program");
    make_file(decoy, module);
    /* None beside it: that of the working folder is not taken for one. */
    const int none = start(program, decoy, "program", "");
    make_file(home, module);
    const int by_name = start(program, decoy, "program", home);
    const int by_path = start(program, decoy, program, home);
    const int by_other = start(program, "/", "sh", home);
    remove_all(base, made);
    assert_int_equal(none, 0);
    assert_int_equal(by_name, 0);
    assert_int_equal(by_path, 0);
    assert_int_equal(by_other, 0);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return find(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_module_is_sought_beside_the_program_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
