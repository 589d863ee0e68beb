/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    the server of a rendezvous sends each wrong member its answer and
 *         each job one verdict, and members are not fooled by a false server.
 * Method  ranks join as threads; one rank, or the server, is played by the
 *         test over a raw socket, message by message, so that every moment of
 *         the protocol can be chosen and nothing depends on time.
 */
#include "base/clock.h"
#include "base/error.h"
#include "comm/oob/handover.h"
#include "tests/comm/crowd.h"
#include "tests/comm/raw_peer.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A job of three: ranks 0 and 1 are threads, rank 2 is raw and has joined. */
typedef struct scene {
    weft_unique_id id;
    crowd all;
    raw_peer raw;
} scene;

static void scene_begin(scene *s)
{
    assert_int_equal(weft_unique_id_create(&s->id), WEFT_OK);
    crowd_init(&s->all, 3, &s->id);
    s->all.ranks[2].absent = true;
    raw_join(&s->raw, &s->id, 2, 3);
    assert_int_equal(s->raw.message.kind, WEFTI_OOB_ACCEPTED);
}

static void receive_welcome(scene *s)
{
    assert_true(raw_hear(s->raw.fd, &s->raw.session, &s->raw.message));
    assert_int_equal(s->raw.message.kind, WEFTI_OOB_WELCOME);
}

/* From the welcome's job key. */
static wefti_tokens tokens_of(scene *s)
{
    unsigned char job_key[WEFTI_JOB_KEY_BYTES];
    assert_true(wefti_oob_session_unbox(
        &s->raw.session, s->raw.message.as.welcome.box, job_key));
    return wefti_handover_tokens(job_key, 2);
}

/* The raw rank does all that a member has to do. */
static void complete(scene *s)
{
    const wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
    int memory_fd;
    const char *call;
    receive_welcome(s);
    wefti_tokens tokens = tokens_of(s);
    assert_int_equal(wefti_handover_fetch(s->raw.message.as.welcome.socket_name,
                                          2, &tokens, INT64_MAX, -1, &memory_fd,
                                          &call),
                     WEFTI_OUTCOME_COMPLETE);
    close(memory_fd);
    raw_say(s->raw.fd, &s->raw.session, &report);
    assert_true(raw_hear(s->raw.fd, &s->raw.session, &s->raw.message));
    assert_int_equal(s->raw.message.kind, WEFTI_OOB_VERDICT);
    assert_int_equal(s->raw.message.as.verdict.status, WEFT_OK);
}

static void receive_verdict(scene *s, const char *text)
{
    assert_true(raw_hear(s->raw.fd, &s->raw.session, &s->raw.message));
    assert_int_equal(s->raw.message.kind, WEFTI_OOB_VERDICT);
    assert_int_equal(s->raw.message.as.verdict.status, WEFT_ERR_BOOTSTRAP);
    assert_non_null(strstr(s->raw.message.as.verdict.text, text));
}

static void scene_end(scene *s, weft_status status, const char *text)
{
    crowd_wait(&s->all);
    for (int i = 0; i < 2; i++) {
        if (s->all.ranks[i].status != status ||
            (text && !strstr(s->all.ranks[i].text, text))) {
            print_message("rank %d: %s\n", i, s->all.ranks[i].text);
        }
        assert_int_equal(s->all.ranks[i].status, status);
        assert_true(!text || strstr(s->all.ranks[i].text, text));
    }
    crowd_fini(&s->all);
    if (s->raw.fd >= 0) {
        close(s->raw.fd);
    }
}

/* It is a rank of the job and will not come: all have its reason. */
static void test_rendezvous_second_of_a_rank_is_refused(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    const wefti_bootstrap_request again = {.id = &s.id,
                                           .rank = 2,
                                           .nranks = 3,
                                           .warn_ms = 10000,
                                           .timeout_ms = 20000};
    wefti_membership membership;
    assert_int_equal(wefti_bootstrap_join(&again, &membership),
                     WEFT_ERR_BOOTSTRAP);
    assert_non_null(strstr(weft_error_text(), "already joined as rank 2"));
    crowd_start(&s.all);
    receive_verdict(&s, "already joined as rank 2");
    scene_end(&s, WEFT_ERR_BOOTSTRAP, "already joined as rank 2");
}

