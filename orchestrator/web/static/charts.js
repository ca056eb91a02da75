// SPDX-License-Identifier: Apache-2.0
// Draws each table of readings as a chart beside it. Who has no script reads the table, and so do screen readers.
"use strict";

const DASHES = [[], [6, 3], [2, 2], [10, 3, 2, 3]]; // colours alone tell nobody apart who sees none
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // by the element that a chart is in

function readTable(table) {
  const names = [...table.tHead.rows[0].cells].slice(1).map(cell => cell.textContent);
  const rows = [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => Number(cell.textContent)));
  const columns = names.map((_, at) => rows.map(row => Number.isNaN(row[at + 1]) ? null : row[at + 1]));
  return { names, data: [rows.map(row => -row[0]), ...columns] };
}

function options(names, width) {
  const style = getComputedStyle(document.documentElement);
  const axis = { stroke: style.getPropertyValue("--soft"), grid: { stroke: style.getPropertyValue("--line"), width: 1 } };
  return {
    width, height: 180,
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: [-300, 0] }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, values: (_, marks) => marks.map(mark => `${-mark} s`) }, { ...axis, size: 60 }],
    series: [
      { label: "ago", value: (_, at) => at === null ? "" : `${-at} s` },
      ...names.map((name, at) => ({
        label: name, width: 2, dash: DASHES[at % DASHES.length],
        stroke: `hsl(${(145 + at * 67) % 360} 60% ${dark.matches ? 65 : 35}%)`,
      })),
    ],
  };
}

function draw(again) {
  for (const [plot, known] of drawn) {
    if (again === true || !plot.isConnected) { known.chart.destroy(); drawn.delete(plot); }
  }
  for (const plot of document.querySelectorAll(".chart .plot")) {
    const { names, data } = readTable(plot.parentElement.querySelector("details table"));
    const known = drawn.get(plot), shape = names.join("\n");
    if (known && known.shape === shape) { known.chart.setData(data); continue; }
    if (known) known.chart.destroy();
    drawn.set(plot, { shape, chart: new uPlot(options(names, plot.clientWidth), data, plot) });
  }
}

document.addEventListener("htmx:after:swap", draw);
dark.addEventListener("change", () => draw(true));
addEventListener("resize", () => drawn.forEach(({ chart }, plot) => chart.setSize({ width: plot.clientWidth, height: 180 })));
draw();
