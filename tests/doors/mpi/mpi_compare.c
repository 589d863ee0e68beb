/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_compare.c - an MPI program for test_mpi_door.sh: every collective under
 * MPI's own name and beneath it, in the profiling interface, on the same data;
 * all bytes of the buffers must come out the same, those between and behind the
 * elements too. Without the library preloaded it compares MPI with itself.
 *
 * Usage: mpi_compare blocking|nonblocking|persistent
 *
 * Each rank prints "rank R of N: ok, C calls".
 */
#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "FAILED: rank %d, line %d: %s (%s)\n", world_rank, \
                    __LINE__, #condition, now);                                \
            PMPI_Abort(MPI_COMM_WORLD, 1);                                     \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum {
    BUFFER_BYTES = 1 << 18,
    GUARD = 4096,
    RANKS_MOST = 16,
    NUMBERS = 2 * 300 * RANKS_MOST /* words of the longest reduction */
};

typedef enum way { BLOCKING, NONBLOCKING, PERSISTENT } way;

static int world_rank, calls;
static way mode;
static char now[200];
static char *sent, *by_weft, *by_mpi;

/* How often a persistent one is started, so that it must pack anew. */
enum { STARTS = 2 };

static void finish(MPI_Request *request)
{
    int index, done = 0, count;
    MPI_Status status;
    /* MPICH 4.0.2 never has MPI_Request_get_status true of its persistent. */
    switch (calls % (mode == PERSISTENT ? 7 : 8)) {
    case 0:
        CHECK(MPI_Wait(request, &status) == MPI_SUCCESS);
        break;
    case 1:
        while (!done) {
            CHECK(MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        }
        break;
    case 2:
        CHECK(MPI_Waitall(1, request, &status) == MPI_SUCCESS);
        break;
    case 3:
        while (!done) {
            CHECK(MPI_Testall(1, request, &done, &status) == MPI_SUCCESS);
        }
        break;
    case 4:
        CHECK(MPI_Waitany(1, request, &index, &status) == MPI_SUCCESS);
        CHECK(index == 0);
        break;
    case 5:
        while (!done) {
            CHECK(MPI_Testany(1, request, &index, &done, &status) ==
                  MPI_SUCCESS);
        }
        CHECK(index == 0);
        break;
    case 6:
        CHECK(MPI_Waitsome(1, request, &count, &index, &status) == MPI_SUCCESS);
        CHECK(count == 1 && index == 0);
        break;
    default:
        while (!done) {
            CHECK(MPI_Request_get_status(*request, &done, &status) ==
                  MPI_SUCCESS);
        }
        CHECK(MPI_Testsome(1, request, &count, &index, &status) == MPI_SUCCESS);
        CHECK(count == 1 && index == 0);
    }
    if (mode == NONBLOCKING) {
        CHECK(*request == MPI_REQUEST_NULL);
    }
}

#if MPI_VERSION >= 4
#define PERSIST(Name, ...)                                                     \
    do {                                                                       \
        CHECK(MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &request) ==       \
              MPI_SUCCESS);                                                    \
        for (int start = 0; start < (in_place ? 1 : STARTS); start++) {        \
            CHECK(MPI_Start(&request) == MPI_SUCCESS);                         \
            finish(&request);                                                  \
            CHECK(request != MPI_REQUEST_NULL);                                \
        }                                                                      \
        CHECK(MPI_Request_free(&request) == MPI_SUCCESS);                      \
    } while (0)
#else
#define PERSIST(Name, ...) CHECK(!"persistent: this MPI has none")
#endif

