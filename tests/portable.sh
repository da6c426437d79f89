# portable.sh - TENSOR_ISA=portable: the same losses, byte for byte, from every compiler and processor
#
#   sh tests/portable.sh        uses $B (build), $CC, $CXX, $CLANG (clang), $NODE (node), the cross compilers and emulators
#
# Debian has the latter in gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu, gcc-s390x-linux-gnu and qemu-user,
# gcc-arm-none-eabi, libnewlib-arm-none-eabi and qemu-system-arm, clang's for WebAssembly in lld, wasi-libc and
# libclang-rt-*-dev-wasm32. What is not there prints "skipped N tests: why". The last line is "N passed, N failed".
B=${B:-build}
CC=${CC:-cc}
CXX=${CXX:-c++}
CLANG=${CLANG:-clang}
NODE=${NODE:-node}
out=$B/portable
limit="timeout ${TEST_TIMEOUT:-600}"
options="-Wall -Wextra -DTENSOR_ISA=portable -I. tests/compile_portable.c -lm"
parts="mlp cnn lstm gpt ops"
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out"

have() { command -v "$1" > /dev/null; }

skip() { echo "skipped 1 test of portable bits: $1"; }

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

# builds NAME COMPILER FLAGS ..: whether these make a program of C and headers
builds() {
    name=$1
    shift
    printf '#include <stdio.h>\n#include <errno.h>\nint main(void) { return puts("fine") < 0; }\n' > "$out/probe.c"
    have "$1" && "$@" "$out/probe.c" -o "$out/$name" > /dev/null 2>&1
}

# whole FILE: it has all losses, and was printed by the portable pass without an error.
whole() { [ "$(grep -c ' loss ' "$1")" -eq 400 ] && [ "$(tail -n 1 "$1")" = portable ]; }

# same NAME "RUN" THREADS COMPILER FLAGS ..: the program, run by RUN, prints what the first one printed.
same() {
    name=$1
    run=$2
    threads=$3
    shift 3
    {
        # the flags of the linker in $options come after the program
        "$@" $options -o "$out/$name" && $run "$out/$name" "$threads" $parts > "$out/$name.losses" &&
            whole "$out/$name.losses" && diff "$out/first.losses" "$out/$name.losses"
    } > "$out/$name.log" 2>&1
    result "$name" $?
}

# The first: without optimisation, so that all of the library is in it, with what it calls of libm.
{
    $CC -std=c99 -O0 -pthread $options -o "$out/first" && $limit "$out/first" 1 $parts > "$out/first.losses" &&
        whole "$out/first.losses"
} > "$out/first.log" 2>&1
result first $?
functions='a?(sin|cos|tan)h?|atan2|exp|exp2|expm1|log|log10|log1p|log2|pow|cbrt|erfc?|[lt]gamma|hypot|fma|j[01n]|y[01n]|'
functions="$functions"'remainder|rint|nearbyint|round|sqrt|fmod|frexp|ldexp|copysign|floor|ceil|trunc'
nm "$out/first" | awk '$1 == "U" { sub(/@.*/, "", $2); print $2 }' | grep -xE "($functions)[fl]?" > "$out/called"
{
    grep -qx sqrt "$out/called" && ! grep -vxE 'sqrtf?|fmod|frexp|ldexp|copysign|floor|ceil|trunc' "$out/called"
} > "$out/functions.log"
result functions $?

# The own functions beside those of libm: some units in the last place.
{
    $CC -std=gnu99 -O1 -DTENSOR_ISA=portable -I. tests/compile_libm.c -lm -o "$out/libm" && $limit "$out/libm"
} > "$out/libm.log" 2>&1
result libm $?

# All losses fall: of floats that are not negative the bits are in the order of the numbers.
awk '$3 != "loss" { next }
    $2 == 0 { first[$1] = "x" $4 }
    $2 == 99 { fell += "x" $4 < first[$1] }
    END { exit fell != 4 }' "$out/first.losses" > "$out/fall.log" 2>&1
result fall $?

