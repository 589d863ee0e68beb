/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_cudnn.c - the stand-in for cuDNN.
 */
#include "tests/fake/fake_cudnn_program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x66616b65646e6e39)

enum {
    BAD_PARAM = 2000,
    NOT_INITIALIZED = 1001,
    EXECUTION_FAILED = 5000,
    ATTRIBUTES = 8,
    VALUES = 24
};

typedef fake_dnn_tensor tensor;
typedef fake_dnn_step step;
typedef fake_dnn_program program;
typedef fake_dnn_arguments arguments;

typedef struct attribute {
    int name, type;
    int64_t count;
    unsigned char bytes[VALUES * 8];
} attribute;

typedef struct object {
    uint64_t magic;
    int kind;
    bool finished;
    int count;
    attribute attributes[ATTRIBUTES];
    program *program; /* of a graph, and what is made of it */
} object;

struct cudnnContext {
    uint64_t magic;
    CUcontext context;
    CUstream stream;
};

static _Atomic int handles, objects, plans, queued;
static pthread_mutex_t programs_lock = PTHREAD_MUTEX_INITIALIZER;
static program *programs;

void cudnnFakeGetCounts(fake_cudnn_counts *out)
{
    *out = (fake_cudnn_counts){handles, objects, plans, queued};
}

static void demand(bool good, const char *what)
{
    fake_dnn_demand(good, what);
}

static bool has_fault(const char *kind)
{
    const char *asked = getenv("WEFT_FAKE_CUDNN_FAULT");
    return asked && strcmp(asked, kind) == 0;
}

size_t cudnnGetVersion(void)
{
    const char *text = getenv("WEFT_FAKE_CUDNN_VERSION");
    return text && *text ? strtoul(text, NULL, 10) : 91900;
}

const char *cudnnGetErrorString(int status)
{
    return status == WEFTI_CUDNN_SUCCESS ? "CUDNN_STATUS_SUCCESS"
           : status == NOT_INITIALIZED   ? "CUDNN_STATUS_NOT_INITIALIZED"
           : status == BAD_PARAM         ? "CUDNN_STATUS_BAD_PARAM"
           : status == WEFTI_CUDNN_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                 : "CUDNN_STATUS_EXECUTION_"
                                                   "FAILED";
}

int cudnnCreate(struct cudnnContext **handle)
{
    CUcontext current = NULL;
    demand(cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != NULL,
           "cudnnCreate: no context is current");
    if (has_fault("create")) {
        return NOT_INITIALIZED;
    }
    *handle = calloc(1, sizeof(**handle));
    demand(*handle != NULL, "no memory");
    **handle = (struct cudnnContext){.magic = MAGIC, .context = current};
    handles++;
    return WEFTI_CUDNN_SUCCESS;
}

int cudnnDestroy(struct cudnnContext *handle)
{
    demand(handle->magic == MAGIC, "cudnnDestroy: not a handle");
    handle->magic = 0;
    free(handle);
    handles--;
    return WEFTI_CUDNN_SUCCESS;
}

int cudnnSetStream(struct cudnnContext *handle, struct CUstream_st *stream)
{
    demand(handle->magic == MAGIC, "cudnnSetStream: not a handle");
    handle->stream = stream;
    return WEFTI_CUDNN_SUCCESS;
}

/* ---- descriptors -----------------------------------------------------------
 */

static object *take(void *given)
{
    object *of = given;
    demand(of && of->magic == MAGIC, "not a descriptor, or its end came");
    return of;
}

int cudnnBackendCreateDescriptor(int kind, void **desc)
{
    object *made = calloc(1, sizeof(*made));
    demand(made != NULL, "no memory");
    made->magic = MAGIC;
    made->kind = kind;
    objects++;
    *desc = made;
    return WEFTI_CUDNN_SUCCESS;
}

int cudnnBackendDestroyDescriptor(void *desc)
{
    object *of = take(desc);
    of->magic = 0;
    free(of);
    objects--;
    return WEFTI_CUDNN_SUCCESS;
}

