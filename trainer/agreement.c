/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/agreement.c - each rank writes down what must be equal, a line
 * "key=value" each; digests of that are compared, and where they differ the
 * texts of rank 0 and of the first other one.
 */
#include "trainer/agreement.h"

#include "base/error.h"
#include "base/input.h"
#include "comm/make/explain.h"
#include "kernels/math/gemm_kernel.h"
#include "kernels/math/math_table.h"
#include "kernels/math/real.h"
#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/savepoint.h"
#include "trainer/config/config_key.h"
#include "weft/version.h"

#include <ctype.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DIGEST_BYTES = 32,
    VALUE_BYTES = 200, /* of a value in an error; texts are cut there */
    SCHEDULE_BYTES_MOST = 64 << 20
};

/* What each rank sends first. */
typedef struct summary {
    uint8_t digest[DIGEST_BYTES];
    uint64_t bytes;  /* of its text */
    uint64_t failed; /* it has none, but an error */
} summary;

/* What one rank has, as text; and where the error goes. */
typedef struct side {
    weft_comm *comm;
    weft_status own;
    const char *what; /* for those that have not failed */
    char *text;
    size_t bytes;
    int *failed;
    bool *everywhere;
} side;

static void write_line(FILE *out, const char *section, const char *name,
                       const char *value)
{
    fprintf(out, "%s%s=", section, name);
    for (; *value; value++) {
        fputc(iscntrl((unsigned char)*value) ? ' ' : *value, out);
    }
    fputc('\n', out);
}

static void write_digest(FILE *out, const char *name,
                         const uint8_t digest[DIGEST_BYTES], const char *more)
{
    char hex[17];
    fprintf(out, "%s=%s, digest %s\n", name, more,
            sodium_bin2hex(hex, sizeof(hex), digest, 8));
}

/* A user's list is the same where its bytes are. */
static void write_schedule(FILE *out, const char *path)
{
    char *text, about[32];
    size_t bytes;
    uint8_t digest[DIGEST_BYTES] = {0};
    if (wefti_file_read(path, WEFTI_INPUT_FILE, SCHEDULE_BYTES_MOST, &text,
                        &bytes) != WEFT_OK) {
        write_line(out, "parallel.", "schedule", weft_error_text());
        return;
    }
    crypto_generichash(digest, sizeof(digest), (const unsigned char *)text,
                       bytes, NULL, 0);
    free(text);
    snprintf(about, sizeof(about), "a list of %zu bytes", bytes);
    write_digest(out, "parallel.schedule", digest, about);
}

static void write_config(FILE *out, const wefti_config *config,
                         const wefti_options *options)
{
    char value[4096];
    for (size_t i = 0; i < wefti_config_key_count; i++) {
        const wefti_config_key *key = &wefti_config_keys[i];
        char section[32];
        if (key->by_content) {
            continue;
        }
        snprintf(section, sizeof(section), "%s.", key->section);
        write_line(out, section, key->name,
                   wefti_config_key_print(config, key, value, sizeof(value)));
    }
    if (config->parallel.schedule_file) {
        write_schedule(out, config->parallel.schedule_file);
    } else {
        write_line(out, "parallel.", "schedule", config->parallel.schedule);
    }
    write_line(out, "", "--resume", options->resume ? "given" : "not given");
    write_line(out, "", "--import-hf",
               options->import_hf ? "given" : "not given");
    write_line(out, "", "--export-hf",
               options->export_hf ? "given" : "not given");
    write_line(out, "", "--report", options->report ? "given" : "not given");
    write_line(out, "", "--measure", options->measure ? "given" : "not given");
    write_line(out, "", "--generate",
               options->generate ? options->generate : "not given");
    fprintf(out, "weft-train's version=%s, %zu-byte numbers\n",
            weft_version_text(), sizeof(real));
    if (config->train.deterministic) {
        /* Levels of kernels differ in the last bits. */
        fprintf(out,
                "the processor's kernels (train.deterministic)=%s, products by "
                "%s\n",
                wefti_math_get()->level, wefti_gemm_get_kernel(false));
    }
}

/* The newest complete step in dir, by the digest of its index; what is wrong
 * with it is its reader's to report. */
