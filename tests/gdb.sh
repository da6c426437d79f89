# gdb.sh - a debugger shows tensors in the middle of a forward pass: examples/debug/gdb_tensor.py on
# examples/07_control_flow.c, then on tensors of all dtypes, views, and what has no values.
# Ends with "N passed, N failed". Without gdb, its Python, or the right to trace a process it is skipped.
B=${B:-build}
CC=${CC:-cc}
passed=0
failed=0
out=$B/tests/gdb
rm -rf "$out"
mkdir -p "$out"
script=examples/debug/gdb_tensor.py

skip() {
    echo "skipped 29 tests of a debugger: $1"
    echo "0 passed, 0 failed"
    exit 0
}
command -v gdb >/dev/null || skip "no gdb"
gdb -nx -batch -ex "python print(1)" 2>/dev/null | grep -q 1 || skip "gdb without Python"
[ -f "$B/libtensor.a" ] || { echo "no $B/libtensor.a"; echo "0 passed, 1 failed"; exit 1; }

# The layout of a header for the debugger; the library may be without -g.
printf '#define TENSOR_BACKEND\n#include "tensor.h"\nextern tensor_t *layout;\ntensor_t *layout;\n' >"$out/layout.c"
cat >"$out/kinds.c" <<'END'
#define TENSOR_BACKEND
#include "tensor_nn.h"
static void stop(void) {}
static void quiet(int code, const char *text, void *user) { (void)code, (void)text, (void)user; }
int main(void) {
    tensor_t *f32 = tensor_arange(0, 6, 1, TENSOR_F32), *view = tensor_transpose(tensor_reshape(f32, 2, 3), 0, 1);
    tensor_t *part = tensor_at(f32, "1::2"), *i64 = tensor_full_of(TENSOR_I64, -7, 2), *none = NULL;
    tensor_t *yes = tensor_gt_scalar(f32, 2.5), *half = tensor_to(tensor_full(1.5, 2), TENSOR_F16);
    tensor_t *brain = tensor_to(tensor_full(-2.5, 1), TENSOR_BF16), *scalar = tensor_sum(f32);
    tensor_t *empty = tensor_zeros(0, 3), *large = tensor_ones(100, 100), *f64 = tensor_full_of(TENSOR_F64, 0.1, 1);
    tensor_t *dead = tensor_ones(2), *grown = tensor_exp(tensor_requires_grad_(tensor_zeros(2), 1));
    int other = 3;
    tensor_free(dead);
    tensor_set_error_handler(quiet, NULL);
    tensor_t *poison = tensor_matmul(f32, view);
    stop();
    (void)part, (void)i64, (void)none, (void)yes, (void)half, (void)brain, (void)scalar, (void)empty, (void)large;
    (void)f64, (void)grown, (void)poison, (void)other;
    tensor_clear_error();
    return tensor_shutdown();
}
END
build() {
    # shellcheck disable=SC2086
    $CC -std=c99 -O0 -g -pthread -I. "$@" "$B/libtensor.a" -lm 2>"$out/build.txt" || {
        cat "$out/build.txt"
        echo "0 passed, 1 failed"
        exit 1
    }
}
build examples/07_control_flow.c "$out/layout.c" -o "$out/flow"
build "$out/kinds.c" -o "$out/kinds"
build examples/07_control_flow.c -DTENSOR_BACKEND -o "$out/backend"
build examples/07_control_flow.c -o "$out/bare"

line=$(grep -n 'printf("norm' examples/07_control_flow.c | cut -d: -f1)
gdb -nx -batch -iex "set debuginfod enabled off" -x $script -ex "break 07_control_flow.c:$line" -ex run -ex "print x" \
    -ex "tensor x" -ex "print self->times" -ex continue -ex "print x" "$out/flow" >"$out/flow.txt" 2>&1 </dev/null
grep -q "Breakpoint 1, " "$out/flow.txt" || skip "gdb cannot run a program here: $(grep -i -m 1 'ptrace\|not permitted\|error' "$out/flow.txt")"
gdb -nx -batch -iex "set debuginfod enabled off" -x $script -ex "break stop" -ex run -ex up -ex "print f32" -ex "tensor view" \
    -ex "print part" -ex "print i64" -ex "print none" -ex "print yes" -ex "print half" -ex "print brain" \
    -ex "print scalar" -ex "print empty" -ex "tensor large 3" -ex "print f64" -ex "print dead" -ex "print grown" \
    -ex "print poison" -ex "tensor other" "$out/kinds" >"$out/kinds.txt" 2>&1 </dev/null

for name in backend bare; do
    gdb -nx -batch -iex "set debuginfod enabled off" -x $script -ex "break 07_control_flow.c:$line" -ex run -ex "print x" \
        "$out/$name" >"$out/$name.txt" 2>&1 </dev/null
done

# said FILE TEXT: a line of it has that.
said() {
    if grep -qF -- "$2" "$out/$1.txt"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "gdb does not say \"$2\":"
        sed 's/^/    /' "$out/$1.txt" | tail -n 40
    fi
}
said flow '$1 = tensor f32 [2] by div_scalar at'
said flow ', recorded = {2, 2}'
said flow ', recorded:'
said flow '$2 = 0'
said flow '$3 = tensor f32 [2] by div_scalar at'
said flow ', recorded = {1, 1}'
said backend '$1 = tensor f32 [2] by div_scalar at'
said bare '$1 = tensor (unknown layout: compile the implementation with -g, or a file of the program with -g -DTENSOR_BACKEND)'
said kinds 'tensor f32 [100, 100] by ones at'
said kinds '= {0, 1, 2, 3, 4, 5}'
said kinds 'tensor f32 [3, 2] by transpose at'
said kinds '{{0, 3},'
said kinds ' {2, 5}}'
said kinds '= {1, 3, 5}'
said kinds 'tensor i64 [2]'
said kinds '= {-7, -7}'
said kinds '= tensor (NULL)'
said kinds '= {false, false, false, true, true, true}'
said kinds 'tensor f16 [2]'
said kinds 'tensor bf16 [1]'
said kinds '= {-2.5}'
said kinds '= 15'
said kinds '[0, 3]'
said kinds '{{1, 1, 1, ...},'
said kinds 'tensor f64 [1]'
said kinds 'tensor (dead: its scope ended, or it was freed)'
said kinds 'tensor f32 [2] by exp at'
said kinds 'tensor (poison: a call failed, see tensor_error_text())'
said kinds 'other is not a tensor_t *'
rm -rf "$out"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
