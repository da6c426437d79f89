# options.sh - the names of options beside PyTorch's parameters, and docs/pytorch.md's table of those that differ
# (tests/options.py); skipped where python3 has no torch.  $PYTHON (python3).  Last line: "N passed, N failed".
PYTHON=${PYTHON:-python3}
if ! command -v "$PYTHON" >/dev/null; then
    echo "skipped 1350 tests of the names of options: no $PYTHON"
    echo "0 passed, 0 failed"
    exit 0
fi
"$PYTHON" tests/options.py
