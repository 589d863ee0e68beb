/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_kernels.c - the interface for kernels that communicate by
 * themselves. Weft has no such kernels: each call says so, as NCCL does where
 * GPUs map no memory of each other.
 */
#include "doors/nccl/door_comm.h"
#include "doors/nccl/door_text.h"

static int refuse(const char *call)
{
    return wefti_door_error(WEFTI_DOOR_INVALID_USAGE,
                            "%s: the interface for kernels (nccl_device.h) is "
                            "not there in weft: use the host's calls",
                            call);
}

int pncclDevCommCreate(struct ncclComm *comm, const void *requirements,
                       void *comm_out)
{
    (void)comm, (void)requirements, (void)comm_out;
    return refuse("ncclDevCommCreate");
}
WEFTI_DOOR_WEAK(DevCommCreate)

int pncclDevCommDestroy(struct ncclComm *comm, const void *device_comm)
{
    (void)comm;
    return device_comm ? refuse("ncclDevCommDestroy") : WEFTI_DOOR_SUCCESS;
}
WEFTI_DOOR_WEAK(DevCommDestroy)

/* All ranks; no ranks where the communicator is none. */
wefti_door_team pncclTeamWorld(struct ncclComm *handle)
{
    wefti_door_team team = {0, 0, 0};
    wefti_door_comm *comm;
    if (wefti_door_enter_ready(handle, "ncclTeamWorld", &comm) ==
        WEFTI_DOOR_SUCCESS) {
        team = (wefti_door_team){comm->nranks, comm->rank, 1};
        wefti_door_leave(comm);
    }
    return team;
}
WEFTI_DOOR_WEAK(TeamWorld)

/* Those whose memory kernels of this rank reach: itself. */
wefti_door_team pncclTeamLsa(struct ncclComm *handle)
{
    const wefti_door_team world = pncclTeamWorld(handle);
    return (wefti_door_team){world.nRanks > 0, 0, world.stride};
}
WEFTI_DOOR_WEAK(TeamLsa)

/* So every rank is on the one rail. */
wefti_door_team pncclTeamRail(struct ncclComm *handle)
{
    return pncclTeamWorld(handle);
}
WEFTI_DOOR_WEAK(TeamRail)

int pncclTeamRankToWorld(struct ncclComm *handle, wefti_door_team team,
                         int rank)
{
    const wefti_door_team world = pncclTeamWorld(handle);
    return world.rank + (rank - team.rank) * team.stride;
}
WEFTI_DOOR_WEAK(TeamRankToWorld)

int pncclTeamRankToLsa(struct ncclComm *handle, wefti_door_team team, int rank)
{
    (void)handle;
    return (rank - team.rank) * team.stride;
}
WEFTI_DOOR_WEAK(TeamRankToLsa)

int pncclLsaBarrierCreateRequirement(wefti_door_team team, int count,
                                     void *handle_out, void *requirement_out)
{
    (void)team, (void)count, (void)handle_out, (void)requirement_out;
    return refuse("ncclLsaBarrierCreateRequirement");
}
WEFTI_DOOR_WEAK(LsaBarrierCreateRequirement)

int pncclGinBarrierCreateRequirement(struct ncclComm *comm,
                                     wefti_door_team team, int count,
                                     void *handle_out, void *requirement_out)
{
    (void)comm, (void)team, (void)count, (void)handle_out;
    (void)requirement_out;
    return refuse("ncclGinBarrierCreateRequirement");
}
WEFTI_DOOR_WEAK(GinBarrierCreateRequirement)

int pncclLLA2ACreateRequirement(int blocks, int slots, void *handle_out,
                                void *requirement_out)
{
    (void)blocks, (void)slots, (void)handle_out, (void)requirement_out;
    return refuse("ncclLLA2ACreateRequirement");
}
WEFTI_DOOR_WEAK(LLA2ACreateRequirement)

/* It has no way to refuse, and room for nothing is needed. */
int pncclLLA2ACalcSlots(int elems, int elem_bytes)
{
    (void)elems, (void)elem_bytes;
    return 0;
}
WEFTI_DOOR_WEAK(LLA2ACalcSlots)
