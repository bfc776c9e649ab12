// The lab: what is locked stays locked, in this browser; acts are shown once their prediction is. The address holds what is set.
"use strict";
const KEPT = "optimize-learn";
const SOON = 60; // after the last movement of a slider [ms]
const MOST = 500; // designs in a ledger
const LONGEST = 8000; // characters of a pasted text that the address holds
const FORMULA = /^[=+\-@\t\r]/; // what a spreadsheet would take a cell for that begins so
const COLUMNS = byId("ledger").dataset.columns.split(" ");
const fresh = () => ({ key: crypto.getRandomValues(new Uint32Array(2)).join("-"), name: "", context: "", answers: {}, entries: [], values: {} });
let progress = kept();
let trouble = ""; // why an entry is not on the sheet
const asking = new Map(); // controllers, by what is asked
const packs = new Map(); // of a copy without a server: the answers of each act

function kept() {
  try {
    return { ...fresh(), ...JSON.parse(localStorage.getItem(KEPT) || "{}") };
  } catch {
    return fresh(); // damaged, or a browser that keeps nothing
  }
}

function keep() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(progress));
  } catch {
    say("This browser keeps nothing of what you lock: take the ledger with you before you close it.");
  }
}

// Called by the file of an act.
async function packed(act, text) {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  packs.get(act).done(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json());
}

// Without a server answers stand in files beside the page, one for each act, which are opened once something is locked there.
async function stored(view, pairs, body) {
  const act = Number(pairs.act);
  if (!packs.has(act)) {
    const waiting = {};
    waiting.opened = new Promise((done, failed) => Object.assign(waiting, { done, failed }));
    packs.set(act, waiting);
    const missing = () => waiting.failed(new Error(`The file act-${act}.js is missing beside this page.`));
    document.head.append(Object.assign(document.createElement("script"), { src: `act-${act}.js`, onerror: missing }));
  }
  const pack = await packs.get(act).opened;
  if (view !== "panel") return pack[view][body && body.design ? Object.values(body.design).join() : [pairs.question, pairs.key].join()];
  const usual = { ...pack.usual[pairs.context], context: pairs.context };
  const key = (values) => pack.names.map((name) => values[name]).join();
  const blocks = pack.panels[key({ ...usual, ...pairs })] || pack.panels[key(usual)];
  if (typeof blocks === "string") throw Object.assign(new Error(blocks), { refused: true });
  return { html: blocks.map((at) => pack.blocks[at]).join("") };
}

// A newer question of the same kind overtakes the older; null for one that is refused, which is told, as is a failure.
async function ask(kind, view, pairs, body) {
  if (asking.has(kind)) asking.get(kind).abort();
  const controller = new AbortController();
  asking.set(kind, controller);
  const text = typeof body === "object" ? JSON.stringify(body) : body;
  const options = { signal: controller.signal, ...(text ? { method: "POST", body: text } : {}) };
  try {
    const found = "still" in document.body.dataset ? await stored(view, pairs, body) : await fetched(view, new URLSearchParams(pairs), options);
    if (controller.signal.aborted) return undefined;
    say("");
    return found;
  } catch (error) {
    if (!controller.signal.aborted) say(error.message);
    return error.refused ? null : undefined;
  }
}

// Questions that are locked show what was chosen, and their reveals.
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
  const { paste, ...values } = progress.values[act] || {};
  const found = await ask("panel-" + act, "panel", { act, context: progress.context, ...values }, paste);
  if (found === null && !panel.querySelector(".block") && progress.values[act]) {
    const told = byId("problem").textContent;
    delete progress.values[act]; // of an address: without them the act can be shown
    remember(false);
    await show(act, true);
    say(told);
  }
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
  stand();
}

// How far a student is; what is wrong with one further act keeps from the last tier.
function tier(right, saved) {
  const all = Object.values(right);
  if (right["act-1"] && right["act-2"] && all.every(Boolean) && saved.some((each) => each.right === "yes")) return "optimal";
  return all.some(Boolean) ? "partial" : "developing";
}

