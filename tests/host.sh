# host.sh - builds that differ: orders of the headers, precompiled and unity builds, other floating-point flags, tcc,
# strict C, musl, the target of MSVC, a plugin that is unloaded. MinGW is in windows.sh.
#
#   sh tests/host.sh            uses $B (build), $CC (cc), $CXX (c++), $CLANG (clang)
#
# A tool that is missing is a line "skipped N tests of ..". The last line is "N passed, N failed".
B=${B:-build}
CC=${CC:-cc}
CXX=${CXX:-c++}
CLANG=${CLANG:-clang}
out=$B/host.d
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out"

have() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "skipped $1 tests of $2"; }
# test NAME COMMAND: the shell command must succeed.
try() {
    if sh -c "$2" >"$out/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: $2"
        tail -n 15 "$out/log" | sed 's/^/    /'
    fi
}
# refused NAME TEXT COMMAND: the compiler must say TEXT and fail.
refused() {
    if sh -c "$3" >"$out/log" 2>&1 || ! grep -q -e "$2" "$out/log"; then
        failed=$((failed + 1))
        echo "$1: not refused with \"$2\": $3"
        tail -n 5 "$out/log" | sed 's/^/    /'
    else
        passed=$((passed + 1))
    fi
}
unit() {
    name=$1
    shift
    printf '%s\n' "$@" >"$out/$name"
}

# ---- orders of the headers ----

core='#define TENSOR_IMPLEMENTATION'
layers='#define TENSOR_NN_IMPLEMENTATION'
nn='#include "tensor_nn.h"'
t='#include "tensor.h"'
use='int use(void) { return tensor_version() + (nn_relu() == 0); }'
unit impl.c "$core" "$layers" "$nn"
unit order1.c "$nn" "$core" "$layers" "$nn"
unit order2.c "$t" "$nn" "$core" "$layers" "$nn" "$t"
unit order3.c "$nn" "$core" "$layers" "$t" "$nn"
unit order4.c "$layers" "$nn" "$core" "$t" "$nn"
unit order5.c "$t" "$core" "$t" "$nn" "$layers" "$nn"
unit unity.c "$nn" "$use" '#include "impl.c"' "$nn" 'int other(void) { return use() + tensor_ok(); }'
for form in order1 order2 order3 order4 order5 unity; do
    try "$form, C" "$CC -std=c99 -Wall -Werror -I. -fsyntax-only $out/$form.c"
done
try "force-included, C" "$CC -std=c99 -Wall -Werror -I. -include tensor_nn.h -fsyntax-only $out/impl.c"
unit pch.h "$nn"
try "precompiled, C" "$CC -std=c99 -I. -x c-header $out/pch.h -o $out/pch.h.gch &&
    $CC -std=c99 -Wall -Werror -Winvalid-pch -I. -include $out/pch.h -fsyntax-only $out/impl.c"
rm -f "$out/pch.h.gch"
if have "$CXX"; then
    for form in order1 order3 unity; do
        try "$form, C++" "$CXX -x c++ -std=c++11 -Wall -Werror -I. -fsyntax-only $out/$form.c"
    done
    try "precompiled, C++" "$CXX -std=c++11 -I. -x c++-header $out/pch.h -o $out/pch.h.gch &&
        $CXX -x c++ -std=c++11 -Wall -Werror -I. -include $out/pch.h -fsyntax-only $out/impl.c"
    rm -f "$out/pch.h.gch"
else
    skip 4 "orders in C++: no $CXX"
fi

# ---- floating point ----

