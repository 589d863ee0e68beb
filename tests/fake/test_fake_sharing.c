/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: memory and events of the fake driver go from process to process by
 * handle and by descriptor, and memory from device to device, under the
 * documented rules.
 *
 * Method: two processes, forked before either initialises, and a pair of
 * sockets between them. The importer writes what the exporter then reads.
 * Between devices one process is enough.
 */
#include "tests/fake/fake_test.h"

#include <sys/socket.h>

enum { BYTES = 10000 };

static void put(int to, const void *data, size_t bytes)
{
    CHECK(write(to, data, bytes) == (ssize_t)bytes);
}

static void get(int from, void *data, size_t bytes)
{
    CHECK(read(from, data, bytes) == (ssize_t)bytes);
}

static void fill(CUstream stream, CUdeviceptr at, int value, size_t bytes)
{
    CHECK_OK(cuMemsetD8Async(at, (unsigned char)value, bytes, stream));
    CHECK_OK(cuStreamSynchronize(stream));
}

static void check_filled(CUstream stream, CUdeviceptr at, int value,
                         size_t bytes)
{
    unsigned char *host = new_pinned(bytes);
    CHECK_OK(cuMemcpyDtoHAsync_v2(host, at, bytes, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(host[i] == value);
    }
    CHECK_OK(cuMemFreeHost(host));
}

/* Runs both in children of their own, joined by sockets. */
static void run_pair(void (*exporter)(int socket), void (*importer)(int socket),
                     const char *devices)
{
    int ends[2];
    pid_t children[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            alarm(CASE_SECONDS);
            close(ends[!i]);
            setenv("WEFT_FAKE_GPU_COUNT", devices, 1);
            setenv("WEFT_FAKE_GPU_SEED", "3", 1);
            (i ? importer : exporter)(ends[i]);
            _exit(0);
        }
    }
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++) {
        int status = -1;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
}

static void export_memory(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;
    char done;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(BYTES), raw = memory;
    fill(stream, memory, 1, BYTES);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, memory + 1));
    CHECK_OK(cuIpcGetMemHandle(&handle, memory));
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT,
             cuIpcOpenMemHandle_v2(&opened, handle, 1)); /* by itself */
    put(socket, &handle, sizeof(handle));
    put(socket, &raw, sizeof(raw));
    get(socket, &done, 1);
    check_filled(stream, memory, 2, BYTES);
}

static void import_memory(int socket)
{
    CUipcMemHandle handle, broken;
    CUdeviceptr memory, again, raw;
    CUcontext other;
    char done = 1;
    CUcontext own = open_device(0);
    CUstream stream = new_stream();
    get(socket, &handle, sizeof(handle));
    get(socket, &raw, sizeof(raw));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuIpcOpenMemHandle_v2(&memory, handle, 0));
    memset(&broken, 0, sizeof(broken));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuIpcOpenMemHandle_v2(&memory, broken, 1));
    broken = handle;
    broken.reserved[16] ^= 1; /* another file's number */
    CHECK_IS(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&memory, broken, 1));
    CHECK(new_memory(BYTES) != raw); /* what a raw pointer would find */
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(raw, 0, 1, stream));
    CHECK_OK(cuIpcOpenMemHandle_v2(&memory, handle, 1));
    CHECK_OK(cuIpcOpenMemHandle_v2(&again, handle, 1));
    CHECK(again == memory && memory != raw);
    check_filled(stream, memory, 1, BYTES);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemsetD8Async(memory, 2, BYTES + 1, stream));
    fill(stream, memory, 2, BYTES);
    CHECK_OK(cuDevicePrimaryCtxRetain(&other, 1));
    CHECK_OK(
        cuCtxSetCurrent(other)); /* one context a device, one device here */
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT,
             cuIpcOpenMemHandle_v2(&again, handle, 1));
    CHECK_OK(cuCtxSetCurrent(own));
    CHECK_OK(cuIpcCloseMemHandle(memory));
    check_filled(stream, memory, 2, BYTES); /* still open once */
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory + 1));
    CHECK_OK(cuIpcCloseMemHandle(memory));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
    put(socket, &done, 1);
}

static void test_memory_goes_by_handle(void **state)
{
    (void)state;
    run_pair(export_memory, import_memory, "2");
}

static void export_to_another_device(int socket)
{
    CUipcMemHandle handle;
    char done;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(BYTES);
    fill(stream, memory, 1, BYTES);
    CHECK_OK(cuIpcGetMemHandle(&handle, memory));
    put(socket, &handle, sizeof(handle));
    get(socket, &done, 1);
    check_filled(stream, memory, 2, BYTES);
}

/* Device 1 opens memory of device 0: from then on it may access that device,
 * and not the other way. */
