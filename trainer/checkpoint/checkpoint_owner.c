/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_owner.c - the file that names the run that owns
 * a folder.
 *
 * Source: flock(2), also of NFS.
 */
#include "trainer/checkpoint/checkpoint_owner.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME      ".owner"
#define NEXT_NAME ".owner.new"

enum {
    TEXT_BYTES = 256,
    HOST_BYTES = 65,
    TRIES_MOST = 64, /* to lock a file that others replace meanwhile */
    ORIGIN_BYTES = sizeof("run 0123456789abcdef, session 0123456789abcdef")
};

static void describe(const wefti_checkpoint_origin *origin,
                     char text[ORIGIN_BYTES])
{
    snprintf(text, ORIGIN_BYTES, "run %016" PRIx64 ", session %016" PRIx64,
             origin->run, origin->session);
}

static uint64_t draw(void)
{
    uint64_t value;
    randombytes_buf(&value, sizeof(value));
    return value | 1; /* 0 is none */
}

static int open_in(int dir_fd, const char *name, int flags)
{
    return openat(dir_fd, name,
                  flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
}

static weft_status open_dir(const char *dir, int *fd_out)
{
    *fd_out = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd_out < 0 ? wefti_error_system("%s: cannot be opened", dir)
                       : WEFT_OK;
}

/* What the file says, without its newline; "" where it says nothing. */
static void read_text(int fd, char text[TEXT_BYTES])
{
    ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *at = text; *at; at++) {
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    }
}

/* Whether name is still the file that fd has open. */
static bool is_there(int dir_fd, const char *name, int fd)
{
    struct stat there, own;
    return fstat(fd, &own) == 0 &&
           fstatat(dir_fd, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           there.st_dev == own.st_dev && there.st_ino == own.st_ino;
}

/* Writes down whose the folder is. */
static weft_status write_text(const wefti_checkpoint_owner *owner, int fd)
{
    char text[TEXT_BYTES], own[ORIGIN_BYTES], host[HOST_BYTES] = "";
    describe(&owner->origin, own);
    (void)gethostname(host, sizeof(host) - 1);
    int length = snprintf(text, sizeof(text), "%s, host %s, process %d\n", own,
                          host, (int)getpid());
    return ftruncate(fd, 0) != 0 ||
                   pwrite(fd, text, (size_t)length, 0) != length ||
                   fsync(fd) != 0
               ? wefti_error_system("%s/" NAME ": cannot be written",
                                    owner->dir)
               : WEFT_OK;
}

/* Locks the open file; a file system without locks is an error that says so. */
static weft_status lock(const char *dir, int fd)
{
    char text[TEXT_BYTES];
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return WEFT_OK;
    }
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) {
        wefti_log(WEFTI_LOG_WARN, 0,
                  "%s: the file system has no locks: see to it that no other "
                  "run saves there",
                  dir);
        return WEFT_OK;
    }
    if (errno != EWOULDBLOCK) {
        return wefti_error_system("%s/" NAME ": cannot be locked", dir);
    }
    read_text(fd, text);
    return wefti_error(WEFT_ERR_INVALID,
                       "%s: another run saves there (%s): wait for its end, or "
                       "name another folder",
                       dir, text[0] ? text : "which one it does not say yet");
}

