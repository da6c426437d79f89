# cuda.sh - tensor_cuda.cu without a GPU: emulator, allocator and kernels, plain and under sanitizers; the tests of
# ops and devices on it, without and with (fake) libraries; what nvcc says
#
#   sh tests/cuda.sh            uses $B (build), $CXX (g++), $NVCC (nvcc) and CUDA's headers beside it, or $CUDA/include
#
# What ran by kernels of its own, and what by the CPU's, must be as tests/cuda/rows.txt has it, from which docs/ops.md
# is made: a row that gained or lost a kernel is entered with  cp $B/cuda/rows.txt tests/cuda/  and  make docs.
# How kernels go through memory must be as tests/cuda/sectors.txt has it (sectors of 32 bytes, launches, blocks), which is
# entered with  cp $B/cuda/sectors.txt tests/cuda/. With FULL=1 the table of bench/results/gpu-counts.md is made again, and
# tests/cuda/moved.txt: what each kernel moved meanwhile, requests of warps and the sectors that they touched.
# FULL=1 adds the sanitizers and nvcc. Needs CUDA's headers and g++ on Linux; without them it prints "skipped N tests:
# why", where each program and each list that is compared is one. NVCC= skips the check of registers and of the width
# of accesses. JOBS programs and compilers work at a time; the seconds of the longest are printed. What failed is
# repeated at the end, in lines that begin with "failed: "; the last line is "N passed, N failed". See
# tests/cuda/cusim.h.
B=${B:-build}
CC=${CC:-cc}
CXX=${CXX:-g++}
NVCC=${NVCC-nvcc}
JOBS=${JOBS:-2}
out=$B/cuda
passed=0
failed=0
said=
mkdir -p "$out"
rm -f "$out"/*.log "$out"/*.ran "$out"/*.seconds
plain="selftest-plain alloc-plain kernels-plain libraries-plain sectors device-cuda device-libraries gpus-libraries
       profiled-cuda streams-cuda nn_rows-cuda ops-cuda ops-libraries custom_kernel idle standin"
checked="device-asan streams-asan streams-tsan selftest-asan alloc-asan kernels-asan libraries-asan selftest-tsan
         alloc-tsan kernels-tsan counts"
lists="rows.txt kernels"                        # compared when all has run

if [ -z "$CUDA" ]; then
    nvcc=$(command -v "${NVCC:-nvcc}" || echo /usr/local/cuda/bin/nvcc)
    CUDA=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
fi
# fail N WHAT: counts N failures; WHAT is repeated at the end.
fail() {
    failed=$((failed + $1))
    shift
    said="${said}failed: cuda.sh: $*
"
}
skipped() {                                     # skipped WHY NAME..
    why=$1
    shift
    echo "skipped $# tests of tensor_cuda.cu: $why"
}
skip() {
    skipped "$1" $plain $checked nvcc $lists
    echo "0 passed, 0 failed"
    exit 0
}
[ -f "$CUDA/include/cuda_runtime_api.h" ] || skip "no CUDA headers (set CUDA to the toolkit's folder)"
echo 'template <class T> int f() { if constexpr (sizeof(T) > 1) { return 0; } return 1; } int main() { return f<int>(); }' \
    > "$out/probe.cpp"
$CXX -std=c++17 -fsyntax-only "$out/probe.cpp" 2>/dev/null || skip "$CXX does not compile C++17"

if [ -n "$NVCC" ] && ! command -v "$NVCC" > /dev/null && [ -x "$CUDA/bin/nvcc" ]; then NVCC=$CUDA/bin/nvcc; fi
export CUDA                                     # libraries.cpp looks there for a real cuDNN
inc="-isystem $CUDA/include -I. -Itests/cuda"
flags="-std=c++17 -Wall -Wextra -Wshadow -Werror -ffp-contract=off -DTENSOR_CUDA_SIM"
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
limit="timeout ${TEST_TIMEOUT:-600}"

# side COMMAND..: in the background, as soon as fewer than JOBS others are there.
rm -f "$out/tokens"
mkfifo "$out/tokens" || exit 1
exec 3<> "$out/tokens"
for token in $(seq "$JOBS"); do echo "$token" >&3; done
side() {
    read -r token <&3
    {
        "$@"
        echo "$token" >&3
    } &
}
# timed NAME COMMAND..: its seconds, of a core and by the clock, go to NAME.seconds.
timed() {
    name=$1
    shift
    begin=$(date +%s)
    times > "$out/$name.times"
    "$@"
    times >> "$out/$name.times"
    sed 's/m/ /g; s/s//g' "$out/$name.times" | awk -v name="$name" -v wall=$(($(date +%s) - begin)) '
        NR % 2 == 0 { n[NR] = $1 * 60 + $2 + $3 * 60 + $4 }     # children, user and system
        END { printf "%.0f s of %d %s\n", n[4] - n[2], wall, name }' > "$out/$name.seconds"
}
# compiled NAME COMPILER.. -o OBJECT: what it says is in NAME.log. An older object would be linked where it fails.
compiled() { timed "compile-$1" compile_to "$@"; }
compile_to() {
    log=$out/$1.log
    shift
    for object in "$@"; do :; done
    rm -f "$object"
    "$@" > "$log" 2>&1
}
# program NAME FILES: links and runs it; what it says and its count are in NAME.log, behind what its compiler said.
program() { timed "$1" run_program "$@"; }
run_program() {
    name=$1
    shift
    {
        if $CXX "$@" -pthread -lm -ldl -o "$out/$name"; then
            CUSIM_KERNELS=$out/$name.ran $limit "$out/$name" $arg || echo "ended with status $?"
        fi
    } >> "$out/$name.log" 2>&1
}
# in_c NAME FLAGS: a test of tests/ with tensor_cuda.cu for its device.
in_c() {
    compiled "$1-cuda" $CC -std=c99 -Wall -Wextra $2 -DTEST_CUDA -DTEST_CUDA_SIM -pthread -I. -c "tests/$1.c" -o "$out/$1.o"
}
# example NAME: runs examples/NAME.cu and compares what it prints with its first comment.
example() { timed "$1" run_example "$1"; }
run_example() {
    {
        sed 's/\([a-z_]*\)<<<\(.*\)>>>(/tcu_launch(\1, \2, /' "examples/$1.cu" > "$out/$1.cpp"
        sed -n '/^\/\/ Output:$/,/^[^\/]/s,^//   ,,p' "examples/$1.cu" > "$out/$1.want"
        if $CXX -std=c++17 -Wall -Wextra -Werror $inc -DTENSOR_CUDA_SIM -include tests/cuda/cusim.h -c "$out/$1.cpp" \
            -o "$out/$1.o" && $CXX "$out/$1.o" $device "$impl" -pthread -lm -ldl -o "$out/$1" &&
            $limit "$out/$1" > "$out/$1.txt" && [ -s "$out/$1.want" ] && diff "$out/$1.want" "$out/$1.txt"; then
            echo "1 passed, 0 failed"
        else
            echo "0 passed, 1 failed"
        fi
    } > "$out/$1.log" 2>&1
}
# objects VARIANT FLAGS OPTIMIZATION: the emulator and the parts of its programs. kernels.o holds tensor_cuda.cu, for the
# programs in C too; with the fakes it is the tests of libraries.
objects() {
    side compiled "kernels-$1" $CXX $flags $inc $2 $3 -c tests/cuda/kernels.cpp -o "$out/kernels-$1.o"
    side compiled "cusim-$1" $CXX -std=c++17 -O2 -g1 $inc $2 -fno-tree-loop-distribute-patterns -c tests/cuda/cusim.cpp \
        -o "$out/cusim-$1.o"
    if [ "$1" != tsan ]; then
        side compiled "fakes-$1" $CXX $flags $inc $2 $3 -O1 -c tests/cuda/fakes.cpp -o "$out/fakes-$1.o"
    fi
    if [ "$1" != plain ]; then
        side compiled "streams-$1" $CC -std=c99 -DTEST_CUDA -DTEST_CUDA_SIM -DTEST_FEW $3 -pthread -I. -c tests/streams.c \
            -o "$out/few-$1.o"
    fi
}
# variant NAME FLAGS OPTIMIZATION OPERATIONS: the programs that come plain and with each sanitizer.
variant() {
    sim=$out/cusim-$1.o
    device="$out/kernels-$1.o $sim"
    arg=
    side program "kernels-$1" $3 $device "$impl"
    if [ "$1" != tsan ]; then
        side program "libraries-$1" $3 $device "$out/fakes-$1.o" "$impl"
    fi
    if [ "$1" != plain ]; then side program "streams-$1" $3 "$out/few-$1.o" $device "$impl"; fi
    side program "selftest-$1" $flags $inc $2 $3 tests/cuda/selftest.cpp "$sim" "$impl"
    speed=
    if [ "$1" = plain ]; then speed=-O2; fi             # its nanoseconds are shown
    arg=$4
    side program "alloc-$1" $flags $inc $2 $3 $speed tests/cuda/alloc.cpp "$sim" "$impl"
    arg=
}
# The trace of `make paper` on its driver that computes nothing: two steps, all of them the device's. What kernels.cpp
# tests with the emulator's own calls is left behind by the linker.
idle() { timed idle run_idle; }
run_idle() {
    rm -f "$out/idle.txt"
    {
        if $CXX -Wl,--gc-sections "$out/trace.o" "$out/kernels-plain.o" "$out/idle.o" "$impl" -pthread -lm -ldl -o "$out/idle" &&
            BATCH=1 STEPS=2 $limit "$out/idle" memory > "$out/idle.txt" &&
            awk '$1 == "memory_step_2" { steps = 1 } $1 == "on_the_cpu" && $2 == 0 { native = 1 }
                 END { exit !(steps && native) }' "$out/idle.txt"; then
            echo "1 passed, 0 failed"
        else
            cat "$out/idle.txt"
            echo "0 passed, 1 failed"
        fi
    } >> "$out/idle.log" 2>&1
}
# Without sanitizers: also the tests in C, the example, and bench/gpu.sh with bench/gpu.c.
plain_objects() {
    side in_c device -O1
    side in_c streams -O1
    side in_c nn_rows -O0
    side in_c ops_device -O0
    side compiled gpus-libraries $CC -std=gnu99 -Wall -Wextra -O1 -pthread -I. -c tests/parallel/gpus.c -o "$out/gpus.o"
    side compiled profiled-cuda $CC -std=c99 -Wall -Wextra -O1 -pthread -I. -c tests/parallel/profiled.c -o "$out/profiled.o"
    side compiled standin $CC -std=c99 -Wall -Wextra -O1 -I. -Ibench -c bench/gpu.c -o "$out/gpu.o"
    side compiled trace $CC -std=c99 -O1 -I. -c bench/trace.c -o "$out/trace.o"
    side compiled idle $CXX -std=c++17 -O1 $inc -c bench/idle.cpp -o "$out/idle.o"
    side compiled cusim-sectors $CXX -std=c++17 -O2 -g1 $inc -DCUSIM_SECTORS -c tests/cuda/cusim.cpp -o "$out/cusim-sectors.o"
    side compiled sectors $CXX $flags $inc -DCUSIM_SECTORS -O1 -fno-tree-sra -fsanitize=thread -c tests/cuda/sectors.cpp \
        -o "$out/sectors.o"
}
plain_programs() {
    device="$out/kernels-plain.o $out/cusim-plain.o"
    libraries="$device $out/fakes-plain.o"
    side standin
    side of_device                                      # its programs write a file of one name
    side program ops-cuda "$out/ops_device.o" $device "$impl"
    side program ops-libraries "$out/ops_device.o" $libraries "$impl"
    side program nn_rows-cuda "$out/nn_rows.o" $device "$impl"
    side program streams-cuda "$out/streams.o" $device "$impl"
    side program sectors "$out/sectors.o" "$out/cusim-sectors.o" "$impl"
    side example custom_kernel
    side idle
    arg=$out/gpus.safetensors
    side program gpus-libraries "$out/gpus.o" $libraries "$impl"
    arg=$out/profiled.json
    side program profiled-cuda "$out/profiled.o" $device "$impl"
    arg=
}
of_device() {
    program device-cuda "$out/device.o" $device "$impl"
    program device-libraries "$out/device.o" $libraries "$impl"
    if [ -n "$FULL" ]; then program device-asan $asan "$out/device.o" "$out/kernels-asan.o" "$out/cusim-asan.o" "$impl"; fi
}
standin() { timed standin run_standin; }
run_standin() { B=$B CXX=$CXX IMPL=$impl sh tests/gpu.sh >> "$out/standin.log" 2>&1; }
# What ops cost, by the emulator's counts, beside what they cost before: the table of bench/results/gpu-counts.md.
counted() { timed counts run_counts; }
run_counts() {
    $CC -std=gnu99 -Wall -Wextra -O1 -I. -c tests/cuda/counts.c -o "$out/counts.o" > "$out/counts.log" 2>&1 || return
    arg=tests/cuda/counts.txt
    run_program counts "$out/counts.o" "$out/sectors.o" "$out/cusim-sectors.o" "$impl"
    arg=
    grep '^| ' "$out/counts.log" > "$out/counts.md"
    moved > "$out/moved.txt"
    p=0
    {
        sed -n '/^| op /,/^$/p' bench/results/gpu-counts.md | grep '^| ' | diff - "$out/counts.md" &&
            [ "$(wc -l < "$out/counts.md")" -gt 80 ] && p=1
        diff tests/cuda/moved.txt "$out/moved.txt" && [ "$(wc -l < "$out/moved.txt")" -gt 90 ] && p=$((p + 1))
        echo "$p passed, $((2 - p)) failed"
    } >> "$out/counts.log"
}
# What each kernel moved in counts, dtypes and layouts together.
moved() {
    nm -C "$out/counts" | cat "$out/kernels.txt" "$out/counts.ran" - | awk '
        NF == 1 { kernel[$1] = 1; next }
        $2 ~ /^[0-9]+$/ { at[$1] = $0; next }
        $1 in at {
            split(at[$1], n, " ")
            $1 = $2 = ""
            sub(/^ *(void )?tcu::/, "")
            sub(/[<(].*/, "")
            if (!($0 in kernel) || n[1] in seen) next
            seen[n[1]] = there[$0] = 1
            for (k = 2; k < 8; k++) sum[$0, k] += n[k]
        }
        END {
            for (k in kernel) {
                if (!(k in there)) { print k ": not in counts.c"; continue }
                printf "%s: load %d sectors in %d requests, %d are enough; store %d in %d, %d\n", k, sum[k, 3], sum[k, 2],
                       (sum[k, 4] + 31) / 32, sum[k, 6], sum[k, 5], (sum[k, 7] + 31) / 32
            }
        }' | LC_ALL=C sort
}
# What only nvcc can say: no spills, 16-byte accesses in the kernels that live by bandwidth. The host's code, which does
# not run, is parsed and not compiled; kernels are the same as with -O3.
by_nvcc() { timed nvcc run_nvcc; }
run_nvcc() {
    {
        $NVCC -std=c++17 -O0 -Xcompiler -fsyntax-only -fmad=false -arch=sm_90 -I. -Xptxas -v --keep --keep-dir "$out/ptx" \
            -c tensor_cuda.cu -o "$out/tensor_cuda.o" 2> "$out/ptxas.txt" || cat "$out/ptxas.txt"
        spills=$(awk '/Compiling entry/ { name = $0 } / bytes spill stores/ && !/ 0 bytes spill stores/ { print name; print $0 }' \
            "$out/ptxas.txt")
        kernels=$(grep -c 'Compiling entry' "$out/ptxas.txt")
        echo "$kernels kernels; spills:"
        printf '%s\n' "$spills"
        narrow=$(awk '/^\.visible \.entry|^\.entry/ { name = $NF; load = store = 0 }
            /ld\.global[a-z0-9.:_]*\.v4\.[buf]32|ld\.global[a-z0-9.:_]*\.v2\.[buf]64/ { load = 1 }
            /st\.global[a-z0-9.:_]*\.v4\.[buf]32|st\.global[a-z0-9.:_]*\.v2\.[buf]64/ { store = 1 }
            /^}/ && name ~ /pointwise_rows|pointwise_backward_rows|softmax_rows|layer_norm_rows|optimizer_step|cast_flat|drop_outIf/ {
                zero = name ~ /slope_(ceil|floor|floor_divide|round|sign|trunc)E/       # reads nothing
                if (!((load || zero) && (store || name ~ /bool8/))) { print name }
            }
            /^}/ && name ~ /pointwise_integersI[il]/ && !(load && (store || name ~ /Lb1E/)) { print name }
            /^}/ && name ~ /random_f32|piece_norm/ && !store { print name }
            /^}/ && name ~ /pixel_[a-z_]*I[a-z0-9_]*Li[248]E/ && !(load && (store || name !~ /pixel_norm/)) { print name }
            /^}/ && name ~ /reduce_passI[f6]|reduce_columnsI[f6]/ && !load { print name }
            /^}/ { name = "" }' "$out/ptx/tensor_cuda.ptx")
        echo "without 16-byte accesses:"
        printf '%s\n' "$narrow"
        p=0
        if [ "$kernels" -gt 100 ]; then p=$((p + 1)); fi
        if [ -z "$spills" ]; then p=$((p + 1)); fi
        if [ -z "$narrow" ]; then p=$((p + 1)); fi
        echo "$p passed, $((3 - p)) failed"
    } > "$out/nvcc.log" 2>&1
}

