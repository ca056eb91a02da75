// SPDX-License-Identifier: Apache-2.0
// What pages do beyond htmx: a ticket in the address logs in, and keys lead to pages. Every page works without it.
"use strict";

const NONCE = document.currentScript.nonce;
const PLACES = { m: "/web/map", h: "/web/hosts", v: "/web/vms", o: "/web/operations", f: "/web/findings", c: "/web/vms/new" };

function takeTicket() {
  const form = document.getElementById("ticket");
  const ticket = location.hash.slice(1);
  if (!form || !ticket) return;
  history.replaceState(null, "", location.pathname); // a ticket is good once, but it need not stay in the history
  form.elements.ticket.value = ticket;
  if ("openedByReader" in form.dataset) form.requestSubmit();
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

// hx-csp judges what htmx acts on, but not who opens a stream
document.addEventListener("htmx:sse:before:connection", event => {
  if (event.target.getAttribute("hx-nonce") !== NONCE) event.preventDefault();
});
document.addEventListener("keydown", onKey);
takeTicket();
