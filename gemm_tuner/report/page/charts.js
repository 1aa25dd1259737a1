// The charts, by Chart.js. Colours are the style sheet's, read when a chart is drawn.
"use strict";

const charts = new Map();
const printing = window.matchMedia("print"), dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = () => window.innerWidth < 700;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const NOT_TIMED = "not timed";

function draw(id, config) {
  charts.get(id)?.destroy();
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = narrow() ? 11 : 12;
  Chart.defaults.color = colour("quiet");
  Chart.defaults.borderColor = colour("grid");
  const options = { animation: false, responsive: true, maintainAspectRatio: false, ...config.options };
  options.plugins = { tooltip: tooltip(), legend: { display: false }, ...config.options.plugins };
  charts.set(id, new Chart(document.getElementById(id), { ...config, options }));
}

const tooltip = (lines = (item) => item.raw.lines) => ({
  displayColors: false,
  filter: (item, index) => index === 0 && Boolean(lines(item)),
  callbacks: { title: () => "", label: (item) => lines(item).flatMap(wrapped) },
});

// A name in pieces that fit a phone.
function wrapped(text) {
  return text.match(/.{1,38}(_|\s|$)|.{1,38}/g) ?? [text];
}

// A logarithmic axis with its numbers at 1, 2 and 5 times a power of ten.
function logAxis(title, low, high) {
  const wide = high / low > 300;
  return {
    type: "logarithmic", min: low, max: high, title: { display: true, text: title },
    afterBuildTicks: (axis) => {
      const ticks = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
        for (const step of wide ? [1] : high / low < 8 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8] : [1, 2, 5]) ticks.push({ value: step * 10 ** power });
      }
      axis.ticks = ticks.filter((tick) => tick.value >= low * 0.999 && tick.value <= high * 1.001);
    },
    ticks: { callback: (value) => String(Number(value.toPrecision(3))), maxRotation: 0 },
  };
}

const line = (points, name, dash = []) => ({
  type: "line", data: points, borderColor: colour(name), borderWidth: 1.5, borderDash: dash, pointRadius: 0, pointHitRadius: 0, pointStyle: "line",
});

// Bars from a low to a high x at their y, as thick lines: [[low, high, y], ...].
const bars = (ranges, shade, thickness) => ({
  ...line(ranges.flatMap(([low, high, y]) => [{ x: low, y }, { x: high, y }, { x: NaN, y: NaN }]), "text"),
  borderColor: shade, borderWidth: thickness, borderCapStyle: "butt",
});
const dots = (data, radius, shades) => ({ data, pointRadius: radius, pointHitRadius: radius > 2 ? 5 : 0, backgroundColor: shades, borderWidth: 0 });
// An axis of names from top to bottom, the first at 0.
const nameAxis = (names, size) => ({
  type: "linear", min: -0.7, max: names.length - 0.3, reverse: true, grid: { display: false },
  afterBuildTicks: (axis) => { axis.ticks = names.map((_, value) => ({ value })); },
  ticks: { autoSkip: false, callback: (value) => names[value] ?? "", font: { size } },
});
const plainAxis = (low, high, title) => ({ type: "linear", min: low, max: high, title: { display: Boolean(title), text: title }, ticks: { includeBounds: false, maxRotation: 0 } });

// Colours for the values of an axis: by kind for words, from pale to dark for numbers.
function palette(values) {
  if (values.every((value) => typeof value === "number") && values.length > 1) {
    const stops = ["s0", "s1", "s2", "s3"].map(colour).map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    return values.map((_, i) => {
      const at = (i / (values.length - 1)) * (stops.length - 1), from = Math.min(Math.floor(at), stops.length - 2);
      return `rgb(${stops[from].map((c, j) => Math.round(c + (stops[from + 1][j] - c) * (at - from))).join(",")})`;
    });
  }
  return values.map((_, i) => colour(`c${i % 8}`));
}

const legend = (keep = () => true) => ({
  display: true, position: "bottom", onClick: () => {},
  labels: { usePointStyle: true, boxHeight: 7, filter: (item) => Boolean(item.text) && keep(item) },
});

