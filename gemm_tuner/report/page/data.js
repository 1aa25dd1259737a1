// Reads what html.py and summary.py put into the page.
"use strict";

const CODES = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const parsed = (id) => { const element = document.getElementById(id); return element && JSON.parse(element.textContent); };
const report = parsed("summary");
const tables = new Map();

function unpackNames(packed) {
  let before = "";
  return packed.map((one) => (before = before.slice(0, parseInt(one.slice(0, 2), 16)) + one.slice(2)));
}

function unpackColumn(column, rows) {
  if ("all" in column) return new Array(rows).fill(column.all);
  if ("of" in column) return Array.from(column.at, (code) => column.of[CODES.indexOf(code)]);
  if (!("rows" in column)) return column.values;
  const values = new Array(rows).fill(null);
  column.rows.forEach((row, i) => { values[row] = column.values[i]; });
  return values;
}

// The table of a size: {rows, names, columns: name -> values, measured, constant: name -> value}, or null.
function tableOf(index) {
  if (!tables.has(index)) {
    const packed = parsed(`table-${index}`);
    tables.set(index, packed && unpackTable(packed));
  }
  return tables.get(index);
}

function unpackTable(packed) {
  const columns = new Map(), constant = new Map();
  for (const [name, column] of Object.entries(packed.columns)) {
    columns.set(name, unpackColumn(column, packed.rows));
    if ("all" in column && packed.rows > 1) constant.set(name, column.all);
  }
  const times = report.time_columns.map((name) => columns.get(name)).filter(Boolean);
  const measured = Array.from({ length: packed.rows }, (_, row) => times.map((t) => t[row]).find((t) => t !== null) ?? null);
  return { rows: packed.rows, names: unpackNames(packed.names), columns, constant, measured };
}

// A number as html.py's `number` writes it: so many digits that count.
function number(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  if (value && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) return value.toPrecision(digits);
  const before = Math.abs(value) >= 1 ? String(Math.trunc(Math.abs(value))).length : 0;
  const places = Math.max(0, digits - before);
  return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function shown(value) {
  if (value === null || value === undefined || value === "") return "-";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en-US") : number(value);
}
