# mutants.sh - how many small faults in the headers the tests notice. Not a part of make test: make mutants.
#
#   sh tests/mutants.sh [PROGRAM ...]    uses $B (build), $CC (cc), $EVERY (9: one of so many places), $SECONDS (1800)
#
# One library is built in which every mutant is (TENSOR__MUTANT(n) ? fault : original) (tests/mutants/mutate.awk); the
# environment chooses. A first run of each program says which mutants it meets: only such programs are run, the
# shortest first. The list of survivors is $B/mutants/survived; the last line counts.
B=${B:-build}
CC=${CC:-cc}
out=$B/mutants
most=${SECONDS_ALL:-1800}
programs=${*:-modes hooks functions views calculus autograd composed conversions indexing sorting printing lifetime malformed \
    activations powers accepted parity sequence conv linalg nn gradcheck checkpoint nn_rows files readers fixtures ops_values}
flags="-std=c99 -O1 -w -pthread -I$out/copy -I. -DTENSOR_ISA=avx2 -include tests/mutants/mutants.h"
began=$(date +%s)
mkdir -p "$out/copy"
: >"$out/drop"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$out/impl.c"

# Lines whose mutants do not compile are left out, until all do.
mutate() {
    next=$(awk -v first=0 -v every="${EVERY:-9}" -v drop="$out/drop" -v list="$out/list1" -f tests/mutants/mutate.awk tensor.h \
        2>&1 >"$out/copy/tensor.h")
    all=$(awk -v first="$next" -v every="${EVERY:-9}" -v drop="$out/drop" -v list="$out/list2" -f tests/mutants/mutate.awk \
        tensor_nn.h 2>&1 >"$out/copy/tensor_nn.h")
    cat "$out/list1" "$out/list2" >"$out/list"
}
tries=0
while mutate && ! $CC $flags -fsyntax-only "$out/impl.c" 2>"$out/errors"; do
    sed -n 's,.*/\(tensor[_n]*\.h\):\([0-9]*\):[0-9]*: error.*,\1 \2,p' "$out/errors" | sort -u >>"$out/drop"
    tries=$((tries + 1))
    if [ "$tries" -gt 8 ]; then
        head "$out/errors"
        echo "0 passed, 1 failed"
        exit 1
    fi
done
printf '%s\n' 1 2 3 4 | xargs -P "${JOBS:-1}" -I{} $CC $flags -DTENSOR_IMPLEMENTATION_PART={} -c "$out/impl.c" -o "$out/part{}.o" || exit 1
$CC -c tests/mutants/chosen.c -o "$out/chosen.o" || exit 1

: >"$out/programs"
for p in $programs; do
    $CC $flags "tests/$p.c" "$out"/part?.o "$out/chosen.o" -lm -o "$out/$p" 2>/dev/null || { echo "$p: not built, left out"; continue; }
    from=$(date +%s%N)
    if MUTANT=-1 MET="$out/$p.met" timeout 150 "$out/$p" >"$out/log" 2>&1; then
        echo "$((($(date +%s%N) - from) / 1000000)) $p" >>"$out/programs"
    else
        echo "$p: $(tail -n 1 "$out/log") without a mutant, left out"
    fi
done
sort -n "$out/programs" -o "$out/programs"

noticed=0 survived=0 unmet=0 left=0
: >"$out/survived"
while read -r number file line kind; do
    if [ $(($(date +%s) - began)) -gt "$most" ]; then
        left=$((left + 1))
        continue
    fi
    met=0 found=0
    while read -r ms p; do
        grep -qx "$number" "$out/$p.met" || continue
        met=1
        MUTANT=$number timeout $((ms * 4 / 1000 + 5)) "$out/$p" >/dev/null 2>&1 </dev/null || { found=1; break; }
    done <"$out/programs"
    if [ "$found" = 1 ]; then
        noticed=$((noticed + 1))
    elif [ "$met" = 1 ]; then
        survived=$((survived + 1))
        echo "survived: $file:$line $kind: $(sed -n "${line}p" "$file" | sed 's/^ *//')" >>"$out/survived"
    else
        unmet=$((unmet + 1))
        echo "not met: $file:$line $kind: $(sed -n "${line}p" "$file" | sed 's/^ *//')" >>"$out/survived"
    fi
done <"$out/list"
cat "$out/survived"
echo "$((noticed + survived + unmet)) mutants: $noticed noticed, $survived survived, $unmet met by none of $(wc -l <"$out/programs") programs, $left not tried"
