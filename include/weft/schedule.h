/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/schedule.h - pipeline schedules as data: one ordered list of actions per
 * rank, which is generated, lowered to messages, proved, priced, drawn and
 * executed. Nothing else in weft says what a schedule is.
 *
 *     weft_schedule_create (a generator)  or  weft_schedule_read (CSV)
 *        -> passes: plan, merge, recompute, shard, reduce, optimize, lower,
 *                   release, group
 *        -> weft_schedule_check      may it run at all?
 *
 * What it takes, how that is planned for and drawn: weft/schedule_cost.h.
 *
 * Stages are numbered in the order in which a micro-batch passes through them.
 * A schedule of two directions (DualPipe) numbers direction 0 as stages 0..P-1
 * and direction 1 as P..2P-1, each with its own micro-batches from 0; nothing
 * flows from stage P-1 to stage P.
 *
 * Functions here touch nothing but their arguments. Threads: one at a time per
 * schedule; any number at once where a schedule is only read (const).
 */
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H

#include "weft/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Largest numbers that a schedule may have. */
#define WEFT_SCHEDULE_RANKS_MOST        65536
#define WEFT_SCHEDULE_STAGES_MOST       1048576
#define WEFT_SCHEDULE_MICROBATCHES_MOST 1048576
#define WEFT_SCHEDULE_ACTIONS_MOST      1073741824 /* of all ranks */

/*
 * The kinds of action. X(NAME, text, of a micro-batch, of torch).
 *
 * F, I, W, B    forward; backward for inputs; backward for weights (needs I);
 *               full backward = I, then W
 * FB            F of one and B of another micro-batch, run overlapped; both
 *               inputs are there before it starts, both results when it ends
 * SEND_F        sends F's output to the next stage
 * RECV_F        receives F's input
 * SEND_B        sends the gradient of F's input to the stage before
 * RECV_B        receives the gradient of F's output
 * UNSHARD       gathers the stage's parameters
 * RESHARD       drops them
 * REDUCE_GRAD   starts the stage's data-parallel gradient reduction
 * OPT           optimizer step of the stage, waits for its reduction
 * GATHER_PARAM  starts gathering the parameters which OPT has updated in slices
 * EMA           updates the moving average of the stage's parameters
 * OFFLOAD       F's activations to the host           RELOAD  and back
 * RECOMPUTE     F again, before the backward that needs its activations
 * RELEASE       gives back the storage of F's output, which has been sent
 * BARRIER       all ranks meet; its stage is a number, which is in a list once
 */
#define WEFT_ACTION_LIST(X)                                                    \
    X(F, "F", true, true)                                                      \
    X(I, "I", true, true)                                                      \
    X(W, "W", true, true)                                                      \
    X(B, "B", true, true)                                                      \
    X(FB, "OVERLAP_F_B", true, true)                                           \
    X(SEND_F, "SEND_F", true, true)                                            \
    X(RECV_F, "RECV_F", true, true)                                            \
    X(SEND_B, "SEND_B", true, true)                                            \
    X(RECV_B, "RECV_B", true, true)                                            \
    X(UNSHARD, "UNSHARD", false, true)                                         \
    X(RESHARD, "RESHARD", false, true)                                         \
    X(REDUCE_GRAD, "REDUCE_GRAD", false, true)                                 \
    X(OPT, "OPT", false, false)                                                \
    X(GATHER_PARAM, "GATHER_PARAM", false, false)                              \
    X(EMA, "EMA", false, false)                                                \
    X(OFFLOAD, "OFFLOAD", true, false)                                         \
    X(RELOAD, "RELOAD", true, false)                                           \
    X(RECOMPUTE, "RECOMPUTE", true, false)                                     \
    X(RELEASE, "RELEASE", true, false)                                         \
    X(BARRIER, "BARRIER", false, false)

typedef enum weft_action_type {
#define WEFT_ACTION_ENUM(name, text, microbatch, torch) WEFT_ACTION_##name,
    WEFT_ACTION_LIST(WEFT_ACTION_ENUM)
#undef WEFT_ACTION_ENUM
        WEFT_ACTION_COUNT
} weft_action_type;

/*
 * weft_action - one entry of a rank's list.
 *
 * microbatch   -1 for actions of a whole stage.
 * pair_stage, pair_microbatch   of FB: its B (stage, microbatch are its F);
 *              else -1.
 * joined       a message that is posted together with the action before it
 *              (weft_schedule_group); both end when all of the group have.
 * step         which part of the generator's recipe made it, from 1; 0: none.
 *              For readers and painters; CSV does not carry it.
 *
 * 12 bytes, as large schedules have 10^8 of them: the fields are bits, whose
 * addresses cannot be taken.
 */
