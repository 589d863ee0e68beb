/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/weft.h - the whole public interface.
 *
 * A struct that a caller hands over begins with size_bytes, its sizeof where
 * the caller was compiled. Older and newer callers are accepted: what an older
 * one lacks counts as 0; what a newer one has more must be 0, or is refused by
 * name. Of structs that weft fills in, an older caller gets what it has room
 * for, and a newer one 0 behind that. Elements of arrays (weft_link,
 * weft_stage_cost) never change; what they lack becomes an array of its own.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include "weft/advice.h"
#include "weft/bucket.h"
#include "weft/comm.h"
#include "weft/device.h"
#include "weft/ledger.h"
#include "weft/mem.h"
#include "weft/moe.h"
#include "weft/moe_place.h"
#include "weft/moe_route.h"
#include "weft/op.h"
#include "weft/p2p.h"
#include "weft/pipeline.h"
#include "weft/plan.h"
#include "weft/redop.h"
#include "weft/request.h"
#include "weft/ring.h"
#include "weft/schedule.h"
#include "weft/schedule_cost.h"
#include "weft/status.h"
#include "weft/types.h"
#include "weft/version.h"

#endif
