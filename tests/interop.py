# interop.py - run by interop.sh: files of tests/formats.c for NumPy and back, safetensors both ways, files of
# torch.save, DLPack with NumPy and PyTorch
#
#   python3 tests/interop.py PROGRAM FOLDER      PROGRAM is tests/formats, FOLDER holds libtensor.so
import ctypes
import io
import json
import os
import subprocess
import sys

import numpy as np

try:
    import torch
except ImportError:
    torch = None

program, folder = sys.argv[1], os.path.abspath(sys.argv[2])
passed = failed = 0
NAMES = "f4 f8 f2 i4 i8 i2 i1 u1 b1".split()


def check(good, what):
    global passed, failed
    passed += bool(good)
    failed += not good
    if not good:
        print("failed:", what)


def rule(name, n=6):
    k = 3 * np.arange(n) + 1
    v = k % 7 - (0 if name in ("u1", "b1") else 2)
    return (v % 2 if name == "b1" else v).astype("?" if name == "b1" else name).reshape(2, n // 2)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def files():
    check(subprocess.run([program, "write", folder]).returncode == 0, "formats write")
    archive = np.load(os.path.join(folder, "all.npz"))
    check(sorted(archive.files) == sorted(NAMES), "names in all.npz")
    for name in NAMES:
        check(same(np.load(os.path.join(folder, name + ".npy")), rule(name)), name + ".npy")
        check(same(archive[name], rule(name)), name + " in all.npz")
        more = rule(name) if name == "b1" else rule(name) + np.ones(1, name)
        np.save(os.path.join(folder, name + ".npy"), np.asfortranarray(more) if name == "f8" else more)
    np.savez(os.path.join(folder, "all.npz"), **{name: rule(name) for name in NAMES})
    check(subprocess.run([program, "check", folder]).returncode == 0, "formats check")


lib = ctypes.CDLL(os.path.join(folder, "libtensor.so"))
for name in ("tensor_from_n", "tensor_to_dlpack", "tensor_from_dlpack", "tensor_to_dlpack_unversioned", "tensor_data",
             "tensor_from_dlpack_unversioned", "tensor_transpose", "tensor_contiguous", "tensor_error_text",
             "nn_safetensors_parse", "nn_safetensors_get", "nn_safetensors_format", "kit_torch_open", "kit_torch_get"):
    getattr(lib, name).restype = ctypes.c_void_p
for name in ("nn_parse_npy", "nn_format_npy", "nn_npz_parse", "nn_npz_get", "nn_npz_format"):
    getattr(lib, name).restype = ctypes.c_void_p
lib.tensor_error_text.restype = ctypes.c_char_p
lib.tensor_size.restype = lib.tensor_numel.restype = ctypes.c_int64
py = ctypes.pythonapi
py.PyCapsule_New.restype = ctypes.py_object
py.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
py.PyCapsule_GetPointer.restype = ctypes.c_void_p
py.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
py.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
VERSIONED, PLAIN = b"dltensor_versioned", b"dltensor"
kept = []       # names of capsules must stay


class Lent:
    """What has __dlpack__: a tensor of the library."""

    def __init__(self, t, versioned):
        self.t, self.versioned = t, versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        give = lib.tensor_to_dlpack if self.versioned else lib.tensor_to_dlpack_unversioned
        return py.PyCapsule_New(give(ctypes.c_void_p(self.t)), VERSIONED if self.versioned else PLAIN, None)


def ours(a, dtype):
    dims = (ctypes.c_int64 * a.ndim)(*a.shape)
    return lib.tensor_from_n(a.ctypes.data_as(ctypes.c_void_p), dtype, dims, a.ndim)


def take(array):
    """A tensor of the library over the memory of array."""
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = array.__dlpack__()
    versioned = "dltensor_versioned" in repr(capsule)
    pointer = py.PyCapsule_GetPointer(capsule, VERSIONED if versioned else PLAIN)
    used = b"used_" + (VERSIONED if versioned else PLAIN)
    kept.append(used)
    py.PyCapsule_SetName(capsule, used)
    return (lib.tensor_from_dlpack if versioned else lib.tensor_from_dlpack_unversioned)(ctypes.c_void_p(pointer))


def elements(t, like):
    t = lib.tensor_contiguous(ctypes.c_void_p(t))
    return ctypes.string_at(lib.tensor_data(ctypes.c_void_p(t)), like.nbytes)


SHAPES = [(), (1,), (0,), (5,), (0, 3), (2, 0, 3), (2, 3, 4), (1, 1, 1, 1, 1, 1, 2, 3)]


def shaped(name, shape):
    n = int(np.prod(shape, dtype=int))
    return rule(name, n + n % 2).reshape(-1)[:n].reshape(shape)


def is_array(t, a):
    """Whether t, contiguous, is a."""
    x = ctypes.c_void_p(t)
    if lib.tensor_is_poison(x) or lib.tensor_dtype(x) != OURS[a.dtype.str[1:]] or lib.tensor_ndim(x) != a.ndim:
        return False
    dims = tuple(lib.tensor_size(x, ctypes.c_int64(k)) for k in range(a.ndim))
    return dims == a.shape and (a.size == 0 or elements(t, a) == np.ascontiguousarray(a).tobytes())


def array_shapes():
    """npy and npz of every dtype, shape, order of dims and order of bytes, as NumPy writes them, and back."""
    for name in NAMES:
        for shape in SHAPES:
            a = shaped(name, shape)
            for order in "CF":
                for end in "<>":
                    b = a.astype(a.dtype.newbyteorder(end), order=order)
                    file = io.BytesIO()
                    np.save(file, b)
                    data = file.getvalue()
                    t = lib.nn_parse_npy(data, ctypes.c_size_t(len(data)))
                    check(is_array(t, a), "npy %s %s %s %s" % (name, shape, order, end))
            t = ctypes.c_void_p(lib.nn_format_npy(ctypes.c_void_p(ours(a, OURS[name]))))
            back = np.load(io.BytesIO(ctypes.string_at(lib.tensor_data(t), lib.tensor_numel(t))))
            check(same(back, a), "npy that was written: %s %s" % (name, shape))
    every = {str(k): shaped(name, shape) for k, (name, shape) in enumerate((n, s) for n in NAMES for s in SHAPES)}
    file = io.BytesIO()
    np.savez(file, **every)
    data = file.getvalue()
    archive = ctypes.c_void_p(lib.nn_npz_parse(data, ctypes.c_size_t(len(data))))
    for key, a in every.items():
        check(is_array(lib.nn_npz_get(archive, key.encode()), a), "npz %s %s" % (a.dtype, a.shape))
    lib.nn_npz_close(archive)
    texts = (ctypes.c_char_p * len(every))(*(key.encode() for key in every))
    tensors = (ctypes.c_void_p * len(every))(*(ours(a, OURS[a.dtype.str[1:]]) for a in every.values()))
    t = ctypes.c_void_p(lib.nn_npz_format(texts, tensors, len(every)))
    back = np.load(io.BytesIO(ctypes.string_at(lib.tensor_data(t), lib.tensor_numel(t))))
    for key, a in every.items():
        check(same(back[key], a), "npz that was written: %s %s" % (a.dtype, a.shape))


def dlpack_shapes():
    for name in NAMES:
        for shape in SHAPES:
            a = shaped(name, shape)
            check(is_array(take(a), a), "from NumPy %s %s" % (name, shape))
            check(same(np.from_dlpack(Lent(ours(a, OURS[name]), True)), a), "to NumPy %s %s" % (name, shape))
    a = rule("f4", 24).reshape(2, 3, 4)
    for part in (a[:, 1], a[..., ::2], a[::-1, :, ::-1], np.broadcast_to(a[0, 0], (5, 4)), a.transpose(2, 0, 1)):
        check(is_array(lib.tensor_contiguous(ctypes.c_void_p(take(part.copy() if 0 in part.strides else part))), part),
              "from NumPy with strides %s" % (part.strides,))


OURS = dict(f4=0, f8=1, i4=2, i8=3, u1=4, b1=5, f2=6, i1=8, i2=9)


def dlpack_numpy():
    for name in NAMES:
        a = rule(name)
        t = ours(a, OURS[name])
        for versioned in (True, False):
            try:
                b = np.from_dlpack(Lent(t, versioned))
            except BufferError as e:
                check(False, "numpy.from_dlpack %s: %s" % (name, e))
                continue
            check(same(b, a), "numpy.from_dlpack " + name)
            turned = np.from_dlpack(Lent(lib.tensor_transpose(ctypes.c_void_p(t), ctypes.c_int64(0),
                                                              ctypes.c_int64(1)), versioned))
            check(turned.shape == (3, 2) and (turned == a.T).all(), "strides " + name)
        check(elements(take(a), a) == a.tobytes(), "from NumPy " + name)
        check(elements(take(a.T), a) == a.T.tobytes(), "from NumPy with strides " + name)
        check(elements(take(a[::-1]), a) == a[::-1].tobytes(), "from NumPy from behind " + name)


def dlpack_torch():
    if torch is None:
        print("skipped 1 test of memory shared with PyTorch: no torch")
        return
    kinds = dict(f4=torch.float32, f8=torch.float64, f2=torch.float16, i4=torch.int32, i8=torch.int64,
                 i2=torch.int16, i1=torch.int8, u1=torch.uint8, b1=torch.bool)
    for name in NAMES:
        a = rule(name)
        t = ours(a, OURS[name])
        for versioned in (True, False):
            b = torch.from_dlpack(Lent(t, versioned))
            check(b.dtype == kinds[name] and same(b.numpy(), a), "torch.from_dlpack " + name)
        x = torch.from_numpy(a)
        check(elements(take(x), a) == a.tobytes(), "from PyTorch " + name)
        check(elements(take(x.t()), a) == a.T.tobytes(), "from PyTorch with strides " + name)
    x = torch.tensor([[1.5, -2.0, 3e38], [0.1, 0.0, -1e-30]]).to(torch.bfloat16)
    bits = x.view(torch.int16).numpy()
    check(elements(take(x), bits) == bits.tobytes(), "from PyTorch bf16")
    t = ours(bits, 7)
    check(torch.equal(torch.from_dlpack(Lent(t, True)), x), "torch.from_dlpack bf16")
    shared = torch.from_dlpack(Lent(ours(rule("f4"), 0), True))
    shared += 1     # one memory
    check(shared[0, 0].item() == 0.0, "memory that both write")


# bytes as a file has them, by the name of the dtype in safetensors; bf16 has bits that NumPy calls i2
def safetensors_arrays():
    names = dict(f4="F32", f8="F64", f2="F16", i4="I32", i8="I64", i2="I16", i1="I8", u1="U8", b1="BOOL")
    arrays = {names[name]: (OURS[name], rule(name)) for name in NAMES}
    arrays["BF16"] = (7, np.array([[0x3FC0, 0x7F80, 1], [-128, 0, 0x4049]], "i2"))
    return arrays


def safetensors():
    arrays = safetensors_arrays()
    entries, data = {}, b""
    for name, (_, a) in arrays.items():
        entries[name] = dict(dtype=name, shape=list(a.shape), data_offsets=[len(data), len(data) + a.nbytes])
        data += a.tobytes()
    head = json.dumps(entries).encode()
    file = len(head).to_bytes(8, "little") + head + data
    reader = lib.nn_safetensors_parse(file, ctypes.c_size_t(len(file)))
    check(reader, lib.tensor_error_text())
    for name, (dtype, a) in arrays.items():
        t = lib.nn_safetensors_get(ctypes.c_void_p(reader), name.encode())
        check(lib.tensor_dtype(ctypes.c_void_p(t)) == dtype and elements(t, a) == a.tobytes(), "safetensors " + name)
    lib.nn_safetensors_close(ctypes.c_void_p(reader))
    texts = (ctypes.c_char_p * len(arrays))(*(name.encode() for name in arrays))
    tensors = (ctypes.c_void_p * len(arrays))(*(ours(a, dtype) for dtype, a in arrays.values()))
    t = ctypes.c_void_p(lib.nn_safetensors_format(texts, tensors, len(arrays), None, 0))
    file = ctypes.string_at(lib.tensor_data(t), lib.tensor_numel(t))
    begin = 8 + int.from_bytes(file[:8], "little")
    entries = json.loads(file[8:begin])
    for name, (_, a) in arrays.items():
        e = entries[name]
        first, end = e["data_offsets"]
        check(e["dtype"] == name and e["shape"] == list(a.shape) and file[begin + first:begin + end] == a.tobytes(),
              "safetensors that was written: " + name)


def torch_files():
    if torch is None:
        print("skipped 1 test of files of torch.save: no torch")
        return
    path = os.path.join(folder, "all.pt")
    want = {name: torch.from_numpy(rule(name)) for name in NAMES}
    want["bf16"] = torch.tensor([[1.5, -2.0, 3e38], [0.1, 0.0, -1e-30]]).to(torch.bfloat16)
    want["turned"] = want["f8"].t()
    torch.save(want, path)
    file = lib.kit_torch_open(path.encode())
    check(file, lib.tensor_error_text())
    for name, x in want.items():
        t = lib.kit_torch_get(ctypes.c_void_p(file), name.encode())
        x = x.contiguous()
        bits = (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()
        dtype = 7 if name == "bf16" else OURS["f8" if name == "turned" else name]
        check(lib.tensor_dtype(ctypes.c_void_p(t)) == dtype and elements(t, bits) == bits.tobytes(), name + " in all.pt")
    lib.kit_torch_close(ctypes.c_void_p(file))
    # Tensors of every shape, and several that look into one storage.
    base = torch.arange(120.0).reshape(2, 3, 4, 5)
    parts = [base, base[1], base[:, 1:, ::2], base.permute(3, 1, 0, 2), base[1, 2, 3, 4], base[:, :0], base[..., 4:]]
    every = {"%s.%d" % (name, k): torch.from_numpy(shaped(name, s).copy()) for name in NAMES for k, s in enumerate(SHAPES)}
    torch.save(dict(every, parts=parts), path)
    file = ctypes.c_void_p(lib.kit_torch_open(path.encode()))
    check(lib.kit_torch_count(file) == len(every) + len(parts), "tensors in all.pt")
    for name, x in list(every.items()) + [("parts.%d" % k, x) for k, x in enumerate(parts)]:
        check(is_array(lib.kit_torch_get(file, name.encode()), x.numpy()), name + " in all.pt")
    lib.kit_torch_close(file)


files()
array_shapes()
safetensors()
torch_files()
dlpack_numpy()
dlpack_shapes()
dlpack_torch()
check(lib.tensor_error_code() == 0, lib.tensor_error_text())
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed != 0)
