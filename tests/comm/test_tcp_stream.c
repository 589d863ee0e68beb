/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: who receives over a TCP connection asks to be woken for whole messages,
 * not for packets, and never for bytes that do not come.
 * Method: packets are kept back until there are as many bytes as the stream has
 * asked the kernel to wait for, which is a wake-up; then it reads them, through
 * a pair of sockets. No clock and no network. What is expected is drawn, with a
 * printed seed: it may be any message that comes, whatever comes before it.
 * Whether enough is left to send, the kernel says of a TCP connection over the
 * loopback whose reader does not read. Whose data a sender has lent may change
 * them once they are sent, or given back: they are, and must arrive as they
 * were. And what cannot be a frame, or a piece of a message, is refused: each
 * said once.
 */
#include "comm/net/tcp_stream.h"

#include "tests/seed.h"

#include <errno.h>
#include <netinet/in.h>
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
    PACKET = 60 << 10, /* as an emulated link has them */
    PIECE = 32 << 10,  /* that a pair of sockets takes for sure */
    MOST_BYTES = 500 << 10,
    LENT_BYTES = 480 << 10
};

/* What stands before a message's data. */
typedef struct head {
    wefti_tcp_frame frame;
    uint64_t number;
} head;

/* A stream, what it has delivered, and the socket that it reads from. */
typedef struct reader {
    wefti_tcp_stream stream;
    wefti_port_config config;
    int fd;
    unsigned char place[MOST_BYTES];
    uint64_t arrived;
    bool wrong;
} reader;

static unsigned char byte_at(uint64_t number, size_t at)
{
    return (unsigned char)(number * 31 + at * 7 + at / 251);
}

static void *place(void *context, const void *header, size_t header_bytes,
                   size_t data_bytes)
{
    (void)header;
    assert_int_equal(header_bytes, sizeof(uint64_t));
    assert_in_range(data_bytes, 0, MOST_BYTES);
    return ((reader *)context)->place;
}

static void arrived(void *context, const void *header, size_t header_bytes,
                    const void *data, size_t data_bytes)
{
    reader *self = context;
    const unsigned char *bytes = data;
    uint64_t number;
    assert_int_equal(header_bytes, sizeof(number));
    memcpy(&number, header, sizeof(number));
    self->wrong |= number != self->arrived++;
    for (size_t i = 0; i < data_bytes; i++) {
        self->wrong |= bytes[i] != byte_at(number, i);
    }
}

/* Messages that were all queued at once. */
static unsigned char *write_messages(size_t count, size_t bytes)
{
    const size_t whole_bytes = sizeof(head) + bytes;
    unsigned char *all = malloc(count * whole_bytes);
    assert_non_null(all);
    for (size_t i = 0; i < count; i++) {
        unsigned char *at = all + i * whole_bytes;
        const head before = {
            .frame = {.header_bytes = sizeof(before.number),
                      .data_bytes = (uint32_t)bytes,
                      .all_bytes = (uint32_t)bytes,
                      .behind_bytes = (count - 1 - i) * whole_bytes},
            .number = i};
        memcpy(at, &before, sizeof(before));
        for (size_t k = 0; k < bytes; k++) {
            at[sizeof(before) + k] = byte_at(i, k);
        }
    }
    return all;
}

static void hand_over(wefti_tcp_stream *stream, int fd,
                      const unsigned char *bytes, size_t count)
{
    for (size_t sent = 0; sent < count; sent += PIECE) {
        const size_t now = count - sent < PIECE ? count - sent : PIECE;
        assert_int_equal(send(fd, bytes + sent, now, MSG_NOSIGNAL), now);
        assert_int_equal(wefti_tcp_stream_read(stream), WEFTI_TCP_MOVED);
    }
}

static reader *open_reader(void)
{
    reader *self = calloc(1, sizeof(*self));
    int fds[2];
    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    self->config = (wefti_port_config){
        .context = self, .place = place, .arrived = arrived};
    wefti_tcp_stream_init(&self->stream, &self->config, NULL);
    self->stream.fd = fds[0];
    self->fd = fds[1];
    return self;
}

