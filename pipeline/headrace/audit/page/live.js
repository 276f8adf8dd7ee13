// Takes the parts of the page that changed, as the server sends them, while the page is seen.
"use strict";

const state = document.getElementById("state");
const times = document.getElementById("times");
const KEY = "headrace-times";
const NAME_KEY = "headrace-name";
let events = null;
let heardAt = 0;
let has = state.dataset.view; // What the page was made of; it is as old as the page.

function ago(iso) {
  const seconds = Math.round((Date.now() - Date.parse(iso)) / 1000);
  const size = Math.abs(seconds);
  const text = size < 120 ? `${size} s` : size < 7200 ? `${Math.round(size / 60)} min`
    : size < 172800 ? `${Math.round(size / 3600)} h` : `${Math.round(size / 86400)} days`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

function writeTimes(root) {
  const isRelative = localStorage.getItem(KEY) === "ago";
  times.textContent = isRelative ? "Times in UTC" : "Times as how long ago";
  for (const each of root.querySelectorAll("time")) {
    each.dataset.utc ??= each.textContent;
    each.textContent = isRelative ? ago(each.dateTime) : each.dataset.utc;
    each.title = isRelative ? each.dataset.utc : ago(each.dateTime);
  }
}

function put(name, html) {
  const part = document.querySelector(`[data-part="${name}"]`);
  if (!part) return;
  const isOpen = [...part.querySelectorAll("details")].map((each) => each.open);
  const places = [...part.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  part.innerHTML = html;
  part.querySelectorAll("details").forEach((each, at) => { each.open = isOpen[at] ?? false; });
  part.querySelectorAll(".scroll").forEach((each, at) => { [each.scrollLeft, each.scrollTop] = places[at] ?? [0, 0]; });
  writeTimes(part);
}

function tell(text, kind) {
  state.textContent = text;
  state.className = `state ${kind}`;
}

function look() {
  if (events) return;
  tell("Connecting", "");
  const asked = new URLSearchParams(location.search);
  asked.set("has", has);
  has = "";
  events = new EventSource(`events?${asked}`);
  events.addEventListener("parts", (event) => {
    for (const [name, html] of Object.entries(JSON.parse(event.data))) put(name, html);
  });
  events.addEventListener("round", (event) => {
    heardAt = Date.parse(event.data);
    told();
  });
  events.onerror = () => tell("The server does not answer; this is what it said last. Trying again.", "gone");
}

function rest() {
  if (events) events.close();
  events = null;
}

function told() {
  if (events && events.readyState === EventSource.OPEN && heardAt) {
    tell(`As of ${ago(new Date(heardAt).toISOString())}`, Date.now() - heardAt < 60000 ? "fresh" : "");
  }
}

function ask(verb, id) {
  const dialog = document.getElementById("accepting");
  const form = dialog.querySelector("form");
  const said = dialog.querySelector(".trouble");
  dialog.querySelector("h2").textContent = verb === "accept" ? `Accept ${id}` : `Open ${id} again`;
  form.elements.by.value ||= localStorage.getItem(NAME_KEY) ?? "";
  form.elements.reason.value = "";
  said.textContent = "";
  form.onsubmit = async (event) => {
    event.preventDefault();
    const by = form.elements.by.value;
    localStorage.setItem(NAME_KEY, by);
    try {
      const answer = await fetch(verb, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ id, by, reason: form.elements.reason.value }),
      });
      if (answer.ok) dialog.close();
      else said.textContent = await answer.text();
    } catch {
      said.textContent = "The server does not answer; nothing was said.";
    }
  };
  dialog.showModal();
}

document.addEventListener("click", ({ target }) => {
  if (!(target instanceof HTMLElement)) return;
  const { accept, reopen, close } = target.dataset;
  if (accept) ask("accept", accept);
  else if (reopen) ask("reopen", reopen);
  else if (close !== undefined) target.closest("dialog").close();
});
times.hidden = false;
times.addEventListener("click", () => {
  localStorage.setItem(KEY, localStorage.getItem(KEY) === "ago" ? "utc" : "ago");
  writeTimes(document);
});
document.addEventListener("visibilitychange", () => (document.hidden ? rest() : look()));
addEventListener("pagehide", rest);
addEventListener("pageshow", look);
setInterval(told, 1000);
writeTimes(document);
