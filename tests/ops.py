# ops.py - reads ops.def as text, for the writers of fixtures and tables and for the benchmarks
#
#   python3 tests/ops.py align      rewrites the file with the columns of its blocks in line
#   python3 tests/ops.py            whether the file is well formed; with PyTorch also whether every call that it
#                                   gives for PyTorch runs on its cases and on the inputs to time
#
# The form of a row and the words of a case: the head of ops.def.
import math
import os
import re
import sys

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.def")
FAMILIES = {
    "UNARY": "name twins args cases lo hi dtypes reference integers ulp torch",
    "BINARY": "name twins args cases lo hi dtypes reference integers torch",
    "TERNARY": "name twins args cases lo hi dtypes reference integers torch",
    "REF": "name twins form args cases dtypes reference flags time torch",
    "PAIRS": "name args cases reference indices time torch",
    "OP": "name twins form args cases time torch",
    "INSIDE": "name call cases dtypes reference flags",
    "ROW": "name why",
    "SHAPES": "name cases",
    "SKIP": "name test why",
    "NOT_OPS": "why names",
}
OPS = ("UNARY", "BINARY", "TERNARY", "REF", "PAIRS", "OP")
OPERANDS = {"UNARY": 1, "BINARY": 2, "TERNARY": 3}
TWINS = {"ONLY": (), "HERE": ("_",), "NUMBER": ("_scalar",), "ALL": ("_", "_scalar", "_scalar_")}
FORMS = ("ONE", "ONE_N", "PAIR", "AS", "MANY")
TESTS = ("FIXTURE", "GRADIENT", "LAYOUT", "DTYPE", "AUTOCAST", "MEMORY", "BOUNDS", "DEVICE", "TIME", "VALUE", "MISUSE")


def split(text, at=","):
    """The parts of text between commas that no bracket and no string holds."""
    parts, depth, quoted, part = [], 0, False, ""
    for c in text:
        if c == '"':
            quoted = not quoted
        if not quoted:
            depth += (c in "([{") - (c in ")]}")
            if c == at and depth == 0:
                parts.append(part.strip())
                part = ""
                continue
        part += c
    return parts + [part.strip()]


class Row:
    def __init__(self, family, columns, line):
        names = FAMILIES[family].split()
        if len(columns) != len(names):
            raise SystemExit(f"ops.def:{line}: {family} has {len(names)} columns, here are {len(columns)}: {columns[0]}")
        self.family, self.line = family, line
        self.twins, self.form, self.time, self.torch = "ONLY", "PAIR" if family == "PAIRS" else "ONE", "", ""
        for name, column in zip(names, columns):
            setattr(self, name, column[1:-1] if column[:1] == '"' else column)

    def names(self):
        """The function and its twins: add, add_, add_scalar, add_scalar_."""
        return [self.name] + [self.name + twin for twin in TWINS[self.twins]]


def read(path=FILE):
    """-> the rows of the file, in its order."""
    rows = []
    with open(path) as f:
        text = f.read()
    for m in re.finditer(r"^(%s)\(" % "|".join(FAMILIES), text, re.M):
        depth, quoted, k = 1, False, m.end()
        while depth:
            c = text[k]
            if c == '"':
                quoted = not quoted
            depth += 0 if quoted else (c == "(") - (c == ")")
            k += 1
        body = re.sub(r"\s*\n\s*", " ", text[m.end():k - 1])
        body = re.sub(r'"\s+"', "", body)                   # strings over several lines
        rows.append(Row(m.group(1), split(body), text.count("\n", 0, m.start()) + 1))
    return rows


ROWS = read()
SHAPES = {r.name: r.cases.split(" ; ") for r in ROWS if r.family == "SHAPES"}
OF = {name: r for r in ROWS if r.family in OPS for name in r.names()}
SKIPS = {(name, r.test): r.why for r in ROWS if r.family == "SKIP" for name in r.name.split()}


# ---- cases ----

class Numbers(list):
    """Numbers of a case; those that are not given are 0."""
    def __getitem__(self, k):
        return list.__getitem__(self, k) if isinstance(k, slice) or -len(self) <= k < len(self) else 0