static void close_reader(reader *self)
{
    wefti_tcp_stream_fini(&self->stream);
    close(self->fd);
    free(self);
}

/* How often the reader of these messages is woken. */
static int count_wakeups(size_t messages, size_t bytes)
{
    const size_t all_bytes = messages * (sizeof(head) + bytes);
    unsigned char *all = write_messages(messages, bytes);
    reader *self = open_reader();
    wefti_tcp_stream *stream = &self->stream;
    int wakeups = 0;
    size_t read = 0;
    for (size_t come = 0; come < all_bytes;) {
        come += all_bytes - come < PACKET ? all_bytes - come : PACKET;
        if (come - read >= stream->lowat) {
            wakeups++;
            hand_over(stream, self->fd, all + read, come - read);
            read = come;
        }
    }
    assert_int_equal(read, all_bytes); /* it does not wait for more */
    assert_int_equal(self->arrived, messages);
    assert_false(self->wrong);
    assert_int_equal(stream->lowat, 1);
    close_reader(self);
    free(all);
    return wakeups;
}

/* Says that so many messages, of sizes[i] bytes each, are needed. */
static void expect(wefti_tcp_stream *stream, const size_t *sizes, size_t count)
{
    wefti_port_expected expected = {.messages = count};
    for (size_t i = 0; i < count; i++) {
        expected.bytes += sizeof(uint64_t) + sizes[i];
    }
    wefti_tcp_stream_expect(stream, &expected);
}

/* The message as it comes when nothing is queued behind it; its bytes. */
static size_t write_alone(uint64_t number, size_t bytes, unsigned char *at)
{
    const head before = {.frame = {.header_bytes = sizeof(before.number),
                                   .data_bytes = (uint32_t)bytes,
                                   .all_bytes = (uint32_t)bytes},
                         .number = number};
    memcpy(at, &before, sizeof(before));
    for (size_t k = 0; k < bytes; k++) {
        at[sizeof(before) + k] = byte_at(number, k);
    }
    return sizeof(before) + bytes;
}

/* What is expected is one wake-up, though no frame has announced it. */
static void test_expected_messages_wake_once(void **state)
{
    (void)state;
    const size_t sizes[2] = {128 << 10, 128 << 10};
    reader *self = open_reader();
    unsigned char *bytes = malloc(MOST_BYTES);
    assert_non_null(bytes);
    const size_t first = write_alone(0, sizes[0], bytes);
    const size_t both = first + write_alone(1, sizes[1], bytes + first);
    expect(&self->stream, sizes, 2);
    assert_int_equal(self->stream.lowat, both);
    expect(&self->stream, sizes, 1);
    assert_int_equal(self->stream.lowat, first);
    /* Read early all the same: what is left counts. */
    hand_over(&self->stream, self->fd, bytes, PIECE);
    assert_int_equal(self->stream.lowat, first - PIECE);
    expect(&self->stream, sizes, 2);
    assert_int_equal(self->stream.lowat, both - PIECE);
    wefti_tcp_stream_hurry(&self->stream);
    assert_int_equal(self->stream.lowat, 1);
    hand_over(&self->stream, self->fd, bytes + PIECE, both - PIECE);
    assert_int_equal(self->arrived, 2);
    assert_int_equal(self->stream.lowat, 1);
    expect(&self->stream, NULL, 0);
    assert_int_equal(self->stream.lowat, 1);
    assert_false(self->wrong);
    free(bytes);
    close_reader(self);
}

enum { DRAWN = 12, DRAWN_MOST = 300000 };

static size_t draw_bytes(uint64_t *seed)
{
    const uint64_t drawn = random_next(seed);
    return drawn % 3 == 0 ? drawn / 3 % 200 : drawn / 3 % DRAWN_MOST;
}

