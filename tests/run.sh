# run.sh program|script.sh ... - runs each, shows its counts of cases and what failing ones printed, adds up the
# last lines.
# Each must end with a line "N passed, N failed"; one that does not (a crash, a time-out) counts as one failure.
# Ends with that line itself; the exit status is 0 only if nothing failed and something ran.
limit=${TEST_TIMEOUT:-900}
out=${B:-build}/tests.out
mkdir -p "${B:-build}"
passed=0
failed=0
for t in "$@"; do
    begin=$(date +%s)
    case $t in
        *.sh) timeout "$limit" sh "$t" >"$out" 2>&1 </dev/null ;;
        *) timeout "$limit" "$t" >"$out" 2>&1 </dev/null ;;
    esac
    status=$?
    last=$(tail -n 1 "$out")
    p=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1/p')
    f=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\2/p')
    if [ -z "$p" ]; then
        p=0
        f=1
        echo "no last line \"N passed, N failed\", exit status $status" >>"$out"
    elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1
        echo "exit status $status after that line" >>"$out"
    fi
    printf '%-34s %7d passed %4d failed %4d s\n' "$(basename "$t")" "$p" "$f" $(($(date +%s) - begin))
    # What a program says of the size of its work, without failures: "428 ops, 55025 cases, .."
    grep -E '^([0-9]+ .*(cases|ops)|skipped)' "$out" | grep -v 'differ' | sed 's/^/    /'
    if [ "$f" -ne 0 ]; then sed 's/^/    /' "$out" | tail -n 60; fi
    passed=$((passed + p))
    failed=$((failed + f))
done
rm -f "$out"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
