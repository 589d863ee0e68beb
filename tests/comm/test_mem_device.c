/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: device memory that is there already takes what peers put, directly
 * where their devices reach it and else by messages, and is as it was until
 * then; what cannot be registered is refused by name on all ranks; wrong data
 * at the first use, a killed peer and memory that is freed too early end in
 * what weft/mem.h says; nothing imported is left.
 *
 * Method: ranks as threads or processes on shadow devices, on those of the fake
 * driver, and on one of these which makes copies between processes wrong.
 * Arguments: shadow or cuda, threads or processes.
 */
#include "tests/comm/world.h"

#include "comm/core/core.h"
#include "device/object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, MOST = 150001, ODD = 13, DEADLINE_S = 60 };

static const char *kind;
static bool on_cuda, processes;

/* How a scene's ranks differ, and what is asked of them. */
struct scene {
    weft_memory_kind memory[RANKS]; /* 0: the device's */
    bool bare[RANKS];               /* without a device */
    bool hosts;                     /* rank 2 is on one of its own */
    bool apart;                     /* none reaches another's */
    size_t first;                   /* of the sizes tried */
    weft_device *devices[RANKS];
};

/* One rank's. */
typedef struct desk {
    weft_comm *comm;
    weft_device *device;
    weft_stream *stream;
    bool of_device; /* its memory is to be freed there */
    size_t bytes;
    unsigned char *whole, *own; /* what it has allocated, and registers of it */
    unsigned char *source[2];   /* host and device */
    unsigned char *seen;        /* host */
    int rank, failures;
} desk;

static void check(desk *self, bool good, const char *what, int line)
{
    if (!good && self->failures++ < 5) {
        fprintf(stderr, "rank %d, line %d: %s (%s)\n", self->rank, line, what,
                weft_error_text());
    }
}
#define CHECK(condition) check(self, condition, #condition, __LINE__)

static void check_refused(desk *self, weft_status status, weft_status wanted,
                          const char *text, int line)
{
    const bool good = status == wanted && strstr(weft_error_text(), text);
    if (!good) {
        fprintf(stderr, "wanted \"%s\", got %s: ", text,
                weft_status_text(status));
    }
    check(self, good, "not refused so", line);
}
#define CHECK_REFUSED(call, wanted, text)                                      \
    check_refused(self, call, wanted, text, __LINE__)

static void open_device(int rank, weft_comm_config *config, void *context)
{
    struct scene *scene = context;
    scene->devices[rank] = NULL;
    if (!scene->bare[rank]) {
        assert_int_equal(
            weft_device_open(kind, rank % 2, &scene->devices[rank]), WEFT_OK);
        config->device = scene->devices[rank];
    }
}

/* Nothing of it is left but the handle. */
static int close_device(int rank, void *context)
{
    struct scene *scene = context;
    weft_device *device = scene->devices[rank];
    int left = 0;
    if (device && processes) {
        left = atomic_load(&device->objects) != 0;
    }
    weft_device_close(device);
    return left;
}

static struct world make_world(struct scene *scene, int nranks,
                               world_rank_call call)
{
    return (struct world){
        .nranks = nranks,
        .config = {.timeout_ms = 1000 * DEADLINE_S, .warn_ms = 30000},
        .call = call,
        .context = scene,
        .configure = open_device,
        .after = close_device,
        .deadline_s = DEADLINE_S};
}

static void run(struct scene *scene, int nranks, world_rank_call call)
{
    const struct world world = make_world(scene, nranks, call);
    assert_int_equal(
        processes ? world_run_processes(&world) : world_run_threads(&world), 0);
}

static void *allocate(desk *self, weft_memory_kind memory, size_t bytes)
{
    void *out = NULL;
    if (memory == WEFT_MEMORY_HOST) {
        out = malloc(bytes);
    } else {
        CHECK(weft_device_alloc_kind(self->device, memory, bytes, &out) ==
              WEFT_OK);
    }
    return out;
}

static desk sit_down(weft_comm *comm, const struct scene *scene, size_t bytes)
{
    const int rank = weft_comm_get_rank(comm);
    desk made = {.comm = comm,
                 .device = scene->devices[rank],
                 .rank = rank,
                 .bytes = bytes};
    desk *self = &made;
    weft_memory_kind memory = scene->memory[rank];
    memory = memory || scene->bare[rank] ? memory : WEFT_MEMORY_DEVICE;
    self->of_device = memory != WEFT_MEMORY_HOST;
    self->whole = allocate(self, memory, bytes + ODD);
    self->own = self->whole + ODD;
    self->source[0] = malloc(MOST);
    self->seen = malloc(MOST);
    if (self->device) {
        self->source[1] = allocate(self, WEFT_MEMORY_DEVICE, MOST);
        CHECK(weft_stream_create(self->device, 0, &self->stream) == WEFT_OK);
    }
    return made;
}

