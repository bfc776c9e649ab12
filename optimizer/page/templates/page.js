// Every tab with a form: a changed control asks for the answer, a newer change stops the older, the address holds the question.
"use strict";
const SOON = 30; // after the last movement of a slider [ms]
const LONG = 400; // from which on a search shows that it goes on [ms]
const SETTLED = 150; // after an answer, before its proof is asked for: a slider often moves on [ms]
const HELD = "held"; // a slider that still moves: its address is written once it is let go
let running = null; // of the answer
const later = new Map(); // by view, of what was opened
let timer = 0;
let sent = null; // files of the visitor, as they were read last

function question() {
  const pairs = new URLSearchParams();
  for (const [name, value] of new FormData(byId("question"))) if (value.trim() || name === "gpus") pairs.append(name, value);
  return pairs;
}

function shown() {
  return [...document.querySelectorAll("details[data-view][open]")].map((each) => each.dataset.view);
}

function remember(address, push) {
  const parts = [address, ...shown().map((name) => "show=" + name)].filter(Boolean);
  const url = "?" + parts.join("&");
  for (const link of document.querySelectorAll("a.carry")) link.search = "plan=" + encodeURIComponent(address);
  if (url === location.search) return;
  move(url, push);
}

function progress(controller, what) {
  const start = performance.now();
  const tick = setInterval(() => {
    const passed = performance.now() - start;
    if (passed < LONG) return;
    byId("progress").hidden = false;
    byId("progress-words").textContent = what + ", " + Math.floor(passed / 1000) + " s";
  }, 200);
  byId("stop").onclick = () => controller.abort("stopped");
  return () => {
    clearInterval(tick);
    byId("progress").hidden = true;
  };
}

async function answer(push) {
  if (running) running.abort("newer");
  const controller = (running = new AbortController());
  const done = progress(controller, byId("question").dataset.working);
  byId("answer").classList.add("old");
  try {
    const body = sent ? { method: "POST", body: sent } : {};
    const found = await fetched(byId("question").dataset.view, question(), { signal: controller.signal, ...body });
    if (controller !== running) return true;
    say("");
    for (const [id, html] of Object.entries({ answer: found.answer, ...found.put })) put(byId(id), html);
    byId("answer").dataset.address = found.address;
    byId("answer").toggleAttribute("data-pending", found.pending);
    putSteps(found.steps, found.values);
    if (found.mine) putMine(found.mine);
    document.title = found.title + " - mfu-optimizer";
    shorten(found.title);
    // A browser takes 10 to 30 ms to note an address: once the answer is painted.
    if (push !== HELD) requestAnimationFrame(() => setTimeout(() => remember(found.address, push)));
    byId("answer").classList.remove("old");
    byId("answer").dataset.answered = Number(byId("answer").dataset.answered || 0) + 1;
    refresh();
    prove(controller);
    return true;
  } catch (error) {
    if (controller.signal.aborted && controller.signal.reason === "newer") return true;
    say(controller.signal.aborted ? "Stopped; what is shown is the answer before." : error.message);
    return false;
  } finally {
    done();
  }
}

// What is proven about the plan that is shown, and its runners-up: they follow the answer by themselves.
async function prove(controller) {
  const still = () => controller === running && byId("answer").hasAttribute("data-pending");
  await new Promise((done) => setTimeout(done, SETTLED));
  if (!still()) return;
  const done = waiting(byId("verdict"), "What is proven about it is being worked out", controller);
  try {
    const found = await fetched(byId("question").dataset.next, byId("answer").dataset.address, { signal: controller.signal });
    if (!still()) return;
    const page = new DOMParser().parseFromString(found.answer, "text/html");
    for (const id of ["verdict", "proven"]) put(byId(id), page.getElementById(id).innerHTML);
    byId("answer").removeAttribute("data-pending");
  } catch (error) {
    if (!still()) return;
    const why = controller.signal.aborted ? "stopped before that was known" : error.message;
    byId("verdict").textContent = "The best plan found; nothing is proven about it: " + why;
  } finally {
    done();
  }
}

// Seconds that pass, and a button that ends the waiting, at the head of a place; what takes them away again.
function waiting(place, what, controller) {
  const start = performance.now();
  const stop = document.createElement("p");
  stop.innerHTML = '<span></span> <button type="button">Stop</button>';
  stop.ariaLive = "off"; // nobody wants to hear seconds counted
  stop.querySelector("button").onclick = () => controller.abort("stopped");
  const tick = setInterval(() => {
    const passed = performance.now() - start;
    if (passed < LONG) return;
    if (!stop.parentElement) place.prepend(stop);
    stop.querySelector("span").textContent = what + ", " + Math.floor(passed / 1000) + " s";
  }, 200);
  return () => {
    clearInterval(tick);
    stop.remove();
  };
}

function put(place, html) {
  const open = [...place.querySelectorAll("details[open] > summary")].map((each) => each.textContent);
  const active = place.contains(document.activeElement) ? document.activeElement : null;
  const id = active && active.id, label = active && active.getAttribute("aria-label");
  place.innerHTML = html;
  for (const each of place.querySelectorAll("details > summary")) {
    if (open.includes(each.textContent)) each.parentElement.open = true;
  }
  const again = id ? byId(id) : label && [...place.querySelectorAll("[aria-label]")].find((each) => each.getAttribute("aria-label") === label);
  if (again) again.focus();
}

// On a narrow screen the answer lies below the controls: its first line stands at the foot, and leads to it.
function shorten(title) {
  byId("short").textContent = title;
  byId("short").hidden = !title;
}

