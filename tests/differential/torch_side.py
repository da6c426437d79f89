# torch_side.py - PyTorch's side of machine.c: reads programs as text, runs them, answers what each statement gave
#
# A line is a statement (program.h writes it), "alive ..." the values that are looked at in the end, "run" or "print".
# The answer: "ok N" or "error N text" per statement, a line and the elements of each value, "done"; "none" if PyTorch
# has no such call.
import gc
import math
import os
import re
import struct
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
try:
    import numpy
    import torch
except ImportError:
    print("absent")
    sys.exit(0)
import ops

warnings.simplefilter("ignore")
torch.set_num_threads(1)
gc.freeze()                                                         # what is there now is not garbage
SCOPE = ops.environment()
DTYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16,
          torch.int8, torch.int16]
NUMBER = {d: k for k, d in enumerate(DTYPES)}
VIAS = ("", "checkpoint", "vjp", "jvp", "jacobian", "hessian", "hvp", "vhp")
PLAIN, NO_GRAD, WITH_GRAD, INFERENCE = range(4)


class Answer:
    """What is written, at once in the end."""
    def __init__(self):
        self.parts, self.file = [], os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)                                               # LAPACK of NaN writes to the standard output

    def write(self, part):
        self.parts.append(part)

    def flush(self):
        self.file.write(b"".join(self.parts))
        self.file.flush()
        self.parts = []


out = Answer()


class NoCounterpart(Exception):
    pass


def finite(word):
    """A float; one that int() does not take stays a float."""
    v = float(word)
    return Endless(v) if v - v != 0 else v


class Endless(float):
    """inf or nan: equal to no integer"""
    def __int__(self):
        return 0

    def __eq__(self, other):
        return isinstance(other, Endless) and float.__eq__(self, other)

    __hash__ = float.__hash__


class Step:
    """A statement as program.h writes it."""
    def __init__(self, line):
        words = line.split()
        self.name, self.via = words[0], int(words[1])
        at = 2

        def list_of(kind):
            nonlocal at
            n = int(words[at])
            at += n + 1
            return [kind(w) for w in words[at - n:at]]
        self.x = list_of(int)
        self.i = ops.Numbers(list_of(int))
        self.f = ops.Numbers(int(v) if v == int(v) else v for v in list_of(finite))
        self.out, self.nout = int(words[at]), int(words[at + 1])
        self.s = words[at + 2][2:].replace("_", " ")
        self.elements = [float(w) for w in words[at + 3:]]


def lay_out(x, layout):
    """x in a layout of calls.h's arrange."""
    if layout in ("", "C") or (x.dim() == 0 and layout != "O"):
        return x
    shape, room, offset = list(x.shape), 1, 0
    strides = [0] * x.dim()
    for d in range(x.dim()):
        e = d if layout == "T" else x.dim() - 1 - d
        strides[e] = room
        if layout == "S" and d == 0:
            strides[e], room = 2, 2 * shape[e] + 1
        elif layout == "N" and d == 0:
            room = shape[e] + 3
        else:
            room *= shape[e]
    offset = {"S": 1, "N": 2, "O": 3}.get(layout, 0)
    if layout == "O":
        room += 3
    if x.numel() == 0:
        room = offset
    y = torch.zeros(max(room, 0), dtype=x.dtype).as_strided(shape, strides, offset)
    return y.copy_(x) if x.numel() else y


def leaf(s):
    dtype, grad, layout = DTYPES[s.i[0]], s.i[1], chr(s.i[2]) if s.i[2] else ""
    x = torch.tensor(s.elements, dtype=torch.float64).to(dtype).reshape(s.i[6:])
    x = lay_out(x, layout)
    if layout and x.numel():                                        # not as a view
        n = x.untyped_storage().size() // x.element_size()
        y = torch.zeros(n, dtype=dtype)
        y.as_strided(x.shape, x.stride(), x.storage_offset()).copy_(x)
        x = torch.empty(0, dtype=dtype).set_(y.untyped_storage(), x.storage_offset(), x.shape, x.stride())
    else:
        x = x.clone()
    return x.requires_grad_() if grad and torch.is_grad_enabled() else x


def weights(y):
    n = y.numel()
    return (((torch.arange(n, dtype=torch.float64) * 5) % 13) / 8 - 0.5).reshape(y.shape).to(y.dtype)


