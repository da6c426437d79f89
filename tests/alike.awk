# alike.awk - awk -f tests/alike.awk tests/alike.txt tensor.h tensor_nn.h: places that share six lines.
#
# Six lines that follow each other, blank lines, comments and lines of the preprocessor left out, are shared where they
# are the same text, or, inside functions, the same but for names, numbers and strings, one name standing for one other.
# Three of them have to be more than a brace, and all together at least 30 words and signs. Prototypes have no lines
# inside. Says each pair of functions (or structs, enums) that tests/alike.txt does not have, and each line of it that
# nothing needs any more. A line of that file is "name | other name | why they stay two".
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }

# The six lines from i on, names numbered as they come. Numbers and strings count as one; "" = too little.
function shape(i,   k, s, word, out, names, n, count) {
    split("", names)
    n = count = 0
    for (k = i; k < i + 6; k++) {
        s = text[k]
        while (s != "") {
            count++
            if (match(s, /^"([^"\\]|\\.)*"/) || match(s, /^[0-9][0-9A-Za-z_.]*/)) {
                out = out "0 "
            } else if (match(s, /^[A-Za-z_][A-Za-z_0-9]*/)) {
                word = substr(s, 1, RLENGTH)
                if (!(word in keyword) && !(word in names)) names[word] = "a" ++n
                out = out (word in keyword ? word : names[word]) " "
            } else {
                match(s, /^./)
                out = out substr(s, 1, 1) " "
            }
            s = substr(s, RLENGTH + 1)
            sub(/^[ \t]+/, "", s)
        }
        out = out "\n"
    }
    return count < 30 ? "" : out
}

function pair(i, j,   a, b, w) {
    a = owner[i]
    b = owner[j]
    w = a <= b ? a " | " b : b " | " a
    if (!(w in found)) found[w] = place[i] " and " place[j]
}

BEGIN {
    split("if else for while do return switch case break continue static const int int64_t double float char void " \
          "unsigned size_t struct typedef enum sizeof NULL default", words, " ")
    for (i in words) keyword[words[i]] = 1
}
FILENAME == ARGV[1] {
    if (/^#/ || $0 == "") next
    split($0, part, / \| /)
    held[part[1] <= part[2] ? part[1] " | " part[2] : part[2] " | " part[1]] = 1
    if (part[3] == "") print FILENAME ":" FNR ": no reason"
    next
}
FNR == 1 { continued = inside = 0; name = FILENAME }
/^ *#/ || continued { continued = /\\$/; next }
{
    line = $0
    sub(/\/\/.*/, "", line)
    if (line !~ /[^ \t]/) next
    if (line ~ /^[A-Za-z]/ && line !~ /^(extern|else|goto)/) {
        name = line
        gsub(/TENSOR__K\(|NN__K\(|TENSOR__BUILT\(/, " ", name)
        if (match(name, /[A-Za-z_][A-Za-z0-9_]*\)?\(/)) {
            name = substr(name, RSTART, RLENGTH)
        } else if (match(name, /(struct|enum|union) [a-z_0-9]+/)) {
            name = substr(name, RSTART, RLENGTH)
        }
        gsub(/^(struct|enum|union) |[()]/, "", name)
        name = trim(name)
    }
    if (line ~ /^[A-Za-z].*\)[^;]*\{ *$/ || (line ~ /^  .*\) \{ *$/ && !inside)) inside = 1
    n++
    text[n] = trim(line)
    place[n] = FILENAME ":" FNR
    owner[n] = name
    body[n] = inside
    if (line ~ /^\}/) inside = 0
}
END {
    for (i = 1; i <= n; i++) {
        form[i] = text[i]
        gsub(/"([^"\\]|\\.)*"/, "0", form[i])
        gsub(/[A-Za-z_0-9.]+/, "a", form[i])
    }
    for (i = 1; i + 5 <= n; i++) {
        long = 0
        every = 1
        same = like = ""
        for (k = i; k < i + 6; k++) {
            long += length(text[k]) > 3
            every = every && body[k]
            same = same text[k] "\n"
            like = like form[k] "\n"
        }
        if (long < 3 || place[i] ~ /license/) continue
        if (same in first) { if (first[same] + 6 <= i) pair(first[same], i) } else first[same] = i
        if (!every) continue
        if (like in last) before[i] = last[like]
        last[like] = i
    }
    # Windows of one form: all of them are compared by their shape.
    for (i = n; i > 0; i--) if (i in before) {
        for (k = before[i]; k; k = before[k]) {
            if (k + 6 > i) continue
            if (!(i in shapes)) shapes[i] = shape(i)
            if (shapes[i] == "") break
            if (!(k in shapes)) shapes[k] = shape(k)
            if (shapes[i] == shapes[k]) pair(k, i)
            if (!(k in before)) break
        }
    }
    for (w in found) {
        seen++
        if (!(w in held)) print w ": " found[w]
    }
    for (w in held) if (!(w in found)) print w " shares nothing any more: take it out of tests/alike.txt"
    if (n < 30000) print "only " n " lines"
}
