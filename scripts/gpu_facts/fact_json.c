// SPDX-License-Identifier: BSD-3-Clause
/*
 * A fact as a line of text and as a JSON object.
 */
#include "facts.h"

#include <stdlib.h>
#include <string.h>

void fact_print(const struct fact *fact, FILE *out)
{
    if (!fact->value[0])
        fprintf(out, "%s.%s: no answer: %s\n", fact->question, fact->name,
                fact->why_not);
    else
        fprintf(out, "%s.%s: %s%s%s (%s)\n", fact->question, fact->name,
                fact->value, fact->unit[0] ? " " : "", fact->unit, fact->how);
}

/* Bytes beyond ASCII become "?": where they come from, nothing promises that
 * they are UTF-8. */
void json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c < 0x7f ? c : '?', out);
    }
    fputc('"', out);
}

static void json_field(FILE *out, const char *name, const char *value)
{
    fprintf(out, ", \"%s\": ", name);
    json_string(out, value);
}

/* JSON has neither infinity nor "nan": such a value stays a string. */
static bool is_json_number(const struct fact *fact)
{
    char *end;
    strtod(fact->value, &end);
    return fact->unit[0] && *end == 0 && end != fact->value &&
           !strpbrk(fact->value, "nN");
}

void json_fact(FILE *out, const struct fact *fact)
{
    fprintf(out, "{\"question\": ");
    json_string(out, fact->question);
    json_field(out, "name", fact->name);
    if (!fact->value[0]) {
        fprintf(out, ", \"value\": null");
        json_field(out, "why_not", fact->why_not);
    } else {
        if (is_json_number(fact))
            fprintf(out, ", \"value\": %s", fact->value);
        else
            json_field(out, "value", fact->value);
        json_field(out, "unit", fact->unit);
        json_field(out, "how", fact->how);
    }
    fputc('}', out);
}
