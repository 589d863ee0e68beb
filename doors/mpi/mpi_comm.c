/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_comm.c - weft's communicators, found by MPI's.
 *
 * The slots are a cache in front of MPI's attributes, whose look-up takes locks
 * in some MPIs: one is believed only if what it points to has the handle that
 * is looked for. A freed communicator's handle is 0 before MPI can give the
 * number away again, so a slot may be stale, but not wrong.
 */
#include "doors/mpi/mpi_comm.h"

#include "base/log.h"
#include "base/settings.h"
#include "doors/mpi/mpi_idle.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64 };

static wefti_mpi_comm *_Atomic slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists */
static wefti_mpi_comm *unused, *made;
static int comm_key = MPI_KEYVAL_INVALID;
static int fault_class;

static wefti_mpi_comm *_Atomic *slot_of(uintptr_t handle)
{
    return &slots[(handle ^ (handle >> 6) ^ (handle >> 12)) % SLOTS];
}

static wefti_mpi_comm *take_unused(void)
{
    pthread_mutex_lock(&lock);
    wefti_mpi_comm *comm = unused;
    if (comm) {
        unused = comm->next;
    } else {
        comm = calloc(1, sizeof(*comm));
        if (comm) {
            comm->made_before = made;
            made = comm;
        }
    }
    pthread_mutex_unlock(&lock);
    return comm;
}

void wefti_mpi_comm_hold(wefti_mpi_comm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

void wefti_mpi_comm_release(wefti_mpi_comm *comm)
{
    if (atomic_fetch_sub(&comm->users, 1) > 1) {
        return;
    }
    weft_comm_destroy(comm->weft);
    pthread_mutex_lock(&lock);
    comm->weft = NULL;
    comm->next = unused;
    unused = comm;
    pthread_mutex_unlock(&lock);
}

/* MPI's communicator goes. */
static int forget(MPI_Comm mpi, int key, void *value, void *extra)
{
    wefti_mpi_comm *comm = value;
    (void)mpi, (void)key, (void)extra;
    atomic_store(&comm->handle, 0);
    wefti_mpi_comm_release(comm);
    return MPI_SUCCESS;
}

int wefti_mpi_comm_open(void)
{
    int code = PMPI_Add_error_class(&fault_class);
    return code == MPI_SUCCESS
               ? PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget,
                                         &comm_key, NULL)
               : code;
}

void wefti_mpi_comm_close(void)
{
    for (wefti_mpi_comm *comm = made; comm; comm = comm->made_before) {
        comm->left = WEFTI_MPI_LEFT_OFF;
        weft_comm_destroy(comm->weft);
        comm->weft = NULL;
    }
}

/* A new one, with nothing of weft yet. */
static wefti_mpi_comm *adopt(MPI_Comm mpi)
{
    int inter = 0;
    wefti_mpi_comm *comm = take_unused();
    if (!comm) {
        return NULL;
    }
    PMPI_Comm_test_inter(mpi, &inter);
    PMPI_Comm_rank(mpi, &comm->rank);
    PMPI_Comm_size(mpi, &comm->nranks);
    comm->mpi = mpi;
    comm->left = inter               ? WEFTI_MPI_LEFT_INTER
                 : comm->nranks == 1 ? WEFTI_MPI_LEFT_ALONE
                                     : WEFTI_MPI_LEFT_EARLY;
    atomic_store(&comm->users, 1);
    atomic_store(&comm->handle, WEFTI_MPI_KEY(mpi));
    PMPI_Comm_set_attr(mpi, comm_key, comm);
    return comm;
}

static wefti_mpi_comm *find(MPI_Comm mpi)
{
    wefti_mpi_comm *_Atomic *slot = slot_of(WEFTI_MPI_KEY(mpi));
    wefti_mpi_comm *comm = atomic_load(slot);
    if (comm && atomic_load(&comm->handle) == WEFTI_MPI_KEY(mpi)) {
        return comm;
    }
    void *kept = NULL;
    int found = 0;
    if (mpi == MPI_COMM_NULL ||
        PMPI_Comm_get_attr(mpi, comm_key, &kept, &found) != MPI_SUCCESS) {
        return NULL;
    }
    comm = found ? kept : adopt(mpi);
    if (comm) {
        atomic_store(slot, comm);
    }
    return comm;
}

