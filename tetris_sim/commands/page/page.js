"use strict";
// The page of a live run. Pictures come as a JSON text and float32 values, and are coloured by WebGL; all else is JSON.

const get = (id) => document.getElementById(id);
const show = (number) => (number == null || !isFinite(number) ? "–" : Math.abs(number) < 1e5 && (Math.abs(number) >= 1e-3 || number === 0)
  ? String(Number(number.toPrecision(5))) : number.toExponential(3));
const LINES = ["#3b82d6", "#e07b39", "#3aa06b", "#b84fb8", "#b0922b", "#d64550"];

let socket = null, hello = null, latest = null, values = null, paused = false, ended = false, alive = 0, held = null;
let rows = [];

function ask(command) {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(command));
}

function tell(text) {
  get("note").textContent = text;
  get("note").hidden = !text;
}

// The picture: texels are fetched unfiltered, and what is no number stays clear.

const VERTEX = `#version 300 es
in vec2 place; out vec2 at;
void main() { at = place * 0.5 + 0.5; gl_Position = vec4(place, 0.0, 1.0); }`;
const FRAGMENT = `#version 300 es
precision highp float; precision highp sampler2D;
uniform sampler2D field, colours; uniform vec2 range; uniform vec4 part; in vec2 at; out vec4 colour;
void main() {
  vec2 share = part.xy + at * part.zw;
  ivec2 size = textureSize(field, 0);
  if (any(lessThan(share, vec2(0.0))) || any(greaterThan(share, vec2(1.0)))) { colour = vec4(0.0); return; }
  float value = texelFetch(field, min(ivec2(share * vec2(size)), size - 1), 0).r;
  if (!(value > -3.0e38 && value < 3.0e38)) { colour = vec4(0.0); return; }
  float level = clamp((value - range.x) / (range.y - range.x), 0.0, 1.0);
  colour = vec4(texelFetch(colours, ivec2(min(int(level * 256.0), 255), 0), 0).rgb, 1.0);
}`;

const gl = get("picture").getContext("webgl2", { preserveDrawingBuffer: true });
let program = null;

function prepare() {
  if (!gl) { tell("This browser offers no WebGL 2, which the picture needs; curves and controls work."); return; }
  program = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) tell(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 3, -1, -1, 3]), gl.STATIC_DRAW);
  const place = gl.getAttribLocation(program, "place");
  gl.enableVertexAttribArray(place);
  gl.vertexAttribPointer(place, 2, gl.FLOAT, false, 0, 0);
  for (const unit of [0, 1]) {
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
  }
  gl.uniform1i(gl.getUniformLocation(program, "field"), 0);
  gl.uniform1i(gl.getUniformLocation(program, "colours"), 1);
  gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
}

function setColours(bytes) {
  const pen = get("bar").getContext("2d"), strip = pen.createImageData(256, 1);
  for (let k = 0; k < 256; k++) strip.data.set([bytes[3 * k], bytes[3 * k + 1], bytes[3 * k + 2], 255], 4 * k);
  pen.putImageData(strip, 0, 0);
  if (!gl) return;
  gl.activeTexture(gl.TEXTURE1);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB8, 256, 1, 0, gl.RGB, gl.UNSIGNED_BYTE, bytes);
  gl.activeTexture(gl.TEXTURE0);
}

function range() {
  if (get("hold").checked && held) return held;
  held = [latest.low, latest.high > latest.low ? latest.high : latest.low + (Math.abs(latest.low) * 1e-6 || 1)];
  return held;
}

function fit(canvas, aspect) {
  // As wide as there is room, and no higher than the window.
  const width = Math.min(get("frame").clientWidth, Math.max(160, window.innerHeight * 0.72) / aspect);
  const size = [Math.max(1, Math.round(width)), Math.max(1, Math.round(width * aspect))];
  const [w, h] = size.map((it) => Math.max(1, Math.round(it * window.devicePixelRatio)));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w; canvas.height = h;
    canvas.style.width = `${size[0]}px`; canvas.style.height = `${size[1]}px`;
    look();
  }
}