class Custom(torch.autograd.Function):
    """x * x * y and x + y"""
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * x * y, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return (x * y * 2 * g + h).sum_to_size(x.shape), (x * x * g + h).sum_to_size(y.shape)


class Half(Custom):
    """The same, whose second result has no gradient."""
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        z = x + y
        ctx.mark_non_differentiable(z)
        return x * x * y, z


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0] * 2 * g


class Twice(torch.autograd.Function):
    """x *= -2"""
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(-2)

    @staticmethod
    def backward(ctx, g):
        return g * -2


def read_modules():
    """(name, module, call) of modules.def, and its optimizers"""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "modules.def")
    modules, optimizers = [], []
    for line in open(path):
        m = re.match(r"(MODULE|OPTIMIZER)\((.*)\)$", line.rstrip())
        if m and m.group(1) == "MODULE":
            name, _, _, _, make, call = ops.split(m.group(2))
            modules.append((name, compile(make[1:-1], name, "eval"), compile(call[1:-1], name, "eval")))
        elif m:
            optimizers.append(compile(ops.split(m.group(2))[2][1:-1], m.group(2), "eval"))
    return modules, optimizers


MODULES, OPTIMIZERS = read_modules()


def module(s, x):
    name, make, call = MODULES[s.i[0]]
    m = eval(make, dict(SCOPE, N=torch.nn))
    with torch.no_grad():
        for key, t in m.state_dict().items():
            if not t.is_floating_point():
                continue
            seed = sum(ord(c) * (j + 1) for j, c in enumerate(key))
            v = (0.5 if "running_var" in key else -0.45) + ((seed + 37 * torch.arange(t.numel(), dtype=torch.float64)) % 101) / 128
            t.copy_(v.reshape(t.shape))
    if x.dtype != torch.float32 and x.is_floating_point():
        m.to(x.dtype)
    m.train(bool(s.i[1]))
    y = eval(call, dict(SCOPE, m=m, x=x))
    if any(y is t for t in (x,)) and name == "flatten":
        y = y.view_as(y)
    return [y] + list(m.parameters())[:1]


def optimize(s, x):
    o = eval(OPTIMIZERS[s.i[0]], dict(O=torch.optim, x=x))
    o.step()
    for g in o.param_groups:
        g["lr"] *= 2
    o.step()


def clip(s, x):
    """The norm, and the gradients of x scaled or clamped."""
    utils, grads, most = torch.nn.utils, [t.grad for t in x], s.f[0]
    if s.i[0] == 2:
        utils.clip_grad_value_(x, most)
        return []
    if s.i[0] == 4:
        norm = utils.get_total_norm(grads, 1)
    elif s.i[0] == 3:
        norm = utils.get_total_norm(grads)
        utils.clip_grads_with_norm_(x, most, norm)
    else:
        norm = utils.clip_grad_norm_(x, most, math.inf if s.i[0] else 2)
    return [norm.detach().to(grads[0].dtype)]


CALLS = {}


def op_call(name):
    """(text, names of dims) of PyTorch's call of an op."""
    if name not in CALLS:
        row = ops.OF[name]
        text = ops.python(row, name)
        if name == "linalg_lstsq":
            text = text.replace("(a, b)", "(a, b, driver='gels')")
        if text and name.startswith("empty"):
            text = "(%s).zero_()" % text
        if text and name.startswith("as_strided"):                  # the C call takes a copy
            text = text.replace("(a,", "(a.clone(memory_format=torch.contiguous_format),", 1)
        m = re.match(r"torch\.Tensor\.(\w+_)\(", text)
        if m and not hasattr(torch.Tensor, m.group(1)):
            text = "F." + text[13:] if hasattr(SCOPE["F"], m.group(1)) else ""
        CALLS[name] = compile(text, name, "eval") if text else None, text
    return CALLS[name]