static void test_rendezvous_other_job_size_is_refused(void **state)
{
    static const struct {
        uint32_t rank, nranks;
        const char *text;
    } wrong[] = {
        {1, 4, "rank 1 says nranks 4, but this job at"},
        {3, 3, "rank 3: allowed is 0..2"},
        {0, 4097, "nranks 4097: allowed is 1..4096"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        scene s;
        raw_peer other;
        scene_begin(&s);
        raw_join(&other, &s.id, wrong[i].rank, wrong[i].nranks);
        assert_int_equal(other.message.kind, WEFTI_OOB_VERDICT);
        assert_int_equal(other.message.as.verdict.status, WEFT_ERR_BOOTSTRAP);
        assert_non_null(strstr(other.message.as.verdict.text, wrong[i].text));
        assert_false(raw_hear(other.fd, NULL, &other.message));
        close(other.fd);
        crowd_start(&s.all);
        receive_verdict(&s, wrong[i].text);
        scene_end(&s, WEFT_ERR_BOOTSTRAP, wrong[i].text);
    }
}

static void test_rendezvous_wrong_secret_is_refused_alone(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    weft_unique_id forged = s.id;
    forged.bytes[20] ^= 1;
    const wefti_bootstrap_request request = {.id = &forged,
                                             .rank = 1,
                                             .nranks = 3,
                                             .warn_ms = 10000,
                                             .timeout_ms = 20000};
    wefti_membership membership;
    char address[40];
    assert_int_equal(wefti_bootstrap_join(&request, &membership),
                     WEFT_ERR_BOOTSTRAP);
    snprintf(address, sizeof(address), "127.0.0.1:%d", raw_id_port(&s.id));
    assert_non_null(strstr(weft_error_text(), address));
    assert_non_null(strstr(weft_error_text(), "the secret differs"));
    crowd_start(&s.all);
    complete(&s);
    scene_end(&s, WEFT_OK, NULL);
}

static void test_rendezvous_other_version_is_answered_and_dropped(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    wefti_oob_message message = {.kind = WEFTI_OOB_HELLO};
    message.as.hello.version = wefti_version_own();
    message.as.hello.version.minor++;
    int fd = raw_connect(raw_id_port(&s.id));
    raw_say(fd, NULL, &message);
    assert_true(raw_hear(fd, NULL, &message));
    assert_int_equal(message.kind, WEFTI_OOB_CHALLENGE);
    assert_true(wefti_version_is_own(message.as.hello.version));
    assert_false(raw_hear(fd, NULL, &message));
    close(fd);
    crowd_start(&s.all);
    complete(&s);
    scene_end(&s, WEFT_OK, NULL);
}

static void test_rendezvous_member_that_leaves_is_named(void **state)
{
    (void)state;
    for (int handover = 0; handover < 2; handover++) {
        scene s;
        scene_begin(&s);
        if (handover) {
            crowd_start(&s.all);
            receive_welcome(&s);
        }
        close(s.raw.fd);
        s.raw.fd = -1;
        if (!handover) {
            crowd_start(&s.all); /* too late, and answered so */
        }
        scene_end(&s, WEFT_ERR_BOOTSTRAP, "rank 2 left during bootstrap");
    }
}

static void test_rendezvous_member_that_left_is_named_to_waiters(void **state)
{
    (void)state;
    scene s;
    raw_peer other;
    scene_begin(&s);
    raw_join(&other, &s.id, 0, 3);
    assert_int_equal(other.message.kind, WEFTI_OOB_ACCEPTED);
    close(s.raw.fd);
    assert_true(raw_hear(other.fd, &other.session, &other.message));
    assert_int_equal(other.message.kind, WEFTI_OOB_VERDICT);
    assert_int_equal(other.message.as.verdict.status, WEFT_ERR_BOOTSTRAP);
    assert_string_equal(other.message.as.verdict.text,
                        "rank 2 left during bootstrap");
    close(other.fd);
}

static void test_rendezvous_member_that_babbles_is_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        scene s;
        scene_begin(&s);
        wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
        crowd_start(&s.all);
        receive_welcome(&s);
        if (kind == 0) {
            raw_send(s.raw.fd, "GET / HTTP/1.1\r\n\r\n", 18);
        } else if (kind == 1) { /* not sealed */
            raw_say(s.raw.fd, NULL, &report);
        } else { /* sealed, but as if one had been sent before */
            s.raw.session.sent_count++;
            raw_say(s.raw.fd, &s.raw.session, &report);
        }
        scene_end(&s, WEFT_ERR_BOOTSTRAP,
                  "rank 2 sent what is no message of a bootstrap");
    }
}