typedef struct __attribute__((packed, aligned(4))) weft_action {
    uint32_t type : 5; /* weft_action_type */
    bool joined : 1;
    uint32_t step : 5;
    int32_t stage : 21;
    int32_t microbatch : 21;
    int32_t pair_stage : 21;
    int32_t pair_microbatch : 21;
} weft_action;

/* Room for any action's text and its end. */
#define WEFT_ACTION_TEXT_BYTES 64

/*
 * weft_action_pack - the action as text, in the form torch uses:
 * stage, type, micro-batch, as in 3SEND_F2, 0W11, 1UNSHARD,
 * (0F4;7B1)OVERLAP_F_B.
 *
 * text    [WEFT_ACTION_TEXT_BYTES].
 * Returns the number of characters.
 */
size_t weft_action_pack(const weft_action *action, char *text);

/*
 * weft_action_unpack - the reverse. The whole text must be one action.
 *
 * Returns     OK | ERR_INVALID (the text says what is wrong; *action_out is
 *             as it was).
 */
WEFT_NODISCARD weft_status weft_action_unpack(const char *text,
                                              size_t text_bytes,
                                              weft_action *action_out);

typedef struct weft_schedule weft_schedule;

/*
 * weft_schedule_config - what a generator is asked for.
 *
 * size_bytes     sizeof(weft_schedule_config) of the caller; must be set.
 * name           gpipe 1f1b interleaved zb_h1 zb_h2 zbv dualpipe dualpipev.
 * ranks          P, from 1.
 * microbatches   m of a step, both directions together.
 * chunks         V, model chunks per rank; 0: the schedule's own (interleaved:
 *                2). Only interleaved lets it be chosen.
 * group          interleaved: micro-batches a chunk runs before the next chunk
 *                has its turn; 0: ranks.
 * overlap        interleaved: steady pairs run as FB, one forward more ahead.
 */
typedef struct weft_schedule_config {
    size_t size_bytes;
    const char *name;
    int ranks;
    int microbatches;
    int chunks;
    int group;
    bool overlap;
} weft_schedule_config;

/*
 * weft_schedule_create - the compute-only list (F I W B FB) of a generator.
 *
 * Returns     OK | ERR_INVALID (with the nearest value that works) |
 *             ERR_NO_MEMORY (also, before any is taken, where the list will be
 *             larger than what this process can have).
 * Source      overlap/schedule/, one file per generator; docs/schedules.md.
 */
WEFT_NODISCARD weft_status weft_schedule_create(
    const weft_schedule_config *config, weft_schedule **schedule_out);
void weft_schedule_destroy(weft_schedule *schedule); /* NULL legal */

/* The i-th generator's name and what it is; NULL past the last. */
const char *weft_schedule_name(int i);
const char *weft_schedule_meaning(int i);

/*
 * weft_schedule_mark_encoder - the first stages of each direction are those of
 * an encoder: another branch of the model, joined to the rest behind them.
 *
 * Nothing is moved; painters show them apart. CSV does not carry it.
 *
 * stages      0: there is none, as in a new schedule.
 *
 * Returns     OK | ERR_INVALID (NULL; as many as a direction has, or more).
 */
WEFT_NODISCARD weft_status weft_schedule_mark_encoder(weft_schedule *schedule,
                                                      int stages);

/* weft_schedule_info - the numbers of a schedule. */
typedef struct weft_schedule_info {
    size_t size_bytes; /* set by the caller */
    int ranks;
    int stages;         /* of all directions */
    int directions;     /* 1; 2: every stage of the model lives on two ranks */
    int chunks;         /* stages a rank holds of one direction, at most */
    int microbatches;   /* of the step, all directions together */
    bool lowered;       /* the list has messages */
    size_t actions;     /* of all ranks */
    size_t messages;    /* between ranks in a step, also where not lowered */
    char name[32];      /* the generator's, or "csv" */
    int encoder_stages; /* of each direction, the first ones; 0: none */
} weft_schedule_info;

/*
 * weft_schedule_get_info - what a schedule is about.
 *
 * Returns     OK | ERR_INVALID (info->size_bytes).
 */