static void import_to_another_device(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr memory;
    char done = 1;
    CUcontext owner = open_device(0), context;
    CUstream of_owner = new_stream();
    CUdeviceptr word = new_memory(8);
    context = open_device(1);
    CUstream stream = new_stream();
    CUdeviceptr back = new_memory(8);
    get(socket, &handle, sizeof(handle));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWriteValue64_v2(stream, word, 1, 0));
    CHECK_OK(cuIpcOpenMemHandle_v2(&memory, handle, 1));
    CHECK_OK(cuStreamWriteValue64_v2(stream, word, 1, 0));
    CHECK_IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
             cuCtxEnablePeerAccess(owner, 0));
    check_filled(stream, memory, 1, BYTES);
    fill(stream, memory, 2, BYTES);
    CHECK_OK(cuCtxSetCurrent(owner));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWriteValue64_v2(of_owner, back, 1, 0));
    CHECK_OK(cuCtxEnablePeerAccess(context, 0));
    put(socket, &done, 1);
}

static void export_in_vain(int socket)
{
    CUipcMemHandle handle;
    char done;
    open_device(0);
    CHECK_OK(cuIpcGetMemHandle(&handle, new_memory(BYTES)));
    put(socket, &handle, sizeof(handle));
    get(socket, &done, 1);
}

/* No device can access another, though each its own. */
static void import_without_peers(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr memory;
    char done = 1;
    setenv("WEFT_FAKE_GPU_NO_PEER", "1", 1);
    open_device(1);
    get(socket, &handle, sizeof(handle));
    CHECK_IS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
             cuIpcOpenMemHandle_v2(&memory, handle, 1));
    open_device(0);
    CHECK_OK(cuIpcOpenMemHandle_v2(&memory, handle, 1));
    put(socket, &done, 1);
}

static void test_opening_a_handle_enables_peer_access(void **state)
{
    (void)state;
    run_pair(export_to_another_device, import_to_another_device, "2");
    run_pair(export_in_vain, import_without_peers, "2");
}

/* A copy between contexts needs no peer access; each end is memory of the
 * context that is named for it. */
static void check_peer_copies(void *arg)
{
    (void)arg;
    CUcontext first = open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr from = new_memory(BYTES),
                pinned = address_of(new_pinned(BYTES));
    fill(stream, from, 5, BYTES);
    CUcontext second = open_device(1), third = open_device(2);
    CHECK_OK(cuDevicePrimaryCtxRelease_v2(2));
    CHECK_OK(cuCtxSetCurrent(second));
    CUdeviceptr to = new_memory(BYTES);
    CUstream other = new_stream();
    fill(other, to, 6, BYTES);
    CHECK_OK(cuMemcpyPeerAsync(to, second, from, first, BYTES - 1, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    check_filled(other, to, 5, BYTES - 1);
    check_filled(other, to + BYTES - 1, 6, 1);
    CHECK_OK(cuMemcpyPeerAsync(from + 1, first, from, first, 0, stream));
    CHECK_OK(cuMemcpyPeerAsync(to + 8, second, to, second, 8, other));
    CHECK_OK(cuStreamSynchronize(other));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyPeerAsync(to, first, from, second, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyPeerAsync(to, second, from, second, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyPeerAsync(to, first, from, first, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyPeerAsync(to + 1, second, from, first, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyPeerAsync(pinned, second, from, first, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT,
             cuMemcpyPeerAsync(to, third, from, first, BYTES, stream));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemcpyPeerAsync(to, NULL, from, first, BYTES, stream));
}

static void test_copies_between_contexts_name_both(void **state)
{
    (void)state;
    in_child(check_peer_copies, NULL, "WEFT_FAKE_GPU_COUNT", "3",
             "WEFT_FAKE_GPU_NO_PEER", "1", NULL);
}

static void open_in_vain(void *handle)
{
    CUdeviceptr memory;
    open_device(0);
    CHECK_IS(CUDA_ERROR_MAP_FAILED,
             cuIpcOpenMemHandle_v2(&memory, *(CUipcMemHandle *)handle, 1));
}

/* An exporter that is killed leaves nothing to be opened. */
static void export_and_die(int socket)
{
    CUipcMemHandle handle;
    open_device(0);
    CHECK_OK(cuIpcGetMemHandle(&handle, new_memory(BYTES)));
    put(socket, &handle, sizeof(handle));
    kill(getpid(), SIGKILL);
}

static void test_killed_exporter_leaves_nothing(void **state)
{
    (void)state;
    int ends[2], status = -1;
    CUipcMemHandle handle;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_t exporter = fork();
    if (exporter == 0) {
        export_and_die(ends[0]);
    }
    get(ends[1], &handle, sizeof(handle));
    assert_int_equal(waitpid(exporter, &status, 0), exporter);
    assert_true(WIFSIGNALED(status));
    close(ends[0]);
    close(ends[1]);
    in_child(open_in_vain, &handle, NULL);
}

static void export_event(int socket)
{
    CUipcEventHandle handle;
    CUevent event, plain, opened;
    char step;
    open_device(0);
    CUstream stream = new_stream();
    CUdeviceptr gate = address_of(new_pinned(8));
    *(volatile uint64_t *)(uintptr_t)gate = 0;
    CHECK_OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&handle, plain));
    CHECK_OK(
        cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    CHECK_OK(cuIpcGetEventHandle(&handle, event));
    CHECK_IS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&opened, handle));
    CHECK_OK(cuStreamWaitValue64_v2(stream, gate, 1, 0));
    CHECK_OK(cuEventRecord(event, stream));
    put(socket, &handle, sizeof(handle));
    get(socket, &step, 1); /* the importer has seen it incomplete */
    __atomic_store_n((uint64_t *)(uintptr_t)gate, 1, __ATOMIC_SEQ_CST);
    get(socket, &step, 1);
    CHECK_OK(cuEventDestroy_v2(event));
}

static void import_event(int socket)
{
    CUipcEventHandle handle;
    CUevent event;
    char step = 1;
    open_device(0);
    CUstream stream = new_stream();
    get(socket, &handle, sizeof(handle));
    CHECK_OK(cuIpcOpenEventHandle(&event, handle));
    CHECK_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CHECK_OK(cuStreamWaitEvent(stream, event, 0));
    CHECK_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    put(socket, &step, 1);
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuEventSynchronize(event));
    CHECK_OK(cuEventDestroy_v2(event));
    put(socket, &step, 1);
}

static void test_events_go_by_handle(void **state)
{
    (void)state;
    run_pair(export_event, import_event, "1");
}

static void put_descriptor(int to, int descriptor)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    CHECK(sendmsg(to, &message, 0) == 1);
}

