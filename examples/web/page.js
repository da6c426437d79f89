"use strict";
// C computes and JavaScript draws. Each demo has an instance of the module of its own; in every frame it trains for
// SLICE milliseconds, then the page draws what it left in its memory. A canvas is WIDE units wide,
// whatever its size on the screen.
const SLICE = 10, WIDE = 600, SIDE = 96;
const names = ["spiral", "image", "cartpole", "digits"];        // in the order of demos.c

// A module with the smallest function that has a vector in it.
const hasSimd = WebAssembly.validate(new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11]));

function trouble(text) {
  const p = document.getElementById("trouble");
  p.textContent = text;
  p.hidden = false;
  for (const button of document.querySelectorAll("button, input")) button.disabled = true;
}

async function load() {
  if (embedded) return WebAssembly.compile(Uint8Array.from(atob(embedded), c => c.charCodeAt(0)));
  const answer = await fetch("demos.wasm");
  if (!answer.ok) throw new Error("demos.wasm is not beside this page.");
  try {
    return await WebAssembly.compile(await answer.arrayBuffer());
  } catch (error) {
    throw new Error("demos.wasm is not what this page was built with: " + error.message);
  }
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// An empty canvas of WIDE x height units, as sharp as the screen.
function clear(canvas, height) {
  const width = Math.round(canvas.clientWidth * devicePixelRatio);
  const scale = width / WIDE;
  canvas.style.aspectRatio = `${WIDE} / ${height}`;
  canvas.width = width;
  canvas.height = Math.round(height * scale);
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.font = "13px system-ui, sans-serif";
  c.lineJoin = c.lineCap = "round";
  return c;
}

function text(c, words, x, y, align = "left", of = "soft") {
  c.textAlign = align;
  c.fillStyle = color(of);
  c.fillText(words, x, y);
}

class Demo {
  constructor(name, module) {
    this.name = name;
    this.module = module;
    this.look = looks[name];
    const at = this.at = document.getElementById(name);
    this.stage = at.querySelector(".stage");
    this.curve = at.querySelector(".curve");
    this.button = at.querySelector(".go");
    this.status = at.querySelector(".status");
    this.button.onclick = () => this.toggle();
    this.seed = 0;
    this.begin();
    if (this.look.listen) this.look.listen(this);
  }

  // A new network, in a memory of its own.
  begin() {
    const page = { now: () => performance.now() };
    // What a C library might ask the system for is refused (52 is ENOSYS). This module asks for nothing.
    const system = new Proxy({}, { get: () => () => 52 });
    this.c = new WebAssembly.Instance(this.module, { wasi_snapshot_preview1: system, page }).exports;
    this.c._initialize();
    this.c.start(names.indexOf(this.name), ++this.seed);
    this.history = [];
    this.running = this.ended = false;
    this.spent = 0;
    this.show();
  }

  pixels(which) { return new Uint8ClampedArray(this.c.memory.buffer, this.c.pixels() + which * SIDE * SIDE * 4, SIDE * SIDE * 4); }
  numbers() { return new Float32Array(this.c.memory.buffer, this.c.numbers(), 4096); }

  toggle() {
    if (this.ended) this.begin();
    this.running = !this.running;
    this.show();
    this.wake();
  }

  // One frame at a time, never two.
  wake() {
    if (this.awake) return;
    this.awake = true;
    requestAnimationFrame(() => { this.awake = false; this.frame(); });
  }

  frame() {
    if (this.running) {
      const begin = performance.now(), loss = this.c.run(SLICE);
      this.spent += performance.now() - begin;
      if (!Number.isNaN(loss)) this.history.push([this.c.steps(), loss]);
      if (this.c.done()) { this.running = false; this.ended = true; }
      if (this.failed()) return;
    } else if (this.ended) {
      this.c.play();
    }
    this.show();
    if (this.running || (this.ended && this.look.plays)) this.wake();
  }

  failed() {
    const bytes = new Uint8Array(this.c.memory.buffer, this.c.error());
    const words = new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
    if (words) trouble(words);
    return words;
  }

  // The picture is drawn now and then, and whenever the training rests; the curve in each frame.
  show() {
    const now = performance.now();
    if (!this.running || now - (this.shown || 0) > this.look.every) {
      this.c.paint();
      this.look.draw(clear(this.stage, this.look.height), this, this.numbers());
      this.shown = performance.now();
    }
    this.drawCurve();
    const steps = this.c.steps(), last = this.history.at(-1);
    this.button.textContent = this.running ? "Pause" : this.ended ? "Again" : steps ? "Go on" : "Train";
    const seconds = (this.spent / 1000).toFixed(1);
    this.status.textContent = last ? `step ${steps.toLocaleString("en")} · ${this.look.tell(last[1], this.numbers())} · ${seconds} s` : "";
    this.at.dataset.steps = steps;
    this.at.dataset.loss = last ? last[1] : "";
  }

  drawCurve() {
    const height = 110, left = 62, right = WIDE - 8, top = 10, bottom = height - 20, { log, title, most } = this.look;
    const c = clear(this.curve, height), h = this.history, f = log ? x => Math.log10(Math.max(x, 1e-6)) : x => x;
    let low = 0, high = most;
    if (log) {
      low = Math.floor(Math.min(-1, ...h.map(point => f(point[1]))));
      high = Math.max(0, Math.ceil(f(h.length ? h[0][1] : 1)));
    }
    const end = Math.max(h.length ? h.at(-1)[0] : 0, 10);
    const X = x => left + (right - left) * x / end, Y = y => bottom - (bottom - top) * (f(y) - low) / (high - low);
    c.lineWidth = 1;
    const ticks = log ? Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i)) : [0, high / 2, high];
    const each = Math.ceil(ticks.length / 4);
    ticks.forEach((y, i) => {
      if (i % each) return;
      c.strokeStyle = color("rule");
      c.beginPath(); c.moveTo(left, Y(y)); c.lineTo(right, Y(y)); c.stroke();
      text(c, log ? String(+y.toPrecision(1)) : String(y), left - 8, Y(y) + 4, "right");
    });
    text(c, title, left, height - 3);
    text(c, h.length ? end.toLocaleString("en") + " steps" : "", right, height - 3, "right");
    c.strokeStyle = color("accent");
    c.lineWidth = 2;
    c.beginPath();
    const every = Math.max(1, Math.floor(h.length / 600));          // as many points as one can see
    for (let i = 0; i < h.length; i += every) {
      let sum = 0, n = 0;
      for (let k = i; k < Math.min(i + every, h.length); k++, n++) sum += h[k][1];
      c.lineTo(X(h[i][0]), Y(sum / n));
    }
    c.stroke();
  }
}