WEFT_NODISCARD weft_status weft_schedule_get_info(const weft_schedule *schedule,
                                                  weft_schedule_info *info);

/* The rank that stage is on. */
int weft_schedule_get_rank(const weft_schedule *schedule, int stage);

/*
 * weft_schedule_get_actions - a rank's list.
 *
 * actions_out   borrowed until the next pass or destroy.
 * Returns       their number.
 */
size_t weft_schedule_get_actions(const weft_schedule *schedule, int rank,
                                 const weft_action **actions_out);

/*
 * Bits of weft_schedule_read and _write.
 *
 * OLD_TORCH   (read) older text, where I was written as B and B as BW.
 * TORCH       (write) only what torch's parser knows; the rest is left out.
 */
enum { WEFT_CSV_OLD_TORCH = 1, WEFT_CSV_TORCH = 2 };

/*
 * weft_schedule_read - a schedule from CSV: one row per rank, one action per
 * cell, no header; empty cells are idle slots and mean nothing. The row that
 * computes a stage is its rank. Messages that follow one another in a row are
 * posted together (weft_action.joined), up to one that ends in "|".
 *
 * directions   1 or 2; 0: 2 where the list can only be read that way (stages r
 *              and 2P-1-r on rank r, and stage P begins before P-1 has).
 *
 * Returns     OK | ERR_INVALID (row and column, both from 1; also for a
 *             byte-order mark, UTF-16 and quoted cells) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status weft_schedule_read(const char *text,
                                              size_t text_bytes, int directions,
                                              unsigned flags,
                                              weft_schedule **schedule_out);

/*
 * weft_schedule_write - as CSV. A message that is not posted together with the
 * one right behind it ends in "|", but for torch.
 *
 * Returns     OK | ERR_SYSTEM (the stream failed).
 */
WEFT_NODISCARD weft_status weft_schedule_write(const weft_schedule *schedule,
                                               unsigned flags, FILE *file);

/* ---- the checker ---------------------------------------------------------
 */

/*
 * How messages behave, for the proof that none waits for ever.
 *
 * GROUPED      messages posted together (weft_action.joined) end together, when
 *              the other side of each has been posted
 * RENDEZVOUS   each message by itself blocks until the other side is there
 * EAGER        a send blocks only while eager_slots sends of its ordered pair
 *              of ranks have not been received; a receive until its send is
 *              done
 */
typedef enum weft_semantics {
    WEFT_SEMANTICS_GROUPED,
    WEFT_SEMANTICS_RENDEZVOUS,
    WEFT_SEMANTICS_EAGER
} weft_semantics;

/* What a schedule must obey. */
typedef enum weft_rule {
    WEFT_RULE_COMPLETE = 1, /* everything once, each SEND with its RECV */
    WEFT_RULE_ORDER,        /* inputs before their use, in the rank's list */
    WEFT_RULE_FIFO,      /* a pair of ranks sends and receives in one order */
    WEFT_RULE_DEADLOCK,  /* nobody waits in a circle */
    WEFT_RULE_PEAK,      /* memory within the limits given */
    WEFT_RULE_COLLECTIVE /* a group's collectives in one order everywhere */
} weft_rule;

/* The one word for a rule: "complete", "order", ... */
const char *weft_rule_text(weft_rule rule);

/*
 * An action: the index-th of the rank's list. row, column: its cell in the text
 * that it was read from, from 1; 0 where it was not read, or a pass has changed
 * the list since.
 */
typedef struct weft_place {
    int rank;
    size_t index;
    int row, column;
} weft_place;

/* One breach; at.rank -1: of no single action. */
typedef struct weft_finding {
    weft_rule rule;
    weft_place at;
    char text[320];
} weft_finding;

#define WEFT_FINDINGS_MOST    8
#define WEFT_EAGER_SLOTS_MOST 1024

/* weft_check_config - how to check. NULL or zeros: grouped, no limits.
 * size_bytes must be set. */
typedef struct weft_check_config {
    size_t size_bytes;
    weft_semantics semantics;
    int eager_slots;         /* 1 .. WEFT_EAGER_SLOTS_MOST, of EAGER */
    double activations_most; /* device units per rank; 0: any */
    int early_most;          /* received and not yet used, per rank; 0: any */
    bool keep_order;         /* fill verdict.order */
} weft_check_config;

