#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# run_fuzzer.sh BINARY CORPUS PARSER SECONDS WORK - PARSER from the top of the
# tree
#
# Lets libFuzzer look for inputs for SECONDS, beginning with CORPUS and what
# earlier runs left in WORK/corpus, then measures how many lines of PARSER all
# of them reach. Fails on a crash, a leak, an input slower than 10 s, or less
# than 80% of the lines.
set -eu
binary=$1 corpus=$2 parser=$3 seconds=$4 work=$5
least=80
llvm=$(dirname "$(readlink -f "$(command -v clang-14)")")

mkdir -p "$work/corpus" "$work/found"
rm -f "$work"/*.profraw
cd "$work"
LLVM_PROFILE_FILE=$work/fuzzing.profraw "$binary" -max_total_time="$seconds" \
    -timeout=10 -rss_limit_mb=1024 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$work/found/" "$work/corpus" "$corpus" 2>fuzzing.log || {
    tail -40 fuzzing.log
    echo "FAILED: see $work/found"
    exit 1
}
grep -E 'stat::(number_of_executed_units|new_units_added)' fuzzing.log || true

LLVM_PROFILE_FILE=$work/reached.profraw "$binary" -runs=0 "$work/corpus" \
    "$corpus" 2>/dev/null
"$llvm/llvm-profdata" merge -o reached.profdata reached.profraw
"$llvm/llvm-cov" report "$binary" -instr-profile=reached.profdata >reached.txt
# By its end, as a compiler cache may have made paths relative. A row: file,
# regions, missed, cover, functions, missed, executed, lines, missed, cover.
percent=$(awk -v name="/$parser" '
    substr("/" $1, length($1) + 2 - length(name)) == name {
        sub("%", "", $10); print int($10) }' reached.txt)
percent=${percent:-0}
echo "$percent% of the lines of $parser reached (at least $least)"
test "$percent" -ge "$least"
