"""zoo.py - the six models of the PyTorch paper in training, here and in PyTorch: images, sentences or samples a second.

usage: zoo.py NAME BATCH STEPS THREADS eager | compiled     one run of PyTorch, the line that build/models/train prints
       zoo.py table BUILD_DIR                               all of them in turn, writes results/models.md

RESULTS (results/models.md), TURNS (5), STEPS (10), MODELS (of alexnet vgg19 resnet50 mobilenet_v2 gnmt ncf), BATCH
(instead of each one's), COMPILE=0 (without torch.compile), THREADS ("1 2") are read from the environment. The nets are
those of tests/fixtures/models.py, which are compared with torchvision's there; batches are the same numbers on both
sides.

Each run adds a line to LOG (BUILD_DIR/zoo.log), and the page is written after each model, from all that the log has: one
that was cut goes on where it was, and models may be measured one after the other. The log begins anew when the program
is a newer one, or by FRESH=1.
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


def key_of(name, batch, steps, threads, way, turn):
    return f"{name} batch {batch} steps {steps} threads {threads} {way} turn {turn}"


def read_log(path, program):
    """What was measured since the program was built: {key: (examples/s, unit, peak, start) or None}."""
    if os.environ.get("FRESH") or (path.exists() and path.stat().st_mtime < os.stat(program).st_mtime):
        path.unlink(missing_ok=True)
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        key, _, value = line.partition(": ")
        words = value.split()
        if value == "failed":
            found[key] = None
        elif len(words) == 5 and words[4] == ".":           # a line that was cut has no end
            found[key] = (float(words[0]), words[1], float(words[2]), float(words[3]))
    return found


def table(build):
    cpus = sorted(os.sched_getaffinity(0))
    turns, steps = int(os.environ.get("TURNS", "5")), os.environ.get("STEPS", "10")
    ways = ["here", "eager"] + (["compiled"] if os.environ.get("COMPILE", "1") != "0" else [])
    sys.path.insert(0, str(HERE / ".." / "tests" / "fixtures"))
    import models
    several = [n for n in map(int, os.environ.get("THREADS", "1 2").split()) if n <= len(cpus)]
    path = pathlib.Path(os.environ.get("LOG", f"{build}/zoo.log"))
    known = read_log(path, f"{build}/models/train")
    batches = {name: os.environ.get("BATCH", str(models.ZOO[name][3])) for name in SIX.split()}
    # In turn, so that a slow minute of the machine is shared by all ways.
    plan = [(name, batches[name], steps, threads, way, turn) for name in os.environ.get("MODELS", SIX).split()
            for threads in several for turn in range(turns) for way in ways]
    left, began, done = [run for run in plan if key_of(*run) not in known], time.time(), 0
    if len(left) < len(plan):
        print(f"{len(plan) - len(left)} of {len(plan)} runs are in {path} (FRESH=1 measures them again)", file=sys.stderr)
    for run in left:
        name, batch, _, threads, way, turn = run
        if turn and known.get(key_of(name, batch, steps, threads, way, 0), ()) is None:
            value = None                                    # it failed before
        else:
            command = [f"{build}/models/train", name, batch, steps, str(threads)]
            if way != "here":
                command = [sys.executable, __file__, name, batch, steps, str(threads), way]
            value = measure(command, cpus[:threads])
        known[key_of(*run)] = value
        with open(path, "a") as log:
            text = "{:.6g} {} {:.0f} {:.0f} .".format(*value) if value else "failed"
            log.write(f"{key_of(*run)}: {text}\n")
        done += 1
        passed = time.time() - began
        print(f"{done} of {len(left)}, {passed:.0f} s, {passed / done * (len(left) - done):.0f} s to go: {name}, {threads} "
              f"threads, {way}: {f'{value[0]:.4g} {value[1]}/s' if value else 'failed'}", file=sys.stderr, flush=True)
        if done == len(left) or left[done][0] != name:
            page(known, batches, steps, turns, several, ways)
    if not left:
        page(known, batches, steps, turns, several, ways)


def page(known, batches, steps, turns, several, ways):
    """Of all models that the log has figures of, whichever run measured them."""
    rows, memory = [], []
    for name in SIX.split():
        for threads in several:
            got = {way: list(filter(None, (known.get(key_of(name, batches[name], steps, threads, way, turn))
                                           for turn in range(turns)))) for way in ways}
            if not any(got.values()):
                continue

            def cell(way):
                values = [v[0] for v in got[way]]
                short = f" of {len(values)}" if len(values) < turns else ""
                return f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g}){short}" if values else "failed"
            ratios = ["-" for _ in ways[1:]]
            if got["here"]:
                own = statistics.median(v[0] for v in got["here"])
                ratios = [f"{own / statistics.median(v[0] for v in got[w]):.2f}" if got[w] else "-" for w in ways[1:]]
            unit = got["here"][0][1] if got["here"] else "examples"
            rows.append(f"| {name}, {batches[name]} {unit} a step | {threads} | " + " | ".join(cell(w) for w in ways) + " | " +
                        " | ".join(ratios) + " |")
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
    pathlib.Path(os.environ.get("RESULTS", HERE / "results" / "models.md")).write_text(text)


if sys.argv[1] == "table":
    table(sys.argv[2])
else:
    once(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
