# compile.sh - what including the headers costs a file, and what compiling the implementation costs once.
# Prints "row value unit" lines. Header: best of 15 runs, less the best for an empty file. Implementation: -O2, once.
CC=${CC:-cc}
B=${B:-build}
T=$B/bench
mkdir -p "$T"
now() { date +%s%N; }
echo 'int main(void) { return 0; }' >"$T/empty.c"
printf '#include "tensor_nn.h"\nint main(void) { return 0; }\n' >"$T/header.c"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$T/whole.c"
best() {
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        t=$(now)
        $CC -std=c99 -I. -c "$1" -o "$T/one.o" || exit 1
        echo $(($(now) - t))
    done | sort -n | head -n 1
}
empty=$(best "$T/empty.c")
header=$(best "$T/header.c")
echo "compile_header $(((header - empty) / 1000)) us" | awk '{ print $1, $2 / 1000, "ms" }'
t=$(now)
$CC -std=c99 -O2 -pthread -I. -c "$T/whole.c" -o "$T/one.o" || exit 1
echo "compile_implementation $((($(now) - t) / 1000000)) ms" | awk '{ print $1, $2 / 1000, "s" }'
