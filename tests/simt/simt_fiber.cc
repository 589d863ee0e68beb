/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/simt_fiber.cc - fibers by 16 instructions on x86-64, elsewhere by
 * ucontext, which is several times slower as it asks the kernel for the signal
 * mask. Compiled without sanitizers; SIMT_ADDRESS and SIMT_THREAD say which one
 * the program has, to announce the switches to it.
 *
 * Source: sanitizer/common_interface_defs.h and sanitizer/tsan_interface.h of
 * gcc 12; System V ABI for AMD64, 3.2.1 (registers that a call preserves).
 */
#if !defined(__x86_64__) && !defined(SIMT_UCONTEXT)
#error "this processor's fibers need SIMT_UCONTEXT"
#endif
#include "tests/simt/simt_fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#ifdef SIMT_ADDRESS
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMT_THREAD
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024 };

static simt_fiber *switched_from, *switched_to;

static void announce(simt_fiber *from, simt_fiber *to, bool ends)
{
    switched_from = from;
    switched_to = to;
#ifdef SIMT_ADDRESS
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->fake_stack,
                                   to->stack, to->stack_bytes);
#endif
#ifdef SIMT_THREAD
    __tsan_switch_to_fiber(to->race_state, __tsan_switch_to_fiber_no_sync);
#endif
    (void)ends;
}

static void arrived(simt_fiber *here)
{
#ifdef SIMT_ADDRESS
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(here->fake_stack, &bottom, &bytes);
    if (!switched_from->stack) {
        switched_from->stack = static_cast<char *>(const_cast<void *>(bottom));
        switched_from->stack_bytes = bytes;
    }
#endif
    (void)here;
}

static void enter()
{
    simt_fiber *fiber = switched_to;
    arrived(fiber);
    fiber->entry(fiber->arg);
    fputs("simt: a fiber's entry returned\n", stderr);
    abort();
}

#ifdef SIMT_UCONTEXT
static void jump(simt_fiber *from, simt_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

static void prepare(simt_fiber *fiber)
{
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = fiber->stack_bytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, enter, 0);
}
#else
extern "C" void simt_fiber_jump(void **save, void *load);
asm(".text\n"
    ".type simt_fiber_jump, @function\n"
    "simt_fiber_jump:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size simt_fiber_jump, . - simt_fiber_jump\n");

static void jump(simt_fiber *from, simt_fiber *to)
{
    simt_fiber_jump(&from->stack_pointer, to->stack_pointer);
}

/* Six registers, then where to return to, then no caller. */
static void prepare(simt_fiber *fiber)
{
    uint64_t *top =
        reinterpret_cast<uint64_t *>(fiber->stack + fiber->stack_bytes);
    for (int i = 1; i <= 8; i++) {
        top[-i] = 0;
    }
    top[-2] = reinterpret_cast<uint64_t>(enter);
    fiber->stack_pointer = top - 8;
}
#endif

void simt_fiber_host(simt_fiber *host)
{
    *host = simt_fiber();
#ifdef SIMT_THREAD
    host->race_state = __tsan_get_current_fiber();
#endif
}

void simt_fiber_init(simt_fiber *fiber)
{
    *fiber = simt_fiber();
    void *memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fiber->stack = static_cast<char *>(memory) + GUARD_BYTES;
    fiber->stack_bytes = STACK_BYTES;
    if (memory == MAP_FAILED ||
        mprotect(fiber->stack, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        perror("simt: no memory for a thread's stack");
        abort();
    }
#ifdef SIMT_THREAD
    fiber->race_state = __tsan_create_fiber(0);
#endif
}

void simt_fiber_start(simt_fiber *fiber, void (*entry)(void *arg), void *arg)
{
    fiber->entry = entry;
    fiber->arg = arg;
    fiber->fake_stack = nullptr;
#ifdef SIMT_ADDRESS
    /* Its last run ended in the middle of its frames. */
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
#endif
    prepare(fiber);
}

void simt_fiber_switch(simt_fiber *from, simt_fiber *to, bool ends)
{
    announce(from, to, ends);
    jump(from, to);
    arrived(from);
}

void simt_sync_release(void *object)
{
#ifdef SIMT_THREAD
    __tsan_release(object);
#endif
    (void)object;
}

void simt_sync_acquire(void *object)
{
#ifdef SIMT_THREAD
    __tsan_acquire(object);
#endif
    (void)object;
}