function putSteps(steps, values) {
  for (const slide of steps ? document.querySelectorAll(".slide") : []) {
    const name = slide.dataset.for;
    byId("in-" + name).placeholder = values[name];
    if (slide === document.activeElement && slide.dataset.held) continue;
    const stops = steps[name];
    slide.dataset.stops = stops.join(",");
    slide.max = Math.max(1, stops.length - 1);
    slide.value = Math.max(0, stops.indexOf(values[name]));
    slide.setAttribute("aria-valuetext", values[name]);
  }
}

function refresh() {
  for (const each of document.querySelectorAll("details[data-view][open]")) open(each);
}

async function open(details) {
  const view = details.dataset.view;
  const place = details.querySelector(".later-place");
  if (later.has(view)) later.get(view).abort("newer");
  const controller = new AbortController();
  later.set(view, controller);
  const address = byId("answer").dataset.address;
  if (details.dataset.of === address) return;
  const done = waiting(place, "Working", controller);
  place.classList.add("old");
  try {
    const found = await fetched(view, address, { signal: controller.signal });
    put(place, found.html);
    details.dataset.of = address;
  } catch (error) {
    if (controller.signal.reason !== "newer") {
      place.textContent = controller.signal.aborted ? "Stopped; close and open it to begin again." : error.message;
    }
  } finally {
    done();
    if (later.get(view) === controller) place.classList.remove("old");
  }
}

function slid(slide, push) {
  const stops = slide.dataset.stops.split(",");
  const field = byId("in-" + slide.dataset.for);
  field.value = stops[slide.value] || field.value;
  slide.setAttribute("aria-valuetext", field.value);
  soon(push);
}

function soon(push) {
  clearTimeout(timer);
  timer = setTimeout(() => answer(push), SOON);
}

function putMine(plans) {
  const fields = plans.map((plan) => Object.assign(document.createElement("input"), { type: "hidden", name: "mine", value: plan }));
  byId("mine-list").replaceChildren(...fields);
}

async function mine(plan, add) {
  const before = [...byId("mine-list").children].map((each) => each.value);
  const others = before.filter((each) => each !== plan);
  putMine(add ? [...others.slice(-3), plan] : others);
  if (add) document.querySelector('details[data-view="mine"]').open = true;
  if (!(await answer(true))) putMine(before);
}

function addMine() {
  const field = byId("in-mine");
  if (field.value.trim()) mine(field.value.trim().toLowerCase(), true);
}

// The files chosen, each with its name, or the text of the box: together one launch.
async function paste(chosen, text) {
  const files = await Promise.all(chosen.map(async (file) => [file.name, await file.text()]));
  const before = sent;
  sent = JSON.stringify({ pasted: files.length ? files : [["", text]] });
  if (!(await answer(true))) sent = before;
}

// The form and the answer of the address, as the server writes them.
async function again() {
  if (!byId("question")) return;
  const response = await fetch(location.search || "./");
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  sent = null;
  const wide = [...document.querySelectorAll("form details[open]")].map((each) => each.className);
  byId("question").replaceWith(page.getElementById("question"));
  for (const each of document.querySelectorAll("form details")) if (wide.includes(each.className)) each.open = true;
  const fresh = page.getElementById("answer");
  say(page.getElementById("problem").textContent);
  byId("answer").dataset.address = fresh.dataset.address;
  byId("answer").toggleAttribute("data-pending", fresh.hasAttribute("data-pending"));
  byId("answer").dataset.answered = Number(byId("answer").dataset.answered || 0) + 1;
  put(byId("answer"), fresh.innerHTML);
  document.title = page.title;
  shorten(page.getElementById("short").textContent);
  if (!fresh.dataset.address && page.getElementById("problem").hidden) answer(false);
  else settled();
}

// After a page that the server wrote: what was opened, and the proof if that is still to come.
function settled() {
  if (running) running.abort("newer");
  running = new AbortController();
  refresh();
  prove(running);
}

document.addEventListener("input", (event) => {
  if (event.target.matches(".slide")) {
    event.target.dataset.held = "yes";
    slid(event.target, HELD);
  }
});
document.addEventListener("change", (event) => {
  if (event.target.matches(".slide")) {
    delete event.target.dataset.held;
    slid(event.target, true);
  } else if (event.target.id === "in-file") {
    if (event.target.files.length) paste([...event.target.files], "");
    event.target.value = ""; // so that the same file can be chosen again
  } else if (event.target.closest("#question") && event.target.name) {
    clearTimeout(timer); // a value that is typed in does not move on
    answer(true);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.id !== "in-mine") return;
  event.preventDefault();
  addMine();
});
document.addEventListener("submit", (event) => {
  event.preventDefault();
  answer(true);
});
document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.matches(".pin")) mine(target.dataset.pins, target.getAttribute("aria-pressed") !== "true");
  if (target.id === "add-mine") addMine();
  if (target.id === "read-pasted") paste([], byId("pasted").value);
});
document.addEventListener(
  "toggle",
  (event) => {
    if (!event.target.matches("details[data-view]")) return;
    remember(byId("answer").dataset.address, false);
    if (event.target.open) open(event.target);
    else if (later.has(event.target.dataset.view)) later.get(event.target.dataset.view).abort("newer");
  },
  true,
);
for (const name of ["dragover", "drop"]) {
  addEventListener(name, (event) => {
    if (!byId("in-file") || !event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    if (name === "drop") paste([...event.dataTransfer.files], "");
  });
}

// Files may have been chosen before this script ran.
if (byId("in-file")?.files.length) byId("in-file").dispatchEvent(new Event("change", { bubbles: true }));
else if (byId("answer").dataset.address) {
  byId("answer").dataset.answered = 1;
  remember(byId("answer").dataset.address, false);
  settled();
} else if (byId("question") && byId("problem").hidden) answer(false);
