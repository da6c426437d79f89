"""compare.py - runs our benchmark programs and the reference's rows turn by turn, prints tables of ratios, and writes
results/cpu-DATE.md and .svg. Without PyTorch the reference columns stay empty and it says so; OpenBLAS and oneDNN
take part where their programs were built (see run.sh).

usage: compare.py BUILD_DIR [--quick | --ops] [ROUNDS] [COMPILE_ROWS_FILE]

--quick: one short round in about five minutes, nothing written, exit status 1 where a row falls short of its goal.
--ops: every op of tests/ops.def on the case to time in its row, one thread, one round, nothing written.
"""
import datetime
import os
import platform
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = "--quick" in sys.argv
EVERY = "--ops" in sys.argv
ARGS = [a for a in sys.argv[1:] if a not in ("--quick", "--ops")]
BUILD = ARGS[0]
ROUNDS = 1 if QUICK or EVERY else int(ARGS[1]) if len(ARGS) > 1 else 3
CPUS = sorted(os.sched_getaffinity(0))

# row, what it is, unit, goal (text), check(ours, reference) -> bool.
ROWS = [
    ("add16", "add, 16 elements, no tape", "ns", "<= 50 ns", lambda o, r: o <= 50),
    ("mul16", "mul, 16 elements, no tape", "ns", "<= 50 ns", lambda o, r: o <= 50),
    ("add16_tape", "add, 16 elements, recorded", "ns", "<= 100 ns", lambda o, r: o <= 100),
    ("mul16_tape", "mul, 16 elements, recorded", "ns", "<= 100 ns", lambda o, r: o <= 100),
    ("backward_node", "backward, per node of 16 elements", "ns", "<= 100 ns", lambda o, r: o <= 100),
    ("mlp_step", "MLP 8-64-64-4, batch 32, training step", "us", "<= 35 us", lambda o, r: o <= 35),
    ("mlp_infer", "MLP 8-64-64-4, batch 1, inference", "us", "", None),
    ("mlp_mallocs_per_step", "calls to malloc per steady MLP step", "calls", "0", lambda o, r: o == 0),
    ("gpt_step_1t", "main job, training step, 1 thread", "ms", "<= 1.5 x", lambda o, r: r and o <= 1.5 * r),
    ("gpt_step_2t", "main job, training step, 2 threads", "ms", "<= 1.5 x", lambda o, r: r and o <= 1.5 * r),
    ("gpt_mallocs_per_step_1t", "calls to malloc per steady step, main job", "calls", "0", lambda o, r: o == 0),
    ("start_main_to_first_op", "start of main to the first result", "ms", "< 1 ms", lambda o, r: o < 1),
    ("start_fork_exec_first_op", "start of the process to the first result", "ms", "<= 0.01 x",
     lambda o, r: r and o <= 0.01 * r),
    ("compile_header", "including the headers, no implementation", "ms", "< 30 ms", lambda o, r: o < 30),
    ("compile_implementation", "compiling the implementation, gcc -O2", "s", "< 15 s", lambda o, r: o < 15),
]