/* Whether all ranks are on this host. */
static bool is_on_one_host(MPI_Comm mpi)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int bytes = 0;
    unsigned long long hash = 14695981039346656037ULL; /* FNV-1a */
    PMPI_Get_processor_name(name, &bytes);
    for (int i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211ULL;
    }
    /* The least of all, and of all complements: equal only if all are. */
    unsigned long long own[2] = {hash, ~hash}, least[2];
    PMPI_Allreduce(own, least, 2, MPI_UNSIGNED_LONG_LONG, MPI_MIN, mpi);
    return least[0] == ~least[1];
}

/* What rank 0 sends to all. */
typedef struct meeting {
    weft_unique_id id;
    wefti_mpi_left left;
} meeting;

static void invite(meeting *made_out, bool one_host)
{
    memset(made_out, 0, sizeof(*made_out));
    if (!one_host && !wefti_setting_given(WEFTI_SETTING_HOST)) {
        made_out->left = WEFTI_MPI_LEFT_HOSTS;
    } else if (weft_unique_id_create(&made_out->id) != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, 0, "mpi: %s", weft_error_text());
        made_out->left = WEFTI_MPI_LEFT_FAILED;
    }
}

/* MPI waits for ever; so does weft, unless it is told a limit. */
static weft_status create(wefti_mpi_comm *comm, const weft_unique_id *id)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int bytes = 0;
    PMPI_Comm_get_name(comm->mpi, name, &bytes);
    name[31] = 0;
    const weft_comm_config config = {
        .size_bytes = sizeof(config),
        .id = id,
        .rank = comm->rank,
        .nranks = comm->nranks,
        .name = name[0] ? name : "unnamed communicator",
        .idle = wefti_mpi_idle,
        .timeout_ms =
            wefti_setting_given(WEFTI_SETTING_TIMEOUT_MS) ? 0 : INT32_MAX};
    return weft_comm_create(&config, &comm->weft);
}

/* All ranks of the communicator come here, and leave with the same verdict. */
static void connect_ranks(wefti_mpi_comm *comm)
{
    meeting met;
    const bool one_host = is_on_one_host(comm->mpi);
    if (comm->rank == 0) {
        invite(&met, one_host);
    }
    PMPI_Bcast(&met, sizeof(met), MPI_BYTE, 0, comm->mpi);
    comm->left = met.left;
    if (comm->left != WEFTI_MPI_LEFT_NOT) {
        return;
    }
    int here = create(comm, &met.id) == WEFT_OK, everywhere = 0;
    if (!here) {
        wefti_log(WEFTI_LOG_WARN, comm->rank, "mpi: %s", weft_error_text());
    }
    PMPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, comm->mpi);
    if (!everywhere) {
        weft_comm_destroy(comm->weft);
        comm->weft = NULL;
        comm->left = WEFTI_MPI_LEFT_FAILED;
    }
}

wefti_mpi_comm *wefti_mpi_comm_get(MPI_Comm mpi, bool may_wait)
{
    wefti_mpi_comm *comm = find(mpi);
    if (comm && may_wait && comm->left == WEFTI_MPI_LEFT_EARLY) {
        connect_ranks(comm);
    }
    return comm;
}

int wefti_mpi_comm_raise(const wefti_mpi_comm *comm, weft_status status)
{
    int code = MPI_ERR_OTHER;
    char text[MPI_MAX_ERROR_STRING];
    snprintf(text, sizeof(text), "weft: %s",
             weft_error_text()[0] ? weft_error_text()
                                  : weft_status_text(status));
    wefti_log(WEFTI_LOG_ERROR, comm->rank, "mpi: %s", text + 6);
    if (PMPI_Add_error_code(fault_class, &code) == MPI_SUCCESS) {
        PMPI_Add_error_string(code, text);
    }
    if (atomic_load(&comm->handle)) {
        PMPI_Comm_call_errhandler(comm->mpi, code);
    }
    return code;
}
