/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whoever scans the ports of ranks, sends them random bytes, keeps a
 * thousand connections open, or greets them as UCX's own peers do, and goes on
 * with noise, changes nothing: operations go on and are exact, also between
 * ranks that connect to each other only then.
 *
 * Method: ranks that share no memory, as processes on this host, send round a
 * ring, and tell in shared memory how far they are. Their ports are read from
 * /proc. Once unauthenticated peers are at work they are told to go on, with
 * everybody.
 */
#include "tests/comm/world.h"
#include "tests/seed.h"

#include "base/clock.h"
#include "base/module.h"
#include "comm/net/port_library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 4,
    PORTS_MOST = 16,
    STRANGERS = 1000,
    ELEMS = 5000,
    ROUNDS = 20, /* before, and after the unauthenticated peers have come */
    NOTICE = 2 * RANKS, /* rounds that a word needs to get round, and more */
    LIMIT_S = 40,
    UCX_KINDS = 35,        /* of messages: of its users, and its own three */
    TCP_LISTEN_STATE = 10, /* in /proc/net/tcp */
    LINE_FIELDS = 14
};

/*
 * What ranks and the test tell each other: how far each is, whether all ranks
 * are to speak to all others, and to end. Each word by itself.
 */
struct slate {
    _Atomic unsigned rounds[RANKS];
    _Atomic bool meet, end;
};

/* From which round on; no rank may learn it later than that. */
struct plan {
    int32_t meet_at, end_at;
};

struct ports {
    struct sockaddr_in at[PORTS_MOST];
    int count;
};

/* What rank 0 has decided goes round with the data, a rank a round. */
static int pass_round(weft_comm *comm, unsigned round, struct plan *plan)
{
    int rank = weft_comm_get_rank(comm);
    int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS;
    int32_t out[ELEMS], in[ELEMS];
    for (int i = 0; i < ELEMS; i++) {
        out[i] = (int32_t)round * 7 + rank * 1000 + i;
        in[i] = -1;
    }
    out[0] = plan->meet_at;
    out[1] = plan->end_at;
    const weft_p2p list[] = {{.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_SEND,
                              .buffer = out,
                              .count = ELEMS,
                              .dtype = WEFT_DTYPE_I32,
                              .peer = next},
                             {.size_bytes = sizeof(weft_p2p),
                              .kind = WEFT_P2P_RECV,
                              .buffer = in,
                              .count = ELEMS,
                              .dtype = WEFT_DTYPE_I32,
                              .peer = before}};
    int failures = weft_p2p_post(list, 2, comm, NULL) != WEFT_OK;
    if (rank > 0 && !failures) {
        *plan = (struct plan){in[0], in[1]};
    }
    for (int i = 2; i < ELEMS; i++) {
        failures += in[i] != (int32_t)round * 7 + before * 1000 + i;
    }
    return failures;
}

static int sum_all(weft_comm *comm, unsigned round)
{
    int32_t data[ELEMS];
    for (int i = 0; i < ELEMS; i++) {
        data[i] = (int32_t)round + i * (weft_comm_get_rank(comm) + 1);
    }
    int failures = weft_allreduce(data, data, ELEMS, WEFT_DTYPE_I32,
                                  WEFT_REDOP_SUM, comm, NULL) != WEFT_OK;
    for (int i = 0; i < ELEMS; i++) {
        failures += data[i] != (int32_t)round * RANKS + i * 10;
    }
    return failures;
}

