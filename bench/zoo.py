"""zoo.py - the six models of the PyTorch paper in training, here and in PyTorch: images, sentences or samples a second.

usage: zoo.py NAME BATCH STEPS THREADS eager | compiled     one run of PyTorch, the line that build/models/train prints
       zoo.py table BUILD_DIR                               all of them in turn, writes results/models.md
       zoo.py join PAGE PAGE..                              one page of several, each of some of the models

RESULTS (results/models.md), TURNS (5), STEPS (10), MODELS (of alexnet vgg19 resnet50 mobilenet_v2 gnmt ncf), BATCH
(instead of each one's), COMPILE=0 (without torch.compile), THREADS ("1 2") are read from the environment. The nets are
those of tests/fixtures/models.py, which are compared with torchvision's there; batches are the same numbers on both
sides.
"""
import datetime
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
SIX = "alexnet vgg19 resnet50 mobilenet_v2 gnmt ncf"
LINE = re.compile(r"^\w+: ([0-9.e+]+) (\w+)/s, .*, ([0-9]+) MB, ([0-9]+) MB before", re.M)


def megabytes(what):
    for line in open("/proc/self/status"):
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    return 0.0


def once(name, batch, steps, threads, way):
    sys.path.insert(0, str(HERE / ".." / "tests" / "fixtures"))
    import models
    import torch
    torch.set_num_threads(threads)
    (torch.ones(16) + 1).sum().item()
    before = megabytes("VmRSS")
    torch.manual_seed(1)
    job = models.Job(name, int(os.environ.get("THIN", "1")), batch, known=False)
    if way == "compiled":
        job.run = torch.compile(job.net)
        job.step().item()
        job.step().item()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        job.step().item()
        seconds.append(time.perf_counter() - begin)
    unit = {"gnmt": "sentences", "ncf": "samples"}.get(name, "images")
    print(f"{name}: {batch / sorted(seconds)[steps // 2]:.4g} {unit}/s, {batch} a step, {threads} threads, "
          f"{megabytes('VmHWM'):.0f} MB, {before:.0f} MB before the first tensor")


def measure(command, cpus):
    """examples/s, unit, peak and start in MB; None if it failed or took more than 20 minutes."""
    command = ["taskset", "-c", ",".join(map(str, cpus))] + command
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    except subprocess.TimeoutExpired:
        return None
    found = LINE.search(run.stdout)
    if run.returncode or not found:
        print(" ".join(command), run.stdout[-300:], run.stderr[-600:], sep="\n", file=sys.stderr)
        return None
    return float(found[1]), found[2], float(found[3]), float(found[4])


def table(build):
    cpus = sorted(os.sched_getaffinity(0))
    turns, steps = int(os.environ.get("TURNS", "5")), os.environ.get("STEPS", "10")
    ways = ["here", "eager"] + (["compiled"] if os.environ.get("COMPILE", "1") != "0" else [])
    sys.path.insert(0, str(HERE / ".." / "tests" / "fixtures"))
    import models
    rows, memory, names = [], [], os.environ.get("MODELS", SIX).split()
    for name in names:
        batch = os.environ.get("BATCH", str(models.ZOO[name][3]))
        for threads in [n for n in map(int, os.environ.get("THREADS", "1 2").split()) if n <= len(cpus)]:
            got = {way: [] for way in ways}
            for turn in range(turns):
                for way in ways:                # in turn, so that a slow minute of the machine is shared
                    command = [f"{build}/models/train", name, batch, steps, str(threads)]
                    if way != "here":
                        command = [sys.executable, __file__, name, batch, steps, str(threads), way]
                    if turn and not got[way]:
                        continue                # it failed before
                    value = measure(command, cpus[:threads])
                    if value:
                        got[way].append(value)
                    print(name, threads, "threads", way, value, file=sys.stderr, flush=True)
            def cell(way):
                values = [v[0] for v in got.get(way, [])]
                return f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g})" if values else "failed"
            ratios = ["-", "-"]
            if got["here"]:
                own = statistics.median(v[0] for v in got["here"])
                ratios = [f"{own / statistics.median(v[0] for v in got[w]):.2f}" if got.get(w) else "-" for w in ways[1:]]
            unit = got["here"][0][1] if got["here"] else "examples"
            rows.append(f"| {name}, {batch} {unit} a step | {threads} | " + " | ".join(cell(w) for w in ways) + " | " +
                        " | ".join(ratios[:len(ways) - 1]) + " |")
            if threads == 1:
                cells = []
                for way in ways:
                    peak = [statistics.median(v[k] for v in got[way]) for k in (2, 3)] if got[way] else None
                    cells.append(f"{peak[0]:.0f} ({peak[0] - peak[1]:.0f})" if peak else "failed")
                memory.append(f"| {name} | " + " | ".join(cells) + " |")
    titles = {"here": "tensor.h", "eager": "PyTorch eager", "compiled": "torch.compile"}
    import torch
    cpu = next((s.split(":")[1].strip() for s in open("/proc/cpuinfo") if s.startswith("model name")), platform.machine())
    text = f"""# The six models of the PyTorch paper in training

{datetime.date.today()}, {cpu}, PyTorch {torch.__version__}; synthetic batches of the published shapes, f32, no dropout.
Examples a second: median of {turns} turns (least-most), each the median of {steps} steps of a process of its own; the
ways in turn, pinned to as many cores as threads. `sh bench/zoo.sh` measures this again.

| model | threads | {" | ".join(titles[w] for w in ways)} | {" | ".join("tensor.h / " + titles[w] for w in ways[1:])} |
| --- | --- |{" --- |" * (2 * len(ways) - 1)}
{chr(10).join(rows)}

Peak memory of the process in MB on one thread, and in brackets without what it had before its first tensor (PyTorch:
after the import and one sum):

| model | {" | ".join(titles[w] for w in ways)} |
| --- |{" --- |" * len(ways)}
{chr(10).join(memory)}
"""
    write(text)


def write(text):
    pathlib.Path(os.environ.get("RESULTS", HERE / "results" / "models.md")).write_text(text)
    print(text)


def join(pages):
    """One page of several runs, each of some of the models."""
    texts = [pathlib.Path(page).read_text() for page in pages]
    rows = [re.findall(r"^\| --- .*\n((?:\| .*\n)*)", text, re.M) for text in texts]     # of each page, of each table
    place = {name: at for at, name in enumerate(SIX.split())}
    tables = []
    for several in zip(*rows):
        lines = "".join(several).splitlines(True)
        tables.append("".join(sorted(lines, key=lambda line: place[re.match(r"\| (\w+)", line)[1]])))
    write(re.sub(r"^(\| --- .*\n)(?:\| .*\n)*", lambda head: head[1] + tables.pop(0), texts[0], flags=re.M))


if sys.argv[1] == "table":
    table(sys.argv[2])
elif sys.argv[1] == "join":
    join(sys.argv[2:])
else:
    once(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
