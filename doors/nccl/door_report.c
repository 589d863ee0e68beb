/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_report.c - a table in the log, whatever the log's level: it
 * was asked for.
 */
#include "doors/nccl/door_report.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"

#include <inttypes.h>

void wefti_door_report_init(wefti_door_report *report)
{
    int64_t wanted = 0;
    weft_status status = wefti_setting_int(WEFTI_SETTING_NCCL_REPORT, &wanted);
    if (status != WEFT_OK) {
        wefti_log(WEFTI_LOG_WARN, -1, "%s", weft_error_text());
    }
    *report = (wefti_door_report){.wanted = status == WEFT_OK && wanted == 1};
}

int64_t wefti_door_report_now(const wefti_door_report *report)
{
    return report->wanted ? wefti_clock_ns() : 0;
}

void wefti_door_report_wait(wefti_door_report *report, weft_collective what,
                            int64_t since_ns)
{
    if (report->wanted) {
        report->tallies[what].ns += wefti_clock_ns() - since_ns;
    }
}

void wefti_door_report_add(wefti_door_report *report, weft_collective what,
                           size_t count, weft_dtype dtype, int64_t since_ns)
{
    if (report->wanted) {
        report->tallies[what].calls++;
        report->tallies[what].bytes += count * weft_dtype_bytes(dtype);
        wefti_door_report_wait(report, what, since_ns);
    }
}

void wefti_door_report_print(const wefti_door_report *report, int rank,
                             int nranks, const char *name)
{
    for (int what = 0; report->wanted && what < WEFT_COLLECTIVE_COUNT; what++) {
        const wefti_door_tally *tally = &report->tallies[what];
        if (tally->calls > 0) {
            wefti_log(WEFTI_LOG_ERROR, rank,
                      "nccl report: \"%s\" of %d ranks: %s: %" PRIu64
                      " calls, %" PRIu64 " bytes, %.3f ms in calls",
                      name[0] ? name : "world", nranks,
                      weft_collective_text((weft_collective)what), tally->calls,
                      tally->bytes, (double)tally->ns / 1e6);
        }
    }
}
