/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/mesh/mesh_comms.c - splitting the job.
 */
#include "trainer/mesh/mesh_comms.h"

#include <stdio.h>

/* What each is of, and for. */
static const struct link {
    wefti_mesh_group group;
    weft_class class_id;
    const char *name; /* of one group of several: and which one it is */
} links[WEFTI_MESH_LINKS] = {
    [WEFTI_MESH_LINE] = {WEFTI_MESH_PP, WEFT_CLASS_PP, "pipeline"},
    [WEFTI_MESH_CHAIN] = {WEFTI_MESH_PP, WEFT_CLASS_PP, "chain"},
    [WEFTI_MESH_DATA] = {WEFTI_MESH_REPLICA, WEFT_CLASS_DP, "data"},
    [WEFTI_MESH_EXPERT_DATA] = {WEFTI_MESH_EXPERT_REPLICA, WEFT_CLASS_DP,
                                "experts"},
    [WEFTI_MESH_TENSOR] = {WEFTI_MESH_TP, WEFT_CLASS_TP, "tensor"},
    [WEFTI_MESH_CONTEXT] = {WEFTI_MESH_CP, WEFT_CLASS_CP, "context"},
    [WEFTI_MESH_EXPERTS] = {WEFTI_MESH_EP, WEFT_CLASS_EP, "all experts"}};

weft_class wefti_mesh_class(wefti_mesh_link link)
{
    return links[link].class_id;
}

/* Where ranks are numbered anew, the name says which of the job's they are. A
 * communicator takes 31 bytes: ranks below 10,000 fit. */
static void name_group(const wefti_mesh *mesh, wefti_mesh_link link, int number,
                       char text[64])
{
    const char *noun = links[link].name;
    const int pp = number / mesh->tp, mirror = mesh->pp - 1 - pp;
    if (link == WEFTI_MESH_DATA && mesh->tp > 1 && mesh->mirrored) {
        snprintf(text, 64, "%s of pp %d+%d, tp %d", noun, pp, mirror,
                 number % mesh->tp);
    } else if (link == WEFTI_MESH_DATA && mesh->tp > 1) {
        snprintf(text, 64, "%s of pp %d, tp %d", noun, pp, number % mesh->tp);
    } else if (link == WEFTI_MESH_DATA && mesh->mirrored) {
        snprintf(text, 64, "%s of ranks %d and %d", noun, number, mirror);
    } else if (link == WEFTI_MESH_DATA) {
        snprintf(text, 64, "%s of pipeline rank %d", noun, number);
    } else if (link >= WEFTI_MESH_EXPERT_DATA) {
        snprintf(text, 64, "%s %d", noun, number);
    } else if (mesh->dp * mesh->cp * mesh->tp > 1) {
        snprintf(text, 64, "%s of copy %d", noun, number);
    } else {
        snprintf(text, 64, "%s", noun);
    }
}

/* Without a pipeline: one of the same ranks that has nothing else to carry;
 * NULL: none. */
static weft_comm *find_same(const wefti_mesh_comms *comms, wefti_mesh_link link)
{
    const wefti_mesh *mesh = &comms->mesh;
    if (mesh->pp > 1) {
        return NULL;
    }
    return link == WEFTI_MESH_CHAIN ? comms->comms[WEFTI_MESH_LINE]
           : link == WEFTI_MESH_DATA && mesh->tp == 1 ? comms->job
                                                      : NULL;
}

static weft_status connect_one(wefti_mesh_comms *comms, wefti_mesh_link link)
{
    wefti_mesh_seat seat =
        wefti_mesh_find(&comms->mesh, links[link].group,
                        wefti_mesh_rank(&comms->mesh, &comms->at));
    char name[64];
    weft_comm_config config = {.size_bytes = sizeof(config), .name = name};
    comms->comms[link] = find_same(comms, link);
    if (comms->comms[link]) {
        return WEFT_OK;
    }
    name_group(&comms->mesh, link, seat.number, name);
    weft_status status = weft_comm_split(comms->job, seat.number, seat.index,
                                         &config, &comms->comms[link]);
    return status == WEFT_OK && comms->ledger
               ? weft_ledger_attach(comms->ledger, comms->comms[link])
               : status;
}

/* Whether the mesh, and a model of so many groups of parameters, has it. */
static bool is_needed(const wefti_mesh *mesh, size_t groups,
                      wefti_mesh_link link)
{
    switch (link) {
    case WEFTI_MESH_EXPERT_DATA:
        return groups > 1;
    case WEFTI_MESH_TENSOR:
        return mesh->tp > 1;
    case WEFTI_MESH_CONTEXT:
        return mesh->cp > 1;
    case WEFTI_MESH_EXPERTS:
        return mesh->ep > 1;
    default:
        return true;
    }
}

weft_status wefti_mesh_connect(wefti_mesh_comms *comms, const wefti_mesh *mesh,
                               weft_comm *job, weft_ledger *ledger,
                               size_t groups)
{
    *comms = (wefti_mesh_comms){
        .mesh = *mesh,
        .at = wefti_mesh_locate(mesh, weft_comm_get_rank(job)),
        .job = job,
        .ledger = ledger};
    weft_status status = WEFT_OK;
    for (int i = 0; i < WEFTI_MESH_LINKS && status == WEFT_OK; i++) {
        if (is_needed(mesh, groups, (wefti_mesh_link)i)) {
            status = connect_one(comms, (wefti_mesh_link)i);
        }
    }
    return status;
}

/* One that this rank has made, and destroys. */
static bool is_own(const wefti_mesh_comms *comms, int link)
{
    weft_comm *comm = comms->comms[link];
    return comm && comm != find_same(comms, (wefti_mesh_link)link);
}

void wefti_mesh_abort(wefti_mesh_comms *comms)
{
    for (int i = 0; i < WEFTI_MESH_LINKS; i++) {
        if (is_own(comms, i) && weft_comm_get_nranks(comms->comms[i]) > 1) {
            (void)!weft_comm_abort(comms->comms[i]);
        }
    }
}

void wefti_mesh_leave(wefti_mesh_comms *comms)
{
    for (int i = WEFTI_MESH_LINKS; i > 0; i--) {
        if (is_own(comms, i - 1)) {
            if (comms->ledger) {
                weft_ledger_detach(comms->ledger, comms->comms[i - 1]);
            }
            weft_comm_destroy(comms->comms[i - 1]);
        }
    }
    *comms = (wefti_mesh_comms){0};
}
