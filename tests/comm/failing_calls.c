/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/failing_calls.c - the calls, each in front of the real one.
 */
#include "tests/comm/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SITES_MOST = 512, KEYS_MOST = 8192 };

/* A place that makes a call, and how often it has done so in this run. */
typedef struct site {
    uintptr_t place;
    unsigned passed;
} site;

/* In shared memory; all but name and lock are guarded by lock. */
struct state {
    atomic_flag lock;
    failing_calls_mode mode;
    bool spent; /* a call has failed in this run */
    _Atomic(const char *) name;
    uintptr_t place;
    int site_count, key_count;
    site sites[SITES_MOST];
    uint64_t keys[KEYS_MOST]; /* of calls that have failed */
};

static struct state *state;
static _Thread_local bool armed;

static void lock_state(void)
{
    while (atomic_flag_test_and_set(&state->lock)) {
        sched_yield();
    }
}

static void unlock_state(void)
{
    atomic_flag_clear(&state->lock);
}

static site *find_site(uintptr_t place)
{
    for (int i = 0; i < state->site_count; i++) {
        if (state->sites[i].place == place) {
            return &state->sites[i];
        }
    }
    if (state->site_count == SITES_MOST) {
        abort();
    }
    state->sites[state->site_count] = (site){place, 0};
    return &state->sites[state->site_count++];
}

/* False: this very call has failed before. */
static bool add_key(uint64_t key)
{
    for (int i = 0; i < state->key_count; i++) {
        if (state->keys[i] == key) {
            return false;
        }
    }
    if (state->key_count == KEYS_MOST) {
        abort();
    }
    state->keys[state->key_count++] = key;
    return true;
}

/* Whether the call from place is to fail, with failure in errno. */
static bool fails(const char *name, const void *from, int failure)
{
    if (!state || !armed) {
        return false;
    }
    const uintptr_t place = (uintptr_t)from;
    lock_state();
    const unsigned passed = find_site(place)->passed++;
    const uint64_t key =
        place << 16 | (state->mode == FAILING_EACH_CALL ? passed : 0);
    const bool due = !state->spent && add_key(key);
    if (due) {
        state->spent = true;
        state->place = place;
        atomic_store(&state->name, name);
    }
    unlock_state();
    if (due) {
        errno = failure;
    }
    return due;
}

void failing_calls_open(failing_calls_mode mode)
{
    if (!state) {
        state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (state == MAP_FAILED) {
            abort();
        }
    }
    state->mode = mode;
    state->key_count = 0;
    failing_calls_begin_run();
}

void failing_calls_begin_run(void)
{
    lock_state();
    state->spent = false;
    state->site_count = 0;
    atomic_store(&state->name, NULL);
    unlock_state();
}

void failing_calls_arm(bool on)
{
    armed = on;
}

const char *failing_calls_get_name(void)
{
    return atomic_load(&state->name);
}

size_t failing_calls_get_place(void)
{
    Dl_info about;
    const void *place = (const void *)state->place; // NOLINT: an address
    return dladdr(place, &about)
               ? (size_t)(state->place - (uintptr_t)about.dli_fbase)
               : 0;
}

int failing_calls_count(void)
{
    return state->key_count;
}

/* ---- the calls ------------------------------------------------------------
 */

#define WRAPPED(type, name, failed, failure, parameters, arguments)            \
    type __real_##name parameters;                                             \
    type __wrap_##name parameters;                                             \
    type __wrap_##name parameters                                              \
    {                                                                          \
        if (fails(#name, __builtin_return_address(0), failure)) {              \
            return failed;                                                     \
        }                                                                      \
        return __real_##name arguments;                                        \
    }

WRAPPED(void *, malloc, NULL, ENOMEM, (size_t bytes), (bytes))
WRAPPED(void *, calloc, NULL, ENOMEM, (size_t count, size_t bytes),
        (count, bytes))
WRAPPED(void *, realloc, NULL, ENOMEM, (void *old, size_t bytes), (old, bytes))
WRAPPED(void *, aligned_alloc, NULL, ENOMEM, (size_t alignment, size_t bytes),
        (alignment, bytes))
WRAPPED(void *, mmap, MAP_FAILED, ENOMEM,
        (void *at, size_t bytes, int protection, int flags, int fd,
         off_t offset),
        (at, bytes, protection, flags, fd, offset))
WRAPPED(int, eventfd, -1, EMFILE, (unsigned value, int flags), (value, flags))
WRAPPED(int, memfd_create, -1, EMFILE, (const char *name, unsigned flags),
        (name, flags))
WRAPPED(int, ftruncate, -1, ENOSPC, (int fd, off_t bytes), (fd, bytes))
WRAPPED(int, pidfd_open, -1, EMFILE, (pid_t pid, unsigned flags), (pid, flags))
WRAPPED(int, socket, -1, EMFILE, (int domain, int type, int protocol),
        (domain, type, protocol))
WRAPPED(int, bind, -1, ENOBUFS,
        (int fd, const struct sockaddr *address, socklen_t bytes),
        (fd, address, bytes))
WRAPPED(int, listen, -1, ENOBUFS, (int fd, int backlog), (fd, backlog))
WRAPPED(int, connect, -1, ENOBUFS,
        (int fd, const struct sockaddr *address, socklen_t bytes),
        (fd, address, bytes))
WRAPPED(int, accept4, -1, EMFILE,
        (int fd, struct sockaddr *address, socklen_t *bytes, int flags),
        (fd, address, bytes, flags))
WRAPPED(int, getifaddrs, -1, EMFILE, (struct ifaddrs * *list), (list))
WRAPPED(int, fstat, -1, ENOMEM, (int fd, struct stat *about), (fd, about))
WRAPPED(int, stat, -1, ENOMEM, (const char *path, struct stat *about),
        (path, about))
WRAPPED(FILE *, fopen, NULL, EMFILE, (const char *path, const char *mode),
        (path, mode))
WRAPPED(void *, dlopen, NULL, ENOMEM, (const char *path, int flags),
        (path, flags))
WRAPPED(ssize_t, sendmsg, -1, ENOBUFS,
        (int fd, const struct msghdr *message, int flags), (fd, message, flags))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    if (fails("open", __builtin_return_address(0), EMFILE)) {
        return -1;
    }
    return __real_open(path, flags, mode);
}

typedef struct start {
    void *(*run)(void *argument);
    void *argument;
} start;

static void *run_armed(void *argument)
{
    const start own = *(start *)argument;
    free(argument);
    armed = true;
    return own.run(own.argument);
}

int __real_pthread_create(pthread_t *thread_out,
                          const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread_out,
                          const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread_out,
                          const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument)
{
    if (fails("pthread_create", __builtin_return_address(0), EAGAIN)) {
        return EAGAIN;
    }
    if (!armed) {
        return __real_pthread_create(thread_out, attributes, run, argument);
    }
    start *own = __real_malloc(sizeof(*own));
    if (!own) {
        abort();
    }
    *own = (start){run, argument};
    int failure = __real_pthread_create(thread_out, attributes, run_armed, own);
    if (failure) {
        free(own);
    }
    return failure;
}
