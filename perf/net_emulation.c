/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/net_emulation.c - namespaces by unshare, their links by ip and tc.
 *
 * A shaped link has a token bucket at both ends, so that the rate holds each
 * way. The bucket takes a timer for each packet, an interrupt which no network
 * card would charge: so a packet is what the kernel hands over at once, nearly
 * as long as the burst. One longer than the burst would be cut up again into
 * packets of 1,500 bytes at each bucket, so it stays below. Slow links have a
 * small burst, since a burst passes unhindered.
 */
#include "perf/net_emulation.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    COMMAND_BYTES = 2000,
    UP_LIMIT_MS = 5000,
    UP_LOOK_MS = 5,
    FAST_KBIT = 100000, /* from here on a burst of 64 KiB is 5 ms at most */
};

/* What a link of some rate hands over at once, and lets through at once. */
struct bucket {
    int packet_bytes, burst_bytes;
};

static struct bucket bucket_of(int64_t kbit)
{
    return kbit >= FAST_KBIT ? (struct bucket){61440, 65536}
                             : (struct bucket){8192, 16384};
}

static int open_own(const char *kind)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void close_once(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* Runs a shell command, quietly unless it fails. */
static weft_status run(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

static weft_status run(const char *format, ...)
{
    char command[COMMAND_BYTES], said[160] = "";
    va_list args;
    va_start(args, format);
    int used = vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (used < 0 || used > COMMAND_BYTES - 8) {
        return wefti_error(WEFT_ERR_SYSTEM, "a command is too long");
    }
    snprintf(command + used, sizeof(command) - (size_t)used, " 2>&1");
    FILE *pipe = popen(command, "re");
    if (!pipe) {
        return wefti_error_system("cannot run ip");
    }
    size_t got = fread(said, 1, sizeof(said) - 1, pipe);
    said[got] = '\0';
    said[strcspn(said, "\n")] = '\0';
    int status = pclose(pipe);
    return status == 0 ? WEFT_OK
                       : wefti_error(WEFT_ERR_SYSTEM,
                                     "the network cannot be emulated: %s "
                                     "(ip or tc, status %d)",
                                     said[0] ? said : "no reason given",
                                     WEXITSTATUS(status));
}

static weft_status check_means(void)
{
    if (geteuid() != 0) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "--net-emulate makes network namespaces and needs "
                           "root for it");
    }
    if (system("command -v ip >/dev/null 2>&1 && "
               "command -v tc >/dev/null 2>&1") != 0) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "--net-emulate needs the programs ip and tc "
                           "(Debian: iproute2)");
    }
    return WEFT_OK;
}

/* A new network namespace, which the calling thread then stands in. */
static weft_status unshare_network(int *fd_out)
{
    if (unshare(CLONE_NEWNET) != 0) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "--net-emulate: no network namespace can be made "
                           "here: %s",
                           strerror(errno));
    }
    *fd_out = open_own("net");
    return *fd_out >= 0 ? run("ip link set lo up")
                        : wefti_error_system("network namespace");
}

static weft_status make_switch(net_emulation *emulation, const net_spec *spec)
{
    weft_status status = unshare_network(&emulation->switch_fd);
    for (int rail = 0; rail < spec->rail_count && status == WEFT_OK; rail++) {
        status = run("ip link add sw%d type bridge forward_delay 0 && "
                     "ip link set sw%d up",
                     rail, rail);
    }
    return status;
}

/* In the node's network: a cable to each rail's switch. */
static weft_status plug_in(const net_emulation *emulation, const net_spec *spec,
                           int node)
{
    weft_status status = WEFT_OK;
    for (int rail = 0; rail < spec->rail_count && status == WEFT_OK; rail++) {
        status = run("ip link add eth%d type veth peer name n%dr%d netns "
                     "/proc/%d/fd/%d && "
                     "ip addr add 10.87.%d.%d/24 dev eth%d && "
                     "ip link set eth%d up",
                     rail, node, rail, (int)getpid(), emulation->switch_fd,
                     rail, node + 1, rail, rail);
        if (status == WEFT_OK && spec->kbit[rail]) {
            const struct bucket bucket = bucket_of(spec->kbit[rail]);
            status = run("ip link set eth%d gso_max_size %d && "
                         "tc qdisc add dev eth%d root tbf rate %lldkbit "
                         "burst %d latency 50ms",
                         rail, bucket.packet_bytes, rail,
                         (long long)spec->kbit[rail], bucket.burst_bytes);
        }
    }
    return status;
}

/* In the switch's network: the cables' other ends. */
static weft_status take_cables(const net_spec *spec)
{
    weft_status status = WEFT_OK;
    for (int i = 0; i < spec->node_count * spec->rail_count; i++) {
        int node = i / spec->rail_count, rail = i % spec->rail_count;
        if (status == WEFT_OK) {
            status = run("ip link set n%dr%d master sw%d && "
                         "ip link set n%dr%d up",
                         node, rail, rail, node, rail);
        }
        if (status == WEFT_OK && spec->kbit[rail]) {
            status = run("tc qdisc add dev n%dr%d root tbf rate %lldkbit "
                         "burst %d latency 50ms",
                         node, rail, (long long)spec->kbit[rail],
                         bucket_of(spec->kbit[rail]).burst_bytes);
        }
    }
    return status;
}

