# fuzz.sh - builds the fuzz targets (tests/fuzz) with clang's libFuzzer, address and undefined behaviour sanitizers, runs
# each on its committed inputs and then for some seconds on new ones.
#
#   sh tests/fuzz.sh [TARGET ...]   uses $B (build), $CLANG (clang), $SECONDS_EACH (5), $FUZZ_FLAGS (for a wider
#                                   instruction set: -march=native)
#
# An input that fails is left in $B/fuzz/found; FUZZ_TRACE=1 $B/fuzz/api FILE prints the program it stands for. The last
# line is "N passed, N failed".
B=${B:-build}
CLANG=${CLANG:-clang}
seconds=${SECONDS_EACH:-5}
out=$B/fuzz
passed=0
failed=0
targets=${*:-api arrays checkpoint csv dlpack gguf idx lora media safetensors shards snapshot strings tokens torchfile}
flags="-std=c99 -O1 -g -pthread -I. -DTENSOR_ISA=native $FUZZ_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all"
mkdir -p "$out/found"

printf 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n); int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { (void)p, (void)n; return 0; }\n' >"$out/probe.c"
if ! "$CLANG" -fsanitize=fuzzer,address,undefined "$out/probe.c" -o "$out/probe" >/dev/null 2>&1; then
    echo "skipped $(echo $targets | wc -w) tests of fuzzing: no $CLANG with libFuzzer"
    echo "0 passed, 0 failed"
    exit 0
fi
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$out/impl.c"
# The parts are compiled anew when a header or the flags changed.
stamp="$CLANG $flags $(cat tensor.h tensor_nn.h | cksum)"
if [ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -f "$out/stamp"
    printf '%s\n' 1 2 3 4 | xargs -P "${JOBS:-1}" -I{} "$CLANG" $flags -fsanitize=fuzzer-no-link -DTENSOR_IMPLEMENTATION_PART={} \
        -c "$out/impl.c" -o "$out/part{}.o" && echo "$stamp" >"$out/stamp"
fi
for t in $targets; do
    dictionary=
    if [ -f "tests/fuzz/$t.dict" ]; then dictionary="-dict=tests/fuzz/$t.dict"; fi
    rm -rf "$out/$t.seeds"
    mkdir -p "$out/$t.seeds" "$out/$t.corpus"
    if "$CLANG" $flags -fsanitize=fuzzer "tests/fuzz/$t.c" "$out"/part?.o -lm -o "$out/$t" &&
        "$B/tests/seeds" unpack "$t" "$out/$t.seeds" &&
        "$out/$t" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4000 -max_len=2048 -print_final_stats=1 \
            -artifact_prefix="$out/found/$t-" $dictionary "$out/$t.corpus" "$out/$t.seeds" >"$out/$t.log" 2>&1; then
        passed=$((passed + 1))
        echo "$t: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$t.log") inputs," \
            "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$out/$t.log" | tail -n 1) edges"
    else
        failed=$((failed + 1))
        echo "$t failed; the input: $(sed -n 's/.*Test unit written to //p' "$out/$t.log")"
        grep -v '^#[0-9]' "$out/$t.log" | head -n 25 | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
