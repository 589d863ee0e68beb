/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/routes.c - asks weft's own choice, collective by collective, and
 * says over which levels of the machine its bytes go.
 *
 * The choice is the one that every rank makes when it posts
 * (comm/core/select.h); nothing is decided here.
 */
#include "comm/cluster/routes.h"

#include "base/check.h"
#include "base/error.h"
#include "base/plain_number.h"
#include "base/settings.h"
#include "comm/cluster/flat_cost.h"
#include "comm/cluster/network_text.h"
#include "comm/cluster/route_groups.h"
#include "comm/cluster/route_network.h"
#include "comm/core/core.h"
#include "comm/make/explain.h"
#include "comm/nccl/nccl_api.h"
#include "comm/oob/inner_level.h"
#include "comm/pattern/shape.h"
#include "comm/post/carried_route.h"
#include "device/cuda.h"
#include "topo/cpus.h"
#include "topo/levels.h"
#include "topo/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MOST 65536
#define WHYS_MOST  16

typedef struct size_class {
    const char *name;
    size_t bytes;
} size_class;

static const size_class sizes[] = {{"tiny", 4 << 10},
                                   {"small", 64 << 10},
                                   {"medium", 1 << 20},
                                   {"large", 64 << 20}};

typedef struct routing {
    const wefti_routes_job *job;
    const wefti_paths *paths;
    wefti_tuning tuning;
    wefti_levels *levels;
    wefti_grouping *grouping;    /* of what does not run */
    wefti_nest *nest;            /* likewise */
    wefti_route_network network; /* where it is crossed */
    int nranks;
} routing;

typedef struct route {
    const char *algorithm, *fabric, *why;
    size_t chunk_bytes;
} route;

/* ---- which ranks --------------------------------------------------------- */

/* One a GPU, else one a CPU, else one a host. */
static weft_status usual_count(const wefti_paths *paths, bool live,
                               int *count_out)
{
    wefti_cpus allowed;
    *count_out = paths->gpu_count > 0 ? paths->gpu_count : paths->host_count;
    if (paths->gpu_count > 0 || !live) {
        return WEFT_OK;
    }
    weft_status status = wefti_cpus_allowed(&allowed);
    *count_out = status == WEFT_OK ? wefti_cpus_count(&allowed) : 1;
    return status;
}

/* Host by host: as many ranks as GPUs, or even shares where there are none. */
static weft_status fill_hosts(const wefti_paths *paths, int nranks, int *hosts)
{
    int at = 0, places = paths->gpu_count;
    bool even = places == 0 || paths->host_count == 1;
    if (!even && nranks > places) {
        return wefti_error(WEFT_ERR_INVALID,
                           "-n %d: allowed is 1 to %d, the machine's GPUs",
                           nranks, places);
    }
    for (int host = 0; host < paths->host_count; host++) {
        int end = even ? (int)((int64_t)nranks * (host + 1) / paths->host_count)
                       : at + paths->hosts[host].gpu_count;
        while (at < end && at < nranks) {
            hosts[at++] = host;
        }
    }
    return WEFT_OK;
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Interfaces that messages are spread over, and what the network is taken for;
 * without a job, by the machine's NICs. */
static weft_status find_network(routing *r)
{
    if (r->job) {
        r->network =
            (wefti_route_network){.rails = wefti_comm_rails(r->job->comm),
                                  .rates = r->job->comm->rates};
        return WEFT_OK;
    }
    return wefti_route_network_find(r->paths, r->levels, r->tuning.measure_net,
                                    &r->network);
}

static weft_status find_levels(const wefti_paths *paths, routing *r)
{
    int *hosts = calloc((size_t)r->nranks, sizeof(*hosts));
    if (!hosts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", r->nranks);
    }
    weft_status status = WEFT_OK;
    if (r->job) {
        memcpy(hosts, r->job->hosts, (size_t)r->nranks * sizeof(*hosts));
        qsort(hosts, (size_t)r->nranks, sizeof(*hosts), compare_ints);
    } else {
        status = fill_hosts(paths, r->nranks, hosts);
    }
    if (status == WEFT_OK) {
        status = wefti_levels_create_of(paths, hosts, r->nranks, &r->levels);
    }
    free(hosts);
    if (status != WEFT_OK) {
        return status;
    }
    status = find_network(r);
    if (status == WEFT_OK) {
        status = wefti_route_groups_create(r->levels, &r->grouping, &r->nest);
    }
    if (status != WEFT_OK) {
        wefti_levels_destroy(r->levels);
    }
    return status;
}

static weft_status routing_init(const wefti_report *report, const char *ranks,
                                const wefti_routes_job *job, bool live,
                                routing *r)
{
    *r = (routing){.job = job, .paths = report->paths};
    if (job) {
        r->nranks = job->comm->nranks;
        r->tuning = job->comm->tuning;
        return find_levels(report->paths, r);
    }
    weft_status status =
        ranks ? wefti_plain_flag("-n", ranks, 1, RANKS_MOST, &r->nranks)
              : usual_count(report->paths, live, &r->nranks);
    if (status == WEFT_OK) {
        status = wefti_tuning_read(&r->tuning);
    }
    if (status == WEFT_OK) {
        status = wefti_inner_levels_check(r->nranks);
    }
    return status == WEFT_OK ? find_levels(report->paths, r) : status;
}

/* ---- routes -------------------------------------------------------------- */

/* Of f32, bytes counted as weft-perf does: the larger of the two buffers. */
static weft_op op_of(weft_collective collective, size_t bytes, int nranks)
{
    const wefti_shape *shape = wefti_shape_get(collective);
    size_t count = collective == WEFT_COLLECTIVE_BARRIER ? 0 : bytes / 4;
    if (shape->send_parts || shape->recv_parts) {
        count = (count + (size_t)nranks - 1) / (size_t)nranks;
    }
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = collective,
                     .dtype = WEFT_DTYPE_F32,
                     .count = count};
}

