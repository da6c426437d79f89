# sanitize.sh - test programs under clang's sanitizers of memory (reads of what nothing was written to) and of integers
# (numbers that wrap, or lose bits when they are converted). Not a part of make test: make sanitize.
#
#   sh tests/sanitize.sh memory|integer PROGRAM ...     uses $B (build), $CLANG (clang), $TEST_TIMEOUT (seconds each, 900)
#
# One instruction set, scalar: the vectors of the others are not followed. tests/wraps.txt names the functions whose
# numbers wrap on purpose; any other report is a failure. The last line is "N passed, N failed".
B=${B:-build}
CLANG=${CLANG:-clang}
kind=$1
shift
out=$B/sanitize.$kind
passed=0
failed=0
mkdir -p "$out"
case $kind in
memory) flags=-fsanitize=memory ;;
integer) flags="-fsanitize=integer -fno-sanitize=implicit-integer-sign-change -fsanitize-ignorelist=tests/wraps.txt" ;;
*)
    echo "sanitize.sh memory|integer PROGRAM .."
    exit 2
    ;;
esac
printf 'int main(void) { return 0; }\n' >"$out/probe.c"
if ! "$CLANG" $flags "$out/probe.c" -o "$out/probe" >/dev/null 2>&1; then
    echo "skipped $# tests of the sanitizer of $kind: no $CLANG that has it"
    echo "0 passed, 0 failed"
    exit 0
fi
flags="-std=c99 -w -g -O1 -pthread -I. -DTENSOR_ISA=scalar -DTENSOR_ALL_ROWS $flags"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$out/impl.c"
printf '%s\n' 1 2 3 4 |
    xargs -P "${JOBS:-1}" -I{} "$CLANG" $flags -DTENSOR_IMPLEMENTATION_PART={} -c "$out/impl.c" -o "$out/part{}.o" ||
    { echo "0 passed, 1 failed"; exit 1; }
for p in "$@"; do
    "$CLANG" $flags "tests/$p.c" "$out"/part?.o -lm -o "$out/$p" 2>"$out/$p.log" &&
        timeout "${TEST_TIMEOUT:-900}" "$out/$p" >"$out/$p.log" 2>&1
    status=$?
    # The sanitizer of integers goes on after a report.
    if [ "$status" -eq 0 ] && ! grep -qE 'runtime error|Sanitizer' "$out/$p.log"; then
        passed=$((passed + 1))
        echo "$p: $(tail -n 1 "$out/$p.log")"
    else
        failed=$((failed + 1))
        echo "$p failed, status $status:"
        grep -E 'runtime error|Sanitizer|^ *#[0-5] | failed' "$out/$p.log" | sort -u | head -n 30 | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