/* into is named in the arguments: where the result goes. */
#define BOTH(Name, name, ...)                                                  \
    do {                                                                       \
        MPI_Request request = MPI_REQUEST_NULL;                                \
        char *into = by_mpi;                                                   \
        (void)in_place;                                                        \
        CHECK(PMPI_##Name(__VA_ARGS__) == MPI_SUCCESS);                        \
        into = by_weft;                                                        \
        (void)into; /* a barrier has no result */                              \
        if (mode == BLOCKING) {                                                \
            CHECK(MPI_##Name(__VA_ARGS__) == MPI_SUCCESS);                     \
        } else if (mode == NONBLOCKING) {                                      \
            CHECK(MPI_I##name(__VA_ARGS__, &request) == MPI_SUCCESS);          \
            finish(&request);                                                  \
        } else {                                                               \
            PERSIST(Name, __VA_ARGS__);                                        \
        }                                                                      \
        calls++;                                                               \
        compare(#Name);                                                        \
    } while (0)

static void compare(const char *what)
{
    const size_t bytes = BUFFER_BYTES + 2 * GUARD;
    if (memcmp(by_weft - GUARD, by_mpi - GUARD, bytes) == 0) {
        return;
    }
    for (int i = 0; i < (int)bytes; i++) {
        if (by_weft[i - GUARD] != by_mpi[i - GUARD]) {
            snprintf(now + strlen(now), sizeof(now) - strlen(now),
                     ": %s, byte %d", what, i - GUARD);
            CHECK(!"the same as MPI");
        }
    }
}

/* Both results begin with the same bytes, which are this rank's in place. */
static void fill(int rank, int seed, int range)
{
    int done = range; /* the values come round */
    for (int i = 0; i < range; i++) {
        sent[i] = (char)((i * 7 + rank * 3 + seed) % range);
    }
    for (; 2 * done < BUFFER_BYTES; done *= 2) {
        memcpy(sent + done, sent, (size_t)done);
    }
    memcpy(sent + done, sent, (size_t)(BUFFER_BYTES - done));
    memset(by_weft - GUARD, 0x5a, BUFFER_BYTES + 2 * GUARD);
    memcpy(by_weft, sent, BUFFER_BYTES);
    memcpy(by_mpi - GUARD, by_weft - GUARD, BUFFER_BYTES + 2 * GUARD);
}

typedef struct named {
    MPI_Datatype type;
    const char *name;
    char kind; /* i: integer, f, d: floats, c, z: complex, b: bytes, t: truth,
                  p: a pair */
} named;

/* Small whole numbers, exact in any order of additions. */
static void fill_numbers(const named *type, int rank, int seed)
{
    fill(rank, seed, type->kind == 't' ? 2 : 3);
    for (int i = 0; i < NUMBERS; i++) {
        const int value = (i + rank + seed) % 3;
        if (type->kind == 'i' || type->kind == 'b' || type->kind == 't') {
            break;
        }
        if (type->kind == 'f' || type->kind == 'c') {
            ((float *)sent)[2 * i] = (float)value;
            ((float *)sent)[2 * i + 1] = (float)(value + 1);
        } else if (type->kind == 'd' || type->kind == 'z') {
            ((double *)sent)[i] = value;
        } else if (type->kind == 'p') {
            ((int *)sent)[2 * i] = value;
            ((int *)sent)[2 * i + 1] = rank;
        } else if (type->kind == 'l') {
            memset(sent + 16 * (i / 2), 0, 16);
            ((long double *)sent)[i / 2] = value;
        }
    }
    memcpy(by_weft, sent, BUFFER_BYTES);
    memcpy(by_mpi, sent, BUFFER_BYTES);
}

static void add_bytes(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int bytes;
    PMPI_Type_size(*type, &bytes);
    for (int i = 0; i < *count * bytes; i++) {
        ((unsigned char *)inout)[i] += ((unsigned char *)in)[i];
    }
}

static MPI_Op user_op;

/* Whether MPI defines op for the kind. */
static bool is_defined(MPI_Op op, char kind)
{
    const bool order = op == MPI_MAX || op == MPI_MIN;
    const bool sums = op == MPI_SUM || op == MPI_PROD;
    const bool bits = op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR;
    const bool pair = op == MPI_MINLOC || op == MPI_MAXLOC;
    switch (kind) {
    case 'i':
        return !pair;
    case 'f':
    case 'd':
    case 'l':
        return order || sums || op == user_op;
    case 'c':
    case 'z':
        return sums;
    case 'b':
        return bits;
    case 't':
        return !order && !sums && !bits && !pair && op != user_op;
    default:
        return pair;
    }
}

static void reduce_all(MPI_Comm comm, const named *type, MPI_Op op, int count)
{
    int rank, nranks, counts[RANKS_MOST];
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    for (int i = 0; i < nranks; i++) {
        counts[i] = i % 2 ? count : count / 2;
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        /* MPICH 4.0.2 itself ends with SIGSEGV where a root other than 0 is in
         * place: only weft gets that, MPI has the same data apart. */
        const bool by_weft_only = type->type == MPI_INT && op == MPI_SUM;
        const int root =
            in_place && !by_weft_only ? 0 : (count + in_place) % nranks;
        const void *from = in_place ? MPI_IN_PLACE : sent;
        fill_numbers(type, rank, count);
        BOTH(Allreduce, allreduce, from, into, count, type->type, op, comm);
        fill_numbers(type, rank, count);
        BOTH(Reduce, reduce,
             in_place && rank == root && into == by_weft ? MPI_IN_PLACE : sent,
             into, count, type->type, op, root, comm);
        if (!in_place) { /* MPI may leave what it likes behind the result */
            fill_numbers(type, rank, count);
            BOTH(Reduce_scatter_block, reduce_scatter_block, from, into, count,
                 type->type, op, comm);
            fill_numbers(type, rank, count);
            BOTH(Reduce_scatter, reduce_scatter, from, into, counts, type->type,
                 op, comm);
        }
    }
}

/* In place only the result is defined. */
static void scatter_in_place(MPI_Comm comm, int count)
{
    int rank, nranks, counts[RANKS_MOST];
    const bool in_place = true;
    (void)in_place;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    for (int form = 0; form < 2; form++) {
        MPI_Request request = MPI_REQUEST_NULL;
        fill(rank, count, 3);
        for (int i = 0; i < nranks; i++) {
            counts[i] = count + i;
        }
        const int own = form ? counts[rank] : count;
        if (form) {
            PMPI_Reduce_scatter(MPI_IN_PLACE, by_mpi, counts, MPI_INT, MPI_SUM,
                                comm);
        } else {
            PMPI_Reduce_scatter_block(MPI_IN_PLACE, by_mpi, count, MPI_INT,
                                      MPI_SUM, comm);
        }
        if (form && mode == BLOCKING) {
            MPI_Reduce_scatter(MPI_IN_PLACE, by_weft, counts, MPI_INT, MPI_SUM,
                               comm);
        } else if (mode == BLOCKING) {
            MPI_Reduce_scatter_block(MPI_IN_PLACE, by_weft, count, MPI_INT,
                                     MPI_SUM, comm);
        } else if (form && mode == NONBLOCKING) {
            MPI_Ireduce_scatter(MPI_IN_PLACE, by_weft, counts, MPI_INT, MPI_SUM,
                                comm, &request);
            finish(&request);
        } else if (mode == NONBLOCKING) {
            MPI_Ireduce_scatter_block(MPI_IN_PLACE, by_weft, count, MPI_INT,
                                      MPI_SUM, comm, &request);
            finish(&request);
        } else if (form) {
            PERSIST(Reduce_scatter, MPI_IN_PLACE, by_weft, counts, MPI_INT,
                    MPI_SUM, comm);
        } else {
            PERSIST(Reduce_scatter_block, MPI_IN_PLACE, by_weft, count, MPI_INT,
                    MPI_SUM, comm);
        }
        calls++;
        CHECK(memcmp(by_weft, by_mpi, (size_t)own * sizeof(int)) == 0);
    }
}

static const int sizes[] = {0, 1, 5, 300, 2100};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), REDUCED_SIZES = SIZES - 1 };

static void reductions(MPI_Comm comm)
{
    const named types[] = {
        {MPI_INT, "int", 'i'},
        {MPI_DOUBLE, "double", 'd'},
        {MPI_FLOAT, "float", 'f'},
        {MPI_LONG, "long", 'i'},
        {MPI_UNSIGNED, "unsigned", 'i'},
        {MPI_UNSIGNED_LONG_LONG, "unsigned long long", 'i'},
        {MPI_SIGNED_CHAR, "signed char", 'i'},
        {MPI_UINT8_T, "uint8_t", 'i'},
        {MPI_SHORT, "short", 'i'},
        {MPI_UINT16_T, "uint16_t", 'i'},
        {MPI_INT64_T, "int64_t", 'i'},
        {MPI_AINT, "aint", 'i'},
        {MPI_BYTE, "byte", 'b'},
        {MPI_C_BOOL, "bool", 't'},
        {MPI_C_FLOAT_COMPLEX, "float complex", 'c'},
        {MPI_C_DOUBLE_COMPLEX, "double complex", 'z'},
        {MPI_LONG_DOUBLE, "long double", 'l'},
        {MPI_2INT, "2int", 'p'},
    };
    const struct {
        MPI_Op op;
        const char *name;
    } ops[] = {{MPI_SUM, "sum"},   {MPI_PROD, "prod"},     {MPI_MAX, "max"},
               {MPI_MIN, "min"},   {MPI_BAND, "band"},     {MPI_BOR, "bor"},
               {MPI_BXOR, "bxor"}, {MPI_LAND, "land"},     {MPI_LOR, "lor"},
               {MPI_LXOR, "lxor"}, {MPI_MINLOC, "minloc"}, {user_op, "user"}};
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
            if (types[t].type == MPI_AINT && o > 3) {
                continue;
            }
            /* MPICH 4.0.2 hangs in its own persistent ones started again. */
            if (mode == PERSISTENT && (t > 5 || o > 6)) {
                continue;
            }
            for (int s = 0;
                 is_defined(ops[o].op, types[t].kind) && s < REDUCED_SIZES;
                 s++) {
                if (mode == PERSISTENT && sizes[s] == 0) {
                    continue; /* where MPICH 4.0.2 has it, it does not end */
                }
                snprintf(now, sizeof(now), "%s of %d %s", ops[o].name, sizes[s],
                         types[t].name);
                reduce_all(comm, &types[t], ops[o].op, sizes[s]);
            }
        }
    }
    for (int s = 0; s < SIZES; s++) {
        snprintf(now, sizeof(now), "reduce_scatter in place, %d", sizes[s]);
        scatter_in_place(comm, sizes[s]);
    }
}

