"use strict";
// A click on a heading, or Enter or Space, sorts by its column; #sort=TABLE:COLUMN:descending does so by link.
const cell = (row, column) => row.cells[column].textContent.trim();
const figure = (text) => parseFloat(text.replace(/[,+$]/g, ""));

function compare(a, b, sign) {
  const [x, y] = [figure(a), figure(b)];
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || sign * a.localeCompare(b);
  return sign * (x - y);
}

function sort(table, column, order) {
  const sign = order === "descending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].sort((a, b) => compare(cell(a, column), cell(b, column), sign));
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((th, i) => th.setAttribute("aria-sort", i === column ? order : "none"));
}

function follow() {
  const [, name, column, order] = /^#sort=([\w-]+):(\d+)(?::(\w+))?$/.exec(location.hash) || [];
  const table = name && document.querySelector(`#${name} table`);
  if (table && column < table.tHead.rows[0].cells.length) sort(table, Number(column), order || "ascending");
}

document.addEventListener("click", (event) => {
  const th = event.target.closest("th[aria-sort]");
  if (!th) return;
  sort(th.closest("table"), th.cellIndex, th.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
});
addEventListener("hashchange", follow);
follow();
