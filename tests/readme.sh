# readme.sh - compiles every ```c and ```cpp block of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md with
# warnings as errors. A block with main() is run in this folder, and what it prints is compared (tests/same.awk) with
# the ```text block right after it. A block that begins with #include, static, typedef or struct stands at file scope, any other is the body of a
# function. The C column of the table | Python | C | is compiled as well and run, a block of its own for each row.
# Every link to a place in this repository must lead somewhere, and every room and name of the library that a page
# names must exist. DOCS="docs/guide.md" takes these files alone.
# Ends with "N passed, N failed".
B=${B:-build}
R=$B/readme
CC=${CC:-cc}
CXX=${CXX:-c++}
warn="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -O1 -I. -Iexamples -pthread"
passed=0
failed=0
rm -rf "$R"
mkdir -p "$R"

for page in ${DOCS:-README.md CONTRIBUTING.md CHANGELOG.md docs/*.md}; do
    name=$(basename "$page" .md)
    awk -v dir="$R/$name" '
        /^```(c|cpp)$/ { n++; kind = substr($0, 4); file = sprintf("%s-%02d.%s", dir, n, kind); on = 1; next }
        /^```text$/ && after { file = sprintf("%s-%02d.want", dir, n); on = 1; after = 0; next }
        /^```$/ && on { on = 0; after = file !~ /want$/; close(file); next }
        on { print > file; next }
        NF { after = 0 }' "$page"

    # Links: [text](place), without what stands in code; a place may name a heading behind #.
    awk '/^```/ { on = !on; next } !on { gsub(/`[^`]*`/, ""); print }' "$page" | grep -o ']([^)]*)' |
        sed 's/^](//; s/)$//' | grep -v '^https\{0,1\}:' >"$R/links.txt"
    while read -r link; do
        file=${link%%#*}
        to=$(dirname "$page")/$file
        [ -n "$file" ] || to=$page
        good=yes
        [ -e "$to" ] || good=
        case $link in
            *#*)
                heading=${link#*#}
                sed -n 's/^##* //p' "$to" 2>/dev/null | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' | grep -qx "$heading" ||
                    good= ;;
        esac
        if [ -n "$good" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "$page: the link $link leads nowhere"
        fi
    done <"$R/links.txt"
done

# What a page names exists: tags of rooms (>>impl-gate), names of the library. The name of a kernel of a pass is made by
# the preprocessor.
cat tensor*.h tensor*.cu examples/kit/*.h >"$R/library.txt"
for page in ${DOCS:-README.md CONTRIBUTING.md CHANGELOG.md docs/*.md}; do
    grep -oE '>>[a-z0-9-]+' "$page" | sort -u >"$R/tags.txt"
    grep -oE '\b(tensor|nn|TENSOR|NN)_[A-Za-z0-9_]+' "$page" |
        sed -E 's/^(tensor__[fb]_).*/\1/; s/_(scalar|sse2|avx2|avx512|neon|wasm)$//' | grep -vE "^(tensor_entr_?|nn_channel_shuffle)$" |
        sort -u >"$R/names.txt"        # those two: what CONTRIBUTING.md adds as examples
    while read -r tag; do
        if grep -qE "^// $tag( |\$)" "$R/library.txt"; then passed=$((passed + 1))
        else failed=$((failed + 1)); echo "$page: there is no room $tag"; fi
    done <"$R/tags.txt"
    while read -r name; do
        if grep -qF "$name" "$R/library.txt"; then passed=$((passed + 1))
        else failed=$((failed + 1)); echo "$page: there is no $name"; fi
    done <"$R/names.txt"
done

# The first screen of README.md and each of its sections fit a terminal.
awk 'function section() { if (n > 60) print "README.md: " n " lines, at most 60: " name; n = 0 }
    FNR == 1 { name = $0 } /^```/ { code = !code } !code && /^## / { section(); name = $0 } { n++ } END { section() }' \
    README.md >"$R/long.txt"
if [ -s "$R/long.txt" ]; then failed=$((failed + 1)); cat "$R/long.txt"; else passed=$((passed + 1)); fi

# Each row may hide the names that stand for its own.
awk -v dir="$R" '
    BEGIN {
        print "#include \"tensor_nn.h\"\n#include <stdio.h>"
        print "#pragma GCC diagnostic ignored \"-Wshadow\""
        print "#pragma GCC diagnostic ignored \"-Wunused-variable\""
        print "int main(void) {"
        print "    tensor_t *x = tensor_randn(4, 4), *y = tensor_randn(4, 4), *k = tensor_zeros_of(TENSOR_I64, 4);"
        print "    tensor_t *w = tensor_requires_grad_(tensor_ones(3), 1);"
        print "    nn_module_t *net = nn_linear(4, 4);"
        print "    nn_optimizer_t *opt = nn_adamw(net, .lr = 1e-3);"
    }
    $0 == "| Python | C |" { on = 1 }
    !/^\|/ { on = 0 }
    on && /^\| `.*` \|$/ {
        sub(/^.*` \| `/, "")
        sub(/` \|$/, "")
        gsub(/"net.safetensors"/, "\"" dir "/net.safetensors\"")
        printf "    { %s\n    if (!tensor_ok()) printf(\"%%s\\n\", tensor_error_text()); }\n", $0
        rows++
    }
    END {
        print "    return tensor_shutdown();\n}"
        if (rows < 46) print "#error \"fewer than 46 rows\""
    }' README.md docs/pytorch.md >"$R/table.c"

