/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/doors/profiler_driver.h - what NCCL does with a profiler: opens a
 * version's table for a communicator, and hands it events.
 *
 * Events are written byte by byte, at the places where NCCL's headers have the
 * fields: of the library's own declarations only the tables' are used. An event
 * is a piece of memory that ends behind the last field that may be read, so
 * that a sanitizer sees a look beyond; what is not written is poison.
 */
#ifndef TESTS_DOORS_PROFILER_DRIVER_H
#define TESTS_DOORS_PROFILER_DRIVER_H

#include "doors/nccl/profiler_abi.h"

#include <stddef.h>
#include <stdint.h>

/* NCCL's numbers: kinds of events, a change of state. */
enum {
    GROUP = 1,
    COLL = 2,
    P2P = 4,
    PROXY_OP = 8,
    KERNEL_CHANNEL = 64,
    COLL_API = 512,
    KERNEL_CHANNEL_STOP = 22,
    PROFILER_VERSIONS = 5
};

/* Any version's table; init is called through its own. */
typedef struct profiler_driver {
    int version;
    const wefti_profiler_v1 *any;
    void *context;
    int mask;
} profiler_driver;

/* A communicator of version's; versions up to 3 are not told of what follows.
 */
profiler_driver driver_open(void *library, int version, const char *name,
                            int nranks, int rank);
void driver_finalize(const profiler_driver *of);

/* An event of so many bytes; type, parent and rank 3 are written. */
unsigned char *driver_event(const profiler_driver *of, size_t bytes,
                            uint64_t type, const void *parent);

/* Its handle; the event is freed. */
void *driver_start(const profiler_driver *of, unsigned char *event);
void driver_stop(const profiler_driver *of, void *handle);

/* An operation on float32, a message of bf16; version 1 takes the number. */
void *driver_coll(const profiler_driver *of, int number, const char *name,
                  size_t count);
void *driver_p2p(const profiler_driver *of, int number, const char *name,
                 size_t count);

/* A channel of parent's kernel; the timer from version 4 on. */
void *driver_channel(const profiler_driver *of, void *parent, uint64_t timer);
void driver_channel_end(const profiler_driver *of, void *handle,
                        uint64_t timer);

/* What is logged while call runs; freed by the caller. A test that fails in
 * there has stderr back after its teardown, which is this. */
char *driver_logged(void (*call)(int), int argument);
int driver_teardown(void **state);

#endif
