# same.sh - whether results are those of an earlier version, bit for bit.
#
#   BEFORE=folder sh bench/same.sh              (PASSES="sse2 avx2 avx512" of x86-64, THREADS)
#
# BEFORE is the root of the earlier version (git worktree add FOLDER COMMIT). bench/same.c, which hashes every
# result and gradient of the cases of tests/ops.def and 20 training steps of `make run`, is built with the
# headers of both and run with each instruction set. Prints the results that differ. What the earlier version
# lacks is left out of a copy of the tests, as its compiler says, until the copy compiles.
CC=${CC:-gcc}
B=${B:-build}
PASSES=${PASSES:-sse2 avx2 avx512}
T=$B/same
[ -f "$BEFORE/tensor_nn.h" ] || { echo "same.sh: BEFORE is not the folder of an earlier version"; exit 1; }
rm -rf "$T"
mkdir -p "$T/tests"
cp tests/ops.def tests/calls.h tests/cases.h tests/test.h bench/same.c examples/char_gpt.c "$T/tests"
flags="-std=gnu99 -pthread -fmax-errors=0 -ftrack-macro-expansion=2 -Werror=implicit-function-declaration"
flags="$flags -Werror=int-conversion -Werror=incompatible-pointer-types -I$T/tests -Iexamples"

# Of each error, the row of ops.def that it is in, else its outermost line: "FILE LINE".
blamed() {
    awk -v folder="$T/tests/" '
        function flush() { if (row == "") row = own; if (row != "") print row; row = own = "" }
        / error: / { flush() }
        index($0, folder) == 1 {
            split(substr($0, length(folder) + 1), at, ":")
            if (at[1] == "ops.def") row = at[1] " " at[2]
            else own = at[1] " " at[2]
        }
        END { flush() }' "$T/errors" | sort -u
}
# cut FILE LINE...: empties the rows of ops.def, the statements, or else the functions, that have these lines.
cut_lines() {
    file=$1
    shift
    awk -v lines=" $* " '
        { text[NR] = $0 }
        END {
            for (i = 1; i <= NR; i++) {
                if (!index(lines, " " i " ")) continue
                line = text[i]
                whole = line ~ /^ / && line !~ /^ *return/ && line ~ /[;}]$/
                whole = whole && gsub(/[({]/, "", line) == gsub(/[)}]/, "", line)
                from = to = i
                if (!whole) {
                    while (from > 1 && text[from] !~ /^[^ }]/) from--
                    if (text[from] ~ /{$/) while (to < NR && text[to] !~ /^}/) to++
                    else while (to < NR && text[to + 1] ~ /^ /) to++
                }
                for (k = from; k <= to; k++) text[k] = ""
                cut++
            }
            for (i = 1; i <= NR; i++) print text[i]
        }' "$T/tests/$file" >"$T/cut" && mv "$T/cut" "$T/tests/$file"
}
# What a function of calls.h lacks makes errors in rows, too: these wait for the next turn.
turn=0
while ! $CC $flags "-I$BEFORE" -fsyntax-only "$T/tests/same.c" 2>"$T/errors"; do
    turn=$((turn + 1))
    blamed >"$T/blamed"
    file=calls.h
    grep -q '^calls.h ' "$T/blamed" || file=ops.def
    if [ $turn -gt 40 ] || ! grep -q "^$file " "$T/blamed"; then
        head -n 20 "$T/errors"
        exit 1
    fi
    cut_lines $file $(sed -n "s/^$file //p" "$T/blamed")
done

printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$T/whole.c"
for v in before now; do
    folder=.
    [ $v = now ] || folder=$BEFORE
    $CC -std=c99 -O2 -w -pthread "-I$folder" -c "$T/whole.c" -o "$T/$v.o" &&
        $CC -w $flags -O1 "-I$folder" "$T/tests/same.c" "$T/$v.o" -lm -o "$T/$v" || exit 1
done
status=0
for pass in $PASSES; do
    for v in before now; do
        # The variable of 0.1 was TENSOR_CPU.
        if ! TENSOR_CPU=$pass TENSOR_ISA=$pass "$T/$v" ${THREADS:-1} >"$T/$v.$pass" 2>"$T/errors"; then
            cat "$T/errors"
            exit 1
        fi
    done
    # A case that one of them refuses has no number of a result, so it is not compared.
    awk -v pass="$pass" '
        { key = $0; sub(/: [^ ]*$/, "", key) }
        FNR == NR { before[key] = $NF; next }
        key in before { both++ }
        key in before && before[key] != $NF { differ++; print "    " key }
        END { printf "%s: %d results, %d differ\n", pass, both, differ; exit differ > 0 }' \
        "$T/before.$pass" "$T/now.$pass" || status=1
done
exit $status
