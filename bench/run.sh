# run.sh - all benchmarks: a table of ratios with python3 (and PyTorch, if it is installed), plain rows without.
B=${B:-build}
PYTHON=${PYTHON:-python3}
ROUNDS=${ROUNDS:-3}
sh bench/compile.sh >"$B/bench/compile.rows" || exit 1
if command -v "$PYTHON" >/dev/null 2>&1; then
    exec "$PYTHON" bench/compare.py "$B" "$ROUNDS" "$B/bench/compile.rows"
fi
echo "no $PYTHON: figures of this library alone"
"$B/bench/micro" && "$B/bench/ops" && "$B/bench/models" && "$B/bench/gpt_step" 1 2 && cat "$B/bench/compile.rows"
