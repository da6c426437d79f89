# readme.sh - compiles every ```c and ```cpp block of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md with
# warnings as errors. A block with main() is run in this folder, and what it prints is compared (tests/same.awk) with
# the ```text block right after it. A block that begins with #include, static, typedef or struct stands at file scope,
# any other is the body of a function. The C column of the table | Python | C | is compiled as well and run, a block of
# its own for each row. No block and no command is left out. Every link to a place in this repository must lead
# somewhere, and every room and name of the library that a page names must exist. docs/paper.md has all claims of
# bench/paper.sh. DOCS="docs/guide.md" takes these files alone.
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

# No block is left out: a fence is c, cpp or the text that a program prints, and a program has such a text. Texts without
# a program are the drawing of internals.md and what make gallery and make docs wrote. Commands are indented: a target of
# the Makefile, or a compiler's line, which is run with the first program of the page.
for page in ${DOCS:-README.md CONTRIBUTING.md CHANGELOG.md docs/*.md}; do
    awk -v page="$page" '
        function untested(why) { print page ", line " FNR ": " why }
        code && !on && NF && !/^```text$/ { untested("the program above has no output"); code = 0 }
        /^```/ {
            if (!on && !/^```(c|cpp|text)$/) { untested("a block that no test looks at: " $0) }
            if (/^```text$/ && !code && page !~ /(gallery|internals|ops)[.]md$/) { untested("a text of no program") }
            if (on != "code" || $0 != "```") { code = 0 }
            on = on ? "" : /^```c/ ? "code" : "text"
            next
        }
        on == "code" && /main\(/ { code = 1 }
        ' "$page" >"$R/untested.txt"
    awk '/^```/ { on = !on } !on && /^    [^ ]/ { sub(/ #.*/, ""); print }' "$page" >"$R/commands.txt"
    first=$(ls "$R/$(basename "$page" .md)"-01.c 2>/dev/null)
    while read -r line; do
        case $line in
            "make "*)
                target=${line#make }
                grep -qE "^([a-z-]+ )*${target%% *}( [a-z-]+)*:" Makefile || echo "$page: there is no $line" ;;
            "cc "*)
                sh -c "$(echo "${line%%&&*}" | sed "s, [a-z]*[.]c , $first ,; s,build/,$B/,; s,-o [a-z]*,-o $R/line.out,; s,^cc,$CC,")" \
                    >"$R/line.err" 2>&1 || { echo "$page: $line"; cat "$R/line.err"; } ;;
            "BEFORE=folder sh "*) [ -e "${line#BEFORE=folder sh }" ] || echo "$page: there is no script of $line" ;;
            "git clone "* | "nvcc "*) ;;        # tests/cuda.sh compiles the .cu
            "x86_64-w64-mingw32-gcc "*) ;;      # tests/windows.sh compiles the chapter's program
            *) echo "$page: a command that no test looks at: $line" ;;
        esac
    done <"$R/commands.txt" >>"$R/untested.txt"
    if [ -s "$R/untested.txt" ]; then failed=$((failed + 1)); cat "$R/untested.txt"; else passed=$((passed + 1)); fi
done

