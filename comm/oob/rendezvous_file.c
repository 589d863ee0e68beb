/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/rendezvous_file.c - WEFT_RENDEZVOUS=file:/path: rank 0 leaves
 * an invitation in a file that all ranks can read, and removes it when they
 * have joined.
 *
 * The file appears whole (written beside, then renamed) and is its owner's
 * alone (0600). One that an earlier job left behind points at a port where
 * nothing answers, or at a process that does not know its secret: a rank that
 * finds either reads the file again until it has changed or time is over.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/oob/connection.h"
#include "comm/oob/environment.h"
#include "comm/oob/rendezvous.h"
#include "comm/oob/source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static const char prefix[] = "file:";

enum { POLL_MS = 20, CONNECT_MS = 200, LOCK_MS = 2000 };

static bool applies(const wefti_bootstrap_request *request)
{
    (void)request;
    return strncmp(wefti_setting_text(WEFTI_SETTING_RENDEZVOUS), prefix,
                   sizeof(prefix) - 1) == 0;
}

static weft_status find_path(const char **path_out)
{
    *path_out =
        wefti_setting_text(WEFTI_SETTING_RENDEZVOUS) + sizeof(prefix) - 1;
    if ((*path_out)[0] != '/' || strlen(*path_out) > 3000) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_RENDEZVOUS=%.200s: allowed is file: and an "
                           "absolute path of up to 3000 bytes",
                           wefti_setting_text(WEFTI_SETTING_RENDEZVOUS));
    }
    return WEFT_OK;
}

/* Leaves text in the file, all of it or nothing. */
static weft_status publish(const char *path, const char *text)
{
    char beside[3072];
    snprintf(beside, sizeof(beside), "%s.XXXXXX", path);
    int fd = mkostemp(beside, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        return wefti_error_system("WEFT_RENDEZVOUS: %s", beside);
    }
    const size_t bytes = strlen(text);
    weft_status status = WEFT_OK;
    if (write(fd, text, bytes) != (ssize_t)bytes || rename(beside, path) != 0) {
        status = wefti_error_system("WEFT_RENDEZVOUS: cannot write %s", path);
        (void)unlink(beside);
    }
    close(fd);
    return status;
}

/*
 * What stands in the file, "" while there is none.
 *
 * Returns     OK | ERR_INVALID (others may read or have written it) |
 *             ERR_SYSTEM.
 */
static weft_status read_file(const char *path,
                             char text_out[WEFTI_INVITATION_BYTES])
{
    size_t bytes;
    weft_status status =
        wefti_private_file_read("WEFT_RENDEZVOUS", path, O_NOFOLLOW, text_out,
                                WEFTI_INVITATION_BYTES - 1, &bytes);
    text_out[status == WEFT_OK ? bytes : 0] = '\0';
    return status == WEFT_ERR_SYSTEM && errno == ENOENT ? WEFT_OK : status;
}

/* Whether a process listens there; at a stale file's address few do. */
static bool is_answered(const wefti_endpoint *endpoint,
                        const wefti_secret *secret)
{
    wefti_oob_connection there;
    const int64_t until_ns = wefti_clock_ns() + CONNECT_MS * INT64_C(1000000);
    const bool answered =
        wefti_oob_connection_open(&there, endpoint, secret,
                                  WEFTI_OOB_CLIENT_MOST) == WEFT_OK &&
        wefti_oob_connection_wait(&there, until_ns, -1);
    wefti_oob_connection_fini(&there);
    return answered;
}

/* What is in the file may be of a rank 0 that is still there. */
static weft_status ask_first(const wefti_bootstrap_request *request,
                             const char *path)
{
    char text[WEFTI_INVITATION_BYTES];
    wefti_endpoint endpoint;
    wefti_secret secret;
    if (read_file(path, text) != WEFT_OK || !text[0] ||
        wefti_invitation_read(path, text, &endpoint, &secret) != WEFT_OK) {
        return WEFT_OK; /* it is replaced */
    }
    weft_status status = is_answered(&endpoint, &secret)
                             ? wefti_rendezvous_ask(request, &endpoint, &secret)
                             : WEFT_OK;
    sodium_memzero(text, sizeof(text));
    wefti_secret_fini(&secret);
    return status;
}

/* The folder, locked: of two that come as rank 0 at once, one publishes and
 * the other then finds it. -1: it cannot be locked, and they may miss. */
static int lock_folder(const char *path)
{
    char folder[3072];
    const char *end = strrchr(path, '/');
    snprintf(folder, sizeof(folder), "%.*s", (int)(end - path) + 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int64_t until_ns = wefti_clock_ns() + LOCK_MS * INT64_C(1000000);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK || wefti_clock_ns() > until_ns) {
            close(fd);
            return -1;
        }
        (void)poll(NULL, 0, POLL_MS);
    }
    return fd;
}

