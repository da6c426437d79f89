"""tensor.h from Python: every public function of tensor.h and tensor_nn.h, made from their prototypes by cffi.

    make shared                                  # build/libtensor.so; TENSOR_LIBRARY names another one
    import tensor as t                           # from examples/python; TENSOR_HEADERS: the folder of the headers
    net = t.nn.sequential([t.nn.linear(2, 16), t.nn.tanh(), t.nn.linear(16, 1)])
    opt = t.nn.adam(net, lr=0.01)
    for step in range(500):
        loss = t.binary_cross_entropy_with_logits(net(x), y)
        t.nn.zero_grad(opt)
        loss.backward()
        t.nn.step(opt)

tensor_NAME is t.NAME and a method of Tensor, nn_NAME is t.nn.NAME, TENSOR_NAME is t.NAME. A shape or a list is one
argument, a list: t.zeros([2, 3]), t.cat([a, b], 0). Options have their names in C. shape and grad are attributes, the
others are calls: x.dtype(), x.T(). x[1] selects, x[":, 1"] slices. An error of the library is raised as t.Error. A Tensor
keeps its tensor and frees it with the last reference; modules and optimizers live until t.nn.free and
t.nn.optimizer_free. numpy.from_dlpack and torch.from_dlpack take a Tensor, t.from_dlpack takes theirs, and then both
have the same memory; t.from_dlpack(np.array([1., 2.], np.float32)) makes one of a list. Needs cffi, and a C compiler
($CC) whose preprocessor reads the headers.
"""
import ctypes           # for Python's own C functions alone: they need its lock, which cffi gives up in a call
import functools
import os
import pathlib
import re
import shlex
import subprocess

import cffi

_root = pathlib.Path(__file__).resolve().parents[2]


def _declarations():
    """Types and prototypes of both headers, after the preprocessor, without those of the system's headers."""
    header = pathlib.Path(os.environ.get("TENSOR_HEADERS") or _root).resolve() / "tensor_nn.h"
    command = [*shlex.split(os.environ.get("CC") or "cc"), "-E", "-std=c99", "-D__attribute__(x)=", str(header)]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    parts = re.split(r'^# \d+ "(.*?)".*\n', text, flags=re.M)         # text, file, text, file, text ..
    own = "".join(text for file, text in zip(parts[1::2], parts[2::2]) if pathlib.Path(file).parent == header.parent)
    declaration = r"^(?:extern (?!__inline)|typedef |enum |struct )(?:[^;{}]|\{[^{}]*\})*;"
    return "\n".join(re.findall(declaration, own, flags=re.M))


def _prototypes(text):
    """Name: (result, {name of a parameter: as it is written})."""
    found = {}
    prototype = r"^extern ([^;(]*?)(\w+)\(((?:[^;()]|\([^;()]*\))*)\)\s*;"
    for result, name, params in re.findall(prototype, text, flags=re.M):
        if "__" not in name:
            params = [" ".join(p.split()) for p in re.split(r",(?![^()]*\))", params) if p.strip() != "void"]
            words = [re.search(r"(\w+)(?:\[\w*\]|\)\s*\(.*\))?$", p).group(1) for p in params]
            found[name] = result.strip(), dict(zip(words, params))
    return found


ffi = cffi.FFI()
_text = _declarations()
ffi.cdef(_text)
lib = ffi.dlopen(os.environ.get("TENSOR_LIBRARY", str(_root / "build" / "libtensor.so")))
functions = _prototypes(_text)


