# compile.sh - every way the headers can be compiled, all warnings as errors; each program is linked and run. Those with
# the whole implementation print the same bits, whatever the language, the optimisation, the compiler and the threads.
#   CC, CXX      a C and a C++ compiler (one that is missing is left out), or
#   COMPILERS    "gcc:g++ clang:clang++": pairs that must all be there
# Ends with "N passed, N failed".
B=${B:-build}
M=$B/compile
CC=${CC:-cc}
CXX=${CXX:-c++}
if [ -z "$COMPILERS" ]; then
    COMPILERS=$CC:
    if command -v "$CXX" >/dev/null 2>&1; then COMPILERS=$CC:$CXX; else echo "no $CXX: C++ is not tested"; fi
fi
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}
# -O1, where the flow analysis behind some warnings runs, once per compiler and language; -O0 takes half the time.
quick="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I. -pthread"
warn="$quick -O1"
count=0
rm -rf "$M"
mkdir -p "$M"

# job PHASE NAME COMMAND: phase 1 makes objects, phase 2 links them and runs the result.
job() {
    count=$((count + 1))
    id=$(printf '%s/%s-%03d' "$M" "$1" $count)
    echo "$2" >"$id.name"
    printf '%s\n' "$3" >"$id.sh"
}
run() {
    find "$M" -name "$1-*.sh" | sort |
        xargs -P "$jobs" -n 1 sh -c 'sh "$0" >"$0.out" 2>&1; echo $? >"$0.rc"'
}
# program NAME LINKER OBJECTS: must print "fine".
program() {
    job 2 "$1" "$2 -pthread $3 -lm -o $M/$1 && test \"\$($M/$1)\" = fine"
}
# bits NAME LINKER OBJECTS: compile_bits.c with an implementation, on one thread and on three; what it prints is compared.
bits() {
    job 2 "$1 makes bits" "$2 -pthread -I. tests/compile_bits.c $3 -lm -o $M/bits-$1 &&
        $M/bits-$1 1 >$M/bits-$1.1 && $M/bits-$1 3 >$M/bits-$1.3"
}
# unit NAME LINES...: a source file of these lines.
unit() {
    name=$1
    shift
    printf '%s\n' "$@" >"$M/$name"
}

unit impl.c '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"'
for k in 1 2 3 4; do unit part$k.c "#define TENSOR_IMPLEMENTATION_PART $k" '#include "impl.c"'; done
unit core.c '#define TENSOR_IMPLEMENTATION' '#include "tensor.h"'
unit nn.c '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"'
unit order.c '#include "tensor_nn.h"' '#define TENSOR_IMPLEMENTATION' '#include "tensor.h"' \
    '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"' '#include "tensor.h"' '#include "tensor_nn.h"'
unit static.c '#define TENSOR_STATIC' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' \
    '#include "tests/compile_use.c"' '#include "tests/compile_other.c"'
unit only.c '#include "tensor.h"' 'int main(void) { return 0; }'
native=
case $(uname -m) in x86_64 | amd64) native=-march=native ;; esac

# Words that windows.h, complex.h and old Unix compilers define: none may be a parameter or member of ours.
hostile="-Dnear= -Dfar= -Dsmall=char -Dinterface=struct -Dunix=1 -Dlinux=1 -DI=1i -DIN= -DOUT= -DCONST=const \
-DTRUE=1 -DFALSE=0 -DERROR=0 '-Dmin(a,b)=((a)<(b)?(a):(b))' '-Dmax(a,b)=((a)>(b)?(a):(b))'"

