#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# test_mpi_door.sh MPI LIBRARY COMPARE REQUESTS KILL - Goal: an unmodified MPI program
# with weft's library preloaded gets from every collective just what MPI gives
# it, and most of them from weft; a rank that is killed is named.
# Method: mpi_compare.c, mpi_requests.c and mpi_kill.c under the MPI's own launcher; the report
# says what weft carried out.
set -eu

mpi=$1 library=$2 compare=$3 requests=$4 kill=$5
case $mpi in
openmpi) launcher="mpirun.openmpi --allow-run-as-root --oversubscribe" ;;
mpich) launcher=mpiexec.mpich ;;
*) echo "usage: test_mpi_door.sh openmpi|mpich ..." >&2 && exit 2 ;;
esac
unset ${!WEFT_*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT LOCAL_RANK
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run RANKS PROGRAM ARGS... - its output stays in $scratch/out.
run() {
    local nranks=$1
    shift
    timeout 100 $launcher -n "$nranks" env "LD_PRELOAD=$library" \
        "WEFT_MPI_REPORT=$scratch/report.json" "$@" >"$scratch/out" 2>&1
}

fail() {
    cat "$scratch/out"
    echo "FAILED: $mpi: $*"
    exit 1
}

# check_report OPERATIONS... - weft had calls of each.
check_report() {
    python3 - "$scratch/report.json" "$@" <<'PYTHON' || fail "the report"
import json, sys
rows = {row["op"]: row for row in json.load(open(sys.argv[1]))["rows"]}
for op in sys.argv[2:]:
    assert rows[op]["calls"] > 0 and rows[op]["time_ms"] > 0, op
    assert op == "barrier" or rows[op]["bytes"] > 0, op
assert "operation or type that weft lacks" in rows["all_reduce"]["left_why"]
assert 0 <= rows["all_reduce"]["slowest_rank"] < 4
PYTHON
    grep -q "weft under MPI: " "$scratch/out" || fail "no table"
}

moves="broadcast all_gather all_gatherv gather gatherv scatter scatterv alltoall
    alltoallv"
sums="all_reduce reduce reduce_scatter reduce_scatterv"
modes="2:blocking 3:blocking 2:nonblocking 3:nonblocking"
[ "$mpi" = openmpi ] || modes="2:blocking 2:nonblocking 2:persistent"
for run in $modes; do
    nranks=${run%:*} mode=${run#*:}
    run "$nranks" "$compare" "$mode" || fail "$nranks ranks, $mode"
    ok=$(grep -c "of $nranks: ok" "$scratch/out") || true
    [ "$ok" = "$nranks" ] || fail "$nranks ranks, $mode: $ok were content"
    [ "$mode" = persistent ] || check_report barrier $moves $sums
    echo "$mpi, $nranks ranks, $mode: ok"
done

for nranks in 2 3; do
    run "$nranks" "$requests" || fail "$nranks ranks, requests"
    ok=$(grep -c "of $nranks: ok" "$scratch/out") || true
    [ "$ok" = "$nranks" ] || fail "$nranks ranks, requests: $ok were content"
    echo "$mpi, $nranks ranks, requests: ok"
done

# The rank that is left must say so.
[ "$mpi" = openmpi ] && launcher="$launcher --enable-recovery" ||
    launcher="$launcher -disable-auto-cleanup"
# MPICH's launcher ends its own children: the ranks are those of a shell.
run 2 bash -c '"$@"; exit $?' bash "$kill" "$scratch/said" || true
for ((looks = 0; looks < 300; looks++)); do
    [ ! -s "$scratch/said" ] || break
    sleep 0.1 # the launcher may end before the rank does
done
grep -q "rank 0: .*rank 1 has died" "$scratch/said" ||
    fail "rank 1 is not named: $(cat "$scratch/said")"
echo "$mpi: a killed rank is named"
