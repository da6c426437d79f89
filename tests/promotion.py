# Writes promotion.h: result dtypes of torch for all dtype pairs.  python3 promotion.py > promotion.h
import torch, warnings
warnings.simplefilter("ignore")
dt = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16,
      torch.int8, torch.int16]
ch = "fdilubhgcs"
def code(f):
    try: return ch[dt.index(f().dtype)]
    except Exception: return "x"
def t(d, z, v=1): return torch.ones((), dtype=d) if z else torch.ones(3, dtype=d)
binary = "add atan2 div floor_divide fmod maximum minimum mul pow remainder sub eq ge gt le logical_and logical_or logical_xor lt ne bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift copysign hypot logaddexp logaddexp2 xlogy".split()
unary = "abs acos asin atan ceil cos cosh erf erfc exp exp2 expm1 floor log log10 log1p log2 logsigmoid neg reciprocal relu round rsqrt sigmoid sign silu sin sinh sqrt square tan tanh trunc gelu elu leaky_relu softplus isfinite isinf isnan logical_not bitwise_not clamp clone acosh asinh atanh erfinv lgamma sinc".split()
reduce = "sum mean prod max argmax any all var std norm cumsum logsumexp softmax log_softmax amax matmul".split()
print("""// promotion.h - result dtypes of PyTorch %s, written by tests/promotion.py
//
// f f32, d f64, i i32, l i64, u u8, b bool, h f16, g bf16, c i8, s i16, x refused. A string has the 10 x 10
// pairs (a, b) in the order of tensor_dtype_t, b fastest; four strings a row: a and b with dims, b 0-d,
// a 0-d, both 0-d.
typedef struct promotion_t { const char *op, *pair[4]; } promotion_t;
typedef struct promotion1_t { const char *op, *result; } promotion1_t;
""" % torch.__version__.split("+")[0])
print("static const promotion_t promotion_binary[] = {")
for b in binary:
    f = getattr(torch, b)
    rows = []
    for za, zb in ((0,0),(0,1),(1,0),(1,1)):
        rows.append("".join(code(lambda: f(t(x, za), t(y, zb))) for x in dt for y in dt))
    print('    {"%s",\n    {%s}},' % (b, ",\n     ".join('"%s"' % r for r in rows)))
print("};\n\nstatic const promotion1_t promotion_unary[] = {")
F = torch.nn.functional
for u in unary:
    f = getattr(torch, u) if hasattr(torch, u) and u not in ("gelu",) else getattr(F, u)
    g = (lambda x: torch.clamp(x, 0, 1)) if u == "clamp" else f
    print('    {"%s", "%s"},' % (u, "".join(code(lambda: g(t(x, 0))) for x in dt)))
print("};\n\nstatic const promotion1_t promotion_reduce[] = {")
for u in reduce:
    f = getattr(torch, u)
    if u in ("cumsum","logsumexp","softmax","log_softmax"): g = lambda x: f(x, 0)
    elif u == "matmul": g = lambda x: f(x, x)
    else: g = f
    print('    {"%s", "%s"},' % (u, "".join(code(lambda: g(t(x, 0))) for x in dt)))
print("};")
