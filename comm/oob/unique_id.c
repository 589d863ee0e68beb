/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/unique_id.c - 128 bytes that hold a job's rendezvous address and its
 * secret.
 *
 *     magic, 8 | version, 3 x 2 | secret, 32 | address, 19 | zero, 63
 *
 * The address is this host's loopback, or what WEFT_HOST names of it.
 */
#include "base/descriptors.h"
#include "base/error.h"
#include "base/settings.h"
#include "comm/oob/client.h"
#include "comm/oob/cursor.h"
#include "comm/oob/message.h"
#include "comm/oob/server.h"
#include "comm/oob/source.h"

#include <sodium.h>
#include <unistd.h>

static const unsigned char magic[8] = {'w', 'e', 'f', 't', '-', 'i', 'd', 0};

enum { RAW_SECRET_BYTES = 32 };

static void walk(wefti_oob_cursor *cursor, unsigned char *mark,
                 wefti_version *version, unsigned char *raw_secret,
                 unsigned char *address)
{
    wefti_oob_cursor_bytes(cursor, mark, sizeof(magic));
    wefti_version_walk(cursor, version);
    wefti_oob_cursor_bytes(cursor, raw_secret, RAW_SECRET_BYTES);
    wefti_oob_cursor_bytes(cursor, address, WEFTI_ADDRESS_BYTES);
}

static void pack(weft_unique_id *id, const wefti_endpoint *endpoint,
                 unsigned char raw_secret[RAW_SECRET_BYTES])
{
    unsigned char mark[sizeof(magic)], address[WEFTI_ADDRESS_BYTES];
    wefti_version own = wefti_version_own();
    wefti_oob_cursor cursor = {.to = id->bytes,
                               .left_bytes = sizeof(id->bytes)};
    wefti_endpoint_pack(endpoint, address);
    memset(id, 0, sizeof(*id)); /* the rest */
    memcpy(mark, magic, sizeof(magic));
    walk(&cursor, mark, &own, raw_secret, address);
}

static weft_status unpack(const weft_unique_id *id,
                          wefti_endpoint *endpoint_out,
                          wefti_secret *secret_out)
{
    unsigned char found[sizeof(magic)], raw[RAW_SECRET_BYTES];
    unsigned char address[WEFTI_ADDRESS_BYTES];
    wefti_version version = {0};
    wefti_oob_cursor cursor = {.from = id->bytes,
                               .left_bytes = sizeof(id->bytes)};
    walk(&cursor, found, &version, raw, address);
    wefti_secret_init(secret_out, raw, sizeof(raw));
    sodium_memzero(raw, sizeof(raw));
    if (memcmp(found, magic, sizeof(magic)) != 0 ||
        !wefti_endpoint_unpack(address, endpoint_out)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.id: not made by weft_unique_id_create");
    }
    if (!wefti_version_is_own(version)) {
        const wefti_version own = wefti_version_own();
        return wefti_error(WEFT_ERR_BOOTSTRAP,
                           "config.id: made by weft %u.%u.%u, this is weft "
                           "%u.%u.%u: all ranks must run the same version",
                           version.major, version.minor, version.patch,
                           own.major, own.minor, own.patch);
    }
    return WEFT_OK;
}

/* Where the bootstrap is to be: one address, and never all. */
static weft_status find_endpoint(wefti_endpoint *endpoint_out)
{
    if (wefti_setting_given(WEFTI_SETTING_HOST)) {
        return wefti_endpoint_host(
            "WEFT_HOST", wefti_setting_text(WEFTI_SETTING_HOST), endpoint_out);
    }
    wefti_endpoint_loopback(0, endpoint_out);
    return WEFT_OK;
}

weft_status weft_unique_id_create(weft_unique_id *id_out)
{
    unsigned char raw[RAW_SECRET_BYTES];
    wefti_server_config config = {.home_rank = -1, .launcher_fd = -1};
    if (!id_out) {
        return wefti_error(WEFT_ERR_INVALID, "id_out: NULL is not allowed");
    }
    if (sodium_init() < 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "libsodium: no random numbers");
    }
    weft_status status = wefti_descriptors_reserve();
    if (status == WEFT_OK) {
        status =
            wefti_setting_int(WEFTI_SETTING_TIMEOUT_MS, &config.timeout_ms);
    }
    if (status == WEFT_OK) {
        status = find_endpoint(&config.endpoint);
    }
    if (status == WEFT_OK) {
        status = wefti_endpoint_listen(&config.endpoint, &config.listen_fd);
    }
    if (status != WEFT_OK) {
        return status;
    }
    randombytes_buf(raw, sizeof(raw));
    wefti_secret_init(&config.secret, raw, sizeof(raw));
    status = wefti_server_start(&config, NULL);
    if (status == WEFT_OK) {
        pack(id_out, &config.endpoint, raw);
    } else {
        close(config.listen_fd);
    }
    sodium_memzero(raw, sizeof(raw));
    wefti_secret_fini(&config.secret);
    return status;
}

static bool has_id(const wefti_bootstrap_request *request)
{
    return request->id != NULL;
}

/* A request with an id is refused earlier unless it says its rank. */
static weft_status find_rank_in_request(int *rank_out, int *nranks_out)
{
    *rank_out = 0;
    *nranks_out = 1;
    return WEFT_OK;
}

static weft_status join(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    wefti_endpoint endpoint;
    wefti_secret secret;
    weft_status status = unpack(request->id, &endpoint, &secret);
    if (status == WEFT_OK) {
        status = wefti_client_join(&endpoint, &secret, request, membership_out);
    }
    wefti_secret_fini(&secret);
    return status;
}

const wefti_launch_source wefti_launch_source_unique_id = {
    .name = "a unique id",
    .sign = "the config has one",
    .alone_too = true,
    .applies = has_id,
    .find_rank = find_rank_in_request,
    .join = join,
};
