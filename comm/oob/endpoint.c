/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/endpoint.c - addresses as text, listening.
 */
#include "comm/oob/endpoint.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static void set_name(wefti_endpoint *endpoint)
{
    snprintf(endpoint->name, sizeof(endpoint->name), "%s at %s%s",
             endpoint->what ? endpoint->what : "the rendezvous", endpoint->text,
             endpoint->patient ? " (rank 0)" : "");
}

/* Splits host:port; false if text has another form. */
static bool split(const char *text, char *host, size_t host_room,
                  const char **port_out)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1]) {
        return false;
    }
    const char *from = text;
    size_t characters = (size_t)(colon - text);
    if (text[0] == '[') {
        if (characters < 3 || colon[-1] != ']') {
            return false;
        }
        from++;
        characters -= 2;
    } else if (memchr(text, ':', characters)) {
        return false;
    }
    if (characters >= host_room) {
        return false;
    }
    memcpy(host, from, characters);
    host[characters] = '\0';
    *port_out = colon + 1;
    return true;
}

static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    long port = digits >= 1 && digits <= 5 ? strtol(text, NULL, 10) : 0;
    return !text[digits] && port >= 1 && port <= 65535;
}

enum { PORT_AT = 1, ADDRESS_AT = 3, V4 = 4, V6 = 6 }; /* in a packed one */

static void pack(const struct sockaddr_storage *address,
                 unsigned char bytes_out[WEFTI_ADDRESS_BYTES])
{
    const bool v4 = address->ss_family == AF_INET;
    const struct sockaddr_in *as_v4 = (const void *)address;
    const struct sockaddr_in6 *as_v6 = (const void *)address;
    memset(bytes_out, 0, WEFTI_ADDRESS_BYTES);
    bytes_out[0] = v4 ? V4 : V6;
    memcpy(bytes_out + PORT_AT, v4 ? &as_v4->sin_port : &as_v6->sin6_port, 2);
    memcpy(bytes_out + ADDRESS_AT,
           v4 ? (const void *)&as_v4->sin_addr
              : (const void *)&as_v6->sin6_addr,
           v4 ? 4 : 16);
}

static bool is_any_address(const struct sockaddr_storage *address)
{
    static const unsigned char any[16];
    unsigned char bytes[WEFTI_ADDRESS_BYTES];
    pack(address, bytes);
    return memcmp(bytes + ADDRESS_AT, any, sizeof(any)) == 0;
}

/* whose: the machine that the address is of. */
static weft_status resolve(const char *source, const char *text,
                           const char *host, const char *port,
                           const char *whose, wefti_endpoint *endpoint_out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure) {
        return wefti_error(WEFT_ERR_INVALID, "%s=%s: %s", source, text,
                           gai_strerror(failure));
    }
    *endpoint_out = (wefti_endpoint){.address_bytes = found->ai_addrlen};
    memcpy(&endpoint_out->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return is_any_address(&endpoint_out->address)
               ? wefti_error(WEFT_ERR_INVALID,
                             "%s=%s: allowed is one address of %s machine, not "
                             "all of them",
                             source, text, whose)
               : WEFT_OK;
}

weft_status wefti_endpoint_parse(const char *source, const char *text,
                                 wefti_endpoint *endpoint_out)
{
    char host[64];
    const char *port;
    if (!split(text, host, sizeof(host), &port) || !is_port(port)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s=%s: allowed is host:port or [host]:port with a "
                           "port from 1 to 65535",
                           source, text);
    }
    weft_status status =
        resolve(source, text, host, port, "rank 0's", endpoint_out);
    if (status == WEFT_OK) {
        endpoint_out->patient = true;
        snprintf(endpoint_out->text, sizeof(endpoint_out->text), "%s", text);
        set_name(endpoint_out);
    }
    return status;
}

/* From the address: 127.0.0.1:5555 or [::1]:5555. */
static void set_text(wefti_endpoint *endpoint)
{
    char host[INET6_ADDRSTRLEN] = "?";
    bool v4 = endpoint->address.ss_family == AF_INET;
    const struct sockaddr_in *as_v4 = (const void *)&endpoint->address;
    const struct sockaddr_in6 *as_v6 = (const void *)&endpoint->address;
    (void)inet_ntop(endpoint->address.ss_family,
                    v4 ? (const void *)&as_v4->sin_addr
                       : (const void *)&as_v6->sin6_addr,
                    host, sizeof(host));
    snprintf(endpoint->text, sizeof(endpoint->text), v4 ? "%s:%u" : "[%s]:%u",
             host, (unsigned)ntohs(v4 ? as_v4->sin_port : as_v6->sin6_port));
    set_name(endpoint);
}

void wefti_endpoint_v4(const char *what, uint32_t address, uint16_t port,
                       wefti_endpoint *endpoint_out)
{
    const struct sockaddr_in v4 = {.sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = address};
    *endpoint_out = (wefti_endpoint){.address_bytes = sizeof(v4), .what = what};
    memcpy(&endpoint_out->address, &v4, sizeof(v4));
    set_text(endpoint_out);
}

