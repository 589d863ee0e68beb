/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/fuzz_nccl_xml.c - any bytes as NCCL's topology XML. What is
 * accepted must also be accepted by what comes after: paths and rings.
 */
#include "topo/paths.h"
#include "topo/rings.h"
#include "topo/topo.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    wefti_topo *topo;
    wefti_paths *paths;
    weft_status status = wefti_topo_read_nccl("fuzz.xml", (const char *)data,
                                              data_bytes, NULL, &topo);
    if (status != WEFT_OK) {
        if (weft_error_text()[0] == '\0') {
            abort(); /* every refusal says why */
        }
        return 0;
    }
    if (wefti_paths_create(topo, &paths) == WEFT_OK) {
        wefti_rings rings;
        if (paths->hosts[0].gpu_count <= 8 &&
            wefti_rings_plan(paths, 0, &rings) == WEFT_OK) {
            wefti_rings_fini(&rings);
        }
        wefti_paths_destroy(paths);
    }
    wefti_topo_destroy(topo);
    return 0;
}
