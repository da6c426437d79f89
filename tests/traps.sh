# traps.sh - what the compiler must refuse, and what it must take without a word: mistakes of newcomers in C99,
# C11, C++11 and C++20, and the right programs that look like them.
#   CC, CXX      a C and a C++ compiler; clang and clang++ come with them where they are
# Ends with "N passed, N failed".
B=${B:-build}
T=$B/traps
CC=${CC:-cc}
CXX=${CXX:-c++}
passed=0
failed=0
skipped=0
cc=$CC
cxx=$CXX
case $($CC --version 2>/dev/null) in
*clang*) ;;
*) if command -v clang >/dev/null 2>&1; then cc="$CC clang"; else skipped=$((skipped + 1)); fi ;;
esac
case $($CXX --version 2>/dev/null) in
*clang*) ;;
"") cxx= skipped=$((skipped + 1)) ;;
*) if command -v clang++ >/dev/null 2>&1; then cxx="$CXX clang++"; else skipped=$((skipped + 1)); fi ;;
esac
rm -rf "$T"
mkdir -p "$T"
warn="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wcast-qual -Werror"

# verdict NAME GOOD OUTPUT
verdict() {
    if [ "$2" = 1 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1"
        head -n 12 "$3" | sed 's/^/    /'
    fi
}
# source FILE BODY: a function with all that a body below names.
source_of() {
    printf '%s\n' '#include "tensor_nn.h"' 'struct v3 { float x, y, z; };' 'struct opaque;' \
        'void f(tensor_t *x, tensor_t *const c, void *v, nn_module_t *m, int k, float *p, struct opaque *o);' \
        'void f(tensor_t *x, tensor_t *const c, void *v, nn_module_t *m, int k, float *p, struct opaque *o) {' \
        '    (void)x, (void)c, (void)v, (void)m, (void)k, (void)p, (void)o;' "$2" '}' >"$1"
}
# takes LANGUAGES BODY: no compiler says a word. LANGUAGES: c, c++ or both.
takes() {
    source_of "$T/good.c" "$2"
    for s in c99 c11; do
        case " $1 " in *" c "*) ;; *) continue ;; esac
        for c in $cc; do
            for editor in -UTENSOR_EDITOR -DTENSOR_EDITOR; do
                $c -std=$s $warn $editor -I. -fsyntax-only "$T/good.c" >"$T/out" 2>&1
                verdict "$c $s $editor refuses: $2" $((!$?)) "$T/out"
            done
        done
    done
    for s in c++11 c++20; do
        case " $1 " in *" c++ "*) ;; *) continue ;; esac
        for c in $cxx; do
            $c -x c++ -std=$s $warn -I. -fsyntax-only "$T/good.c" >"$T/out" 2>&1
            verdict "$c $s refuses: $2" $((!$?)) "$T/out"
        done
    done
}
# refuses LANGUAGES TEXT BODY: an error without any flag; its text has TEXT.
refuses() {
    source_of "$T/bad.c" "$3"
    for s in c99 c11; do
        case " $1 " in *" c "*) ;; *) continue ;; esac
        for c in $cc; do
            $c -std=$s -w -I. -S -o "$T/bad.s" "$T/bad.c" >"$T/out" 2>&1
            verdict "$c $s takes: $3" $(($? != 0)) "$T/out"
            grep -q -- "$2" "$T/out"
            verdict "$c $s does not say \"$2\": $3" $((!$?)) "$T/out"
        done
    done
    for s in c++11 c++20; do
        case " $1 " in *" c++ "* | *" $s "*) ;; *) continue ;; esac
        for c in $cxx; do
            $c -x c++ -std=$s -w -I. -fsyntax-only "$T/bad.c" >"$T/out" 2>&1
            verdict "$c $s takes: $3" $(($? != 0)) "$T/out"
            grep -q -- "$2" "$T/out"
            verdict "$c $s does not say \"$2\": $3" $((!$?)) "$T/out"
            lines=$(wc -l <"$T/out")
            case $1 in *20) verdict "$c $s says it in $lines lines: $3" $((lines <= 20)) "$T/out" ;; esac
        done
    done
}

mismatch='incompatible type\|convert\|conversion\|no matching\|matches no template\|cannot initialize'
missing='expected\|requires\|too few'

# An inline function of the program may call the library.
printf '%s\n' '#include "tensor_nn.h"' 'tensor_t *turned(nn_module_t *m, tensor_t *x);' \
    'inline tensor_t *turned(nn_module_t *m, tensor_t *x) { return tensor_neg(tensor_add(x, nn_forward(m, x))); }' \
    >"$T/inline.c"
