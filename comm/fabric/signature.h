/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/fabric/signature.h - what ranks must agree on about one operation, in
 * three words that ride on data already sent.
 */
#ifndef COMM_FABRIC_SIGNATURE_H
#define COMM_FABRIC_SIGNATURE_H

#include "weft/op.h"

#include <stdbool.h>

/* What an operation is part of: not all are posted by the user. */
typedef enum wefti_purpose {
    WEFTI_PURPOSE_USER,
    WEFTI_PURPOSE_CREATE,
    WEFTI_PURPOSE_SPLIT,
    WEFTI_PURPOSE_MEM_CREATE,
    WEFTI_PURPOSE_MEM_REGISTER,
    WEFTI_PURPOSE_REDOP,
    WEFTI_PURPOSE_ROUTE,
    WEFTI_PURPOSE_PUT, /* these three only ever in wefti_wait_record */
    WEFTI_PURPOSE_SIGNAL,
    WEFTI_PURPOSE_WAIT,
    WEFTI_PURPOSE_COUNT
} wefti_purpose;

/* In cut: the last block first; counts are capacities. A buffer has fewer
 * elements. */
#define WEFTI_CUT_DOWN     (UINT64_C(1) << 63)
#define WEFTI_CUT_DEFERRED (UINT64_C(1) << 62)

/*
 * count   elements, as posted; v forms: 0, their counts agree pair by pair, or
 *         a digest of those that all ranks have alike, once they have entered.
 * kind    from the low byte up: collective, dtype, redop, choice (which
 *         algorithm); then root, in 24 bits; high byte: purpose. A message's
 *         root is how many operations come before it, where that must agree.
 * cut     elements per block where gate_elems cuts the operation, else 0:
 *         messages end where blocks end, on both sides; high bit: the blocks
 *         run from the last to the first; the next: counts are deferred.
 */
typedef struct wefti_signature {
    uint64_t count;
    uint64_t kind;
    uint64_t cut;
} wefti_signature;

/* choice: what comm/core/select.h says. redop is left out where nothing
 * reduces. */
wefti_signature wefti_signature_pack(const weft_op *op, uint8_t choice);

static inline bool wefti_signature_equal(wefti_signature a, wefti_signature b)
{
    return a.count == b.count && a.kind == b.kind && a.cut == b.cut;
}

static inline uint64_t wefti_purpose_bits(wefti_purpose purpose)
{
    return (uint64_t)purpose << 56;
}

static inline uint8_t wefti_signature_choice(wefti_signature signature)
{
    return (uint8_t)(signature.kind >> 24);
}

static inline uint32_t wefti_signature_root(wefti_signature signature)
{
    return (uint32_t)(signature.kind >> 32) & 0xffffff;
}

/* "all_reduce", or the call that it is part of: "weft_comm_split". */
const char *wefti_signature_name(uint64_t kind);

/* The call that it is part of; NULL: the user's own operation. */
const char *wefti_signature_purpose(uint64_t kind);

#endif
