/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: no text harms the reader of schedules, nor what comes behind it.
 * Method: the first byte chooses flags and directions, the rest is the text.
 * What is read must write and read again as the same text, and the checker, the
 * passes and the simulator must come to an end on it.
 */
#include "weft/schedule_cost.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static char *write_text(const weft_schedule *schedule, size_t *text_bytes)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, text_bytes);
    require(file != NULL);
    require(weft_schedule_write(schedule, 0, file) == WEFT_OK);
    require(fclose(file) == 0);
    return text;
}

static bool is_valid(const weft_schedule *schedule)
{
    weft_verdict verdict;
    require(weft_schedule_check(schedule, NULL, &verdict) == WEFT_OK);
    require(verdict.valid == (verdict.finding_count == 0));
    bool valid = verdict.valid;
    weft_verdict_fini(&verdict);
    return valid;
}

static void go_on(weft_schedule *schedule)
{
    weft_schedule_cost cost = {
        .size_bytes = sizeof(cost), .f = 1, .i = 1, .w = 1};
    weft_schedule_run plan;
    bool valid = is_valid(schedule);
    weft_status status = weft_schedule_simulate(schedule, &cost, true, &plan);
    require(status == WEFT_OK || !valid);
    if (status == WEFT_OK) {
        weft_schedule_run_fini(&plan);
    }
    status = weft_schedule_lower(schedule, WEFT_LOWERING_SENDER);
    if (status == WEFT_OK) {
        require(is_valid(schedule) || !valid);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    if (data_bytes == 0) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    unsigned flags = data[0] & 4 ? WEFT_CSV_OLD_TORCH : 0;
    weft_schedule *schedule = NULL;
    if (weft_schedule_read(text, data_bytes - 1, (data[0] & 3) % 3, flags,
                           &schedule) != WEFT_OK) {
        require(weft_error_text()[0] != '\0');
        return 0;
    }
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    require(weft_schedule_get_info(schedule, &info) == WEFT_OK);
    size_t once_bytes, twice_bytes;
    char *once = write_text(schedule, &once_bytes);
    weft_schedule *again = NULL;
    require(weft_schedule_read(once, once_bytes, info.directions, 0, &again) ==
            WEFT_OK);
    char *twice = write_text(again, &twice_bytes);
    require(once_bytes == twice_bytes && memcmp(once, twice, once_bytes) == 0);
    go_on(schedule);
    free(once);
    free(twice);
    weft_schedule_destroy(schedule);
    weft_schedule_destroy(again);
    return 0;
}
