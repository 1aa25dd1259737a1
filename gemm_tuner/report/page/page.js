// Puts the page together: the charts of the run, then those and the tables of the size in the address.
"use strict";

const ROWS_AT_FIRST = 50, MAX_COLOURS = 16;
const KINDS = { family: "text", status: "text", rule: "text", message: "why" };
const at = (id) => document.getElementById(id);
let current = -1, configs = null, chosenAxis = "family";

function facts(size) {
  const pairs = [["time, us", number(size.time_us) + (size.time_source ? ` (${size.time_source})` : "")], ["TFLOP/s", number(size.tflops)],
    ["of roofline", size.roofline_pct === null ? "-" : `${number(size.roofline_pct, 3)} %`], ["least time by roofline, us", number(size.roofline_us)],
    ["vendor, us", number(size.vendor_us)], ["vendor / ours", number(size.vendor_ratio)], ["FLOP per byte", number(size.intensity)],
    ["kept of the space", `${shown(size.kept)} of ${shown(size.total)}`], ["timed", shown(size.timed)]];
  const made = [["size", size.key, true], ...(size.chosen ? [["configuration", size.chosen, true]] : []), ...pairs.filter(([, value]) => value !== "-")];
  at("size-facts").replaceChildren(...made.map(([name, value, long]) => {
    const box = element("div", undefined, long ? { class: "long" } : {});
    box.append(element("dt", name), element("dd", value));
    return box;
  }));
}

// What each server can launch, and what was passed over.
function showServed(size) {
  const served = Object.entries(size.served), of = (value) => served.map(([consumer, one]) => value(one, consumer));
  at("served-part").hidden = !served.length;
  new ColumnTable(at("served-table"), [
    { title: "for", kind: "text", values: of((_, consumer) => consumer) }, { title: "us", values: of((one) => one.time_us), show: number },
    { title: "default us", values: of((one) => one.default_us ?? null), show: number }, { title: "default / us", values: of((one) => one.default_ratio), show: number },
    { title: "us / best", values: of((one) => one.over_best), show: number }, { title: "configuration", kind: "name", values: of((one) => one.name) },
  ], { rows: [...served.keys()] });
  const passed = Object.entries(size.overruled).map(([name, why]) => `${name}: ${why}`);
  at("overruled").hidden = !passed.length;
  at("overruled").textContent = `Passed over: ${passed.join("; ")}`;
}

function showFinals(size) {
  at("finals-part").hidden = !size.finals.length;
  at("no-finals").hidden = size.finals.length > 0;
  if (!size.finals.length) return;
  drawFinals(size);
  const of = (value) => size.finals.map(value), range = (value) => (value ? `${number(value[0])} to ${number(value[1])}` : "-");
  const best = size.finals.find((one) => one.name === size.chosen)?.median_us;
  new ColumnTable(at("finals-table"), [
    { title: "contender", kind: "name", values: of((one) => one.name) }, { title: "#", values: of((_, i) => i + 1) },
    { title: "median us", values: of((one) => one.median_us), show: number }, { title: "95 % interval", values: of((one) => one.interval_us && range(one.interval_us)) },
    { title: "over chosen", values: of((one) => (best ? (one.median_us / best - 1) * 100 : null)), show: (v) => (v === null ? "-" : `${v.toFixed(2)} %`) },
    { title: "p20 us", values: of((one) => one.p20_us), show: number }, { title: "p80 us", values: of((one) => one.p80_us), show: number },
    { title: "least us", values: of((one) => one.min_us), show: number }, { title: "samples", values: of((one) => one.samples_us.length) },
  ], { rows: [...size.finals.keys()], mark: (row) => (size.finals[row].name === size.chosen ? "chosen" : "") });
}

function showFunnel(size) {
  const of = (name) => size.funnel.map((row) => row[name] ?? null);
  new ColumnTable(at("funnel-table"), [{ title: "rule", kind: "name", values: of("rule") }, { title: "cut", values: of("cut") }, { title: "remain", values: of("remain") },
    { title: "why", kind: "why", values: size.funnel.map((row) => (row.why ? `${row.why} [${row.kind}]` : row.kind)) }], { rows: [...size.funnel.keys()] });
  const counts = Object.entries(size.counts);
  new ColumnTable(at("counts-table"), [{ title: "status", kind: "text", values: counts.map(([status]) => status) }, { title: "configurations", values: counts.map(([, count]) => count) }],
    { rows: [...counts.keys()] });
}

function fillSelect(select, pairs, value) {
  select.replaceChildren(...pairs.map(([key, text]) => element("option", text, { value: key })));
  select.value = value;
}

// The axes with more than one value and few enough to tell by colour.
function axesOf(table) {
  return ["family", ...report.config_fields.filter((name) => name !== "family"), "status"].filter((name) => {
    const values = table.columns.get(name);
    return values && (name === "family" || (!table.constant.has(name) && new Set(values).size <= MAX_COLOURS));
  });
}

