"""paper.py - what bench/paper.sh asks of Python: PyTorch beside the library where claims of its paper are measured.

usage: paper.py share          nanoseconds to share memory with NumPy by DLPack, 1 KB and 400 MB (examples/python)
       paper.py bound          how many functions examples/python binds from the headers, and the seconds of that
       paper.py start          milliseconds from the start of a process to PyTorch's first result
       paper.py live FILE      "seconds bytes" of live tensors in the second training step of ResNet-50 in PyTorch
Lines are "row value unit".
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def median(f, turns):
    seconds = []
    for _ in range(turns):
        begin = time.perf_counter()
        f()
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[turns // 2]


def row(name, value, unit):
    print("%-28s %14.6g %s" % (name, value, unit), flush=True)


def share():
    import numpy
    sys.path.insert(0, str(HERE.parent / "examples" / "python"))
    import tensor as t
    for name, n in ("small", 256), ("large", 100_000_000):
        a = numpy.zeros(n, numpy.float32)
        x = t.from_dlpack(a)
        x.fill_(3)
        same = a[-1] == 3 and numpy.from_dlpack(x).__array_interface__["data"] == a.__array_interface__["data"]
        row("share_" + name, 1e9 * median(lambda: t.from_dlpack(a), 1001), "ns")
        row("share_%s_same" % name, int(same), "of 1")


def bound():
    sys.path.insert(0, str(HERE.parent / "examples" / "python"))
    begin = time.perf_counter()
    import tensor as t
    row("bound_seconds", time.perf_counter() - begin, "s")
    row("bound_functions", len(t.functions), "functions")


def start():
    command = [sys.executable, str(HERE / "reference.py"), "start"]
    row("start", 1e3 * median(lambda: subprocess.run(command, capture_output=True, check=True), 5), "ms")


def live(path):
    """The profiler's memory events: bytes of each allocation and release, added up."""
    sys.path.insert(0, str(HERE.parent / "tests" / "fixtures"))
    import torch
    import models
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as p:
        job = models.Job("resnet50", 1, int(os.environ.get("BATCH", "4")), known=False)
        for step in range(2):
            with torch.profiler.record_function("step%d" % step):
                job.opt.zero_grad()
                loss = torch.nn.functional.cross_entropy(job.net(*job.x), job.y)
                loss.backward()
                job.opt.step()
            del loss
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        p.export_chrome_trace(f.name)
        events = json.load(open(f.name))["traceEvents"]
    second = next(e for e in events if e.get("name") == "step1" and e.get("ph") == "X")
    memory = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]")
    now = 0
    with open(path, "w") as out:
        for at, size in memory:
            now += size
            if second["ts"] <= at <= second["ts"] + second["dur"]:
                out.write("%.6f %d\n" % (1e-6 * (at - second["ts"]), now))


if __name__ == "__main__":
    {"share": share, "bound": bound, "start": start, "live": live}[sys.argv[1]](*sys.argv[2:])
