/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/oob/secret.c - reads the secret; what is kept is a hash of it.
 */
#include "comm/oob/secret.h"

#include "base/error.h"
#include "base/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_LEAST = 16, SECRET_MOST = 256 };

void wefti_secret_init(wefti_secret *secret, const void *bytes,
                       size_t bytes_count)
{
    static const unsigned char purpose[] = "weft job secret";
    crypto_generichash(secret->key, sizeof(secret->key), bytes, bytes_count,
                       purpose, sizeof(purpose));
}

void wefti_secret_fini(wefti_secret *secret)
{
    sodium_memzero(secret, sizeof(*secret));
}

static weft_status from_text(wefti_secret *secret_out, const char *source,
                             const char *text, size_t characters)
{
    if (characters < SECRET_LEAST || characters > SECRET_MOST) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s: %zu characters: allowed is %d to %d", source,
                           characters, SECRET_LEAST, SECRET_MOST);
    }
    wefti_secret_init(secret_out, text, characters);
    return WEFT_OK;
}

/* Only the owner may read it, and the owner is this process's user, or root. */
static weft_status check_file(const char *setting, const char *path, int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return wefti_error_system("%s=%s", setting, path);
    }
    if (!S_ISREG(about.st_mode)) {
        return wefti_error(WEFT_ERR_INVALID, "%s=%s: not a regular file",
                           setting, path);
    }
    if (about.st_mode & (S_IRWXG | S_IRWXO)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s=%s: mode %04o lets others in: "
                           "allowed is 0600 or 0400",
                           setting, path, (unsigned)about.st_mode & 07777);
    }
    if (about.st_uid != geteuid() && about.st_uid != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s=%s: belongs to user %u: allowed "
                           "is user %u, or root",
                           setting, path, (unsigned)about.st_uid,
                           (unsigned)geteuid());
    }
    return WEFT_OK;
}

weft_status wefti_private_file_read(const char *setting, const char *path,
                                    int flags, char *text_out,
                                    size_t room_bytes, size_t *bytes_out)
{
    *bytes_out = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
    if (fd < 0) {
        return wefti_error_system("%s=%s", setting, path);
    }
    weft_status status = check_file(setting, path, fd);
    while (status == WEFT_OK && *bytes_out < room_bytes) {
        ssize_t got = read(fd, text_out + *bytes_out, room_bytes - *bytes_out);
        if (got < 0) {
            status = wefti_error_system("%s=%s", setting, path);
        }
        if (got <= 0) {
            break;
        }
        *bytes_out += (size_t)got;
    }
    const int cause = errno;
    close(fd);
    errno = cause;
    return status;
}

static weft_status from_file(wefti_secret *secret_out, const char *path)
{
    char text[SECRET_MOST + 2];
    char source[300];
    size_t have;
    weft_status status = wefti_private_file_read("WEFT_SECRET_FILE", path, 0,
                                                 text, sizeof(text), &have);
    if (status == WEFT_OK) {
        while (have > 0 && (text[have - 1] == '\n' || text[have - 1] == '\r')) {
            have--;
        }
        snprintf(source, sizeof(source), "WEFT_SECRET_FILE=%s", path);
        status = from_text(secret_out, source, text, have);
    }
    sodium_memzero(text, sizeof(text));
    return status;
}

weft_status wefti_secret_load(wefti_secret *secret_out)
{
    if (wefti_setting_given(WEFTI_SETTING_SECRET)) {
        const char *text = wefti_setting_text(WEFTI_SETTING_SECRET);
        return from_text(secret_out, "WEFT_SECRET", text, strlen(text));
    }
    if (wefti_setting_given(WEFTI_SETTING_SECRET_FILE)) {
        return from_file(secret_out,
                         wefti_setting_text(WEFTI_SETTING_SECRET_FILE));
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "neither WEFT_SECRET nor WEFT_SECRET_FILE is set: the "
                       "ranks of a job need a common secret of %d to %d "
                       "characters",
                       SECRET_LEAST, SECRET_MOST);
}
