# ladder.sh - what programs pay: says nothing where no rung of the ladder (bench/sizes.sh) grew by more than 3 %
# over tests/ladder.txt, else what came in. tests/check.sh fails then.
#
#   sh tests/ladder.sh              compares
#   sh tests/ladder.sh update       writes tests/ladder.txt: of one compiler, the KB of each rung, then its functions
#                                   and tables of at least 256 bytes, each once, behind the rungs that have it
#
# "plain" is the program of xor without optimisation and with all instruction sets, as plain cc builds it.
B=${B:-build}
CC=${CC:-gcc}
export B CC
list=tests/ladder.txt
rungs="empty relu mlp xor cnn gpt plain everything"
compiler="$($CC -dumpmachine 2> /dev/null) $($CC -dumpversion 2> /dev/null)"
if [ "$1" != update ] && [ "$compiler" != "$(sed -n '1s/^# //p' $list)" ]; then
    echo "skipped 8 rungs of the ladder: its figures are of $(sed -n '1s/^# //p' $list), this is $compiler" >&2
    exit
fi
mkdir -p "$B"
LADDER=1 sh bench/sizes.sh > "$B/ladder.log" 2>&1

# size RUNG: its KB. names RUNG: its functions and tables, without what the compiler hangs on names.
size() { awk -v rung="$1" '$1 == rung { print $(NF - 1) }' "$B/ladder.log"; }
names() {
    nm -S "$B/sizes/$1" | awk 'NF == 4 && $2 >= "0000000000000100" && $4 ~ /^(tensor|nn)_/ {
        sub(/\..*/, "", $4); print $4 }' | LC_ALL=C sort -u
}

if [ "$1" = update ]; then
    {
        echo "# $compiler"
        for rung in $rungs; do echo "$rung $(size $rung)"; done
        for rung in $rungs; do [ $rung = plain ] || names $rung | sed "s/^/$rung /"; done |
            awk '{ of[$2] = of[$2] (of[$2] == "" ? "" : " ") $1 } END { for (name in of) print of[name] ":" name }' |
            LC_ALL=C sort | awk -F: '$1 != at { at = $1; print ""; print at ":" } { print $2 }' |
            awk '/:$/ || $0 == "" { if (line != "") print line; line = ""; print; next }
                 length(line) + length($0) > 108 { print line; line = "" }
                 { line = line (line == "" ? "    " : " ") $0 }
                 END { print line }'
    } > $list
    exit
fi
for rung in $rungs; do
    now=$(size $rung)
    was=$(awk -v rung=$rung '$1 == rung && $2 ~ /^[0-9.]+$/ { print $2 }' $list)
    [ -n "$now" ] || { echo "$rung does not build:"; grep -v " KB$" "$B/ladder.log" | tail -n 3; continue; }
    awk -v now="$now" -v was="$was" 'BEGIN { exit now <= was * 1.03 }' || continue
    echo "$rung has $now KB, more than 3 % over the $was of $list; what came in:"
    [ $rung != plain ] || { echo "    (not listed for plain)"; continue; }
    awk -v rung=$rung '/:$/ { on = index(" " $0, " " rung ":") || index(" " $0, " " rung " "); next }
                       on { for (i = 1; i <= NF; i++) print $i }' $list | LC_ALL=C sort -u > "$B/ladder.was"
    names $rung | LC_ALL=C comm -13 "$B/ladder.was" -
done