static void test_rendezvous_report_of_trouble_reaches_all(void **state)
{
    static const struct {
        wefti_oob_message_report report;
        weft_status status;
        const char *text;
    } cases[] = {
        {{WEFTI_OUTCOME_UNREACHABLE, 0, ECONNREFUSED},
         WEFT_ERR_BOOTSTRAP,
         "rank 2 does not reach the memory of rank 0"},
        {{WEFTI_OUTCOME_REFUSED, 1, 0},
         WEFT_ERR_BOOTSTRAP,
         "rank 1 may not have the memory of rank 2"},
        {{WEFTI_OUTCOME_GONE, 1, ESRCH},
         WEFT_ERR_BOOTSTRAP,
         "rank 1 left during bootstrap"},
        {{WEFTI_OUTCOME_SYSTEM, 0, EMFILE},
         WEFT_ERR_SYSTEM,
         "rank 2 cannot take the descriptors of the job: Too many open files"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scene s;
        scene_begin(&s);
        crowd_start(&s.all);
        receive_welcome(&s);
        const wefti_oob_message report = {.kind = WEFTI_OOB_REPORT,
                                          .as.report = cases[i].report};
        raw_say(s.raw.fd, &s.raw.session, &report);
        scene_end(&s, cases[i].status, cases[i].text);
    }
}

static void test_rendezvous_wrong_claim_gets_nothing(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    crowd_start(&s.all);
    receive_welcome(&s);
    wefti_tokens wrong = tokens_of(&s);
    int memory_fd = -1;
    const char *call;
    wrong.claim[0] ^= 1;
    assert_int_not_equal(
        wefti_handover_fetch(s.raw.message.as.welcome.socket_name, 2, &wrong,
                             wefti_clock_ns() + 50000000, -1, &memory_fd,
                             &call),
        WEFTI_OUTCOME_COMPLETE);
    assert_int_equal(memory_fd, -1);
    /* The right one, from a server that cannot prove itself. */
    wrong = tokens_of(&s);
    wrong.answer[0] ^= 1;
    assert_int_equal(wefti_handover_fetch(
                         s.raw.message.as.welcome.socket_name, 2, &wrong,
                         wefti_clock_ns() + 50000000, -1, &memory_fd, &call),
                     WEFTI_OUTCOME_SYSTEM);
    assert_int_equal(errno, EPROTO);
    assert_string_equal(call, "recvmsg");
    const wefti_oob_message report = {.kind = WEFTI_OOB_REPORT};
    raw_say(s.raw.fd, &s.raw.session, &report);
    scene_end(&s, WEFT_OK, NULL);
}

static void test_rendezvous_closes_after_the_bootstrap(void **state)
{
    (void)state;
    char line[256];
    scene s;
    scene_begin(&s);
    crowd_start(&s.all);
    complete(&s);
    scene_end(&s, WEFT_OK, NULL);
    assert_int_equal(raw_connect(raw_id_port(&s.id)), -1);
    char name[48] = "@weft-";
    for (int i = 0; i < WEFTI_SOCKET_NAME_BYTES; i++) {
        snprintf(name + 6 + 2 * i, 3, "%02x",
                 s.raw.message.as.welcome.socket_name[i]);
    }
    FILE *sockets = fopen("/proc/net/unix", "r");
    assert_non_null(sockets);
    while (fgets(line, sizeof(line), sockets)) {
        assert_null(strstr(line, name));
    }
    fclose(sockets);
}

static void test_rendezvous_no_rank_comes_it_closes_in_time(void **state)
{
    (void)state;
    weft_unique_id id;
    setenv("WEFT_TIMEOUT_MS", "200", 1);
    assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
    unsetenv("WEFT_TIMEOUT_MS");
    const int64_t until_ns = wefti_clock_ns() + INT64_C(10000000000);
    int fd;
    while ((fd = raw_connect(raw_id_port(&id))) >= 0) {
        close(fd);
        assert_true(wefti_clock_ns() < until_ns);
        (void)poll(NULL, 0, 5);
    }
    crowd all;
    crowd_init(&all, 2, &id);
    crowd_join(&all);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(all.ranks[i].status, WEFT_ERR_BOOTSTRAP);
        assert_non_null(strstr(all.ranks[i].text, "closed"));
    }
}

