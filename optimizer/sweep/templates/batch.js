"use strict";
// Everything that comes from a study is put on the page as text, by textContent; nothing is markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const trouble = (text) => {
    const box = document.getElementById("trouble");
    box.textContent = text;
    box.hidden = false;
  };
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor", "#8c6d31", "#7b4fa3", "#6b8e23"];
  const OUTLINES = data.outlines;
  const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  const METRICS = [
    ["tokens_per_usd", "tokens per dollar", (v) => Math.round(v).toLocaleString("en"), true],
    ["tokens_per_joule", "tokens per joule", (v) => digits(v), true],
    ["mfu", "MFU (of each device's own peak)", (v) => (100 * v).toFixed(1) + " %", true],
    ["step_time_s", "step time [s]", (v) => digits(v) + " s", false],
    ["tokens_per_s_per_gpu", "tokens/s per GPU", (v) => Math.round(v).toLocaleString("en"), true],
    ["usd_per_mtoken", "cost [USD per million tokens]", (v) => "$" + digits(v), false],
    ["train_days", "training run [days]", (v) => digits(v) + " d", false],
    ["train_usd", "training run [USD]", (v) => "$" + Math.round(v).toLocaleString("en"), false],
    ["peak_reserved_bytes", "memory per GPU [GB]", (v) => (v / 1e9).toFixed(1) + " GB", false],
  ].filter(([name]) => data.columns[name] && data.columns[name].some((v) => v !== null));
  const CHOICES = ["status", "scenario", "family", "model", "cluster", "dtype", "stack", "gpus", "seq_len", "global_batch",
    ...data.limits];
  const TABLE = ["model", "cluster", "gpus", "seq_len", "global_batch", "dtype", "status", "tokens_per_usd", "tokens_per_joule", "mfu", "step_time_s", "summary"];
  const HEADINGS = { gpus: "GPUs", seq_len: "seq", global_batch: "batch", mfu: "MFU", step_time_s: "step", tokens_per_usd: "tokens/$", tokens_per_joule: "tokens/J", summary: "plan" };
  const ROWS = 300, MOST_KEYS = 40;

  const cell = (name, row) => {
    const column = data.columns[name];
    return Array.isArray(column) ? column[row] : column.values[column.codes[row]];
  };
  const values = (name) => {
    const column = data.columns[name];
    const found = Array.isArray(column) ? [...new Set(column)] : [...new Set(column.codes)].map((code) => column.values[code]);
    return found.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  };
  const written = (value) => (value === null || value === "" ? "none" : typeof value === "number" ? value.toLocaleString("en") : String(value));
  const element = (tag, text, kind) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const option = (value, text) => {
    const made = element("option", text);
    made.value = value;
    return made;
  };

  // MFU compares a device with its own peak: where there are several, the page opens with what a dollar buys.
  const devices = new Set(data.columns.device.codes).size;
  const opening = METRICS.find(([name]) => name === (devices > 1 ? "tokens_per_usd" : "mfu")) || METRICS[0];
  const state = { metric: opening ? opening[0] : "mfu", colour: "model", filters: {}, sort: ["", 1] };
  const varied = CHOICES.filter((name) => data.columns[name] && values(name).length > 1);
  const metricBox = document.getElementById("metric");
  METRICS.forEach(([name, title]) => metricBox.append(option(name, title)));
  const colourBox = document.getElementById("colour");
  const colourable = [...new Set(["model", "family", "cluster", ...varied.filter((name) => name !== "gpus" && name !== "status")])];
  colourable.forEach((name) => colourBox.append(option(name, name.replaceAll("_", " "))));
  const selects = {};
  for (const name of varied) {
    const label = element("label", name.replaceAll("_", " "));
    const box = element("select");
    box.id = "filter-" + name;
    box.append(option("", "all"));
    values(name).forEach((value, index) => box.append(option(String(index), written(value))));
    box.addEventListener("change", () => {
      state.filters[name] = box.value;
      draw();
    });
    label.append(box);
    document.getElementById("filters").append(label);
    selects[name] = box;
  }

  const shown = () => {
    const wanted = Object.entries(state.filters).filter(([, index]) => index !== "").map(([name, index]) => [name, values(name)[index]]);
    const rows = [];
    for (let row = 0; row < data.count; row++) if (wanted.every(([name, value]) => cell(name, row) === value)) rows.push(row);
    return rows;
  };
  const metric = () => METRICS.find(([name]) => name === state.metric) || METRICS[0];
  const better = (a, b) => (b === undefined ? true : metric()[3] ? a > b : a < b);
  const machines = (row) => cell("model", row) + " on " + written(cell("gpus", row)) + " × " + cell("device", row);
  const told = (row) => {
    const [name, , write] = metric(), value = cell(name, row);
    return [machines(row), ...(value === null ? [] : [write(value)]), cell("summary", row) || cell("status", row)].join(", ");
  };
  const largest = (rows) => rows.reduce((most, row) => Math.max(most, cell(state.metric, row)), 0) || 1;
  const drawn = (tag, attributes, ...inner) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inner);
    return made;
  };
  const opener = (text, row) => {
    const made = element("button", text);
    made.type = "button";
    made.title = told(row);
    made.addEventListener("click", () => choose(row));
    return made;
  };
  const bar = (share) => {
    const made = element("span", "", "bar");
    made.style.width = Math.max(1, Math.round(100 * share)) + "%";
    return made;
  };
  const placed = (text, side, share) => {
    const made = element("span", text);
    made.style[side] = share.toFixed(2) + "%";
    return made;
  };

  function scatter(rows) {
    const [name, title, write] = metric();
    const groups = new Map(), kind = ["cluster", "model", "family"].find((other) => other !== state.colour && varied.includes(other));
    const known = rows.filter((row) => cell(name, row) !== null);
    for (const row of known) {
      const key = JSON.stringify([cell(state.colour, row), kind ? cell(kind, row) : null]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    const counts = [...new Set(known.map((row) => cell("gpus", row)))].sort((a, b) => a - b), most = 1.05 * largest(known);
    const low = Math.log(counts[0]), span = Math.log(counts.at(-1)) - low;
    const across = (gpus) => (span > 0 ? 2 + (96 * (Math.log(gpus) - low)) / span : 50), down = (value) => 100 - (100 * value) / most;
    const size = 10 ** Math.floor(Math.log10(most / 5)), step = size * [1, 2, 2.5, 5, 10].find((digit) => most / (digit * size) <= 6);
    const levels = Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
    const grid = levels.map((value) => drawn("line", { class: "grid", x1: "0", x2: "100%", y1: down(value) + "%", y2: down(value) + "%" }));
    const colours = values(state.colour), kinds = kind ? values(kind) : [null], lines = [], points = [], keys = [];
    for (const [key, members] of groups) {
      const [first, second] = JSON.parse(key), colour = COLOURS[colours.indexOf(first) % COLOURS.length];
      const outline = () => drawn("path", { d: OUTLINES[kinds.indexOf(second) % OUTLINES.length], fill: colour });
      members.sort((a, b) => cell("gpus", a) - cell("gpus", b));
      const places = members.map((row) => [across(cell("gpus", row)).toFixed(3) + "%", down(cell(name, row)).toFixed(3) + "%"]);
      if (new Set(members.map((row) => cell("gpus", row))).size === members.length)
        for (let i = 1; i < places.length; i++) lines.push(drawn("line", { x1: places[i - 1][0], y1: places[i - 1][1], x2: places[i][0], y2: places[i][1], stroke: colour, "stroke-width": 1.3 }));
      members.forEach((row, index) => {
        const mark = outline();
        mark.append(drawn("title", {}, told(row)));
        const point = drawn("svg", { x: places[index][0], y: places[index][1], class: "point" }, mark);
        point.addEventListener("click", () => choose(row));
        points.push(point);
      });
      const line = element("li"), mark = outline();
      mark.setAttribute("transform", "translate(7 7)");
      line.append(drawn("svg", { width: 14, height: 14, "aria-hidden": "true" }, mark), written(first) + (kind ? " · " + written(second) : ""));
      keys.push(line);
    }
    const svg = drawn("svg", { "aria-hidden": "true" }, ...grid, ...lines, ...points);
    let free = -Infinity; // labels that would touch the one before are left out
    const ticks = counts.filter((count) => across(count) - free > 1.3 * written(count).length && ((free = across(count)) || true));
    document.getElementById("legend").replaceChildren(...(keys.length > 1 && keys.length <= MOST_KEYS ? keys : []));
    document.getElementById("up").textContent = title;
    const widest = element("span", levels.map(write).reduce((a, b) => (b.length > a.length ? b : a), ""), "widest");
    document.getElementById("levels").replaceChildren(widest, ...levels.map((value) => placed(write(value), "top", down(value))));
    document.getElementById("scatter").replaceChildren(svg);
    document.getElementById("counts").replaceChildren(...ticks.map((count) => placed(written(count), "left", across(count))));
  }

  // The best row of each pair of two columns.
  function bests(rows, first, second) {
    const found = new Map();
    for (const row of rows) {
      const value = cell(state.metric, row), key = JSON.stringify([cell(first, row), cell(second, row)]);
      if (value !== null && (!found.has(key) || better(value, cell(state.metric, found.get(key))))) found.set(key, row);
    }
    return found;
  }
  const heading = (text, scope, kind) => {
    const made = element("th", text, kind);
    made.scope = scope;
    return made;
  };
  const lineOf = (...cells) => {
    const made = element("tr");
    made.append(...cells);
    return made;
  };
  const held = (child, kind) => {
    const made = element("td", undefined, kind);
    if (child) made.append(child);
    return made;
  };

  // The better, the bluer; dark words can be read on all of it.
  function heat(rows) {
    const [name, , write, upwards] = metric(), best = bests(rows, "model", "gpus");
    const models = values("model").filter((model) => rows.some((row) => cell("model", row) === model));
    const counts = values("gpus").filter((count) => rows.some((row) => cell("gpus", row) === count));
    const all = [...best.values()].map((row) => cell(name, row)), low = Math.min(...all), span = Math.max(...all) - low;
    const shaded = (value) => {
      const good = span > 0 ? (upwards ? value - low : low + span - value) / span : 1;
      return "rgb(" + [[237, 94], [245, 174], [250, 222]].map(([pale, full]) => Math.round(pale + (full - pale) * good)).join() + ")";
    };
    document.querySelector("#heat thead").replaceChildren(lineOf(heading("model, GPUs:", "col"), ...counts.map((count) => heading(written(count), "col", "n"))));
    document.querySelector("#heat tbody").replaceChildren(...models.map((model) => lineOf(heading(model, "row"), ...counts.map((count) => {
      const row = best.get(JSON.stringify([model, count]));
      if (row === undefined) return held(null);
      const made = held(opener(write(cell(name, row)), row), "n");
      made.style.background = shaded(cell(name, row));
      return made;
    }))));
  }

  function families(rows) {
    const [name, , write] = metric(), best = bests(rows, "family", "cluster");
    const most = largest([...best.values()]);
    const keys = values("family").flatMap((family) => values("cluster").map((cluster) => best.get(JSON.stringify([family, cluster]))));
    document.querySelector("#families tbody").replaceChildren(...keys.filter((row) => row !== undefined).map((row) =>
      lineOf(heading(written(cell("family", row)), "row"), element("td", cell("cluster", row)), held(opener(write(cell(name, row)), row), "n"),
        held(bar(cell(name, row) / most), "wide"), element("td", machines(row)))));
  }

  function table(rows) {
    const formats = Object.fromEntries(METRICS.map(([name, , write]) => [name, write]));
    const kind = (name) => (Array.isArray(data.columns[name]) ? "n" : "");
    const [by, direction] = state.sort;
    document.querySelector("#jobs thead").replaceChildren(lineOf(...TABLE.map((name) => {
      const made = heading("", "col", kind(name)), button = element("button", HEADINGS[name] || name.replaceAll("_", " "));
      button.type = "button";
      button.addEventListener("click", () => {
        state.sort = [name, by === name ? -direction : 1];
        table(shown());
        document.querySelectorAll("#jobs th button")[TABLE.indexOf(name)].focus();
      });
      made.append(button);
      if (by === name) made.ariaSort = direction > 0 ? "ascending" : "descending";
      return made;
    })));
    const compare = (a, b) => {
      const [x, y] = [cell(by, a), cell(by, b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return direction * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
    };
    const ordered = by ? [...rows].sort(compare) : rows;
    const lines = ordered.slice(0, ROWS).map((row) => lineOf(...TABLE.map((name, index) => {
      const value = name === "summary" ? cell("summary", row) || cell("reason", row) : cell(name, row);
      const text = value === null ? "" : formats[name] ? formats[name](value) : written(value);
      if (index) return element("td", text, kind(name));
      const made = heading("", "row");
      made.append(opener(text, row));
      return made;
    })));
    if (ordered.length > ROWS) {
      const more = element("td", (ordered.length - ROWS).toLocaleString("en") + " more; filter, or open the CSV beside this page");
      more.colSpan = TABLE.length;
      lines.push(lineOf(more));
    }
    document.querySelector("#jobs tbody").replaceChildren(...lines);
  }

  function pairs(title, entries, total) {
    const box = element("div"), list = element("table");
    for (const [name, value, size] of entries) {
      const line = lineOf(heading(name.replaceAll("_", " "), "row"), element("td", value, size === undefined ? "" : "n"));
      if (size !== undefined) line.append(held(bar(size / total), "wide"));
      list.append(line);
    }
    box.append(element("h3", title), list);
    return box;
  }

  // A job in a dialog, which gives the focus back to what opened it.
  function choose(row) {
    const columns = document.getElementById("detail-columns");
    const asked = ["scenario", "stack", "dtype", "seq_len", "global_batch", ...data.limits];
    columns.replaceChildren(pairs("Asked", asked.map((name) => [name, written(cell(name, row))]).filter(([, value]) => value !== "none" && value !== "0")));
    if (cell("summary", row)) {
      columns.append(pairs("Plan, " + cell("status", row), data.plan.map((name) => [name, written(cell(name, row))])));
      columns.append(pairs("Figures", METRICS.filter(([name]) => cell(name, row) !== null).map(([name, words, write]) => [words, write(cell(name, row))])));
      for (const [title, terms, write] of [["Where the time goes", data.time, (v) => digits(v) + " s"], ["Where the memory goes", data.memory, (v) => (v / 1e9).toFixed(2) + " GB"]]) {
        const found = Object.entries(terms).map(([name, column]) => [name, column[row]]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
        const total = found.reduce((sum, [, value]) => sum + value, 0);
        columns.append(pairs(title, found.map(([name, value]) => [name, write(value), value]), total));
      }
    } else {
      columns.append(pairs("No plan", [[cell("status", row), cell("reason", row)]]));
    }
    document.getElementById("detail-title").textContent = machines(row) + " (" + cell("cluster", row) + ")";
    document.getElementById("detail").showModal();
  }

  function draw() {
    for (const [name, box] of Object.entries(selects)) box.classList.toggle("active", box.value !== "");
    const rows = shown();
    document.getElementById("count").textContent = rows.length.toLocaleString("en") + " of " + data.count.toLocaleString("en") + " jobs";
    scatter(rows);
    heat(rows);
    families(rows);
    table(rows);
    const parts = Object.entries(state.filters).filter(([, index]) => index !== "").map(([name, index]) => [name, values(name)[index]]);
    history.replaceState(null, "", "#" + new URLSearchParams([["metric", state.metric], ["colour", state.colour], ...parts]));
  }

  function restore() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (METRICS.some(([name]) => name === wanted.get("metric"))) state.metric = wanted.get("metric");
    if (colourable.includes(wanted.get("colour"))) state.colour = wanted.get("colour");
    if (METRICS.length && !METRICS.some(([name]) => name === state.metric)) state.metric = METRICS[0][0];
    if (!wanted.get("colour") && values("model").length > COLOURS.length) state.colour = "family";
    for (const name of varied) {
      const index = values(name).findIndex((value) => String(value) === wanted.get(name));
      state.filters[name] = selects[name].value = wanted.has(name) && index >= 0 ? String(index) : "";
    }
    metricBox.value = state.metric;
    colourBox.value = state.colour;
  }

  document.getElementById("interactive").hidden = false;
  if (!METRICS.length) {
    trouble("No job has a plan, so there is nothing to draw; the tables below say why.");
    METRICS.push(["mfu", "MFU", String, true]);
    for (const section of document.querySelectorAll(".figures")) section.hidden = true;
    metricBox.parentElement.remove();
  }
  metricBox.addEventListener("change", () => { state.metric = metricBox.value; draw(); });
  colourBox.addEventListener("change", () => { state.colour = colourBox.value; draw(); });
  document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => {
    for (const name of varied) state.filters[name] = selects[name].value = "";
    draw();
  });
  addEventListener("hashchange", () => { restore(); draw(); });
  restore();
  draw();
  const detail = document.getElementById("detail");
  document.getElementById("close").addEventListener("click", () => detail.close());
  detail.addEventListener("click", (event) => { if (event.target === detail) detail.close(); }); // beside it
})();
