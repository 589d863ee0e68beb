/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/cache_folder.h - where weft keeps what it has measured: WEFT_CACHE_DIR,
 * else $XDG_CACHE_HOME/weft, else ~/.cache/weft.
 */
#ifndef BASE_CACHE_FOLDER_H
#define BASE_CACHE_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* False: the user has none. */
bool wefti_cache_folder_find(char path_out[PATH_MAX]);

/* The folder and those above it, for the user alone; what cannot be made shows
 * when a file is written there. */
void wefti_cache_folder_make(const char *folder);

#endif