static int get_up(desk *self)
{
    weft_stream_destroy(self->stream);
    if (self->of_device) {
        weft_device_free(self->device, self->whole);
    } else {
        free(self->whole);
    }
    weft_device_free(self->device, self->source[1]);
    free(self->source[0]);
    free(self->seen);
    return self->failures;
}

static void copy(desk *self, void *dst, const void *src, size_t bytes)
{
    if (self->device) {
        CHECK(weft_device_copy(self->device, dst, src, bytes, NULL) == WEFT_OK);
    } else {
        memcpy(dst, src, bytes);
    }
}

static unsigned char byte_of(int from, int to, int round, size_t i)
{
    return (unsigned char)(i % 251 + (size_t)(from * 31 + to * 7 + round * 13));
}

static void fill(desk *self, int from, int to, int round)
{
    for (size_t i = 0; i < self->bytes; i++) {
        self->source[0][i] = byte_of(from, to, round, i);
    }
    if (self->device && self->bytes) {
        copy(self, self->source[1], self->source[0], self->bytes);
    }
}

/* The rank's own memory holds what fill() has made. */
static void compare(desk *self, int from, int to, int round, int line)
{
    size_t wrong = 0;
    if (self->bytes) {
        copy(self, self->seen, self->own, self->bytes);
    }
    for (size_t i = 0; i < self->bytes; i++) {
        wrong += self->seen[i] != byte_of(from, to, round, i);
    }
    check(self, wrong == 0, "bytes are wrong", line);
}

static bool reaches(const desk *self, const struct scene *scene, int peer)
{
    const bool exported =
        on_cuda && scene->memory[peer] != WEFT_MEMORY_EXPORTABLE;
    return self->device && !scene->apart &&
           !(scene->hosts && (peer == 2) != (self->rank == 2)) &&
           !scene->bare[peer] && scene->memory[peer] != WEFT_MEMORY_PINNED &&
           self->bytes >= RANKS && (exported || !processes);
}

/* In turn each puts all its bytes to the next: from host or device memory, on a
 * stream or not. */
static void pass_round(desk *self, weft_mem *mem, int round)
{
    const int next = (self->rank + 1) % RANKS;
    const int before = (self->rank + RANKS - 1) % RANKS;
    weft_stream *stream = round & 2 ? self->stream : NULL;
    const int from = self->device ? round & 1 : 0;
    fill(self, self->rank, next, round);
    const size_t first = self->bytes / 3;
    CHECK(weft_mem_put(mem, 0, self->source[from], first, WEFT_DTYPE_U8, next,
                       stream) == WEFT_OK);
    CHECK(weft_mem_put(mem, first, self->source[from] + first,
                       self->bytes - first, WEFT_DTYPE_U8, next,
                       stream) == WEFT_OK);
    CHECK(weft_mem_signal(mem, 3, 1, next, stream) == WEFT_OK);
    CHECK(weft_mem_wait(mem, 3, (uint64_t)round + 1, before, NULL) == WEFT_OK);
    compare(self, before, self->rank, round, __LINE__);
    if (stream) {
        CHECK(weft_stream_wait(stream) == WEFT_OK);
    }
    CHECK(weft_barrier(self->comm, NULL) == WEFT_OK);
}

static int put_all(weft_comm *comm, void *context)
{
    static const size_t sizes[] = {0, 1, RANKS, 20 * RANKS + 1, MOST};
    const struct scene *scene = context;
    int failures = 0;
    for (size_t s = scene->first; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        desk made = sit_down(comm, scene, sizes[s]), *self = &made;
        weft_mem *mem = NULL;
        fill(self, self->rank, 9, 9);
        if (self->bytes) {
            copy(self, self->own, self->source[0], self->bytes);
        }
        CHECK(weft_mem_register(comm, self->own, sizes[s], &mem) == WEFT_OK);
        CHECK(weft_mem_get_base(mem) == self->own);
        compare(self, self->rank, 9, 9, __LINE__); /* as it was */
        for (int peer = 0; peer < RANKS; peer++) {
            const bool given = weft_mem_get_peer_base(mem, peer) != NULL;
            CHECK(given == (peer == self->rank || reaches(self, scene, peer)));
        }
        CHECK(weft_barrier(comm, NULL) == WEFT_OK);
        for (int round = 0; round < 8 && self->failures == 0; round++) {
            pass_round(self, mem, round);
        }
        weft_mem_destroy(mem);
        failures += get_up(self);
    }
    return failures;
}

static void test_mem_device_takes_what_peers_put(void **state)
{
    (void)state;
    struct scene scene = {.apart = false};
    run(&scene, RANKS, put_all);
}