unit shared.c '#define TENSOR_BACKEND' "$t"
method() { echo "$CC -std=c99 -I. -U__FLT_EVAL_METHOD__ -D__FLT_EVAL_METHOD__=$1 -fsyntax-only $out/shared.c"; }
refused "FLT_EVAL_METHOD 2" "-msse2 -mfpmath=sse" "$(method 2)"
refused "FLT_EVAL_METHOD 1" "-std=gnu99" "$(method 1)"
try "FLT_EVAL_METHOD 0" "$(method 0)"
try "FLT_EVAL_METHOD 16" "$(method 16)"
x86=
printf '#include <stdlib.h>\n#include <errno.h>\n' >"$out/probe.c"
# Where -m32 has no headers of the kernel of its own, those for 64 bits do.
for c in i686-linux-gnu-gcc "$CC -m32 -idirafter /usr/include/$($CC -dumpmachine)"; do
    if [ -z "$x86" ] && $c -fsyntax-only "$out/probe.c" 2>/dev/null; then x86=$c; fi
done
case $($CC -dumpmachine) in x86_64* | i?86*) ;; *) x86= ;; esac
if [ -n "$x86" ]; then
    refused "x87" "-msse2 -mfpmath=sse" "$x86 -std=c99 -march=i686 -mfpmath=387 -I. -fsyntax-only $out/shared.c"
    refused "x87, gnu99" "-msse2 -mfpmath=sse" "$x86 -std=gnu99 -march=i686 -mfpmath=387 -I. -fsyntax-only $out/shared.c"
else
    skip 2 "32-bit x86: no compiler"
fi

# ---- 32-bit pointers: files with sizes beyond them, the readers, the inputs of the fuzz targets ----

# Whoever links: gcc with its own runtime (gcc-multilib), clang with its own; with sanitizers where they are there, else
# with traps, which need no runtime.
linked=
printf '#include <stdio.h>\n#include <errno.h>\nint main(void) { return sizeof(void *) != 4; }\n' >"$out/four.c"
for sanitizers in "-fsanitize=address,undefined -fno-sanitize-recover=all" "-fsanitize=undefined -fsanitize-trap=undefined" \
    ""; do
    for c in "$CC -m32" "$CLANG -m32 -rtlib=compiler-rt --unwindlib=none -Wno-unused-command-line-argument"; do
        c="$c -msse2 -mfpmath=sse -idirafter /usr/include/$($CC -dumpmachine) $sanitizers"
        if [ -z "$linked" ] && $c "$out/four.c" -o "$out/four" 2>/dev/null && "$out/four"; then linked=$c; fi
    done
done
case $($CC -dumpmachine) in x86_64* | i?86*) ;; *) linked= ;; esac
if [ -n "$linked" ]; then
    try "32 bits" "$linked -std=c99 -Wall -Wextra -Werror -O1 -pthread -I. -c $out/impl.c -o $out/impl32.o"
    for p in malformed seeds formats kit_csv kit_gguf kit_lora kit_readers kit_text kit_torchfile kit_transforms readers; do
        try "32 bits, tests/$p" "$linked -std=c99 -O1 -pthread -I. tests/$p.c $out/impl32.o -lm -o $out/$p.32 && timeout 600 $out/$p.32"
    done
else
    skip 12 "32-bit pointers: no compiler that links"
fi
fast() { echo "$1 -std=c99 -O2 $2 -I. -fsyntax-only $out/shared.c"; }
refused "-ffast-math" "NaN rules" "$(fast "$CC" -ffast-math)"
refused "-ffinite-math-only" "NaN rules" "$(fast "$CC" -ffinite-math-only)"
try "-ffast-math, allowed" "$(fast "$CC" '-ffast-math -DTENSOR_ALLOW_FAST_MATH')"
if $CC --version | grep -q "Free Software"; then
    for flag in -funsafe-math-optimizations -freciprocal-math -fno-signed-zeros \
        "-fassociative-math -fno-signed-zeros -fno-trapping-math"; do
        refused "$flag" "NaN rules" "$(fast "$CC" "$flag")"
    done
else
    skip 4 "gcc's flags: $CC is another compiler"
