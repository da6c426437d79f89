"""compiled.py - steps of this library, as they are and as replays of a capture, beside torch.compile (Inductor, optimizer
included), jax.jit (of the whole training step, buffers donated) and ONNX Runtime (inference; the network as torch exports
it), where these are installed. Each column is a process that has compiled its step; they take turns, a sample of about
50 ms each, pinned to the same processors. With one thread the time is the processor's, so that other programs disturb it
less. Two columns are bounds: how much of a replay is in kernels, and the floor (floor.h): of its calls, one after the
other, the bytes at the bandwidth or the operations at the peak that are measured in these turns, whichever takes longer. A
goal is met where the factor is, or, but for the chain, where a replay is near its bound.

usage: compiled.py BUILD_DIR [--threads N] [--rounds N] [ROW...]       (make bench-compiled)
       compiled.py torch|jax|onnxruntime ROW THREADS                              a column: "ready", then a figure for each line read
"""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CPUS = sorted(os.sched_getaffinity(0))
OURS = ("eager", "replay", "kernels", "floor")
MODULES = (("torch.compile", "torch"), ("jax.jit", "jax"), ("ONNX Runtime", "onnxruntime"))
COLUMNS = OURS + tuple(column for column, _ in MODULES)
RATE = 1e-12        # of learning: see replays.c
BUDGETS = {"resnet18_train"}        # rows that also run in 0.8 of the memory of eager's temporaries
NEAR = 0.9          # kernels / replay meets the goal of eager, floor / replay those of the references

# row, what it is, how many times as fast as eager, torch.compile, jax.jit and ONNX Runtime a replay is to be
ROWS = [
    ("chain", "6 pointwise ops and a sum, 1M elements, forward and backward", (2, 1.2, 1.2, None)),
    ("rl_train_32", "MLP 8-64-64-4, batch 32, Adam", (1.3, 1.5, 1.5, None)),
    ("mlp_train_1", "MLP 784-512-256-10, batch 1, Adam", (None, 1.5, 1.5, None)),
    ("mlp_train_32", "MLP 784-512-256-10, batch 32, Adam", (None, 1.5, 1.5, None)),
    ("mlp_train_128", "MLP 784-512-256-10, batch 128, Adam", (None, 1.5, 1.5, None)),
    ("cnn_train_1", "CNN of make fashion, batch 1, SGD", (None, 1.5, 1.5, None)),
    ("cnn_train_64", "CNN of make fashion, batch 64, SGD", (None, 1.5, 1.5, None)),
    ("gpt_step", "GPT 4 x 128, context 64, batch 12, clipping, AdamW", (None, 1.5, 1.5, None)),
    ("lstm_train", "LSTM 2 x 200, 10000 words, 35 x 20, clipping, SGD", (None, 1.5, 1.5, None)),
    ("ncf_train", "NCF, batch 2048, Adam", (None, 1.5, 1.5, None)),
    ("resnet18_train", "ResNet-18, 32x32, batch 32, SGD", (None, 1.5, 1.5, None)),
    ("gpt_baby_train", "GPT 6 x 384, context 256, batch 8, AdamW", (None, 1.5, 1.5, None)),
    ("mlp_infer_1", "MLP 784-512-256-10, batch 1, inference", (None, None, None, 1.1)),
    ("gpt_baby_token", "GPT 6 x 384, one token after 255", (None, None, None, 1.1)),
    ("resnet18_infer", "ResNet-18, 224x224, batch 1, inference", (None, None, None, 1.1)),
]


def serve(step, threads):
    """Answers each line of the input with the microseconds of a step; with one thread those of the processor."""
    clock = time.process_time if threads == 1 else time.perf_counter
    for _ in range(3):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = now = clock()
        steps = 0
        while now - begin < 0.05:
            step()
            steps += 1
            now = clock()
        print(f"{1e6 * (now - begin) / steps:.6g}", flush=True)


