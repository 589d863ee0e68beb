/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/pack.c - a graph as bytes and back: how ranks exchange their hosts'
 * graphs when a communicator is made.
 *
 * One walk serves both directions. Numbers are little-endian; everything read
 * is checked before it is used. GUIDs become the number of the card's first
 * port, NVLink domains are hashes; hosts have no names here.
 */
#include "topo/topo.h"

#include "base/error.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC        0x35304f504f544657ull /* "WFTOPO05" */
#define DEVICES_MOST 1000000

typedef struct stream {
    bool writing, failed; /* failed: memory when writing, nonsense else */
    unsigned char *bytes;
    size_t at, count; /* count: room when writing, length when reading */
} stream;

static void raw(stream *s, unsigned char *value, size_t bytes)
{
    if (s->failed) {
        return;
    }
    if (s->writing && s->at + bytes > s->count) {
        size_t room = 2 * (s->at + bytes) + 4096;
        unsigned char *grown = realloc(s->bytes, room);
        if (!grown) {
            s->failed = true;
            return;
        }
        s->bytes = grown;
        s->count = room;
    }
    if (!s->writing && bytes > s->count - s->at) {
        s->failed = true;
        return;
    }
    if (s->writing) {
        memcpy(s->bytes + s->at, value, bytes);
    } else {
        memcpy(value, s->bytes + s->at, bytes);
    }
    s->at += bytes;
}

static void walk_u64(stream *s, uint64_t *value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(*value >> 8 * i);
    }
    raw(s, bytes, sizeof(bytes));
    if (!s->writing && !s->failed) {
        *value = 0;
        for (int i = 0; i < 8; i++) {
            *value |= (uint64_t)bytes[i] << 8 * i;
        }
    }
}

static void walk_int(stream *s, int *value, int least, int most)
{
    uint64_t word = (uint64_t)(int64_t)*value;
    walk_u64(s, &word);
    int64_t number = (int64_t)word;
    if (number < least || number > most) {
        s->failed |= !s->writing;
        return;
    }
    *value = (int)number;
}

static void walk_bool(stream *s, bool *value)
{
    int number = *value;
    walk_int(s, &number, 0, 1);
    *value = number != 0;
}

static void walk_real(stream *s, double *value)
{
    uint64_t word;
    memcpy(&word, value, sizeof(word));
    walk_u64(s, &word);
    memcpy(value, &word, sizeof(word));
    if (!(*value >= 0 && *value < 1e15)) {
        s->failed |= !s->writing;
        *value = 0;
    }
}

/* Length, then that many bytes. */
static void walk_text(stream *s, char *text, size_t room)
{
    int length = s->writing ? (int)strlen(text) : 0;
    walk_int(s, &length, 0, (int)room - 1);
    if (s->failed) {
        length = 0;
    }
    raw(s, (unsigned char *)text, (size_t)length);
    text[length] = '\0';
    s->failed |= !s->writing && strlen(text) != (size_t)length;
}

static void walk_pci(stream *s, wefti_pci *pci)
{
    int ids[5] = {(int)pci->class_code, pci->vendor, pci->device,
                  pci->sub_vendor, pci->sub_device};
    walk_text(s, pci->bus, sizeof(pci->bus));
    for (int i = 0; i < 5; i++) {
        walk_int(s, &ids[i], 0, i == 0 ? 0xffffff : 0xffff);
    }
    pci->class_code = (uint32_t)ids[0];
    pci->vendor = (uint16_t)ids[1];
    pci->device = (uint16_t)ids[2];
    pci->sub_vendor = (uint16_t)ids[3];
    pci->sub_device = (uint16_t)ids[4];
    walk_int(s, &pci->gen, 0, 16);
    walk_int(s, &pci->width, 0, 64);
    walk_int(s, &pci->max_gen, 0, 16);
    walk_int(s, &pci->max_width, 0, 64);
    walk_int(s, &pci->now_gen, 0, 16);
    walk_int(s, &pci->now_width, 0, 64);
}

static void walk_origin(stream *s, wefti_origin *origin)
{
    int number = (int)*origin;
    walk_int(s, &number, WEFTI_ORIGIN_TABLE, WEFTI_ORIGIN_MEASURED);
    *origin = (wefti_origin)number;
}

