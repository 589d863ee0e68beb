/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: two ports on weft's own sockets exchange messages whole and once, also
 * when both connect at once; large ones keep their order and small ones may
 * overtake; a message whose place goes while it comes is dropped, and those
 * behind it are not; who speaks nonsense is lost, and nobody else; what is
 * urgent goes before what is not, as long as that is not for ever. Over several
 * rails too, where large ones may overtake, what is to be the last is, a rail
 * that the other end lacks is named and not used, and an end that leaves is
 * lost once, after all that it sent, whoever of the two finds out. Method:
 * ports in one process over the loopback, which is every rail, pushed in turns;
 * each message carries its number and is filled from it; sizes drawn, with a
 * printed seed.
 */
#include "comm/net/port_tcp.h"

#include "base/clock.h"
#include "tests/seed.h"

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

enum {
    MESSAGES = 400,
    MOST_BYTES = 600000,
    SMALL_BYTES = 8192, /* those may overtake */
    RAILS_MOST = 3,
    LIMIT_S = 30
};

/* What goes over the wire as a port's address; comm/net/port_tcp.c. */
typedef struct address {
    uint32_t magic;
    uint32_t address;
    uint32_t rail;
    uint16_t port;
} address;

typedef struct note {
    uint32_t number, bytes;
} note;

typedef struct end {
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
} end;

static unsigned char byte_at(uint32_t number, size_t at)
{
    return (unsigned char)(number * 31 + at * 7 + at / 251);
}

static void *place(void *context, const void *header, size_t header_bytes,
                   size_t data_bytes)
{
    end *self = context;
    note what;
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
    end *self = context;
    note what;
    assert_int_equal(header_bytes, sizeof(what));
    memcpy(&what, header, sizeof(what));
    const unsigned char *bytes = data;
    for (size_t i = 0; !self->any && i < data_bytes; i++) {
        self->wrong |= bytes[i] != byte_at(what.number, i);
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
    end *self = context;
    (void)peer;
    assert_non_null(why);
    self->lost++;
}

static void unreached(void *context, int peer, const char *device,
                      const char *why)
{
    end *self = context;
    (void)peer;
    assert_string_equal(device, "lo");
    assert_non_null(why);
    self->unreached++;
}

/* Its addresses, one for each rail. */
static void open_end(end *self, int rank, int rails, const uint32_t *numbers,
                     address *addresses_out)
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

static void send_with(end *from, int to, note what, const unsigned char *data,
                      bool urgent)
{
    wefti_port_tcp.send(from->port,
                        &(wefti_port_message){.peer = to,
                                              .header = &what,
                                              .header_bytes = sizeof(what),
                                              .data = data,
                                              .data_bytes = what.bytes,
                                              .urgent = urgent});
}

static void send_one(end *from, int to, uint32_t number,
                     const unsigned char *data, size_t bytes)
{
    send_with(from, to, (note){number, (uint32_t)bytes}, data, false);
}

/* Numbers of the rails of both; all are used. */
static void connect_rails(end ends[2], int rails,
                          const uint32_t numbers[2][RAILS_MOST],
                          address addresses[2][RAILS_MOST])
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

static const uint32_t same_rails[2][RAILS_MOST] = {{7, 8, 9}, {7, 8, 9}};

/* The addresses: borrowed by the ports. */
static void connect_ends(end ends[2], address addresses[2][RAILS_MOST])
{
    connect_rails(ends, 1, same_rails, addresses);
}

/* Pushes both until each has got so many, sleeping as a rank does. */
static void push(end ends[2], const int wanted[2])
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

/* Until all rails of the first end lead to the second. */
static void reach_all(end ends[2], int rails)
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

static void close_ends(end *ends)
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

static size_t draw_bytes(uint64_t *seed)
{
    const uint64_t kind = random_next(seed) % 4;
    const uint64_t most = kind == 0 ? 1 : kind == 1 ? 5000 : MOST_BYTES;
    return (size_t)(random_next(seed) % most);
}

static void exchange(int rails, uint64_t *seed)
{
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    unsigned char *data[2][MESSAGES];
    assert_non_null(ends);
    connect_rails(ends, rails, same_rails, addresses);
    for (uint32_t number = 0; number < MESSAGES; number++) {
        for (int i = 0; i < 2; i++) {
            const size_t bytes = draw_bytes(seed) / (rails == 1 ? 1 : 4);
            unsigned char *at = data[i][number] = malloc(bytes + 1);
            assert_non_null(at);
            for (size_t k = 0; k < bytes; k++) {
                at[k] = byte_at(number, k);
            }
            wefti_port_tcp.hold(ends[i].port, number % 16 != 15);
            send_one(&ends[i], 1 - i, number, at, bytes);
        }
        if (number % 64 == 40) { /* mostly far behind, at times caught up */
            const int most = (int)number + 1;
            wefti_port_tcp.hold(ends[0].port, false);
            wefti_port_tcp.hold(ends[1].port, false);
            push(ends, number % 128 == 40 ? (int[2]){most, most}
                                          : (int[2]){most / 2, most / 2});
        }
    }
    push(ends, (int[2]){MESSAGES, MESSAGES});
    for (int i = 0; i < 2; i++) {
        assert_false(ends[i].wrong || ends[i].lost || ends[i].unreached);
        assert_false(rails == 1 && ends[i].disorder);
        assert_int_equal(wefti_port_tcp.unsent(ends[i].port), 0);
        for (int number = 0; number < MESSAGES; number++) {
            assert_int_equal(ends[i].got[number], 1);
            free(data[i][number]);
        }
    }
    close_ends(ends);
}

static void test_messages_both_ways_come_whole_and_once(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int rails = 1; rails <= RAILS_MOST; rails++) {
        exchange(rails, &seed);
    }
}

