"""compare.py - runs our benchmark programs and PyTorch's rows turn by turn, prints one table of ratios, and writes
results/cpu-DATE.md and .svg. Without PyTorch the reference column stays empty and it says so.

usage: compare.py BUILD_DIR [ROUNDS] [COMPILE_ROWS_FILE]
"""
import datetime
import os
import platform
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
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
    ("start_fork_exec_first_op", "fork and exec to the first result", "ms", "", None),
    ("compile_header", "including the headers, no implementation", "ms", "< 30 ms", lambda o, r: o < 30),
    ("compile_implementation", "compiling the implementation, gcc -O2", "s", "< 15 s", lambda o, r: o < 15),
]

# Rows of ops.c (rates) and models.c (times): how many times as fast as the reference, with the goal where there is one.
SPEED = [
    ("sgemm_16", "product 16^3", 1), ("sgemm_32", "product 32^3", 1), ("sgemm_64", "product 64^3", 1),
    ("sgemm_128", "product 128^3", 1), ("sgemm_256", "product 256^3", 1), ("sgemm_512", "product 512^3", 1),
    ("sgemm_1024", "product 1024^3", 1), ("linear_1x1024x1024", "linear, batch 1, 1024 to 1024", 1),
    ("linear_8x1024x1024", "linear, batch 8, 1024 to 1024", 1), ("linear_20x800x400", "linear, batch 20, 400 to 800", 1),
    ("linear_64x512x784", "linear, batch 64, 784 to 512", 1),
    ("linear_128x3072x768", "linear, batch 128, 768 to 3072", 1),
    ("conv_lenet1", "conv 1 to 32, 5x5, 28x28, batch 64", 1.5), ("conv_lenet1_both", "the same, forward and backward", 1.5),
    ("conv_lenet2", "conv 32 to 64, 5x5, 12x12, batch 64", None),
    ("conv_lenet2_both", "the same, forward and backward", None),
    ("conv_64_3x3", "conv 64 to 64, 3x3, 32x32, batch 32", 1), ("conv_64_3x3_both", "the same, forward and backward", 1),
    ("conv_256_3x3", "conv 256 to 256, 3x3, 8x8, batch 32", 1), ("conv_256_3x3_both", "the same, forward and backward", 1),
    ("conv_1x1", "conv 256 to 64, 1x1, 56x56, batch 4", None), ("conv_1x1_both", "the same, forward and backward", 1.5),
    ("conv_7x7_stem", "conv 3 to 64, 7x7 stride 2, 224x224, batch 4", 2),
    ("conv_depthwise", "depthwise conv 128, 3x3, 56x56, batch 4", 2),
    ("conv_depthwise_both", "the same, forward and backward", 2),
    ("add", "add, 64k elements", 1), ("relu", "relu, 64k elements", 1), ("sum", "sum, 64k elements", 1),
    ("add_64MB", "add, result of 64 MB", 2.5), ("exp", "exp, 1M elements", 1.6), ("sigmoid", "sigmoid, 1M", None),
    ("tanh", "tanh, 1M", 4), ("erf", "erf, 1M", 4), ("gelu", "gelu, 1M", None), ("gelu_tanh", "gelu by tanh, 1M", 4),
    ("pow", "x^2.5, 1M", 4), ("where", "where, 1M", 8), ("argmax", "argmax, 1M", 8),
    ("argmax_dim", "argmax of 1024 rows", 8), ("rand", "rand, 1M", 8), ("randn", "randn, 1M", None),
    ("dropout", "dropout, 1M", 8), ("max_pool2d", "max pool 2x2, 1M", 8), ("transpose", "transposed copy, 1024^2", None),
    ("softmax", "softmax, 1024 rows of 1000", 1.6), ("softmax_both", "the same, forward and backward", 1.6),
    ("layer_norm", "layer norm, 1024 rows of 768", 1.6), ("layer_norm_both", "the same, forward and backward", 1.6),
    ("cross_entropy", "cross-entropy, 1024 x 1000", 2.5), ("cross_entropy_both", "the same, forward and backward", 2.5),
    ("rl_act", "net 8-64-64-4, act", 50), ("rl_train_32", "net 8-64-64-4, train, batch 32, Adam", 15),
    ("mlp_infer_1", "net 784-512-256-10, inference", None), ("mlp_train_1", "the same, train, batch 1, Adam", 4),
    ("mlp_train_32", "batch 32", 2.5), ("mlp_train_128", "batch 128", 1.8),
    ("cnn_infer_1", "CNN of make fashion, inference", 2), ("cnn_train_1", "the same, train, batch 1, SGD", 6),
    ("cnn_train_64", "batch 64", 2),
]
TIMES = ("rl_", "mlp_", "cnn_")


