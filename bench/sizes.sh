# sizes.sh - what a program pays for the library: a ladder of programs, each built in several ways.
#
#   sh bench/sizes.sh                 the whole table        (CC, CLANG, LEVELS="-O0 -Os -O2", RUNGS to choose)
#   QUICK=1 sh bench/sizes.sh         gcc at -O2 alone
#   LADDER=1 sh bench/sizes.sh        every rung in one way, what tests/check.sh compares with tests/ladder.txt
#
# Prints a row per rung, way, compiler and level: user seconds and peak memory of the compilers (MB), KB of .text, of
# .rodata (jump and string tables, the library's and libc's start-up included) and of .data.rel.ro. Ways: "static", one file
# under TENSOR_STATIC; "sections", two files and a linker that drops what is not called; "avx2", static with that
# instruction set alone; "forward", that with TENSOR_NO_AUTOGRAD (inference alone). No way has unwind tables. The last rung, "everything", is an object of all functions.
# With BEFORE=folder (the headers of an earlier version) a row of them comes first; its whole implementation is 1.00.
CC=${CC:-gcc}
CLANG=${CLANG:-clang}
B=${B:-build}
T=$B/sizes
LEVELS=${LEVELS:--O0 -Os -O2}
compilers="$CC $CLANG"
if [ -n "$QUICK" ]; then
    LEVELS=-O2
    compilers=$CC
fi
rm -rf "$T"
mkdir -p "$T"

# usage COMMAND...: runs it; prints user seconds and megabytes of its largest process.
cat > "$T/usage.c" << 'END'
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int status = 1;
    struct rusage used;
    pid_t child = argc > 1 ? fork() : -1;
    if (child == 0) {
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || getrusage(RUSAGE_CHILDREN, &used)) { return 1; }
    printf("%.2f %ld\n", (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec * 1e-6, used.ru_maxrss / 1024);
    return status != 0;
}
END
$CC -D_GNU_SOURCE -O1 "$T/usage.c" -o "$T/usage" || exit 1

include='#include "tensor_nn.h"'
echo 'int main(void) { return 0; }' > "$T/empty.c"
cat > "$T/relu.c" << END
$include
int main(void) {
    tensor_print(tensor_relu(tensor_linspace(-1, 1, 5)));
    return tensor_shutdown();
}
END
cat > "$T/mlp.c" << END
$include
int main(void) {
    static const float w1[16 * 2], b1[16], w2[16], b2[1];
    float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1};
    tensor_t *x = tensor_from(inputs, TENSOR_F32, 4, 2);
    x = tensor_relu(tensor_linear(x, tensor_from(w1, TENSOR_F32, 16, 2), tensor_from(b1, TENSOR_F32, 16)));
    x = tensor_linear(x, tensor_from(w2, TENSOR_F32, 1, 16), tensor_from(b2, TENSOR_F32, 1));
    x = tensor_softmax(x, -1);
    return tensor_item(x) > 1 ? 1 : tensor_shutdown();
}
END
# The examples without the implementation, which each way brings in its own manner.
for pair in xor:03_xor cnn:fashion gpt:char_gpt; do
    grep -v '^#define TENSOR_.*IMPLEMENTATION' "examples/${pair#*:}.c" > "$T/${pair%%:*}.c"
done
printf '%s\n' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' "$include" > "$T/everything.c"
for rung in relu mlp xor cnn gpt; do
    { printf '%s\n' '#define TENSOR_STATIC' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION'
      cat "$T/$rung.c"; } > "$T/$rung-static.c"
done

# What bench/costs.sh builds.
[ -z "$PREPARE" ] || exit 0

