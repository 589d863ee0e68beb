/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    unauthenticated peers at the rendezvous, however many and whatever
 *         they send, do not keep the members from connecting.
 * Method  1,000 connections, the last 300 of which stay open: silence, half a
 *         message, noise, a length beyond all bounds, a wrong seal, a
 *         conversation recorded before. Half of the ranks join before them, the
 *         others in their midst; all must get the same job, in time.
 */
#include "base/clock.h"
#include "base/error.h"
#include "tests/comm/crowd.h"
#include "tests/comm/raw_peer.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { STRANGERS = 1000, KEPT_OPEN = 300, BEFORE_LATE = 400, KINDS = 7 };

typedef struct flood {
    const weft_unique_id *id;
    uint64_t seed;
    int fds[KEPT_OPEN]; /* ring */
    int sent_count[KINDS];
    int refused_count; /* answered "wrong secret" */
    _Atomic int done_count;
} flood;

static void send_noise(flood *f, int fd)
{
    unsigned char noise[300];
    for (size_t i = 0; i < sizeof(noise); i++) {
        noise[i] = (unsigned char)random_next(&f->seed);
    }
    raw_send(fd, noise, 1 + random_next(&f->seed) % sizeof(noise));
}

static void send_hello_part(flood *f, int fd, bool whole)
{
    unsigned char frame[WEFTI_OOB_FRAME_MOST];
    wefti_oob_message message = {.kind = WEFTI_OOB_HELLO};
    message.as.hello.version = wefti_version_own();
    size_t bytes = wefti_oob_message_encode(&message, frame);
    raw_send(fd, frame, whole ? bytes : 1 + random_next(&f->seed) % bytes);
}

/* A JOIN under a seal that is not of this conversation. */
static int send_wrong_join(flood *f, bool recorded)
{
    const int port = raw_id_port(f->id);
    wefti_secret secret = raw_id_secret(f->id);
    const wefti_oob_message join = raw_join_message(0, 4);
    raw_peer peer;
    if (recorded) {
        /* All of it was right, in an earlier conversation. */
        if (!raw_greet(&peer, port, &secret)) {
            return peer.fd;
        }
        wefti_oob_session session = peer.session;
        close(peer.fd);
        if (!raw_greet(&peer, port, &secret)) {
            return peer.fd;
        }
        peer.session = session;
    } else {
        secret.key[0] ^= 1;
        if (!raw_greet(&peer, port, &secret)) {
            return peer.fd;
        }
    }
    raw_say(peer.fd, &peer.session, &join);
    if (raw_hear(peer.fd, NULL, &peer.message)) {
        raw_require(peer.message.kind == WEFTI_OOB_REFUSAL);
        f->refused_count++;
    }
    return peer.fd;
}

/* One unauthenticated peer of a random kind; its descriptor, or -1. */
static int visit(flood *f)
{
    int kind = (int)(random_next(&f->seed) % KINDS);
    f->sent_count[kind]++;
    if (kind >= 5) {
        return send_wrong_join(f, kind == 5);
    }
    int fd = raw_connect(raw_id_port(f->id));
    if (fd < 0) {
        return -1;
    }
    switch (kind) {
    case 0: /* silence */
        break;
    case 1:
        send_noise(f, fd);
        break;
    case 2:
        send_hello_part(f, fd, false);
        break;
    case 3:
        send_hello_part(f, fd, true);
        break;
    default:
        raw_send(fd, "\xff\xff\xff\x7f\x01", 5);
        break;
    }
    return fd;
}

static void *run_flood(void *argument)
{
    flood *f = argument;
    for (int i = 0; i < STRANGERS; i++) {
        int *place = &f->fds[i % KEPT_OPEN];
        if (*place >= 0) {
            close(*place);
        }
        *place = visit(f);
        atomic_store_explicit(&f->done_count, i + 1, memory_order_release);
    }
    return NULL;
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void test_unauthenticated_peers_do_not_disturb_members(void **state)
{
    (void)state;
    static flood f;
    weft_unique_id id;
    crowd all;
    pthread_t thread;
    raise_descriptor_limit();
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    f.id = &id;
    f.seed = random_seed();
    for (int i = 0; i < KEPT_OPEN; i++) {
        f.fds[i] = -1;
    }
    crowd_init(&all, 5, &id);
    /* The last rank keeps the bootstrap open until all unauthenticated peers
     * were here. */
    for (int i = 2; i < 5; i++) {
        all.ranks[i].absent = true;
    }
    crowd_start(&all);
    assert_int_equal(pthread_create(&thread, NULL, run_flood, &f), 0);
    for (int late = 2; late < 5; late++) {
        const int from = late < 4 ? (late - 1) * BEFORE_LATE : STRANGERS;
        while (atomic_load_explicit(&f.done_count, memory_order_acquire) <
               from) {
            sched_yield();
        }
        all.ranks[late].absent = false;
        pthread_create(&all.ranks[late].thread, NULL, crowd_run,
                       &all.ranks[late]);
    }
    crowd_wait(&all);
    pthread_join(thread, NULL);
    for (int i = 0; i < 5; i++) {
        if (all.ranks[i].status != WEFT_OK) {
            print_message("rank %d: %s\n", i, all.ranks[i].text);
        }
        assert_int_equal(all.ranks[i].status, WEFT_OK);
        assert_memory_equal(all.ranks[i].membership.job_key,
                            all.ranks[0].membership.job_key,
                            WEFTI_JOB_KEY_BYTES);
    }
    crowd_fini(&all);
    print_message("silent %d, noise %d, half a hello %d, hello only %d, "
                  "oversized %d, recorded %d, wrong secret %d; %d refused\n",
                  f.sent_count[0], f.sent_count[1], f.sent_count[2],
                  f.sent_count[3], f.sent_count[4], f.sent_count[5],
                  f.sent_count[6], f.refused_count);
    for (int kind = 0; kind < KINDS; kind++) {
        assert_true(f.sent_count[kind] > 0);
    }
    assert_true(f.refused_count > 0);
    for (int i = 0; i < KEPT_OPEN; i++) {
        if (f.fds[i] >= 0) {
            close(f.fds[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unauthenticated_peers_do_not_disturb_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