function written(id, rows) {
  byId(id).replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((cell) => Object.assign(document.createElement("td"), { textContent: cell })));
    return row;
  }));
}

// The ledger, and at the foot of the page where a student stands.
async function stand() {
  keep();
  const entries = progress.entries;
  const saved = entries.filter((each) => each.kind === "design");
  const right = Object.fromEntries(entries.filter((each) => each.kind === "prediction").map((each) => [each.question, each.right === "yes"]));
  byId("ledger").hidden = !entries.length;
  byId("no-ledger").hidden = !!entries.length;
  byId("ledger-trouble").hidden = !trouble;
  byId("ledger-trouble").textContent = trouble;
  const heads = [...byId("ledger").querySelectorAll("th")].map((each) => each.dataset.column);
  written("ledger-rows", entries.map(({ time = "", ...entry }) => heads.map((name) => (name === "time" ? time.slice(0, 16).replace("T", " ") : entry[name] || ""))));
  const text = (id) => (byId(id) ? byId(id).textContent : "-");
  const set = (name) => (byId("act2-in-" + name) || {}).value;
  const designing = "act-2" in right && byId("act2-mfu");
  for (const each of document.querySelectorAll("#stand dd")) {
    const name = each.dataset.stand;
    if (name in right) each.textContent = right[name] ? "right" : "review";
    else if (name.startsWith("act-")) each.textContent = "open";
    else if (name === "context") each.textContent = progress.context;
    else if (name === "saved") each.textContent = saved.length;
    else if (name === "tier") each.textContent = tier(right, saved);
    else each.parentElement.hidden = !designing;
    if (designing && name === "design") each.textContent = `TP ${set("tp")} x PP ${set("pp")} x DP ${text("act2-dp")}`;
    if (designing && name === "mfu") each.textContent = text("act2-mfu");
    if (designing && name === "memory") each.textContent = byId("act2-out-of-memory") ? "yes" : "no";
  }
  const both = "act-1" in right && "act-2" in right;
  if (!both) byId("takeaways").replaceChildren();
  else if (!byId("takeaways").childElementCount) {
    const found = await ask("takeaways", "takeaways", { act: 2, question: "takeaways", key: "" });
    if (found) byId("takeaways").innerHTML = found.html;
  }
}

// Keep a locked choice or a saved design, and gather it on the instructor's sheet where there is one.
async function enter(pairs, more) {
  const { key, name, context } = progress;
  const found = await ask("entry-" + progress.entries.length, "entry", pairs, { key, name, context, ...more });
  if (!found) return false;
  const said = { time: new Date().toISOString().slice(0, 19) + "+00:00", visitor: key, name: name.trim(), context };
  const saved = progress.entries.filter((each) => each.kind === "design");
  const lost = saved.length >= MOST && more.design ? saved[0] : null;
  progress.entries = [...progress.entries.filter((each) => each !== lost), { ...said, ...found.entry }];
  trouble = found.trouble || "";
  return true;
}

function take(form) {
  const entries = progress.entries;
  const cell = (value = "") => (FORMULA.test(value) ? "'" + value : value);
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const lines = [COLUMNS, ...entries.map((entry) => COLUMNS.map((name) => cell(entry[name])))];
  const text = form === "csv" ? lines.map((line) => line.map(quoted).join() + "\n").join("") : JSON.stringify(entries, null, 2);
  const link = Object.assign(document.createElement("a"), { download: "ledger." + form, href: URL.createObjectURL(new Blob([text])) });
  link.click();
  URL.revokeObjectURL(link.href);
}

function read(act) {
  const section = document.querySelector(`.act[data-act="${act}"]`);
  const values = {};
  for (const field of section.querySelectorAll(".set [name]")) {
    const value = field.type === "checkbox" ? (field.checked ? "yes" : "no") : field.value;
    if (field.tagName !== "TEXTAREA" || value) values[field.name] = value;
  }
  progress.values[act] = values;
}

