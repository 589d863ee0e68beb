/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/board.c - maps the page that holds one rank's line.
 */
#include "comm/core/board.h"

#include "base/error.h"
#include "base/settings.h"
#include "comm/fabric/signature.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(wefti_board_line) == 128, "lines share no cache line");

size_t wefti_board_bytes(int nranks)
{
    return (size_t)nranks * sizeof(wefti_board_line);
}

/* Lines never straddle pages: 128 divides every page size. */
static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

weft_status wefti_board_open(int rank, wefti_board_line **line_out)
{
    int64_t fd;
    struct stat about;
    *line_out = NULL;
    if (!wefti_setting_given(WEFTI_SETTING_BOARD_FD)) {
        return WEFT_OK;
    }
    weft_status status = wefti_setting_int(WEFTI_SETTING_BOARD_FD, &fd);
    if (status != WEFT_OK) {
        return status;
    }
    if (fstat((int)fd, &about) != 0) {
        return wefti_error_system("WEFT_BOARD_FD=%d", (int)fd);
    }
    if (rank < 0 || about.st_size < (off_t)wefti_board_bytes(rank + 1)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_BOARD_FD=%d: %lld bytes, too few for rank %d",
                           (int)fd, (long long)about.st_size, rank);
    }
    size_t offset = wefti_board_bytes(rank);
    size_t inside = offset % page_bytes();
    char *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                      (int)fd, (off_t)(offset - inside));
    if (page == MAP_FAILED) {
        return wefti_error_system("WEFT_BOARD_FD=%d", (int)fd);
    }
    *line_out = (wefti_board_line *)(void *)(page + inside);
    return WEFT_OK;
}

void wefti_board_close(wefti_board_line *line)
{
    if (line) {
        uintptr_t page = (uintptr_t)line & ~((uintptr_t)page_bytes() - 1);
        (void)munmap((void *)page, page_bytes());
    }
}

static void describe_call(uint64_t kind, const char *what, uint64_t memory,
                          char *text_out, size_t text_bytes)
{
    int peer = (int)(kind >> 32 & 0xffffff) - 1;
    char who[24] = "any rank";
    if (peer >= 0) {
        snprintf(who, sizeof(who), "rank %d", peer);
    }
    snprintf(text_out, text_bytes, "%s %s %s, memory #%llu", what,
             (kind & 0xff) == WEFTI_BOARD_WAIT ? "for" : "to", who,
             (unsigned long long)memory);
}

void wefti_board_get_text(const wefti_board_line *line, char *text_out,
                          size_t text_bytes, const char **what_out)
{
    static const char *const calls[] = {"put", "signal", "wait"};
    uint64_t kind = atomic_load_explicit(&line->kind, memory_order_relaxed);
    uint64_t number =
        atomic_load_explicit(&line->op_number, memory_order_relaxed);
    unsigned what = (unsigned)(kind & 0xff);
    if (what >= WEFTI_BOARD_PUT && what <= WEFTI_BOARD_WAIT) {
        *what_out = calls[what - WEFTI_BOARD_PUT];
        describe_call(kind, *what_out, number, text_out, text_bytes);
        return;
    }
    *what_out =
        what < WEFT_COLLECTIVE_COUNT ? wefti_signature_name(kind) : "operation";
    int used = snprintf(text_out, text_bytes, "%s #%llu", *what_out,
                        (unsigned long long)number);
    bool send = what == WEFT_COLLECTIVE_SEND;
    if ((send || what == WEFT_COLLECTIVE_RECV) && used > 0 &&
        (size_t)used < text_bytes) {
        snprintf(text_out + used, text_bytes - (size_t)used, " %s rank %d",
                 send ? "to" : "from", (int)(kind >> 32 & 0xffffff) - 1);
    }
}

void wefti_board_get_name(const wefti_board_line *line, char name_out[32])
{
    uint64_t words[4];
    for (int i = 0; i < 4; i++) {
        words[i] =
            atomic_load_explicit(&line->comm_name[i], memory_order_relaxed);
    }
    memcpy(name_out, words, sizeof(words));
    name_out[sizeof(words) - 1] = '\0';
    for (char *at = name_out; *at; at++) {
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
    }
}
