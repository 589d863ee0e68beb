/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_wait.c - MPI's functions that take requests. MPI's own and
 * weft's may stand in one array: for MPI, weft's are inactive.
 *
 * While a call waits for weft's, MPI goes on too (mpi_idle.h): what another
 * rank needs to get to the collective may be a message of this one.
 */
#include "doors/mpi/mpi_idle.h"
#include "doors/mpi/mpi_request.h"

#include <sched.h>

/* What MPI says of a request that is inactive, or null. */
static void set_empty(MPI_Status *status, int code)
{
    if (status != MPI_STATUS_IGNORE) {
        PMPI_Status_set_elements(status, MPI_BYTE, 0);
        PMPI_Status_set_cancelled(status, 0);
        status->MPI_SOURCE = MPI_ANY_SOURCE;
        status->MPI_TAG = MPI_ANY_TAG;
        status->MPI_ERROR = code;
    }
}

static wefti_mpi_request *find_active(MPI_Request handle)
{
    wefti_mpi_request *found = wefti_mpi_request_find(handle);
    return found && found->active ? found : NULL;
}

static bool any_active(int count, const MPI_Request *handles)
{
    bool any = false;
    for (int i = 0; !any && i < count; i++) {
        any = find_active(handles[i]) != NULL;
    }
    return any;
}

static bool any_pending(int count, const MPI_Request *handles)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        wefti_mpi_request *own = find_active(handles[i]);
        any |= own && wefti_mpi_request_is_pending(own);
    }
    return any;
}

/* The first that is done; -1: none is. */
static int find_done(int count, const MPI_Request *handles)
{
    for (int i = 0; i < count; i++) {
        wefti_mpi_request *own = find_active(handles[i]);
        if (own && !wefti_mpi_request_is_pending(own)) {
            return i;
        }
    }
    return -1;
}

static int finish(MPI_Request *handle, MPI_Status *status)
{
    const int code = wefti_mpi_request_finish(find_active(*handle), handle);
    set_empty(status, code);
    return code;
}

/* All of weft's are done, and MPI's as well: statuses are MPI's. */
static int finish_all(int count, MPI_Request *handles, MPI_Status *statuses,
                      int code)
{
    for (int i = 0; i < count; i++) {
        if (find_active(handles[i])) {
            const int own =
                wefti_mpi_request_finish(find_active(handles[i]), &handles[i]);
            if (statuses != MPI_STATUSES_IGNORE) {
                statuses[i].MPI_ERROR = own;
            }
            code = own == MPI_SUCCESS ? code : MPI_ERR_IN_STATUS;
        }
    }
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    wefti_mpi_request *own = find_active(*request);
    if (!own) {
        return PMPI_Wait(request, status);
    }
    wefti_mpi_request_wait(own);
    return finish(request, status);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    wefti_mpi_request *own = find_active(*request);
    if (!own) {
        return PMPI_Test(request, flag, status);
    }
    *flag = !wefti_mpi_request_is_pending(own);
    if (*flag) {
        return finish(request, status);
    }
    wefti_mpi_idle(NULL);
    return MPI_SUCCESS;
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    for (int i = 0; i < count; i++) {
        wefti_mpi_request *own = find_active(requests[i]);
        if (own) {
            wefti_mpi_request_wait(own);
        }
    }
    const int code = PMPI_Waitall(count, requests, statuses);
    return finish_all(count, requests, statuses, code);
}

int MPI_Testall(int count, MPI_Request *requests, int *flag,
                MPI_Status *statuses)
{
    if (any_pending(count, requests)) {
        *flag = 0;
        wefti_mpi_idle(NULL);
        return MPI_SUCCESS;
    }
    const int code = PMPI_Testall(count, requests, flag, statuses);
    return *flag ? finish_all(count, requests, statuses, code) : code;
}

/* One look at all: flag, and which. MPI finds nothing active where all that are
 * left are weft's. */
