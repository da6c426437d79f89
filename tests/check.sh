# check.sh - form of the sources: contents against tags, docs of public functions, sizes, characters, symbols.
# Needs sh, awk, nm. Ends with "N passed, N failed".
B=${B:-build}
passed=0
failed=0
headers="tensor.h tensor_nn.h"
for h in tensor_cuda.h tensor_cuda.cu; do if [ -f $h ]; then headers="$headers $h"; fi; done

# result NAME TEXT: passes if TEXT is empty, else shows it.
result() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1:"
        printf '%s\n' "$2" | sed 's/^/    /' | head -n 25
    fi
}

for h in $headers; do
    result "$h: contents and >>tags differ (< contents, > file)" "$(awk '
        /^\/\/ CONTENTS/ { toc = 1; next }
        toc && !/^\/\/   >>/ { toc = 0 }
        toc { for (i = 2; i <= NF; i++) want[++n] = substr($i, 3); next }
        /^\/\/ >>[a-z0-9-]+( |$)/ { got[++m] = substr($2, 3) }
        END {
            for (i = 1; i <= n || i <= m; i++)
                if (want[i] != got[i]) { print i ": < " want[i] "  > " got[i]; exit }
            if (!n) print "no contents"
        }' $h)"
    result "$h: tag or end of section head without its rule of 78 dashes" "$(awk '
        BEGIN { rule = "// "; for (i = 0; i < 78; i++) rule = rule "-" }
        /^\/\/ >>[a-z0-9-]+( |$)/ && before != rule { print FNR ": " $0 }
        /^\/\/ -----/ && $0 != rule { print FNR ": rule of another length" }
        /^\/\/ .*[^- ].* --------------------/ { print FNR ": rule behind text" }
        { before = $0 }' $h)"
    result "$h: tag without MARK:" "$(awk '/^\/\/ >>[a-z0-9-]+( |$)/ && !/MARK: / { print FNR ": " $0 }' $h)"
done

version=$(awk '/^#define TENSOR_VERSION_/ { v = v dot $3; dot = "." } END { print v }' tensor.h)
result "not of version $version" "$(
    for h in $headers; do head -n 1 "$h" | grep -q -- "- v$version -" || echo "$h"; done
    grep -q "^project(tensor VERSION $version " CMakeLists.txt || echo CMakeLists.txt
    [ "$(grep -m 1 '^## ' CHANGELOG.md)" = "## $version" ] || echo CHANGELOG.md
    grep -q "^## Version ${version%.*}\$" README.md || echo README.md)"

# An args struct of tensor_nn.h has its name_defaults(); those of tensor.h are zeros.
result "args structs without name_defaults()" "$(
    for n in $(sed -n 's/^} \([a-z_0-9]*\)_args_t;.*/\1/p' tensor_nn.h); do
        grep -q "^TENSOR_API ${n}_args_t [a-z_0-9]*_defaults(void);\|^TENSOR_API ${n}_args_t\$" tensor_nn.h || echo "$n"
    done)"

# Each public function has its macro that stamps the place of the call, in real time that of a lock too. Those named here
# neither take something of the system nor check what they are given beyond the one tensor or object; or, as the end of a
# thread, leave no error behind.
silent="ok error_code error_text clear_error code_name set_error_handler version shutdown thread_end get_num_threads
    num_processors isa_name profiler_operand profiler_node range_push range_pop autocast_dtype get_default_dtype
    get_default_device ndim shape storage_offset numel dtype device is_contiguous is_poison dtype_name dtype_size
    is_channels_last get_generator requires_grad is_leaf is_inference grad_fn_name grad_enabled set_grad_enabled
    set_detect_anomaly needs_input_grad function_user is_realtime graph_info graph_call graph_operand graph_flops
    graph_memory
    gain num_groups get_lr get_momentum lr_cosine_warmup lr_cosine lr_step lr_exponential lr_linear lr_constant
    lr_polynomial lr_cosine_restarts lr_one_cycle lr_cyclic lr_plateau weighted_random_sampler distributed_sampler
    num_batches safetensors_count safetensors_name safetensors_metadata npz_count npz_name progress_begin progress"