def results(name, s, y):
    """The results as the calls of ops.def give them (calls.h)."""
    if name in ("svd", "linalg_svd"):
        u, d, v = y
        vh = v.mT if name == "svd" else v
        if name == "linalg_svd" and s.i[0]:
            return [d, u @ u.mT, vh @ vh.mT]
        return [d, u.abs(), vh.abs(), (u * (d * d).unsqueeze(-2)) @ vh]
    if name == "linalg_eigh":
        w, q = y
        return [w, q.abs(), (q * (w * w * w).unsqueeze(-2)) @ q.mT]
    if name == "linalg_lstsq":
        return [y[0]] + ([y[1]] if s.shape0[-2] > s.shape0[-1] else [])
    if name in ("linalg_qr", "qr") and s.s == "r":
        return [y[1]]
    if isinstance(y, torch.Tensor):
        if name in ("flatten", "local_response_norm") and any(y is t for t in s.inputs):
            y = y.view_as(y)                                        # the library gives a view of the input
        return [y]
    if isinstance(y, (tuple, list)):
        flat = []
        for t in y:
            flat += t if isinstance(t, (tuple, list)) else [t]
        return [torch.as_tensor(t) if t is not None else None for t in flat]
    return [torch.as_tensor(y)]


class Machine:
    def __init__(self):
        self.x, self.scopes, self.hooks, self.depth, self.kept = {}, [], [], {}, set()
        self.place = {}                                             # of the memory of each value

    def put(self, k, t):
        self.x[k], self.depth[k] = t, len(self.scopes)
        self.place[k] = place_of(t)

    def first_at(self, place, among=None):
        """The first of the values (or of some) in this memory, -1: none."""
        found = [k for k, p in self.place.items() if p == place and k in self.x and (among is None or k in among)]
        return min(found) if place and found else -1

    def values(self, s):
        return [None if k < 0 else self.x[k] for k in s.x]

    def op(self, s):
        code, text = op_call(s.name)
        if code is None:
            raise NoCounterpart(s.name)
        x = self.values(s)
        s.inputs = x
        s.shape0 = x[0].shape if x and x[0] is not None else ()

        def call(*inputs):
            a, b, c, d = (list(inputs) + [None] * 4)[:4]
            return eval(code, dict(SCOPE, x=list(inputs), a=a, b=b, c=c, d=d, i=s.i, f=s.f, s=s.s))
        if s.name in ("batch_norm", "instance_norm") and not s.via:     # with the statistics after it
            mean, var, weight, bias = ([None if t is None else t for t in x[1:]] + [None] * 4)[:4]
            mean, var = (None if t is None else t.clone() for t in (mean, var))
            y = getattr(SCOPE["F"], s.name)(x[0], mean, var, weight, bias, bool(s.i[0]) or (s.name[0] == "i" and len(x) < 2), s.f[0])
            return [t for t in (y, mean, var) if t is not None]
        if not s.via:
            return results(s.name, s, call(*x))
        at = [k for k, t in enumerate(x) if t is not None and t.is_floating_point()]

        def of_floats(*floats):
            y = list(x)
            for k, t in zip(at, floats):
                y[k] = t
            return results(s.name, s, call(*y))[0]
        floats, F = tuple(x[k] for k in at), torch.autograd.functional
        if s.via == 1:
            from torch.utils.checkpoint import checkpoint
            return [checkpoint(of_floats, *floats, use_reentrant=False)]
        v = tuple(weights(t) for t in floats)

        def first(t):
            return t[0] if isinstance(t, (tuple, list)) else t
        with torch.enable_grad():
            if s.via == 2:
                with torch.no_grad():
                    w = weights(of_floats(*(t.detach().clone() for t in floats)))
                y, g = F.vjp(of_floats, floats, w)
            elif s.via == 3:
                y, g = F.jvp(of_floats, floats, v)
            elif s.via in (4, 5):
                y = (F.jacobian, F.hessian)[s.via - 4](of_floats, floats)
                return [first(first(y))]
            else:
                y, g = (F.hvp, F.vhp)[s.via - 6](of_floats, floats, v)
        return [y, first(g)]

    def begin(self, s):
        kind = s.i[0]
        was = torch.is_grad_enabled()
        context = {NO_GRAD: torch.no_grad, WITH_GRAD: torch.enable_grad, INFERENCE: torch.inference_mode}.get(kind)
        context = context() if context else None
        if context:
            context.__enter__()
        self.scopes.append((context, was, []))

    def end(self, s):
        context, was, packs = self.scopes.pop()
        for p in reversed(packs):
            p.__exit__(None, None, None)
        if context:
            context.__exit__(None, None, None)
        torch._C._set_grad_enabled(was)
        self.drop(len(self.scopes), s.x[0] if s.x else -1)
        return [self.x[s.x[0]]] if s.x else []

    def drop(self, depth, returned):
        """What the scopes inside owned is gone."""
        for k in [k for k in self.x if self.depth[k] > depth]:
            if k == returned or k in self.kept:
                self.depth[k] = depth
            else:
                del self.x[k]

    def statement(self, s):
        x = self.values(s)
        name = s.name
        if name == "leaf":
            return [leaf(s)]
        if name == "begin":
            self.begin(s)
        elif name == "end":
            return self.end(s)
        elif name == "reset":
            self.drop(len(self.scopes) - 1, -1)
            for k in self.x:
                if self.depth[k] == len(self.scopes):
                    self.depth[k] -= 1
        elif name == "keep":
            self.kept.add(s.x[0])
        elif name == "mode":
            if not torch.is_inference_mode_enabled():
                torch._C._set_grad_enabled(bool(s.i[0]))
        elif name == "pack":
            p = torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t)
            p.__enter__()
            self.scopes[-1][2].append(p)
        elif name == "hook":
            self.hooks.append(x[0].register_hook((lambda g: g * 2) if s.i[0] else (lambda g: None)))
        elif name == "post_hook":
            self.hooks.append(x[0].register_post_accumulate_grad_hook(lambda t: None))
        elif name == "unhook":
            self.hooks[s.i[0]].remove()
        elif name == "retain":
            x[0].retain_grad()
        elif name == "detach_":
            x[0].detach_()
        elif name == "require":
            x[0].requires_grad_(bool(s.i[0]))
        elif name == "grad":
            y = torch.autograd.grad(x[0], x[1:], weights(x[0]), retain_graph=True if s.i[0] & 3 else None,
                                    create_graph=bool(s.i[0] & 2), allow_unused=True)
            return [None if t is None else t.clone(memory_format=torch.contiguous_format) for t in y]
        elif name == "backward":
            x[0].backward(None if len(s.i) > 1 and s.i[1] else weights(x[0]), retain_graph=True if s.i[0] & 3 else None, create_graph=bool(s.i[0] & 2))
        elif name == "clear":
            x[0].grad = None
        elif name == "set_grad":
            x[0].grad = x[1]
        elif name == "set":
            return [x[1]]
        elif name == "custom":
            if s.i[0] == 2:
                return [Square.apply(x[0])]
            return list((Half if s.i[0] else Custom).apply(x[0], x[1]))
        elif name == "custom_":
            return [Twice.apply(x[0])]
        elif name == "module":
            return module(s, x[0])
        elif name == "optimize":
            optimize(s, x[0])
        elif name == "carry":
            return [x[0].detach().clone(memory_format=torch.contiguous_format)]
        elif name == "clip_grads":
            return clip(s, x)
        elif name == "init":
            init = torch.nn.init
            (lambda x: init.constant_(x, s.f[0]), init.zeros_, init.ones_, init.eye_, init.dirac_)[s.i[0]](x[0])
        elif name == "poke":
            with torch.no_grad():
                x[0].as_strided([], [], x[0].storage_offset()).fill_(s.f[0])
        return []

    def close(self):
        while self.scopes:
            self.end(Step("end 0 0 0 0 0 0 s="))
        torch._C._set_grad_enabled(True)