function showConfigs(size, table) {
  at("configs-part").hidden = !table || !table.rows;
  at("no-table").hidden = Boolean(table);
  configs = null;
  if (!table || !table.rows) return;
  const axes = axesOf(table);
  if (axes.length) fillSelect(at("axis"), axes.map((name) => [name, name]), axes.includes(chosenAxis) ? chosenAxis : axes[0]);
  showPoints(size, table);
  const statuses = [...new Set(table.columns.get("status") ?? [])].filter((status) => status !== null);
  fillSelect(at("status"), [["", "all"], ...statuses.map((status) => [status, status])], "");
  at("filter").value = "";
  const first = ["status", ...report.time_columns, "predicted_us"].filter((name) => table.columns.has(name));
  const rest = [...table.columns.keys()].filter((name) => !first.includes(name) && !table.constant.has(name));
  const columns = [...first, ...rest].map((title) => ({ title, values: table.columns.get(title), kind: KINDS[title] ?? "", show: title.endsWith("_us") ? number : shown }));
  const times = table.measured.some((time) => time !== null) ? table.measured : table.columns.get("predicted_us") ?? [];
  const rows = ordered([...table.names.keys()], (row) => times[row] ?? null, false);
  configs = new ColumnTable(at("configs-table"), [{ title: "name", kind: "name", values: table.names }, ...columns], { rows, limit: ROWS_AT_FIRST, mark: (row) => (table.names[row] === size.chosen ? "chosen" : "") });
  configs.all = rows;
  const same = [...table.constant].map(([name, value]) => `${name} ${shown(value)}`);
  at("constant").textContent = same.length ? `The same in all: ${same.join(", ")}.` : "";
  countRows();
}

function showPoints(size, table) {
  const timed = table.measured.some((time) => time !== null);
  at("points-caption").textContent = timed
    ? "Every kept configuration: time of the screening against the model's. Crosses below were not timed. Hover or tap for a point's name. The GPU's clock may differ between screening and finals."
    : "Every kept configuration by the model's time: none was timed.";
  at("point").hidden = true;
  drawPoints(size, table, at("axis").value || "family", (row) => {
    if (row === undefined) return;
    at("point").hidden = false;
    at("point").textContent = pointLines(table, row).join("; ");
  });
}

function filterConfigs() {
  if (!configs) return;
  const table = tableOf(current), status = at("status").value, words = at("filter").value.trim().toLowerCase().split(/\s+/);
  const statuses = table.columns.get("status") ?? [];
  configs.rows = configs.all.filter((row) => (!status || statuses[row] === status) && words.every((word) => table.names[row].toLowerCase().includes(word)));
  configs.limit = ROWS_AT_FIRST;
  configs.fill();
  countRows();
}

function countRows() {
  at("shown").textContent = `${shown(Math.min(configs.limit, configs.rows.length))} of ${shown(configs.rows.length)} shown`;
  at("more").hidden = configs.limit >= configs.rows.length;
}

function show(index) {
  current = index;
  const size = report.sizes[index];
  at("size").value = size.key;
  at("before").disabled = index === 0;
  at("after").disabled = index === report.sizes.length - 1;
  facts(size);
  at("size-failure").hidden = Boolean(size.chosen);
  at("size-failure").textContent = `No configuration: ${size.failure || "the run does not say why"}`;
  showServed(size);
  showFinals(size);
  showFunnel(size);
  showConfigs(size, tableOf(index));
}

function open(index) {
  history.replaceState(null, "", `#${encodeURIComponent(report.sizes[index].key)}`);
  show(index);
}

// The size that the address names; -1 when it names none.
function named() {
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { return -1; }
  return report.sizes.findIndex((size) => size.key === hash);
}

function redraw() {
  drawRoofline(openBelow);
  drawVendor(openBelow);
  const size = report.sizes[current], table = tableOf(current);
  if (size?.finals.length) drawFinals(size);
  if (size && table?.rows) showPoints(size, table);
}

function openBelow(index) {
  if (index === undefined) return;
  open(index);
  at("one").scrollIntoView();
}

function start() {
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  drawRoofline(openBelow);
  drawVendor(openBelow);
  at("one").hidden = !report.sizes.length;
  if (report.sizes.length) show(Math.max(0, named()));
  at("size").addEventListener("change", () => open(at("size").selectedIndex));
  at("before").addEventListener("click", () => open(current - 1));
  at("after").addEventListener("click", () => open(current + 1));
  at("axis").addEventListener("change", () => { chosenAxis = at("axis").value; showPoints(report.sizes[current], tableOf(current)); });
  at("status").addEventListener("change", filterConfigs);
  at("filter").addEventListener("input", filterConfigs);
  at("more").addEventListener("click", () => { configs.limit += 500; configs.fill(); countRows(); });
  window.addEventListener("hashchange", () => { if (named() >= 0) { show(named()); at("one").scrollIntoView(); } });
  let wasNarrow = narrow();
  window.addEventListener("resize", () => { if (narrow() !== wasNarrow) { wasNarrow = narrow(); redraw(); } });
  dark.addEventListener("change", redraw);
  printing.addEventListener("change", redraw);
}

start();
if (named() >= 0) at("one").scrollIntoView();