class Case:
    """inputs: words; i, f, s: the arguments that are no tensors; options: the rest."""
    def __init__(self, text):
        self.text, self.inputs, self.i, self.f, self.s, self.options = text, [], Numbers(), Numbers(), "", {}
        for word in text.split():
            key, value = word.split("=", 1) if re.match(r"[a-z]+=", word) else ("", word)
            if key == "i":
                self.i = Numbers(int(v) for v in value.split(","))
            elif key == "f":
                self.f = Numbers(int(v) if re.match(r"-?\d+$", v) else float(v) for v in value.split(","))
            elif key == "s":
                self.s = value.replace("_", " ")
            elif key:
                self.options[key] = value
            else:
                self.inputs.append(value)


def cases(row, every=False):
    """The cases of an op: of each @list its first shape, or every one."""
    out = []
    for text in row.cases.split(" ; "):
        m = re.match(r"@(\w+)(.*)", text)
        shapes = SHAPES[m.group(1)] if m else [""]
        for shape in shapes if every else shapes[:1]:
            case = Case(shape + (m.group(2) if m else text))
            if not case.inputs and row.family in OPERANDS:
                letter = "z" if row.dtypes in ("INTEGERS", "SHIFTS") else ""
                case.inputs = [letter + "3x4"] * OPERANDS[row.family]
            out.append(case)
    return out


def timed(row):
    """The inputs and arguments to time, or None."""
    case = cases(row)[-1]
    if row.time:
        return Case(row.time)
    if row.family in OPERANDS:
        case.inputs = [re.sub(r"[0-9.x]+$", "1024x1024", word) for word in case.inputs]
        return case
    return None


STEP = (37, 53, 71, 19, 29, 43, 61, 83)


def tensor(word, k, row=None, dtype=None, large=False):
    """The k-th input of a case, as the tests in C make it."""
    import torch
    if word == "-":
        return None
    dtype = dtype or torch.float32
    m = re.match(r"([a-z]*)([0-9x.]*)(?:<(\d+))?(?:[:,](.*))?$", word)
    letters, dims, bound, values = m.groups()
    if letters == "l" and (values is None or ":" not in word):         # one dim
        values = word[1:]
        data = [int(v) for v in values.split(",")]
        return torch.tensor(data, dtype=torch.int64)
    shape = [] if dims in (".", "") else [int(d) for d in dims.split("x")]
    if letters == "l":
        return torch.tensor([int(v) for v in values.split(",")], dtype=torch.int64).reshape(shape)
    n = math.prod(shape)
    if large:
        wave = torch.rand(n, dtype=torch.float64) * 101 if n else torch.zeros(0, dtype=torch.float64)
    else:
        wave = torch.arange(n, dtype=torch.float64) * STEP[k % 8] + 17 * k + 5
        wave = wave % 101
    if letters == "k":
        return (wave.floor().long() % max(1, int(bound or 10))).reshape(shape) if n else torch.zeros(shape, dtype=torch.int64)
    if letters == "m":
        return (wave.floor().long() % 3 == 1).reshape(shape)
    x = -1 + (wave + 0.3 + 0.07 * (k % 8)) / 50.5
    if letters == "z":
        if dtype.is_floating_point:
            dtype = torch.int64
        x = (wave.floor() % 8) - (0 if dtype in (torch.uint8, torch.bool) else 1) * (k == 0) * 3
        return x.to(dtype).reshape(shape)
    if row is not None and hasattr(row, "lo") and "p" not in letters:
        x = float(row.lo) + (float(row.hi) - float(row.lo)) * (x + 1) / 2
    if "p" in letters:
        x = 0.5 + 0.4 * x
    if "q" in letters:
        x = 1.5 + 0.4 * x
    x = x.reshape(shape)
    if "o" in letters:
        x = x.sort(-1).values if shape else x
    if "s" in letters:
        x = x @ x.mT / shape[-1] + torch.eye(shape[-1], dtype=torch.float64)
    if "r" in letters:
        x = x + shape[-1] * torch.eye(shape[-1], dtype=torch.float64)
    return x.to(dtype)


