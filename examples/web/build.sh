# build.sh - makes the page that trains in the browser: make web
#
# Debian has what it takes as clang, lld, wasi-libc and libclang-rt-dev-wasm32. It leaves in $B/web
#   index.html, demos.wasm   for any file server
#   alone.html               the same in one file, which also opens from a folder
B=${B:-build}
CLANG=${CLANG:-clang}
from=examples/web
to=$B/web
mkdir -p "$to"

# -Oz without the compiler's own vectors: the kernels have theirs, and it is a quarter smaller. Functions that are not always
# inline stay calls, which saves another 4 KB. Every browser with vectors has the three smaller extensions too.
$CLANG --target=wasm32-wasi -mexec-model=reactor -msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext \
    -std=gnu99 -Oz -fno-vectorize -fno-slp-vectorize -mllvm -inline-threshold=-60 \
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Werror \
    -DTENSOR_ISA=wasm -DTENSOR_NO_THREADS -DTENSOR_NO_STDIO -DTENSOR_NO_CALL_SITES -I. \
    -Wl,--gc-sections,--strip-all,-O2,--compress-relocations "$from/demos.c" -lm -o "$to/demos.wasm" || exit 1

base64 -w 0 "$to/demos.wasm" >"$to/wasm.txt" || exit 1
# page NAME WASM: the page with the files in the place of their names, that of a C file as text.
page() {
    awk -v from="$from/" -v wasm="$2" -v size=$(($(wc -c <"$to/demos.wasm") / 1000)) '
        function put(path, as_text,   line, first) {
            for (first = 1; (getline line < path) > 0; first = 0) {
                if (as_text) { gsub(/&/, "\\&amp;", line); gsub(/</, "\\&lt;", line) }
                printf "%s%s", first ? "" : "\n", line
            }
            close(path)
        }
        { sub(/@SIZE@/, size) }
        match($0, /@[a-z]+\.(c|js)@|@WASM@/) {
            name = substr($0, RSTART + 1, RLENGTH - 2)
            printf "%s", substr($0, 1, RSTART - 1)
            if (name == "WASM") { if (wasm != "") put(wasm, 0) } else put(from name, name ~ /c$/)
            print substr($0, RSTART + RLENGTH)
            next
        }
        { print }' "$from/page.html" >"$to/$1" || exit 1
}
page index.html ""
page alone.html "$to/wasm.txt"
rm -f "$to/wasm.txt"
echo "$to/index.html with demos.wasm, $(($(wc -c <"$to/demos.wasm") / 1000)) KB; $to/alone.html"