static uint64_t add_newest(crypto_generichash_state *state, const char *dir)
{
    wefti_checkpoint_done done;
    uint64_t *steps = NULL, newest = 0;
    size_t count = 0;
    if (wefti_checkpoint_list(dir, &steps, &count) == WEFT_OK && count > 0) {
        newest = steps[0];
        if (wefti_checkpoint_read_done(dir, newest, &done) == WEFT_OK) {
            crypto_generichash_update(state, done.index_digest,
                                      sizeof(done.index_digest));
        }
    }
    crypto_generichash_update(state, (unsigned char *)&newest, sizeof(newest));
    free(steps);
    return newest;
}

/* Of the run that began last there: it is the one that is resumed. */
static void write_resume(FILE *out, const char *dir)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES], about[64], run[24] = "";
    uint8_t digest[DIGEST_BYTES];
    crypto_generichash_state state;
    uint32_t number;
    uint64_t newest = 0;
    crypto_generichash_init(&state, NULL, 0, sizeof(digest));
    if (wefti_run_folder_newest(dir, &number) == WEFT_OK &&
        wefti_run_folder_path(dir, number, path) == WEFT_OK) {
        char inside[WEFTI_CHECKPOINT_PATH_BYTES];
        newest = add_newest(&state, path);
        if (wefti_savepoint_inside(path, inside) == WEFT_OK) {
            (void)add_newest(&state, inside);
        }
    }
    crypto_generichash_final(&state, digest, sizeof(digest));
    if (number > 1) {
        snprintf(run, sizeof(run), " in run_%05" PRIu32, number);
    }
    snprintf(about, sizeof(about), "a checkpoint of step %" PRIu64 "%s", newest,
             run);
    write_digest(out, "--resume", digest, about);
}

static void write_data(FILE *out, const char *key, const wefti_data *data,
                       const wefti_options *options)
{
    char about[96], name[48];
    snprintf(about, sizeof(about), "%zu %s in %zu file%s", data->token_count,
             data->text ? "bytes" : "ids", data->files_taken,
             data->files_taken == 1 ? "" : "s");
    snprintf(name, sizeof(name), "the text of %s", key);
    write_digest(out, name, data->hash, about);
    if (options->resume) {
        write_resume(out, options->resume);
    }
}

/* The first line that differs, cut into key and values. */
static weft_status refuse(const char *first, const char *other, int other_rank)
{
    while (true) {
        const size_t a = strcspn(first, "\n"), b = strcspn(other, "\n");
        if (a != b || strncmp(first, other, a) != 0) {
            const size_t key = strcspn(first, "=");
            const char *theirs = other + strcspn(other, "=");
            const int a_value = (int)(a - (key < a ? key + 1 : a));
            const int b_value = (int)(other + b - theirs) - 1;
            return wefti_error(
                WEFT_ERR_INVALID,
                "%.*s: ranks differ: it is %.*s on rank 0 and %.*s on rank "
                "%d; allowed is the same on all ranks",
                (int)key, first, a_value < VALUE_BYTES ? a_value : VALUE_BYTES,
                first + key + 1, b_value < VALUE_BYTES ? b_value : VALUE_BYTES,
                theirs + 1, other_rank);
        }
        first += a + 1;
        other += b + 1;
    }
}

/* All ranks get the texts of rank 0 and of odd, and find the same
 * difference. */
static weft_status find_difference(const side *mine, const summary *summaries,
                                   int odd)
{
    const int ranks[2] = {0, odd};
    char *texts[2] = {NULL, NULL};
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2 && status == WEFT_OK; i++) {
        const size_t bytes = (size_t)summaries[ranks[i]].bytes;
        texts[i] = calloc(bytes + 1, 1);
        status = texts[i]
                     ? weft_broadcast(mine->text, texts[i], bytes,
                                      WEFT_DTYPE_U8, ranks[i], mine->comm, NULL)
                     : wefti_error(WEFT_ERR_NO_MEMORY,
                                   "no memory for what rank %d has", ranks[i]);
    }
    if (status == WEFT_OK) {
        *mine->everywhere = true;
        status = refuse(texts[0], texts[1], odd);
    }
    free(texts[0]);
    free(texts[1]);
    return status;
}

