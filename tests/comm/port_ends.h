/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/port_ends.h - two ports on weft's own sockets in one process, and
 * what each has got. Over the loopback, which is every rail. Each message
 * carries its number, and is filled from it.
 */
#ifndef TESTS_COMM_PORT_ENDS_H
#define TESTS_COMM_PORT_ENDS_H

#include "comm/net/port_tcp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MESSAGES = 400,
    MOST_BYTES = 600000,
    SMALL_BYTES = 8192, /* those may overtake */
    RAILS_MOST = 3,
    LIMIT_S = 30
};

/* What goes over the wire as a port's address; comm/net/port_tcp.c. */
typedef struct port_address {
    uint32_t magic;
    uint32_t address;
    uint32_t rail;
    uint16_t port;
} port_address;

typedef struct port_note {
    uint32_t number, bytes;
} port_note;

typedef struct port_end {
    wefti_port *port;
    unsigned char *places[MESSAGES]; /* by number */
    unsigned got[MESSAGES];          /* how often */
    int arrived, lost, unreached;
    uint32_t last_large;
    uint32_t withdrawn; /* the number of a message that has no place any more */
    bool asked;
    bool disorder, wrong;
    bool any;             /* data are not looked at */
    int before[MESSAGES]; /* by number: how many had arrived */
} port_end;

/* A greeting, and the first frame behind it. */
typedef struct port_words {
    uint32_t magic, rank, rail;
    unsigned char proof[WEFTI_PORT_PROOF_BYTES];
    uint32_t header_bytes, data_bytes;
    uint32_t behind[2], number[2];
    uint32_t all_bytes;
    int32_t begin;
    port_note header;
} port_words;

extern const uint32_t port_same_rails[2][RAILS_MOST];

unsigned char port_byte_at(uint32_t number, size_t at);

/* Numbers of the rails of both; all are used. The addresses are borrowed. */
void port_connect_rails(port_end ends[2], int rails,
                        const uint32_t numbers[2][RAILS_MOST],
                        port_address addresses[2][RAILS_MOST]);
void port_connect_ends(port_end ends[2],
                       port_address addresses[2][RAILS_MOST]); /* by one rail */
void port_close_ends(port_end *ends);

void port_send_with(port_end *from, int to, port_note what,
                    const unsigned char *data, bool urgent);
void port_send_one(port_end *from, int to, uint32_t number,
                   const unsigned char *data, size_t bytes);

/* Pushes both until each has got so many, sleeping as a rank does. */
void port_push(port_end ends[2], const int wanted[2]);

/* Until all rails of the first end lead to the second. */
void port_reach_all(port_end ends[2], int rails);

/* A socket to a port that has sent so much, as another end may. */
int port_speak(const port_address *to, const void *said, size_t bytes);

#endif
