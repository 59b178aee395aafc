// Connection to the session: the link's token, the stream, requests, and the emergency stop on a port of its own.

const KEY = "gantry-token";
const RETRY_MS = 1000;
const SILENT_MS = 1500;

function takeToken() {
  const given = location.hash.slice(1);
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

const token = takeToken();
const headers = { Authorization: `Bearer ${token}` };
let stopOrigin = null;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export function get(path) {
  return fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(5000) });
}

async function answerOf(response) {
  if (response.ok) return response.json();
  return { reason: (await response.text()) || `refused (${response.status})` };
}

// The server's answer to a request: {reason: null} if it was granted.
export async function post(path, body, timeoutMs = 5000) {
  try {
    const options = { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(timeoutMs) };
    return await answerOf(await fetch(path, options));
  } catch {
    return { reason: "The session does not answer.", lost: true };
  }
}

// A last word that is sent even while the page goes away.
export function say(path, body) {
  fetch(path, { method: "POST", headers, body: JSON.stringify(body), keepalive: true }).catch(() => {});
}

// Reads server-sent events for ever; `lost` is called with a reason when the connection breaks or falls silent.
export async function listen(onEvent, lost) {
  for (;;) {
    const breaker = new AbortController();
    let timer = setTimeout(() => breaker.abort(), 5000);
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => breaker.abort(), SILENT_MS);
    };
    try {
      const response = await fetch("/stream", { headers, cache: "no-store", signal: breaker.signal });
      if (!response.ok) throw new Error(await response.text());
      await readEvents(response.body, alive, (name, data) => {
        if (name === "hello") stopOrigin = `${location.protocol}//${location.hostname}:${data.estop_port}`;
        onEvent(name, data);
      });
      lost("The session has ended or does not answer.");
    } catch (error) {
      lost(error.name === "Error" && error.message ? error.message : "The session does not answer.");
    } finally {
      clearTimeout(timer);
      breaker.abort();
    }
    await sleep(RETRY_MS);
  }
}

async function readEvents(body, alive, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(block) ?? [];
      if (name) onEvent(name, JSON.parse(data));
    }
  }
}

// A request across ports: with the token in a body of plain text, so that the browser asks no permission first.
async function stopPort(path, timeoutMs) {
  if (!stopOrigin) throw new Error("unknown");
  const body = JSON.stringify({ token });
  return answerOf(await fetch(stopOrigin + path, { method: "POST", body, signal: AbortSignal.timeout(timeoutMs) }));
}

// Whether the emergency stop's own connection answers; keeps it open.
export async function stopReached() {
  try {
    return (await stopPort("/check", 2000)).reason === null;
  } catch {
    return false;
  }
}

async function taken(promise) {
  const answer = await promise;
  if (answer.reason !== null) throw new Error(answer.reason);
}

// Sends the emergency stop until a port has confirmed it; tells `unsure` after each vain attempt.
export async function stopRobot(unsure) {
  for (;;) {
    try {
      const own = taken(stopPort("/estop", 3000));
      let answered = false;
      own.then(() => (answered = true), () => {});
      const late = sleep(250).then(() => answered || taken(post("/estop", {}, 3000)));
      await Promise.any([own, late]);
      return;
    } catch (error) {
      unsure(error.errors?.map((item) => item.message).filter((text) => text && text !== "unknown")[0] ?? "no answer");
      await sleep(300);
    }
  }
}
