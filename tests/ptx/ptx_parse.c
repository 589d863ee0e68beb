/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_parse.c - a module: directives, functions, and what stands in
 * them.
 */
#include "tests/ptx/ptx_fault.h"
#include "tests/ptx/ptx_parser.h"
#include "tests/ptx/ptx_row.h"

#include <stdlib.h>
#include <string.h>

enum { CODE_MAX = 1 << 24 };

void *ptx_array_grow(void *at, uint32_t count, uint32_t *room,
                     size_t elem_bytes)
{
    if (count == *room) {
        *room = *room == 0 ? 16 : *room * 2;
        at = realloc(at, *room * elem_bytes);
        if (!at) {
            abort();
        }
    }
    memset((char *)at + count * elem_bytes, 0, elem_bytes);
    return at;
}

static ptx_function *current(const ptx_parser *parser)
{
    return &parser->program->functions.at[parser->function];
}

/* Numbers, `most` of them at most. */
static bool take_limits(ptx_parser *parser, unsigned *limits, unsigned most)
{
    unsigned count = 0;
    do {
        uint64_t number;
        if (count == most) {
            return ptx_expected(parser, "no more numbers");
        }
        if (!ptx_take_count(parser, &number)) {
            return false;
        }
        limits[count++] = (unsigned)number;
    } while (ptx_accept(parser, ","));
    return true;
}

/* What stands between a kernel's parameters and its body. */
static bool take_tuning(ptx_parser *parser)
{
    while (!ptx_token_is(&parser->scan.token, "{") &&
           !ptx_token_is(&parser->scan.token, ";")) {
        unsigned limits[3] = {1, 1, 1};
        if (ptx_accept(parser, ".maxntid")) {
            if (!take_limits(parser, limits, 3)) {
                return false;
            }
            current(parser)->threads_max = limits[0] * limits[1] * limits[2];
        } else if (ptx_accept(parser, ".reqntid")) {
            if (!take_limits(parser, limits, 3)) {
                return false;
            }
            memcpy(current(parser)->threads_exact, limits, sizeof(limits));
        } else if (ptx_accept(parser, ".minnctapersm") ||
                   ptx_accept(parser, ".maxnreg")) {
            if (!take_limits(parser, limits, 1)) {
                return false;
            }
        } else if (!ptx_accept(parser, ".noreturn")) {
            return ptx_expected(parser, "'{'");
        }
    }
    return true;
}

/* "(.param .b32 a, .param .u64 b)"; their number is added to *count. */
static bool take_parameters(ptx_parser *parser, uint32_t *count)
{
    if (!ptx_take(parser, "(")) {
        return false;
    }
    if (ptx_accept(parser, ")")) {
        return true;
    }
    do {
        if (!ptx_take(parser, ".param") ||
            !ptx_declare(parser, PTX_PARAM, false)) {
            return false;
        }
        ++*count;
    } while (ptx_accept(parser, ","));
    return ptx_take(parser, ")");
}

/* .pragma "nounroll"; the only one that changes nothing here. */
static bool take_pragma(ptx_parser *parser)
{
    if (!ptx_token_is(&parser->scan.token, "\"nounroll\"")) {
        return ptx_expected(parser, "\"nounroll\"");
    }
    ptx_scan_next(&parser->scan);
    return ptx_take(parser, ";");
}

/* ".branchtargets a, b;" behind its label. */
static bool take_table(ptx_parser *parser, const ptx_token *name)
{
    ptx_program *program = parser->program;
    uint32_t number = program->tables.count;
    ptx_table *table = PTX_ADD(program->tables);
    table->first = program->places.count;
    do {
        if (parser->scan.token.kind != PTX_TOKEN_NAME) {
            return ptx_expected(parser, "a label");
        }
        *PTX_ADD(parser->uses) = (ptx_label_use){.name = parser->scan.token,
                                                 .in_table = true,
                                                 .at = program->places.count};
        *PTX_ADD(program->places) = 0;
        ptx_scan_next(&parser->scan);
    } while (ptx_accept(parser, ","));
    table->count = program->places.count - table->first;
    return ptx_scope_add_label(parser, name, true, number) &&
           ptx_take(parser, ";");
}

static bool take_instruction(ptx_parser *parser)
{
    ptx_instruction now = {0};
    ptx_token first = parser->scan.token;
    if (ptx_accept(parser, "@")) {
        now.guarded = true;
        if (!ptx_decode_predicate(parser, &now.guard)) {
            return false;
        }
    }
    if (!ptx_decode(parser, &now)) {
        return false;
    }
    if (parser->program->code.count == CODE_MAX) {
        return ptx_refuse(parser, first.line, "more than %d instructions",
                          CODE_MAX);
    }
    *PTX_ADD(parser->program->code) = now;
    return true;
}

