// The lab: what is locked stays locked, in this browser; acts are shown once their prediction is.
"use strict";
const byId = (id) => document.getElementById(id);
const KEPT = "optimize-learn";
const SOON = 60; // after the last movement of a slider [ms]
const fresh = () => ({ key: crypto.randomUUID().slice(0, 12), name: "", context: "", answers: {}, entries: [], designs: [], values: {}, trouble: "" });
let progress = { ...fresh(), ...JSON.parse(localStorage.getItem(KEPT) || "{}") };
let taken = {}; // the ledger as files
const asking = new Map(); // controllers, by what is asked

function keep() {
  localStorage.setItem(KEPT, JSON.stringify(progress));
}

// A newer question of the same kind overtakes the older; null for one that was overtaken or failed, which is told.
async function ask(kind, view, pairs, body) {
  if (asking.has(kind)) asking.get(kind).abort();
  const controller = new AbortController();
  asking.set(kind, controller);
  try {
    const response = await fetch("view/" + view + "?" + new URLSearchParams(pairs), { signal: controller.signal, ...(body === undefined ? {} : { method: "POST", body }) });
    const found = response.status === 401 ? { problem: "The server was started anew: open the address that it printed." } : await response.json();
    byId("problem").hidden = !found.problem;
    byId("problem").textContent = found.problem || "";
    return found.problem ? null : found;
  } catch (error) {
    if (!controller.signal.aborted) {
      byId("problem").hidden = false;
      byId("problem").textContent = "The server does not answer: " + error.message;
    }
    return null;
  }
}

const inForce = (act) => ({ act, context: progress.context, ...progress.values[act] });

// Questions that are locked show what was chosen, and their reveals; the first of an act opens its panel.
async function settle(place) {
  for (const form of place.querySelectorAll("form.ask")) {
    const key = progress.answers[form.dataset.question];
    if (!key) continue;
    form.querySelector(`[value="${key}"]`).checked = true;
    form.querySelector("fieldset").disabled = true;
    form.classList.add("locked");
  }
  for (const each of place.querySelectorAll("[data-reveals]")) {
    const question = each.dataset.reveals, key = progress.answers[question];
    if (!key || each.dataset.key === key) continue;
    each.dataset.key = key;
    const found = await ask(question, "reveal", { act: each.dataset.act, question, key });
    if (found) each.innerHTML = found.html;
  }
}

async function show(act, whole) {
  const section = document.querySelector(`.act[data-act="${act}"]`);
  const panel = section.querySelector(".panel");
  const first = section.querySelector("form.ask").dataset.question;
  if (!progress.answers[first]) {
    panel.innerHTML = byId("banner").innerHTML;
    return;
  }
  panel.classList.add("old");
  const pasted = (progress.values[act] || {}).paste;
  const found = await ask("panel-" + act, "panel", inForce(act), pasted || undefined);
  if (!found) return;
  panel.classList.remove("old");
  if (whole || !panel.querySelector(".block")) panel.innerHTML = found.html;
  else {
    const page = new DOMParser().parseFromString(found.html, "text/html");
    for (const block of page.querySelectorAll(".block:not([data-kind^=control], [data-kind=ask], [data-kind=reveal], [data-kind=text])")) {
      const place = byId(block.id);
      const open = [...place.querySelectorAll("details")].map((each) => each.open);
      place.innerHTML = block.innerHTML;
      place.querySelectorAll("details").forEach((each, at) => (each.open = open[at]));
    }
  }
  panel.dataset.shown = Number(panel.dataset.shown || 0) + 1;
  await settle(section);
}

async function stand() {
  keep();
  const { tp, pp, microbatches } = progress.values[2] || {};
  const design = Object.fromEntries(Object.entries({ tp, pp, microbatches }).filter(([, value]) => value));
  const found = await ask("stand", "stand", { context: progress.context }, JSON.stringify({ ...progress, design, values: {} }));
  if (!found) return;
  byId("ledger").innerHTML = found.ledger;
  byId("stand").innerHTML = found.footer;
  byId("takeaways").innerHTML = found.takeaways;
  taken = { csv: found.csv, json: found.json };
}

async function enter(pairs, more) {
  const { key, name, context } = progress;
  const found = await ask("entry-" + progress.entries.length, "entry", pairs, JSON.stringify({ key, name, context, ...more }));
  if (!found) return false;
  progress.entries = [...progress.entries, found.entry].slice(-500);
  progress.trouble = found.trouble;
  return true;
}

function read(act) {
  const section = document.querySelector(`.act[data-act="${act}"]`);
  const values = {};
  for (const field of section.querySelectorAll(".set [name]")) values[field.name] = field.type === "checkbox" ? (field.checked ? "yes" : "no") : field.value;
  progress.values[act] = values;
}

let timer = 0;
function changed(field) {
  const panel = field.closest(".act");
  if (!panel || !field.closest(".set")) return;
  const pair = field.dataset.for ? byId(field.dataset.for) : field.parentElement.querySelector(`[data-for="${field.id}"]`);
  if (pair) pair.value = field.value;
  if (field.validity && !field.validity.valid) return;
  const act = Number(panel.dataset.act);
  read(act);
  if (field.tagName === "TEXTAREA") progress.values[act] = { paste: field.value };
  keep();
  clearTimeout(timer);
  timer = setTimeout(() => {
    show(act, field.tagName === "TEXTAREA");
    if (act === 2) stand();
  }, SOON);
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  if (!form.matches("form.ask")) return;
  const question = form.dataset.question, key = new FormData(form).get(question);
  if (!key || progress.answers[question]) return;
  progress.answers[question] = key;
  keep();
  await enter({ act: form.dataset.act, question, key }, {});
  const act = Number(form.dataset.act);
  await (form.closest(".panel") ? settle(form.closest(".act")) : show(act, true));
  stand();
});
document.addEventListener("input", (event) => {
  if (event.target.type !== "radio" && event.target.tagName !== "TEXTAREA") changed(event.target);
});
document.addEventListener("change", (event) => {
  if (event.target.tagName === "TEXTAREA") changed(event.target);
  if (!event.target.closest("#who")) return;
  const who = new FormData(byId("who"));
  const other = who.get("context") !== progress.context;
  Object.assign(progress, { name: who.get("name"), context: who.get("context") });
  if (other) {
    delete progress.values[5]; // its counts are those of the context
    open();
  } else keep();
});
document.addEventListener("click", async (event) => {
  const target = event.target;
  if (target.matches(".save")) {
    read(2);
    const { tp, pp, microbatches } = progress.values[2];
    if (await enter({ act: 2 }, { design: { tp, pp, microbatches } })) progress.designs.push({ tp, pp, microbatches });
    stand();
  } else if (target.dataset.take) {
    const link = Object.assign(document.createElement("a"), { download: "ledger." + target.dataset.take, href: URL.createObjectURL(new Blob([taken[target.dataset.take] || ""])) });
    link.click();
    URL.revokeObjectURL(link.href);
  } else if (target.id === "restart" && confirm("Forget every answer, design and ledger entry of this browser?")) {
    progress = fresh();
    localStorage.removeItem(KEPT);
    location.reload();
  }
});
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("main details")) each.open = true;
});

async function open() {
  const who = byId("who");
  progress.context = progress.context || new FormData(who).get("context");
  who.elements.context.value = progress.context;
  who.elements.name.value = progress.name;
  stand();
  for (const section of document.querySelectorAll(".act")) {
    settle(section);
    show(Number(section.dataset.act), true);
  }
}
byId("undo").hidden = true; // what is locked stays
open();
