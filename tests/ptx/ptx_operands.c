/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_operands.c - an instruction's operands, as its row's letters
 * want them (ptx_row.h).
 */
#include "tests/ptx/ptx_parser.h"
#include "tests/ptx/ptx_row.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *text;
    ptx_special number;
    uint8_t bits;
} specials[] = {
    {"%tid.x", PTX_TID, 32},
    {"%tid.y", PTX_TID + 1, 32},
    {"%tid.z", PTX_TID + 2, 32},
    {"%ntid.x", PTX_NTID, 32},
    {"%ntid.y", PTX_NTID + 1, 32},
    {"%ntid.z", PTX_NTID + 2, 32},
    {"%ctaid.x", PTX_CTAID, 32},
    {"%ctaid.y", PTX_CTAID + 1, 32},
    {"%ctaid.z", PTX_CTAID + 2, 32},
    {"%nctaid.x", PTX_NCTAID, 32},
    {"%nctaid.y", PTX_NCTAID + 1, 32},
    {"%nctaid.z", PTX_NCTAID + 2, 32},
    {"%laneid", PTX_LANEID, 32},
    {"%warpid", PTX_WARPID, 32},
    {"%nwarpid", PTX_NWARPID, 32},
    {"%lanemask_eq", PTX_LANEMASK_EQ, 32},
    {"%lanemask_le", PTX_LANEMASK_LE, 32},
    {"%lanemask_lt", PTX_LANEMASK_LT, 32},
    {"%lanemask_ge", PTX_LANEMASK_GE, 32},
    {"%lanemask_gt", PTX_LANEMASK_GT, 32},
    {"%smid", PTX_SMID, 32},
    {"%nsmid", PTX_NSMID, 32},
    {"%clock", PTX_CLOCK, 32},
    {"%clock64", PTX_CLOCK, 64},
    {"%globaltimer", PTX_CLOCK, 64},
    {"%dynamic_smem_size", PTX_DYNAMIC_SMEM_SIZE, 32},
};

/* How a register's size must stand to the size that is asked for. */
typedef enum fit { EXACT, AT_LEAST } fit;

static bool take_register(ptx_parser *parser, unsigned bits, fit how,
                          ptx_operand *operand)
{
    const ptx_token *token = &parser->scan.token;
    ptx_type type;
    if (token->kind != PTX_TOKEN_NAME ||
        !ptx_scope_register(parser, token, &operand->slot, &type)) {
        return ptx_expected(parser, "a register");
    }
    unsigned have = ptx_type_bits(type);
    if (have != bits && (how == EXACT || have < bits || bits == 1)) {
        return ptx_refuse(parser, token->line,
                          "%.*s has %u bits where %s%u are needed",
                          (int)token->bytes, token->at, have,
                          how == AT_LEAST ? "at least " : "", bits);
    }
    operand->kind = PTX_REGISTER;
    operand->bits = (uint8_t)have;
    ptx_scan_next(&parser->scan);
    return true;
}

static bool take_real(ptx_parser *parser, ptx_type type, bool minus,
                      uint64_t *bits)
{
    const ptx_token *token = &parser->scan.token;
    unsigned want = ptx_type_bits(type);
    if (token->real_bits != 1) {
        if (token->real_bits != want) {
            return ptx_refuse(parser, token->line, "%.*s has not %u bits",
                              (int)token->bytes, token->at, want);
        }
        *bits = token->number ^ (uint64_t)minus << (want - 1);
    } else if (type == PTX_F32) {
        float value = (float)(minus ? -token->real : token->real);
        uint32_t code;
        memcpy(&code, &value, sizeof(code));
        *bits = code;
    } else if (type == PTX_F64) {
        double value = minus ? -token->real : token->real;
        memcpy(bits, &value, sizeof(*bits));
    } else {
        return ptx_refuse(parser, token->line, "%.*s where no real is allowed",
                          (int)token->bytes, token->at);
    }
    ptx_scan_next(&parser->scan);
    return true;
}

