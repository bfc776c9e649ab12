// Every tab: what went wrong, undo, copies, print; `again` of the tab's own script shows the address anew.
"use strict";
const byId = (id) => document.getElementById(id);
let pushed = 0; // changes that can be undone

async function fetched(view, pairs, options) {
  const response = await fetch("view/" + view + "?" + pairs, options);
  if (response.status === 401) throw new Error("The server was started anew: open the address that it printed.");
  const found = await response.json();
  if (found.problem) throw Object.assign(new Error(found.problem), { refused: true });
  return found;
}

function say(problem) {
  byId("problem").hidden = !problem;
  byId("problem").textContent = problem;
}

function move(url, push) {
  if (push) pushed += 1;
  history[push ? "pushState" : "replaceState"]({ changes: pushed }, "", url);
  byId("undo").disabled = pushed === 0;
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy it by hand";
  }
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.id === "undo") history.back();
  if (target.matches("header nav a:not([aria-current])")) target.search = sessionStorage.getItem(target.pathname) || "";
  if (target.dataset.copy) copy(target.dataset.copy === "link" ? location.href : byId(target.dataset.copy).textContent, target);
  if (!target.matches('a[href^="#"]')) return;
  event.preventDefault(); // the part behind # is no place: the address holds the question
  const place = document.querySelector(target.getAttribute("href"));
  for (let each = place.closest("details:not([open])"); each; each = each.parentElement.closest("details:not([open])")) each.open = true;
  place.scrollIntoView();
  place.focus();
});
addEventListener("popstate", (event) => {
  pushed = event.state ? event.state.changes : 0;
  byId("undo").disabled = pushed === 0;
  again();
});
addEventListener("pagehide", () => sessionStorage.setItem(location.pathname, location.search)); // to find each tab as it was left
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("main details:not([data-view], .later)")) each.open = true;
});