static int test_any(int count, MPI_Request *requests, int *index, int *flag,
                    MPI_Status *status)
{
    *index = find_done(count, requests);
    if (*index >= 0) {
        *flag = 1;
        return finish(&requests[*index], status);
    }
    const int code = PMPI_Testany(count, requests, index, flag, status);
    if (code == MPI_SUCCESS && *flag && *index == MPI_UNDEFINED &&
        any_active(count, requests)) {
        *flag = 0;
        wefti_mpi_idle(NULL);
    }
    return code;
}

int MPI_Testany(int count, MPI_Request *requests, int *index, int *flag,
                MPI_Status *status)
{
    return any_active(count, requests)
               ? test_any(count, requests, index, flag, status)
               : PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Waitany(int count, MPI_Request *requests, int *index,
                MPI_Status *status)
{
    int code = MPI_SUCCESS, flag = 0;
    if (!any_active(count, requests)) {
        return PMPI_Waitany(count, requests, index, status);
    }
    while (code == MPI_SUCCESS && !flag) {
        code = test_any(count, requests, index, &flag, status);
        sched_yield();
    }
    return code;
}

/* One look at all: what is done of weft's, behind it what is of MPI's. */
static int test_some(int count, MPI_Request *requests, int *done, int *indices,
                     MPI_Status *statuses)
{
    int own = 0, others = 0, bad = MPI_SUCCESS;
    const bool waits = any_active(count, requests);
    const bool plain = statuses == MPI_STATUSES_IGNORE;
    for (int i = 0; i < count; i++) {
        wefti_mpi_request *active = find_active(requests[i]);
        if (active && !wefti_mpi_request_is_pending(active)) {
            const int code = finish(&requests[i],
                                    plain ? MPI_STATUS_IGNORE : &statuses[own]);
            bad = code == MPI_SUCCESS ? bad : MPI_ERR_IN_STATUS;
            indices[own++] = i;
        }
    }
    int code = PMPI_Testsome(count, requests, &others, indices + own,
                             plain ? statuses : statuses + own);
    if (others == MPI_UNDEFINED) {
        others = 0;
        *done = waits ? own : MPI_UNDEFINED;
    } else {
        *done = own + others;
    }
    return bad == MPI_SUCCESS ? code : bad;
}

int MPI_Testsome(int count, MPI_Request *requests, int *done, int *indices,
                 MPI_Status *statuses)
{
    return test_some(count, requests, done, indices, statuses);
}

int MPI_Waitsome(int count, MPI_Request *requests, int *done, int *indices,
                 MPI_Status *statuses)
{
    int code = MPI_SUCCESS;
    if (!any_active(count, requests)) {
        return PMPI_Waitsome(count, requests, done, indices, statuses);
    }
    *done = 0;
    while (code == MPI_SUCCESS && *done == 0) {
        code = test_some(count, requests, done, indices, statuses);
        if (*done == 0) {
            wefti_mpi_idle(NULL);
            sched_yield();
        }
    }
    return code;
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    wefti_mpi_request *own = find_active(request);
    if (!own) {
        return PMPI_Request_get_status(request, flag, status);
    }
    *flag = !wefti_mpi_request_is_pending(own);
    if (*flag) {
        set_empty(status, own->code);
    } else {
        wefti_mpi_idle(NULL);
    }
    return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request *request)
{
    wefti_mpi_request *own = wefti_mpi_request_find(*request);
    return own ? wefti_mpi_request_free(own, request)
               : PMPI_Request_free(request);
}

int MPI_Start(MPI_Request *request)
{
    wefti_mpi_request *own = wefti_mpi_request_find(*request);
    return own ? wefti_mpi_request_start(own) : PMPI_Start(request);
}

int MPI_Startall(int count, MPI_Request *requests)
{
    int code = MPI_SUCCESS;
    for (int i = 0; code == MPI_SUCCESS && i < count; i++) {
        code = MPI_Start(&requests[i]);
    }
    return code;
}
