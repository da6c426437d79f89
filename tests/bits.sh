# bits.sh - the same bits from every language mode, optimisation level, compiler and number of threads.
#   CC, CXX or COMPILERS as for compile.sh
# Ends with "N passed, N failed".
B=${B:-build}
M=$B/bits
CC=${CC:-cc}
CXX=${CXX:-c++}
if [ -z "$COMPILERS" ]; then
    COMPILERS=$CC:
    if command -v "$CXX" >/dev/null 2>&1; then COMPILERS=$CC:$CXX; fi
fi
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}
rm -rf "$M"
mkdir -p "$M"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tests/compile_bits.c"\n' >"$M/bits.c"
native=
case $(uname -m) in x86_64 | amd64) native=-march=native ;; esac

# build NAME COMMAND
build() { echo "$2 -pthread -I. $M/bits.c -lm -o $M/$1" >"$M/$1.sh"; }
for pair in $COMPILERS; do
    c=${pair%%:*}
    cxx=${pair#*:}
    n=$(basename "$c" | tr -c 'a-zA-Z0-9\n' _)
    build "$n-c99" "$c -std=c99 -O2"
    build "$n-gnu11" "$c -std=gnu11 -O2"
    build "$n-O0" "$c -std=c99 -O0"
    build "$n-gnu11-O3" "$c -std=gnu11 -O3 $native"
    # Flags of the program's own. The manual asks not to give clang -ffp-contract=fast.
    relaxed="-std=gnu17 -O2 -fno-builtin -funsigned-char"
    if $c --version | grep -q "Free Software"; then relaxed="$relaxed -flto -ffp-contract=fast"; fi
    build "$n-relaxed" "$c $relaxed"
    if [ -n "$cxx" ]; then build "$n-c++11" "$cxx -x c++ -std=c++11 -O2"; fi
done
find "$M" -name '*.sh' | sort | xargs -P "$jobs" -n 1 sh -c 'sh "$0" >"$0.out" 2>&1'

passed=0
failed=0
first=
for s in $(find "$M" -name '*.sh' | sort); do
    p=${s%.sh}
    for threads in 1 3; do
        if "$p" $threads >"$p.$threads" 2>&1 && [ -s "$p.$threads" ] && cmp -s "${first:=$p.$threads}" "$p.$threads"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "$(basename "$p"), $threads threads, differs from $(basename "$first"):"
            head -n 5 "$s.out"
            diff "$first" "$p.$threads" | head -n 12
        fi
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