/* The place of the message after next_of that is needed; its end. */
static size_t need_one(reader *self, const size_t *sizes, const size_t *ends,
                       uint64_t *seed)
{
    const size_t next = (size_t)self->arrived;
    const size_t needed = next + random_next(seed) % (DRAWN - next);
    expect(&self->stream, sizes + needed, 1);
    return ends[needed];
}

/*
 * Whatever comes before it, and however it has been read: once a message that
 * is needed is there whole, the reader is awake.
 */
static void try_drawn(uint64_t *seed)
{
    reader *self = open_reader();
    size_t sizes[DRAWN], ends[DRAWN], all = 0, read = 0;
    unsigned char *bytes = malloc(DRAWN * (sizeof(head) + (size_t)DRAWN_MOST));
    assert_non_null(bytes);
    for (size_t i = 0; i < DRAWN; i++) {
        sizes[i] = draw_bytes(seed);
        all += write_alone(i, sizes[i], bytes + all);
        ends[i] = all;
    }
    size_t needed = need_one(self, sizes, ends, seed);
    for (size_t come = 0; come < all;) {
        const size_t more = 1 + random_next(seed) % PACKET;
        come += all - come < more ? all - come : more;
        if (come - read >= self->stream.lowat) {
            hand_over(&self->stream, self->fd, bytes + read, come - read);
            read = come;
        }
        if (come >= needed) {
            assert_int_equal(read, come);
            needed = come < all ? need_one(self, sizes, ends, seed) : needed;
        }
    }
    assert_int_equal(self->arrived, DRAWN);
    assert_false(self->wrong);
    free(bytes);
    close_reader(self);
}

static void test_expected_is_never_more_than_comes(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int i = 0; i < 60; i++) {
        try_drawn(&seed);
    }
}

