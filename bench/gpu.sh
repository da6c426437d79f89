# gpu.sh - on a machine with a GPU: builds tensor_cuda.cu for it, runs the tests of ops and devices on it, and measures;
# writes bench/results/gpu-DATE.md. The last line is "N passed, N failed".
#
#   sh bench/gpu.sh        uses $B (build, with tensor_impl.o), $CC, $NVCC (nvcc), $ARCH (native)
B=${B:-build}
CC=${CC:-cc}
NVCC=${NVCC:-nvcc}
ARCH=${ARCH:-native}
out=$B/gpu
report=bench/results/gpu-$(date +%F).md
passed=0
failed=0
mkdir -p "$out" bench/results

$NVCC -std=c++17 -O3 -fmad=false -arch="$ARCH" -I. -c tensor_cuda.cu -o "$out/tensor_cuda.o" || exit 1
# program NAME FLAGS OBJECTS: compiled as C, linked by nvcc, which knows where CUDA's runtime is.
program() {
    $CC -std=c99 -O2 -DTEST_CUDA -pthread -I. -Itests -Ibench $2 -o "$out/$1.o" || return 1
    shift 2
    $NVCC -Xcompiler -pthread "$@" "$out/tensor_cuda.o" -lm -o "${1%.o}"
}
# test NAME: its count, added up.
test_on() {
    "$out/$1" > "$out/$1.log" 2>&1
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$out/$1.log" | tail -n 1)
    echo "$1: ${last:-ended without a count}"
    p=${last%% *}
    f=${last#*, }
    f=${f%% *}
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-1}))
    [ "${f:-1}" -eq 0 ] || tail -n 40 "$out/$1.log"
}
program device "-c tests/device.c" "$out/device.o" "$B/tensor_impl.o" || exit 1
program streams "-c tests/streams.c" "$out/streams.o" "$B/tensor_impl.o" || exit 1
program ops "-c tests/ops.c" "$out/ops.o" || exit 1
program gpu "-c bench/gpu.c" "$out/gpu.o" "$B/tensor_impl.o" || exit 1
if [ -n "$BUILD_ONLY" ]; then
    echo "built for $ARCH"
    exit 0
fi
{
    name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
    echo "# On a GPU, $(date +%F)"
    echo
    echo "${name:-unknown device}; $($NVCC --version | tail -n 2 | head -n 1); $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    echo
    echo "\`make gpu\`. Each row stands beside a reference of the same run: a copy on the device, or the CPU kernels on all"
    echo "processors."
    echo
    echo "## Tests on the device"
    echo
} > "$report"
for alone in 1 0; do
    export TENSOR_CUDA_NO_LIBRARIES=$alone
    if [ "$alone" = 1 ]; then echo "without cuBLASLt and cuDNN:"; else echo "with them:"; fi
    for t in device streams ops; do test_on $t; done
done > "$out/tests.txt"
# test_on counted in this shell: the loop above is no pipeline.
sed 's/^/    /' "$out/tests.txt" >> "$report"
awk '/ native .* fallback$/ {
        native += $(NF - 3); away += $(NF - 1); rows++; if ($(NF - 3) && !$(NF - 1)) { all++ } else if ($(NF - 3)) { some++ }
    }
    END { printf "\nOp test: %d calls native, %d on the CPU; of %d ops %d native, %d for some dtypes.\n", native, away, rows,
                 all, some }' "$out/ops.log" >> "$report"
# PyTorch's eager step of the first network, where it is there with CUDA.
TORCH_US=$(python3 2> /dev/null << 'END'
import time, torch
assert torch.cuda.is_available()
net = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
                          torch.nn.Linear(512, 10)).cuda()
opt = torch.optim.Adam(net.parameters())
x, y = torch.randn(64, 784, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
def steps(n):
    torch.cuda.synchronize()
    t = time.perf_counter()
    for _ in range(n):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - t) / n
steps(50)
print(sorted(steps(200) for _ in range(5))[2] * 1e6)
END
)
export TORCH_US
{
    echo
    echo "## Speed"
    echo
    "$out/gpu"
} >> "$report" 2>&1 || failed=$((failed + 1))
cat "$report"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
