# ladder.sh - what small programs pay: says nothing where no rung of the ladder (bench/sizes.sh) grew by more than 3 %
# over tests/ladder.txt, else what came in. tests/check.sh fails then.
#
#   sh tests/ladder.sh              compares
#   sh tests/ladder.sh update       writes tests/ladder.txt: the KB of each rung and the names in it, of one compiler
B=${B:-build}
CC=${CC:-gcc}
export B CC
list=tests/ladder.txt
compiler="$($CC -dumpmachine 2> /dev/null) $($CC -dumpversion 2> /dev/null)"
if [ "$1" != update ] && [ "$compiler" != "$(sed -n '1s/^# //p' $list)" ]; then
    echo "skipped 3 rungs of the ladder: its figures are of $(sed -n '1s/^# //p' $list), this is $compiler" >&2
    exit
fi
mkdir -p "$B"
LADDER=1 sh bench/sizes.sh > "$B/ladder.log" 2>&1

# size RUNG: its KB. names RUNG: its functions and tables, without what the compiler hangs on names.
size() { awk -v rung="$1" '$1 == rung { print $(NF - 1) }' "$B/ladder.log"; }
names() {
    nm "$B/sizes/$1" | awk 'NF == 3 && $3 ~ /^(tensor|nn)_/ { sub(/\..*/, "", $3); print $3 }' | LC_ALL=C sort -u
}

if [ "$1" = update ]; then
    {
        echo "# $compiler"
        for rung in relu xor mlp; do
            echo "$rung $(size $rung)"
            names $rung | tr '\n' ' ' | fold -s -w 110 | sed 's/^/    /; s/ *$//'
            echo
        done
    } > $list
    exit
fi
for rung in relu xor mlp; do
    now=$(size $rung)
    was=$(awk -v rung=$rung '$1 == rung { print $2 }' $list)
    [ -n "$now" ] || { echo "$rung does not build:"; tail -n 3 "$B/ladder.log"; continue; }
    awk -v now="$now" -v was="$was" 'BEGIN { exit now <= was * 1.03 }' || continue
    echo "$rung has $now KB, more than 3 % over the $was of $list; what came in:"
    awk -v rung=$rung '/^[a-z]/ { on = $1 == rung; next } on { for (i = 1; i <= NF; i++) print $i }' $list |
        LC_ALL=C sort -u > "$B/ladder.was"
    names $rung | LC_ALL=C comm -13 "$B/ladder.was" -
done
