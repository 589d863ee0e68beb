/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/net_join.c - a net comes to be while ranks join: the module is
 * opened, an interface chosen, the port's address told.
 */
#include "base/error.h"
#include "base/settings.h"
#include "comm/control/channel.h"
#include "comm/net/net.h"
#include "comm/net/port_library.h"
#include "comm/net/port_tcp.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Where the control channel answers stands before the port's address. */
enum { ENDPOINT_BYTES = WEFTI_ADDRESS_BYTES };

_Static_assert((int)WEFTI_PORT_ADDRESS_BYTES + (int)ENDPOINT_BYTES <=
                   (int)WEFTI_INFO_BYTES,
               "an address must fit on a info");

/* What all ranks of the job have in common for a purpose, and no other rank. */
static void derive(const wefti_membership *membership, const char *purpose,
                   unsigned char *secret_out, size_t secret_bytes)
{
    crypto_generichash(secret_out, secret_bytes, (const void *)purpose,
                       strlen(purpose) + 1, membership->job_key,
                       WEFTI_JOB_KEY_BYTES);
}

static uint64_t derive_key(const wefti_membership *membership)
{
    unsigned char hash[crypto_generichash_BYTES_MIN];
    uint64_t key;
    derive(membership, "weft net", hash, sizeof(hash));
    memcpy(&key, hash, sizeof(key));
    return key;
}

/* The net, and the interfaces that it may use. */
static weft_status begin(wefti_engine *engine,
                         const wefti_membership *membership)
{
    wefti_net *net = calloc(1, sizeof(*net));
    wefti_net_peer *peers =
        calloc((size_t)membership->nranks, sizeof(*net->peers));
    if (!net || !peers) {
        free(net);
        free(peers);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d peers",
                           membership->nranks);
    }
    net->engine = engine;
    net->rank = membership->rank;
    net->nranks = membership->nranks;
    net->key = derive_key(membership);
    net->peers = peers;
    engine->net = net;
    weft_status status = wefti_port_library_open(&net->library);
    return status == WEFT_OK ? wefti_reach_open(membership, &net->reach)
                             : status;
}

/* The control channel listens on the first interface in use. */
static weft_status open_control(wefti_net *net,
                                const wefti_membership *membership,
                                unsigned char *info)
{
    wefti_interface list[WEFTI_INTERFACES_MOST];
    int count, used = 0;
    weft_status status = wefti_interface_list(list, &count);
    if (status != WEFT_OK) {
        return status;
    }
    const size_t characters = strcspn(net->use.names, ",");
    while (used < count &&
           (strlen(list[used].name) != characters ||
            strncmp(list[used].name, net->use.names, characters) != 0)) {
        used++;
    }
    if (used == count) {
        return wefti_error(WEFT_ERR_SYSTEM, "%s has no address any more",
                           net->use.names);
    }
    status = wefti_control_open(net->engine, membership, list[used].address,
                                &net->engine->control);
    if (status == WEFT_OK) {
        memcpy(info, wefti_control_get_address(net->engine->control, net->rank),
               WEFTI_ADDRESS_BYTES);
    }
    return status;
}

/* weft's own sockets carry tcp; all else is the network library's, also tcp
 * where it is named ucx:tcp. */
static const wefti_port_table *choose_table(const wefti_net *net,
                                            const char **transports)
{
    static const char ucx[] = "ucx:";
    if (strcmp(*transports, "tcp") == 0) {
        return &wefti_port_tcp;
    }
    if (strncmp(*transports, ucx, sizeof(ucx) - 1) == 0) {
        *transports += sizeof(ucx) - 1;
    }
    return net->library;
}

/* Whether the port can be had on as many interfaces as are named. */
static weft_status check_rails(const wefti_net *net, int64_t most)
{
    return net->table == &wefti_port_tcp && net->use.count > most
               ? wefti_error(WEFT_ERR_INVALID,
                             "WEFT_NET_INTERFACE=%s: allowed is to name up to "
                             "%lld, as WEFT_NET_RAILS says",
                             wefti_setting_text(WEFTI_SETTING_NET_INTERFACE),
                             (long long)most)
               : WEFT_OK;
}

