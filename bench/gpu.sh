# gpu.sh - on a machine with a GPU: correctness, speed beside PyTorch's, and reasons. Three parts, each by itself and
# within LIMIT seconds, each on a machine that may be bare and gone afterwards.
#
#   sh bench/gpu.sh build      programs for ARCH (sm_90) into $GPU (build/gpu), also where there is no GPU
#   sh bench/gpu.sh truth      whether every library serves its family; all tests; the memory checker; unit costs
#   sh bench/gpu.sh ops        the rows of gpu.h and five networks beside PyTorch's; the paper's figures 1 and 2
#   sh bench/gpu.sh why        a profile of the rows that did worst, torch.compile, ten rows again for their spread
#
#   RESULTS=dir      where a part leaves everything, whatever happens (bench/results/gpu-DATE): at most 8 files of 16 MiB
#   OPS=dir          of why: where ops left its rows (RESULTS)
#   PREBUILT=1       $GPU holds the programs: nothing is compiled, however old they look. It is all that has to travel.
#   LIMIT=540        seconds of a part; what would begin later is named as left out
#   ARCH CC CXX NVCC PYTHON   sm_90 (or native), cc, g++, nvcc, python3
#   ROWS=.. WORST=.. of ops: rows whose names begin so; of why: rows in place of the worst of OPS/ops-rows.txt
#   TRIAL=64         divides all sizes; with programs of the emulator that is tests/gpu.sh, which tries this script
#
# The tests that drive the emulator itself (a fake NCCL, marks that fail) are not among truth's: they have no device.
# A part's files: PART-table.md, PART-rows.txt ("row value unit who"), PART-torch.txt, PART-log.txt, and PART-now.txt,
# which holds the output of what runs now: all are written as they come, so that a kill -9 loses nothing either. The
# last line is "N passed, N failed".
B=${B:-build}
GPU=${GPU:-$B/gpu}
CC=${CC:-cc}
CXX=${CXX:-g++}
NVCC=${NVCC:-nvcc}
PYTHON=${PYTHON:-python3}
ARCH=${ARCH:-sm_90}
LIMIT=${LIMIT:-540}
PART=${1:-${PART:-}}
RESULTS=${RESULTS:-bench/results/gpu-$(date +%F)}
OPS=${OPS:-$RESULTS}
begin=$(date +%s)
tests="device streams ops_device nn_rows kernels"
more="gpu custom_kernel"

case $PART in
build | truth | ops | why) ;;
*)
    sed -n '2,/^B=/s/^# \{0,1\}//p' "$0"
    exit 2 ;;
esac
command -v "$NVCC" > /dev/null || NVCC=/usr/local/cuda/bin/nvcc
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v "$NVCC" || echo "$NVCC")")")")
# The libraries are those of PyTorch's wheels where it is there: the same for both sides. Else the toolkit's.
wheels=$($PYTHON -c 'import glob, nvidia; print(*[d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib")])' 2> /dev/null)

# ---- build ----