for c in $cc; do
    for s in c99 c11; do
        $c -std=$s $warn -Wmissing-prototypes -I. -fsyntax-only "$T/inline.c" >"$T/out" 2>&1
        verdict "$c $s: an inline function that calls the library" $((!$?)) "$T/out"
    done
done

# A number or a function for a tensor.
refuses "c c++" "$mismatch" 'tensor_add(x, 1);'
refuses "c" "tensor__of_2\|tensor__tensor_t" 'tensor_matmul(k, x);'
refuses "c c++" "$mismatch" 'tensor_where(x, x, 0 * k);'
refuses "c c++" "$mismatch" 'tensor_relu(k);'
refuses "c c++" "$mismatch" 'tensor_add(x, tensor_relu);'
refuses "c c++" "$mismatch" 'nn_forward(m, 2);'
# A function or a number for a module.
refuses "c c++" "$mismatch" 'nn_sequential(nn_linear(2, 3), nn_relu, nn_linear(3, 1));'
refuses "c c++" "$mismatch" 'nn_sequential(nn_linear(2, 3), nn_relu);'
refuses "c c++" "$mismatch" 'nn_sequential(nn_relu);'
refuses "c c++" "$mismatch" 'nn_sequential(m, 3);'
refuses "c c++" "$mismatch" 'nn_append(m, nn_tanh);'
refuses "c c++" "$mismatch" 'nn_child(m, "act", nn_tanh);'
refuses "c c++" "$mismatch" 'nn_forward(nn_tanh, x);'
# A dtype among the sizes.
refuses "c" "a dtype is among the sizes" 'tensor_zeros(2, 3, TENSOR_I64);'
refuses "c" "a dtype is among the sizes" 'tensor_ones(TENSOR_BF16, 2, 3);'
refuses "c" "a dtype is among the sizes" 'tensor_full(1, k, TENSOR_U8);'
refuses "c" "a dtype is among the sizes" 'tensor_randint(0, 9, TENSOR_BOOL);'
refuses "c++" "a_dtype_is_not_a_size\|deleted" 'tensor_zeros(2, 3, TENSOR_I64);'
# A list in parentheses of its own, as Python has it.
refuses "c" "a list in parentheses" 'tensor_zeros((2, 3));'
refuses "c" "a list in parentheses" 'tensor_zeros_of(TENSOR_I64, (2, k));'
refuses "c" "a list in parentheses" 'tensor_reshape(x, (k, 4), 3);'
refuses "c" "a list in parentheses" 'tensor_permute(x, (0, 1));'
refuses "c" "a list in parentheses" 'tensor_randn((2, 3, 4, 5, 6, 7, 8, 9));'
# More than 8 dims.
refuses "c" "at_most_8_dims" 'tensor_zeros(1, 2, 3, 4, 5, 6, 7, 8, 9);'
refuses "c" "at_most_8_dims" 'tensor_reshape(x, 1, 2, 3, 4, 5, 6, 7, 8, k, k + 1);'
refuses "c++" "at most 8 dims" 'tensor_zeros(1, 2, 3, 4, 5, 6, 7, 8, 9);'
# One argument too many.
refuses "c c++" "too many arguments" 'tensor_sum(x, 1);'
# A required number that is missing, an option without its name.
refuses "c" "AN_ARGUMENT_IS_MISSING" 'nn_linear(3);'
refuses "c" "AN_ARGUMENT_IS_MISSING" 'nn_conv2d(3, 64);'
refuses "c" "AN_ARGUMENT_IS_MISSING" 'tensor_cross_entropy(x);'
refuses "c" "AN_ARGUMENT_IS_MISSING" 'tensor_mse_loss(x);'
refuses "c++" "$missing" 'tensor_cross_entropy(x);'
refuses "c++" "$missing" 'nn_linear(3);'
refuses "c++" "$missing" 'nn_conv2d(3, 64);'
refuses "c c++" "$missing" 'nn_conv2d(3);'
refuses "c c++" "$missing" 'nn_embedding(3);'
refuses "c c++" "$missing" 'nn_lstm(3);'
refuses "c" "struct tensor_options_are_named" 'nn_adam(m, 0.01);'
refuses "c++" "$mismatch" 'nn_adam(m, 0.01);'
refuses "c" "learning_rate" 'nn_adam(m, .learning_rate = 0.01);'
# A comparison of tensors, which would be one of their pointers.
for sign in '<' '<=' '>' '>=' '==' '!='; do
    refuses "c++" "use_tensor_\|deleted" "tensor_ref a = x, b = x; bool r = a $sign b; (void)r;"
    refuses "c++" "use_tensor_\|deleted" "tensor_val a = x; bool r = a $sign 2; (void)r;"
    refuses "c++" "use_tensor_\|deleted" "tensor_val a = x; bool r = 0.5 $sign a; (void)r;"
    refuses "c++" "use_tensor_\|deleted" "tensor_ref a = x; bool r = x $sign a; (void)r;"