static weft_status judge(const side *mine, const summary *summaries)
{
    const int nranks = weft_comm_get_nranks(mine->comm);
    int odd = 0;
    bool failed = false;
    for (int rank = nranks - 1; rank >= 0; rank--) {
        failed |= summaries[rank].failed != 0;
        odd = memcmp(&summaries[rank], &summaries[0], sizeof(*summaries)) != 0
                  ? rank
                  : odd;
    }
    if (odd == 0) {
        *mine->everywhere = mine->own != WEFT_OK;
        return mine->own == WEFT_OK ? WEFT_OK
                                    : wefti_error(mine->own, "%s", mine->text);
    }
    if (failed) {
        weft_status own = mine->own == WEFT_OK
                              ? WEFT_OK
                              : wefti_error(mine->own, "%s", mine->text);
        return wefti_savepoint_agree(mine->comm, mine->failed, own, mine->what);
    }
    return find_difference(mine, summaries, odd);
}

/* text is all there is to compare; of a rank that has failed its error. */
static weft_status compare(const side *mine)
{
    const int nranks = weft_comm_get_nranks(mine->comm);
    summary own = {.bytes = mine->bytes, .failed = mine->own != WEFT_OK};
    summary *summaries = calloc((size_t)nranks, sizeof(*summaries));
    if (!summaries) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d ranks",
                           nranks);
    }
    crypto_generichash(own.digest, sizeof(own.digest),
                       (const unsigned char *)mine->text, mine->bytes, NULL, 0);
    weft_status status = weft_allgather(&own, summaries, sizeof(own),
                                        WEFT_DTYPE_U8, mine->comm, NULL);
    if (status == WEFT_OK) {
        status = judge(mine, summaries);
    }
    free(summaries);
    return status;
}

/* Ends the text that write has filled, and compares it. */
static weft_status close_and_compare(side *mine, FILE *out)
{
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad || !mine->text) {
        free(mine->text);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to compare ranks");
    }
    weft_status status = compare(mine);
    free(mine->text);
    return status;
}

static FILE *open_side(side *mine)
{
    FILE *out = open_memstream(&mine->text, &mine->bytes);
    if (out && mine->own != WEFT_OK) {
        fputs(weft_error_text(), out);
    }
    return out;
}

/* All ranks find the same. */
static weft_status check_levels(weft_comm *comm, const wefti_config *config,
                                bool *everywhere)
{
    if (config->train.deterministic &&
        wefti_comm_route(comm) == WEFTI_ROUTE_NCCL) {
        *everywhere = true;
        return wefti_error(WEFT_ERR_INVALID,
                           "train.deterministic: true does not hold with "
                           "WEFT_ROUTE=nccl, as NCCL does not promise the same "
                           "sums in each run: allowed with WEFT_ROUTE=steps");
    }
    if (!config->train.deterministic ||
        !wefti_comm_sum_hosts(comm, WEFT_DTYPE_F32, WEFT_REDOP_SUM)) {
        return WEFT_OK;
    }
    *everywhere = true;
    return wefti_error(WEFT_ERR_INVALID,
                       "train.deterministic: true does not hold where several "
                       "ranks share one of several hosts, as each host's sum "
                       "is rounded by itself: allowed with WEFT_SUM_FLAT=on");
}

weft_status wefti_agreement_config(weft_comm *comm, weft_status own,
                                   const wefti_config *config,
                                   const wefti_options *options,
                                   int *failed_out, bool *everywhere)
{
    side mine = {.comm = comm,
                 .own = own,
                 .what = "the configuration",
                 .failed = failed_out,
                 .everywhere = everywhere};
    FILE *out = open_side(&mine);
    if (!out) {
        return wefti_error_system("no memory to compare ranks");
    }
    if (own == WEFT_OK) {
        write_config(out, config, options);
    }
    weft_status status = close_and_compare(&mine, out);
    return status == WEFT_OK ? check_levels(comm, config, everywhere) : status;
}

weft_status wefti_agreement_data(weft_comm *comm, weft_status own,
                                 const char *key, const wefti_data *data,
                                 const wefti_options *options, int *failed_out,
                                 bool *everywhere)
{
    side mine = {.comm = comm,
                 .own = own,
                 .what = key,
                 .failed = failed_out,
                 .everywhere = everywhere};
    FILE *out = open_side(&mine);
    if (!out) {
        return wefti_error_system("no memory to compare ranks");
    }
    if (own == WEFT_OK) {
        write_data(out, key, data, options);
    }
    return close_and_compare(&mine, out);
}
