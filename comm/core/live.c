/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/live.c - the page that children do not inherit, and what is wrong
 * with a communicator.
 */
#include "comm/core/live.h"

#include "base/error.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

weft_status wefti_home_open(uint64_t **home_out)
{
    void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return wefti_error_system("memory of an engine (mmap)");
    }
    /* An older kernel refuses: children are then not told apart. */
    (void)madvise(page, page_bytes(), MADV_WIPEONFORK);
    *home_out = page;
    **home_out = 1;
    const size_t bytes = WEFTI_WITNESS_WORDS * sizeof(uint64_t);
    if (getrandom(*home_out + 1, bytes, 0) != (ssize_t)bytes) {
        weft_status status = wefti_error_system("random words (getrandom)");
        wefti_home_close(*home_out);
        return status;
    }
    return WEFT_OK;
}

void wefti_home_close(uint64_t *home)
{
    if (home) {
        (void)munmap(home, page_bytes());
    }
}

bool wefti_comm_is_inherited(const weft_comm *comm)
{
    return comm && comm->head_word == WEFTI_LIVE_WORD &&
           comm->tail_word == WEFTI_LIVE_WORD && *comm->home == 0;
}

weft_status wefti_comm_refuse(const weft_comm *comm, const char *name)
{
    if (!comm) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s is NULL: allowed is a communicator", name);
    }
    if (wefti_comm_is_inherited(comm)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: \"%s\" is of the process that this one was "
                           "forked from: allowed is one that this process has "
                           "created",
                           name, comm->name);
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%s is no communicator, or has been destroyed: allowed "
                       "is a communicator",
                       name);
}