for h in tensor.h tensor_nn.h; do
    result "$h: public function without a macro for its call site" "$(awk -v silent="$(echo $silent)" '
        BEGIN { n = split(silent, list, " "); for (i = 1; i <= n; i++) without[list[i]] = 1 }
        /^TENSOR_API .*[ *](tensor|nn)_[a-z0-9_]*\(/ {
            name = $0
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
            bare = name
            sub(/^(tensor|nn)_/, "", bare)
            # _with: its struct carries the place
            if (name !~ /__|_with$|_defaults$/ && !(bare in without)) api[name] = FNR
        }
        /^#define [a-z_0-9]+[a-zA-Z0-9_]*\(/ { name = $2; sub(/\(.*/, "", name); has[name] = 1 }
        /^\/\/ >>(nn-)?shared / { exit }
        END { for (n in api) if (!(n in has)) print api[n] ": " n }' $h)"
done

# Names that are told apart by the order of their words are taken for each other. A way and its way back, a_to_b and
# b_to_a, are meant.
result "public functions whose names differ in the order of words alone" "$(
    for h in tensor.h tensor_nn.h tensor_cuda.h; do
        sed '/^\/\/ >>\(nn-\)\{0,1\}shared /,$d' $h |
            sed -n 's/^TENSOR_API .*[ *(]\(\(tensor\|nn\)_[a-z0-9_]*\))\{0,1\}(.*/\1/p'
    done | sort -u | awk '
        { sub(/_with$|_defaults$/, "") }
        /__|_to_|_$/ { next }
        {
            n = split($0, word, "_")
            for (i = 2; i <= n; i++)
                for (k = i; k > 1 && word[k] < word[k - 1]; k--) { w = word[k]; word[k] = word[k - 1]; word[k - 1] = w }
            sorted = ""
            for (i = 1; i <= n; i++) sorted = sorted "_" word[i]
            if (sorted in has && has[sorted] != $0) print has[sorted] ", " $0
            has[sorted] = $0
            seen++
        }
        END { if (seen < 800) print "only " seen + 0 " functions found" }')"

# Of a switch of the program that leaves something out, the library makes a word that is 0 or 1, in one place.
for h in tensor.h tensor_nn.h; do
    result "$h: asks for TENSOR_NO_.. where it has a word of its own (>>shared, What is built)" "$(awk '
        /^\/\/ What is built, each 0 or 1/ { inside = 1 }
        /^$/ { inside = 0 }
        /^ *# *(if|ifdef|ifndef|elif)/ && /TENSOR_NO_(THREADS|STDIO|AUTOGRAD)/ {
            if (inside) asked++; else print FNR ": " $0
        }
        /^ *# *(ifdef|ifndef) (TENSOR__|NN__)(HAS_|TRAINS|PORTABLE|X86_|ARM_|WASM_)/ { print FNR ": " $0 ": it is 0 or 1" }
        END { if (FILENAME == "tensor.h" && asked != 3) print asked + 0 " words, not 3" }' $h)"
done

# Public declarations end where the layouts shared with backends begin. A comment serves all declarations that
# follow it without a blank line; a section whose head says "All: -> ...;  errors ..." needs to say the rest only.
public() { sed '/^\/\/ >>\(nn-\)\{0,1\}shared /,$d' "$1"; }
for h in tensor.h tensor_nn.h tensor_cuda.h; do
    result "$h: declaration without a comment that says '->' and 'errors'" "$(public $h | awk '
        /^\/\/ >>[a-z0-9-]+( |$)/ { head = 1; all = "" }
        /^\/\/ -----/ && all != "" { head = 0 }
        head { all = all $0 }
        /^[ \t]*$/ { doc = ""; comment = 0; next }
        /^[ \t]*\/\// { if (!comment) doc = ""; comment = 1; doc = doc $0; next }
        { comment = 0 }
        /^TENSOR_API / && !/tensor__/ && !/nn__/ {
            if (doc ~ /->/ && doc ~ /errors/) next
            if (doc == "" || all !~ /All: .*->.*errors|-> .*errors/) print FNR ": " $0
        }')"
done