# Rows of ops.c (rates), models.c and nets.c (times): how many times as fast as the reference, with the goal on one
# thread and on two (None: no goal).
SPEED = [
    ("sgemm_16", "product 16^3", 1, None), ("sgemm_32", "product 32^3", 1, None), ("sgemm_64", "product 64^3", 1, 1),
    ("sgemm_128", "product 128^3", 1, 1), ("sgemm_256", "product 256^3", 1, 1), ("sgemm_512", "product 512^3", 1, 1),
    ("sgemm_1024", "product 1024^3", 1, 1), ("sgemm_2048", "product 2048^3", 1, 1),
    ("linear_1x1024x1024", "linear, batch 1, 1024 to 1024", 1, 1),
    ("linear_8x1024x1024", "linear, batch 8, 1024 to 1024", 1, 1),
    ("linear_20x800x400", "linear, batch 20, 400 to 800", 1, 1),
    ("linear_64x512x784", "linear, batch 64, 784 to 512", 1, 1),
    ("linear_128x3072x768", "linear, batch 128, 768 to 3072", 1, 1),
    ("bf16_512", "product 512^3, bf16", None, None),
    ("bf16_1x1024x1024", "linear, batch 1, 1024 to 1024, bf16", None, None),
    ("bf16_128x3072x768", "linear, batch 128, 768 to 3072, bf16", None, None),
    ("conv_lenet1", "conv 1 to 32, 5x5, 28x28, batch 64", 1.5, None),
    ("conv_lenet1_both", "the same, forward and backward", 1.5, None),
    ("conv_lenet2", "conv 32 to 64, 5x5, 12x12, batch 64", None, None),
    ("conv_lenet2_both", "the same, forward and backward", None, None),
    ("conv_64_3x3", "conv 64 to 64, 3x3, 32x32, batch 32", 1, 1),
    ("conv_64_3x3_both", "the same, forward and backward", 1, 1),
    ("conv_256_3x3", "conv 256 to 256, 3x3, 8x8, batch 32", 1, 1),
    ("conv_256_3x3_both", "the same, forward and backward", 1, 1),
    ("conv_1x1", "conv 256 to 64, 1x1, 56x56, batch 4", None, None),
    ("conv_1x1_both", "the same, forward and backward", 1.5, None),
    ("conv_7x7_stem", "conv 3 to 64, 7x7 stride 2, 224x224, batch 4", 2, None),
    ("conv_depthwise", "depthwise conv 128, 3x3, 56x56, batch 4", 2, None),
    ("conv_depthwise_both", "the same, forward and backward", 2, None),
    ("add", "add, 64k elements", 1, None), ("mul", "mul, 64k elements", 1, None),
    ("relu", "relu, 64k elements", 1, None), ("sum", "sum, 64k elements", 1, None),
    ("add_64MB", "add, result of 64 MB", 2.5, None), ("exp", "exp, 1M elements", 1.6, None),
    ("sigmoid", "sigmoid, 1M", None, None), ("tanh", "tanh, 1M", 4, None), ("erf", "erf, 1M", 4, None),
    ("gelu", "gelu, 1M", None, None), ("gelu_tanh", "gelu by tanh, 1M", 4, None), ("pow", "x^2.5, 1M", 4, None),
    ("where", "where, 1M", 8, None), ("argmax", "argmax, 1M", 8, None),
    ("argmax_dim", "argmax of 1024 rows", 8, None), ("rand", "rand, 1M", 8, None),
    ("randn", "randn, 1M", None, None), ("dropout", "dropout, 1M", 8, None),
    ("max_pool2d", "max pool 2x2, 1M", 8, None), ("transpose", "transposed copy, 1024^2", None, None),
    ("softmax", "softmax, 1024 rows of 1000", 1.6, None),
    ("softmax_both", "the same, forward and backward", 1.6, None),
    ("layer_norm", "layer norm, 1024 rows of 768", 1.6, None),
    ("layer_norm_both", "the same, forward and backward", 1.6, None),
    ("cross_entropy", "cross-entropy, 1024 x 1000", None, None),
    ("cross_entropy_both", "the same, forward and backward", 2.5, None),
    ("batch_norm", "batch norm, 16 x 64 x 32 x 32, training", None, None),
    ("batch_norm_both", "the same, forward and backward", 2.5, None),
    ("rl_act", "net 8-64-64-4, act", 50, None), ("rl_train_32", "net 8-64-64-4, train, batch 32, Adam", 15, None),
    ("mlp_infer_1", "net 784-512-256-10, inference", None, None),
    ("mlp_train_1", "the same, train, batch 1, Adam", 4, None), ("mlp_train_32", "batch 32", 2.5, None),
    ("mlp_train_128", "batch 128", 1.8, None), ("cnn_infer_1", "CNN of make fashion, inference", 2, None),
    ("cnn_train_1", "the same, train, batch 1, SGD", 6, None), ("cnn_train_64", "batch 64", 2, None),
    ("gpt_step", "main job, training step", 2, 2),
    ("gpt_baby_train", "GPT 6 x 384, context 256, batch 8, train", 1.4, 1.4),
    ("gpt_baby_autocast", "the same, autocast to bf16", None, None),
    ("lstm_train", "LSTM 2 x 200, 10000 words, 35 x 20, train", 1.8, 1.8),
    ("ncf_train", "NCF, batch 2048, train, Adam", 4, 4),
    ("ncf_sparse_train", "the same, gradients of the tables by rows, SparseAdam", None, None),
    ("resnet18_train", "ResNet-18, 32x32, batch 32, train", 1.1, 1.1),
    ("lstm_step", "LSTM 2 x 200, one step", 2, None), ("gpt_tiny_token", "GPT 4 x 128, one token after 63", 2, None),
    ("gpt_baby_token", "GPT 6 x 384, one token after 255", 2, None),
    ("resnet18_infer", "ResNet-18, 224x224, inference", 1.1, None),
]
NETS = ("ncf_train", "ncf_sparse_train", "lstm_train", "resnet18_train", "gpt_baby_train", "gpt_baby_autocast",
        "lstm_step", "gpt_tiny_token", "gpt_baby_token", "resnet18_infer")
