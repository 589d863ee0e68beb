// SPDX-License-Identifier: BSD-3-Clause
/*
 * gpu-facts asks a machine with one NVIDIA GPU what weft's plans for GPUs rest
 * on. It is a program of its own: it uses nothing of weft, and weft nothing of
 * it.
 *
 * A question runs in a child process with a time limit. What it finds out it
 * sends, fact by fact, through a pipe; a question that hangs or crashes
 * therefore costs only what it had not sent yet.
 *
 *      gpu_facts.c --- ask.c: fork, limit ---> q_*.c: fact_number(), ...
 *           ^                                        |
 *           +-------- pipe, one line a fact <--------+
 *           |
 *           +--> one line of text each, and gpu-facts.json
 */
#ifndef GPU_FACTS_FACTS_H
#define GPU_FACTS_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* How a question's process ends when it could not go on. */
enum { EXIT_GAVE_UP = 4 };

struct fact {
    char question[40];
    char name[72];
    char value[256]; /* empty: there is no answer, and why_not says why */
    char unit[16];   /* empty: value is text */
    char how[256];
    char why_not[256];
};

struct question {
    const char *name;
    const char *asks;
    void (*ask)(int variant);
    int variant;
    int limit_s;
    bool with_mps; /* asked only while an MPS daemon of ours runs */
};

/* What the whole run has found out; grows as questions end. */
struct findings {
    struct fact *facts;
    int nfacts, capacity;
};

/* --- inside a question's process: fact.c --- */

void fact_open(int fd);
void fact_number(const char *name, double value, const char *unit,
                 const char *how);
void fact_text(const char *name, const char *how, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* There is no answer to NAME, and the text says why. */
void fact_none(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The rest of this question can not be answered; ends the process. */
_Noreturn void give_up(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* --- inside a question's process: quantile.c --- */

double now_us(void);
double quantile(double *values, int count, double at); /* sorts VALUES */
/* Sends NAME (median) and NAME_p99 of COUNT values. */
void fact_spread(const char *name, double *values, int count, const char *unit,
                 const char *how);

/* --- a second process of the same question: peer.c --- */

/* Starts BODY in a process of its own; call it before CUDA is opened. Returns
 * the socket to it. It ends with the question. */
int peer_start(void (*body)(int fd, int variant), int variant);
void peer_send(int fd, const void *data, size_t bytes);
void peer_recv(int fd, void *data, size_t bytes);
void peer_send_descriptor(int fd, int descriptor);
int peer_recv_descriptor(int fd);
/* Both sides get here before either goes on. */
void peer_meet(int fd);

/* --- the parent: ask.c, fact_json.c, mps.c, self_test.c --- */

/* Asks Q, for LIMIT_S seconds at most, and adds what it answered. Returns the
 * seconds it took; OUTCOME says how it ended. */
double ask_question(const struct question *q, double limit_s, int log_fd,
                    struct findings *all, char outcome[128]);
struct fact *findings_add(struct findings *all);
const char *findings_value(const struct findings *all, const char *name);
void fact_print(const struct fact *fact, FILE *out);
void json_string(FILE *out, const char *text);
void json_fact(FILE *out, const struct fact *fact);

/* Starts an MPS daemon in the private folder DIR and points this process's
 * children at it. Returns false with the reason in WHY. */
bool mps_start(const char *dir, char why[256]);
void mps_stop(void);

/* Asks questions that hang, crash and misbehave, and checks what comes of it.
 * Returns the number of failures. */
int self_test(const struct question *questions, int nquestions);
int json_self_test(void);

/* --- the questions: q_*.c --- */

void q_card(int variant);
void q_copies(int variant);
void q_gemm(int variant);
void q_gemm_forms(int variant);
void q_gemm_beside(int variant);
void q_green(int variant);
void q_memops(int variant);
void q_held_up(int variant);
void q_queue(int variant);
void q_launch(int variant);
void q_host_calls(int variant);
void q_latency(int variant);
void q_ipc(int variant);
void q_vmm(int variant);
void q_pair(int variant);
void q_attention(int variant);
void q_nccl(int variant);

#endif
