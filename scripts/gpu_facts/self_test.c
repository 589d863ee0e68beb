// SPDX-License-Identifier: BSD-3-Clause
/*
 * What can be tested without a GPU: that a question which hangs, crashes or
 * misbehaves costs only itself, that the JSON is well formed whatever a fact
 * holds, that no limit is beyond the whole, and, where the libraries are, that
 * the kernels compile and cuDNN takes every operation.
 */
#include "cu.h"
#include "sdpa_graph.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

static void expect(bool true_one, const char *what)
{
    printf("%s: %s\n", true_one ? "ok" : "FAILED", what);
    failures += !true_one;
}

enum { ANSWERS, HANGS, CRASHES, EXITS, GIVES_UP, PEER_HANGS, PEER_DIES };

static void hang(void)
{
    for (;;)
        pause();
}

static void bad_peer(int fd, int variant)
{
    (void)fd;
    if (variant == PEER_HANGS)
        hang();
    _exit(0);
}

static void ask_badly(int variant)
{
    char byte;
    fact_number("before", 42, "1", "sent before it goes wrong");
    switch (variant) {
    case HANGS:
        signal(SIGTERM, SIG_IGN);
        hang();
        break;
    case CRASHES:
        raise(SIGSEGV);
        break;
    case EXITS:
        _exit(9);
    case GIVES_UP:
        give_up("tab\tnewline\nquote\" and \\");
    case PEER_HANGS:
        peer_start(bad_peer, variant);
        break; /* ends, and leaves it behind */
    case PEER_DIES:
        peer_recv(peer_start(bad_peer, variant), &byte, 1);
        break;
    default:
        break;
    }
}

/* Asks VARIANT with a limit of one second; checks the outcome and what is said
 * of the rest. */
static void check_outcome(int variant, const char *want, const char *why)
{
    struct findings all = {0};
    struct question q = {"self", "", ask_badly, variant, 1, false};
    char outcome[128], what[320];
    double seconds = ask_question(&q, 1, 2, &all, outcome);
    bool good = strcmp(outcome, want) == 0 && all.nfacts >= 1 &&
                strcmp(all.facts[0].name, "before") == 0 &&
                strcmp(all.facts[0].value, "42") == 0 && seconds < 4;
    if (why)
        good =
            good && all.nfacts == 2 && strcmp(all.facts[1].why_not, why) == 0;
    else
        good = good && all.nfacts == 1;
    snprintf(what, sizeof(what), "\"%s\" after %.1f s (want \"%s\")", outcome,
             seconds, want);
    expect(good, what);
    free(all.facts);
}

/* Prints facts between two marks, for a JSON reader of somebody else's. */
static void show_json(void)
{
    static const struct fact facts[] = {
        {"self", "number", "1.5", "ms", "how", ""},
        {"self", "text", "quote \" back \\ slash", "", "tab\t", ""},
        {"self", "not_a_number", "nan", "ms", "how", ""},
        {"self", "infinite", "inf", "ms", "how", ""},
        {"self", "bytes", "\xff\xfe\x7f", "", "how", ""},
        {"self", "none", "", "", "", "why\nnot"},
    };
    printf("json: [");
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
        printf("%s", i ? ", " : "");
        json_fact(stdout, &facts[i]);
    }
    printf("]\n");
}

static void ask_compiler(int cc)
{
    char *cubin, *why;
    size_t bytes;
    if ((why = kernels_compile(cc, &cubin, &bytes)))
        give_up("%s", why);
    fact_number("cubin", (double)bytes, "bytes", "nvrtc");
}

static void ask_operations(int kind)
{
#ifdef GPU_FACTS_HAS_CUDNN
    static const int want[] = {14, 22, 1, 1};
    struct sdpa g = {.batch = 1,
                     .heads = 64,
                     .rows = 4096,
                     .width = 128,
                     .gradient = CUDNN_DATA_BFLOAT16};
    cudnn_open();
    sdpa_build(&g, (enum sdpa_kind)kind);
    if (g.failed[0] || g.nops != want[kind])
        give_up("graph %d, %d of %d operations: %s", kind, g.nops, want[kind],
                g.failed);
    fact_number("operations", g.nops, "1", "cudnnBackendFinalize");
#else
    give_up("graph %d: built without cudnn.h", kind);
#endif
}

/* A library that is not on this machine is no failure. */
static void check_library(void (*ask)(int), int variant, const char *name)
{
    struct findings all = {0};
    struct question q = {name, "", ask, variant, 60, false};
    char outcome[128], what[400];
    ask_question(&q, 60, 2, &all, outcome);
    const char *why = all.nfacts ? all.facts[0].why_not : "it sent nothing";
    bool absent = strstr(why, "can not be opened") || strstr(why, "without");
    snprintf(what, sizeof(what), "%s %d: %s %s", name, variant,
             absent ? "skipped," : outcome, why);
    expect(absent || strcmp(outcome, "answered") == 0, what);
    free(all.facts);
}

int self_test(const struct question *questions, int nquestions)
{
    int limits_s = 0;
    failures = 0;
    check_outcome(ANSWERS, "answered", NULL);
    check_outcome(HANGS, "stopped after its limit of 1 s",
                  "stopped after its limit of 1 s");
    check_outcome(CRASHES, "ended by signal 11 (Segmentation fault)",
                  "ended by signal 11 (Segmentation fault)");
    check_outcome(EXITS, "exit status 9", "exit status 9");
    check_outcome(GIVES_UP, "gave up", "tab newline quote\" and \\");
    check_outcome(PEER_HANGS, "answered", NULL);
    check_outcome(PEER_DIES, "gave up",
                  "the other process ended before it had answered");
    for (int i = 0; i < nquestions; i++)
        limits_s += questions[i].limit_s;
    expect(limits_s <= 210, "the limits together are near the whole's");
    show_json();
    check_library(ask_compiler, 90, "kernels for sm");
    check_library(ask_compiler, 80, "kernels for sm");
    for (int kind = 0; kind < 4; kind++)
        check_library(ask_operations, kind, "cudnn graph");
    printf("%d failures\n", failures);
    return failures;
}
