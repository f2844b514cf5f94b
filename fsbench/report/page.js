"use strict";

// Tables sort by any column: a header becomes a button. Numbers start with the largest, words with the first.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows); // as written: ties keep this order
  const heads = Array.from(table.tHead.rows[0].cells);
  const keyOf = (row, place) => {
    const cell = row.cells[place];
    if (!cell.classList.contains("number")) return cell.textContent.trim().toLowerCase();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  heads.forEach((head, place) => {
    const numeric = rows.some((row) => row.cells[place].classList.contains("number"));
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    if (numeric) head.classList.add("number");
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const descending = before ? before === "ascending" : numeric;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const sorted = rows.slice().sort((one, other) => {
        const [a, b] = [keyOf(one, place), keyOf(other, place)];
        if (a === null || b === null) return (a === null) - (b === null); // what did not run stays at the end
        const sign = numeric ? a - b : a.localeCompare(b, "en", { numeric: true });
        return descending ? -sign : sign;
      });
      body.append(...sorted);
    });
  });
}

for (const code of document.querySelectorAll("code.copy")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copier";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy signature");
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

// On paper nothing can be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = Array.from(document.querySelectorAll("details:not([open])"));
  folded.forEach((part) => (part.open = true));
});
addEventListener("afterprint", () => folded.forEach((part) => (part.open = false)));
