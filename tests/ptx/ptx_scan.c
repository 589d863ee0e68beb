/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_scan.c - names, numbers, strings and marks; comments and space
 * between them.
 */
#include "tests/ptx/ptx_scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void skip_comment(ptx_scan *scan, const char *end)
{
    const char *at = strstr(scan->next + 2, end);
    const char *to = at ? at + strlen(end) : scan->next + strlen(scan->next);
    for (; scan->next != to; scan->next++) {
        scan->line += *scan->next == '\n';
    }
}

static void skip_space(ptx_scan *scan)
{
    for (;;) {
        if (scan->next[0] == '/' && scan->next[1] == '/') {
            skip_comment(scan, "\n");
        } else if (scan->next[0] == '/' && scan->next[1] == '*') {
            skip_comment(scan, "*/");
        } else if (isspace((unsigned char)*scan->next)) {
            scan->line += *scan->next == '\n';
            scan->next++;
        } else {
            return;
        }
    }
}

static bool in_name(const char *at)
{
    return isalnum((unsigned char)*at) || strchr("_$%.", *at);
}

static size_t name_bytes(const char *at)
{
    const char *end = at;
    while (*end != '\0' && (in_name(end) || (end[0] == ':' && end[1] == ':'))) {
        end += *end == ':' ? 2 : 1;
    }
    return (size_t)(end - at);
}

/* 0f3f800000 and 0d3ff0000000000000: exactly so many digits. */
static bool read_bits(ptx_token *token, char letter, unsigned digits)
{
    const char *at = token->at;
    if (at[0] != '0' || tolower((unsigned char)at[1]) != letter) {
        return false;
    }
    for (unsigned i = 0; i < digits; i++) {
        if (!isxdigit((unsigned char)at[2 + i])) {
            return false;
        }
    }
    char *end;
    token->number = strtoull(at + 2, &end, 16);
    token->real_bits = digits * 4;
    token->bytes = 2 + digits;
    return end == at + 2 + digits;
}

static bool read_number(ptx_token *token)
{
    char *end;
    if (read_bits(token, 'f', 8) || read_bits(token, 'd', 16)) {
        return true;
    }
    if (token->at[0] == '0' && tolower((unsigned char)token->at[1]) == 'b') {
        token->number = strtoull(token->at + 2, &end, 2);
    } else {
        token->number = strtoull(token->at, &end, 0);
    }
    if (*end == '.' || *end == 'e' || *end == 'E') {
        token->real = strtod(token->at, &end);
        token->real_bits = 1;
    } else if (*end == 'U') {
        end++;
    }
    token->bytes = (size_t)(end - token->at);
    return token->bytes != 0 && !isalnum((unsigned char)*end);
}

void ptx_scan_next(ptx_scan *scan)
{
    skip_space(scan);
    ptx_token *token = &scan->token;
    *token = (ptx_token){.at = scan->next, .line = scan->line, .bytes = 1};
    char first = *scan->next;
    if (first == '\0') {
        token->kind = PTX_TOKEN_END;
        token->bytes = 0;
    } else if (isdigit((unsigned char)first)) {
        token->kind = read_number(token) ? PTX_TOKEN_NUMBER : PTX_TOKEN_BAD;
    } else if (in_name(scan->next)) {
        token->kind = PTX_TOKEN_NAME;
        token->bytes = name_bytes(scan->next);
    } else if (first == '"') {
        const char *end = strchr(scan->next + 1, '"');
        token->kind = end ? PTX_TOKEN_STRING : PTX_TOKEN_BAD;
        token->bytes = end ? (size_t)(end - scan->next) + 1 : 1;
    } else {
        token->kind = strchr("{}()[]<>,;:|!@+-=_", first) ? PTX_TOKEN_MARK
                                                          : PTX_TOKEN_BAD;
    }
    scan->next += token->bytes;
}

void ptx_scan_begin(ptx_scan *scan, const char *text)
{
    *scan = (ptx_scan){.next = text, .line = 1};
    ptx_scan_next(scan);
}

bool ptx_token_is(const ptx_token *token, const char *text)
{
    return token->bytes == strlen(text) &&
           memcmp(token->at, text, token->bytes) == 0;
}