native=
case $(uname -m) in x86_64 | amd64) native=-march=native ;; esac
same O3 "$limit" 3 $CC -std=gnu11 -O3 $native -pthread
if builds probe $CXX -x c++ -std=c++11; then
    same c++ "$limit" 1 $CXX -x c++ -std=c++11 -O0 -pthread
else
    skip "no C++ compiler"
fi
if builds probe $CLANG; then
    same clang "$limit" 1 $CLANG -O1 -pthread
else
    skip "no $CLANG"
fi

# 32-bit x86, by whoever links: gcc with its own runtime (gcc-multilib), clang with its own.
linked=
case $(uname -m) in
x86_64 | amd64)
    for c in "$CC -m32" "$CLANG -m32 -rtlib=compiler-rt --unwindlib=none -Wno-unused-command-line-argument"; do
        c="$c -msse2 -mfpmath=sse -idirafter /usr/include/$($CC -dumpmachine)"
        if [ -z "$linked" ] && builds probe $c && "$out/probe" > /dev/null; then linked=$c; fi
    done
    ;;
esac
if [ -n "$linked" ]; then
    same i386 "$limit" 1 $linked -std=gnu99 -O0 -pthread
else
    skip "no compiler for 32-bit x86 that links"
fi

# Processors with FMA, which gcc uses from -O2 on where nothing tells it not to. s390x has the bytes of a number in the
# other order.
for processor in aarch64 riscv64 s390x; do
    c="$processor-linux-gnu-gcc"
    level=-O1
    if [ $processor = riscv64 ]; then level=-O2; fi
    if [ $processor = s390x ]; then level=-O0; fi
    if [ "$(uname -m)" = $processor ]; then
        skip "this machine is $processor"
    elif have qemu-$processor && builds probe $c -static && [ "$(qemu-$processor "$out/probe" 2> /dev/null)" = fine ]; then
        same $processor "$limit qemu-$processor" 1 $c -std=gnu99 $level -static -pthread
    else
        skip "no $c and qemu-$processor that make and run a program"
    fi
done

# A Cortex-M7, where there is no system.
board() {
    $limit qemu-system-arm -machine mps2-an500 -nographic -semihosting-config enable=on,target=native -kernel "$1" \
        2>&1 < /dev/null
}
cat > "$out/cortex.ld" << 'END'
MEMORY {
    FLASH (rx) : ORIGIN = 0x00000000, LENGTH = 4M
    RAM (rwx) : ORIGIN = 0x60000000, LENGTH = 16M
}
ENTRY(begin)
SECTIONS {
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
    .ARM.exidx : { *(.ARM.exidx*) } > FLASH
    data_from = LOADADDR(.data);
    .data : ALIGN(4) { data_begin = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
    .bss (NOLOAD) : ALIGN(4) { bss_begin = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; } > RAM
    stack_end = ORIGIN(RAM) + LENGTH(RAM);
}
END
cortex="arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16 -std=gnu99 --specs=nosys.specs"
if have qemu-system-arm && builds probe $cortex; then
    same cortex board 1 $cortex -O1 -nostartfiles -T "$out/cortex.ld" -DTENSOR_NO_THREADS -DTENSOR_NO_STDIO \
        tests/compile_cortex.c
else
    skip "no arm-none-eabi-gcc with newlib, or no qemu-system-arm"
fi

# WebAssembly with SIMD128.
sed -n '/run.mjs" << .END/,/^END/p' tests/wasm.sh | sed '1d;$d' > "$out/run.mjs"
wasm="$CLANG --target=wasm32-wasi -std=gnu99 -DTENSOR_NO_THREADS"
run="$limit $NODE --no-warnings --no-turbo-fast-api-calls $out/run.mjs"
if builds probe $wasm && have "$NODE" && [ "$($run "$out/probe" 2> /dev/null)" = fine ]; then
    same simd128 "$run" 1 $wasm -O1 -msimd128
else
    skip "$CLANG and $NODE do not make and run a program for WebAssembly"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