static void lose_place(int rails)
{
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(3, MOST_BYTES);
    assert_true(ends && data);
    connect_rails(ends, rails, same_rails, addresses);
    send_one(&ends[0], 1, 1, data, 1);
    reach_all(ends, rails);
    ends[1].withdrawn = 4;
    for (uint32_t number = 3; number < 6; number++) {
        unsigned char *at = data + (number - 3) * MOST_BYTES;
        for (size_t k = 0; k < MOST_BYTES; k++) {
            at[k] = byte_at(number, k);
        }
        send_one(&ends[0], 1, number, at, MOST_BYTES);
    }
    push(ends, (int[2]){0, 3});
    assert_int_equal(ends[1].got[3], 1);
    assert_int_equal(ends[1].got[4], 0);
    assert_int_equal(ends[1].got[5], 1);
    assert_false(ends[1].lost);
    free(data);
    close_ends(ends);
}

static void test_message_without_its_place_is_dropped(void **state)
{
    (void)state;
    lose_place(1);
    lose_place(2);
}

/* With the proof, or without. */
static int speak(const address *to, const void *words, size_t bytes)
{
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = to->address,
                                      .sin_port = to->port};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const void *)&there, sizeof(there)), 0);
    assert_int_equal(send(fd, words, bytes, MSG_NOSIGNAL), bytes);
    return fd;
}

static void test_nonsense_loses_the_one_who_speaks_it(void **state)
{
    (void)state;
    struct {
        uint32_t magic, rank, rail;
        unsigned char proof[WEFTI_PORT_PROOF_BYTES];
        uint32_t header_bytes, data_bytes, more[6];
    } words = {.rank = 1, .header_bytes = 8, .data_bytes = UINT32_MAX};
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    assert_non_null(ends);
    connect_ends(ends, addresses);
    words.magic = addresses[0][0].magic;
    memset(words.proof, 0x11, sizeof(words.proof)); /* not the job's */
    int stranger = speak(&addresses[0][0], &words, sizeof(words));
    const unsigned char data[] = {byte_at(1, 0)};
    send_one(&ends[1], 0, 1, data, 1);
    push(ends, (int[2]){1, 0});
    assert_int_equal(ends[0].lost + ends[1].lost, 0);
    close(stranger);
    close_ends(ends);

    ends = calloc(2, sizeof(*ends));
    assert_non_null(ends);
    connect_ends(ends, addresses);
    memset(words.proof, 0x5c, sizeof(words.proof));
    unsigned char frame[sizeof(words) + 8] = {0};
    memcpy(frame, &words, sizeof(words));
    stranger = speak(&addresses[0][0], frame, sizeof(frame));
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[0].lost == 0) {
        assert_true(wefti_clock_ns() < until_ns);
        struct pollfd news = {.fd = wefti_port_tcp.event_fd(ends[0].port),
                              .events = POLLIN};
        assert_true(poll(&news, 1, LIMIT_S * 1000) > 0);
        (void)wefti_port_tcp.progress(ends[0].port);
    }
    assert_int_equal(ends[0].arrived, 0);
    close(stranger);
    close_ends(ends);
}

