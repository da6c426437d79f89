# run.sh program|script.sh ... - runs each, shows its counts of cases and what failing ones printed, adds up the
# last lines. As many run side by side as there are cores; scripts, which compile, begin first and share the cores.
# $LEFT_OUT names the scripts that this run does without; they count as skipped.
# Each must end with a line "N passed, N failed"; one that does not (a crash, a time-out) counts as one failure.
# Ends with what failed once more, how many tests were skipped and that line itself; the exit status is 0 only if
# nothing failed and something ran.
limit=${TEST_TIMEOUT:-900}
cores=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}
out=${B:-build}/tests.out
rm -rf "$out"
mkdir -p "$out"
export JOBS=$(((cores + 1) / 2))

# one DIR LIMIT PATH: what it prints and its counts go to files of its name; the report to the screen, at once.
one='
    name=$(basename "$3")
    to=$1/$name
    begin=$(date +%s)
    case $3 in
        *.sh) timeout "$2" sh "$3" >"$to.out" 2>&1 </dev/null ;;
        *) timeout "$2" "$3" >"$to.out" 2>&1 </dev/null ;;
    esac
    status=$?
    seconds=$(($(date +%s) - begin))
    last=$(tail -n 1 "$to.out")
    p=$(printf "%s\n" "$last" | sed -n "s/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\1/p")
    f=$(printf "%s\n" "$last" | sed -n "s/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$/\2/p")
    if [ -z "$p" ]; then
        p=0
        f=1
        echo "no last line \"N passed, N failed\", exit status $status" >>"$to.out"
    elif [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1
        echo "exit status $status after that line" >>"$to.out"
    fi
    echo "$p $f" >"$to.count"
    {
        printf "%-34s %7d passed %4d failed %4d s\n" "$name" "$p" "$f" "$seconds"
        # What a program says of the size of its work, without failures: "428 ops, 55025 cases, .."
        grep -E "^([0-9]+ .*(cases|ops)|skipped)" "$to.out" | grep -v differ | sed "s/^/    /"
        if [ "$f" -ne 0 ]; then
            tail -n 60 "$to.out" | sed "s/^/    /"
            # What failed may stand far above the end.
            {
                grep -iE "fail|error|differ" "$to.out" | grep -v " 0 failed" | head -n 8
                tail -n 4 "$to.out"
            } | awk "!seen[\$0]++" | sed "s/^/failed: $name: /" >"$to.failed"
        fi
    } >"$to.report"
    cat "$to.report"'
# The longest first, so that no core waits for the last one.
for first in cuda.sh compile.sh fuzz.sh windows.sh host.sh arm.sh web.sh ops_values .; do
    for t in "$@"; do
        case $first:$(basename "$t") in
            .:compile.sh | .:cuda.sh | .:fuzz.sh | .:windows.sh | .:host.sh | .:arm.sh | .:web.sh) ;;
            .:ops_values) ;;
            .:* | "$first:$first") printf '%s\n' "$t" ;;
        esac
    done
done | xargs -P "$cores" -n 1 sh -c "$one" one "$out" "$limit"

passed=0
failed=0
for t in "$@"; do
    read -r p f <"$out/$(basename "$t").count" || { p=0; f=1; }
    passed=$((passed + p))
    failed=$((failed + f))
done
cat "$out"/*.failed 2>/dev/null
if [ -n "$LEFT_OUT" ]; then
    echo "skipped $(echo $LEFT_OUT | wc -w) tests that take a minute or more each, FULL=1 has them: $LEFT_OUT" | tee "$out/left.out"
fi
cat "$out"/*.out | awk '/^skipped [0-9]+ test/ { n += $2 } END { if (n) { print "skipped " n " tests in all" } }'
rm -rf "$out"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