done
# A misspelt option, or one without its name: at most 20 lines of C++20.
refuses "c++20" "nn_conv_args_t" 'nn_conv2d(3, 64, 3, {.strid = 2});'
refuses "c++20" "nn_linear_args_t" 'nn_linear(3, 64, {.nobias = 1});'
refuses "c++20" "nn_adam_args_t" 'nn_adam(m, {.learning_rate = 0.01});'
refuses "c++20" "nn_pool_args_t" 'nn_max_pool2d(3, 2);'
refuses "c++20" "tensor_conv_args_t" 'tensor_conv2d(x, x, x);'
# All functions of >>nn-cpp and those of tensor.h: each call has its error, and no error has more than 20 lines.
misspelt=$({
    awk '
        /^NN__CPP_/ { text = ""; open = 1 }
        open { text = text " " $0; if (/\)$/) { open = 0; print text } }' tensor_nn.h |
        sed -E '
            s/^ *NN__CPP_DIMS\(NN__CPP_[0-9], *[a-z]+, *([a-z_]+), *([a-z_]*), *[a-z_]+/\1#\2, /
            s/^ *NN__CPP_[0-9]\([a-z]+, *([a-z_0-9]+), *[a-z_0-9]+/\1, /
            s/\(tensor, *[a-z_0-9]+\)/x/g; s/\(module, *[a-z_0-9]+\)/m/g; s/\((i64|int|number), *[a-z_0-9]+\)/k/g
            s/\(list, *[a-z_0-9]+\)/\&x/g; s/\(text, *[a-z_0-9]+\)/""/g; s/\(optimizer, *[a-z_0-9]+\)/q/g
            s/\(dataset, *[a-z_0-9]+\)/d/g; s/\)$//; s/[ ,]+/, /g; s/, $//' |
        sed -E 'h; /#/!b; s/#/1d/; p; g; s/#/2d/; p; g; s/#/3d/; s/#//'
    printf '%s\n' 'tensor_rearrange, x, ""' 'tensor_searchsorted, x, x' 'tensor_linalg_pinv, x' \
        'tensor_linalg_matrix_rank, x' 'tensor_linalg_lu_solve, x, x, x' 'nn_clip_grad_norm, q, 1.0' \
        'tensor_allclose, x, x, 1.0, 1.0'
} | sed 's/^\([a-z_0-9]*\), /(void)\1(/; s/^[a-z_0-9]*$/(void)&(/; s/$/, {.misspelt = 1});/; s/(, /(/')
n=$(echo "$misspelt" | wc -l)
verdict "only $n functions with options were found" $((n >= 150)) /dev/null
source_of "$T/misspelt.c" "nn_optimizer_t *q = nullptr; nn_dataset_t d = nn_dataset_t(); $misspelt"
for c in $cxx; do
    case $($c --version) in *clang*) all=-ferror-limit=0 ;; *) all=-fmax-errors=0 ;; esac
    $c -x c++ -std=c++20 -w $all -I. -fsyntax-only "$T/misspelt.c" >"$T/out" 2>&1
    awk -v n="$n" '
        / error: / { errors++; lines = 0 }
        { lines++ }
        lines == 19 { print "more than 20 lines, two of them before the error:"; print; long++ }
        END { if (errors != n) print errors " errors of " n " calls"; exit long || errors != n }' "$T/out" >"$T/said"
    verdict "$c c++20: misspelt options" $((!$?)) "$T/said"
done

