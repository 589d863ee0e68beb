/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/status.h - what every call returns, and the text behind it.
 *
 * Codes are grouped by what must be made anew after them: nothing (OK,
 * INPROGRESS), the call (-1 ..), the communicator (-20 ..).
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#if defined(__GNUC__)
#define WEFT_NODISCARD __attribute__((warn_unused_result))
#else
#define WEFT_NODISCARD
#endif

/*
 * What came of a call. Only OK and INPROGRESS are no errors.
 */
/* X(name, value, text) */
#define WEFT_STATUS_LIST(X)                                                    \
    X(OK, 0, "success")                                                        \
    X(INPROGRESS, 1, "still in progress")                                      \
    X(ERR_INVALID, -1, "an argument is not allowed")                           \
    X(ERR_UNSUPPORTED, -2, "this build or device cannot do that")              \
    X(ERR_NO_MEMORY, -3, "out of memory")                                      \
    X(ERR_SYSTEM, -4, "the operating system refused a request")                \
    X(ERR_BOOTSTRAP, -20, "the ranks could not be brought together")           \
    X(ERR_MISMATCH, -21, "ranks posted different operations")                  \
    X(ERR_PEER, -22, "a peer has died or left")                                \
    X(ERR_TIMEOUT, -23, "an operation exceeded its time limit")                \
    X(ERR_ABORTED, -24, "the communicator was aborted")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, value, text) WEFT_##name = value,
    WEFT_STATUS_LIST(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status;

/*
 * weft_status_text - the fixed one-line meaning of a code.
 *
 * Returns     a string that lives for ever; "unknown status" for other values.
 * Threads     any.  Blocks: no.  Allocates: no.
 */
const char *weft_status_text(weft_status status);

/*
 * weft_error_text - what exactly went wrong in this thread's last failed call:
 * the argument, its value and what is allowed, or the rank and operation.
 *
 * Returns     a string owned by weft, valid until the thread's next failed
 *             call; "" if none has failed.
 * Threads     any; the text is per thread.  Blocks: no.  Allocates: no.
 */
const char *weft_error_text(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
