# costs.sh - what today's headers cost beside an earlier version's, in one run: seconds, kilobytes, instructions.
#
#   BEFORE=folder sh bench/costs.sh [build|first|instructions]...     all three where none is named
#
#   build           seconds and kilobytes of the programs of bench/sizes.sh; the earlier whole implementation is 1.00
#   first           a fresh copy of both, `make run STEPS=50` until the first loss, once each
#   instructions    what valgrind counts in one call of each row of bench/overhead.c under avx2 (which rows: ROWS)
#
# BEFORE is the root of the earlier version (git worktree add FOLDER COMMIT). Seconds are the user's of $CC -O2, the
# median of TURNS (3) turns that alternate between the versions; "parts" has those of the longest of 2 and of 4 jobs,
# which are the seconds that pass on a machine at rest. The CNN is the earlier version's program, with the kit's reader
# of IDX files. KB are .text, .rodata and .data.rel.ro.
CC=${CC:-gcc}
B=${B:-build}
TURNS=${TURNS:-3}
T=$B/costs
S=$B/sizes
[ -f "$BEFORE/tensor_nn.h" ] || { echo "costs.sh: BEFORE is not the folder of an earlier version"; exit 1; }
[ $# -gt 0 ] || set -- build first instructions
mkdir -p "$T"

median() { sort -n "$1" | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)] }'; }
kilobytes() {
    size -A "$1" | awk '$1 ~ /^\.(text|rodata|data\.rel\.ro)/ { sum += $2 } END { printf "%.1f", sum / 1024 }'
}
# timed NAME COMMAND...: adds the user seconds of COMMAND to the list of NAME.
timed() {
    list=$T/$1.seconds
    shift
    "$S/usage" "$@" >"$T/used" || { echo "does not build: $*"; exit 1; }
    cut -d' ' -f1 "$T/used" >>"$list"
}
# ratio TEXT SECONDS [FILE]
ratio() {
    awk -v text="$1" -v seconds="$2" -v whole="$whole" -v kb="$([ -z "$3" ] || kilobytes "$3")" 'BEGIN {
        printf "%-44s %6.2f s  %5.3f  %s\n", text, seconds, seconds / whole, kb == "" ? "" : kb " KB" }'
}