static void test_mem_device_of_two_hosts_takes_it_too(void **state)
{
    (void)state;
    struct scene scene = {.hosts = true};
    setenv("WEFT_DOMAIN", "a,a,b", 1);
    run(&scene, RANKS, put_all);
    unsetenv("WEFT_DOMAIN");
}

/* Rank 0 has host memory, and rank 2 no device. */
static void test_mem_device_of_mixed_memory_takes_it_too(void **state)
{
    (void)state;
    struct scene scene = {.memory = {WEFT_MEMORY_PINNED}};
    run(&scene, RANKS, put_all);
    scene.bare[2] = true;
    run(&scene, RANKS, put_all);
}

static void test_mem_device_exportable_memory_takes_it_too(void **state)
{
    (void)state;
    struct scene scene = {.memory = {0, WEFT_MEMORY_EXPORTABLE}};
    run(&scene, RANKS, put_all);
}

/* The first copy between processes is wrong: a byte of the first use. */
static void test_mem_device_wrong_at_first_use_goes_by_messages(void **state)
{
    (void)state;
    struct scene scene = {.apart = processes, .first = 4};
    setenv("WEFT_FAKE_GPU_WRONG", "1", 1);
    run(&scene, RANKS, put_all);
    unsetenv("WEFT_FAKE_GPU_WRONG");
}

/* All but rank 1 give good pointers; the others hear whose is wrong. */
static void refuse(desk *self, void *pointer, size_t bytes, const char *text)
{
    weft_mem *mem = (void *)self;
    const bool wrong = self->rank == 1;
    CHECK_REFUSED(weft_mem_register(self->comm,
                                    wrong ? pointer : self->source[1], bytes,
                                    &mem),
                  WEFT_ERR_INVALID, wrong ? text : "rank 1 could not begin");
    CHECK(mem == NULL);
}

static int wrong_pointers(weft_comm *comm, void *context)
{
    desk made = sit_down(comm, context, 4096), *self = &made;
    weft_mem *mem, *again;
    void *freed = allocate(self, WEFT_MEMORY_DEVICE, 4096);
    weft_device_free(self->device, freed);
    refuse(self, freed, 64, "");
    refuse(self, self->own + 4000, 97,
           "bytes 97: allowed is within its allocation, which goes on for 96");
    CHECK(weft_mem_register(comm, self->own, 4096, &mem) == WEFT_OK);
    refuse(self, self->own + 4095, 1, "overlap memory #1 of \"world\"");
    CHECK_REFUSED(weft_mem_register(comm, self->source[1],
                                    self->rank == 2 ? 9 : 8, &again),
                  WEFT_ERR_INVALID, "rank 0 has 8, rank 2 9");
    CHECK_REFUSED(
        weft_mem_put(mem, 4090, self->source[1], 7, WEFT_DTYPE_U8, 0, NULL),
        WEFT_ERR_INVALID, "dst_offset 4090 and 7 u8");
    /* Another part of the same allocation serves beside it. */
    CHECK(weft_mem_register(comm, self->source[1], 8, &again) == WEFT_OK);
    for (int round = 0; round < 4; round++) {
        pass_round(self, mem, round);
    }
    weft_mem_destroy(again);
    weft_mem_destroy(mem);
    /* It is the program's again, and can be registered anew. */
    CHECK(weft_mem_register(comm, self->own, 4096, &mem) == WEFT_OK);
    pass_round(self, mem, 0);
    weft_mem_destroy(mem);
    return get_up(self);
}

static void test_mem_device_wrong_pointer_refused_on_all_ranks(void **state)
{
    (void)state;
    struct scene scene = {.apart = false};
    run(&scene, RANKS, wrong_pointers);
}

/* Rank 1 has destroyed its own: what is put there is lost. */
static int put_to_left(weft_comm *comm, void *context)
{
    desk made = sit_down(comm, context, MOST), *self = &made;
    weft_mem *mem;
    fill(self, 1, 9, 9);
    copy(self, self->own, self->source[0], MOST);
    CHECK(weft_mem_register(comm, self->own, MOST, &mem) == WEFT_OK);
    if (self->rank == 1) {
        weft_mem_destroy(mem);
    }
    CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    if (self->rank == 0) {
        fill(self, 0, 0, 0);
        CHECK(weft_mem_put(mem, 0, self->source[1], MOST, WEFT_DTYPE_U8, 1,
                           NULL) == WEFT_OK);
        CHECK(weft_mem_put(mem, 0, self->source[0], MOST, WEFT_DTYPE_U8, 1,
                           self->stream) == WEFT_OK);
        CHECK(weft_stream_wait(self->stream) == WEFT_OK);
    }
    CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    if (self->rank == 1) {
        compare(self, 1, 9, 9, __LINE__);
    } else {
        weft_mem_destroy(mem);
    }
    return get_up(self);
}