SLOW = ("resnet18_train", "gpt_baby_train", "gpt_baby_autocast", "resnet18_infer")       # not in --quick
TIMES = {"us", "ms", "ns"}


def quiet_process():
    """Own session with a raised weight, where allowed: other work on the machine takes less away."""
    os.setsid()
    try:
        with open("/proc/self/autogroup", "w") as f:
            f.write("-19")
    except OSError:
        pass


def run(command, threads, **more):
    """-> {row: (value, unit)} of a program pinned to the first `threads` processors."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads), OMP_PROC_BIND="true",
               OMP_PLACES=",".join("{%d}" % c for c in CPUS[:threads]), **more)
    if QUICK or EVERY:
        env["BENCH_QUICK"] = "1"
    command = ["taskset", "-c", ",".join(str(c) for c in CPUS[:threads])] + command
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=quiet_process)
    rows = {}
    for line in done.stdout.splitlines():
        part = line.split()
        if "skipped" in part:
            print(line)
        if len(part) == 3:
            rows[part[0]] = (float(part[1]), part[2])
    if done.returncode:
        print(f"{' '.join(command)}: exit status {done.returncode}", file=sys.stderr)
    return rows


def keep(best, rows, threads, source=""):
    """best[row, threads] = (value, unit, source): the smallest time, the largest rate."""
    for name, (value, unit) in rows.items():
        if name.startswith("gpt_step_"):
            name = "gpt_step"
        old = best.get((name, threads))
        better = old is None or (value > old[0] if unit.endswith("/s") else value < old[0])
        if better:
            best[name, threads] = (value, unit, source)


def blas_core():
    """Some builds of OpenBLAS take a processor they do not know for one without vectors; this names its kernels."""
    with open("/proc/cpuinfo") as f:
        flags = f.read()
    return "SkylakeX" if "avx512f" in flags else "Haswell" if "avx2" in flags else ""


def measure(ours, reference, version, say):
    script = [sys.executable, os.path.join(HERE, "reference.py")]
    turns = (1, 2) if len(CPUS) >= 2 else (1,)
    for _ in range(ROUNDS):
        keep(ours, run([f"{BUILD}/bench/micro"], 1), 1)
        if version:
            say("micro")
            keep(reference, run(script + ["micro"], 1), 1)
        for threads in turns:
            n = str(threads)
            for part in ("ops", "models"):
                if threads == 2 and (QUICK or part == "models"):
                    continue
                say(f"{part}, {n} threads")
                keep(ours, run([f"{BUILD}/bench/{part}", n], threads), threads)
                if version:
                    keep(reference, run(script + [part, n], threads), threads, "PyTorch")
            say(f"products, {n} threads")
            keep(ours, run([f"{BUILD}/bench/fma_peak"], 1), 1)
            for library, name in (("dnnl", "oneDNN"), ("openblas", "OpenBLAS")):
                if os.path.exists(f"{BUILD}/bench/blas_{library}"):
                    core = {"OPENBLAS_CORETYPE": blas_core()} if blas_core() else {}
                    keep(reference, run([f"{BUILD}/bench/blas_{library}"], threads, **core), threads, name)
            say(f"main job, {n} threads")
            keep(ours, run([f"{BUILD}/bench/gpt_step", n], threads), threads)
            if version:
                vocabulary = str(int(ours["gpt_vocabulary", threads][0]))
                keep(reference, run(script + ["gpt", n, vocabulary], threads), threads, "PyTorch")
            for net in NETS:
                if QUICK and (net in SLOW or threads == 2):
                    continue
                say(f"{net}, {n} threads")
                keep(ours, run([f"{BUILD}/bench/nets", n, net], threads), threads)
                if version:
                    keep(reference, run(script + ["nets", n, net], threads), threads, "PyTorch")
        if version:
            begin = time.perf_counter()
            subprocess.run(script + ["start"])
            keep(reference, {"start_fork_exec_first_op": (1e3 * (time.perf_counter() - begin), "ms")}, 1)


def every_op(version, say):
    """A line for each op: ours beside PyTorch's, the slowest beside it first. -> exit status"""
    say("every op")
    ours, reference = run([f"{BUILD}/bench/every", "1"], 1), {}
    if version:
        say("every op, PyTorch")
        reference = run([sys.executable, os.path.join(HERE, "reference.py"), "all", "1"], 1)
    times = {name: ours[name][0] / reference[name][0] for name in ours if name in reference}
    print(f"{'op':<34} {'ours':>12} {'PyTorch':>12} {'ratio':>8}     microseconds; ratio below 1: ours is faster")
    for name in sorted(times, key=lambda n: -times[n]):
        print(f"{name[3:]:<34} {ours[name][0]:12.2f} {reference[name][0]:12.2f} {times[name]:8.3f}")
    for name in sorted(set(ours) - set(times)):
        print(f"{name[3:]:<34} {ours[name][0]:12.2f} {'-':>12}")
    slower = sum(t > 1 for t in times.values())
    print(f"{len(ours)} ops, {len(times)} beside PyTorch, {slower} of them slower; skipped: {len(ours) - len(times)} that "
          "PyTorch lacks or that run in it by no one call")
    return 0 if len(ours) > 400 else 1


