/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/mesh/mesh.c - places as numbers with a digit for each axis.
 */
#include "trainer/mesh/mesh.h"

#include "base/check.h"
#include "base/error.h"

#include <stdint.h>
#include <stdio.h>

/* ---- sizes ----------------------------------------------------------------
 */

/*
 * Whether runs of ep ranks end where parts of tp x cp x dp do: ep uses up one
 * axis after the other, and of the last one a part that divides it.
 */
static bool ep_fits(const wefti_mesh *mesh, int ep)
{
    const int axes[] = {mesh->tp, mesh->cp, mesh->dp};
    for (int i = 0; i < 3; i++) {
        if (axes[i] % ep == 0) {
            return true;
        }
        if (ep % axes[i] != 0) {
            return false;
        }
        ep /= axes[i];
    }
    return ep == 1;
}

static weft_status refuse_ranks(const wefti_mesh *mesh, int nranks)
{
    int unit = mesh->tp * mesh->cp * mesh->pp;
    int below = nranks / unit * unit;
    char nearest[32];
    snprintf(nearest, sizeof(nearest), "%d or ", below);
    return wefti_error(WEFT_ERR_INVALID,
                       "tp %d * cp %d * pp %d = %d does not divide %d rank%s; "
                       "nearest that work: %s%d ranks",
                       mesh->tp, mesh->cp, mesh->pp, unit, nranks,
                       nranks == 1 ? "" : "s", below > 0 ? nearest : "",
                       below + unit);
}

static weft_status refuse_ep(const wefti_mesh *mesh)
{
    int most = mesh->tp * mesh->cp * mesh->dp;
    int below = mesh->ep < most ? mesh->ep : most;
    int above = mesh->ep + 1;
    char next[32] = "";
    while (!ep_fits(mesh, below)) {
        below--;
    }
    while (above <= most && !ep_fits(mesh, above)) {
        above++;
    }
    if (above <= most) {
        snprintf(next, sizeof(next), " or %d", above);
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "ep %d is no part of a stage's ranks, tp %d * cp %d * "
                       "dp %d; nearest that work: %d%s",
                       mesh->ep, mesh->tp, mesh->cp, mesh->dp, below, next);
}

int wefti_mesh_copies(const wefti_mesh *sizes, int nranks)
{
    int64_t unit = (int64_t)sizes->tp * sizes->cp * sizes->pp;
    return nranks % unit == 0 ? (int)(nranks / unit) : 0;
}

weft_status wefti_mesh_make(const wefti_mesh *sizes, int nranks,
                            wefti_mesh *mesh_out)
{
    WEFTI_ASSERT(sizes->tp > 0 && sizes->cp > 0 && sizes->ep > 0 &&
                 sizes->pp > 0 && nranks > 0);
    *mesh_out = *sizes;
    mesh_out->dp = wefti_mesh_copies(sizes, nranks);
    if (mesh_out->dp == 0) {
        return refuse_ranks(sizes, nranks);
    }
    return ep_fits(mesh_out, sizes->ep) ? WEFT_OK : refuse_ep(mesh_out);
}

int wefti_mesh_ranks(const wefti_mesh *mesh)
{
    return mesh->tp * mesh->cp * mesh->dp * mesh->pp;
}

size_t wefti_mesh_first(size_t count, size_t copy, size_t copies)
{
    return count * copy / copies;
}

int wefti_mesh_ep_of_dp(const wefti_mesh *mesh)
{
    int inner = mesh->tp * mesh->cp;
    return mesh->ep > inner ? mesh->ep / inner : 1;
}

/* ---- places ---------------------------------------------------------------
 */

/* The lowest digit of a number, which loses it. */
static int take_digit(int *number, int base)
{
    int digit = *number % base;
    *number /= base;
    return digit;
}

wefti_mesh_place wefti_mesh_locate(const wefti_mesh *mesh, int rank)
{
    WEFTI_ASSERT(rank >= 0 && rank < wefti_mesh_ranks(mesh));
    int in_stage = rank % (mesh->tp * mesh->cp * mesh->dp);
    wefti_mesh_place place = {.ep = in_stage % mesh->ep,
                              .expert_copy = in_stage / mesh->ep};
    place.tp = take_digit(&rank, mesh->tp);
    place.cp = take_digit(&rank, mesh->cp);
    place.dp = take_digit(&rank, mesh->dp);
    place.pp = rank;
    return place;
}

int wefti_mesh_rank(const wefti_mesh *mesh, const wefti_mesh_place *place)
{
    return ((place->pp * mesh->dp + place->dp) * mesh->cp + place->cp) *
               mesh->tp +
           place->tp;
}

/* ---- groups ---------------------------------------------------------------
 */

enum { TP = 1, CP = 2, DP = 4, EP = 8, EXPERT_COPY = 16, PP = 32, MIRROR = 64 };

/* A place counted in one of the two ways, from the slowest digit. */
typedef struct digit {
    int axis, size, value;
} digit;

enum { DIGITS_MOST = 5 };

/* The part of the model takes the pipeline's rank's place where mirrors, which
 * have the same one, belong together. */
static int list_digits(const wefti_mesh *mesh, int rank, bool expert,
                       bool mirrors, digit digits[DIGITS_MOST])
{
    const wefti_mesh_place at = wefti_mesh_locate(mesh, rank);
    int mirror = mesh->pp - 1 - at.pp;
    bool second = mirrors && mirror < at.pp;
    int count = 0;
    digits[count++] = (digit){PP, mesh->pp, second ? mirror : at.pp};
    if (expert) {
        digits[count++] =
            (digit){EXPERT_COPY, mesh->tp * mesh->cp * mesh->dp / mesh->ep,
                    at.expert_copy};
        digits[count++] = (digit){EP, mesh->ep, at.ep};
    } else {
        digits[count++] = (digit){DP, mesh->dp, at.dp};
        digits[count++] = (digit){CP, mesh->cp, at.cp};
        digits[count++] = (digit){TP, mesh->tp, at.tp};
    }
    if (mirrors && mirror != at.pp) {
        digits[count++] = (digit){MIRROR, 2, second};
    }
    return count;
}

wefti_mesh_seat wefti_mesh_find(const wefti_mesh *mesh, wefti_mesh_group group,
                                int rank)
{
    static const struct {
        int axes;
        bool expert;
    } kinds[WEFTI_MESH_GROUPS] = {
        [WEFTI_MESH_TP] = {TP, false},
        [WEFTI_MESH_CP] = {CP, false},
        [WEFTI_MESH_EP] = {EP, true},
        [WEFTI_MESH_DP] = {DP, false},
        [WEFTI_MESH_PP] = {PP, false},
        [WEFTI_MESH_SEQUENCE] = {TP | CP, false},
        [WEFTI_MESH_STAGE] = {TP | CP | DP, false},
        [WEFTI_MESH_COPY] = {TP | CP | PP, false},
        [WEFTI_MESH_REPLICA] = {CP | DP | MIRROR, false},
        [WEFTI_MESH_EXPERT_REPLICA] = {EXPERT_COPY | MIRROR, true}};
    const int axes = kinds[group].axes;
    digit digits[DIGITS_MOST];
    int count = list_digits(mesh, rank, kinds[group].expert,
                            mesh->mirrored && axes & MIRROR, digits);
    wefti_mesh_seat seat = {.size = 1};
    for (int i = 0; i < count; i++) {
        const digit *own = &digits[i];
        if (own->axis & axes) {
            seat.index = seat.index * own->size + own->value;
            seat.size *= own->size;
        } else {
            seat.number = seat.number * own->size + own->value;
        }
    }
    return seat;
}
