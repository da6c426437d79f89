# calls.sh - random programs of API calls in process (tests/fuzz/calls.c), a tenth of the calls under the address and
# undefined behaviour sanitizers, the rest at -O2. Not a part of make test: make calls.
#
#   sh tests/calls.sh    uses $B (build), $CC (cc), $N (10000000 calls), $SEED (1)
#
# A program that fails is named by its seed and number; FUZZ_TRACE=1 $B/calls/sanitized 1 SEED NUMBER prints it.
B=${B:-build}
CC=${CC:-cc}
calls=${N:-10000000}
seed=${SEED:-1}
out=$B/calls
flags="-std=c99 -g -pthread -I. -DTENSOR_ISA=native -DTENSOR_ALL_ROWS"
checked="-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
export ASAN_OPTIONS=abort_on_error=1:quarantine_size_mb=16
passed=0
failed=0
mkdir -p "$out"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$out/impl.c"

# run NAME CALLS FLAGS
run() {
    if $CC $flags $3 tests/fuzz/calls.c "$out/impl.c" -lm -o "$out/$1" && "$out/$1" "$2" "$seed" >"$out/$1.log" 2>&1; then
        passed=$((passed + 1))
        echo "$1: $(tail -n 1 "$out/$1.log")"
    else
        failed=$((failed + 1))
        echo "$1 failed:"
        tail -n 40 "$out/$1.log" | sed 's/^/    /'
    fi
}
run sanitized $((calls / 10)) "$checked"
run plain $((calls - calls / 10)) -O2
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
