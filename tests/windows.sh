# windows.sh - Windows by MinGW-w64, run under wine: headers, examples and tests without a warning, the core of the
# suite, threads of the user's, a DLL and a program that links it, names of files beyond ASCII, the guide's program.
#
#   sh tests/windows.sh         uses $B (build), $JOBS; what MSVC's own compiler would take: tests/host.sh
#
# A tool that is missing is a line "skipped N tests of ..". The last line is "N passed, N failed".
B=${B:-build}
out=$B/windows.d
jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}
passed=0
failed=0
rm -rf "$out"
mkdir -p "$out/log"

mingw=x86_64-w64-mingw32-gcc
# What is run under wine; and programs that need a Unix: page protection, fork.
core="autograd calculus composed conv files functions hooks indexing kit_shared linalg modes nn_rows sequence sorting views"
unix="bounds ops_memory threads"
command -v $mingw >/dev/null 2>&1 || {
    echo "skipped 132 tests of Windows: no $mingw"
    echo "1 passed, 0 failed"
    exit 0
}
wine=
for w in wine64 wine /usr/lib/wine/wine64; do
    if [ -z "$wine" ] && command -v $w >/dev/null 2>&1; then wine=$w; fi
done
export WINEDEBUG=-all LC_ALL=C.UTF-8
WINEPREFIX=$(cd "$out" && pwd)/wine
export WINEPREFIX

# result NAME STATUS LOG
result() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1"
        head -n 12 "$3" | sed 's/^/    /'
    fi
}
try() {
    sh -c "$2" >"$out/log/try" 2>&1
    result "$1: $2" $? "$out/log/try"
}

warn="-std=c99 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
printf '%s\n' '#define TENSOR_IMPLEMENTATION' '#define TENSOR_NN_IMPLEMENTATION' '#include "tensor_nn.h"' >"$out/impl.c"

# The implementation as it goes into a DLL; the same object links into programs. One core compiles it, the other looks
# at examples and tests.
(sh -c "$mingw $warn -O1 '-DTENSOR_API=__declspec(dllexport)' -DTENSOR_ISA=avx2 -DTENSOR_ALL_ROWS -I. -c $out/impl.c \
    -o $out/impl.o" >"$out/log/impl" 2>&1; echo $? >"$out/log/impl.rc") &

cat >"$out/threads.c" <<'END_OF_C'
#include <windows.h>
#include <stdio.h>
#include "tensor_nn.h"
static double out[4];
static DWORD WINAPI run(LPVOID p) {
    int id = (int)(intptr_t)p, i;
    double sum = 0;
    tensor_scope_t s = tensor_scope_begin();
    for (i = 0; i < 5000; i++, tensor_scope_reset(s)) {
        tensor_t *x = tensor_full(id + 1, 8, 8);
        sum += tensor_item(tensor_sum(tensor_matmul(x, x)));
    }
    tensor_scope_end(s);
    out[id] = tensor_ok() ? sum : -1;
    tensor_thread_end();
    return 0;
}
int main(void) {
    HANDLE h[4];
    int i, good = 1;
    for (i = 0; i < 4; i++) h[i] = CreateThread(NULL, 0, run, (LPVOID)(intptr_t)i, 0, NULL);
    for (i = 0; i < 4; i++) WaitForSingleObject(h[i], INFINITE);
    for (i = 0; i < 4; i++) good &= out[i] == 5000.0 * 512 * (i + 1) * (i + 1);
    puts(good ? "fine" : "wrong sums");
    return tensor_shutdown() || !good;
}
END_OF_C

