# models.sh - the programs of examples/models: each model trains two steps, wrong files and arguments are refused in one
# sentence, GPT-2's goes on with a text; and files: what PyTorch writes gives PyTorch's results in C, and back.
# Ends with "N passed, N failed".
B=${B:-build}
PYTHON=${PYTHON:-python3}
out=$B/tests/models.files
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out"

# result TEXT: passes if TEXT is empty, else shows it.
result() {
    if [ -z "$1" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1"
    fi
}

# refused TEXT COMMAND..: status 1 and one sentence on stderr, with that in it.
refused() {
    text=$1
    shift
    "$@" >"$out/refused.txt" 2>"$out/refused.err" </dev/null
    got=$?
    result "$([ "$got" -eq 1 ] || echo "$*: status $got")"
    result "$(grep -q -- "$text" "$out/refused.err" || echo "$*: does not say \"$text\": $(cat "$out/refused.err")")"
    result "$([ "$(wc -l <"$out/refused.err")" -eq 1 ] || echo "$*: not one line: $(cat "$out/refused.err")")"
}

# A model is read in one sitting.
result "$(wc -l examples/models/*.[ch] | awk '$2 != "total" && $1 >= 200 { print $2 ": " $1 " lines, not under 200" }')"

# model batch thin: the loss of the second step on the same batch is below the first one's.
while read -r name batch thin; do
    THIN=$thin "$B/models/train" "$name" "$batch" 2 >"$out/train.txt" 2>&1 </dev/null
    result "$(awk -v name="$name" '
        $1 == "step" { loss[$2] = $4 }
        $1 == name ":" && $2 > 0 { last = 1 }
        END { if (!last || !(loss[2] < loss[1])) print name ": does not train" }' "$out/train.txt"
        [ "$(wc -l <"$out/train.txt")" -eq 3 ] || cat "$out/train.txt")"
done <<'END'
alexnet 4 8
vgg19 4 16
resnet18 4 8
resnet50 4 8
mobilenet_v2 4 4
gnmt 4 32
ncf 64 16
lstm_lm 4 10
vit_tiny 4 4
vae 8 1
gpt2 2 16
END
result "$(THIN=8 "$B/models/train" dcgan 4 2 2>&1 </dev/null | grep -q '^dcgan: [0-9.]* images/s' || echo "dcgan: does not run")"

"$B/models/train" ncf 8 abc >"$out/own.txt" 2>&1 </dev/null
result "$([ $? -eq 1 ] && grep -q '^tensor: STEPS: "abc" is not a whole number' "$out/own.txt" || echo "STEPS abc: $(cat "$out/own.txt")")"

# The user's data: a text, ratings, pictures.
for line in "TEXT=LICENSE lstm_lm 2 10" "TEXT=LICENSE gpt2 2 16" "RATINGS=$out/ratings.csv ncf 64 16" \
    "DATA=$out vae 8 1" "DATA=$out alexnet 4 8"; do
    set -- $line
    awk 'BEGIN { for (i = 1; i <= 300; i++) print i % 50 + 1 "," i % 70 + 1 ",5,0" }' >"$out/ratings.csv"
    [ -f "$out/train-images-idx3-ubyte" ] || {
        printf '\000\000\010\003\000\000\000\020\000\000\000\034\000\000\000\034' >"$out/train-images-idx3-ubyte"
        cat README.md CHANGELOG.md CONTRIBUTING.md | head -c 12544 >>"$out/train-images-idx3-ubyte"
        printf '\000\000\010\001\000\000\000\020' >"$out/train-labels-idx1-ubyte"
        printf '\001\002\003\004\005\006\007\010\001\002\003\004\005\006\007\010' >>"$out/train-labels-idx1-ubyte"
    }
    env "$1" THIN="$4" "$B/models/train" "$2" "$3" 2 >"$out/own.txt" 2>&1 </dev/null
    env THIN="$4" "$B/models/train" "$2" "$3" 2 >"$out/made.txt" 2>&1 </dev/null
    result "$(grep -q "^$2: " "$out/own.txt" || cat "$out/own.txt")"
    result "$(if grep step "$out/made.txt" | diff - "$out/own.txt" >/dev/null; then echo "$line: the data is not used"; fi)"
done

# Long texts are read to their end: what differs behind more than 8 million letters is seen by the second step.
awk 'BEGIN {
    for (i = 0; i < 18; i++) long = (long == "" ? "a" : long long)
    for (i = 0; i < 84; i++) print long i
}' >"$out/long.txt"
for file in README.md LICENSE; do
    cat "$out/long.txt" $file >"$out/text.txt"
    THIN=10 TEXT=$out/text.txt "$B/models/train" lstm_lm 2 2 </dev/null 2>&1 | grep "^step" >"$out/of.$file"
