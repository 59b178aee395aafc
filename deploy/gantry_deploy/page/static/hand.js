// Motion by held buttons. A heartbeat goes out while one is held; without it the robot is given back.

import { post, say } from "./link.js";

const BEAT_MS = 80;
const PADS = {
  x: ["ahead", "back", "ArrowUp", "ArrowDown"],
  y: ["left", "right", "ArrowLeft", "ArrowRight"],
  z: ["up", "down", "PageUp", "PageDown"],
  roll: ["roll left", "roll right", "", ""],
  pitch: ["tilt up", "tilt down", "", ""],
  yaw: ["turn left", "turn right", "[", "]"],
  gripper: ["open", "close", ".", ","],
  throttle: ["faster", "brake", "ArrowUp", "ArrowDown"],
  steer: ["steer left", "steer right", "ArrowLeft", "ArrowRight"],
};
const SIGNS = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", PageUp: "PgUp", PageDown: "PgDn" };

const tab = crypto.getRandomValues(new Uint32Array(4)).join("-");
const held = new Map();
const keys = new Map();
let count = Date.now();
let stamp = 0;
let beating = false;
let speed = 0.5;
let complain = () => {};

export const seen = (stampS) => (stamp = Math.max(stamp, stampS));
export const forgetStamps = () => (stamp = 0);

function axes() {
  const found = {};
  for (const move of held.values()) {
    if (move) found[move[0]] = Math.max(-1, Math.min(1, (found[move[0]] ?? 0) + move[1] * (move[0] === "gripper" ? 1 : speed)));
  }
  return found;
}

async function beat() {
  if (beating) return;
  beating = true;
  while (held.size) {
    const begun = performance.now();
    const answer = await post("/axes", { tab, count: ++count, stamp_s: stamp, engaged: true, axes: axes() }, 400);
    if (answer.stamp_s) seen(answer.stamp_s);
    if (answer.reason && held.size && !answer.reason.includes("overtaken")) complain(answer.reason);
    await new Promise((done) => setTimeout(done, Math.max(0, BEAT_MS - (performance.now() - begun))));
  }
  beating = false;
}

function grip(name, move) {
  held.set(name, move);
  beat();
}

function letGo(name) {
  if (held.delete(name) && !held.size) say("/axes", { tab, count: ++count, stamp_s: stamp, engaged: false, axes: {} });
}

export function letGoAll() {
  for (const name of [...held.keys()]) letGo(name);
  for (const button of document.querySelectorAll("#pads .held")) button.classList.remove("held");
}

function padButton(name, label, key, move) {
  const button = document.createElement("button");
  const [text, hint] = [document.createElement("b"), document.createElement("kbd")];
  text.textContent = label;
  hint.textContent = SIGNS[key] ?? (key === " " ? "Space" : key);
  button.type = "button";
  button.dataset.pad = name;
  button.append(text, ...(key ? [hint] : []));
  const down = () => (button.classList.add("held"), grip(name, move));
  const up = () => (button.classList.remove("held"), letGo(name));
  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    button.setPointerCapture(event.pointerId);
    down();
  });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(kind, up);
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  if (key && !keys.has(key)) keys.set(key, { down, up });
  return button;
}

// Buttons for the axes that move something; `refused` is told why a motion does not count.
export function makePads(motions, refused) {
  complain = refused;
  letGoAll();
  keys.clear();
  const pads = document.getElementById("pads");
  pads.replaceChildren();
  document.getElementById("hand").hidden = !motions.length;
  if (!motions.length) return;
  for (const axis of motions) {
    const [more, less, moreKey, lessKey] = PADS[axis];
    const pair = document.createElement("div");
    pair.append(padButton(`${axis}+`, more, moreKey, [axis, 1]), padButton(`${axis}-`, less, lessKey, [axis, -1]));
    pads.append(pair);
  }
  const still = document.createElement("div");
  still.append(padButton("hold", "hold still", " ", null));
  pads.append(still);
}

// Whether a key belongs to a pad.
export function padKey(event, down) {
  const pad = keys.get(event.key);
  if (!pad) return false;
  if (!event.repeat) down ? pad.down() : pad.up();
  return true;
}

const slider = document.querySelector("#speed input");
slider.addEventListener("input", () => {
  speed = slider.valueAsNumber / 100;
  slider.nextElementSibling.value = `${slider.value} %`;
});
slider.addEventListener("change", () => slider.blur());
for (const [target, kind] of [[window, "blur"], [window, "pagehide"], [document, "visibilitychange"], [document, "freeze"]]) {
  target.addEventListener(kind, letGoAll);
}