# Saved, replaced and loaded under a name of three scripts; Windows has it under the same name in UTF-16.
cat >"$out/names.c" <<'END_OF_C'
#include <stdio.h>
#include <wchar.h>
#include "tensor_nn.h"
#define KIT_PNG_IMPLEMENTATION
#include "examples/kit/png.h"
static const char *const name = "gr\xC3\xB6\xC3\x9F""e-\xE6\x97\xA5\xE6\x9C\xAC-\xF0\x9F\x99\x82.safetensors";
static const wchar_t *const wide = L"gr\x00F6\x00DF" L"e-\x65E5\x672C-\xD83D\xDE42.safetensors";
static const char *const picture = "gr\xC3\xB6\xC3\x9F""e-\xE6\x97\xA5\xE6\x9C\xAC-\xF0\x9F\x99\x82.png";
static const wchar_t *const wide_picture = L"gr\x00F6\x00DF" L"e-\x65E5\x672C-\xD83D\xDE42.png";
#define EXPECT(x) if (!(x)) { printf("%d: %s\n", __LINE__, tensor_error_text()); return 1; }
int main(void) {
    nn_module_t *a = nn_linear(3, 2), *b = nn_linear(3, 2);
    tensor_t *x = tensor_ones(1, 3);
    FILE *f;
    size_t n = 0;
    EXPECT(nn_save(name, a) == 0);
    EXPECT(nn_save(name, a) == 0);
    f = _wfopen(wide, L"rb");
    EXPECT(f != NULL);
    fclose(f);
    EXPECT(nn_load(name, b) == 0);
    EXPECT(tensor_equal(nn_forward(a, x), nn_forward(b, x)));
    unsigned char *bytes = kit_file__load(name, &n);
    EXPECT(bytes && n > 32);
    free(bytes);
    EXPECT(_wremove(wide) == 0);
    EXPECT(nn_load(name, b) == TENSOR_ERR_IO);
    tensor_clear_error();
    EXPECT(kit_file__load("none \xFF.csv", &n) == NULL && tensor_error_code() == TENSOR_ERR_IO);
    tensor_clear_error();
    EXPECT(nn_save("no such folder/x.safetensors", a) == TENSOR_ERR_IO);
    tensor_clear_error();
    /* A picture, twice: the second takes the place of the first, and nothing is left beside it. */
    EXPECT(png_save(picture, tensor_rand(3, 4, 4), NULL) == 0);
    EXPECT(png_save(picture, tensor_rand(3, 4, 4), NULL) == 0);
    f = _wfopen(wide_picture, L"rb");
    EXPECT(f && fgetc(f) == 0x89);
    fclose(f);
    EXPECT(_wremove(wide_picture) == 0);
    EXPECT(kit_file__open("gr\xC3\xB6\xC3\x9F""e-\xE6\x97\xA5\xE6\x9C\xAC-\xF0\x9F\x99\x82.png.tmp", "rb") == NULL);
    /* As main's argv has it, in the system's code page. */
    f = fopen("\xE9.csv", "wb");
    EXPECT(f && fputs("a\n1\n", f) >= 0);
    fclose(f);
    bytes = kit_file__load("\xE9.csv", &n);
    EXPECT(bytes && n == 4);
    free(bytes);
    EXPECT(kit_file__remove("\xE9.csv") == 0);
    puts("fine");
    return tensor_shutdown();
}
END_OF_C

