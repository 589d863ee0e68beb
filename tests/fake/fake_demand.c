/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_demand.c - what the environment asks of the fake driver, and
 * the draws of its chance. docs/testing.md lists the variables. A bad value is
 * one line on stderr, and cuInit fails.
 */
#include "tests/fake/fake.h"

#include "tests/seed.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static fake_settings settings;

void fake_say(const char *format, ...)
{
    char line[512];
    int used = snprintf(line, sizeof(line), "fake CUDA driver: ");
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", line); /* in one piece */
}

static uint64_t get_number(const char *name, uint64_t otherwise, uint64_t most)
{
    const char *text = getenv(name);
    char *end = NULL;
    if (!text || !*text) {
        return otherwise;
    }
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value > most) {
        fake_say("%s=%s: allowed is 0 to %" PRIu64, name, text, most);
        settings.good = false;
        return otherwise;
    }
    return value;
}

/* One device for this process, by the rank that its launcher has given it. */
static void get_own(void)
{
    static const char *const names[] = {
        "WEFT_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"};
    unsigned count = (unsigned)settings.visible_count;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i])) {
            uint64_t rank = get_number(names[i], 0, UINT32_MAX);
            settings.visible[0] = settings.visible[rank % count];
            settings.visible_count = 1;
            return;
        }
    }
    fake_say("WEFT_FAKE_GPU_PER_RANK=1: no launcher has set WEFT_RANK");
    settings.good = false;
}

/* The programming guide, "CUDA environment variables": what follows a number
 * that is no device is not visible either. */
static void get_visible(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t seen = 0;
    while (text && *text) {
        char *end;
        unsigned long number = strtoul(text, &end, 10);
        if (end == text || (*end && *end != ',') ||
            number >= (unsigned long)settings.devices || (seen >> number & 1)) {
            break;
        }
        seen |= UINT32_C(1) << number;
        settings.visible[settings.visible_count++] = (int)number;
        text = *end ? end + 1 : end;
    }
    for (int i = 0; !getenv("CUDA_VISIBLE_DEVICES") && i < settings.devices;
         i++) {
        settings.visible[settings.visible_count++] = i;
    }
    if (settings.visible_count &&
        get_number("WEFT_FAKE_GPU_PER_RANK", 0, 1) == 1) {
        get_own();
    }
}

static void get_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t drawn =
        ((uint64_t)now.tv_sec ^ (uint64_t)getpid() << 20) * UINT64_C(1000003) +
        (uint64_t)now.tv_nsec;
    settings.seed =
        get_number("WEFT_FAKE_GPU_SEED", drawn % 1000000007, UINT64_MAX);
    if (!getenv("WEFT_FAKE_GPU_SEED")) {
        fake_say("WEFT_FAKE_GPU_SEED=%" PRIu64, settings.seed);
    }
    const char *rank = getenv("WEFT_RANK"); /* each has delays of its own */
    settings.seed ^= (rank ? strtoull(rank, NULL, 10) : 0) << 52;
}

static void get_error(void)
{
    const char *text = getenv("WEFT_FAKE_GPU_ERROR");
    char *end = NULL;
    if (!text || !*text) {
        return;
    }
    settings.error = strtoull(text, &end, 10);
    if (*end == '@') {
        settings.error_operation = strtoull(end + 1, &end, 10);
    }
    if (*end || !settings.error_operation || !settings.error ||
        settings.error > 999) {
        fake_say("WEFT_FAKE_GPU_ERROR=%s: allowed is CODE@K, as 700@5", text);
        settings.good = false;
    }
}

static void read_settings(void)
{
    settings.good = true;
    settings.devices =
        (int)get_number("WEFT_FAKE_GPU_COUNT", 1, FAKE_MOST_DEVICES);
    get_visible();
    get_seed();
    get_error();
    settings.delay_percent = get_number("WEFT_FAKE_GPU_DELAY", 100, 10000);
    settings.memory_bytes =
        (size_t)get_number("WEFT_FAKE_GPU_MEMORY_MIB", 4096, 8192) << 20;
    settings.driver_version =
        get_number("WEFT_FAKE_GPU_DRIVER_VERSION", 13000, 99990);
    settings.fail_allocation =
        get_number("WEFT_FAKE_GPU_OUT_OF_MEMORY", 0, UINT64_MAX);
    settings.no_peer = get_number("WEFT_FAKE_GPU_NO_PEER", 0, 1);
    settings.wrong_copy = get_number("WEFT_FAKE_GPU_WRONG", 0, UINT64_MAX);
    settings.no_flush = get_number("WEFT_FAKE_GPU_NO_FLUSH", 0, 1);
    settings.no_waits_64 = get_number("WEFT_FAKE_GPU_NO_64", 0, 1);
    settings.missing = getenv("WEFT_FAKE_GPU_MISSING");
    settings.missing = settings.missing ? settings.missing : "";
}

const fake_settings *fake_get_settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_settings);
    return &settings;
}

uint64_t fake_draw(uint64_t *seed, uint64_t below)
{
    return random_next(seed) % below;
}

uint64_t fake_chance(uint64_t below)
{
    pthread_mutex_lock(&fake.lock);
    if (fake.chance == 0) {
        fake.chance = fake_get_settings()->seed + 1;
    }
    uint64_t drawn = fake_draw(&fake.chance, below);
    pthread_mutex_unlock(&fake.lock);
    return drawn;
}

void fake_delay(uint64_t *seed)
{
    uint64_t kind = fake_draw(seed, 1000);
    uint64_t most_us = kind < 600   ? 0
                       : kind < 950 ? 150
                       : kind < 996 ? 2000
                                    : 20000;
    if (most_us == 0) {
        return;
    }
    uint64_t ns = (fake_draw(seed, most_us * 1000) + 1) *
                  fake_get_settings()->delay_percent / 100;
    struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    if (ns) {
        nanosleep(&time, NULL);
    }
}
