# differential.sh - random programs over every public function, run with each instruction set, the reference, 3
# threads and the mirror device, and in PyTorch (tests/differential/machine.c)
#
#   sh tests/differential.sh                    the suite's share: a fixed seed, without Python
#   sh tests/differential.sh seed N [COUNT]     COUNT programs from seed N on, with PyTorch where it is installed
#   sh tests/differential.sh beside N [COUNT]   COUNT programs from seed N on, each once and in PyTorch alone
#   sh tests/differential.sh show N             that of one seed
#   sh tests/differential.sh replay FILE        programs as text
B=${B:-build}
CC=${CC:-cc}
out=$B/differential
mkdir -p "$out"

# Every public function, from the prototypes outside of the shared region.
awk '
    FNR == 1 { shared = 0 }
    /^\/\/ >>(nn-)?shared / { shared = 1 }
    shared { next }
    /^TENSOR_API/ && !/\(/ { begun = $0 " "; next }
    begun != "" { $0 = begun $0; begun = "" }
    /^TENSOR_API [^(]*[ *](tensor|nn)_[a-zA-Z0-9_]+\(/ {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        if (name !~ /^(tensor|nn)__/ && !(name in seen)) print "    \"" name "\","
        seen[name] = 1
    }
    BEGIN { print "static const char *const public_names[] = {" }
    END { print "};" }' tensor.h tensor_nn.h >"$out/public.h.new"
cmp -s "$out/public.h.new" "$out/public.h" || mv "$out/public.h.new" "$out/public.h"

${MAKE:-make} -s "$B/tests/libtensor.a" CC="$CC" B="$B" >&2 || { echo "0 passed, 1 failed"; exit 1; }
$CC -std=c99 -Wall -Wextra ${CFLAGS:--O1} -pthread -DTENSOR_ALL_PASSES -I. -I"$out" tests/differential/machine.c \
    "$B/tests/libtensor.a" -lm -o "$out/machine" || { echo "0 passed, 1 failed"; exit 1; }

export TORCH_SIDE=tests/differential/torch_side.py
case $1 in
seed) "$out/machine" check "$2" "${3:-2000}" torch ;;
beside) "$out/machine" beside "$2" "${3:-10000}" ;;
show) "$out/machine" show "$2" torch ;;
replay) "$out/machine" replay "$2" torch ;;
*) "$out/machine" check 1 "${COUNT:-1200}" ;;
esac