/* A connection over the loopback. */
static void connect_pair(int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int listens = socket(AF_INET, SOCK_STREAM, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listens >= 0 && fds[0] >= 0);
    assert_int_equal(bind(listens, (const void *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listens, 1), 0);
    assert_int_equal(getsockname(listens, (void *)&at, &bytes), 0);
    assert_int_equal(connect(fds[0], (const void *)&at, sizeof(at)), 0);
    fds[1] = accept(listens, NULL, NULL);
    assert_true(fds[1] >= 0);
    close(listens);
}

static bool is_writable(int fd)
{
    struct pollfd news = {.fd = fd, .events = POLLOUT};
    return poll(&news, 1, 0) == 1;
}

/* A rank that needs its peer's word to send more waits for whole messages only
 * while the kernel has enough to send, and is told when it has not. */
static void test_blocked_waits_while_there_is_enough_to_send(void **state)
{
    (void)state;
    static unsigned char bytes[1 << 20];
    reader *self = calloc(1, sizeof(*self));
    const wefti_port_expected blocked = {
        .messages = 1, .bytes = 128 << 10, .blocked = true};
    const int small = 64 << 10;
    int fds[2];
    assert_non_null(self);
    connect_pair(fds);
    assert_int_equal(
        setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    self->config = (wefti_port_config){
        .context = self, .place = place, .arrived = arrived};
    wefti_tcp_stream_init(&self->stream, &self->config, NULL);
    self->stream.fd = fds[0];
    wefti_tcp_stream_expect(&self->stream, &blocked);
    assert_int_equal(self->stream.lowat, 1);
    assert_false(self->stream.drains);
    size_t sent = 0;
    for (ssize_t took;
         (took = send(fds[0], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;) {
        sent += (size_t)took;
    }
    wefti_tcp_stream_expect(&self->stream, &blocked);
    assert_true(self->stream.drains);
    assert_true(self->stream.lowat > 128 << 10);
    assert_false(is_writable(fds[0]));
    while (sent > 0) {
        const ssize_t got = recv(fds[1], bytes, sizeof(bytes), 0);
        assert_true(got > 0);
        sent -= (size_t)got;
    }
    assert_true(is_writable(fds[0]));
    wefti_tcp_stream_expect(&self->stream, &blocked);
    assert_false(self->stream.drains);
    assert_int_equal(self->stream.lowat, 1);
    wefti_tcp_stream_fini(&self->stream);
    close(fds[1]);
    free(self);
}

/* The first finds out what comes. */
static void test_wakeups_are_few(void **state)
{
    (void)state;
    static const struct {
        size_t messages, bytes;
        int wakeups;
    } cases[] = {{1, 64 << 10, 2},  {1, 128 << 10, 2}, {4, 128 << 10, 3},
                 {8, 128 << 10, 5}, {4, 64 << 10, 3},  {16, 64 << 10, 6},
                 {2, 500 << 10, 5}, {3, 10 << 10, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int wakeups = count_wakeups(cases[i].messages, cases[i].bytes);
        print_message("%zu of %zu bytes: %d wake-ups\n", cases[i].messages,
                      cases[i].bytes, wakeups);
        assert_int_equal(wakeups, cases[i].wakeups);
    }
}

/* Any number of messages of any size is read to its end. */
static void test_nothing_is_waited_for_that_does_not_come(void **state)
{
    (void)state;
    for (size_t messages = 1; messages <= 5; messages++) {
        for (size_t bytes = 1; bytes <= MOST_BYTES; bytes = bytes * 5 + 3) {
            assert_in_range(count_wakeups(messages, bytes), 1,
                            messages * (sizeof(head) + bytes) / PACKET + 1);
        }
    }
}

/* What a stream makes of one frame, with room for pieces or without. */
static wefti_tcp_result read_frame(const wefti_tcp_frame *frame, bool cuts)
{
    reader *self = calloc(1, sizeof(*self));
    wefti_tcp_stream *stream = malloc(sizeof(*stream));
    wefti_tcp_pieces pieces = {.count = 0};
    unsigned char words[sizeof(*frame) + sizeof(uint64_t)] = {0};
    int fds[2];
    assert_true(self && stream);
    const wefti_port_config config = {
        .context = self, .place = place, .arrived = arrived};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    wefti_tcp_stream_init(stream, &config, cuts ? &pieces : NULL);
    stream->fd = fds[0];
    memcpy(words, frame, sizeof(*frame));
    assert_int_equal(send(fds[1], words, sizeof(words), MSG_NOSIGNAL),
                     sizeof(words));
    const wefti_tcp_result result = wefti_tcp_stream_read(stream);
    assert_true(result != WEFTI_TCP_BROKEN || errno == EPROTO);
    wefti_tcp_stream_fini(stream);
    wefti_tcp_pieces_fini(&pieces);
    close(fds[1]);
    free(stream);
    free(self);
    return result;
}

static void test_frames_that_cannot_be_are_refused(void **state)
{
    (void)state;
    enum { HEAD = sizeof(uint64_t), MOST = WEFTI_TCP_DATA_MOST };
    static const struct {
        wefti_tcp_frame frame;
        bool cuts, good;
    } cases[] = {
        {{HEAD, 100, 0, 0, 100, 0}, false, true},
        {{HEAD, 100, 0, 1, 200, 0}, true, true},
        {{HEAD, 100, 0, 1, 200, 100}, true, true},
        {{HEAD, 0, 0, 5, 0, WEFTI_TCP_BEGIN_LAST}, true, true},
        {{HEAD, 100, 0, 1, 200, 0}, false, false}, /* nobody cuts here */
        {{HEAD, 0, 0, 5, 0, WEFTI_TCP_BEGIN_LAST}, false, false},
        {{HEAD, 100, 0, 0, 200, 0}, true, false}, /* no number */
        {{HEAD, 100, 0, 1, 200, 101}, true, false},
        {{HEAD, 100, 0, 1, 99, 0}, true, false},
        {{HEAD, 100, 0, 1, 200, -2}, true, false},
        {{HEAD, 1, 0, 5, 1, WEFTI_TCP_BEGIN_LAST}, true, false},
        {{HEAD, 100, 0, 1, MOST + 1, 0}, true, false},
        {{HEAD, 100, 0, 1, 200, INT32_MAX}, true, false},
        {{200, 100, 0, 0, 100, 0}, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        print_message("frame %zu\n", i);
        assert_int_equal(read_frame(&cases[i].frame, cases[i].cuts),
                         cases[i].good ? WEFTI_TCP_MOVED : WEFTI_TCP_BROKEN);
    }
}

/* The numbered message of 200 bytes: what is said of it must agree. */
static void test_pieces_of_one_message_must_agree(void **state)
{
    (void)state;
    wefti_tcp_pieces pieces = {.count = 0};
    const wefti_port_config config = {.arrived = arrived};
    wefti_tcp_whole *whole = wefti_tcp_pieces_find(&pieces, 1, 200);
    assert_non_null(whole);
    assert_ptr_equal(wefti_tcp_pieces_find(&pieces, 1, 200), whole);
    assert_null(wefti_tcp_pieces_find(&pieces, 1, 201));
    assert_int_equal(errno, EPROTO);
    wefti_tcp_whole *other = wefti_tcp_pieces_find(&pieces, 2, 300);
    assert_non_null(other);
    wefti_tcp_pieces_end(&pieces, whole, &config);
    assert_ptr_equal(wefti_tcp_pieces_find(&pieces, 2, 300), other);
    wefti_tcp_pieces_end(&pieces, other, &config);
    assert_int_equal(pieces.done, 2);
    assert_int_equal(pieces.count, 0);
    wefti_tcp_pieces_fini(&pieces);
}

/* Two of `lent` and one of another between them, more than the kernel takes. */
static void queue_lent(wefti_tcp_stream *stream, unsigned char *data[3],
                       size_t *lent, size_t *other)
{
    for (uint64_t number = 0; number < 3; number++) {
        data[number] = malloc(LENT_BYTES);
        assert_non_null(data[number]);
        for (size_t k = 0; k < LENT_BYTES; k++) {
            data[number][k] = byte_at(number, k);
        }
        const wefti_port_message message = {.header = &number,
                                            .header_bytes = sizeof(number),
                                            .data = data[number],
                                            .data_bytes = LENT_BYTES,
                                            .lent = number == 1 ? other : lent};
        const wefti_tcp_part part = {.bytes = LENT_BYTES};
        assert_true(wefti_tcp_stream_put(stream, &message, &part));
    }
    while (wefti_tcp_stream_flush(stream) == WEFTI_TCP_MOVED && stream->first &&
           !stream->full) {
    }
    assert_true(stream->full);
}

static void test_lent_data_are_read_until_sent_or_given_back(void **state)
{
    (void)state;
    reader *self = open_reader();
    wefti_tcp_stream sender;
    unsigned char *data[3];
    size_t lent = 0, other = 0;
    wefti_tcp_stream_init(&sender, &self->config, NULL);
    sender.fd = self->fd;
    queue_lent(&sender, data, &lent, &other);
    assert_int_equal(lent, 2);
    assert_int_equal(other, 1);
    assert_true(wefti_tcp_stream_give_back(&sender, &lent));
    assert_int_equal(lent, 0);
    assert_int_equal(other, 1);
    memset(data[0], 0xa5, LENT_BYTES);
    free(data[2]);
    while (self->arrived < 2) {
        assert_int_equal(wefti_tcp_stream_read(&self->stream), WEFTI_TCP_MOVED);
        assert_int_not_equal(wefti_tcp_stream_flush(&sender), WEFTI_TCP_BROKEN);
    }
    assert_int_equal(other, 0);
    while (self->arrived < 3) {
        assert_int_equal(wefti_tcp_stream_read(&self->stream), WEFTI_TCP_MOVED);
        assert_int_not_equal(wefti_tcp_stream_flush(&sender), WEFTI_TCP_BROKEN);
    }
    assert_false(self->wrong);
    free(data[0]);
    free(data[1]);
    sender.fd = -1; /* the reader's to close */
    wefti_tcp_stream_fini(&sender);
    close_reader(self);
}

static void test_lent_data_are_free_when_the_stream_ends(void **state)
{
    (void)state;
    reader *self = open_reader();
    wefti_tcp_stream sender;
    unsigned char *data[3];
    size_t lent = 0, other = 0;
    wefti_tcp_stream_init(&sender, &self->config, NULL);
    sender.fd = self->fd;
    queue_lent(&sender, data, &lent, &other);
    sender.fd = -1;
    wefti_tcp_stream_fini(&sender);
    assert_int_equal(lent, 0);
    assert_int_equal(other, 0);
    for (int i = 0; i < 3; i++) {
        free(data[i]);
    }
    close_reader(self);
}

/* What is hidden by a low mark is worth a read once it is much. */
static void test_hidden_bytes_count_once_they_are_many(void **state)
{
    (void)state;
    const size_t bytes = 400 << 10;
    unsigned char *all = write_messages(1, bytes);
    reader *self = open_reader();
    const wefti_port_expected expected = {.messages = 1,
                                          .bytes = sizeof(uint64_t) + bytes};
    wefti_tcp_stream_expect(&self->stream, &expected);
    assert_int_equal(send(self->fd, all, PIECE, MSG_NOSIGNAL), PIECE);
    assert_false(wefti_tcp_stream_hides_much(&self->stream));
    assert_int_equal(send(self->fd, all + PIECE, PIECE, MSG_NOSIGNAL), PIECE);
    assert_true(wefti_tcp_stream_hides_much(&self->stream));
    assert_int_equal(wefti_tcp_stream_read(&self->stream), WEFTI_TCP_MOVED);
    assert_false(wefti_tcp_stream_hides_much(&self->stream));
    hand_over(&self->stream, self->fd, all + 2 * PIECE,
              sizeof(head) + bytes - 2 * PIECE);
    assert_int_equal(self->arrived, 1);
    assert_false(self->wrong);
    close_reader(self);
    free(all);
}

/* Of what others may have to pass, the kernel is given little; not of them. */
static void test_kernel_has_little_of_what_may_be_passed(void **state)
{
    (void)state;
    static unsigned char data[16 << 10];
    const wefti_port_config config = {.rails = 1};
    wefti_tcp_stream stream;
    int fds[2];
    connect_pair(fds);
    wefti_tcp_stream_init(&stream, &config, NULL);
    stream.fd = fds[0];
    const wefti_tcp_part part = {.bytes = sizeof(data)};
    wefti_port_message message = {
        .header = data, .data = data, .data_bytes = sizeof(data)};
    for (int i = 0; i < 4; i++) { /* urgent ones from the second on */
        message.urgent = i % 2;
        assert_true(wefti_tcp_stream_put(&stream, &message, &part));
        (void)wefti_tcp_stream_flush(&stream);
        assert_int_equal(stream.bound_bytes, i == 2 ? 256 << 10 : 0);
    }
    wefti_tcp_stream_fini(&stream);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakeups_are_few),
        cmocka_unit_test(test_lent_data_are_read_until_sent_or_given_back),
        cmocka_unit_test(test_lent_data_are_free_when_the_stream_ends),
        cmocka_unit_test(test_hidden_bytes_count_once_they_are_many),
        cmocka_unit_test(test_nothing_is_waited_for_that_does_not_come),
        cmocka_unit_test(test_frames_that_cannot_be_are_refused),
        cmocka_unit_test(test_pieces_of_one_message_must_agree),
        cmocka_unit_test(test_expected_messages_wake_once),
        cmocka_unit_test(test_expected_is_never_more_than_comes),
        cmocka_unit_test(test_blocked_waits_while_there_is_enough_to_send),
        cmocka_unit_test(test_kernel_has_little_of_what_may_be_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
