/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what ranks of a host reach of each other directly is used once before
 * it is relied on. Where one of them finds something else than was written, all
 * take the way that does not need it, say why, and results are right. What
 * there is no other way for, staging, and the copies of devices into and out of
 * it, fails the communicator on all ranks, with what was staged and came.
 *
 * Method: the linker puts calls of this file in the place of mmap,
 * process_vm_readv, wefti_copy and weft_device_copy (--wrap): of one rank the
 * first maps pages that are its own alone, the others bring a wrong byte, or
 * none of the last eight. Those of GPUs break on demand of the
 * drivers for tests (tests/comm/test_route_refused.c).
 */
#include "comm/make/explain.h"
#include "tests/comm/rank_checks.h"
#include "tests/comm/world.h"

#include "comm/core/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { BROKEN = 1, RANKS = 3, BYTES = 300000 };

static bool maps_alone, reads_wrongly, stages_wrongly, copies_wrongly;

void *__real_mmap(void *address, size_t bytes, int access, int flags, int fd,
                  off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int fd,
                  off_t offset);
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long local_count,
                                const struct iovec *remote,
                                unsigned long remote_count,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long local_count,
                                const struct iovec *remote,
                                unsigned long remote_count,
                                unsigned long flags);

void __real_wefti_copy(void *dst, const void *src, size_t bytes);
void __wrap_wefti_copy(void *dst, const void *src, size_t bytes);
weft_status __real_weft_device_copy(weft_device *device, void *dst,
                                    const void *src, size_t bytes,
                                    weft_stream *stream);
weft_status __wrap_weft_device_copy(weft_device *device, void *dst,
                                    const void *src, size_t bytes,
                                    weft_stream *stream);

void __wrap_wefti_copy(void *dst, const void *src, size_t bytes)
{
    __real_wefti_copy(dst, src, bytes);
    if (stages_wrongly && bytes > 16) {
        ((unsigned char *)dst)[16] ^= 1;
    }
}

/* The engine's copies are those with a stream. */
weft_status __wrap_weft_device_copy(weft_device *device, void *dst,
                                    const void *src, size_t bytes,
                                    weft_stream *stream)
{
    const bool lacks = copies_wrongly && stream && bytes > 8;
    return __real_weft_device_copy(device, dst, src, bytes - (lacks ? 8 : 0),
                                   stream);
}

void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int fd,
                  off_t offset)
{
    const bool alone = maps_alone && fd >= 0 && (flags & MAP_SHARED);
    return __real_mmap(address, bytes, access,
                       alone ? (flags & ~MAP_SHARED) | MAP_PRIVATE : flags, fd,
                       offset);
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long local_count,
                                const struct iovec *remote,
                                unsigned long remote_count, unsigned long flags)
{
    const ssize_t moved = __real_process_vm_readv(pid, local, local_count,
                                                  remote, remote_count, flags);
    if (reads_wrongly) {
        *(unsigned char *)local[0].iov_base ^= 1;
    }
    return moved;
}

/* Each puts its number into the next one's part, and gathers from there. */
static int use(weft_comm *comm, weft_mem *mem)
{
    const int rank = weft_comm_get_rank(comm);
    const int next = (rank + 1) % RANKS, last = (rank + RANKS - 1) % RANKS;
    unsigned char *base = weft_mem_get_base(mem);
    unsigned char *all = malloc((size_t)RANKS * BYTES);
    unsigned char *own = malloc(BYTES);
    int failures = CHECK(base[0] == 0 && base[BYTES - 1] == 0);
    memset(own, rank + 1, BYTES);
    for (int slot = 0; slot < 6; slot++) {
        for (int source = 0; source < RANKS; source++) {
            failures += CHECK(weft_mem_get_signal(mem, slot, source) == 0);
        }
    }
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    failures += CHECK(
        weft_mem_put(mem, 0, own, BYTES, WEFT_DTYPE_U8, next, NULL) == WEFT_OK);
    failures += CHECK(weft_mem_signal(mem, 0, 1, next, NULL) == WEFT_OK);
    failures += CHECK(weft_mem_wait(mem, 0, 1, last, NULL) == WEFT_OK);
    failures += CHECK(base[0] == last + 1 && base[BYTES - 1] == last + 1);
    failures += CHECK(
        weft_allgather(base, all, BYTES, WEFT_DTYPE_U8, comm, NULL) == WEFT_OK);
    for (int from = 0; from < RANKS; from++) {
        const unsigned char *part = all + (size_t)from * BYTES;
        const int is = (from + RANKS - 1) % RANKS + 1;
        failures += CHECK(part[0] == is && part[BYTES - 1] == is);
    }
    free(all);
    free(own);
    return failures;
}

