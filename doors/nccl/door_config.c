/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_config.c - a config begins with its size and version; which
 * of its fields count follows from both.
 */
#include "doors/nccl/door_config.h"

#include "base/log.h"
#include "base/settings.h"
#include "doors/nccl/door_text.h"

#include <stdio.h>
#include <string.h>

enum {
    LEAST_BYTES = offsetof(wefti_door_config, cgaClusterSize),
    NAME_BYTES = sizeof(((wefti_door_wish *)0)->name)
};

/* All fields undefined, as in a config that its program has not touched. */
static void init(wefti_door_config *config)
{
    *config = (wefti_door_config){.size = sizeof(*config),
                                  .magic = WEFTI_DOOR_CONFIG_MAGIC,
                                  .version = WEFTI_DOOR_VERSION,
                                  .blocking = WEFTI_DOOR_UNDEFINED,
                                  .cgaClusterSize = WEFTI_DOOR_UNDEFINED,
                                  .minCTAs = WEFTI_DOOR_UNDEFINED,
                                  .maxCTAs = WEFTI_DOOR_UNDEFINED,
                                  .splitShare = WEFTI_DOOR_UNDEFINED,
                                  .trafficClass = WEFTI_DOOR_UNDEFINED,
                                  .collnetEnable = WEFTI_DOOR_UNDEFINED,
                                  .CTAPolicy = WEFTI_DOOR_UNDEFINED,
                                  .shrinkShare = WEFTI_DOOR_UNDEFINED,
                                  .nvlsCTAs = WEFTI_DOOR_UNDEFINED,
                                  .nChannelsPerNetPeer = WEFTI_DOOR_UNDEFINED,
                                  .nvlinkCentricSched = WEFTI_DOOR_UNDEFINED};
}

/* What a caller's version did not have is whatever stood in its padding. */
static void forget_newer(wefti_door_config *config)
{
    const unsigned version = config->version;
    if (version < 21400) {
        config->blocking = WEFTI_DOOR_UNDEFINED;
    }
    if (version < 21700) {
        config->cgaClusterSize = WEFTI_DOOR_UNDEFINED;
        config->minCTAs = config->maxCTAs = WEFTI_DOOR_UNDEFINED;
        config->netName = NULL;
    }
    if (version < 22600) { /* in headers of 2.25 it is still padding */
        config->trafficClass = WEFTI_DOOR_UNDEFINED;
    }
    if (version < 22700) {
        config->collnetEnable = config->CTAPolicy = WEFTI_DOOR_UNDEFINED;
        config->shrinkShare = config->nvlsCTAs = WEFTI_DOOR_UNDEFINED;
    }
    if (version < 22800) {
        config->nChannelsPerNetPeer = WEFTI_DOOR_UNDEFINED;
        config->nvlinkCentricSched = WEFTI_DOOR_UNDEFINED;
    }
}

static int check_range(const char *field, int value, int least, int most)
{
    if (value == WEFTI_DOOR_UNDEFINED || (value >= least && value <= most)) {
        return WEFTI_DOOR_SUCCESS;
    }
    return most == INT_MAX
               ? wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "config.%s is %d: allowed is %d or more",
                                  field, value, least)
               : wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                  "config.%s is %d: allowed is %d to %d", field,
                                  value, least, most);
}

/* X(field, least, most) */
#define RANGE_LIST(X)                                                          \
    X(blocking, 0, 1)                                                          \
    X(cgaClusterSize, 0, INT_MAX)                                              \
    X(minCTAs, 1, INT_MAX)                                                     \
    X(maxCTAs, 1, INT_MAX)                                                     \
    X(splitShare, 0, 1)                                                        \
    X(collnetEnable, 0, 1)                                                     \
    X(CTAPolicy, 0, 2)                                                         \
    X(shrinkShare, 0, 1)                                                       \
    X(nvlsCTAs, 1, INT_MAX)                                                    \
    X(nChannelsPerNetPeer, 1, 64)                                              \
    X(nvlinkCentricSched, 0, 1)

static int check_fields(const wefti_door_config *config)
{
#define CHECK(field, least, most)                                              \
    if (check_range(#field, config->field, least, most) !=                     \
        WEFTI_DOOR_SUCCESS) {                                                  \
        return WEFTI_DOOR_INVALID_ARGUMENT;                                    \
    }
    RANGE_LIST(CHECK)
#undef CHECK
    /* Before defaults are filled in: minCTAs alone is above an undefined
     * maxCTAs, which NCCL refuses as well. */
    if (config->minCTAs > config->maxCTAs) {
        return wefti_door_error(
            WEFTI_DOOR_INVALID_ARGUMENT,
            "config.minCTAs is %d and maxCTAs %s: allowed "
            "is a maximum that is given, and no less",
            config->minCTAs,
            config->maxCTAs == WEFTI_DOOR_UNDEFINED ? "not given" : "less");
    }
    return WEFTI_DOOR_SUCCESS;
}

static int copy_known(const wefti_door_config *given, wefti_door_config *own)
{
    size_t bytes;
    memcpy(&bytes, &given->size, sizeof(bytes));
    if (bytes < LEAST_BYTES) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "config.size is %zu: allowed is %d or more: "
                                "begin with NCCL_CONFIG_INITIALIZER",
                                bytes, LEAST_BYTES);
    }
    memcpy(own, given, bytes < sizeof(*own) ? bytes : sizeof(*own));
    if (own->magic != WEFTI_DOOR_CONFIG_MAGIC) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "config.magic is 0x%x: begin with "
                                "NCCL_CONFIG_INITIALIZER",
                                own->magic);
    }
    forget_newer(own);
    return WEFTI_DOOR_SUCCESS;
}

/* NCCL_COMM_BLOCKING, which beats a program's own wish. */
static void look_at_environment(wefti_door_wish *wish)
{
    const char *said = wefti_setting_foreign("NCCL_COMM_BLOCKING");
    if (said && (strcmp(said, "0") == 0 || strcmp(said, "1") == 0)) {
        wish->blocking = said[0] == '1';
        wefti_log(WEFTI_LOG_INFO, -1,
                  "nccl: NCCL_COMM_BLOCKING is %s: it "
                  "counts, whatever config.blocking is",
                  said);
    }
}

int wefti_door_config_read(const wefti_door_config *given,
                           const wefti_door_wish *parent,
                           wefti_door_wish *wish_out)
{
    wefti_door_config config;
    wefti_door_wish wish = {.blocking = !parent || parent->blocking};
    int result = WEFTI_DOOR_SUCCESS;
    init(&config);
    if (given) {
        result = copy_known(given, &config);
    }
    if (result == WEFTI_DOOR_SUCCESS) {
        result = check_fields(&config);
    }
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    if (config.blocking != WEFTI_DOOR_UNDEFINED) {
        wish.blocking = config.blocking;
    }
    if (config.commName) {
        snprintf(wish.name, NAME_BYTES, "%.*s", NAME_BYTES - 1,
                 config.commName);
    }
    look_at_environment(&wish);
    *wish_out = wish;
    return WEFTI_DOOR_SUCCESS;
}
