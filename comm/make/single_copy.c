/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/single_copy.c - trying process_vm_readv, and what refuses it: the
 * kernel (Yama, a missing capability), a container's seccomp filter, or a
 * kernel or an emulator without it.
 */
#include "comm/make/single_copy.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wefti_process_page *process_of(weft_comm *world, int rank)
{
    return &wefti_shared_get_page(&world->fabric.shared, rank)->process;
}

static bool tries(const weft_comm *world)
{
    return world->tuning.single_copy == WEFTI_SINGLE_COPY_ON;
}

weft_status wefti_single_copy_offer(weft_comm *world,
                                    const wefti_membership *members)
{
    wefti_engine *engine = world->engine;
    wefti_process_page *own = process_of(world, world->rank);
    engine->witnesses =
        calloc((size_t)world->nranks, sizeof(*engine->witnesses));
    if (!engine->witnesses) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           world->nranks);
    }
    for (int rank = 0; rank < world->nranks; rank++) {
        engine->witnesses[rank].pid = members->members[rank].pid;
    }
    const uint64_t *words = engine->home + 1;
    for (int i = 0; i < WEFTI_WITNESS_WORDS; i++) {
        atomic_store(&own->words[i], words[i]);
    }
    atomic_store(&own->address, (uint64_t)(uintptr_t)words);
    return WEFT_OK;
}

/* The errno of reading what its process says of itself; EBADMSG: what came is
 * something else. */
static int attempt_one(weft_comm *world, int rank)
{
    wefti_witness *witness = &world->engine->witnesses[rank];
    wefti_process_page *page = process_of(world, rank);
    uint64_t copy[WEFTI_WITNESS_WORDS];
    witness->address = atomic_load(&page->address);
    for (int i = 0; i < WEFTI_WITNESS_WORDS; i++) {
        witness->words[i] = atomic_load(&page->words[i]);
    }
    int error = wefti_process_read(
        witness, copy, (const void *)(uintptr_t)witness->address, sizeof(copy));
    return error                                             ? error
           : memcmp(copy, witness->words, sizeof(copy)) == 0 ? 0
                                                             : EBADMSG;
}

void wefti_single_copy_attempt(weft_comm *world)
{
    const wefti_membership *members = world->engine->members;
    wefti_process_page *own = process_of(world, world->rank);
    int error = 0, rank = 0;
    for (; tries(world) && rank < world->nranks; rank++) {
        if (wefti_membership_is_local(members, rank) &&
            members->members[rank].pid != members->members[world->rank].pid) {
            error = attempt_one(world, rank);
        }
        if (error) {
            break;
        }
    }
    atomic_store(&own->trial_rank, (uint32_t)rank);
    atomic_store(&own->trial, 1 + (uint32_t)error);
}

/* What most often is the reason for EPERM; -1: the kernel has no such rule. */
static int read_yama(void)
{
    char line[16];
    int scope = -1;
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file) {
        if (fgets(line, sizeof(line), file)) {
            scope = (int)strtol(line, NULL, 10);
        }
        (void)fclose(file);
    }
    return scope;
}

static void explain(weft_comm *world, int rank, uint32_t trial)
{
    wefti_engine *engine = world->engine;
    const int error = (int)trial - 1, scope = read_yama();
    char rule[48] = "";
    if (error == EPERM && scope > 0) {
        snprintf(rule, sizeof(rule), " (kernel.yama.ptrace_scope is %d)",
                 scope);
    }
    snprintf(engine->unread_why, sizeof(engine->unread_why),
             "rank %d cannot read the process of rank %u (process_vm_readv): "
             "%s%s",
             rank, atomic_load(&process_of(world, rank)->trial_rank),
             error == EBADMSG ? "what it reads is not what is there"
             : trial          ? strerror(error)
                              : "it has not tried",
             rule);
}

void wefti_single_copy_conclude(weft_comm *world)
{
    wefti_engine *engine = world->engine;
    const wefti_membership *members = engine->members;
    int lowest = world->rank;
    engine->reads_processes = tries(world);
    for (int rank = world->nranks - 1; rank >= 0; rank--) {
        const uint32_t trial = atomic_load(&process_of(world, rank)->trial);
        if (!wefti_membership_is_local(members, rank)) {
            continue;
        }
        lowest = rank < lowest ? rank : lowest;
        if (tries(world) && trial != 1) {
            engine->reads_processes = false;
            explain(world, rank, trial);
        }
    }
    if (engine->unread_why[0] && world->rank == lowest) {
        wefti_log(WEFTI_LOG_INFO, world->rank, "large messages are staged: %s",
                  engine->unread_why);
    }
}