/* The two ends, one of which has been sent something urgent before. */
static end *open_urgent(unsigned char **data_out)
{
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    *data_out = calloc(1, MOST_BYTES);
    assert_true(ends && *data_out);
    connect_ends(ends, addresses);
    ends[1].any = true;
    send_with(&ends[0], 1, (note){0, 1}, *data_out, true);
    push(ends, (int[2]){0, 1});
    return ends;
}

/*
 * 50 MB of gradients are queued, as far as the kernel takes them, before the
 * activations, which are not small.
 */
static void test_urgent_message_passes_gradients(void **state)
{
    (void)state;
    enum { GRADIENT = 128 << 10, ACTIVATION = 64 << 10, PASSED = 12 };
    unsigned char *data;
    end *ends = open_urgent(&data);
    const uint32_t last = MESSAGES - 1;
    for (uint32_t number = 1; number < last; number++) {
        send_one(&ends[0], 1, number, data, GRADIENT);
    }
    while (wefti_port_tcp.progress(ends[0].port)) {
    }
    send_with(&ends[0], 1, (note){last, ACTIVATION}, data, true);
    push(ends, (int[2]){0, MESSAGES});
    print_message("after %d gradients\n", ends[1].before[last] - 1);
    assert_in_range(ends[1].before[last], 1, PASSED);
    for (uint32_t number = 2; number < last; number++) {
        assert_true(ends[1].before[number] > ends[1].before[number - 1]);
    }
    free(data);
    close_ends(ends);
}

static void test_urgent_messages_do_not_starve_others(void **state)
{
    (void)state;
    enum { GRADIENT = 128 << 10, ACTIVATION = 10 << 10, PASSED = 64 };
    unsigned char *data;
    end *ends = open_urgent(&data);
    wefti_port_tcp.hold(ends[0].port, true);
    send_one(&ends[0], 1, 1, data, GRADIENT);
    send_one(&ends[0], 1, 2, data, GRADIENT);
    for (uint32_t number = 3; number < MESSAGES; number++) {
        send_with(&ends[0], 1, (note){number, ACTIVATION}, data, true);
    }
    wefti_port_tcp.hold(ends[0].port, false);
    push(ends, (int[2]){0, MESSAGES});
    assert_int_equal(ends[1].before[1], 1 + PASSED);
    assert_int_equal(ends[1].before[2], 1 + PASSED + 1);
    for (uint32_t number = 4; number < MESSAGES; number++) {
        assert_true(ends[1].before[number] > ends[1].before[number - 1]);
    }
    free(data);
    close_ends(ends);
}

/* The last is said to the first rail, which has the least to send. */
static void test_last_message_comes_last_over_all_rails(void **state)
{
    (void)state;
    enum { LARGE = 20 };
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    note last = {LARGE, 0};
    assert_true(ends && data);
    connect_rails(ends, 2, same_rails, addresses);
    reach_all(ends, 2);
    wefti_port_tcp.use(ends[0].port,
                       &(wefti_port_rails){.byte_ps = {0, 8000}, .small = 1});
    ends[1].any = true;
    for (uint32_t number = 0; number < LARGE; number++) {
        send_one(&ends[0], 1, number, data, number % 2 ? MOST_BYTES : 100);
    }
    wefti_port_tcp.send(ends[0].port,
                        &(wefti_port_message){.peer = 1,
                                              .header = &last,
                                              .header_bytes = sizeof(last),
                                              .last = true});
    push(ends, (int[2]){0, LARGE + 1});
    assert_int_equal(ends[1].before[LARGE], LARGE);
    free(data);
    close_ends(ends);
}

