/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/place.c - keys from what the kernel says of this process.
 *
 * Equal keys promise nothing: they say which rank to ask for memory, and only a
 * rank that gets it shares it.
 */
#include "comm/oob/place.h"

#include "base/error.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A kernel without it adds nothing, on all ranks alike. */
static weft_status add_boot(crypto_generichash_state *state)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    unsigned char boot[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? WEFT_OK
                               : wefti_error_system("%s (open)", path);
    }
    ssize_t got = read(fd, boot, sizeof(boot));
    weft_status status =
        got < 0 ? wefti_error_system("%s (read)", path) : WEFT_OK;
    close(fd);
    crypto_generichash_update(state, boot, got > 0 ? (size_t)got : 0);
    return status;
}

static weft_status add_namespace(crypto_generichash_state *state,
                                 const char *name)
{
    char path[40];
    struct stat about;
    uint64_t number = 0;
    snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
    if (stat(path, &about) == 0) {
        number = (uint64_t)about.st_ino;
    } else if (errno != ENOENT) {
        return wefti_error_system("%s (stat)", path);
    }
    crypto_generichash_update(state, (unsigned char *)&number, sizeof(number));
    return WEFT_OK;
}

weft_status wefti_place_check(int nranks)
{
    const char *labels = wefti_setting_text(WEFTI_SETTING_DOMAIN);
    int words = 1;
    for (const char *at = labels; *at; at++) {
        words += *at == ',';
    }
    if (words > 1 && words < nranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_DOMAIN=%.200s: %d words, but there are %d "
                           "ranks: allowed is one word for all, or at least "
                           "one for each",
                           labels, words, nranks);
    }
    return wefti_inner_levels_check(nranks);
}

/* WEFT_DOMAIN: one word for all ranks, or one for each, between commas. */
static void add_label(crypto_generichash_state *state, int rank)
{
    const char *label = wefti_setting_text(WEFTI_SETTING_DOMAIN);
    if (strchr(label, ',')) {
        for (int i = 0; i < rank && label; i++) {
            label = strchr(label, ',');
            label = label ? label + 1 : NULL;
        }
    }
    size_t characters = label ? strcspn(label, ",") : 0;
    crypto_generichash_update(state, (const unsigned char *)label, characters);
}

/* Each level's key says of those around it what they say of the rank. */
static void find_inner(const crypto_generichash_state *domain, int rank,
                       wefti_place *place_out)
{
    crypto_generichash_state state = *domain;
    for (int level = WEFTI_PLACE_LEVELS - 1; level >= 0; level--) {
        char label[WEFTI_INNER_LABEL_BYTES];
        wefti_inner_level_label(rank, level, label);
        crypto_generichash_update(&state, (const unsigned char *)label,
                                  strlen(label) + 1);
        crypto_generichash_state whole = state;
        crypto_generichash_final(&whole, place_out->inner[level],
                                 sizeof(place_out->inner[level]));
    }
}

weft_status wefti_place_find(int rank, wefti_place *place_out)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof(place_out->host));
    weft_status status = add_boot(&state);
    crypto_generichash_state host = state;
    crypto_generichash_final(&host, place_out->host, sizeof(place_out->host));
    if (status == WEFT_OK) {
        status = add_namespace(&state, "net");
    }
    if (status == WEFT_OK) {
        status = add_namespace(&state, "pid");
    }
    add_label(&state, rank);
    find_inner(&state, rank, place_out);
    crypto_generichash_final(&state, place_out->domain,
                             sizeof(place_out->domain));
    return status;
}
