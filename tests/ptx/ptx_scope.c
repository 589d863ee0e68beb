/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_scope.c - names: registers, variables, functions, labels.
 */
#include "tests/ptx/ptx_fault.h"
#include "tests/ptx/ptx_parser.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_refuse(const ptx_parser *parser, int line, const char *format, ...)
{
    va_list values;
    ptx_fault_set("%s:%d: ", parser->program->name, line);
    va_start(values, format);
    ptx_fault_add(format, values);
    va_end(values);
    return false;
}

bool ptx_expected(const ptx_parser *parser, const char *what)
{
    const ptx_token *token = &parser->scan.token;
    if (token->kind == PTX_TOKEN_END) {
        return ptx_refuse(parser, token->line, "expected %s, not the end",
                          what);
    }
    return ptx_refuse(parser, token->line, "expected %s, not '%.*s'", what,
                      (int)token->bytes, token->at);
}

bool ptx_accept(ptx_parser *parser, const char *text)
{
    bool here = ptx_token_is(&parser->scan.token, text);
    if (here) {
        ptx_scan_next(&parser->scan);
    }
    return here;
}

bool ptx_take(ptx_parser *parser, const char *text)
{
    char what[32];
    snprintf(what, sizeof(what), "'%s'", text);
    return ptx_accept(parser, text) || ptx_expected(parser, what);
}

bool ptx_take_count(ptx_parser *parser, uint64_t *number)
{
    const ptx_token *token = &parser->scan.token;
    if (token->kind != PTX_TOKEN_NUMBER || token->real_bits != 0) {
        return ptx_expected(parser, "a number");
    }
    *number = token->number;
    ptx_scan_next(&parser->scan);
    return true;
}

