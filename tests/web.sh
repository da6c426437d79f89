# web.sh - the page that trains in the browser: built by make web, opened in headless Chromium, clicked and looked at
#
#   sh tests/web.sh            uses $B (build), $CLANG (clang), $NODE (node), $CHROMIUM and $CHROMEDRIVER, $FIREFOX
#   KEEP=1 sh tests/web.sh     trains each demo to its end and keeps the picture of the page as docs/web.png
#
# Debian has the rest in chromium, chromium-driver, lld, wasi-libc, libclang-rt-dev-wasm32 and curl; without them it
# prints "skipped N tests: why". Firefox (firefox-esr) trains the page too, where it is. The last line is "N passed, N
# failed".
B=${B:-build}
CLANG=${CLANG:-clang}
NODE=${NODE:-node}
CHROMIUM=${CHROMIUM:-chromium}
CHROMEDRIVER=${CHROMEDRIVER:-chromedriver}
FIREFOX=${FIREFOX:-firefox-esr}
out=$B/tests/web
passed=0
failed=0
rm -rf "$out" "$B/web/bare" "$B/web/broken"
mkdir -p "$out"

skip() {
    echo "skipped 29 tests of the page that trains: $1"
    echo "0 passed, 0 failed"
    exit 0
}
for tool in "$CLANG" wasm-ld "$NODE" curl "$CHROMIUM" "$CHROMEDRIVER"; do
    command -v "$tool" >/dev/null || skip "no $tool"
done
echo '#include <wasm_simd128.h>
#include <stdio.h>
int main(void) { return puts("fine") < 0; }' >"$out/probe.c"
$CLANG --target=wasm32-wasi -msimd128 "$out/probe.c" -o "$out/probe" 2>/dev/null || skip "$CLANG makes no wasm program"

# result NAME TEXT: passes if TEXT is empty, else shows it.
result() {
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: $2"
    fi
}
stop() {
    for id in $driver $server; do kill "$id" 2>/dev/null; done
    wait 2>/dev/null
}
trap 'stop; exit 1' INT TERM
finish() {
    stop
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit $?
}

if ! B=$B CLANG=$CLANG sh examples/web/build.sh >"$out/build.log" 2>&1; then
    result build "$(tail -n 20 "$out/build.log")"
    finish
fi
size=$(wc -c <"$B/web/demos.wasm")
page=$(wc -c <"$B/web/index.html")
echo "demos.wasm has $size bytes, index.html $page"
result size "$([ $((size + page)) -le 409600 ] || echo "the page has $((size + page)) bytes, more than 400 KB")"

# A plain file server, which knows nothing of types of files.
cat >"$out/server.mjs" <<'END'
import { createServer } from 'node:http';
import { readFile } from 'node:fs';
const server = createServer((asked, answer) => readFile(process.argv[2] + asked.url.split('?')[0], (error, bytes) => {
    if (asked.url.includes('?')) console.log('told ' + asked.url.split('?')[1]);
    answer.writeHead(error ? 404 : 200, { 'content-type': asked.url.endsWith('.html') ? 'text/html' : 'text/plain' });
    answer.end(bytes);
}));
server.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port));
END
timeout 900 "$NODE" "$out/server.mjs" "$B/web" >"$out/server.log" 2>&1 &
server=$!
timeout 900 "$CHROMEDRIVER" --port=0 >"$out/driver.log" 2>&1 &
driver=$!
port_of() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        sleep 0.3
        port=$(sed -n 's/.*port \([0-9][0-9]*\)\.*$/\1/p' "$1" | tail -n 1)
        [ -z "$port" ] || break
    done
    echo "$port"
}
site=http://127.0.0.1:$(port_of "$out/server.log")
drive=http://127.0.0.1:$(port_of "$out/driver.log")