// The address: the context, and of every act what is set there.
function remember(push) {
  const pairs = new URLSearchParams({ context: progress.context });
  for (const [act, values] of Object.entries(progress.values))
    for (const [name, value] of Object.entries(values)) if (value.length <= LONGEST) pairs.set(`${act}.${name}`, value);
  if ("#" + pairs !== location.hash) move("#" + pairs, push);
  progress.address = location.hash;
  keep();
}

let timer = 0;
function changed(field, push) {
  const section = field.closest(".act");
  if (!section || !field.closest(".set")) return;
  const pair = field.dataset.for ? byId(field.dataset.for) : field.parentElement.querySelector(`[data-for="${field.id}"]`);
  if (pair) pair.value = field.value;
  if (!field.validity.valid) return push && say(field.labels[0].textContent + ": " + field.validationMessage);
  say("");
  for (const button of section.querySelectorAll(".save")) button.textContent = "Save this design";
  const act = Number(section.dataset.act), pasted = field.tagName === "TEXTAREA";
  read(act);
  if (pasted) progress.values[act] = { paste: field.value };
  keep();
  if (push) remember(true);
  clearTimeout(timer);
  timer = setTimeout(() => show(act, pasted), SOON);
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  if (!form.matches("form.ask")) return;
  const question = form.dataset.question, key = new FormData(form).get(question), act = form.dataset.act;
  if (!key || progress.answers[question] || !(await enter({ act, question, key }, {}))) return;
  progress.answers[question] = key;
  keep();
  await (form.closest(".panel") ? settle(form.closest(".act")) : show(Number(act), true));
  // A locked form cannot keep the focus: a prediction leads to what it opened, at whose end its reveal stands.
  const place = form.closest(".panel") ? document.querySelector(`[data-reveals="${question}"]`) : form.closest(".act").querySelector(".panel .block");
  if (place) Object.assign(place, { tabIndex: -1 }).focus();
  stand();
});
document.addEventListener("input", (event) => {
  if (event.target.type !== "radio" && event.target.tagName !== "TEXTAREA") changed(event.target, false);
});
document.addEventListener("change", (event) => {
  changed(event.target, true);
  if (!event.target.closest("#who")) return;
  const who = new FormData(byId("who"));
  const other = who.get("context") !== progress.context;
  Object.assign(progress, { name: who.get("name"), context: who.get("context") });
  if (other) {
    delete progress.values[5]; // its counts are those of the context
    remember(true);
    open();
  } else keep();
});
document.addEventListener("click", async (event) => {
  const target = event.target;
  if (target.matches(".save")) {
    read(2);
    const { tp, pp, microbatches } = progress.values[2];
    if (await enter({ act: 2 }, { design: { tp, pp, microbatches } })) target.textContent = "Saved in the ledger";
    stand();
  } else if (target.dataset.take) take(target.dataset.take);
  else if (target.id === "restart" && confirm("Forget every answer, design and ledger entry of this browser?")) {
    localStorage.removeItem(KEPT);
    history.replaceState(null, "", location.pathname);
    location.reload();
  }
});

function again() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))];
  const others = location.hash !== progress.address; // not what this browser wrote last, beside which it may know more
  if (others && pairs.length) progress.values = {};
  for (const [name, value] of others ? pairs : []) {
    const [act, field] = name.split(".");
    if (!field) progress.context = value;
    else if (document.querySelector(`.act[data-act="${act}"]`)) progress.values[act] = { ...progress.values[act], [field]: value };
  }
  open();
}

function open() {
  const who = byId("who").elements;
  if (![...who.context].some((each) => each.value === progress.context)) progress.context = who.context[0].value;
  who.context.value = progress.context;
  who.name.value = progress.name;
  remember(false);
  stand();
  for (const section of document.querySelectorAll(".act")) {
    settle(section);
    show(Number(section.dataset.act), true);
  }
}
again();
