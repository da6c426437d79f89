# export.sh - captured steps as C files (examples/kit/export_c.h): each compiles without a warning with every compiler
# that is here, calls nothing, is as small as its header says, and repeats the recorded steps bit for bit, those of the
# scalar kernels and those of TENSOR_ISA=portable
B=${B:-build}
CC=${CC:-cc}
out=$B/export
rm -rf "$out"
mkdir -p "$out"
passed=0
failed=0
skipped=0
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

${MAKE:-make} -s "$B/tests/libtensor.a" CC="$CC" B="$B" >&2 || { echo "0 passed, 1 failed"; exit 1; }
check "the exporter" $CC -std=c99 -Wall -Wextra -Werror -pthread -I. -Iexamples tests/export/steps.c "$B/tests/libtensor.a" \
    -lm -o "$out/steps"

check "the exporter, portable" $CC -std=c99 -O0 -pthread -I. -Iexamples -DTENSOR_ISA=portable -DTENSOR_STATIC \
    -DTENSOR_IMPLEMENTATION -DTENSOR_NN_IMPLEMENTATION tests/export/steps.c -lm -o "$out/steps_portable"

# The scalar kernels and the portable ones have the order of sums of their files: bits. Others: small differences.
for isa in scalar portable best; do
    mkdir -p "$out/$isa"
    steps=$out/steps
    if [ $isa = portable ]; then steps=$out/steps_portable; fi
    if [ $isa = scalar ]; then TENSOR_ISA=scalar && export TENSOR_ISA; else unset TENSOR_ISA; fi
    "$steps" "$out/$isa" >"$out/steps.log" 2>&1
    last=$(tail -n 1 "$out/steps.log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    last=${last:-0 1}                   # it did not end
    passed=$((passed + ${last% *}))
    failed=$((failed + ${last#* }))
    if [ "${last#* }" != 0 ]; then head -n 20 "$out/steps.log"; fi
    for f in "$out/$isa"/*.c; do
        name=$(basename "$f" .c)
        verify=$(echo "$name" | tr a-z A-Z)_VERIFY
        all="gcc:-O1"                   # small differences do not need every compiler
        turn=$((1 - ${turn:-0}))        # bits: every level of both, a half for each file
        if [ $isa = scalar ]; then all="gcc:-O0 gcc:-O2 clang:-O1 clang:-O3"; fi
        if [ $isa = scalar ] && [ $turn = 1 ]; then all="gcc:-O1 gcc:-O3 clang:-O0 clang:-O2"; fi
        if [ $isa = portable ]; then all="gcc:-O2 clang:-O3"; fi
        if [ $isa = portable ] && [ $turn = 1 ]; then all="gcc:-O3 clang:-O1"; fi
        if [ $isa = scalar ] && [ "$(wc -c <"$f")" -gt 400000 ]; then all="gcc:-O3 clang:-O2"; fi     # arrays
        for how in $all; do
            how=$(echo "$how" | tr : ' ')
            if ! command -v ${how% *} >/dev/null; then
                skipped=$((skipped + 2))
                continue
            fi
            check "$isa $name $how" $how -std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -D$verify "$f" \
                -o "$out/$name"
            check "$isa $name $how" "$out/$name"
        done
        tail -n 1 "$out/log" >"$out/$isa/$name.says"
    done
done

# All files have the portable bits, but for those with weights as bytes.
same=0
for f in "$out/portable"/*.c; do
    name=$(basename "$f" .c)
    says=$(cat "$out/portable/$name.says")
    case $name in *8) continue ;; esac
    check "$name in portable bits: $says" test "${says%all bits are the same}" != "$says"
    if [ "${says%all bits are the same}" != "$says" ]; then same=$((same + 1)); fi
done
echo "portable bits: $same files"
# NAME_state gives the parameters that the steps have trained, in the order of the optimizer, and what else they change.
cat >"$out/trained.c" <<'END'
#define main verify
#include EXPORTED
#undef main

int main(int argc, char **argv) {
    FILE *f = argc == 3 && verify() == 0 ? fopen(argv[1], "rb") : NULL;
    static float want[100000];
    size_t bytes;
    int64_t size;
    int i = 0;
    for (; f && fread(&bytes, sizeof bytes, 1, f) == 1 && fread(want, 1, bytes, f) == bytes; i++) {
        const void *is = STATE(i, &size);
        if (!is || (size_t)size != bytes || memcmp(is, want, bytes) != 0) { return 2; }
    }
    if (!i) { return 3; }
    while (STATE(i, &size)) { i++; }
    printf("%d arrays\n", i);
    return !(strtol(argv[2], NULL, 10) == i && STATE(-1, &size) == NULL && size == 0);
}
END
# adam: parameters, two states of each, steps, seed and stream. norms: also what they have seen.
for isa in scalar portable; do
    for case in adam:15 momentum:13 lstm:8 norms:12; do
        name=${case%:*}
        check "$isa $name: what it has trained" $CC -std=c99 -O1 -Wall -Wextra -include stdlib.h -DEXPORTED="\"$isa/$name.c\"" \
            -DSTATE=${name}_state "-D$(echo $name | tr a-z A-Z)_VERIFY" -I"$out" "$out/trained.c" -o "$out/trained"
        check "$isa $name: trained" "$out/trained" "$out/$isa/$name.bin" "${case#*:}"
    done
done
# Bits are compared: +0 is not the -0 that was recorded, a NaN is a NaN.
f=$out/scalar/signs.c
check "a recorded -0 and a NaN" grep -q -e '-0.0f, .*K_NAN' "$f"
sed '/want_/,$s/-0\.0f/0.0f/' "$f" >"$out/signs.c"
check "signs with other bits compiles" $CC -std=c99 -DSIGNS_VERIFY "$out/signs.c" -o "$out/signs"
check "other bits of 0 are noticed" sh -c "\"$out/signs\" | grep -q '1 numbers differ, by 0 at most'"
check "other bits of 0 are an error" sh -c "! \"$out/signs\""
check "-ffast-math is refused" sh -c "! $CC -std=c99 -ffast-math -c '$f' -o '$out/signs.o' 2>/dev/null"
# On other processors too.
for processor in aarch64 riscv64 s390x; do
    cross=$processor-linux-gnu-gcc
    if ! command -v $cross >/dev/null || ! command -v qemu-$processor >/dev/null; then
        echo "skipped 8 tests: no $cross and qemu-$processor"
        continue
    fi
    for name in adam cnn lstm transformer; do
        verify=$(echo $name | tr a-z A-Z)_VERIFY
        check "$name for $processor" $cross -std=gnu99 -O3 -static -D$verify "$out/portable/$name.c" \
            -o "$out/$name-$processor"
        check "$name on $processor" qemu-$processor "$out/$name-$processor"
    done
done

if command -v s390x-linux-gnu-gcc >/dev/null; then
    s390x-linux-gnu-gcc -std=c99 -c "$out/portable/adam.c" -o "$out/adam.o" >"$out/refused.log" 2>&1
    check "floats computed as doubles are refused" grep -q 'floats are not computed as floats' "$out/refused.log"
else
    echo "skipped 1 test: no s390x-linux-gnu-gcc"
fi

# sections NAME KIND [SIZE]: bytes of them in the object.
sections() { ${3:-size} -A "$out/$1.o" | awk -v of="^\\\\.$2" '$1 ~ of { sum += $2 } END { print sum + 0 }'; }
for name in digits digits_train adam cnn norms transformer lstm gru; do
    check "$name freestanding" $CC -std=c99 -Os -ffreestanding -c "$out/scalar/$name.c" -o "$out/$name.o"
    # Compilers make calls of these of loops.
    check "$name calls nothing" test -z "$(nm -u "$out/$name.o" | grep -vE ' (memcpy|memset|memmove)$')"
done
check "code of a 196-32-10 MLP, $(sections digits text) bytes" test "$(sections digits text)" -le 8192
check "code of its training, $(sections digits_train text) bytes" test "$(sections digits_train text)" -le 40960
check "memory of its training, $(sections digits_train bss) bytes" test "$(sections digits_train bss)" -le 65536
# The same for a Cortex-M4.
if command -v arm-none-eabi-gcc >/dev/null; then
    for name in digits digits_train; do
        check "$name for a Cortex-M4" arm-none-eabi-gcc -std=c99 -Os -mcpu=cortex-m4 -mthumb -mfloat-abi=hard \
            -mfpu=fpv4-sp-d16 -ffreestanding -Wall -Wextra -Wconversion -Wshadow -Werror -c "$out/scalar/$name.c" -o "$out/${name}_m4.o"
    done
    code=$(sections digits_m4 text arm-none-eabi-size)
    train=$(sections digits_train_m4 text arm-none-eabi-size)
    memory=$(sections digits_train_m4 bss arm-none-eabi-size)
    check "Cortex-M4: code of a 196-32-10 MLP, $code bytes" test "$code" -gt 0 -a "$code" -le 8192
    check "Cortex-M4: code of its training, $train bytes" test "$train" -gt 0 -a "$train" -le 40960
    check "Cortex-M4: memory of its training, $memory bytes" test "$memory" -gt 0 -a "$memory" -le 65536
    echo "Cortex-M4: $code bytes of inference, $train of training, memory $memory"
else
    echo "skipped 5 tests: no arm-none-eabi-gcc"
fi
# Weights as bytes: a fourth, the scales, and what is no weight.
flash() { sed -n 's,.* \([0-9]*\) bytes of constants.*,\1,p' "$out/scalar/$1.c"; }
check "bytes as weights of a CNN: $(flash fashion8) of $(flash fashion)" \
    test "$(($(flash fashion8) * 10))" -le "$(($(flash fashion) * 3))"
says=$(sed -n 's,^// \([0-9]*\) bytes of memory.*,\1,p' "$out/scalar/digits_train.c")
check "memory as its header says, $says bytes" test "$(sections digits_train bss)" -le $((says + 200))
# The step of examples/export_step.c on this computer, and on a Cortex-M4: the loss falls, by the same bits.
check "the example" ${MAKE:-make} -s "$B/export_step" CC="$CC" B="$B"
check "the example runs" "$B/export_step"
printf '#include <stdio.h>\nvoid say(const char *text);\nvoid say(const char *text) { fputs(text, stdout); }\n' >"$out/say.c"
for level in -O0 -O3; do
    check "examples/mcu $level" $CC -std=c99 $level examples/mcu/main.c build/xor_step.c "$out/say.c" -o "$out/mcu"
    check "examples/mcu $level runs" "$out/mcu"
    "$out/mcu" >"$out/mcu$level.txt"
    check "$level: the same bits" cmp "$out/mcu-O0.txt" "$out/mcu$level.txt"
done
if command -v arm-none-eabi-gcc >/dev/null && command -v qemu-system-arm >/dev/null; then
    # Without the flags of a make that runs this: it would warn among what the device says.
    mcu_make="env MAKEFLAGS= B=../../build ${MAKE:-make} -s -C examples/mcu"
    check "mcu.elf" $mcu_make ../../build/mcu.elf
    timeout 120 $mcu_make run >"$out/device.txt" 2>&1
    check "on a Cortex-M4: the same bits" cmp "$out/mcu-O0.txt" "$out/device.txt"
    echo "XOR on a Cortex-M4: $(size build/mcu.elf | awk 'NR == 2 { print $1 " bytes of flash, " $2 + $3 " of memory" }')"
else
    echo "skipped 2 tests: no arm-none-eabi-gcc or no qemu-system-arm"
fi
echo "code: $(sections digits text) bytes of inference, $(sections digits_train text) of training, memory $(sections digits_train bss)"
if [ $skipped -gt 0 ]; then echo "skipped $skipped tests: no gcc or no clang"; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
