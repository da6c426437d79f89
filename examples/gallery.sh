# gallery.sh - runs the programs of the gallery and writes docs/gallery.md and docs/pictures/: make gallery
# Its figures come from bench/measure.c. The text of a program's chapter is its first comment. Seconds and memory are this machine's.
B=${B:-build}
page=$B/gallery.md
mkdir -p docs/pictures
export THREADS=1 SAVE=$B/gallery.safetensors
${CC:-cc} -O1 bench/measure.c -o "$B/measure" || exit 1
{
    echo "# Gallery"
    echo
    echo "Written by \`make gallery\`, which runs the programs: one page of C each, on one core. Seconds are those"
    echo "of the whole program, drawing included; memory is the process's peak."
    echo
} >"$page"
for program in image_fit:png spiral:png vae:png pinn:png timeseries:svg npc_crowd:png fine_tune:png fashion:png \
    dcgan:png cartpole:svg word_vectors: char_gpt:; do
    name=${program%:*}
    kind=${program#*:}
    if [ $name = char_gpt ]; then export STEPS=600; fi
    picture=docs/pictures/$name.$kind
    [ -n "$kind" ] || picture=
    if ! "$B/measure" "$B/$name" $picture >"$B/$name.txt" 2>"$B/$name.err"; then
        cat "$B/$name.err"
        exit 1
    fi
    figures=$(sed -n 's/^measure: [0-9.]* s \([0-9.]* s\) \([0-9]* MB\)$/\1, \2/p' "$B/$name.err")
    echo "$name: $figures"
    {
        echo "## $name"
        echo
        # The first comment without its first words and from Build: on.
        awk 'NR == 1 { sub(/^\/\/ [a-z_]*\.c - /, ""); print toupper(substr($0, 1, 1)) substr($0, 2) "."; next }
             /^\/\/ Build:/ || !/^\/\// { exit }
             { sub(/^\/\/ ?/, ""); print }' "examples/$name.c" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
        echo
        if [ -n "$kind" ]; then
            echo "![$name](pictures/$name.$kind)"
            echo
        fi
        if [ "$(wc -l <"$B/$name.txt")" -gt 3 ]; then
            echo '```text'
            tail -n 10 "$B/$name.txt" | sed 's/ *$//'
            echo '```'
            echo
        fi
        echo "[examples/$name.c](../examples/$name.c): $figures."
        echo
    } >>"$page"
done
{
    echo "## More"
    echo
    echo "[05_gan.c](../examples/05_gan.c) is the GAN step of the PyTorch paper. \`make web\` builds a page that trains four"
    echo "of such networks in a browser ([examples/web](../examples/web/build.sh)):"
    echo
    echo "![the page](web.png)"
} >>"$page"
cp "$page" docs/gallery.md