# The kernels of the source.
awk '{ sub(/\/\/.*/, "") } /__global__ void/ { text = ""; open = 1 } open { text = text " " $0 }
    open && /[{]/ {
        sub(/.*__global__ void */, "", text); sub(/sizeof\([^)]*\)/, "", text)
        sub(/^ *__launch_bounds__\([^)]*\) */, "", text); sub(/\(.*/, "", text)
        print text
        open = 0
    }' tensor_cuda.cu | sort -u > "$out/kernels.txt"
impl=$B/tests/libtensor.a
if [ ! -f "$impl" ]; then
    impl=$out/tensor_impl.o
    printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' > "$out/tensor_impl.c"
    $CC -std=c99 -O0 -pthread -I. -c "$out/tensor_impl.c" -o "$impl" || exit 1
fi
# A driver with the name of the real one in which a kernel can be loaded and nothing else: cuDNN makes plans with it.
DRIVER=$PWD/$out/libcuda.so.1
case $out in /*) DRIVER=$out/libcuda.so.1 ;; esac
export DRIVER
nm -D --defined-only "$CUDA/lib64/stubs/libcuda.so" 2> /dev/null | awk '$2 == "T" {
        loads = $3 ~ /^cuLibrary(LoadData|GetKernel|Unload)$/
        print "int " $3 "(void **p) { " ($3 ~ /LoadData|GetKernel/ && loads ? "*p = (void *)4096;" : "(void)p;") \
              " return " (loads ? 0 : 34) "; }"
    }' > "$out/driver.c"
$CC -shared -fPIC -w -Wl,-soname,libcuda.so.1 "$out/driver.c" -o "$DRIVER" 2> /dev/null
names=$plain
trap="-O0 -ffunction-sections -fsanitize=alignment -fsanitize-undefined-trap-on-error"
# Without what others find: the plain build traps what is not aligned, ASan sees each access by a null pointer, the rest
# needs virtual functions or an optimizer.
asan="-O0 -g1 -fsanitize=address,undefined -fno-sanitize=alignment,null,vptr,object-size -fno-sanitize-recover=all"
tsan="-O0 -g1 -fsanitize=thread"
if [ -z "$FULL" ]; then
    skipped "sanitizers and nvcc take minutes; FULL=1, as in .ci/run, has them" $checked nvcc
else
    names="$names $checked"
    if [ -n "$NVCC" ] && command -v "$NVCC" > /dev/null; then
        names="$names nvcc"
        mkdir -p "$out/ptx"
        side by_nvcc
    else
        skipped "no nvcc" nvcc
    fi
    objects asan -DCUSIM_ASAN "$asan"
    objects tsan -DCUSIM_TSAN "$tsan"
fi
objects plain "" "$trap"
plain_objects
wait
if [ -n "$FULL" ]; then
    variant tsan -DCUSIM_TSAN "$tsan" 60000
    variant asan -DCUSIM_ASAN "$asan" 60000
    side counted
fi
plain_programs
variant plain "" "$trap" 2000000
wait
sed -n '/ was: /d; /^sectors /p' "$out/sectors.log" > "$out/sectors.txt"

for t in $names; do
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$out/$t.log" 2>/dev/null | tail -n 1)
    if [ -z "$last" ]; then
        echo "$t: ended without a count"
        tail -n 30 "$out/$t.log"
        fail 1 "$t ended without a count: $(tail -n 1 "$out/$t.log")"
        continue
    fi
    p=${last%% *}
    f=${last#*, }
    f=${f%% *}
    if [ "$f" -ne 0 ]; then
        echo "$t:"
        tail -n 40 "$out/$t.log" | sed 's/^/    /'
        what=$(grep -E '^[^ ]+:[0-9]+: |^gpu\.sh: | was: ' "$out/$t.log" | head -n 3)
        if [ -z "$what" ]; then what=$(tail -n 6 "$out/$t.log"); fi
        fail "$f" "$t: $(printf '%s' "$what" | tr '\n' ';')"
    elif grep -q '^ended with status' "$out/$t.log"; then   # a leak is found behind the count
        echo "$t:"
        tail -n 40 "$out/$t.log" | sed 's/^/    /'
        fail 1 "$t $(grep '^ended with status' "$out/$t.log"): $(grep '^SUMMARY' "$out/$t.log" | head -n 1)"
    fi
    passed=$((passed + p))
done
cat "$out"/device-cuda.log "$out"/nn_rows-cuda.log "$out"/ops-cuda.log 2>/dev/null | sed -n 's/^row //p' | awk -F': ' '{
        n = split($2, word, " ")
        for (i = 1; i <= n; i++) {
            cpu = sub(/^CPU:/, "", word[i])
            ran[$1 " " word[i]] += cpu ? 1000000 : 1
        }
        rows[$1] = 1
    }
    END {
        n = split("f32 f64 f16 bf16 i32 i64 u8 i8 i16 bool", dtype, " ")
        for (row in rows) {
            own = cpu = ""
            for (i = 1; i <= n; i++) {
                times = ran[row " " dtype[i]]
                if (times >= 1000000) { cpu = cpu " " dtype[i] } else if (times) { own = own " " dtype[i] }
            }
            print row ":" (own ? " native" own : "") (own && cpu ? "," : "") (cpu ? " over the CPU" cpu : "")
        }
    }' | LC_ALL=C sort > "$out/rows.txt"
if cmp -s "$out/rows.txt" tests/cuda/rows.txt; then
    passed=$((passed + 1))
else
    echo "tests/cuda/rows.txt is not what ran:"
    diff tests/cuda/rows.txt "$out/rows.txt" | head -n 20
    fail 1 "tests/cuda/rows.txt is not what ran: $(diff tests/cuda/rows.txt "$out/rows.txt" | head -n 3 | tr '\n' ';')"
fi
# Every kernel of the source ran in a program; and how many of the compiled ones did, dtypes apart.
for t in $names; do
    if [ -s "$out/$t.ran" ]; then nm -C "$out/$t" | cat "$out/kernels.txt" "$out/$t.ran" -; fi
done | awk 'length($1) == 16 && $1 ~ /^[0-9a-f]+$/ && (NF == 1 || $2 ~ /^[0-9]+$/) { at[$1] = 1; symbols = 0; next }
    NF == 1 { if (symbols) { split("", at) } kernel[$1] = 1; symbols = 0; next }
    { symbols = 1; place = $1; $1 = $2 = ""; name = $0; sub(/^ *(void )?tcu::/, "", name); base = name; sub(/[<(].*/, "", base)
      if (base in kernel && name !~ /site_?$|lambda|::guard/) { made[name] = 1; if (place in at) { ran[name] = there[base] = 1 } } }
    END { for (k in kernel) { all++; if (k in there) { n++ } else { print "kernel that never ran: " k } }
        for (k in made) { m++; if (k in ran) { r++ } }
        printf "%d of %d kernels ran, %d of %d compiled ones\n", n, all, r, m }' > "$out/kernels.log"
if grep -q 'never ran' "$out/kernels.log" || ! grep -q '^[1-9].* kernels ran' "$out/kernels.log"; then
    fail 1 "$(grep 'never ran' "$out/kernels.log" | tr '\n' ';') $(tail -n 1 "$out/kernels.log")"
else
    passed=$((passed + 1))
fi
cat "$out/kernels.log"
cat "$out"/*.seconds | sort -rn | awk '{ all += $1 } NR <= 12 { text = text ", " $0 }
    END { printf "%d s of a core; seconds of a core, and by the clock: %s\n", all, substr(text, 3) }'
grep -h 'ns an operation' "$out"/alloc-plain.log
grep -hs '^skipped' "$out"/libraries-plain.log
awk '/ native .* fallback$/ {
        native += $(NF - 3); away += $(NF - 1); rows++; if ($(NF - 3) && !$(NF - 1)) { all++ } else if ($(NF - 3)) { some++ }
    }
    END { printf "op test on the device: %d calls native, %d on the CPU; of %d ops %d native, %d for some dtypes\n",
                 native, away, rows, all, some }' "$out/ops-cuda.log"
printf '%s' "$said"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
