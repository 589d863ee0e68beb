/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    weft-run starts a job's ranks, hands them what they need, passes on
 *         signals and output, and ends with the right status and last line.
 * Method  the real program is run with small shell commands, and with
 *         run_helper, whose ranks truly meet; its output comes back through
 *         pipes and is compared. Every run has a deadline.
 */
#include "base/clock.h"
#include "started_run.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char RUN[] = WEFT_RUN;
static const char HELPER[] = RUN_HELPER;

static run r; /* the one that a test looks at */

static void test_run_ranks_get_their_environment(void **state)
{
    (void)state;
    char script[] = "echo $WEFT_RANK/$WEFT_NRANKS/$WEFT_RANKS_PER_PROCESS "
                    "${#WEFT_SECRET} ${WEFT_RENDEZVOUS%:*} "
                    "fd ${WEFT_RENDEZVOUS_FD:+yes}";
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "4", "--ranks-per-process", "2",
                                          "sh", "-c", script)),
                     0);
    assert_non_null(strstr(r.out, "0/4/2 64 127.0.0.1 fd yes\n"));
    assert_non_null(strstr(r.out, "2/4/2 64 127.0.0.1 fd\n"));
    assert_string_equal(r.err, "");
}

static void test_run_only_rank_0_reads_stdin(void **state)
{
    (void)state;
    char script[] = "echo $WEFT_RANK $(readlink /proc/self/fd/0)";
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", "sh", "-c", script)), 0);
    assert_non_null(strstr(r.out, "1 /dev/null\n"));
}

static void test_run_first_failure_decides(void **state)
{
    (void)state;
    char script[] = "test $WEFT_RANK = 1 && exit 3; exec sleep 60";
    const int64_t start_ns = wefti_clock_ns();
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "3", "sh", "-c", script)), 3);
    assert_last_line(&r, "weft-run: rank 1: exit 3 before any operation");
    assert_true(wefti_clock_ns() - start_ns < INT64_C(30000000000));
}

/* Nobody could see the end of a connection that was never made. */
static void test_run_rank_that_ends_before_the_meeting_is_named(void **state)
{
    (void)state;
    static const struct {
        int rank;
        const char *how, *named;
    } cases[] = {{1, "exit 0", "(exit 0)"},
                 {1, "kill -9 $$", "(signal 9)"},
                 {0, "exit 0", "(exit 0)"},
                 {0, "exit 3", "(exit 3)"}};
    char script[8192], text[96];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t begin_ns = wefti_clock_ns();
        snprintf(script, sizeof(script),
                 "[ $WEFT_RANK = %d ] && %s; exec '%s' join", cases[i].rank,
                 cases[i].how, HELPER);
        snprintf(text, sizeof(text), "rank %d ended %s before it joined",
                 cases[i].rank, cases[i].named);
        assert_true(run_all(&r, RUN_ARGS("-n", "3", "sh", "-c", script)) > 0);
        assert_non_null(strstr(r.err, text));
        assert_true(wefti_clock_ns() - begin_ns < INT64_C(15000000000));
    }
}

static void test_run_survivors_may_still_speak(void **state)
{
    (void)state;
    char script[] = "test $WEFT_RANK = 1 && kill -9 $$; sleep 0.2; "
                    "echo survivor; exit 7";
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", "sh", "-c", script)),
                     128 + SIGKILL);
    assert_string_equal(r.out, "survivor\n");
    assert_last_line(&r, "weft-run: rank 1: SIGKILL before any operation");
}

static void test_run_deaf_survivors_are_killed(void **state)
{
    (void)state;
    char script[] = "test $WEFT_RANK = 0 && exit 5; trap '' TERM; "
                    "while :; do sleep 0.1; done";
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", "sh", "-c", script)), 5);
    assert_last_line(&r, "weft-run: rank 0: exit 5 before any operation");
}

