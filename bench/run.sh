# run.sh - all benchmarks: tables of ratios with python3 (and PyTorch, if it is installed), plain rows
# without. OpenBLAS and oneDNN are references where they can be linked.
B=${B:-build}
CC=${CC:-cc}
PYTHON=${PYTHON:-python3}
ROUNDS=${ROUNDS:-3}
if [ "$OPS" = all ]; then               # every op of tests/ops.def
    if command -v "$PYTHON" >/dev/null 2>&1; then exec "$PYTHON" bench/compare.py "$B" --ops; fi
    exec "$B/bench/every" 1
fi
build() { $CC -O2 -Ibench bench/blas.c "$@" 2>/dev/null || rm -f "$B/bench/$name"; }
name=fma_peak && build -o "$B/bench/$name"
name=blas_openblas && build -DWITH_CBLAS -lopenblas -o "$B/bench/$name"
name=blas_dnnl && build -DWITH_DNNL -ldnnl -o "$B/bench/$name"
sh bench/compile.sh >"$B/bench/compile.rows" || exit 1
if command -v "$PYTHON" >/dev/null 2>&1; then
    exec "$PYTHON" bench/compare.py "$B" ${QUICK:+--quick} "$ROUNDS" "$B/bench/compile.rows"
fi
echo "no $PYTHON: figures of this library alone"
"$B/bench/micro" && "$B/bench/ops" && "$B/bench/models" && "$B/bench/nets" && "$B/bench/gpt_step" 1 2 &&
    cat "$B/bench/compile.rows"
