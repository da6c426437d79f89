# resume.sh - the main job stopped after 10 of 20 steps and resumed writes the same file, to the bit, as one that
# runs through; so does one with another number of threads. Ends with "N passed, N failed".
B=${B:-build}
T=$B/resume
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
gpt="$B/char_gpt steps=20"
check $gpt threads=1 save=$T/whole.safetensors
check $gpt threads=1 save=$T/parts.safetensors stop=10
cp $T/parts.safetensors $T/half.safetensors
check $gpt threads=1 save=$T/parts.safetensors resume=1
check $gpt threads=3 save=$T/threads.safetensors
check cmp $T/whole.safetensors $T/parts.safetensors
check cmp $T/whole.safetensors $T/threads.safetensors
check sh -c "! cmp -s $T/whole.safetensors $T/half.safetensors"
# Bad input: a missing text, a truncated checkpoint, a folder that does not exist. Each ends with a code and a line.
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
refused $gpt text=$T/missing.txt
head -c 1000 $T/half.safetensors >$T/cut.safetensors
refused $gpt resume=1 save=$T/cut.safetensors
refused $gpt resume=1 save=$T/missing.safetensors
refused $gpt stop=1 save=$T/no/such/folder.safetensors
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