static void test_run_16_ranks_meet(void **state)
{
    (void)state;
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "16", HELPER, "join")), 0);
    assert_string_equal(r.err, "");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "16", "--ranks-per-process",
                                          "4", HELPER, "join")),
                     0);
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "1", HELPER, "join")), 0);
    assert_string_equal(r.err, "");
}

static void test_run_ranks_watch_each_other(void **state)
{
    (void)state;
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "3", HELPER, "watch")), 0);
    assert_string_equal(r.err, "");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "6", "--ranks-per-process", "2",
                                          HELPER, "watch")),
                     0);
    assert_string_equal(r.err, "");
}

static void test_run_last_operation_is_named(void **state)
{
    (void)state;
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "3", HELPER, "die")),
                     128 + SIGKILL);
    assert_last_line(
        &r, "weft-run: rank 2: SIGKILL after all_reduce #417 on \"world\"");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "4", "--ranks-per-process", "2",
                                          HELPER, "die")),
                     128 + SIGKILL);
    assert_last_line(
        &r, "weft-run: ranks 2-3: SIGKILL after all_reduce #417 on \"world\"");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "3", HELPER, "split")),
                     128 + SIGKILL);
    assert_last_line(&r,
                     "weft-run: rank 1: SIGKILL after all_reduce #7 on \"dp\"");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", HELPER, "list")),
                     128 + SIGKILL);
    assert_last_line(&r, "weft-run: rank 1: SIGKILL after recv #5 from rank 0 "
                         "on \"world\"");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", HELPER, "put")),
                     128 + SIGKILL);
    assert_last_line(&r, "weft-run: rank 1: SIGKILL after put to rank 0, "
                         "memory #1 on \"world\"");
}

static void test_run_stopped_rank_is_no_failure(void **state)
{
    (void)state;
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", HELPER, "stop")), 0);
    assert_string_equal(r.err, "");
}

static void test_run_timeout_says_where_ranks_are(void **state)
{
    (void)state;
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "3", "--timeout", "0.3", "sleep", "60")),
        124);
    assert_last_line(&r, "weft-run: timeout after 0.3 s: ranks 0 1 2 before "
                         "any operation");
}

static void test_run_signals_go_to_all(void **state)
{
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGHUP};
    (void)state;
    char script[] = "for s in USR1 USR2 INT TERM HUP; do "
                    "trap \"echo got $s; exit 0\" $s; done; "
                    "echo ready; while :; do sleep 0.05; done";
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char expected[32];
        run_start(&r, RUN_ARGS("-n", "3", "sh", "-c", script));
        assert_true(run_read_until(&r, "ready\n", 3));
        kill(r.pid, numbers[i]);
        snprintf(expected, sizeof(expected), "got %s\n",
                 sigabbrev_np(numbers[i]));
        assert_true(run_read_until(&r, expected, 3));
        assert_int_equal(run_end(&r), 0);
    }
}

/* Nobody goes on, and whom the last line names need not be named before. */
static void test_run_elastic_told_to_end_says_it_once(void **state)
{
    (void)state;
    run_start(&r, RUN_ARGS("-n", "3", "--elastic", "sh", "-c",
                           "echo ready; exec sleep 300"));
    assert_true(run_read_until(&r, "ready\n", 3));
    kill(r.pid, SIGTERM);
    assert_int_equal(run_end(&r), 128 + SIGTERM);
    assert_null(strstr(r.err, "go on"));
    assert_non_null(strstr(r.err, ": SIGTERM before any operation\n"));
    assert_null(strstr(strchr(r.err, '\n') + 1, "weft-run"));
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "1", "--elastic", "sh", "-c", "exit 3")), 3);
    assert_string_equal(r.err,
                        "weft-run: rank 0: exit 3 before any operation\n");
}

