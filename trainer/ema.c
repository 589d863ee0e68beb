/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/ema.c - the copy of a rank's shares, and the thread that averages.
 */
#include "trainer/ema.h"

#include "base/check.h"
#include "base/error.h"
#include "base/thread.h"
#include "trainer/model/storage.h"

#include <stdlib.h>

/* Of a group: the copy belongs to the thread while it is busy. */
typedef struct share {
    real *copy; /* [own_elems] of the parameters */
    wefti_ema_words words;
    weft_event *taken; /* the last copy is there; NULL: the host's */
} share;

struct wefti_ema {
    wefti_replica *replica;
    wefti_ema_format format;
    share shares[WEFTI_TENSOR_GROUPS_MOST];
    bool taking; /* of the training alone: this step's first is done */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* All below under the lock. */
    bool busy, ending;
    uint64_t step;
    weft_status status; /* of the device */
};

/* ---- the averages ---------------------------------------------------------
 */

/* What is drawn is by the place in the whole tensor. */
static void add_share(const share *own, const wefti_tensor *tensor,
                      const wefti_tensor_share *cut, double decay,
                      uint64_t stream)
{
    const size_t end = cut->offset_elems + cut->elems;
    for (size_t at = cut->offset_elems; at < end;) {
        const wefti_tensor_stretch next = wefti_tensor_find(tensor, at);
        const size_t left = end - at;
        const size_t elems = next.elems < left ? next.elems : left;
        const size_t mine = cut->own_elems + (at - cut->offset_elems);
        const wefti_ema_words words = wefti_ema_words_at(&own->words, mine);
        wefti_ema_add(&words, elems, own->copy + mine, decay, stream,
                      next.whole);
        at += elems;
    }
}

/* Of each tensor's part; decay 0: they are what the copy is. */
static void add_copy(wefti_ema *ema, double decay, uint64_t step)
{
    const wefti_replica *replica = ema->replica;
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        const size_t name = tensor->copy ? wefti_tensor_embedding(plan) : i;
        const share *own = &ema->shares[tensor->info.group];
        wefti_tensor_share cut;
        if (wefti_tensor_cut(plan, tensor,
                             replica->groups[tensor->info.group].rank, &cut)) {
            add_share(own, tensor, &cut, decay,
                      wefti_ema_stream(replica->config.seed,
                                       plan->tensors[name].info.name, step));
        }
    }
}

static weft_status wait_copies(const wefti_ema *ema)
{
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < WEFTI_TENSOR_GROUPS_MOST && status == WEFT_OK; g++) {
        status = ema->shares[g].taken
                     ? weft_event_wait(ema->shares[g].taken, NULL)
                     : WEFT_OK;
    }
    return status;
}

static void *run_thread(void *context)
{
    wefti_ema *ema = context;
    pthread_mutex_lock(&ema->lock);
    while (!ema->ending || ema->busy) {
        if (!ema->busy) {
            pthread_cond_wait(&ema->changed, &ema->lock);
            continue;
        }
        const uint64_t step = ema->step;
        pthread_mutex_unlock(&ema->lock);
        weft_status status = wait_copies(ema);
        if (status == WEFT_OK) {
            add_copy(ema, ema->replica->config.ema_decay, step);
        }
        pthread_mutex_lock(&ema->lock);
        ema->status = ema->status == WEFT_OK ? status : ema->status;
        ema->busy = false;
        pthread_cond_broadcast(&ema->changed);
    }
    pthread_mutex_unlock(&ema->lock);
    return NULL;
}

/* ---- life -----------------------------------------------------------------
 */

/* Zeros: a share's padding stays as it is. */
static weft_status make_share(wefti_ema_format format, size_t elems,
                              share *own_out)
{
    weft_status status = wefti_storage_alloc(elems, &own_out->copy);
    wefti_ema_words *words = &own_out->words;
    bool made = true;
    if (format == WEFTI_EMA_FP32) {
        words->f32 = calloc(elems + 1, sizeof(*words->f32));
        made = words->f32 != NULL;
    } else {
        words->bf16 = calloc(elems + 1, sizeof(*words->bf16));
        made = words->bf16 != NULL;
    }
    if (format == WEFTI_EMA_FP8) {
        words->f8 = calloc(elems + 1, sizeof(*words->f8));
        made = made && words->f8;
    }
    return status != WEFT_OK || made
               ? status
               : wefti_error(WEFT_ERR_NO_MEMORY,
                             "no memory for %zu averages of weights", elems);
}