# What a page names exists: tags of rooms (>>impl-gate), names of the library. The name of a kernel of a pass is made by
# the preprocessor. What programs print is not looked at: word_vectors.c prints words in small letters.
cat tensor*.h tensor*.cu examples/kit/*.h >"$R/library.txt"
for page in ${DOCS:-README.md CONTRIBUTING.md CHANGELOG.md docs/*.md}; do
    awk '/^```text$/ { on = 1 } !on { print } /^```$/ { on = 0 }' "$page" >"$R/page.md"
    grep -oE '>>[a-z0-9-]+' "$R/page.md" | sort -u >"$R/tags.txt"
    grep -oE '\b(tensor|nn|TENSOR|NN)_[A-Za-z0-9_]+' "$R/page.md" |
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

# docs/paper.md has each claim of bench/paper.sh; each row was measured or emulated and has a figure and a command that
# exists; times of several turns have their spread, the counts in the head are those of the rows, and the files that the
# page names are there: it is as the script writes it.
if [ -z "$DOCS" ]; then
    grep -oE '^ *(row|tested|shown) [0-9.]+ "[^"$]{12,}' bench/paper.sh | sed 's/^[^"]*"//' >"$R/claims.txt"
    grep -E '^\| [0-9.]+ \| ' docs/paper.md >"$R/paper.txt"
    awk -F ' *[|] *' 'FNR == NR { claim[$0]; next }
        {
            known = 0
            for (c in claim) { if (index($3, c) == 1) { known = seen[c] = 1 } }
            if (!known) { print "docs/paper.md: bench/paper.sh has no claim \"" $3 "\"" }
            if ($5 !~ /^(yes|no)$/ || $6 !~ /^(measured|emulated)$/ || $7 == "") { print "docs/paper.md: not a whole row: " $0 }
            if ($4 !~ /[0-9]/) { print "docs/paper.md: no figure: " $0 }
            if ($7 ~ /bench.micro|hogwild|ranks/ && $4 !~ /[(][0-9.]+-[0-9.]+[)]/) { print "docs/paper.md: no spread: " $0 }
            met[$5]++
            how[$6]++
        }
        END {
            head = sprintf("%d rows: %d met, %d not met; %d measured, %d emulated, 0 not run.", FNR, met["yes"], met["no"],
                how["measured"], how["emulated"])
            while ((getline line <"docs/paper.md") > 0) { if (index(line, head)) { counted = 1 } }
            if (!counted) { print "docs/paper.md: its head does not say " head } for (c in claim) { if (!(c in seen)) { print "docs/paper.md: no row for \"" c "\"" } } }' \
        "$R/claims.txt" "$R/paper.txt" >"$R/paper.err"
    awk -F ' *[|] *' '{ gsub(/`/, "", $7); print $7 }' "$R/paper.txt" | sort -u | sed 's/^[A-Z_]*=[^ ]* //' >"$R/commands.txt"
    while read -r first second _; do
        case $first in
            - | mpirun) ;;
            sh | python3) [ -f "$second" ] || echo "docs/paper.md: there is no $second" ;;
            make) grep -qE "^([a-z-]+ )*$second( [a-z-]+)*:" Makefile || echo "docs/paper.md: there is no make $second" ;;
            build/paper/*) [ -f "bench/${first#build/paper/}.c" ] || echo "docs/paper.md: there is no $first" ;;
            build/tests/* | build/bench/*) [ -f "${first#build/}.c" ] || echo "docs/paper.md: there is no $first" ;;
            *) [ -f "examples/${first#build/}.c" ] || echo "docs/paper.md: there is no $first" ;;
        esac
    done <"$R/commands.txt" >>"$R/paper.err"
    grep -oE '\.\./bench/[a-z0-9./_-]+' docs/paper.md | while read -r file; do
        [ -f "docs/$file" ] || echo "docs/paper.md: there is no $file"
    done >>"$R/paper.err"
    if [ -s "$R/paper.err" ] || [ "$(wc -l <"$R/paper.txt")" -lt 40 ]; then
        failed=$((failed + 1))
        echo "docs/paper.md has $(wc -l <"$R/paper.txt") rows:"
        cat "$R/paper.err"
    else
        passed=$((passed + $(wc -l <"$R/paper.txt")))
    fi
fi

# What bench/paper.sh takes for a figure: nothing of a program that failed, of an op that ran on the CPU, without a
# reference, or of a Hogwild that is fast and wrong. The helpers run by themselves, with programs that print a line.
if [ -z "$DOCS" ]; then
    sed -n '/^# ---- helpers/,/^# ---- programs/p' bench/paper.sh >"$R/helpers.sh"
    (
        P=$R began=0
        # shellcheck disable=SC1091
        . "$R/helpers.sh"
        says() { [ "$2" = "$3" ] || echo "bench/paper.sh: $1: \"$2\", not \"$3\""; }
        : >"$R/rows.md"
        measure good echo "on_the_cpu 0 calls"
        measure cpu echo "on_the_cpu 2 calls"
        measure bad sh -c 'echo "on_the_cpu 0 calls"; exit 3'
        says "a program that succeeds" "$(value good on_the_cpu)" 0
        says "a program that fails" "$(value bad on_the_cpu)$(text bad 's/ .*//p')" ""
        says "all emulated" "$(all_emulated good && echo yes)" yes
        says "an op on the CPU" "$(all_emulated good cpu || echo no)" no
        says "one run failed" "$(all_emulated good bad || echo no)" no
        says "no reference" "$(mark "1 < 2" 1 "")" "not run"
        says "Hogwild" "$(hogwild_mark 1.9 1.4 1.5)" met
        says "Hogwild, slow" "$(hogwild_mark 1.6 1.4 1.5)" "not met"
        says "Hogwild, a point worse" "$(hogwild_mark 1.9 1.4 2.5)" "not met"
        says "Hogwild, both wrong" "$(hogwild_mark 1.9 6 6)" "not met"
        echo 'echo "5 passed, 0 failed"; exit 1' >"$R/fails.sh"
        tested 1 "a test that ends with an error" fails "sh $R/fails.sh"
        says "a test that ends with an error" "$(awk -F ' *[|] *' '{ print $5 }' "$R/rows.md")" no
    ) >"$R/helpers.txt" 2>"$R/helpers.err"
    if [ -s "$R/helpers.txt" ]; then
        failed=$((failed + 1))
        cat "$R/helpers.txt"
    else
        passed=$((passed + 11))
    fi
