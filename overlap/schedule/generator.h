/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/generator.h - the generators, one file each, and the writer
 * they write with.
 *
 * A generator gets the config, checked as far as all have it in common, refuses
 * what its own rules forbid, makes the schedule, and writes one rank's list
 * after the other in the order in which the actions run.
 */
#ifndef OVERLAP_SCHEDULE_GENERATOR_H
#define OVERLAP_SCHEDULE_GENERATOR_H

#include "overlap/schedule/schedule.h"

typedef weft_status wefti_generate(const weft_schedule_config *config,
                                   weft_schedule **schedule_out);

wefti_generate wefti_generate_gpipe;
wefti_generate wefti_generate_1f1b;
wefti_generate wefti_generate_interleaved;
wefti_generate wefti_generate_zb_h1;
wefti_generate wefti_generate_zb_h2;
wefti_generate wefti_generate_zbv;
wefti_generate wefti_generate_dualpipe;
wefti_generate wefti_generate_dualpipev;

/*
 * wefti_schedule_predict - how large a config's schedule will be, before it is
 * made; ranks and microbatches are within their limits.
 *
 * work       [stages][micro-batches of each]: as many as a list has F.
 * actions    of the list as it is made, at most.
 */
typedef struct wefti_schedule_size {
    uint64_t work, actions;
} wefti_schedule_size;

wefti_schedule_size wefti_schedule_predict(const weft_schedule_config *config);

/*
 * What the whole of a schedule takes at its peak: two lists while messages are
 * put in, or the tables of the checker or of the simulator.
 */
uint64_t wefti_schedule_peak_bytes(wefti_schedule_size size);

/* OK where the config asks for no chunks of its own but most. */
WEFT_NODISCARD weft_status
wefti_generate_chunks(const weft_schedule_config *config, int chunks);

/* Writes a list; step is put on each action. */
typedef struct wefti_action_writer {
    wefti_actions *list;
    uint8_t step;
} wefti_action_writer;

static inline void wefti_action_writer_add(wefti_action_writer *writer,
                                           weft_action action)
{
    action.step = writer->step;
    wefti_actions_add(writer->list, action);
}

static inline void wefti_action_writer_put(wefti_action_writer *writer,
                                           weft_action_type type, int stage,
                                           int microbatch)
{
    wefti_action_writer_add(writer, wefti_action(type, stage, microbatch));
}

/*
 * wefti_generate_line - a schedule with one stage a rank; write writes the list
 * of each rank.
 *
 * Returns     OK | ERR_INVALID (the config asks for chunks) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status
wefti_generate_line(const weft_schedule_config *config,
                    void (*write)(wefti_action_writer *writer, int rank,
                                  int ranks, int microbatches),
                    weft_schedule **schedule_out);

#endif