/* The locked file of that name, made where it is missing. */
static weft_status open_locked(const char *dir, int dir_fd, int *fd_out)
{
    for (int tries = 0; tries < TRIES_MOST; tries++) {
        struct stat what;
        int fd = open_in(dir_fd, NAME, O_RDWR | O_CREAT);
        if (fd < 0 || fstat(fd, &what) != 0 || !S_ISREG(what.st_mode)) {
            weft_status status =
                fd < 0
                    ? wefti_error_system("%s/" NAME ": cannot be opened", dir)
                    : wefti_error(WEFT_ERR_INVALID, "%s/" NAME ": is no file",
                                  dir);
            if (fd >= 0) {
                close(fd);
            }
            return status;
        }
        weft_status status = lock(dir, fd);
        if (status == WEFT_OK && is_there(dir_fd, NAME, fd)) {
            *fd_out = fd;
            return WEFT_OK;
        }
        close(fd); /* a run that ended has just removed it */
        if (status != WEFT_OK) {
            return status;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%s/" NAME ": is replaced again and again", dir);
}

weft_status wefti_checkpoint_owner_open(wefti_checkpoint_owner *owner,
                                        const char *dir)
{
    int dir_fd = -1;
    if (sodium_init() < 0) {
        return wefti_error(WEFT_ERR_SYSTEM, "libsodium: no random numbers");
    }
    snprintf(owner->dir, sizeof(owner->dir), "%s", dir);
    weft_status status = open_dir(dir, &dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    status = open_locked(dir, dir_fd, &owner->fd);
    if (status == WEFT_OK) {
        (void)unlinkat(dir_fd, NEXT_NAME, 0); /* of a run that was killed */
        owner->origin.session = draw();
        owner->origin.run = owner->origin.run ? owner->origin.run : draw();
        owner->holds = true;
        status = write_text(owner, owner->fd);
    }
    close(dir_fd);
    if (status != WEFT_OK) {
        wefti_checkpoint_owner_close(owner);
    }
    return status;
}

static weft_status not_ours(const wefti_checkpoint_owner *owner,
                            const char *text)
{
    char own[ORIGIN_BYTES];
    describe(&owner->origin, own);
    return wefti_error(WEFT_ERR_INVALID,
                       "%s: is not this run's any more (%s): %s%s has taken it "
                       "over; nothing is saved or removed there",
                       owner->dir, own, text[0] ? "" : "another",
                       text[0] ? text : " that has ended");
}

static weft_status check_at(const wefti_checkpoint_owner *owner, int dir_fd)
{
    char text[TEXT_BYTES] = "", own[ORIGIN_BYTES];
    int fd = open_in(dir_fd, NAME, O_RDONLY);
    if (fd < 0 && errno != ENOENT) {
        return wefti_error_system("%s/" NAME ": cannot be read", owner->dir);
    }
    if (fd >= 0) {
        read_text(fd, text);
        close(fd);
    }
    describe(&owner->origin, own);
    return strncmp(text, own, strlen(own)) == 0 ? WEFT_OK
                                                : not_ours(owner, text);
}

weft_status wefti_checkpoint_owner_check(const wefti_checkpoint_owner *owner)
{
    int dir_fd = -1;
    weft_status status = open_dir(owner->dir, &dir_fd);
    if (status == WEFT_OK) {
        status = check_at(owner, dir_fd);
        close(dir_fd);
    }
    return status;
}

/* A file of the new session, locked before any other process can see it. */
static weft_status replace(wefti_checkpoint_owner *owner, int dir_fd)
{
    int fd = open_in(dir_fd, NEXT_NAME, O_RDWR | O_CREAT);
    if (fd < 0) {
        return wefti_error_system("%s/" NEXT_NAME ": cannot be made",
                                  owner->dir);
    }
    weft_status status = lock(owner->dir, fd);
    if (status == WEFT_OK) {
        status = write_text(owner, fd);
    }
    if (status == WEFT_OK && renameat(dir_fd, NEXT_NAME, dir_fd, NAME) != 0) {
        status = wefti_error_system("%s/" NEXT_NAME ": cannot be renamed",
                                    owner->dir);
    }
    if (status != WEFT_OK) {
        close(fd);
        return status;
    }
    if (owner->holds) {
        close(owner->fd);
    }
    owner->fd = fd;
    owner->holds = true;
    return WEFT_OK;
}

/* A former rank 0 that has ended well has removed the file. */
static bool is_missing(int dir_fd)
{
    return faccessat(dir_fd, NAME, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}

weft_status wefti_checkpoint_owner_renew(wefti_checkpoint_owner *owner)
{
    int dir_fd = -1;
    weft_status status = open_dir(owner->dir, &dir_fd);
    if (status != WEFT_OK) {
        return status;
    }
    if (!is_missing(dir_fd)) {
        status = check_at(owner, dir_fd);
    }
    if (status == WEFT_OK) {
        owner->origin.session = draw();
        status = replace(owner, dir_fd);
    }
    close(dir_fd);
    return status;
}

void wefti_checkpoint_owner_close(wefti_checkpoint_owner *owner)
{
    int dir_fd = open(owner->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (owner->holds) {
        if (dir_fd >= 0 && is_there(dir_fd, NAME, owner->fd)) {
            (void)unlinkat(dir_fd, NAME, 0);
        }
        close(owner->fd);
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    owner->holds = false;
}
