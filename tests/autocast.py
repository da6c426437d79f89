# Writes autocast.h: result dtypes of torch under torch.autocast("cuda", torch.bfloat16) for the cases of ops.def, and
# losses and weights of a net trained so on the CPU.  python3 tests/autocast.py > tests/autocast.h
import os
import re
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ops
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

warnings.simplefilter("ignore")
CODE = {torch.float32: "f", torch.float64: "d", torch.bfloat16: "g"}
SCOPE = ops.environment()
# Fakes do not compare the dtypes of their operands; with f64 and another the kernels of these refuse them.
UNCHECKED = "matmul mm mv linear linear_relu linear_gelu_tanh addmm addbmm cross cdist index_put".split()


def fake(word, dtype):
    """An input of a case, without elements."""
    if word == "-":
        return None
    m = re.match(r"([a-z]*)([0-9x.]*)", word)
    if m.group(1) == "l" and ":" not in word:
        shape = [word.count(",") + 1]
    else:
        shape = [int(d) for d in m.group(2).split("x")] if m.group(2) not in (".", "") else []
    kind = {"k": torch.int64, "l": torch.int64, "z": torch.int64, "m": torch.bool}.get(m.group(1)[:1], dtype)
    return torch.empty(shape, dtype=kind, device="cuda")


def result(name, text, case):
    """A letter for each pair of dtypes: of the first input of data, of the others."""
    row = ""
    f, g, d = torch.float32, torch.bfloat16, torch.float64
    for first, rest in ((f, f), (g, g), (f, g), (g, f), (d, d), (g, d), (d, g)):
        torch.clear_autocast_cache()
        x, lead = [], first
        for word in case.inputs:
            x.append(fake(word, lead))
            if ops.is_data(word) and word[0] != "z":
                lead = rest
        try:
            y = ops.call(text, x, case, SCOPE)
            y = y[0] if isinstance(y, (tuple, list)) else y
            row += "x" if len(row) > 4 and name in UNCHECKED else CODE[y.dtype]
        except Exception:
            row += "x"
    return row


print("""// autocast.h - PyTorch %s under autocast to bf16, written by tests/autocast.py
//
// Result dtypes on CUDA of the cases of ops.def, for inputs of f32, of bf16, first f32 and others bf16, the
// other way round, of f64, first bf16 and others f64, the other way round: f f32, g bf16, d f64, x refused,
// or without elements nothing is known.
typedef struct autocast_row_t { const char *op; int one; const char *result; } autocast_row_t;
static const autocast_row_t autocast_rows[] = {""" % torch.__version__.split("+")[0])
torch.set_autocast_enabled("cuda", True)
torch.set_autocast_dtype("cuda", torch.bfloat16)
with FakeTensorMode():
    for row in ops.ROWS:
        if row.family not in ops.OPS or not ops.python(row):
            continue
        for name in row.names():
            for k, case in enumerate(ops.cases(row)):
                if name.endswith("_scalar") and name != row.name:
                    case.inputs, case.f = case.inputs[:1], ops.Numbers([2.5])
                if name.endswith("_") or not any(ops.is_data(word) and word[0] != "z" for word in case.inputs):
                    continue                                # in place nothing is cast
                line = result(name, ops.python(row, name), case)
                if line != "xxxxxxx":
                    print('    {"%s", %d, "%s"},' % (name, k, line))
print("};")
torch.set_autocast_enabled("cuda", False)

# The CPU's list differs behind the products, so the loss is told to be f32 as CUDA's is.
W = [(.3 * torch.sin(.7 * torch.arange(n * k) + k)).view(n, k).requires_grad_()
     for n, k in ((16, 8), (4, 16))]
B = [torch.zeros(n, requires_grad=True) for n in (16, 4)]
x, t = torch.sin(1.3 * torch.arange(96)).view(12, 8), torch.arange(12) % 4
losses = []
for step in range(20):
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(F.relu(F.linear(x, W[0], B[0])), W[1], B[1])
    loss = F.cross_entropy(y.float(), t)
    losses.append(loss.item())
    for p, g in zip(W + B, torch.autograd.grad(loss, W + B)):
        p.data -= .5 * g
print("// Losses of 20 steps of SGD, and at the end the first of each weight and bias.")
print("static const double autocast_losses[20] = {%s};" % ",\n    ".join(
    ", ".join("%.9g" % l for l in losses[k:k + 5]) for k in range(0, 20, 5)))
print("static const double autocast_weights[4] = {%s};" % ", ".join("%.9g" % p.flatten()[0] for p in W + B))
