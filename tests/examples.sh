# examples.sh - runs each example whose first comment has a line "// Output:" and compares what it prints; runs the
# programs of the gallery with few steps and looks at the size, the ink and the loss in the caption of what they
# draw; gives them files that are missing or wrong; compiles each header of examples/kit by itself, in C and C++.
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

# program steps picture size ink loss: at least so many per cent are not paper (of SVG: so many elements), the loss
# is below the bound, or there is none.
while read -r name steps kind size ink bound; do
    picture=$out/$name.$kind
    if ! STEPS=$steps "$B/$name" "$picture" >"$out/$name.txt" 2>"$out/$name.err" </dev/null; then
        result "$name: fails: $(cat "$out/$name.err")"
        continue
    fi
    if [ "$kind" = text ]; then
        seen=$(tr '\n' ' ' <"$out/$name.txt")
    else
        seen=$("$B/tests/kit_plot" "$picture")
        result "$(case $seen in "$size "*) ;; *) echo "$name: the picture is not of $size: $seen" ;; esac)"
        result "$(echo "$seen" | awk -v ink="$ink" '$2 + 0 < ink { print "too little is drawn: " $0 }')"
    fi
    [ "$bound" = none ] || result "$(echo "$seen" | awk -v name="$name" -v bound="$bound" '{
        loss = "none"
        for (i = 1; i < NF; i++) if ($i == "loss") loss = $(i + 1)
        if (loss !~ /^[0-9]/ || loss + 0 > bound) print name ": the loss is " loss ", not below " bound
    }')"
done <<'END'
image_fit    100  png  824x246  70 0.004
spiral       150  png  1100x320 40 0.3
vae          200  png  1000x330 8  140
pinn         700  png  1100x330 20 0.1
timeseries   100  svg  1100x330 30 0.25
npc_crowd    90   png  1320x290 3  0.5
fine_tune    40   png  1100x330 20 1.0
cartpole     3    svg  700x320  20 none
word_vectors 1200 text -        -  4
END

# refused TEXT COMMAND..: fails, says one sentence with TEXT, and writes no picture.
refused() {
    text=$1
    shift
    rm -f "$out/none.png"
    "$@" >"$out/refused.txt" 2>"$out/refused.err" </dev/null
    got=$?
    result "$([ "$got" -ne 0 ] && [ "$got" -lt 126 ] || echo "$*: status $got")"
    result "$(grep -q -- "$text" "$out/refused.err" || echo "$*: does not say \"$text\": $(cat "$out/refused.err")")"
    result "$([ "$(wc -l <"$out/refused.err")" -eq 1 ] || echo "$*: more than one line: $(cat "$out/refused.err")")"
    result "$(ls "$out"/none.png* 2>/dev/null | sed 's/$/ was written/')"
}
export STEPS=1
refused "not a binary PPM" env IMAGE=README.md "$B/image_fit" "$out/none.png"
refused "not a binary PPM" env IMAGE="$out/missing" "$B/image_fit" "$out/none.png"
refused "lines day,value" "$B/timeseries" "$out/none.png" "$out/missing.csv"
refused "lines day,value" "$B/timeseries" "$out/none.png" README.md
refused "cannot write" "$B/spiral" "$out/no such folder/none.png"
refused "ends in .svg or .png" "$B/spiral" "$out/none.gif"
# A full disk: files may have 4 KB.
refused "cannot write" sh -c 'trap "" XFSZ; ulimit -f 8; exec "$@"' full "$B/spiral" "$out/none.png"
refused "fewer than 2000 words" env TEXT=LICENSE "$B/word_vectors"

unset STEPS
warn="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only -I."
for h in examples/kit/*.h; do
    name=$(basename "$h" .h | tr 'a-z' 'A-Z')
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

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