build() {
    objects=$B/gpu-objects
    headers=$objects/include
    mkdir -p "$GPU" "$headers"
    rm -f "$GPU"/* "$objects"/*.log
    for d in $wheels; do
        for h in "${d%lib}"include/cublas*.h "${d%lib}"include/cudnn*.h "${d%lib}"include/nccl*.h; do
            if [ -f "$h" ] && [ ! -f "$toolkit/include/${h##*/}" ]; then ln -sf "$h" "$headers/${h##*/}"; fi
        done
    done
    for h in cublasLt.h cudnn.h nccl.h; do
        if [ ! -f "$toolkit/include/$h" ] && [ ! -f "$headers/$h" ]; then
            echo "$h is not here: these programs would do without its library"
            return 1
        fi
    done
    printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' > "$objects/impl.c"
    cuda="$NVCC -std=c++17 -O3 -fmad=false -arch=$ARCH -I. -I$headers"
    c="$CC -std=c99 -O2 -DTEST_CUDA -pthread -I. -Itests -Ibench"
    {
        echo "tensor_cuda $cuda -c tensor_cuda.cu"
        echo "kernels $cuda -Itests/cuda -x cu -c tests/cuda/kernels.cpp"
        echo "impl $c -c $objects/impl.c"
        for t in device streams ops_device nn_rows; do echo "$t $c -c tests/$t.c"; done
        echo "gpu $c -c bench/gpu.c"
        echo "custom_kernel $cuda -c examples/custom_kernel.cu"
    } | while read -r name how; do
        sources="tensor.h tensor_nn.h tensor_cuda.h tensor_cuda.cu bench/gpu.h bench/nets.h examples/models/*.h tests/test.h tests/mirror.h ${how##* }"
        newer=$(find $sources -newer "$objects/$name.o" 2> /dev/null | head -n 1)
        if [ -f "$objects/$name.o" ] && [ -z "$newer" ] && [ "$(cat "$objects/$name.how" 2> /dev/null)" = "$how" ]; then continue; fi
        printf '%s -o %s/%s.o > %s/%s.log 2>&1 && echo "%s" > %s/%s.how || { cat %s/%s.log; rm -f %s/%s.o; }\n' \
            "$how" "$objects" "$name" "$objects" "$name" "$how" "$objects" "$name" "$objects" "$name" "$objects" "$name"
    done | xargs -d '\n' -P "${JOBS:-$(nproc)}" -n 1 sh -c
    # Linked by nvcc, which knows where CUDA's runtime is, and puts it in: nothing of the toolkit is needed to run.
    for t in $tests $more; do
        case $t in
        kernels) with=impl ;;                   # it brings tensor_cuda.cu
        *) with="impl tensor_cuda" ;;
        esac
        list=$objects/$t.o
        for o in $with; do list="$list $objects/$o.o"; done
        $NVCC -Xcompiler -pthread -Xlinker -s $list -lm -o "$GPU/$t" || return 1
    done
    bytes=$(du -sk "$GPU" | cut -f1)
    echo "$GPU: $bytes KiB for $ARCH"
    [ "$bytes" -lt 61440 ] || { echo "more than travels"; return 1; }
}
if [ "$PART" = build ]; then
    build
    exit
fi

# ---- what is left behind ----