for pair in $COMPILERS; do
    c=${pair%%:*}
    cxx=${pair#*:}
    n=$(basename "$c" | tr -c 'a-zA-Z0-9\n' _)
    strict="$warn -Wstrict-prototypes -Wmissing-prototypes"
    strict0="$quick -Wstrict-prototypes -Wmissing-prototypes"
    for s in c99 c11; do
        for u in impl core nn order part1 part2 part3 part4; do
            case $s.$u in c11.core | c11.nn | c11.order | c11.impl | c99.part*) continue ;; esac
            level=$strict0
            if [ $s.$u = c99.impl ]; then level=$strict; fi
            job 1 "$n $s $u" "$c -std=$s $level -c $M/$u.c -o $M/$n-$s-$u.o"
        done
        for u in use other; do
            job 1 "$n $s $u" "$c -std=$s $strict -c tests/compile_$u.c -o $M/$n-$s-$u.o"
        done
        o="$M/$n-$s-use.o $M/$n-$s-other.o"
        if [ $s = c11 ]; then
            parts="$M/$n-$s-part1.o $M/$n-$s-part2.o $M/$n-$s-part3.o $M/$n-$s-part4.o"
            program "$n-$s-parts" "$c" "$parts $o"
            bits "$n-$s-O0" "$c" "$parts"
            continue
        fi
        program "$n-$s-whole" "$c" "$M/$n-$s-impl.o $o"
        program "$n-$s-apart" "$c" "$M/$n-$s-core.o $M/$n-$s-nn.o $o"
        program "$n-$s-order" "$c" "$M/$n-$s-order.o $o"
        job 1 "$n $s static" "$c -std=$s $quick -c $M/static.c -o $M/$n-$s-static.o"
        program "$n-$s-static" "$c" "$M/$n-$s-static.o"
        job 1 "$n $s header alone" "$c -std=$s $strict -fsyntax-only $M/only.c"
        job 1 "$n $s other people's macros" "$c -std=$s $warn $hostile -fsyntax-only $M/static.c"
        job 1 "$n $s -DNDEBUG -O3" "$c -std=$s $strict -DNDEBUG -O3 -c $M/impl.c -o $M/$n-$s-ndebug.o"
        program "$n-$s-ndebug" "$c" "$M/$n-$s-ndebug.o $o"
        bits "$n-$s-O1" "$c" "$M/$n-$s-impl.o"
        bits "$n-$s-O3" "$c" "$M/$n-$s-ndebug.o"
        job 1 "$n gnu11 -O3 $native" "$c -std=gnu11 -O3 $native -pthread -I. -c $M/impl.c -o $M/$n-gnu11.o"
        bits "$n-gnu11-O3" "$c" "$M/$n-gnu11.o"
        # Flags of the program's own. The manual asks not to give clang -ffp-contract=fast.
        relaxed="-std=gnu17 -O2 -fno-builtin -funsigned-char"
        if $c --version | grep -q "Free Software"; then relaxed="$relaxed -flto -ffp-contract=fast"; fi
        job 1 "$n relaxed" "$c $relaxed -pthread -I. -c $M/impl.c -o $M/$n-relaxed.o"
        bits "$n-relaxed" "$c $relaxed" "$M/$n-relaxed.o"
        [ "$c" = "${COMPILERS%%:*}" ] || continue        # the switches: with the first compiler only
        for d in NO_STDIO NO_THREADS NO_CALL_SITES ISA=scalar ISA=native; do
            job 1 "$n $s TENSOR_$d" "$c -std=$s $strict0 -DTENSOR_$d -c $M/impl.c -o $M/$n-$d.o"
            for u in use other; do
                job 1 "$n $s TENSOR_$d $u" "$c -std=$s $strict -DTENSOR_$d -c tests/compile_$u.c -o $M/$n-$d-$u.o"
            done
            program "$n-$d" "$c" "$M/$n-$d.o $M/$n-$d-use.o $M/$n-$d-other.o"
            # The switches change no struct: files of one program may differ in them.
            program "$n-$d-mixed" "$c" "$M/$n-$d.o $o"
        done
    done
    [ -n "$cxx" ] || continue
    for s in c++11 c++20; do
        level=$quick
        if [ $s = c++11 ]; then level=$warn; fi
        parts=impl
        if [ $s = c++20 ]; then parts="part1 part2 part3 part4"; fi
        objects=
        for u in $parts; do
            job 1 "$n $s $u" "$cxx -x c++ -std=$s $level -c $M/$u.c -o $M/$n-$s-$u.o"
            objects="$objects $M/$n-$s-$u.o"
        done
        for u in use other; do
            job 1 "$n $s $u" "$cxx -x c++ -std=$s $warn -c tests/compile_$u.c -o $M/$n-$s-$u.o"
        done
        job 1 "$n $s face" "$cxx -std=$s $warn -c tests/compile_face.cpp -o $M/$n-$s-face.o"
        program "$n-$s-whole" "$cxx" "$objects $M/$n-$s-use.o $M/$n-$s-other.o"
        bits "$n-$s" "$cxx -x c++ -std=$s" "-x none $objects"
        program "$n-$s-user-of-c" "$cxx" "$M/$n-c99-impl.o $M/$n-$s-use.o $M/$n-$s-other.o"
        program "$n-$s-face" "$cxx" "$M/$n-c99-impl.o $M/$n-$s-face.o"
    done
done

