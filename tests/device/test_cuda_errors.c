/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a driver lacks or refuses is said by name, and after an error that
 * ends a GPU's context every waiting thread returns with it, nothing hangs, and
 * all can be destroyed.
 * Method: the fake driver's errors on demand; a deadline on each case.
 */
#include "cuda_test.h"

#include "device/cuda.h"

static int libraries_closed;

/* In place of the C library's, for what is linked into this program. */
int dlclose(void *library);
int dlclose(void *library)
{
    (void)library;
    libraries_closed++;
    return 0;
}

/* A driver that has been asked to begin may have left threads behind. */
static void refuse_none(void *arg)
{
    weft_device *device;
    const char *text = arg;
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_device_open("cuda", 0, &device),
                  text);
    CHECK(libraries_closed == 0);
}

static void refuse_open(void *arg)
{
    weft_device *device;
    const char *text = arg;
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_device_open("cuda", 0, &device),
                  text);
    /* As clear the second time, and all else goes on. */
    CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_device_open("cuda", 0, &device),
                  text);
    CHECK_WEFT(weft_device_open("host", 0, &device));
    weft_device_close(device);
}

static void test_cuda_driver_that_will_not_do_is_refused(void **state)
{
    (void)state;
    char old[] = "libcuda.so.1: the driver is for CUDA 11.8, needed is 12.0";
    char missing[] = "the driver, for CUDA 13.0, has no cuMemCreate";
    char none[] = "CUDA_ERROR_NO_DEVICE";
    char narrow[] = "cuda device 0 has no stream memory operations of 64 bits";
    in_child(refuse_open, old, "WEFT_FAKE_GPU_DRIVER_VERSION", "11080", NULL);
    in_child(refuse_open, missing, "WEFT_FAKE_GPU_MISSING",
             "cuStreamBatchMemOp,cuMemCreate", NULL);
    in_child(refuse_open, none, "WEFT_FAKE_GPU_COUNT", "0", NULL);
    in_child(refuse_none, none, "WEFT_FAKE_GPU_COUNT", "0", NULL);
    in_child(refuse_open, narrow, "WEFT_FAKE_GPU_NO_64", "1", NULL);
}

static void check_forked(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0), *other;
    pid_t child = fork();
    if (child == 0) {
        CHECK_REFUSED(WEFT_ERR_UNSUPPORTED, weft_device_open("cuda", 0, &other),
                      "forked");
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close_cuda(device);
}

static void test_cuda_child_of_the_process_that_opened_is_refused(void **state)
{
    (void)state;
    in_child(check_forked, NULL, NULL);
}

/* Each allocation of the driver fails once; what was made before is given
 * back, and the next try succeeds. */
static void check_no_memory(void *arg)
{
    (void)arg;
    static const weft_memory_kind kinds[] = {
        WEFT_MEMORY_DEVICE, WEFT_MEMORY_PINNED, WEFT_MEMORY_EXPORTABLE};
    weft_device *device = open_cuda(0);
    weft_stream *stream = NULL;
    weft_gate *gate = NULL;
    void *memory[3] = {NULL, NULL, NULL};
    char bytes[8] = "copied", back[8] = "";
    int failed = 0;
    for (size_t i = 0; i < 3; i++) {
        weft_status status =
            weft_device_alloc_kind(device, kinds[i], 100, &memory[i]);
        if (status < 0) {
            CHECK_REFUSED(WEFT_ERR_NO_MEMORY, status, "OUT_OF_MEMORY");
            failed++;
            CHECK_WEFT(
                weft_device_alloc_kind(device, kinds[i], 100, &memory[i]));
        }
    }
    if (weft_gate_create(device, 3, &gate) < 0) {
        failed++;
        CHECK_WEFT(weft_gate_create(device, 3, &gate));
    }
    if (weft_stream_create(device, 0, &stream) < 0) {
        failed++;
        CHECK_WEFT(weft_stream_create(device, 0, &stream));
    }
    if (weft_device_copy(device, memory[0], bytes, 8, stream) < 0) {
        failed++;
        CHECK_WEFT(weft_device_copy(device, memory[0], bytes, 8, stream));
    }
    CHECK_WEFT(weft_device_copy(device, back, memory[0], 8, stream));
    CHECK_WEFT(weft_stream_wait(stream));
    CHECK(strcmp(back, "copied") == 0);
    CHECK(failed == 1);
    for (size_t i = 0; i < 3; i++) {
        weft_device_free(device, memory[i]);
    }
    weft_gate_destroy(gate);
    weft_stream_destroy(stream);
    close_cuda(device);
}

static void test_cuda_out_of_memory_undoes_what_was_begun(void **state)
{
    static const char *const which[] = {"1", "2", "3", "4", "5"};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        in_child(check_no_memory, NULL, "WEFT_FAKE_GPU_OUT_OF_MEMORY", which[i],
                 NULL);
    }
}

typedef struct waiter {
    pthread_t thread;
    weft_gate *gate;
    weft_event *event;
    weft_stream *stream;
    weft_status status;
    char text[256];
} waiter;

static void *wait_for_it(void *arg)
{
    waiter *own = arg;
    own->status = own->gate    ? weft_gate_wait(own->gate, 1, 1, NULL)
                  : own->event ? weft_event_wait(own->event, NULL)
                               : weft_stream_wait(own->stream);
    snprintf(own->text, sizeof(own->text), "%s", weft_error_text());
    return NULL;
}

