/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/settings.h - every WEFT_* variable, once: name, default, range, meaning.
 *
 * Nothing else in weft calls getenv, which tests/house/test_style.py sees to.
 * To add a variable, add a row; weft-info and the docs list them from here.
 */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include "weft/status.h"

#include <stdbool.h>
#include <stdint.h>

/* X(name, kind, default, least, most, meaning); kind TEXT, INT or REAL */
#define WEFTI_SETTING_LIST(X)                                                  \
    X(LOG, TEXT, "warn", 0, 0,                                                 \
      "what is logged: error, warn, info, debug or trace")                     \
    X(RANK, INT, "", 0, 1048575, "this process's first rank")                  \
    X(NRANKS, INT, "", 1, 1048576, "how many ranks the job has")               \
    X(RANKS_PER_PROCESS, INT, "1", 1, 1024,                                    \
      "ranks this process runs as threads")                                    \
    X(RENDEZVOUS, TEXT, "", 0, 0,                                              \
      "where the ranks meet: host:port of rank 0, or file:/path")              \
    X(HOST, TEXT, "", 0, 0,                                                    \
      "address of rank 0's machine, where file:/path, PMIx or a unique id "    \
      "is to be used between machines")                                        \
    X(PORT, INT, "", 1, 65535,                                                 \
      "port of the meeting under torchrun; MASTER_PORT + 1 if not set")        \
    X(RENDEZVOUS_FD, INT, "", 0, 65535,                                        \
      "listening socket that rank 0 inherits (set by weft-run)")               \
    X(LAUNCHER_FD, INT, "", 0, 65535,                                          \
      "pipe on which rank 0 learns which ranks have ended (set by weft-run)")  \
    X(SECRET, TEXT, "", 0, 0, "the job's secret, 16 to 256 characters")        \
    X(SECRET_FILE, TEXT, "", 0, 0, "file that holds the job's secret")         \
    X(BOARD_FD, INT, "", 0, 65535,                                             \
      "memory where ranks note their last operation (set by weft-run)")        \
    X(DOMAIN, TEXT, "", 0, 0,                                                  \
      "parts ranks that could share memory: a word, or one per rank: a,a,b")   \
    X(LEVELS, TEXT, "numa", 0, 0,                                              \
      "levels inside a host, the innermost first, with / between: numa, "      \
      "ranks "                                                                 \
      "in a row that are together (4), or a word per rank (a,a,b); off: none") \
    X(NET_INTERFACE, TEXT, "", 0, 0,                                           \
      "interfaces that carry messages between hosts, such as eth0,eth1")       \
    X(NET_RAILS, INT, "4", 1, 4,                                               \
      "over how many interfaces weft's own tcp may spread messages, and how "  \
      "many may be named for it")                                              \
    X(NET_TRANSPORT, TEXT, "tcp", 0, 0,                                        \
      "what carries them: tcp, weft's own; or as UCX names it, rc,ud for "     \
      "RDMA, ucx:tcp for its tcp")                                             \
    X(WARN_MS, INT, "10000", 1, 86400000,                                      \
      "a waiter names whom it waits for after this long")                      \
    X(TIMEOUT_MS, INT, "600000", 1, 86400000,                                  \
      "a communicator fails after waiting this long")                          \
    X(EMULATE_GBPS, REAL, "0", 0, 100000,                                      \
      "limit each rank's sending to so many GB/s (1e9 bytes); 0: no limit")    \
    X(ALGO, TEXT, "", 0, 0,                                                    \
      "the algorithms that collectives may take, such as all_reduce:tree,"     \
      "broadcast:direct/tree; what none of them can do is refused")            \
    X(CHUNK_BYTES, INT, "0", 0, 524288,                                        \
      "bytes per chunk of large operations; 0: by size")                       \
    X(SINGLE_COPY, TEXT, "mapped", 0, 0,                                       \
      "which large messages ranks of one host read where they lie: mapped, "   \
      "those in a weft_mem, on, any that the kernel lets them, or off")        \
    X(SUM_FLAT, TEXT, "off", 0, 0,                                             \
      "whether sums follow one tree over all ranks, the same bits on any "     \
      "layout of hosts: on or off")                                            \
    X(ROUTE, TEXT, "steps", 0, 0,                                              \
      "what carries operations out: steps, weft's engine; or, where all "      \
      "ranks can, streams, those of their devices (collectives), or nccl "     \
      "(messages, too)")                                                       \
    X(NCCL, TEXT, "", 0, 0,                                                    \
      "file with NCCL, for WEFT_ROUTE=nccl; empty: libnccl.so.2")              \
    X(NCCL_SHARED_GPU, TEXT, "off", 0, 0,                                      \
      "whether NCCL is asked even where ranks share a GPU: on or off")         \
    X(NCCL_REPORT, TEXT, "0", 0, 0,                                            \
      "1: the library in NCCL's place logs what each communicator has "        \
      "carried when it ends; else a file that gets a line of JSON for it, "    \
      "too; 0: neither")                                                       \
    X(SPIN_US, INT, "-1", -1, 1000000,                                         \
      "how long a waiter spins before it yields; -1: by cores and ranks")      \
    X(NET_RATES, TEXT, "measured", 0, 0,                                       \
      "what the choice of algorithms takes the network for: measured when "    \
      "ranks of several hosts meet, or usual, 10 Gbit/s")                      \
    X(MACHINES, TEXT, "on", 0, 0,                                              \
      "whether hosts exchange what they are made of when their ranks "         \
      "connect: on or off")                                                    \
    X(PROBE, TEXT, "on", 0, 0,                                                 \
      "whether weft-info measures this host: on or off")                       \
    X(CACHE_DIR, TEXT, "", 0, 0,                                               \
      "folder for what weft has measured; empty: $XDG_CACHE_HOME/weft, else "  \
      "~/.cache/weft")                                                         \
    X(KERNELS, TEXT, "", 0, 0,                                                 \
      "file with the kernels for GPUs; empty: weft_kernels.so beside libweft") \
    X(MATH_KERNELS, TEXT, "", 0, 0,                                            \
      "file with the math kernels for GPUs; empty: weft_math_kernels.so "      \
      "beside libweft")                                                        \
    X(CUBLASLT, TEXT, "", 0, 0,                                                \
      "file with cuBLASLt, for products on GPUs; empty: libcublasLt.so.13 or " \
      ".12; off: not used")                                                    \
    X(CUDNN, TEXT, "", 0, 0,                                                   \
      "file with cuDNN 9, for attention on GPUs; empty: libcudnn.so.9; off: "  \
      "not used")                                                              \
    X(ONEDNN, TEXT, "", 0, 0,                                                  \
      "file with oneDNN 2, for products on the host; empty: "                  \
      "libdnnl.so.2; off: not used")                                           \
    X(MPI_REPORT, TEXT, "", 0, 0,                                              \
      "1: MPI programs with weft's library preloaded print a table of their "  \
      "collectives at the end; else a file that gets it as JSON, too")         \
    X(SHADOW_SEED, INT, "1", 0, 2147483647,                                    \
      "what the shadow device's delays and orders are drawn from (for tests)")

