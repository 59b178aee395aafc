// The page of a correction session: events of the stream, buttons and keys.

import { forgetStamps, letGoAll, makePads, padKey, seen } from "./hand.js";
import { listen, post, sleep, stopReached, stopRobot } from "./link.js";
import { byId, setAlarms, setState, showFacts, watchCameras } from "./view.js";

const STALE_S = 1;
const STOP_SHOWN_MS = 1500;
const CONFIRM_MS = 3000;

let facts = null;
let ageS = 0;
let trouble = "The session does not answer.";
let connected = false;

const buttons = [...document.querySelectorAll("[data-event]")];
const shortcuts = new Map(buttons.map((button) => [button.querySelector("kbd").textContent.toLowerCase(), button]));

function paint() {
  const stale = connected && ageS > STALE_S;
  if (!connected) setState("No connection", "bad", trouble);
  else if (stale) setState("No news", "bad", `the session has not answered for ${ageS.toFixed(1)} s`);
  else if (facts) setState(facts.headline, facts.tone, facts.detail);
  const alarms = [...(facts?.alarms ?? [])];
  if (connected && trouble) alarms.push(`The session gives no snapshot: ${trouble}`);
  setAlarms(alarms);
  document.body.classList.toggle("old", !connected || stale);
  for (const button of buttons) {
    button.disabled = !connected || !facts?.possible.includes(button.dataset.event);
    if (button.disabled) unconfirm(button);
  }
  label("is_intervention", facts?.acts ? "Give back" : "Take over");
  label("start_episode", facts?.stopped && facts.possible.includes("start_episode") ? "Recover" : "Start next");
}

function label(event, text) {
  const line = document.querySelector(`[data-event=${event}] b`);
  if (line.textContent !== text) line.textContent = text;
}

function onEvent(name, data) {
  if (name === "hello") {
    connected = true;
    trouble = "";
    makePads(data.motions, tell);
  } else if (name === "beat") {
    [ageS, trouble] = [data.age_s, data.error];
    seen(data.stamp_s);
  } else if (name === "facts" && data) {
    facts = data;
    showFacts(facts);
  }
  paint();
}

function onLost(reason) {
  connected = false;
  trouble = reason;
  letGoAll();
  forgetStamps();
  paint();
}

let told = 0;

function tell(reason) {
  byId("reason").textContent = reason;
  clearTimeout(told);
  told = setTimeout(() => (byId("reason").textContent = ""), 8000);
}

function unconfirm(button) {
  if (!button.dataset.sure) return;
  delete button.dataset.sure;
  button.querySelector("b").textContent = button.dataset.label;
}

function isSure(button) {
  if (!("confirm" in button.dataset) || button.dataset.sure) {
    unconfirm(button);
    return true;
  }
  const label = button.querySelector("b");
  button.dataset.label = label.textContent;
  button.dataset.sure = "1";
  label.textContent = "Press again";
  setTimeout(() => unconfirm(button), CONFIRM_MS);
  return false;
}

async function press(button) {
  if (button.disabled || button.dataset.busy || !isSure(button)) return;
  button.dataset.busy = "1";
  const answer = await post("/request", { event: button.dataset.event });
  delete button.dataset.busy;
  tell(answer.reason ?? "");
}

let stopping = false;

function stopState(text, tone) {
  const line = byId("estop-state");
  if (line.textContent !== text) line.textContent = text;
  byId("stop").dataset.tone = tone;
}

async function emergencyStop() {
  letGoAll();
  if (stopping) return;
  stopping = true;
  const begun = performance.now();
  stopState("stopping ...", "warn");
  await stopRobot((reason) => stopState(`NOT CONFIRMED (${reason}): use the robot's own stop!`, "bad"));
  stopState(`taken after ${(performance.now() - begun).toFixed(0)} ms, the robot is not seen to stop yet`, "warn");
  const until = performance.now() + STOP_SHOWN_MS;
  while (!seesStop() && performance.now() < until) await sleep(20);
  while (!seesStop()) {
    stopState("taken, but the session does NOT show a stopped robot: use the robot's own stop!", "bad");
    await sleep(200);
  }
  stopState("confirmed: the robot has been stopped", "good");
  stopping = false;
  while (seesStop() && !stopping) await sleep(200);
}

function seesStop() {
  return connected && ageS <= STALE_S && Boolean(facts?.stopped);
}

async function watchStop() {
  let misses = 0;
  for (;;) {
    const reached = await stopReached();
    misses = reached ? 0 : misses + 1;
    if (!stopping && !(byId("stop").dataset.tone === "good" && seesStop())) {
      if (reached) stopState("emergency stop: reached", "ready");
      else if (misses > 2) stopState("emergency stop: NOT REACHED", "bad");
    }
    await sleep(reached ? 1000 : 500);
  }
}

// The letter of a key; by its place on keyboards of other scripts.
function letter(event) {
  return /^[\x20-\x7e]$/.test(event.key) ? event.key.toLowerCase() : event.code.replace("Key", "").toLowerCase();
}

byId("estop").addEventListener("pointerdown", emergencyStop);
byId("estop").addEventListener("click", emergencyStop);
for (const button of buttons) button.addEventListener("click", () => press(button));
window.addEventListener(
  "keydown",
  (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      emergencyStop();
    } else if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input")) {
      return;
    } else if (padKey(event, true)) {
      event.preventDefault();
    } else if (!event.repeat && shortcuts.has(letter(event))) {
      event.preventDefault();
      press(shortcuts.get(letter(event)));
    }
  },
  { capture: true },
);
window.addEventListener("keyup", (event) => padKey(event, false) && event.preventDefault(), { capture: true });

paint();
listen(onEvent, onLost);
watchStop();
watchCameras();
