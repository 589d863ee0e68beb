/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: processes share a GPU's memory by handle and by file descriptor, at any
 * offset, each allocation opened once; what cannot be shared is refused, and
 * nothing is left behind.
 * Method: two processes, a socket between them over which exports, and the
 * descriptors, travel.
 */
#include "cuda_test.h"

#include <sys/socket.h>

enum { BYTES = 5000, OFFSET = 1234, ROUNDS = 2 };

static void send_export(int link, const weft_export *given)
{
    char room[CMSG_SPACE(sizeof(int))] = "";
    weft_export sent = *given;
    struct iovec data = {&sent, sizeof(sent)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (given->descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof(room);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &given->descriptor, sizeof(int));
    }
    CHECK(sendmsg(link, &message, 0) == sizeof(sent));
}

static weft_export receive_export(int link)
{
    weft_export given;
    char room[CMSG_SPACE(sizeof(int))] = "";
    struct iovec data = {&given, sizeof(given)};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = room,
                             .msg_controllen = sizeof(room)};
    CHECK(recvmsg(link, &message, MSG_CMSG_CLOEXEC) == sizeof(given));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header) {
        memcpy(&given.descriptor, CMSG_DATA(header), sizeof(int));
    }
    return given;
}

static void write_turn(int link)
{
    CHECK(write(link, "x", 1) == 1);
}

static void read_turn(int link)
{
    char byte;
    CHECK(read(link, &byte, 1) == 1);
}

/* Opens it twice, at two offsets of one allocation; reads what is there, and
 * writes it back turned round. */
static void use_export(weft_device *device, const weft_export *given)
{
    static char seen[BYTES], turned[BYTES], want[BYTES];
    weft_export other = *given;
    void *pointer, *begin;
    other.offset = 0;
    CHECK_WEFT(weft_device_import(device, given, &pointer));
    CHECK_WEFT(weft_device_import(device, &other, &begin));
    CHECK(given->descriptor >= 0 ||
          (char *)begin + given->offset == (char *)pointer);
    weft_device_unimport(device, begin);
    CHECK_WEFT(weft_device_copy(device, seen, pointer, BYTES, NULL));
    fill(want, BYTES, 77);
    CHECK(memcmp(seen, want, BYTES) == 0);
    for (size_t i = 0; i < BYTES; i++) {
        turned[i] = seen[BYTES - 1 - i];
    }
    CHECK_WEFT(weft_device_copy(device, pointer, turned, BYTES, NULL));
    weft_device_unimport(device, pointer);
    const size_t objects = atomic_load(&device->objects);
    weft_device_unimport(device, seen); /* nobody has imported that */
    CHECK(atomic_load(&device->objects) == objects);
}

static void import_all(int link, int index)
{
    weft_device *device = open_cuda(index);
    int before = -1;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        weft_export given = receive_export(link);
        CHECK((i % 2 == 1) == (given.descriptor >= 0));
        use_export(device, &given);
        if (given.descriptor >= 0) {
            close(given.descriptor);
        }
        before = i == 1 ? count_descriptors() : before;
        write_turn(link);
    }
    CHECK(count_descriptors() == before);
    close_cuda(device);
}

static void export_one(weft_device *device, int link, weft_memory_kind kind)
{
    static char in[BYTES], out[BYTES];
    weft_export given = {.size_bytes = sizeof(given)};
    void *nowhere;
    char *memory = make_memory(device, kind, OFFSET + BYTES);
    fill(in, BYTES, 77);
    CHECK_WEFT(weft_device_copy(device, memory + OFFSET, in, BYTES, NULL));
    CHECK_WEFT(weft_device_export(device, memory + OFFSET, &given));
    CHECK(given.offset == OFFSET && given.bytes >= OFFSET + BYTES);
    CHECK(given.index == 0 && given.process == getpid());
    CHECK_REFUSED(WEFT_ERR_INVALID,
                  weft_device_import(device, &given, &nowhere), "this process");
    send_export(link, &given);
    if (given.descriptor >= 0) {
        close(given.descriptor);
    }
    read_turn(link);
    CHECK_WEFT(weft_device_copy(device, out, memory + OFFSET, BYTES, NULL));
    for (size_t i = 0; i < BYTES; i++) {
        CHECK(out[i] == in[BYTES - 1 - i]);
    }
    weft_device_free(device, memory);
}

