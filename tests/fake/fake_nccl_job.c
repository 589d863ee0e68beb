/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_nccl_job.c - memory that the ranks of a communicator share: a
 * memfd of the process that made the id, which the others open under /proc, so
 * that a killed one leaves nothing behind.
 */
#include "tests/fake/fake_nccl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In an id: whose descriptor it is. */
typedef struct place {
    char magic[8];
    int process, descriptor;
} place;

static const char magic[8] = "fakeid";

bool nccl_job_make_id(wefti_nccl_id *id_out)
{
    place made = {.process = getpid()};
    memcpy(made.magic, magic, sizeof(magic));
    made.descriptor = memfd_create("fake nccl", MFD_CLOEXEC);
    memset(id_out, 0, sizeof(*id_out));
    memcpy(id_out, &made, sizeof(made));
    return made.descriptor >= 0;
}

bool nccl_job_attach(struct ncclComm *comm, const wefti_nccl_id *id)
{
    place there;
    char path[64];
    memcpy(&there, id, sizeof(there));
    if (memcmp(there.magic, magic, sizeof(magic)) != 0) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", there.process,
             there.descriptor);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    comm->job_bytes = sizeof(nccl_job) + (size_t)comm->nranks * NCCL_AREA_BYTES;
    void *mapped = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)comm->job_bytes) == 0) {
        mapped = mmap(NULL, comm->job_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    comm->job = mapped == MAP_FAILED ? NULL : mapped;
    memcpy(comm->id, id, sizeof(comm->id));
    return comm->job != NULL;
}

void nccl_job_detach(struct ncclComm *comm)
{
    place there;
    memcpy(&there, comm->id, sizeof(there));
    if (comm->rank == 0 && there.process == getpid()) {
        close(there.descriptor);
    }
    if (comm->job) {
        munmap(comm->job, comm->job_bytes);
        comm->job = NULL;
    }
}

unsigned char *nccl_job_area(const struct ncclComm *comm, int rank)
{
    return (unsigned char *)comm->job + sizeof(nccl_job) +
           (size_t)rank * NCCL_AREA_BYTES;
}
