/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/hugging_face_export.c - each tensor comes to rank 0, which
 * writes it and forgets it.
 */
#include "trainer/exchange/hugging_face.h"

#include "base/error.h"
#include "trainer/checkpoint/savepoint.h"
#include "trainer/exchange/llama_names.h"
#include "weft/op.h"
#include "weft/p2p.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* For the ranks that have not failed. */
static const char whole[] = "the export of the model";

enum { NAME_BYTES = 32 }; /* of a file in the folder, and its slash */

/* What rank 0 writes. */
typedef struct folder {
    char place[WEFTI_LLAMA_PATH_BYTES]; /* DIR */
    char fresh[WEFTI_LLAMA_PATH_BYTES]; /* until it is complete */
    char path[WEFTI_LLAMA_PATH_BYTES];  /* of the tensors */
    wefti_tensor_list tensors;
    wefti_safetensors items;
    wefti_safetensors_file file;
} folder;

/* DIR without slashes at its end, and the name it has while it is made, which
 * leaves room for those of files. */
static weft_status name_folder(const char *dir, folder *own)
{
    size_t length = strlen(dir);
    if (length == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--export-hf \"\": allowed is the name of a new "
                           "folder");
    }
    while (length > 1 && dir[length - 1] == '/') {
        length--;
    }
    int wrote = snprintf(own->fresh, sizeof(own->fresh), "%.*s.%d.new",
                         (int)length, dir, (int)getpid());
    if (wrote < 0 || (size_t)wrote >= sizeof(own->fresh) - NAME_BYTES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--export-hf %.200s...: is too long", dir);
    }
    snprintf(own->place, sizeof(own->place), "%.*s", (int)length, dir);
    return WEFT_OK;
}

/* Makes the folder under its first name. */
static weft_status make_folder(const char *dir, folder *own)
{
    struct stat what;
    weft_status status = name_folder(dir, own);
    if (status != WEFT_OK) {
        return status;
    }
    if (lstat(own->place, &what) == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--export-hf %.200s: is there already: allowed is "
                           "the name of a new folder",
                           own->place);
    }
    return mkdir(own->fresh, 0777) == 0
               ? WEFT_OK
               : wefti_error_system(
                     "--export-hf %.200s: cannot be made as %.200s", own->place,
                     own->fresh);
}

weft_status wefti_hugging_face_try(const char *dir)
{
    folder own;
    weft_status status = make_folder(dir, &own);
    if (status == WEFT_OK && rmdir(own.fresh) != 0) {
        status = wefti_error_system("--export-hf %.200s", own.place);
    }
    return status;
}

/* Everything but the tensors' data. */
static weft_status open_folder(const wefti_replica *replica, const char *dir,
                               folder *own)
{
    const wefti_model_shape *shape = &replica->config.shape;
    weft_status status = wefti_tensor_list_init(&own->tensors, shape);
    if (status == WEFT_OK) {
        status = wefti_llama_items(&own->tensors, &own->items);
    }
    if (status == WEFT_OK) {
        status = make_folder(dir, own);
    }
    if (status != WEFT_OK) {
        own->fresh[0] = '\0'; /* there is nothing to remove */
        return status;
    }
    status = wefti_llama_config_write(own->fresh, shape);
    if (status == WEFT_OK) {
        status = wefti_llama_path(own->fresh, WEFTI_LLAMA_TENSORS, own->path);
    }
    return status == WEFT_OK
               ? wefti_safetensors_create(own->path, &own->items, &own->file)
               : status;
}

static weft_status sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    weft_status status =
        fd >= 0 && fsync(fd) == 0
            ? WEFT_OK
            : wefti_error_system("%.200s: cannot be made durable", path);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* The folder that holds place's name. */
static weft_status sync_parent(const char *place)
{
    char parent[WEFTI_LLAMA_PATH_BYTES];
    const char *slash = strrchr(place, '/');
    snprintf(parent, sizeof(parent), "%.*s",
             slash ? (int)(slash - place) + 1 : 1, slash ? place : ".");
    return sync_folder(parent);
}

static weft_status commit_folder(folder *own)
{
    weft_status status = wefti_safetensors_finish(&own->file);
    if (status == WEFT_OK) {
        status = sync_folder(own->fresh);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (rename(own->fresh, own->place) != 0) {
        status = wefti_error_system(
            "--export-hf %.200s: cannot have its name, and stays %.200s",
            own->place, own->fresh);
    }
    own->fresh[0] = '\0'; /* nothing to remove in either case */
    return status == WEFT_OK ? sync_parent(own->place) : status;
}

static void close_folder(folder *own)
{
    char path[WEFTI_LLAMA_PATH_BYTES];
    wefti_safetensors_close(&own->file);
    if (own->fresh[0]) {
        static const char *const names[] = {WEFTI_LLAMA_CONFIG,
                                            WEFTI_LLAMA_TENSORS};
        for (size_t i = 0; i < 2; i++) {
            if (wefti_llama_path(own->fresh, names[i], path) == WEFT_OK) {
                (void)unlink(path);
            }
        }
        (void)rmdir(own->fresh);
    }
    wefti_safetensors_fini(&own->items);
    wefti_tensor_list_fini(&own->tensors);
}

/* The lowest rank that has each tensor. */
static weft_status find_owners(const wefti_replica *replica, int32_t *owners)
{
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        owners[i] = tensor->here ? (int32_t)replica->rank : INT32_MAX;
    }
    return weft_allreduce(owners, owners, plan->tensor_count, WEFT_DTYPE_I32,
                          WEFT_REDOP_MIN, replica->config.comm, NULL);
}

