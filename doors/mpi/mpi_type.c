/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_type.c - the tables of predefined types and operations, and
 * whether a derived type is dense.
 */
#include "doors/mpi/mpi_type.h"

#include <stdlib.h>
#include <string.h>

/* Which operations MPI defines for a type, as far as weft gives just the same
 * result. */
enum {
    MOVES = 0,
    SUMS = 1,
    ORDERS = 2, /* products, minima, maxima */
    BITS = 4,
    TRUTHS = 8, /* of 0 and 1 only, as _Bool holds */
    WHOLE = SUMS | ORDERS | BITS,
    REAL = SUMS | ORDERS
};

typedef struct named_type {
    MPI_Datatype handle;
    weft_dtype dtype;
    uint8_t per;
    uint8_t groups;
} named_type;

#define SIGNED_DTYPE(c)                                                        \
    (sizeof(c) == 8   ? WEFT_DTYPE_I64                                         \
     : sizeof(c) == 4 ? WEFT_DTYPE_I32                                         \
                      : WEFT_DTYPE_I8)
#define UNSIGNED_DTYPE(c)                                                      \
    (sizeof(c) == 8   ? WEFT_DTYPE_U64                                         \
     : sizeof(c) == 4 ? WEFT_DTYPE_U32                                         \
                      : WEFT_DTYPE_U8)

/* Those most used first. weft has no 16-bit integers: their bits are bytes'. */
static const named_type types[] = {
    {MPI_DOUBLE, WEFT_DTYPE_F64, 1, REAL},
    {MPI_FLOAT, WEFT_DTYPE_F32, 1, REAL},
    {MPI_INT, WEFT_DTYPE_I32, 1, WHOLE},
    {MPI_BYTE, WEFT_DTYPE_U8, 1, BITS},
    {MPI_CHAR, WEFT_DTYPE_U8, 1, MOVES},
    {MPI_LONG, SIGNED_DTYPE(long), 1, WHOLE},
    {MPI_UNSIGNED, WEFT_DTYPE_U32, 1, WHOLE},
    {MPI_UNSIGNED_LONG, UNSIGNED_DTYPE(unsigned long), 1, WHOLE},
    {MPI_LONG_LONG, WEFT_DTYPE_I64, 1, WHOLE},
    {MPI_UNSIGNED_LONG_LONG, WEFT_DTYPE_U64, 1, WHOLE},
    {MPI_SIGNED_CHAR, WEFT_DTYPE_I8, 1, WHOLE},
    {MPI_UNSIGNED_CHAR, WEFT_DTYPE_U8, 1, WHOLE},
    {MPI_SHORT, WEFT_DTYPE_U8, 2, BITS},
    {MPI_UNSIGNED_SHORT, WEFT_DTYPE_U8, 2, BITS},
    {MPI_INT8_T, WEFT_DTYPE_I8, 1, WHOLE},
    {MPI_INT16_T, WEFT_DTYPE_U8, 2, BITS},
    {MPI_INT32_T, WEFT_DTYPE_I32, 1, WHOLE},
    {MPI_INT64_T, WEFT_DTYPE_I64, 1, WHOLE},
    {MPI_UINT8_T, WEFT_DTYPE_U8, 1, WHOLE},
    {MPI_UINT16_T, WEFT_DTYPE_U8, 2, BITS},
    {MPI_UINT32_T, WEFT_DTYPE_U32, 1, WHOLE},
    {MPI_UINT64_T, WEFT_DTYPE_U64, 1, WHOLE},
    {MPI_AINT, SIGNED_DTYPE(MPI_Aint), 1, WHOLE},
    {MPI_OFFSET, SIGNED_DTYPE(MPI_Offset), 1, WHOLE},
    {MPI_COUNT, SIGNED_DTYPE(MPI_Count), 1, WHOLE},
    {MPI_C_BOOL, WEFT_DTYPE_U8, sizeof(_Bool), TRUTHS},
    {MPI_C_COMPLEX, WEFT_DTYPE_F32, 2, SUMS},
    {MPI_C_FLOAT_COMPLEX, WEFT_DTYPE_F32, 2, SUMS},
    {MPI_C_DOUBLE_COMPLEX, WEFT_DTYPE_F64, 2, SUMS},
    {MPI_DOUBLE_PRECISION, WEFT_DTYPE_F64, 1, REAL},
    {MPI_REAL, WEFT_DTYPE_F32, 1, REAL},
    {MPI_INTEGER, WEFT_DTYPE_I32, 1, WHOLE},
    {MPI_COMPLEX, WEFT_DTYPE_F32, 2, SUMS},
    {MPI_DOUBLE_COMPLEX, WEFT_DTYPE_F64, 2, SUMS},
    {MPI_PACKED, WEFT_DTYPE_U8, 1, MOVES},
};

typedef struct named_op {
    MPI_Op handle;
    weft_redop redop;
    unsigned group;
} named_op;

static const named_op ops[] = {
    {MPI_SUM, WEFT_REDOP_SUM, SUMS},   {MPI_MAX, WEFT_REDOP_MAX, ORDERS},
    {MPI_MIN, WEFT_REDOP_MIN, ORDERS}, {MPI_PROD, WEFT_REDOP_PROD, ORDERS},
    {MPI_BAND, WEFT_REDOP_BAND, BITS}, {MPI_BOR, WEFT_REDOP_BOR, BITS},
    {MPI_BXOR, WEFT_REDOP_BXOR, BITS}, {MPI_LAND, WEFT_REDOP_MIN, TRUTHS},
    {MPI_LOR, WEFT_REDOP_MAX, TRUTHS}, {MPI_LXOR, WEFT_REDOP_BXOR, TRUTHS},
};

