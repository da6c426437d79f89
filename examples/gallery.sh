# gallery.sh - runs the programs of the gallery and writes docs/gallery.md and docs/pictures/: make gallery
# ONLY="pinn vae" runs these alone; the chapters of the others stay as they are.
# Its figures come from bench/measure.c. The text of a program's chapter is its first comment. Seconds and memory are this machine's.
B=${B:-build}
mkdir -p docs/pictures "$B/gallery"
${CC:-cc} -O1 bench/measure.c -o "$B/measure" || exit 1
# The GPT reads what the headers say in comments, without rules, and without names of functions, since it would invent
# more of them.
grep -h '^ *//' tensor.h tensor_nn.h | sed 's/^ *[/]*//; s/\(tensor\|nn\|TENSOR\|NN\)_*//g; /^[-= ]*$/d' \
    >"$B/gallery/comments.txt"
export THREADS=1 SAVE="$B/gallery/gpt.safetensors"
programs="image_fit:png spiral:png vae:png pinn:png timeseries:svg npc_crowd:png fine_tune:png fashion:png dcgan:png
    cartpole:svg word_vectors: char_gpt:"
for program in $programs; do
    name=${program%:*}
    kind=${program#*:}
    case " ${ONLY:-$name} " in
        *" $name "*) ;;
        *)
            awk -v name="$name" '/^## / { on = $2 == name } on' docs/gallery.md >"$B/gallery/$name.md"
            continue ;;
    esac
    picture=docs/pictures/$name.$kind
    [ -n "$kind" ] || picture=
    if [ $name = char_gpt ]; then export STEPS=1000 TEXT="$B/gallery/comments.txt"; fi
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
        if [ $name = char_gpt ]; then
            echo "Here it has read the comments of the headers for $STEPS steps:"
            echo
        fi
        if [ -n "$kind" ]; then
            echo "![$name](pictures/$name.$kind)"
            echo
        fi
        if [ "$(wc -l <"$B/$name.txt")" -gt 3 ]; then
            echo '```text'
            tr -d '\r' <"$B/$name.txt" | tail -n 10 | fold -s -w 110 | sed 's/ *$//'
            echo '```'
            echo
        fi
        echo "[examples/$name.c](../examples/$name.c): $figures."
        echo
    } >"$B/gallery/$name.md"
done
{
    echo "# Gallery"
    echo
    echo "Written by \`make gallery\`, which runs the programs: one page of C each, on one core. Seconds are those"
    echo "of the whole program, drawing included; memory is the process's peak."
    echo
    for program in $programs; do cat "$B/gallery/${program%:*}.md"; done
    echo "## More"
    echo
    echo "[05_gan.c](../examples/05_gan.c) is the GAN step of the PyTorch paper. [augment.c](../examples/augment.c) draws a sheet of"
    echo "what augmentation makes of a picture, [tones.c](../examples/tones.c) learns sounds by their mel spectrograms. \`make fashion\` gives fashion.c the real"
    echo "Fashion-MNIST. \`make web\` builds a page that trains four networks in a browser, in build/web: index.html with"
    echo "demos.wasm for any file server, alone.html to be opened from a folder."
    echo
    echo "![the page](web.png)"
} >"$B/gallery.md"
cp "$B/gallery.md" docs/gallery.md
