"""python.py - examples/python: what is bound, calls, errors, memory shared with NumPy and PyTorch, lifetimes, training.

Run by tests/python.sh; the last line is "N passed, N failed"."""
import copy
import gc
import os
import pathlib
import re
import subprocess
import sys
import tracemalloc
import weakref

import numpy as np

import tensor as t

try:
    import torch
except ImportError:
    torch = None

passed = failed = skipped = 0


def check(good, text):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("%s:%d: %s" % (__file__.rsplit("/", 1)[-1], sys._getframe(1).f_lineno, text))


def refused(part, call):
    try:
        call()
        check(False, "not refused: " + part)
    except (t.Error, BufferError, TypeError, AttributeError) as e:
        check(part in str(e), "%r does not say %r" % (str(e), part))
    check(t.lib.tensor_error_code() == 0, "an error is left")


def live():
    gc.collect()
    return t.memory_stats().live_tensors


def declared():
    """Names of the public prototypes."""
    names = set()
    for header in ("tensor.h", "tensor_nn.h"):
        public = re.split(r"^// >>(?:nn-)?shared ", open(header).read(), flags=re.M)[0]
        names.update(re.findall(r"^TENSOR_API[^;{(]*?(\w+)\(", public, flags=re.M))
    return {name for name in names if "__" not in name}


def bound():
    missing = declared() - set(t.functions)
    check(not missing, "not bound: %s" % missing)
    check(len(t.functions) > 1000, "%d functions" % len(t.functions))
    lines = sum(len(file.read_text().splitlines()) for file in pathlib.Path("examples/python").glob("*.py"))
    check(lines <= 300, "the binding has %d lines" % lines)
    for name in t.functions:
        prefix = "nn_" if name.startswith("nn_") else "tensor_"
        check(callable(t._find(prefix, name[len(prefix):])), name)
    print("%d functions bound" % len(t.functions))


# Headers that are named from here, and compilers of several words.
def found():
    for name, value in (("TENSOR_HEADERS", "."), ("TENSOR_HEADERS", "examples/.."), ("CC", ""),
                        ("CC", "env " + os.environ.get("CC", "cc"))):
        got = subprocess.run([sys.executable, "-c", "import tensor as t; print(len(t.functions))"], text=True,
                             env={**os.environ, name: value}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(got.stdout.strip() == str(len(t.functions)), "%s=%s: %s%s" % (name, value, got.stdout, got.stderr))


def calls():
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)
    x, y = t.from_dlpack(a), t.from_dlpack(b)
    for name, got, want in [("add", x + y, a + b), ("sub", 1 - x, 1 - a), ("mul", x * 2, a * 2), ("div", 2 / y, 2 / b),
                            ("matmul", x @ y.transpose(0, 1), a @ b.T), ("neg", -x, -a), ("sum", x.sum_dim(1, 0), a.sum(1)),
                            ("cat", t.cat([x, y], 0), np.concatenate([a, b])), ("reshape", x.reshape([3, 2]), a.reshape(3, 2)),
                            ("at", x["1, ::2"], a[1, ::2]), ("select", x[1], a[1]), ("zeros", t.zeros([2, 2]), np.zeros((2, 2))),
                            ("full", t.full([2], 3.5, t.F64), np.full(2, 3.5))]:
        check(np.array_equal(np.from_dlpack(got), want), name)
    best = x.max_dim(1, 0)
    check(isinstance(best, tuple) and np.array_equal(np.from_dlpack(best[1]), [2, 2]), "max_dim")
    check(x.shape == (2, 3) and x.dtype() == t.F32 and x.sum().item() == 15, "inspect")
    check(t.zeros([2], t.I64).dtype() == t.I64 and t.dtype_name(t.BF16) == "bf16", "constants and texts")
    check("tensor([[0., 1., 2.]" in repr(x), repr(x))
    check(np.allclose(np.from_dlpack(t.conv2d(t.ones([1, 1, 4, 4]), t.ones([1, 1, 3, 3]), None, padding=1)[0][0])[0],
                      [4, 6, 6, 4]), "options")
    refused("do not agree on K (3 vs 2)", lambda: x @ x)
    refused("neither a function", lambda: t.no_such_op)
    refused("argument b is missing", lambda: t.add(x))
    refused("too many", lambda: t.add(x, x, x))
    refused("options", lambda: t.conv2d(x, x, None, no_such_option=1))


def gradients():
    w = t.from_dlpack(np.array([1, 2, 3], np.float32)).requires_grad_(1)
    (w * w).sum().backward()
    check(np.array_equal(np.from_dlpack(w.grad), [2, 4, 6]), "gradient")
    with t.no_grad():
        check(not (w * w).requires_grad(), "no_grad")
    check((w * w).requires_grad(), "no_grad ended")
    refused("requires grad; pass on tensor_detach", lambda: np.from_dlpack(w))


