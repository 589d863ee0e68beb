/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/rails.c - shares in proportion to speed, whole numbers.
 */
#include "comm/net/rails.h"

enum { ROUND_BYTES = 64 };

/* In a millisecond; 0: the rail is not used. So that products stay small. */
static uint64_t speed_of(int64_t byte_ps)
{
    const uint64_t speed =
        byte_ps > 0 ? UINT64_C(1000000000) / (uint64_t)byte_ps : 0;
    return byte_ps > 0 && speed == 0 ? 1 : speed;
}

int64_t wefti_rails_byte_ps(const int64_t byte_ps[WEFTI_RAILS_MOST])
{
    uint64_t speed = 0;
    for (int r = 0; r < WEFTI_RAILS_MOST; r++) {
        speed += speed_of(byte_ps[r]);
    }
    return speed ? (int64_t)(UINT64_C(1000000000) / speed) : 0;
}

/* What rail r has sent once all those that take part end together. */
typedef struct party {
    uint64_t speed, bytes; /* of all; bytes: new and waiting */
} party;

static party meet(size_t bytes, const wefti_rail_load *rails,
                  const bool takes_part[])
{
    party all = {0, bytes};
    for (int r = 0; r < WEFTI_RAILS_MOST; r++) {
        if (takes_part[r]) {
            all.speed += speed_of(rails[r].byte_ps);
            all.bytes += rails[r].waiting_bytes;
        }
    }
    return all;
}

/* Its piece; below 0: it would end later without any. In doubles, as what is
 * lost is far less than what a piece is rounded by. */
static double share_of(const party *all, const wefti_rail_load *rail)
{
    return (double)all->bytes * (double)speed_of(rail->byte_ps) /
               (double)all->speed -
           (double)rail->waiting_bytes;
}

/* The rail that would be the first to have sent all of it. */
static int find_first(size_t bytes, const wefti_rail_load *rails)
{
    int first = -1;
    double least = 0;
    for (int r = 0; r < WEFTI_RAILS_MOST; r++) {
        const double ends = ((double)rails[r].waiting_bytes + (double)bytes) *
                            (double)rails[r].byte_ps;
        if (rails[r].byte_ps > 0 && (first < 0 || ends < least)) {
            first = r;
            least = ends;
        }
    }
    return first;
}

/* Whoever would get the least, if that is too little; -1: nobody. */
static int find_idle(const party *all, const wefti_rail_load *rails,
                     const bool takes_part[])
{
    int idle = -1;
    double least = WEFTI_RAIL_PIECE_BYTES;
    for (int r = 0; r < WEFTI_RAILS_MOST; r++) {
        const double share = takes_part[r] ? share_of(all, &rails[r]) : least;
        if (share < least) {
            idle = r;
            least = share;
        }
    }
    return idle;
}

int wefti_rails_cut(size_t bytes, const wefti_rail_load rails[WEFTI_RAILS_MOST],
                    size_t pieces_out[WEFTI_RAILS_MOST])
{
    const int first = find_first(bytes, rails);
    bool takes_part[WEFTI_RAILS_MOST];
    int count = 0, idle;
    for (int r = 0; r < WEFTI_RAILS_MOST; r++) {
        pieces_out[r] = 0;
        takes_part[r] = rails[r].byte_ps > 0;
        count += takes_part[r];
    }
    party all = meet(bytes, rails, takes_part);
    while (count > 1 && (idle = find_idle(&all, rails, takes_part)) >= 0) {
        takes_part[idle] = false;
        count--;
        all = meet(bytes, rails, takes_part);
    }
    if (count == 1 || bytes <= WEFTI_RAIL_WHOLE_BYTES) {
        pieces_out[first] = bytes;
        return 1;
    }
    size_t left = bytes;
    int last = -1;
    for (int r = 0; r < WEFTI_RAILS_MOST; r++) {
        if (takes_part[r]) {
            const size_t share = (size_t)share_of(&all, &rails[r]);
            pieces_out[r] = share / ROUND_BYTES * ROUND_BYTES;
            left -= pieces_out[r];
            last = r;
        }
    }
    pieces_out[last] += left;
    return count;
}
