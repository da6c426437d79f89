# callgrind.sh - a profiler that is not set costs nothing: instructions of an operation, counted by valgrind's callgrind,
# beside those of a copy of tensor.h from which the hook is cut out. On the way of one operation, recorded for autograd
# or not, they are the same number; a module's call and a backward pass may have as many more as the list below says.
# Ends with "N passed, N failed". Skipped without valgrind, and on processors that are not x86-64.
B=${B:-build}
CC=${CC:-cc}
VALGRIND=${VALGRIND:-valgrind}
passed=0
failed=0
out=$B/tests/callgrind

skip() {
    echo "skipped 10 tests of instruction counts: $1"
    echo "0 passed, 0 failed"
    exit 0
}
[ "$(uname -m)" = x86_64 ] || skip "not x86-64"
command -v "$VALGRIND" >/dev/null || skip "no valgrind"

# result CONDITION TEXT: passes where awk finds the condition true.
result() {
    if awk "BEGIN { exit !($1) }" </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$2"
    fi
}

rm -rf "$out"
mkdir -p "$out/cut"
cat >"$out/loops.c" <<'END'
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"
#include <stdio.h>
#include <stdlib.h>

static int heard;
static void hear(void *user, const tensor_profiler_call_t *call) { (void)user, (void)call, heard++; }

int main(int argc, char **argv) {
    static const tensor_profiler_t profiler = {NULL, hear, NULL, NULL, NULL, NULL, NULL, NULL};
    const int what = argc > 2 ? argv[1][0] : 0;
    const long repeats = argc > 2 ? atol(argv[2]) : 0;
    tensor_t *a = tensor_ones(16), *b = tensor_full(0.5, 16), *x = tensor_ones(1, 4);
    nn_module_t *net = nn_linear(4, 4);
    if (what == 'r' || what == 'b') tensor_requires_grad_(a, 1);
    if (what == 'h') tensor_profiler_set(&profiler);
    tensor_scope_t scope = tensor_scope_begin();
    for (long i = 0; i < repeats; i++) {
        if (what == 'm') {
            nn_forward(net, x);
        } else if (what == 'b') {
            tensor_backward(tensor_sum(tensor_mul(tensor_tanh(a), b)));
            tensor_set_grad(a, NULL);
        } else {
            tensor_add(a, b);
        }
        if (i % 64 == 63) tensor_scope_reset(scope);
    }
    tensor_scope_end(scope);
    if (heard) printf("%d\n", heard);
    return tensor_shutdown();
}
END
# Where the library reads the thread's profiler, the copy reads NULL, which the compiler folds away.
sed -e '/th->profiler = /!s/th->profiler/((const tensor_profiler_t *)NULL)/g' -e 's/tensor__tls->profiler/NULL/' \
    -e 's/if (o->th->plain_heard/if (0/' -e '/tensor__self()->profiler = profiler;/d' tensor.h >"$out/cut/tensor.h"
cp tensor_nn.h "$out/cut"
for way in with without; do
    headers=.
    [ $way = with ] || headers=$out/cut
    # shellcheck disable=SC2086
    $CC -std=c99 -O2 -w -pthread -DTENSOR_STATIC -DTENSOR_ISA=avx2 -I"$headers" "$out/loops.c" -lm -o "$out/$way" \
        >"$out/build.txt" 2>&1 || {
        cat "$out/build.txt"
        echo "0 passed, 1 failed"
        exit 1
    }
done

# count WAY LOOP: instructions of one turn: the difference of two runs has neither start nor end.
count() {
    for repeats in 1280 2560; do
        "$VALGRIND" --tool=callgrind --callgrind-out-file=/dev/null "$out/$1" "$2" $repeats 2>&1 </dev/null |
            awk '/Collected/ { print $4 }'
    done | awk '{ n[NR] = $1 } END { if (NR == 2) printf "%.3f", (n[2] - n[1]) / 1280 }'
}
[ -n "$(count with add)" ] || skip "callgrind cannot run a program here"

# The hook is there in one and not in the other.
result "$("$out/with" heard 10 </dev/null)0 == 100" "a profiler does not hear ten calls"
result "\"$("$out/without" heard 10 </dev/null)\" == \"\"" "the copy has the hook still"
# loop, how many instructions more a turn may have, what a turn is. A pass reads the profiler twice, 8 instructions; the
# rest of its 24, of 8,900, is that the compiler gives the registers of the whole pass anew where a line is cut out.
while read -r loop most what; do
    with=$(count with "$loop")
    without=$(count without "$loop")
    result "0$with > 50 && 0$without > 50" "$what: $with and $without instructions are not counted"
    result "$with - $without <= $most" "$what: $with instructions, $without without the hook, more than $most apart"
    awk "BEGIN { printf \"%-20s %10.1f instructions, %+.1f by the hook\n\", \"$loop\", $with, $with - $without }"
done <<'END'
add 0 an operation on 16 elements
recorded 0 the same, recorded for autograd
module 4 a linear layer
backward 24 a backward pass of three nodes
END
rm -rf "$out"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