static int run_apart(weft_comm *comm, void *context)
{
    const bool broken = *(const bool *)context;
    weft_mem *mem = NULL;
    maps_alone = broken && weft_comm_get_rank(comm) == BROKEN;
    weft_status status = weft_mem_create(comm, BYTES, &mem);
    maps_alone = false;
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_error_text());
        return 1;
    }
    const int next = (weft_comm_get_rank(comm) + 1) % RANKS;
    int failures = CHECK((weft_mem_get_peer_base(mem, next) == NULL) == broken);
    failures += CHECK((comm->fabric.mapped == NULL) == broken);
    failures += use(comm, mem);
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    weft_mem_destroy(mem);
    failures += CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    return failures;
}

static void test_memory_not_the_same_goes_by_messages(void **state)
{
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        bool is_broken = broken;
        const struct world world = {
            .nranks = RANKS, .call = run_apart, .context = &is_broken};
        assert_int_equal(world_run_processes(&world), 0);
    }
}

static void break_reads(int rank, void *context)
{
    (void)context;
    reads_wrongly = rank == BROKEN;
}

static int run_staged(weft_comm *comm, void *context)
{
    (void)context;
    enum { LARGE = 4 << 20 };
    unsigned char *own = malloc(LARGE), *all = malloc((size_t)RANKS * LARGE);
    const char *why = wefti_comm_staged_why(comm);
    int failures = CHECK(
        why && strstr(why, "rank 1 cannot read the process of rank 0 "
                           "(process_vm_readv): what it reads is not what is "
                           "there"));
    memset(own, weft_comm_get_rank(comm) + 1, LARGE);
    failures += CHECK(
        weft_allgather(own, all, LARGE, WEFT_DTYPE_U8, comm, NULL) == WEFT_OK);
    for (int from = 0; from < RANKS; from++) {
        const unsigned char *part = all + (size_t)from * LARGE;
        failures += CHECK(part[0] == from + 1 && part[LARGE - 1] == from + 1);
    }
    free(own);
    free(all);
    return failures;
}

static void test_processes_read_wrongly_all_stage_cause_told(void **state)
{
    (void)state;
    const struct world world = {
        .nranks = RANKS, .call = run_staged, .before = break_reads};
    setenv("WEFT_SINGLE_COPY", "on", 1);
    assert_int_equal(world_run_processes(&world), 0);
    unsetenv("WEFT_SINGLE_COPY");
}

static void break_staging(int rank, void *context)
{
    (void)context;
    stages_wrongly = rank == BROKEN;
}

/* The first operation says what the creation has found; context: its text. */
static int run_wrong(weft_comm *comm, void *context)
{
    int failures = CHECK(weft_barrier(comm, NULL) == WEFT_ERR_SYSTEM);
    const bool told = strstr(weft_error_text(), context) != NULL;
    if (!told) {
        fprintf(stderr, "%s: lacks %s\n", weft_error_text(),
                (const char *)context);
    }
    return failures + CHECK(told);
}

static void test_staged_wrongly_all_are_told_what(void **state)
{
    (void)state;
    char text[] = "of what rank 1 has staged word 2 is ";
    const struct world world = {.nranks = RANKS,
                                .call = run_wrong,
                                .context = text,
                                .before = break_staging};
    assert_int_equal(world_run_processes(&world), 0);
}

static void test_device_copies_wrongly_all_are_told_what(void **state)
{
    (void)state;
    char text[] = " word 7 is ";
    weft_device *device;
    assert_int_equal(weft_device_open("shadow", 0, &device), WEFT_OK);
    const struct world world = {.nranks = RANKS,
                                .config = {.device = device},
                                .call = run_wrong,
                                .context = text};
    copies_wrongly = true;
    assert_int_equal(world_run_threads(&world), 0);
    copies_wrongly = false;
    weft_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_not_the_same_goes_by_messages),
        cmocka_unit_test(test_processes_read_wrongly_all_stage_cause_told),
        cmocka_unit_test(test_staged_wrongly_all_are_told_what),
        cmocka_unit_test(test_device_copies_wrongly_all_are_told_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