# NumPy has no bf16: what it refuses is freed, and nothing is printed.
def refused_capsules():
    before, said, hook = live(), [], sys.unraisablehook
    sys.unraisablehook = said.append
    x = t.ones([1000]).to(t.BF16)
    try:
        np.from_dlpack(x)
        check(False, "NumPy takes bf16")
    except Exception:
        pass
    sys.unraisablehook = hook
    del x
    gc.collect()
    check(live() == before and not said, f"{live() - before} tensors of a refused capsule stay, {said}")


# copy.copy gives the same tensor, copy.deepcopy one with its own memory, as PyTorch; each is freed once.
def copies():
    before = live()
    x = t.from_dlpack(np.array([1, 2, 3], np.float32)).requires_grad_(1)
    (x * x).sum().backward()
    same, own = copy.copy(x), copy.deepcopy(x)
    with t.no_grad():
        x.fill_(7)
    check(same is not x and same.pointer == x.pointer and own.pointer != x.pointer, "owners")
    check(np.array_equal(np.from_dlpack(same.detach()), [7, 7, 7]), "copy.copy is of other memory")
    check(np.array_equal(np.from_dlpack(own.detach()), [1, 2, 3]), "copy.deepcopy is of the same memory")
    check(own.requires_grad() and own.is_leaf() and np.array_equal(np.from_dlpack(own.grad), [2, 4, 6]), "gradient")
    refused("only a leaf", lambda: copy.deepcopy(x * x))
    del x
    gc.collect()
    check(same.sum().item() == 21, "the copy went with the tensor")
    pair = copy.deepcopy([same, same])
    check(pair[0] is pair[1], "one tensor became two")
    whole = copy.deepcopy(t.from_dlpack(np.arange(3)))
    check(whole.dtype() == t.I64 and not whole.requires_grad() and whole.grad is None, "integers")
    del same, own, pair, whole
    check(live() == before, "%d tensors more than before" % (live() - before))


def iterates():
    x = t.from_dlpack(np.arange(6, dtype=np.float32).reshape(3, 2))
    rows = [row for row, _ in zip(x, range(9))]
    check(len(rows) == 3 and all(row.shape == (2,) for row in rows), "%d rows" % len(rows))
    check(rows[2:] and np.array_equal(np.from_dlpack(rows[2]), [4, 5]), "the last row")
    check(list(t.zeros([0, 2])) == [], "no rows")
    refused("0-d", lambda: iter(x.sum()))


# Shared memory: both see the other's writes, and each keeps it alive.
# Truth, comparisons and length are PyTorch's.
def compares():
    x, y = t.from_dlpack(np.array([1, 2, 3], np.float32)), t.from_dlpack(np.array([3, 2, 1], np.float32))
    a, b = np.from_dlpack(x), np.from_dlpack(y)
    for name, got, want in [("==", x == y, a == b), ("!=", x != y, a != b), ("<", x < y, a < b), ("<=", x <= y, a <= b),
                            (">", x > y, a > b), (">=", x >= y, a >= b), ("== 2", x == 2, a == 2), ("< 2", x < 2, a < 2),
                            ("2 <", 2 < x, 2 < a), ("!= 2", x != 2, a != 2)]:
        check(isinstance(got, t.Tensor) and got.dtype() == t.BOOL and got.shape == (3,), name)
        check(np.array_equal(np.from_dlpack(got.to(t.U8)), want), name)
    check(not x.isnan().any() and (x == x).all() and not t.zeros([1, 1]) and t.full([1], float("nan")), "truth")
    refused("", lambda: bool(x))
    refused("", lambda: bool(t.zeros([0])))
    check(len(x) == 3 and len(t.zeros([0, 2])) == 0 and len({x, y, x}) == 2, "len and hash")
    refused("0-d", lambda: len(x.sum()))