def is_data(word):
    """Whether an input holds data, whose dtype a test may choose."""
    return word != "-" and word[0] not in "klm"


# ---- PyTorch's call ----

def stem(name):
    for tail, to in (("_scalar_", "_"), ("_scalar", ""), ("_dims", ""), ("_dim", "")):
        if name.endswith(tail):
            return name[:-len(tail)] + to
    return name


def resolve(name):
    """The function of PyTorch with our name."""
    import torch
    import torch.nn.functional as F
    name = stem(name)
    if name.startswith("linalg_"):
        return "torch.linalg." + name[7:]
    if name.endswith("_"):
        return "torch.Tensor." + name
    if hasattr(F, name) and not hasattr(torch, name):
        return "F." + name
    return ("torch." if hasattr(torch, name) else "torch.Tensor.") + name


def argument(text):
    """One argument of the call in C, as Python has it."""
    if text.startswith("RED("):
        return "reduction=R[i[%s]]" % text[4:-1]
    m = re.match(r"\.(\w+) = (.*)$", text)
    if m:
        return m.group(1) + "=" + argument(m.group(2))
    for pattern, to in ((r"COPY$", "a"), (r"([A-D])$", lambda m: m.group(1).lower()), (r"a->in\[(\d)\]$", r"x[\1]"),
                        (r"\(int\)I\((\d+)\)$", r"bool(i[\1])"), (r"[IZ]\((\d+)\)$", r"i[\1]"), (r"F\((\d+)\)$", r"f[\1]"),
                        (r"DIMS$", "*i"), (r"REST$", "i[1:]"), (r"a->s$", "s"), (r"NULL$", "None"),
                        (r"(-?\d[\d.]*)$", r"\1"), (r"LIST$", "x")):
        m = re.match(pattern, text)
        if m:
            return to(m) if callable(to) else m.expand(to)
    raise ValueError("no meaning in Python of " + text)


def python(row, name=None):
    """PyTorch's call as a Python expression in x (inputs; the first four a b c d), i, f, s; "" if it has none."""
    name = name or row.name
    number, here = "_scalar" in name[len(row.name):], name != row.name and name.endswith("_")
    if row.torch == "-":
        return ""
    if re.match(r"(torch|F)[\w.]*$", row.torch):
        function, text = row.torch, ""
    else:
        function, text = "", row.torch
    if not text:
        if row.form in ("AS", "MANY"):
            raise ValueError("the call for PyTorch is missing")
        arguments = [argument(t) for t in split(row.args[1:-1])]
        arguments = [t for t in arguments if t]
        if number:
            arguments = ["a", "f[0]"]
        text = "%s(%s)" % (function or resolve(row.name), ", ".join(arguments))
    elif number:
        text = "%s(a, f[0])" % resolve(row.name)
    if here:
        m = re.match(r"(?:torch|F)\.(?:Tensor\.)?(\w+)\(", text)
        text = "torch.Tensor." + m.group(1) + "_(" + text[m.end():] if m else text
    return text


def environment():
    import torch
    import torch.nn.functional as F

    def interpolate(a, i, f):
        modes = ("bilinear", "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area")
        size = [n for n in i[3:6] if n]
        corners = bool(i[1]) if i[0] in (0, 3, 4, 5, 6) else None
        return F.interpolate(a, size or None, f[0] or None, modes[i[0]], corners, antialias=bool(i[6]))
    dtypes = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
              "bool": torch.bool, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "i16": torch.int16}
    return {"torch": torch, "F": F, "math": math, "N": dtypes, "R": ("mean", "sum", "none", "batchmean"),
            "interpolate": interpolate}


def call(text, x, case, scope):
    """The value of PyTorch's call on the inputs x."""
    a, b, c, d = (list(x) + [None] * 4)[:4]
    return eval(text, dict(scope, x=list(x), a=a, b=b, c=c, d=d, i=case.i, f=case.f, s=case.s))


# ---- whether the file is well formed ----