/* A server that is none: answers the first message it receives, then waits. */
typedef struct false_server {
    int listen_fd;
    int port;
    int script; /* see run_false_server */
    pthread_t thread;
} false_server;

static void *run_false_server(void *argument)
{
    false_server *server = argument;
    wefti_oob_message message;
    int fd = accept(server->listen_fd, NULL, NULL);
    raw_require(raw_hear(fd, NULL, &message));
    message.kind = WEFTI_OOB_CHALLENGE;
    if (server->script == 0) { /* another version */
        message.as.hello.version.major++;
        raw_say(fd, NULL, &message);
    } else if (server->script == 1) { /* something else */
        raw_send(fd, "220 mail.example ESMTP\r\n", 24);
    } else { /* pretends to know the secret */
        const wefti_oob_message accepted = {.kind = WEFTI_OOB_ACCEPTED};
        raw_say(fd, NULL, &message);
        raw_require(raw_hear(fd, NULL, &message));
        raw_say(fd, NULL, &accepted);
    }
    (void)raw_hear(fd, NULL, &message);
    close(fd);
    return NULL;
}

static void test_rendezvous_false_server_is_seen_through(void **state)
{
    static const char *const texts[] = {"all ranks must run the same version",
                                        "does not speak as weft's rendezvous",
                                        "does not prove that it knows"};
    (void)state;
    for (int script = 0; script < 3; script++) {
        false_server server = {.script = script};
        struct sockaddr_in address = {.sin_family = AF_INET};
        socklen_t bytes = sizeof(address);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        server.listen_fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(
            bind(server.listen_fd, (struct sockaddr *)&address, bytes), 0);
        assert_int_equal(listen(server.listen_fd, 4), 0);
        getsockname(server.listen_fd, (struct sockaddr *)&address, &bytes);
        weft_unique_id id;
        assert_int_equal(weft_unique_id_create(&id), WEFT_OK);
        memcpy(&id.bytes[47], &address.sin_port, 2); /* see unique_id.c */
        pthread_create(&server.thread, NULL, run_false_server, &server);
        const wefti_bootstrap_request request = {
            .id = &id, .nranks = 2, .warn_ms = 10000, .timeout_ms = 20000};
        wefti_membership membership;
        assert_int_equal(wefti_bootstrap_join(&request, &membership),
                         WEFT_ERR_BOOTSTRAP);
        assert_non_null(strstr(weft_error_text(), texts[script]));
        pthread_join(server.thread, NULL);
        close(server.listen_fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rendezvous_second_of_a_rank_is_refused),
        cmocka_unit_test(test_rendezvous_other_job_size_is_refused),
        cmocka_unit_test(test_rendezvous_wrong_secret_is_refused_alone),
        cmocka_unit_test(test_rendezvous_other_version_is_answered_and_dropped),
        cmocka_unit_test(test_rendezvous_member_that_leaves_is_named),
        cmocka_unit_test(test_rendezvous_member_that_left_is_named_to_waiters),
        cmocka_unit_test(test_rendezvous_member_that_babbles_is_named),
        cmocka_unit_test(test_rendezvous_report_of_trouble_reaches_all),
        cmocka_unit_test(test_rendezvous_wrong_claim_gets_nothing),
        cmocka_unit_test(test_rendezvous_closes_after_the_bootstrap),
        cmocka_unit_test(test_rendezvous_no_rank_comes_it_closes_in_time),
        cmocka_unit_test(test_rendezvous_false_server_is_seen_through),
    };
    /* Servers that these tests leave waiting end soon after. */
    setenv("WEFT_TIMEOUT_MS", "20000", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
