# engine.sh - examples/engine: a frame loop of C++20 with the engine's memory and jobs, a library reloaded twice, and
# a program of raylib's, which runs on a stub of raylib that draws nothing, and is built with raylib where that is.
#
#   sh tests/engine.sh          uses $B (build), $CC (cc), $CXX (c++)
#
# Ends with "N passed, N failed".
B=${B:-build}
CC=${CC:-cc}
CXX=${CXX:-c++}
out=$B/engine.d
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out"

skip() { echo "skipped $1 tests of $2"; }
try() {
    if sh -c "$2" >"$out/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: $2"
        tail -n 15 "$out/log" | sed 's/^/    /'
    fi
}
# refused NAME TEXT COMMAND: status 1 and one sentence on stderr, with TEXT in it.
refused() {
    sh -c "$3" >"$out/said" 2>"$out/log" </dev/null
    got=$?
    if [ "$got" -eq 1 ] && [ "$(wc -l <"$out/log")" -eq 1 ] && grep -q -- "$2" "$out/log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: status $got, not one sentence with \"$2\": $3"
        tail -n 5 "$out/log" | sed 's/^/    /'
    fi
}
full=                                   # else 1, the tests of it that a part has
if [ -c /dev/full ]; then full=1; else skip 3 "a full disk: no /dev/full"; fi
warn="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"

if echo '#include <version>
int main() { return __cplusplus < 202002L; }' | $CXX -std=c++20 -x c++ - -o "$out/probe" 2>/dev/null; then
    try "frame loop" "$CXX -std=c++20 $warn -O1 -I. examples/engine/frame.cpp $B/libtensor.a -lm -pthread -o $out/frame"
    try "frame loop, run" "FRAMES=120 timeout 100 $out/frame >$out/frame.txt"
    # It learnt, asked for no memory after the first second, gave all of it back.
    try "frame loop, what it says" "awk 'NR == 1 { good = \$1 == 120 && \$(NF - 2) > 0.2 && \$NF < 0.05 }
        NR == 2 { good = good && / 0 allocations after frame 60, 0 bytes left\$/ } END { exit !good }' $out/frame.txt"
    refused "frame loop, no number" 'FRAMES: "abc" is not a whole number' "FRAMES=abc $out/frame"
    [ -z "$full" ] || refused "frame loop, a full disk" "cannot write" "FRAMES=2 $out/frame >/dev/full"
else
    skip $((4 + ${full:-0})) "the frame loop: $CXX has no C++20"
fi

if [ "$(uname -s)" = Linux ]; then
    # The implementation is compiled once for both builds of the library.
    flags="-std=c99 -O0 -fPIC -fvisibility=hidden -pthread -I. $warn"
    printf '%s\n' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"' >"$out/impl.c"
    try "reload, the library" "$CC $flags -DTENSOR_ISA=scalar -c $out/impl.c -o $out/impl.o &&
        $CC $flags -shared examples/engine/brain.c $out/impl.o -lm -o $out/brain1.so &&
        $CC $flags -DBRAIN_RATE=0.03 -shared examples/engine/brain.c $out/impl.o -lm -o $out/brain2.so"
    try "reload, the program" "$CC -std=c99 $warn -Iexamples/engine examples/engine/reload.c -ldl -o $out/reload"
    # Three loads, two exchanges: each begins where the one before ended.
    try "reload, run" "timeout 100 $out/reload $out/brain1.so $out/brain2.so $out/brain1.so >$out/reload.txt"
    try "reload, what it says" "awk '{ loss[NR] = \$NF } END { exit !(NR == 3 && loss[1] > 0.5 && loss[2] < 0.1 && loss[3] < loss[2]) }' \\
        $out/reload.txt"
    refused "reload, a library that is not there" "none.so" "$out/reload $out/none.so"
    refused "reload, a file that is no library" "README.md" "$out/reload ./README.md"
    refused "reload, a library of something else" "brain_open" "$out/reload libm.so.6"
    refused "reload, no library" "use: reload" "$out/reload"
    [ -z "$full" ] || refused "reload, a full disk" "cannot write" "$out/reload $out/brain1.so >/dev/full"
else
    skip $((8 + ${full:-0})) "reloading: not Linux"
fi

# In raylib's words, on a stub that draws nothing.
try "raylib's program on a stub" "$CC -std=c99 $warn -O1 -I. -isystem tests/stubs examples/engine/leaves.c tests/stubs/raylib.c \\
    $B/libtensor.a -lm -pthread -o $out/stub"
try "raylib's program on a stub, run" "FRAMES=60 timeout 100 $out/stub >$out/stub.txt &&
    awk '\$1 != 60 || \$NF > 0.2 { exit 1 }' $out/stub.txt"
refused "raylib's program without a screen" "no screen" "NO_SCREEN=1 $out/stub"
[ -z "$full" ] || refused "raylib's program, a full disk" "cannot write" "FRAMES=2 $out/stub >/dev/full"
if command -v pkg-config >/dev/null 2>&1 && pkg-config --exists raylib; then
    try "raylib" "$CC -std=c99 -O1 -I. examples/engine/leaves.c $B/libtensor.a \$(pkg-config --cflags --libs raylib) -lm -pthread \\
        -o $out/leaves"
    if command -v xvfb-run >/dev/null 2>&1; then
        try "raylib, run" "FRAMES=60 timeout 100 xvfb-run -a $out/leaves | grep '60 frames'"
    else
        skip 1 "raylib's program: no screen"
    fi
else
    skip 2 "raylib's program: no raylib"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
