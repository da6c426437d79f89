# interop.sh - files and memory pass to NumPy and PyTorch and back, every dtype bit for bit (tests/interop.py); skipped
# where python3 has no numpy.  $B (build), $CC (cc), $PYTHON (python3).  Last line: "N passed, N failed".
B=${B:-build}
CC=${CC:-cc}
PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import numpy' 2>/dev/null; then
    echo "skipped 5 tests of files and memory shared with NumPy and PyTorch: no $PYTHON with numpy"
    echo "0 passed, 0 failed"
    exit 0
fi
mkdir -p "$B/interop"
rm -f "$B"/interop/*.npy "$B"/interop/*.npz
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n#define KIT_TORCHFILE_IMPLEMENTATION\n#include "examples/kit/torchfile.h"\n' >"$B/interop/impl.c"
if ! "$CC" -std=c99 -O0 -fPIC -shared -pthread -I. -DTENSOR_ISA=scalar "$B/interop/impl.c" -lm -o "$B/interop/libtensor.so"; then
    echo "0 passed, 1 failed"
    exit 1
fi
"$PYTHON" tests/interop.py "$B/tests/formats" "$B/interop"
