/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/staging_list.c - the list, counted through in nested loops.
 */
#include "tests/comm/staging_list.h"

#include <pthread.h>
#include <stdlib.h>

bool staging_reduces(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLREDUCE ||
           collective == WEFT_COLLECTIVE_REDUCE ||
           collective == WEFT_COLLECTIVE_REDUCESCATTER ||
           collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

bool staging_is_varied(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLTOALLV ||
           collective == WEFT_COLLECTIVE_ALLGATHERV ||
           collective == WEFT_COLLECTIVE_GATHERV ||
           collective == WEFT_COLLECTIVE_SCATTERV ||
           collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

static bool may_be_in_place(weft_collective collective)
{
    return collective != WEFT_COLLECTIVE_ALLTOALL &&
           collective != WEFT_COLLECTIVE_ALLTOALLV &&
           collective != WEFT_COLLECTIVE_SEND;
}

static bool is_listed(const staging_case *one)
{
    switch (one->collective) {
    case WEFT_COLLECTIVE_RECV: /* goes with SEND */
        return false;
    case WEFT_COLLECTIVE_BARRIER: /* has nothing of all this */
        return one->dtype == 0 && one->redop == WEFT_REDOP_SUM &&
               one->count == STAGING_COUNT_NONE && !one->in_place;
    default:
        return (one->redop == WEFT_REDOP_SUM ||
                (staging_reduces(one->collective) &&
                 weft_redop_applies(one->redop, one->dtype))) &&
               (!one->in_place || may_be_in_place(one->collective));
    }
}

enum {
    ALL = WEFT_COLLECTIVE_COUNT * WEFT_DTYPE_COUNT * WEFT_REDOP_COUNT *
          STAGING_COUNT_COUNT * 2
};

static staging_case unpack(int number)
{
    staging_case one = {.in_place = number % 2 != 0};
    number /= 2;
    one.count = (staging_count)(number % STAGING_COUNT_COUNT);
    number /= STAGING_COUNT_COUNT;
    one.redop = (weft_redop)(number % WEFT_REDOP_COUNT);
    number /= WEFT_REDOP_COUNT;
    one.dtype = (weft_dtype)(number % WEFT_DTYPE_COUNT);
    one.collective = (weft_collective)(number / WEFT_DTYPE_COUNT);
    return one;
}

/* Made by the first thread that asks. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int listed[ALL]; /* their numbers */
static size_t listed_count;

static void make_list(void)
{
    for (int i = 0; i < ALL; i++) {
        const staging_case one = unpack(i);
        if (is_listed(&one)) {
            listed[listed_count++] = i;
        }
    }
}

size_t staging_list_count(void)
{
    pthread_once(&once, make_list);
    return listed_count;
}

staging_case staging_list_get(size_t number)
{
    if (number >= staging_list_count()) {
        abort();
    }
    return unpack(listed[number]);
}

size_t staging_list_first(unsigned seed, int nranks, size_t shares)
{
    return ((size_t)seed * STAGING_RANKS + (size_t)nranks) % shares;
}