static size_t bytes_of(int type)
{
    return type == WEFTI_DNN_TYPE_INT64 || type == WEFTI_DNN_TYPE_VOID_PTR ||
                   type == WEFTI_DNN_TYPE_HANDLE ||
                   type == WEFTI_DNN_TYPE_DESCRIPTOR
               ? 8
           : type == WEFTI_DNN_TYPE_BOOLEAN ? sizeof(bool)
                                            : sizeof(int);
}

int cudnnBackendSetAttribute(void *desc, int name, int type, int64_t count,
                             const void *values)
{
    object *of = take(desc);
    demand(!of->finished, "an attribute of what is finished");
    demand(of->count < ATTRIBUTES && count > 0 && count <= VALUES,
           "more than weft has a use for");
    attribute *made = &of->attributes[of->count++];
    *made = (attribute){.name = name, .type = type, .count = count};
    memcpy(made->bytes, values, (size_t)count * bytes_of(type));
    return WEFTI_CUDNN_SUCCESS;
}

/* Of this type and count, or it is misused; NULL: it was not set. */
static const void *find(const object *of, int name, int type, int64_t count)
{
    for (int i = 0; i < of->count; i++) {
        const attribute *a = &of->attributes[i];
        if (a->name == name) {
            demand(a->type == type && (count == 0 || a->count == count),
                   "an attribute of the wrong type or length");
            return a->bytes;
        }
    }
    return NULL;
}

static void *get_desc(const object *of, int name)
{
    void *const *at = find(of, name, WEFTI_DNN_TYPE_DESCRIPTOR, 1);
    if (at) {
        demand(take(*at)->finished, "a descriptor that is not finished");
    }
    return at ? *at : NULL;
}

static int get_int(const object *of, int name, int type)
{
    const int *at = find(of, name, type, 1);
    demand(at != NULL, "an attribute is missing");
    return *at;
}

static bool get_bool(const object *of, int name)
{
    const bool *at = find(of, name, WEFTI_DNN_TYPE_BOOLEAN, 1);
    demand(at != NULL, "an attribute is missing");
    return *at;
}

/* ---- graphs ----------------------------------------------------------------
 */

/* A tensor's number in the program; -1: none. Inputs that are nowhere have
 * been made before. */
static int add_tensor(program *p, const object *of, bool is_input)
{
    if (!of) {
        return -1;
    }
    demand(of->kind == WEFTI_DNN_TENSOR, "no tensor");
    const int64_t *id = find(of, WEFTI_DNN_TENSOR_ID, WEFTI_DNN_TYPE_INT64, 1);
    const int64_t *alignment =
        find(of, WEFTI_DNN_TENSOR_ALIGNMENT, WEFTI_DNN_TYPE_INT64, 1);
    const void *dims =
        find(of, WEFTI_DNN_TENSOR_DIMENSIONS, WEFTI_DNN_TYPE_INT64, 4);
    const void *strides =
        find(of, WEFTI_DNN_TENSOR_STRIDES, WEFTI_DNN_TYPE_INT64, 4);
    demand(id && alignment && *alignment == 16 && dims && strides,
           "a tensor that is not whole");
    for (int i = 0; i < p->tensor_count; i++) {
        if (p->tensors[i].id == *id) {
            return i;
        }
    }
    demand(p->tensor_count < FAKE_DNN_TENSORS,
           "more tensors than weft has a use for");
    tensor *made = &p->tensors[p->tensor_count];
    made->id = *id;
    made->type = get_int(of, WEFTI_DNN_TENSOR_TYPE, WEFTI_DNN_TYPE_DATA_TYPE);
    made->is_virtual = get_bool(of, WEFTI_DNN_TENSOR_VIRTUAL);
    made->by_value = get_bool(of, WEFTI_DNN_TENSOR_BY_VALUE);
    memcpy(made->dims, dims, sizeof(made->dims));
    memcpy(made->strides, strides, sizeof(made->strides));
    demand(!is_input || !made->is_virtual, "an input that nothing has made");
    return p->tensor_count++;
}