/* Of two types with one signature: what one rank sends as the first, another
 * receives as the second; first_per of one are second_per of the other. */
typedef struct pair {
    const char *name;
    MPI_Datatype first, second;
    int first_per, second_per;
} pair;

enum { PAIRS = 6 };

static void make_pairs(pair pairs[PAIRS])
{
    MPI_Datatype three, gaps, part, wide, twisted;
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_vector(2, 2, 3, MPI_INT, &gaps);
    MPI_Type_contiguous(2, MPI_INT, &part);
    MPI_Type_create_resized(part, 0, 12, &wide);
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){4, 0},
                           (MPI_Datatype[]){MPI_INT, MPI_INT}, &twisted);
    MPI_Type_commit(&three);
    MPI_Type_commit(&gaps);
    MPI_Type_commit(&wide);
    MPI_Type_commit(&twisted);
    MPI_Type_free(&part);
    pairs[0] = (pair){"int", MPI_INT, MPI_INT, 1, 1};
    pairs[1] = (pair){"contiguous", three, MPI_INT, 1, 3};
    pairs[2] = (pair){"vector", gaps, MPI_INT, 1, 4};
    pairs[3] = (pair){"resized", wide, gaps, 2, 1};
    pairs[4] = (pair){"twisted", twisted, MPI_INT, 1, 2};
    pairs[5] = (pair){"float int", MPI_FLOAT_INT, MPI_FLOAT_INT, 1, 1};
}