/* Also where the others have ended well before. */
static void test_run_elastic_tells_of_a_loss_at_the_end(void **state)
{
    (void)state;
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "2", "--elastic", "sh", "-c",
                             "[ $WEFT_RANK = 0 ] || { sleep 0.3; exit 3; }")),
        0);
    assert_string_equal(r.err,
                        "weft-run: rank 1: exit 3 before any operation\n");
}

/* Neither gone nor waiting for its parent to ask. */
static bool is_alive(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) {
        return false;
    }
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    return got > 0 && !strstr(text, ") Z ") && !strstr(text, ") X ");
}

static void test_run_ranks_die_with_it(void **state)
{
    (void)state;
    pid_t pids[3];
    char script[] = "echo pid $$ ready; exec sleep 60";
    run_start(&r, RUN_ARGS("-n", "3", "sh", "-c", script));
    assert_true(run_read_until(&r, "ready\n", 3));
    const char *at = r.out;
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "pid ");
        assert_non_null(at);
        pids[i] = (pid_t)strtol(at + 4, NULL, 10);
        at += 4;
    }
    kill(r.pid, SIGKILL);
    /* Both streams end only when all that held them have gone. */
    assert_int_equal(run_end(&r), 1000 + SIGKILL);
    for (int i = 0; i < 3; i++) {
        while (is_alive(pids[i])) {
            sched_yield();
        }
    }
}

/* Two that end on SIGTERM, and two that do not. */
static void test_run_ends_what_ranks_leave_behind(void **state)
{
    (void)state;
    char script[] = "sleep 300 & echo left $!; "
                    "sh -c 'trap \"\" TERM; sleep 300' & echo left $!; "
                    "exit $((3 * WEFT_RANK))";
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "2", "sh", "-c", script)), 3);
    int left_count = 0;
    for (const char *at = r.out; (at = strstr(at, "left ")); at++) {
        pid_t pid = (pid_t)strtol(at + 5, NULL, 10);
        assert_true(pid > 0);
        assert_int_equal(kill(pid, 0), -1);
        left_count++;
    }
    assert_int_equal(left_count, 4);
}

static int run_shell(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_run_lost_output_is_a_failure(void **state)
{
    (void)state;
    static const char *const cases[] = {"--version", "--help",
                                        "-n 2 --label echo hello"};
    for (size_t i = 0; i < 3; i++) {
        char command[4096];
        snprintf(command, sizeof(command), "'%s' %s >/dev/full 2>/dev/null",
                 RUN, cases[i]);
        assert_int_equal(run_shell(command), 1);
    }
}

/* Nothing of the job takes the place of a closed 0, 1 or 2. */
static void test_run_closed_descriptors_job_works(void **state)
{
    (void)state;
    static const char *const closed[] = {"<&-",         ">&-",      "2>&-",
                                         "<&- >&-",     "<&- 2>&-", ">&- 2>&-",
                                         "<&- >&- 2>&-"};
    char command[8192];
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
        snprintf(command, sizeof(command), "exec '%s' -n 2 '%s' join %s", RUN,
                 HELPER, closed[i]);
        assert_int_equal(run_shell(command), 0);
    }
    snprintf(command, sizeof(command), "exec '%s' -n 2 '%s' die <&- 2>&-", RUN,
             HELPER);
    assert_int_equal(run_shell(command), 128 + SIGKILL);
}

static void test_run_labels_whole_lines(void **state)
{
    (void)state;
    char script[] = "printf 'one\\ntw'; sleep 0.1; printf 'o\\n\\nend'; "
                    "echo bad >&2";
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "2", "--label", "sh", "-c", script)), 0);
    for (int rank = 0; rank < 2; rank++) {
        static const char *const lines[] = {"one", "two", "", "end"};
        for (size_t i = 0; i < 4; i++) {
            char expected[32];
            snprintf(expected, sizeof(expected), "[%d] %s\n", rank, lines[i]);
            assert_non_null(strstr(r.out, expected));
        }
    }
    assert_int_equal(strlen(r.out), 2 * strlen("[0] one\n[0] two\n[0] \n"
                                               "[0] end\n"));
    assert_non_null(strstr(r.err, "[1] bad\n"));
}

