# gpu.sh - on a machine with a GPU: builds tensor_cuda.cu for it, measures, runs the tests of ops and devices on it and
# compute-sanitizer over a part; writes bench/results/gpu-DATE.md and the plot beside it. The last line is
# "N passed, N failed".
#
#   sh bench/gpu.sh        uses $B (build, with tensor_impl.o), $CC, $NVCC (nvcc), $ARCH (native), $PYTHON (python3)
#
# The report is written anew after every part, so a run that is cut short leaves what it has. LIMIT (570) seconds in
# all: what would begin later is named as left out. BUILD_ONLY=1 stops before anything runs, TRIAL=64 divides sizes.
# PyTorch, where python3 has it with CUDA, is the reference; cuBLASLt's own products are one in any case.
B=${B:-build}
CC=${CC:-cc}
NVCC=${NVCC:-nvcc}
ARCH=${ARCH:-native}
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-570}
out=$B/gpu
plot=bench/results/gpu-$(date +%F).svg
report=bench/results/gpu-$(date +%F).md
begin=$(date +%s)
passed=0
failed=0
mkdir -p "$out" bench/results
rm -f "$out"/*.rows "$out"/*.log "$out"/*.build "$out/parts" "$out/tests.txt"

command -v "$NVCC" > /dev/null || NVCC=/usr/local/cuda/bin/nvcc
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v "$NVCC")")")")
# The libraries may be those of PyTorch's wheels: their headers where the toolkit has none, their folders behind its own.
mkdir -p "$out/include"
own_path=$LD_LIBRARY_PATH                # PyTorch brings its own
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$toolkit/lib64
for d in $($PYTHON -c 'import glob, nvidia; print(*[d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib")])' 2> /dev/null); do
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$d
    for h in "${d%lib}"include/cublas*.h "${d%lib}"include/cudnn*.h "${d%lib}"include/nccl*.h; do
        name=${h##*/}
        if [ -f "$h" ] && [ ! -f "$toolkit/include/$name" ]; then ln -sf "$h" "$out/include/$name"; fi
    done
done
export LD_LIBRARY_PATH

# All that is compiled, side by side; what was built of these sources stays.
compile() {
    name=$1
    shift
    "$@" > "$out/$name.build" 2>&1 &
    compiled="$compiled $!"
}
object() { compile "$1" $CC -std=c99 -O2 -DTEST_CUDA -pthread -I. -Itests -Ibench -c "$2" -o "$out/$1.o"; }
broken=
compiled=
built_for=$(cat "$out/arch" 2> /dev/null)
echo "$ARCH" > "$out/arch"
if [ "$built_for" != "$ARCH" ] || [ ! "$out/tensor_cuda.o" -nt tensor_cuda.cu ] || [ ! "$out/tensor_cuda.o" -nt tensor.h ] ||
    [ ! "$out/tensor_cuda.o" -nt tensor_nn.h ] || [ ! "$out/tensor_cuda.o" -nt tensor_cuda.h ]; then
    compile tensor_cuda $NVCC -std=c++17 -O3 -fmad=false -arch="$ARCH" -split-compile=0 -I. -I"$out/include" \
        -c tensor_cuda.cu -o "$out/tensor_cuda.o"