/*
 * weft_verdict - what the checker found.
 *
 * deadlock_known   false where too much is missing to tell.
 * cycle            the actions that wait for one another, each for the next and
 *                  the last for the first; or, if what the last waits for comes
 *                  from nowhere, a chain that ends there.
 * activations      [ranks] peak in device units: one micro-batch through all
 *                  layers of a rank is 1, from the start of F to the end of B,
 *                  or of W where the backward is split.
 * early            [ranks] most messages received and not yet used.
 * order            the ranks of all actions in an order in which they can run:
 *                  the k-th mention of a rank is the k-th action of its list.
 *                  After any prefix of it no message is under way that has been
 *                  received but not sent. NULL unless asked for and valid.
 */
typedef struct weft_verdict {
    bool valid;
    bool deadlock_known, deadlock_free;
    size_t finding_count; /* all; the first are in findings */
    weft_finding findings[WEFT_FINDINGS_MOST];
    size_t cycle_count;
    weft_place *cycle;
    double *activations;
    int32_t *early;
    size_t order_count;
    int32_t *order;
} weft_verdict;

/*
 * weft_schedule_check - proves or refutes a schedule, lowered or not. Not
 * lowered, rules about messages do not apply, and a rank waits for the other
 * ranks' results themselves.
 *
 * Returns     OK (whatever the verdict; fini it) | ERR_INVALID |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status weft_schedule_check(const weft_schedule *schedule,
                                               const weft_check_config *config,
                                               weft_verdict *verdict_out);
void weft_verdict_fini(weft_verdict *verdict); /* frees what it points to */

/* ---- passes ---------------------------------------------------------------
 *
 * Each changes the schedule in place. The order in which they make sense:
 * plan, merge, recompute, shard, reduce, optimize, lower, release, group.
 *
 * Returns     OK | with the schedule as it was ERR_INVALID (it does not apply
 *             here; the text says why), ERR_NO_MEMORY.
 */

/* Each I that its own W follows at once becomes a B. */
WEFT_NODISCARD weft_status weft_schedule_merge(weft_schedule *schedule);

/*
 * How messages are put between the compute actions.
 *
 * SENDER     a rank's SEND right behind what it sends, and at that moment the
 *            RECV at the end of what the peer has by then: all ranks' lists
 *            follow one global order, which cannot deadlock. Receives come
 *            early: post them, and wait before their use.
 * GAP        between two compute actions one group: what the first made, what
 *            the second needs
 * NAIVE      the same, each message by itself: most schedules deadlock
 * DUALPIPE   the placement of dualpipe and dualpipev's authors; for these two
 *            as generated
 */
typedef enum weft_lowering {
    WEFT_LOWERING_SENDER,
    WEFT_LOWERING_GAP,
    WEFT_LOWERING_NAIVE,
    WEFT_LOWERING_DUALPIPE
} weft_lowering;

/* Puts messages between the compute actions. */
WEFT_NODISCARD weft_status weft_schedule_lower(weft_schedule *schedule,
                                               weft_lowering lowering);

/* Neighbouring messages become groups of up to most; 0: of any number. */
WEFT_NODISCARD weft_status weft_schedule_group(weft_schedule *schedule,
                                               int most);

/*
 * REDUCE_GRAD behind each stage's last W or B; staggered: rank r's r backwards
 * later (of two directions: as many as it is away from the nearer end), so that
 * all ranks reduce at the same time. Ranks with the same parts, of two
 * directions, reduce them in one order; where one could then wait for itself,
 * behind all else.
 */
WEFT_NODISCARD weft_status weft_schedule_reduce(weft_schedule *schedule,
                                                bool staggered);

/*
 * OPT of each stage at the end, in the order in which they reduce (else: in
 * which their last gradients come), and GATHER_PARAM at the beginning: of the
 * first stage at once, of each next one when the stage before is first used.
 */
WEFT_NODISCARD weft_status weft_schedule_optimize(weft_schedule *schedule);

/*
 * UNSHARD and RESHARD, so that a rank has the parameters of the next resident
 * stages it will use, and of no others; those that go, go first. torch: 3.
 */
WEFT_NODISCARD weft_status weft_schedule_shard(weft_schedule *schedule,
                                               int resident);

/* RECOMPUTE before each I and B: activations do not live between. */
WEFT_NODISCARD weft_status weft_schedule_recompute(weft_schedule *schedule);

/*
 * RELEASE behind the messages that F's output went with; of the last stage,
 * behind its F. What the next stage on the same rank uses stays.
 */
WEFT_NODISCARD weft_status weft_schedule_release(weft_schedule *schedule);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
