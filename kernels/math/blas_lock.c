/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/blas_lock.c - the lock that stands in for the library's own.
 */
#include "kernels/math/blas_lock.h"

#include <cblas.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void wefti_blas_lock(void)
{
    pthread_mutex_lock(&lock);
}

void wefti_blas_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

const char *wefti_blas_get_kernel(void)
{
    return openblas_get_corename();
}
