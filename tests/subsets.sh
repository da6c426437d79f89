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
        return 1
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

# Two files, and a linker that drops what is not called.
$compile -ffunction-sections -fdata-sections -c "$M/impl.c" -o "$M/sections.o" > "$M/sections-compiled.log" 2>&1
result sections-compiled $?
for t in autograd conv nn sequence; do
    $compile "tests/$t.c" "$M/sections.o" -Wl,--gc-sections -lm -o "$M/sections-$t" > "$M/sections-$t.log" 2>&1
    result "sections-$t" $? && program "sections-$t"
done

# Forward alone: the same bits as with gradients, and what asks for gradients says why there are none.
cat > "$M/forward.c" << 'END'
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"
static void show(const char *name, tensor_t *x) {
    uint64_t h = 1469598103934665603u;
    tensor_t *y = tensor_contiguous(tensor_to(x, TENSOR_F64));
    const unsigned char *p = (const unsigned char *)tensor_data(y);
    for (int64_t i = 0; p && i < tensor_numel(y) * 8; i++) { h = (h ^ p[i]) * 1099511628211u; }
    printf("%s %016llx %s\n", name, (unsigned long long)h, tensor_ok() ? "" : tensor_error_text());
}
int main(void) {
    tensor_manual_seed(3);
    tensor_t *x = tensor_randn(4, 3, 9, 9), *m = tensor_randn(6, 6), *v = tensor_randn(5, 33);
    nn_module_t *net = nn_sequential(nn_conv2d(3, 8, 3, .padding = 1), nn_batch_norm2d(8), nn_relu(), nn_max_pool2d(3),
                                     nn_flatten(), nn_linear(72, 16), nn_gelu(), nn_layer_norm(16), nn_dropout(0.25));
    show("net", nn_forward(net, x));
    show("softmax", tensor_softmax(v, 1));
    show("sum", tensor_sum_dim(tensor_sigmoid(tensor_mul(v, v)), 0, 0));
    show("tanh", tensor_tanh_(tensor_clone(tensor_transpose(v, 0, 1))));
    show("matmul", tensor_matmul(m, tensor_to(m, TENSOR_F32)));
    show("solve", tensor_linalg_solve(tensor_to(m, TENSOR_F64), tensor_to(m, TENSOR_F64)));
    show("sort", tensor_sort(v, 1, 1).values);
    show("loss", tensor_cross_entropy(v, tensor_arange(0, 5, 1, TENSOR_I64)));
    show("logaddexp", tensor_logaddexp(v, tensor_exp(v)));
    return tensor_shutdown();
}
END
$compile "$M/forward.c" -lm -o "$M/with" > "$M/with.log" 2>&1
result with $?
$compile -DTENSOR_NO_AUTOGRAD "$M/forward.c" -lm -o "$M/without" > "$M/without.log" 2>&1
result without $?
"$M/with" > "$M/forward.log" 2>&1 && "$M/without" > "$M/same.log" 2>&1 && cmp "$M/forward.log" "$M/same.log" >> "$M/same.log" 2>&1
result same $?
cat > "$M/refusing.c" << 'END'
#define TENSOR_NO_AUTOGRAD
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"
static int passed, failed;
static tensor_t *same(tensor_t *const *in, int n, void *user) { return (void)n, (void)user, tensor_mul(in[0], in[0]); }
static tensor_t *on_grad(tensor_t *g, void *user) { return (void)user, g; }
static void on_post(tensor_t *x, void *user) { (void)x, (void)user; }
static void *pack(tensor_t *x, void *user) { return (void)user, x; }
static tensor_t *unpack(void *p, void *user) { return (void)user, (tensor_t *)p; }
// What was called just now raised UNSUPPORTED, and its text names it and the macro.
static void refused(const char *name) {
    const char *text = tensor_error_text();
    int ok = tensor_error_code() == TENSOR_ERR_UNSUPPORTED && strstr(text, "TENSOR_NO_AUTOGRAD") && strstr(text, name);
    if (!ok) { printf("%s: %s\n", name, text); }
    passed += ok;
    failed += !ok;
    tensor_clear_error();
}
int main(void) {
    tensor_t *x = tensor_ones(3), *out[4];
    static const tensor_saved_hooks_t hooks = {pack, unpack, NULL, NULL};
    nn_module_t *net = nn_linear(3, 2);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    tensor_clear_error();
#define REFUSED(name, ...) ((void)(__VA_ARGS__), refused(name))
    REFUSED("requires_grad_", tensor_requires_grad_(x, 1));
    REFUSED("backward", tensor_backward(tensor_sum(x)));
    REFUSED("backward", tensor_backward_with(x, tensor_ones(3), 0));
    REFUSED("autograd_grad", tensor_autograd_grad(&x, 1, NULL, &x, 1, out, 0));
    REFUSED("retain_grad", tensor_retain_grad(x));
    REFUSED("set_grad", tensor_set_grad(x, tensor_ones(3)));
    REFUSED("register_hook", tensor_register_hook(x, on_grad, NULL));
    REFUSED("register_post_accumulate_grad_hook", tensor_register_post_accumulate_grad_hook(x, on_post, NULL));
    REFUSED("set_detect_anomaly", tensor_set_detect_anomaly(1));
    REFUSED("set_saved_tensors_hooks", tensor_set_saved_tensors_hooks(&hooks));
    REFUSED("checkpoint", tensor_checkpoint(same, NULL, &x, 1));
    REFUSED("vjp", tensor_vjp(same, NULL, &x, 1, NULL, out, 0));
    REFUSED("jvp", tensor_jvp(same, NULL, &x, 1, &x, out, 0));
    REFUSED("jacobian", tensor_jacobian(same, NULL, &x, 1, out, 0));
    REFUSED("hessian", tensor_hessian(same, NULL, &x, 1, out, 0));
    REFUSED("hvp", tensor_hvp(same, NULL, &x, 1, &x, out, 0));
    REFUSED("vhp", tensor_vhp(same, NULL, &x, 1, &x, out, 0));
    REFUSED("gradcheck", tensor_gradcheck(same, NULL, &x, 1, 0, 0, 0));
    REFUSED("gradgradcheck", tensor_gradgradcheck(same, NULL, &x, 1, 0, 0, 0));
    REFUSED("step", nn_step(opt));
    printf("%d passed, %d failed\n", passed, failed);
    return tensor_shutdown() || failed;
}
END
$compile "$M/refusing.c" -lm -o "$M/refusing" > "$M/refusing.log" 2>&1
result refusing $? && program refusing