void wefti_endpoint_loopback(uint16_t port, wefti_endpoint *endpoint_out)
{
    wefti_endpoint_v4(NULL, htonl(INADDR_LOOPBACK), port, endpoint_out);
}

void wefti_endpoint_unix(const unsigned char name[WEFTI_SOCKET_NAME_BYTES],
                         wefti_endpoint *endpoint_out)
{
    char text[8 + 2 * WEFTI_SOCKET_NAME_BYTES + 1] = "weft-";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    for (int i = 0; i < WEFTI_SOCKET_NAME_BYTES; i++) {
        snprintf(text + 5 + 2 * i, 3, "%02x", name[i]);
    }
    memcpy(address.sun_path + 1, text, strlen(text));
    *endpoint_out = (wefti_endpoint){
        .address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                     1 + strlen(text)),
        .name = "a unix socket"};
    memcpy(&endpoint_out->address, &address, sizeof(address));
}

weft_status wefti_endpoint_host(const char *source, const char *host,
                                wefti_endpoint *endpoint_out)
{
    weft_status status =
        resolve(source, host, host, NULL, "this", endpoint_out);
    if (status == WEFT_OK) {
        set_text(endpoint_out);
    }
    return status;
}

void wefti_endpoint_pack(const wefti_endpoint *endpoint,
                         unsigned char bytes_out[WEFTI_ADDRESS_BYTES])
{
    pack(&endpoint->address, bytes_out);
}

bool wefti_endpoint_unpack(const unsigned char bytes[WEFTI_ADDRESS_BYTES],
                           wefti_endpoint *endpoint_out)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    *endpoint_out = (wefti_endpoint){.address_bytes = 0};
    if (bytes[0] == 4) {
        memcpy(&v4.sin_port, bytes + 1, 2);
        memcpy(&v4.sin_addr, bytes + 3, 4);
        memcpy(&endpoint_out->address, &v4, sizeof(v4));
        endpoint_out->address_bytes = sizeof(v4);
    } else if (bytes[0] == 6) {
        memcpy(&v6.sin6_port, bytes + 1, 2);
        memcpy(&v6.sin6_addr, bytes + 3, 16);
        memcpy(&endpoint_out->address, &v6, sizeof(v6));
        endpoint_out->address_bytes = sizeof(v6);
    }
    if (!endpoint_out->address_bytes || !(bytes[1] | bytes[2]) ||
        is_any_address(&endpoint_out->address)) {
        return false;
    }
    set_text(endpoint_out);
    return true;
}

bool wefti_endpoint_is_loopback(const wefti_endpoint *endpoint)
{
    static const unsigned char v6[16] = {[15] = 1};
    unsigned char bytes[WEFTI_ADDRESS_BYTES];
    pack(&endpoint->address, bytes);
    return bytes[0] == V4 ? bytes[ADDRESS_AT] == IN_LOOPBACKNET
                          : memcmp(bytes + ADDRESS_AT, v6, sizeof(v6)) == 0;
}

static bool same_address(const struct sockaddr_storage *a,
                         const struct sockaddr_storage *b)
{
    unsigned char left[WEFTI_ADDRESS_BYTES], right[WEFTI_ADDRESS_BYTES];
    pack(a, left);
    pack(b, right);
    return a->ss_family == b->ss_family &&
           memcmp(left, right, sizeof(left)) == 0;
}

static weft_status learn_port(wefti_endpoint *endpoint, int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t bound_bytes = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0) {
        return wefti_error_system("address of the rendezvous (getsockname)");
    }
    if (!same_address(&endpoint->address, &bound)) { /* it had port 0 */
        memcpy(&endpoint->address, &bound, bound_bytes);
        endpoint->address_bytes = bound_bytes;
        set_text(endpoint);
    }
    return WEFT_OK;
}

weft_status wefti_endpoint_listen(wefti_endpoint *endpoint, int *fd_out)
{
    const int on = 1;
    int fd = socket(endpoint->address.ss_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return wefti_error_system("socket for %s", endpoint->name);
    }
    weft_status status = WEFT_OK;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, (const struct sockaddr *)&endpoint->address,
             endpoint->address_bytes) != 0 ||
        listen(fd, SOMAXCONN) != 0) {
        status = wefti_error_system("cannot listen for %s (bind, listen)",
                                    endpoint->name);
    }
    if (status == WEFT_OK && endpoint->address.ss_family != AF_UNIX) {
        status = learn_port(endpoint, fd);
    }
    if (status != WEFT_OK) {
        const int cause = errno;
        close(fd);
        errno = cause;
        return status;
    }
    *fd_out = fd;
    return WEFT_OK;
}

bool wefti_endpoint_is_listened_by(const wefti_endpoint *endpoint, int fd)
{
    int listens = 0;
    socklen_t listens_bytes = sizeof(listens);
    struct sockaddr_storage bound = {0};
    socklen_t bound_bytes = sizeof(bound);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens,
                      &listens_bytes) == 0 &&
           listens &&
           getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) == 0 &&
           same_address(&bound, &endpoint->address);
}