def inference_net(name):
    """-> a network and its input, None where the row trains"""
    import torch
    import torch.nn as nn
    import reference as R
    if name == "mlp_infer_1":
        net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
        return net.eval(), torch.randn(1, 784)
    if name == "gpt_baby_token":
        return R.Token(6, 6, 384, 256).eval(), torch.zeros(1, 1, dtype=torch.long)
    if name == "resnet18_infer":
        return R.zoo.ResNet(18, 1000, 1, False).eval(), torch.randn(1, 3, 224, 224)
    return None


def onnxruntime_step(name, threads):
    import io
    import onnxruntime
    import torch
    found = inference_net(name)
    if not found:
        sys.exit(f"{name} trains")
    net, x = found
    file = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(net, (x,), file, dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)


def torch_step(name, threads):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import reference as R
    torch.set_num_threads(threads)
    found = inference_net(name)
    if found:
        net, x = found
        compiled = torch.compile(net)

        def infer():
            with torch.no_grad():
                compiled(x)
        return infer
    if name == "chain":
        x, b = torch.randn(1000000, requires_grad=True), torch.randn(1000000)
        loss = torch.compile(lambda x, b: (torch.sigmoid(torch.tanh(x * b + 0.5) * x) - b).sum())

        def chain():
            x.grad = None
            loss(x, b).backward()
        return chain
    clip, loss_of, batch = 0.0, F.cross_entropy, int(name.split("_")[-1]) if name[-1].isdigit() else 0
    y = torch.randint(0, 4 if name == "rl_train_32" else 10, (batch,))
    adam, sgd = lambda p: torch.optim.Adam(p, RATE), lambda p: torch.optim.SGD(p, RATE, 0.9)
    if name == "rl_train_32":
        net, of = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)), adam
        x = torch.randn(32, 8)
    elif name.startswith("mlp"):
        net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
        x, of = torch.randn(batch, 784), adam
    elif name.startswith("cnn"):
        net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2),
                            nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10))
        x, of = torch.randn(batch, 1, 28, 28), sgd
    elif name == "gpt_step":
        net, of, clip = R.Gpt(98), lambda p: torch.optim.AdamW(p, RATE), 1.0
        x, y = torch.randint(0, 98, (12, 64)), torch.randint(0, 98, (768,))
    elif name == "gpt_baby_train":
        net, of = R.Gpt(65, 6, 6, 384, 256, True), lambda p: torch.optim.AdamW(p, RATE)
        x, y = torch.randint(0, 65, (8, 256)), torch.randint(0, 65, (2048,))
    elif name == "lstm_train":
        net, of, clip = R.zoo.RNNModel(10000, 200, 2, 0.0), lambda p: torch.optim.SGD(p, RATE), 5.0
        x, y = torch.randint(0, 10000, (35, 20)), torch.randint(0, 10000, (700,))
    elif name == "ncf_train":
        net, of, loss_of = R.ncf(False), adam, F.binary_cross_entropy_with_logits
        x, y = torch.stack((torch.randint(0, 6040, (2048,)), torch.randint(0, 3706, (2048,)))), torch.rand(2048).round()
    else:
        net, of = R.zoo.ResNet(18, 10, 1, True), sgd
        x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    opt = of(net.parameters())

    def forward(x, y):
        out = net(x)
        return loss_of(out.flatten(0, 1) if out.dim() > 2 else out, y)
    loss, update = torch.compile(forward), torch.compile(opt.step)

    def step():
        value = loss(x, y)
        opt.zero_grad()
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        update()
    return step


