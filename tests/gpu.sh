# gpu.sh - bench/gpu.sh tried without a GPU: what each part leaves behind after a normal end, a failing test, a
# library that is missing, a program that hangs, and a signal. tests/cuda.sh runs it, whose objects of the emulator it
# links.
#
#   sh tests/gpu.sh            uses $B/cuda (build), $IMPL, $CXX
#
# The programs are bench/gpu.c on the emulator, sizes divided by 64, and small doubles of the tests; no time that is
# measured here is one of a GPU, and PyTorch's side, which takes none but a GPU's, is left out. The last line is
# "N passed, N failed".
B=${B:-build}
CXX=${CXX:-g++}
PYTHON=${PYTHON:-python3}
out=$B/cuda
impl=${IMPL:-$B/tests/libtensor.a}
export GPU=$out/standin PREBUILT=1 TRIAL=64 LD_LIBRARY_PATH
unset RESULTS OPS WORST ROWS PART LIMIT
passed=0
failed=0
check() {                               # check WHAT, after a condition
    if [ "$?" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "gpu.sh: $*"
    fi
}
mkdir -p "$GPU"
rm -rf "$GPU"/* "$out"/results-*
$CXX "$out/gpu.o" "$out/kernels-plain.o" "$out/cusim-plain.o" "$out/fakes-plain.o" "$impl" -pthread -lm -ldl -o "$GPU/gpu"
check "bench/gpu.c is compiled and linked"
double() {                              # double NAME TEXT..: a test program that prints the text, or sleeps
    name=$1
    shift
    printf '#!/bin/sh\n%s\n' "$*" > "$GPU/$name"
    chmod +x "$GPU/$name"
}
for t in device streams ops_device nn_rows kernels; do double $t 'echo "exp                              3 native      0 fallback"; echo "5 passed, 0 failed"'; done
double custom_kernel 'echo "result   agrees"'
# It runs twice at once, and another must not find its file.
double device 'echo $$ > same.txt; sleep 1; if [ "$(cat same.txt)" = $$ ]; then echo "5 passed, 0 failed"; else echo "4 passed, 1 failed"; fi'
# At most 8 files of 16 MiB with names that travel; a table, a log, the machine's facts; no file of what runs now.
left_well() {
    [ "$(ls "$1" | wc -l)" -le 8 ]
    check "$1: more than 8 files"
    [ -z "$(find "$1" -size +16384k)" ]
    check "$1: a file that is too large"
    [ -z "$(ls "$1" | LC_ALL=C grep -v '^[A-Za-z0-9._-]*$')" ]
    check "$1: a name that does not travel"
    [ -s "$1/$2-table.md" ] && [ -s "$1/$2-log.txt" ] && [ -s "$1/facts.txt" ] && [ ! -e "$1/$2-now.txt" ]
    check "$1: table, log or facts are missing: $(ls "$1" | tr '\n' ' ')"
}
# part NAME COMMAND..: RESULTS is results-NAME, what is printed is in gpu-NAME.txt.
part() {
    name=$1
    shift
    env RESULTS="$out/results-$name" "$@" > "$out/gpu-$name.txt" 2>&1
}

# Ends as they should.
part truth sh bench/gpu.sh truth
check "truth: $(tail -n 3 "$out/gpu-truth.txt" | tr '\n' ';')"
left_well "$out/results-truth" truth
grep -q '^[1-9][0-9]* passed, 0 failed$' "$out/gpu-truth.txt" && grep -q '^cost_launch ' "$out/results-truth/truth-rows.txt"
check "truth: no costs"
grep -q 'smoke_attention_backward_bf16_by_a_library passed' "$out/results-truth/truth-log.txt"
check "truth: no smoke test"
part ops LIMIT=3000 sh bench/gpu.sh ops        # all rows: the machine may be busy
check "ops: $(tail -n 3 "$out/gpu-ops.txt" | tr '\n' ';')"
left_well "$out/results-ops" ops
grep -q '^add.bf16.n.b ' "$out/results-ops/ops-rows.txt" && grep -q '^gpt2_graph ' "$out/results-ops/ops-rows.txt" &&
    grep -q '^warm_up_driver_6 ' "$out/results-ops/ops-rows.txt" && grep -q '</svg>' "$out/results-ops/queue.svg"
check "ops: rows or figures are missing"
grep -q '^left out\|^cut' "$out/results-ops/ops-log.txt"
[ $? -eq 1 ]
check "ops: rows or networks are left out: $(grep '^left out\|^cut' "$out/results-ops/ops-log.txt" | head -n 3)"
[ ! -s "$out/results-ops/ops-torch.txt" ]
check "ops: times of PyTorch without a GPU"
"$PYTHON" bench/gpu.py ops 5 > "$out/gpu-torch.txt" 2>&1
[ $? -eq 3 ] && grep -q 'no PyTorch with a GPU' "$out/gpu-torch.txt"
check "gpu.py measured without a GPU"
part why AGAIN="add.f32.c.f sum.f32.c.f" WORST="add.f32.c.f" sh bench/gpu.sh why
left_well "$out/results-why" why
grep -q '^spread of add.f32.c.f:' "$out/results-why/why-log.txt"
check "why: no spread"
mkdir -p "$out/ops-elsewhere"           # ops was run before, and its rows were brought along
printf 'add.f32.c.f 10 us own\nrelu.f32.c.f 30 us own\n' > "$out/ops-elsewhere/ops-rows.txt"
printf 'add.f32.c.f 10 us torch\nrelu.f32.c.f 10 us torch\n' > "$out/ops-elsewhere/ops-torch.txt"
part why-again AGAIN="add.f32.c.f" OPS="$out/ops-elsewhere" sh bench/gpu.sh why
left_well "$out/results-why-again" why
grep -q '^the worst: relu.f32.c.f add.f32.c.f$' "$out/results-why-again/why-log.txt"
check "why: not the worst rows of ops: $(grep '^the worst' "$out/results-why-again/why-log.txt")"

# A library that is not there: the smoke test fails and says which one, the costs are there all the same.
for lib in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2; do
    part $lib CUSIM_MISSING=$lib sh bench/gpu.sh truth
    [ $? -ne 0 ]
    check "without $lib: status 0"
    left_well "$out/results-$lib" truth
    grep -q "library: .* is needed, but $lib cannot be opened" "$out/results-$lib/truth-table.md" &&
        grep -q '^ *failed: smoke_.*_by_a_library failed' "$out/results-$lib/truth-table.md" &&
        grep -q '^cost_launch ' "$out/results-$lib/truth-rows.txt"
    check "without $lib: $(tail -n 3 "$out/gpu-$lib.txt" | tr '\n' ';')"
done

# A test fails, one ends without a count, one hangs: the part says which, and fails; the others' results are there.
double streams 'echo "streams.c:9: wrong"; echo "4 passed, 1 failed"; exit 1'
double nn_rows 'echo "about to crash"; kill -9 $$'
double kernels 'echo begun; sleep 100'
double custom_kernel 'echo "result   differs"; exit 1'
mv "$GPU/gpu" "$GPU/gpu.real"
double gpu 'echo "check one passed"; echo "1 passed, 0 failed"'
part failing LIMIT=12 sh bench/gpu.sh truth
[ $? -ne 0 ]
check "failing tests: status 0"
left_well "$out/results-failing" truth
grep -q '^failed: streams: 4 passed, 1 failed' "$out/results-failing/truth-log.txt" && grep -q 'streams.c:9: wrong' "$out/results-failing/truth-log.txt"
check "failing tests: streams"
grep -q '^ *ended without a count: nn_rows, status 137' "$out/results-failing/truth-table.md"
check "failing tests: nn_rows"
grep -q '^ *cut after .*kernels' "$out/results-failing/truth-table.md"
check "failing tests: kernels"
grep -q '^-- device, status 0: 5 passed, 0 failed' "$out/results-failing/truth-log.txt"
check "failing tests: device"
grep -q '^failed: custom_kernel, status 1: result   differs' "$out/results-failing/truth-log.txt"
check "failing tests: custom_kernel"
double custom_kernel 'echo "result   agrees"'
# The whole is ended while something runs.
for signal in TERM HUP KILL; do
    for how in truth ops why; do
        double gpu 'echo "add.f32.c.f                        12.5 us own"; echo "check one passed"; echo "half way"; sleep 100'
        RESULTS=$out/results-$signal-$how setsid sh bench/gpu.sh $how > "$out/gpu-$signal.txt" 2>&1 &
        group=$!
        for tenth in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
            sleep 0.5
            if grep -q 'half way' "$out/results-$signal-$how/$how-now.txt" 2> /dev/null; then break; fi
        done
        if [ "$signal" = KILL ]; then   # of all at once, as where a machine's time is over
            kill -KILL -"$group"
            wait "$group" 2> /dev/null
            grep -q 'half way' "$out/results-KILL-$how/$how-now.txt" && [ -s "$out/results-KILL-$how/facts.txt" ]
            check "kill -9 of $how: what ran is lost"
        else
            kill -$signal "$group"
            wait "$group"
            [ $? -gt 128 ]
            check "$signal of $how: status"
            left_well "$out/results-$signal-$how" $how
            grep -q '^ended from outside during: .*gpu' "$out/results-$signal-$how/$how-log.txt" &&
                grep -q 'half way' "$out/results-$signal-$how/$how-log.txt"
            check "$signal of $how: the log"
        fi
    done
done
mv "$GPU/gpu.real" "$GPU/gpu"
# Nothing is compiled, and what is not there is said.
rm "$GPU/kernels"
part missing NVCC=/nowhere/nvcc sh bench/gpu.sh truth
[ $? -ne 0 ] && grep -q "^failed: $GPU/kernels is not there" "$out/gpu-missing.txt"
check "a missing program"
left_well "$out/results-missing" truth

# Both sides of gpu.h do the same: shapes of all results.
"$GPU/gpu" shapes > "$out/shapes.txt" 2>&1
check "shapes: $(tail -n 1 "$out/shapes.txt")"
if "$PYTHON" -c 'import torch' 2> /dev/null; then
    CUDA_VISIBLE_DEVICES= "$PYTHON" bench/gpu.py shapes > "$out/shapes-torch.txt" 2>&1
    grep '^shape' "$out/shapes.txt" | cmp -s - "$out/shapes-torch.txt"
    check "shapes are not PyTorch's: $(grep '^shape' "$out/shapes.txt" | diff - "$out/shapes-torch.txt" | head -n 3)"
else
    echo "skipped 1 test of gpu.h: no PyTorch"
fi
# Every row has its prediction, and the table has all there is.
printf 'add.f32.c.f 10 us own\nadd.f32.c.f.host 1 us\nsum.f32.c.f 20 us own\nalone 3 calls\n' > "$out/one.txt"
printf 'add.f32.c.f 9 us eager\nsum.f32.c.f 30 us eager\n' > "$out/two.txt"
"$PYTHON" bench/gpu.py table "$out/one.txt" "$out/two.txt" bench/results/gpu-predictions.md > "$out/table.md" 2>&1
grep -q '^| add.f32.c.f | 10 | 9 | us | 0.90 | [0-9]' "$out/table.md" && grep -q '^| alone | 3 | | calls' "$out/table.md" &&
    grep -q '^2 rows beside .* 1 at 0.95 or more' "$out/table.md"
check "table: $(head -n 4 "$out/table.md" | tail -n 2)"
[ "$("$PYTHON" bench/gpu.py worst 1 "$out/one.txt" "$out/two.txt")" = add.f32.c.f ]
check "worst"
"$PYTHON" - "$out/shapes.txt" << 'END'
import fnmatch, sys
sys.path.insert(0, "bench")
import gpu
said = gpu.predictions("bench/results/gpu-predictions.md")
rows = [line.split()[1] for line in open(sys.argv[1]) if line.startswith("shape ")]
bad = [r for r in rows if not any(fnmatch.fnmatch(r, p) for p, _ in said)]
print("gpu.sh: without a prediction:", *bad[:9]) if bad or len(rows) < 400 else None
sys.exit(bool(bad) or len(rows) < 400)
END
check "predictions"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