static int go_on(weft_comm *comm, void *context)
{
    struct slate *slate = context;
    struct plan plan = {INT32_MAX, INT32_MAX};
    int rank = weft_comm_get_rank(comm), failures = 0;
    for (int32_t round = 1; round < plan.end_at && !failures; round++) {
        if (rank == 0 && plan.meet_at == INT32_MAX &&
            atomic_load(&slate->meet)) {
            plan.meet_at = round + NOTICE;
        }
        if (rank == 0 && plan.end_at == INT32_MAX && atomic_load(&slate->end)) {
            plan.end_at = round + NOTICE;
        }
        failures += pass_round(comm, (unsigned)round, &plan);
        if (round >= plan.meet_at) {
            failures += sum_all(comm, (unsigned)round);
        }
        atomic_store(&slate->rounds[rank], (unsigned)round);
    }
    if (failures) {
        fprintf(stderr, "rank %d: %d wrong: %s\n", rank, failures,
                weft_error_text());
    }
    return failures < 63 ? failures : 63;
}

/* Until every rank has done so many more rounds. */
static void await_rounds(const struct slate *slate, unsigned more)
{
    unsigned begun[RANKS];
    const int64_t until_ns = wefti_clock_ns() + LIMIT_S * INT64_C(1000000000);
    for (int rank = 0; rank < RANKS; rank++) {
        begun[rank] = atomic_load(&slate->rounds[rank]);
    }
    for (int rank = 0; rank < RANKS;) {
        rank += atomic_load(&slate->rounds[rank]) - begun[rank] >= more;
        assert_true(wefti_clock_ns() < until_ns);
        (void)poll(NULL, 0, 1);
    }
}

/*
 * Splits a line of /proc/net/tcp into its fields, host and port apart: number,
 * local host, port, remote host, port, state, two of queues, two of timers,
 * retransmissions, user, timeout, inode. False: it has fewer.
 */
static bool split_line(char *line, char *fields_out[LINE_FIELDS])
{
    char *rest = NULL;
    for (int i = 0; i < LINE_FIELDS; i++) {
        fields_out[i] = strtok_r(i ? NULL : line, " :", &rest);
        if (!fields_out[i]) {
            return false;
        }
    }
    return true;
}

/* Adds the listening socket of this inode, if it is one. */
static void add_port(struct ports *ports, unsigned long inode)
{
    char line[256], *fields[LINE_FIELDS];
    FILE *table = fopen("/proc/net/tcp", "re");
    assert_non_null(table);
    while (fgets(line, sizeof(line), table)) {
        if (split_line(line, fields) && ports->count < PORTS_MOST &&
            strtoul(fields[13], NULL, 10) == inode &&
            strtoul(fields[5], NULL, 16) == TCP_LISTEN_STATE) {
            uint16_t port = (uint16_t)strtoul(fields[2], NULL, 16);
            ports->at[ports->count++] = (struct sockaddr_in){
                .sin_family = AF_INET,
                .sin_port = htons(port),
                .sin_addr.s_addr = (uint32_t)strtoul(fields[1], NULL, 16)};
        }
    }
    (void)fclose(table);
}

/* Where a process listens. */
static void find_ports(int pid, struct ports *ports)
{
    char folder[40], path[320], target[64];
    snprintf(folder, sizeof(folder), "/proc/%d/fd", pid);
    DIR *files = opendir(folder);
    assert_non_null(files);
    for (const struct dirent *at = readdir(files); at; at = readdir(files)) {
        static const char prefix[] = "socket:[";
        snprintf(path, sizeof(path), "%s/%s", folder, at->d_name);
        ssize_t got = readlink(path, target, sizeof(target) - 1);
        target[got > 0 ? got : 0] = '\0';
        if (strncmp(target, prefix, sizeof(prefix) - 1) == 0) {
            add_port(ports, strtoul(target + sizeof(prefix) - 1, NULL, 10));
        }
    }
    closedir(files);
}

static int visit(const struct sockaddr_in *where)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)where, sizeof(*where)), 0);
    return fd;
}

/*
 * Some say nothing, some random bytes, some hang up at once, and rudely, and
 * some begin as UCX does over tcp (uct/tcp/tcp.h): with a number that is the
 * same everywhere, and then the kind and length of a message.
 */
