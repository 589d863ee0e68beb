/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/options.c - reading the command line, and the help that explains it.
 */
#include "trainer/options.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

void wefti_options_help(FILE *file)
{
    fputs(
        "usage: weft-train CONFIG.yaml [options]\n"
        "\n"
        "Trains a decoder language model on text files or files of token ids\n"
        "(docs/data.md), on as many ranks as the launcher starts (weft-run\n"
        "-n N; without one: a single rank).\n"
        "\n"
        "  --set SECTION.KEY=VALUE  a value in place of the file's; again and\n"
        "                           again\n"
        "  --resume DIR             go on from the newest complete checkpoint\n"
        "                           in DIR, after a step or inside one\n"
        "  --measure                afterwards run the same steps overlapped,\n"
        "                           without transfers and serially: prints O,\n"
        "                           H, what it can be at most, and what plain\n"
        "                           sockets hide (H_bare), s_C, s_M\n"
        "  --generate TEXT          afterwards print 200 bytes that go on "
        "from\n"
        "                           TEXT, or as generate.bytes, .temperature,\n"
        "                           .top_k, .top_p and .seed say; all else "
        "then\n"
        "                           goes to stderr. A terminal gets control\n"
        "                           characters and bytes that are not UTF-8 "
        "as\n"
        "                           \\xNN. Of token ids: TEXT is ids, such as\n"
        "                           '17 4', and so is what it prints\n"
        "  --metrics FILE           one JSON line a step (-: stdout)\n"
        "  --json FILE              the summary as JSON (-: stdout)\n"
        "  --report FILE.html       the run as one page for a browser, and "
        "the\n"
        "                           last steps as FILE.trace.json for "
        "Perfetto\n"
        "  --import-hf DIR          begin with the parameters of a model in\n"
        "                           Hugging Face's names, Llama's or with "
        "experts\n"
        "                           GLM-4.5's: config.json "
        "and\n"
        "                           model.safetensors in DIR\n"
        "  --export-hf DIR          afterwards write the model so, into a new\n"
        "                           folder\n"
        "  --print-program          only print what each stage does, node by "
        "node,\n"
        "                           and where its values lie\n"
        "  --keys                   every key of CONFIG.yaml: its default, "
        "what "
        "is\n"
        "                           allowed, what it is (docs/config.md)\n"
        "  --help, --version\n"
        "\n"
        "Ranks may share each layer (parallel.tensor_model_parallel_size), "
        "each\n"
        "sequence (context_parallel_size) and the experts of a mixture\n"
        "(model.experts, expert_model_parallel_size); the others are copies\n"
        "that share the batch (docs/parallelism.md, docs/experts.md).\n"
        "\n"
        "A model may be cut over several ranks: parallel.pipeline_model_\n"
        "parallel_size, and parallel.schedule: gpipe 1f1b interleaved zb_h1\n"
        "zb_h2 zbv dualpipe dualpipev, a list of your own, FILE.csv, or auto,\n"
        "which tries the best and says why (docs/training.md; weft-sched "
        "shows\n"
        "what they cost). parallel.compare: [1f1b, zbv] or all tries them\n"
        "before the run, side by side in the report. With checkpoint.inside: "
        "N\n"
        "it saves N times inside each step, too.\n"
        "\n"
        "Where ranks have no core of their own overlap may lose: with\n"
        "overlap.trial: true it is tried before the run, and transfers whose\n"
        "overlap lost block (docs/training.md).\n"
        "\n"
        "Checkpoints are written beside the steps that follow, from a copy of\n"
        "the state; checkpoint.async: false saves that memory, and waits.\n"
        "\n"
        "SIGUSR1 prints on stderr what all ranks do and did last.\n"
        "\n"
        "examples:\n"
        "  weft-run -n 2 weft-train examples/fortunes.yaml\n"
        "  weft-run -n 4 weft-train examples/pipeline.yaml \\\n"
        "           --set parallel.schedule=zb_h1\n"
        "  weft-train my.yaml --set train.steps=400 --set train.lr=2e-3\n"
        "  weft-train my.yaml --resume ckpt --set train.steps=0 --generate "
        "'Once '\n"
        "  weft-run -n 4 weft-train my.yaml --metrics steps.jsonl --measure\n"
        "  weft-run -n 2 weft-train my.yaml --report report.html\n"
        "  weft-train my.yaml --resume ckpt --set train.steps=0 --export-hf "
        "llama\n",
        file);
}

static weft_status refuse(const char *argument, const char *why)
{
    return wefti_error(WEFT_ERR_INVALID, "%s: %s (weft-train --help)", argument,
                       why);
}

/* Where the value of an option that takes one goes; NULL: no such option. */
static const char **value_of(wefti_options *options, const char *argument)
{
    const struct {
        const char *name;
        const char **value;
    } rows[] = {{"--resume", &options->resume},
                {"--generate", &options->generate},
                {"--metrics", &options->metrics},
                {"--json", &options->json},
                {"--report", &options->report},
                {"--import-hf", &options->import_hf},
                {"--export-hf", &options->export_hf}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(argument, rows[i].name) == 0) {
            return rows[i].value;
        }
    }
    return NULL;
}

static bool is_flag(wefti_options *options, const char *argument)
{
    const struct {
        const char *name;
        bool *value;
    } rows[] = {{"--measure", &options->measure},
                {"--print-program", &options->print_program},
                {"--keys", &options->keys},
                {"--help", &options->help},
                {"--version", &options->version}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(argument, rows[i].name) == 0) {
            *rows[i].value = true;
            return true;
        }
    }
    return false;
}

/* One argument, with the one after it (NULL at the end) as its value. */
static weft_status take(wefti_options *options, const char *argument,
                        const char *next, bool *took_next)
{
    *took_next = false;
    if (is_flag(options, argument)) {
        return WEFT_OK;
    }
    if (argument[0] != '-') {
        if (options->config) {
            return refuse(argument, "one CONFIG.yaml is allowed, not two");
        }
        options->config = argument;
        return WEFT_OK;
    }
    const char **value = value_of(options, argument);
    bool set = strcmp(argument, "--set") == 0;
    if (!value && !set) {
        return refuse(argument, "no such option");
    }
    if (!next) {
        return refuse(argument, "needs a value after it");
    }
    if (value && *value) {
        return refuse(argument, "is given twice");
    }
    *(set ? &options->settings[options->setting_count++] : value) = next;
    *took_next = true;
    return WEFT_OK;
}

weft_status wefti_options_init(wefti_options *options, int argc,
                               char *const *argv)
{
    weft_status status = WEFT_OK;
    *options = (wefti_options){0};
    options->settings = calloc((size_t)argc + 1, sizeof(*options->settings));
    if (!options->settings) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for arguments");
    }
    for (int i = 1; i < argc && status == WEFT_OK; i++) {
        bool took_next;
        status = take(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL,
                      &took_next);
        i += took_next;
    }
    if (status == WEFT_OK && !options->config && !options->help &&
        !options->keys && !options->version) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "CONFIG.yaml is missing (weft-train --help)");
    }
    if (status == WEFT_OK && options->import_hf && options->resume) {
        status = refuse("--import-hf", "is not possible with --resume");
    }
    if (status != WEFT_OK) {
        wefti_options_fini(options);
    }
    return status;
}

void wefti_options_fini(wefti_options *options)
{
    free(options->settings);
    *options = (wefti_options){0};
}