def quiet_process():
    """Own session with a raised weight, where allowed: other work on the machine takes less away."""
    os.setsid()
    try:
        with open("/proc/self/autogroup", "w") as f:
            f.write("-19")
    except OSError:
        pass


def run(command, threads):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_PROC_BIND="true",
               OMP_PLACES=",".join("{%d}" % c for c in CPUS[:threads]))
    command = ["taskset", "-c", ",".join(str(c) for c in CPUS[:threads])] + command
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=quiet_process)
    rows = {}
    for line in done.stdout.splitlines():
        part = line.split()
        if len(part) == 3:
            rows[part[0]] = float(part[1])
    if done.returncode:
        print(f"{' '.join(command)}: exit status {done.returncode}", file=sys.stderr)
    return rows


def keep(best, rows):
    rates = {name for name, _, _ in SPEED if not name.startswith(TIMES)}
    for name, value in rows.items():
        best[name] = (max if name in rates else min)(value, best.get(name, value))


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


def main():
    try:
        import torch
        version = torch.__version__
    except ImportError:
        version = None
    ours, reference = {}, {}
    two = len(CPUS) >= 2
    for _ in range(ROUNDS):
        keep(ours, run([f"{BUILD}/bench/micro"], 1))
        keep(ours, run([f"{BUILD}/bench/ops", "1"], 1))
        keep(ours, run([f"{BUILD}/bench/models", "1"], 1))
        keep(ours, run([f"{BUILD}/bench/gpt_step", "1"], 1))
        if two:
            keep(ours, run([f"{BUILD}/bench/gpt_step", "2"], 2))
        if version:
            script = [sys.executable, os.path.join(HERE, "reference.py")]
            vocabulary = str(int(ours.get("gpt_vocabulary", 96)))
            keep(reference, run(script + ["micro"], 1))
            keep(reference, run(script + ["ops", "1"], 1))
            keep(reference, run(script + ["models", "1"], 1))
            keep(reference, run(script + ["gpt", "1", vocabulary], 1))
            if two:
                keep(reference, run(script + ["gpt", "2", vocabulary], 2))
    if len(sys.argv) > 3:
        with open(sys.argv[3]) as f:
            for line in f:
                part = line.split()
                if len(part) == 3:
                    ours[part[0]] = float(part[1])

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
             "by turn in one run, pinned to the same processors. Ratio = ours / reference: smaller is better.", "",
             "| row | ours | reference | ratio | goal | |", "|---|---:|---:|---:|---|---|"]
    bars, missed = [], 0
    for name, what, unit, goal, check in ROWS:
        o, r = ours.get(name), reference.get(name)
        if o is None:
            lines.append(f"| {what} | not measured | | | {goal} | |")
            continue
        mark = ""
        if check and not (goal.endswith("x") and not r):
            good = check(o, r)
            mark = "reached" if good else "missed"
            missed += not good
        lines.append(f"| {what} | {o:.3g} {unit} | {f'{r:.4g} {unit}' if r else ''} | {f'{o / r:.3f}' if r else ''} "
                     f"| {goal} | {mark} |")
        if r:
            bars.append((what, r / o))
    lines += ["", "One thread; G/s are 10^9 floating-point operations or elements a second.", "",
              "| row | ours | reference | times as fast | goal | |", "|---|---:|---:|---:|---:|---|"]
    rows = short = 0
    for name, what, goal in SPEED:
        o, r = ours.get(name), reference.get(name)
        if o is None:
            continue
        unit = "us" if name.startswith(TIMES) else "G/s"
        times = None if r is None else r / o if unit == "us" else o / r
        mark = ""
        if goal and times is not None:
            rows += 1
            short += times < goal
            mark = "reached" if times >= goal else "falls short"
        lines.append(f"| {what} | {o:.3g} {unit} | {f'{r:.3g} {unit}' if r else ''} | "
                     f"{f'{times:.2f}' if times else ''} | {f'>= {goal}' if goal else ''} | {mark} |")
        if times:
            bars.append((what, times))
    text = "\n".join(lines) + "\n"
    print(text)
    print(f"{rows} rows, {short} fall short")
    folder = os.path.join(HERE, "results")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"cpu-{date}.md"), "w") as f:
        f.write(text + (f"\n![times faster than the reference](cpu-{date}.svg)\n" if bars else ""))
    if bars:
        svg(os.path.join(folder, f"cpu-{date}.svg"), bars, f"Times faster than PyTorch {version} ({date})")
    print(f"{missed} goals missed; written to bench/results/cpu-{date}.md")


main()