static void bring_peers(const struct ports *ports, int *fds, uint64_t *seed)
{
    for (int i = 0; i < STRANGERS; i++) {
        unsigned char noise[600];
        fds[i] = visit(&ports->at[i / 8 % ports->count]);
        for (size_t byte = 0; byte < sizeof(noise); byte++) {
            noise[byte] = (unsigned char)random_next(seed);
        }
        if (i % 4 == 1) {
            size_t bytes = random_next(seed) % sizeof(noise);
            ssize_t sent = send(fds[i], noise, bytes, MSG_NOSIGNAL);
            (void)sent; /* it may have been thrown out before */
        }
        if (i % 4 == 3) {
            const uint64_t magic = UINT64_C(0xCAFEBABE12345678);
            const uint32_t length = (uint32_t)(random_next(seed) % 64);
            memcpy(noise, &magic, sizeof(magic));
            noise[sizeof(magic)] = (unsigned char)(i / 4 % UCX_KINDS);
            memcpy(noise + sizeof(magic) + 1, &length, sizeof(length));
            ssize_t sent = send(fds[i], noise, sizeof(noise), MSG_NOSIGNAL);
            (void)sent;
        }
        if (i % 8 == 2) {
            const struct linger none = {.l_onoff = 1};
            (void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &none,
                             sizeof(none));
            close(fds[i]);
            fds[i] = -1;
        }
    }
}

static void
test_net_unauthenticated_peers_on_its_ports_change_nothing(void **state)
{
    (void)state;
    static int fds[STRANGERS];
    uint64_t seed = random_seed();
    struct ports ports = {.count = 0};
    struct slate *slate = mmap(NULL, sizeof(*slate), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(slate != MAP_FAILED);
    struct world world = {.nranks = RANKS, .call = go_on, .context = slate};
    world_processes started;
    setenv("WEFT_DOMAIN", "a,b,c,d", 1);
    world_start_processes(&world, &started);
    await_rounds(slate, ROUNDS);
    for (int rank = 0; rank < RANKS; rank++) {
        find_ports(started.pids[rank], &ports);
    }
    assert_true(ports.count >= RANKS);
    bring_peers(&ports, fds, &seed);
    /* Ranks that have not spoken yet connect while all these are there. */
    await_rounds(slate, ROUNDS);
    atomic_store(&slate->meet, true);
    await_rounds(slate, NOTICE + 2 * ROUNDS);
    atomic_store(&slate->end, true);
    assert_int_equal(world_finish_processes(&started, LIMIT_S), 0);
    for (int i = 0; i < STRANGERS; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    munmap(slate, sizeof(*slate));
}

/* A rank that UCX ends says so in weft's words first. */
static void test_net_library_that_gives_up_is_named(void **state)
{
    (void)state;
    char path[PATH_MAX], said[512];
    int ends[2];
    assert_true(wefti_module_find("weft_net_ucx.so", path));
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const wefti_port_table *table;
        void (*give_up)(const char *file, unsigned line, const char *function,
                        const char *format, ...);
        (void)dup2(ends[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        if (wefti_port_library_open(&table) == WEFT_OK) {
            void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
            void *found = dlsym(handle, "ucs_fatal_error_format");
            memcpy(&give_up, &found, sizeof(give_up));
            give_up("file.c", 7, "function", "tcp_ep %d is no endpoint", 3);
        }
        _exit(1);
    }
    close(ends[1]);
    FILE *words = fdopen(ends[0], "r");
    assert_non_null(words);
    const size_t used = fread(said, 1, sizeof(said) - 1, words);
    said[used] = '\0';
    while (getc(words) != EOF) { /* UCX has much to say */
    }
    (void)fclose(words);
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
    assert_non_null(strstr(said, "the network library ends this process: "
                                 "tcp_ep 3 is no endpoint\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_net_unauthenticated_peers_on_its_ports_change_nothing),
        cmocka_unit_test(test_net_library_that_gives_up_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