static void walk_nic(stream *s, wefti_nic *nic)
{
    int kind = (int)nic->kind, state = (int)nic->state;
    walk_int(s, &kind, WEFTI_NIC_INFINIBAND, WEFTI_NIC_WIFI);
    walk_int(s, &state, WEFTI_NIC_ACTIVE, WEFTI_NIC_UNKNOWN);
    nic->kind = (wefti_nic_kind)kind;
    nic->state = (wefti_nic_state)state;
    walk_real(s, &nic->gbps);
    walk_origin(s, &nic->gbps_origin);
    walk_bool(s, &nic->gbps_assumed);
    walk_bool(s, &nic->limited);
    walk_bool(s, &nic->driverless);
    walk_int(s, &nic->port, 0, 1000000);
    walk_int(s, &nic->dev, -1, 1000000);
    walk_bool(s, &nic->gdr);
    walk_u64(s, &nic->card_guid);
    walk_text(s, nic->transports, sizeof(nic->transports));
}

static void walk_gpu(stream *s, wefti_gpu *gpu)
{
    walk_int(s, &gpu->sm, 0, 100000);
    walk_int(s, &gpu->dev, -1, 1000000000);
    walk_int(s, &gpu->rank, -1, 1000000000);
    walk_bool(s, &gpu->amd);
    walk_bool(s, &gpu->gdr);
    walk_bool(s, &gpu->template_of);
    walk_u64(s, &gpu->domain);
}

static void walk_memory(stream *s, int64_t *bytes)
{
    uint64_t word = (uint64_t)*bytes;
    walk_u64(s, &word);
    *bytes = (int64_t)word;
    s->failed |= !s->writing && *bytes < 0;
}

static void walk_details(stream *s, wefti_device *d)
{
    walk_int(s, &d->os_index, -1, 1 << 30);
    walk_text(s, d->name, sizeof(d->name));
    walk_pci(s, &d->pci);
    if (d->kind == WEFTI_TOPO_NUMA) {
        walk_text(s, d->cpu.arch, sizeof(d->cpu.arch));
        walk_text(s, d->cpu.vendor, sizeof(d->cpu.vendor));
        walk_int(s, &d->cpu.family, -1000000000, 1000000000);
        walk_int(s, &d->cpu.model, -1000000000, 1000000000);
        walk_text(s, d->cpu.affinity, sizeof(d->cpu.affinity));
        walk_text(s, d->cpu.name, sizeof(d->cpu.name));
        walk_int(s, &d->cpu.cores, 0, 1000000);
        walk_memory(s, &d->cpu.memory_bytes);
    } else if (d->kind == WEFTI_TOPO_GPU) {
        walk_gpu(s, &d->gpu);
    } else if (d->kind == WEFTI_TOPO_NIC) {
        walk_nic(s, &d->nic);
    }
}

static void walk_device(stream *s, wefti_topo *topo, int index)
{
    int kind = s->writing ? (int)topo->devices[index].kind : 0;
    int parent = s->writing ? topo->devices[index].parent : -1;
    walk_int(s, &kind, WEFTI_TOPO_HOST, WEFTI_TOPO_KIND_COUNT - 1);
    walk_int(s, &parent, -1, index - 1);
    if (!s->writing) {
        s->failed |= (kind == WEFTI_TOPO_HOST) != (parent < 0);
        if (s->failed) {
            return;
        }
        /* Devices of a host lie together. */
        s->failed |= parent >= 0 && topo->devices[parent].host !=
                                        topo->devices[index - 1].host;
        if (wefti_topo_add_device(topo, (wefti_topo_kind)kind, parent, "") <
            0) {
            s->failed = true;
            return;
        }
    }
    walk_details(s, &topo->devices[index]);
}

static void walk_link(stream *s, wefti_topo *topo, int index)
{
    wefti_topo_link link = {0};
    if (s->writing) {
        link = topo->links[index];
    }
    int type = (int)link.type;
    walk_int(s, &link.a, 0, topo->device_count - 1);
    walk_int(s, &link.b, 0, topo->device_count - 1);
    walk_int(s, &type, WEFTI_LINK_PORT, WEFTI_LINK_SYS);
    link.type = (wefti_link_type)type;
    walk_int(s, &link.count, 0, 1000000);
    walk_int(s, &link.down, 0, 1000000);
    walk_real(s, &link.GBps);
    walk_real(s, &link.nccl_GBps);
    walk_real(s, &link.latency_us);
    walk_origin(s, &link.origin);
    walk_origin(s, &link.latency_origin);
    walk_bool(s, &link.assumed);
    if (s->writing || s->failed) {
        return;
    }
    s->failed |= topo->devices[link.a].host != topo->devices[link.b].host;
    int added = s->failed ? -1
                          : wefti_topo_add_link(topo, link.a, link.b, link.type,
                                                link.GBps, link.origin);
    if (added < 0) {
        s->failed = true;
    } else {
        topo->links[added] = link;
    }
}

