/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_api.c - which functions the fake driver has, and how each
 * call begins.
 */
#include "tests/fake/fake.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
                   .progress = PTHREAD_COND_INITIALIZER};

typedef struct api_function {
    const char *name;
    unsigned since;
    void (*function)(void);
} api_function;

static const api_function functions[] = {
#define FUNCTION(name, variant, since, arguments)                              \
    {#name, since, (void (*)(void))variant},
    FAKE_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

enum { FUNCTION_COUNT = sizeof(functions) / sizeof(functions[0]) };

static bool is_missing(const char *name)
{
    const char *list = fake_get_settings()->missing;
    size_t length = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name)) {
        bool begins = at == list || at[-1] == ',';
        if (begins && (at[length] == '\0' || at[length] == ',')) {
            return true;
        }
    }
    return false;
}

/* cuGetProcAddress: names have no suffix of a version; the newest variant that
 * is not newer than `version` is meant; NOT_FOUND where there is none. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                             uint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    unsigned driver = (unsigned)fake_get_settings()->driver_version;
    if (!symbol || !function || flags > 2) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *function = NULL;
    for (int i = 0; i < FUNCTION_COUNT && !*function; i++) {
        const api_function *known = &functions[i];
        if (strcmp(known->name, symbol) != 0 || is_missing(symbol) ||
            known->since > driver) {
            continue;
        }
        if (known->since > (unsigned)version) {
            found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        found = CU_GET_PROC_ADDRESS_SUCCESS;
        memcpy(function, &known->function, sizeof(*function));
    }
    if (status) {
        *status = found;
    }
    if (!*function) {
        fake_say("%s of version %d: no such function", symbol, version);
        return CUDA_ERROR_NOT_FOUND;
    }
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = (int)fake_get_settings()->driver_version;
    return CUDA_SUCCESS;
}

/* cuInit: flags must be 0; NO_DEVICE where there is none. */
CUresult cuInit(unsigned flags)
{
    const fake_settings *settings = fake_get_settings();
    if (flags != 0 || !settings->good) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (settings->visible_count == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    int none = 0, self = (int)getpid();
    if (!atomic_compare_exchange_strong(&fake.pid, &none, self) &&
        none != self) {
        return CUDA_ERROR_NOT_INITIALIZED; /* see fake_enter */
    }
    return CUDA_SUCCESS;
}

/* Error texts are constant, and unknown codes are INVALID_VALUE and NULL
 * (cuGetErrorName, cuGetErrorString). */
CUresult cuGetErrorName(CUresult error, const char **text)
{
    switch (error) {
#define NAME(name, value, string)                                              \
    case name:                                                                 \
        *text = #name;                                                         \
        return CUDA_SUCCESS;
        FAKE_RESULTS(NAME)
#undef NAME
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    switch (error) {
#define STRING(name, value, string)                                            \
    case name:                                                                 \
        *text = string;                                                        \
        return CUDA_SUCCESS;
        FAKE_RESULTS(STRING)
#undef STRING
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

static _Thread_local bool in_function;

void fake_set_in_function(bool inside)
{
    in_function = inside;
}

/* CUDA_ERROR_NOT_INITIALIZED: "cuInit has not been called, or has failed". A
 * context cannot be used in a child of its process: no forked process may use
 * the driver that its parent has initialised (programming guide).
 * CUDA_ERROR_NOT_PERMITTED: see cuLaunchHostFunc. */
CUresult fake_enter(void)
{
    if (in_function) {
        fake_say("called from a function of cuLaunchHostFunc");
        return CUDA_ERROR_NOT_PERMITTED;
    }
    int pid = atomic_load(&fake.pid);
    if (pid == 0) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (pid != (int)getpid()) {
        fake_say("called in a child of the process that has called cuInit");
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return CUDA_SUCCESS;
}

/* CUDA_ERROR_ILLEGAL_ADDRESS and its like leave the process "in an inconsistent
 * state and any further CUDA work will return the same error". */
CUresult fake_enter_context(void)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!fake_current()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&fake.lock);
    result = fake.sticky;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

void fake_fail(CUresult error)
{
    uint64_t backoff_ns = 0;
    pthread_mutex_lock(&fake.lock);
    if (fake.dying == CUDA_SUCCESS) {
        fake.dying = error;
        pthread_cond_broadcast(&fake.progress);
        while (fake_range_any_used()) {
            fake_wait_locked(&backoff_ns);
        }
        fake.sticky = error;
    }
    pthread_cond_broadcast(&fake.progress);
    pthread_mutex_unlock(&fake.lock);
}

void fake_wait_locked(uint64_t *backoff_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    *backoff_ns = *backoff_ns < 20000     ? 20000
                  : *backoff_ns < 1000000 ? 2 * *backoff_ns
                                          : *backoff_ns;
    uint64_t ns = (uint64_t)until.tv_nsec + *backoff_ns;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&fake.progress, &fake.lock, &until);
}
