/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/interleaved.c - interleaved 1F1B (VPP): 1F1B over virtual
 * steps, V chunks a rank.
 *
 * Stage c*P + r is chunk c of rank r. A virtual step is one micro-batch in one
 * chunk; chunks take turns, each for a group of N micro-batches:
 *
 *     P = 2, V = 2, N = 2, forwards of rank 0:   chunk 0: 0 1   chunk 1: 0 1
 *                                                chunk 0: 2 3   chunk 1: 2 3
 *
 * A last group that is shorter than P would starve the pipe: such numbers of
 * micro-batches are refused.
 *
 * Source: Narayanan et al., arXiv 2104.04473, section 2.2.
 */
#include "overlap/schedule/generator.h"

#include "base/error.h"

typedef struct shape {
    int ranks, chunks, microbatches, group;
    bool overlap;
} shape;

typedef struct virtual_step {
    int stage, microbatch;
} virtual_step;

/* Entry k of the table: group by group, in it chunk by chunk. */
static virtual_step look_up(const shape *s, int rank, int k, bool backward)
{
    int whole = s->group * s->chunks; /* entries of a whole group */
    int begin = k / whole * s->group; /* its first micro-batch */
    int in_group = s->microbatches - begin;
    in_group = in_group < s->group ? in_group : s->group;
    int chunk = k % whole / in_group;
    int microbatch = begin + k % whole % in_group;
    if (backward) {
        chunk = s->chunks - 1 - chunk;
    }
    return (virtual_step){chunk * s->ranks + rank, microbatch};
}

static void put(wefti_action_writer *writer, weft_action_type type,
                virtual_step at)
{
    wefti_action_writer_put(writer, type, at.stage, at.microbatch);
}

static void write_rank(wefti_action_writer *writer, const shape *s, int rank)
{
    int steps = s->microbatches * s->chunks;
    int ahead = 2 * (s->ranks - 1 - rank) + (s->chunks - 1) * s->group +
                (s->overlap ? 1 : 0);
    ahead = ahead < steps ? ahead : steps;

    writer->step = 1; /* warm-up */
    for (int k = 0; k < ahead; k++) {
        put(writer, WEFT_ACTION_F, look_up(s, rank, k, false));
    }
    writer->step = 2; /* steady */
    for (int k = 0; k < steps - ahead; k++) {
        virtual_step f = look_up(s, rank, ahead + k, false);
        virtual_step b = look_up(s, rank, k, true);
        if (s->overlap) {
            wefti_action_writer_add(writer,
                                    wefti_action_pair(f.stage, f.microbatch,
                                                      b.stage, b.microbatch));
        } else {
            put(writer, WEFT_ACTION_F, f);
            put(writer, WEFT_ACTION_B, b);
        }
    }
    writer->step = 3; /* drain */
    for (int k = steps - ahead; k < steps; k++) {
        put(writer, WEFT_ACTION_B, look_up(s, rank, k, true));
    }
}

static bool works(int microbatches, int group, int ranks)
{
    int rest = microbatches % group;
    return microbatches >= group && (rest == 0 || rest >= ranks);
}

/* The nearest number of micro-batches that works; the smaller of two. */
static int find_nearest(int microbatches, int group, int ranks)
{
    int away = 1;
    while (!works(microbatches - away, group, ranks) &&
           !works(microbatches + away, group, ranks)) {
        away++;
    }
    return works(microbatches - away, group, ranks) ? microbatches - away
                                                    : microbatches + away;
}

static weft_status check_shape(const shape *s)
{
    if (s->group < s->ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "interleaved, group %d: allowed is %d (ranks) .. %d "
                           "(microbatches)",
                           s->group, s->ranks, s->microbatches);
    }
    if (!works(s->microbatches, s->group, s->ranks)) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "interleaved, microbatches %d: with groups of %d on %d ranks the "
            "last group must be whole or have at least %d, and there must be "
            "one whole group; the nearest that works is %d",
            s->microbatches, s->group, s->ranks, s->ranks,
            find_nearest(s->microbatches, s->group, s->ranks));
    }
    if ((int64_t)s->microbatches * s->chunks > INT32_MAX / 4) {
        return wefti_error(WEFT_ERR_INVALID,
                           "interleaved: %d microbatches in %d chunks are too "
                           "many for one rank",
                           s->microbatches, s->chunks);
    }
    return WEFT_OK;
}

weft_status wefti_generate_interleaved(const weft_schedule_config *config,
                                       weft_schedule **schedule_out)
{
    shape s = {.ranks = config->ranks,
               .chunks = config->chunks ? config->chunks : 2,
               .microbatches = config->microbatches,
               .group = config->group ? config->group : config->ranks,
               .overlap = config->overlap};
    weft_status status = check_shape(&s);
    if (status == WEFT_OK) {
        status = wefti_schedule_make("interleaved", s.ranks, s.ranks * s.chunks,
                                     1, s.microbatches, schedule_out);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < s.ranks; r++) {
        wefti_action_writer writer = {&(*schedule_out)->lists[r], 0};
        write_rank(&writer, &s, r);
    }
    return WEFT_OK;
}
