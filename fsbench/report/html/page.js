"use strict";

const cellsOf = (table) => Array.from(table.rows, (row) => Array.from(row.cells));

// Tables sort by any column: a header becomes a button. Numbers start with the largest, ranks and words with the first.
function sortBy(table, place, descending) {
  const keyOf = (row) => {
    const cell = row.cells[place];
    if (!cell.classList.contains("number")) return cell.textContent.trim().toLowerCase();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const sorted = table.written.slice().sort((one, other) => {
    const [a, b] = [keyOf(one), keyOf(other)];
    if (a === null || b === null) return (a === null) - (b === null); // what did not run stays at the end
    const sign = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return descending ? -sign : sign;
  });
  table.tBodies[0].append(...sorted);
}

for (const table of document.querySelectorAll("table")) {
  table.written = Array.from(table.tBodies[0].rows); // ties keep this order
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, place) => {
    const numeric = table.written.some((row) => row.cells[place].classList.contains("number"));
    const best = numeric && !table.written.some((row) => row.cells[place].classList.contains("rank"));
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    if (numeric) head.classList.add("number");
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const descending = before ? before === "ascending" : best;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortBy(table, place, descending);
    });
  });
}

// Filters hide columns, runs and feature files; average and mean rank are over what is left.
const filters = Array.from(document.querySelectorAll("select[data-filter]"));

function rank(table) {
  const places = Array.from(table.tHead.rows[0].cells)
    .map((head, place) => (place > 2 && !head.hidden ? place : 0)).filter(Boolean);
  const valueOf = (row, place) => (place in row.cells && row.cells[place].dataset.value !== undefined
    ? Number(row.cells[place].dataset.value) : null);
  const complete = table.written.filter((row) => places.length && places.every((place) => valueOf(row, place) !== null));
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  for (const row of table.written) {
    const [average, ranks] = [row.cells[1], row.cells[2]];
    const ran = complete.includes(row);
    const write = (cell, value, digits) => {
      if (ran) cell.dataset.value = value;
      else delete cell.dataset.value;
      cell.textContent = ran ? value.toFixed(digits) : "–";
    };
    write(average, mean(places.map((place) => valueOf(row, place))), 2);
    write(ranks, mean(places.map((place) => {
      const mine = valueOf(row, place);
      const others = complete.map((other) => valueOf(other, place));
      return 0.5 + others.filter((value) => value > mine).length + others.filter((value) => value === mine).length / 2;
    })), 1);
  }
  const heads = Array.from(table.tHead.rows[0].cells);
  const sorted = heads.findIndex((head) => head.hasAttribute("aria-sort") && !head.hidden);
  if (sorted < 0) sortBy(table, 1, true);
  else sortBy(table, sorted, heads[sorted].ariaSort === "descending");
}

function applyFilters() {
  const wanted = filters.map((choice) => [choice.dataset.filter, choice.value]).filter(([, value]) => value);
  const fits = (part) => wanted.every(([name, value]) => !(name in part.dataset) || part.dataset[name] === value);
  for (const part of document.querySelectorAll("div.dataset, li.dataset, .runs tbody tr")) part.hidden = !fits(part);
  for (const table of document.querySelectorAll("table.leaderboard, table.accuracies")) {
    const hidden = Array.from(table.tHead.rows[0].cells, (head) => !fits(head));
    for (const row of cellsOf(table)) row.forEach((cell, place) => (cell.hidden = hidden[place]));
    const places = Array.from(table.tHead.rows[0].cells).filter((head) => "setting" in head.dataset);
    table.classList.toggle("nothing", places.every((head) => head.hidden));
    if (table.classList.contains("leaderboard")) rank(table);
  }
}

const form = document.querySelector(".filters");
if (form) {
  form.hidden = false;
  const show = document.querySelector("#show");
  const applyView = () => {
    for (const table of document.querySelectorAll("table.leaderboard")) table.dataset.show = show.value;
  };
  show.addEventListener("change", applyView);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const choice of filters) {
    choice.parentElement.hidden = choice.options.length < 3; // "all" and a single value
    choice.addEventListener("change", applyFilters);
  }
  if (matchMedia("(max-width: 40rem)").matches) { // one setting at a time
    for (const choice of filters) if (choice.dataset.filter !== "backbone") choice.value = choice.options[1].value;
    applyFilters();
  }
  applyView();
}

for (const code of document.querySelectorAll("code.copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copier";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy " + code.textContent.slice(0, 40));
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected"; // no clipboard here: the text is selected, ready to be copied by hand
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  code.after(" ", button);
}

// A link into what is folded or filtered out brings it into view.
function reveal() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (!target) return;
  const folded = target.closest("details");
  if (folded) folded.open = true;
  target.hidden = false;
  target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", reveal);
reveal();