# Whoever reads what others wrote (files, blocks, structs of other libraries) is called by a fuzz target, directly or
# in the form that takes memory; fuzz.sh and seeds.c have every target. Shared memory and ranks are one program's, and
# the exporter reads its own text.
# kit_read_bytes copies bytes and interprets none.
readers() {
    for h in tensor.h tensor_nn.h $(ls examples/kit/*.h | grep -v /export_); do
        public "$h" | sed '/^#if defined(KIT_.*IMPLEMENTATION)/,$d; /^ *\/\//d; /^#/d' |
            grep -oE '(nn|kit|tensor)_([a-z0-9]+_)*(parse|read|open|map|load|restore|from_dlpack|self_test)(_[a-z0-9_]+)?\('
    done | sed 's/($//; s/_with$//' | grep -v '_defaults$' | grep -vx 'kit_shared_open\|kit_parallel_open\|kit_read_bytes' | sort -u
}
result "readers: fewer than 30 found" "$([ "$(readers | wc -l)" -ge 30 ] || readers)"
result "readers without a fuzz target" "$(
    for n in $(readers); do
        memory=$(echo "$n" | sed 's/read/parse/; s/open/parse/')
        grep -qE "\b($n|$memory)\(" tests/fuzz/*.c || echo "$n"
    done)"
result "fuzz targets that tests/fuzz.sh or tests/seeds.c does not have" "$(
    for f in tests/fuzz/*.c; do
        n=$(basename "$f" .c)
        if [ "$n" = calls ]; then continue; fi                  # random programs, without libFuzzer
        grep -q "^targets=.*[ -]$n[ }]" tests/fuzz.sh && grep -q "{\"$n\", " tests/seeds.c && [ -s "tests/fuzz/$n.seeds" ] ||
            echo "$n"
    done)"

# Parameters of a call have names; see tensor_params_t. Its structs have no padding.
for h in $headers; do
    result "$h: a parameter by number; give it a name in its struct of tensor_params_t" "$(awk '
        /(params|->p|[^A-Za-z0-9_>.]p)(\.|->)[fi](\[|[^A-Za-z0-9_(])/ { print FNR ": " $0 }' $h)"
    result "$h: a member of parameters that is not int64_t or double, or has no name" "$(awk '
        /^typedef struct tensor__[a-z_]+_params_t \{/ { inside = 1; next }
        /^\}/ { inside = 0 }
        inside && !/^    (int64_t|double) / && !/^ *\/\// { print FNR ": " $0 }
        inside && /[ ,][fi](\[|,|;)/ { print FNR ": " $0 }' $h)"
done

# One conditional a statement reads well, two do not: name what one of them gives. Kernels, whose lines are
# vectors, and macros are exempt.
for h in tensor.h tensor_nn.h tensor_cuda.cu; do
    result "$h: statement with two conditionals" "$(awk '
        /^\/\/ >>[a-z0-9-]+ .*MARK: / { kernel = $2 ~ /^>>(nn-)?(kernel|simd)/ }
        /^#/ || continued { continued = /\\$/; next }
        /^[A-Z]/ { text = "" }                  # a macro that makes functions
        kernel { next }
        {
            gsub(/\\./, "")
            gsub(/"[^"]*"|\047[^\047]*\047/, "")
            sub(/\/\/.*/, "")
            n = split($0, part, /[;{}]/)
            for (i = 1; i <= n; i++) {
                text = text part[i]
                if (gsub(/\?/, "?", text) > 1) { print FNR ": " $0; text = "" }
                if (i < n) text = ""
            }
        }' $h)"
done

