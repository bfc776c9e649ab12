"use strict";
// Everything that comes from a study is put on the page as text: by textContent, or escaped for Plotly's own markup.
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const trouble = (text) => {
    const box = document.getElementById("trouble");
    box.textContent = text;
    box.hidden = false;
  };
  if (typeof DecompressionStream === "undefined") {
    trouble("This browser is too old for the charts; the tables below work.");
    return;
  }
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const code = document.createElement("script");
  code.textContent = await new Response(stream).text();
  document.head.append(code);
  if (typeof Plotly === "undefined") {
    trouble("The charts could not be started; the tables below work.");
    return;
  }

  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31", "#7b4fa3", "#6b8e23"];
  const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down", "pentagon", "hexagon"];
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
  const ROWS = 300;

  const cell = (name, row) => {
    const column = data.columns[name];
    return Array.isArray(column) ? column[row] : column.values[column.codes[row]];
  };
  const values = (name) => {
    const column = data.columns[name];
    const found = Array.isArray(column) ? [...new Set(column)] : [...new Set(column.codes)].map((code) => column.values[code]);
    return found.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  };
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
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
  const state = { metric: opening ? opening[0] : "mfu", colour: "model", filters: {}, sort: ["", 1], chosen: -1 };
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
  const layout = (extra) => ({
    margin: { l: 10, r: 15, t: 15, b: 50 }, font: { family: "system-ui, sans-serif", size: 13, color: "#1f2933" }, hovermode: "closest",
    ...extra, legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
    xaxis: { automargin: true, gridcolor: "#e6e8eb", ...extra.xaxis }, yaxis: { automargin: true, gridcolor: "#e6e8eb", ...extra.yaxis },
  });
  const config = { displaylogo: false, responsive: true, typesetMath: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "sendDataToCloud"] };

  function scatter(rows) {
    const [name, title, write] = metric();
    const groups = new Map();
    const kind = ["cluster", "model", "family"].find((other) => other !== state.colour && varied.includes(other));
    for (const row of rows) {
      if (cell(name, row) === null) continue;
      const key = JSON.stringify([cell(state.colour, row), kind ? cell(kind, row) : null]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    const colours = values(state.colour), marks = kind ? values(kind) : [null];
    const traces = [...groups].map(([key, members]) => {
      const [first, second] = JSON.parse(key);
      members.sort((a, b) => cell("gpus", a) - cell("gpus", b));
      const once = new Set(members.map((row) => cell("gpus", row))).size === members.length;
      const colour = COLOURS[colours.indexOf(first) % COLOURS.length];
      return {
        type: "scatter", mode: once && members.length > 1 ? "lines+markers" : "markers",
        name: plain(written(first)) + (kind ? " · " + plain(written(second)) : ""),
        x: members.map((row) => cell("gpus", row)), y: members.map((row) => cell(name, row)), customdata: members,
        text: members.map((row) => plain(cell("model", row)) + " on " + written(cell("gpus", row)) + " × " + plain(cell("device", row)) +
          "<br>" + write(cell(name, row)) + "<br>" + plain(cell("summary", row) || cell("status", row))),
        hoverinfo: "text", line: { color: colour, width: 1.3 },
        marker: { color: colour, size: 8, symbol: MARKS[(kind ? marks.indexOf(second) : 0) % MARKS.length] },
      };
    });
    const ticks = values("gpus");
    Plotly.react("scatter", traces, layout({
      xaxis: { title: { text: "GPUs" }, type: "log", tickvals: ticks, ticktext: ticks.map(written), tickangle: ticks.length > 12 ? -45 : 0 },
      yaxis: { title: { text: plain(title) }, rangemode: "tozero", tickformat: name === "mfu" ? ".0%" : "" },
      showlegend: traces.length > 1 && traces.length <= 40,
    }), config);
  }

  function heat(rows) {
    const [name, title, write, upwards] = metric();
    const models = values("model").filter((model) => rows.some((row) => cell("model", row) === model)), gpus = values("gpus");
    const best = models.map(() => gpus.map(() => null)), who = models.map(() => gpus.map(() => null));
    for (const row of rows) {
      const value = cell(name, row);
      if (value === null) continue;
      const y = models.indexOf(cell("model", row)), x = gpus.indexOf(cell("gpus", row));
      if (best[y][x] === null || better(value, best[y][x])) {
        best[y][x] = value;
        who[y][x] = row;
      }
    }
    const text = who.map((line) => line.map((row) => (row === null ? "" : write(cell(name, row)))));
    const hover = who.map((line, y) => line.map((row, x) => row === null ? plain(models[y]) + " on " + written(gpus[x]) + " GPUs: no plan"
      : plain(models[y]) + " on " + written(gpus[x]) + " × " + plain(cell("device", row)) + "<br>" + write(cell(name, row)) + "<br>" + plain(cell("summary", row))));
    Plotly.react("heat", [{
      type: "heatmap", x: gpus.map(written), y: models.map(plain), z: best, customdata: who, text, texttemplate: gpus.length <= 16 && innerWidth > 700 ? "%{text}" : "",
      hovertext: hover, hoverinfo: "text", colorscale: "Cividis", reversescale: !upwards, colorbar: { title: { text: innerWidth < 600 ? "" : plain(title), side: "right" } }, xgap: 1, ygap: 1,
    }], layout({
      height: Math.max(240, 26 * models.length + 90), 
      xaxis: { title: { text: "GPUs" }, type: "category" }, yaxis: { type: "category", autorange: "reversed" }, plot_bgcolor: "#eef1f4",
    }), config);
  }

  function families(rows) {
    const [name, title, write] = metric();
    const clusters = values("cluster"), names = values("family");
    const traces = clusters.map((cluster, index) => {
      const best = names.map((family) => {
        let found, at = null;
        for (const row of rows) {
          const value = cell(name, row);
          if (value !== null && cell("family", row) === family && cell("cluster", row) === cluster && better(value, found)) [found, at] = [value, row];
        }
        return at;
      });
      return {
        type: "bar", name: plain(cluster), x: names.map((family) => plain(written(family))), y: best.map((row) => (row === null ? null : cell(name, row))),
        customdata: best, hoverinfo: "text", marker: { color: COLOURS[index % COLOURS.length] },
        text: best.map((row) => (row === null ? "" : write(cell(name, row)))), textposition: "none",
        hovertext: best.map((row) => row === null ? "" : plain(cell("model", row)) + " on " + written(cell("gpus", row)) + " × " + plain(cell("device", row)) + "<br>" + write(cell(name, row))),
      };
    }).filter((trace) => trace.y.some((value) => value !== null));
    Plotly.react("families", traces, layout({ height: 340, barmode: "group", bargap: names.length < 3 ? 0.6 : 0.2, xaxis: { type: "category" }, yaxis: { title: { text: plain(title) }, tickformat: name === "mfu" ? ".0%" : "" } }), config);
  }

  function table(rows) {
    const formats = Object.fromEntries(METRICS.map(([name, , write]) => [name, write]));
    const head = document.querySelector("#jobs thead"), body = document.querySelector("#jobs tbody");
    const line = element("tr");
    const numeric = (name) => Array.isArray(data.columns[name]);
    for (const name of TABLE) {
      const mark = state.sort[0] === name ? (state.sort[1] > 0 ? " ▲" : " ▼") : "";
      const made = element("th", (HEADINGS[name] || name.replaceAll("_", " ")) + mark, numeric(name) ? "number" : "");
      made.addEventListener("click", () => {
        state.sort = [name, state.sort[0] === name ? -state.sort[1] : 1];
        table(shown());
      });
      line.append(made);
    }
    head.replaceChildren(line);
    const [by, direction] = state.sort;
    const compare = (a, b) => {
      const [x, y] = [cell(by, a), cell(by, b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return direction * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
    };
    const ordered = by ? [...rows].sort(compare) : rows;
    body.replaceChildren(...ordered.slice(0, ROWS).map((row) => {
      const made = element("tr", undefined, row === state.chosen ? "chosen" : "");
      for (const name of TABLE) {
        const value = name === "summary" ? cell("summary", row) || cell("reason", row) : cell(name, row);
        made.append(element("td", value === null ? "" : formats[name] ? formats[name](value) : written(value), numeric(name) ? "number" : ""));
      }
      made.addEventListener("click", () => choose(row));
      return made;
    }));
    if (ordered.length > ROWS) {
      const more = element("td", (ordered.length - ROWS).toLocaleString("en") + " more; filter, or open the CSV beside this page");
      more.colSpan = TABLE.length;
      const made = element("tr");
      made.append(more);
      body.append(made);
    }
  }

  function pairs(heading, entries, total) {
    const box = element("div"), list = element("table");
    for (const [name, value, size] of entries) {
      const line = element("tr");
      line.append(element("td", name.replaceAll("_", " ")), element("td", value, size === undefined ? "" : "number"));
      if (size !== undefined) {
        const bar = element("span", "", "bar"), holder = element("td");
        bar.style.width = Math.max(1, Math.round((100 * size) / total)) + "%";
        holder.style.width = "38%";
        holder.append(bar);
        line.append(holder);
      }
      list.append(line);
    }
    box.append(element("h4", heading), list);
    return box;
  }

  function choose(row) {
    state.chosen = row;
    const box = document.getElementById("detail"), columns = element("div", undefined, "columns");
    const title = cell("model", row) + " on " + written(cell("gpus", row)) + " × " + cell("device", row) + " (" + cell("cluster", row) + ")";
    const asked = ["scenario", "stack", "dtype", "seq_len", "global_batch", ...data.limits];
    columns.append(pairs("Asked", asked.map((name) => [name, written(cell(name, row))]).filter(([, value]) => value !== "none" && value !== "0")));
    if (cell("summary", row)) {
      columns.append(pairs("Plan, " + cell("status", row), data.plan.map((name) => [name, written(cell(name, row))])));
      columns.append(pairs("Figures", METRICS.filter(([name]) => cell(name, row) !== null).map(([name, words, write]) => [words, write(cell(name, row))])));
      for (const [heading, terms, write] of [["Where the time goes", data.time, (v) => digits(v) + " s"], ["Where the memory goes", data.memory, (v) => (v / 1e9).toFixed(2) + " GB"]]) {
        const found = Object.entries(terms).map(([name, column]) => [name, column[row]]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
        const total = found.reduce((sum, [, value]) => sum + value, 0);
        columns.append(pairs(heading, found.map(([name, value]) => [name, write(value), value]), total));
      }
    } else {
      columns.append(pairs("No plan", [[cell("status", row), cell("reason", row)]]));
    }
    box.replaceChildren(element("h3", title), columns);
    table(shown());
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
  const CHARTS = ["scatter", "heat", "families"];
  const PAPER_WIDTH = 660, PAPER_HEIGHT = 600;
  const widths = (size) => CHARTS.forEach((id) => Plotly.relayout(id, { width: size, height: id === "scatter" && size ? PAPER_HEIGHT : undefined, autosize: size === null }));
  addEventListener("beforeprint", () => widths(PAPER_WIDTH));
  addEventListener("afterprint", () => widths(null));
  for (const id of CHARTS) {
    document.getElementById(id).on("plotly_click", (event) => {
      const row = event.points[0].customdata;
      if (row !== null && row !== undefined) choose(row);
    });
  }
})();