build() {
    PREPARE=1 CC=$CC B=$B sh bench/sizes.sh || exit 1
    rm -f "$T"/*.seconds
    { printf '#define %s\n' TENSOR_STATIC TENSOR_IMPLEMENTATION TENSOR_NN_IMPLEMENTATION KIT_IDX_IMPLEMENTATION
      echo '#include "kit/idx.h"'
      grep -v '^#define TENSOR_.*IMPLEMENTATION' "$BEFORE/examples/fashion.c" |
          sed 's/nn_read_idx/kit_read_idx/'; } >"$T/cnn-static.c"
    flags="-std=c99 -O2 -fno-asynchronous-unwind-tables -w -pthread -Iexamples"
    sections="$flags -ffunction-sections -fdata-sections"
    turn=0
    while [ $turn -lt "$TURNS" ]; do
        turn=$((turn + 1))
        for v in before now; do
            folder=.
            [ $v = now ] || folder=$BEFORE
            timed $v-whole $CC $flags "-I$folder" -c "$S/everything.c" -o "$T/$v-whole.o"
        done
        for part in 1 2 3 4; do
            timed part$part $CC $sections -I. -DTENSOR_IMPLEMENTATION_PART=$part -c "$S/everything.c" \
                -o "$T/part$part.o"
        done
        rm -f "$T/libtensor.a"
        ar rcs "$T/libtensor.a" "$T"/part[1-4].o
        timed xor $CC $flags -I. "$S/xor-static.c" -lm -o "$T/xor"
        timed xor-avx2 $CC $flags -I. -DTENSOR_ISA=avx2 "$S/xor-static.c" -lm -o "$T/xor-avx2"
        timed cnn-avx2 $CC $flags -I. -DTENSOR_ISA=avx2 "$T/cnn-static.c" -lm -o "$T/cnn-avx2"
        timed mlp-avx2 $CC $flags -I. -DTENSOR_ISA=avx2 -DTENSOR_NO_AUTOGRAD "$S/mlp-static.c" -lm -o "$T/mlp-avx2"
        timed relu-sse2 $CC $flags -I. -DTENSOR_ISA=sse2 "$S/relu-static.c" -lm -o "$T/relu-sse2"
        timed linked $CC -std=c99 -O2 -w -pthread -I. "$S/xor.c" "$T/libtensor.a" -lm -o "$T/linked"
    done
    for list in "$T"/*.seconds; do median "$list" >"${list%.seconds}.median"; done
    whole=$(cat "$T/before-whole.median")
    parts=$(cat "$T"/part[1-4].median)
    ratio "before: whole implementation" "$whole" "$T/before-whole.o"
    ratio "now: whole implementation" "$(cat "$T/now-whole.median")" "$T/now-whole.o"
    # Jobs take the parts in order, as make does.
    ratio "now: in parts, two jobs" "$(echo $parts | awk '{
        for (i = 1; i <= 4; i++) { if (a <= b) a += $i; else b += $i } print (a > b ? a : b) }')"
    ratio "now: in parts, four jobs" "$(printf '%s\n' $parts | sort -n | tail -n 1)"
    ratio "now: XOR" "$(cat "$T/xor.median")" "$T/xor"
    ratio "now: XOR, avx2" "$(cat "$T/xor-avx2.median")" "$T/xor-avx2"
    ratio "now: CNN of make fashion, avx2" "$(cat "$T/cnn-avx2.median")" "$T/cnn-avx2"
    ratio "now: MLP inference, avx2, no autograd" "$(cat "$T/mlp-avx2.median")" "$T/mlp-avx2"
    ratio "now: relu and print, sse2" "$(cat "$T/relu-sse2.median")" "$T/relu-sse2"
    ratio "now: XOR linked with libtensor.a" "$(cat "$T/linked.median")"
}

# The loss is shown by the progress bar, which wants a terminal.
first() {
    for v in before now; do
        rm -rf "$T/fresh"
        mkdir -p "$T/fresh"
        folder=.
        [ $v = now ] || folder=$BEFORE
        (cd "$folder" && tar cf - --exclude=build --exclude=.git --exclude=docs . ) | tar xf - -C "$T/fresh"
        began=$(date +%s%N)
        (cd "$T/fresh" && script -qec "make run STEPS=50 CC=$CC" /dev/null < /dev/null) |
            tr '\r' '\n' | awk '/loss/ { exit }'
        ended=$(date +%s%N)
        eval "$v=$(((ended - began) / 1000000))"
    done
    rm -rf "$T/fresh"
    echo "$before $now" | awk '{
        printf "first loss of make run: before %.1f s, now %.1f s, %.3f\n", $1 / 1000, $2 / 1000, $2 / $1 }'
}

# counted VERSION ROW REPEATS: the instructions of the program
counted() {
    TENSOR_CPU=avx2 TENSOR_ISA=avx2 \
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$T/$1-overhead" "$2" "$3" 2>&1 |
        awk '/Collected/ { print $NF }'
}
instructions() {
    printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$T/whole.c"
    for v in before now; do
        folder=.
        [ $v = now ] || folder=$BEFORE
        $CC -std=c99 -O2 -w -pthread "-I$folder" -c "$T/whole.c" -o "$T/$v.o" &&
            $CC -std=c99 -O2 -w -pthread "-I$folder" bench/overhead.c "$T/$v.o" -lm -o "$T/$v-overhead" || exit 1
    done
    for row in ${ROWS:-$("$T/now-overhead")}; do
        few=640
        case $row in chain | infer | mlp) few=20 ;; gpt) few=1 ;; esac
        for v in before now; do
            eval "$v=$((($(counted $v "$row" $((few * 3))) - $(counted $v "$row" $few)) / (few * 2)))"
        done
        echo "$row $before $now" | awk '{ printf "%-16s before %10d  now %10d  %5.3f\n", $1, $2, $3, $3 / $2 }'
    done
}

for part in "$@"; do
    case $part in
    build) build ;;
    first) first ;;
    instructions) instructions ;;
    *) echo "costs.sh: no part is called $part"; exit 1 ;;
    esac
done
