/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_decode.c - an instruction's words against the rows that begin
 * with its first one. A word that no row has at its place is refused.
 */
#include "tests/ptx/ptx_parser.h"
#include "tests/ptx/ptx_row.h"

#include <string.h>

/* A word of an opcode or a pattern, up to the next dot. */
typedef struct word {
    const char *at;
    size_t bytes;
} word;

static word first_word(const char *at, const char *end)
{
    const char *dot = memchr(at, '.', (size_t)(end - at));
    return (word){at, (size_t)((dot ? dot : end) - at)};
}

static word next_word(word now, const char *end)
{
    const char *at = now.at + now.bytes;
    return at == end ? (word){end, 0} : first_word(at + 1, end);
}

static void choose(ptx_instruction *now, const ptx_word *chosen)
{
    if (chosen->field == PTX_FLAGS) {
        now->fields[PTX_FLAGS] |= chosen->value;
    } else {
        now->fields[chosen->field] = chosen->value;
    }
}

static void set_type(ptx_instruction *now, ptx_type type)
{
    if (now->type == PTX_NO_TYPE) {
        now->type = (uint8_t)type;
    } else {
        now->from = (uint8_t)type;
    }
}

/* Whether the opcode's word is one that the pattern's allows. */
static bool word_fits(ptx_instruction *now, word pattern, word given)
{
    uint32_t types = ptx_word_types(pattern.at, pattern.bytes);
    ptx_type type = ptx_type_find(given.at, given.bytes);
    if (types != 0) {
        if (!(types >> type & 1)) {
            return false;
        }
        set_type(now, type);
        return true;
    }
    const ptx_word *chosen =
        ptx_word_find(pattern.at, pattern.bytes, given.at, given.bytes);
    if (!chosen) {
        if (given.bytes != pattern.bytes ||
            memcmp(given.at, pattern.at, given.bytes) != 0) {
            return false;
        }
        chosen = ptx_word_find(NULL, 0, given.at, given.bytes);
    }
    if (chosen) {
        choose(now, chosen);
    } else if (type != PTX_NO_TYPE) {
        set_type(now, type);
    }
    return true;
}

/* Whether all words fit; *reached: the first that does not, if any. */
static bool row_fits(const ptx_row *row, const ptx_token *opcode,
                     ptx_instruction *now, const char **reached)
{
    const char *pattern_end = row->pattern + strlen(row->pattern);
    const char *end = opcode->at + opcode->bytes;
    word pattern = first_word(row->pattern, pattern_end);
    word given = first_word(opcode->at, end);
    while (pattern.bytes != 0) {
        word wanted = pattern;
        bool optional = wanted.at[wanted.bytes - 1] == '?';
        wanted.bytes -= optional;
        if (given.bytes != 0 && word_fits(now, wanted, given)) {
            given = next_word(given, end);
        } else if (!optional) {
            break;
        }
        pattern = next_word(pattern, pattern_end);
    }
    if (given.at > *reached) {
        *reached = given.at;
    }
    return pattern.bytes == 0 && given.at == end && end[-1] != '.';
}

static bool refuse_opcode(ptx_parser *parser, const ptx_token *opcode,
                          const char *reached)
{
    const char *end = opcode->at + opcode->bytes;
    int bytes = (int)opcode->bytes;
    if (!reached) {
        return ptx_refuse(parser, opcode->line, "%.*s: no such instruction",
                          bytes, opcode->at);
    }
    if (reached == end) {
        return ptx_refuse(parser, opcode->line, "%.*s: something is missing",
                          bytes, opcode->at);
    }
    return ptx_refuse(parser, opcode->line, "%.*s: not known with '.%.*s'",
                      bytes, opcode->at, (int)first_word(reached, end).bytes,
                      reached);
}

static bool find_row(ptx_parser *parser, ptx_instruction *now)
{
    const ptx_token *opcode = &parser->scan.token;
    const char *reached = NULL;
    word base = first_word(opcode->at, opcode->at + opcode->bytes);
    for (const ptx_row *row = ptx_rows; row->pattern; row++) {
        if (strncmp(row->pattern, base.at, base.bytes) != 0 ||
            (row->pattern[base.bytes] != '.' &&
             row->pattern[base.bytes] != '\0')) {
            continue;
        }
        ptx_instruction tried = *now;
        if (row_fits(row, opcode, &tried, &reached)) {
            *now = tried;
            now->row = row;
            return true;
        }
    }
    return refuse_opcode(parser, opcode, reached);
}

/* The last instruction with the same opcode, or one that hides it. */
static uint32_t *recent_of(ptx_parser *parser, const ptx_token *opcode)
{
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t i = 0; i < opcode->bytes; i++) {
        hash = (hash ^ (unsigned char)opcode->at[i]) * 16777619U;
    }
    return &parser->recent[hash % PTX_RECENT];
}

/* What has been found before needs no search. */
static bool find_again(const ptx_parser *parser, uint32_t recent,
                       ptx_instruction *now)
{
    const ptx_token *opcode = &parser->scan.token;
    if (recent >= parser->program->code.count) {
        return false;
    }
    const ptx_instruction *old = &parser->program->code.at[recent];
    if ((size_t)old->text_bytes < opcode->bytes ||
        memcmp(old->text, opcode->at, opcode->bytes) != 0 ||
        !strchr(" \t\n;", old->text[opcode->bytes])) {
        return false;
    }
    now->row = old->row;
    now->type = old->type;
    now->from = old->from;
    memcpy(now->fields, old->fields, sizeof(now->fields));
    return true;
}

bool ptx_decode(ptx_parser *parser, ptx_instruction *now)
{
    ptx_token opcode = parser->scan.token;
    if (opcode.kind != PTX_TOKEN_NAME) {
        return ptx_expected(parser, "an instruction");
    }
    uint32_t *recent = recent_of(parser, &opcode);
    now->line = opcode.line;
    if (!find_again(parser, *recent, now) && !find_row(parser, now)) {
        return false;
    }
    *recent = parser->program->code.count;
    now->text = opcode.at;
    ptx_scan_next(&parser->scan);
    if (!ptx_decode_operands(parser, now)) {
        return false;
    }
    const char *end = parser->scan.token.at;
    if (!ptx_accept(parser, ";")) {
        return ptx_refuse(parser, now->line,
                          "%.*s: expected ';' after its operands, not '%.*s'",
                          (int)opcode.bytes, opcode.at,
                          (int)parser->scan.token.bytes, end);
    }
    now->text_bytes = (int)(end - now->text);
    return true;
}
