/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/flat_cost.c - asks for the choice twice, with levels and
 * without.
 */
#include "comm/cluster/flat_cost.h"

#include "comm/pattern/shape.h"

#include <math.h>

/* The choice there, and what is expected of it. */
static const char *ask(const wefti_scope *scope, const weft_op *op,
                       double *us_out)
{
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    wefti_choice choice = wefti_select(scope, op, &role);
    *us_out = choice.pattern
                  ? wefti_select_cost_ns(scope, op,
                                         wefti_algorithm_bit(choice.pattern)) /
                        1e3
                  : (double)NAN;
    return wefti_choice_text(&choice);
}

bool wefti_flat_cost_find(const wefti_scope *scope, const weft_op *op,
                          wefti_flat_cost *cost_out)
{
    wefti_tuning levels = *scope->tuning;
    wefti_scope other = *scope;
    if (!scope->grouping || !levels.sum_flat || op->count == 0 ||
        !wefti_shape_get(op->collective)->reduces) {
        return false;
    }
    levels.sum_flat = false;
    other.tuning = &levels;
    if (wefti_select_is_flat(&levels, op) ==
        wefti_select_is_flat(scope->tuning, op)) {
        return false; /* the same in any order, or a program's own */
    }
    cost_out->flat = ask(scope, op, &cost_out->flat_us);
    cost_out->levels = ask(&other, op, &cost_out->levels_us);
    return true;
}

static void print_us(const char *name, double us, FILE *file)
{
    if (isnan(us)) {
        fprintf(file, "%-13s%10s  ", name, "-");
    } else {
        fprintf(file, "%-13s%10.*f  ", name, us < 1000 ? 1 : 0, us);
    }
}

void wefti_flat_cost_print(const wefti_flat_cost *cost, FILE *file)
{
    print_us(cost->flat, cost->flat_us, file);
    print_us(cost->levels, cost->levels_us, file);
    if (cost->levels_us > 0 && !isnan(cost->flat_us)) {
        fprintf(file, "%5.2f", cost->flat_us / cost->levels_us);
    }
}

static void write_us(const char *name, double us, wefti_json *json)
{
    if (isnan(us)) {
        wefti_json_null(json, name);
    } else {
        wefti_json_real(json, name, us);
    }
}

void wefti_flat_cost_write(const wefti_flat_cost *cost, wefti_json *json)
{
    if (!cost) {
        wefti_json_null(json, "sum_flat");
        return;
    }
    wefti_json_object_open(json, "sum_flat");
    write_us("expected_us", cost->flat_us, json);
    wefti_json_text(json, "levels_algorithm", cost->levels);
    write_us("levels_us", cost->levels_us, json);
    wefti_json_object_close(json);
}
