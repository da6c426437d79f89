# run.sh program|script.sh ... - runs each, shows its counts of cases and what failing ones printed, adds up the
# last lines. Programs run side by side, one per core; scripts after them, for they use all cores themselves.
# Each must end with a line "N passed, N failed"; one that does not (a crash, a time-out) counts as one failure.
# Ends with that line itself; the exit status is 0 only if nothing failed and something ran.
limit=${TEST_TIMEOUT:-900}
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}
out=${B:-build}/tests.out
rm -rf "$out"
mkdir -p "$out"
passed=0
failed=0

# one PATH: what it prints, its status and its seconds go to files of its name.
one='
    to=$1/$(basename "$3")
    begin=$(date +%s)
    case $3 in
        *.sh) timeout "$2" sh "$3" >"$to.out" 2>&1 </dev/null ;;
        *) timeout "$2" "$3" >"$to.out" 2>&1 </dev/null ;;
    esac
    echo $? >"$to.status"
    echo $(($(date +%s) - begin)) >"$to.seconds"'
# report NAME: its counts into passed and failed.
report() {
    to=$out/$1
    status=$(cat "$to.status" 2>/dev/null || echo 1)
    last=$(tail -n 1 "$to.out")
    p=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1/p')
    f=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\2/p')
    if [ -z "$p" ]; then
        p=0
        f=1
        echo "no last line \"N passed, N failed\", exit status $status" >>"$to.out"
    elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1
        echo "exit status $status after that line" >>"$to.out"
    fi
    printf '%-34s %7d passed %4d failed %4d s\n' "$1" "$p" "$f" "$(cat "$to.seconds" 2>/dev/null || echo 0)"
    # What a program says of the size of its work, without failures: "428 ops, 55025 cases, .."
    grep -E '^([0-9]+ .*(cases|ops)|skipped)' "$to.out" | grep -v 'differ' | sed 's/^/    /'
    if [ "$f" -ne 0 ]; then sed 's/^/    /' "$to.out" | tail -n 60; fi
    passed=$((passed + p))
    failed=$((failed + f))
}

for t in "$@"; do
    case $t in *.sh) ;; *) printf '%s\n' "$t" ;; esac
done | xargs -P "$jobs" -n 1 sh -c "$one" one "$out" "$limit"
for t in "$@"; do
    case $t in *.sh) sh -c "$one" one "$out" "$limit" "$t" ;; esac
    report "$(basename "$t")"
done
rm -rf "$out"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
