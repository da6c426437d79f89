# arm.sh - the NEON pass of the kernels without an ARM machine: compiled across, run by qemu
#
#   sh tests/arm.sh            uses $B (build), $ARM_CC (aarch64-linux-gnu-gcc), $QEMU (qemu-aarch64), clang if it is there
#
# Debian has both in gcc-aarch64-linux-gnu and qemu-user; without them, and on ARM64 itself, where the whole suite runs
# the pass, it prints "skipped N tests: why". The last line is "N passed, N failed". Times under qemu say nothing.
B=${B:-build}
ARM_CC=${ARM_CC:-aarch64-linux-gnu-gcc}
QEMU=${QEMU:-qemu-aarch64}
out=$B/arm
warn="-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror -pthread -I."
limit="timeout ${TEST_TIMEOUT:-600}"
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out"

skip() {
    echo "skipped 15 tests of NEON: $1"
    echo "0 passed, 0 failed"
    exit 0
}
case $(uname -m) in aarch64 | arm64) skip "this machine is ARM64" ;; esac
command -v "$ARM_CC" > /dev/null || skip "no $ARM_CC"
command -v "$QEMU" > /dev/null || skip "no $QEMU"
echo '#include <stdio.h>
int main(void) { return puts("fine") < 0; }' > "$out/probe.c"
$ARM_CC -static "$out/probe.c" -o "$out/probe" 2> /dev/null && [ "$($QEMU "$out/probe" 2> /dev/null)" = fine ] ||
    skip "$ARM_CC and $QEMU do not make and run a program"

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
# program NAME ARGUMENTS: a test program, on NEON. Its own cases count.
program() {
    t=$1
    shift
    {
        $ARM_CC -std=gnu11 -O1 -Wall -Wextra -pthread -I. -static "tests/$t.c" "$out/impl.o" -lm -o "$out/$t" &&
            TENSOR_ISA=neon $limit $QEMU "$out/$t" "$@"
        echo "status $?"
    } > "$out/$t.log" 2>&1
}
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' > "$out/impl.c"
$ARM_CC $warn -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS -O1 -c "$out/impl.c" -o "$out/impl.o" > "$out/compiled.log" 2>&1 &
compiler=$!
if command -v clang > /dev/null; then
    clang --target=aarch64-linux-gnu $warn -fsyntax-only "$out/impl.c" > "$out/clang.log" 2>&1
    result clang $?
else
    echo "skipped 1 test of NEON: no clang"
fi
wait $compiler
result compiled $?

if [ -f "$out/impl.o" ]; then
    { program bounds; program conv; } &
    program ulp 20011
    for name in conversions composed powers activations large; do program $name; done
    program threads emulated
    echo "skipped 1 test of NEON: a child of fork, which qemu loses"
    program fixtures max_pool2d max_pool3d avg_pool2d layer_norm batch_norm lstm gru cross_entropy kl_div dropout \
        softmax logsumexp sum cumsum argmax transpose sort scaled_dot_product_attention
    program compile_bits 1
    wait
    for t in bounds conv ulp conversions composed powers activations large threads fixtures; do
        last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$out/$t.log" | tail -n 1)
        p=${last%% *}
        f=${last#*, }
        f=${f%% *}
        if [ -z "$last" ] || [ "$(tail -n 1 "$out/$t.log")" != "status 0" ]; then f=$((${f:-0} > 0 ? f : 1)); fi
        if [ "$f" -ne 0 ]; then
            echo "$t:"
            tail -n 30 "$out/$t.log" | sed 's/^/    /'
        fi
        passed=$((passed + ${p:-0}))
        failed=$((failed + f))
    done
    # The same bits from one thread and from three. Random numbers are those of the scalar pass, the rest is not: the
    # pass is there.
    for n in 1 3; do TENSOR_ISA=neon $limit $QEMU "$out/compile_bits" $n > "$out/neon.$n" 2>&1; done
    TENSOR_ISA=scalar $limit $QEMU "$out/compile_bits" 1 > "$out/scalar.1" 2>&1
    { [ -s "$out/neon.1" ] && diff "$out/neon.1" "$out/neon.3"; } > "$out/bits.log" 2>&1
    result bits $?
    for n in neon scalar; do grep '^random' "$out/$n.1" > "$out/$n.random"; done
    { [ -s "$out/neon.random" ] && diff "$out/neon.random" "$out/scalar.random" &&
        ! cmp -s "$out/neon.1" "$out/scalar.1"; } > "$out/random.log" 2>&1
    result random $?
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