# ask PATH JSON: one call of WebDriver (with curl's options after it).   -> the answer
ask() {
    path=$1
    json=$2
    shift 2
    curl -s --max-time 60 -H 'Content-Type: application/json' "$@" ${json:+-d "$json"} "$drive/session$path"
}
# browse SWITCH..: a new browser that finds no machine but this one.   -> its session in $session
browse() {
    switches=
    for s in "$@"; do switches="$switches,\"$s\""; done
    session=$(ask "" "{\"capabilities\":{\"alwaysMatch\":{\"goog:chromeOptions\":{\"binary\":\"$(command -v "$CHROMIUM")\",\"args\":[
        \"--headless\",\"--no-sandbox\",\"--disable-gpu\",\"--disable-dev-shm-usage\",\"--hide-scrollbars\",\"--window-size=1360,2600\",
        \"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1\"$switches]}}}}" | sed -n 's/.*"sessionId":"\([^"]*\)".*/\1/p')
    [ -n "$session" ]
}
leave() { ask "/$session" "" -X DELETE >/dev/null; }
visit() { ask "/$session/url" "{\"url\":\"$1\"}" >/dev/null; }
# js CODE: runs a function's body in the page; no double quotes and no backslashes in it.   -> the string it returns
js() {
    code=$(printf '%s' "$1" | tr '\n' ' ')
    ask "/$session/execute/sync" "{\"script\":\"$code\",\"args\":[]}" | sed -n 's/^{"value":"\{0,1\}\(.*[^"]\)"\{0,1\}}$/\1/p'
}
# until_js SECONDS CODE: waits until it returns yes.
until_js() {
    end=$(($(date +%s) + $1))
    while [ "$(js "$2")" != yes ]; do
        [ "$(date +%s)" -lt $end ] || return 1
        sleep 0.2
    done
}
# quiet: empty if the page says that it has no trouble; an answer that does not come is not empty.
quiet() {
    said=$(js "return 'trouble: ' + document.getElementById('trouble').textContent + '.'")
    [ "$said" = "trouble: ." ] || echo "the page says \"$said\""
}
pixels='const pixels = (name, kind) => { const c = document.querySelector(`#${name} .${kind}`);
    return c.getContext(`2d`).getImageData(0, 0, c.width, c.height); };'

