# paper.sh - `make paper`: what "PyTorch: An Imperative Style, High-Performance Deep Learning Library" (NeurIPS 2019)
# claims, section by section, measured here. Writes docs/paper.md, and beside it bench/results/paper-*: the models' table,
# figures 1 and 2, the curve of live memory. About 20 minutes of two cores; QUICK=1 leaves the six models out and keeps
# what docs/paper.md says of them.
#
# A row is measured, emulated or not run, and met or not. PyTorch is measured in the same run where $PYTHON has torch; the
# numbers that need CUDA's headers ($CUDA; PyPI's torch brings them) are not run where those are missing.
# OUT=dir writes to another folder.
B=${B:-build}
CC=${CC:-cc}
CXX=${CXX:-g++}
PYTHON=${PYTHON:-python3}
OUT=${OUT:-.}
P=$B/paper
PAGE=$OUT/docs/paper.md
RESULTS=$OUT/bench/results
rm -rf "$P"
mkdir -p "$P" "$OUT/docs" "$RESULTS"
began=$(date +%s)
load=$(cut -d" " -f1 /proc/loadavg 2>/dev/null)

# ---- helpers

# measure NAME COMMAND..: its output is in NAME.txt, its status in NAME.rc. At most ten minutes.
measure() {
    name_of_run=$1
    to=$P/$1.txt
    shift
    echo "$(($(date +%s) - began)) s: $*" >&2
    timeout 600 "$@" >"$to" 2>"$to.err" </dev/null
    rc=$?
    echo "$rc" >"$P/$name_of_run.rc"
    [ "$rc" -eq 0 ] || echo "    ended with status $rc" >&2
    return "$rc"
}
# succeeded NAME: what a failed program printed is no figure.
succeeded() { [ "$(cat "$P/$1.rc" 2>/dev/null)" = 0 ]; }
# value NAME ROW: the number in the line "ROW number unit" of NAME.txt, nothing if there is none.
value() { succeeded "$1" && awk -v row="$2" '$1 == row { print $2; exit }' "$P/$1.txt"; }
# text NAME SED-EXPRESSION: what it prints of NAME.txt.
text() { succeeded "$1" && sed -n "$2" "$P/$1.txt" | head -n 1; }
# all_emulated NAME..: these runs of the idle driver ended well, and no op of theirs fell back to the CPU.
all_emulated() {
    for run in "$@"; do
        [ "$(value "$run" on_the_cpu)" = 0 ] || return 1
    done
}
# spread: of the numbers in its input "median least most".
spread() { sort -g | awk 'NF { v[++n] = $1 } END { if (n) { print v[int((n + 1) / 2)], v[1], v[n] } }'; }
# middle NAME ROW..: the median of these rows of NAME.txt.
middle() {
    of=$1
    shift
    for of_row in "$@"; do value "$of" "$of_row"; done | spread | cut -d" " -f1
}
# of_turns NAME ROW: the row in NAME1.txt, NAME2.txt, NAME3.txt: "median least most".
of_turns() { for turn in 1 2 3; do value "$1$turn" "$2"; done | spread; }
# with_spread FORMAT MEDIAN LEAST MOST: "19 (18-22)"
with_spread() { [ -z "$2" ] || printf "$1 ($1-$1)" "$2" "$3" "$4"; }
# number FORMAT EXPRESSION: awk's value of it; nothing where an operand is missing.
number() { case $2 in *[*/][*/]* | [*/]* | *[*/]) ;; *) awk "BEGIN { printf \"$1\", $2 }" ;; esac; }
# mark CONDITION FIGURES..: met or not by awk; not run where a figure is missing.
mark() {
    condition=$1
    shift
    for figure in "$@"; do
        if [ -z "$figure" ]; then
            echo "not run"
            return
        fi
    done
    awk "BEGIN { print ($condition) ? \"met\" : \"not met\" }"
}
# hogwild_mark TIMES WRONG-OF-ONE WRONG-OF-TWO: faster, and as accurate.
hogwild_mark() {
    mark "$1 + 0 >= 1.7 && $2 + 0 <= 5 && $3 + 0 <= 5 && $3 - $2 <= 1 && $2 - $3 <= 1" "$1" "$2" "$3"
}
# either VALUE TEXT OTHERWISE: the text where there is a value.
either() { if [ -n "$1" ]; then echo "$2"; else echo "$3"; fi; }
# row SECTION CLAIM FIGURE MARK COMMAND. A figure of the idle driver begins with "emulated: ". A row without a figure says
# why it has none.
row() {
    figure=${3#emulated: }
    how=measured
    if [ "$figure" != "$3" ]; then how=emulated; fi
    case $4 in
        met) met=yes ;;
        "not met") met=no ;;
        *) met=- how="not run" ;;
    esac
    echo "| $1 | $2 | $figure | $met | $how | \`$5\` |" >>"$P/rows.md"
}
# tested SECTION CLAIM PROGRAM-OR-SCRIPT COMMAND: a claim that a test proves; its last line counts.
tested() {
    measure test $4
    rc=$?
    counts=$(tail -n 1 "$P/test.txt" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    p=${counts% *}
    f=${counts#* }
    if [ "$rc" -eq 0 ] && [ "${p:-0}" -eq 0 ] && [ "${f:-1}" -eq 0 ]; then
        row "$1" "$2" "$(head -n 1 "$P/test.txt")" "not run" "$4"
    else
        row "$1" "$2" "${p:-0} cases pass, ${f:-1} fail" "$(mark "${f:-1} == 0 && $rc == 0" 1)" "$4"
    fi
}
# shown SECTION CLAIM PROGRAM: an example that ends as its first comment says (tests/examples.sh compares all of it).
shown() {
    measure shown "$B/$3"
    rc=$?
    last=$(sed -n '/^#include/q; s,^//   ,,p' "examples/$3.c" | tail -n 1)
    good=0
    if [ "$rc" -eq 0 ] && [ "$(tail -n 1 "$P/shown.txt")" = "$last" ]; then good=1; fi
    lines=$(sed -n '/^#include/,$p' "examples/$3.c" | grep -c .)
    row "$1" "$2" "$lines lines of C with main, $(if [ $good = 1 ]; then echo "prints what it should"; else echo "prints something else"; fi)" \
        "$(mark "$good" 1)" "build/$3"
}
section() {
    printf '\n## %s\n\n| § | the paper | here | met | how | command |\n| --- | --- | --- | --- | --- | --- |\n' "$1" >>"$P/rows.md"
}

# ---- programs

make B="$B" "$B/libtensor.a" "$B/libtensor.so" "$B/bench/live" "$B/bench/micro" "$B/bench/profiled" "$B/models/train" "$B/04_custom_layer" \
    "$B/05_gan" "$B/06_custom_function" "$B/07_control_flow" "$B/hogwild" \
    "$B/tests/gradcheck" "$B/tests/autograd" "$B/tests/calculus" "$B/tests/loader" "$B/tests/models" "$B/tests/capture" \
    "$B/tests/threads" "$B/tests/training" >"$P/make.txt" 2>&1 || { tail -n 20 "$P/make.txt"; exit 1; }
torch=
if "$PYTHON" -c 'import torch, numpy' 2>/dev/null; then torch=$("$PYTHON" -c 'import torch; print(torch.__version__)'); fi
if [ -z "$CUDA" ]; then
    for place in /usr/local/cuda "$("$PYTHON" -c 'import nvidia.cu13 as n; print(list(n.__path__)[0])' 2>/dev/null)"; do
        if [ -f "$place/include/cuda_runtime_api.h" ]; then CUDA=$place; fi
    done
fi
trace=
if [ -n "$CUDA" ] && $CXX -std=c++17 -O2 -isystem "$CUDA/include" -Itests/cuda -I. -c bench/idle.cpp -o "$P/idle.o" \
    2>"$P/cuda.err" && $CXX -std=c++17 -x c++ -O1 -DTENSOR_CUDA_SIM -isystem "$CUDA/include" -I. -Itests/cuda \
    -c tensor_cuda.cu -o "$P/cuda.o" 2>>"$P/cuda.err" && $CC -std=c99 -O2 -I. -c bench/trace.c -o "$P/trace.o" 2>>"$P/cuda.err" &&
    $CXX "$P/trace.o" "$P/cuda.o" "$P/idle.o" "$B/libtensor.a" -pthread -lm -o "$P/trace" 2>>"$P/cuda.err"; then
    trace=$P/trace
fi
no_cuda="no headers of CUDA here"
if [ -n "$CUDA" ] && [ -z "$trace" ]; then
    tail -n 20 "$P/cuda.err"
    exit 1
fi

# ---- the rows

section "Usability (sections 3 and 4)"
for turn in 1 2 3; do
    measure micro$turn "$B/bench/micro"
    [ -z "$torch" ] || measure torch$turn "$PYTHON" bench/reference.py micro
done
[ -z "$torch" ] || measure torch_start "$PYTHON" bench/paper.py start
shown 4.1 "Listing 1: a custom layer, and a model of layers, in a few lines of plain code" 04_custom_layer
shown 4.1 "Listing 2: the training step of a GAN, two models and two optimizers" 05_gan
shown 4.1 "Models are programs: loops and branches that depend on data, print in the middle" 07_control_flow
tested 4.1 "Debuggers work: one stops in the middle of a forward pass and prints a tensor" gdb.sh "sh tests/gdb.sh"
own=$(of_turns micro start_fork_exec_first_op)
shown=$(with_spread %.2f $own)
own=${own%% *}
other=$(value torch_start start)
row 4.1 "A program has its first result at once: nothing is imported, traced or compiled as it starts" \
    "$shown ms from the start of the finished program to its first op${other:+; PyTorch $(number %.0f "$other/1") ms}" \
    "$(mark "$own / 1 < $other / 1" "$own" "$other")" "build/bench/micro"
[ -z "$torch" ] || measure share "$PYTHON" bench/paper.py share
little=$(value share share_small) much=$(value share share_large)
row 4.2 "Memory is shared with NumPy and by DLPack in constant time, however large" \
    "$(either "$little" "1 KB $(number %.1f "$little/1000") us, 400 MB $(number %.1f "$much/1000") us, the same addresses" "no Python with cffi and NumPy")" \
    "$(mark "${much:-1} / ${little:-1} < 1.5 && $(value share share_small_same)0 + $(value share share_large_same)0 == 20" "$little" "$much")" \
    "python3 bench/paper.py share"
tested 4.2 "Both ways with NumPy and PyTorch, writes seen on both sides, lifetimes right" python.sh "sh tests/python.sh"
shown 4.2 "A user's differentiable function, forward and backward" 06_custom_function
tested 4.2 "Datasets and loaders are the user's: shuffling, batches, workers" loader "build/tests/loader"
tested 4.2 "Optimizers are the user's too: plain code on weights and gradients" training "build/tests/training"
tested 4.3 "Reverse-mode gradients, each checked against finite differences, second ones too" gradcheck "build/tests/gradcheck"
tested 4.3 "In-place changes are differentiated; where that is unsafe, versions make it an error" autograd "build/tests/autograd"
tested 4.3 "Forward mode (announced there; here two backward passes)" calculus "build/tests/calculus"

section "Performance (section 5)"
for name in "add16:an operation on 16 elements" "add16_tape:the same, recorded for autograd" "backward_node:backward, a node"; do
    own=$(of_turns micro "${name%%:*}")
    other=$(of_turns torch "${name%%:*}")
    row 5.1 "The core is compiled code with little overhead: ${name#*:}" \
        "$(with_spread %.0f $own) ns${other:+; PyTorch $(with_spread %.0f $other) ns}" \
        "$(mark "${own%% *} / 1 < ${other%% *} / 1" "$own" "$other")" \
        "build/bench/micro"
done
tested 5.1 "Threads may run nets side by side, backward passes too (no interpreter lock)" threads "build/tests/threads"
[ -z "$torch" ] || measure bound "$PYTHON" bench/paper.py bound
functions=$(value bound bound_functions)
row 5.1 "Bindings are generated from what the core declares" \
    "$(either "$functions" "$functions functions of Python, from the headers, in $(number %.2f "$(value bound bound_seconds)/1") s" "no Python with cffi and NumPy")" \
    "$(mark "${functions:-0} > 1000" "$functions")" "python3 bench/paper.py bound"
if [ -n "$trace" ]; then
    measure host "$trace" host
    measure queue "$trace" queue "$RESULTS/paper-figure1.svg"
    measure cached "$trace" memory
    MOMENTUM=0.9 measure momentum "$trace" memory
    TENSOR_CUDA_NO_CACHE=1 measure uncached "$trace" memory
    if ! all_emulated host queue cached momentum uncached; then
        no_cuda="a run of the idle driver failed, or an op ran on the CPU"
        rm -f "$P/host.rc" "$P/queue.rc" "$P/cached.rc" "$P/momentum.rc" "$P/uncached.rc"
    fi
fi
ns=$(value host host_op) ops=$(value host host_ops) kernels=$(value host host_kernels_gp100)
row 5.2 "The host queues operations and runs ahead of the device (ResNet-50, training step, batch 32)" \
    "$(either "$ns" "emulated: $(number %.0f "$ns/1") ns of the host an op, $ops ops in $(number %.2f "$(value host host_step)/1000") ms; their kernels take at least $(number %.0f "$kernels/1000") ms on the paper's GPU, $(number %.0f "$(value host host_kernels_h200)/1000") ms on an H200" "$no_cuda")" \
    "$(mark "$(value host host_ahead_h200)0 / 10 > 1" "$ns")" "build/paper/trace host"
waits=$(value host host_waits)
row 5.2 "Nothing in a step makes the host wait for the device" \
    "$(either "$waits" "emulated: $waits waits in a step of $(value host host_launches) launches" "$no_cuda")" \
    "$(mark "${waits:-1} == 0" "$waits")" "build/paper/trace host"
# Microseconds that a driver takes for the launches of a step, at 4 a launch, and the host's own.
queued=${ns:+$(number %.0f "$(value host host_step) + 4 * $(value host host_launches)")}
h200=$(value host host_kernels_h200)
row 5.2 "The same where the driver takes 4 us for a launch" \
    "$(either "$ns" "emulated: $(number %.1f "$queued/1000") ms to queue a step, whose kernels take at least $(number %.0f "$h200/1000") ms on an H200: $(number %.1f "$h200/$queued") times" "$no_cuda")" \
    "$(mark "${h200:-0} > ${queued:-1}" "$ns")" "build/paper/trace host"
later= later_momentum=
for step in 2 3 4 5; do later="$later + $(value cached memory_driver_$step)"; done
for step in 3 4 5; do later_momentum="$later_momentum + $(value momentum memory_driver_$step)"; done
later=${ns:+$(number %d "1 * (0$later)")}
later_momentum=${ns:+$(number %d "1 * (0$later_momentum)")}
row 5.3 "The allocator keeps memory: no call of the driver from the second step on, with momentum from the third" \
    "$(either "$later" "emulated: $(value cached memory_driver_1) calls in the first step, $later in the four after it; with momentum, whose buffers the first step makes, $(value momentum memory_driver_2) in the second, $later_momentum after it" "$no_cuda")" \
    "$(mark "${later:-1} == 0 && ${later_momentum:-1} == 0" "$later" "$later_momentum")" "build/paper/trace memory"
row 5.3 "Memory is freed at once and used again on the same stream without waiting" \
    "$(either "$waits" "emulated: $(value host host_driver) calls of the driver and $waits waits in a step" "$no_cuda")" \
    "$(mark "${waits:-1} + $(value host host_driver)0 == 0" "$waits")" "build/paper/trace host"
for turn in 1 2 3; do measure hogwild$turn "$B/hogwild"; done
texts() { for turn in 1 2 3; do text hogwild$turn "$1"; done | spread; }
times=$(texts 's/ times as fast.*//p')
alone=$(texts 's/^1 processes.*, \(.*\) % are wrong$/\1/p') both=$(texts 's/^2 processes.*, \(.*\) % are wrong$/\1/p')
shown=$(with_spread %.2f $times)
times=${times%% *} alone=${alone%% *} both=${both%% *}
row 5.4 "Processes share tensors: Hogwild (two processes at least 1.7 times as fast as one, at most 5 % wrong, within a point)" \
    "two processes: $shown times the samples of one; $both % wrong, one process $alone %" \
    "$(hogwild_mark "$times" "$alone" "$both")" "build/hogwild"
tested 5.4 "Gradients are added up over processes (here by MPI)" parallel.sh "sh tests/parallel.sh"
mpi="mpirun --allow-run-as-root --oversubscribe --mca btl self,vader"
for n in 1 2; do [ ! -x "$B/parallel/ranks" ] || measure "ranks$n" $mpi -np $n "$B/parallel/ranks" speed; done
one=$(text ranks1 's/.*: step \([0-9]*\) ms.*/\1/p') two=$(text ranks2 's/.*: step \([0-9]*\) ms.*/\1/p')
one_shown=$(text ranks1 's/.*: step \([0-9]* ms [^,]*\),.*/\1/p') two_shown=$(text ranks2 's/.*: step \([0-9]* ms [^,]*\),.*/\1/p')
hidden=$(text ranks2 's/.*(\(.*\) % hidden)/\1/p') sums=$(text ranks2 's/.*sums alone \([0-9]*\) ms.*/\1/p') bare=$(text ranks2 's/.*, \([0-9]*\) ms without sums.*/\1/p')
row 5.4 "Two processes share a step of a net of 105 MB (at most 0.6 of its time, at least 70 % of the sums behind backward)" \
    "$(either "$two" "$one_shown by one, $two_shown by two: $(number %.2f "$two/$one"); when backward ends $hidden % of the sums are done; $bare ms without sums, $sums ms for sums alone" "no MPI here")" \
    "$(mark "${two:-1} <= 0.6 * ${one:-1} && ${hidden:-0} >= 70" "$one" "$two")" "mpirun -np 2 build/parallel/ranks speed"
measure live "$B/bench/live" "$P/live-here.txt" || rm -f "$P/live-here.txt"
[ -z "$torch" ] || measure live_torch "$PYTHON" bench/paper.py live "$P/live-torch.txt" || rm -f "$P/live-torch.txt"
peak() { [ -s "$P/live-$1.txt" ] && awk '$2 > m { m = $2 } END { if (m) { printf "%.0f", m / 1e6 } }' "$P/live-$1.txt" 2>/dev/null; }
own=$(peak here) other=$(peak torch)
row 5.5 "Counted references free at once: live bytes of a training step of ResNet-50, batch 4 (within a tenth of PyTorch's)" \
    "at most $own MB${other:+; PyTorch $other MB}" "$(mark "$own / ${other:-1} <= 1.1" "$own" "$other")" "build/bench/live FILE"

section "Evaluation (section 6)"
ahead=$(value queue queue_ahead)
row 6.1 "Figure 1: the device takes about three times as long as the host needs to queue" \
    "$(either "$ahead" "emulated: $(number %.0f "$ahead/1") times (host $(number %.2f "$(value queue queue_host)/1") ms, device at least $(number %.0f "$(value queue queue_device)/1") ms)" "$no_cuda")" \
    "$(mark "${ahead:-0} >= 3" "$ahead")" "build/paper/trace queue FILE.svg"
measure profiled "$B/bench/profiled"
main_total=$(value profiled main_job_total) resnet_total=$(value profiled resnet50_total)
cost=$(for turn in 1 2 3; do number %.1f "$(value micro$turn add16_profiled)/1 - $(value micro$turn add16)/1"; echo; done | spread)
row 6.1 "The built-in profiler accounts for a step: its rows add up to at least 98 % of it by another clock, for at most 60 ns an op" \
    "$(either "$main_total" "main job $(number %.2f "$main_total/1") % of $(number %.1f "$(value profiled main_job_with)/1") ms, $(number %.1f "$(value profiled main_job_self)/1") % in kernels ($(number %.1f "$(value profiled main_job_without)/1") ms without the profiler); ResNet-50 $(number %.2f "$resnet_total/1") % of $(number %.0f "$(value profiled resnet50_with)/1") ms, $(number %.1f "$(value profiled resnet50_self)/1") % in kernels ($(number %.0f "$(value profiled resnet50_without)/1") ms without); $(with_spread %.0f $cost) ns an op" "bench/profiled failed")" \
    "$(mark "${main_total:-0} >= 98 && ${main_total:-0} <= 102 && ${resnet_total:-0} >= 98 && ${resnet_total:-0} <= 102 && ${cost%% *} + 0 <= 60" "$main_total" "$resnet_total" "$cost")" "build/bench/profiled"
tested 6.1 "A profiler that is not set costs an operation no instruction (callgrind)" callgrind "sh tests/callgrind.sh"
# The first step's calls of the driver are behind the kernels where the host runs ahead, so it is the host's time that tells.
paid=$(value cached memory_host_1) later=$(middle cached memory_host_2 memory_host_3 memory_host_4 memory_host_5)
first=$(value cached memory_step_1) whole=$(middle cached memory_step_2 memory_step_3 memory_step_4 memory_step_5)
without=$(middle uncached memory_step_2 memory_step_3 memory_step_4 memory_step_5)
row 6.2 "Figure 2: the first step pays for cudaMalloc and cudaFree, later ones do not (300 us and 100 us a call)" \
    "$(either "$paid" "emulated: the host queues the first step in $(number %.1f "$paid/1") ms, later ones in $(number %.1f "$later/1") ms; with the kernels $(number %.0f "$first/1") and $(number %.0f "$whole/1") ms, without the cache $(number %.0f "$without/1") ms" "$no_cuda")" \
    "$(mark "${paid:-0} >= 5 * ${later:-1} && ${without:-0} >= 2 * ${whole:-1}" "$paid" "$later" "$without" "$whole")" "TENSOR_CUDA_NO_CACHE=1 build/paper/trace memory"
models=$RESULTS/paper-models.md
if [ -n "$torch" ] && [ -z "$QUICK" ]; then
    for name in alexnet vgg19 resnet50 mobilenet_v2 gnmt ncf; do    # each within the time of one measure
        MODELS=$name THREADS=1 TURNS=${TURNS:-3} STEPS=3 COMPILE=0 LOG=$P/zoo.log RESULTS=$models measure zoo "$PYTHON" bench/zoo.py table "$B"
        cat "$P/zoo.txt.err" >>"$P/zoo-all.err"
    done
fi
[ -n "$torch" ] || models=
for name in alexnet vgg19 resnet50 mobilenet_v2 gnmt ncf; do
    ratio=$(awk -F ' *[|] *' -v name="$name" '$2 ~ "^" name "," { print $6 }' "${models:-/dev/null}" 2>/dev/null)
    figure=$(awk -F ' *[|] *' -v name="$name" '$2 ~ "^" name "," { split($2, w, " "); print $4 ", PyTorch " $5 " " w[3] "/s" }' "${models:-/dev/null}" 2>/dev/null)
    row 6.3 "Table 1, training: $name (at least as fast as PyTorch, one thread of a CPU)" \
        "${figure:-no PyTorch here}${ratio:+: $ratio times}" "$(mark "${ratio:-0} >= 1" "$ratio")" "MODELS=$name sh bench/zoo.sh"
done
least=$(awk -F ' *[|] *' '$6 + 0 > 0 && (!m || $6 < m) { m = $6 } END { if (m) { print m } }' "${models:-/dev/null}" 2>/dev/null)
row 6.3 "No more than 17 % slower than the fastest (section 3: a tenth of the speed may be traded for simplicity, not half)" \
    "$(either "$least" "the slowest of the six: $least times PyTorch eager; beside torch.compile see bench/results/models.md" "no PyTorch here")" "$(mark "${least:-0} >= 0.83" "$least")" "sh bench/zoo.sh"
row 6.3 "Table 1 on its GPU, ResNet-50: kernels bound it, not the host" \
    "$(either "$ns" "emulated: at most $(number %.0f "32000000/$kernels") images/s by its kernels, $(number %.0f "32000000/$queued") by the host" "$no_cuda")" \
    "$(mark "${kernels:-0} > ${queued:-1}" "$ns")" "build/paper/trace host"
tested 6.3 "The models are those of PyTorch: parameters, losses and gradients of ten steps" models "build/tests/models"

section "Future work (section 7)"
eager=$(of_turns micro mlp_step) replay=$(of_turns micro mlp_step_replay)
row 7 "A compiler for programs (here: a step is captured once and replayed)" \
    "small network: $(with_spread %.1f $eager) us, replayed $(with_spread %.1f $replay) us" "$(mark "${replay%% *} + 0 < ${eager%% *} + 0" "$eager" "$replay")" \
    "build/bench/micro"
tested 7 "Replays give the bits of the calls" capture "build/tests/capture"

# ---- the page

# The two curves of live memory: x is the share of the step's time.
awk -v here="$P/live-here.txt" -v torch="$P/live-torch.txt" '
    function curve(file, color, name, y,    n, i, t, b, line, most) {
        while ((getline line < file) > 0) { split(line, w, " "); t[n] = w[1]; b[n++] = w[2]; if (w[2] > most) { most = w[2] } }
        if (!n) { return }
        printf "<polyline fill=\"none\" stroke=\"%s\" points=\"", color
        for (i = 0; i < n; i++) { printf "%.1f,%.1f ", 60 + 820 * t[i] / t[n - 1], 280 - b[i] / 1e6 * 0.3 }
        printf "\"/>\n<text x=\"640\" y=\"%d\" fill=\"%s\">%s, at most %.0f MB</text>\n", y, color, name, most / 1e6
    }
    BEGIN {
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"310\" font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"900\" height=\"310\" fill=\"white\"/>"
        for (mb = 0; mb <= 800; mb += 200) {
            printf "<path d=\"M60 %d H880\" stroke=\"#ddd\"/><text x=\"10\" y=\"%d\">%d MB</text>\n", 280 - mb * 0.3, 284 - mb * 0.3, mb
        }
        print "<text x=\"60\" y=\"300\">live bytes in a training step of ResNet-50, batch 4, over the share of its time</text>"
        curve(here, "#c33", "tensor.h", 20)
        curve(torch, "#36c", "PyTorch", 36)
        print "</svg>"
    }' >"$RESULTS/paper-live.svg"
# Figure 2: five steps of each way, as bars.
[ -z "$trace" ] || awk '
    /^memory_step_/ { way = FILENAME ~ /uncached/ ? 2 : 1; ms[way, ++count[way]] = $2; if ($2 > most) { most = $2 } }
    /^memory_host_/ { host[way, count[way]] = $2 }
    END {
        print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"560\" height=\"220\" font-family=\"sans-serif\" font-size=\"12\">"
        print "<rect width=\"560\" height=\"220\" fill=\"white\"/>"
        print "<text x=\"10\" y=\"16\">ResNet-50, batch 32, first five training steps in ms (emulated driver)</text>"
        for (k = 1; k <= 2; k++) {
            for (n = 1; n <= 5; n++) {
                h = 140 * ms[k, n] / most; x = 20 + 270 * (k - 1) + 48 * (n - 1)
                printf "<rect x=\"%d\" y=\"%.1f\" width=\"36\" height=\"%.1f\" fill=\"%s\"/>", x, 190 - h, h, k == 1 ? "#36c" : "#c33"
                printf "<text x=\"%d\" y=\"%.1f\">%.0f</text>\n", x + 6, 185 - h, ms[k, n]
                h = 140 * host[k, n] / most
                printf "<rect x=\"%d\" y=\"%.1f\" width=\"36\" height=\"%.1f\" fill=\"%s\"/>\n", x, 190 - h, h, k == 1 ? "#136" : "#611"
            }
            printf "<text x=\"%d\" y=\"208\">%s</text>\n", 20 + 270 * (k - 1), k == 1 ? "caching" : "without (TENSOR_CUDA_NO_CACHE=1)"
        }
        print "</svg>"
    }' "$P/cached.txt" "$P/uncached.txt" >"$RESULTS/paper-figure2.svg"

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
count() { grep -c "| $1 |.* \`" "$P/rows.md"; }
{
    cat <<END
# The paper, claim by claim

What "PyTorch: An Imperative Style, High-Performance Deep Learning Library" (Paszke et al., NeurIPS 2019) says, and what
this library does. \`make paper\` measured every row and wrote this page: $(date -u +%Y-%m-%d), ${cpu:-unknown processor},
${torch:+PyTorch $torch, }load of the machine before it $load. $(grep -c '| `' "$P/rows.md") rows: $(count yes) met, $(count no) not met; $(count measured) measured, $(count emulated) emulated, $(count "not run") not run.
Times are medians, those of Table 1 of ${TURNS:-3} turns; in brackets the least and the most of the turns.

*Emulated* rows run tensor_cuda.cu with a driver that computes nothing ([bench/idle.cpp](../bench/idle.cpp)): the host's
time is real, without the driver's own 2 to 4 us a launch. Kernels are taken to need what their bytes and products need
at the rates of the data sheet, which no kernel reaches: 10.3 TFLOP/s and 717 GB/s for the Quadro GP100 that the paper
used, 67 TFLOP/s and 4.8 TB/s for an H200. No row was measured on a GPU; where there is one, \`make gpu\` measures ops,
networks, the queue of figure 1 and the first steps of figure 2. Two more things wait for one and have no row; the suite
runs them on an emulator: a CUDA kernel of the user's own, recorded by autograd ([examples/custom_kernel.cu](../examples/custom_kernel.cu)),
and sums of gradients by NCCL. Figure 3 (section 6.4) counts papers that name PyTorch, which no program shows.
END
    cat "$P/rows.md"
    cat <<END

## Figures

Figure 1, emulated: when the host asks for each op of a forward pass, and when the device runs it.

![Two lanes: the host is done long before the device](../bench/results/paper-figure1.svg)

Figure 2, emulated: the first five training steps with the caching allocator and without; dark, the host's part, which
runs beside the kernels.

![Bars: with the cache the host's part is large in the first step alone; without it all are long](../bench/results/paper-figure2.svg)

Live bytes of a training step, counted references here and in PyTorch.

![Two curves that rise in the forward and fall in the backward pass](../bench/results/paper-live.svg)

Table 1 with memory: [bench/results/paper-models.md](../bench/results/paper-models.md), of the same run: one thread,
PyTorch eager. [bench/results/models.md](../bench/results/models.md) is the long one: one and two threads, torch.compile
too, five turns (\`sh bench/zoo.sh\`, an hour).
END
} >"$PAGE"
echo "$PAGE: $(count yes) met, $(count no) not met, $(count "not run") not run, $(($(date +%s) - began)) s"
