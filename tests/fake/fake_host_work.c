/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_host_work.c - functions of the host as work of a stream.
 */
#include "tests/fake/fake_host_work.h"

#include "tests/fake/fake.h"

#include <stdlib.h>

static CUresult run_host_work(CUstream stream, fake_work *queued)
{
    const fake_host_work *work = queued->staged;
    void *at[FAKE_HOST_PARTS] = {NULL};
    fake_range *used[FAKE_HOST_PARTS] = {NULL};
    bool legal = true;
    for (int i = 0; i < FAKE_HOST_PARTS && legal; i++) {
        if (work->parts[i].bytes > 0) {
            at[i] = fake_range_use(stream->context->ordinal,
                                   work->parts[i].address, work->parts[i].bytes,
                                   false, work->what, &used[i]);
            legal = at[i] != NULL;
        }
    }
    if (legal) {
        work->run(work->args, at);
    }
    for (int i = 0; i < FAKE_HOST_PARTS; i++) {
        if (at[i]) {
            fake_range_done(used[i]);
        }
    }
    return legal ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult fake_host_launch(CUstream stream, const fake_host_work *work)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (work->loads) {
        pthread_mutex_lock(&fake.lock);
        fake_await_idle_locked(fake_current()->ordinal);
        pthread_mutex_unlock(&fake.lock);
    }
    fake_host_work *copy = malloc(sizeof(*copy));
    if (!copy) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *copy = *work;
    const fake_work queued = {.run = run_host_work, .staged = copy};
    return fake_stream_submit(stream, &queued);
}