mkdir -p "$RESULTS" || exit 1
log=$RESULTS/$PART-log.txt
now=$RESULTS/$PART-now.txt
rows=$RESULTS/$PART-rows.txt
torch=$RESULTS/$PART-torch.txt
report=$RESULTS/$PART-table.md
work=$(mktemp -d)
passed=0
failed=0
child=
rm -f "$RESULTS/$PART"-*
: > "$log"
: > "$rows"
: > "$torch"
: > "$now"
say() { printf '%s\n' "$*" | tee -a "$log"; }
count() {
    passed=$((passed + ${1:-0}))
    failed=$((failed + ${2:-0}))
}
left() { echo $((LIMIT - $(date +%s) + begin)); }
# The middle of a text that is too long goes.
shorten() {
    if [ "$(wc -c < "$1")" -gt "${2:-400000}" ]; then
        head -c $((${2:-400000} / 2)) "$1"
        echo
        echo "... shortened ..."
        tail -c $((${2:-400000} / 2)) "$1"
    else
        cat "$1"
    fi
}
keep_log() {                            # the log stays below the limit of a file
    if [ "$(wc -c < "$log")" -gt 12000000 ]; then
        shorten "$log" 10000000 > "$work/log" && cat "$work/log" > "$log"
    fi
}
write() {
    {
        echo "# $PART, $(date '+%F %T')"
        echo
        head -n 12 "$RESULTS/facts.txt" 2> /dev/null | sed 's/^/    /'
        echo
        echo "$(($(date +%s) - begin)) s of $LIMIT; $passed passed, $failed failed."
        echo
        grep -E '^(failed|left out|cut|ended|library:)' "$log" | sort | uniq | head -n 200 | sed 's/^/    /'
        echo
        if [ "$PART" != truth ] || [ -s "$rows" ]; then
            $PYTHON bench/gpu.py table "$rows" "$torch" bench/results/gpu-predictions.md 2> /dev/null ||
                sed 's/^/    /' "$rows"
        fi
        if [ -f "$RESULTS/queue.svg" ] && [ "$PART" = ops ]; then
            echo
            echo "When the host asked for the layers of ResNet-50, and when the device ran them:"
            echo
            echo "![host and device](queue.svg)"
        fi
    } > "$work/report" && cat "$work/report" > "$report"
}
finish() {
    code=$?
    trap - EXIT TERM INT HUP
    if [ -n "$child" ]; then
        kill -TERM $child 2> /dev/null
        echo "ended from outside during: $running" >> "$log"
        shorten "$now" >> "$log"
        failed=$((failed + 1))
    fi
    keep_log
    write
    rm -rf "$work" "$now"
    say "$passed passed, $failed failed"
    if [ "$code" -eq 0 ]; then
        [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
        code=$?
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# step SECONDS COMMAND..: within what is left of the time, its output in $now; -> its status. The shell waits in the
# background, so that a signal is answered at once.
step() {
    seconds=$1
    shift
    running="$*"
    if [ "$(left)" -lt 5 ]; then
        say "left out: $running"
        : > "$now"
        return 125
    fi
    if [ "$(left)" -lt "$seconds" ]; then seconds=$(left); fi
    echo "== $running" | tee -a "$log"
    timeout -k 5 "$seconds" $lines "$@" > "$now" 2>&1 < /dev/null &
    child=$!
    wait "$child"
    status=$?
    child=
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then say "cut after $seconds s: $running"; fi
    shorten "$now" >> "$log"
    keep_log
    return "$status"
}
# Checks and rows that a program of gpu.c printed.
measured() {
    grep -E '^[a-zA-Z0-9_.]+ +[0-9.e+-]+ [A-Za-z/]+( |$)' "$now" >> "$rows"
    grep '^check .* failed$' "$now" | sed 's/^check /failed: /' | tee -a "$log"
    count "$(grep -c '^check .* passed$' "$now")" "$(grep -c '^check .* failed$' "$now")"
    if ! grep -qE '^[0-9]+ passed, [0-9]+ failed$' "$now"; then
        count 0 1
        say "ended without a count: $running: $(tail -n 1 "$now")"
    fi
    write
}
gpu() {
    step "$@"
    if [ $? -ne 125 ]; then measured; fi
}
# PyTorch's side of a part: its rows. Where there is no PyTorch the part goes on, and says so.
reference() {
    step "$@"
    grep -E '^[a-zA-Z0-9_.]+ +[0-9.e+-]+ [A-Za-z/]+ (eager|compiled)' "$now" >> "$torch"
    write
}
lines=                                  # what is printed comes at once, also of a program that is ended
if command -v stdbuf > /dev/null; then lines="stdbuf -oL"; fi
own_path=$LD_LIBRARY_PATH               # PyTorch brings its own
path=$LD_LIBRARY_PATH
for d in $wheels "$toolkit/lib64" /usr/local/nvidia/lib64; do
    if [ -d "$d" ]; then path=${path:+$path:}$d; fi
done
export LD_LIBRARY_PATH="$path"
export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"       # one machine, perhaps without any other network
tool() {                                # a program of the toolkit
    command -v "$1" || ls "$toolkit/bin/$1" "$toolkit"/nsight-compute*/"$1" /opt/nvidia/nsight-compute/*/"$1" 2> /dev/null | head -n 1
}

if [ -z "$PREBUILT" ]; then
    build > "$work/build" 2>&1 || { cat "$work/build" | tee -a "$log"; say "failed: build"; count 0 1; exit 1; }
    cat "$work/build" >> "$log"
fi
if [ ! -s "$RESULTS/facts.txt" ]; then
    {
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>&1 | head -n 4
        if [ -z "$TRIAL" ]; then env LD_LIBRARY_PATH="$own_path" timeout 60 "$PYTHON" bench/gpu.py facts 2>&1 | head -n 4; fi
        "$NVCC" --version 2>&1 | tail -n 2
        uname -srm
        nproc
        date -u
        for t in ncu compute-sanitizer "$CC" make git; do echo "$t: $(tool $t)"; done
        sha256sum tensor.h tensor_nn.h tensor_cuda.cu "$GPU"/*
        ls $wheels 2> /dev/null
        timeout 20 nvidia-smi -q 2>&1 | head -n 300
        cat "$work/build" 2> /dev/null
    } > "$RESULTS/facts.txt"
fi

chmod +x "$GPU"/* 2> /dev/null          # what travels may lose it
for t in $tests $more; do
    if [ ! -x "$GPU/$t" ]; then
        say "failed: $GPU/$t is not there"
        count 0 1
        exit 1
    fi
done
# ---- truth ----

# together SECONDS NAME=COMMAND..: all at once, each in a folder of its own, for some write files of the same name, and
# with an output of its own; then their counts.
together() {
    seconds=$1
    shift
    if [ "$(left)" -lt 5 ]; then
        say "left out: $*"
        return
    fi
    if [ "$(left)" -lt "$seconds" ]; then seconds=$(left); fi
    running="$*"
    echo "== $running" | tee -a "$log"
    children=
    for one in "$@"; do
        name=${one%%=*}
        mkdir -p "$work/$name"
        timeout -k 5 "$seconds" $lines sh -c "cd '$work/$name' && exec ${one#*=}" > "$work/$name.out" 2>&1 < /dev/null &
        children="$children $!"
    done
    child=$children
    for c in $children; do
        wait "$c"
        echo $? > "$work/status-$c"
    done
    child=
    for one in "$@"; do
        name=${one%%=*}
        c=${children# }
        children=${children# * }
        status=$(cat "$work/status-${c%% *}")
        children=" ${c#* }"
        last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$work/$name.out" | tail -n 1)
        {
            echo "-- $name, status $status: ${last:-no count}"
            grep -v '^row \| fallback$\|^check .* passed$' "$work/$name.out" > "$work/some"
            shorten "$work/some" 200000
        } >> "$log"
        p=${last%% *}
        f=${last#*, }
        f=${f%% *}
        if [ -z "$last" ]; then
            f=1
            if [ "$status" -eq 124 ]; then say "cut after $seconds s: $name"; else say "ended without a count: $name, status $status"; fi
        elif [ "$f" -ne 0 ]; then
            say "failed: $name: $last"
        elif [ "$status" -ne 0 ]; then
            f=1
            say "failed: $name: status $status after $last"
        fi
        count "${p:-0}" "$f"
        awk -v name="$name" '/ native .* fallback$/ { n += $(NF - 3); c += $(NF - 1) }
            END { if (n + c) { printf "%s_native %d calls\n%s_on_the_CPU %d calls\n", name, n, name, c } }' \
            "$work/$name.out" >> "$rows"
    done
    write
}
truth() {
    gpu 150 "$GPU/gpu" smoke $TRIAL
    step 30 "$GPU/custom_kernel"        # compares itself with the library's ops
    status=$?
    if [ "$status" -eq 0 ]; then
        count 1 0
    elif [ "$status" -ne 125 ]; then
        count 0 1
        say "failed: custom_kernel, status $status: $(grep differs "$now" | head -n 1)"
    fi
    list=
    at=$(cd "$GPU" && pwd)
    for t in $tests; do list="$list $t=$at/$t"; done
    for t in device streams ops_device nn_rows; do list="$list $t-alone=env@TENSOR_CUDA_NO_LIBRARIES=1@$at/$t"; done
    for t in 1 2 3 4; do list="$list streams-$t=$at/streams"; done      # races of the host show up sometimes
    set --
    for t in $list; do set -- "$@" "$(echo "$t" | tr @ ' ')"; done
    together 170 "$@"
    sanitizer=$(tool compute-sanitizer)
    if [ -n "$sanitizer" ]; then
        # One allocation a tensor, or what one block writes into another is not seen.
        check="$sanitizer --error-exitcode 9 --print-limit 20"
        together 130 "memcheck-kernels=env TENSOR_CUDA_NO_CACHE=1 $check --tool memcheck $at/kernels" \
            "memcheck-nn_rows=env TENSOR_CUDA_NO_CACHE=1 TENSOR_CUDA_NO_LIBRARIES=1 $check --tool memcheck $at/nn_rows" \
            "memcheck-mlp=env TENSOR_CUDA_NO_CACHE=1 $check --tool memcheck $at/gpu mlp 32" \
            "racecheck-kernels=$check --tool racecheck $at/kernels"
    else
        say "left out: compute-sanitizer, which is not here"
    fi
    gpu 60 "$GPU/gpu" costs $TRIAL
}

# ---- ops ----

ops() {
    half=$(($(left) * 2 / 5))
    if [ -n "$ROWS" ]; then which="op $ROWS"; else which=ops; fi
    export BENCH_QUICK=1                # three samples of 20 ms; `why` shows the spread
    gpu $half env GPU_SECONDS=$((half - 8)) "$GPU/gpu" $which $TRIAL
    each=40
    if [ -n "$TRIAL" ]; then each=150; fi       # the emulator takes its time, the more beside other work
    for net in mlp policy ncf lstm resnet50 gpt2 warm_up; do gpu $each "$GPU/gpu" $net $TRIAL; done
    gpu $each "$GPU/gpu" queue "$RESULTS/queue.svg" $TRIAL
    if [ -z "$TRIAL" ]; then
        reference 100 env LD_LIBRARY_PATH="$own_path" "$PYTHON" bench/gpu.py networks mlp policy ncf lstm resnet50 gpt2
        reference 400 env LD_LIBRARY_PATH="$own_path" "$PYTHON" bench/gpu.py ops $(($(left) - 10)) $ROWS
    fi
}

# ---- why ----

why() {
    worst=${WORST:-$($PYTHON bench/gpu.py worst 12 "$OPS/ops-rows.txt" "$OPS/ops-torch.txt" 2> /dev/null)}
    if [ -z "$worst" ]; then            # nothing was measured yet: those that were predicted to be slow
        worst="gelu.bf16.c.f batch_norm.f32.c.f softmax.bf16.c.f sort.f32.c.f cumsum.f32.c.f embedding_few.f32.c.b
               dropout.bf16.c.f cross_entropy.bf16.c.b max_pool.bf16.n.b where.f32.b.f sum_hidden.f32.c.f relu.bf16.n.b"
    fi
    say "the worst: $(echo $worst)"
    profiler=$(tool ncu)
    metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_op_read.sum
    metrics=$metrics,lts__t_sectors_op_write.sum,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio
    metrics=$metrics,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio
    metrics=$metrics,sm__inst_executed.sum,smsp__issue_active.avg.pct_of_peak_sustained_active
    metrics=$metrics,sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread,launch__grid_size
    if [ -n "$profiler" ]; then
        for row in $worst; do
            step 25 "$profiler" --clock-control none --launch-count 40 --kernel-name-base demangled \
                --csv --metrics $metrics "$GPU/gpu" once "$row" $TRIAL
            if [ $? -eq 125 ]; then continue; fi
            { echo "# $row"; grep '^"' "$now"; } >> "$RESULTS/why-ncu.csv"
            if grep -q '^"' "$now"; then count 1 0; else count 0 1; say "failed: no profile of $row: $(tail -n 1 "$now")"; fi
        done
    else
        say "left out: ncu, which is not here"
    fi
    closest=${AGAIN:-"add.f32.c.f add.bf16.c.b relu.bf16.n.f sum.f32.c.f softmax.f32.c.f layer_norm.bf16.c.f
                      matmul_4096.bf16.c.f conv3x3.bf16.n.f attention_causal.bf16.c.f embedding.f32.c.f"}
    for turn in 1 2 3; do gpu 40 "$GPU/gpu" op $closest $TRIAL; done
    if [ -z "$TRIAL" ]; then
        reference 60 env LD_LIBRARY_PATH="$own_path" "$PYTHON" bench/gpu.py ops 50 $closest
        for net in resnet50 gpt2; do
            gpu 40 "$GPU/gpu" $net
            reference 150 env LD_LIBRARY_PATH="$own_path" "$PYTHON" bench/gpu.py compiled $net
        done
    fi
    # The spread of ours: the least and the most of each row that came more than once.
    awk 'NF >= 3 { if (!($1 in least) || $2 < least[$1]) { least[$1] = $2 } if ($2 > most[$1]) { most[$1] = $2 } n[$1]++ }
        END { for (r in n) { if (n[r] > 1) { printf "spread of %s: %.4g to %.4g %s\n", r, least[r], most[r], "" } } }' \
        "$rows" | sort >> "$log"
}

$PART
child=
exit 0
