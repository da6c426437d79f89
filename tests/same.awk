# same.awk - awk -f tests/same.awk WANT GOT: do two files say the same, line by line?
# Figures that a machine decides count as one: a number before s, ms, us, ns, MB or KB, and what stands as "..".
# With -v near=0.001 numbers may differ by that.
# Shows the first three lines that differ (< want, > got); the exit status is 1 if there are any.
function plain(s) {
    gsub(/\r/, "", s)
    gsub(/[0-9][0-9.]* (s|ms|us|ns|MB|KB)/, "# unit", s)
    return s
}
# Whether lines are equal, except for numbers that differ by less than near.
function close_to(w, g,   a, b, n, k) {
    a = w
    b = g
    gsub(/-?[0-9]+(\.[0-9]+)?/, "#", a)
    gsub(/-?[0-9]+(\.[0-9]+)?/, "#", b)
    if (a != b) return 0
    while (match(w, /-?[0-9]+(\.[0-9]+)?/)) {
        n = substr(w, RSTART, RLENGTH)
        w = substr(w, RSTART + RLENGTH)
        match(g, /-?[0-9]+(\.[0-9]+)?/)
        k = n - substr(g, RSTART, RLENGTH)
        g = substr(g, RSTART + RLENGTH)
        if (k > near || k < -near) return 0
    }
    return 1
}
# The text w with ".." where any text may stand.
function fits(w, g,   at, head) {
    at = index(w, "..")
    if (!at) return w == g
    head = substr(w, 1, at - 1)
    if (substr(g, 1, at - 1) != head) return 0
    w = substr(w, at + 2)
    if (w == "") return 1
    for (g = substr(g, at); g != ""; g = substr(g, 2)) if (fits(w, g)) return 1
    return 0
}
FNR == NR && FILENAME == ARGV[1] { want[++n] = $0; next }
{ got[++m] = $0 }
END {
    for (i = 1; i <= n || i <= m; i++) {
        if (near && i <= n && i <= m && close_to(want[i], got[i])) continue
        if (i <= n && i <= m && fits(plain(want[i]), plain(got[i]))) continue
        print "< " want[i] "\n> " got[i]
        if (++bad == 3) break
    }
    exit bad > 0
}
