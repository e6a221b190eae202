// The page works without this script. It keeps an open page up to date, writes times as ages, and signs in by a NIP-07 extension.
"use strict";

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

// Ages.
const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
function age(at) {
  const d = Math.round(Date.now() / 1000) - at, n = Math.abs(d);
  if (d >= 0 && d < 5) return "just now";
  const i = units.findIndex(([s]) => n >= s);
  if (i < 0) return "just now";
  let text = Math.floor(n / units[i][0]) + "\u00a0" + units[i][1];
  const rest = i < 2 ? Math.floor((n % units[i][0]) / units[i + 1][0]) : 0;
  if (rest > 0 && (i > 0 || n < 864000)) text += " " + rest + "\u00a0" + units[i + 1][1];
  return d >= 0 ? text + " ago" : "in " + text;
}
function ages(root) {
  for (const t of root.querySelectorAll("time[data-at]")) {
    const text = age(Number(t.dataset.at));
    if (t.textContent !== text) t.textContent = text;
  }
}

// Bring one tree to the shape of another, and keep what the reader did: what is open, focused, scrolled or typed stays.
function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  for (const a of [...from.attributes]) {
    if (!to.hasAttribute(a.name) && !(a.name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(a.name);
  }
  for (const a of to.attributes) {
    if (from.getAttribute(a.name) !== a.value) from.setAttribute(a.name, a.value);
  }
  const old = [...from.childNodes], now = [...to.childNodes];
  const named = new Map(old.filter((n) => n.id).map((n) => [n.id, n]));
  let i = 0;
  for (const n of now) {
    const same = n.id ? named.get(n.id) : undefined;
    const at = from.childNodes[i];
    if (same) {
      if (same !== at) from.insertBefore(same, at ?? null);
      morph(same, n);
    } else if (at && !(at.id && now.some((m) => m.id === at.id))) {
      morph(at, n);
    } else {
      from.insertBefore(n, at ?? null);
    }
    i++;
  }
  while (from.childNodes.length > now.length) from.lastChild.remove();
}

function show(sections) {
  for (const [id, html] of Object.entries(sections)) {
    const here = document.getElementById(id);
    const made = document.createElement("template");
    made.innerHTML = html;
    const next = made.content.firstElementChild;
    if (!here || !next) continue;
    ages(next);
    morph(here, next);
  }
}

function live() {
  const state = document.getElementById("live");
  const say = (now, text) => { if (state.dataset.state !== now) { state.dataset.state = now; state.textContent = text; } };
  let source, closed = false;
  const open = () => {
    source = new EventSource(document.body.dataset.live);
    source.onopen = () => say("on", "live");
    source.onmessage = (e) => show(JSON.parse(e.data));
    source.addEventListener("over", () => { closed = true; source.close(); location.assign("/ui/"); });
    source.onerror = () => {
      say("lost", "not live");
      if (source.readyState === EventSource.CLOSED && !closed) setTimeout(open, 15000);
    };
  };
  open();
  addEventListener("pagehide", () => { closed = true; source.close(); });
  addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
}

// Sign-in by the extension: it signs an event for this address, this method and this challenge (NIP-98).
async function byExtension(button, says) {
  button.disabled = true;
  try {
    const url = location.origin + "/ui/in/nostr";
    const event = await window.nostr.signEvent({
      kind: 27235, created_at: Math.floor(Date.now() / 1000), content: "",
      tags: [["u", url], ["method", "POST"], ["challenge", meta("challenge")]],
    });
    const answer = await fetch(url, { method: "POST", headers: { "X-CSRF-Token": meta("csrf"), "Content-Type": "application/json" }, body: JSON.stringify(event) });
    if (answer.ok) {
      location.assign((await answer.json()).to);
      return;
    }
    says.textContent = await answer.text();
  } catch (e) {
    says.textContent = "The extension did not sign: " + e.message;
  }
  button.disabled = false;
}

ages(document);
setInterval(() => ages(document), 5000);
if (document.body.dataset.live) live();

const code = document.getElementById("code");
function takeCode() {
  if (!code || !location.hash.startsWith("#code=")) return;
  code.value = decodeURIComponent(location.hash.slice(6));
  history.replaceState(null, "", location.pathname); // a code does not belong into the history
  code.form.querySelector("button").focus();
}
takeCode();
addEventListener("hashchange", takeCode);

const nostr = document.getElementById("nostr");
if (nostr) {
  const says = document.getElementById("nostr-says");
  const look = () => {
    if (!window.nostr) return false;
    nostr.disabled = false;
    says.textContent = "";
    return true;
  };
  if (!look()) { // extensions come late
    const again = setInterval(() => { if (look()) clearInterval(again); }, 300);
    setTimeout(() => clearInterval(again), 10000);
  }
  nostr.addEventListener("click", () => byExtension(nostr, says));
}
