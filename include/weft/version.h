/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/version.h - the version of the headers, and of the library at run time.
 */
#ifndef WEFT_VERSION_H
#define WEFT_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

/*
 * weft_version_text - "major.minor.patch" of the library that is running.
 *
 * Returns     a string that lives for ever.  Threads: any.
 */
const char *weft_version_text(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
