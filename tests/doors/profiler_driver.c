/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/profiler_driver.c - where the fields of an event are, and what
 * is poisoned.
 */
#include "tests/doors/profiler_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlfcn.h>

#include <cmocka.h>

/* Where the fields are, by version: 0 is not used. */
static const struct {
    int coll_function, coll_count, coll_dtype;
    int p2p_function, p2p_dtype, p2p_count;
} places[PROFILER_VERSIONS + 1] = {[1] = {48, 72, 84, 40, 56, 64},
                                   [2] = {48, 72, 88, 40, 56, 64},
                                   [3] = {48, 72, 88, 40, 56, 64},
                                   [4] = {32, 56, 72, 24, 40, 48},
                                   [5] = {32, 56, 72, 24, 40, 48}};

static const void *table(void *library, int version)
{
    char name[32];
    snprintf(name, sizeof(name), "ncclProfiler_v%d", version);
    const void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

profiler_driver driver_open(void *library, int version, const char *name,
                            int nranks, int rank)
{
    profiler_driver opened = {
        .version = version, .any = table(library, version), .mask = -1};
    const uint64_t hash = 0xabcdef;
    int result = -1;
    if (version <= 3) {
        result = opened.any->init(&opened.context, &opened.mask);
    } else if (version == 4) {
        const wefti_profiler_v4 *v4 = table(library, version);
        result = v4->init(&opened.context, &opened.mask, name, hash, 1, nranks,
                          rank, NULL);
    } else {
        const wefti_profiler_v5 *v5 = table(library, version);
        result = v5->init(&opened.context, hash, &opened.mask, name, 1, nranks,
                          rank, NULL);
    }
    assert_int_equal(result, 0);
    return opened;
}

void driver_finalize(const profiler_driver *of)
{
    assert_int_equal(of->any->finalize(of->context), 0);
}

unsigned char *driver_event(const profiler_driver *of, size_t bytes,
                            uint64_t type, const void *parent)
{
    unsigned char *event = malloc(bytes);
    const int rank = 3;
    assert_non_null(event);
    memset(event, 0xa5, bytes);
    if (of->version == 5) {
        memcpy(event, &type, sizeof(type));
    } else {
        event[0] = (unsigned char)type;
    }
    memcpy(event + 8, &parent, sizeof(parent));
    memcpy(event + 16, &rank, sizeof(rank));
    return event;
}

void *driver_start(const profiler_driver *of, unsigned char *event)
{
    void *handle = &handle;
    assert_int_equal(of->any->start(of->context, &handle, (void *)event), 0);
    free(event);
    return handle;
}

void driver_stop(const profiler_driver *of, void *handle)
{
    assert_int_equal(of->any->stop(handle), 0);
}

static void put_pointer(unsigned char *event, int place, const void *value)
{
    memcpy(event + place, &value, sizeof(value));
}

static void put_name(const profiler_driver *of, unsigned char *event)
{
    const uint64_t hash = 0x123;
    if (of->version <= 3) {
        put_pointer(event, 24, "mine");
        memcpy(event + 32, &hash, sizeof(hash));
    }
}

/* Version 1 has numbers. */
static void put_word(const profiler_driver *of, unsigned char *event, int place,
                     int number, const char *name)
{
    if (of->version == 1) {
        event[place] = (unsigned char)number;
    } else {
        put_pointer(event, place, name);
    }
}

/* What the last field that may be read needs. */
static size_t event_bytes(const profiler_driver *of, int last_place)
{
    return (size_t)last_place + (of->version == 1 ? 1 : sizeof(void *));
}

void *driver_coll(const profiler_driver *of, int number, const char *name,
                  size_t count)
{
    const int last = places[of->version].coll_dtype;
    unsigned char *event = driver_event(of, event_bytes(of, last), COLL, NULL);
    put_name(of, event);
    put_word(of, event, places[of->version].coll_function, number, name);
    put_word(of, event, last, 7, "ncclFloat32");
    memcpy(event + places[of->version].coll_count, &count, sizeof(count));
    return driver_start(of, event);
}

void *driver_p2p(const profiler_driver *of, int number, const char *name,
                 size_t count)
{
    const int last = places[of->version].p2p_count;
    unsigned char *event =
        driver_event(of, (size_t)last + sizeof(count), P2P, NULL);
    put_name(of, event);
    put_word(of, event, places[of->version].p2p_function, number, name);
    put_word(of, event, places[of->version].p2p_dtype, 9, "ncclBfloat16");
    memcpy(event + last, &count, sizeof(count));
    return driver_start(of, event);
}

void *driver_channel(const profiler_driver *of, void *parent, uint64_t timer)
{
    const bool has_timer = of->version >= 4;
    unsigned char *event =
        driver_event(of, has_timer ? 40 : 25, KERNEL_CHANNEL, parent);
    event[24] = 5;
    if (has_timer) {
        memcpy(event + 32, &timer, sizeof(timer));
    }
    return driver_start(of, event);
}

void driver_channel_end(const profiler_driver *of, void *handle, uint64_t timer)
{
    const wefti_profiler_v4 *v4 = (const void *)of->any;
    uint64_t *argument = malloc(sizeof(*argument));
    *argument = timer;
    assert_int_equal(v4->record(handle, KERNEL_CHANNEL_STOP, (void *)argument),
                     0);
    free(argument);
    driver_stop(of, handle);
}

/* Where stderr went before; -1: it is there. */
static int own_stderr = -1;

int driver_teardown(void **state)
{
    (void)state;
    if (own_stderr >= 0) {
        assert_true(dup2(own_stderr, STDERR_FILENO) >= 0);
        close(own_stderr);
        own_stderr = -1;
    }
    return 0;
}

char *driver_logged(void (*call)(int), int argument)
{
    enum { TEXT_BYTES = 1 << 16 };
    char *text = malloc(TEXT_BYTES);
    FILE *kept = tmpfile();
    assert_non_null(text);
    assert_non_null(kept);
    own_stderr = dup(STDERR_FILENO);
    assert_true(dup2(fileno(kept), STDERR_FILENO) >= 0);
    call(argument);
    driver_teardown(NULL);
    rewind(kept);
    text[fread(text, 1, TEXT_BYTES - 1, kept)] = '\0';
    fclose(kept);
    return text;
}
