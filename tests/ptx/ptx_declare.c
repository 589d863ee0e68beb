/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_declare.c - variables: where each lies in its space, and what
 * is in it at first.
 *
 * Between two variables is a gap, so that an access just behind one is found.
 */
#include "tests/ptx/ptx_parser.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 1 << 20 };

typedef struct declared {
    ptx_token name;
    ptx_type type;
    size_t align, elems; /* elems 0: [] */
    unsigned vector;
    bool is_array;
} declared;

static bool take_align(ptx_parser *parser, declared *made)
{
    uint64_t align;
    int line = parser->scan.token.line;
    if (!ptx_take_count(parser, &align)) {
        return false;
    }
    if (align == 0 || align > 128 || (align & (align - 1)) != 0) {
        return ptx_refuse(parser, line, ".align: a power of 2 up to 128");
    }
    made->align = align;
    return true;
}

/* .align 8 .v2 .b32, in any order */
static bool take_attributes(ptx_parser *parser, declared *made)
{
    for (;;) {
        const ptx_token *token = &parser->scan.token;
        ptx_type type = token->at[0] == '.'
                            ? ptx_type_find(token->at + 1, token->bytes - 1)
                            : PTX_NO_TYPE;
        if (ptx_accept(parser, ".align")) {
            if (!take_align(parser, made)) {
                return false;
            }
        } else if (ptx_accept(parser, ".v2")) {
            made->vector = 2;
        } else if (ptx_accept(parser, ".v4")) {
            made->vector = 4;
        } else if (type > PTX_PRED && ptx_type_values(type) == 1 &&
                   made->type == PTX_NO_TYPE) {
            made->type = type;
            ptx_scan_next(&parser->scan);
        } else if (token->kind == PTX_TOKEN_NAME && token->at[0] != '.' &&
                   made->type != PTX_NO_TYPE) {
            return true;
        } else {
            return ptx_expected(parser, "a variable's type and name");
        }
    }
}

static bool take_dimensions(ptx_parser *parser, declared *made)
{
    made->elems = 1;
    while (ptx_accept(parser, "[")) {
        uint64_t count = 0;
        int line = parser->scan.token.line;
        if (!ptx_token_is(&parser->scan.token, "]")) {
            if (!ptx_take_count(parser, &count)) {
                return false;
            }
            if (count == 0 || count > BYTES_MAX) {
                return ptx_refuse(parser, line, "an array of 1 to %d elements",
                                  BYTES_MAX);
            }
        }
        made->is_array = true;
        made->elems *= count;
        if (!ptx_take(parser, "]")) {
            return false;
        }
        if (made->elems > BYTES_MAX) {
            return ptx_refuse(parser, line, "an array of 1 to %d elements",
                              BYTES_MAX);
        }
    }
    return true;
}

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t place(size_t *used, uint64_t begin, size_t align, size_t bytes)
{
    size_t at = round_up(*used, align);
    *used = at + bytes + PTX_GAP_BYTES;
    return begin + at;
}

/* A function's .param variables are a thread's own, and a kernel's are not. */
static void place_param(ptx_parser *parser, ptx_variable *made, size_t align)
{
    ptx_program *program = parser->program;
    ptx_function *function = &program->functions.at[parser->function];
    if (parser->depth > 0 || !function->is_kernel) {
        made->address = place(&program->private_bytes, PTX_PRIVATE_BEGIN, align,
                              made->bytes);
        return;
    }
    size_t at = round_up(function->param_bytes, align);
    made->address = PTX_PARAM_BEGIN + at;
    function->param_bytes = at + made->bytes;
}

static void place_const(ptx_program *program, ptx_variable *made, size_t align)
{
    size_t before = program->const_bytes;
    made->address =
        place(&program->const_bytes, PTX_CONST_BEGIN, align, made->bytes);
    program->const_data = realloc(program->const_data, program->const_bytes);
    memset(program->const_data + before, 0, program->const_bytes - before);
}

/* Returns where the initial value goes, if there can be one. */
static unsigned char *place_variable(ptx_parser *parser, ptx_variable *made,
                                     size_t align)
{
    ptx_program *program = parser->program;
    switch (made->space) {
    case PTX_SHARED:
        made->address = made->bytes == 0
                            ? PTX_SHARED_DYNAMIC
                            : place(&program->shared_bytes, PTX_SHARED_BEGIN,
                                    align, made->bytes);
        return NULL;
    case PTX_LOCAL:
        made->address = place(&program->private_bytes, PTX_PRIVATE_BEGIN, align,
                              made->bytes);
        return NULL;
    case PTX_PARAM:
        place_param(parser, made, align);
        return NULL;
    case PTX_CONST:
        place_const(program, made, align);
        return program->const_data + (made->address - PTX_CONST_BEGIN);
    default: {
        void *memory;
        if (posix_memalign(&memory, 128, made->bytes) != 0) {
            abort();
        }
        memset(memory, 0, made->bytes);
        *PTX_ADD(program->globals) = memory;
        made->address = (uint64_t)(uintptr_t)memory;
        return memory;
    }
    }
}

/* = number, or = {number, ...} */
static bool take_initial(ptx_parser *parser, const declared *made,
                         unsigned char *at, size_t bytes)
{
    size_t width = ptx_type_bits(made->type) / 8, used = 0;
    int line = parser->scan.token.line;
    bool braces = ptx_accept(parser, "{");
    do {
        uint64_t bits;
        if (used + width > bytes) {
            return ptx_refuse(parser, line, "more values than elements");
        }
        if (!ptx_decode_number(parser, made->type, &bits)) {
            return false;
        }
        memcpy(at + used, &bits, width); /* little endian, as the host */
        used += width;
    } while (braces && ptx_accept(parser, ","));
    return !braces || ptx_take(parser, "}");
}

bool ptx_declare(ptx_parser *parser, ptx_space space, bool is_extern)
{
    declared made = {.vector = 1};
    if (!take_attributes(parser, &made)) {
        return false;
    }
    made.name = parser->scan.token;
    ptx_scan_next(&parser->scan);
    if (!take_dimensions(parser, &made)) {
        return false;
    }
    size_t width = made.vector * ptx_type_bits(made.type) / 8;
    ptx_variable variable = {.name = made.name.at,
                             .name_bytes = made.name.bytes,
                             .bytes = made.elems * width,
                             .space = space,
                             .owner = parser->function,
                             .depth = parser->depth};
    const ptx_variable *other = ptx_scope_variable(parser, &made.name);
    if (other && other->owner == variable.owner &&
        other->depth == variable.depth) {
        return ptx_refuse(parser, made.name.line, "'%.*s' is declared twice",
                          (int)made.name.bytes, made.name.at);
    }
    if (is_extern != (variable.bytes == 0) ||
        (is_extern && space != PTX_SHARED)) {
        return ptx_refuse(parser, made.name.line,
                          "'%.*s': only .extern .shared memory has no size, "
                          "and only that is known",
                          (int)made.name.bytes, made.name.at);
    }
    unsigned char *initial = place_variable(
        parser, &variable, made.align > width ? made.align : width);
    if (ptx_token_is(&parser->scan.token, "=") && initial) {
        ptx_scan_next(&parser->scan);
        if (!take_initial(parser, &made, initial, variable.bytes)) {
            return false;
        }
    }
    *PTX_ADD(parser->program->variables) = variable;
    return true;
}
