/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_fiber.h - one stack and one place in it: what each emulated
 * GPU thread runs on. All fibers of a launch run on the host thread that
 * launched, one at a time; control moves only by simt_fiber_switch.
 *
 * The sanitizers are told of each switch, and see fibers as they see threads.
 */
#ifndef TESTS_SIMT_SIMT_FIBER_H
#define TESTS_SIMT_SIMT_FIBER_H

#include <stddef.h>
#ifdef SIMT_UCONTEXT
#include <ucontext.h>
#endif

struct simt_fiber {
#ifdef SIMT_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    char *stack; /* lowest byte; the host's own is found at the first switch */
    size_t stack_bytes;
    void *fake_stack; /* of the address sanitizer */
    void *race_state; /* of the thread sanitizer */
    void (*entry)(void *arg);
    void *arg;
};

/* The running host thread as a fiber to switch from and back to. */
void simt_fiber_host(simt_fiber *host);

/*
 * Gives a fiber its stack, below which memory faults, for the rest of the
 * process. Started, and again after it ended, it calls entry(arg) when it is
 * first switched to; entry must not return.
 */
void simt_fiber_init(simt_fiber *fiber);
void simt_fiber_start(simt_fiber *fiber, void (*entry)(void *arg), void *arg);

/* Runs `to` until something switches back to `from`; ends: nothing will. */
void simt_fiber_switch(simt_fiber *from, simt_fiber *to, bool ends);

/* What happened before a release happens before what follows an acquire of the
 * same object, for the thread sanitizer. */
void simt_sync_release(void *object);
void simt_sync_acquire(void *object);

#endif