// Every kept configuration of a size; x: predicted, y: measured. Without any measured time, x is the rank.
function drawPoints(size, table, axis, open) {
  const predicted = table.columns.get("predicted_us") ?? new Array(table.rows).fill(null);
  const timed = table.measured.some((time) => time !== null);
  const points = timed ? timedPoints(size, table, predicted) : rankedPoints(table, predicted);
  const values = table.columns.get(axis), groups = new Map();
  const drawn = points.filter((point) => point.timed || !timed);
  for (const value of [...new Set(drawn.map((point) => values[point.row]))].sort(compare)) groups.set(value, []);
  for (const point of drawn) groups.get(values[point.row]).push(point);
  const colours = palette([...groups.keys()]);
  const datasets = [...groups].map(([value, data], i) => ({
    label: axis === "family" ? shown(value) : `${axis} ${shown(value)}`, data, backgroundColor: `${colours[i]}`, borderWidth: 0,
    pointRadius: points.length > 800 ? 2.3 : 3, pointHitRadius: 4,
  }));
  const untimed = timed ? points.filter((point) => !point.timed) : [];
  if (untimed.length) {
    datasets.push({ label: `${NOT_TIMED} (${untimed.length})`, data: untimed, pointStyle: "crossRot", borderColor: colour("quiet"), borderWidth: 1, pointRadius: 3.5 });
  }
  const chosen = points.filter((point) => table.names[point.row] === size.chosen);
  datasets.unshift({ label: "chosen", data: chosen, pointStyle: "rectRot", pointRadius: 8, pointHoverRadius: 8,
    borderWidth: 2, pointHoverBorderWidth: 2, borderColor: colour("text"), backgroundColor: "transparent", pointHoverBackgroundColor: "transparent" });
  const scales = pointScales(points, timed, size.vendor_us);
  if (timed) {
    const { min, max } = scales.x, low = Math.max(min, scales.y.min), high = Math.min(max, scales.y.max);
    if (low < high) datasets.push({ ...line([{ x: low, y: low }, { x: high, y: high }], "quiet", [4, 4]), label: "measured = predicted" });
    if (size.vendor_us) datasets.push({ ...line([{ x: min, y: size.vendor_us }, { x: max, y: size.vendor_us }], "good", [8, 3]), label: "vendor (finals)" });
  }
  draw("points", { type: "scatter", data: { datasets }, options: {
    scales, onClick: (_, items) => items.length && open(items[0].element.$context.raw.row),
    plugins: { legend: legend(), tooltip: tooltip((item) => item.raw.row !== undefined && pointLines(table, item.raw.row)) },
  } });
}

function timedPoints(size, table, predicted) {
  const least = Math.min(...table.measured.filter((time) => time !== null));
  return table.measured.map((time, row) => ({ row, x: predicted[row], y: time ?? least / 1.3, timed: time !== null }))
    .filter((point) => point.x !== null);
}

function rankedPoints(table, predicted) {
  const rows = ordered([...predicted.keys()], (row) => predicted[row], false).filter((row) => predicted[row] !== null);
  return rows.map((row, rank) => ({ row, x: rank + 1, y: predicted[row], timed: false }));
}

function pointScales(points, timed, vendor_us) {
  const xs = points.map((point) => point.x), ys = points.map((point) => point.y).concat(vendor_us ? [vendor_us] : []);
  const span = (values) => [Math.min(...values) / 1.15, Math.max(...values) * 1.15];
  if (!timed) return { x: plainAxis(0, points.length + 1, "rank by prediction"), y: logAxis("predicted, us", ...span(ys)) };
  return { x: logAxis("predicted, us", ...span(xs)), y: logAxis("measured, us", ...span(ys)) };
}

function pointLines(table, row) {
  const text = (name) => table.columns.get(name)?.[row];
  const lines = [table.names[row], `measured ${number(table.measured[row])} us`,
    `predicted ${number(text("predicted_us"))} us`, `status ${text("status") ?? "not known"}`];
  if (text("message")) lines.push(text("message").slice(0, 150));
  return lines;
}

// The finals of a size: median, interval, quantiles and samples of each finalist.
function drawFinals(size) {
  const finals = size.finals, names = finals.map((one, i) => (narrow() ? (one.is_vendor ? "vendor" : `#${i + 1}`) : one.name));
  const main = (one) => (one.is_vendor ? "good" : one.name === size.chosen ? "c1" : "c0");
  const lines = (one) => [one.name, `median ${number(one.median_us)} us`,
    one.interval_us ? `95 %: ${number(one.interval_us[0])} to ${number(one.interval_us[1])}` : "one process: no interval",
    `20th to 80th percentile: ${number(one.p20_us)} to ${number(one.p80_us)}; ${one.samples_us.length} samples`];
  const samples = finals.flatMap((one, y) => one.samples_us.map((x) => ({ x, y: y + 0.3 })));
  const ends = finals.flatMap((one) => [one.p20_us, one.p80_us, ...(one.interval_us ?? []), ...one.samples_us]).sort((a, b) => a - b);
  const least = ends[0], most = ends[Math.floor((ends.length - 1) * 0.99)], room = (most - least) * 0.05 || most * 0.01;
  document.getElementById("finals-chart").style.height = `${70 + 32 * finals.length}px`;
  draw("finals", { type: "scatter", data: { datasets: [
    dots(finals.map((one, y) => ({ x: one.median_us, y, lines: lines(one) })), 4.5, finals.map((one) => colour(main(one)))),
    ...finals.flatMap((one, y) => one.interval_us ? [bars([[...one.interval_us, y]], `${colour(main(one))}b0`, 6)] : []),
    ...finals.map((one, y) => bars([[one.p20_us, one.p80_us, y]], `${colour(main(one))}40`, 15)), dots(samples, 1.4, colour("quiet")),
  ] }, options: { scales: { x: plainAxis(least - room, most + room, "us"), y: nameAxis(names, 11) } } });
}

