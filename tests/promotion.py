# Writes promotion.h: dtypes of PyTorch's results for the ops of ops.def.  python3 tests/promotion.py > tests/promotion.h
import os
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ops
import torch

warnings.simplefilter("ignore")
DTYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16,
          torch.int8, torch.int16]
LETTERS = "fdilubhgcs"
SCOPE = ops.environment()


def code(f):
    try:
        y = f()
        return LETTERS[DTYPES.index((y[0] if isinstance(y, (tuple, list)) else y).dtype)]
    except Exception:
        return "x"


def ones(dtype, zero):
    return torch.ones((), dtype=dtype) if zero else torch.ones(3, dtype=dtype)


rows = [r for r in ops.ROWS if r.family in ops.OPS and ops.python(r)]
print("""// promotion.h - result dtypes of PyTorch %s, written by tests/promotion.py
//
// f f32, d f64, i i32, l i64, u u8, b bool, h f16, g bf16, c i8, s i16, x refused. A string of a pair has the
// 10 x 10 dtypes of (a, b) in the order of tensor_dtype_t, b fastest; four strings a row: a and b with dims,
// b 0-d, a 0-d, both 0-d. Of all ops: all data of the first case in one dtype.
typedef struct promotion_t { const char *op, *pair[4]; } promotion_t;
typedef struct promotion1_t { const char *op, *result; } promotion1_t;
""" % torch.__version__.split("+")[0])
print("static const promotion_t promotion_binary[] = {")
for r in rows:
    if r.family == "BINARY":
        text, case = ops.python(r), ops.cases(r)[0]
        pairs = ["".join(code(lambda: ops.call(text, [ones(x, a), ones(y, b)], case, SCOPE)) for x in DTYPES for y in DTYPES)
                 for a, b in ((0, 0), (0, 1), (1, 0), (1, 1))]
        print('    {"%s",\n    {%s}},' % (r.name, ",\n     ".join('"%s"' % p for p in pairs)))
print("};\n\nstatic const promotion1_t promotion_ops[] = {")
for r in rows:
    text, case = ops.python(r), ops.cases(r)[0]
    if not any(ops.is_data(word) for word in case.inputs):
        continue                                            # its dtype is an argument
    result = "".join(code(lambda: ops.call(text, [ops.tensor(w.lstrip("z"), k, r, d) for k, w in enumerate(case.inputs)], case, SCOPE))
                     for d in DTYPES)
    print('    {"%s", "%s"},' % (r.name, result))
print("};")
