/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure_ceiling.c - what H can be at most, of each class and of all.
 */
#include "trainer/measure.h"

#include <math.h>

/* What is of rest and what of c is there. */
static void find_ceiling(const wefti_measure_times *ovl,
                         const wefti_measure_times *comp,
                         const wefti_measure_times *ser, double hiding_ratio,
                         wefti_measure_ceiling *out)
{
    const double least_ms =
        out->rest_ms + (out->bare_nothing ? 0 : out->bare_ms);
    out->gain_ms = ser->median_ms - comp->median_ms;
    out->over_ms = ovl->median_ms - comp->median_ms;
    out->spread_ms = fmax(ovl->spread_ms, comp->spread_ms);
    out->ceiling =
        isnan(hiding_ratio) ? (double)NAN : 1 - least_ms / out->gain_ms;
    /* Less than a nanosecond is nothing to compare with. */
    out->over_ratio = least_ms > 1e-6 ? out->over_ms / least_ms : (double)NAN;
}

bool wefti_measure_exceeds(const wefti_measure_ceiling *ceiling)
{
    return !ceiling->bare_why &&
           ceiling->over_ms - 1.15 * (ceiling->rest_ms + ceiling->bare_ms) >
               ceiling->spread_ms;
}

/* Without a rest, which all ranks lack then, c would say nothing. */
static weft_status find_cost(const wefti_replica *replica, weft_class class_id,
                             wefti_measure_result *result)
{
    const wefti_measure_class *own = &result->classes[class_id];
    wefti_measure_cost cost = {(double)NAN, false, "there is no rest"};
    weft_status status = WEFT_OK;
    if (!result->rest.why) {
        status = wefti_cost_find(replica, class_id, (size_t)own->sent_bytes,
                                 result->rest.ops[class_id], &cost);
    }
    result->classes[class_id].ceiling =
        (wefti_measure_ceiling){.rest_ms = result->rest.class_ms[class_id],
                                .bare_ms = cost.cpu_ms,
                                .bare_nothing = cost.nothing,
                                .bare_why = cost.why};
    return status;
}

/* Of all: the sum of those that send, if each was measured. */
static void add_cost(const wefti_measure_ceiling *own,
                     wefti_measure_ceiling *all)
{
    if (!own->bare_nothing) {
        all->bare_ms = (all->bare_nothing ? 0 : all->bare_ms) + own->bare_ms;
        all->bare_nothing = false;
    }
    if (own->bare_why && (!all->bare_why || !own->bare_nothing)) {
        all->bare_why = own->bare_why;
    }
}

weft_status wefti_measure_find_ceilings(const wefti_replica *replica,
                                        wefti_measure_result *result)
{
    const wefti_measure_times *ovl = &result->times[WEFTI_MEASURE_OVERLAPPED];
    wefti_measure_ceiling *all = &result->ceiling;
    weft_status status = WEFT_OK;
    bool any = false;
    *all = (wefti_measure_ceiling){.rest_ms = result->rest.rest_ms,
                                   .bare_ms = (double)NAN,
                                   .bare_nothing = true};
    for (int c = 0; c < WEFT_CLASS_COUNT && status == WEFT_OK; c++) {
        wefti_measure_class *own = &result->classes[c];
        if (own->there) {
            status = find_cost(replica, (weft_class)c, result);
            find_ceiling(ovl, &own->without, &own->serial, own->hiding_ratio,
                         &own->ceiling);
            add_cost(&own->ceiling, all);
            any = true;
        }
    }
    all->bare_why = any ? all->bare_why : "nothing is sent";
    find_ceiling(ovl, &result->times[WEFTI_MEASURE_COMPUTE],
                 &result->times[WEFTI_MEASURE_SERIAL],
                 any ? result->hiding_ratio : (double)NAN, all);
    all->over_ratio = any ? all->over_ratio : (double)NAN;
    return status;
}