typedef struct lengths {
    int first[RANKS_MOST], second[RANKS_MOST], first_at[RANKS_MOST],
        second_at[RANKS_MOST];
} lengths;

/* In descending places, so that displacements are not those of a row. */
static void lay(lengths *to, const pair *types, int nranks, int rank, int count)
{
    int first_at = 0, second_at = 0;
    for (int i = nranks - 1; i >= 0; i--) {
        const int own = count ? count + (i + rank) % 3 : 0;
        to->first[i] = own * types->first_per;
        to->second[i] = own * types->second_per;
        to->first_at[i] = first_at;
        to->second_at[i] = second_at;
        first_at += to->first[i] + 1;
        second_at += to->second[i] + 1;
    }
}

static void move_rooted(MPI_Comm comm, const pair *types, int count, int root)
{
    int rank, nranks;
    const bool in_place = false;
    lengths all;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    const int a = count * types->first_per, b = count * types->second_per;
    lay(&all, types, nranks, 0, count);
    fill(rank, count, 120);
    BOTH(Bcast, bcast, into, rank % 2 ? b : a,
         rank % 2 ? types->second : types->first, root, comm);
    fill(rank, count, 120);
    BOTH(Gather, gather, sent, a, types->first, into, b, types->second, root,
         comm);
    fill(rank, count, 120);
    BOTH(Scatter, scatter, sent, a, types->first, into, b, types->second, root,
         comm);
    fill(rank, count, 120);
    BOTH(Gatherv, gatherv, sent, all.first[rank], types->first, into,
         all.second, all.second_at, types->second, root, comm);
    fill(rank, count, 120);
    BOTH(Scatterv, scatterv, sent, all.first, all.first_at, types->first, into,
         all.second[rank], types->second, root, comm);
}