static void add_step(program *p, const object *of)
{
    demand(p->step_count < FAKE_DNN_STEPS,
           "more steps than weft has a use for");
    step *made = &p->steps[p->step_count++];
    *made = (step){.kind = of->kind, .mode = -1, .axis = -1, .b = -1, .t = -1};
    demand(of->finished, "an operation that is not finished");
    if (of->kind == WEFTI_DNN_OP_MATMUL) {
        made->x = add_tensor(p, get_desc(of, WEFTI_DNN_OP_MATMUL_A), true);
        made->b = add_tensor(p, get_desc(of, WEFTI_DNN_OP_MATMUL_B), true);
        made->y = add_tensor(p, get_desc(of, WEFTI_DNN_OP_MATMUL_C), false);
    } else if (of->kind == WEFTI_DNN_OP_REDUCTION) {
        made->mode =
            get_int(get_desc(of, WEFTI_DNN_OP_REDUCTION_HOW),
                    WEFTI_DNN_REDUCTION_KIND, WEFTI_DNN_TYPE_REDUCTION);
        made->x = add_tensor(p, get_desc(of, WEFTI_DNN_OP_REDUCTION_X), true);
        made->y = add_tensor(p, get_desc(of, WEFTI_DNN_OP_REDUCTION_Y), false);
    } else if (of->kind == WEFTI_DNN_OP_RESHAPE) {
        made->x = add_tensor(p, get_desc(of, WEFTI_DNN_OP_RESHAPE_X), true);
        made->y = add_tensor(p, get_desc(of, WEFTI_DNN_OP_RESHAPE_Y), false);
    } else {
        const object *how = get_desc(of, WEFTI_DNN_OP_POINTWISE_HOW);
        const int64_t *axis =
            find(how, WEFTI_DNN_POINTWISE_AXIS, WEFTI_DNN_TYPE_INT64, 1);
        made->mode = get_int(how, WEFTI_DNN_POINTWISE_MODE,
                             WEFTI_DNN_TYPE_POINTWISE_MODE);
        made->axis = axis ? *axis : -1;
        made->x = add_tensor(p, get_desc(of, WEFTI_DNN_OP_POINTWISE_X), true);
        made->b = add_tensor(p, get_desc(of, WEFTI_DNN_OP_POINTWISE_B), true);
        made->t = add_tensor(p, get_desc(of, WEFTI_DNN_OP_POINTWISE_T), true);
        made->y = add_tensor(p, get_desc(of, WEFTI_DNN_OP_POINTWISE_Y), false);
    }
}

static void make_program(object *graph)
{
    void *const *ops =
        find(graph, WEFTI_DNN_GRAPH_OPS, WEFTI_DNN_TYPE_DESCRIPTOR, 0);
    program *made = calloc(1, sizeof(*made));
    demand(made && ops, "a graph without operations");
    for (int i = 0; i < graph->count; i++) {
        const attribute *a = &graph->attributes[i];
        for (int64_t n = 0; a->name == WEFTI_DNN_GRAPH_OPS && n < a->count;
             n++) {
            add_step(made, take(ops[n]));
        }
    }
    pthread_mutex_lock(&programs_lock);
    made->next = programs;
    programs = made;
    pthread_mutex_unlock(&programs_lock);
    graph->program = made;
}

int cudnnBackendFinalize(void *desc)
{
    object *of = take(desc);
    const object *from = NULL;
    demand(!of->finished, "finished twice");
    if (of->kind == WEFTI_DNN_GRAPH) {
        make_program(of);
    } else if (of->kind == WEFTI_DNN_ENGINEHEUR) {
        from = get_desc(of, WEFTI_DNN_HEUR_GRAPH);
    } else if (of->kind == WEFTI_DNN_PLAN) {
        from = get_desc(of, WEFTI_DNN_PLAN_CONFIG);
        if (has_fault("plan")) {
            return WEFTI_CUDNN_NOT_SUPPORTED;
        }
        plans++;
    }
    if (from) {
        of->program = from->program;
    }
    of->finished = true;
    return WEFTI_CUDNN_SUCCESS;
}