# What NumPy asks for, Python's own conversions, and calls that are not C's.
def converts():
    x = t.from_dlpack(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    a = np.asarray(x)
    check(a.dtype == np.float32 and np.array_equal(a, [[1, 2, 3], [4, 5, 6]]), "asarray")
    check(np.array(x, np.float64).dtype == np.float64, "array of another dtype")
    check(np.array_equal(np.asarray(x ** 2), a ** 2) and np.array_equal(np.asarray(x ** x), a ** a), "power")
    check(float(x.sum()) == 21 and x[":, 1"].shape == (2,) and x.T().shape == (3, 2), "float, slice and T")
    refused("is one list, as in zeros([2, 3])", lambda: t.zeros(2, 3))
    refused("is one list", lambda: x.reshape(3, 2))
    refused("tensor_softmax: argument dim is missing", lambda: t.softmax(x))


# Options that are lists: one number for each dim, or a pointer.
def lists():
    x, w = t.ones([1, 1, 6, 8]), t.ones([1, 1, 3, 3])
    for options, shape in [({"stride": [2, 1]}, (1, 1, 2, 6)), ({"padding": [1, 0]}, (1, 1, 6, 6)),
                           ({"padding": [0, 1]}, (1, 1, 4, 8)), ({"stride": [2]}, (1, 1, 2, 3)),
                           ({"stride": 2, "dilation": (1, 2)}, (1, 1, 2, 2))]:
        check(t.conv2d(x, w, None, **options).shape == shape, "%s: %s" % (options, t.conv2d(x, w, None, **options).shape))
    check(t.interpolate(x, size=[3, 16]).shape == (1, 1, 3, 16), "size")
    check(t.interpolate(x, [3, 16]).shape == (1, 1, 3, 16), "size, by place")
    check(t.max_pool2d(x, [2, 4]).shape == (1, 1, 3, 2), "kernel")
    check(t.avg_pool3d(t.ones([1, 1, 4, 6, 8]), [1, 2, 4]).shape == (1, 1, 4, 3, 2), "three numbers")
    refused("", lambda: t.conv2d(x, w, None, stride=[1, 1, 1, 1]))
    refused("", lambda: t.cross_entropy(x, x, ignore_index=[1, 2]))
    p = t.ones([3]).requires_grad_(1)
    opt = t.nn.sgd(None, list=[p], count=1, lr=0.5)
    p.sum().backward()
    t.nn.step(opt)
    check(np.array_equal(np.from_dlpack(p.detach()), np.full(3, 0.5)), "an optimizer of a list")
    t.nn.optimizer_free(opt)
    check(t.nn.layer_norm(0, normalized_shape=[8], normalized_dims=1)(x).shape == x.shape, "normalized_shape")


def numpy_shares():
    for kind in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, np.float16, np.int8, np.int16):
        before = live()
        a = np.zeros((3, 4), kind)
        x = t.from_dlpack(a)
        back = np.from_dlpack(x)
        check(back.ctypes.data == a.ctypes.data and back.dtype == a.dtype and back.shape == a.shape, kind)
        a[1, 2] = 1
        check(x["1, 2"].item() == 1, "the library does not see NumPy's write, %s" % kind)
        x.fill_(1)
        check(a.sum() == 12 and back.all(), "NumPy does not see the library's write, %s" % kind)
        last = t.from_dlpack(a.T)["3, 2"]
        last.fill_(0)
        check(a[2, 3] == 0 and last.shape == (), "a view with strides")
        gone = weakref.ref(a)
        del a, back, last
        check(gone() is not None and x["0, 0"].item() == 1, "the array went while a tensor had it")
        del x
        check(live() == before and gone() is None, "%d tensors left, the array is %s" % (live() - before, gone()))
    x = t.ones([4])
    a = np.from_dlpack(x)
    before = live()
    del x
    check(live() == before and a.sum() == 4, "the tensor went while an array had it")
    del a
    check(live() == before - 1, "the tensor stayed")
    frozen = np.ones(3, np.float32)
    frozen.flags.writeable = False
    r = t.from_dlpack(frozen)
    refused("", lambda: r.fill_(2))
    check(frozen.sum() == 3, "read-only memory was written")
    refused("", lambda: t.from_dlpack(np.zeros(2, np.complex64)))
    check(np.from_dlpack(t.from_dlpack(np.zeros((0, 3), np.float32))).shape == (0, 3), "no elements")
    copy = np.from_dlpack(r, copy=True)
    copy[0] = 9
    check(frozen[0] == 1, "a copy is not one")
    for version in (None, (1, 0)):      # capsules that nobody took
        before = live()
        capsule = t.ones([2]).__dlpack__(max_version=version)
        check(live() == before + 1, "the capsule holds its tensor")
        del capsule
        check(live() == before, "a capsule that was not taken")


def torch_shares():
    for kind in (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float16,
                 torch.bfloat16, torch.int8, torch.int16):
        before = live()
        p = torch.zeros(3, 4, dtype=kind)
        x = t.from_dlpack(p)
        back = torch.from_dlpack(x)
        check(back.data_ptr() == p.data_ptr() and back.dtype == p.dtype and back.shape == p.shape, kind)
        p[1, 2] = 1
        check(x["1, 2"].item() == 1, "the library does not see PyTorch's write, %s" % kind)
        x.fill_(1)
        check(p.sum().item() == 12 and bool(back.all()), "PyTorch does not see the library's write, %s" % kind)
        gone = weakref.ref(p)
        del p, back
        check(x["0, 0"].item() == 1, "the memory went")
        del x, gone
        check(live() == before, "%d tensors left" % (live() - before))
    x = t.randn([5, 7])
    p = torch.from_dlpack(x.transpose(0, 1))
    check(p.stride() == (1, 7) and np.array_equal(p.T.numpy(), np.from_dlpack(x)), "strides")
    del x
    check(float(p.sum()) == float(p.clone().sum()), "the memory went with the tensor")


