// SPDX-License-Identifier: BSD-3-Clause
/*
 * A question's end of the pipe: one fact is one line of five fields with tabs
 * between them (name, value, unit, how, why not), written at once, so that the
 * lines of two processes of one question never mix.
 */
#include "facts.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static int pipe_fd = -1;

void fact_open(int fd)
{
    pipe_fd = fd;
}

/* Copies TEXT without what would end a field or a line. */
static void append_field(char *line, size_t room, const char *text, char end)
{
    size_t at = strlen(line);
    for (; *text && at + 2 < room; text++)
        line[at++] = (unsigned char)*text < ' ' ? ' ' : *text;
    line[at++] = end;
    line[at] = 0;
}

static void send_fact(const char *name, const char *value, const char *unit,
                      const char *how, const char *why_not)
{
    char line[1024] = "";
    append_field(line, 71, name, '\t');
    append_field(line, 71 + 255, value, '\t');
    append_field(line, 71 + 255 + 15, unit, '\t');
    append_field(line, 71 + 255 + 15 + 255, how, '\t');
    append_field(line, 71 + 255 + 15 + 255 + 255, why_not, '\n');
    size_t bytes = strlen(line);
    if (write(pipe_fd, line, bytes) != (ssize_t)bytes)
        _exit(EXIT_GAVE_UP); /* nobody reads any more */
}

void fact_number(const char *name, double value, const char *unit,
                 const char *how)
{
    char text[64];
    snprintf(text, sizeof(text), "%.6g", value);
    send_fact(name, text, unit, how, "");
}

void fact_text(const char *name, const char *how, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    send_fact(name, text, "", how, "");
}

void fact_none(const char *name, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    send_fact(name, "", "", "", text);
}

void give_up(const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    send_fact("the_rest", "", "", "", text);
    _exit(EXIT_GAVE_UP);
}