fi

# The first screen of README.md and each of its sections fit a terminal of 60 lines, a chapter of the guide 80; a
# chapter has a program. Lines of more than 100 characters, in the guide 120, take two.
awk -v most=60 -v wide=100 'function section() {
        if (n > most) { print page ": " n " lines, at most " most ": " name }
        if (page ~ /guide/ && name ~ /^## / && !program) { print page ": no program in " name }
        n = program = 0
    }
    FNR == 1 { if (page) { section(); most = 80; wide = 120 } page = FILENAME; name = $0 }
    /^```/ { code = !code }
    !code && /^## / { section(); name = $0 }
    code && /main\(/ { program = 1 }
    { n += 1 + int((length($0) - 1) / wide) }
    END { section() }' README.md docs/guide.md >"$R/long.txt"
if [ -s "$R/long.txt" ]; then failed=$((failed + 1)); cat "$R/long.txt"; else passed=$((passed + 1)); fi

# The gallery, as make gallery measured it: twelve programs of at most 150 lines, each within a minute.
if [ -z "$DOCS" ]; then
    sed -n 's,^\[\(examples/.*\)\](.*): \([0-9.]*\) s\, [0-9]* MB.$,\1 \2,p' docs/gallery.md >"$R/gallery.txt"
    while read -r program seconds; do
        echo "$program $(wc -l <"$program") $seconds"
    done <"$R/gallery.txt" | awk '{ n++ } $2 > 150 || $3 > 60 { print "docs/gallery.md: " $1 ", " $2 " lines, " $3 " s" }
        END { if (n < 12) print "docs/gallery.md has " n + 0 " programs" }' >"$R/gallery.err"
    if [ -s "$R/gallery.err" ]; then failed=$((failed + 1)); cat "$R/gallery.err"; else passed=$((passed + $(wc -l <"$R/gallery.txt"))); fi
fi

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
# The quickstart's programs with what a new user brings: refused with status 1, a sentence, and no result of a net that
# was not learnt or not saved.
# says CODE TEXT NOT COMMAND..: ends with this status, says TEXT (on either stream) and not NOT.
says() {
    code=$1 text=$2 not=$3
    shift 3
    "$@" >"$R/says.txt" 2>&1
    got=$?
    if [ "$got" -eq "$code" ] && grep -q -- "$text" "$R/says.txt" && ! grep -q -- "$not" "$R/says.txt"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "docs/quickstart.md: $*: status $got, not \"$text\" alone:"
        head -n 5 "$R/says.txt" | sed 's/^/    /'
    fi
}
rent=$(pwd)/$R/quickstart-03.out kinds=$(pwd)/$R/quickstart-04.out
case " ${DOCS:-docs/quickstart.md} " in *" docs/quickstart.md "*)
    flats=examples/data/flats.csv
    rm -rf "$R/elsewhere"
    mkdir -p "$R/elsewhere"
    ln -s "$(pwd)/examples" "$R/elsewhere/examples"
    awk -F, -v OFS=, 'NR > 1 && NR % 4 == 0 { $NF = NR % 8 ? "" : "NA" } { print }' "$flats" >"$R/unlabelled.csv"
    sed '9s/[^,]*$/inf/' "$flats" >"$R/infinite.csv"
    tr , ';' <"$flats" >"$R/semicolons.csv"
    sed 1d "$flats" >"$R/headless.csv"
    sed '7s/^[^,]*/?/' "$flats" >"$R/marks.csv"
    says 0 "^300 rows, 6 inputs" nan "$rent" "$R/unlabelled.csv"
    says 1 "a field is infinite" epoch "$rent" "$R/infinite.csv"
    says 1 "fewer than 10 rows or 2 columns; is the separator a comma" epoch "$rent" "$R/semicolons.csv"
    says 1 "there are numbers where the names" epoch "$rent" "$R/headless.csv"
    says 1 '"?" is not a number' epoch "$rent" "$R/marks.csv"
    says 1 "No such file" epoch "$rent" "$R/none.csv"
    says 1 "rent.safetensors" loaded sh -c 'cd "$1" && exec "$2"' in "$R/elsewhere" "$rent"
    says 1 "kinds.safetensors" loaded sh -c 'cd "$1" && exec "$2"' in "$R/elsewhere" "$kinds"
    if [ -c /dev/full ]; then
        says 1 "rent: stdout cannot be written" row sh -c 'exec "$1" >/dev/full' in "$rent"
        says 1 "kinds: stdout cannot be written" right sh -c 'exec "$1" >/dev/full' in "$kinds"
    else
        echo "skipped 2 tests of a full disk: no /dev/full"
    fi ;;
esac
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
