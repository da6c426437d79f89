"""Shows tensors in gdb, on the host, without calling the program: in the middle of a forward pass, or of a core file.

    gdb -x examples/debug/gdb_tensor.py build/program
    (gdb) print x             tensor f32 [2, 3] by relu at net.c:41 = {0.5, 0, 1.25, ...}
    (gdb) tensor x            the values in rows; tensor x 100: at most so many
    (gdb) print *x            the header as it is

The program must know the layout of a header: compile the implementation with -g (make lib CFLAGS='-g -O2'), or compile
one file of the program with -g -DTENSOR_BACKEND; it must declare a variable of type tensor_t *.
"""
import struct

import gdb

FORMAT = {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "U8": "B", "BOOL": "?", "F16": "e", "BF16": "H", "I8": "b",
          "I16": "h"}
IS_DEAD, IS_POISON = 0x7E50DEAD, 0x7E50BAD0


NO_LAYOUT = "unknown layout: compile the implementation with -g, or a file of the program with -g -DTENSOR_BACKEND"


def text(pointer):
    return pointer.string() if int(pointer) else ""


def has_layout(kind):
    """Whether the debugger knows the members of tensor_t."""
    try:
        return any(f.name == "state" for f in kind.strip_typedefs().fields())
    except TypeError:
        return False


class Tensor:
    """What is in a header. problem is None, or why there are no values."""
    def __init__(self, value):
        self.problem, self.dims, self.name = None, [], "?"
        if int(value) == 0:
            self.problem = "NULL"
            return
        t = value.dereference()
        if not has_layout(t.type):
            self.problem = NO_LAYOUT
            return
        state = int(t["state"])
        if state == IS_DEAD:
            self.problem = "dead: its scope ended, or it was freed"
        elif state == IS_POISON:
            self.problem = "poison: a call failed, see tensor_error_text()"
        if self.problem:
            return
        names = {f.enumval: f.name for f in gdb.lookup_type("tensor_dtype_t").strip_typedefs().fields()}
        self.name = names[int(t["dtype"])].replace("TENSOR_", "")
        n = int(t["ndim"])
        self.dims = [int(t["dims"][k]) for k in range(n)]
        self.strides = [int(t["strides"][k]) for k in range(n)]
        self.offset, self.op = int(t["offset"]), text(t["op"])
        self.call, _, self.site = text(t["site"]).rpartition("\x01")      # tensor_mul_scalar, net.c:41
        self.recorded = int(t["node"]) != 0
        self.data = int(t["storage"].dereference()["data"]) if int(t["storage"]) else 0
        if int(t["device"]):
            self.problem = "on device %d" % (int(t["device"]) - 1)

    def kind(self):
        call = self.call[:-2] if self.call.endswith("_n") else self.call        # tensor_randn calls tensor_randn_n
        made = call.replace("tensor_", "", 1) or self.op            # the call of the program, else the op inside
        made = " by " + made if made else ""
        return "tensor %s [%s]%s%s%s" % (self.name.lower(), ", ".join(map(str, self.dims)), made,
                                         " at " + self.site if self.site else "", ", recorded" if self.recorded else "")

    def element(self, index):
        """The value at a list of indices."""
        code = FORMAT[self.name]
        at = self.offset + sum(i * s for i, s in zip(index, self.strides))
        size = struct.calcsize(code)
        data = gdb.selected_inferior().read_memory(self.data + at * size, size).tobytes()
        if self.name == "BF16":
            return struct.unpack("<f", b"\0\0" + data)[0]
        return struct.unpack("<" + code, data)[0]

    def show(self, index, left, depth=0):
        """Nested rows of at most left[0] elements."""
        k = len(index)
        if k == len(self.dims):
            left[0] -= 1
            v = self.element(index)
            return "%.6g" % v if isinstance(v, float) else str(v).lower()
        parts = []
        for i in range(self.dims[k]):
            if left[0] <= 0:
                parts.append("...")
                break
            parts.append(self.show(index + [i], left, depth + 1))
        line = ", " if k + 1 == len(self.dims) else ",\n" + " " * (depth + 1)
        return "{" + line.join(parts) + "}"


def describe(value, most, rows):
    t = Tensor(value)
    if not t.dims and t.problem and t.name == "?":
        return "tensor (%s)" % t.problem
    if t.problem:
        return "%s (%s)" % (t.kind(), t.problem)
    shown = t.show([], [most])
    return t.kind() + (":\n" + shown if rows else " = " + shown.replace("\n", "").replace(",{", ", {"))


class Printer:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        try:
            return describe(self.value, 8, False)
        except gdb.MemoryError:
            return "(tensor_t *) %#x, which is not a tensor" % int(self.value)


def is_tensor(kind):
    kind = kind.strip_typedefs()
    return kind.code == gdb.TYPE_CODE_PTR and kind.target().strip_typedefs().tag == "tensor_t"


class Command(gdb.Command):
    """tensor EXPRESSION [MOST]: shape, dtype, where it was made, and its values in rows."""
    def __init__(self):
        super().__init__("tensor", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        words = argument.rsplit(None, 1)
        most = 1000
        if len(words) == 2 and words[1].isdigit():
            argument, most = words[0], int(words[1])
        value = gdb.parse_and_eval(argument)
        if not is_tensor(value.type):
            raise gdb.GdbError("%s is not a tensor_t *" % argument)
        print(describe(value, most, True))


gdb.pretty_printers.append(lambda value: Printer(value) if is_tensor(value.type) else None)
Command()