// Every size against the datasheet's bandwidth and matrix rates.
function drawRoofline(open) {
  const all = report.sizes.map((size, index) => ({ ...size, index })), sizes = all.filter((size) => size.tflops);
  const rates = Object.entries(report.roofs_tflops), slope = report.dram_gbps / 1e3;
  const xs = [...report.sizes.map((size) => size.intensity), ...(slope ? rates.map(([, rate]) => rate / slope) : [])];
  const left = Math.min(...xs, 1e9) / 1.6, right = Math.max(...xs, 1) * 1.6;
  const datasets = rates.filter(() => slope).map(([type, rate], i) => ({
    ...line([{ x: left, y: Math.min(rate, slope * left) }, ...(rate / slope > left && rate / slope < right ? [{ x: rate / slope, y: rate }] : []), { x: right, y: Math.min(rate, slope * right) }], `c${(i + 4) % 8}`),
    label: `${shown(report.dram_gbps)} GB/s, ${shown(rate)} TFLOP/s (${type})`,
  }));
  const point = (size, y) => ({ x: size.intensity, y, index: size.index, lines: [size.key, `ours ${number(size.tflops)} TFLOP/s, ${number(size.roofline_pct, 3)} % of the roofline`, `vendor ${number(size.vendor_tflops)} TFLOP/s`] });
  const vendor = sizes.filter((size) => size.vendor_tflops);
  if (sizes.length) datasets.unshift({ label: "ours", data: sizes.map((size) => point(size, size.tflops)), backgroundColor: colour("c0"), pointRadius: 5, borderWidth: 0 });
  if (vendor.length) datasets.push({ label: "vendor", data: vendor.map((size) => point(size, size.vendor_tflops)), pointStyle: "crossRot", borderColor: colour("good"), borderWidth: 1.5, pointRadius: 5 });
  const untimed = all.filter((size) => !size.tflops && size.roofline_tflops);
  const above = untimed.map((size) => ({ x: size.intensity, y: size.roofline_tflops, index: size.index, lines: [size.key, "not timed: where the roofline would let it be"] }));
  if (untimed.length) datasets.push({ label: NOT_TIMED, data: above, borderColor: colour("quiet"), backgroundColor: "transparent", pointRadius: 5, borderWidth: 1.5 });
  const ys = sizes.flatMap((size) => [size.tflops, size.vendor_tflops ?? size.tflops]).concat(above.map((point) => point.y));
  const low = Math.min(...ys, slope * left || 1) / 1.6, high = Math.max(...ys, ...rates.map(([, rate]) => rate)) * 1.6;
  draw("roofline", { type: "scatter", data: { datasets }, options: {
    scales: { x: logAxis("FLOP per byte of device memory", left, right), y: logAxis("TFLOP/s", low, high) },
    onClick: (_, items) => items.length && items[0].element.$context.raw.index !== undefined && open(items[0].element.$context.raw.index),
    plugins: { legend: legend() },
  } });
}

// Vendor's time over ours, one line a size.
function drawVendor(open) {
  const sizes = report.sizes.map((size, index) => ({ ...size, index })).filter((size) => size.vendor_ratio);
  document.getElementById("vendor-figure").hidden = !sizes.length;
  if (!sizes.length) return;
  const lines = (size) => [size.key, `vendor ${number(size.vendor_us)} us, ours ${number(size.time_us)} us`, `ratio ${number(size.vendor_ratio)}` +
    (size.vendor_ratio_interval ? ` (${number(size.vendor_ratio_interval[0])} to ${number(size.vendor_ratio_interval[1])})` : "")];
  const ends = sizes.flatMap((size) => size.vendor_ratio_interval ?? [size.vendor_ratio]).concat(1);
  const low = Math.min(...ends), high = Math.max(...ends), room = (high - low) * 0.04 || 0.05;
  document.getElementById("vendor-chart").style.height = `${Math.min(3000, Math.max(140, 70 + 15 * sizes.length))}px`;
  const ranges = (faster) => sizes.flatMap((size, y) => (size.vendor_ratio_interval && size.vendor_ratio > 1 === faster ? [[...size.vendor_ratio_interval, y]] : []));
  draw("vendor", { type: "scatter", data: { datasets: [
    dots(sizes.map((size, y) => ({ x: size.vendor_ratio, y, index: size.index, lines: lines(size) })), 4, sizes.map((size) => colour(size.vendor_ratio > 1 ? "good" : "less"))),
    bars(ranges(true), `${colour("good")}70`, 5), bars(ranges(false), `${colour("less")}70`, 5), line([{ x: 1, y: -1 }, { x: 1, y: sizes.length }], "quiet", [4, 4]),
  ] }, options: {
    scales: { x: plainAxis(low - room, high + room, "vendor's time / ours"), y: nameAxis(sizes.map((size) => size.label), sizes.length > 100 ? 8 : 11) },
    onClick: (_, items) => items.length && open(items[0].element.$context.raw.index),
  } });
}
