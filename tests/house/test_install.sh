#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: what "cmake --install" puts down is all that a user of weft needs, and
# nothing more is visible in it than is declared.
#
# Method: install into one folder and move it to another. There, compile each
# public header alone as C11 and as C++17, build and run examples/hello through
# pkg-config and through CMake, and examples/buckets, alone and under weft-run, and compare the names
# that libweft.so offers and asks for with what they may be.
#
# Without a C++ compiler, which the build needs for nothing that it installs,
# headers are compiled as C11 alone; the output says which.
#
# Usage: test_install.sh SOURCE_DIR BUILD_DIR [C++ COMPILER]
set -eu
source_dir=$1 build_dir=$2 cxx=${3-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

cmake --install "$build_dir" --prefix "$work/first" >"$work/install.log"
mkdir "$work/else where"
prefix="$work/else where/weft"
mv "$work/first" "$prefix"
libdir=$(dirname "$(find "$prefix" -name libweft.so)")
library=$libdir/libweft.so

# Each header alone, in both languages.
headers=0
for header in "$prefix"/include/weft/*.h; do
    name=weft/$(basename "$header")
    strict="-Wall -Wextra -Werror -pedantic -fsyntax-only"
    printf '#include <%s>\nint main(void) { return 0; }\n' "$name" \
        >"$work/one.c"
    cc -std=c11 $strict -I"$prefix/include" "$work/one.c" || fail "$name, C11"
    cp "$work/one.c" "$work/one.cc"
    if [ -n "$cxx" ]; then
        "$cxx" -std=c++17 $strict -I"$prefix/include" "$work/one.cc" ||
            fail "$name, C++17"
    fi
    headers=$((headers + 1))
done
for header in "$source_dir"/include/weft/*.h; do
    cmp -s "$header" "$prefix/include/weft/$(basename "$header")" ||
        fail "$(basename "$header") was not installed as it is"
done
echo "$headers headers compiled alone${cxx:+, as C++ too}"

# hello, both ways.
check_hello() {
    local got
    got=$("$1") || fail "$2: exit $?"
    case $got in
    "weft "*": rank 0 of 1, sum 1") echo "$2: $got" ;;
    *) fail "$2 said: $got" ;;
    esac
    got=$("$prefix/bin/weft-run" -n 3 "$1" | sort) || fail "$2, 3 ranks: exit $?"
    [ "$(echo "$got" | grep -c 'of 3, sum 6$')" = 3 ] ||
        fail "$2, 3 ranks said: $got"
}
export PKG_CONFIG_PATH="$libdir/pkgconfig"
hello=$source_dir/examples/hello
eval "cc -std=c11 -Wall -Wextra -Werror -o '$work/hello' '$hello/hello.c' \
    $(pkg-config --cflags --libs weft) '-Wl,-rpath,$libdir'"
check_hello "$work/hello" pkg-config

cmake -S "$hello" -B "$work/hello_build" -DCMAKE_PREFIX_PATH="$prefix" \
    >"$work/cmake.log" || fail "find_package: $(tail -5 "$work/cmake.log")"
cmake --build "$work/hello_build" >"$work/cmake.log" ||
    fail "weft::weft: $(tail -5 "$work/cmake.log")"
check_hello "$work/hello_build/hello" find_package

eval "cc -std=c11 -Wall -Wextra -Werror -o '$work/buckets' \
    '$source_dir/examples/buckets/buckets.c' \
    $(pkg-config --cflags --libs weft) '-Wl,-rpath,$libdir'"
for ranks in 1 3; do
    got=$("$prefix/bin/weft-run" -n $ranks "$work/buckets") ||
        fail "buckets, $ranks ranks: exit $?"
    [ "$(echo "$got" | grep -c "of $ranks: 3 steps of 8 buckets, 0 sums wrong$")" \
        = $ranks ] || fail "buckets, $ranks ranks said: $got"
done

# One version everywhere.
version=$(pkg-config --modversion weft)
[ -e "$libdir/libweft.so.$version" ] || fail "no libweft.so.$version"
grep -q "PACKAGE_VERSION \"$version\"" \
    "$libdir/cmake/weft/weft-config-version.cmake" ||
    fail "the CMake package has another version than $version"

# The names it offers are those the headers declare, one by one.
echo '#include <weft/weft.h>' >"$work/all.c"
cc -E -P -I"$prefix/include" "$work/all.c" |
    grep -oE '\bweft_[a-z0-9_]+\(' | tr -d '( ' | sort -u >"$work/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' |
    sed 's/@.*//' | sort -u >"$work/offered"
diff "$work/declared" "$work/offered" >"$work/names" ||
    fail "declared (<) and offered (>) names differ:" "$(cat "$work/names")"
echo "$(wc -l <"$work/offered") names offered"

# What it asks for: no BLAS, and nothing that ends, prints or hooks.
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
    case $name in
    libc.so.* | libm.so.* | libsodium.so.* | ld-linux*) ;;
    *) fail "libweft.so needs $name" ;;
    esac
done
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = "libweft.so.${version%%.*}" ] || fail "soname $soname"
asked=$(nm -D --undefined-only "$library" | awk '{ print $2 }' | sed 's/@.*//')
for name in exit _exit abort quick_exit printf puts putchar perror signal \
    sigaction atexit setenv putenv unsetenv system popen; do
    ! echo "$asked" | grep -qx "$name" || fail "libweft.so calls $name()"
done

# The programs start from where they were moved to.
for program in weft-run weft-perf weft-sched weft-train weft-info; do
    "$prefix/bin/$program" --version | grep -qF "$version" ||
        fail "$program --version does not say $version"
done

# Every type and reduction, in one shot and in chunks, through what was inlined.
for op in all_reduce reduce_scatter; do
    "$prefix/bin/weft-run" -n 3 "$prefix/bin/weft-perf" "$op" -d all -o all \
        --sizes 768,192K -n 1 -w 0 -c 1 >"$work/perf.log" 2>&1 ||
        fail "weft-perf $op: $(tail -3 "$work/perf.log")"
    rows=$(grep -cE '^ +[0-9]' "$work/perf.log")
    [ "$rows" = 180 ] || fail "weft-perf $op: $rows lines"
done

[ "$failures" = 0 ]