# Milliseconds from the click on a demo's button until its curve has moved, looked at in each frame.
first_curve() {
    code=$(printf '%s' "$pixels
        const done = arguments[0], before = performance.now();
        const accent = () => { const d = pixels('$1', 'curve').data; let n = 0;
            for (let i = 0; i < d.length; i += 4) n += d[i + 2] - d[i] > 80 && d[i + 3] > 200; return n; };
        document.querySelector('#$1 .go').click();
        const look = () => { const ms = performance.now() - before;
            if (accent() > 20 || ms > 20000) done(ms.toFixed(0)); else requestAnimationFrame(look); };
        requestAnimationFrame(look);" | tr '\n' ' ')
    ask "/$session/execute/async" "{\"script\":\"$code\",\"args\":[]}" | sed -n 's/^{"value":"\([0-9]*\)"}$/\1/p'
}

if ! browse; then
    result browser "Chromium does not start: $(tail -n 5 "$out/driver.log")"
    finish
fi
visit "$site/index.html"
until_js 20 "return document.body.dataset.ready || 'no'" || result ready "the page is not ready after 20 s"


# Each alone, on a fresh page; the best of three, since the machine may be busy.
for name in spiral image cartpole digits; do
    best=99999
    for _ in 1 2 3; do
        visit "$site/index.html"
        until_js 20 "return document.body.dataset.ready || 'no'"
        ms=$(first_curve $name)
        [ "${ms:-99999}" -ge $best ] || best=$ms
        [ $best -gt 1000 ] || break
    done
    echo "$name: the curve moves $best ms after the click"
    result "$name, first curve" "$([ $best -le 1000 ] || echo "after $best ms")"
done

# All at once, until each has learned something (with KEEP until each is done).
visit "$site/index.html"
until_js 20 "return document.body.dataset.ready || 'no'"
blank=$(js "$pixels return pixels('spiral', 'stage').data.filter((v, i) => i % 4 == 3 && v > 0).length / 1000")
js "document.querySelectorAll('.go').forEach(b => b.click()); return 'clicked'" >/dev/null
sleep 1
js "const b = document.querySelector('#image .go'); b.click(); return b.textContent" >"$out/paused"
result pause "$(grep -qx 'Go on' "$out/paused" || echo "the button says $(cat "$out/paused")")"
js "document.querySelector('#image .go').click(); return ''" >/dev/null
# learned NAME CONDITION: of loss and steps
learned() {
    condition=$2
    limit=100
    [ -z "$KEEP" ] || limit=300 condition="document.querySelector('#$1 .go').textContent == 'Again'"
    until_js $limit "const d = document.getElementById('$1').dataset, loss = +d.loss, steps = +d.steps;
        return $condition ? 'yes' : 'no'"
    status=$?
    echo "$1: $(js "return document.querySelector('#$1 .status').textContent")"
    result "$1, loss" "$([ $status -eq 0 ] || echo "not $condition after $limit s: $(js "return document.getElementById('$1').dataset.loss")")"
}
learned spiral 'steps > 100 && loss < 0.1'
learned image 'steps > 100 && loss < 0.002'
learned digits 'steps > 100 && loss < 0.3'
learned cartpole 'steps > 300 && loss > 1.2'

# The spiral's three colors lie on the stage, in shares that are not far from a third each.
shares=$(js "$pixels const d = pixels('spiral', 'stage').data, n = [0, 0, 0];
    for (let i = 0; i < d.length; i += 4) { if (d[i + 3] < 60) continue; const c = [d[i + 2], d[i], d[i + 1]];
        n[c.indexOf(Math.max(...c))]++; }
    const all = n[0] + n[1] + n[2]; return n.map(k => (100 * k / all).toFixed(0)).join(' ') + ' of ' + (all / 1000).toFixed(0)")
echo "spiral: per cent of each color: $shares thousand pixels, $blank before the click"
result "spiral, pixels" "$(echo "$shares $blank" | awk '{ if ($1 < 15 || $2 < 15 || $3 < 15 || $5 < 3 * $6) print "colors: " $0 }')"
# What the image demo knows is close to the picture: the mean difference of a color, of 255.
difference=$(js "$pixels const p = pixels('image', 'stage'), d = p.data, w = p.width, side = Math.round(w * 0.48);
    const right = Math.round(w * 0.52); let sum = 0, n = 0, ink = 0;
    for (let y = 4; y < side - 4; y++) for (let x = 4; x < side - 4; x++) for (let c = 0; c < 3; c++) {
        const a = d[(y * w + x) * 4 + c], b = d[(y * w + x + right) * 4 + c]; sum += Math.abs(a - b); ink += b; n++; }
    return (sum / n).toFixed(2) + ' ' + (ink / n).toFixed(0)")
echo "image: mean difference and mean color: $difference"
result "image, pixels" "$(echo "$difference" | awk '{ if ($1 > 12 || $2 < 40) print "differs by " $0 }')"

# A seven and a one, drawn with the pointer; the answer is the bar that has the color of the best.
draw() {
    at=$(js "const r = document.querySelector('#digits .stage').getBoundingClientRect(), s = r.width / 600;
        return [r.left + scrollX, r.top + scrollY, s].join(' ')")
    moves=$(echo "$1" | tr ' ' '\n' | awk -F, -v at="$at" 'BEGIN { split(at, o, " ") } {
        printf "%s{\"type\":\"pointerMove\",\"duration\":30,\"x\":%d,\"y\":%d}", (NR > 1 ? "," : ""), o[1] + $1 * o[3], o[2] + $2 * o[3]
        if (NR == 1) printf ",{\"type\":\"pointerDown\",\"button\":0}" }')
    ask "/$session/actions" "{\"actions\":[{\"type\":\"pointer\",\"id\":\"pen\",\"actions\":[$moves,{\"type\":\"pointerUp\",\"button\":0}]}]}" \
        >>"$out/drawn"
}
best_bar="$pixels const p = pixels('digits', 'stage'), d = p.data, s = p.width / 600; let most = 0, best = -1;
    for (let k = 0; k < 10; k++) { let n = 0; for (let x = 399; x < 600; x++) {
        const i = (Math.round((22 * k + 11) * s) * p.width + Math.round(x * s)) * 4; n += d[i + 2] - d[i] > 80; }
        if (n > most) { most = n; best = k; } } return best + ' ' + most;"
clear_pad() { js "document.querySelector('#digits .clear').click(); return ''" >/dev/null; }
clear_pad
draw "110,30 110,70 110,110 110,150 110,190"
seen=$(js "$best_bar")
result "digits, a one" "$(case $seen in "1 "*) ;; *) echo "seen as $seen" ;; esac)"
clear_pad
draw "60,40 100,40 150,40 140,80 120,120 105,160 95,195"
seen=$(js "$best_bar")
echo "digits: the seven is read as $seen of 201 pixels"
result "digits, a seven" "$(case $seen in "7 "*) ;; *) echo "seen as $seen" ;; esac)"

beyond=$(js "return performance.getEntriesByType('resource').map(e => e.name).join(' ')")
result network "$([ "$beyond" = "$site/demos.wasm" ] || echo "the page loads $beyond")"
wide=$(js "return String(document.documentElement.scrollWidth - innerWidth)")
result width "$([ "$wide" -le 0 ] || echo "the page is $wide pixels too wide")"
result trouble "$(quiet)"

# The picture of the whole page.
high=$(js "return String(Math.ceil(document.querySelector('main').getBoundingClientRect().bottom))")
ask "/$session/window/rect" "{\"width\":1360,\"height\":${high:-2600}}" >/dev/null
sleep 0.5
ask "/$session/screenshot" "" | sed 's/^{"value":"//; s/"}$//' | base64 -d >"$out/web.png"
[ -z "$KEEP" ] || cp "$out/web.png" docs/web.png
# size PNG: its width and height
size() { od -An -tu1 -j16 -N8 "$1" | awk '{ print ($3 * 256) + $4, ($7 * 256) + $8 }'; }
for picture in "$out/web.png" docs/web.png; do
    seen=$(size "$picture")
    result "$picture" "$(echo "$seen $(wc -c <"$picture")" | awk '{ if ($1 < 1000 || $2 < 1500 || $3 < 100000) print "a picture of " $0 " bytes" }')"
done

# The pole is nudged from the left, then from the right: in the next tick of 20 ms it leans that way by 0.8 radians a
# second more. What its own forces change in a tick is less than half of that. A cart that falls in between is looked
# at again. The demos show themselves when the size of the window changes.
nudged=$(js "const seen = {}, show = Demo.prototype.show, turns = [];
    Demo.prototype.show = function () { seen[this.name] = this; show.call(this); };
    dispatchEvent(new Event('resize'));
    Demo.prototype.show = show;
    const demo = seen.cartpole, box = demo.stage.getBoundingClientRect();
    const angle = () => { demo.c.play(); demo.c.paint(); return demo.numbers()[2]; };
    for (const side of [-1, 1]) {
        let turn = 0;
        for (let k = 0; k < 20 && !(turn * side < -0.008 && turn * side > -0.024); k++) {
            const before = angle(), now = angle(), x = 300 + 116 * demo.numbers()[1] + 50 * side;
            demo.stage.dispatchEvent(new PointerEvent('pointerdown', {clientX: box.left + x * box.width / 600, clientY: box.top + 90}));
            turn = (angle() - now) - (now - before);
        }
        turns.push(turn.toFixed(4));
    }
    return turns.join(' ')")
echo "cartpole: a nudge from the left turns the pole by ${nudged% *} radians more, one from the right by ${nudged#* }"
result nudge "$(echo "$nudged" | awk '!($1 > 0.008 && $1 < 0.024 && $2 < -0.008 && $2 > -0.024) { print "the pole turns by " $0 }')"
# It still stands, or stands again, and nothing is raised.
sleep 0.3
result "nudge, trouble" "$(quiet)"

# A narrow screen, in the dark.
ask "/$session/goog/cdp/execute" '{"cmd":"Emulation.setEmulatedMedia","params":{"features":[{"name":"prefers-color-scheme","value":"dark"}]}}' >/dev/null
ask "/$session/window/rect" '{"width":500,"height":2400}' >/dev/null
sleep 0.5
ask "/$session/screenshot" "" | sed 's/^{"value":"//; s/"}$//' | base64 -d >"$out/dark.png"
wide=$(js "return String(document.documentElement.scrollWidth - innerWidth)")
result narrow "$([ "$wide" -le 0 ] || echo "on a narrow screen the page is $wide pixels too wide")"
paper=$(js "return getComputedStyle(document.body).backgroundColor")
result dark "$([ "$paper" = "rgb(20, 23, 26)" ] || echo "the paper is $paper")"

# From a folder: one file holds all; the other page says so.
visit "file://$(cd "$B/web" && pwd)/alone.html"
until_js 20 "return document.body.dataset.ready || 'no'"
js "document.querySelector('#spiral .go').click(); return ''" >/dev/null
until_js 30 "return +document.getElementById('spiral').dataset.steps > 50 ? 'yes' : 'no'"
result "from a folder" "$([ $? -eq 0 ] || echo "alone.html does not train")"
visit "file://$(cd "$B/web" && pwd)/index.html"
until_js 10 "return document.getElementById('trouble').textContent.includes('open alone.html') ? 'yes' : 'no'"
result "index.html from a folder" "$([ $? -eq 0 ] || echo "does not say what to open")"
# A folder without demos.wasm, and one with something else under that name.
mkdir "$B/web/bare" "$B/web/broken"
for name in bare broken; do
    cp "$B/web/index.html" "$B/web/$name"
done
cp README.md "$B/web/broken/demos.wasm"
visit "$site/bare/index.html"
until_js 10 "return document.getElementById('trouble').textContent.includes('demos.wasm is not beside') ? 'yes' : 'no'"
result "without demos.wasm" "$([ $? -eq 0 ] || echo "the page does not say what is missing")"
visit "$site/broken/index.html"
until_js 10 "return document.getElementById('trouble').textContent.includes('demos.wasm is not') ? 'yes' : 'no'"
result "a broken demos.wasm" "$([ $? -eq 0 ] || echo "the page does not say that demos.wasm is broken")"
rm -r "$B/web/bare" "$B/web/broken"
leave

# A processor without the vectors of SSE 4.1: the browser has no SIMD then, and the page says so.
browse "--js-flags=--no-enable-sse4-1 --no-enable-ssse3"
visit "$site/index.html"
until_js 10 "return document.getElementById('trouble').textContent.startsWith('This browser has no WebAssembly SIMD') ? 'yes' : 'no'"
result "without SIMD" "$([ $? -eq 0 ] || echo "the page does not say that it needs SIMD")"
leave

# In Firefox, without a driver: a page that clicks by itself, and tells the server what the spiral has learned.
if command -v "$FIREFOX" >/dev/null; then
    sed '/<.body>/,$d' "$B/web/index.html" >"$B/web/clicks.html"
    cat >>"$B/web/clicks.html" <<'END'
<script>
const spiral = document.getElementById("spiral");
const look = setInterval(() => {
    if (document.body.dataset.ready == "yes" && spiral.querySelector(".go").textContent == "Train") spiral.querySelector(".go").click();
    if (+spiral.dataset.steps > 100 && +spiral.dataset.loss < 0.1) { clearInterval(look); fetch("index.html?steps=" + spiral.dataset.steps + "&loss=" + spiral.dataset.loss); }
}, 50);
</script>
</body></html>
END
    mkdir -p "$out/firefox"
    home=$(cd "$out/firefox" && pwd)
    HOME=$home timeout 100 "$FIREFOX" --headless --no-remote --profile "$home" "$site/clicks.html" >"$out/firefox.log" 2>&1 &
    driver="$driver $!"
    for _ in $(seq 90); do
        told=$(sed -n 's/^told //p' "$out/server.log")
        [ -z "$told" ] || break
        sleep 1
    done
    rm "$B/web/clicks.html"
    echo "Firefox: ${told:-nothing}"
    result Firefox "$(echo "$told" | awk -F '[=&]' '!($2 > 100 && $4 > 0 && $4 < 0.1) { print "the spiral is not learned: " $0 }')"
else
    echo "skipped 1 test of the page in Firefox: no $FIREFOX"
fi
finish
