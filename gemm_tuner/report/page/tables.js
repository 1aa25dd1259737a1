// Tables: those in the page become sortable, others are built from columns. Text goes in as text, never as markup.
"use strict";

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function compare(a, b) {
  if (a === null || b === null) return 0;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

// Row numbers in the order of `value(row)`; blanks last both ways.
function ordered(rows, value, descending) {
  const blank = rows.filter((row) => value(row) === null), there = rows.filter((row) => value(row) !== null);
  there.sort((a, b) => (descending ? -1 : 1) * compare(value(a), value(b)) || a - b);
  return there.concat(blank);
}

// Puts a button into every heading; `sort(column, descending)` is called when it is pressed.
function sortButtons(headings, sort) {
  headings.forEach((heading, column) => {
    const button = element("button", heading.textContent, { type: "button" });
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sort(column, descending);
    });
  });
}

// A table of the page: sorts by the cells' data-v, else by their text.
function makeSortable(table) {
  const body = table.tBodies[0], rows = Array.from(body.rows);
  const value = (cell) => {
    if (!("v" in cell.dataset)) return cell.textContent;
    return cell.dataset.v === "" || cell.dataset.v === "None" ? null : Number(cell.dataset.v);
  };
  sortButtons(Array.from(table.tHead.rows[0].cells), (column, descending) => {
    const order = ordered([...rows.keys()], (row) => value(rows[row].cells[column]), descending);
    body.replaceChildren(...order.map((row) => rows[row]));
  });
}

// Fills a table. columns: [{title, values, kind: "name" | "text" | "why" | "", show}]; the first is the row's heading.
// Options: rows, the row numbers at first; limit, how many are shown; mark(row), the class of a row.
class ColumnTable {
  constructor(table, columns, { rows, limit = Infinity, mark = () => "" }) {
    Object.assign(this, { table, columns, rows, limit, mark, sorting: null });
    const line = element("tr");
    for (const { title, kind } of columns) line.append(element("th", title, kind ? {} : { class: "n" }));
    const head = element("thead");
    head.append(line);
    this.body = element("tbody");
    table.replaceChildren(head, this.body);
    sortButtons(Array.from(line.cells), (column, descending) => { this.sorting = { column, descending }; this.fill(); });
    this.fill();
  }

  fill() {
    let rows = this.rows;
    if (this.sorting) {
      const { values } = this.columns[this.sorting.column];
      rows = ordered(rows, (row) => values[row], this.sorting.descending);
    }
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.line(row)));
  }

  line(row) {
    const line = element("tr", undefined, { class: this.mark(row) });
    this.columns.forEach(({ values, kind, show = shown }, column) => {
      const cell = element(column ? "td" : "th", show(values[row]), kind ? { class: kind } : {});
      if (!column) cell.scope = "row";
      line.append(cell);
    });
    return line;
  }
}