# The same words in right programs: pointers of every kind, ternaries, constants, data of every form.
takes "c c++" '
    tensor_t *volatile q = x;
    tensor_t *(*twice)(tensor_t *, tensor_t *) = tensor_add;
    tensor_t *const pair[2] = {x, c};
    x = tensor_add(x, tensor_mul(c, pair[k]));
    x = tensor_add(k ? x : NULL, q);
    x = tensor_linear(x, c, NULL);
    x = tensor_where(x, k ? x : c, twice(x, c));
    x = (tensor_add)(x, c);
    x = tensor_zeros(2, k, 3 * (k + 1));
    x = tensor_zeros((k));
    x = tensor_zeros((k + 1) * 2, (k));
    x = tensor_zeros((k > 1 ? k : 2), 3);
    x = tensor_reshape(x, (int)tensor_numel(x) / 2, 2);
    x = tensor_full(0.5, TENSOR_MAX_DIMS, k);
    x = tensor_zeros_of(TENSOR_I64, 2, 3);
    x = nn_forward(m, x);'
takes "c" '
    x = tensor_add(v, tensor_relu(v));
    x = tensor_add(x, NULL);
    x = tensor_add(x, 0);
    x = nn_forward(v, v);
    m = nn_sequential(v, m, k ? m : NULL);
    m = nn_sequential(m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m);'
takes "c c++" '
    nn_module_t *(*make)(void) = nn_relu;
    const int64_t sizes[] = {2, 3, 4};
    int i = 0;
    m = nn_sequential(nn_linear(2, 3), nn_relu(), make(), k ? m : nn_tanh());
    m = nn_append(m, (nn_module_t *)v);
    m = nn_linear(k, sizes[i++]);
    m = nn_linear(4, k);
    m = nn_conv2d(3, 64, 3);
    m = nn_max_pool2d(2);
    nn_adam(m);'
takes "c" '
    m = nn_linear(.in_features = 2, .out_features = 3);
    m = nn_linear(2, .out_features = 3, .no_bias = 1);
    m = nn_conv2d(3, 64, .kernel_h = 3, .kernel_w = 1);
    m = nn_conv2d(3, 64, 3, 2, 1, .no_bias = 1);
    m = nn_max_pool2d(2, 2);
    m = nn_upsample(.scale_factor = 2);
    nn_adam(m, .lr = 0.01);
    nn_adam(.list = &x, .count = 1);'
takes "c c++" '
    static float grid[2][3], cube[2][2][2];
    static const double line[2] = {1, 2};
    static struct v3 vectors[4];
    static unsigned char bytes[16];
    static uint16_t halves[2];
    static uint32_t bits[2];
    int64_t longs[2] = {1, 2}, dims[1] = {2};
    const float *first = p;
    x = tensor_from(grid, TENSOR_F32, 2, 3);
    x = tensor_from(cube, TENSOR_F32, 2, 2, 2);
    x = tensor_from(line, TENSOR_F64, 2);
    x = tensor_from(vectors, TENSOR_F32, 4, 3);
    x = tensor_from(bytes, TENSOR_F32, 4);
    x = tensor_from(halves, TENSOR_BF16, 2);
    x = tensor_from(bits, TENSOR_F32, 2);
    x = tensor_from(longs, TENSOR_I64, 2);
    x = tensor_from(first, TENSOR_F32, 2);
    x = tensor_from(p++, TENSOR_F32, 2);
    x = tensor_from(p + k, (tensor_dtype_t)k, 2);
    x = tensor_from(v, TENSOR_F32, 2);
    x = tensor_from(o, TENSOR_F32, 2);
    x = tensor_from("ab", TENSOR_U8, 2);
    x = tensor_from(NULL, TENSOR_F32, 0);
    x = tensor_from(&grid[0][1], TENSOR_F32, 2);
    x = tensor_from_n(grid, TENSOR_F32, dims, 1);
    x = tensor_wrap(grid, TENSOR_F32, 2, 3);
    x = tensor_wrap(v, TENSOR_F32, 2, 3);
    x = tensor_wrap_n(p, TENSOR_F32, dims, 1, NULL, NULL);
    tensor_copy_out(x, grid, sizeof grid);
    tensor_copy_out(x, v, sizeof(float[6]));'
takes "c" '
    x = tensor_from(((float[]){1, 2, 3}), TENSOR_F32, 3);
    x = tensor_from_n((const int32_t[]){0, 20, 1}, TENSOR_I32, (const int64_t[]){3}, 1);'

takes "c++" '
    tensor_ref a = x, b = x;
    bool r = a == nullptr || nullptr != b || a.get() == b.get() || !a || (a && x == b.get());
    (void)r;'

if [ $skipped -gt 0 ]; then echo "skipped: $skipped compilers of four that are not there"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
