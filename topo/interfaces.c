/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/interfaces.c - /sys/class/net beside the PCI bus, and the kernel's
 * queueing disciplines by netlink.
 *
 * Sources: rtnetlink(7), tc-tbf(8); Linux's Documentation/ABI/testing/
 * sysfs-class-net.
 */
#include "topo/interfaces.h"

#include "topo/number.h"

#include <dirent.h>
#include <limits.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESS_GBPS 10

/* ---- which interfaces -----------------------------------------------------
 */

/* A number in a file of the interface; -1: none. */
static int read_number(const char *folder, const char *name)
{
    char path[PATH_MAX], line[32] = "";
    int value = -1;
    int bytes = snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = bytes < (int)sizeof(path) ? fopen(path, "r") : NULL;
    if (file) {
        const char *at = line;
        if (fgets(line, sizeof(line), file)) {
            (void)wefti_number_read_int(&at, &value);
        }
        (void)fclose(file);
    }
    return value;
}

static bool has_entry(const char *folder, const char *prefix)
{
    bool found = false;
    DIR *entries = opendir(folder);
    struct dirent *entry;
    while (entries && !found && (entry = readdir(entries))) {
        found = strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    if (entries) {
        closedir(entries);
    }
    return found;
}

static bool is_up(const char *folder)
{
    char path[PATH_MAX], line[32] = "";
    snprintf(path, sizeof(path), "%.4000s/operstate", folder);
    FILE *file = fopen(path, "r");
    bool up =
        file && fgets(line, sizeof(line), file) && strncmp(line, "up", 2) == 0;
    if (file) {
        (void)fclose(file);
    }
    return up;
}

/* Whether it leads out of this host and no other entry stands for it: a pair
 * whose other end is in another namespace, or a device that is on no PCI
 * bus. */
static bool leads_out(const char *folder)
{
    bool own_device = has_entry(folder, "device");
    bool paired =
        read_number(folder, "iflink") != read_number(folder, "ifindex");
    return read_number(folder, "type") == ARPHRD_ETHER && is_up(folder) &&
           (own_device || paired) && !has_entry(folder, "lower_") &&
           !has_entry(folder, "master") && !has_entry(folder, "bridge") &&
           !has_entry(folder, "tun_flags");
}

static int find_name(const wefti_topo *topo, const char *name)
{
    for (int i = 0; i < topo->device_count; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_NIC &&
            strcmp(topo->devices[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* By the first NUMA node: no nearer one is known. */
static void add(wefti_topo *topo, const char *name, bool wifi, int mbps)
{
    int numa = wefti_topo_find(topo, WEFTI_TOPO_NUMA, 0);
    int card =
        numa < 0 ? -1 : wefti_topo_add_device(topo, WEFTI_TOPO_CARD, numa, "");
    int nic =
        card < 0 ? -1 : wefti_topo_add_device(topo, WEFTI_TOPO_NIC, card, name);
    if (nic < 0) {
        return;
    }
    wefti_topo_add_link(topo, numa, card, WEFTI_LINK_PCI, 5000,
                        WEFTI_ORIGIN_TABLE);
    double gbps = mbps > 0 ? mbps / 1000.0 : wifi ? 0 : GUESS_GBPS;
    wefti_origin origin = mbps > 0 ? WEFTI_ORIGIN_READ : WEFTI_ORIGIN_TABLE;
    wefti_nic *port = &topo->devices[nic].nic;
    *port = (wefti_nic){.kind = wifi ? WEFTI_NIC_WIFI : WEFTI_NIC_ETHERNET,
                        .state = WEFTI_NIC_ACTIVE,
                        .gbps = gbps,
                        .gbps_origin = origin,
                        .gbps_assumed = mbps <= 0,
                        .port = 1,
                        .dev = -1};
    wefti_topo_add_link(topo, card, nic, WEFTI_LINK_PORT, gbps / 8, origin);
    if (mbps <= 0 && !wifi) {
        char label[64];
        wefti_topo_warn(topo, 17, wefti_topo_label(topo, nic, label),
                        "a virtual interface: no rate known, assumed %d Gb/s",
                        GUESS_GBPS);
    }
}

void wefti_interfaces_add(wefti_topo *topo, const char *root)
{
    char all[PATH_MAX], one[PATH_MAX], real[PATH_MAX];
    struct dirent **entries;
    snprintf(all, sizeof(all), "%.1000s/class/net", root);
    int count = scandir(all, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        snprintf(one, sizeof(one), "%.1100s/%.64s", all, name);
        if (name[0] != '.' && find_name(topo, name) < 0 &&
            realpath(one, real) && !strstr(real, "/devices/pci") &&
            leads_out(real)) {
            /* A pair in memory says 10 Gb/s, whatever it does. */
            bool made_up = strstr(real, "/devices/virtual/") != NULL;
            bool wifi =
                has_entry(real, "wireless") || has_entry(real, "phy80211");
            add(topo, name, wifi, made_up ? -1 : read_number(real, "speed"));
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
}

/* ---- limits ---------------------------------------------------------------
 */

void wefti_nic_limit(wefti_topo *topo, int nic, double gbps)
{
    wefti_device *d = &topo->devices[nic];
    int link = wefti_topo_find_link(topo, d->parent, nic, WEFTI_LINK_PORT);
    if (gbps >= d->nic.gbps && !d->nic.gbps_assumed) {
        return;
    }
    d->nic.gbps = gbps;
    d->nic.gbps_origin = WEFTI_ORIGIN_READ;
    d->nic.gbps_assumed = false;
    d->nic.limited = true;
    if (link >= 0) {
        topo->links[link].GBps = topo->links[link].nccl_GBps = gbps / 8;
        topo->links[link].origin = WEFTI_ORIGIN_READ;
        topo->links[link].assumed = false;
    }
    char label[64];
    wefti_topo_unwarn(topo, 17, wefti_topo_label(topo, nic, label));
}

void wefti_nics_limit_ranks(wefti_topo *topo, double GBps,
                            const int *rank_counts)
{
    for (int i = 0; i < topo->device_count; i++) {
        int host = topo->devices[topo->devices[i].host].ordinal;
        if (topo->devices[i].kind == WEFTI_TOPO_NIC && rank_counts[host] > 0) {
            wefti_nic_limit(topo, i, 8 * GBps * rank_counts[host]);
        }
    }
}

/* What RTA_NEXT and NLMSG_NEXT return: all of it is aligned by 4. */
static const void *behind(const void *at, size_t bytes)
{
    return (const unsigned char *)at + (bytes + 3) / 4 * 4;
}

/* Of an attribute list, the one of that type; NULL: none. */
static const struct rtattr *find(const struct rtattr *at, size_t bytes,
                                 unsigned type)
{
    int left = (int)bytes;
    while (RTA_OK(at, left)) {
        if ((at->rta_type & NLA_TYPE_MASK) == type) {
            return at;
        }
        left -= (int)RTA_ALIGN(at->rta_len);
        at = behind(at, at->rta_len);
    }
    return NULL;
}

/* Bytes a second of a token bucket; 0: it is none. */
static double rate_of(const struct nlmsghdr *message)
{
    const struct tcmsg *head = NLMSG_DATA(message);
    size_t bytes = message->nlmsg_len - NLMSG_LENGTH(sizeof(*head));
    const struct rtattr *first = behind(head, sizeof(*head));
    const struct rtattr *kind = find(first, bytes, TCA_KIND);
    const struct rtattr *options = find(first, bytes, TCA_OPTIONS);
    struct tc_tbf_qopt old;
    uint64_t rate64 = 0;
    if (head->tcm_parent != TC_H_ROOT || !kind || !options ||
        RTA_PAYLOAD(kind) < sizeof("tbf") ||
        strcmp(RTA_DATA(kind), "tbf") != 0) {
        return 0;
    }
    const struct rtattr *inner = RTA_DATA(options);
    const struct rtattr *wide =
        find(inner, RTA_PAYLOAD(options), TCA_TBF_RATE64);
    const struct rtattr *narrow =
        find(inner, RTA_PAYLOAD(options), TCA_TBF_PARMS);
    if (wide && RTA_PAYLOAD(wide) >= sizeof(rate64)) {
        memcpy(&rate64, RTA_DATA(wide), sizeof(rate64));
        return (double)rate64;
    }
    if (!narrow || RTA_PAYLOAD(narrow) < sizeof(old)) {
        return 0;
    }
    memcpy(&old, RTA_DATA(narrow), sizeof(old));
    return old.rate.rate;
}

static void apply_discipline(wefti_topo *topo, const struct nlmsghdr *message)
{
    char name[IF_NAMESIZE];
    if (message->nlmsg_type != RTM_NEWQDISC ||
        message->nlmsg_len < NLMSG_LENGTH(sizeof(struct tcmsg))) {
        return;
    }
    const struct tcmsg *head = NLMSG_DATA(message);
    double rate = rate_of(message);
    if (rate <= 0 || head->tcm_ifindex <= 0 ||
        !if_indextoname((unsigned)head->tcm_ifindex, name)) {
        return;
    }
    int nic = find_name(topo, name);
    if (nic >= 0) {
        wefti_nic_limit(topo, nic, rate * 8 / 1e9);
    }
}

/* All answers of one dump. */
static void read_disciplines(wefti_topo *topo, int sock)
{
    _Alignas(struct nlmsghdr) char buffer[16384];
    ssize_t got;
    while ((got = recv(sock, buffer, sizeof(buffer), 0)) > 0) {
        const struct nlmsghdr *message = (const void *)buffer;
        int left = (int)got;
        for (; left > 0 && NLMSG_OK(message, (unsigned)left);
             left -= (int)NLMSG_ALIGN(message->nlmsg_len),
             message = behind(message, message->nlmsg_len)) {
            if (message->nlmsg_type == NLMSG_DONE ||
                message->nlmsg_type == NLMSG_ERROR) {
                return;
            }
            apply_discipline(topo, message);
        }
    }
}

void wefti_interfaces_limit(wefti_topo *topo)
{
    struct {
        struct nlmsghdr head;
        struct tcmsg body;
    } ask = {.head = {.nlmsg_len = sizeof(ask),
                      .nlmsg_type = RTM_GETQDISC,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
    const struct timeval patience = {.tv_sec = 1};
    int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (sock < 0) {
        return;
    }
    if (setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience,
                   sizeof(patience)) == 0 &&
        send(sock, &ask, sizeof(ask), 0) == (ssize_t)sizeof(ask)) {
        read_disciplines(topo, sock);
    }
    close(sock);
}