for f in "$R"/*.c "$R"/*.cpp; do
    [ -f "$f" ] || continue
    id=${f%.*}
    compile="$CC -std=c99 -Wstrict-prototypes"
    case $f in
        *.cpp)
            compile="$CXX -std=c++20"
            command -v "$CXX" >/dev/null 2>&1 || { echo "no $CXX: $f is not tested"; continue; } ;;
    esac
    if grep -q 'main(' "$f"; then
        objects=
        grep -q 'define TENSOR_IMPLEMENTATION' "$f" || objects=$B/libtensor.a
        # shellcheck disable=SC2086
        $compile $warn "$f" $objects -lm -o "$id.out" >"$id.err" 2>&1 && "$id.out" >"$id.got" 2>>"$id.err" &&
            { [ ! -f "$id.want" ] || awk -f tests/same.awk "$id.want" "$id.got" >>"$id.err"; }
    else
        whole=$id-whole.${f##*.}
        {
            printf '#include "tensor_nn.h"\n#include <stdio.h>\n'
            case $(head -n 1 "$f") in
                '#include'* | static* | typedef* | struct*) cat "$f" ;;
                *) printf 'void snippet(void);\nvoid snippet(void) {\n'; cat "$f"; printf '}\n' ;;
            esac
        } >"$whole"
        # shellcheck disable=SC2086
        $compile $warn -Wno-unused-variable -Wno-unused-function -c "$whole" -o "$id.o" >"$id.err" 2>&1
    fi
    if [ $? -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "block $(basename "$id") (page and number): $(head -n 1 "$f")"
        head -n 20 "$id.err" | sed 's/^/    /'
    fi
done
# The examples of docs/ops.md as a C program: its calls compile as they stand there and give what stands there. A digit
# of the last decimal may differ.
if [ -z "$DOCS" ]; then
    grep '^=> ' docs/ops.md >"$R/examples.want"
    if "$B/tests/docs" program >"$R/examples.c" &&
        $CC -std=c99 -Wall -Wextra -Werror -O0 -I. -pthread "$R/examples.c" "$B/libtensor.a" -lm -o "$R/examples.out" \
            >"$R/examples.err" 2>&1 && "$R/examples.out" >"$R/examples.got" 2>>"$R/examples.err" &&
        [ "$(wc -l <"$R/examples.want")" -ge 590 ] &&
        awk -v near=0.00015 -f tests/same.awk "$R/examples.want" "$R/examples.got" >>"$R/examples.err"; then
        passed=$((passed + $(wc -l <"$R/examples.want")))
    else
        failed=$((failed + 1))
        echo "the examples of docs/ops.md (after $B/tests/docs program):"
        head -n 20 "$R/examples.err" | sed 's/^/    /'
    fi
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