static void move_rooted_in_place(MPI_Comm comm, const pair *types, int count,
                                 int root)
{
    int rank, nranks;
    const bool in_place = true;
    lengths all;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    const bool own = rank == root;
    const int a = count * types->first_per, b = count * types->second_per;
    lay(&all, types, nranks, 0, count);
    fill(rank, count, 120);
    BOTH(Gather, gather, own ? MPI_IN_PLACE : sent, a, types->first, into, b,
         types->second, root, comm);
    fill(rank, count, 120);
    BOTH(Scatter, scatter, sent, a, types->first, own ? MPI_IN_PLACE : into, b,
         types->second, root, comm);
    fill(rank, count, 120);
    BOTH(Gatherv, gatherv, own ? MPI_IN_PLACE : sent, all.first[rank],
         types->first, into, all.second, all.second_at, types->second, root,
         comm);
    fill(rank, count, 120);
    BOTH(Scatterv, scatterv, sent, all.first, all.first_at, types->first,
         own ? MPI_IN_PLACE : into, all.second[rank], types->second, root,
         comm);
}

static void move_all(MPI_Comm comm, const pair *types, int count)
{
    int rank, nranks;
    const bool in_place = false;
    lengths all, own;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    const int a = count * types->first_per, b = count * types->second_per;
    lay(&all, types, nranks, 0, count);
    lay(&own, types, nranks, rank, count);
    fill(rank, count, 120);
    BOTH(Allgather, allgather, sent, a, types->first, into, b, types->second,
         comm);
    fill(rank, count, 120);
    BOTH(Alltoall, alltoall, sent, a, types->first, into, b, types->second,
         comm);
    fill(rank, count, 120);
    BOTH(Allgatherv, allgatherv, sent, all.first[rank], types->first, into,
         all.second, all.second_at, types->second, comm);
    fill(rank, count, 120);
    BOTH(Alltoallv, alltoallv, sent, own.first, own.first_at, types->first,
         into, own.second, own.second_at, types->second, comm);
}

