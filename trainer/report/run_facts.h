/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/run_facts.h - what was measured, as JSON. A line of --metrics,
 * --json and the report's page have their facts from here, so that they agree
 * in names, order and digits.
 *
 * A struct is described once, by a table of its fields, and written from it.
 */
#ifndef TRAINER_REPORT_RUN_FACTS_H
#define TRAINER_REPORT_RUN_FACTS_H

#include "base/json.h"
#include "trainer/report/summary.h"

#include <stddef.h>

typedef enum wefti_fact_kind {
    WEFTI_FACT_REAL,   /* double */
    WEFTI_FACT_UINT,   /* uint64_t, size_t */
    WEFTI_FACT_INT,    /* int */
    WEFTI_FACT_BOOL,   /* bool */
    WEFTI_FACT_CHARS,  /* char [], ended by NUL */
    WEFTI_FACT_CLASSES /* double [WEFT_CLASS_COUNT], without compute */
} wefti_fact_kind;

typedef struct wefti_fact {
    const char *name; /* NULL: the table's end */
    size_t offset;
    wefti_fact_kind kind;
} wefti_fact;

/* A row of a table: the field's name is also the fact's; or name_ is. */
#define WEFTI_FACT(kind, type, field)                                          \
    {                                                                          \
#field, offsetof(type, field), WEFTI_FACT_##kind                       \
    }
#define WEFTI_FACT_AS(kind, type, field, name_)                                \
    {                                                                          \
        name_, offsetof(type, field), WEFTI_FACT_##kind                        \
    }

extern const wefti_fact wefti_facts_of_step[]; /* of wefti_metrics_step */

/* The fields of *from, into the object that is open. */
void wefti_facts_fields(wefti_json *json, const wefti_fact *table,
                        const void *from);
/* The same as an object of that name; from NULL: null. */
void wefti_facts_object(wefti_json *json, const char *name,
                        const wefti_fact *table, const void *from);

/* What --json says, as an object of that name. */
void wefti_facts_summary(wefti_json *json, const char *name,
                         const wefti_summary *summary);

#endif