# Each a file of a log that must stay empty.
for f in examples/*.c tests/*.c; do
    name=$(basename "$f" .c)
    case " $unix " in *" $name "*) continue ;; esac
    case $name in compile_*) continue ;; esac
    echo "$f"
done | xargs -P "$jobs" -n 1 sh -c \
    "$mingw -std=c99 -Wall -Wextra -Werror -O1 -I. -Iexamples -fsyntax-only \"\$0\" >\"$out/log/\$(basename \"\$0\").seen\" 2>&1"
wait
for log in "$out"/log/*.seen; do
    [ ! -s "$log" ]
    result "MinGW, $(basename "$log" .seen)" $? "$log"
done
echo "skipped $(echo $unix | wc -w) tests of Windows: $unix need a Unix"
result "MinGW, the implementation" "$(cat "$out/log/impl.rc")" "$out/log/impl"

# The guide's line, with the object in place of its source.
line=$(sed -n 's/^      \(x86_64-w64-mingw32-gcc .*tensor.dll\)$/\1/p' docs/guide.md)
try "a DLL" "$(echo "$line" | sed "s,impl[.]c,$out/impl.o,; s,tensor[.]dll,$out/&,") -Wl,--out-implib,$out/libtensor.dll.a"
x86_64-w64-mingw32-objdump -p "$out/tensor.dll" | grep 'DLL Name: lib' >"$out/log/imports"
[ ! -s "$out/log/imports" ]
result "a DLL needs no other file beside it" $? "$out/log/imports"
try "a program that links it" "$mingw $warn '-DTENSOR_API=__declspec(dllimport)' -I. $out/threads.c $out/libtensor.dll.a -o $out/dll.exe"
try "names of files" "$mingw $warn -I. $out/names.c $out/impl.o -o $out/names.exe"
try "threads" "$mingw -std=c99 -I. $out/threads.c $out/impl.o -o $out/threads.exe"
try "processes that share memory" "$mingw $warn -I. -Iexamples examples/hogwild.c $out/impl.o -static -pthread -o $out/hogwild.exe"
# The program of the guide's chapter, as the line there compiles it.
awk '/^## / { on = $2 == "Windows" } /^```/ { block = on && /^```c$/; next } block' docs/guide.md >"$out/guide.c"
line=$(sed -n 's/^    \(x86_64-w64-mingw32-gcc .*\)/\1/p' docs/guide.md)
try "the guide's program" "$(echo "$line" | sed "s,program[.],$out/guide.,g")"
# A DLL exports names of the library, no others.
x86_64-w64-mingw32-objdump -p "$out/tensor.dll" | awk '/Ordinal\/Name Pointer/ { on = 1; next } on && NF == 0 { exit } on { print $NF }' \
    >"$out/exports"
try "exports" "[ \$(grep -c '^tensor_\|^nn_' $out/exports) -gt 1000 ] && ! grep -v '^tensor_\|^nn_' $out/exports"

if [ -n "$wine" ]; then
    for name in $core; do
        echo "$name"
    done | xargs -P "$jobs" -I NAME sh -c "$mingw -std=c99 -O1 -I. -Iexamples tests/NAME.c $out/impl.o -static -pthread -o $out/NAME.exe" \
        >"$out/log/core" 2>&1
    # The first start of wine makes its folder.
    (cd "$out" && timeout 100 $wine wineboot -i >/dev/null 2>&1)
    # The examples whose first comment says what they print; 03_xor brings an implementation of its own.
    for f in examples/*.c; do
        name=$(basename "$f" .c)
        awk '!/^\/\// { exit } on && /^\/\/$/ { exit } on { print substr($0, 6) } /^\/\/ Output:$/ { on = 1 }' "$f" >"$out/$name.want"
        if [ "$name" = 03_xor ] || [ ! -s "$out/$name.want" ]; then continue; fi
        try "$name under wine" "$mingw $warn -Wstrict-prototypes -O1 -I. $f $out/impl.o -static -pthread -o $out/$name.exe &&
            timeout 100 $wine $out/$name.exe 2>$out/$name.err </dev/null | tr -d '\r' | diff $out/$name.want -"
    done
    try "the DLL under wine" "cd $out && timeout 100 $wine dll.exe | grep fine"
    try "the guide's program under wine" "cd $out && mkdir -p build && timeout 100 $wine guide.exe | grep 'the same: 1'"
    try "names of files under wine" "cd $out && timeout 100 $wine names.exe | grep fine"
    try "threads under wine" "cd $out && timeout 100 $wine threads.exe | grep fine"
    try "processes under wine" "cd $out && STEPS=300 timeout 300 $wine hogwild.exe | grep 'times as fast; wrong at worst [0-5]\.'"
    for name in $core; do
        echo "$name"
    done | xargs -P "$jobs" -I NAME sh -c \
        "timeout 600 $wine $out/NAME.exe >$out/log/NAME.run 2>&1 </dev/null; echo \$? >$out/log/NAME.rc"
    for name in $core; do
        last=$(tail -n 1 "$out/log/$name.run" | tr -d '\r')
        p=$(echo "$last" | sed -n 's/^\([0-9]*\) passed, 0 failed$/\1/p')
        if [ -n "$p" ] && [ "$(cat "$out/log/$name.rc")" = 0 ]; then
            passed=$((passed + p))
        else
            failed=$((failed + 1))
            echo "failed: $name under wine, status $(cat "$out/log/$name.rc"):"
            tail -n 8 "$out/log/$name.run" | sed 's/^/    /'
        fi
    done
    echo "$(echo $core | wc -w) programs under wine, $passed cases"
    # Its processes of this folder, which would wait for more.
    for server in wineserver "$(dirname "$(command -v $wine)")/wineserver64"; do
        if command -v "$server" >/dev/null 2>&1; then "$server" -k; fi
    done
else
    echo "skipped $(($(echo $core | wc -w) + 14)) tests of Windows: no wine"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