class Error(RuntimeError):
    """What tensor_error_text says; code is TENSOR_ERR_*."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def _check():
    code = lib.tensor_error_code()
    if code:
        text = ffi.string(lib.tensor_error_text()).decode()
        lib.tensor_clear_error()
        raise Error(code, text)


def _result(value):
    """What a program gets: tensors are kept, since their scope ends with the call."""
    if not isinstance(value, ffi.CData):
        return value
    kind = ffi.typeof(value)
    if kind.cname == "tensor_t *":
        return Tensor(lib.tensor_keep(value)) if value else None
    if kind.cname == "char *":
        return ffi.string(value).decode() if value else None
    if kind.cname in ("nn_module_t *", "nn_optimizer_t *"):
        return Module(value) if kind.cname == "nn_module_t *" else Handle(value)
    if kind.kind == "struct" and any(field.type.cname == "tensor_t *" for _, field in kind.fields):
        return tuple(_result(getattr(value, name)) for name, _ in kind.fields)
    return value


def _given(value):
    """What cffi takes; whoever calls holds it until the library has read it."""
    if isinstance(value, Handle):
        return value.pointer
    if isinstance(value, str):
        return ffi.new("char[]", value.encode())
    if isinstance(value, (list, tuple)):
        return [_given(v) for v in value]
    return ffi.NULL if value is None else value


def _arguments(name, params, args, options):
    """Arguments as in C: a list is a pointer, and the count after it is its length."""
    given, rest, length = [], list(args), None
    for word in params:
        if length is not None and word in ("n", "ndim", "count"):
            value = length
        elif word in options:
            value = options.pop(word)
        elif rest:
            value = rest.pop(0)
        elif word == "dtype":
            value = lib.tensor_get_default_dtype()
        else:
            raise TypeError("%s: argument %s is missing" % (name, word))
        if isinstance(value, int) and "int64_t *" in params[word]:
            raise TypeError("%s: %s is one list, as in zeros([2, 3])" % (name, word))
        length = len(value) if isinstance(value, (list, tuple)) else None
        given.append(_given(value))
    if rest or options:
        raise TypeError("too many arguments")
    return given


def _filled(name, kind, args, options):
    """The args struct of a function with options: PyTorch's defaults, then what is given, literally. A list is a
    pointer, or numbers: stride=[2, 1] is stride and stride_w, with three of them the second is stride_h."""
    own = name[:-4] + "defaults"
    makers = [own] if own in functions else [f for f, (result, _) in functions.items() if result == kind.cname]
    kinds = {word: field.type for word, field in kind.fields}
    words = [*kinds]
    first = words[1:words.index("options_are_named_")]
    if len(args) > len(first) or set(options) - set(words):
        raise TypeError("%s takes %s; options %s" % (name, first, words[len(first) + 2:]))
    s = ffi.new(ffi.getctype(kind, "*"))
    s.options_are_named_ = ffi.cast("void *", 0x5A5A)           # zeros are defaults
    if makers:
        s[0] = getattr(lib, makers[0])()
    given = dict(zip(first, args), **options)
    for word, value in [*given.items()]:
        if not isinstance(value, (list, tuple)):
            given[word] = _given(value)
        elif kinds[word].kind == "pointer":
            given[word] = ffi.new(ffi.getctype(kinds[word].item, "[]"), _given(value))
        elif len(value) < 4:
            ends = ("", "_w") if len(value) == 2 else ("", "_h", "_w")
            given.update(zip([word + end for end in ends], value))
    for word, value in given.items():
        setattr(s, word, value)
    return [s[0], given]


@functools.lru_cache(None)
def _make(name):
    f, (result, params) = getattr(lib, name), functions[name]
    kinds = ffi.typeof(f).args
    with_options = len(kinds) == 1 and kinds[0].cname.endswith("_args_t")

    def call(*args, **options):
        given = _filled(name, kinds[0], args, options) if with_options else _arguments(name, params, args, options)
        scope = lib.tensor_scope_begin()
        try:
            return _result(f(*given[:len(params)]))     # behind them: what a struct's members point to
        finally:
            lib.tensor_scope_end(scope)
            _check()

    call.__name__ = name
    call.__doc__ = "%s %s(%s)" % (result, name, ", ".join(params.values()))
    return call


def _find(prefix, name):
    for full in (prefix + name, prefix + name + "_n", prefix + name + "_with"):
        if full in functions:
            return _make(full)
    if hasattr(lib, prefix.upper() + name):
        return getattr(lib, prefix.upper() + name)
    raise AttributeError("neither a function %s%s nor a constant" % (prefix, name))


class Handle:
    def __init__(self, pointer):
        self.pointer = pointer


class Module(Handle):
    __call__ = _make("nn_forward")
    def parameters(self):               # name: Tensor, of parameters and not of buffers
        found = lib.nn_named_parameters(self.pointer)
        return {ffi.string(p.name).decode(): _result(p.tensor) for p in found.item[0:found.count]}


def _operator(name):
    return lambda a, b: getattr(a, name if isinstance(b, Tensor) else name + "_scalar")(b)


class Tensor(Handle):
    __add__, __sub__, __mul__, __truediv__, __pow__, __matmul__ = map(_operator, "add sub mul div pow matmul".split())
    __radd__, __rsub__, __rmul__ = map(_operator, ("add", "rsub", "mul"))
    __rtruediv__ = lambda self, number: self.reciprocal() * number
    __neg__ = _make("tensor_neg")
    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_operator, ("eq", "ne", "lt", "le", "gt", "ge"))
    __hash__ = object.__hash__
    __getattr__ = lambda self, name: functools.partial(_find("tensor_", name), self)
    __getitem__ = lambda self, index: self.at(index) if isinstance(index, str) else self.select(0, index)
    __iter__ = lambda self: (self[k] for k in range(len(self)))
    __bool__ = lambda self: bool(self.item())           # of several elements: an error, as in PyTorch
    __float__ = lambda self: float(self.item())
    __copy__ = lambda self: _result(self.pointer)       # another reference to the same tensor
    grad = property(_make("tensor_grad"))
    shape = property(lambda self: tuple(lib.tensor_shape(self.pointer).dims[0:lib.tensor_ndim(self.pointer)]))

    def __deepcopy__(self, memo):
        if not self.is_leaf():
            raise Error(lib.TENSOR_ERR_AUTOGRAD, "only a leaf can be copied deeply; take its detach()")
        new = self.detach().clone().requires_grad_(self.requires_grad())
        new.set_grad(None if self.grad is None else self.grad.detach().clone())
        return new

    def __del__(self):
        if self.pointer and lib:
            lib.tensor_free(self.pointer)

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of, or iteration over a 0-d tensor")
        return self.shape[0]

    def __repr__(self):
        text = ffi.new("char[]", 1 << 16)
        lib.tensor_to_string(self.pointer, text, len(text))
        return ffi.string(text).decode()

    def __array__(self, *dtype, **copy):
        return __import__("numpy").from_dlpack(self).__array__(*dtype, **copy)

    def __dlpack_device__(self):
        device = lib.tensor_device(self.pointer)
        return (1, 0) if device == lib.TENSOR_CPU else (2, device - lib.TENSOR_CUDA)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the tensor is on another device")
        versioned = max_version is not None and max_version[0] >= 1
        x = self.clone() if copy else self
        m = (lib.tensor_to_dlpack if versioned else lib.tensor_to_dlpack_unversioned)(x.pointer)
        _check()
        return _capsule_new(int(ffi.cast("intptr_t", m)), _capsules[versioned][0], _end_capsule)


# DLPack before version 1, and since: a capsule's name, that when it is taken, its deleter's place, who takes ours.
_capsules = ((b"dltensor", b"used_dltensor", 56, "from_dlpack_unversioned"),
             (b"dltensor_versioned", b"used_dltensor_versioned", 16, "from_dlpack"))

_python = lambda name, result, *arguments: ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
_capsule_new = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_is = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_capsule_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_capsule_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _end_capsule(capsule):
    ctypes.pythonapi.PyErr_Clear()      # of who refused the tensor (NumPy: bf16): with it, no call would work
    for name, _, at, _ in (c for c in _capsules if _capsule_is(capsule, c[0])):
        m = ffi.cast("char *", _capsule_pointer(capsule, name))
        ffi.cast("void (**)(void *)", m + at)[0](m)


def from_dlpack(x):
    """A Tensor over the memory of x (NumPy, PyTorch, ..), which lives as long."""
    try:
        capsule = x.__dlpack__(max_version=(1, 1))
    except TypeError:           # before DLPack 1
        capsule = x.__dlpack__()
    for name, used, _, take in _capsules:
        if _capsule_is(id(capsule), name):
            m = ffi.cast("void *", _capsule_pointer(id(capsule), name))
            _capsule_rename(id(capsule), used)
            return _find("tensor_", take)(m)
    raise BufferError("not a capsule of DLPack")


class no_grad:          # with t.no_grad():
    def __enter__(self):
        self.scope = lib.tensor_scope_begin_no_grad()

    __exit__ = lambda self, *_: lib.tensor_scope_end(self.scope)


__getattr__ = functools.partial(_find, "tensor_")
nn = type("nn", (), {"__getattr__": staticmethod(functools.partial(_find, "nn_"))})()
_quiet = ffi.callback("tensor_error_fn_t", lambda code, text, user: None)
lib.tensor_set_error_handler(_quiet, ffi.NULL)
