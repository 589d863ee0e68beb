/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/expert_exchange.h - the exchange of a rank's expert layers with
 * the ranks that have the other experts (weft/moe.h), for forward and backward.
 *
 *   F  dispatch, await | experts | combine, await
 *   I  combine_gradient, await | experts | dispatch_gradient, await
 *
 * A turn is a micro-batch in a slot at a layer: from its dispatch on it keeps
 * the rows that have come, until the next one of that slot and layer. Of a turn
 * one exchange is under way at a time, of several turns several.
 *
 * Exchanges have a stream of their own, so that compute goes on beside them.
 * Where compute has one, it waits there for the end, and the host does not.
 *
 * All ranks that have the experts together make the same calls in one order,
 * also those without tokens.
 */
#ifndef TRAINER_MODEL_EXPERT_EXCHANGE_H
#define TRAINER_MODEL_EXPERT_EXCHANGE_H

#include "trainer/model/parameters.h"
#include "weft/comm.h"
#include "weft/device.h"

typedef struct wefti_experts wefti_experts;

/*
 * plan, comm, device, compute   borrowed; compute NULL: the host computes
 * tokens     that this rank has of a micro-batch, at most
 * slots      micro-batches at a time
 * overlaps   false: each exchange ends where it is posted
 * stop, resume   called around what the host waits; NULL: nothing is
 */
typedef struct wefti_experts_config {
    const wefti_parameters *plan;
    weft_comm *comm;
    weft_device *device;
    weft_stream *compute;
    size_t tokens, slots;
    bool overlaps;
    void *context;
    void (*stop)(void *context);
    void (*resume)(void *context);
} wefti_experts_config;

typedef struct wefti_expert_turn {
    size_t layer, slot;
} wefti_expert_turn;

/* Whether exchanges go on beside compute. */
bool wefti_experts_overlap(const wefti_experts *experts);

/* Rows that there is room for, of so many tokens. */
size_t wefti_experts_room(const wefti_parameters *plan, size_t tokens);

/* Whether a rank with plan needs others: then it needs this object. */
static inline bool wefti_experts_here(const wefti_parameters *plan)
{
    return plan->expert_parts <= 1;
}

/* Bytes that the object will take, at most: comm does not count but for its
 * ranks. */
double wefti_experts_bytes(const wefti_experts_config *config);

/*
 * wefti_experts_create - collective over comm. Returns as weft_moe_create.
 */
WEFT_NODISCARD weft_status wefti_experts_create(
    const wefti_experts_config *config, wefti_experts **experts_out);
void wefti_experts_destroy(wefti_experts *experts); /* NULL is legal */

/*
 * wefti_experts_record - from now on each turn remembers which experts its last
 * dispatch was for. NULL is legal. Returns OK | ERR_NO_MEMORY.
 *
 * wefti_experts_set - between steps. blocking: as if it did not overlap.
 * replays: who dispatches again goes by that memory, as values mean nothing.
 */
WEFT_NODISCARD weft_status wefti_experts_record(wefti_experts *experts);
void wefti_experts_set(wefti_experts *experts, bool blocking, bool replays);

/*
 * Each begins an exchange; all it names is borrowed until it has been awaited.
 *
 * x dx out dout   [tokens][hidden]
 * expert weight dweight   [tokens][slots of a token]
 * y dy drows      [room][hidden]; dy may be y
 * all of the model's type, but for weights and their gradients, which are real
 */
WEFT_NODISCARD weft_status wefti_experts_dispatch(
    wefti_experts *experts, wefti_expert_turn turn, const void *x,
    const int32_t *expert, const real *weight, size_t tokens);
WEFT_NODISCARD weft_status wefti_experts_combine(wefti_experts *experts,
                                                 wefti_expert_turn turn,
                                                 const void *y, void *out);
WEFT_NODISCARD weft_status wefti_experts_combine_gradient(
    wefti_experts *experts, wefti_expert_turn turn, const void *dout,
    const void *y, void *dy, real *dweight);
WEFT_NODISCARD weft_status
wefti_experts_dispatch_gradient(wefti_experts *experts, wefti_expert_turn turn,
                                const void *drows, void *dx);

/*
 * wefti_experts_await - what is queued on compute from now on comes behind the
 * exchange. Returns OK | INPROGRESS (not with waits, nor where compute has a
 * stream) | the communicator's fault.
 */
WEFT_NODISCARD weft_status wefti_experts_await(wefti_experts *experts,
                                               wefti_expert_turn turn,
                                               bool waits);

/* The communicator's fault, where compute has a stream: after it was waited
 * for. NULL: OK. */
WEFT_NODISCARD weft_status wefti_experts_check(const wefti_experts *experts);

/* Of the turn's last dispatch: its rows [room][hidden], by expert, and how many
 * each of the experts here has; behind its await, on compute. */
const void *wefti_experts_rows(const wefti_experts *experts,
                               wefti_expert_turn turn);
const int32_t *wefti_experts_counts(const wefti_experts *experts,
                                    wefti_expert_turn turn);

#endif
