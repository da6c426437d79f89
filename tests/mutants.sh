# mutants.sh - how many small faults in the headers the tests notice. Not a part of make test: make mutants.
#
#   sh tests/mutants.sh [PROGRAM ...]    uses $B (build), $CC (cc), $EVERY (9: one of so many places), $SECONDS_ALL
#                                        (1800), $JOBS (1); $RESUME=1 goes on with what the run before built and tried
#
# One library is built in which every mutant is (TENSOR__MUTANT(n) ? fault : original) (tests/mutants/mutate.awk); the
# environment chooses. Those that the preprocessor leaves out (other processors and systems) are not of this build. A
# first run of each program says which mutants it meets: only such programs are run, the shortest first. The order of
# mutants strides through the headers, so that a limit of time leaves out no part of them alone. The list of survivors
# is $B/mutants/survived; the last line counts. tests/mutants/equivalent.txt lists those that change no result, each
# with its reason: they are tried too and counted apart.
B=${B:-build}
CC=${CC:-cc}
out=$B/mutants

# try NUMBER FILE LINE KIND: a line of what became of the mutant.
if [ "$1" = try ]; then
    met=unmet
    while read -r ms p; do
        grep -qx "$2" "$out/$p.met" || continue
        met=survived
        MUTANT=$2 timeout $((ms * 4 / 1000 + 5)) "$out/$p" >"$out/log.$2" 2>&1 </dev/null
        [ "$? $(tail -n 1 "$out/log.$2")" = "$(cat "$out/$p.ends")" ] || { met=noticed; break; }
    done <"$out/programs"
    rm -f "$out/log.$2"
    line="$3 $5: $(sed -n "${4}p" "$3" | sed 's/^ *//')"
    if grep -Fqx "$line" tests/mutants/equivalent.txt; then
        if [ "$met" = noticed ]; then echo "noticed by $p, so not equivalent: $line"; else met=equivalent; fi
    fi
    echo "$met $2 $3 $4 $5" >>"$out/tried"
    exit 0
fi

most=${SECONDS_ALL:-1800}
programs=${*:-details modes hooks functions views calculus autograd composed conversions indexing sorting printing lifetime \
    malformed activations powers accepted parity sequence conv linalg nn gradcheck checkpoint nn_rows files readers fixtures \
    ops_values ops_errors ops_random ops_edges ops_dtypes ops_every formats training graph_limits recorder bounds threads \
    loader capture host realtime states modules parametrized layers autocast properties traps streams device grads tested}
flags="-std=c99 -O1 -w -pthread -I$out/copy -I. -DTENSOR_ISA=avx2 -DTENSOR_ALL_ROWS -include tests/mutants/mutants.h"
began=$(date +%s)

# Lines whose mutants do not compile are left out, until all do.
mutate() {
    next=$(awk -v first=0 -v every="${EVERY:-9}" -v drop="$out/drop" -v list="$out/list1" -f tests/mutants/mutate.awk tensor.h \
        2>&1 >"$out/copy/tensor.h")
    all=$(awk -v first="$next" -v every="${EVERY:-9}" -v drop="$out/drop" -v list="$out/list2" -f tests/mutants/mutate.awk \
        tensor_nn.h 2>&1 >"$out/copy/tensor_nn.h")
    cat "$out/list1" "$out/list2" >"$out/list"
}
build() {
    rm -rf "$out"
    mkdir -p "$out/copy"
    : >"$out/drop"
    : >"$out/tried"
    printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$out/impl.c"
    tries=0
    while mutate && ! $CC $flags -fsyntax-only "$out/impl.c" 2>"$out/errors"; do
        sed -n 's,.*/\(tensor[_n]*\.h\):\([0-9]*\):[0-9]*: error.*,\1 \2,p' "$out/errors" | sort -u >>"$out/drop"
        tries=$((tries + 1))
        if [ "$tries" -gt 8 ]; then
            head "$out/errors"
            return 1
        fi
    done
    printf '%s\n' 1 2 3 4 |
        xargs -P "${JOBS:-1}" -I{} $CC $flags -DTENSOR_IMPLEMENTATION_PART={} -c "$out/impl.c" -o "$out/part{}.o" || return 1
    $CC $flags -E "$out/impl.c" | grep -o 'tensor__met\[[0-9]*\]' | tr -dc '0-9\n' | sort -u >"$out/built"
    awk 'FILENAME == ARGV[1] { built[$1] = 1; next } $1 in built' "$out/built" "$out/list" >"$out/list.built"
    mv "$out/list.built" "$out/list"
    $CC -c tests/mutants/chosen.c -o "$out/chosen.o" || return 1
    : >"$out/programs"
    for p in $programs; do
        $CC $flags "tests/$p.c" "$out"/part?.o "$out/chosen.o" -lm -o "$out/$p" 2>/dev/null ||
            { echo "$p: not built, left out"; continue; }
        from=$(date +%s%N)
        MUTANT=-1 MET="$out/$p.met" timeout 150 "$out/$p" >"$out/log" 2>&1
        echo "$? $(tail -n 1 "$out/log")" >"$out/$p.ends"       # some need more than one instruction set
        case $(cat "$out/$p.ends") in
        *" passed, "*" failed") echo "$((($(date +%s%N) - from) / 1000000)) $p" >>"$out/programs" ;;
        *) echo "$p: $(cat "$out/$p.ends") without a mutant, left out" ;;
        esac
    done
    sort -n "$out/programs" -o "$out/programs"
}
[ -n "$RESUME" ] || build || { echo "0 passed, 1 failed"; exit 1; }

# Every 37th, then the ones behind them, so many at a time that the limit of time is kept.
awk 'FILENAME == ARGV[1] { done[$2] = 1; next } !($1 in done) { print (FNR % 37) "\t" $0 }' "$out/tried" "$out/list" | sort -n -s -k1,1 |
    cut -f 2 >"$out/left"
at=1
while [ "$at" -le "$(wc -l <"$out/left")" ] && [ $(($(date +%s) - began)) -le "$most" ]; do
    sed -n "$at,$((at + 9))p" "$out/left" | xargs -P "${JOBS:-1}" -L 1 sh tests/mutants.sh try
    at=$((at + 10))
done

: >"$out/survived"
while read -r met number file line kind; do
    [ "$met" = noticed ] || [ "$met" = equivalent ] ||
        echo "$met: $file $kind: $(sed -n "${line}p" "$file" | sed 's/^ *//')" >>"$out/survived"
done <"$out/tried"
sort "$out/survived" -o "$out/survived"
cat "$out/survived"
count() { grep -c "^$1" "$out/tried"; }
tried=$(($(wc -l <"$out/tried") - $(count equivalent)))
[ "$tried" -gt 0 ] || tried=1
echo "$tried mutants: $(count noticed) noticed ($((100 * $(count noticed) / tried)) %), $(count survived) survived, $(count \
    unmet) met by none of $(wc -l <"$out/programs") programs; $(count equivalent) equivalent, $(($(wc -l <"$out/list") - $(wc -l \
    <"$out/tried"))) not tried"
