/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_reader.c - walks libyaml's events; knows sections, keys
 * and values, and nothing of any single key.
 *
 * The shape is written down as functions that each consume what they are
 * about: document, section, key, value. An event that does not fit is refused
 * where it stands, so nesting is bounded by the shape itself.
 */
#include "trainer/config/config_reader.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/config/config_key.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; type NO_EVENT: none held */
    wefti_config *config;
    const char *setting; /* what follows --set; NULL: the file is read */
    bool seen[WEFTI_CONFIG_KEYS_MOST];
} reader;

/* Refuses, naming the place: file:line:column, or the setting. */
__attribute__((format(printf, 4, 5))) static weft_status
refuse(const reader *in, weft_status status, yaml_mark_t mark,
       const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (in->setting != NULL) {
        return wefti_error(status, "--set %.100s: %s", in->setting, text);
    }
    return wefti_error(status, "%.200s:%zu:%zu: %s", in->config->path,
                       mark.line + 1, mark.column + 1, text);
}

/* A short printable copy of what the user wrote. */
static const char *show(const char *text, char shown[48])
{
    size_t length = strnlen(text, 41);
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        shown[i] = (char)(byte < 0x20 || byte == 0x7F ? '?' : byte);
    }
    snprintf(shown + (length < 41 ? length : 40), 8, "%s",
             length < 41 ? "" : "...");
    return shown;
}

/* What libyaml itself refuses: bad syntax, bad encoding. */
static weft_status syntax_error(const reader *in)
{
    const yaml_parser_t *parser = &in->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "?";
    if (parser->error == YAML_MEMORY_ERROR) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: out of memory",
                           in->config->path);
    }
    if (parser->error == YAML_READER_ERROR) {
        return refuse(in, WEFT_ERR_INVALID, parser->mark,
                      "not YAML: %s (byte %zu)", problem,
                      parser->problem_offset);
    }
    return refuse(in, WEFT_ERR_INVALID, parser->problem_mark,
                  "not YAML: %s%s%s", problem,
                  parser->context != NULL ? " " : "",
                  parser->context != NULL ? parser->context : "");
}

static const char *event_anchor(const yaml_event_t *event)
{
    const yaml_char_t *anchor = event->type == YAML_SCALAR_EVENT
                                    ? event->data.scalar.anchor
                                : event->type == YAML_SEQUENCE_START_EVENT
                                    ? event->data.sequence_start.anchor
                                : event->type == YAML_MAPPING_START_EVENT
                                    ? event->data.mapping_start.anchor
                                    : NULL;
    return (const char *)anchor;
}

static const char *event_tag(const yaml_event_t *event)
{
    const yaml_char_t *tag = event->type == YAML_SCALAR_EVENT
                                 ? event->data.scalar.tag
                             : event->type == YAML_SEQUENCE_START_EVENT
                                 ? event->data.sequence_start.tag
                             : event->type == YAML_MAPPING_START_EVENT
                                 ? event->data.mapping_start.tag
                                 : NULL;
    return (const char *)tag;
}

/* Moves on to the next event, refusing what no config needs. */
static weft_status next(reader *in)
{
    char shown[48];
    yaml_event_delete(&in->event);
    if (!yaml_parser_parse(&in->parser, &in->event)) {
        memset(&in->event, 0, sizeof(in->event));
        return syntax_error(in);
    }
    yaml_mark_t mark = in->event.start_mark;
    if (in->event.type == YAML_ALIAS_EVENT) {
        return refuse(in, WEFT_ERR_INVALID, mark,
                      "*%s: aliases are not allowed, write the value",
                      show((char *)in->event.data.alias.anchor, shown));
    }
    if (event_anchor(&in->event) != NULL) {
        return refuse(in, WEFT_ERR_INVALID, mark,
                      "&%s: anchors are not allowed",
                      show(event_anchor(&in->event), shown));
    }
    if (event_tag(&in->event) != NULL) {
        return refuse(in, WEFT_ERR_INVALID, mark,
                      "%s: tags are not allowed, write the value alone",
                      show(event_tag(&in->event), shown));
    }
    return WEFT_OK;
}

/* The current scalar as a C string; a NUL inside cuts it short. */
static const char *scalar_text(const reader *in)
{
    return (const char *)in->event.data.scalar.value;
}

static bool scalar_quoted(const reader *in)
{
    return in->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static bool scalar_has_nul(const reader *in)
{
    return strlen(scalar_text(in)) != in->event.data.scalar.length;
}

/* YAML's spellings of an empty value. */
static bool scalar_is_null(const reader *in)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < WEFTI_COUNT_OF(nulls) && !scalar_quoted(in); i++) {
        if (strcmp(scalar_text(in), nulls[i]) == 0) {
            return true;
        }
    }
    return in->event.data.scalar.length == 0;
}