static void test_run_labels_keep_every_line(void **state)
{
    (void)state;
    char script[] = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); "
                    "echo line $i of $WEFT_RANK; done; exit 0";
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "4", "--label", "sh", "-c", script)), 0);
    int next[4] = {0};
    for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
        int label, number, rank;
        assert_int_equal(
            sscanf(line, "[%d] line %d of %d", &label, &number, &rank), 3);
        assert_int_equal(label, rank);
        assert_int_equal(number, ++next[rank]);
    }
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(next[rank], 300);
    }
}

static void test_run_program_that_is_not_there(void **state)
{
    (void)state;
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "3", "./not-there")), 127);
    assert_string_equal(r.err, "weft-run: cannot run ./not-there: No such "
                               "file or directory\n");
    assert_int_equal(run_all(&r, RUN_ARGS("-n", "1", "/etc/passwd")), 127);
    assert_string_equal(r.err, "weft-run: cannot run /etc/passwd: Permission "
                               "denied\n");
}

/* What a rank printed of the CPUs it may use, as a bit set of the first 64. */
static uint64_t cpus_of_rank(const char *out, int rank)
{
    char line[32];
    uint64_t set = 0;
    snprintf(line, sizeof(line), "%d Cpus_allowed_list: ", rank);
    const char *at = strstr(out, line);
    assert_non_null(at);
    at += strlen(line);
    while (*at >= '0' && *at <= '9') {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            last = strtoul(end + 1, &end, 10);
        }
        for (unsigned long cpu = first; cpu <= last && cpu < 64; cpu++) {
            set |= (uint64_t)1 << cpu;
        }
        at = *end == ',' ? end + 1 : end;
    }
    return set;
}

static void test_run_binds_to_allowed_cores(void **state)
{
    (void)state;
    char script[] = "echo $WEFT_RANK $(grep Cpus_allowed_list "
                    "/proc/self/status)";
    cpu_set_t allowed;
    uint64_t whole = 0, taken = 0, all = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    for (size_t cpu = 0; cpu < 64; cpu++) {
        whole |= CPU_ISSET(cpu, &allowed) ? (uint64_t)1 << cpu : 0;
    }
    int cpus = CPU_COUNT(&allowed), ranks = cpus < 8 ? cpus : 8;
    char count[16];
    snprintf(count, sizeof(count), "%d", ranks);
    assert_int_equal(run_all(&r, RUN_ARGS("-n", count, "--bind", "core", "sh",
                                          "-c", script)),
                     0);
    for (int rank = 0; rank < ranks; rank++) {
        uint64_t own = cpus_of_rank(r.out, rank);
        assert_true(own != 0 && (own & ~whole) == 0);
        all |= own;
        taken += (uint64_t)__builtin_popcountll(own);
    }
    /* Nobody shares, unless a control group grants less time than CPUs. */
    assert_true(taken == (uint64_t)__builtin_popcountll(all) || all != whole);
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "2", "--bind", "none", "sh", "-c", script)),
        0);
    assert_int_equal(cpus_of_rank(r.out, 0), whole);
    assert_int_equal(cpus_of_rank(r.out, 1), whole);
    assert_int_equal(
        run_all(&r, RUN_ARGS("-n", "2", "--ranks-per-process", "2", "--bind",
                             "core", "sh", "-c", script)),
        0);
    assert_true((cpus_of_rank(r.out, 0) & ~whole) == 0);
}

static void test_run_json_has_every_rank(void **state)
{
    (void)state;
    char script[] = "test $WEFT_RANK = 1 && kill -9 $$; exit 4";
    (void)run_all(&r, RUN_ARGS("-n", "2", "--json", "-", "sh", "-c", script));
    assert_non_null(strstr(r.out, "\"nranks\": 2"));
    assert_non_null(strstr(r.out, "\"signal\": \"SIGKILL\""));
    assert_non_null(strstr(r.out, "\"exit\": 4"));
    assert_non_null(strstr(r.out, "\"first_failed\": "));
}

