"use strict";
// Tables are sorted by a click on a header; a second click turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    const isNumber = head.classList.contains("number");
    const key = row => row.cells[column].dataset.sort;
    const order = (one, other) => isNumber ? key(one) - key(other) : key(one).localeCompare(key(other));
    const rows = [...body.rows];
    const full = rows.filter(row => key(row) !== ""), empty = rows.filter(row => key(row) === "");
    full.sort((one, other) => down ? order(other, one) : order(one, other));
    body.append(...full, ...empty);
    heads.forEach(each => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }));
}
