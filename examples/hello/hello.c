/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hello - the smallest program that uses weft: every rank adds its number + 1
 * to a sum that all of them get.
 *
 *     cc hello.c $(pkg-config --cflags --libs weft) -o hello
 *     ./hello                      one rank
 *     weft-run -n 4 ./hello        four
 */
#include <weft/weft.h>

#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "hello: %s: %s\n", what, weft_error_text());
    return 1;
}

int main(void)
{
    weft_comm *comm;
    if (weft_comm_create(NULL, &comm) != WEFT_OK) {
        return fail("weft_comm_create");
    }
    int rank = weft_comm_get_rank(comm);
    int nranks = weft_comm_get_nranks(comm);
    int32_t sum = rank + 1;
    if (weft_allreduce(&sum, &sum, 1, WEFT_DTYPE_I32, WEFT_REDOP_SUM, comm,
                       NULL) != WEFT_OK) {
        weft_comm_destroy(comm);
        return fail("weft_allreduce");
    }
    printf("weft %s: rank %d of %d, sum %d\n", weft_version_text(), rank,
           nranks, (int)sum);
    weft_comm_destroy(comm);
    return 0;
}
