#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# test_mpirun.sh HELPER [HELPER_MPI] - Goal: under a real mpirun, ranks find
# each other through PMIx, again and again, beside MPI as well as without it.
# Method: launch_helper.c under mpirun; each rank prints one line when all was
# right, and mpirun itself must be content with how they left.
set -eu

helper=$1
helper_mpi=${2-}
if ! command -v mpirun >/dev/null; then
    echo "SKIPPED: mpirun is not installed (openmpi-bin)"
    exit 77
fi
unset ${!WEFT_*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCAL_RANK

# launch RANKS PROGRAM ARGS... - exactly one "ok" from each rank.
launch() {
    local nranks=$1 output ok
    shift
    output=$(timeout 60 mpirun --allow-run-as-root --oversubscribe \
        -np "$nranks" "$@" 2>&1) || {
        echo "$output"
        echo "FAILED: mpirun -np $nranks $*: exit status $?"
        exit 1
    }
    ok=$(grep -c "of $nranks: ok" <<<"$output") || true
    if [ "$ok" != "$nranks" ]; then
        echo "$output"
        echo "FAILED: mpirun -np $nranks $*: $ok ranks of $nranks were content"
        exit 1
    fi
    echo "mpirun -np $nranks $(basename "$1") ${*:2}: ok"
}

launch 1 "$helper"
launch 3 "$helper" 3
WEFT_LOG=info launch 2 "$helper" 1
if [ -n "$helper_mpi" ]; then
    launch 3 "$helper_mpi" before
    launch 3 "$helper_mpi" after
else
    echo "no mpicc: nothing beside MPI"
fi

# The source that was taken is said, and a rank that stays away is waited for
# no longer than the time limit.
WEFT_LOG=info mpirun --allow-run-as-root --oversubscribe -np 2 "$helper" 2>&1 |
    grep -q "by PMIx: PMIX_RANK and PMIX_NAMESPACE are set"
if WEFT_TIMEOUT_MS=1000 timeout 60 mpirun --allow-run-as-root --oversubscribe \
    -np 1 "$helper" : -np 1 sleep 3 >/dev/null 2>&1; then
    echo "FAILED: a rank met one that never came"
    exit 1
fi