static bool same(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

const ptx_variable *ptx_scope_variable(const ptx_parser *parser,
                                       const ptx_token *name)
{
    for (uint32_t i = parser->program->variables.count; i-- > 0;) {
        const ptx_variable *known = &parser->program->variables.at[i];
        if ((known->owner == parser->function || known->owner == PTX_NOWHERE) &&
            same(known->name, known->name_bytes, name->at, name->bytes)) {
            return known;
        }
    }
    return NULL;
}

uint32_t ptx_scope_function(const ptx_parser *parser, const ptx_token *name)
{
    for (uint32_t i = 0; i < parser->program->functions.count; i++) {
        if (ptx_token_is(name, parser->program->functions.at[i].name)) {
            return i;
        }
    }
    return PTX_NOWHERE;
}

/* %r12 of "%r<20>": its number, if it is written without needless zeros. */
static bool number_of(const ptx_registers *known, const ptx_token *name,
                      uint32_t *number)
{
    size_t digits = name->bytes - known->bytes;
    if (name->bytes <= known->bytes || digits > 7 ||
        memcmp(known->at, name->at, known->bytes) != 0 ||
        (digits > 1 && name->at[known->bytes] == '0')) {
        return false;
    }
    *number = 0;
    for (size_t i = known->bytes; i < name->bytes; i++) {
        if (!isdigit((unsigned char)name->at[i])) {
            return false;
        }
        *number = *number * 10 + (uint32_t)(name->at[i] - '0');
    }
    return *number < known->count;
}

bool ptx_scope_register(const ptx_parser *parser, const ptx_token *name,
                        uint32_t *slot, ptx_type *type)
{
    for (uint32_t i = parser->registers.count; i-- > 0;) {
        const ptx_registers *known = &parser->registers.at[i];
        uint32_t number = 0;
        if (known->many
                ? number_of(known, name, &number)
                : same(known->at, known->bytes, name->at, name->bytes)) {
            *slot = known->slot + number;
            *type = known->type;
            return true;
        }
    }
    return false;
}

/* One of the names behind ".reg TYPE". */
static bool add_registers(ptx_parser *parser, ptx_type type)
{
    ptx_token name = parser->scan.token;
    ptx_registers made = {name.at, name.bytes, false,        1,
                          0,       type,       parser->depth};
    if (name.kind != PTX_TOKEN_NAME) {
        return ptx_expected(parser, "a register's name");
    }
    ptx_scan_next(&parser->scan);
    if (ptx_accept(parser, "<")) {
        uint64_t count = 0;
        if (!ptx_take_count(parser, &count) || !ptx_take(parser, ">")) {
            return false;
        }
        if (count == 0 || count > 1000000) {
            return ptx_refuse(parser, name.line, "%.*s<...>: 1 to 1000000",
                              (int)name.bytes, name.at);
        }
        made.many = true;
        made.count = (uint32_t)count;
    }
    for (uint32_t i = 0; i < parser->registers.count; i++) {
        const ptx_registers *other = &parser->registers.at[i];
        if (other->depth == parser->depth && other->many == made.many &&
            same(other->at, other->bytes, made.at, made.bytes)) {
            return ptx_refuse(parser, name.line, "'%.*s' is declared twice",
                              (int)name.bytes, name.at);
        }
    }
    ptx_function *function = &parser->program->functions.at[parser->function];
    made.slot = function->slots;
    function->slots += made.count;
    *PTX_ADD(parser->registers) = made;
    return true;
}

bool ptx_scope_add_registers(ptx_parser *parser)
{
    const ptx_token *token = &parser->scan.token;
    ptx_type type = token->at[0] == '.'
                        ? ptx_type_find(token->at + 1, token->bytes - 1)
                        : PTX_NO_TYPE;
    if (type == PTX_NO_TYPE || ptx_type_values(type) != 1) {
        return ptx_expected(parser, "a register's type");
    }
    do {
        ptx_scan_next(&parser->scan); /* the type, or the comma */
        if (!add_registers(parser, type)) {
            return false;
        }
    } while (ptx_token_is(token, ","));
    return ptx_take(parser, ";");
}

bool ptx_scope_add_label(ptx_parser *parser, const ptx_token *name,
                         bool is_table, uint32_t place)
{
    *PTX_ADD(parser->labels) =
        (ptx_label){name->at, name->bytes, name->line, is_table, place};
    return true;
}

void ptx_scope_close(ptx_parser *parser)
{
    while (parser->registers.count != 0 &&
           parser->registers.at[parser->registers.count - 1].depth ==
               parser->depth) {
        parser->registers.count--;
    }
    for (uint32_t i = parser->program->variables.count; i-- > 0;) {
        ptx_variable *known = &parser->program->variables.at[i];
        if (known->owner != parser->function) {
            break;
        }
        if (known->depth == parser->depth) {
            known->name_bytes = 0;
        }
    }
    parser->depth--;
}

static int compare_labels(const void *left, const void *right)
{
    const ptx_label *a = left, *b = right;
    size_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->at, b->at, bytes);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bool resolve(ptx_parser *parser, const ptx_label_use *use)
{
    ptx_program *program = parser->program;
    ptx_label key = {.at = use->name.at, .bytes = use->name.bytes};
    const ptx_label *found =
        parser->labels.count == 0
            ? NULL
            : bsearch(&key, parser->labels.at, parser->labels.count,
                      sizeof(key), compare_labels);
    if (!found || found->is_table != use->is_table) {
        return ptx_refuse(parser, use->name.line, "'%.*s': no such %s",
                          (int)use->name.bytes, use->name.at,
                          use->is_table ? "table of labels" : "label");
    }
    if (use->in_table) {
        program->places.at[use->at] = found->place;
    } else {
        program->code.at[use->at].target = found->place;
    }
    return true;
}

bool ptx_scope_resolve(ptx_parser *parser)
{
    ptx_label *labels = parser->labels.at;
    if (parser->labels.count != 0) {
        qsort(labels, parser->labels.count, sizeof(*labels), compare_labels);
    }
    for (uint32_t i = 0; i + 1 < parser->labels.count; i++) {
        if (compare_labels(&labels[i], &labels[i + 1]) == 0) {
            int a = labels[i].line, b = labels[i + 1].line;
            return ptx_refuse(parser, a > b ? a : b,
                              "label '%.*s' is there twice",
                              (int)labels[i].bytes, labels[i].at);
        }
    }
    for (uint32_t i = 0; i < parser->uses.count; i++) {
        if (!resolve(parser, &parser->uses.at[i])) {
            return false;
        }
    }
    parser->labels.count = 0;
    parser->uses.count = 0;
    parser->registers.count = 0;
    return true;
}