function draw() {
  if (!latest) return;
  const flat = latest.shape.length === 2, [low, high] = range();
  get("picture").hidden = !flat; get("line").hidden = flat;
  get("low").textContent = show(low);
  const unit = hello.fields[latest.field].unit;
  get("high").textContent = unit === "1" ? show(high) : `${show(high)} ${unit}`;
  get("place").textContent = latest.place ? `${latest.place[0]} = ${show(latest.place[1])} m` : "";
  if (!flat) { drawLine(low, high); return; }
  if (!gl) return;
  const [up, across] = latest.bounds, [ends0, ends1] = latest.ends;
  fit(get("picture"), Math.min(3, Math.max(0.15, (up[1] - up[0]) / (across[1] - across[0]))));
  gl.viewport(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.R32F, latest.shape[1], latest.shape[0], 0, gl.RED, gl.FLOAT, values);
  gl.uniform2f(gl.getUniformLocation(program, "range"), low, high);
  const part = [[across, ends1], [up, ends0]].map(([box, ends]) => [(box[0] - ends[0]) / (ends[1] - ends[0]), (box[1] - box[0]) / (ends[1] - ends[0])]);
  gl.uniform4f(gl.getUniformLocation(program, "part"), part[0][0], part[1][0], part[0][1], part[1][1]);
  gl.clearColor(0, 0, 0, 0);
  gl.clear(gl.COLOR_BUFFER_BIT);
  gl.drawArrays(gl.TRIANGLES, 0, 3);
}

function drawLine(low, high) {
  const canvas = get("line");
  fit(canvas, 0.45);
  const n = values.length;
  plot(canvas, [Array.from(values, (value, k) => [k / Math.max(1, n - 1), value])], [0, 1], [low, high]);
}

function plot(canvas, lines, [x0, x1], [y0, y1]) {
  const pen = canvas.getContext("2d"), [w, h] = [canvas.width, canvas.height], edge = 4 * window.devicePixelRatio;
  pen.clearRect(0, 0, w, h);
  pen.lineWidth = 1.6 * window.devicePixelRatio;
  lines.forEach((line, number) => {
    pen.strokeStyle = LINES[number % LINES.length];
    pen.beginPath();
    for (const [x, y] of line) pen.lineTo(edge + (x - x0) / (x1 - x0 || 1) * (w - 2 * edge), h - edge - (y - y0) / (y1 - y0 || 1) * (h - 2 * edge));
    pen.stroke();
  });
}

// Curves: probes, and the numbers of each field.

function drawCurves() {
  const canvas = get("curves"), ratio = window.devicePixelRatio;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (!hello || !rows.length) return;
  const chosen = groups()[get("group").value] || [];
  const lines = chosen.map((k) => rows.map((row) => [row[0], row[k + 1]]).filter((it) => it[1] !== null));
  const all = lines.flat().map((it) => it[1]);
  const [low, high] = [all.reduce((a, b) => Math.min(a, b), Infinity), all.reduce((a, b) => Math.max(a, b), -Infinity)];
  plot(canvas, lines, [rows[0][0], rows[rows.length - 1][0]], low < high ? [low, high] : [low - 1, low + 1]);
  get("legend").replaceChildren(...chosen.map((k, number) => {
    const item = document.createElement("li");
    item.textContent = `${hello.curves.names[k]} ${show(rows[rows.length - 1][k + 1])}`;
    item.style.color = LINES[number % LINES.length];
    return item;
  }), Object.assign(document.createElement("li"), { textContent: `${show(low)} to ${show(high)}, t from ${show(rows[0][0])} to ${show(rows[rows.length - 1][0])} s` }));
}

function groups() {
  const names = hello.curves.names, found = {}, own = names.length - 3 * hello.fields.length;
  if (own) found.probes = [...Array(own).keys()];
  hello.fields.forEach((it, k) => { found[it.name] = [0, 1, 2].map((j) => own + 3 * k + j); });
  return found;
}