static bool take_local(ptx_parser *parser)
{
    static const struct {
        const char *text;
        ptx_space space;
    } spaces[] = {
        {".shared", PTX_SHARED}, {".local", PTX_LOCAL}, {".param", PTX_PARAM}};
    for (unsigned i = 0; i < 3; i++) {
        if (ptx_accept(parser, spaces[i].text)) {
            return ptx_declare(parser, spaces[i].space, false) &&
                   ptx_take(parser, ";");
        }
    }
    return ptx_expected(parser, "a directive that is known in a function");
}

static bool take_statement(ptx_parser *parser)
{
    ptx_token first = parser->scan.token;
    if (ptx_accept(parser, "{")) {
        parser->depth++;
        return true;
    }
    if (ptx_accept(parser, "}")) {
        ptx_scope_close(parser);
        return true;
    }
    if (ptx_accept(parser, ".reg")) {
        return ptx_scope_add_registers(parser);
    }
    if (ptx_accept(parser, ".pragma")) {
        return take_pragma(parser);
    }
    if (first.kind == PTX_TOKEN_NAME && first.at[0] == '.') {
        return take_local(parser);
    }
    if (first.kind == PTX_TOKEN_NAME && first.at[first.bytes] == ':') {
        ptx_scan_next(&parser->scan);
        ptx_scan_next(&parser->scan);
        if (ptx_accept(parser, ".branchtargets")) {
            return take_table(parser, &first);
        }
        return ptx_scope_add_label(parser, &first, false,
                                   parser->program->code.count);
    }
    return take_instruction(parser);
}

static bool take_body(ptx_parser *parser)
{
    static const ptx_row end_row = {"end of the function", "", NULL,
                                    ptx_run_return,        0,  true};
    current(parser)->defined = true;
    current(parser)->begin = parser->program->code.count;
    int line;
    parser->depth = 1;
    ptx_scan_next(&parser->scan); /* { */
    do {
        line = parser->scan.token.line;
        if (parser->scan.token.kind == PTX_TOKEN_END) {
            return ptx_expected(parser, "'}'");
        }
        if (!take_statement(parser)) {
            return false;
        }
    } while (parser->depth > 0);
    *PTX_ADD(parser->program->code) = (ptx_instruction){
        .row = &end_row, .text = "}", .text_bytes = 1, .line = line};
    current(parser)->end = parser->program->code.count;
    return ptx_scope_resolve(parser);
}

/* The function of that name, new or declared before. */
static bool begin_function(ptx_parser *parser, bool is_kernel)
{
    ptx_token name = parser->scan.token;
    if (name.kind != PTX_TOKEN_NAME || name.at[0] == '.') {
        return ptx_expected(parser, "a function's name");
    }
    parser->function = ptx_scope_function(parser, &name);
    if (parser->function == PTX_NOWHERE) {
        parser->function = parser->program->functions.count;
        PTX_ADD(parser->program->functions)->name =
            strndup(name.at, name.bytes);
    } else if (current(parser)->defined || is_kernel) {
        return ptx_refuse(parser, name.line, "'%.*s' is there twice",
                          (int)name.bytes, name.at);
    }
    current(parser)->is_kernel = is_kernel;
    ptx_scan_next(&parser->scan);
    return true;
}

/* A declaration's parameters are in no-one's way when it is declared again. */
static void forget_parameters(ptx_parser *parser)
{
    for (uint32_t i = 0; i < parser->program->variables.count; i++) {
        if (parser->program->variables.at[i].owner == parser->function) {
            parser->program->variables.at[i].name_bytes = 0;
        }
    }
}

/* Results stand before the name, of which they need to know the owner. */
static bool take_function(ptx_parser *parser, bool is_kernel)
{
    ptx_scan results = parser->scan;
    bool has_results = !is_kernel && ptx_token_is(&parser->scan.token, "(");
    while (has_results && !ptx_token_is(&parser->scan.token, ")")) {
        if (parser->scan.token.kind == PTX_TOKEN_END) {
            return ptx_expected(parser, "')'");
        }
        ptx_scan_next(&parser->scan);
    }
    if (has_results) {
        ptx_scan_next(&parser->scan);
    }
    if (!begin_function(parser, is_kernel)) {
        return false;
    }
    ptx_function *made = current(parser);
    uint32_t count = 0;
    forget_parameters(parser);
    made->first_param = parser->program->variables.count;
    made->results = 0;
    if (has_results) {
        ptx_scan after = parser->scan;
        parser->scan = results;
        if (!take_parameters(parser, &count)) {
            return false;
        }
        made->results = count;
        parser->scan = after;
    }
    if (ptx_token_is(&parser->scan.token, "(") &&
        !take_parameters(parser, &count)) {
        return false;
    }
    made->params = count;
    if (!take_tuning(parser)) {
        return false;
    }
    bool ok = ptx_accept(parser, ";") || take_body(parser);
    parser->function = PTX_NOWHERE;
    parser->depth = 0;
    return ok;
}

