/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/net/interface.c - getifaddrs, and what /sys says of an interface.
 */
#include "comm/net/interface.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of /sys/class/net/NAME/WHAT; 0 where there is none. */
static int64_t read_number(const char *name, const char *what)
{
    char path[96], text[32];
    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, what);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    const char *got = fgets(text, sizeof(text), file);
    (void)fclose(file);
    char *end = text;
    long long number = got ? strtoll(text, &end, 10) : 0;
    return end != text && number > 0 ? number : 0;
}

static void take(const struct ifaddrs *from, wefti_interface *out)
{
    struct sockaddr_in address, mask = {.sin_family = AF_INET};
    memcpy(&address, from->ifa_addr, sizeof(address));
    if (from->ifa_netmask) {
        memcpy(&mask, from->ifa_netmask, sizeof(mask));
    }
    *out = (wefti_interface){.address = address.sin_addr.s_addr,
                             .mask = mask.sin_addr.s_addr,
                             .loopback = from->ifa_flags & IFF_LOOPBACK};
    snprintf(out->name, sizeof(out->name), "%s", from->ifa_name);
    out->mbps = (int)read_number(out->name, "speed");
}

weft_status
wefti_interface_list(wefti_interface list_out[WEFTI_INTERFACES_MOST],
                     int *count_out)
{
    struct ifaddrs *all;
    int count = 0;
    if (getifaddrs(&all) != 0) {
        return wefti_error_system("interfaces of this host (getifaddrs)");
    }
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        const unsigned up = IFF_UP | IFF_RUNNING;
        if (count < WEFTI_INTERFACES_MOST && at->ifa_addr &&
            at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & up) == up) {
            take(at, &list_out[count++]);
        }
    }
    freeifaddrs(all);
    *count_out = count;
    return WEFT_OK;
}

void wefti_interface_text(uint32_t address, char text_out[16])
{
    const struct in_addr in = {.s_addr = address};
    if (!inet_ntop(AF_INET, &in, text_out, 16)) {
        text_out[0] = '\0';
    }
}

/* Calls on each of the names between commas. */
static void sum(const wefti_interface_use *use, uint64_t *sent_out,
                uint64_t *received_out)
{
    *sent_out = *received_out = 0;
    for (const char *at = use->names; *at;) {
        char name[WEFTI_INTERFACE_NAME_BYTES];
        size_t characters = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)characters, at);
        *sent_out += (uint64_t)read_number(name, "statistics/tx_bytes");
        *received_out += (uint64_t)read_number(name, "statistics/rx_bytes");
        at += characters;
        at += *at == ',';
    }
}

void wefti_interface_add(wefti_interface_use *use, const char *name,
                         uint32_t number)
{
    size_t used = strlen(use->names);
    snprintf(use->names + used, sizeof(use->names) - used, "%s%s",
             use->count ? "," : "", name);
    use->numbers[use->count++] = number;
    sum(use, &use->sent_before, &use->received_before);
}

void wefti_interface_count(const wefti_interface_use *use, uint64_t *sent_out,
                           uint64_t *received_out)
{
    sum(use, sent_out, received_out);
    *sent_out -= use->sent_before;
    *received_out -= use->received_before;
}
