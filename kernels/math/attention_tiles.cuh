/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/attention_tiles.cuh - the two products that attention is made
 * of, for a block of 16 x 16 threads that has TILE rows (queries, or keys) and
 * goes through those of the other side, TILE at a time:
 *
 *     dots   out[i][j] = sum_d row_i[d] other_j[d]
 *     add    sum[i][d] += sum_j weights[i][j] other_j[d], WINDOW columns d
 *
 *            j: x + 16 j           d: (x + 16 g) SIDE + n
 *          +-------------+         +--------------------+
 *     i:   | dots,       |         | sums, in           |
 *   SIDE y | in registers|         | registers          |
 *     + i  +-------------+         +--------------------+
 *
 * A thread has SIDE x SIDE of the dots, and their weights pass through shared
 * memory to the threads of the same row, which are half a warp. Of either side
 * as much as a product needs next is staged in shared memory; 16 bytes there
 * are read at once. This is where tensor cores would take over.
 */
#ifndef KERNELS_MATH_ATTENTION_TILES_CUH
#define KERNELS_MATH_ATTENTION_TILES_CUH

#include "kernels/math/math_pack.cuh"
#include "kernels/wire/dynamic_shared.cuh"

static const unsigned ATTENTION_EDGE = WEFTI_MATH_ATTENTION_EDGE;
static const unsigned ATTENTION_DEPTH = WEFTI_MATH_ATTENTION_DEPTH;
static const unsigned ATTENTION_GROUPS = 2;
/* Of a multiprocessor at once: while one fetches, another computes. For sm_80 a
 * few of the 128 registers that leaves each thread would go to memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
static const unsigned ATTENTION_BLOCKS = 1;
#else
static const unsigned ATTENTION_BLOCKS = 2;
#endif
static const unsigned ATTENTION_STAGED = 32; /* rows for add */
static_assert(ATTENTION_EDGE * ATTENTION_EDGE == WEFTI_MATH_THREADS,
              "a thread each");

/* This thread's place. */
static __device__ inline unsigned attention_x()
{
    return threadIdx.x % ATTENTION_EDGE;
}

static __device__ inline unsigned attention_y()
{
    return threadIdx.x / ATTENTION_EDGE;
}

/* One head's rows of one array. */
template <class Real> struct attention_side {
    typedef typename Real::wide wide;
    static const unsigned SIDE = PACK_BYTES / sizeof(wide);
    typedef real_pack<typename real_of<wide>::type, SIDE> vector;
    const void *from;
    unsigned stride, count;
    unsigned head_size;
    bool whole;

    __device__ inline attention_side(const void *array, size_t offset,
                                     size_t row_stride, size_t rows,
                                     size_t head_elems)
        : from(static_cast<const typename Real::memory *>(array) + offset),
          stride((unsigned)row_stride), count((unsigned)rows),
          head_size((unsigned)head_elems),
          whole(is_packed(array) && offset % SIDE == 0 && stride % SIDE == 0 &&
                head_size % SIDE == 0)
    {
    }

    /* Elements d and so on of row i; zeros behind the last of either. */
    template <bool WHOLE>
    __device__ inline vector get(unsigned i, unsigned d) const
    {
        real_pack<Real, SIDE> pack = {};
        vector widened;
        if (i < count && d < head_size) {
            pack.template load<WHOLE>(from, (size_t)i * stride + d,
                                      head_size - d);
        }
#pragma unroll
        for (unsigned k = 0; k < SIDE; k++) {
            widened.at[k] = pack.get(k);
        }
        return widened;
    }
};