KEPT = ("leaf", "channels_last", "empty_strided", "as_strided", "set", "end")


def place_of(t):
    return t.untyped_storage()._cdata if t is not None else 0


def dense(name, t, machine):
    """What is new is made row-major at both sides: PyTorch keeps the order of its inputs."""
    if t is None or t.is_contiguous() or name in KEPT:
        return t
    return t.contiguous() if machine.first_at(place_of(t)) < 0 else t


def emit(kind, k, t, machine, among=None):
    if t is None:
        out.write(b"%c %d 0\n" % (kind, k))
        return
    alias = machine.first_at(place_of(t), among)
    leaf_, grad = t.is_leaf, t.requires_grad
    dims = b" ".join(b"%d %d" % (a, b) for a, b in zip(t.shape, t.stride()))
    out.write(b"%c %d 1 %d %d %d %d %d %d %s\n" % (kind, k, NUMBER[t.dtype], grad, leaf_, alias, t.dim(), t.numel(), dims))
    t = t.detach()
    t = t.to(torch.float64 if t.is_floating_point() else torch.int64).contiguous()
    out.write(t.numpy(force=True).tobytes())


def run(steps, alive):
    machine = Machine()
    torch.default_generator.manual_seed(7)
    try:
        for n, s in enumerate(steps):
            try:
                y = machine.op(s) if s.name in ops.OF and s.name not in ("set",) else machine.statement(s)
            except (NoCounterpart, TypeError) as e:         # its functions do not take such arguments
                machine.close()
                out.write(b"none\n")
                return
            except Exception as e:
                if str(e) == "tuple index out of range":            # of the expression in ops.def
                    machine.close()
                    out.write(b"none\n")
                    return
                text = "%s: %s" % (type(e).__name__, str(e).split("\n")[0][:140])
                out.write(b"error %d %s\n" % (n, text.encode("ascii", "replace")))
                if s.name in ("unhook",) or s.name in ("hook", "post_hook"):
                    machine.hooks.append(None)
                continue
            out.write(b"ok %d\n" % n)
            for k, t in enumerate(y[:s.nout]):
                t = dense(s.name, t, machine)
                emit(b"v", s.out + k, t, machine)
                machine.put(s.out + k, t)
                if s.name == "set":
                    machine.kept.add(s.out + k)
        for k in alive:
            if k in machine.x:
                emit(b"f", k, machine.x[k], machine, alive)
        for k in alive:
            t = machine.x.get(k)
            g = t.grad if t is not None and (t.is_leaf or t.retains_grad) else None
            if g is not None:
                emit(b"g", k, g, machine)
        out.write(b"done\n")
    except RuntimeError:                                            # a view that may no longer be looked at
        out.parts = [b"none\n"]
    machine.close()
    for t in machine.x.values():
        try:
            if t is not None and t.is_leaf:
                t.grad = None
        except RuntimeError:
            pass


