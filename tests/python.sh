# python.sh - the library from Python (examples/python): builds it as a shared object, runs tests/python.py. Skipped and
# counted without python3, cffi or NumPy; PyTorch's tests are skipped without PyTorch.
# Ends with "N passed, N failed".
B=${B:-build}
CC=${CC:-cc}
PYTHON=${PYTHON:-python3}
P=$B/python
# NumPy before 2.1 shares no bool and nothing that may not be written.
if ! "$PYTHON" -c 'import cffi, numpy; exit(tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1))' 2>/dev/null; then
    echo "skipped 11 tests of the Python binding: there is no python3 with cffi and numpy of 2.1 or later"
    echo "0 passed, 0 failed"
    exit 0
fi
mkdir -p "$P"
printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$P/tensor_impl.c"
if ! "$CC" -std=c99 -O1 -fPIC -shared -pthread -I. "$P/tensor_impl.c" -lm -o "$P/libtensor.so"; then
    echo "libtensor.so does not build"
    echo "0 passed, 1 failed"
    exit 1
fi
TENSOR_LIBRARY=$(cd "$P" && pwd)/libtensor.so
PYTHONPATH=examples/python
PYTHONDONTWRITEBYTECODE=1
export TENSOR_LIBRARY PYTHONPATH PYTHONDONTWRITEBYTECODE
timeout 600 "$PYTHON" tests/python.py