template <class Real> struct attention_tiles {
    typedef typename Real::wide wide;
    typedef attention_side<Real> side;
    typedef typename side::vector vector;
    static const unsigned SIDE = side::SIDE, TILE = ATTENTION_EDGE * SIDE;
    static const unsigned WINDOW = ATTENTION_GROUPS * TILE;
    /* Of a staged row, and of a row of weights: no two lanes, one bank. */
    static const unsigned STEP = ATTENTION_DEPTH + SIDE;
    static const unsigned WEIGHT_STEP = TILE + SIDE;
    static_assert(ATTENTION_STAGED * WINDOW <= 2 * TILE * STEP, "room for add");

    typedef wide dots_of[SIDE][SIDE];
    typedef wide sums_of[ATTENTION_GROUPS][SIDE][SIDE];

    wide *stage; /* two of [TILE][STEP], or [STAGED][WINDOW] */

    __device__ inline explicit attention_tiles(wide *shared) : stage(shared)
    {
    }

    /* This thread's rows of the weights, [TILE][WEIGHT_STEP] behind. */
    __device__ inline wide *own_weights() const
    {
        return stage + 2 * TILE * STEP + attention_y() * SIDE * WEIGHT_STEP;
    }

    /* The first row of this thread in a block's rows from first on. */
    static __device__ inline unsigned own_row(unsigned first)
    {
        return first + attention_y() * SIDE;
    }

    static __device__ inline vector take(const wide *at)
    {
        vector taken;
        taken.template load<true>(at, 0, SIDE);
        return taken;
    }

    static __device__ inline void put(wide *at, const vector &from)
    {
        from.template store<true>(at, 0, SIDE);
    }

    __device__ inline void dots(dots_of &out, const side &rows, unsigned first,
                                const side &others, unsigned other) const
    {
#pragma unroll
        for (unsigned n = 0; n < SIDE * SIDE; n++) {
            out[n / SIDE][n % SIDE] = 0;
        }
#pragma unroll 1
        for (unsigned d = 0; d < rows.head_size; d += ATTENTION_DEPTH) {
            __syncthreads();
            if (rows.whole && others.whole) {
                stage_dots(rows, first, others, other, d);
            } else {
                stage_parts(stage, STEP, rows, first, TILE, d,
                            d + ATTENTION_DEPTH);
                stage_parts(stage + TILE * STEP, STEP, others, other, TILE, d,
                            d + ATTENTION_DEPTH);
            }
            __syncthreads();
            add_dots(out);
        }
    }

    /* Rows whose packs are not whole, columns d to end - 1. */
    static __device__ inline void stage_parts(wide *to, unsigned step,
                                              const side &from, unsigned first,
                                              unsigned rows, unsigned d,
                                              unsigned end)
    {
        const unsigned packs = (end - d) / SIDE;
#pragma unroll 1
        for (unsigned n = threadIdx.x; n < rows * packs;
             n += WEFTI_MATH_THREADS) {
            unsigned row = n / packs, c = n % packs * SIDE;
            put(to + row * step + c,
                from.template get<false>(first + row, d + c));
        }
    }

    /* All that a thread fetches is under way at once. */
    __device__ inline void stage_dots(const side &rows, unsigned first,
                                      const side &others, unsigned other,
                                      unsigned d) const
    {
        const unsigned packs = ATTENTION_DEPTH / SIDE;
        const unsigned rounds = TILE * packs / WEFTI_MATH_THREADS;
        vector fetched[2 * rounds];
        unsigned c = d + threadIdx.x % packs * SIDE;
#pragma unroll
        for (unsigned n = 0; n < rounds; n++) {
            unsigned row = (threadIdx.x + n * WEFTI_MATH_THREADS) / packs;
            fetched[n] = rows.template get<true>(first + row, c);
            fetched[rounds + n] = others.template get<true>(other + row, c);
        }
#pragma unroll
        for (unsigned n = 0; n < rounds; n++) {
            unsigned row = (threadIdx.x + n * WEFTI_MATH_THREADS) / packs;
            put(stage + row * STEP + c - d, fetched[n]);
            put(stage + (TILE + row) * STEP + c - d, fetched[rounds + n]);
        }
    }

    /* Of what is staged. */
    __device__ inline void add_dots(dots_of &out) const
    {
        const wide *row = stage + attention_y() * SIDE * STEP;
        const wide *other = stage + (TILE + attention_x()) * STEP;
#pragma unroll 1
        for (unsigned c = 0; c < ATTENTION_DEPTH; c += SIDE) {
            vector left[SIDE];
#pragma unroll
            for (unsigned i = 0; i < SIDE; i++) {
                left[i] = take(row + i * STEP + c);
            }
#pragma unroll
            for (unsigned j = 0; j < SIDE; j++) {
                vector right = take(other + j * ATTENTION_EDGE * STEP + c);
#pragma unroll
                for (unsigned n = 0; n < SIDE * SIDE; n++) {
                    out[n % SIDE][j] +=
                        left[n % SIDE].at[n / SIDE] * right.at[n / SIDE];
                }
            }
        }
    }

    /* For add; of this row's threads, who are of one warp. */
    __device__ inline void put_weights(const dots_of &weight) const
    {
        wide *row = own_weights();
        __syncwarp(); /* the last add has read its own */
#pragma unroll
        for (unsigned n = 0; n < SIDE * SIDE; n++) {
            row[n / SIDE * WEIGHT_STEP + n % SIDE * ATTENTION_EDGE +
                attention_x()] = weight[n / SIDE][n % SIDE];
        }
        __syncwarp();
    }

    /* What this thread has put there. */
    __device__ inline void get_weights(dots_of &weight) const
    {
        const wide *row = own_weights();
#pragma unroll
        for (unsigned n = 0; n < SIDE * SIDE; n++) {
            weight[n / SIDE][n % SIDE] =
                row[n / SIDE * WEIGHT_STEP + n % SIDE * ATTENTION_EDGE +
                    attention_x()];
        }
    }

    /* The column of this thread's group g of a window. */
    static __device__ inline unsigned column(unsigned window, unsigned g)
    {
        return window + (attention_x() + ATTENTION_EDGE * g) * SIDE;
    }

    __device__ inline void add(sums_of &sum, const side &others, unsigned other,
                               unsigned window) const
    {
#pragma unroll 1
        for (unsigned j = 0; j < TILE && other + j < others.count;
             j += ATTENTION_STAGED) {
            __syncthreads();
            if (others.whole) {
                stage_add(others, other + j, window);
            } else {
                stage_parts(stage, WINDOW, others, other + j, ATTENTION_STAGED,
                            window, window + WINDOW);
            }
            __syncthreads();
#pragma unroll
            for (unsigned g = 0; g < ATTENTION_GROUPS; g++) {
                if (window + g * TILE < others.head_size) {
                    add_staged(sum[g], stage + column(0, g), j);
                }
            }
        }
    }

    __device__ inline void stage_add(const side &others, unsigned other,
                                     unsigned window) const
    {
        const unsigned rounds = ATTENTION_STAGED / ATTENTION_EDGE;
        vector fetched[rounds][ATTENTION_GROUPS];
#pragma unroll
        for (unsigned n = 0; n < rounds * ATTENTION_GROUPS; n++) {
            unsigned r = n / ATTENTION_GROUPS, g = n % ATTENTION_GROUPS;
            fetched[r][g] = others.template get<true>(
                other + attention_y() + r * ATTENTION_EDGE, column(window, g));
        }
#pragma unroll
        for (unsigned n = 0; n < rounds * ATTENTION_GROUPS; n++) {
            unsigned r = n / ATTENTION_GROUPS, g = n % ATTENTION_GROUPS;
            put(stage + (attention_y() + r * ATTENTION_EDGE) * WINDOW +
                    column(0, g),
                fetched[r][g]);
        }
    }

    __device__ inline void add_staged(wide (*sum)[SIDE], const wide *staged,
                                      unsigned first) const
    {
        const wide *row = own_weights() + first;
#pragma unroll 1
        for (unsigned j = 0; j < ATTENTION_STAGED; j += SIDE) {
            vector weight[SIDE];
#pragma unroll
            for (unsigned i = 0; i < SIDE; i++) {
                weight[i] = take(row + i * WEIGHT_STEP + j);
            }
#pragma unroll
            for (unsigned k = 0; k < SIDE; k++) {
                vector x = take(staged + (j + k) * WINDOW);
#pragma unroll
                for (unsigned n = 0; n < SIDE * SIDE; n++) {
                    sum[n / SIDE][n % SIDE] +=
                        weight[n / SIDE].at[k] * x.at[n % SIDE];
                }
            }
        }
    }

    /* work(sum, i, row, d) for each element of this thread's rows below count,
     * i of them, in a window. */
    template <class Work>
    static __device__ inline void each(sums_of &sum, unsigned first,
                                       unsigned count, unsigned window,
                                       unsigned head_size, const Work &work)
    {
#pragma unroll
        for (unsigned g = 0; g < ATTENTION_GROUPS; g++) {
#pragma unroll
            for (unsigned n = 0; n < SIDE * SIDE; n++) {
                unsigned row = own_row(first) + n / SIDE;
                unsigned d = column(window, g) + n % SIDE;
                if (row < count && d < head_size) {
                    work(sum[g][n / SIDE][n % SIDE], n / SIDE, row, d);
                }
            }
        }
    }
};

