/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/partitions.c - counting up, drawing and crossing ways.
 */
#include "tests/comm/partitions.h"

#include "tests/seed.h"

bool partition_next(int *firsts, int nranks)
{
    for (int rank = nranks - 1; rank > 0; rank--) {
        if (firsts[rank] != rank) {
            do {
                firsts[rank]++;
            } while (firsts[firsts[rank]] != firsts[rank]);
            for (int later = rank + 1; later < nranks; later++) {
                firsts[later] = 0;
            }
            return true;
        }
    }
    return false;
}

void partition_draw(int *firsts, int nranks, int most, uint64_t *seed)
{
    for (int rank = 0; rank < nranks; rank++) {
        int label = (int)(random_next(seed) % (uint64_t)most);
        firsts[rank] = -1 - label; /* until its first is known */
    }
    for (int rank = 0; rank < nranks; rank++) {
        for (int later = nranks - 1; later >= rank && firsts[rank] < 0;
             later--) {
            if (later > rank && firsts[later] == firsts[rank]) {
                firsts[later] = rank;
            }
        }
        firsts[rank] = firsts[rank] < 0 ? rank : firsts[rank];
    }
}

void partition_cross(const int *a, const int *b, int nranks, int *firsts_out)
{
    for (int rank = 0; rank < nranks; rank++) {
        int first = 0;
        while (a[first] != a[rank] || b[first] != b[rank]) {
            first++;
        }
        firsts_out[rank] = first;
    }
}
