# subsets.sh - builds that leave something out pass the tests that still apply to them.
#   CC      the compiler; QEMU_X86 (qemu-x86_64) runs a processor with less than this one
# Ends with "N passed, N failed".
B=${B:-build}
M=$B/subsets
CC=${CC:-cc}
QEMU_X86=${QEMU_X86:-qemu-x86_64}
compile="$CC -std=c99 -O1 -Wall -Wextra -pthread -I."
passed=0
failed=0
rm -rf "$M"
mkdir -p "$M"

# result NAME STATUS
result() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: status $2"
        tail -n 20 "$M/$1.log" | sed 's/^/    /'
    fi
}
# program NAME: runs it; its own cases count.
program() {
    "$M/$1" > "$M/$1.log" 2>&1
    status=$?
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$M/$1.log" | tail -n 1)
    p=${last%% *}
    passed=$((passed + ${p:-0}))
    if [ $status -ne 0 ] || [ -z "$last" ]; then
        failed=$((failed + 1))
        echo "$1: status $status"
        tail -n 20 "$M/$1.log" | sed 's/^/    /'
    fi
}

# Everything in one file, and static.
printf '%s\n' '#define TENSOR_STATIC' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' \
    '#include "tests/nn.c"' > "$M/static.c"
$compile "$M/static.c" -lm -o "$M/static" > "$M/static-compiled.log" 2>&1
result static-compiled $?
program static

# The instruction set of this machine alone.
printf '%s\n' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"' > "$M/impl.c"
$compile -march=native -DTENSOR_ISA=native -c "$M/impl.c" -o "$M/native.o" > "$M/native-compiled.log" 2>&1
result native-compiled $?
for t in autograd conv nn sequence; do
    $compile "tests/$t.c" "$M/native.o" -lm -o "$M/native-$t" > "$M/native-$t.log" 2>&1 && program "native-$t"
done

# A processor without the only pass that is built: an error that says so at the first op, no illegal instruction.
cat > "$M/lacking.c" << 'END'
#define TENSOR_IMPLEMENTATION
#include "tensor.h"
int main(void) {
    tensor_t *x = tensor_mul(tensor_ones(4), tensor_ones(4));
    const char *text = tensor_error_text();
    puts(text);
    if (!tensor_is_poison(x) || tensor_error_code() != TENSOR_ERR_UNSUPPORTED) { return 1; }
    return strstr(text, "kernels for avx2") == NULL;
}
END
case $(uname -m)-$(command -v "$QEMU_X86" > /dev/null && echo there) in
x86_64-there)
    $compile -DTENSOR_ISA=avx2 -static "$M/lacking.c" -lm -o "$M/lacking" > "$M/lacking.log" 2>&1 &&
        $QEMU_X86 -cpu Nehalem "$M/lacking" >> "$M/lacking.log" 2>&1
    result lacking $?
    ;;
*) echo "skipped 1 test of a processor without AVX2: no $QEMU_X86 for this machine" ;;
esac

# What is not built cannot be forced, and the error says so.
cat > "$M/forced.c" << 'END'
#define TENSOR_ISA scalar
#define TENSOR_IMPLEMENTATION
#include "tensor.h"
int main(void) {
    if (tensor_set_isa("scalar")) { return 1; }
    if (tensor_set_isa("avx2") != TENSOR_ERR_UNSUPPORTED || !strstr(tensor_error_text(), "avx2")) { return 2; }
    tensor_clear_error();
    if (tensor_set_isa("reference") != TENSOR_ERR_UNSUPPORTED) { return 3; }
    return strstr(tensor_error_text(), "TENSOR_ALL_PASSES") == NULL;
}
END
$compile "$M/forced.c" -lm -o "$M/forced" > "$M/forced.log" 2>&1 && "$M/forced" >> "$M/forced.log" 2>&1
result forced $?

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