static void walk_warning(stream *s, wefti_topo *topo, int index)
{
    wefti_topo_warning warning = {0};
    if (s->writing) {
        warning = topo->warnings[index];
    }
    walk_int(s, &warning.code, 0, 1000);
    walk_text(s, warning.device, sizeof(warning.device));
    walk_text(s, warning.text, sizeof(warning.text));
    if (!s->writing && !s->failed) {
        wefti_topo_warn(topo, warning.code, warning.device, "%s", warning.text);
    }
}

static void walk(stream *s, wefti_topo *topo)
{
    uint64_t magic = MAGIC;
    int devices = topo->device_count, links = topo->link_count;
    int warnings = topo->warning_count;
    walk_u64(s, &magic);
    s->failed |= magic != MAGIC;
    walk_int(s, &devices, 0, DEVICES_MOST);
    walk_int(s, &links, 0, DEVICES_MOST);
    walk_int(s, &warnings, 0, 10000);
    walk_int(s, &topo->warnings_left_out, 0, INT_MAX);
    walk_int(s, &topo->switch_chips, 0, 1000000);
    walk_bool(s, &topo->links_unknown);
    walk_bool(s, &topo->is_template);
    for (int i = 0; i < devices && !s->failed; i++) {
        walk_device(s, topo, i);
    }
    for (int i = 0; i < links && !s->failed; i++) {
        walk_link(s, topo, i);
    }
    for (int i = 0; i < warnings && !s->failed; i++) {
        walk_warning(s, topo, i);
    }
}

/* A card's number in place of its GUID. */
static void number_cards(wefti_topo *topo, const wefti_topo *from)
{
    for (int i = 0; i < topo->device_count; i++) {
        if (from->devices[i].kind != WEFTI_TOPO_NIC ||
            from->devices[i].nic.card_guid == 0) {
            continue;
        }
        for (int j = from->devices[i].host; j <= i; j++) {
            if (from->devices[j].kind == WEFTI_TOPO_NIC &&
                from->devices[j].nic.card_guid ==
                    from->devices[i].nic.card_guid) {
                topo->devices[i].nic.card_guid =
                    (uint64_t)from->devices[j].ordinal + 1;
                break;
            }
        }
    }
}

weft_status wefti_topo_pack(const wefti_topo *topo, unsigned char **bytes_out,
                            size_t *byte_count_out)
{
    wefti_topo *copy;
    stream s = {.writing = true};
    weft_status status = wefti_topo_create(&copy);
    if (status == WEFT_OK) {
        status = wefti_topo_merge(copy, topo);
    }
    if (status == WEFT_OK) {
        number_cards(copy, topo);
        walk(&s, copy);
        if (s.failed) {
            free(s.bytes);
            status = wefti_error(WEFT_ERR_NO_MEMORY, "packing a topology");
        }
    }
    wefti_topo_destroy(copy);
    *bytes_out = status == WEFT_OK ? s.bytes : NULL;
    *byte_count_out = status == WEFT_OK ? s.at : 0;
    return status;
}

weft_status wefti_topo_unpack(const unsigned char *bytes, size_t byte_count,
                              wefti_topo **topo_out)
{
    wefti_topo *topo;
    weft_status status = wefti_topo_create(&topo);
    if (status != WEFT_OK) {
        return status;
    }
    stream s = {.bytes = (unsigned char *)(uintptr_t)bytes,
                .count = byte_count};
    walk(&s, topo);
    if (!topo->out_of_memory && (s.failed || s.at != byte_count)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "a packed topology of %zu bytes is damaged at "
                             "byte %zu",
                             byte_count, s.at);
    } else {
        status = wefti_topo_check(topo);
    }
    if (status != WEFT_OK) {
        wefti_topo_destroy(topo);
        return status;
    }
    snprintf(topo->source, sizeof(topo->source), "contributed by ranks");
    *topo_out = topo;
    return WEFT_OK;
}