static weft_status refuse_value(const reader *in, const wefti_config_key *key,
                                const char *problem)
{
    char allowed[160];
    char shown[48];
    bool scalar = in->event.type == YAML_SCALAR_EVENT;
    bool only = key->now != NULL;
    return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                  "%s.%s: %s%s%s; allowed is %s%s%s%s", key->section, key->name,
                  scalar ? show(scalar_text(in), shown) : "",
                  scalar && scalar_text(in)[0] != '\0' ? " " : "", problem,
                  wefti_config_key_describe(key, allowed, sizeof(allowed)),
                  only ? " (in this version only " : "", only ? key->now : "",
                  only ? ")" : "");
}

/* Stores the current scalar as key's value, or as one of its list. */
static weft_status take_scalar(reader *in, const wefti_config_key *key)
{
    char shown[48];
    if (scalar_has_nul(in)) {
        return refuse_value(in, key, "holds a NUL character");
    }
    if (scalar_is_null(in)) {
        return refuse_value(in, key, "is an empty value");
    }
    switch (wefti_config_key_set(in->config, key, scalar_text(in),
                                 scalar_quoted(in))) {
    case WEFTI_CONFIG_GOOD:
        return WEFT_OK;
    case WEFTI_CONFIG_WRONG:
        return refuse_value(in, key,
                            scalar_quoted(in) ? "(a quoted text) is wrong"
                                              : "is wrong");
    case WEFTI_CONFIG_RANGE:
        return refuse_value(in, key, "is out of range");
    case WEFTI_CONFIG_NOT_YET:
        return refuse(in, WEFT_ERR_UNSUPPORTED, in->event.start_mark,
                      "%s.%s: %s is not possible in this version; allowed is "
                      "%s",
                      key->section, key->name, show(scalar_text(in), shown),
                      key->now);
    case WEFTI_CONFIG_NO_MEMORY:
        break;
    }
    return wefti_error(WEFT_ERR_NO_MEMORY, "%s.%s: out of memory", key->section,
                       key->name);
}

/* [a, b, ...]: the current event opens it. */
static weft_status take_list(reader *in, const wefti_config_key *key)
{
    weft_status status = next(in);
    bool any = false;
    while (status == WEFT_OK && in->event.type == YAML_SCALAR_EVENT) {
        any = true;
        status = take_scalar(in, key);
        if (status == WEFT_OK) {
            status = next(in);
        }
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (in->event.type != YAML_SEQUENCE_END_EVENT) {
        return refuse_value(in, key, "a list or mapping inside the list");
    }
    return any ? WEFT_OK : refuse_value(in, key, "an empty list");
}

/* The value of key: the current event begins it. A lone one is a list. */
static weft_status take_value(reader *in, const wefti_config_key *key)
{
    wefti_config_place *place = wefti_config_key_place(in->config, key);
    yaml_mark_t mark = in->event.start_mark;
    *place = (wefti_config_place){.line = -1};
    if (in->setting == NULL) {
        place->line = (int)mark.line + 1;
        place->column = (int)mark.column + 1;
    }
    wefti_config_key_clear(in->config, key);
    if (in->event.type == YAML_SCALAR_EVENT) {
        return take_scalar(in, key);
    }
    if (in->event.type == YAML_SEQUENCE_START_EVENT &&
        (key->kind == WEFTI_CONFIG_PATHS || key->kind == WEFTI_CONFIG_WORDS)) {
        return take_list(in, key);
    }
    return refuse_value(
        in, key,
        in->event.type == YAML_SEQUENCE_START_EVENT ? "a list" : "a mapping");
}

/* A name that no key has, or with section NULL no section. */
static weft_status refuse_name(const reader *in, yaml_mark_t mark,
                               const char *section, const char *name)
{
    char shown[48];
    char meant[128];
    char allowed[320];
    wefti_config_key_suggest(section, name, meant, sizeof(meant));
    wefti_config_key_list(section, allowed, sizeof(allowed));
    return refuse(in, WEFT_ERR_INVALID, mark,
                  "%s%s%s: unknown %s%s%s allowed is %s",
                  section ? section : "", section ? "." : "", show(name, shown),
                  section ? "key" : "section", meant,
                  meant[0] != '\0' ? "" : ";", allowed);
}

/* The table's own copy of a section's name (one per section), or NULL. */
static const char *find_section(const char *name)
{
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        if (strcmp(wefti_config_keys[i].section, name) == 0) {
            return wefti_config_keys[i].section;
        }
    }
    return NULL;
}

/* The current event as a name, or a refusal. */
static weft_status check_name(const reader *in, const char *what)
{
    if (in->event.type != YAML_SCALAR_EVENT || scalar_has_nul(in)) {
        return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                      "the name of a %s must be a plain word", what);
    }
    return WEFT_OK;
}

/* One "name: value" of a section: the current event is the name. */
static weft_status take_key(reader *in, const char *section)
{
    weft_status status = check_name(in, "key");
    if (status != WEFT_OK) {
        return status;
    }
    const char *name = scalar_text(in);
    const wefti_config_key *key = wefti_config_key_find(section, name);
    if (key == NULL) {
        return refuse_name(in, in->event.start_mark, section, name);
    }
    if (in->seen[key - wefti_config_keys]) {
        return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                      "%s.%s: given twice (first at line %d)", section,
                      key->name, wefti_config_key_place(in->config, key)->line);
    }
    in->seen[key - wefti_config_keys] = true;
    status = next(in);
    return status == WEFT_OK ? take_value(in, key) : status;
}