def show(steps):
    """The program as Python."""
    lines = ["import torch, math", "import torch.nn.functional as F", "R = ('mean', 'sum', 'none', 'batchmean')"]
    for s in steps:
        x = ["None" if k < 0 else "x%d" % k for k in s.x]
        to = ", ".join("x%d" % (s.out + k) for k in range(s.nout))
        if s.name in ops.OF:
            text = op_call(s.name)[1] or "no such call"
            for pattern, of in ((r"\bi\b", repr(list(s.i))), (r"\bf\b", repr(list(s.f))), (r"\bs\b", repr(s.s)),
                                (r"\bx\b", "[%s]" % ", ".join(x))):
                text = re.sub(r"(?<![.'\w])" + pattern + r"(?!['\w=])", lambda m: of, text)
            for k, letter in enumerate("abcd"):
                text = re.sub(r"(?<![.'\w])%s(?!['\w=])" % letter, x[k] if k < len(x) else "None", text)
            if s.via:
                text = "# %s of %s" % (VIAS[s.via], text)
            lines.append("%s = %s" % (to, text) if to else text)
        elif s.name == "leaf":
            lines.append("%s = torch.tensor(%r, dtype=torch.float64).to(%s).reshape(%r)%s%s" % (
                to, s.elements, DTYPES[s.i[0]], list(s.i[6:]), "  # layout %c" % s.i[2] if s.i[2] else "",
                "" if not s.i[1] else ".requires_grad_()" if not s.i[2] else "; requires_grad_()"))
        else:
            lines.append("%s# %s %s %s %s" % (to + " = " if to else "", s.name, " ".join(x), list(s.i), list(s.f)))
    out.write(("\n".join(lines) + "\ndone\n").encode())


out.write(b"ready %s\n" % torch.__version__.encode())
out.flush()
steps, alive = [], []
for line in sys.stdin:
    if line == "run\n":
        run(steps, alive)
    elif line == "print\n":
        show(steps)
    elif line.startswith("alive"):
        alive = [int(w) for w in line.split()[1:]]
        continue
    else:
        steps.append(Step(line))
        continue
    out.flush()
    steps, alive = [], []
