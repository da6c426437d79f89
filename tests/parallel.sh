# parallel.sh - several processes train one net (examples/kit/parallel.h, mpi.h) under mpirun: losses of two and three
# ranks beside those of one, uneven batches, gradients that a rank lacks, accumulation, batch norm over ranks, shards,
# a checkpoint that resumes on another number of ranks; ranks without memory, that disagree, hang, leave, fail, come late, die.
# Skipped and counted without MPI. Ends with "N passed, N failed". The mode "speed" of ranks.c is for a machine at rest.
B=${B:-build}
CC=${CC:-cc}
P=$B/parallel
passed=0
failed=0
if ! command -v mpicc >/dev/null 2>&1 || ! command -v mpirun >/dev/null 2>&1; then
    echo "skipped 135 tests of several ranks: no mpicc, or no mpirun"
    echo "0 passed, 0 failed"
    exit 0
fi
if ! timeout 60 mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -np 2 true </dev/null 2>/dev/null; then
    echo "skipped 135 tests of several ranks: mpirun cannot start two processes here"
    echo "0 passed, 0 failed"
    exit 0
fi
mkdir -p "$P"
result() {
    if [ -z "$1" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1"
    fi
}
warn="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
for define in "" "-DKIT_MPI_IMPLEMENTATION -DKIT_PARALLEL_IMPLEMENTATION"; do
    # shellcheck disable=SC2086
    result "$(mpicc -std=c99 $warn $define -I. -x c -fsyntax-only examples/kit/mpi.h 2>&1 | head -n 5)"
done
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$P/impl.c"
# shellcheck disable=SC2086
if ! mpicc -std=c99 -O1 -pthread -I. "$P/impl.c" -c -o "$P/impl.o" ||
    ! mpicc -std=c99 $warn -O1 -pthread -I. tests/parallel/ranks.c "$P/impl.o" -lm -o "$P/ranks"; then
    echo "tests/parallel/ranks.c does not build"
    echo "$passed passed, $((failed + 1)) failed"
    exit 1
fi

# The example, by one process and by two: the same loss, and a net that has learnt.
# shellcheck disable=SC2086
result "$(mpicc -std=c99 $warn -O1 -pthread -I. -Iexamples examples/mpi/data_parallel.c "$P/impl.o" -lm -o "$P/data_parallel" 2>&1 |
    head -n 5)"
for n in 1 2; do
    STEPS=150 timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -np $n "$P/data_parallel" \
        </dev/null >"$P/example$n" 2>"$P/err.txt" || echo "$n processes: status $?" >>"$P/example$n"
done
result "$(sed 's/^[12] processes: loss \(0[.][0-9]*\), 9[5-9][.0-9]* % .*/\1/' "$P/example1" "$P/example2" | sort -u |
    awk '{ print } END { exit NR != 1 || !/^0[.][0-9]*$/ }' >"$P/example" ||
    { echo "data_parallel: not one loss by one and by two processes:"; cat "$P/example" "$P/err.txt"; })"

recovery=0
# ranks N MODE [FILE]: what they print, within a minute; the status is mpirun's.
ranks() {
    n=$1
    shift
    timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe --mca btl self,vader --mca orte_enable_recovery $recovery \
        -np "$n" "$P/ranks" "$@" \
        </dev/null 2>"$P/err.txt"
}
# same NAME FILE FILE [FIRST]: lines "step loss" from FIRST or 0 to 49, each a number, that differ by 1e-6 at most.
same() {
    awk -v name="$1" -v first="${4:-0}" '
        NF != 2 || $2 !~ /^[0-9]+[.][0-9]+$/ { print name ": " $0; bad = 1; exit }
        FNR == NR { want[$1] = $2; n++; next }
        $1 != first + got { print name ": step " $1 " where " first + got " comes"; bad = 1; exit }
        { d = $2 - want[$1]; if (d < 0) d = -d; if (d > most) most = d; got++ }
        END {
            if (bad) exit
            if (n != 50 || got != 50 - first) print name ": " n " and " got " steps"
            else if (most > 1e-6) print name ": losses differ by " most
        }' "$2" "$3"
}

for mode in even uneven norm twice; do
    ranks 1 $mode >"$P/$mode.1" || result "$mode: one rank fails: $(cat "$P/$mode.1" "$P/err.txt")"
    for n in 2 3; do
        [ "$mode" != norm ] || [ $n = 2 ] || continue       # a mean of three parts of 32 weighs them alike
        ranks $n $mode "$P/$mode.$n.safetensors" >"$P/$mode.$n" || result "$mode, $n ranks: $(cat "$P/$mode.$n" "$P/err.txt")"
        result "$(same "$mode, $n ranks" "$P/$mode.1" "$P/$mode.$n")"
    done
done
result "$(awk 'NR == 1 { first = $2 } { last = $2 } END { if (!(NR == 50 && last <= 0.7 * first)) print "it does not learn: " first " " last }' "$P/even.2")"
for n in 1 3; do
    ranks $n resume "$P/even.2.safetensors" >"$P/resume.$n" || result "resume, $n ranks: $(cat "$P/resume.$n" "$P/err.txt")"
    result "$(same "resumed by $n ranks" "$P/even.1" "$P/resume.$n" 25)"