typedef enum wefti_setting {
#define WEFTI_SETTING_ENUM(name, kind, fallback, least, most, meaning)         \
    WEFTI_SETTING_##name,
    WEFTI_SETTING_LIST(WEFTI_SETTING_ENUM)
#undef WEFTI_SETTING_ENUM
        WEFTI_SETTING_COUNT
} wefti_setting;

typedef enum wefti_setting_kind {
    WEFTI_SETTING_KIND_TEXT,
    WEFTI_SETTING_KIND_INT,
    WEFTI_SETTING_KIND_REAL
} wefti_setting_kind;

/* What --settings prints about one of them. */
typedef struct wefti_setting_info {
    const char *name; /* with WEFT_ in front */
    wefti_setting_kind kind;
    const char *value;
    const char *fallback;
    const char *meaning;
    bool from_environment;
} wefti_setting_info;

wefti_setting_info wefti_setting_describe(wefti_setting setting);

/*
 * wefti_setting_check - whether the environment's value, if there is one, is
 * of the setting's kind and in its range.
 *
 * Returns     OK | ERR_INVALID.
 */
WEFT_NODISCARD weft_status wefti_setting_check(wefti_setting setting);

/* The value, or the default where the variable is unset or empty. */
const char *wefti_setting_text(wefti_setting setting);

/* A variable that is not weft's own (another launcher's, the user's HOME);
 * NULL: not set, or empty. */
const char *wefti_setting_foreign(const char *name);

/* Whether the environment sets it. */
bool wefti_setting_given(wefti_setting setting);

/*
 * wefti_setting_int, _real - the value as a number.
 *
 * Returns     OK | ERR_INVALID: not a number, or out of range; the text names
 *             the variable, its value and what is allowed.
 */
WEFT_NODISCARD weft_status wefti_setting_int(wefti_setting setting,
                                             int64_t *value_out);
WEFT_NODISCARD weft_status wefti_setting_real(wefti_setting setting,
                                              double *value_out);

#endif
