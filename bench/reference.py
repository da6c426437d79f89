"""reference.py rows... - the rows of micro.c, ops.c, models.c, nets.c, gpt_step.c and gpu.c in PyTorch, in the same
form.

usage: reference.py micro | ops THREADS | all THREADS | models THREADS | nets THREADS ROW | gpt THREADS VOCABULARY | start
       reference.py cuda ROW eager | compiled: on the GPU; a fourth word of each line says which

Where PyTorch has several ways (its own convolutions and oneDNN's, an output given and a new one, eager and traced),
each is measured and the best one printed.
"""
import os
import statistics
import sys
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures"))
import models as zoo

NODES = 64
warnings.filterwarnings("ignore", category=FutureWarning)          # torch.jit
now = time.perf_counter


def median(f, seconds=0.02):
    """Seconds per call: median of samples of about 20 ms, as bench.h."""
    samples = 3 if os.environ.get("BENCH_QUICK") else 9
    f()
    repeats = 1
    while True:
        t = now()
        for _ in range(repeats):
            f()
        took = now() - t
        if took > seconds:
            break
        repeats *= 2
    taken = []
    for _ in range(3 if took > 0.2 else samples):
        t = now()
        for _ in range(repeats):
            f()
        taken.append((now() - t) / repeats)
    return statistics.median(taken)


def row(name, value, unit):
    print(f"{name:<28} {value:14.6g} {unit}", flush=True)