# Products by OpenBLAS, where it is.
c=${COMPILERS%%:*}
echo '#include <cblas.h>
int main(void) { return cblas_sdot(0, 0, 1, 0, 1) != 0; }' > $M/cblas.c
if $c $M/cblas.c -lopenblas -o $M/cblas 2>/dev/null; then
    for t in conv sequence; do
        job 1 "TENSOR_USE_OPENBLAS $t" "$c -std=c99 $warn -O1 -DTENSOR_USE_OPENBLAS -c $M/impl.c -o $M/blas-$t-impl.o &&
            $c -std=c99 -O1 -I. -pthread tests/$t.c $M/blas-$t-impl.o -lopenblas -lm -o $M/blas-$t && OPENBLAS_NUM_THREADS=1 $M/blas-$t"
    done
else
    echo "skipped 2 tests of TENSOR_USE_OPENBLAS: no cblas.h with -lopenblas"
fi

# Words that TENSOR_ISA and its companions refuse, with a sentence.
c=${COMPILERS%%:*}
refused() {
    job 1 "$1 is refused" "! $c -std=c99 $1 -I. -fsyntax-only $M/impl.c 2>$M/refused.$count && grep -q '$2' $M/refused.$count"
}
refused -DTENSOR_ISA=avx3 'TENSOR_ISA is scalar, sse2'
refused -DTENSOR_ISA=wasm 'TENSOR_ISA is an instruction set that this target does not have'
refused -DTENSOR_NO_SIMD 'TENSOR_NO_SIMD is now TENSOR_ISA=scalar'
refused -DTENSOR_PASSES=16 'no pass of this target'
refused '-DTENSOR_ISA=scalar -DTENSOR_ALL_PASSES' 'TENSOR_ISA names one pass'
refused -DTENSOR_IMPLEMENTATION_PART=5 'TENSOR_IMPLEMENTATION_PART is 1 core'
refused '-DTENSOR_IMPLEMENTATION_PART=1 -DTENSOR_STATIC' 'TENSOR_STATIC is one file'
# Parts with other passes, and a core with others than tensor_nn.h, do not link, and the linker's text says the passes.
n=$(basename "$c" | tr -c 'a-zA-Z0-9\n' _)
job 1 "a part with another TENSOR_ISA" "$c -std=c99 $quick -DTENSOR_ISA=scalar -c $M/part3.c -o $M/other-part3.o"
job 2 "parts with other passes" "! $c -pthread $M/$n-c11-part[124].o $M/other-part3.o $M/$n-c11-use.o $M/$n-c11-other.o \
    -lm -o $M/other 2>$M/other.log && grep -q 'tensor__isa_.*_passes' $M/other.log"
job 1 "tensor_nn.h with another TENSOR_ISA" "$c -std=c99 $quick -DTENSOR_ISA=scalar -c $M/nn.c -o $M/other-nn.o"
job 2 "a core with other passes" "! $c -pthread $M/$n-c99-core.o $M/other-nn.o $M/$n-c99-use.o $M/$n-c99-other.o \
    -lm -o $M/other 2>$M/apart.log && grep -q 'tensor__build_.*_passes' $M/apart.log"

for macro in AUTOGRAD THREADS STDIO; do
    text=$(case $macro in AUTOGRAD) echo _forward ;; THREADS) echo _no_threads ;; STDIO) echo _no_stdio ;; esac)
    job 1 "tensor_nn.h with TENSOR_NO_$macro" "$c -std=c99 $quick -DTENSOR_NO_$macro -c $M/nn.c -o $M/nn-$macro.o"
    job 2 "a core without TENSOR_NO_$macro" "! $c -pthread $M/$n-c99-core.o $M/nn-$macro.o $M/$n-c99-use.o \
        $M/$n-c99-other.o -lm -o $M/other 2>$M/$macro.log && grep -q 'tensor__build_.*$text' $M/$macro.log"
done

# What must not compile silently.
unit surplus.c '#include "tensor_nn.h"' 'nn_module_t *f(void);' \
    'nn_module_t *f(void) { return nn_linear(2, 3, 4); }'
unit missing.c '#include "tensor_nn.h"' 'nn_module_t *f(void);' 'nn_module_t *f(void) { return nn_linear(); }'
c=${COMPILERS%%:*}
for u in surplus missing; do
    job 1 "$u argument is refused" "! $c -std=c99 $warn -fsyntax-only $M/$u.c"
done

run 1
run 2
passed=0
failed=0
for name in $(find "$M" -name '*.name' | sort); do
    id=${name%.name}
    if [ "$(cat "$id.sh.rc" 2>/dev/null)" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$(cat "$name"): $(cat "$id.sh" | head -n 1)"
        head -n 12 "$id.sh.out" | sed 's/^/    /'
    fi
done
first=
for p in "$M"/bits-*.1 "$M"/bits-*.3; do
    if [ -s "$p" ] && cmp -s "${first:=$p}" "$p"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$(basename "$p") differs from $(basename "$first"):"
        diff "$first" "$p" | head -n 12
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
