"""gpu.py - PyTorch's side of `make gpu`, and its tables.

usage: gpu.py ops SECONDS [NAME..]     the rows of gpu.h (whose names begin so): "name.dtype.layout.f us eager"; no row
                                       starts after that second of the process
       gpu.py networks ROW..           the rows of reference.py on the GPU
       gpu.py compiled ROW             likewise, under torch.compile
       gpu.py shapes                   what each row's result is like, on the CPU: as `gpu shapes`
       gpu.py facts                    versions, the device, cuDNN's description of it
       gpu.py table OURS TORCH.. PREDICTIONS     Markdown, the worst ratio first
       gpu.py worst N OURS TORCH..     names of the N rows with the worst ratios

ops, networks and compiled end with status 3 where there is no GPU: nothing else can give their numbers.
"""
import fnmatch
import gc
import os
import re
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS = "cntb"
SETS = 3
began = time.perf_counter()


def rows():
    """(name, backward, operands by layout, PyTorch's words) of gpu.h."""
    with open(os.path.join(HERE, "gpu.h")) as f:
        text = f.read().replace("\\\n", "\n")
    operands = {}
    for name, value in re.findall(r'^#define (\w+) +((?:"[^"]*"|NULL)(?:, (?:"[^"]*"|NULL))*)$', text, re.M):
        operands[name] = [None if v == "NULL" else v[1:-1] for v in re.findall(r'"[^"]*"|NULL', value)]
    for name, backward, form, words in re.findall(r'ROW\((\w+), ([01]), (\w+),.*?"([^"]*)"\)\s*$', text, re.M | re.S):
        yield name, int(backward), operands[form], words


