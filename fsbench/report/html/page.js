"use strict";

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
    if (head.classList.contains("axis")) return;
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

// One setting at a time; where a part of the page does not have it, all that it has.
const choices = document.querySelector(".tabs");

function choose(setting) {
  for (const block of document.querySelectorAll(".dataset")) {
    const panels = Array.from(block.querySelectorAll(".panel"));
    const some = panels.some((panel) => panel.dataset.setting === setting);
    for (const panel of panels) panel.classList.toggle("off", some && panel.dataset.setting !== setting);
  }
}

if (choices) {
  choices.hidden = false;
  choices.addEventListener("change", (event) => choose(event.target.value));
  choose(choices.querySelector("input").value);
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

// A link into what is folded brings it into view.
function reveal() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (!target) return;
  const folded = target.closest("details");
  if (folded) folded.open = true;
  target.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", reveal);
reveal();