static weft_status make_node(net_emulation *emulation, const net_spec *spec,
                             int index)
{
    net_node *node = &emulation->nodes[index];
    snprintf(node->address, sizeof(node->address), "10.87.0.%u",
             (unsigned char)(index + 1));
    weft_status status = unshare_network(&node->net_fd);
    if (status == WEFT_OK) {
        status = plug_in(emulation, spec, index);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (unshare(CLONE_NEWIPC | CLONE_NEWUTS) != 0) {
        return wefti_error_system("IPC and UTS namespaces");
    }
    char name[32];
    int used = snprintf(name, sizeof(name), "weft-node%d", index);
    if (sethostname(name, (size_t)used) != 0) {
        return wefti_error_system("name of a node");
    }
    node->ipc_fd = open_own("ipc");
    node->uts_fd = open_own("uts");
    return node->ipc_fd >= 0 && node->uts_fd >= 0
               ? WEFT_OK
               : wefti_error_system("namespaces of a node");
}

/* A link is up a moment after it was set up: the bridge has to notice. */
static weft_status await_links(const net_emulation *emulation,
                               const net_spec *spec)
{
    const int64_t until_ns = wefti_clock_ns() + UP_LIMIT_MS * INT64_C(1000000);
    for (int node = 0; node < spec->node_count; node++) {
        if (setns(emulation->nodes[node].net_fd, CLONE_NEWNET) != 0) {
            return wefti_error_system("network of a node");
        }
        while (run("ip -o link show | grep -c 'eth.*state UP' | grep -qx %d",
                   spec->rail_count) != WEFT_OK) {
            if (wefti_clock_ns() > until_ns) {
                return wefti_error(WEFT_ERR_SYSTEM,
                                   "node %d's links do not come up", node);
            }
            (void)poll(NULL, 0, UP_LOOK_MS);
        }
    }
    return WEFT_OK;
}

static weft_status make_all(net_emulation *emulation, const net_spec *spec)
{
    weft_status status = make_switch(emulation, spec);
    for (int node = 0; node < spec->node_count && status == WEFT_OK; node++) {
        status = make_node(emulation, spec, node);
    }
    if (status == WEFT_OK && setns(emulation->switch_fd, CLONE_NEWNET) != 0) {
        status = wefti_error_system("network of the switch");
    }
    if (status == WEFT_OK) {
        status = take_cables(spec);
    }
    return status == WEFT_OK ? await_links(emulation, spec) : status;
}

weft_status net_emulation_open(const net_spec *spec,
                               net_emulation *emulation_out)
{
    net_emulation *emulation = emulation_out;
    *emulation = (net_emulation){.node_count = spec->node_count,
                                 .home_fd = -1,
                                 .home_ipc_fd = -1,
                                 .home_uts_fd = -1,
                                 .switch_fd = -1};
    for (int node = 0; node < spec->node_count; node++) {
        emulation->nodes[node] =
            (net_node){.net_fd = -1, .ipc_fd = -1, .uts_fd = -1};
    }
    weft_status status = check_means();
    if (status != WEFT_OK) {
        return status;
    }
    emulation->home_fd = open_own("net");
    emulation->home_ipc_fd = open_own("ipc");
    emulation->home_uts_fd = open_own("uts");
    if (emulation->home_fd < 0 || emulation->home_ipc_fd < 0 ||
        emulation->home_uts_fd < 0) {
        status = wefti_error_system("own namespaces");
    } else {
        status = make_all(emulation, spec);
        weft_status back = net_emulation_return(emulation);
        status = status == WEFT_OK ? back : status;
    }
    if (status != WEFT_OK) {
        net_emulation_close(emulation);
    }
    return status;
}

void net_emulation_close(net_emulation *emulation)
{
    for (int node = 0; node < emulation->node_count; node++) {
        close_once(&emulation->nodes[node].net_fd);
        close_once(&emulation->nodes[node].ipc_fd);
        close_once(&emulation->nodes[node].uts_fd);
    }
    emulation->node_count = 0;
    close_once(&emulation->home_fd);
    close_once(&emulation->home_ipc_fd);
    close_once(&emulation->home_uts_fd);
    close_once(&emulation->switch_fd);
}

weft_status net_emulation_enter_network(const net_emulation *emulation,
                                        int node)
{
    return setns(emulation->nodes[node].net_fd, CLONE_NEWNET) == 0
               ? WEFT_OK
               : wefti_error_system("network of node %d", node);
}

weft_status net_emulation_return(const net_emulation *emulation)
{
    return setns(emulation->home_fd, CLONE_NEWNET) == 0 &&
                   setns(emulation->home_ipc_fd, CLONE_NEWIPC) == 0 &&
                   setns(emulation->home_uts_fd, CLONE_NEWUTS) == 0
               ? WEFT_OK
               : wefti_error_system("the way back from an emulated node");
}

int net_emulation_move_in(const net_emulation *emulation, int node)
{
    const net_node *home = &emulation->nodes[node];
    if (setns(home->net_fd, CLONE_NEWNET) != 0 ||
        setns(home->ipc_fd, CLONE_NEWIPC) != 0 ||
        setns(home->uts_fd, CLONE_NEWUTS) != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              NULL) != 0) {
        return errno;
    }
    return 0;
}
