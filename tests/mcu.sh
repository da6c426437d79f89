# mcu.sh - the library itself on Cortex-M4F and M7 (examples/mcu/xor.c): it builds without system, threads, files and malloc,
# learns XOR in an emulator within 64 KB of memory and 150 KB of flash, and gives the bits that this computer gives
B=${B:-build}
CC=${CC:-cc}
out=$B/mcu
cross=arm-none-eabi-gcc
# Bytes that the whole program may take.
FLASH=153600
RAM=65536
rm -rf "$out"
mkdir -p "$out"
passed=0
failed=0
check() { # WHAT COMMAND..
    what=$1
    shift
    if "$@" >"$out/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$what: $*"
        head -n 12 "$out/log" | sed 's/^/    /'
    fi
}

cat >"$out/say.c" <<'END'
#include <stdio.h>
void say(const char *text);
unsigned stack_used(void);
void say(const char *text) { fputs(text, stdout); }
unsigned stack_used(void) { return 0; }
END
check "xor.c on this computer" $CC -std=c99 -O1 -Wall -Wextra -Werror -DARENA=262144 -I. examples/mcu/xor.c "$out/say.c" -lm \
    -o "$out/xor"
check "it learns" "$out/xor"
"$out/xor" | grep -v '^memory' >"$out/want.txt"
check "what it says" grep -q '^the loss fell' "$out/want.txt"

case $($cross -print-file-name=nano.specs 2>/dev/null) in */*) newlib=yes ;; *) newlib= ;; esac
if [ -z "$newlib" ]; then
    echo "skipped 20 tests: no $cross or no newlib for it"
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
    exit
fi

# A plain build says in a sentence what to define.
printf '%s\n' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"' >"$out/impl.c"
$cross -mcpu=cortex-m4 -mthumb --specs=nano.specs -I. -fsyntax-only "$out/impl.c" >"$out/plain.txt" 2>&1
check "a plain build fails" test $? -ne 0
check "a plain build names the macros" grep -q 'error: .*define TENSOR_NO_THREADS.*TENSOR_NO_STDIO' "$out/plain.txt"
check "a plain build says nothing else" test "$(grep -c 'error:' "$out/plain.txt")" -eq 1
# With libc's files and console.
check "TENSOR_NO_THREADS alone" $cross -std=c99 -Wall -Wextra -Werror -mcpu=cortex-m4 -mthumb -DTENSOR_NO_THREADS \
    --specs=nano.specs -I. -c "$out/impl.c" -o "$out/impl.o"
arm-none-eabi-nm -u "$out/impl.o" >"$out/calls.txt" 2>/dev/null
check "it calls libc" grep -q ' malloc$' "$out/calls.txt"
check "no 64-bit atomics" sh -c "! grep __atomic '$out/calls.txt'"

# device NAME CPU MACHINE
device() {
    mkdir -p "$out/$1"
    # Without the flags of a make that runs this: it would warn among what the device says.
    build="env MAKEFLAGS= ${MAKE:-make} -s -C examples/mcu B=$(cd "$out/$1" && pwd)"
    elf=$out/$1/mcu_xor.elf
    check "$1: builds" $build "CPU=$2" "$(cd "$out/$1" && pwd)/mcu_xor.elf"
    arm-none-eabi-nm "$elf" >"$out/$1/names.txt" 2>/dev/null
    check "$1: has the library" grep -q ' tensor__gemm' "$out/$1/names.txt"
    check "$1: no malloc, console or atomics" \
        sh -c "! grep -E ' (_?malloc(_r)?|_sbrk|_?printf(_r)?|_?fopen(_r)?|__atomic.*)\$' '$out/$1/names.txt'"
    flash=$(arm-none-eabi-size "$elf" 2>/dev/null | awk 'NR == 2 { print $1 + $2 }')
    static=$(arm-none-eabi-size "$elf" 2>/dev/null | awk 'NR == 2 { print $2 + $3 }')
    check "$1: ${flash:=0} bytes of flash, at most $FLASH" test "$flash" -gt 0 -a "$flash" -le $FLASH
    if ! command -v qemu-system-arm >/dev/null; then
        echo "skipped 3 tests on $1: no qemu-system-arm"
        return
    fi
    timeout 120 $build "CPU=$2" "MACHINE=$3" run-xor >"$out/$1/says.txt" 2>&1
    grep -v '^memory' "$out/$1/says.txt" >"$out/$1/got.txt"
    check "$1: the same bits" cmp "$out/want.txt" "$out/$1/got.txt"
    stack=$(sed -n 's/^memory:.* stack \([0-9]*\) bytes$/\1/p' "$out/$1/says.txt")
    ram=$((${static:-0} + ${stack:-$RAM}))
    check "$1: it says its stack" test "${stack:-0}" -gt 0
    check "$1: $ram bytes of memory, at most $RAM" test "$ram" -le $RAM
    echo "XOR by the library on $1: $flash bytes of flash (at most $FLASH), $ram of memory (at most $RAM): $stack of it stack"
}
device cortex-m4 "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16" mps2-an386
device cortex-m7 "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16" mps2-an500
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