# Without stdio: the program calls nothing of it, and functions of files and the console say why they do nothing.
cat > "$M/silent.c" << 'END'
#define TENSOR_NO_STDIO
#define TENSOR_STATIC
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"
#include <stdio.h>
static int passed, failed;
static void refused(const char *name) {
    const char *text = tensor_error_text();
    int ok = tensor_error_code() == TENSOR_ERR_UNSUPPORTED && strstr(text, "TENSOR_NO_STDIO") && strstr(text, name);
    if (!ok) { printf("%s: %s\n", name, text); }
    passed += ok;
    failed += !ok;
    tensor_clear_error();
}
int main(void) {
    tensor_t *x = tensor_ones(3);
    char text[40] = "old";
    const char *name = "x";
    int64_t step;
    nn_module_t *net = nn_linear(3, 2);
    nn_optimizer_t *opt = nn_sgd(net, .lr = 0.1);
    nn_training_t c;
    memset(&c, 0, sizeof c);
    c.module = net;
    tensor_clear_error();
#define REFUSED(name, ...) ((void)(__VA_ARGS__), refused(name))
    REFUSED("to_string", tensor_to_string(x, text, sizeof text));
    REFUSED("print", tensor_print(x));
    REFUSED("graph_print", tensor_graph_print(NULL));
    REFUSED("print", nn_print(net));
    REFUSED("safetensors_open", nn_safetensors_open("a"));
    REFUSED("safetensors_map", nn_safetensors_map("a"));
    REFUSED("safetensors_write", nn_safetensors_write("a", &name, &x, 1, NULL, 0));
    REFUSED("save", nn_save("a", net));
    REFUSED("load", nn_load("a", net));
    REFUSED("save_tested", nn_save_tested("a", net, 1e-5, x));
    REFUSED("load_tested", nn_load_tested("a", net));
    REFUSED("save_checkpoint", nn_save_checkpoint("a", net, opt, 1));
    REFUSED("load_checkpoint", nn_load_checkpoint("a", net, opt, &step));
    REFUSED("save_training", nn_save_training("a", &c));
    REFUSED("load_training", nn_load_training("a", &c));
    REFUSED("read_npy", nn_read_npy("a"));
    REFUSED("write_npy", nn_write_npy("a", x));
    REFUSED("npz_open", nn_npz_open("a"));
    REFUSED("npz_write", nn_npz_write("a", &name, &x, 1));
    REFUSED("progress_begin", nn_progress_begin("a", 1, 0).total);
    passed += text[0] == 0;             // to_string leaves no old text
    failed += text[0] != 0;
    printf("%d passed, %d failed\n", passed, failed);
    return tensor_shutdown() || failed;
}
END
$compile "$M/silent.c" -lm -o "$M/silent" > "$M/silent.log" 2>&1
result silent $? && program silent
$compile -DTENSOR_NO_STDIO -c "$M/impl.c" -o "$M/nostdio.o" > "$M/nostdio.log" 2>&1
result nostdio $?
nm -u "$M/nostdio.o" | grep -wE 'printf|puts|fopen|fputs|fprintf|fwrite|fread|snprintf|stderr|stdout|fflush' > "$M/stdio.log"
test $? -eq 1
result stdio $?

# A processor without the only pass that is built: an error that says so at the first op, no illegal instruction.
cat > "$M/lacking.c" << 'END'
#define TENSOR_IMPLEMENTATION
#include "tensor.h"
int main(void) {
    tensor_t *x = tensor_mul(tensor_ones(4), tensor_ones(4));
    const char *text = tensor_error_text();
    puts(text);
    if (!tensor_is_poison(x) || tensor_error_code() != TENSOR_ERR_UNSUPPORTED) { return 1; }
    return strstr(text, "does not have avx2, the least that this build has kernels for") == NULL;
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