static const char *fabric_of(const routing *r, const weft_op *op)
{
    int top = r->levels->level_count - 1;
    const char *fabric;
    if (r->job) {
        (void)wefti_comm_explain(r->job->comm, op, &fabric);
        return fabric;
    }
    if (top < 0 || !wefti_route_is_network(r->levels, top)) {
        return r->nranks > 1 ? "shm" : "self";
    }
    return wefti_route_is_apart(r->levels) ? "net" : "shm+net";
}

static wefti_scope scope_of(const routing *r)
{
    return r->job ? wefti_comm_scope(r->job->comm, &r->tuning)
                  : (wefti_scope){.tuning = &r->tuning,
                                  .nranks = r->nranks,
                                  .grouping = r->grouping,
                                  .nest = r->nest,
                                  .rates =
                                      wefti_known_rates_get(&r->network.rates),
                                  .apart = wefti_route_is_apart(r->levels)};
}

/* What the network is taken for; NULL: nobody meets there. */
static const wefti_known_rates *network_rates(const routing *r)
{
    int top = r->levels->level_count - 1;
    return top < 0 || !wefti_route_is_network(r->levels, top)
               ? NULL
               : &r->network.rates;
}

static route find_route(const routing *r, const weft_op *op)
{
    if (r->job && wefti_route_takes(r->job->comm, op)) {
        const char *name = wefti_carrier_of(r->tuning.route)->name;
        return (route){.algorithm = name,
                       .fabric = name,
                       .why = wefti_route_why(r->job->comm, op)};
    }
    wefti_role role = wefti_role_of(op->collective, op->dtype, op->root, 0);
    wefti_scope scope = scope_of(r);
    wefti_choice choice = wefti_select(&scope, op, &role);
    return (route){.algorithm = wefti_choice_text(&choice),
                   .fabric = fabric_of(r, op),
                   .why = wefti_select_why(&scope, op),
                   .chunk_bytes =
                       wefti_choice_has_steps(&choice)
                           ? choice.chunk_elems * weft_dtype_bytes(op->dtype)
                           : 0};
}

/* Of what weft's own steps carry out; see comm/cluster/flat_cost.h. */
static bool find_flat_cost(const routing *r, const weft_op *op,
                           wefti_flat_cost *cost_out)
{
    wefti_scope scope = scope_of(r);
    return !(r->job && wefti_route_takes(r->job->comm, op)) &&
           wefti_flat_cost_find(&scope, op, cost_out);
}