// Values: a slider for a number, a line of text for a formula.

function makeKnobs(list) {
  const old = new Map([...get("knobs").children].map((it) => [it.dataset.key, it]));
  get("knobs").replaceChildren(...list.map(({ key, value }) => {
    const name = JSON.stringify(key), known = old.get(name), inputs = known ? [...known.querySelectorAll("input")] : [];
    // What is being moved now is not moved back by an answer to an earlier move.
    if (known && (inputs.length > 1) === (typeof value === "number")) {
      if (!inputs.includes(document.activeElement)) inputs.forEach((it) => { it.value = value; });
      return known;
    }
    return makeKnob(key, name, value);
  }));
}

function makeKnob(key, name, value) {
  const box = document.createElement("label"), text = document.createElement("span");
  box.className = "knob"; box.dataset.key = name;
  text.textContent = key.join(".");
  box.append(text);
  const field = document.createElement("input");
  if (typeof value !== "number") {
    field.type = "text"; field.value = value;
    field.addEventListener("change", () => ask({ do: "set", key, value: field.value }));
    box.append(field);
    return box;
  }
  const slider = document.createElement("input"), warm = ["ambient", "value", "temperature", "setpoint"].includes(key[key.length - 1]);
  const [low, high] = warm ? [value - 100, value + 100] : value === 0 ? [0, 1] : value > 0 ? [0, 2.5 * value] : [2.5 * value, 0];
  Object.assign(slider, { type: "range", min: low, max: high, step: (high - low) / 500 || "any", value });
  slider.setAttribute("aria-label", key.join("."));
  Object.assign(field, { type: "number", step: "any", value });
  slider.addEventListener("input", () => { field.value = Number(Number(slider.value).toPrecision(6)); ask({ do: "set", key, value: Number(field.value) }); });
  field.addEventListener("change", () => { slider.value = field.value; ask({ do: "set", key, value: Number(field.value) }); });
  box.append(slider, field);
  return box;
}

// What the run tells.

function greet(note) {
  hello = note; rows = note.curves.rows; held = null; ended = false;
  document.title = `${note.title} · live`;
  get("title").textContent = note.title;
  get("directory").textContent = `results in ${note.directory}`;
  const options = (id, names) => { const before = get(id).value; get(id).replaceChildren(...names.map((it, k) => new Option(it, k))); if (before && before < names.length) get(id).value = before; };
  options("field", note.fields.map((it) => it.name));
  options("axis", note.axes);
  const names = Object.keys(groups()), before = get("group").value;
  get("group").replaceChildren(...names.map((it) => new Option(it, it)));
  if (names.includes(before)) get("group").value = before;
  document.querySelectorAll(".cut").forEach((it) => { it.hidden = note.axes.length < 3; });
  const longest = Math.max(...note.bounds.map(([low, high]) => high - low));
  if (get("radius").dataset.title !== note.title) { get("radius").value = Number((longest / 30).toPrecision(2)); get("radius").dataset.title = note.title; }
  setColours(Uint8Array.from(atob(note.colours), (it) => it.charCodeAt(0)));
  makeKnobs(note.knobs);
  tell("");
  look();
}

function look() {
  const canvas = get("picture"), most = Math.max(canvas.width, canvas.height, 300);
  ask({ do: "view", field: Number(get("field").value || 0), axis: Number(get("axis").value || 0), at: Number(get("at").value), most });
}

