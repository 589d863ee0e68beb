/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/replica_comms.c - the communicators of a replica when one has failed.
 */
#include "trainer/replica.h"

#include "trainer/checkpoint/saver.h"
#include "trainer/expert_place.h"

void wefti_replica_abort(wefti_replica *replica)
{
    wefti_saver_abort(replica->saver);
    wefti_replica_abort_parts(replica);
}

void wefti_replica_abort_parts(wefti_replica *replica)
{
    wefti_expert_place_abort(replica->place);
    if (replica->kv_sharers) {
        (void)!weft_comm_abort(replica->kv_sharers);
    }
    wefti_context_link_abort(&replica->pipe.link);
    wefti_mesh_abort(&replica->mesh);
}

bool wefti_replica_find_fault(const wefti_replica *replica,
                              weft_fault *fault_out)
{
    weft_comm *const others[] = {replica->config.comm, replica->kv_sharers,
                                 replica->pipe.link.ring,
                                 replica->pipe.link.ulysses};
    const int count = sizeof(others) / sizeof(*others);
    for (int i = 0; i < count + WEFTI_MESH_LINKS; i++) {
        weft_comm *comm =
            i < count ? others[i] : replica->mesh.comms[i - count];
        *fault_out = (weft_fault){.size_bytes = sizeof(*fault_out)};
        if (comm && weft_comm_get_fault(comm, fault_out) == WEFT_OK &&
            fault_out->status != WEFT_OK) {
            return true;
        }
    }
    *fault_out = replica->fault;
    return fault_out->status != WEFT_OK;
}