static weft_status make_all(wefti_ema *ema)
{
    wefti_replica *replica = ema->replica;
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        status = make_share(ema->format, replica->plan.groups[g].own_elems,
                            &ema->shares[g]);
        if (status == WEFT_OK && replica->compute) {
            status = weft_event_create(replica->config.device,
                                       &ema->shares[g].taken);
        }
    }
    if (status == WEFT_OK) {
        status = wefti_ema_begin(ema);
    }
    if (status != WEFT_OK) {
        return status;
    }
    ema->has_thread = wefti_thread_start(run_thread, ema, &ema->thread) == 0;
    return ema->has_thread
               ? WEFT_OK
               : wefti_error_system("no thread that averages weights");
}

weft_status wefti_ema_create(wefti_replica *replica)
{
    if (replica->config.ema == WEFTI_EMA_NONE) {
        return WEFT_OK;
    }
    wefti_ema *ema = calloc(1, sizeof(*ema));
    if (!ema) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to average weights");
    }
    ema->replica = replica;
    ema->format = replica->config.ema;
    pthread_mutex_init(&ema->lock, NULL);
    pthread_cond_init(&ema->changed, NULL);
    weft_status status = make_all(ema);
    if (status != WEFT_OK) {
        wefti_ema_destroy(ema);
        return status;
    }
    replica->ema = ema;
    return WEFT_OK;
}

void wefti_ema_destroy(wefti_ema *ema)
{
    if (!ema) {
        return;
    }
    if (ema->has_thread) {
        pthread_mutex_lock(&ema->lock);
        ema->ending = true;
        pthread_cond_broadcast(&ema->changed);
        pthread_mutex_unlock(&ema->lock);
        pthread_join(ema->thread, NULL);
    }
    (void)!wefti_replica_wait(ema->replica); /* copies that are queued */
    for (size_t g = 0; g < WEFTI_TENSOR_GROUPS_MOST; g++) {
        weft_event_destroy(ema->shares[g].taken);
        wefti_storage_free(ema->shares[g].copy);
        free(ema->shares[g].words.f32);
        free(ema->shares[g].words.bf16);
        free(ema->shares[g].words.f8);
    }
    pthread_cond_destroy(&ema->changed);
    pthread_mutex_destroy(&ema->lock);
    free(ema);
}

size_t wefti_ema_plan_bytes(const wefti_replica *replica)
{
    const wefti_ema_format format = replica->config.ema;
    return format == WEFTI_EMA_NONE
               ? 0
               : replica->plan.own_elems *
                     (sizeof(real) + wefti_ema_elem_bytes(format));
}

/* ---- the training's side --------------------------------------------------
 */

/* Where this rank's share of a bucket is, in the parameters or their masters,
 * and by itself. */
static real *find_share(const wefti_ema *ema, size_t number, size_t bucket,
                        real **copy_out, size_t *bytes_out)
{
    const wefti_parameter_group *group = &ema->replica->groups[number];
    const weft_bucket_extent *extent = &group->plan->buckets[bucket];
    const size_t own_elems = extent->start_elems / group->plan->nranks;
    *copy_out = ema->shares[number].copy + own_elems;
    *bytes_out = extent->share_elems * sizeof(real);
    return group->optimizer.masters
               ? group->optimizer.masters + own_elems
               : (real *)wefti_parameter_group_at(
                     group,
                     extent->start_elems + group->rank * extent->share_elems);
}

weft_status wefti_ema_settle(wefti_ema *ema)
{
    if (!ema) {
        return WEFT_OK;
    }
    pthread_mutex_lock(&ema->lock);
    while (ema->busy) {
        pthread_cond_wait(&ema->changed, &ema->lock);
    }
    weft_status status = ema->status;
    pthread_mutex_unlock(&ema->lock);
    return status == WEFT_OK ? WEFT_OK
                             : wefti_error(status, "weights are not averaged: "
                                                   "the device has failed");
}

/* Masters that are offloaded come to the host by a stream of their own. */
static weft_stream *stream_of(const wefti_ema *ema, size_t group)
{
    const wefti_optimizer *optimizer = &ema->replica->groups[group].optimizer;
    return optimizer->offload && optimizer->masters ? optimizer->offload->out
                                                    : ema->replica->compute;
}

