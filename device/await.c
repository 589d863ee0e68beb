/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/await.c - spin, yield, sleep: in that order, each for longer.
 *
 * A spin saves the two context switches of a sleep when the other side runs
 * on another CPU; where there are fewer CPUs than threads it only keeps the
 * other side from running. So each thread learns how long spinning pays: a
 * spin in vain halves the next, one that pays doubles it, and now and then a
 * full one is tried in case the machine has become less busy.
 */
#include "device/await.h"

#include "base/clock.h"
#include "device/holds.h"
#include "device/object.h"

#include <sched.h>
#include <time.h>

enum {
    SPIN_NS = 20 * 1000,         /* about what sleeping and waking cost */
    SPIN_LEAST_NS = 500,         /* for an answer that is on its way */
    FULL_SPIN_EVERY = 256,       /* in vain, costs little on average */
    LOOKS_PER_CLOCK = 32,        /* a clock call costs as much as some pauses */
    YIELDS = 4,                  /* lets a peer on the same CPU finish */
    SLEEP_NS = 20 * 1000 * 1000, /* looks again after this, come what may */
    POLL_NS = 1000 * 1000,       /* no device's answer is much faster to have */
    SLICE_NS = 100 * 1000,       /* and from then on this seldom, */
    SLICE_MOST_NS = 1000 * 1000, /* after some 30 ms only so often */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

bool wefti_await_may_spin(void)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    /* A mask too long for cpu_set_t fails: such a machine has many CPUs. */
    return sched_getaffinity(0, sizeof(cpus), &cpus) != 0 ||
           CPU_COUNT(&cpus) > 1;
}

/* What this thread has learnt, from all that it waits for. */
static _Thread_local struct {
    int64_t spin_ns;
    unsigned spins;
} learnt;

static bool spin_until(int64_t end_ns, bool (*ready)(const void *arg),
                       const void *arg)
{
    do {
        for (int look = 0; look < LOOKS_PER_CLOCK; look++) {
            relax();
            if (ready(arg)) {
                return true;
            }
        }
    } while (wefti_clock_ns() < end_ns);
    return false;
}

static bool spin(bool (*ready)(const void *arg), const void *arg)
{
    int64_t spin_ns = learnt.spin_ns;
    if (learnt.spins++ % FULL_SPIN_EVERY == 0) {
        spin_ns = SPIN_NS;
    }
    bool paid = spin_until(wefti_clock_ns() + spin_ns, ready, arg);
    int64_t next_ns = paid ? 2 * spin_ns : learnt.spin_ns / 2;
    learnt.spin_ns = next_ns > SPIN_NS         ? SPIN_NS
                     : next_ns < SPIN_LEAST_NS ? SPIN_LEAST_NS
                                               : next_ns;
    return paid;
}

void wefti_await(wefti_doorbell *bell, bool spins,
                 bool (*ready)(const void *arg), const void *arg)
{
    if (ready(arg) || (spins && spin(ready, arg))) {
        return;
    }
    for (int yield = 0; yield < YIELDS; yield++) {
        sched_yield();
        if (ready(arg)) {
            return;
        }
    }
    bool done = false;
    while (!done) {
        uint32_t seen = wefti_doorbell_arm(bell);
        done = ready(arg);
        if (!done) {
            wefti_doorbell_sleep(bell, seen, SLEEP_NS);
        }
        wefti_doorbell_disarm(bell, seen);
    }
}

void wefti_poll(weft_device *device, bool (*ready)(const void *arg),
                const void *arg)
{
    if (ready(arg) || (device->spins && spin(ready, arg))) {
        return;
    }
    struct timespec slice = {.tv_nsec = SLICE_NS};
    const int64_t end_ns = wefti_clock_ns() + POLL_NS;
    while (!ready(arg) && atomic_load(&device->failure) == WEFT_OK) {
        wefti_device_tend(device);
        if (wefti_clock_ns() < end_ns) {
            sched_yield();
        } else {
            nanosleep(&slice, NULL);
            slice.tv_nsec +=
                slice.tv_nsec < SLICE_MOST_NS ? slice.tv_nsec / 32 : 0;
        }
    }
}