done
result "$([ "$(wc -l <"$out/of.LICENSE")" -eq 2 ] || cat "$out/of.LICENSE")"
result "$([ "$(sed -n 1p "$out/of.LICENSE")" = "$(sed -n 1p "$out/of.README.md")" ] || echo "the same words give other losses")"
result "$([ "$(sed -n 2p "$out/of.LICENSE")" != "$(sed -n 2p "$out/of.README.md")" ] || echo "a long text is cut")"

# A text that does not fit into memory: one sentence. The limit lies 40 MB above what a short text takes, and 4.3
# million words take 64 MB.
THIN=10 TEXT=README.md "$B/models/train" lstm_lm 2 5000 >"$out/short.txt" 2>&1 </dev/null &
pid=$!
while ! grep -q "^step" "$out/short.txt" && kill -0 $pid 2>/dev/null; do :; done
peak=$(sed -n 's/^VmPeak:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null)
kill $pid
wait $pid 2>/dev/null
if [ -n "$peak" ] && [ "$peak" -lt 4000000 ]; then
    awk 'BEGIN { while (i++ < 100) s = s "a "; while (n++ < 43000) print s }' >"$out/million.txt"
    refused "the text is too long" env THIN=10 TEXT="$out/million.txt" sh -c 'ulimit -v "$1"; shift; exec "$@"' less \
        $((peak + 40000)) "$B/models/train" lstm_lm 2 1
    rm "$out/million.txt"
else
    echo "skipped 3 tests of a text without memory: no /proc, or a sanitizer's memory"
fi

# Pictures are read once: what becomes of the file after the first step does not matter.
mkdir "$out/once"
cp "$out/train-images-idx3-ubyte" "$out/train-labels-idx1-ubyte" "$out/once"
DATA=$out/once "$B/models/train" vae 8 400 >"$out/once.txt" 2>&1 </dev/null &
pid=$!
while ! grep -q "^step" "$out/once.txt" && kill -0 $pid 2>/dev/null; do :; done
rm "$out/once/train-images-idx3-ubyte"
wait $pid
result "$(grep -q '^vae: ' "$out/once.txt" || tail -n 1 "$out/once.txt")"

# Debian has Fashion-MNIST, here unpacked as `make fashion` does it: models learn from it.
debian=${DATASET:-/usr/share/datasets/fashion-mnist}
if [ -f "$debian/train-images-idx3-ubyte.gz" ]; then
    mkdir -p "$out/debian"
    for file in train-images-idx3-ubyte train-labels-idx1-ubyte; do
        gunzip -c "$debian/$file.gz" >"$out/debian/$file"
    done
    while read -r name batch thin; do
        DATA=$out/debian THIN=$thin "$B/models/train" "$name" "$batch" 20 >"$out/own.txt" 2>&1 </dev/null
        result "$(awk -v name="$name" '
            $1 == "step" { if ($2 <= 5) early += $4; if ($2 > 15) late += $4 }
            $1 == name ":" { last = 1 }
            END { if (!last || !(late < early)) print name ": does not learn from Fashion-MNIST" }' "$out/own.txt")"
    done <<'END'
vae 32 1
resnet18 16 16
END
else
    echo "skipped 2 tests of models on Fashion-MNIST: no $debian"
fi

small=tests/fixtures/models_small.safetensors
refused "use: train MODEL" "$B/models/train"
refused "models: alexnet vgg19" "$B/models/train" alexnet2
refused "conv1.weight" env THIN=16 WEIGHTS=$small "$B/models/train" resnet50 2 1
refused "none" env THIN=16 WEIGHTS="$out/none" "$B/models/train" vae 2 1
refused "README.md" env THIN=16 WEIGHTS=README.md "$B/models/train" vae 2 1
refused "missing" env THIN=16 TEXT="$out/none" "$B/models/train" lstm_lm 2 1
refused "missing" env THIN=16 TEXT="$out" "$B/models/train" lstm_lm 2 1
refused "missing" env THIN=16 RATINGS=README.md "$B/models/train" ncf 2 1
mkdir "$out/idx"
cp README.md "$out/idx/train-images-idx3-ubyte"
refused "not an IDX file" env DATA="$out/idx" "$B/models/train" vae 2 1
refused "missing" env THIN=16 RATINGS="$out/none" "$B/models/train" ncf 2 1
refused "none" env DATA="$out/none" "$B/models/train" vae 2 1
# A batch of more pictures than there are, and labels for fewer.
refused "fewer pictures" env THIN=8 DATA="$out" "$B/models/train" vae 17 1
mkdir "$out/labels"
cp "$out/train-images-idx3-ubyte" "$out/labels"
printf '\000\000\010\001\000\000\000\002\001\002' >"$out/labels/train-labels-idx1-ubyte"
refused "label for each" env THIN=8 DATA="$out/labels" "$B/models/train" vae 8 1
# A first step without a loss: ratings without a width.
refused "" env THIN=33 "$B/models/train" ncf 2 1
result "$(sed 's/^/ncf of no width: prints a result: /' "$out/refused.txt")"
refused "use: gpt2" "$B/models/gpt2" "$out"
refused "vocab.json" "$B/models/gpt2" "$out/none" text

# GPT-2's program with a file of its layout, small.
cp tests/fixtures/kit/vocab.json tests/fixtures/kit/merges.txt "$out"
"$B/tests/models" gpt2 "$out" >/dev/null
"$B/models/gpt2" "$out" "the cat" 6 >"$out/said.txt" 2>"$out/said.err" </dev/null
result "$(grep -q "^the cat." "$out/said.txt" || cat "$out/said.txt" "$out/said.err")"
refused "more than" "$B/models/gpt2" "$out" "the cat" 1000
refused "whole number of 1 to 1000" "$B/models/gpt2" "$out" "the cat" 2000
for temperature in abc nan -1 0.5x 1e999; do
    refused "TEMPERATURE: \"$temperature\" is not a number of 0 to 1000" "$B/models/gpt2" "$out" "the cat" 6 $temperature
    result "$(sed "s/^/temperature $temperature: prints a result: /" "$out/refused.txt")"
done
# Other words with a temperature than without.
"$B/models/gpt2" "$out" "the cat" 6 1.5 >"$out/warm.txt" 2>&1 </dev/null
"$B/models/gpt2" "$out" "the cat" 6 0 >"$out/cold.txt" 2>&1 </dev/null
result "$(grep -q "^the cat" "$out/warm.txt" || cat "$out/warm.txt")"
result "$(diff -q "$out/warm.txt" "$out/cold.txt" >/dev/null && echo "a temperature changes no word")"
result "$(diff "$out/said.txt" "$out/cold.txt")"
# A folder of a long name is opened like any other.
long=$out/$(printf '%0200d' 1)/$(printf '%0200d' 2)/$(printf '%0200d' 3)
mkdir -p "$long/idx"
cp "$out/model.safetensors" "$out/vocab.json" "$out/merges.txt" "$long"
cp "$out"/train-*-idx?-ubyte "$long/idx"
"$B/models/gpt2" "$long" "the cat" 6 >"$out/long.txt" 2>&1 </dev/null
result "$(diff "$out/said.txt" "$out/long.txt")"
THIN=1 DATA=$long/idx "$B/models/train" vae 8 1 >"$out/long.txt" 2>&1 </dev/null
result "$(grep -q '^vae: ' "$out/long.txt" || cat "$out/long.txt")"
if [ -c /dev/full ]; then
    refused "cannot \(write\|be written\)" sh -c 'exec "$@" >/dev/full' full "$B/models/gpt2" "$out" "the cat" 6
else
    echo "skipped 3 tests of a full disk: no /dev/full"
fi
head -c 3000 "$out/model.safetensors" >"$out/cut" && mv "$out/cut" "$out/model.safetensors"
refused "model.safetensors" "$B/models/gpt2" "$out" "the cat" 6
cp README.md "$out/model.safetensors"
refused "model.safetensors" "$B/models/gpt2" "$out" "the cat" 6
cp README.md "$out/vocab.json"
refused "vocab.json" "$B/models/gpt2" "$out" "the cat" 6

if "$PYTHON" -c 'import torch, numpy' 2>/dev/null; then
    for step in "$PYTHON tests/fixtures/models.py write" "$B/tests/models read" "$B/tests/models write" \
        "$PYTHON tests/fixtures/models.py read"; do
        $step "$out" >"$out/step.txt" 2>&1 </dev/null
        status=$?
        last=$(tail -n 1 "$out/step.txt")
        case $last in
            *" passed, "*" failed")
                passed=$((passed + $(echo "$last" | cut -d' ' -f1)))
                failed=$((failed + $(echo "$last" | cut -d' ' -f3)))
                [ "$status" -eq 0 ] || cat "$out/step.txt"
                ;;
            *) result "$([ "$status" -eq 0 ] || cat "$out/step.txt")" ;;
        esac
    done
else
    echo "skipped 24 tests of files that PyTorch writes and reads: no $PYTHON with torch and numpy"
fi
rm -rf "$out"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