/* The port, on the interfaces that lead somewhere. */
static weft_status open_port(wefti_net *net, const wefti_membership *membership,
                             unsigned char info_out[WEFTI_INFO_BYTES],
                             size_t *info_bytes_out)
{
    char why[256] = "";
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
    int64_t most;
    const char *transports = wefti_setting_text(WEFTI_SETTING_NET_TRANSPORT);
    net->table = choose_table(net, &transports);
    weft_status status = wefti_setting_int(WEFTI_SETTING_NET_RAILS, &most);
    if (status == WEFT_OK) {
        status = wefti_reach_choose(
            net->reach, net->table == &wefti_port_tcp ? (int)most : 1,
            &net->use);
    }
    if (status == WEFT_OK) {
        status = check_rails(net, most);
    }
    if (status != WEFT_OK) {
        return status;
    }
    derive(membership, "weft port", proof, sizeof(proof));
    const wefti_port_config config = {.transports = transports,
                                      .devices = net->use.names,
                                      .rails = net->use.count,
                                      .rail_numbers = net->use.numbers,
                                      .rank = net->rank,
                                      .npeers = net->nranks,
                                      .proof = proof,
                                      .context = net,
                                      .place = wefti_net_place,
                                      .arrived = wefti_net_arrived,
                                      .lost = wefti_net_lost,
                                      .unreached = wefti_net_unreached,
                                      .silent = wefti_net_silent};
    const int refused = net->table->open(&config, &net->port, why, sizeof(why));
    sodium_memzero(proof, sizeof(proof));
    if (refused) {
        return wefti_error(WEFT_ERR_SYSTEM, "cannot open the network: %s", why);
    }
    status = open_control(net, membership, info_out);
    if (status != WEFT_OK) {
        return status;
    }
    size_t address_bytes =
        net->table->address(net->port, info_out + ENDPOINT_BYTES);
    *info_bytes_out = ENDPOINT_BYTES + address_bytes;
    return address_bytes
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM,
                             "the network address on %s does not fit into %d "
                             "bytes: name fewer in WEFT_NET_INTERFACE",
                             net->use.names, WEFTI_PORT_ADDRESS_BYTES);
}

static weft_status take_offer(void *context, int rank,
                              const unsigned char *info, size_t info_bytes)
{
    const wefti_net *net = context;
    return wefti_reach_take(net->reach, rank, info, info_bytes);
}

static weft_status take_address(void *context, int rank,
                                const unsigned char *info, size_t info_bytes)
{
    wefti_net *net = context;
    wefti_net_peer *peer = &net->peers[rank];
    wefti_endpoint there;
    if (peer->address || info_bytes <= ENDPOINT_BYTES ||
        !wefti_endpoint_unpack(info, &there)) {
        return wefti_error(WEFT_ERR_BOOTSTRAP,
                           "rank %d's info holds no address", rank);
    }
    memcpy(wefti_control_get_address(net->engine->control, rank), info,
           ENDPOINT_BYTES);
    info += ENDPOINT_BYTES;
    info_bytes -= ENDPOINT_BYTES;
    peer->address = malloc(info_bytes);
    if (!peer->address) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an address");
    }
    memcpy(peer->address, info, info_bytes);
    char why[256] = "";
    return net->table->connect(net->port, rank, peer->address, info_bytes, why,
                               sizeof(why)) == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_SYSTEM, "cannot connect to rank %d: %s",
                             rank, why);
}

weft_status wefti_net_join(wefti_engine *engine,
                           const wefti_membership *membership,
                           wefti_client *client)
{
    unsigned char info[WEFTI_INFO_BYTES];
    size_t info_bytes = 0;
    weft_status status = begin(engine, membership);
    if (status == WEFT_OK) {
        status = wefti_reach_offer(engine->net->reach, info, &info_bytes);
    }
    if (status == WEFT_OK) {
        status = wefti_client_exchange(client, membership, info, info_bytes,
                                       take_offer, engine->net);
    }
    if (status == WEFT_OK) {
        status = open_port(engine->net, membership, info, &info_bytes);
    }
    if (status == WEFT_OK) {
        status = wefti_client_exchange(client, membership, info, info_bytes,
                                       take_address, engine->net);
    }
    return status;
}

weft_status wefti_net_start(wefti_net *net, bool (*attend)(void *engine))
{
    wefti_net_settle(net);
    weft_status status = wefti_control_start(net->engine->control, net->key);
    return status == WEFT_OK
               ? wefti_net_watch_start(net->key,
                                       net->table->event_fd(net->port), attend,
                                       net->engine, &net->watch)
               : status;
}

void wefti_net_settle(wefti_net *net)
{
    wefti_reach_close(net->reach);
    net->reach = NULL;
}