for h in $headers examples/*.c examples/engine/*.[chp]* examples/kit/*.h examples/models/*.[ch] examples/web/*.[ch] \
    tests/*.[chd]* tests/*/*.[ch]* bench/*.[ch]*; do
    result "$h: body of if, else, for or while without braces" "$(awk '
        /^ *(if|else|for|while)[ (]/ && !/\{/ {
            sub(/ *(\/\/.*|\\)$/, "")
            text = $0
            if (/;$/ && gsub(/\(/, "", text) == gsub(/\)/, "", text)) print FNR ": " $0
        }' $h)"
done

# The way from a family to its code: the comments of tensor_family_t, and the tags that heads of sections name.
result "tag in a comment that no section has" "$(awk '
    FNR == 1 { at = 0 }
    /^\/\/ >>[a-z0-9-]+ .*MARK: / { has[substr($2, 3)] = 1 }
    /\/\/.*>>[a-z]/ {
        comment = $0
        sub(/^[^\/]*\/\//, "", comment)
        while (match(comment, />>[a-z][a-z0-9-]+/)) {
            named[substr(comment, RSTART + 2, RLENGTH - 2)] = FILENAME ":" FNR
            comment = substr(comment, RSTART + RLENGTH)
        }
    }
    END { for (t in named) if (!(t in has)) print named[t] ": >>" t }' $headers)"
result "tensor.h: tensor_family_t names another place than the rows of the family have" "$(awk '
    FNR == 1 { room = "" }
    /^\/\/ >>[a-z0-9-]+ .*MARK: / { room = substr($2, 3) }
    /^    TENSOR_FAMILY_[A-Z_]+, +\/\// {
        family = $1
        gsub(/TENSOR_FAMILY_|,/, "", family)
        place[family] = $0
        n = split($0, part, "; ")
        if (n > 2) native[family] = part[3]
        if (n < 2) print FNR ": " $0
    }
    /^(TENSOR__FN|TENSOR__INLINE|static|inline) .*[a-z]\(/ {
        name = $0
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        where[name] = room
    }
    /^    X\([A-Z_0-9]+, +[a-z_0-9]+, +[A-Z]+, / {
        row = $0
        gsub(/TENSOR__KERNEL(_WITH)?\(/, "&tensor__cpu_", row)
        gsub(/NN__CPU(_WITH|_OWN|_WITH_OWN)?\(/, "&nn__cpu_", row)
        n = split(row, word, /[^A-Za-z0-9_]+/)
        while (match(row, /(tensor__|nn__)(cpu|grad)_[a-z0-9_]+/)) {
            uses[++m] = word[5] " " substr(row, RSTART, RLENGTH)
            row = substr(row, RSTART + RLENGTH)
        }
    }
    END {
        for (i = 1; i <= m; i++) {
            split(uses[i], u, " ")
            if (!(u[2] in where)) continue                  # made by a macro
            checked++
            if (index(place[u[1]] " ", ">>" where[u[2]] " ") == 0 && index(place[u[1]], ">>" where[u[2]] ";") == 0)
                print u[1] ": " u[2] " is in >>" where[u[2]]
        }
        if (checked < 100) print "only " checked + 0 " functions of rows found"
        for (f in native) if (!(native[f] in where)) print f ": no function " native[f]
    }' tensor.h tensor_nn.h tensor_cuda.cu)"
for h in $headers; do
    result "$h: section of more than 1,500 lines" "$(awk '
        function over() { if (n > 1500) print tag ": " n " lines" }
        /^\/\/ >>[a-z0-9-]+ .*MARK: / { over(); tag = $2; n = 0 }
        { n++ }
        END { over() }' $h)"
    result "$h: function of more than 100 lines outside kernels" "$(awk -v most=100 '
        /^\/\/ >>[a-z0-9-]+ .*MARK: / { kernel = $2 ~ /^>>(nn-)?(kernel|simd)/ }
        /^template / { device = /__global__/ }
        /^[A-Za-z].*\(/ { begun = FNR; body = 0 }
        /\{/ { body = 1 }
        /;$/ && !body { begun = 0 }             # a prototype
        /^}/ {
            if (begun && !kernel && !device && FNR - begun > most) print begun ": " FNR - begun " lines"
            begun = device = 0
        }' $h)"
done

# A macro of the implementation names the locals that it uses, or makes: it has them as parameters. A macro that is
# undefined again in its section, such as the X of a list, may use those around it.
for h in tensor.h tensor_nn.h; do
    result "$h: macro that uses a local without naming it" "$(awk '
        BEGIN {
            n = split("auto bool case char const continue default do double else enum extern float for goto if inline int " \
                "long register return short signed sizeof static struct switch thread typedef union unsigned void volatile while break", w, " ")
            for (i = 1; i <= n; i++) keyword[w[i]] = 1
        }
        function known(word) {
            return word in keyword || word in param || word in declared || word ~ /_t?$|^(tensor|nn)_/
        }
        # Notes the macro that has ended, with its first word that nothing names.
        function look(   rest, word, at, before, after) {
            sub(/^ +/, "", body)
            if (macro !~ /^(TENSOR|NN)__/ || "X" in param || body ~ /^[a-z_0-9]+ *$/) return
            gsub(/"[^"]*"|\047[^\047]*\047/, " 0 ", body)
            gsub(/TENSOR__\([a-z_0-9]+\)/, " 0 ", body)              # a function of the core
            gsub(/ a, [a-z_]+, |\(a, [a-z_]+, /, "(a, ", body)        # the name of a member
            gsub(/TENSOR__DO\([a-z_]+, |NN__DO\([a-z_]+, /, "(0 ", body)
            split("", declared)
            rest = body
            while (match(rest, /([a-z_0-9]+_t|int|char|double|float|void|LPVOID)([ *]|const )+[a-z_][a-z_0-9]*/)) {
                word = substr(rest, RSTART, RLENGTH)
                rest = substr(rest, RSTART + RLENGTH)
                sub(/.*[ *]/, "", word)
                declared[word] = 1
                while (match(rest, /^[^;(){}]*, *\**[a-z_][a-z_0-9]* *[=,;\[]/)) {
                    word = substr(rest, RSTART, RLENGTH)
                    rest = substr(rest, RSTART + RLENGTH - 1)
                    sub(/ *[=,;\[]$/, "", word)
                    sub(/.*[ *,]/, "", word)
                    declared[word] = 1
                }
            }
            rest = body
            while (match(rest, /[A-Za-z_][A-Za-z_0-9]*/)) {
                word = substr(rest, RSTART, RLENGTH)
                before = substr(rest, 1, RSTART - 1)
                rest = substr(rest, RSTART + RLENGTH)
                if (word !~ /^[a-z]/ || before ~ /(\.|->|#|[0-9]) *$/ || rest ~ /^ *(\(|##)/ || known(word)) continue
                free[macro] = FNR - 1 ": " macro " uses " word
                break
            }
        }
        function flush(   name) { for (name in free) print free[name]; split("", free) }
        /^\/\/ >>[a-z0-9-]+ .*MARK: / { flush(); inside = inside || $2 ~ /^>>(nn-)?impl$/ }
        !inside { next }
        /^ *# *undef / { delete free[$2]; next }
        /^ *# *define [A-Z]/ {
            macro = $0
            sub(/^ *# *define +/, "", macro)
            split("", param)
            body = macro
            sub(/[^A-Za-z0-9_].*/, "", macro)
            body = substr(body, length(macro) + 1)
            if (body ~ /^\(/) {
                n = split(substr(body, 2, index(body, ")") - 2), w, / *, */)
                for (i = 1; i <= n; i++) param[w[i]] = 1
                body = substr(body, index(body, ")") + 1)
            }
            more = 1
            text = body
            body = ""
        }
        !/^ *# *define / { text = $0 }
        more {
            sub(/\/\/.*/, "", text)
            more = text ~ /\\$/
            sub(/\\$/, "", text)
            body = body " " text
            if (!more) look()
        }
        END { flush() }' $h)"
done

# One text for one thing: a new pair of places that share six lines becomes a function, or gets its reason in alike.txt.
result "six lines that two places share" "$(awk -f tests/alike.awk tests/alike.txt tensor.h tensor_nn.h)"

# Words that are macros of windows.h, which tensor_cuda.cu does not include.
for h in tensor.h tensor_nn.h tensor_cuda.h examples/kit/*.h; do
    result "$h: name that windows.h defines as a macro" "$(awk '
        {
            gsub(/\\./, "")
            gsub(/"[^"]*"|\047[^\047]*\047/, "")
            sub(/\/\/.*/, "")
            gsub(/\/\*.*\*\//, "")
            if (/\/\*/) { comment = 1; sub(/\/\*.*/, "") }
            if (/\*\//) { comment = 0; sub(/.*\*\//, "") }
        }
        !comment && /(^|[^A-Za-z0-9_])(near|far|small|interface|cdecl|pascal)([^A-Za-z0-9_]|$)/ { print FNR ": " $0 }' $h)"
done

# How hard a function is to follow, by clang-tidy's count. Kernels, which are loops in loops, and macros are exempt.
if command -v clang-tidy >/dev/null 2>&1; then
    mkdir -p "$B"
    printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' >"$B/complexity.c"
    result "cognitive complexity above 25 outside kernels" "$(
        {
            awk '/^\/\/ >>[a-z0-9-]+ .*MARK: / { print FILENAME ":" FNR ":room " ($2 ~ /^>>(nn-)?(kernel|simd)/) }' tensor.h tensor_nn.h
            option=readability-function-cognitive-complexity
            clang-tidy -quiet --checks="-*,$option" --header-filter='.*' --config="{CheckOptions: [
                {key: $option.Threshold, value: 25}, {key: $option.IgnoreMacros, value: true}]}" "$B/complexity.c" -- -std=c99 \
                -I. -DTENSOR_ISA=scalar 2>&1 | sed -n 's,^[^:]*/\(tensor[_n]*\.h:[0-9]*\):.*function \(.*\) (thres.*,\1:\2,p; /error:/p'
        } | awk -F: '
            /error:/ { print; next }
            $3 ~ /^room/ { start[$1, ++n[$1]] = $2; kernel[$1, n[$1]] = $3 ~ /1/; next }
            {
                for (i = n[$1]; i > 1 && start[$1, i] > $2 + 0; i--) {}
                if (!kernel[$1, i]) print
                found++
            }
            END { if (!found) print "no function is above 25, not even a kernel" }')"
else
    echo "skipped 1 tests of cognitive complexity: no clang-tidy"
fi

# A room uses what is above it. The few functions that are declared in one room and defined in a later one are counted.
upward=$(awk '
    /^\/\/ >>[a-z0-9-]+ .*MARK: / { room = $2 }
    /^TENSOR__(FN|INLINE) / { text = "" ; open = 1 }
    open {
        text = text " " $0
        if (!match(text, /[;{]/)) next
        last = substr(text, RSTART, 1)
        open = 0
        if (!match(text, /(tensor|nn)__[a-z0-9_]+\(/)) next
        name = substr(text, RSTART, RLENGTH - 1)
        if (last == ";") { declared[name] = room; next }
        if (name in declared && declared[name] != room) {
            print name ": declared in " declared[name] ", defined in " room
            delete declared[name]
        }
    }' tensor.h tensor_nn.h)
result "declarations of functions of later sections: not 1 to 10" "$(
    n=$(echo "$upward" | grep -c :)
    if [ "$n" -lt 1 ] || [ "$n" -gt 10 ]; then echo "$n"; echo "$upward"; fi)"

# The elements of tensors have two doors, a room each: kernels are launched in >>impl-gate, the host's accesses are in
# >>impl-host. Nobody else takes the address of an element.
memory="nn__lent tensor_view_dtype"            # the address of memory: lent to the host, asked for its alignment
for h in tensor.h tensor_nn.h; do
    result "$h: function that reaches the elements of tensors past >>impl-gate and >>impl-host" "$(
        awk -v may="$memory" '
        BEGIN { n = split(may, w, " "); for (i = 1; i <= n; i++) ok[w[i]] = 1 }
        /^\/\/ >>[a-z0-9-]+ .*MARK: / { room = $2 }
        /^[A-Za-z]/ && match($0, /[a-zA-Z0-9_]+\)?\(/) {
            name = substr($0, RSTART, RLENGTH)
            sub(/\)?\($/, "", name)
        }
        { code = $0; sub(/\/\/.*/, "", code) }
        room !~ /^>>impl-(gate|host)$/ && code ~ /storage->data|[^a-z_]tensor__ptr\(/ && !(name in ok) { print FNR ": " name }
        ' $h)"
done

for f in examples/*.c examples/*.cu examples/engine/*.[ch]*; do
    lines=$(wc -l <$f)
    result "$f: size" "$(if [ "$lines" -gt 150 ]; then echo "$lines lines, at most 150"; fi)"
done

for f in examples/kit/*.h; do
    lines=$(wc -l <"$f")
    result "$f: size" "$(if [ "$lines" -gt 500 ]; then echo "$lines lines, at most 500"; fi)"
done

# The rule of the kit (CONTRIBUTING.md).
result "private names in the kit" "$(grep -nE '\b(tensor|TENSOR|nn|NN)__[A-Za-z]' examples/kit/*.h)"
result "the kit raises with a line of its own, which helps nobody; write (tensor_raise)(code, text)" "$(
    grep -nE '(^|[^(a-z_])tensor_raise\([A-Z]' examples/kit/*.h)"
# A program may use any of them together. Those of MPI and NCCL want their libraries' headers.
{
    for f in examples/kit/*.h; do sed -n 's/^#if defined(\(KIT_[A-Z0-9_]*_IMPLEMENTATION\)).*/#define \1/p' "$f"; done
    ls examples/kit/*.h | grep -v '/mpi\.h$\|/nccl\.h$' | sed 's/.*/#include "&"/'
} >"$B/check-kit.c"
result "headers of the kit that do not go together" "$(
    ${CC:-gcc} -std=c99 -D_GNU_SOURCE -I. -fsyntax-only "$B/check-kit.c" 2>&1 | grep 'error:' | head -n 5
    ${CXX:-g++} -std=c++11 -x c++ -I. -fsyntax-only "$B/check-kit.c" 2>&1 | grep 'error:' | head -n 5)"
# kit_used FILE ...: the headers that these include, directly or through each other.
kit_used() {
    used=$(grep -ohE 'kit/[a-z0-9_]+\.h' "$@" | sed 's,.*/,,' | sort -u)
    for depth in 1 2 3 4; do
        used=$(
            echo "$used"
            for n in $used; do sed -n 's/^ *# *include "\([a-z0-9_]*\.h\)".*/\1/p' "examples/kit/$n"; done | grep -v '^tensor'
        )
        used=$(echo "$used" | sort -u)
    done
    echo "$used"
}
tested=$(kit_used tests/*.c tests/fuzz/*.c tests/parallel/*.c tests/export/*.c tests/*.sh tests/cuda/*.cpp)
running=$(kit_used examples/*.c examples/*/*.c bench/*.c tests/parallel/*.c docs/*.md)
result "headers of the kit without a test, or without a program that uses them" "$(
    for f in examples/kit/*.h; do
        n=$(basename "$f")
        echo "$tested" | grep -qx "$n" || echo "$n: no test"
        echo "$running" | grep -qx "$n" || echo "$n: no program"
    done)"

for f in examples/models/*.[ch]; do
    lines=$(wc -l <"$f")
    result "$f: size" "$(if [ "$lines" -gt 200 ]; then echo "$lines lines, at most 200"; fi)"
done

for f in $headers examples/*.c examples/*.cu examples/kit/*.h examples/models/*.[ch] examples/engine/*.[ch]* examples/web/*.c examples/web/*.h tests/*.c tests/*.cpp tests/*.h bench/*.c; do
    [ -f "$f" ] || continue
    result "$f: not ASCII, tab, or blank at line end" "$(LC_ALL=C awk '
        /[^ -~]/ || / $/ { print FNR ": " substr($0, 1, 100) }' $f)"
    result "$f: over 110 columns outside clang-format off" "$(awk '
        /clang-format off/ { off = 1 }
        /clang-format on/ { off = 0 }
        !off && length($0) > 110 { print FNR ": " length($0) " columns" }' $f)"
done

for f in examples/*.c examples/*.cu examples/models/*.c; do
    result "$f: first comment lacks Build: or Output:" "$(awk '
        !/^\/\// { exit }
        /^\/\/ Build: / { b = 1 }
        /^\/\/ Output/ { o = 1 }
        END { if (!b || !o) print "see examples/01_tensors.c" }' $f)"
done

# Private macros and functions of the headers that no other line names.
result "macro or static function without a use" "$(LC_ALL=C awk '
    {
        sub(/\/\/.*/, "")
        gsub(/\/\*.*\*\//, "")
        name = ""
        if (/^ *# *(define|undef) /) {
            name = $0
            sub(/^ *# *(define|undef) +/, "", name)
        } else if (/^(TENSOR__FN|TENSOR__INLINE|TENSOR__BETWEEN|static|inline|template) .*[a-z0-9_]\(.*[{,]$/) {
            name = $0
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
        }
        sub(/[^A-Za-z0-9_].*/, "", name)
        here = FILENAME ~ /^(tensor|examples\/kit)/ && name ~ /__|^(TCU|V|F)_/
        if (here && !(name in place)) place[name] = FILENAME ":" FNR
        if (name != "") used[name]--
        n = split($0, word, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= n; i++) { used[word[i]]++; there[word[i]] = 1 }
    }
    # A name that ## makes of two or three words, or of a word and a number, is in use too.
    function made(name, parts,   k, rest) {
        for (k = 1; k < length(name); k++) {
            rest = substr(name, k + 1)
            if (!(substr(name, 1, k) in there)) continue
            if (rest in there || rest ~ /^[0-9]+$/ || (parts > 2 && made(rest, parts - 1))) return 1
        }
        return 0
    }
    END {
        for (name in place) if (used[name] < 1 && !made(name, 3)) print place[name] ": " name
    }' $headers examples/kit/*.h tests/*.[ch]* tests/*.def tests/*/*.[ch]* bench/*.[ch] examples/*.c* examples/*/*.[ch]*)"

# What the compiled implementation exports and needs.
if [ ! -f "$B/libtensor.a" ]; then
    result "$B/libtensor.a" "not built"
else
    result "exported beside what the headers declare" "$(
        {
            for h in tensor.h tensor_nn.h; do
                public $h | awk '/^TENSOR_API/ && !/\(/ { printf "%s ", $0; next } { print }' |
                    sed -n 's/^TENSOR_API .*[ *(]\(\(tensor\|nn\)_[a-zA-Z0-9_]*\))\{0,1\}(.*/declared \1/p'
            done
            objdump -t "$B/libtensor.a" | awk '$2 == "g" && !/ \.hidden / { print "exported", $NF }'
        } | awk '$1 == "declared" { ok[$2] = 1; next }
            { there[$2] = 1 }
            $2 != "tensor__internals" && $2 !~ /^tensor__build_v/ && !($2 in ok) { print $2 }
            END { for (name in ok) if (!(name in there)) print name " is declared but not there" }')"
    result "needed beside libc, libm, pthread" "$(nm -g "$B/libtensor.a" | awk '
        NF == 3 { own[$3] = 1 }
        NF == 2 && $1 == "U" { needed[$2] = 1 }
        END {
            n = split("abs acos acosf acosh asin asinf asinh atan atan2 atan2f atanf atanh atoi bcmp bsearch calloc cbrt " \
                "ceil ceilf copysign cos cosf cosh coshf erf erfc erfcf erff exp exp2 exp2f expf expm1 expm1f fabs fabsf " \
                "fclose fdopen feof ferror fflush fgetc fileno floor floorf fmaf fma fmod fmodf fopen fprintf fputc fputs " \
                "fread free frexp fseek fseeko fstat fsync ftell ftello fwrite getenv getline getpid " \
                "hypot isatty ldexp lgamma localeconv log log10 log10f log1p log1pf log2 log2f logf lrint lround malloc memchr " \
                "memcmp memcpy memmove memset mmap munmap madvise nearbyint nearbyintf open close pow powf putc putchar puts " \
                "qsort read realloc chmod readlink remainder remove rename rewind rint rintf round roundf scalbn setvbuf sin sincos " \
                "sincosf sinf sinh sinhf snprintf sprintf sqrt sqrtf stat stderr stdin stdout strchr strcmp strcpy strerror __libc_single_threaded strlen strncmp " \
                "strncpy strrchr strstr strtod strtol strtoll strtoul strtoull tan tanf tanh tanhf tgamma trunc truncf " \
                "unlink vsnprintf write posix_memalign aligned_alloc clock clock_gettime time nanosleep usleep " \
                "sched_yield sysconf syscall __errno_location __assert_fail __stack_chk_fail __tls_get_addr " \
                "__isoc99_sscanf _GLOBAL_OFFSET_TABLE_ __cpu_model __cpu_indicator_init", w, " ")
            for (i = 1; i <= n; i++) ok[w[i]] = 1
            for (symbol in needed) {
                name = symbol
                sub(/@.*/, "", name)
                if (!(symbol in own) && !(name in ok) && name !~ /^(pthread_|sem_|__memcpy_chk|__memset_chk|__memmove_chk|__snprintf_chk|__vsnprintf_chk|__fprintf_chk|__(asan|ubsan|tsan|lsan|sanitizer)_)/) print name
            }
        }')"
fi

result "size of small programs (wanted: sh tests/ladder.sh update)" "$(CC=${CC:-gcc} B=$B sh tests/ladder.sh)"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