/* Whether collectives go as WEFT_ROUTE asks, and if not, why. */
static bool is_carried(const routing *r, char *why, size_t why_bytes)
{
    const weft_op op = op_of(WEFT_COLLECTIVE_ALLREDUCE, 4, 1);
    const wefti_nccl_api *api;
    int count = 0, version;
    if (r->job) {
        snprintf(why, why_bytes, "%s", wefti_route_why(r->job->comm, &op));
        return wefti_route_takes(r->job->comm, &op);
    }
    weft_status status = wefti_cuda_count(&count, &version);
    if (status == WEFT_OK && r->tuning.route == WEFTI_ROUTE_NCCL) {
        status = wefti_nccl_api_open(&api);
    }
    snprintf(why, why_bytes, "%s",
             status == WEFT_OK ? "only ranks that run can agree on it: ask as "
                                 "their job (weft-run weft-info --routes)"
                               : weft_error_text());
    return false;
}

static bool is_shown(weft_collective collective)
{
    return collective != WEFT_COLLECTIVE_SEND &&
           collective != WEFT_COLLECTIVE_RECV;
}

/* A barrier has but one size. */
static size_t count_sizes(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_BARRIER ? 1 : WEFTI_COUNT_OF(sizes);
}

/* ---- JSON ---------------------------------------------------------------- */

/* 0: not known. */
static void write_GBps(const char *name, double GBps, wefti_json *json)
{
    if (GBps > 0) {
        wefti_json_real(json, name, GBps);
    } else {
        wefti_json_null(json, name);
    }
}

static void write_level(const routing *r, int level, wefti_json *json)
{
    const bool network = wefti_route_is_network(r->levels, level);
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "name", r->levels->names[level]);
    wefti_json_int(json, "ranks", wefti_route_count_ranks(r->levels, level));
    wefti_json_text(json, "fabric", network ? "net" : "shm");
    wefti_json_int(json, "rails", network ? r->network.rails : 1);
    write_GBps("GBps", wefti_route_link_GBps(r->paths, r->levels, level), json);
    if (network) {
        wefti_rails_write(r->job ? r->job->comm : NULL, json);
        write_GBps("port_GBps",
                   wefti_route_port_GBps(r->paths, r->levels, level), json);
    }
    if (network && !r->job) {
        wefti_json_int(json, "nics", r->network.nics);
    }
    wefti_json_object_close(json);
}

static void write_levels(const routing *r, wefti_json *json)
{
    wefti_json_array_open(json, "levels");
    for (int level = 0; level < r->levels->level_count; level++) {
        write_level(r, level, json);
    }
    wefti_json_array_close(json);
}

/* What the choice was made by, of each algorithm that has rivals. */
static void write_costs(const routing *r, const weft_op *op, wefti_json *json)
{
    wefti_scope scope = scope_of(r);
    wefti_json_object_open(json, "expected_us");
    for (int bit = 0; wefti_algorithm_name(bit); bit++) {
        double ns = wefti_select_cost_ns(&scope, op, bit);
        if (!isnan(ns)) {
            wefti_json_real(json, wefti_algorithm_name(bit), ns / 1e3);
        }
    }
    wefti_json_object_close(json);
}

static void write_route(const routing *r, weft_collective collective,
                        const size_class *size, wefti_json *json)
{
    weft_op op = op_of(collective, size->bytes, r->nranks);
    route found = find_route(r, &op);
    wefti_json_object_open(json, NULL);
    wefti_json_text(json, "collective", weft_collective_text(collective));
    wefti_json_text(json, "size", size->name);
    wefti_json_int(json, "bytes", op.count > 0 ? (int64_t)size->bytes : 0);
    write_levels(r, json);
    wefti_json_text(json, "algorithm", found.algorithm);
    wefti_json_text(json, "fabric", found.fabric);
    int top = r->levels->level_count - 1;
    wefti_json_int(json, "rails",
                   top >= 0 && wefti_route_is_network(r->levels, top)
                       ? r->network.rails
                       : 1);
    wefti_json_uint(json, "chunk_bytes", found.chunk_bytes);
    wefti_json_text(json, "why", found.why);
    write_costs(r, &op, json);
    wefti_flat_cost flat;
    wefti_flat_cost_write(find_flat_cost(r, &op, &flat) ? &flat : NULL, json);
    wefti_json_object_close(json);
}