def small(n, by):
    return n if n < 16 or by == 1 else max(8, n // by)


def operand(text, dtype, by, backward, device):
    import torch
    dims, below, flags = [], None, set()
    for word in text.split():
        if word[0] == "i":
            below = small(int(word[1:]), by)
        elif word.isdigit():
            dims.append(small(int(word), by))
        else:
            flags.add(word)
    if "t" in flags:
        dims[-1], dims[-2] = dims[-2], dims[-1]
    if below is not None:
        x = torch.randint(0, below, dims, device=device)
    elif "m" in flags:
        x = torch.rand(dims, device=device) > 0.5
    elif "f" in flags:
        x = torch.rand(dims, device=device) + 0.5
    else:
        x = torch.randn(dims, device=device).to(dtype)
    if "n" in flags:
        x = x.contiguous(memory_format=torch.channels_last)
    if "t" in flags:
        x = x.mT
    wanted = bool(backward) and x.is_floating_point() and "!" not in flags
    return x.detach().requires_grad_(wanted)


def compiled_words(words):
    import torch
    names = {"torch": torch, "F": torch.nn.functional}
    return eval("lambda a, b=None, c=None, d=None, e=None: " + words, names)


class Job:
    """A row on SETS sets of operands, as op_job_t of gpu.c."""

    def __init__(self, words, text, dtype, by, backward, device="cuda"):
        self.call = compiled_words(words)
        self.sets = [[operand(t, dtype, by, backward, device) for t in text.split(";")] for _ in range(SETS)]
        self.wanted = [[x for x in s if x.requires_grad] for s in self.sets]
        self.gradients = [None] * SETS
        if backward:
            self.gradients = [self.call(*s).detach() * 0.5 for s in self.sets]

    def once(self, n):
        import torch
        if self.wanted[n]:
            torch.autograd.grad(self.call(*self.sets[n]), self.wanted[n], self.gradients[n])
        else:
            with torch.no_grad():
                self.call(*self.sets[n])


def median(f):
    """Seconds per call of f(repeats): as bench_median."""
    repeats, took = 1, 0.0
    f(1)
    while repeats < 1 << 30:
        t = time.perf_counter()
        f(repeats)
        took = time.perf_counter() - t
        if took > 0.02:
            break
        repeats *= 2
    samples = 3 if took > 0.2 or os.environ.get("BENCH_QUICK") else 9
    taken = []
    for _ in range(samples):
        t = time.perf_counter()
        f(repeats)
        taken.append((time.perf_counter() - t) / repeats)
    return statistics.median(taken)


def measure(name, words, text, dtype, backward):
    import torch
    job = Job(words, text, dtype, 1, backward)
    aside = torch.cuda.Stream()                         # a first call off the capture: plans, workspaces
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for n in range(SETS):
            job.once(n)
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    how, graph = "eager", torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for n in range(SETS):
                job.once(n)
    except Exception as error:                          # no graph can hold it
        torch.cuda.synchronize()
        print(f"library: {name}: {str(error).splitlines()[0][:150]}", flush=True)
        how, graph = "eager ungraphed", None

    def run(repeats):
        for _ in range(repeats):
            if graph:
                graph.replay()
            else:
                for n in range(SETS):
                    job.once(n)
        torch.cuda.synchronize()

    print(f"{name:<28} {1e6 * median(run) / SETS:14.6g} us {how}", flush=True)
    del graph, run
    job = Job(words, text, dtype, 64, backward)
    for n in range(SETS):
        job.once(n)
    torch.cuda.synchronize()
    t = time.perf_counter()
    for n in range(100):
        job.once(n % SETS)
    t = (time.perf_counter() - t) / 100
    torch.cuda.synchronize()
    print(f"{name + '.host':<28} {1e6 * t:14.6g} us eager", flush=True)


def all_rows(names):
    import torch
    for name, backward, operands, words in rows():
        for layout, text in zip(LAYOUTS, operands):
            for dtype, label in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
                for b in range(backward + 1):
                    full = f"{name}.{label}.{layout}.{'fb'[b]}"
                    if text and (not names or any(full.startswith(n) for n in names)):
                        yield full, words, text, dtype, b


def ops(seconds, names):
    import torch
    left = 0
    for full, words, text, dtype, backward in all_rows(names):
        if time.perf_counter() - began > seconds:
            left += 1
            continue
        try:
            measure(full, words, text, dtype, backward)
        except Exception as error:
            print(f"library: {full}: {str(error).splitlines()[0][:150]}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    if left:
        print(f"left out for want of time: {left} rows")


def shapes():
    for full, words, text, dtype, backward in all_rows([]):
        job = Job(words, text, dtype, 64, 0, "cpu")
        print("shape", full, *job.call(*job.sets[0]).shape)


def networks(names, how):
    import torch
    sys.argv = ["reference.py", "start"]                # what it does when it is read
    sys.path.insert(0, HERE)
    import reference
    for name in names:
        try:
            reference.cuda(name, how)
        except Exception as error:
            print(f"library: {name} {how}: {str(error).splitlines()[0][:150]}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()


def facts():
    import torch
    print("PyTorch", torch.__version__, "CUDA", torch.version.cuda, "cuDNN", torch.backends.cudnn.version(),
          "NCCL", torch.cuda.nccl.version() if torch.cuda.is_available() else "")
    if torch.cuda.is_available():
        print(torch.cuda.get_device_properties(0))


def read(path):
    """{row: (value, unit, the rest)} of lines "row value unit ..."."""
    found = {}
    try:
        with open(path) as f:
            for line in f:
                word = line.split()
                if len(word) >= 3 and re.fullmatch(r"[\w.]+", word[0]) and re.fullmatch(r"[0-9.e+-]+", word[1]):
                    found[word[0] if len(word) < 4 or word[3] != "compiled" else word[0] + ":compiled"] = (
                        float(word[1]), word[2], " ".join(word[3:]))
    except OSError:
        pass
    return found


def ratios(ours, torchs):
    """(ratio, row, ours, theirs, unit, who): above 1 ours is faster; a step's gradient apart from its forward."""
    for row, (value, unit, who) in ours.items():
        for label in ("", ":compiled"):
            if row + label not in torchs or not value:
                continue
            other = torchs[row + label][0]
            yield (value / other if unit in ("GB/s", "TF/s") else other / value), row + label, value, other, unit, who


def predictions(path):
    found = []
    try:
        with open(path) as f:
            for line in f:
                cell = [c.strip() for c in line.split("|")]
                if len(cell) > 3 and cell[1].startswith("`"):
                    found.append((cell[1].strip("`"), cell[2]))
    except OSError:
        pass
    return found


def table(ours, torchs, expected):
    """What PyTorch was not measured for stands behind, without a ratio."""
    got = sorted(ratios(ours, torchs))
    print("| row | ours | PyTorch | unit | ratio | predicted | by |")
    print("|---|---:|---:|---|---:|---|---|")
    for ratio, row, value, other, unit, who in got:
        said = next((p for pattern, p in expected if fnmatch.fnmatch(row, pattern)), "")
        print(f"| {row} | {value:.4g} | {other:.4g} | {unit} | {ratio:.2f} | {said} | {who} |")
    there = {row for _, row, *_ in got}
    for row, (value, unit, who) in ours.items():
        if row not in there:
            print(f"| {row} | {value:.4g} | | {unit} | | | {who} |")
    if got:
        device = [g[0] for g in got if not g[1].endswith(".host")]
        print(f"\n{len(device)} rows beside PyTorch's; {sum(r >= 0.95 for r in device)} at 0.95 or more, "
              f"median {statistics.median(device or [0]):.2f}.")


def need_gpu():
    try:
        import torch
        there = torch.cuda.is_available()
    except ImportError:
        there = False
    if not there:
        print("library: no PyTorch with a GPU here: there is nothing to compare with")
        sys.exit(3)


def main(what, *more):
    if what in ("ops", "networks", "compiled"):
        need_gpu()
    if what == "ops":
        ops(float(more[0]), more[1:])
    elif what in ("networks", "compiled"):
        networks(more, "eager" if what == "networks" else "compiled")
    elif what == "shapes":
        shapes()
    elif what == "facts":
        facts()
    elif what in ("table", "worst"):
        files = more[:-1] if what == "table" else more[1:]
        torchs = {}
        for path in files[1:]:
            torchs.update(read(path))
        if what == "table":
            table(read(files[0]), torchs, predictions(more[-1]))
        else:
            named = [r for r in sorted(ratios(read(files[0]), torchs)) if r[1].count(".") == 3]
            print(*[r[1] for r in named[:int(more[0])]])
    else:
        print(__doc__)
        sys.exit(2)


if __name__ == "__main__":
    main(*(sys.argv[1:] or [""]))
