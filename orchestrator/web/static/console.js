// SPDX-License-Identifier: Apache-2.0
// A console of a VM in a page: a ticket for each connection, the terminal or screen on it, who writes, and what ended it.

const root = document.getElementById("console");
const place = document.getElementById("console-place");
const { kind, tickets, stream, library, keyboards } = root.dataset;
const CLOSED = { NORMAL: 1000, NOT_ALLOWED: 1008 };
const AGAIN = "console.over";
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15000;
const MAX_REPEATED = 200; // xterm.js would insert as many lines as a guest wants, one by one, and the page would hang
const TYPED_EVERY_MS = 25; // a guest's keyboard has a short memory

const part = (name) => document.getElementById(`console-${name}`);
let view = null;
let socket = null;
let problem = null;
let pause = FIRST_PAUSE_MS;

function say(text) { part("state").textContent = text; }

function showProblem(known) {
  part("problem").hidden = known === null;
  part("problem").textContent = known === null ? "" : `${known.detail} (${known.code})${known.hint ? `. ${known.hint}` : ""}`;
}

function showWho(at) {
  const others = at.watching.length;
  part("who").textContent = at.you_write
    ? `You write. ${others ? `Watching: ${at.watching.join(", ")}.` : "Nobody watches."}`
    : `${at.writer ? `${at.writer} writes` : "Nobody writes"}, you watch.`;
  part("take").hidden = at.you_write;
  view.mayWrite(at.you_write);
}

// What noVNC takes for a websocket: binary messages alone; text is ours.
function channelOf(opened) {
  return {
    binaryType: "arraybuffer", protocol: "", onopen: null, onmessage: null, onclose: null, onerror: null,
    get readyState() { return opened.readyState; },
    send(data) { opened.send(data); },
    close() { opened.close(); },
  };
}