// A picture of the demo, scaled to a square. tint: its opacity is ink of that color.
function picture(c, rgba, columns, rows, x, y, wide, high, smooth, tint) {
  const small = new OffscreenCanvas(columns, rows), s = small.getContext("2d");
  s.putImageData(new ImageData(rgba.slice(0, columns * rows * 4), columns, rows), 0, 0);
  if (tint) {
    s.globalCompositeOperation = "source-in";
    s.fillStyle = tint;
    s.fillRect(0, 0, columns, rows);
  }
  c.imageSmoothingEnabled = smooth;
  c.imageSmoothingQuality = "high";
  c.drawImage(small, x, y, wide, high);
}

function frame(c, x, y, wide, high) {
  c.strokeStyle = color("rule");
  c.lineWidth = 1;
  c.strokeRect(x, y, wide, high);
}

// Where the pointer is on a canvas, in its units.
function place(event) {
  const box = event.target.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width * WIDE, (event.clientY - box.top) / box.width * WIDE];
}

const arms = ["one", "two", "three"];
const looks = {
  spiral: {
    height: 400, every: 120, log: true, title: "loss (cross entropy)",
    tell: (loss, n) => `loss ${loss.toPrecision(2)} · ${(100 * n[0]).toFixed(1)} % right`,
    draw(c, demo, n) {
      const size = 400, x0 = (WIDE - size) / 2;
      if (demo.history.length) picture(c, demo.pixels(0), SIDE, SIDE, x0, 0, size, size, true);
      frame(c, x0 + 0.5, 0.5, size - 1, size - 1);
      for (let i = 0; i < 450; i++) {
        c.fillStyle = color(arms[n[3 + 3 * i]]);
        c.beginPath();
        c.arc(x0 + size * (n[1 + 3 * i] + 1.1) / 2.2, size * (n[2 + 3 * i] + 1.1) / 2.2, 3, 0, 7);
        c.fill();
      }
    },
  },
  image: {
    height: 310, every: 150, log: true, title: "loss (mean squared error)",
    tell: loss => `loss ${loss.toPrecision(2)}`,
    draw(c, demo) {
      picture(c, demo.pixels(0), SIDE, SIDE, 0, 0, 288, 288, true);
      if (demo.history.length) picture(c, demo.pixels(1), SIDE, SIDE, 312, 0, 288, 288, true);
      else frame(c, 312.5, 0.5, 287, 287);
      text(c, "the picture", 144, 306, "center");
      text(c, "what the network knows", 456, 306, "center");
    },
    listen(demo) {
      demo.at.querySelector("input").onchange = async event => {
        const photo = await createImageBitmap(event.target.files[0]).catch(() => null);
        if (!photo) { demo.status.textContent = "This file is not a picture that the browser can read."; return; }
        const square = new OffscreenCanvas(SIDE, SIDE).getContext("2d"), edge = Math.min(photo.width, photo.height);
        square.drawImage(photo, (photo.width - edge) / 2, (photo.height - edge) / 2, edge, edge, 0, 0, SIDE, SIDE);
        demo.begin();
        demo.pixels(0).set(square.getImageData(0, 0, SIDE, SIDE).data);
        demo.c.input(0);
        demo.toggle();
      };
    },
  },
  cartpole: {
    height: 220, every: 0, log: false, most: 10, title: "seconds that a pole stays up (10 at most)", plays: true,
    tell: (seconds, n) => n[0] === 1 ? "solved" : `${seconds.toFixed(1)} s upright`,
    draw(c, demo, n) {
      const unit = 116, ground = 180, carts = n[0];
      c.strokeStyle = color("rule");
      c.lineWidth = 2;
      c.beginPath(); c.moveTo(WIDE / 2 - 2.4 * unit, ground + 13); c.lineTo(WIDE / 2 + 2.4 * unit, ground + 13); c.stroke();
      for (let i = carts - 1; i >= 0; i--) {
        const x = WIDE / 2 + unit * n[1 + 2 * i], angle = n[2 + 2 * i];
        c.globalAlpha = i ? 0.16 : 1;
        c.fillStyle = color(i ? "soft" : "ink");
        c.beginPath(); c.roundRect(x - 26, ground - 12, 52, 24, 4); c.fill();
        c.strokeStyle = color("two");
        c.lineWidth = 8;
        c.beginPath(); c.moveTo(x, ground - 10); c.lineTo(x + 140 * Math.sin(angle), ground - 10 - 140 * Math.cos(angle)); c.stroke();
      }
      c.globalAlpha = 1;
      text(c, carts > 1 ? "32 carts, as fast as they can" : "one cart, in real time", WIDE / 2, 214, "center");
    },
    listen(demo) {
      demo.stage.onpointerdown = event => demo.c.input(WIDE / 2 + 116 * demo.numbers()[1] - place(event)[0]);
    },
  },
  digits: {
    height: 300, every: 120, log: true, title: "loss (cross entropy)",
    tell: (loss, n) => `loss ${loss.toPrecision(2)} · ${(100 * n[0]).toFixed(1)} % right`,
    draw(c, demo, n) {
      const pad = 220, trained = demo.history.length > 0, strokes = demo.strokes || [];
      frame(c, 0.5, 0.5, pad - 1, pad - 1);
      if (!strokes.length) text(c, "draw a digit here", pad / 2, pad / 2 + 4, "center");
      c.strokeStyle = color("ink");
      c.lineWidth = 14;
      for (const stroke of strokes) {
        c.beginPath();
        for (const [x, y] of stroke) c.lineTo(x, y);
        c.stroke();
      }
      frame(c, 248.5, 0.5, 100, 100);
      picture(c, demo.pixels(1), 20, 20, 249, 1, 99, 99, false, color("ink"));
      text(c, "as it sees it", 298, 120, "center");
      const best = Array.from(n.slice(11, 21)).indexOf(Math.max(...n.slice(11, 21)));
      c.font = "700 56px system-ui, sans-serif";
      if (strokes.length && trained) text(c, String(best), 298, 188, "center", "accent");
      c.font = "13px system-ui, sans-serif";
      for (let k = 0; k < 10; k++) {
        const y = 22 * k, share = trained ? n[11 + k] : 0;
        text(c, String(k), 384, y + 16, "center");
        c.fillStyle = color("rule");
        c.fillRect(398, y + 4, 202, 14);
        c.fillStyle = color(k === best ? "accent" : "soft");
        c.fillRect(398, y + 4, 202 * share, 14);
      }
      for (let k = 0; k < 10; k++) {
        const x = 60 * k + 6, right = n[1 + k] === k;
        picture(c, demo.pixels(0).slice(k * 1600), 20, 20, x, 234, 48, 48, true, color("ink"));
        if (trained) text(c, String(n[1 + k]), x + 24, 297, "center", right ? "three" : "wrong");
      }
    },
    listen(demo) {
      const tell = () => {
        const numbers = demo.numbers();
        let n = 0;
        for (const stroke of demo.strokes) {
          stroke.forEach(([x, y], i) => { if (n < 1024) numbers.set([x, y, i > 0 ? 1 : 0], 3 * n++); });
        }
        demo.c.input(n);
        demo.shown = 0;
        demo.show();
      };
      demo.stage.onpointerdown = event => {
        const at = place(event);
        if (at[0] > 220 || at[1] > 220) return;
        demo.stage.setPointerCapture(event.pointerId);
        (demo.strokes ||= []).push([at]);
        demo.pen = true;
        tell();
      };
      demo.stage.onpointermove = event => {
        if (!demo.pen) return;
        const [x, y] = place(event);
        demo.strokes.at(-1).push([Math.min(Math.max(x, 8), 212), Math.min(Math.max(y, 8), 212)]);
        tell();
      };
      demo.stage.onpointerup = demo.stage.onpointercancel = () => { demo.pen = false; };
      demo.at.querySelector(".clear").onclick = () => { demo.strokes = []; tell(); };
    },
  },
};