static void write_route_asked(const routing *r, wefti_json *json)
{
    const wefti_carrier *carrier = wefti_carrier_of(r->tuning.route);
    char why[256];
    if (carrier) {
        wefti_json_object_open(json, "route");
        wefti_json_text(json, "asked", carrier->name);
        wefti_json_bool(json, "taken", is_carried(r, why, sizeof(why)));
        wefti_json_text(json, "why", why);
        wefti_json_object_close(json);
    }
}

/* Only ranks that run can tell. */
static void write_single_copy(const routing *r, wefti_json *json)
{
    if (r->job && r->nranks > 1) {
        const char *why = wefti_comm_staged_why(r->job->comm);
        wefti_json_object_open(json, "single_copy");
        wefti_json_bool(json, "taken", !why);
        wefti_json_text(json, "why", why ? why : "");
        wefti_json_bool(json, "mapped", wefti_comm_reads_mapped(r->job->comm));
        wefti_json_object_close(json);
    }
}

static void write_all(const routing *r, wefti_json *json)
{
    write_route_asked(r, json);
    write_single_copy(r, json);
    wefti_route_groups_write(scope_of(r).nest, json);
    wefti_rates_write(network_rates(r), json);
    wefti_json_array_open(json, "routes");
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        weft_collective collective = (weft_collective)c;
        for (size_t i = 0; is_shown(collective) && i < count_sizes(collective);
             i++) {
            write_route(r, collective, &sizes[i], json);
        }
    }
    wefti_json_array_close(json);
}

/* ---- text ---------------------------------------------------------------- */

static void print_level(const routing *r, int level, FILE *file)
{
    const bool network = wefti_route_is_network(r->levels, level);
    const double GBps = wefti_route_link_GBps(r->paths, r->levels, level);
    fprintf(file, "%-9s%d ranks meet", r->levels->names[level],
            wefti_route_count_ranks(r->levels, level));
    if (GBps > 0) {
        fprintf(file, ", %.4g GB/s %s", GBps,
                wefti_route_is_nvlink(r->levels, level) ? "of NVLink or XGMI"
                                                        : "between two");
    }
    fprintf(file, ", by %s", network ? "net" : "shared memory");
    if (network) {
        wefti_rails_print(r->job ? r->job->comm : NULL, r->network.rails, file);
    }
    if (network && r->network.nics > r->network.rails) {
        fprintf(file, " of %d NICs", r->network.nics);
    }
    fprintf(file, "\n");
}

static void print_levels(const routing *r, FILE *file)
{
    fprintf(file, "\nRoutes of %d rank%s\n", r->nranks,
            r->nranks == 1 ? "" : "s");
    for (int level = 0; level < r->levels->level_count; level++) {
        print_level(r, level, file);
    }
    wefti_route_groups_print(scope_of(r).nest, file);
    if (network_rates(r)) {
        wefti_rates_print(network_rates(r), file);
    }
}

static void print_route_asked(const routing *r, FILE *file)
{
    const wefti_carrier *carrier = wefti_carrier_of(r->tuning.route);
    char why[256];
    if (carrier) {
        const bool taken = is_carried(r, why, sizeof(why));
        int column = fprintf(file, "WEFT_ROUTE=%s: %s", carrier->name,
                             taken ? "" : "not taken: ");
        wefti_report_wrap(why, 9, column, file);
    }
}

static void print_single_copy(const routing *r, FILE *file)
{
    if (r->job && r->nranks > 1) {
        const char *why = wefti_comm_staged_why(r->job->comm);
        int column = fprintf(file, "single copy:");
        if (why && wefti_comm_reads_mapped(r->job->comm)) {
            column += fprintf(file, " of what is in a weft_mem; of the rest"
                                    " not:");
        }
        wefti_report_wrap(why ? why
                              : "large messages are read where they lie in "
                                "their sender's buffer",
                          column, column, file);
    }
}