done
# Without mpirun a program is one rank; without MPI a compiler says what is missing.
timeout 60 "$P/ranks" even >"$P/even.alone" 2>"$P/err.txt" </dev/null
result "$(same "without mpirun" "$P/even.1" "$P/even.alone")"
printf '#define KIT_MPI_IMPLEMENTATION\n#include "examples/kit/mpi.h"\n' >"$P/none.c"
"$CC" -I. -fsyntax-only "$P/none.c" >"$P/err.txt" 2>&1
result "$(grep -q "there is no mpi.h; install MPI" "$P/err.txt" || [ -f /usr/include/mpi.h ] || cat "$P/err.txt")"
for mode in missing shards again kept cleared frozen masks memory; do
    for n in 2 3; do
        ranks $n $mode "$P/$mode.$n.safetensors" >"$P/$mode" || result "$mode, $n ranks: $(cat "$P/$mode" "$P/err.txt")"
        result "$([ "$(grep -c '^good$' "$P/$mode")" -eq $n ] || echo "$mode: $(cat "$P/$mode")")"
    done
done

# broken MODE STATUS RANKS TEXT [RANKS TEXT]..: of three ranks, each of RANKS ends with an error that says the text;
# mpirun ends with the status (or any), and soon. Open MPI's 4.1 itself may crash or hang when ranks abort (its own
# text, "exited on signal", tells of ranks that crash); such a run, whose ranks have all ended, is made again, $tries
# times in all.
tries=3
broken() {
    mode=$1
    want=$2
    shift 2
    for try in $(seq $tries); do
        begin=$(date +%s)
        ranks 3 "broken-$mode" >"$P/broken"
        status=$?
        took=$(($(date +%s) - begin))
        case $status in 124 | 137 | 139) ;; *) break ;; esac
        [ "$(grep -c "^rank [0-2] ends with" "$P/broken")" -eq 3 ] || break
        if grep -q "exited on signal" "$P/err.txt"; then break; fi
        echo "$mode: mpirun crashed or hung after its ranks had ended (run $try)"
    done
    result "$([ "$want" = any ] || [ $status -eq "$want" ] || echo "$mode: status $status, not $want")"
    result "$([ $took -lt 30 ] || echo "$mode: took $took s")"
    while [ $# -gt 1 ]; do
        for rank in $1; do
            result "$(grep -q "^rank $rank ends with [A-Z].*: .*$2" "$P/broken" ||
                echo "$mode: rank $rank does not say \"$2\": $(cat "$P/broken" "$P/err.txt")")"
        done
        shift 2
    done
}
silent="another rank has not answered in time"
broken shapes 1 "0 1 2" "rank 2 has other names, shapes, dtypes or frozen parameters than rank 0 at train.h:[0-9]*$"
broken frozen 1 "0 1 2" "rank 2 has other names, shapes, dtypes or frozen parameters than rank 0"
broken count 1 "0 1 2" "rank 2 has another number of parameters than rank 0"
broken dtype 1 "0 1 2" "rank 2 has a net that is not of f32 on its device"
broken version 1 "0 1 2" "rank 2 has another version of tensor.h than rank 0"
broken state 1 "0 1 2" "rank 2 has another optimizer state than rank 0; all ranks load the file"
broken step 1 "0 1 2" "rank 2 is at another step than rank 0; all ranks load the file"
broken file 1 "0 1" "rank 2 has an error: .*no/such/file" 2 "no/such/file"
broken threads 1 "0 1 2" "MPI was initialised without threads; call MPI_Init_thread"
broken ended 1 "0 1 2" "MPI has ended in this process"
broken absent 1 "0 1" "another rank has not come to kit_mpi_ranks in time at ranks.c:[0-9]*$"
broken error 1 "0 1" "another rank has an error" 2 "its own"
broken hang 1 "0 1" "$silent"
broken late 1 "0 1" "$silent at train.h:[0-9]*$"
# Where a rank has left, that is no fault of mpirun: the rank waited in MPI_Finalize, before mpi.h had a barrier.
tries=1
for _ in 1 2 3; do broken leave 1 "0 1" "$silent"; done
tries=3
broken empty 1 0 "another rank did not come to a layer's sum; all ranks need samples in each batch" "1 2" "$silent"
broken large 1 "0 1 2" "a tensor of 2^31 elements or more is too large for a sum of MPI"
broken again 1 "0 1" "another rank has an error" 2 "came again after its sum had begun"
broken gather 1 0 "its memory is its own"
# A rank that is killed: mpirun ends the others at once; where it does not, as between machines, they hear of it in time.
ranks 3 broken-die >"$P/broken"
status=$?
result "$([ $status -eq 137 ] && grep -q "rank 2 .*exited on signal 9" "$P/err.txt" || echo "die: $status $(cat "$P/err.txt")")"
result "$(grep "ends with OK" "$P/broken")"
recovery=1
broken die any "0 1" "$silent"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
