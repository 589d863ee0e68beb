/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/explain.c - what a communicator was made with, and would do.
 */
#include "comm/make/explain.h"

#include "base/error.h"
#include "comm/net/net.h"
#include "comm/pattern/shape.h"
#include "comm/post/carried_route.h"
#include "comm/steps/unstaged.h"

const char *wefti_comm_explain(weft_comm *comm, const weft_op *op,
                               const char **fabric_out)
{
    if (wefti_route_takes(comm, op)) {
        *fabric_out = wefti_carrier_of(comm->tuning.route)->name;
        return *fabric_out;
    }
    *fabric_out = wefti_fabric_name(&comm->fabric);
    if (op->collective == WEFT_COLLECTIVE_SEND ||
        op->collective == WEFT_COLLECTIVE_RECV) {
        return "message";
    }
    wefti_role role =
        wefti_role_of(op->collective, op->dtype, op->root, comm->rank);
    wefti_scope scope = wefti_comm_scope(comm, &comm->tuning);
    wefti_choice choice = wefti_select(&scope, op, &role);
    return wefti_choice_text(&choice);
}

wefti_algorithms wefti_comm_allow(weft_comm *comm, weft_collective collective,
                                  wefti_algorithms allowed)
{
    wefti_algorithms before = comm->tuning.allowed[collective];
    comm->tuning.allowed[collective] = allowed;
    return before;
}

wefti_route_kind wefti_comm_route(const weft_comm *comm)
{
    return (wefti_route_kind)comm->tuning.route;
}

const int *wefti_comm_sum_hosts(const weft_comm *comm, weft_dtype dtype,
                                weft_redop redop)
{
    const weft_op op = {.dtype = dtype, .redop = redop};
    bool levels = comm->grouping && !wefti_select_is_flat(&comm->tuning, &op);
    return levels ? comm->grouping->hosts : NULL;
}

int wefti_comm_rails(const weft_comm *comm)
{
    const wefti_net *net = comm->fabric.net;
    return !net ? 0 : net->table->use ? net->rail_count : net->use.count;
}

const char *wefti_comm_rail(const weft_comm *comm, int rail, double *GBps_out)
{
    const wefti_net *net = comm->fabric.net;
    if (!net || rail >= net->rail_count || net->rails[rail].byte_ps == 0) {
        return NULL;
    }
    *GBps_out = 1000 / (double)net->rails[rail].byte_ps;
    return net->rails[rail].name;
}

const char *wefti_comm_staged_why(weft_comm *comm)
{
    const char *why;
    (void)wefti_unstaged_find(comm, &why);
    return why;
}

bool wefti_comm_reads_mapped(weft_comm *comm)
{
    const char *why;
    return wefti_unstaged_find(comm, &why) != WEFTI_READING_STAGED;
}

weft_status wefti_comm_explain_fault(weft_comm *comm, weft_status status)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    return status < 0 && weft_comm_get_fault(comm, &fault) == WEFT_OK &&
                   fault.status != WEFT_OK
               ? wefti_error(fault.status, "%s", fault.text)
               : status;
}

bool wefti_comm_is_oversubscribed(const weft_comm *comm)
{
    return comm->engine->oversubscribed;
}