bool ptx_decode_number(ptx_parser *parser, ptx_type type, uint64_t *bits)
{
    const ptx_token *token = &parser->scan.token;
    bool minus = ptx_accept(parser, "-");
    unsigned want = ptx_type_bits(type);
    if (ptx_accept(parser, "WARP_SZ")) {
        *bits = 32;
        return true;
    }
    if (token->kind != PTX_TOKEN_NUMBER) {
        return ptx_expected(parser, "a register or a number");
    }
    if (token->real_bits != 0) {
        return take_real(parser, type, minus, bits);
    }
    if (ptx_type_is_real(type)) {
        return ptx_expected(parser, "a register or a real number");
    }
    uint64_t most = want == 64 ? UINT64_MAX : (UINT64_C(1) << want) - 1;
    if (token->number > (minus ? most / 2 + 1 : most)) {
        return ptx_refuse(parser, token->line, "%s%.*s has more than %u bits",
                          minus ? "-" : "", (int)token->bytes, token->at, want);
    }
    *bits = (minus ? 0 - token->number : token->number) & most;
    ptx_scan_next(&parser->scan);
    return true;
}

static bool take_source(ptx_parser *parser, ptx_type type, unsigned bits,
                        fit how, ptx_operand *operand)
{
    const ptx_token *token = &parser->scan.token;
    if (token->kind == PTX_TOKEN_NAME && !ptx_token_is(token, "WARP_SZ")) {
        return take_register(parser, bits, how, operand);
    }
    static const ptx_type plain[] = {PTX_B8, PTX_B16, PTX_B32, PTX_B64};
    for (unsigned i = 0; ptx_type_bits(type) != bits; i++) {
        type = plain[i]; /* twice the type's size */
    }
    operand->kind = PTX_VALUE;
    return ptx_decode_number(parser, type, &operand->value);
}

bool ptx_decode_predicate(ptx_parser *parser, ptx_operand *operand)
{
    operand->negated = ptx_accept(parser, "!");
    if (parser->scan.token.kind == PTX_TOKEN_NAME) {
        return take_register(parser, 1, EXACT, operand);
    }
    operand->kind = PTX_VALUE;
    if (!ptx_decode_number(parser, PTX_B32, &operand->value)) {
        return false;
    }
    operand->value = operand->value != 0;
    return true;
}

static bool take_result(ptx_parser *parser, unsigned bits, fit how,
                        ptx_instruction *now)
{
    ptx_operand *operand = &now->operands[now->results++];
    if (ptx_accept(parser, "_")) {
        operand->kind = PTX_SINK;
        return true;
    }
    return take_register(parser, bits, how, operand);
}

/* A result and perhaps, behind a bar, a predicate. */
static bool take_with_predicate(ptx_parser *parser, unsigned bits,
                                ptx_instruction *now)
{
    if (!take_result(parser, bits, EXACT, now)) {
        return false;
    }
    if (ptx_accept(parser, "|")) {
        return take_result(parser, 1, EXACT, now);
    }
    now->operands[now->results++].kind = PTX_SINK;
    return true;
}

/* [register + number], [variable + number], [number] */
static bool take_address(ptx_parser *parser, ptx_instruction *now)
{
    ptx_operand *operand = &now->operands[now->results + now->sources++];
    ptx_token token = parser->scan.token;
    ptx_space space = now->fields[PTX_SPACE];
    uint64_t offset = 0;
    if (!ptx_take(parser, "[")) {
        return false;
    }
    token = parser->scan.token;
    const ptx_variable *variable = ptx_scope_variable(parser, &token);
    if (variable) {
        if (variable->space != space) {
            return ptx_refuse(parser, token.line, "'%.*s' is not in that space",
                              (int)token.bytes, token.at);
        }
        *operand = (ptx_operand){.kind = PTX_VALUE, .value = variable->address};
        ptx_scan_next(&parser->scan);
    } else if (token.kind == PTX_TOKEN_NUMBER) {
        operand->kind = PTX_VALUE;
        if (!ptx_decode_number(parser, PTX_B64, &operand->value)) {
            return false;
        }
    } else if (!take_register(parser,
                              space == PTX_GENERIC || space == PTX_GLOBAL ? 64
                                                                          : 32,
                              AT_LEAST, operand)) {
        return false;
    }
    if (ptx_accept(parser, "+") &&
        !ptx_decode_number(parser, PTX_B64, &offset)) {
        return false;
    }
    if (ptx_token_is(&parser->scan.token, "-") &&
        !ptx_decode_number(parser, PTX_B64, &offset)) {
        return false;
    }
    now->offset = (int64_t)offset;
    return ptx_take(parser, "]");
}

/* {a, b}, or one without braces where count is 1. */
static bool take_vector(ptx_parser *parser, ptx_instruction *now, bool result,
                        unsigned count, unsigned bits, ptx_type type, fit how)
{
    if (count > 1 && !ptx_take(parser, "{")) {
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        if (i > 0 && !ptx_take(parser, ",")) {
            return false;
        }
        if (result) {
            if (!take_result(parser, bits, how, now)) {
                return false;
            }
        } else if (!take_source(
                       parser, type, bits, how,
                       &now->operands[now->results + now->sources++])) {
            return false;
        }
    }
    return count == 1 || ptx_take(parser, "}");
}

