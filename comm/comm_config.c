/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/comm_config.c - a communicator's settings from its config and the
 * environment.
 */
#include "base/error.h"
#include "base/settings.h"
#include "comm/comm.h"

#include <string.h>

static weft_status fill_ms(int64_t *value, wefti_setting setting,
                           const char *name)
{
    if (*value < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s %lld: allowed is 0 (default) and more", name,
                           (long long)*value);
    }
    return *value ? WEFT_OK : wefti_setting_int(setting, value);
}

static weft_status check(const weft_comm_config *config)
{
    if (config->id && (config->nranks < 1 || config->rank < 0 ||
                       config->rank >= config->nranks)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "rank %d of nranks %d: with an id allowed is "
                           "nranks from 1 and rank from 0 to nranks - 1",
                           config->rank, config->nranks);
    }
    if (config->ops_in_flight < 0 || config->ops_in_flight > WEFTI_LANES) {
        return wefti_error(WEFT_ERR_INVALID,
                           "ops_in_flight %d: allowed is 1..%d, 0 = default",
                           config->ops_in_flight, WEFTI_LANES);
    }
    if (config->flags) {
        return wefti_error(WEFT_ERR_INVALID, "flags 0x%x: allowed is 0",
                           config->flags);
    }
    if (config->name && strlen(config->name) > 31) {
        return wefti_error(WEFT_ERR_INVALID,
                           "name \"%.40s...\": allowed is up to 31 bytes",
                           config->name);
    }
    return WEFT_OK;
}

weft_status wefti_comm_read_config(const weft_comm_config *config,
                                   weft_comm_config *config_out)
{
    memset(config_out, 0, sizeof(*config_out));
    if (config) {
        /* id .. nranks came with the first version; shorter is no config. */
        size_t least = offsetof(weft_comm_config, name);
        if (config->size_bytes < least) {
            return wefti_error(WEFT_ERR_INVALID,
                               "config->size_bytes %zu: allowed is "
                               "sizeof(weft_comm_config), here %zu",
                               config->size_bytes, sizeof(*config));
        }
        size_t bytes = config->size_bytes < sizeof(*config) ? config->size_bytes
                                                            : sizeof(*config);
        memcpy(config_out, config, bytes);
    }
    config_out->size_bytes = sizeof(*config_out);
    weft_status status = check(config_out);
    if (status != WEFT_OK) {
        return status;
    }
    if (!config_out->name) {
        config_out->name = "world";
    }
    if (!config_out->ops_in_flight) {
        config_out->ops_in_flight = WEFTI_LANES;
    }
    status = fill_ms(&config_out->warn_ms, WEFTI_SETTING_WARN_MS, "warn_ms");
    if (status != WEFT_OK) {
        return status;
    }
    return fill_ms(&config_out->timeout_ms, WEFTI_SETTING_TIMEOUT_MS,
                   "timeout_ms");
}