static bool take_target(ptx_parser *parser)
{
    const ptx_token *token = &parser->scan.token;
    if (token->kind != PTX_TOKEN_NAME || token->bytes < 5 ||
        memcmp(token->at, "sm_", 3) != 0) {
        return ptx_expected(parser, "sm_ and a number");
    }
    ptx_scan_next(&parser->scan);
    return true;
}

static bool take_version(ptx_parser *parser)
{
    const ptx_token *token = &parser->scan.token;
    if (token->real_bits != 1 || token->real < 6 || token->real >= 10) {
        return ptx_expected(parser, "a version from 6.0 to 9.9");
    }
    ptx_scan_next(&parser->scan);
    return true;
}

static bool take_address_size(ptx_parser *parser)
{
    if (!ptx_token_is(&parser->scan.token, "64")) {
        return ptx_expected(parser, "64");
    }
    ptx_scan_next(&parser->scan);
    return true;
}

static bool take_item(ptx_parser *parser)
{
    if (ptx_accept(parser, ".version")) {
        return take_version(parser);
    }
    if (ptx_accept(parser, ".target")) {
        return take_target(parser);
    }
    if (ptx_accept(parser, ".address_size")) {
        return take_address_size(parser);
    }
    bool is_extern = ptx_token_is(&parser->scan.token, ".extern");
    if (is_extern || ptx_token_is(&parser->scan.token, ".visible") ||
        ptx_token_is(&parser->scan.token, ".weak")) {
        ptx_scan_next(&parser->scan);
    }
    if (ptx_accept(parser, ".entry")) {
        return take_function(parser, true);
    }
    if (ptx_accept(parser, ".func")) {
        return take_function(parser, false);
    }
    ptx_space space = ptx_accept(parser, ".shared")   ? PTX_SHARED
                      : ptx_accept(parser, ".global") ? PTX_GLOBAL
                      : ptx_accept(parser, ".const")  ? PTX_CONST
                                                      : PTX_GENERIC;
    if (space == PTX_GENERIC) {
        return ptx_expected(parser, "a directive that is known");
    }
    return ptx_declare(parser, space, is_extern) && ptx_take(parser, ";");
}

/* The kernels' registers come behind those of the functions. */
static bool place_registers(ptx_parser *parser)
{
    ptx_program *program = parser->program;
    for (uint32_t f = 0; f < program->functions.count; f++) {
        program->called_slots += program->functions.at[f].is_kernel
                                     ? 0
                                     : program->functions.at[f].slots;
    }
    uint32_t used = 0;
    for (uint32_t f = 0; f < program->functions.count; f++) {
        const ptx_function *function = &program->functions.at[f];
        uint32_t base = function->is_kernel ? program->called_slots : used;
        used += function->is_kernel ? 0 : function->slots;
        for (uint32_t i = function->begin; i < function->end; i++) {
            ptx_instruction *now = &program->code.at[i];
            for (unsigned k = 0; k < PTX_OPERANDS; k++) {
                if (now->operands[k].kind == PTX_REGISTER) {
                    now->operands[k].slot += base;
                }
            }
            now->guard.slot += base;
            if (now->row->run == ptx_run_call &&
                !program->functions.at[program->calls.at[now->target].function]
                     .defined) {
                return ptx_refuse(parser, now->line,
                                  "a call of what is only declared");
            }
        }
    }
    return true;
}

ptx_program *ptx_program_create(const char *name, const char *text)
{
    ptx_program *program = calloc(1, sizeof(*program));
    if (!program) {
        abort();
    }
    program->name = strdup(name);
    program->text = strdup(text);
    ptx_parser parser = {.program = program, .function = PTX_NOWHERE};
    ptx_scan_begin(&parser.scan, program->text);
    bool ok = true;
    while (ok && parser.scan.token.kind != PTX_TOKEN_END) {
        ok = take_item(&parser);
    }
    ok = ok && place_registers(&parser);
    free(parser.registers.at);
    free(parser.labels.at);
    free(parser.uses.at);
    if (!ok) {
        ptx_program_destroy(program);
        return NULL;
    }
    return program;
}

void ptx_program_destroy(ptx_program *program)
{
    if (!program) {
        return;
    }
    for (uint32_t i = 0; i < program->functions.count; i++) {
        free(program->functions.at[i].name);
    }
    for (uint32_t i = 0; i < program->globals.count; i++) {
        free(program->globals.at[i]);
    }
    free(program->code.at);
    free(program->functions.at);
    free(program->variables.at);
    free(program->calls.at);
    free(program->tables.at);
    free(program->places.at);
    free(program->globals.at);
    free(program->const_data);
    free(program->name);
    free(program->text);
    free(program);
}

const char *ptx_program_kernel(const ptx_program *program, size_t i)
{
    for (uint32_t f = 0; f < program->functions.count; f++) {
        if (program->functions.at[f].is_kernel && i-- == 0) {
            return program->functions.at[f].name;
        }
    }
    return NULL;
}
