// SPDX-License-Identifier: Apache-2.0
// What pages do beyond htmx: a ticket in the address logs in, and keys lead to pages. Every page works without it.
"use strict";

const NONCE = document.currentScript.nonce;
const PLACES = { m: "/web/map", h: "/web/hosts", v: "/web/vms", o: "/web/operations", f: "/web/findings", c: "/web/vms/new" };

function takeTicket(submits) {
  const form = document.getElementById("ticket");
  const ticket = location.hash.slice(1);
  if (!form || !ticket) return;
  history.replaceState(null, "", location.pathname); // a ticket is good once, but it need not stay in the history
  form.elements.ticket.value = ticket;
  if (submits && "openedByReader" in form.dataset) form.requestSubmit();
}

let afterG = false;

function onKey(event) {
  const typing = event.target.closest("input, select, textarea, .console");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const first = document.querySelector("form.filter input, form.filter select");
    if (first) { event.preventDefault(); first.focus(); }
  } else if (afterG && PLACES[event.key]) {
    location.assign(PLACES[event.key]);
  }
  afterG = event.key === "g";
}

// 2026-12-01 10:00:05 of the reader's zone, and what the server said on hover
function showTimes() {
  for (const time of document.querySelectorAll("time:not([title])")) {
    const at = new Date(time.dateTime);
    time.title = time.textContent;
    time.textContent = `${at.toLocaleDateString("sv")} ${at.toLocaleTimeString("sv")}`;
  }
}

// a second click of a doubled one is not sent; a page that is gone back to may send its forms again
function sendOnce(event) {
  if ("sent" in event.target.dataset) event.preventDefault();
  event.target.dataset.sent = "";
  setTimeout(() => delete event.target.dataset.sent, 2000);
}

// hx-csp judges what htmx acts on, but not who opens a stream
document.addEventListener("htmx:sse:before:connection", event => {
  if (event.target.getAttribute("hx-nonce") !== NONCE) event.preventDefault();
});
const away = document.getElementById("away");
// what could not be fetched is asked for again: its signal was given, and no other may come. So is a stream that could not
// be opened: hx-sse sees to those alone that were open once
const AGAIN_MS = 2000;
const again = event => {
  const asking = event.target, status = event.detail.ctx.response?.status ?? 500;
  if (asking.hasAttribute("hx-sse:connect")) {
    away.hidden = false;
    setTimeout(() => asking.dispatchEvent(new Event("again")), AGAIN_MS);
  } else if (asking.id === "live" && status >= 500) {
    setTimeout(() => document.body.dispatchEvent(new Event("news")), AGAIN_MS);
  }
};
// the stream tells whether the server is there; what happened meanwhile is fetched when it is back
document.addEventListener("htmx:sse:error", () => { away.hidden = false; });
document.addEventListener("htmx:sse:after:connection", () => {
  if (away.hidden) return;
  away.hidden = true;
  document.body.dispatchEvent(new Event("news"));
});
document.addEventListener("htmx:error", again);
document.addEventListener("htmx:response:error", again);
document.addEventListener("keydown", onKey);
document.addEventListener("submit", sendOnce);
document.addEventListener("htmx:after:swap", showTimes);
document.getElementById("zone").textContent = "times are of your zone, UTC when you point at them";
showTimes();
takeTicket(true);
// an address with a ticket that is opened where a ticket is asked for loads nothing; another page may have done it
addEventListener("hashchange", () => takeTicket(false));
