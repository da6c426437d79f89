# gpu.sh - on a machine with a GPU: builds tensor_cuda.cu for it, runs the tests of ops and devices on it, and measures;
# writes bench/results/gpu-DATE.md line by line, so that a run that is cut short leaves what it has. The last line is
# "N passed, N failed".
#
#   sh bench/gpu.sh        uses $B (build, with tensor_impl.o), $CC, $NVCC (nvcc), $ARCH (native), $RUN before each
#                          test, such as compute-sanitizer, and $LIMIT (150), seconds of a program
B=${B:-build}
CC=${CC:-cc}
NVCC=${NVCC:-nvcc}
ARCH=${ARCH:-native}
LIMIT=${LIMIT:-150}
out=$B/gpu
report=bench/results/gpu-$(date +%F).md
passed=0
failed=0
mkdir -p "$out/include" bench/results
rm -f "$out"/*.log

command -v "$NVCC" > /dev/null || NVCC=/usr/local/cuda/bin/nvcc
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v "$NVCC")")")")
# The libraries may be those of PyTorch's wheels: their headers where the toolkit has none, their folders behind its own.
wheels=$(python3 -c 'import glob, nvidia; print(*[d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib")])' 2> /dev/null)
LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$toolkit/lib64
for d in $wheels; do
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$d
    for h in "${d%lib}"include/cublas*.h "${d%lib}"include/cudnn*.h "${d%lib}"include/nccl*.h; do
        name=${h##*/}
        if [ -f "$h" ] && [ ! -f "$toolkit/include/$name" ]; then ln -sf "$h" "$out/include/$name"; fi
    done
done
export LD_LIBRARY_PATH
# What is printed comes at once, also where the program is ended.
limit="timeout $LIMIT"
if command -v stdbuf > /dev/null; then limit="$limit stdbuf -oL"; fi

if [ -z "$BUILD_ONLY" ]; then
    name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
    {
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
fi
# All that is compiled, side by side. object NAME FLAGS.
object() {
    $CC -std=c99 -O2 -DTEST_CUDA -pthread -I. -Itests -Ibench -c "$2" -o "$out/$1.o" > "$out/$1.build.log" 2>&1 &
    objects="$objects $!"
}
$NVCC -std=c++17 -O3 -fmad=false -arch="$ARCH" -I. -I"$out/include" -c tensor_cuda.cu -o "$out/tensor_cuda.o" \
    > "$out/tensor_cuda.build.log" 2>&1 &
objects=$!
for t in device streams ops; do object $t tests/$t.c; done
object gpu bench/gpu.c
for o in $objects; do wait "$o" || failed=1; done
# program NAME OBJECTS: linked by nvcc, which knows where CUDA's runtime is.
program() {
    $NVCC -Xcompiler -pthread "$@" "$out/tensor_cuda.o" -lm -o "${1%.o}" >> "${1%.o}.build.log" 2>&1 || failed=1
}
for t in device streams gpu; do program "$out/$t.o" "$B/tensor_impl.o"; done
program "$out/ops.o"
cat "$out"/*.build.log
if [ "$failed" -ne 0 ]; then
    if [ -z "$BUILD_ONLY" ]; then { echo "Not built:"; sed 's/^/    /' "$out"/*.build.log; } >> "$report"; fi
    echo "0 passed, 1 failed"
    exit 1
fi
if [ -n "$BUILD_ONLY" ]; then
    echo "built for $ARCH"
    exit 0
fi
# test NAME: its count, added up.
test_on() {
    log=$out/$1-$alone.log
    $limit $RUN "$out/$1" > "$log" 2>&1
    code=$?
    last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    echo "    $1: ${last:-ended without a count, by code $code (124: after $LIMIT s)}"
    p=${last%% *}
    f=${last#*, }
    f=${f%% *}
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-1}))
    if [ "${f:-1}" -ne 0 ]; then grep -v '^row \| fallback$' "$log" | tail -n 40 | sed 's/^/        /'; fi
}
for alone in 1 0; do
    export TENSOR_CUDA_NO_LIBRARIES=$alone
    if [ "$alone" = 1 ]; then echo "    without cuBLASLt and cuDNN:"; else echo "    with them:"; fi
    for t in device streams ops; do test_on $t; done
done >> "$report"
# test_on counted in this shell: the loop above is no pipeline.
awk '/ native .* fallback$/ {
        native += $(NF - 3); away += $(NF - 1); rows++; if ($(NF - 3) && !$(NF - 1)) { all++ } else if ($(NF - 3)) { some++ }
    }
    END { printf "\nOp test: %d calls native, %d on the CPU; of %d ops %d native, %d for some dtypes.\n", native, away, rows,
                 all, some }' "$out/ops-0.log" >> "$report"
# PyTorch's eager step of the first network, where it is there with CUDA.
TORCH_US=$(timeout 120 python3 2> /dev/null << 'END'
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
    if [ -z "$TORCH_US" ]; then
        echo "No reference of PyTorch: python3 has none, or it finds no device."
        echo
    fi
    $limit "$out/gpu" || { echo "Ended by code $? (124: after $LIMIT s)."; false; }
} >> "$report" 2>&1 || failed=$((failed + 1))
cat "$report"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
