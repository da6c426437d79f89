# examples.sh - runs each example whose first comment has a line "// Output:" and compares what it prints.
# Ends with "N passed, N failed".
B=${B:-build}
passed=0
failed=0
mkdir -p "$B/tests"
for f in examples/*.c; do
    name=$(basename "$f" .c)
    awk '!/^\/\// { exit } on && /^\/\/$/ { exit } on { print substr($0, 6) } /^\/\/ Output:$/ { on = 1 }' "$f" \
        >"$B/tests/want.txt"
    [ -s "$B/tests/want.txt" ] || continue
    if "$B/$name" >"$B/tests/got.txt" 2>"$B/tests/err.txt" </dev/null &&
        diff "$B/tests/want.txt" "$B/tests/got.txt" >"$B/tests/diff.txt"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$f: does not print what its first comment says (< said, > printed)"
        cat "$B/tests/diff.txt" "$B/tests/err.txt"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