static void test_run_wrong_arguments_are_named(void **state)
{
    static const struct {
        const char *args[5];
        const char *text;
    } cases[] = {
        {{"true"}, "-n N is missing"},
        {{"-n", "2"}, "PROGRAM is missing"},
        {{"-n"}, "its value is missing"},
        {{"-n", "0", "true"}, "-n 0: allowed is a whole number from 1 to 1024"},
        {{"-n", "2x", "true"}, "-n 2x: allowed is"},
        {{"-n", "+2", "true"}, "-n +2: allowed is"},
        {{"-n", "1025", "true"}, "-n 1025: allowed is"},
        {{"-n=4", "--ranks-per-process=3", "true"},
         "--ranks-per-process 3: allowed is a divisor of -n 4"},
        {{"-n=1", "--bind=socket", "true"}, "--bind socket: allowed is"},
        {{"-n=1", "--timeout=0", "true"}, "--timeout 0: allowed is"},
        {{"-n=1", "--timeout=0x10", "true"}, "--timeout 0x10: allowed is"},
        {{"-n=1", "--timeout=nan", "true"}, "--timeout nan: allowed is"},
        {{"-n=1", "--label=yes", "true"}, "--label=yes: takes no value"},
        {{"-n=4", "--net-emulate", "2y2,1gbit", "true"},
         "--net-emulate 2y2,1gbit: allowed is"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(run_all(&r, cases[i].args), 2);
        if (!strstr(r.err, cases[i].text)) {
            print_message("%s", r.err);
        }
        assert_non_null(strstr(r.err, cases[i].text));
        assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
        assert_string_equal(r.out, "");
    }
}

static void test_run_help_and_version(void **state)
{
    (void)state;
    assert_int_equal(run_all(&r, RUN_ARGS("--help")), 0);
    assert_non_null(strstr(r.out, "examples:"));
    assert_int_equal(run_all(&r, RUN_ARGS("--version")), 0);
    assert_int_equal(strncmp(r.out, "weft-run 0.", 11), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_ranks_get_their_environment),
        cmocka_unit_test(test_run_only_rank_0_reads_stdin),
        cmocka_unit_test(test_run_first_failure_decides),
        cmocka_unit_test(test_run_rank_that_ends_before_the_meeting_is_named),
        cmocka_unit_test(test_run_survivors_may_still_speak),
        cmocka_unit_test(test_run_deaf_survivors_are_killed),
        cmocka_unit_test(test_run_16_ranks_meet),
        cmocka_unit_test(test_run_ranks_watch_each_other),
        cmocka_unit_test(test_run_last_operation_is_named),
        cmocka_unit_test(test_run_stopped_rank_is_no_failure),
        cmocka_unit_test(test_run_timeout_says_where_ranks_are),
        cmocka_unit_test(test_run_signals_go_to_all),
        cmocka_unit_test(test_run_elastic_told_to_end_says_it_once),
        cmocka_unit_test(test_run_elastic_tells_of_a_loss_at_the_end),
        cmocka_unit_test(test_run_ranks_die_with_it),
        cmocka_unit_test(test_run_ends_what_ranks_leave_behind),
        cmocka_unit_test(test_run_lost_output_is_a_failure),
        cmocka_unit_test(test_run_closed_descriptors_job_works),
        cmocka_unit_test(test_run_labels_whole_lines),
        cmocka_unit_test(test_run_labels_keep_every_line),
        cmocka_unit_test(test_run_program_that_is_not_there),
        cmocka_unit_test(test_run_binds_to_allowed_cores),
        cmocka_unit_test(test_run_json_has_every_rank),
        cmocka_unit_test(test_run_wrong_arguments_are_named),
        cmocka_unit_test(test_run_help_and_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