static int64_t workspace_bytes(void)
{
    const char *text = getenv("WEFT_FAKE_CUDNN_WORKSPACE");
    return text && *text ? strtoll(text, NULL, 10) : FAKE_DNN_WORKSPACE_BYTES;
}

int cudnnBackendGetAttribute(void *desc, int name, int type, int64_t asked,
                             int64_t *count, void *values)
{
    const object *of = take(desc);
    demand(of->finished && asked > 0, "asked what is not finished");
    *count = 1;
    if (name == WEFTI_DNN_PLAN_WORKSPACE) {
        demand(type == WEFTI_DNN_TYPE_INT64, "a workspace's type");
        *(int64_t *)values = workspace_bytes();
        return WEFTI_CUDNN_SUCCESS;
    }
    demand(name == WEFTI_DNN_HEUR_RESULTS, "an attribute weft has no use for");
    *count = fake_dnn_is_attention(of->program) && !has_fault("none");
    if (*count > 0) {
        object *config = take(*(void **)values);
        config->program = of->program;
        config->finished = true;
    }
    return WEFTI_CUDNN_SUCCESS;
}

/* The pack's arrays by their ids; all that the program has in memory. */
static void take_pack(const object *pack, const program *p,
                      fake_host_work *work, arguments *args)
{
    void *const *at =
        find(pack, WEFTI_DNN_PACK_POINTERS, WEFTI_DNN_TYPE_VOID_PTR, 0);
    void *const *workspace =
        find(pack, WEFTI_DNN_PACK_WORKSPACE, WEFTI_DNN_TYPE_VOID_PTR, 1);
    const int64_t *ids =
        find(pack, WEFTI_DNN_PACK_IDS, WEFTI_DNN_TYPE_INT64, 0);
    demand(pack->finished && at && ids && workspace && *workspace,
           "arrays that are not whole");
    for (int i = 0; i < p->tensor_count; i++) {
        const tensor *t = &p->tensors[i];
        int64_t n = 0;
        while (!t->is_virtual && n < VALUES && ids[n] != t->id) {
            n++;
        }
        demand(n < VALUES, "an array is missing");
        if (t->by_value) {
            args->numbers[t->id - FAKE_DNN_REAL - 1] = *(const float *)at[n];
        } else if (!t->is_virtual) {
            demand((uintptr_t)at[n] % 16 == 0, "an array not aligned");
            work->parts[t->id - 1] = (fake_host_part){
                (CUdeviceptr)(uintptr_t)at[n],
                fake_dnn_elems(t) * (t->type == WEFTI_CUDNN_BF16 ? 2 : 4)};
        }
    }
    work->parts[FAKE_DNN_REAL] = (fake_host_part){
        (CUdeviceptr)(uintptr_t)*workspace, FAKE_DNN_WORKSPACE_BYTES};
}

int cudnnBackendExecute(struct cudnnContext *handle, void *plan, void *pack)
{
    const program *p = take(plan)->program;
    CUcontext current = NULL;
    fake_host_work work = {.what = "cudnnBackendExecute", .run = fake_dnn_run};
    arguments args = {.of = p};
    demand(handle->magic == MAGIC &&
               cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
               current == handle->context,
           "cudnnBackendExecute: the handle's context is not current");
    if (has_fault("launch")) {
        return EXECUTION_FAILED;
    }
    take_pack(take(pack), p, &work, &args);
    memcpy(work.args, &args, sizeof(args));
    queued++;
    return fake_host_launch(handle->stream, &work) == CUDA_SUCCESS
               ? WEFTI_CUDNN_SUCCESS
               : EXECUTION_FAILED;
}