/* A section after its name: the next event begins its mapping. */
static weft_status take_keys(reader *in, const char *section)
{
    weft_status status = next(in);
    if (status == WEFT_OK && in->event.type != YAML_MAPPING_START_EVENT) {
        return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                      "section %s: no keys; allowed is a mapping, such as "
                      "%s: {key: value}",
                      section, section);
    }
    if (status == WEFT_OK) {
        status = next(in);
    }
    while (status == WEFT_OK && in->event.type != YAML_MAPPING_END_EVENT) {
        status = take_key(in, section);
        if (status == WEFT_OK) {
            status = next(in);
        }
    }
    return status;
}

/* One section: the current event is its name. */
static weft_status take_section(reader *in, const char *names[],
                                size_t *name_count)
{
    weft_status status = check_name(in, "section");
    if (status != WEFT_OK) {
        return status;
    }
    const char *name = scalar_text(in);
    const char *section = find_section(name);
    if (section == NULL) {
        return refuse_name(in, in->event.start_mark, NULL, name);
    }
    for (size_t i = 0; i < *name_count; i++) {
        if (names[i] == section) {
            return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                          "%s: section given twice", section);
        }
    }
    names[(*name_count)++] = section;
    return take_keys(in, section);
}

static weft_status take_sections(reader *in)
{
    const char *names[WEFTI_CONFIG_KEYS_MOST]; /* each at most once */
    size_t name_count = 0;
    if (in->event.type != YAML_MAPPING_START_EVENT) {
        return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                      "no sections; allowed is a mapping, such as "
                      "data: {paths: [some/folder]}");
    }
    weft_status status = next(in);
    while (status == WEFT_OK && in->event.type != YAML_MAPPING_END_EVENT) {
        status = take_section(in, names, &name_count);
        if (status == WEFT_OK) {
            status = next(in);
        }
    }
    return status;
}

/*
 * From the start of the stream to its end, with one document in between: all
 * sections, or the one value of key.
 */
static weft_status take_stream(reader *in, const wefti_config_key *key)
{
    weft_status status = next(in); /* the stream starts */
    if (status == WEFT_OK) {
        status = next(in);
    }
    if (status == WEFT_OK && in->event.type != YAML_DOCUMENT_START_EVENT) {
        return key != NULL ? refuse_value(in, key, "is an empty value")
                           : refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                                    "the file says nothing");
    }
    if (status == WEFT_OK) {
        status = next(in);
    }
    if (status == WEFT_OK) {
        status = key != NULL ? take_value(in, key) : take_sections(in);
    }
    if (status == WEFT_OK) {
        status = next(in); /* the document ends */
    }
    if (status == WEFT_OK) {
        status = next(in);
    }
    if (status == WEFT_OK && in->event.type != YAML_STREAM_END_EVENT) {
        return refuse(in, WEFT_ERR_INVALID, in->event.start_mark,
                      "a second document is not allowed");
    }
    return status;
}

static weft_status read_with(wefti_config *config, const char *setting,
                             const wefti_config_key *key, const char *text,
                             size_t text_bytes)
{
    reader in = {.config = config, .setting = setting};
    if (!yaml_parser_initialize(&in.parser)) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: out of memory",
                           config->path);
    }
    yaml_parser_set_input_string(&in.parser, (const unsigned char *)text,
                                 text_bytes);
    weft_status status = take_stream(&in, key);
    yaml_event_delete(&in.event);
    yaml_parser_delete(&in.parser);
    return status;
}

weft_status wefti_config_read(wefti_config *config, const char *text,
                              size_t text_bytes)
{
    return read_with(config, NULL, NULL, text, text_bytes);
}

weft_status wefti_config_read_setting(wefti_config *config, const char *setting)
{
    char name[64] = "";
    const char *value = strchr(setting, '=');
    const char *dot = strchr(setting, '.');
    reader in = {.config = config, .setting = setting};
    yaml_mark_t nowhere = {0};
    if (value == NULL || dot == NULL || dot > value) {
        return refuse(&in, WEFT_ERR_INVALID, nowhere,
                      "allowed is section.key=value");
    }
    size_t name_length = (size_t)(value - setting);
    if (name_length < sizeof(name)) {
        memcpy(name, setting, name_length);
        name[dot - setting] = '\0';
    }
    const char *key_name = name + (name[0] != '\0' ? dot + 1 - setting : 0);
    const wefti_config_key *key = wefti_config_key_find(name, key_name);
    if (key == NULL) {
        bool known = find_section(name) != NULL;
        return refuse_name(&in, nowhere, known ? name : NULL,
                           known ? key_name : name);
    }
    return read_with(config, setting, key, value + 1, strlen(value + 1));
}
