# mutate.awk - a header with mutants that are chosen by number at run time
#
#   awk -v first=N -v every=K -v drop=FILE -v list=FILE -f mutate.awk tensor.h > copy/tensor.h
#
# Only what needs no knowledge of operands is changed, in function bodies of the implementation:
#   if (c)      c is negated                    a + b   a - b
#   a < b       a < b - 1                       a - b   a + b
#   a += b      a -= b
# One of `every` candidates is taken. Lines in drop ("FILE LINE", which did not compile) have none. list receives
# "N FILE LINE KIND" of each, KIND minus2 = the second of its kind in the line; the last line of stderr is the next number.
function candidate(kind,    nth) {
    nth = ++of_line[FILENAME, FNR, kind]
    if (candidates++ % every != 0) return 0
    print first " " FILENAME " " FNR " " kind (nth > 1 ? nth : "") > list
    return 1
}
# s with each place of op (a text) behind which `with` (%d: the number) is set
function operator(s, op, with, kind,    done, at) {
    done = ""
    while ((at = index(s, op)) > 0) {
        done = done substr(s, 1, at + length(op) - 1)
        s = substr(s, at + length(op))
        if (candidate(kind)) done = done sprintf(with, first++)
    }
    return done s
}
BEGIN { while ((getline line < drop) > 0) dropped[line] = 1 }
/^#if.*TENSOR_IMPLEMENTATION|^#ifdef TENSOR_NN_IMPLEMENTATION/ { inside = 1 }
{
    code = $0
    macro = continued || code ~ /^ *#/
    continued = macro && code ~ /\\$/
    if (code ~ /^}/) body = 0
    plain = inside && body && !macro && code !~ /"|\/\/|static const|enum|case |\?|^ *for|#|TENSOR__OP_BEFORE|'/
    if (code ~ /^[A-Za-z].*\{$/ || code ~ /^ +[^ ].*\) \{$/ && !macro) body = 1
    if (plain && !((FILENAME " " FNR) in dropped)) {
        if (match(code, /^ *if \(/) && code ~ /\) (\{.*\}|\{)$/ && code !~ /else/) {
            head = substr(code, 1, RLENGTH - 1)
            rest = substr(code, RLENGTH)
            depth = 0
            for (k = 1; k <= length(rest); k++) {
                c = substr(rest, k, 1)
                if (c == "(") depth++
                if (c == ")" && --depth == 0) break
            }
            if (depth == 0 && candidate("if"))
                code = head "(!" substr(rest, 1, k) " == TENSOR__MUTANT(" first++ "))" substr(rest, k + 1)
        } else {
            code = operator(code, " + ", "(TENSOR__MUTANT(%d) ? -1 : 1) * ", "plus")
            code = operator(code, " - ", "(TENSOR__MUTANT(%d) ? -1 : 1) * ", "minus")
            code = operator(code, " < ", "-TENSOR__MUTANT(%d) + ", "less")
            code = operator(code, " += ", "(TENSOR__MUTANT(%d) ? -1 : 1) * ", "add")
        }
    } else if (inside && body && !macro && code ~ /^ *for \(/ && !((FILENAME " " FNR) in dropped)) {
        code = operator(code, " < ", "-TENSOR__MUTANT(%d) + ", "loop")
    }
    print code
}
END { print first > "/dev/stderr" }