/* How many names the braces hold that come now; 1 without braces. */
static unsigned braced(const ptx_parser *parser)
{
    ptx_scan ahead = parser->scan;
    unsigned count = 1;
    if (!ptx_token_is(&ahead.token, "{")) {
        return 1;
    }
    while (ahead.token.kind != PTX_TOKEN_END &&
           !ptx_token_is(&ahead.token, "}")) {
        count += ptx_token_is(&ahead.token, ",");
        ptx_scan_next(&ahead);
    }
    return count;
}

/* What only mov reads: special registers and addresses of variables. */
static bool take_moved(ptx_parser *parser, ptx_instruction *now)
{
    ptx_operand *operand = &now->operands[now->results + now->sources];
    const ptx_token *token = &parser->scan.token;
    unsigned bits = ptx_type_bits(now->type);
    for (size_t i = 0; i < WEFTI_COUNT_OF(specials); i++) {
        if (ptx_token_is(token, specials[i].text)) {
            if (specials[i].bits != bits) {
                return ptx_refuse(parser, token->line, "%s has %u bits",
                                  specials[i].text, specials[i].bits);
            }
            *operand =
                (ptx_operand){.kind = PTX_SPECIAL, .slot = specials[i].number};
            now->sources++;
            ptx_scan_next(&parser->scan);
            return true;
        }
    }
    const ptx_variable *variable = ptx_scope_variable(parser, token);
    if (variable) {
        if (bits != 64 && (bits != 32 || variable->space == PTX_GLOBAL)) {
            return ptx_refuse(parser, token->line, "an address has 64 bits");
        }
        *operand = (ptx_operand){.kind = PTX_VALUE, .value = variable->address};
        now->sources++;
        ptx_scan_next(&parser->scan);
        return true;
    }
    now->sources++;
    return take_source(parser, now->type, bits, EXACT, operand);
}

static bool take_mov(ptx_parser *parser, ptx_instruction *now)
{
    unsigned bits = ptx_type_bits(now->type), parts = braced(parser);
    if (now->type == PTX_PRED) {
        now->sources = 1;
        return take_result(parser, 1, EXACT, now) && ptx_take(parser, ",") &&
               ptx_decode_predicate(parser, &now->operands[1]);
    }
    if (parts > 4 || parts == 3 || bits / parts < 8) {
        return ptx_expected(parser, "two or four registers");
    }
    if (!take_vector(parser, now, true, parts, bits / parts, now->type,
                     EXACT) ||
        !ptx_take(parser, ",")) {
        return false;
    }
    unsigned from = braced(parser);
    if (from == 1) {
        return take_moved(parser, now);
    }
    if (from > 4 || from == 3 || parts != 1 || bits / from < 8) {
        return ptx_expected(parser, "two or four registers");
    }
    return take_vector(parser, now, false, from, bits / from, now->type, EXACT);
}

/* A barrier, and a number of threads unless a predicate or the end follows. */
static bool take_barrier(ptx_parser *parser, ptx_instruction *now)
{
    ptx_operand *at = &now->operands[now->results + now->sources];
    now->sources += 2;
    if (!take_source(parser, PTX_B32, 32, EXACT, &at[0])) {
        return false;
    }
    at[1].kind = PTX_SINK;
    ptx_scan ahead = parser->scan;
    uint32_t slot;
    ptx_type type;
    if (!ptx_token_is(&ahead.token, ",")) {
        return true;
    }
    ptx_scan_next(&ahead);
    if (ptx_token_is(&ahead.token, "!") ||
        (ptx_scope_register(parser, &ahead.token, &slot, &type) &&
         type == PTX_PRED)) {
        return true;
    }
    ptx_scan_next(&parser->scan);
    return take_source(parser, PTX_B32, 32, EXACT, &at[1]);
}

static bool take_label(ptx_parser *parser, bool is_table)
{
    if (parser->scan.token.kind != PTX_TOKEN_NAME) {
        return ptx_expected(parser, "a label");
    }
    *PTX_ADD(parser->uses) = (ptx_label_use){.name = parser->scan.token,
                                             .is_table = is_table,
                                             .at = parser->program->code.count};
    ptx_scan_next(&parser->scan);
    return true;
}

