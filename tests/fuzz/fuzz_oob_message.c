/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal    no bytes from the network harm the reader of bootstrap messages.
 * Method  the input is one frame; where it is a message, encoding it must give
 *         the same bytes, but for the MAC, which the codec does not make.
 */
#include "comm/oob/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    wefti_oob_message message;
    unsigned char again[WEFTI_OOB_FRAME_MOST];
    long measured = wefti_oob_message_measure(data, data_bytes, ~0u);
    require(measured >= -1 && measured <= WEFTI_OOB_FRAME_MOST);
    if (!wefti_oob_message_decode(data, data_bytes, &message)) {
        return 0;
    }
    require((size_t)measured == data_bytes);
    bool hello =
        message.kind == WEFTI_OOB_HELLO || message.kind == WEFTI_OOB_CHALLENGE;
    if (hello && !wefti_version_is_own(message.as.hello.version)) {
        return 0;
    }
    size_t again_bytes = wefti_oob_message_encode(&message, again);
    require(again_bytes == data_bytes);
    size_t mac_bytes =
        data_bytes >= WEFTI_OOB_HEADER_BYTES + WEFTI_OOB_MAC_BYTES && !hello
            ? WEFTI_OOB_MAC_BYTES
            : 0;
    require(memcmp(again, data, data_bytes - mac_bytes) == 0);
    return 0;
}
