/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/ptx/ptx_parser.h - what the files that read a module share: the words,
 * and the names that are known at this place in it.
 */
#ifndef TESTS_PTX_PTX_PARSER_H
#define TESTS_PTX_PTX_PARSER_H

#include "tests/ptx/ptx_program.h"
#include "tests/ptx/ptx_scan.h"

/* Registers: one, or "%r<9>", which are %r0 to %r8. */
typedef struct ptx_registers {
    const char *at;
    size_t bytes;
    bool many;
    uint32_t count, slot;
    ptx_type type;
    unsigned depth;
} ptx_registers;

/* A place in the code with a name, or a table of such. */
typedef struct ptx_label {
    const char *at;
    size_t bytes;
    int line;
    bool is_table;
    uint32_t place; /* or number of the table */
} ptx_label;

/* A label's name, where it is used. */
typedef struct ptx_label_use {
    ptx_token name;
    bool is_table, in_table;
    uint32_t at; /* instruction, or place in program->places */
} ptx_label_use;

enum { PTX_RECENT = 512 };

typedef struct ptx_parser {
    ptx_program *program;
    ptx_scan scan;
    uint32_t function;           /* the one being read, or PTX_NOWHERE */
    unsigned depth;              /* of braces */
    uint32_t recent[PTX_RECENT]; /* instructions by opcode, as a cache */
    PTX_ARRAY(ptx_registers) registers;
    PTX_ARRAY(ptx_label) labels;
    PTX_ARRAY(ptx_label_use) uses;
} ptx_parser;

/* Refuses the text, with its line. Returns false. */
bool ptx_refuse(const ptx_parser *parser, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of the next token: "expected WHAT, not `it`". */
bool ptx_expected(const ptx_parser *parser, const char *what);

/* Takes the token if it is that one; the second refuses another. */
bool ptx_accept(ptx_parser *parser, const char *text);
bool ptx_take(ptx_parser *parser, const char *text);
/* A number without a sign before it. */
bool ptx_take_count(ptx_parser *parser, uint64_t *number);

/* What the names mean here; NULL, or false: nothing. */
const ptx_variable *ptx_scope_variable(const ptx_parser *parser,
                                       const ptx_token *name);
bool ptx_scope_register(const ptx_parser *parser, const ptx_token *name,
                        uint32_t *slot, ptx_type *type);
uint32_t ptx_scope_function(const ptx_parser *parser, const ptx_token *name);

/* Adds a name; refuses a second one in the same braces. */
bool ptx_scope_add_registers(ptx_parser *parser);
bool ptx_scope_add_label(ptx_parser *parser, const ptx_token *name,
                         bool is_table, uint32_t place);
/* The end of braces, and of a function, whose labels are now all known. */
void ptx_scope_close(ptx_parser *parser);
bool ptx_scope_resolve(ptx_parser *parser);

/* An instruction, without its guard, to the ; */
bool ptx_decode(ptx_parser *parser, ptx_instruction *now);
/* Its operands; the row is known. */
bool ptx_decode_operands(ptx_parser *parser, ptx_instruction *now);
/* A constant of that type. */
bool ptx_decode_number(ptx_parser *parser, ptx_type type, uint64_t *bits);
/* A predicate that is read: a register, with ! before it or not. */
bool ptx_decode_predicate(ptx_parser *parser, ptx_operand *operand);

/* A variable's declaration, from its space to the ; or, of a parameter, to
 * what follows. The space has been taken. */
bool ptx_declare(ptx_parser *parser, ptx_space space, bool is_extern);

#endif
