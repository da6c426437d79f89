# jobs.sh - the main job stopped after 10 of 20 steps and resumed writes the same file, to the bit, as one that
# runs through; so does one with another number of threads. Ends with "N passed, N failed".
B=${B:-build}
T=$B/jobs
passed=0
failed=0
check() {
    if "$@" >"$T/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $*"
        tail -n 15 "$T/log"
    fi
}
rm -rf "$T"
mkdir -p "$T"
gpt="env STEPS=20 $B/char_gpt"
check env THREADS=1 SAVE=$T/whole.safetensors $gpt
check env THREADS=1 SAVE=$T/parts.safetensors STOP=10 $gpt
cp $T/parts.safetensors $T/half.safetensors
check env THREADS=1 SAVE=$T/parts.safetensors RESUME=1 $gpt
check env THREADS=3 SAVE=$T/threads.safetensors $gpt
check cmp $T/whole.safetensors $T/parts.safetensors
check cmp $T/whole.safetensors $T/threads.safetensors
check sh -c "! cmp -s $T/whole.safetensors $T/half.safetensors"
# Bad input: a missing text, a truncated checkpoint, folders that do not exist. Each ends with a code and a line.
refused() {
    if "$@" >"$T/log" 2>&1; then
        failed=$((failed + 1))
        echo "accepted: $*"
    elif [ $? -gt 100 ] || [ ! -s "$T/log" ]; then
        failed=$((failed + 1))
        echo "crashed or said nothing: $*"
    else
        passed=$((passed + 1))
    fi
}
refused env TEXT=$T/missing.txt $gpt
head -c 1000 $T/half.safetensors >$T/cut.safetensors
refused env RESUME=1 SAVE=$T/cut.safetensors $gpt
refused env RESUME=1 SAVE=$T/missing.safetensors $gpt
refused env STOP=1 SAVE=$T/no/such/folder.safetensors $gpt
refused env DATA=$T/nowhere $B/fashion
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
