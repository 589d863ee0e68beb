/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/weft.h - the whole public interface.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include "weft/advice.h"
#include "weft/comm.h"
#include "weft/device.h"
#include "weft/ledger.h"
#include "weft/mem.h"
#include "weft/op.h"
#include "weft/p2p.h"
#include "weft/plan.h"
#include "weft/redop.h"
#include "weft/request.h"
#include "weft/schedule.h"
#include "weft/schedule_cost.h"
#include "weft/status.h"
#include "weft/types.h"
#include "weft/version.h"

#endif