function duration(seconds) {
  if (seconds == null || !isFinite(seconds)) return "";
  if (seconds < 90) return `${Math.round(seconds)} s left`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min left` : `${(seconds / 3600).toPrecision(3)} h left`;
}

function tellState() {
  if (!latest) return;
  const now = ended ? "ended" : paused ? "paused" : "running";
  const parts = [now, `step ${latest.step} of ${hello.steps}`, `t = ${show(latest.time)} s`];
  if (latest.rate && !ended) parts.push(`${show(latest.rate)} steps/s`);
  if (!ended && !paused) parts.push(duration(latest.left));
  get("state").textContent = parts.filter(Boolean).join(" · ");
  get("pause").textContent = paused ? "Go on" : "Pause";
}

let frames = 0;
const NOTES = {
  hello: greet,
  state(note) { paused = note.paused; get("limit").value = note.limit ?? ""; tellState(); },
  knobs(note) { makeKnobs(note.knobs); },
  row(note) { rows.push(note.row); if (rows.length > 4000) rows = rows.filter((_, k) => k % 2); drawCurves(); },
  saved(note) { tell(`A checkpoint of step ${note.step} is written.`); },
  refused(note) { tell(note.text); },
  failed(note) { ended = true; tell(`${note.text}\nChange a value, and restart.`); tellState(); },
  alive() {},
};

function hear(event) {
  alive = performance.now();
  if (typeof event.data === "string") { const note = JSON.parse(event.data); NOTES[note.note]?.(note); return; }
  const length = new DataView(event.data).getUint32(0, true);
  latest = JSON.parse(new TextDecoder().decode(new Uint8Array(event.data, 4, length)));
  values = new Float32Array(event.data, 4 + length);
  ended = latest.ended;
  frames += 1;
  if (hello) { draw(); tellState(); }
}

function connect() {
  socket = new WebSocket(new URL("socket", location.href.replace(/^http/, "ws")));
  socket.binaryType = "arraybuffer";
  socket.addEventListener("open", () => { tell("The run is planned; its picture comes with its first step."); });
  socket.addEventListener("message", hear);
  socket.addEventListener("close", () => { tell("The run is not there any more: it was ended, or its process has died. Its results stay."); get("state").textContent = "not connected"; setTimeout(connect, 1000); });
}

// Painting: a stroke every few milliseconds while the button is down.

let stroked = 0;
function paint(event) {
  if (!get("brush").checked || !latest || !(event.buttons & 1) || performance.now() - stroked < 40) return;
  stroked = performance.now();
  const box = event.target.getBoundingClientRect(), n = latest.axes.length;
  const across = latest.bounds[n - 1], at = {};
  at[latest.axes[n - 1]] = across[0] + (event.clientX - box.left) / box.width * (across[1] - across[0]);
  if (n > 1) { const up = latest.bounds[0]; at[latest.axes[0]] = up[1] - (event.clientY - box.top) / box.height * (up[1] - up[0]); }
  if (latest.place) at[latest.place[0]] = latest.place[1];
  if ("r" in at) at.r = Math.abs(at.r);
  ask({ do: "paint", stroke: { field: hello.fields[latest.field].name, at, radius: Number(get("radius").value), value: Number(get("value").value) } });
  event.preventDefault();
}

for (const id of ["picture", "line"]) for (const kind of ["pointerdown", "pointermove"]) get(id).addEventListener(kind, paint);
get("brush").addEventListener("change", () => ["picture", "line"].forEach((id) => get(id).classList.toggle("brush", get("brush").checked)));
for (const id of ["field", "axis", "at"]) get(id).addEventListener("input", () => { held = null; look(); });
get("group").addEventListener("change", drawCurves);
get("pause").addEventListener("click", () => ask({ do: paused ? "go" : "pause" }));
get("step").addEventListener("click", () => ask({ do: "step", steps: Number(get("steps").value) }));
get("save").addEventListener("click", () => ask({ do: "save" }));
get("restart").addEventListener("click", () => ask({ do: "restart" }));
get("limit").addEventListener("change", () => ask({ do: "limit", rate: get("limit").value === "" ? null : Number(get("limit").value) }));
get("other").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = get("given").value, number = Number(text);
  ask({ do: "set", key: get("key").value.trim().split("."), value: text.trim() !== "" && isFinite(number) ? number : text });
});
window.addEventListener("resize", () => { draw(); drawCurves(); });
prepare();
connect();