# sections FILE: KB of .text, .rodata and .data.rel.ro.
sections() {
    LC_ALL=C objdump -h "$1" | awk '
        function hex(s,   n, i) { n = 0; for (i = 1; i <= length(s); i++) { n = n * 16 + index("0123456789abcdef", substr(s, i, 1)) - 1 } return n }
        $2 ~ /^\.text/ { text += hex($3) }
        $2 ~ /^\.rodata/ { rodata += hex($3) }
        $2 ~ /^\.data\.rel\.ro/ { relro += hex($3) }
        END { printf "%.1f %.1f %.1f\n", text / 1024, rodata / 1024, relro / 1024 }'
}
# row RUNG WAY COMPILER LEVEL FILE SECONDS MB
row() {
    set -- "$1" "$2" "$3" "$4" "$6" "$7" $(sections "$5")
    echo "$*" | awk '{ printf "%-11s %-9s %-6s %-4s %7.2f s %5d MB  text %7.1f  rodata %6.1f  relro %5.1f  sum %7.1f KB\n",
                       $1, $2, $3, $4, $5, $6, $7, $8, $9, $7 + $8 + $9 }'
}
# build RUNG WAY COMPILER LEVEL OUTPUT COMMAND...: a row for what COMMAND makes.
build() {
    rung=$1 way=$2 compiler=$3 level=$4 output=$5
    shift 5
    cost=$("$T/usage" "$@") || { echo "$rung $way $compiler $level: does not build"; return 1; }
    row "$rung" "$way" "$compiler" "$level" "$output" $cost
}

# The whole implementation takes as long as the other rungs together, so it is compiled beside them.
if [ -n "$LADDER" ]; then
    flags="-std=c99 -O2 -fno-asynchronous-unwind-tables -w -pthread -I. -Iexamples"
    build everything whole "$CC" -O2 "$T/everything" $CC $flags -c "$T/everything.c" -o "$T/everything" &
    build empty - "$CC" -O2 "$T/empty" $CC $flags "$T/empty.c" -o "$T/empty"
    build plain static "$CC" -O0 "$T/plain" $CC $flags -O0 "$T/xor-static.c" -lm -o "$T/plain"
    build relu sse2 "$CC" -O2 "$T/relu" $CC $flags -DTENSOR_ISA=sse2 "$T/relu-static.c" -lm -o "$T/relu"
    build mlp forward "$CC" -O2 "$T/mlp" $CC $flags -DTENSOR_ISA=avx2 -DTENSOR_NO_AUTOGRAD "$T/mlp-static.c" -lm -o "$T/mlp"
    for rung in xor cnn gpt; do
        build $rung avx2 "$CC" -O2 "$T/$rung" $CC $flags -DTENSOR_ISA=avx2 "$T/$rung-static.c" -lm -o "$T/$rung"
    done
    wait
    exit
fi

for c in $compilers; do
    command -v "$c" > /dev/null || { echo "no $c"; continue; }
    for level in $LEVELS; do
        flags="-std=c99 $level -fno-asynchronous-unwind-tables -w -pthread -I. -Iexamples"
        split="$flags -ffunction-sections -fdata-sections"
        if [ -n "$BEFORE" ]; then
            build before whole "$c" "$level" "$T/before.o" $c -std=c99 $level -fno-asynchronous-unwind-tables -w -pthread \
                "-I$BEFORE" -c "$T/everything.c" -o "$T/before.o"
        fi
        build empty - "$c" "$level" "$T/empty" $c $flags "$T/empty.c" -o "$T/empty"
        $c $split -c "$T/everything.c" -o "$T/sections.o" || exit 1
        for rung in ${RUNGS:-relu mlp xor cnn gpt}; do
            build $rung static "$c" "$level" "$T/$rung.static" $c $flags "$T/$rung-static.c" -lm -o "$T/$rung.static"
            build $rung sections "$c" "$level" "$T/$rung.sections" $c $split "$T/$rung.c" "$T/sections.o" \
                -Wl,--gc-sections -lm -o "$T/$rung.sections"
            build $rung avx2 "$c" "$level" "$T/$rung.avx2" $c $flags -DTENSOR_ISA=avx2 "$T/$rung-static.c" -lm \
                -o "$T/$rung.avx2"
            case $rung in relu|mlp)
                build $rung forward "$c" "$level" "$T/$rung.forward" $c $flags -DTENSOR_ISA=avx2 -DTENSOR_NO_AUTOGRAD \
                    "$T/$rung-static.c" -lm -o "$T/$rung.forward" ;;
            esac
        done
        build everything whole "$c" "$level" "$T/everything.o" $c $flags -c "$T/everything.c" -o "$T/everything.o"
        build everything avx2 "$c" "$level" "$T/everything.o" $c $flags -DTENSOR_ISA=avx2 -c "$T/everything.c" \
            -o "$T/everything.o"
    done
done
