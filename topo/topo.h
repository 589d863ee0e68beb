/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/topo.h - where graphs come from: this machine, a recorded one, a
 * text that describes one, other hosts.
 *
 * Every call hands back a whole graph or says, in weft_error_text(), what is
 * wrong and where (file:line, element, attribute). What is merely odd is a
 * warning in the graph.
 */
#ifndef TOPO_TOPO_H
#define TOPO_TOPO_H

#include "topo/graph.h"

#include <stdio.h>

typedef enum wefti_topo_format {
    WEFTI_FORMAT_ANY, /* recognised by its content */
    WEFTI_FORMAT_HWLOC,
    WEFTI_FORMAT_NCCL,
    WEFTI_FORMAT_SYNTHETIC
} wefti_topo_format;

/* Of "hwloc", "nccl", "synthetic"; false where text is none of them. */
bool wefti_topo_format_find(const char *text, wefti_topo_format *format_out);

/*
 * wefti_topo_open - reads a recorded machine.
 *
 * input       a file, or a synthetic text such as "2x(8xH100,8xCX7)".
 * model       what the GPUs of a template are, such as "A100"; NULL: unknown.
 *
 * Returns     OK | ERR_INVALID | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_topo_open(const char *input,
                                           wefti_topo_format format,
                                           const char *model,
                                           wefti_topo **topo_out);

/* Where the live machine is read from; tests set other folders. */
typedef struct wefti_live_config {
    const char *sysfs;        /* "/sys" */
    const char *nvml_library; /* "libnvidia-ml.so.1" */
    bool limits;              /* whether the kernel is asked for shapers */
} wefti_live_config;

/*
 * wefti_topo_open_live - this host: hwloc with its I/O devices, NVML where
 * there is one, sysfs for the ports. config NULL: the real ones.
 */
WEFT_NODISCARD weft_status wefti_topo_open_live(const wefti_live_config *config,
                                                wefti_topo **topo_out);

/* The parsers, on text in memory; path is what messages call it. */
WEFT_NODISCARD weft_status wefti_topo_read_nccl(const char *path,
                                                const char *text,
                                                size_t text_bytes,
                                                const char *model,
                                                wefti_topo **topo_out);
WEFT_NODISCARD weft_status wefti_topo_read_hwloc(const char *path,
                                                 const char *text,
                                                 size_t text_bytes,
                                                 wefti_topo **topo_out);
WEFT_NODISCARD weft_status wefti_topo_read_synthetic(const char *text,
                                                     wefti_topo **topo_out);

/*
 * wefti_topo_write_nccl - the graph as an XML file that NCCL accepts; what was
 * read from such a file comes out as it came in.
 *
 * Returns     OK | ERR_INVALID (more than NCCL's parser takes: nothing has been
 *             written) | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_topo_write_nccl(const wefti_topo *topo,
                                                 FILE *file);

/* Appends all hosts of part, with its warnings, to cluster. */
WEFT_NODISCARD weft_status wefti_topo_merge(wefti_topo *cluster,
                                            const wefti_topo *part);

/*
 * wefti_topo_pack - the graph as bytes, the same on every host, for ranks that
 * contribute theirs; free() them. Names of hosts and GUIDs are left out.
 * wefti_topo_unpack - such bytes, which need not be trusted.
 */
WEFT_NODISCARD weft_status wefti_topo_pack(const wefti_topo *topo,
                                           unsigned char **bytes_out,
                                           size_t *byte_count_out);
WEFT_NODISCARD weft_status wefti_topo_unpack(const unsigned char *bytes,
                                             size_t byte_count,
                                             wefti_topo **topo_out);

#endif