def svg(path, bars, title):
    """A bar per row with a reference: how many times faster than it (longer is better), on a log scale."""
    import math
    width, left, height = 900, 330, 30
    most = max([math.log10(max(x, 1.01)) for _, x in bars] + [1])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(bars) + 60}" '
           'font-family="sans-serif" font-size="13">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="10" y="22" font-size="15">{title}</text>']
    for i, (name, x) in enumerate(bars):
        y = 40 + i * height
        w = max(2, (width - left - 90) * math.log10(max(x, 1.01)) / most)
        out.append(f'<text x="10" y="{y + 15}">{name}</text>'
                   f'<rect x="{left}" y="{y}" width="{w:.0f}" height="20" fill="{"#2a7" if x >= 1 else "#c63"}"/>'
                   f'<text x="{left + w + 6:.0f}" y="{y + 15}">{x:.2f} x</text>')
    out.append("</svg>\n")
    with open(path, "w") as f:
        f.write("\n".join(out))


def table(lines, title, header, rows):
    lines += ["", title, "", "| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 3) + "---|---|"]
    lines += ["| " + " | ".join(r) + " |" for r in rows]


def main():
    try:
        import torch
        version = torch.__version__
    except ImportError:
        version = None
    ours, reference = {}, {}
    begin = time.time()
    say = lambda what: print(f"{time.time() - begin:6.0f} s  {what}", file=sys.stderr, flush=True)
    if EVERY:
        return every_op(version, say)
    measure(ours, reference, version, say)
    if len(ARGS) > 2:
        with open(ARGS[2]) as f:
            for line in f:
                part = line.split()
                if len(part) == 3:
                    ours[part[0], 1] = (float(part[1]), part[2], "")

    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            cpu = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    date = datetime.date.today().isoformat()
    head = f"{cpu}, {len(CPUS)} processors; reference: " + (
        f"PyTorch {version}, eager" if version else "none (PyTorch is not installed: pip install torch)")
    lines = [f"# Measured {date}", "", head + ".", "",
             f"Each figure is the best of {ROUNDS} rounds (a round's figure is a median), ours and the reference's turn",
             "by turn in one run, pinned to the same processors. Where there are several references (PyTorch with and",
             "without oneDNN, with an output given, traced; oneDNN's and OpenBLAS's own products) the best one counts."]
    bars, rows, missed, counted = [], [], 0, 0
    for name, what, unit, goal, check in ROWS:
        key = ("gpt_step", int(name[9])) if name.startswith("gpt_step_") else (name, 1)
        o, r = ours.get(key, (None,))[0], reference.get(key, (None,))[0]
        if o is None:
            rows.append([what, "not measured", "", "", goal, ""])
            continue
        mark = ""
        if check and not (goal.endswith("x") and not r):
            good = check(o, r)
            mark = "reached" if good else "missed"
            missed += not good
            counted += 1
        rows.append([what, f"{o:.4g} {unit}", f"{r:.4g} {unit}" if r else "", f"{o / r:.4f}" if r else "", goal, mark])
        if r:
            bars.append((what, r / o))
    table(lines, "Ratio = ours / reference: smaller is better.", ["row", "ours", "reference", "ratio", "goal", ""], rows)
    for threads in (1, 2):
        rows = []
        for name, what, *goals in SPEED:
            o, r = ours.get((name, threads)), reference.get((name, threads))
            if o is None:
                continue
            goal, mark, times = goals[threads - 1], "", None
            if r:
                times = o[0] / r[0] if o[1].endswith("/s") else r[0] / o[0]
                bars.append((what + (", 2 threads" if threads == 2 else ""), times))
            if goal and times is not None:
                counted += 1
                missed += times < goal
                mark = "reached" if times >= goal else "falls short"
            rows.append([what, f"{o[0]:.3g} {o[1]}", f"{r[0]:.3g} {r[2]}" if r else "", f"{times:.2f}" if times else "",
                         f">= {goal}" if goal else "", mark])
        if rows:
            table(lines, f"{'One thread' if threads == 1 else 'Two threads'}; G/s are 10^9 floating-point operations or "
                  "elements a second.", ["row", "ours", "reference", "times as fast", "goal", ""], rows)
    peak = ours.get(("fma_peak", 1))
    if peak:
        lines += ["", f"Fused multiply-adds that touch no memory reach {peak[0]:.0f} GF/s on one thread:"]
        for n in (512, 1024, 2048):
            part = ours[f"sgemm_{n}", 1][0] / peak[0]
            counted += 1
            missed += part < 0.93
            lines.append(f"product {n}^3 {part:.2f} of it (goal 0.93, {'reached' if part >= 0.93 else 'falls short'});")
    rows = []
    for net in NETS:
        o, r = ours.get((net + "_rss", 1)), reference.get((net + "_rss", 1))
        if o and r:
            counted += 1
            missed += o[0] > 0.5 * r[0]
            rows.append([net, f"{o[0]:.0f} MB", f"{r[0]:.0f} MB", f"{o[0] / r[0]:.3f}", "<= 0.5",
                         "reached" if o[0] <= 0.5 * r[0] else "falls short"])
    if rows:
        table(lines, "Peak memory of a process that runs the row alone.",
              ["row", "ours", "reference", "ratio", "goal", ""], rows)
    text = "\n".join(lines) + "\n"
    print(text)
    if not QUICK:
        folder = os.path.join(HERE, "results")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"cpu-{date}.md"), "w") as f:
            f.write(text + (f"\n![times faster than the reference](cpu-{date}.svg)\n" if bars else ""))
        if bars:
            svg(os.path.join(folder, f"cpu-{date}.svg"), bars, f"Times faster than the reference ({date})")
        print(f"written to bench/results/cpu-{date}.md")
    if QUICK:
        left = [name for name, _, *goals in SPEED for threads in (1, 2)
                if goals[threads - 1] and (name, threads) not in ours]
        print(f"{len(left)} rows left out by --quick: {', '.join(sorted(set(left)))}")
    print(f"{counted} rows, {missed} fall short")
    return 1 if QUICK and missed else 0


sys.exit(main())
