/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/rails_text.c - a name and a figure for each.
 */
#include "comm/cluster/rails_text.h"

#include "comm/make/explain.h"

/* Name of one that was measured; NULL: it was not, or there is none. */
static const char *rail_of(const weft_comm *comm, int rail, double *GBps_out)
{
    return comm ? wefti_comm_rail(comm, rail, GBps_out) : NULL;
}

void wefti_rails_print(const weft_comm *comm, int rails, FILE *file)
{
    double GBps;
    if (rails > 1 && !rail_of(comm, 0, &GBps)) {
        fprintf(file, " over %d rails", rails);
        return;
    }
    const char *name;
    for (int rail = 0; rails > 1 && (name = rail_of(comm, rail, &GBps));
         rail++) {
        fprintf(file, "%s %s (%.2g GB/s)", rail ? " and" : " over", name, GBps);
    }
}

void wefti_rails_write(const weft_comm *comm, wefti_json *json)
{
    const char *name;
    double GBps;
    wefti_json_array_open(json, "rail_rates");
    for (int rail = 0; (name = rail_of(comm, rail, &GBps)) != NULL; rail++) {
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", name);
        wefti_json_real(json, "GBps", GBps);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}