/* A block a band: TILE rows of so many tokens of a head of a sequence. call is
 * given the sequence, the head, and the band's first row. Those that take the
 * longest come first. */
template <class Real, class Call>
static __device__ inline void attention_bands(size_t tokens, size_t sequences,
                                              size_t heads, bool last_first,
                                              Call call)
{
    const unsigned rows = attention_tiles<Real>::TILE;
    const unsigned bands = ((unsigned)tokens + rows - 1) / rows;
    const unsigned all = (unsigned)(sequences * heads);
    for (unsigned n = blockIdx.x; n < bands * all; n += gridDim.x) {
        unsigned band = last_first ? bands - 1 - n / all : n / all;
        call(n % all / (unsigned)heads, n % (unsigned)heads, band * rows);
    }
}

/* One sequence's share of the arrays, and one head of it. */
struct attention_head {
    size_t q, kv, o, row; /* offsets; row: of lse and delta */
};

static __device__ inline attention_head
attention_head_at(const wefti_math_attention_shape &shape, size_t sequence,
                  size_t head)
{
    size_t kv_head = head / (shape.heads / shape.kv_heads);
    attention_head at;
    at.q = sequence * shape.q_tokens * shape.q_stride + head * shape.head_size;
    at.kv = sequence * shape.kv_tokens * shape.kv_stride +
            kv_head * shape.head_size;
    at.o = sequence * shape.q_tokens * shape.o_stride + head * shape.head_size;
    at.row = sequence * shape.q_tokens * shape.heads + head;
    return at;
}

/* How many keys query i sees. */
static __device__ inline unsigned
attention_visible(const wefti_math_attention_shape &shape, size_t i)
{
    int64_t all = (int64_t)shape.kv_tokens;
    int64_t seen = shape.causal ? (int64_t)i + shape.causal_offset + 1 : all;
    return (unsigned)(seen <= 0 ? 0 : seen < all ? seen : all);
}

/* What it reads of a head: queries, keys or values, o or its gradient. */
template <class Real>
static __device__ inline attention_side<Real>
attention_queries_of(const wefti_math_attention_shape &shape, const void *array,
                     size_t offset, size_t stride)
{
    return attention_side<Real>(array, offset, stride, shape.q_tokens,
                                shape.head_size);
}

template <class Real>
static __device__ inline attention_side<Real>
attention_keys_of(const wefti_math_attention_shape &shape, const void *array,
                  size_t offset)
{
    return attention_side<Real>(array, offset, shape.kv_stride, shape.kv_tokens,
                                shape.head_size);
}

#endif
