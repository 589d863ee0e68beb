/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * python/weft_torch/errors.hpp - weft's status and text as torch's exceptions.
 */
#ifndef WEFT_TORCH_ERRORS_HPP
#define WEFT_TORCH_ERRORS_HPP

#include <c10/util/Exception.h>

#include <weft/weft.h>

#include <string>

namespace weft_torch
{

[[noreturn]] inline void fail(weft_status status, const std::string &text)
{
    if (status == WEFT_ERR_INVALID) {
        C10_THROW_ERROR(ValueError, text);
    }
    if (status == WEFT_ERR_UNSUPPORTED) {
        C10_THROW_ERROR(NotImplementedError, text);
    }
    C10_THROW_ERROR(DistBackendError, text);
}

inline void check(weft_status status, const char *text)
{
    if (status != WEFT_OK) {
        fail(status, std::string(status == WEFT_ERR_TIMEOUT
                                     ? "weft: the timeout is over: "
                                     : "weft: ") +
                         text);
    }
}

/* weft's text is this thread's last one. */
inline void check(weft_status status)
{
    check(status, status == WEFT_OK ? "" : weft_error_text());
}

inline void require(bool holds, weft_status status, const std::string &text)
{
    if (!holds) {
        fail(status, "weft: " + text);
    }
}

} // namespace weft_torch

#endif