weft_status wefti_ema_take(wefti_ema *ema, size_t group, size_t bucket)
{
    if (!ema) {
        return WEFT_OK;
    }
    real *copy;
    size_t bytes;
    const real *live = find_share(ema, group, bucket, &copy, &bytes);
    weft_status status = ema->taking ? WEFT_OK : wefti_ema_settle(ema);
    ema->taking = true;
    return status == WEFT_OK
               ? weft_device_copy(ema->replica->config.device, copy, live,
                                  bytes, stream_of(ema, group))
               : status;
}

weft_status wefti_ema_start(wefti_ema *ema, uint64_t step)
{
    if (!ema) {
        return WEFT_OK;
    }
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < WEFTI_TENSOR_GROUPS_MOST && status == WEFT_OK; g++) {
        status = ema->shares[g].taken
                     ? weft_event_post(ema->shares[g].taken, stream_of(ema, g))
                     : WEFT_OK;
    }
    if (status != WEFT_OK) {
        return status;
    }
    ema->taking = false;
    pthread_mutex_lock(&ema->lock);
    WEFTI_ASSERT(!ema->busy);
    ema->step = step;
    ema->busy = true;
    pthread_cond_broadcast(&ema->changed);
    pthread_mutex_unlock(&ema->lock);
    return WEFT_OK;
}

/* This rank's shares to their copies, or back. */
static weft_status copy_shares(wefti_ema *ema, bool back)
{
    wefti_replica *replica = ema->replica;
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count; g++) {
        for (size_t i = 0;
             i < replica->plan.groups[g].bucket_count && status == WEFT_OK;
             i++) {
            real *copy;
            size_t bytes;
            real *live = find_share(ema, g, i, &copy, &bytes);
            status = wefti_replica_copy(replica, back ? live : copy,
                                        back ? copy : live, bytes);
        }
    }
    return status;
}

weft_status wefti_ema_begin(wefti_ema *ema)
{
    weft_status status = wefti_ema_settle(ema);
    if (status == WEFT_OK) {
        status = copy_shares(ema, false);
    }
    if (status == WEFT_OK) {
        add_copy(ema, 0, ema->replica->step);
    }
    return status;
}

wefti_ema_words wefti_ema_words_of(const wefti_ema *ema, size_t group)
{
    return ema->shares[group].words;
}

wefti_ema_format wefti_ema_format_of(const wefti_ema *ema)
{
    return ema->format;
}

/* The averages to where the parameters' shares are. */
static weft_status put_averages(wefti_ema *ema)
{
    wefti_replica *replica = ema->replica;
    weft_status status = WEFT_OK;
    for (size_t g = 0; g < replica->plan.group_count && status == WEFT_OK;
         g++) {
        const size_t elems = replica->plan.groups[g].own_elems;
        real *kept = ema->shares[g].copy, *all;
        status = wefti_storage_alloc(elems, &all);
        if (status == WEFT_OK) {
            wefti_ema_get(&ema->shares[g].words, elems, all);
            ema->shares[g].copy = all;
        }
        for (size_t i = 0;
             status == WEFT_OK && i < replica->plan.groups[g].bucket_count;
             i++) {
            real *copy;
            size_t bytes;
            real *live = find_share(ema, g, i, &copy, &bytes);
            status = wefti_replica_copy(replica, live, copy, bytes);
        }
        ema->shares[g].copy = kept;
        wefti_storage_free(all);
    }
    return status;
}

/* The copies are the parameters meanwhile: they have the last update's. */
weft_status wefti_ema_swap(wefti_replica *replica, bool averages)
{
    wefti_ema *ema = replica->ema;
    weft_status status = wefti_replica_settle(replica);
    if (status == WEFT_OK) {
        status = wefti_ema_settle(ema);
    }
    if (status == WEFT_OK) {
        status = averages ? copy_shares(ema, false) : copy_shares(ema, true);
    }
    if (status == WEFT_OK && averages) {
        status = put_averages(ema);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_round(replica);
    }
    return status == WEFT_OK
               ? wefti_replica_gather(replica, WEFT_BUCKET_BLOCKING)
               : status;
}

weft_status wefti_ema_evaluate(wefti_replica *replica, double *loss_out)
{
    weft_status status = wefti_ema_swap(replica, true);
    if (status == WEFT_OK) {
        status = wefti_replica_evaluate(replica, loss_out);
    }
    return status == WEFT_OK ? wefti_ema_swap(replica, false) : status;
}