/* To rank 0, or there. */
static weft_status pass_on(const wefti_replica *replica, real *values,
                           size_t elems, int owner)
{
    bool takes = replica->rank == 0;
    const weft_p2p part = {.size_bytes = sizeof(part),
                           .kind = takes ? WEFT_P2P_RECV : WEFT_P2P_SEND,
                           .buffer = values,
                           .count = elems,
                           .dtype = WEFTI_REAL_DTYPE,
                           .peer = takes ? owner : 0,
                           .label = "export"};
    return weft_p2p_post(&part, 1, replica->config.comm, NULL);
}

static bool has_experts(const wefti_tensor *tensor)
{
    return tensor->info.split == WEFTI_SPLIT_EXPERT;
}

/* Whether this rank shares the tensor with owner, the first of those that do.
 */
static bool is_near(const wefti_replica *replica, const wefti_tensor *tensor,
                    int32_t owner)
{
    const wefti_mesh_place *at = &replica->mesh.at;
    return (int32_t)replica->rank - (has_experts(tensor) ? at->ep : at->tp) ==
           owner;
}

/* A whole tensor, from all ranks that have parts of it; bits are kept. */
static weft_status collect_parts(const wefti_replica *replica,
                                 const wefti_tensor *tensor, real *room)
{
    const size_t bytes = wefti_tensor_elems(&tensor->info) * sizeof(*room);
    if (tensor->parts == 1 && !tensor->experts) {
        return wefti_replica_get(replica, tensor, room);
    }
    real *own = malloc(wefti_tensor_here_elems(tensor) * sizeof(*own) + 1);
    if (!own) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--export-hf: no memory");
    }
    weft_status status = wefti_replica_get(replica, tensor, own);
    memset(room, 0, bytes);
    if (status == WEFT_OK) {
        wefti_tensor_put(tensor, own, room);
        status = weft_allreduce(
            room, room, bytes / sizeof(uint32_t), WEFT_DTYPE_U32,
            WEFT_REDOP_BOR,
            replica->mesh.comms[has_experts(tensor) ? WEFTI_MESH_EXPERTS
                                                    : WEFTI_MESH_TENSOR],
            NULL);
    }
    free(own);
    return status;
}

/*
 * All tensors, in order. What rank 0 cannot write it still takes, so that no
 * other waits for it. written: what its writing has come to.
 */
static weft_status gather(const wefti_replica *replica, const int32_t *owners,
                          real *room, folder *own, weft_status *written)
{
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        size_t elems = wefti_tensor_elems(&tensor->info);
        bool here = owners[i] == (int32_t)replica->rank;
        if (tensor->copy) {
            continue;
        }
        weft_status status = tensor->here && is_near(replica, tensor, owners[i])
                                 ? collect_parts(replica, tensor, room)
                                 : WEFT_OK;
        if (status == WEFT_OK && owners[i] != 0 &&
            (here || replica->rank == 0)) {
            status = pass_on(replica, room, elems, owners[i]);
        }
        if (status != WEFT_OK) {
            return status;
        }
        if (replica->rank == 0 && *written == WEFT_OK) {
            *written = wefti_safetensors_write(&own->file, room,
                                               elems * sizeof(*room));
        }
    }
    return WEFT_OK;
}

static weft_status export_all(wefti_replica *replica, const char *dir,
                              int32_t *owners, real *room, folder *own)
{
    weft_comm *comm = replica->config.comm;
    weft_status written =
        replica->rank == 0 ? open_folder(replica, dir, own) : WEFT_OK;
    weft_status status =
        wefti_savepoint_agree(comm, &replica->failed, written, whole);
    if (status == WEFT_OK) {
        status = find_owners(replica, owners);
    }
    if (status == WEFT_OK) {
        status = gather(replica, owners, room, own, &written);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (replica->rank == 0 && written == WEFT_OK) {
        written = commit_folder(own);
    }
    return wefti_savepoint_agree(comm, &replica->failed, written, whole);
}

weft_status wefti_hugging_face_export(wefti_replica *replica, const char *dir)
{
    const wefti_parameters *plan = &replica->plan;
    folder *own = calloc(1, sizeof(*own));
    int32_t *owners = calloc(plan->tensor_count, sizeof(*owners));
    real *room = malloc(wefti_parameters_largest(plan) * sizeof(*room));
    weft_status status;
    if (own && owners && room) {
        own->file.fd = -1;
        status = export_all(replica, dir, owners, room, own);
        close_folder(own);
    } else {
        status = wefti_savepoint_agree(
            replica->config.comm, &replica->failed,
            wefti_error(WEFT_ERR_NO_MEMORY, "--export-hf: no memory"), whole);
    }
    free(room);
    free(owners);
    free(own);
    return status;
}