/* The reason's number, told once below the table. */
static int note_why(const char *why, const char **whys, int *count)
{
    int at = 0;
    while (at < *count && strcmp(whys[at], why) != 0) {
        at++;
    }
    if (at == *count && at < WHYS_MOST) {
        whys[(*count)++] = why;
    }
    return at + 1;
}

static route route_of(const routing *r, weft_collective collective, size_t size)
{
    weft_op op = op_of(collective, sizes[size].bytes, r->nranks);
    return find_route(r, &op);
}

/* Literals all: one address, one text. */
static bool is_same(const route *a, const route *b)
{
    return a->algorithm == b->algorithm && a->chunk_bytes == b->chunk_bytes &&
           a->why == b->why;
}

/* "small..large" */
static void print_sizes(weft_collective collective, size_t first, size_t last,
                        char text[24])
{
    if (collective == WEFT_COLLECTIVE_BARRIER) {
        snprintf(text, 24, "-");
    } else if (first == last) {
        snprintf(text, 24, "%s", sizes[first].name);
    } else {
        snprintf(text, 24, "%s..%s", sizes[first].name, sizes[last].name);
    }
}

/* Below the reasons, one of which names the setting. */
static void print_flat_costs(const routing *r, FILE *file)
{
    bool any = false;
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        for (size_t i = 0; i < WEFTI_COUNT_OF(sizes); i++) {
            weft_op op = op_of((weft_collective)c, sizes[i].bytes, r->nranks);
            wefti_flat_cost cost;
            if (!find_flat_cost(r, &op, &cost)) {
                continue;
            }
            if (!any) {
                fprintf(file,
                        "%-24sus expected       by levels, us                "
                        "times\n",
                        "WEFT_SUM_FLAT costs");
            }
            any = true;
            fprintf(file, "%-17s%-7s", weft_collective_text((weft_collective)c),
                    sizes[i].name);
            wefti_flat_cost_print(&cost, file);
            fprintf(file, "\n");
        }
    }
}

static void print_all(const routing *r, FILE *file)
{
    const char *whys[WHYS_MOST];
    int why_count = 0;
    print_levels(r, file);
    print_route_asked(r, file);
    print_single_copy(r, file);
    fprintf(file, "%-17s%-14s%-15s%-9s%12s  %s\n", "collective", "size",
            "algorithm", "fabric", "chunk, bytes", "why");
    for (int c = 0; c < WEFT_COLLECTIVE_COUNT; c++) {
        weft_collective collective = (weft_collective)c;
        size_t count = is_shown(collective) ? count_sizes(collective) : 0;
        for (size_t i = 0, next; i < count; i = next) {
            route found = route_of(r, collective, i);
            for (next = i + 1; next < count; next++) {
                route other = route_of(r, collective, next);
                if (!is_same(&found, &other)) {
                    break;
                }
            }
            char size[24];
            print_sizes(collective, i, next - 1, size);
            fprintf(file, "%-17s%-14s%-15s%-9s%12zu  (%d)\n",
                    i == 0 ? weft_collective_text(collective) : "", size,
                    found.algorithm, found.fabric, found.chunk_bytes,
                    note_why(found.why, whys, &why_count));
        }
    }
    for (int i = 0; i < why_count; i++) {
        fprintf(file, "(%d) %s\n", i + 1, whys[i]);
    }
    print_flat_costs(r, file);
}

const char *wefti_routes_fabric(weft_comm *comm)
{
    const char *fabric;
    weft_op op = op_of(WEFT_COLLECTIVE_ALLREDUCE, 4, 1);
    (void)wefti_comm_explain(comm, &op, &fabric);
    return fabric;
}

weft_status wefti_routes_show(const wefti_report *report, const char *ranks,
                              const wefti_routes_job *job, bool live,
                              wefti_json *json, FILE *file)
{
    routing r;
    weft_status status = routing_init(report, ranks, job, live, &r);
    if (status != WEFT_OK) {
        return status;
    }
    if (json) {
        write_all(&r, json);
    } else if (file) {
        print_all(&r, file);
    }
    wefti_levels_destroy(r.levels);
    free(r.grouping);
    wefti_nest_free(r.nest);
    return WEFT_OK;
}
