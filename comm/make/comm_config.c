/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/comm_config.c - a communicator's settings from its config and the
 * environment.
 */
#include "base/error.h"
#include "base/settings.h"
#include "base/sized.h"
#include "comm/make/comm.h"

#include <stdlib.h>
#include <string.h>

/* A time limit; what is wrong becomes the default all the same. */
static weft_status fill_ms(int64_t *value, wefti_setting setting,
                           const char *name)
{
    weft_status status = WEFT_OK;
    if (*value < 0 || *value > INT32_MAX) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "%s %lld: allowed is 1..%d, 0 = default", name,
                             (long long)*value, INT32_MAX);
    } else if (*value == 0) {
        status = wefti_setting_int(setting, value);
    }
    if (status != WEFT_OK) {
        *value = strtoll(wefti_setting_describe(setting).fallback, NULL, 10);
    }
    return status;
}

/* Who this rank is must be right for it to meet anybody. */
static weft_status check_ranks(const weft_comm_config *config)
{
    if (config->id && (config->nranks < 1 || config->rank < 0 ||
                       config->rank >= config->nranks)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "rank %d of nranks %d: with an id allowed is "
                           "nranks from 1 and rank from 0 to nranks - 1",
                           config->rank, config->nranks);
    }
    return WEFT_OK;
}

static weft_status check_budget(const weft_comm_config *config)
{
    if (config->sm_budget < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "sm_budget %d: allowed is 0 = all, and more",
                           config->sm_budget);
    }
    if (config->sm_budget > 0 && !config->device) {
        return wefti_error(WEFT_ERR_INVALID,
                           "sm_budget %d: without a device allowed is 0",
                           config->sm_budget);
    }
    if (config->sm_budget > 0 &&
        !wefti_device_can(config->device, WEFT_CAP_SM_BUDGET)) {
        return wefti_error(
            WEFT_ERR_UNSUPPORTED, "sm_budget %d: the %s device has no budgets",
            config->sm_budget, wefti_device_get_table(config->device)->kind);
    }
    return WEFT_OK;
}

static weft_status check(const weft_comm_config *config)
{
    if (config->ops_in_flight < 0 || config->ops_in_flight > WEFTI_OP_SLOTS) {
        return wefti_error(WEFT_ERR_INVALID,
                           "ops_in_flight %d: allowed is 1..%d, 0 = default",
                           config->ops_in_flight, WEFTI_OP_SLOTS);
    }
    if (config->flags & ~(uint32_t)WEFT_COMM_SUM_FLAT) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "flags 0x%x: allowed is 0 or 0x%x (WEFT_COMM_SUM_FLAT)",
            config->flags, WEFT_COMM_SUM_FLAT);
    }
    if (config->name && strlen(config->name) > 31) {
        return wefti_error(WEFT_ERR_INVALID,
                           "name \"%.40s...\": allowed is up to 31 bytes",
                           config->name);
    }
    weft_status status = check_budget(config);
    return status == WEFT_OK
               ? wefti_setting_check(WEFTI_SETTING_RANKS_PER_PROCESS)
               : status;
}

/* What own leaves open becomes the parent's; who its ranks are is not asked. */
static void inherit(const weft_comm_config *parent, weft_comm_config *own)
{
    own->id = NULL;
    own->rank = own->nranks = 0;
    own->name = own->name ? own->name : parent->name;
    own->warn_ms = own->warn_ms ? own->warn_ms : parent->warn_ms;
    own->timeout_ms = own->timeout_ms ? own->timeout_ms : parent->timeout_ms;
    own->ops_in_flight =
        own->ops_in_flight ? own->ops_in_flight : parent->ops_in_flight;
    if (!own->idle) {
        own->idle = parent->idle;
        own->idle_context = parent->idle_context;
    }
    own->device = own->device ? own->device : parent->device;
    if (own->device == parent->device && own->sm_budget == 0) {
        own->sm_budget = parent->sm_budget;
    }
}

weft_status wefti_comm_read_config(const weft_comm_config *config,
                                   const weft_comm_config *parent,
                                   weft_comm_config *config_out)
{
    memset(config_out, 0, sizeof(*config_out));
    if (config) {
        /* id .. nranks came with the first version; shorter is no config. */
        weft_status given =
            wefti_sized_read("config", config, offsetof(weft_comm_config, name),
                             config_out, sizeof(*config_out));
        if (given != WEFT_OK) {
            return given;
        }
    }
    if (parent) {
        inherit(parent, config_out);
    }
    weft_status status = check_ranks(config_out);
    if (status != WEFT_OK) {
        config_out->size_bytes = 0;
        return status;
    }
    config_out->size_bytes = sizeof(*config_out);
    /* Of several mistakes the last one is told, so that its text stands. */
    weft_status last =
        fill_ms(&config_out->warn_ms, WEFTI_SETTING_WARN_MS, "warn_ms");
    status = last != WEFT_OK ? last : status;
    last = fill_ms(&config_out->timeout_ms, WEFTI_SETTING_TIMEOUT_MS,
                   "timeout_ms");
    status = last != WEFT_OK ? last : status;
    last = check(config_out);
    status = last != WEFT_OK ? last : status;
    if (!config_out->name) {
        config_out->name = "world";
    }
    if (!config_out->ops_in_flight) {
        config_out->ops_in_flight = WEFTI_OP_SLOTS;
    }
    return status;
}