def micro():
    torch.set_num_threads(1)
    a, b = torch.rand(16), torch.rand(16)
    row("add16", 1e9 * median(lambda: a + b), "ns")
    row("mul16", 1e9 * median(lambda: a * b), "ns")
    a.requires_grad_()
    b.requires_grad_()
    row("add16_tape", 1e9 * median(lambda: a + b), "ns")
    row("mul16_tape", 1e9 * median(lambda: a * b), "ns")
    ones = torch.ones(16)
    b.requires_grad_(False)

    def chain():
        y = a
        for _ in range(NODES // 2):
            y = torch.tanh(y * b)
        return y

    def both():
        chain().backward(ones)
        a.grad = None

    row("backward_node", 1e9 * (median(both) - median(chain)) / NODES, "ns")

    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    x, y, one = torch.randn(32, 8), torch.randn(32, 4), torch.randn(1, 8)

    def step():
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()

    row("mlp_step", 1e6 * median(step), "us")
    with torch.no_grad():
        row("mlp_infer", 1e6 * median(lambda: net(one)), "us")


class Block(nn.Module):
    def __init__(self, width, heads, bias=False):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=bias)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=bias)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(self.norm1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, layers=4, heads=4, width=128, context=64, bias=False):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, bias) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, bias=bias)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, x):
        x = self.token(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt(threads, vocabulary, batch=12, context=64, steps=12):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net = Gpt(vocabulary)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                            lr=1e-3, betas=(0.9, 0.99))
    data = torch.randint(0, vocabulary, (100000,))

    def step():
        start = torch.randint(0, len(data) - context - 1, (batch,))
        x = torch.stack([data[i:i + context] for i in start])
        y = torch.stack([data[i + 1:i + 1 + context] for i in start])
        for group in opt.param_groups:
            group["lr"] = 1e-3
        loss = F.cross_entropy(net(x).view(-1, vocabulary), y.view(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()

    for _ in range(4):
        step()
    taken = []
    for _ in range(steps):
        t = now()
        step()
        taken.append(now() - t)
    row(f"gpt_step_{threads}t", 1e3 * statistics.median(taken), "ms")


def ops(threads):
    """The rows of ops.c."""
    torch.set_num_threads(threads)

    def measure(name, work, ways, *leaves):
        def both(f):
            y = f()
            y.backward(y.detach() if y.numel() > 1 else None)
            for leaf in leaves:
                leaf.grad = None
        with torch.set_grad_enabled(bool(leaves)):
            seconds = min(median((lambda: both(f)) if leaves else f) for f in ways)
        row(name, 1e-9 * work / seconds, "G/s")

    def product(name, m, n, k, nt, dtype=torch.float32):
        a, b = (torch.randn(*d).to(dtype) for d in ((m, k), (n, k) if nt else (k, n)))
        y = torch.empty(m, n, dtype=dtype)
        measure(name, 2.0 * m * n * k,
                [lambda: F.linear(a, b)] if nt else [lambda: a @ b, lambda: torch.mm(a, b, out=y)])

    def convolution(name, n, i, o, kernel, size, stride, groups, both):
        x = torch.randn(n, i, size, size, requires_grad=both)
        w = torch.randn(o, i // groups, kernel, kernel, requires_grad=both)
        s = (size + kernel // 2 * 2 - kernel) // stride + 1
        work = 2.0 * n * o * s * s * (i // groups * kernel * kernel) * (3 if both else 1)
        def plain():
            return F.conv2d(x, w, None, stride, kernel // 2, 1, groups)

        def native():
            with torch.backends.mkldnn.flags(enabled=False):
                return plain()
        measure(name, work, [plain, native], *([x, w] if both else []))

    def elements(name, f, rows, columns, both=False, into=None):
        x = torch.rand(rows, columns, requires_grad=both)
        y = torch.empty(rows, columns)
        ways = [lambda: f(x)] + ([lambda: into(x, y)] if into else [])
        measure(name, rows * columns, ways, *([x] if both else []))

    for n in (16, 32, 64, 128, 256, 512, 1024, 2048):
        product(f"sgemm_{n}", n, n, n, False)
    for m, n, k in ((1, 1024, 1024), (8, 1024, 1024), (20, 800, 400), (64, 512, 784), (128, 3072, 768)):
        product(f"linear_{m}x{n}x{k}", m, n, k, True)
    product("bf16_512", 512, 512, 512, False, torch.bfloat16)
    product("bf16_1x1024x1024", 1, 1024, 1024, True, torch.bfloat16)
    product("bf16_128x3072x768", 128, 3072, 768, True, torch.bfloat16)
    for name, *shape in (("lenet1", 64, 1, 32, 5, 28, 1, 1), ("lenet2", 64, 32, 64, 5, 12, 1, 1),
                         ("64_3x3", 32, 64, 64, 3, 32, 1, 1), ("256_3x3", 32, 256, 256, 3, 8, 1, 1),
                         ("1x1", 4, 256, 64, 1, 56, 1, 1), ("7x7_stem", 4, 3, 64, 7, 224, 2, 1),
                         ("depthwise", 4, 128, 128, 3, 56, 1, 128)):
        convolution(f"conv_{name}", *shape, False)
        if name != "7x7_stem":
            convolution(f"conv_{name}_both", *shape, True)
    other = {n: torch.randn(n, 1024) for n in (64, 1024, 16384)}
    some = torch.rand(1024, 1024) > 0.5
    classes = torch.randint(0, 1000, (1024,))
    elements("add", lambda x: x + other[64], 64, 1024, into=lambda x, y: torch.add(x, other[64], out=y))
    elements("mul", lambda x: x * other[64], 64, 1024, into=lambda x, y: torch.mul(x, other[64], out=y))
    elements("relu", torch.relu, 64, 1024, into=lambda x, y: torch.clamp(x, min=0, out=y))
    elements("sum", torch.sum, 64, 1024)
    elements("add_64MB", lambda x: x + other[16384], 16384, 1024)
    for name in ("exp", "sigmoid", "tanh", "erf"):
        elements(name, getattr(torch, name), 1024, 1024)
    elements("gelu", F.gelu, 1024, 1024)
    elements("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), 1024, 1024)
    elements("pow", lambda x: x ** 2.5, 1024, 1024)
    elements("where", lambda x: torch.where(some, x, other[1024]), 1024, 1024)
    elements("argmax", torch.argmax, 1024, 1024)
    elements("argmax_dim", lambda x: x.argmax(1), 1024, 1024)
    elements("rand", lambda x: torch.rand(1 << 20), 1024, 1024)
    elements("randn", lambda x: torch.randn(1 << 20), 1024, 1024)
    elements("dropout", lambda x: F.dropout(x, 0.1), 1024, 1024)
    elements("max_pool2d", lambda x: F.max_pool2d(x.view(16, 64, 32, 32), 2), 1024, 1024)
    elements("transpose", lambda x: x.t().contiguous(), 1024, 1024)
    for suffix, both in (("", False), ("_both", True)):
        elements("softmax" + suffix, lambda x: torch.softmax(x, 1), 1024, 1000, both)
        weight, bias = torch.ones(768, requires_grad=both), torch.ones(768, requires_grad=both)
        elements("layer_norm" + suffix, lambda x: F.layer_norm(x, (768,), weight, bias), 1024, 768, both)
        elements("cross_entropy" + suffix, lambda x: F.cross_entropy(x, classes), 1024, 1000, both)
        images = (16, 64, 32, 32)
        mean, var = torch.zeros(64), torch.ones(64)
        gain, shift = torch.ones(64, requires_grad=both), torch.zeros(64, requires_grad=both)
        elements("batch_norm" + suffix, lambda x: F.batch_norm(x.view(images), mean, var, gain, shift, True), 1024,
                 1024, both)


def every(threads):
    """The rows of every.c: the ops of tests/ops.def that PyTorch has, by the call in their row."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
    import ops as table
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    scope = table.environment()
    for op in table.ROWS:
        case = table.timed(op) if op.family in table.OPS and table.python(op) else None
        if not case:
            continue
        inputs = [table.tensor(word, k, op, None, True) for k, word in enumerate(case.inputs)]
        run = eval("lambda x, a, b, c, d, i, f, s: " + table.python(op), dict(scope))
        a, b, c, d = (inputs + [None] * 4)[:4]
        with torch.no_grad():
            row("op." + op.name, 1e6 * median(lambda: run(inputs, a, b, c, d, case.i, case.f, case.s)), "us")


def models(threads):
    """The rows of models.c."""
    torch.set_num_threads(threads)

    def infer(name, net, x, traced=False):
        with torch.no_grad():
            ways = [net] + ([torch.jit.freeze(torch.jit.trace(net.eval(), x))] if traced else [])
            row(name, 1e6 * min(median(lambda: f(x).argmax().item()) for f in ways), "us")

    def train(name, net, opt, x, y):
        def step():
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        row(name, 1e6 * median(step), "us")

    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    infer("rl_act", net, torch.randn(1, 8))
    train("rl_train_32", net, torch.optim.Adam(net.parameters()), torch.randn(32, 8), torch.randint(0, 4, (32,)))
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    infer("mlp_infer_1", net, torch.randn(1, 784))
    opt = torch.optim.Adam(net.parameters())
    for batch in (1, 32, 128):
        train(f"mlp_train_{batch}", net, opt, torch.randn(batch, 784), torch.randint(0, 10, (batch,)))
    net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2),
                        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10))
    infer("cnn_infer_1", net, torch.randn(1, 1, 28, 28), True)
    opt = torch.optim.SGD(net.parameters(), 0.02, 0.9)
    for batch in (1, 64):
        train(f"cnn_train_{batch}", net, opt, torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,)))


def ncf(sparse):
    """On MovieLens-1M's numbers of users and films."""
    return zoo.NeuMF(6040, 3706, 64, [128, 64, 32, 16], sparse)


class Token(nn.Module):
    """One more token of a Gpt whose keys and values of the earlier ones are there."""
    def __init__(self, layers, heads, width, context):
        super().__init__()
        self.gpt = Gpt(65, layers, heads, width, context, True)
        for k in range(layers):
            for name in ("key", "value"):
                self.register_buffer(f"{name}{k}", torch.randn(1, heads, context - 1, width // heads))
        self.context = context

    def forward(self, x):
        g = self.gpt
        x = g.token(x) + g.place(torch.arange(self.context - 1, self.context))
        for n, block in enumerate(g.blocks):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, block.heads, c // block.heads).transpose(1, 2)
                       for y in block.qkv(block.norm1(x)).split(c, 2))
            k = torch.cat((getattr(self, f"key{n}"), k), 2)
            v = torch.cat((getattr(self, f"value{n}"), v), 2)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + block.out(y.transpose(1, 2).contiguous().view(b, t, c))
            x = x + block.down(F.gelu(block.up(block.norm2(x))))
        return g.head(g.norm(x))


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(200, 200, 2)

    def forward(self, x, h, c):
        return self.lstm(x, (h, c))


def nets(threads, name):
    """The rows of nets.c."""
    torch.set_num_threads(threads)

    def train(net, opts, x, y, loss_of=F.cross_entropy, clip=0.0, half=False):
        def step():
            with torch.autocast("cpu", torch.bfloat16, half):
                z = net(x)
                loss = loss_of(z.flatten(0, 1) if z.dim() > 2 else z, y)
            for opt in opts:
                opt.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            for opt in opts:
                opt.step()
        row(name, 1e6 * median(step), "us")

    def infer(net, *x):
        with torch.no_grad():
            net.eval()
            ways = [net, torch.jit.freeze(torch.jit.trace(net, x))]
            row(name, 1e6 * min(median(lambda: f(*x)) for f in ways), "us")

    if name in ("ncf_train", "ncf_sparse_train"):
        net = ncf(name == "ncf_sparse_train")
        x = torch.stack((torch.randint(0, 6040, (2048,)), torch.randint(0, 3706, (2048,))))
        tables = [p for k, p in net.named_parameters() if "embed" in k]
        rest = [p for k, p in net.named_parameters() if "embed" not in k]
        opts = [torch.optim.Adam(net.parameters())]
        if name == "ncf_sparse_train":
            opts = [torch.optim.Adam(rest), torch.optim.SparseAdam(tables)]
        train(net, opts, x, torch.rand(2048).round(), F.binary_cross_entropy_with_logits)
    elif name == "lstm_train":
        net = zoo.RNNModel(10000, 200, 2, 0.0)
        x, y = torch.randint(0, 10000, (35, 20)), torch.randint(0, 10000, (700,))
        train(net, [torch.optim.SGD(net.parameters(), 1)], x, y, clip=5.0)
    elif name == "resnet18_train":
        net = zoo.ResNet(18, 10, 1, True)
        x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
        train(net, [torch.optim.SGD(net.parameters(), 0.1, 0.9)], x, y)
    elif name in ("gpt_baby_train", "gpt_baby_autocast"):
        net = Gpt(65, 6, 6, 384, 256, True)
        x, y = torch.randint(0, 65, (8, 256)), torch.randint(0, 65, (2048,))
        train(net, [torch.optim.AdamW(net.parameters())], x, y, half=name == "gpt_baby_autocast")
    elif name == "lstm_step":
        infer(Step(), torch.randn(1, 1, 200), torch.zeros(2, 1, 200), torch.zeros(2, 1, 200))
    elif name == "gpt_tiny_token":
        infer(Token(4, 4, 128, 64), torch.zeros(1, 1, dtype=torch.long))
    elif name == "gpt_baby_token":
        infer(Token(6, 6, 384, 256), torch.zeros(1, 1, dtype=torch.long))
    elif name == "resnet18_infer":
        infer(zoo.ResNet(18, 1000, 1), torch.randn(1, 3, 224, 224))
    with open("/proc/self/status") as f:
        row(name + "_rss", next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024, "MB")


def cuda(name, how):
    """The rows of gpu.c. Products of f32 without TF32 and convolutions with it, PyTorch's and our defaults."""
    torch.set_default_device("cuda")
    torch.manual_seed(1)
    half = torch.bfloat16

    def seconds(f):
        def waited():
            f()
            torch.cuda.synchronize()
        once = median(waited)
        several = max(1, min(1000, int(0.02 / once)))       # the queue filled, as gpu.c does

        def many():
            for _ in range(several):
                f()
            torch.cuda.synchronize()
        return median(many) / several

    def op(label, f, work, unit):
        with torch.no_grad():
            t = seconds(f)
        value = 1e6 * t if unit == "us" else work / t * (1e-9 if unit == "GB/s" else 1e-12)
        row(label, value, unit + " eager")

    if name == "ops":
        m, half_m = 4096, 2048
        size, flop = 4.0 * m * m, 2.0 * half_m ** 3
        x, y, at = torch.randn(m, m), torch.randn(m, m), torch.randint(0, m, (m,))
        a, b, q = torch.randn(half_m, half_m), torch.randn(half_m, half_m), torch.randn(8, 16, m // 4, 64)
        image, weight = torch.randn(32, 64, 65, 65), torch.randn(64, 64, 3, 3)
        s1, s2 = torch.randn(16), torch.randn(16)
        op("copy", lambda: x.clone(), 2 * size, "GB/s")
        op("add", lambda: x + y, 3 * size, "GB/s")
        op("gelu", lambda: F.gelu(x), 2 * size, "GB/s")
        op("tanh", lambda: torch.tanh(x), 2 * size, "GB/s")
        op("sum", lambda: x.sum(), size, "GB/s")
        op("sum_columns", lambda: x.sum(0), size, "GB/s")
        op("softmax", lambda: torch.softmax(x, 1), 2 * size, "GB/s")
        op("layer_norm", lambda: F.layer_norm(x, (m,)), 2 * size, "GB/s")
        op("transpose", lambda: x.t().contiguous(), 2 * size, "GB/s")
        op("index_select", lambda: x.index_select(0, at), 2 * size, "GB/s")
        op("add_16", lambda: s1 + s2, 0, "us")
        op("matmul_2048_f32", lambda: a @ b, flop, "TF/s")
        ah, bh, xh, yh, qh = a.to(half), b.to(half), x.to(half), y.to(half), q.to(half)
        op("matmul_2048_bf16", lambda: ah @ bh, flop, "TF/s")
        op("matmul_4096_bf16", lambda: xh @ yh, 8 * flop, "TF/s")
        op("conv_64_3x3", lambda: F.conv2d(image, weight, None, 1, 1), 2.0 * 64 * 64 * 9 * 32 * 65 * 65, "TF/s")
        work = 2.0 * 8 * 16 * (m / 4) ** 2 * 64
        op("attention_f32", lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True), work, "TF/s")
        op("attention_bf16", lambda: F.scaled_dot_product_attention(qh, qh, qh, is_causal=True), work, "TF/s")
        return

    opt, clip, loss_of = None, 0.0, F.cross_entropy
    if name == "mlp":
        net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        opt = torch.optim.Adam(net.parameters())
        x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))
    elif name == "policy":
        net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        opt = torch.optim.Adam(net.parameters())
        x, y = torch.randn(256, 16), torch.randint(0, 4, (256,))
    elif name == "ncf":
        net = ncf(False).eval()
        x = torch.stack((torch.randint(0, 6040, (1024,)), torch.randint(0, 3706, (1024,))))
    elif name == "lstm":
        net, clip = zoo.RNNModel(10000, 200, 2, 0.0), 5.0
        opt = torch.optim.SGD(net.parameters(), 1)
        x, y = torch.randint(0, 10000, (35, 20)), torch.randint(0, 10000, (700,))
    elif name == "resnet50":
        net = zoo.ResNet(50, 1000, 1).to(half).to(memory_format=torch.channels_last)
        opt = torch.optim.SGD(net.parameters(), 0.1, 0.9)
        x = torch.randn(64, 3, 224, 224).to(half).to(memory_format=torch.channels_last)
        y = torch.randint(0, 1000, (64,))
    elif name == "gpt2":
        net = Gpt(50257, 12, 12, 768, 1024, True).to(half)
        opt = torch.optim.AdamW(net.parameters())
        x, y = torch.randint(0, 50257, (8, 1024)), torch.randint(0, 50257, (8192,))

    def measure(f):
        def step():
            if opt is None:
                with torch.no_grad():
                    f(x)
                return
            z = f(x)
            loss = loss_of(z.flatten(0, 1) if z.dim() > 2 else z, y)
            opt.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            opt.step()
        step()
        torch.cuda.reset_peak_memory_stats()
        t = 1e6 * seconds(step)
        row(name, t, "us " + how)
        row(name + "_graph", t, "us " + how)
        row(name + "_memory", torch.cuda.max_memory_allocated() / 1048576, "MB " + how)

    measure(torch.compile(net) if how == "compiled" else net)


if sys.argv[1] == "micro":
    micro()
elif sys.argv[1] == "cuda":
    cuda(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "models":
    models(int(sys.argv[2]))
elif sys.argv[1] == "ops":
    ops(int(sys.argv[2]))
elif sys.argv[1] == "all":
    every(int(sys.argv[2]))
elif sys.argv[1] == "nets":
    nets(int(sys.argv[2]), sys.argv[3])
elif sys.argv[1] == "start":
    (torch.ones(16) + 1).sum().item()
else:
    gpt(int(sys.argv[2]), int(sys.argv[3]))
