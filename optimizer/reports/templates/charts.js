// Draws every chart of a page from the figure beside it; as wide as its place, on paper too.
"use strict";
const PAPER_WIDTH = 660;

function drawCharts(root) {
  for (const plot of root.querySelectorAll(".plot")) {
    const figure = JSON.parse(plot.parentElement.querySelector("script.figure").textContent);
    Plotly.react(plot, figure.data, figure.layout, { displaylogo: false, displayModeBar: false, responsive: true, typesetMath: false });
  }
}

function widthOfCharts(width) {
  for (const plot of document.querySelectorAll(".plot.js-plotly-plot")) {
    Plotly.relayout(plot, width ? { width: width, autosize: false } : { width: null, autosize: true });
  }
}

addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details.numbers")) each.open = true;
  widthOfCharts(PAPER_WIDTH);
});
addEventListener("afterprint", () => widthOfCharts(null));