def check():
    faults, seen = [], {}
    for row in ROWS:
        where = f"ops.def:{row.line}: {row.family}({row.name if hasattr(row, 'name') else ''})"
        if row.family in OPS:
            if row.twins not in TWINS or row.form not in FORMS:
                faults.append(f"{where}: no such twins or form: {row.twins}, {row.form}")
            for name in row.names() if row.twins in TWINS else []:
                if name in seen:
                    faults.append(f"{where}: {name} is in line {seen[name]} too")
                seen[name] = row.line
            for text in row.cases.split(" ; "):
                m = re.match(r"@(\w+)", text)
                if m and m.group(1) not in SHAPES:
                    faults.append(f"{where}: no SHAPES({m.group(1)})")
            if row.torch != "-":
                try:
                    compile(python(row), row.name, "eval")
                except (SyntaxError, ValueError, ImportError) as e:
                    faults.append(f"{where}: {e}")
        if row.family == "SKIP":
            if row.test not in TESTS:
                faults.append(f"{where}: no such test: {row.test}")
            if not row.why:
                faults.append(f"{where}: no reason")
    for name, _ in SKIPS:
        if name not in OF:
            faults.append(f"SKIP({name}): no such op")
    return faults


def try_all():
    import torch
    scope, faults, n = environment(), [], 0
    torch.manual_seed(1)
    for row in ROWS:
        if row.family not in OPS or not python(row):
            continue
        lists = [(case, False) for case in cases(row)] + ([(timed(row), True)] if timed(row) else [])
        for case, large in lists:
            n += 1
            try:
                call(python(row), [tensor(w, k, row, None, large) for k, w in enumerate(case.inputs)], case, scope)
            except Exception as e:
                faults.append("%s, %s %s: %s: %s" % (row.name, "to time" if large else "case", case.text, python(row),
                                                     str(e).split("\n")[0][:120]))
    print(f"{n} calls of PyTorch tried")
    return faults


# ---- columns in line ----

WIDEST = 40                                                 # a wider column does not move those behind it


def align(lines, head):
    """Rows of one family under each other: columns as wide as their widest one, but for the very wide. head: the comment
    above with the columns' names, two blanks between them. -> the head, the rows"""
    rows = [split(line[line.index("(") + 1:line.rindex(")")]) for line in lines]
    widths = [max([len(r[k]) for r in rows if len(r[k]) <= WIDEST] or [0]) for k in range(len(rows[0]))]
    out = []
    for line, row in zip(lines, rows):
        text, late = line[:line.index("(") + 1], 0
        for column, width in zip(row[:-1], widths):
            room = width - len(column) - late
            late = max(0, -room)
            text += column + ", " + " " * max(0, room)
        out.append(text + row[-1] + ")")
    title, at = "// ", len(lines[0][:lines[0].index("(") + 1])
    for name, width in zip(re.split(r"\s{2,}", head[2:].strip()), widths):
        if title != "// ":
            title = title.ljust(max(at, len(title) + 2))
        title += name
        at += width + 2
    return title, out


def align_file():
    with open(FILE) as f:
        lines = f.read().split("\n")
    out, k = [], 0
    while k < len(lines):
        m = re.match(r"(UNARY|BINARY|TERNARY|REF|PAIRS|INSIDE|OP)\(.*\)$", lines[k])
        n = k
        while m and n < len(lines) and re.match(m.group(1) + r"\(.*\)$", lines[n]):
            n += 1
        if m and out[-1].startswith("// "):
            out[-1], rows = align(lines[k:n], out[-1])
            out += rows
        else:
            out.append(lines[k])
            n = k + 1
        k = max(n, k + 1)
    with open(FILE, "w") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    if sys.argv[1:] == ["align"]:
        align_file()
        sys.exit(0)
    wrong = check()
    try:
        import torch
        wrong += [] if wrong else try_all()
    except ImportError:
        print("without PyTorch: its calls are not tried")
    for line in wrong:
        print(line)
    ops = [r for r in ROWS if r.family in OPS]
    print(f"{len(ops)} rows, {len(OF)} functions, {len(SKIPS)} skips; {len(wrong)} faults")
    sys.exit(bool(wrong))