fi
# clang does not tell of the others: no sum, difference, product, quotient or comparison may carry them. (Negations do,
# whatever a pragma says: a zero may come with the other sign.)
if have "$CLANG"; then
    refused "clang -ffinite-math-only" "NaN rules" "$(fast "$CLANG" -ffinite-math-only)"
    unit slice.c "$core" "$t"
    code="$CLANG -std=c99 -O1 -Xclang -disable-llvm-passes -DTENSOR_ISA=scalar -funsafe-math-optimizations -I. -S -emit-llvm \
        $out/slice.c -o $out"
    relaxed='= f(add|sub|mul|div|rem|cmp) (fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)'
    try "clang -funsafe-math-optimizations" "$code/unsafe.ll && grep -q '= fadd' $out/unsafe.ll &&
        ! grep -E '$relaxed' $out/unsafe.ll"
    try "clang -funsafe-math-optimizations, allowed" "$code/allowed.ll -DTENSOR_ALLOW_FAST_MATH &&
        grep -qE '$relaxed' $out/allowed.ll"
else
    skip 3 "clang's flags: no $CLANG"
fi

# ---- tcc: no extensions of gcc, atomics or thread-local words ----

if have tcc; then
    refused "tcc with threads" "define TENSOR_NO_THREADS" "tcc -I. -c $out/impl.c -o $out/tcc.o"
    tcc="tcc -DTENSOR_NO_THREADS -I."
    try "tcc" "$tcc -c $out/impl.c -o $out/tcc.o"
    sed -n 's,^//   \(.*[0-9]\].*\),\1,p' examples/03_xor.c >"$out/xor.want"
    try "tcc, XOR" "$tcc examples/03_xor.c -lm -o $out/xor && $out/xor >$out/xor.got && diff $out/xor.want $out/xor.got"
    for p in autograd nn_rows; do
        try "tcc, tests/$p" "$tcc tests/$p.c $out/tcc.o -lm -o $out/$p && $out/$p"
    done
else
    skip 5 "tcc: not installed"
fi

# ---- strict C, as on systems without GNU's extensions; a static program on musl ----

printf '%s\n' '#include "tensor_nn.h"' 'int main(void) {' \
    '    nn_module_t *net = nn_sequential(nn_linear(2, 3, .no_bias = 1), nn_relu());' \
    '    tensor_t *y = nn_forward(net, tensor_ones(4, 2));' \
    '    return tensor_numel(y) != 12 || tensor_shutdown();' '}' >"$out/strict.c"
if have "$CLANG"; then
    strict="$CLANG -pedantic-errors -Wgnu -Wall -Wextra -Werror -I. -fsyntax-only"
    try "strict C99" "$strict -std=c99 $out/impl.c && $strict -std=c99 $out/strict.c"
    try "strict C11" "$strict -std=c11 $out/impl.c && $strict -std=c11 $out/strict.c"
else
    skip 2 "strict C: no $CLANG"
fi
if have musl-gcc; then
    try "musl, static" "musl-gcc -std=c99 -O0 -Wall -Wextra -Werror -DTENSOR_ISA=scalar -I. -static $out/strict.c $out/impl.c -lm \
        -o $out/musl && $out/musl && ! readelf -d $out/musl | grep NEEDED"
else
    skip 1 "a static program on musl: no musl-gcc"
fi

# ---- the target of MSVC: what it would take by clang's word, and the branches that are MSVC's own ----

if have "$CLANG" && $CLANG --target=x86_64-pc-windows-msvc -fms-compatibility -nostdlibinc -isystem tests/msvc \
    -fsyntax-only "$out/probe.c" 2>/dev/null; then
    msvc="$CLANG --target=x86_64-pc-windows-msvc -fms-compatibility -fms-extensions -nostdlibinc -isystem tests/msvc -I. \
        -Wall -Wextra -Werror -Wno-unused-function -Wno-return-type-c-linkage -fsyntax-only"
    own="-U__clang__ -U__GNUC__ -Wno-unknown-pragmas -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl"
    export_="'-DTENSOR_API=__declspec(dllexport)'"
    try "MSVC's target, C" "$msvc -std=c11 $export_ $out/impl.c"
    try "MSVC's branches, C" "$msvc $own -std=c11 $out/impl.c"
    try "MSVC's branches, C++" "$msvc $own $export_ -x c++ -std=c++14 $out/impl.c"