/* The file is this rank 0's, unless another one has been found. */
static weft_status publish_as_first(const wefti_bootstrap_request *request,
                                    const char *path, const char *text)
{
    int lock = lock_folder(path);
    weft_status status = ask_first(request, path);
    if (status == WEFT_OK) {
        status = publish(path, text);
    }
    if (lock >= 0) {
        close(lock);
    }
    return status;
}

static weft_status serve(const wefti_bootstrap_request *request,
                         const char *path, wefti_membership *membership_out)
{
    char text[WEFTI_INVITATION_BYTES], left[WEFTI_INVITATION_BYTES];
    wefti_endpoint endpoint;
    wefti_secret secret;
    int fd;
    const char *host = wefti_setting_given(WEFTI_SETTING_HOST)
                           ? wefti_setting_text(WEFTI_SETTING_HOST)
                           : NULL;
    weft_status status = wefti_invitation_create("WEFT_HOST", host, &endpoint,
                                                 &secret, &fd, text);
    if (status != WEFT_OK) {
        return status;
    }
    status = publish_as_first(request, path, text);
    if (status == WEFT_OK) {
        status = wefti_rendezvous_join(request, &endpoint, &secret, fd,
                                       membership_out);
        /* Not what the next job may have put there. */
        if (read_file(path, left) == WEFT_OK && strcmp(left, text) == 0) {
            (void)unlink(path);
        }
    } else {
        close(fd);
    }
    sodium_memzero(text, sizeof(text));
    wefti_secret_fini(&secret);
    return status;
}

/* One invitation; INPROGRESS: it is stale, or the file is not there yet. */
static weft_status accept_invitation(const wefti_bootstrap_request *request,
                                     const char *path, const char *text,
                                     wefti_membership *membership_out)
{
    char now[WEFTI_INVITATION_BYTES];
    wefti_endpoint endpoint;
    wefti_secret secret;
    weft_status status = wefti_invitation_read(path, text, &endpoint, &secret);
    if (status != WEFT_OK) {
        return WEFT_INPROGRESS;
    }
    if (!is_answered(&endpoint, &secret)) {
        status = WEFT_INPROGRESS;
    } else {
        bool foreign = false;
        wefti_bootstrap_request asking = *request;
        asking.foreign_out = &foreign;
        status = wefti_rendezvous_join(&asking, &endpoint, &secret, -1,
                                       membership_out);
        if (status == WEFT_ERR_BOOTSTRAP &&
            (foreign || (read_file(path, now) == WEFT_OK && now[0] &&
                         strcmp(now, text) != 0))) {
            status = WEFT_INPROGRESS; /* that was an earlier job's */
        }
    }
    wefti_secret_fini(&secret);
    return status;
}

static weft_status come(const wefti_bootstrap_request *request,
                        const char *path, wefti_membership *membership_out)
{
    char text[WEFTI_INVITATION_BYTES];
    wefti_bootstrap_request rest = *request;
    const int64_t begin_ns = wefti_clock_ns();
    bool warned = false;
    for (;;) {
        weft_status status = read_file(path, text);
        int64_t waited_ms = (wefti_clock_ns() - begin_ns) / 1000000;
        if (status == WEFT_OK && waited_ms < request->timeout_ms) {
            rest.timeout_ms = request->timeout_ms - waited_ms;
            status = text[0]
                         ? accept_invitation(&rest, path, text, membership_out)
                         : WEFT_INPROGRESS;
        } else if (status == WEFT_OK) {
            status =
                wefti_error(WEFT_ERR_TIMEOUT, "rank %d: %s: %s after %lld ms",
                            request->rank, path,
                            text[0] ? "nothing answers where it points"
                                    : "rank 0 has not written it",
                            (long long)request->timeout_ms);
        }
        sodium_memzero(text, sizeof(text));
        if (status != WEFT_INPROGRESS) {
            return status;
        }
        if (!warned && waited_ms >= request->warn_ms) {
            warned = true;
            wefti_log(WEFTI_LOG_WARN, request->rank,
                      "waits for rank 0's invitation in %s", path);
        }
        if (wefti_bootstrap_pause(request, POLL_MS)) {
            return wefti_bootstrap_cancelled(request);
        }
    }
}

static weft_status join(const wefti_bootstrap_request *request,
                        wefti_membership *membership_out)
{
    const char *path;
    weft_status status = find_path(&path);
    if (status != WEFT_OK) {
        return status;
    }
    return request->nranks == 1 ? wefti_bootstrap_alone(request, membership_out)
           : request->rank == 0 ? serve(request, path, membership_out)
                                : come(request, path, membership_out);
}

const wefti_launch_source wefti_launch_source_file = {
    .name = "a file",
    .sign = "WEFT_RENDEZVOUS begins with file:",
    .alone_too = true, /* a wrong path is an error */
    .applies = applies,
    .find_rank = wefti_environment_find_rank,
    .join = join,
};
