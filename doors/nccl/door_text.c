/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_text.c - the last text of each thread, and of the process: a
 * watchdog asks for what went wrong in another thread.
 */
#include "doors/nccl/door_text.h"

#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

/* Of the process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char latest[TEXT_BYTES]; /* guarded by lock */

static _Thread_local char own[TEXT_BYTES];
static _Thread_local char borrowed[TEXT_BYTES]; /* a copy of latest */

int wefti_door_error(int result, const char *format, ...)
{
    char text[TEXT_BYTES]; /* arguments may include own */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    memcpy(own, text, sizeof(own));
    pthread_mutex_lock(&lock);
    memcpy(latest, text, sizeof(latest));
    pthread_mutex_unlock(&lock);
    wefti_log(WEFTI_LOG_INFO, -1, "nccl: %s", text);
    return result;
}

int wefti_door_result_of(weft_status status)
{
    switch (status) {
    case WEFT_OK:
        return WEFTI_DOOR_SUCCESS;
    case WEFT_INPROGRESS:
        return WEFTI_DOOR_IN_PROGRESS;
    case WEFT_ERR_INVALID:
        return WEFTI_DOOR_INVALID_ARGUMENT;
    case WEFT_ERR_UNSUPPORTED:
    case WEFT_ERR_MISMATCH:
        return WEFTI_DOOR_INVALID_USAGE;
    case WEFT_ERR_NO_MEMORY:
    case WEFT_ERR_SYSTEM:
        return WEFTI_DOOR_SYSTEM_ERROR;
    case WEFT_ERR_BOOTSTRAP:
    case WEFT_ERR_PEER:
    case WEFT_ERR_TIMEOUT:
    case WEFT_ERR_ABORTED:
        return WEFTI_DOOR_REMOTE_ERROR;
    }
    return WEFTI_DOOR_INTERNAL_ERROR;
}

int wefti_door_status(weft_status status, const char *call)
{
    const int result = wefti_door_result_of(status);
    return status >= WEFT_OK
               ? result
               : wefti_door_error(result, "%s: %s", call, weft_error_text());
}

const char *wefti_door_last_text(void)
{
    if (own[0] != '\0') {
        return own;
    }
    pthread_mutex_lock(&lock);
    memcpy(borrowed, latest, sizeof(borrowed));
    pthread_mutex_unlock(&lock);
    return borrowed;
}