static void check_shared(void *arg)
{
    int links[2], index = *(int *)arg, before = -1, status = -1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, links) == 0);
    pid_t child = fork();
    if (child == 0) {
        import_all(links[1], index);
        _exit(0);
    }
    weft_device *device = open_cuda(0);
    for (int round = 0; round < ROUNDS; round++) {
        export_one(device, links[0], WEFT_MEMORY_DEVICE);
        export_one(device, links[0], WEFT_MEMORY_EXPORTABLE);
        CHECK(round == 0 || count_descriptors() == before);
        before = count_descriptors();
    }
    close_cuda(device);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void test_cuda_ipc_memory_is_shared_by_two_processes(void **state)
{
    (void)state;
    for (int index = 0; index < 2; index++) {
        in_child(check_shared, &index, "WEFT_FAKE_GPU_COUNT", "2", NULL);
    }
}

enum { BESIDE = 4 };

/* The driver may put imports at addresses next to each other: each is closed by
 * its own, whatever the order. */
static void import_beside(int link)
{
    weft_device *device = open_cuda(0);
    weft_pointer found = {.size_bytes = sizeof(found)};
    void *pointers[BESIDE];
    for (int i = 0; i < BESIDE; i++) {
        weft_export given = receive_export(link);
        CHECK_WEFT(weft_device_import(device, &given, &pointers[i]));
        close(given.descriptor);
    }
    for (int i = 0; i < BESIDE; i++) {
        weft_device_unimport(device, pointers[i]);
        for (int k = 0; k < BESIDE; k++) {
            CHECK_WEFT(weft_device_query(device, pointers[k], &found));
            CHECK((found.kind != WEFT_MEMORY_HOST) == (k > i));
        }
    }
    close_cuda(device);
    write_turn(link);
}

static void check_beside(void *arg)
{
    (void)arg;
    int links[2], status = -1;
    void *memory[BESIDE];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, links) == 0);
    pid_t child = fork();
    if (child == 0) {
        import_beside(links[1]);
        _exit(0);
    }
    weft_device *device = open_cuda(0);
    for (int i = 0; i < BESIDE; i++) {
        weft_export given = {.size_bytes = sizeof(given)};
        memory[i] = make_memory(device, WEFT_MEMORY_EXPORTABLE, 1);
        CHECK_WEFT(weft_device_export(device, memory[i], &given));
        send_export(links[0], &given);
        close(given.descriptor);
    }
    close(links[1]);
    read_turn(links[0]);
    for (int i = 0; i < BESIDE; i++) {
        weft_device_free(device, memory[i]);
    }
    close_cuda(device);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void test_cuda_ipc_imports_beside_each_other_are_told_apart(void **state)
{
    (void)state;
    in_child(check_beside, NULL, NULL);
}

static void check_refused(void *arg)
{
    (void)arg;
    weft_device *device = open_cuda(0), *other = open_cuda(1);
    weft_export given = {.size_bytes = sizeof(given)};
    char plain[8];
    void *out;
    void *pinned = make_memory(device, WEFT_MEMORY_PINNED, 8);
    void *theirs = make_memory(other, WEFT_MEMORY_DEVICE, 8);
    const void *const bad[] = {plain, pinned, theirs};
    for (size_t i = 0; i < 3; i++) {
        CHECK_REFUSED(WEFT_ERR_INVALID,
                      weft_device_export(device, bad[i], &given),
                      "not memory of cuda device 0");
    }
    CHECK_WEFT(weft_device_export(other, theirs, &given));
    given.process = getpid() + 1;
    memset(given.handle, 0x5a, sizeof(given.handle));
    CHECK_REFUSED(WEFT_ERR_INVALID, weft_device_import(device, &given, &out),
                  "cuIpcOpenMemHandle");
    given.offset = given.bytes;
    CHECK_REFUSED(WEFT_ERR_INVALID, weft_device_import(device, &given, &out),
                  "offset 8 of an allocation of 8 bytes");
    given.offset = 0;
    given.descriptor = 1000; /* is none */
    CHECK(weft_device_import(device, &given, &out) < 0);
    CHECK(strstr(weft_error_text(), "cuMemImportFromShareableHandle") != NULL);
    weft_device_free(device, pinned);
    weft_device_free(other, theirs);
    close_cuda(device);
    close_cuda(other);
}

static void test_cuda_ipc_of_what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    in_child(check_refused, NULL, "WEFT_FAKE_GPU_COUNT", "2", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_ipc_memory_is_shared_by_two_processes),
        cmocka_unit_test(
            test_cuda_ipc_imports_beside_each_other_are_told_apart),
        cmocka_unit_test(test_cuda_ipc_of_what_cannot_be_shared_is_refused),
    };
    return cmocka_run_group_tests(tests, set_kernels, NULL);
}
