/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/port_ends.c - opening, connecting, sending, pushing in turns.
 */
#include "tests/comm/port_ends.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

unsigned char port_byte_at(uint32_t number, size_t at)
{
    return (unsigned char)(number * 31 + at * 7 + at / 251);
}

static void *place(void *context, const void *header, size_t header_bytes,
                   size_t data_bytes)
{
    port_end *self = context;
    port_note what;
    assert_int_equal(header_bytes, sizeof(what));
    memcpy(&what, header, sizeof(what));
    assert_int_equal(what.bytes, data_bytes);
    if (what.number == self->withdrawn && self->asked) {
        return NULL;
    }
    self->asked = what.number == self->withdrawn;
    if (what.number % 3 == 0) {
        return NULL; /* spilled */
    }
    if (!self->places[what.number]) {
        self->places[what.number] = calloc(1, MOST_BYTES);
        assert_non_null(self->places[what.number]);
    }
    return self->places[what.number];
}

static void arrived(void *context, const void *header, size_t header_bytes,
                    const void *data, size_t data_bytes)
{
    port_end *self = context;
    port_note what;
    assert_int_equal(header_bytes, sizeof(what));
    memcpy(&what, header, sizeof(what));
    const unsigned char *bytes = data;
    for (size_t i = 0; !self->any && i < data_bytes; i++) {
        self->wrong |= bytes[i] != port_byte_at(what.number, i);
    }
    self->wrong |= what.bytes != data_bytes;
    if (data_bytes > SMALL_BYTES) {
        self->disorder |= what.number < self->last_large;
        self->last_large = what.number;
    }
    free(self->places[what.number]);
    self->places[what.number] = NULL;
    self->got[what.number]++;
    self->before[what.number] = self->arrived++;
}

static void lost(void *context, int peer, const char *why)
{
    port_end *self = context;
    (void)peer;
    assert_non_null(why);
    self->lost++;
}

static void unreached(void *context, int peer, const char *device,
                      const char *why)
{
    port_end *self = context;
    (void)peer;
    assert_string_equal(device, "lo");
    assert_non_null(why);
    self->unreached++;
}

/* Its addresses, one for each rail. */
static void open_end(port_end *self, int rank, int rails,
                     const uint32_t *numbers, port_address *addresses_out)
{
    char why[200] = "";
    unsigned char proof[WEFTI_PORT_PROOF_BYTES], own[WEFTI_PORT_ADDRESS_BYTES];
    memset(self, 0, sizeof(*self));
    self->withdrawn = UINT32_MAX;
    memset(proof, 0x5c, sizeof(proof));
    const wefti_port_config config = {.transports = "tcp",
                                      .devices = rails == 1 ? "lo" : "lo,lo,lo",
                                      .rails = rails,
                                      .rail_numbers = numbers,
                                      .rank = rank,
                                      .npeers = 2,
                                      .proof = proof,
                                      .context = self,
                                      .place = place,
                                      .arrived = arrived,
                                      .lost = lost,
                                      .unreached = unreached};
    assert_int_equal(
        wefti_port_tcp.open(&config, &self->port, why, sizeof(why)), 0);
    assert_int_equal(wefti_port_tcp.address(self->port, own),
                     (size_t)rails * sizeof(*addresses_out));
    memcpy(addresses_out, own, (size_t)rails * sizeof(*addresses_out));
}

void port_send_with(port_end *from, int to, port_note what,
                    const unsigned char *data, bool urgent)
{
    wefti_port_tcp.send(from->port,
                        &(wefti_port_message){.peer = to,
                                              .header = &what,
                                              .header_bytes = sizeof(what),
                                              .data = data,
                                              .data_bytes = what.bytes,
                                              .urgent = urgent});
}

void port_send_one(port_end *from, int to, uint32_t number,
                   const unsigned char *data, size_t bytes)
{
    port_send_with(from, to, (port_note){number, (uint32_t)bytes}, data, false);
}

void port_connect_rails(port_end ends[2], int rails,
                        const uint32_t numbers[2][RAILS_MOST],
                        port_address addresses[2][RAILS_MOST])
{
    char why[200];
    const wefti_port_rails use = {.byte_ps = {8000, 20000, 16000}};
    for (int i = 0; i < 2; i++) {
        open_end(&ends[i], i, rails, numbers[i], addresses[i]);
        wefti_port_tcp.use(ends[i].port, &use);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            wefti_port_tcp.connect(
                ends[i].port, 1 - i, (const unsigned char *)addresses[1 - i],
                (size_t)rails * sizeof(addresses[0][0]), why, sizeof(why)),
            0);
    }
}

const uint32_t port_same_rails[2][RAILS_MOST] = {{7, 8, 9}, {7, 8, 9}};

void port_connect_ends(port_end ends[2], port_address addresses[2][RAILS_MOST])
{
    port_connect_rails(ends, 1, port_same_rails, addresses);
}

void port_push(port_end ends[2], const int wanted[2])
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[0].arrived < wanted[0] || ends[1].arrived < wanted[1]) {
        bool moved = false;
        struct pollfd news[2];
        assert_true(wefti_clock_ns() < until_ns);
        for (int i = 0; i < 2; i++) {
            moved |= wefti_port_tcp.progress(ends[i].port);
            moved |= !wefti_port_tcp.arm(ends[i].port);
            news[i] = (struct pollfd){
                .fd = wefti_port_tcp.event_fd(ends[i].port), .events = POLLIN};
        }
        if (!moved) {
            assert_true(poll(news, 2, LIMIT_S * 1000) > 0);
        }
    }
}

void port_reach_all(port_end ends[2], int rails)
{
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    for (int rail = 0; rail < rails; rail++) {
        while (wefti_port_tcp.reach(ends[0].port, 1, rail) !=
               WEFTI_PORT_REACH_UP) {
            assert_true(wefti_clock_ns() < until_ns);
            (void)wefti_port_tcp.progress(ends[0].port);
            (void)wefti_port_tcp.progress(ends[1].port);
        }
    }
}

void port_close_ends(port_end *ends)
{
    for (int i = 0; i < 2; i++) {
        if (ends[i].port) {
            wefti_port_tcp.close(ends[i].port, 100);
        }
        for (int number = 0; number < MESSAGES; number++) {
            free(ends[i].places[number]);
        }
    }
    free(ends);
}

int port_speak(const port_address *to, const void *said, size_t bytes)
{
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = to->address,
                                      .sin_port = to->port};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const void *)&there, sizeof(there)), 0);
    assert_int_equal(send(fd, said, bytes, MSG_NOSIGNAL), bytes);
    return fd;
}
