# examples.sh - runs each example whose first comment has a line "// Output:" and compares what it prints; runs the
# programs of the gallery with few steps and looks at the size, the ink and the loss in the caption of what they
# draw; gives all of them files that are missing or wrong and a full disk; compiles each header of examples/kit by itself, in C and C++.
# Ends with "N passed, N failed".
B=${B:-build}
passed=0
failed=0
out=$B/tests/examples
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

for f in examples/*.c; do
    name=$(basename "$f" .c)
    awk '!/^\/\// { exit } on && /^\/\/$/ { exit } on { print substr($0, 6) } /^\/\/ Output:$/ { on = 1 }' "$f" \
        >"$out/want.txt"
    [ -s "$out/want.txt" ] || continue
    if "$B/$name" >"$out/got.txt" 2>"$out/err.txt" </dev/null &&
        diff "$out/want.txt" "$out/got.txt" >"$out/diff.txt"; then
        result ""
    else
        result "$f: does not print what its first comment says (< said, > printed)
$(cat "$out/diff.txt" "$out/err.txt")"
    fi
done

# program setting picture size ink word bound: at least so many per cent are not paper (of SVG: so many elements);
# the number behind that word, in the caption or the text, is not above the bound, or there is none.
while read -r name setting kind size ink word bound; do
    picture=$out/$name.$kind
    set -- "$B/$name"
    [ "$kind" = text ] || set -- "$B/$name" "$picture"
    if ! env "$setting" SAVE="$out/$name.safetensors" "$@" >"$out/$name.txt" 2>"$out/$name.err" </dev/null; then
        result "$name: fails: $(cat "$out/$name.err")"
        continue
    fi
    if [ "$kind" = text ]; then
        seen=$(tr '\r\n' '  ' <"$out/$name.txt")
    else
        seen=$("$B/tests/kit_plot" "$picture")
        result "$(case $seen in "$size "*) ;; *) echo "$name: the picture is not of $size: $seen" ;; esac)"
        result "$(printf '%s\n' "$seen" | awk -v ink="$ink" '$2 + 0 < ink { print "too little is drawn: " $0 }')"
    fi
    [ "$bound" = none ] || result "$(printf '%s\n' "$seen" | awk -v name="$name" -v word="$word" -v bound="$bound" '{
        value = "none"
        for (i = 1; i < NF && value == "none"; i++) if ($i == word) value = $(i + 1)
        if (value !~ /^[0-9]/ || value + 0 > bound) print name ": after " word " comes " value ", not below " bound
    }')"
done <<'END'
image_fit    STEPS=100  png  824x246  70 loss 0.004
spiral       STEPS=150  png  1100x320 40 loss 0.3
vae          STEPS=200  png  1000x330 8  loss 140
pinn         STEPS=700  png  1100x330 20 loss 0.1
timeseries   STEPS=100  svg  1100x330 30 loss 0.25
npc_crowd    STEPS=90   png  1320x290 3  loss 0.5
fine_tune    STEPS=40   png  1100x330 20 loss 1.0
cartpole     STEPS=300  svg  700x320  20 after 200
fashion      EPOCHS=2   png  1200x400 30 loss 0.8
dcgan        STEPS=40   png  1400x320 50 loss 4
word_vectors STEPS=1200 text -        -  loss 4
char_gpt     STEPS=40   text -        -  out  3.6
hogwild      STEPS=1500 text -        -  worst 5
tones        STEPS=150  text -        -  wrong 5
END

# refused TEXT COMMAND..: fails with status 1, says one sentence with TEXT, and leaves nothing in its folder, where a
# picture or a file would be $none.png or so.
none=$out/none/none
progress='[0-9]/[0-9]* .*[0-9]/s  '          # a line of a progress bar
refused() {
    text=$1
    shift
    rm -rf "$out/none"
    mkdir "$out/none"
    "$@" >"$out/refused.txt" 2>"$out/refused.all" </dev/null
    got=$?
    grep -v "$progress" "$out/refused.all" >"$out/refused.err"
    result "$([ "$got" -eq 1 ] || echo "$*: status $got")"
    result "$(grep -q -- "$text" "$out/refused.err" || echo "$*: does not say \"$text\": $(cat "$out/refused.err")")"
    result "$([ "$(wc -l <"$out/refused.err")" -eq 1 ] || echo "$*: not one line: $(cat "$out/refused.err")")"
    result "$(ls -A "$out/none" | sed "s|^|$*: left there: |")"
}
export STEPS=1 EPOCHS=0
# What cannot be written: no such folder, a name that says no kind, a disk that is full (a file may have 4 KB).
for name in image_fit spiral vae pinn timeseries npc_crowd fine_tune cartpole fashion dcgan; do
    refused "cannot write" "$B/$name" "$none/no such folder/none.png"
    refused "ends in .svg or .png" "$B/$name" "$none.gif"
    refused "cannot write" sh -c 'trap "" XFSZ; ulimit -f 8; exec "$@"' full "$B/$name" "$none.png"
done
refused "" sh -c 'trap "" XFSZ; ulimit -f 8; exec "$@"' full env SAVE="$none.safetensors" "$B/char_gpt"
refused "cannot be written" sh -c 'trap "" XFSZ; ulimit -f 1; exec "$@" >/dev/null' full "$B/profile" "$none.json"
refused "cannot write" sh -c 'trap "" XFSZ; ulimit -f 1; cd "$1" && exec "$2"' full "$out/none" "$(cd "$B" && pwd)/lora"
refused "cannot be written" sh -c 'cd "$1" && exec "$2"' full "$out/none" "$(cd "$B" && pwd)/export_step"
printf 'P5\n4 4\n255\n0123456789abcdef' >"$out/picture.pgm"
for command in "augment $out/picture.pgm @.png" "weights examples/data/shapes.safetensors @.safetensors" "profile @.json" \
    "models/train vae 2 1"; do
    # shellcheck disable=SC2086
    refused "cannot \(write\|create\|be written\)" env SAVE="$none/no such folder/x" "$B/"$(echo "$command" | sed "s,@,$none/none,")
    # shellcheck disable=SC2086
    refused "cannot \(write\|be written\)" sh -c 'trap "" XFSZ; ulimit -f 1; exec "$@" >/dev/null' full env SAVE="$none.safetensors" \
        "$B/"$(echo "$command" | sed "s,@,$none,")
done
# What was there before stays as it was when the new one cannot be written: commands that write @.
for line in "profile @old.json" "spiral @old.png" "timeseries @old.svg"; do
    # shellcheck disable=SC2086
    set -- $(echo "$line" | sed "s,@,$out/kept/,")
    command=$B/$1
    rm -rf "$out/kept"
    mkdir "$out/kept"
    echo "what was there" >"$2"
    sh -c 'trap "" XFSZ; ulimit -f 1; exec "$@" >/dev/null' full "$command" "$2" 2>"$out/kept.err" </dev/null
    got=$?
    result "$([ "$got" -eq 1 ] || echo "$line: status $got where the disk is full")"
    result "$([ "$(cat "$2")" = "what was there" ] || echo "$line: the old file is not what it was")"
    result "$([ "$(ls -A "$out/kept")" = "$(basename "$2")" ] || echo "$line: left there: $(ls -A "$out/kept")")"
done
# A picture does not take the place of a device.
ln -s /dev/null "$out/device.png"
refused "not a regular file" "$B/spiral" "$out/device.png"
refused "not a regular file" "$B/augment" "$out/picture.pgm" "$out/device.png"
result "$([ -h "$out/device.png" ] || echo "the link to a device is gone")"
if [ -c /dev/full ]; then
    for command in word_vectors table tokens "weights examples/data/shapes.safetensors" char_gpt 02_autograd 03_xor \
        04_custom_layer 05_gan 06_custom_function 07_control_flow export_step lora profile hogwild augment tones "models/train vae 1 2"; do
        refused "cannot write\|cannot be written" env SAVE="$out/full.safetensors" sh -c 'exec "$@" >/dev/full' full "$B/"$command
    done
    for name in image_fit spiral vae pinn timeseries npc_crowd fine_tune cartpole fashion dcgan; do
        # The picture, which is whole, may stay. Each epoch of fashion is a line.
        refused "cannot write" env EPOCHS=1 sh -c 'exec "$@" >/dev/full' full "$B/$name" "$out/full.png"
    done
    # 01_tensors makes a mistake of its own, which is a line too.
    "$B/01_tensors" 2>"$out/full.err" >/dev/full
    got=$?
    result "$([ "$got" -eq 1 ] || echo "01_tensors, on a full disk: status $got")"
    result "$(grep -q "stdout cannot be written" "$out/full.err" || echo "01_tensors, on a full disk: $(cat "$out/full.err")")"
else
    echo "skipped 114 tests of a full disk: no /dev/full"
fi
# Settings that are no numbers, or not of the range.
for name in image_fit spiral vae pinn timeseries npc_crowd fine_tune cartpole dcgan word_vectors char_gpt hogwild tones profile; do
    refused "STEPS: \"abc\" is not a whole number" env STEPS=abc SAVE="$none" "$B/$name" "$none.png"
    refused "STEPS: \"0\" is not a whole number" env STEPS=0 SAVE="$none" "$B/$name" "$none.png"
    result "$(sed "s/^/$name, STEPS=0: prints a result: /" "$out/refused.txt")"
done
refused "EPOCHS: \"1.5\" is not a whole number" env EPOCHS=1.5 "$B/fashion" "$none.png"
refused "THREADS: \"two\" is not a whole number" env THREADS=two "$B/fashion" "$none.png"
refused "SEED: \"x\" is not a whole number" env SEED=x "$B/augment" "$out/picture.pgm" "$none.png"
# What cannot be read: the text of the error, then the command; @ is the folder of the programs.
head -c 1000 examples/data/shapes.safetensors >"$out/cut.safetensors"
mkdir -p "$out/idx"
cp README.md "$out/idx/train-images-idx3-ubyte"
sed '30s/,.*/,/' examples/data/visitors.csv >"$out/gap.csv"
head -n 300 examples/data/visitors.csv >"$out/short.csv"
printf 'value\n1\n' >"$out/one.csv"
while read -r line; do
    line=$(echo "$line" | sed "s,@,$B/,; s,OUT,$out,g; s,NONE,$none,g")
    text=${line%%|*}
    set -f
    # shellcheck disable=SC2086
    set -- ${line#*|}
    set +f
    refused "$text" "$@"
done <<'END'
not a binary PPM|env IMAGE=README.md @image_fit NONE.png
OUT/missing: No such file|env IMAGE=OUT/missing @image_fit NONE.png
OUT/missing.csv: No such file|@timeseries NONE.png OUT/missing.csv
OUT/gap.csv: a day has no value|@timeseries NONE.png OUT/gap.csv
OUT/short.csv: there are fewer than 312 lines|@timeseries NONE.png OUT/short.csv
OUT/one.csv: there are fewer than 312 lines|@timeseries NONE.png OUT/one.csv
README.md: line 3: more fields|@timeseries NONE.png README.md
OUT/missing|@fine_tune NONE.png OUT/missing
README.md|@fine_tune NONE.png README.md
cut.safetensors|@fine_tune NONE.png OUT/cut.safetensors
OUT/missing|env DATA=OUT/missing @fashion NONE.png
idx|env DATA=OUT/idx @fashion NONE.png
fewer than 2000 words|env TEXT=LICENSE @word_vectors
OUT/missing: No such file|env TEXT=OUT/missing @word_vectors
OUT/missing: No such file|env TEXT=OUT/missing SAVE=NONE @char_gpt
examples: Is a directory|env TEXT=examples SAVE=NONE @char_gpt
/dev/null: under 1280 bytes|env TEXT=/dev/null SAVE=NONE @char_gpt
README.md|env RESUME=1 SAVE=README.md @char_gpt
OUT/missing|env RESUME=1 SAVE=OUT/missing @char_gpt
OUT/missing|@table OUT/missing species
use: table file.csv column|@table OUT/missing
use: table file.csv column|@table examples/data/animals.csv
no column "species"|@table examples/data/animals.csv species
README.md|@table README.md species
OUT/missing|@weights OUT/missing
README.md: neither a file of PyTorch nor GGUF|@weights README.md
cut.safetensors|@weights OUT/cut.safetensors
use: weights|@weights
OUT/missing|@augment OUT/missing NONE.png
README.md|@augment README.md NONE.png
cut.safetensors|@augment OUT/cut.safetensors NONE.png
OUT/missing|@tones OUT/missing
README.md|@tones README.md
OUT/missing|@tokens OUT/missing OUT/missing text
README.md|@tokens README.md README.md text
use: tokens|@tokens a b
use: tokens|@tokens a
zebra: the text has it too rarely|env ASK=zebra @word_vectors
END
# What it cannot judge is found before the training.
refused "$out/missing" "$B/tones" "$out/missing"
result "$(sed "s/^/tones, no such file: prints a result: /" "$out/refused.txt")"
# The decoder by stb_image.h in the comment of transforms.h: it compiles as it stands there, and reads what png.h wrote.
stb=${STB:-/usr/include}
if [ -f "$stb/stb/stb_image.h" ]; then
    {
        printf '%s\n' '#define STB_IMAGE_IMPLEMENTATION' '#include <stb/stb_image.h>' '#define KIT_TRANSFORMS_IMPLEMENTATION' \
            '#include "kit/transforms.h"' '#define KIT_PNG_IMPLEMENTATION' '#include "kit/png.h"'
        sed -n 's,^//   \(static unsigned char \*decode.*\),\1,p; s,^//       \(return stbi_load.*\),\1,p; s,^//   }$,},p' \
            examples/kit/transforms.h
        cat <<'END'
int main(int argc, char **argv) {
    if (argc > 2) return tensor_is_poison(kit_read_image(argv[2], decode, stbi_image_free)) && tensor_shutdown() != 0;
    tensor_t *image = tensor_to(tensor_randint(0, 256, 3, 20, 30), TENSOR_U8);
    png_save(argv[1], image, NULL);
    int same = tensor_equal(image, kit_read_image(argv[1], decode, stbi_image_free));
    return tensor_shutdown() != 0 || !same;
}
END
    } >"$out/stb.c"
    result "$(${CC:-cc} -std=c99 -Wall -Wextra -I. -Iexamples -isystem "$stb" "$out/stb.c" "$B/libtensor.a" -lm -pthread \
        -o "$out/stb" 2>&1)"
    result "$("$out/stb" "$out/stb.png" 2>&1 || echo "stb_image.h: not the picture that png.h wrote")"
    refused "README.md: the decoder cannot read it" "$out/stb" "$out/stb.png" README.md
else
    echo "skipped 6 tests of stb_image.h: it is not in $stb/stb"
fi

# Processes that cannot be started leave no shared memory. Linux shows it as files.
shared_memory() { find /dev/shm -name 'kit-hogwild-*' 2>/dev/null | sort; }
shared_memory >"$out/shared_before.txt"
for processes in 65 0; do
    refused "PROCESSES: \"$processes\" is not a whole number of 1 to 64" env PROCESSES=$processes "$B/hogwild"
    result "$(sed "s/^/hogwild, PROCESSES=$processes: prints a result: /" "$out/refused.txt")"
done
shared_memory >"$out/shared_after.txt"
result "$(comm -13 "$out/shared_before.txt" "$out/shared_after.txt" | sed 's/^/hogwild: left there: /')"
# Nothing asks for a terminal.
for name in cartpole char_gpt; do
    result "$(SHOW=1 SAVE="$out/dumb.safetensors" TERM= "$B/$name" "$out/dumb.png" </dev/null 2>&1 >/dev/null | grep -v "$progress" | sed "s/^/$name: /")"
done

result "$(wc -l examples/hogwild.c | awk '$1 > 100 { print $2 ": " $1 " lines, at most 100" }')"

unset STEPS EPOCHS
warn="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only -I."
for h in examples/kit/*.h; do
    name=$(basename "$h" .h | tr 'a-z' 'A-Z')
    [ "$name" != MPI ] || continue      # tests/parallel.sh compiles it, where there is MPI
    for define in "" "#define KIT_${name}_IMPLEMENTATION"; do
        printf '%s\n#include "%s"\n#include "%s"\n' "$define" "$h" "$h" >"$out/kit.c"
        cp "$out/kit.c" "$out/kit.cpp"
        # shellcheck disable=SC2086
        result "$(${CC:-cc} -std=c99 -Wstrict-prototypes $warn "$out/kit.c" 2>&1 | head -n 5)"
        command -v "${CXX:-c++}" >/dev/null 2>&1 || continue
        # shellcheck disable=SC2086
        result "$(${CXX:-c++} -std=c++11 $warn "$out/kit.cpp" 2>&1 | head -n 5)"
    done
done

# CartPole is solved, a mean of 475 ticks, within 5 s of a core by 4 of 5 seeds.
solved=0
for seed in 1 2 3 4 5; do
    SEED=$seed "$B/cartpole" "$out/cartpole$seed.svg" >"$out/cartpole.txt" 2>&1
    took=$(sed -n 's/^solved after .* ticks, \([0-9.]*\) s of one core$/\1/p' "$out/cartpole.txt")
    if awk -v took="${took:-99}" 'BEGIN { exit !(took <= 5) }'; then solved=$((solved + 1)); fi
done
result "$([ $solved -ge 4 ] || echo "cartpole: solved within 5 s by $solved of 5 seeds")"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
