# coverage.sh - lines and branches of both headers that the given test programs reach, room by room (one build with gcc,
# -O0, every instruction set; a line counts if any of them ran it). Not a part of make test: make coverage.
#
#   sh tests/coverage.sh NAME ...       of tests/NAME.c; uses $B (build), $CC (gcc), $TEST_TIMEOUT (seconds of each, 900)
#
# Prints a row for each room and what is below 95 % of lines or 85 % of branches, with the reason that tests/coverage.txt
# gives; $B/coverage has the marked sources. Functions that are always inlined are not: a branch counts once, as a line.
B=${B:-build}
CC=${CC:-gcc}
out=$B/coverage
here=$(pwd)
mkdir -p "$out"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$out/impl.c"
rm -f "$out"/*.gcda
# gcov looks for the headers where the compiler found them.
$CC -std=c99 -O0 --coverage -pthread -Dalways_inline=unused "-I$here" -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS -c "$out/impl.c" -o "$out/impl.o" || exit 1
for p in "$@"; do
    if $CC -std=c99 -O1 -w -pthread -I. -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS -c "tests/$p.c" -o "$out/$p.o" &&
        $CC -pthread --coverage "$out/$p.o" "$out/impl.o" -lm -o "$out/$p"; then
        timeout "${TEST_TIMEOUT:-900}" "$out/$p" >"$out/$p.log" 2>&1
        echo "$p: status $?, $(tail -n 1 "$out/$p.log")"
    fi
done
(cd "$out" && gcov -b -c impl.gcda >gcov.log 2>&1)
for h in tensor.h tensor_nn.h; do
    if [ ! -f "$out/$h.gcov" ]; then
        echo "no coverage of $h"
        continue
    fi
    # A function of several passes stands there several times: the best of them counts.
    awk -v header="$h" '
        FILENAME == ARGV[1] {
            if ($1 ~ /^[a-z]+-/) {
                name = $1
                sub(/^[^ ]+ +/, "")
                why[name] = $0
            }
            next
        }
        FILENAME == ARGV[2] {
            if ($0 ~ /^\/\/ >>[a-z0-9-]+( |$)/) room = substr($2, 3)
            of[FNR] = room
            next
        }
        /^ *[0-9#=-]+\*?: *[0-9]+:/ {
            split($0, part, ":")
            count = part[1]
            line = part[2] + 0
            gsub(/[ *]/, "", count)
            k = 0
            if (count == "-" || line == 0) next
            seen[line] = 1
            if (count !~ /^[#=]/ && count + 0 > 0) ran[line] = 1
            next
        }
        /^branch / {
            key = line "," k++
            branch[key] = line
            if ($0 ~ /taken [1-9]/) taken[key] = 1
        }
        END {
            for (l in seen) { lines[of[l]]++; hit[of[l]] += ran[l] }
            for (b in branch) { branches[of[branch[b]]]++; went[of[branch[b]]] += taken[b] }
            for (r in lines) {
                p = 100 * hit[r] / lines[r]
                q = branches[r] ? 100 * went[r] / branches[r] : 100
                printf "%-11s %-22s %6d lines %6.1f %%  %6d branches %6.1f %%%s\n", header, r, lines[r], p, branches[r], q, \
                    p < 95 || q < 85 ? "   below: " (r in why ? why[r] : "no reason yet") : ""
                L += lines[r]; H += hit[r]; R += branches[r]; W += went[r]
            }
            printf "%-11s %-22s %6d lines %6.1f %%  %6d branches %6.1f %%\n", header, "all", L, 100 * H / L, R, 100 * W / R
        }' tests/coverage.txt "$h" "$out/$h.gcov" | sort -k2
done
