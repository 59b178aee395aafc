// What is shown of a snapshot. All words come from the session; nothing of it is ever taken for HTML.

import { get, sleep } from "./link.js";

const PICTURE_MS = 120;
const AT_ONCE = 2;
const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function make(tag, text, className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

const shown = new Map();

// Calls `paint` where a value differs from what is shown.
function changed(name, value, paint) {
  const text = JSON.stringify(value);
  if (shown.get(name) === text) return;
  shown.set(name, text);
  paint(value);
}

export function setState(headline, tone, detail) {
  byId("headline").textContent = headline;
  byId("detail").textContent = detail;
  byId("state").dataset.tone = tone;
  changed("title", headline, () => (document.title = `${headline} · Gantry`));
}

export function setAlarms(alarms) {
  changed("alarms", alarms, () => byId("alarms").replaceChildren(...alarms.map((text) => make("p", text))));
}

export function showFacts(facts) {
  byId("about").textContent = facts.about;
  changed("advice", facts.advice, (text) => {
    byId("advice").textContent = text;
    byId("advice").hidden = !text;
  });
  changed("scores", facts.scores, (rows) => byId("scores").replaceChildren(...rows.map(tile)));
  changed("learner", facts.learner, (rows) => byId("learner").replaceChildren(...rows.flatMap(row)));
  changed("joints", facts.joints, (rows) => byId("joints").replaceChildren(...rows.flatMap(row)));
  changed("axes", facts.axes, (axes) => byId("axes").replaceChildren(...Object.entries(axes).flatMap(axisRow)));
  changed("log", facts.log, (lines) => byId("log").replaceChildren(...lines.toReversed().map((line) => make("li", line))));
  changed("help", facts.help, (lines) => {
    byId("help").replaceChildren(...lines.map((line) => make("li", line)));
    byId("help").parentElement.hidden = !lines.length;
  });
  changed("curves", facts.curves, drawCurves);
  changed("critic", facts.disagreement, drawCritic);
  changed("cameras", facts.cameras, layCameras);
}

function tile(fact) {
  const element = make("div", "", `tile ${fact.tone}`);
  element.append(make("span", fact.label), make("b", fact.value), make("small", fact.note));
  return element;
}

function row(fact) {
  const value = make("dd", fact.value, fact.tone);
  if (fact.note) value.append(make("small", fact.note));
  return [make("dt", fact.label), value];
}

function axisRow([name, value]) {
  const bar = make("dd", "", "centre");
  const inner = make("i", "");
  inner.style.width = `${50 * Math.abs(value)}%`;
  inner.style.left = `${50 + Math.min(0, 50 * value)}%`;
  bar.append(inner);
  bar.title = value.toFixed(2);
  return [make("dt", name), bar];
}

function drawCritic(value) {
  byId("critic").hidden = value === null;
  if (value === null) return;
  const bar = byId("critic").querySelector("i");
  bar.style.width = `${Math.min(100, 25 * value)}%`;
  bar.className = value >= 2 ? "bad" : value >= 1.5 ? "warn" : "";
  byId("critic").querySelector("output").value = `${value.toFixed(1)} × usual`;
}

function svg(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

let curve = [];

function drawCurves(points) {
  curve = points;
  const drawing = document.querySelector("#curves svg");
  const [width, height] = [drawing.clientWidth || 320, drawing.clientHeight || 136];
  const [left, right, top, bottom] = [46, width - 8, 8, height - 22];
  const first = points.length ? points[0][0] : 1;
  const span = points.length > 1 ? points.at(-1)[0] - first : 1;
  const x = (attempt) => left + ((right - left) * (attempt - first)) / span;
  const y = (share) => bottom - (bottom - top) * share;
  const parts = [0, 0.5, 1].flatMap((share) => [
    svg("line", { x1: left, x2: right, y1: y(share), y2: y(share), class: "grid" }),
    svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`),
  ]);
  for (const [index, name] of [[2, "corrected"], [1, "success"]]) {
    const known = points.filter((point) => point[index] !== null);
    if (!known.length) continue;
    const line = known.map((point) => `${x(point[0]).toFixed(1)},${y(point[index]).toFixed(1)}`).join(" ");
    const last = known.at(-1);
    parts.push(svg("polyline", { points: line, class: name }));
    parts.push(svg("circle", { cx: x(last[0]), cy: y(last[index]), r: 3, class: name }));
  }
  if (points.length) {
    parts.push(svg("text", { x: left, y: height - 4 }, `${first}`));
    if (points.length > 1) parts.push(svg("text", { x: right, y: height - 4, "text-anchor": "end" }, `${points.at(-1)[0]}`));
  } else {
    parts.push(svg("text", { x: width / 2, y: height / 2 - 14, "text-anchor": "middle" }, "no attempt has ended yet"));
  }
  drawing.replaceChildren(...parts);
}

window.addEventListener("resize", () => drawCurves(curve));

let cameras = [];

function layCameras(names) {
  for (const camera of cameras) camera.gone = true;
  cameras = names.map((name) => {
    const [figure, image] = [make("figure", ""), make("img", "")];
    image.alt = `Camera ${name}`;
    const note = make("i", "no picture yet");
    const caption = make("figcaption", name);
    caption.append(note);
    figure.append(image, caption);
    return { name, figure, image, note, busy: false, newest: 0, asked: 0, gone: false };
  });
  byId("cameras").replaceChildren(...cameras.map((camera) => camera.figure));
}

async function refresh(camera) {
  camera.busy = true;
  camera.asked = performance.now();
  try {
    const response = await get(`/picture?camera=${encodeURIComponent(camera.name)}`);
    if (response.status === 200 && !camera.gone) {
      const old = camera.image.src;
      camera.image.src = URL.createObjectURL(await response.blob());
      await camera.image.decode();
      if (old) URL.revokeObjectURL(old);
      camera.newest = performance.now();
    }
  } catch {
    await sleep(500);
  }
  camera.busy = false;
}

// Asks for pictures for ever: the one that has waited longest, at most two at once, none while the page is hidden.
export async function watchCameras() {
  for (;;) {
    await sleep(20);
    const now = performance.now();
    for (const camera of cameras) {
      const late = camera.newest && now - camera.newest > 1000;
      camera.figure.classList.toggle("late", Boolean(late));
      const text = late ? `${((now - camera.newest) / 1000).toFixed(0)} s old` : camera.newest ? "" : "no picture yet";
      if (camera.note.textContent !== text) camera.note.textContent = text;
    }
    const busy = cameras.filter((camera) => camera.busy).length;
    const due = cameras.filter((camera) => !camera.busy && now - camera.asked >= PICTURE_MS);
    const next = due.sort((a, b) => a.asked - b.asked)[0];
    if (next && busy < AT_ONCE && !document.hidden) refresh(next);
  }
}
