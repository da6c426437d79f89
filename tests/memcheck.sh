# memcheck.sh - test programs under valgrind: reads of memory that nothing was written to, reads and writes outside of
# blocks, leaks. Not a part of make test: it takes minutes (make memcheck).
#
#   sh tests/memcheck.sh PROGRAM ...     uses $VALGRIND (valgrind), $TEST_TIMEOUT (seconds of each, 1200)
#
# valgrind knows no AVX-512: AVX2 is forced. The last line is "N passed, N failed".
VALGRIND=${VALGRIND:-valgrind}
passed=0
failed=0
if ! command -v "$VALGRIND" >/dev/null 2>&1; then
    echo "skipped $# tests of valgrind: it is not installed"
    echo "0 passed, 0 failed"
    exit 0
fi
for p in "$@"; do
    log=$p.memcheck
    if TENSOR_ISA=avx2 timeout "${TEST_TIMEOUT:-1200}" "$VALGRIND" -q --error-exitcode=9 --leak-check=full \
        --errors-for-leak-kinds=definite,indirect "$p" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "$(basename "$p"): $(tail -n 1 "$log")"
    else
        status=$?                       # 124: out of time
        failed=$((failed + 1))
        echo "$(basename "$p") failed, status $status:"
        grep -A 14 '^==[0-9]*==' "$log" | head -n 30 | sed 's/^/    /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