static void test_rail_that_the_other_end_lacks_is_not_used(void **state)
{
    (void)state;
    static const uint32_t numbers[2][RAILS_MOST] = {{7, 8, 9}, {5, 8, 6}};
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    assert_true(ends && data);
    connect_rails(ends, 3, numbers, addresses);
    ends[0].any = ends[1].any = true;
    for (uint32_t number = 0; number < 10; number++) {
        send_one(&ends[0], 1, number, data, MOST_BYTES);
        send_one(&ends[1], 0, number, data, MOST_BYTES);
        push(ends, (int[2]){(int)number + 1, (int)number + 1});
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ends[i].unreached, 1);
        assert_int_equal(ends[i].lost, 0);
        assert_int_equal(wefti_port_tcp.reach(ends[i].port, 1 - i, 1),
                         WEFTI_PORT_REACH_UP);
        assert_int_equal(wefti_port_tcp.reach(ends[i].port, 1 - i, 2),
                         WEFTI_PORT_REACH_NOT);
    }
    free(data);
    close_ends(ends);
}

static void test_end_that_leaves_is_lost_once_after_its_messages(void **state)
{
    (void)state;
    enum { LARGE = 8 };
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    assert_true(ends && data);
    connect_rails(ends, 3, same_rails, addresses);
    reach_all(ends, 3);
    ends[1].any = true;
    for (uint32_t number = 0; number < LARGE; number++) {
        send_one(&ends[0], 1, number, data, 60000);
    }
    wefti_port_tcp.close(ends[0].port, LIMIT_S * 1000);
    ends[0].port = NULL;
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[1].lost == 0) {
        assert_true(wefti_clock_ns() < until_ns);
        (void)wefti_port_tcp.progress(ends[1].port);
    }
    while (wefti_port_tcp.progress(ends[1].port)) {
    }
    assert_int_equal(ends[1].lost, 1);
    assert_int_equal(ends[1].arrived, LARGE);
    free(data);
    close_ends(ends);
}

/* Who has not read yet is told by a message of its own that the other end has
 * closed. */
static void test_what_an_end_said_before_it_closed_is_read(void **state)
{
    (void)state;
    enum { SAID = 5, SAID_BYTES = 5000 };
    end *ends = calloc(2, sizeof(*ends));
    address addresses[2][RAILS_MOST];
    unsigned char *data = calloc(1, MOST_BYTES);
    assert_true(ends && data);
    connect_ends(ends, addresses);
    reach_all(ends, 1);
    ends[1].any = true;
    for (uint32_t number = 0; number < SAID; number++) {
        send_one(&ends[0], 1, number, data, SAID_BYTES);
    }
    wefti_port_tcp.close(ends[0].port, LIMIT_S * 1000);
    ends[0].port = NULL;
    for (uint32_t number = 0; number < 3; number++) {
        send_one(&ends[1], 0, number, data, SAID_BYTES);
        (void)poll(NULL, 0, 50); /* for the kernel's answer */
    }
    assert_int_equal(ends[1].arrived, 0);
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    while (ends[1].lost == 0) {
        assert_true(wefti_clock_ns() < until_ns);
        (void)wefti_port_tcp.progress(ends[1].port);
    }
    assert_int_equal(ends[1].lost, 1);
    assert_int_equal(ends[1].arrived, SAID);
    assert_int_equal(wefti_port_tcp.unsent(ends[1].port), 0);
    free(data);
    close_ends(ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_both_ways_come_whole_and_once),
        cmocka_unit_test(test_message_without_its_place_is_dropped),
        cmocka_unit_test(test_nonsense_loses_the_one_who_speaks_it),
        cmocka_unit_test(test_urgent_message_passes_gradients),
        cmocka_unit_test(test_urgent_messages_do_not_starve_others),
        cmocka_unit_test(test_last_message_comes_last_over_all_rails),
        cmocka_unit_test(test_rail_that_the_other_end_lacks_is_not_used),
        cmocka_unit_test(test_end_that_leaves_is_lost_once_after_its_messages),
        cmocka_unit_test(test_what_an_end_said_before_it_closed_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