static void move_all_in_place(MPI_Comm comm, const pair *types, int count)
{
    int rank, nranks;
    const bool in_place = true;
    lengths all, own;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &nranks);
    const int b = count * types->second_per;
    lay(&all, types, nranks, 0, count);
    lay(&own, types, nranks, rank, count);
    fill(rank, count, 120);
    BOTH(Allgather, allgather, MPI_IN_PLACE, 0, MPI_INT, into, b, types->second,
         comm);
    fill(rank, count, 120);
    BOTH(Alltoall, alltoall, MPI_IN_PLACE, 0, MPI_INT, into, b, types->second,
         comm);
    fill(rank, count, 120);
    BOTH(Allgatherv, allgatherv, MPI_IN_PLACE, 0, MPI_INT, into, all.second,
         all.second_at, types->second, comm);
    fill(rank, count, 120);
    BOTH(Alltoallv, alltoallv, MPI_IN_PLACE, NULL, NULL, MPI_INT, into,
         own.second, own.second_at, types->second, comm);
}

static void moves(MPI_Comm comm)
{
    pair pairs[PAIRS];
    int nranks;
    const bool in_place = false;
    PMPI_Comm_size(comm, &nranks);
    make_pairs(pairs);
    BOTH(Barrier, barrier, comm);
    for (int p = 0; p < PAIRS; p++) {
        for (int s = 0; s < SIZES; s++) {
            snprintf(now, sizeof(now), "%d %s", sizes[s], pairs[p].name);
            for (int root = 0; root < nranks; root++) {
                move_rooted(comm, &pairs[p], sizes[s], root);
                move_rooted_in_place(comm, &pairs[p], sizes[s], root);
            }
            move_all(comm, &pairs[p], sizes[s]);
            move_all_in_place(comm, &pairs[p], sizes[s]);
        }
    }
    for (int p = 1; p < 5; p++) {
        MPI_Type_free(&pairs[p].first);
    }
}

static void everything(MPI_Comm comm)
{
    MPI_Barrier(comm);
    reductions(comm);
    moves(comm);
}

int main(int argc, char **argv)
{
    int nranks, provided;
    MPI_Comm twin, turned, half, between;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    mode = argc > 1 && !strcmp(argv[1], "nonblocking")  ? NONBLOCKING
           : argc > 1 && !strcmp(argv[1], "persistent") ? PERSISTENT
                                                        : BLOCKING;
    char *room = malloc(3 * (size_t)(BUFFER_BYTES + 2 * GUARD));
    CHECK(room);
    sent = room + GUARD;
    by_weft = sent + BUFFER_BYTES + 2 * GUARD;
    by_mpi = by_weft + BUFFER_BYTES + 2 * GUARD;
    MPI_Op_create(add_bytes, 1, &user_op);

    everything(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_split(twin, 0, -world_rank, &turned);
    MPI_Comm_free(&twin);
    everything(turned);
    MPI_Comm_split(turned, world_rank % 2, world_rank, &half);
    int members;
    MPI_Comm_size(half, &members);
    if (mode != PERSISTENT || members > 1) { /* one rank is MPI's, see above */
        everything(half);
    }
    if (nranks > 1) {
        int sum = 0;
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, world_rank % 2 ? 0 : 1, 7,
                             &between);
        MPI_Allreduce(&(int){1}, &sum, 1, MPI_INT, MPI_SUM, between);
        CHECK(sum == (world_rank % 2 ? (nranks + 1) / 2 : nranks / 2));
        MPI_Comm_free(&between);
    }
    MPI_Comm_free(&half);
    MPI_Comm_free(&turned);
    MPI_Op_free(&user_op);
    printf("rank %d of %d: ok, %d calls\n", world_rank, nranks, calls);
    free(room);
    MPI_Finalize();
    return 0;
}