def jax_step(name, threads):
    if not name.endswith(("train", "step", "chain")) and "_train_" not in name:
        sys.exit(f"{name} is not written for jax")
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    import functools
    import jax
    import jax.numpy as jn
    import numpy as np
    lax, rng = jax.lax, np.random.default_rng(0)

    def normal(*shape, scale=0.05):
        return jn.asarray(rng.standard_normal(shape, dtype=np.float32) * scale)

    def below(n, *shape):
        return jn.asarray(rng.integers(0, n, shape))

    if name == "chain":
        x, b = normal(1000000, scale=1), normal(1000000, scale=1)
        chain = jax.jit(jax.value_and_grad(lambda x, b: (jax.nn.sigmoid(jn.tanh(x * b + 0.5) * x) - b).sum()))
        return lambda: jax.block_until_ready(chain(x, b))

    def adam(p, g, s):
        t = s[0] + 1
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, s[1], g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, s[2], g)
        change = lambda a, b, c: a - RATE * (b / (1 - 0.9 ** t)) / (jn.sqrt(c / (1 - 0.999 ** t)) + 1e-8)
        return jax.tree.map(change, p, m, v), (t, m, v)

    def sgd(p, g, s):
        s = jax.tree.map(lambda a, b: 0.9 * a + b, s, g)
        return jax.tree.map(lambda a, b: a - RATE * b, p, s), s

    def cross_entropy(z, y):
        return -jn.mean(jn.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1))

    def logits_loss(z, y):
        return jn.mean(jn.maximum(z, 0) - z * y + jn.log1p(jn.exp(-jn.abs(z))))

    def dense(p, x):
        for i in range(0, len(p), 2):
            x = x @ p[i] + p[i + 1]
            if i + 2 < len(p):
                x = jn.maximum(x, 0)
        return x

    def cnn(p, x):
        for i in (0, 2):
            x = lax.conv_general_dilated(x, p[i], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p[i + 1]
            x = lax.reduce_window(jn.maximum(x, 0), -jn.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return dense(p[4:], x.reshape(x.shape[0], -1))

    def norm(x, weight):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * weight

    def gpt(heads, p, tokens):
        x = p["token"][tokens] + p["place"][:tokens.shape[1]]
        b, t, c = x.shape
        mask = jn.tril(jn.ones((t, t), bool))
        for q in p["blocks"]:
            h = (norm(x, q["norm1"]) @ q["qkv"]).reshape(b, t, 3, heads, c // heads)
            a = jn.einsum("bqhd,bkhd->bhqk", h[:, :, 0], h[:, :, 1]) / (c // heads) ** 0.5
            a = jax.nn.softmax(jn.where(mask, a, -1e30))
            x = x + jn.einsum("bhqk,bkhd->bqhd", a, h[:, :, 2]).reshape(b, t, c) @ q["out"]
            x = x + jax.nn.gelu(norm(x, q["norm2"]) @ q["up"], approximate=False) @ q["down"]
        return (norm(x, p["norm"]) @ p["token"].T).reshape(b * t, -1)

    def gpt_weights(words, layers, c, t):
        block = lambda: {"norm1": jn.ones(c), "norm2": jn.ones(c), "qkv": normal(c, 3 * c), "out": normal(c, c),
                         "up": normal(c, 4 * c), "down": normal(4 * c, c)}
        return {"token": normal(words, c), "place": normal(t, c), "norm": jn.ones(c),
                "blocks": [block() for _ in range(layers)]}

    def lstm(p, tokens):
        x = p["token"][tokens]
        for q in p["layers"]:
            def cell(s, z):
                i, f, g, o = jn.split(z + s[0] @ q["hidden"], 4, 1)
                c = jax.nn.sigmoid(f) * s[1] + jax.nn.sigmoid(i) * jn.tanh(g)
                h = jax.nn.sigmoid(o) * jn.tanh(c)
                return (h, c), h
            zero = jn.zeros((x.shape[1], 200))
            _, x = lax.scan(cell, (zero, zero), x @ q["input"] + q["bias"])
        return (x @ p["weight"] + p["bias"]).reshape(-1, 10000)

    def ncf(p, x):
        e = [q[i] for q, i in zip(p["tables"], (x[0], x[1], x[0], x[1]))]
        h = jn.maximum(dense(p["mlp"], jn.concatenate((e[2], e[3]), 1)), 0)
        return (jn.concatenate((e[0] * e[1], h), 1) @ p["final"])[:, 0]

    batch, clip, loss_of, update = int(name.split("_")[-1]) if name[-1].isdigit() else 0, 0.0, cross_entropy, adam
    if name == "rl_train_32":
        p, net, x, y = [normal(8, 64), normal(64), normal(64, 64), normal(64), normal(64, 4), normal(4)], dense, \
            normal(32, 8), below(4, 32)
    elif name.startswith("mlp"):
        p, net = [normal(784, 512), normal(512), normal(512, 256), normal(256), normal(256, 10), normal(10)], dense
        x, y = normal(batch, 784), below(10, batch)
    elif name.startswith("cnn"):
        p, net, update = [normal(5, 5, 1, 16), normal(16), normal(5, 5, 16, 32), normal(32), normal(1568, 128),
                          normal(128), normal(128, 10), normal(10)], cnn, sgd
        x, y = normal(batch, 28, 28, 1), below(10, batch)
    elif name == "gpt_step":
        p, net, clip = gpt_weights(98, 4, 128, 64), functools.partial(gpt, 4), 1.0
        x, y = below(98, 12, 64), below(98, 768)
    elif name == "gpt_baby_train":
        p, net = gpt_weights(65, 6, 384, 256), functools.partial(gpt, 6)
        x, y = below(65, 8, 256), below(65, 2048)
    elif name == "lstm_train":
        layer = lambda: {"input": normal(200, 800), "hidden": normal(200, 800), "bias": normal(800)}
        p = {"token": normal(10000, 200), "weight": normal(200, 10000), "bias": normal(10000), "layers": [layer(), layer()]}
        net, update, clip, x, y = lstm, sgd, 5.0, below(10000, 35, 20), below(10000, 700)
    elif name == "ncf_train":
        p = {"tables": [normal(6040, 64), normal(3706, 64), normal(6040, 64), normal(3706, 64)], "final": normal(80, 1),
             "mlp": [normal(128, 64), normal(64), normal(64, 32), normal(32), normal(32, 16), normal(16)]}
        net, loss_of, x = ncf, logits_loss, jn.stack((below(6040, 2048), below(3706, 2048)))
        y = jn.asarray((rng.random(2048) > 0.5).astype(np.float32))
    else:
        sys.exit(f"{name} is not written for jax")
    zero = jax.tree.map(jn.zeros_like, p)
    state = [p, (jn.float32(0), zero, jax.tree.map(jn.zeros_like, p)) if update is adam else zero]

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def whole(p, s, x, y):
        loss, g = jax.value_and_grad(lambda q: loss_of(net(q, x), y))(p)
        if clip:
            length = jn.sqrt(sum(jn.sum(a * a) for a in jax.tree.leaves(g)))
            g = jax.tree.map(lambda a: a * jn.minimum(1, clip / (length + 1e-6)), g)
        p, s = update(p, g, s)
        return p, s, loss

    def step():
        state[0], state[1], loss = whole(state[0], state[1], x, y)
        loss.block_until_ready()
    return step


class Column:
    """A process with one row of one column."""
    def __init__(self, name, command, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
        pinned = ["taskset", "-c", ",".join(str(c) for c in CPUS[:threads])] + command
        self.name, self.figures = name, []
        self.process = subprocess.Popen(pinned, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def ready(self):
        """-> why it is not, None where it is"""
        if self.process.stdout.readline().strip() == "ready":
            self.about = self.process.stdout.readline().strip() if self.name == "floor" else ""
            return None
        lines = self.process.stderr.read().strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.wait()}"

    def sample(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.figures.append(float(self.process.stdout.readline()))

    def median(self):
        return sorted(self.figures)[len(self.figures) // 2]

    def text(self):
        return f"{self.median():.4g} ({min(self.figures):.4g} .. {max(self.figures):.4g})"

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait()


def installed():
    """-> {column: version}, of the references that are there"""
    found = {}
    for column, module in MODULES:
        done = subprocess.run([sys.executable, "-c", f"import {module}; print({module}.__version__)"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0:
            found[column] = done.stdout.strip()
        else:
            print(f"{column} skipped: pip install {module}")
    return found


def main():
    words, threads, rounds = sys.argv[1:], 1, 9
    for option in ("--threads", "--rounds"):
        if option in words:
            at = words.index(option)
            value = int(words[at + 1])
            del words[at:at + 2]
            threads, rounds = (value, rounds) if option == "--threads" else (threads, value)
    program, wanted = os.path.join(words[0], "bench", "replays"), words[1:]
    versions = installed()
    clock = "of the processor" if threads == 1 else "of the wall"
    print(f"microseconds {clock} for a step: median (smallest .. largest) of {rounds} samples, {threads} thread(s), "
          "turn by turn")
    for column, version in versions.items():
        print(f"{column}: {version}")
    print("\n| row | " + " | ".join(COLUMNS) + " | kernels / replay | floor / replay | "
          "replay is faster than: eager | " + " | ".join(column for column, _ in MODULES) + " |")
    print("|---|" + "---:|" * (len(COLUMNS) + 3 + len(MODULES)))
    unknown = set(wanted) - {row for row, _, _ in ROWS}
    if unknown:
        sys.exit(f"no such row: {', '.join(sorted(unknown))}")
    missed = counted = 0
    for row, what, goals in ROWS:
        if wanted and row not in wanted:
            continue
        columns, notes = {}, []
        for name in COLUMNS + (("budget",) if row in BUDGETS else ()):
            command = [program, name, row, str(threads)]
            if name not in OURS + ("budget",):
                trains = goals[3] is None
                if name not in versions or (name == "ONNX Runtime" and trains):
                    continue
                command = [sys.executable, os.path.abspath(__file__), dict(MODULES)[name], row, str(threads)]
            column = Column(name, command, threads)
            why = column.ready()
            if why:
                column.end()
                notes.append(f"{row}: {name} skipped: {why}")
            else:
                columns[name] = column
        for _ in range(rounds):
            for column in columns.values():
                column.sample()
        for column in columns.values():
            column.end()
        cells = [columns[name].text() if name in columns else "-" for name in COLUMNS]
        median = {name: column.median() for name, column in columns.items()}
        near = {}
        for name in ("kernels", "floor"):
            known = name in median and "replay" in median
            near[name] = median[name] / median["replay"] if known else 0
            cells.append(f"{100 * near[name]:.0f} %" if known else "-")
        near[None] = 0
        bounds = (None,) * 4 if row == "chain" else ("kernels", "floor", "floor", "floor")
        for name, bound, goal in zip(("eager",) + tuple(column for column, _ in MODULES), bounds, goals):
            if name not in median or "replay" not in median:
                cells.append("-")
                continue
            times = median[name] / median["replay"]
            if goal is None:
                cells.append(f"{times:.2f}")
                continue
            verdict = "met" if times >= goal else f"met by the {bound}" if near[bound] >= NEAR else "short"
            cells.append(f"{times:.2f} (goal {goal}: {verdict})")
            counted += 1
            missed += verdict == "short"
        print(f"| {what} (`{row}`) | " + " | ".join(cells) + " |", flush=True)
        if "floor" in columns:
            notes.append(f"{row}: {columns['floor'].about}")
        memory = subprocess.run([program, "memory", row], stdout=subprocess.PIPE, text=True)
        notes += [f"{row}: {line}" for line in memory.stdout.splitlines()]
        if "budget" in median and "replay" in median:
            notes.append(f"{row}: with a budget of memory {columns['budget'].text()}, "
                         f"{median['budget'] / median['replay']:.3f} of the replay")
        for note in notes:
            print(note)
    print(f"{counted} figures have a goal, {missed} fall short, also of {100 * NEAR:.0f} % of their bound (kernels or floor)")


STEPS = {"torch": torch_step, "jax": jax_step, "onnxruntime": onnxruntime_step}
if len(sys.argv) == 4 and sys.argv[1] in STEPS:
    library, row, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path.insert(0, HERE)
    sys.argv = ["reference.py", "start"]           # of reference.py its networks are wanted, not its rows
    serve(STEPS[library](row, number), number)
else:
    main()