def many():
    before, bytes_before = live(), None
    for k in range(2000):
        a = np.from_dlpack(t.from_dlpack(np.full(1000, k, np.float32)) + 1)
        if k == 500:
            bytes_before = t.memory_stats().reserved_bytes
    check(a[0] == 2000, "value")
    del a
    check(live() == before, "%d tensors left" % (live() - before))
    check(t.memory_stats().reserved_bytes == bytes_before, "memory grows")


# Both ways with Python's leak checker, which knows NumPy's memory too, and through it PyTorch's.
def leaks():
    def share():
        a = np.zeros(10000, np.float32)
        x = t.from_dlpack(a)
        arrays = np.from_dlpack(x), np.from_dlpack(x["::2"] * 2), np.from_dlpack(x, copy=True)
        capsules = x.__dlpack__(), x.__dlpack__(max_version=(1, 0))
        taken = t.from_dlpack(arrays[0])
        if torch:
            theirs = torch.from_dlpack(t.from_dlpack(torch.from_numpy(a)))
            check(theirs.data_ptr() == a.ctypes.data, "PyTorch has other memory")
        check(taken.shape == (10000,) and len(capsules) == 2, "shared")

    for _ in range(5):
        share()
    tracemalloc.start()
    before = live()
    grown = []
    for _ in range(8):                      # what is left once is a cache, what is left every time is a leak
        for _ in range(5):
            share()
        gc.collect()
        bytes_before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            share()
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - bytes_before)
    tracemalloc.stop()
    check(live() == before, "%d tensors left" % (live() - before))
    check(min(grown) < 200 * 20, "%s bytes of Python's are left in 200 rounds" % grown)


def trains():
    before = live()
    t.manual_seed(1)
    x = t.from_dlpack(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32))
    y = t.from_dlpack(np.array([[0], [1], [1], [0]], np.float32))
    net = t.nn.sequential([t.nn.linear(2, 16), t.nn.tanh(), t.nn.linear(16, 1)])
    opt = t.nn.adam(net, lr=0.01)
    with_net, at_ten = live(), 0
    for step in range(500):
        loss = t.binary_cross_entropy_with_logits(net(x), y)
        t.nn.zero_grad(opt)
        loss.backward()
        t.nn.step(opt)
        at_ten = live() if step == 10 else at_ten
    check(loss.item() < 0.02, "loss %g" % loss.item())
    check(live() == at_ten, "%d tensors more than at step 10" % (live() - at_ten))
    got = np.from_dlpack(net(x).sigmoid().detach())
    check(np.array_equal(got > 0.5, [[False], [True], [True], [False]]), got)
    check(sorted(net.parameters()) == ["0.bias", "0.weight", "2.bias", "2.weight"], net.parameters().keys())
    t.nn.optimizer_free(opt)
    t.nn.free(net)
    del x, y, loss, net, opt, got
    check(live() == before, "%d tensors left" % (live() - before))


# The same net in PyTorch, from the same weights: the same losses.
def as_torch():
    torch.manual_seed(1)
    theirs = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    ours = t.nn.sequential([t.nn.linear(8, 32), t.nn.gelu(), t.nn.linear(32, 4)])
    for name, p in ours.parameters().items():
        torch.from_dlpack(p.detach()).copy_(theirs.state_dict()[name])
    a = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    b = t.nn.adamw(ours, lr=1e-2)
    x, y = torch.randn(64, 8), torch.randint(4, (64,))
    u, v = t.from_dlpack(x), t.from_dlpack(y)
    worst = 0
    for _ in range(30):
        want, got = torch.nn.functional.cross_entropy(theirs(x), y), t.cross_entropy(ours(u), v)
        worst = max(worst, abs(want.item() - got.item()))
        a.zero_grad()
        want.backward()
        a.step()
        t.nn.zero_grad(b)
        got.backward()
        t.nn.step(b)
    check(worst < 1e-5, "losses differ by %g" % worst)
    check(want.item() < 1.0, "it does not learn: %g" % want.item())


for test in (bound, found, calls, gradients, refused_capsules, copies, iterates, compares, converts, lists,
             numpy_shares, many, leaks, trains):
    test()
for test in (torch_shares, as_torch):
    if torch:
        test()
    else:
        skipped += 1
if skipped:
    print("skipped %d tests of PyTorch: it is not installed" % skipped)
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
