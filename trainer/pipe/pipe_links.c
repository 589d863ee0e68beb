/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_links.c - communicators for nodes, and their streams.
 */
#include "trainer/pipe/pipe_links.h"

#include "overlap/pipeline_mode.h"
#include "trainer/model/expert_exchange.h"
#include "trainer/replica.h"

/* Which of the mesh's each is. */
static const wefti_mesh_link mesh_links[WEFTI_LINKS] = {
    [WEFTI_LINK_TENSOR] = WEFTI_MESH_TENSOR,
    [WEFTI_LINK_CONTEXT] = WEFTI_MESH_CONTEXT,
    [WEFTI_LINK_EXPERTS] = WEFTI_MESH_EXPERTS};

/* Neither the step's own span goes on, nor an action of the list. */
static void stop(void *context)
{
    wefti_replica *replica = context;
    const char *label = replica->label;
    wefti_replica_work_end(replica);
    replica->stopped = label;
    if (!label) {
        weft_pipeline_stop(replica->pipe.pipeline, WEFT_WAIT_NONE);
    }
}

static void resume(void *context)
{
    wefti_replica *replica = context;
    if (replica->stopped) {
        wefti_replica_work_begin(replica, replica->stopped);
        replica->stopped = NULL;
    } else {
        weft_pipeline_resume(replica->pipe.pipeline);
    }
}

weft_status wefti_pipe_links_open(wefti_replica *replica,
                                  wefti_node_link *links_out)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < WEFTI_LINKS && status == WEFT_OK; i++) {
        wefti_node_link *link = &links_out[i];
        *link = (wefti_node_link){.comm = replica->mesh.comms[mesh_links[i]],
                                  .context = replica,
                                  .stop = stop,
                                  .resume = resume};
        if (link->comm && replica->config.pipe.beside[i]) {
            status =
                weft_stream_create(replica->config.device, 0, &link->beside);
        }
    }
    return status;
}

void wefti_pipe_links_set(wefti_replica *replica, const wefti_pipe_modes *modes,
                          bool replays)
{
    wefti_pipe *pipe = &replica->pipe;
    for (size_t i = 0; i < WEFTI_LINKS; i++) {
        pipe->links[i].mode = modes->links[i];
    }
    wefti_experts_set(pipe->experts,
                      modes->links[WEFTI_LINK_EXPERTS] == WEFT_BUCKET_BLOCKING,
                      replays);
    wefti_pipeline_set_mode(pipe->pipeline, modes->line);
}

void wefti_pipe_links_close(wefti_node_link *links)
{
    for (size_t i = 0; i < WEFTI_LINKS; i++) {
        weft_stream_destroy(links[i].beside);
        links[i] = (wefti_node_link){0};
    }
}