enum { TYPES = sizeof(types) / sizeof(types[0]) };
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

static int dense_key = MPI_KEYVAL_INVALID;

/* What the attribute says; its address is the value. */
static const char says_dense, says_sparse;

int wefti_mpi_type_open(void)
{
    return PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN,
                                   MPI_TYPE_NULL_DELETE_FN, &dense_key, NULL);
}

void wefti_mpi_type_close(void)
{
    PMPI_Type_free_keyval(&dense_key);
}

static const named_type *find_type(MPI_Datatype handle)
{
    /* An MPI without Fortran has no handle for its types. */
    for (int i = 0; handle != MPI_DATATYPE_NULL && i < TYPES; i++) {
        if (types[i].handle == handle) {
            return &types[i];
        }
    }
    return NULL;
}

/* Whether packing an element changes nothing: the only way to know the order of
 * a type's parts that holds for all constructors. Each byte of an element
 * holds, one after another, the parts of its own index. */
static bool is_packed_as_it_lies(MPI_Datatype handle, MPI_Comm comm, int bytes)
{
    unsigned char *room = malloc(2 * (size_t)bytes);
    bool same = room != NULL;
    for (int shift = 0; same && shift < 32 && bytes >> shift > 0; shift += 8) {
        int position = 0;
        for (int i = 0; i < bytes; i++) {
            room[i] = (unsigned char)(i >> shift);
        }
        same = PMPI_Pack(room, 1, handle, room + bytes, bytes, &position,
                         comm) == MPI_SUCCESS &&
               position == bytes && memcmp(room, room + bytes, bytes) == 0;
    }
    free(room);
    return same;
}

/* Elements of more bytes are packed, though they might be dense, unless they
 * are a row of something smaller. */
enum { TRIAL_MOST_BYTES = 65536 };

static bool is_dense(MPI_Datatype handle, MPI_Comm comm, MPI_Count bytes)
{
    MPI_Count low, extent, true_low, true_extent;
    PMPI_Type_get_extent_x(handle, &low, &extent);
    PMPI_Type_get_true_extent_x(handle, &true_low, &true_extent);
    if (low != 0 || true_low != 0 || extent != bytes || true_extent != bytes) {
        return false;
    }
    int integers, addresses, inner, combiner;
    PMPI_Type_get_envelope(handle, &integers, &addresses, &inner, &combiner);
    if (combiner == MPI_COMBINER_NAMED) {
        return true;
    }
    if (combiner == MPI_COMBINER_CONTIGUOUS && integers == 1 &&
        bytes > TRIAL_MOST_BYTES) {
        int count;
        MPI_Datatype part;
        PMPI_Type_get_contents(handle, 1, 0, 1, &count, NULL, &part);
        const bool dense = count > 0 && is_dense(part, comm, bytes / count);
        PMPI_Type_get_envelope(part, &integers, &addresses, &inner, &combiner);
        if (combiner != MPI_COMBINER_NAMED) {
            PMPI_Type_free(&part);
        }
        return dense;
    }
    return bytes <= TRIAL_MOST_BYTES &&
           is_packed_as_it_lies(handle, comm, (int)bytes);
}

/* Found once for each derived type; it keeps that as an attribute. */
static bool recall_dense(MPI_Datatype handle, MPI_Comm comm, MPI_Count bytes)
{
    void *says = NULL;
    int found = 0;
    PMPI_Type_get_attr(handle, dense_key, &says, &found);
    if (!found) {
        says = is_dense(handle, comm, bytes) ? (void *)&says_dense
                                             : (void *)&says_sparse;
        PMPI_Type_set_attr(handle, dense_key, says);
    }
    return says == &says_dense;
}

bool wefti_mpi_type_get(MPI_Datatype handle, MPI_Comm comm,
                        wefti_mpi_type *type_out)
{
    const named_type *named = find_type(handle);
    type_out->handle = handle;
    if (named) {
        type_out->bytes = weft_dtype_bytes(named->dtype) * named->per;
        type_out->extent = (ptrdiff_t)type_out->bytes;
        type_out->dense = true;
        return true;
    }
    MPI_Count bytes, low, extent;
    if (handle == MPI_DATATYPE_NULL ||
        PMPI_Type_size_x(handle, &bytes) != MPI_SUCCESS || bytes < 0) {
        return false;
    }
    PMPI_Type_get_extent_x(handle, &low, &extent);
    type_out->bytes = (size_t)bytes;
    type_out->extent = (ptrdiff_t)extent;
    type_out->dense = recall_dense(handle, comm, bytes);
    return true;
}

bool wefti_mpi_reduction_get(MPI_Datatype type, MPI_Op op,
                             wefti_mpi_reduction *reduction_out)
{
    const named_type *named = find_type(type);
    for (int i = 0; named && i < OPS; i++) {
        if (ops[i].handle == op && (ops[i].group & named->groups)) {
            *reduction_out =
                (wefti_mpi_reduction){named->dtype, ops[i].redop, named->per};
            return true;
        }
    }
    return false;
}