// Comments and a few words of C in colors.
function colorSource(pre) {
  const words = /(\/\/.*)|\b(static|const|enum|typedef|struct|return|for|if|else|while|do|int|double|float|char|void|tensor_t|nn_module_t|nn_optimizer_t|int64_t)\b/g;
  const escape = s => s.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  let out = "", end = 0;
  for (const found of pre.textContent.matchAll(words)) {
    out += escape(pre.textContent.slice(end, found.index));
    out += found[1] ? `<i>${escape(found[1])}</i>` : `<b>${found[2]}</b>`;
    end = found.index + found[0].length;
  }
  pre.innerHTML = out + escape(pre.textContent.slice(end));
}

async function main() {
  document.querySelectorAll(".source pre").forEach(colorSource);
  if (!hasSimd) {
    trouble("This browser has no WebAssembly SIMD, which the demos need; all browsers since 2023 have it.");
    return;
  }
  let module;
  try {
    module = await load();
  } catch (error) {
    trouble(location.protocol === "file:" ? "A browser does not load demos.wasm from a folder: open alone.html, which " +
      "is the same page in one file, or put this folder on any file server." : String(error.message || error));
    return;
  }
  const demos = names.map(name => new Demo(name, module));
  const again = () => demos.forEach(demo => demo.show());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", again);
  document.body.dataset.ready = "yes";
}

main();