static void test_mem_device_of_a_rank_that_left_is_its_own(void **state)
{
    (void)state;
    struct scene scene = {.apart = false};
    run(&scene, 2, put_to_left);
    scene.memory[1] = WEFT_MEMORY_PINNED;
    run(&scene, 2, put_to_left);
}

/* Rank 1 frees what it has registered; its memory must not be touched. The
 * shadow device knows. By messages it is rank 1's engine that is refused. */
static int put_to_freed(weft_comm *comm, void *context)
{
    desk made = sit_down(comm, context, MOST), *self = &made;
    weft_mem *mem;
    weft_status status;
    CHECK(weft_mem_register(comm, self->own, MOST, &mem) == WEFT_OK);
    if (self->rank == 1) {
        weft_device_free(self->device, self->whole);
        self->whole = NULL;
    }
    CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    if (!processes) {
        if (self->rank == 0) {
            CHECK_REFUSED(weft_mem_put(mem, 0, self->source[1], MOST,
                                       WEFT_DTYPE_U8, 1, NULL),
                          WEFT_ERR_INVALID, "no allocation of the shadow");
        }
        CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    } else if (self->rank == 0) {
        do {
            status = weft_mem_put(mem, 0, self->source[1], MOST, WEFT_DTYPE_U8,
                                  1, NULL);
        } while (status == WEFT_OK);
        CHECK_REFUSED(status, WEFT_ERR_INVALID,
                      "rank 1's device refused a copy");
    } else {
        CHECK_REFUSED(weft_mem_wait(mem, 0, 1, 0, NULL), WEFT_ERR_INVALID,
                      "rank 1's device refused a copy");
    }
    weft_mem_destroy(mem);
    return get_up(self);
}

static void test_mem_device_freed_too_early_is_named(void **state)
{
    (void)state;
    struct scene scene = {.apart = false};
    run(&scene, 2, put_to_freed);
}

/* Rank 1 is killed while rank 0 puts there, from both kinds of memory. */
static int put_to_the_dead(weft_comm *comm, void *context)
{
    desk made = sit_down(comm, context, MOST), *self = &made;
    weft_mem *mem;
    weft_status status = WEFT_OK;
    CHECK(weft_mem_register(comm, self->own, MOST, &mem) == WEFT_OK);
    CHECK(weft_barrier(comm, NULL) == WEFT_OK);
    if (self->rank == 1) {
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; status == WEFT_OK; i++) {
        weft_stream *stream = i & 2 ? self->stream : NULL;
        status = weft_mem_put(mem, 0, self->source[i & 1], MOST, WEFT_DTYPE_U8,
                              1, stream);
        if (stream && status == WEFT_OK) {
            status = weft_stream_wait(stream);
        }
    }
    CHECK_REFUSED(status, WEFT_ERR_PEER, "rank 1 has died");
    status = weft_stream_wait(self->stream);
    CHECK(status == WEFT_OK || status == WEFT_ERR_PEER);
    weft_mem_destroy(mem);
    return get_up(self);
}

static void test_mem_device_put_to_a_killed_rank_names_it(void **state)
{
    (void)state;
    struct scene scene = {.apart = false};
    const struct world world = make_world(&scene, 2, put_to_the_dead);
    assert_int_equal(world_run_killed(&world, 1), 0);
}

static int run_all(void)
{
    const struct CMUnitTest everywhere[] = {
        cmocka_unit_test(test_mem_device_takes_what_peers_put),
        cmocka_unit_test(test_mem_device_of_two_hosts_takes_it_too),
        cmocka_unit_test(test_mem_device_of_mixed_memory_takes_it_too),
        cmocka_unit_test(test_mem_device_wrong_pointer_refused_on_all_ranks),
        cmocka_unit_test(test_mem_device_of_a_rank_that_left_is_its_own),
    };
    const struct CMUnitTest of_processes[] = {
        cmocka_unit_test(test_mem_device_put_to_a_killed_rank_names_it),
    };
    const struct CMUnitTest of_shadow[] = {
        cmocka_unit_test(test_mem_device_freed_too_early_is_named),
    };
    const struct CMUnitTest of_cuda[] = {
        cmocka_unit_test(test_mem_device_exportable_memory_takes_it_too),
        cmocka_unit_test(test_mem_device_wrong_at_first_use_goes_by_messages),
    };
    int failed = cmocka_run_group_tests(everywhere, NULL, NULL);
    if (processes) {
        failed += cmocka_run_group_tests(of_processes, NULL, NULL);
    }
    return failed + (on_cuda ? cmocka_run_group_tests(of_cuda, NULL, NULL)
                             : cmocka_run_group_tests(of_shadow, NULL, NULL));
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "shadow";
    on_cuda = strcmp(kind, "cuda") == 0;
    processes = argc > 2 && strcmp(argv[2], "processes") == 0;
    setenv("WEFT_FAKE_GPU_COUNT", "2", 1);
    return run_all();
}