static int get_descriptor(int from)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int descriptor;
    CHECK(recvmsg(from, &message, 0) == 1 && CMSG_FIRSTHDR(&message));
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return descriptor;
}

static CUmemAllocationProp device_memory(int ordinal)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
}

/* Maps memory at a new address, with access for device 0. */
static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr at;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    CHECK_OK(cuMemMap(at, bytes, 0, handle, 0));
    CHECK_OK(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static void export_physical(int socket)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_memory(0);
    size_t bytes = 0;
    int descriptor;
    char done;
    open_device(0);
    CUstream stream = new_stream();
    CHECK_OK(cuMemGetAllocationGranularity(&bytes, &prop, 0));
    CHECK(bytes == 2 << 20);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4096, &prop, 0));
    prop.requestedHandleTypes = 0;
    CHECK_OK(cuMemCreate(&handle, bytes, &prop, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
    CHECK_OK(cuMemRelease(handle));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    prop.requestedHandleTypes = 1;
    CHECK_OK(cuMemCreate(&handle, bytes, &prop, 0));
    CUdeviceptr at = map(handle, bytes);
    check_filled(stream, at, 0xff, bytes);
    fill(stream, at, 1, bytes);
    CHECK_OK(cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
    CHECK_OK(cuMemRelease(handle)); /* the mapping keeps it */
    put_descriptor(socket, descriptor);
    close(descriptor);
    get(socket, &done, 1);
    check_filled(stream, at, 2, bytes);
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, bytes));
    CHECK_OK(cuMemUnmap(at, bytes));
    CHECK_OK(cuMemAddressFree(at, bytes));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(at, 1, 1, stream));
}

static void import_physical(int socket)
{
    CUmemGenericAllocationHandle handle;
    size_t bytes = 2 << 20;
    char done = 1;
    open_device(0);
    CUstream stream = new_stream();
    int descriptor = get_descriptor(socket);
    CHECK_IS(CUDA_ERROR_INVALID_HANDLE,
             cuMemImportFromShareableHandle(&handle,
                                            (void *)(intptr_t)STDIN_FILENO, 1));
    CHECK_OK(cuMemImportFromShareableHandle(&handle,
                                            (void *)(intptr_t)descriptor, 1));
    close(descriptor);
    CUdeviceptr at = map(handle, bytes);
    check_filled(stream, at, 1, bytes);
    fill(stream, at, 2, bytes);
    put(socket, &done, 1);
}

static void test_memory_goes_by_descriptor(void **state)
{
    (void)state;
    run_pair(export_physical, import_physical, "1");
}

/* Mapped, and accessible to none: the first access ends it all. */
static void check_no_access(void *arg)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = device_memory(0);
    size_t bytes = 2 << 20;
    CUdeviceptr at;
    (void)arg;
    open_device(0);
    CUstream stream = new_stream();
    CHECK_OK(cuMemCreate(&handle, bytes, &prop, 0));
    CHECK_OK(cuMemAddressReserve(&at, 2 * bytes, 0, 0, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 1, bytes, 0, handle, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuMemMap(at + 2 * bytes, bytes, 0, handle, 0));
    CHECK_OK(cuMemMap(at, bytes, 0, handle, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, bytes, 0, handle, 0));
    CHECK_IS(CUDA_ERROR_INVALID_VALUE,
             cuStreamWriteValue32_v2(stream, at, 1, 0));
    CHECK_OK(cuMemsetD8Async(at, 1, 1, stream));
    CHECK_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

static void test_mapped_memory_needs_access(void **state)
{
    (void)state;
    in_child(check_no_access, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_goes_by_handle),
        cmocka_unit_test(test_opening_a_handle_enables_peer_access),
        cmocka_unit_test(test_copies_between_contexts_name_both),
        cmocka_unit_test(test_killed_exporter_leaves_nothing),
        cmocka_unit_test(test_events_go_by_handle),
        cmocka_unit_test(test_memory_goes_by_descriptor),
        cmocka_unit_test(test_mapped_memory_needs_access),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