fi
for t in device streams ops; do object $t tests/$t.c; done
object gpu bench/gpu.c
for c in $compiled; do wait "$c" || broken=1; done
# Linked by nvcc, which knows where CUDA's runtime is. program NAME OBJECTS
program() {
    name=$1
    shift
    $NVCC -Xcompiler -pthread "$out/$name.o" "$@" "$out/tensor_cuda.o" -lm -o "$out/$name" >> "$out/$name.build" 2>&1 ||
        broken=1
}
for t in device streams gpu; do program $t "$B/tensor_impl.o"; done
program ops
cat "$out"/*.build
if [ -n "$broken" ]; then
    if [ -z "$BUILD_ONLY" ]; then
        { echo "# On a GPU, $(date +%F)" && echo && echo "Not built:" && sed 's/^/    /' "$out"/*.build; } > "$report"
    fi
    echo "0 passed, 1 failed"
    exit 1
fi
$NVCC -std=c++17 -O2 -arch="$ARCH" -I"$out/include" bench/blaslt.cu -lcublasLt -o "$out/blaslt" 2> "$out/blaslt.log" ||
    echo "no cuBLASLt of its own: $(head -n 1 "$out/blaslt.log")" | tee "$out/parts"
if [ -n "$BUILD_ONLY" ]; then
    echo "built for $ARCH"
    exit 0
fi

lines=                                  # what is printed comes at once, also of a program that is ended
if command -v stdbuf > /dev/null; then lines="stdbuf -oL"; fi
count() {
    passed=$((passed + ${1:-0}))
    failed=$((failed + ${2:-0}))
}
# part SECONDS LOG COMMAND..: within what is left of the time; its output is in LOG. Not begun: skipped=1, LOG is empty.
part() {
    seconds=$1
    log=$2
    shift 2
    : > "$log"
    skipped=
    left=$((LIMIT - $(date +%s) + begin))
    if [ "$left" -lt 5 ]; then
        echo "left out: $*" >> "$out/parts"
        skipped=1
        return 0
    fi
    if [ "$left" -lt "$seconds" ]; then seconds=$left; fi
    echo "  $*"
    timeout "$seconds" $lines "$@" > "$log" 2>&1 < /dev/null
    status=$?
    if [ "$status" -eq 124 ]; then echo "cut after $seconds s: $*" >> "$out/parts"; fi
    return $status
}
# measure ROW ARGUMENTS..: rows and checks of bench/gpu.c.
measure() {
    part 60 "$out/row-$1.log" "$out/gpu" "$@" $TRIAL
    if [ -n "$skipped" ]; then return; fi
    grep -E '^[a-z0-9_]+ +[0-9.e+-]+ [A-Za-z/]+$' "$out/row-$1.log" >> "$out/ours.rows"
    p=$(grep -c '^check .* passed$' "$out/row-$1.log")
    f=$(grep -c '^check .* failed$' "$out/row-$1.log")
    if ! grep -qE '^[0-9]+ passed, [0-9]+ failed$' "$out/row-$1.log"; then
        f=$((f + 1))
        echo "$1 ended without a count: $(tail -n 1 "$out/row-$1.log")" >> "$out/parts"
    fi
    count "$p" "$f"
    grep '^check .* failed$' "$out/row-$1.log" >> "$out/parts"
}
# test_on NAME: its count, added up.
test_on() {
    part 150 "$out/test-$1-$alone.log" "$out/$1"
    if [ -n "$skipped" ]; then return; fi
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$out/test-$1-$alone.log" | tail -n 1)
    echo "$1: ${last:-ended without a count}" >> "$out/tests.txt"
    p=${last%% *}
    f=${last#*, }
    f=${f%% *}
    count "${p:-0}" "${f:-1}"
    [ "${f:-1}" -eq 0 ] || grep -v '^row \| fallback$' "$out/test-$1-$alone.log" | tail -n 40 >> "$out/tests.txt"
}
write() {
    name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
    {
        echo "# On a GPU, $(date +%F)"
        echo
        echo "${name:-unknown device}; $($NVCC --version | tail -n 2 | head -n 1)"
        echo
        echo "\`make gpu\`, $(($(date +%s) - begin)) s. Ratio: how many times as fast as the reference of the same run"
        echo "(memory: ours / the reference's). \"graph\" is the same step captured once and replayed; its reference is"
        echo "PyTorch's step as it is. $(cat "$out/torch.txt" 2> /dev/null)"
        echo
        echo "| row | ours | reference | ratio | goal | |"
        echo "|---|---:|---:|---:|---|---|"
        awk '
            BEGIN {
                goal["mlp_graph eager"] = 5; goal["ncf_graph eager"] = 5; goal["lstm eager"] = 1.1
                goal["resnet50 eager"] = 1.05; goal["gpt2 compiled"] = 1.05
                goal["matmul_2048_bf16 cuBLASLt"] = goal["matmul_4096_bf16 cuBLASLt"] = 0.97
                goal["matmul_2048_f32 cuBLASLt"] = 0.97
                goal["add copy"] = goal["gelu copy"] = goal["tanh copy"] = 0.85
            }
            function line(row, value, unit, other, label,    r, g, met) {
                r = unit == "us" || unit == "ms" ? other / value : value / other
                g = unit == "MB" ? (label == "eager" ? 1 : 0) : goal[row " " label]
                met = g ? (unit == "MB" ? r <= g : r >= g) : ""
                printf "| %s | %.4g %s | %.4g %s | %.2f | %s | %s |\n", row, value, unit, other, label, r,
                       g ? (unit == "MB" ? "<= " : ">= ") g : "", g ? (met ? "reached" : "falls short") : ""
            }
            FILENAME ~ /ours.rows$/ { if (!($1 in value)) { order[++n] = $1 } value[$1] = $2; unit[$1] = $3; next }
            { key = $1 " " $4; if (!(key in ref)) { labels[$1] = labels[$1] " " $4; ref[key] = $2 } }
            END {
                for (i = 1; i <= n; i++) {
                    row = order[i]
                    many = split(labels[row], label, " ")
                    if (unit[row] == "GB/s" && row != "copy" && value["copy"] > 0) { line(row, value[row], unit[row], value["copy"], "copy") }
                    for (k = 1; k <= many; k++) {
                        line(row, value[row], unit[row], ref[row " " label[k]], label[k])
                    }
                    if (!many && (unit[row] != "GB/s" || row == "copy")) {
                        printf "| %s | %.4g %s | | | | |\n", row, value[row], unit[row]
                    }
                }
            }' "$out/ours.rows" $(ls "$out"/reference*.rows 2> /dev/null)
        if [ -f "$plot" ]; then
            echo
            echo "When the host asked for the layers of ResNet-50, and when the device ran them:"
            echo
            echo "![host and device]($(basename "$plot"))"
        fi
        echo
        echo "## Tests on the device"
        echo
        sed 's/^/    /' "$out/tests.txt" 2> /dev/null
        awk '/ native .* fallback$/ {
                native += $(NF - 3); away += $(NF - 1); rows++
                if ($(NF - 3) && !$(NF - 1)) { all++ } else if ($(NF - 3)) { some++ }
            }
            END { if (rows) { printf "\nOp test: %d calls native, %d on the CPU; of %d ops %d native, %d for some dtypes.\n",
                                     native, away, rows, all, some } }' "$out/test-ops-0.log" 2> /dev/null
        if [ -f "$out/parts" ]; then
            echo
            sed 's/^/    /' "$out/parts"
        fi
        echo
        echo "$passed passed, $failed failed"
    } > "$report"
}

touch "$out/ours.rows"
if LD_LIBRARY_PATH=$own_path $PYTHON -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
    torch=1
    $PYTHON -c 'import torch; print(f"PyTorch {torch.__version__}.")' > "$out/torch.txt"
else
    torch=
    echo "No PyTorch with CUDA here: no reference but a copy and cuBLASLt." > "$out/torch.txt"
fi
if [ -x "$out/blaslt" ]; then part 20 "$out/reference-blaslt.rows" "$out/blaslt"; fi
for row in ops mlp ncf lstm resnet50 gpt2; do
    measure $row
    if [ -n "$torch" ]; then
        for how in eager compiled; do
            if [ $row-$how = ops-compiled ]; then continue; fi
            part 60 "$out/reference-$row-$how.log" env LD_LIBRARY_PATH="$own_path" $PYTHON bench/reference.py cuda $row $how
            grep -E ' (eager|compiled)$' "$out/reference-$row-$how.log" > "$out/reference-$row-$how.rows"
        done
    fi
    write
done
measure warm_up
measure queue "$plot"
write
for alone in 0 1; do
    export TENSOR_CUDA_NO_LIBRARIES=$alone
    if [ "$alone" = 1 ]; then echo "without cuBLASLt and cuDNN:"; else echo "with cuBLASLt and cuDNN:"; fi >> "$out/tests.txt"
    for t in device streams ops; do
        test_on $t
        write
    done
done
unset TENSOR_CUDA_NO_LIBRARIES
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$(command -v "$NVCC")")/compute-sanitizer")
if [ -x "$sanitizer" ]; then
    for tool in memcheck racecheck; do
        for row in ops mlp lstm resnet50 gpt2; do
            part 60 "$out/$tool-$row.log" "$sanitizer" --tool $tool --error-exitcode 9 "$out/gpu" $row 32
            code=$?
            if [ -n "$skipped" ]; then continue; fi
            case $code in
            0) count 1 0 && echo "$tool of $row: nothing" >> "$out/tests.txt" ;;
            9) count 0 1 && { echo "$tool of $row:" && grep '=====' "$out/$tool-$row.log" | head -n 20; } >> "$out/tests.txt" ;;
            124) ;;
            *) count 0 1 && echo "$tool of $row did not end well: $(tail -n 1 "$out/$tool-$row.log" 2> /dev/null)" >> "$out/tests.txt" ;;
            esac
            write
        done
    done
else
    echo "left out: compute-sanitizer, which is not here" >> "$out/parts"
fi
write
cat "$report"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