/* "(a, b)": variables of the caller. */
static bool take_arguments(ptx_parser *parser, ptx_call *call)
{
    if (!ptx_take(parser, "(")) {
        return false;
    }
    do {
        const ptx_token *token = &parser->scan.token;
        const ptx_variable *variable = ptx_scope_variable(parser, token);
        if (!variable || variable->space != PTX_PARAM) {
            return ptx_expected(parser, "a .param variable");
        }
        if (call->count == WEFTI_COUNT_OF(call->variables)) {
            return ptx_refuse(parser, token->line, "more than %u arguments",
                              call->count);
        }
        call->variables[call->count++] =
            (uint32_t)(variable - parser->program->variables.at);
        ptx_scan_next(&parser->scan);
    } while (ptx_accept(parser, ","));
    return ptx_take(parser, ")");
}

static bool take_call(ptx_parser *parser, ptx_instruction *now)
{
    ptx_call call = {.function = PTX_NOWHERE};
    if (ptx_token_is(&parser->scan.token, "(") &&
        (!take_arguments(parser, &call) || !ptx_take(parser, ","))) {
        return false;
    }
    uint32_t results = call.count;
    ptx_token name = parser->scan.token;
    call.function = ptx_scope_function(parser, &name);
    if (call.function == PTX_NOWHERE ||
        parser->program->functions.at[call.function].is_kernel) {
        return ptx_expected(parser, "a function that is declared");
    }
    ptx_scan_next(&parser->scan);
    if (ptx_accept(parser, ",") && !take_arguments(parser, &call)) {
        return false;
    }
    const ptx_function *called = &parser->program->functions.at[call.function];
    bool same = call.count == called->params && results == called->results;
    for (uint32_t i = 0; same && i < call.count; i++) {
        const ptx_variable *all = parser->program->variables.at;
        same =
            all[call.variables[i]].bytes == all[called->first_param + i].bytes;
    }
    if (!same) {
        return ptx_refuse(parser, name.line,
                          "the arguments are not those of '%s'", called->name);
    }
    now->target = parser->program->calls.count;
    *PTX_ADD(parser->program->calls) = call;
    return true;
}

static bool take_operand(ptx_parser *parser, ptx_instruction *now, char letter)
{
    unsigned bits = ptx_type_bits(now->type), from = ptx_type_bits(now->from);
    unsigned parts = now->fields[PTX_VECTOR] ? now->fields[PTX_VECTOR] : 1;
    ptx_operand *source = &now->operands[now->results + now->sources];
    switch (letter) {
    case 'd':
        return take_result(parser, bits, EXACT, now);
    case 'D':
        return take_result(parser, 2 * bits, EXACT, now);
    case 'r':
        return take_result(parser, 32, EXACT, now);
    case 'w':
        return take_result(parser, bits, AT_LEAST, now);
    case 'p':
        return take_result(parser, 1, EXACT, now);
    case 'q':
        return take_with_predicate(parser, 1, now);
    case 'e':
        return take_with_predicate(parser, bits, now);
    case 'W':
        return take_vector(parser, now, true, parts, bits, now->type, AT_LEAST);
    case 'X':
        return take_vector(parser, now, false, parts, bits, now->type,
                           AT_LEAST);
    case 'n':
        return take_mov(parser, now);
    case 'm':
        return take_address(parser, now);
    case 'B':
        return take_barrier(parser, now);
    case 'l':
        return take_label(parser, false);
    case 't':
        return take_label(parser, true);
    case 'f':
        return take_call(parser, now);
    }
    now->sources++;
    switch (letter) {
    case 'a':
        return take_source(parser, now->type, bits, EXACT, source);
    case 'A':
        return take_source(parser, now->from, from, EXACT, source);
    case 'C':
        return take_source(parser, now->type, 2 * bits, EXACT, source);
    case 'u':
        return take_source(parser, PTX_B32, 32, EXACT, source);
    case 'U':
        return take_source(parser, PTX_B64, 64, EXACT, source);
    case 's':
        return take_source(parser, now->from, from, AT_LEAST, source);
    case 'P':
        return ptx_decode_predicate(parser, source);
    }
    WEFTI_ASSERT(0);
    return false;
}

bool ptx_decode_operands(ptx_parser *parser, ptx_instruction *now)
{
    for (const char *letter = now->row->operands; *letter; letter++) {
        if ((letter != now->row->operands && !ptx_take(parser, ",")) ||
            !take_operand(parser, now, *letter)) {
            return false;
        }
    }
    return true;
}