async function serialView() {
  const nonce = document.querySelector("script[nonce]").nonce;
  const create = Document.prototype.createElement; // xterm.js makes style elements, which the policy wants marked
  Document.prototype.createElement = function (name, ...more) {
    const made = create.call(this, name, ...more);
    if (String(name).toLowerCase() === "style") made.setAttribute("nonce", nonce);
    return made;
  };
  const { Terminal } = await import(library);
  const terminal = new Terminal({ cols: 80, rows: 24, scrollback: 5000, screenReaderMode: true });
  const encoder = new TextEncoder();
  const send = (bytes) => { if (socket?.readyState === WebSocket.OPEN) socket.send(bytes); };
  for (const final of "ILMSTZb") terminal.parser.registerCsiHandler({ final }, ([count]) => count > MAX_REPEATED);
  terminal.open(place);
  terminal.onData((text) => send(encoder.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  const kept = document.getElementById("console-kept");
  if (kept) {
    terminal.write(`${kept.textContent.replaceAll("\n", "\r\n")}\r\n\x1b[2m--- now ---\x1b[0m\r\n`);
    kept.closest("details").open = false;
  }
  let before = false;
  return {
    opened(made) {
      made.addEventListener("message", (event) => { if (typeof event.data !== "string") terminal.write(new Uint8Array(event.data)); });
      if (before) terminal.write("\r\n\x1b[2m--- connected again ---\x1b[0m\r\n");
      before = true;
    },
    mayWrite(may) { terminal.options.disableStdin = !may; },
    closed() { terminal.options.disableStdin = true; },
    focus() { terminal.focus(); },
    left() {},
  };
}

async function screenView() {
  const { default: RFB } = await import(library);
  const { strokesOf } = await import(keyboards);
  let screen = null;
  let typing = false;
  async function type(text, layout) {
    const strokes = [...text].map((character) => strokesOf(layout, character));
    const missing = [...text].filter((_, at) => strokes[at] === null);
    if (missing.length) {
      part("typed").textContent = `This keyboard has no key for ${[...new Set(missing)].slice(0, 10).join(" ")}: nothing was typed.`;
      return;
    }
    typing = true;
    for (const [at, keys] of strokes.entries()) {
      if (screen === null || screen.viewOnly) break;
      for (const [code, keysym, down] of keys) screen.sendKey(keysym, code, down);
      part("typed").textContent = `${at + 1} of ${strokes.length} characters typed`;
      await new Promise((resolve) => { setTimeout(resolve, TYPED_EVERY_MS); });
    }
    typing = false;
  }
  part("paste").addEventListener("submit", (event) => {
    event.preventDefault();
    const { text, layout } = event.target.elements;
    if (!typing) type(text.value.replaceAll("\r\n", "\n"), layout.value);
  });
  part("cad").addEventListener("click", () => screen?.sendCtrlAltDel());
  return {
    opened(made) {
      const channel = channelOf(made);
      made.addEventListener("message", (event) => { if (typeof event.data !== "string") channel.onmessage?.(event); });
      made.addEventListener("close", (event) => channel.onclose?.(event));
      place.replaceChildren();
      screen = new RFB(place, channel, { shared: true });
      screen.viewOnly = true;
      screen.scaleViewport = true;
      const canvas = place.querySelector("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", document.title);
    },
    mayWrite(may) {
      if (screen) screen.viewOnly = !may;
      for (const button of [part("cad"), part("type")]) button.disabled = !may;
    },
    closed() { this.mayWrite(false); screen = null; },
    focus() { screen?.focus(); },
    left() { screen?.sendKey(0xffe3, "ControlLeft", false); },
  };
}

function again() {
  say(`The server does not answer. Trying again in ${Math.round(pause / 1000)} s.`);
  setTimeout(connect, pause);
  pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
}

async function newTicket() {
  const answer = await fetch(tickets, { method: "POST", body: new URLSearchParams({ kind }) });
  if (answer.redirected) location.assign(answer.url); // the session is over
  const told = await answer.json();
  return answer.ok ? told : { problem: told };
}

async function connect() {
  say("Connecting …");
  showProblem(null);
  part("again").hidden = true;
  problem = null;
  let given;
  try { given = await newTicket(); } catch { again(); return; }
  if (given.problem) { ended(given.problem); return; }
  const made = new WebSocket(stream, ["binary", `ticket.${given.ticket}`]);
  made.binaryType = "arraybuffer";
  made.addEventListener("open", () => {
    socket = made;
    pause = FIRST_PAUSE_MS;
    say("Waiting for the VM's host …");
    view.opened(made);
  });
  made.addEventListener("message", (event) => {
    if (typeof event.data !== "string") return;
    const told = JSON.parse(event.data);
    if (told.problem) problem = told.problem;
    if (told.at) { say("Connected."); showWho(told.at); }
  });
  made.addEventListener("close", (event) => {
    socket = null;
    view.closed();
    part("who").textContent = "";
    part("take").hidden = true;
    if (problem !== null && problem.code !== AGAIN) ended(problem);
    else if (event.code === CLOSED.NORMAL) ended(null, "It has ended on the VM's side: is the VM running?");
    else if (event.code === CLOSED.NOT_ALLOWED) ended(null, "You may no longer open it.");
    else again();
  });
}

function ended(why, text = "It is closed.") {
  say(text);
  showProblem(why);
  part("again").hidden = false;
}

// Ctrl-] leaves, as it does on the command line: all other keys are the guest's.
place.addEventListener("keydown", (event) => {
  if (!event.ctrlKey || (event.key !== "]" && event.code !== "BracketRight")) return;
  event.preventDefault();
  event.stopPropagation();
  view.left();
  part("enter").focus();
}, true);
part("take").addEventListener("click", () => socket?.send('{"take_over": true}'));
part("again").addEventListener("click", connect);
part("enter").addEventListener("click", () => view.focus());
root.hidden = false;
part("scriptless").hidden = true;
view = kind === "serial" ? await serialView() : await screenView();
connect();
