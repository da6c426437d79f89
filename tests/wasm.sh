# wasm.sh - the SIMD128 pass of the kernels: compiled by clang for WebAssembly, run by node
#
#   sh tests/wasm.sh            uses $B (build), $CLANG (clang), $NODE (node)
#
# Debian has the rest in lld, wasi-libc and libclang-rt-*-dev-wasm32; without them it prints "skipped N tests: why". The
# last line is "N passed, N failed".
B=${B:-build}
CLANG=${CLANG:-clang}
NODE=${NODE:-node}
out=$B/wasm
compile="$CLANG --target=wasm32-wasi -std=gnu99 -O1 -Wall -Wextra -DTENSOR_NO_THREADS -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS -I."
limit="timeout ${TEST_TIMEOUT:-600}"
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out"

skip() {
    echo "skipped 10 tests of SIMD128: $1"
    echo "0 passed, 0 failed"
    exit 0
}
cat > "$out/run.mjs" << 'END'
import { WASI } from 'node:wasi';
import { readFileSync } from 'node:fs';
const wasi = new WASI({ version: 'preview1', args: process.argv.slice(2), env: process.env, preopens: { '.': '.' },
                        returnOnExit: true });
const module = await WebAssembly.compile(readFileSync(process.argv[2]));
const imports = {};
for (const name in wasi.wasiImport) imports[name] = (...args) => wasi.wasiImport[name](...args);
const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: imports });
process.exitCode = wasi.start(instance);
END
# run PROGRAM ARGUMENTS. V8's fast calls into node's WASI may collect garbage, and the process then crashes at random
# (nodejs/node 46777): imports are functions of JavaScript, which call slowly.
run() { $limit $NODE --no-warnings --no-turbo-fast-api-calls "$out/run.mjs" "$@"; }
command -v "$CLANG" > /dev/null || skip "no $CLANG"
command -v "$NODE" > /dev/null || skip "no $NODE"
echo '#include <stdio.h>
#include <wasm_simd128.h>
int main(void) { return puts(wasm_i32x4_all_true(wasm_i32x4_splat(1)) ? "fine" : "no") < 0; }' > "$out/probe.c"
$CLANG --target=wasm32-wasi -msimd128 "$out/probe.c" -o "$out/probe" 2> /dev/null &&
    [ "$(run "$out/probe" 2> /dev/null)" = fine ] || skip "$CLANG and $NODE do not make and run a program"

# result NAME STATUS: one test; what it printed is shown if it failed.
result() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: status $2"
        tail -n 30 "$out/$1.log" | sed 's/^/    /'
    fi
}
# program NAME ARGUMENTS: a test program, on SIMD128. Its own cases count.
program() {
    t=$1
    shift
    { $compile "tests/$t.c" "$out/impl.o" -lm -o "$out/$t" && TENSOR_ISA=wasm run "$out/$t" "$@"; } > "$out/$t.log" 2>&1
    status=$?
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$out/$t.log" | tail -n 1)
    p=${last%% *}
    passed=$((passed + ${p:-0}))
    if [ $status -ne 0 ] || [ -z "$last" ]; then
        failed=$((failed + 1))
        echo "$t: status $status"
        tail -n 30 "$out/$t.log" | sed 's/^/    /'
    fi
}
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' > "$out/impl.c"
$compile -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror -msimd128 -c "$out/impl.c" -o "$out/impl.o" \
    > "$out/compiled.log" 2>&1
result compiled $?
if [ -f "$out/impl.o" ]; then
    program nn
    for name in conversions composed powers activations large; do program $name; done
    program fixtures max_pool2d max_pool3d avg_pool2d conv2d layer_norm batch_norm lstm gru cross_entropy kl_div dropout \
        softmax logsumexp sum cumsum argmax transpose sort matmul scaled_dot_product_attention
    # Random numbers are those of the scalar pass, the rest is not: the pass is there. SSE2 has the same operations and
    # gives the same bits.
    $compile tests/compile_bits.c "$out/impl.o" -lm -o "$out/compile_bits" > "$out/bits.log" 2>&1
    for n in wasm scalar; do TENSOR_ISA=$n run "$out/compile_bits" 1 2>&1 | tee "$out/$n" | grep '^random' > "$out/$n.random"; done
    { [ -s "$out/wasm.random" ] && diff "$out/wasm.random" "$out/scalar.random" && ! cmp -s "$out/wasm" "$out/scalar"; } \
        > "$out/random.log" 2>&1
    result random $?
    case $(uname -m)-$([ -f "$B/tests/libtensor.a" ] && echo built) in
    x86_64-built | amd64-built)
        ${CC:-cc} -pthread -I. tests/compile_bits.c "$B/tests/libtensor.a" -lm -o "$out/native" >> "$out/bits.log" 2>&1
        TENSOR_ISA=sse2 "$out/native" 1 > "$out/sse2"
        diff "$out/sse2" "$out/wasm" >> "$out/bits.log" 2>&1
        result bits $?
        ;;
    *) echo "skipped 1 test of SIMD128: no SSE2 to compare with, or no $B/tests/libtensor.a" ;;
    esac
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