else
    skip 3 "MSVC's target: no $CLANG that has it"
fi

# ---- a plugin that is unloaded while threads that used it live; its own word before public functions ----

cat >"$out/plugin.c" <<'END'
#define TENSOR_API __attribute__((visibility("default")))
#define TENSOR_IMPLEMENTATION
#define TENSOR_NN_IMPLEMENTATION
#include "tensor_nn.h"
__attribute__((visibility("default"))) double plugin_sum(void) {
    tensor_scope_t s = tensor_scope_begin();
    double r = tensor_item(tensor_sum(tensor_keep(tensor_ones(100))));
    tensor_scope_end(s);
    return r;
}
END
cat >"$out/loader.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
static const char *path, *how;
static void *plugin;
static pthread_barrier_t bar;
static int good;
typedef double (*sum_t)(void);
typedef int (*shutdown_t)(void);
typedef void (*end_t)(void);
static void *find(const char *name) {
    void *p = dlsym(plugin, name);
    if (!p) printf("%s is not exported\n", name);
    return p;
}
static void *job(void *user) {
    (void)user;
    good &= ((sum_t)find("plugin_sum"))() == 100;
    if (strcmp(how, "ends") == 0) ((end_t)find("tensor_thread_end"))();
    pthread_barrier_wait(&bar);
    pthread_barrier_wait(&bar);        // unloaded
    return NULL;                       // and the destructors of keys run
}
int main(int n, char **v) {
    int turn;
    good = n == 4;
    path = v[1];
    how = v[2];
    if (strcmp(v[3], "keys") == 0) {   // none is left for the library, and the first is another's
        pthread_key_t first, key;
        pthread_key_create(&first, NULL);
        pthread_setspecific(first, &first);
        while (pthread_key_create(&key, NULL) == 0) {}
        plugin = dlopen(path, RTLD_NOW);
        good &= ((sum_t)find("plugin_sum"))() == 100;
        good &= pthread_getspecific(first) == &first;
        good &= ((shutdown_t)find("tensor_shutdown"))() == 0;
        good &= dlclose(plugin) == 0;
        puts(good ? "fine" : "wrong");
        return !good;
    }
    pthread_barrier_init(&bar, NULL, 2);
    for (turn = 0; turn < 3; turn++) {
        pthread_t t;
        plugin = dlopen(path, RTLD_NOW);
        if (!plugin) { puts(dlerror()); return 1; }
        pthread_create(&t, NULL, job, NULL);
        pthread_barrier_wait(&bar);
        if (strcmp(how, "ends") != 0) good &= ((shutdown_t)find("tensor_shutdown"))() == 0;
        good &= dlclose(plugin) == 0;
        if (dlopen(path, RTLD_NOW | RTLD_NOLOAD)) { puts("still there"); good = 0; }
        pthread_barrier_wait(&bar);
        pthread_join(t, NULL);
    }
    puts(good ? "fine" : "wrong");
    return !good;
}
END
if [ "$(uname -s)" = Linux ]; then
    try "plugin" "$CC -std=c99 -O0 -fPIC -shared -fvisibility=hidden -DTENSOR_ISA=scalar -pthread -I. $out/plugin.c -lm \
        -o $out/plugin.so && $CC -std=gnu99 -O0 $out/loader.c -ldl -pthread -o $out/loader"
    try "unloaded after a shutdown" "$out/loader $out/plugin.so shutdown - | grep fine"
    try "unloaded after the threads' ends" "$out/loader $out/plugin.so ends - | grep fine"
    try "no key left" "$out/loader $out/plugin.so shutdown keys | grep fine"
else
    skip 4 "plugins: not Linux"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