/* Whatever can be called refuses, and says why. */
static void refuse_broken(weft_device *device, weft_stream *stream,
                          weft_gate *gate, void *memory, const char *name)
{
    char said[128];
    snprintf(said, sizeof(said), "cuda device 0 has failed: %s", name);
    void *more;
    weft_gate *other;
    weft_stream *next;
    char bytes[8] = "";
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_device_alloc(device, 8, &more), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_gate_create(device, 1, &other), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_stream_create(device, 0, &next), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM,
                  weft_device_copy(device, memory, bytes, 8, stream), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM,
                  weft_device_copy(device, memory, bytes, 8, NULL), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_gate_signal(gate, 0, 1, stream), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_gate_test(gate, 2, 1), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_gate_wait(gate, 2, 1, NULL), said);
    CHECK_REFUSED(WEFT_ERR_SYSTEM, weft_device_open("cuda", 0, &device), said);
}

/* One stream stands at a gate, whose work behind it would signal another; then
 * a kernel of a third breaks all. */
static void check_broken(void *arg)
{
    const char *name = arg;
    enum { WAITERS = 4 };
    weft_device *device = open_cuda(0);
    weft_stream *stands = make_stream(device), *breaks = make_stream(device);
    weft_gate *gate = make_gate(device, 3), *kept = make_gate(device, 3);
    weft_event *event;
    char bytes[64];
    CHECK_WEFT(weft_event_create(device, &event));
    char *memory = make_memory(device, WEFT_MEMORY_DEVICE, 64);
    CHECK_WEFT(weft_gate_wait(gate, 0, 1, stands));
    CHECK_WEFT(weft_device_copy(device, bytes, memory, 64, stands));
    CHECK_WEFT(weft_gate_signal(gate, 1, 1, stands));
    CHECK_WEFT(weft_event_post(event, stands));
    waiter waiters[WAITERS] = {
        {.gate = gate}, {.event = event}, {.stream = stands}, {.gate = kept}};
    for (int i = 0; i < WAITERS; i++) {
        CHECK(pthread_create(&waiters[i].thread, NULL, wait_for_it,
                             &waiters[i]) == 0);
    }
    usleep(20 * 1000);             /* most of them wait by now, and none must */
    for (int i = 0; i < 20; i++) { /* the fake's k-th operation among them */
        weft_status status = weft_gate_signal(gate, 2, (uint64_t)i + 1, breaks);
        if (status < 0) {
            break;
        }
    }
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(waiters[i].thread, NULL);
        CHECK(waiters[i].status == WEFT_ERR_SYSTEM);
        CHECK(strstr(waiters[i].text, name) != NULL);
    }
    refuse_broken(device, stands, kept, memory, name);
    weft_stream_destroy(stands);
    weft_stream_destroy(breaks);
    weft_gate_destroy(gate);
    weft_gate_destroy(kept);
    weft_event_destroy(event);
    weft_device_free(device, memory);
    close_cuda(device);
}

static void test_cuda_context_that_ends_releases_all_who_wait(void **state)
{
    (void)state;
    char address[] = "CUDA_ERROR_ILLEGAL_ADDRESS";
    in_child(check_broken, address, "WEFT_FAKE_GPU_ERROR", "700@8", NULL);
    in_child(check_broken, address, "WEFT_FAKE_GPU_ERROR", "700@8",
             "WEFT_FAKE_GPU_SEED", "11", NULL);
    in_child(check_broken, address, "WEFT_FAKE_GPU_ERROR", "700@9",
             "WEFT_FAKE_GPU_MISSING", "cuStreamBatchMemOp", NULL);
    /* The driver shuts down; the program has reset the GPU; MPS has ended. */
    char shut[] = "CUDA_ERROR_DEINITIALIZED";
    char reset[] = "CUDA_ERROR_CONTEXT_IS_DESTROYED";
    char ended[] = "CUDA_ERROR_MPS_CLIENT_TERMINATED";
    in_child(check_broken, shut, "WEFT_FAKE_GPU_ERROR", "4@8", NULL);
    in_child(check_broken, reset, "WEFT_FAKE_GPU_ERROR", "709@8", NULL);
    in_child(check_broken, ended, "WEFT_FAKE_GPU_ERROR", "810@8", NULL);
}

static void check_listed(void *arg)
{
    (void)arg;
    int count = 0, version = 0;
    bool can = false;
    wefti_cuda_info info;
    CHECK_WEFT(wefti_cuda_count(&count, &version));
    CHECK(count == 2 && version == 13000);
    CHECK_WEFT(wefti_cuda_describe(1, &info));
    CHECK(strcmp(info.name, "Fake H100 for tests") == 0);
    CHECK(strcmp(info.pci, "0000:12:00.0") == 0);
    CHECK(strcmp(info.uuid, "GPU-77656674-2066-616b-6520-475055203031") == 0);
    CHECK(info.major == 9 && info.minor == 0 && info.multiprocessors == 132);
    CHECK(info.copy_engines == 3 && info.memory_bytes == (size_t)4 << 30);
    CHECK(info.memory_operations && info.flushes && info.exportable);
    CHECK(info.registers);
    CHECK_REFUSED(WEFT_ERR_INVALID, wefti_cuda_describe(2, &info),
                  "allowed is 0 to 1");
    CHECK_WEFT(wefti_cuda_can_access(0, 1, &can));
    CHECK(can);
    CHECK_WEFT(wefti_cuda_can_access(1, 1, &can));
    CHECK(!can);
}

static void test_cuda_list_says_what_there_is(void **state)
{
    (void)state;
    in_child(check_listed, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_driver_that_will_not_do_is_refused),
        cmocka_unit_test(test_cuda_child_of_the_process_that_opened_is_refused),
        cmocka_unit_test(test_cuda_out_of_memory_undoes_what_was_begun),
        cmocka_unit_test(test_cuda_context_that_ends_releases_all_who_wait),
        cmocka_unit_test(test_cuda_list_says_what_there_is),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
