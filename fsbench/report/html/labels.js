"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [FILE, LABEL, SURE, SECOND, SECOND_SURE, OUTLIER, FLAG, IMAGE, THUMB] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const NONE = -1, BATCH = 120;
  const rows = data.rows, classes = data.classes;
  const part = (id) => document.getElementById(id);
  const made = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // What a person has decided, by row: a class, or NONE. Kept in the browser, by file, until it is downloaded. What was
  // given as labelled comes from there: it may have been corrected since.
  const decided = new Map(), steps = [];
  const place = "fsbench labels " + data.key;
  try {
    const stored = JSON.parse(localStorage.getItem(place) || "{}");
    const given = new Set(data.labelled.map((row) => row[0]));
    const free = (row) => !given.has(row[FILE]) && !["checked", "none of these"].includes(row[FLAG]);
    rows.forEach((row, number) => { if (row[FILE] in stored && free(row)) decided.set(number, stored[row[FILE]]); });
  } catch { /* a browser that keeps nothing */ }
  const keep = () => {
    const stored = {};
    decided.forEach((label, number) => { stored[rows[number][FILE]] = label; });
    try { localStorage.setItem(place, JSON.stringify(stored)); } catch { /* see above */ }
  };
  const labelOf = (number) => decided.has(number) ? decided.get(number) : rows[number][LABEL];
  const nameOf = (label) => label === NONE ? "none of these" : classes[label];
  const open = rows.map((row, number) => number).filter((number) => rows[number][LABEL] !== null && rows[number][FLAG] !== "checked");
  const bySure = (a, b) => rows[a][SURE] - rows[b][SURE] || a - b;

  const flagged = (start) => open.filter((number) => rows[number][FLAG].startsWith(start)).sort(bySure);
  const views = [
    ["suggested", "Suggested next", () => data.suggested],
    ["unlike", "Unlike any class", () => flagged("unlike any class")],
    ["uncertain", "Uncertain", () => flagged("uncertain")],
    ["twins", "Near-duplicates", () => flagged("near-duplicate")],
    ["all", "All, by class", () => open.slice().sort((a, b) => labelOf(a) - labelOf(b) || bySure(a, b))],
    ["checked", "Checked", () => open.filter((number) => decided.has(number))],
    ...classes.map((name, label) => ["class" + label, name, () => open.filter((number) => labelOf(number) === label).sort(bySure)]),
  ];
  const select = part("view"), limit = part("limit"), grid = part("grid");
  let shown = [], next = 0, list = null, heading = null, focused = 0, chosen = null;

  function fillViews() {
    const before = select.value;
    select.replaceChildren(...views.map(([id, name, members]) => {
      const option = made("option", "", `${name} (${members().length})`);
      option.value = id;
      return option;
    }));
    select.value = before || (views.find(([, , members]) => members().length) || views[0])[0];
  }

  function render() {
    const [id, , members] = views.find(([name]) => name === select.value);
    part("limit-text").textContent = limit.value + " %";
    shown = members().filter((number) => 100 * rows[number][SURE] <= Number(limit.value) || limit.value === "100");
    grid.replaceChildren();
    [next, list, heading, focused] = [0, null, null, 0];
    if (!shown.length) grid.append(made("p", "notes", open.length ? "No images here." : "No image is left to check."));
    if (id.startsWith("class")) header(Number(id.slice(5)));
    append();
    tell();
    watch.unobserve(part("more"));
    watch.observe(part("more"));
  }

  function header(label) {
    const count = shown.filter((number) => labelOf(number) === label).length;
    const head = made("h2", "", nameOf(label) + " ");
    head.append(made("small", "", `${count} images, least certain first`));
    grid.append(head);
    const examples = data.labelled.filter((row) => row[1] === label && row[2]).slice(0, 5);
    if (examples.length) {
      const line = made("p", "examples", "labelled:");
      line.append(...examples.map((row) => { const image = made("img"); [image.src, image.alt] = [row[2], row[0]]; return image; }));
      grid.append(line);
    }
    list = null;
  }

  function append() {
    const end = Math.min(next + BATCH, shown.length);
    for (; next < end; next++) {
      const label = labelOf(shown[next]);
      if (select.value === "all" && label !== heading) { header(label); heading = label; }
      if (!list) { list = made("ul", "cards"); grid.append(list); }
      list.append(card(shown[next], next));
    }
  }

  function card(number, position) {
    const node = made("li", "card"), row = rows[number];
    node.tabIndex = position === focused ? 0 : -1;
    [node.dataset.row, node.dataset.position] = [number, position];
    node.setAttribute("role", "button");
    let image = made("span", "blank");
    if (row[THUMB]) { image = made("img"); [image.src, image.alt] = [row[THUMB], ""]; }
    node.append(image, made("p"));
    write(node);
    return node;
  }

  function write(node) {
    const number = Number(node.dataset.row), row = rows[number], label = labelOf(number), done = decided.has(number);
    node.classList.toggle("checked", done && label !== NONE);
    node.classList.toggle("none", done && label === NONE);
    const second = row[SECOND] === null ? "" : `, else ${nameOf(row[SECOND])}`; // copies of labelled images have none
    const sure = done ? "checked" : `${Math.round(100 * row[SURE])} %${second}`;
    const words = [made("b", "", nameOf(label)), made("span", "", sure), made("span", "", row[FLAG] || row[FILE])];
    node.lastElementChild.replaceChildren(...words);
    node.title = row[FILE];
    node.setAttribute("aria-label", `${row[FILE]}: ${nameOf(label)}, ${sure}`);
  }

  function tell() {
    const count = open.filter((number) => decided.has(number)).length, left = shown.filter((number) => !decided.has(number)).length;
    [part("done").value, part("done").max] = [count, Math.max(1, open.length)];
    part("status").textContent = `${count.toLocaleString("en")} of ${open.length.toLocaleString("en")} checked`;
    [part("accept").textContent, part("accept").disabled] = [`Accept the ${left.toLocaleString("en")} shown`, !left];
    part("undo").disabled = !steps.length;
  }

  function decide(pairs) {
    steps.push(pairs.map(([number]) => [number, decided.get(number)]));
    pairs.forEach(([number, label]) => decided.set(number, label));
    refresh(pairs);
  }

  function refresh(pairs) {
    const changed = new Set(pairs.map(([number]) => String(number)));
    grid.querySelectorAll(".card").forEach((node) => { if (changed.has(node.dataset.row)) write(node); });
    keep();
    fillViews();
    tell();
  }

  function undo() {
    const pairs = steps.pop() || [];
    pairs.forEach(([number, label]) => label === undefined ? decided.delete(number) : decided.set(number, label));
    refresh(pairs);
  }

  function focus(position) {
    if (position < 0 || position >= shown.length) return;
    while (position >= next) append();
    const nodes = grid.querySelectorAll(".card");
    nodes[focused].tabIndex = -1;
    focused = position;
    nodes[focused].tabIndex = 0;
    nodes[focused].focus();
  }

  function columns() {
    const nodes = grid.querySelectorAll(".card"), top = nodes[0].offsetTop;
    let count = 0;
    while (count < nodes.length && nodes[count].offsetTop === top) count++;
    return count;
  }

  function choose(number, text) {
    chosen = number;
    const row = rows[number];
    [part("chosen").src, part("chosen").hidden] = [row[THUMB] || "data:,", !row[THUMB]];
    part("chosen-file").textContent = row[FILE];
    part("search").value = text;
    offer();
    part("chooser").showModal();
    (matchMedia("(pointer: coarse)").matches ? part("none") : part("search")).focus(); // no keyboard over a phone's screen
  }

  function offer() {
    const text = part("search").value.trim().toLowerCase(), row = rows[chosen];
    const likely = [...new Set([labelOf(chosen), row[LABEL], row[SECOND]])].filter((label) => label >= 0);
    const order = [...likely, ...classes.keys()].filter((label, at, all) => all.indexOf(label) === at);
    const fitting = order.filter((label) => classes[label].toLowerCase().includes(text)).slice(0, 200);
    part("options").replaceChildren(...fitting.map((label) => {
      const button = made("button", "", classes[label]);
      button.type = "button";
      button.addEventListener("click", () => take(label));
      return button;
    }));
  }

  function take(label) {
    part("chooser").close();
    decide([[chosen, label]]);
    focus(focused + 1);
  }

  const guard = (text) => /^[=+\-@']/.test(text) ? "'" + text : text;
  const quoted = (text) => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  function table() {
    const known = new Set(rows.map((row) => row[FILE]));
    const given = data.labelled.filter((row) => !known.has(row[0]));
    const lines = given.map(([file, label, , image]) => [file, label === NONE ? "" : classes[label], "1.0000", "", "", "", label === NONE ? "none of these" : "checked", image]);
    const number = (value) => value === null ? "" : value.toFixed(4);
    rows.forEach((row, at) => {
      const label = labelOf(at), named = label === null || label === NONE ? "" : classes[label];
      if (decided.has(at)) lines.push([row[FILE], named, "1.0000", "", "", number(row[OUTLIER]), label === NONE ? "none of these" : "checked", row[IMAGE]]);
      else lines.push([row[FILE], named, number(row[SURE]), row[SECOND] === null ? "" : classes[row[SECOND]], number(row[SECOND_SURE]), number(row[OUTLIER]), row[FLAG], row[IMAGE]]);
    });
    return [data.columns, ...lines].map((line) => line.map((cell) => quoted(guard(cell))).join(",")).join("\n") + "\n";
  }

  function download() {
    const link = made("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
    link.download = data.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  const moves = { ArrowRight: () => 1, ArrowLeft: () => -1, ArrowDown: columns, ArrowUp: () => -columns() };
  grid.addEventListener("keydown", (event) => {
    const node = event.target.closest(".card");
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = Number(node.dataset.row), key = event.key;
    focused = Number(node.dataset.position);
    const accept = (label) => { decide([[number, label]]); focus(focused + 1); };
    if (key in moves) focus(focused + moves[key]());
    else if (key === "Enter") accept(labelOf(number));
    else if (key === "2" && rows[number][SECOND] !== null) accept(rows[number][SECOND]);
    else if (key === "n") accept(NONE);
    else if (key === "u") undo();
    else if (key === " ") choose(number, "");
    else if (key.length === 1 && /\p{L}/u.test(key)) choose(number, key);
    else return;
    event.preventDefault();
  });
  grid.addEventListener("click", (event) => {
    const node = event.target.closest(".card");
    if (!node) return;
    focus(Number(node.dataset.position));
    choose(Number(node.dataset.row), "");
  });
  part("search").addEventListener("input", offer);
  part("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const first = part("options").firstElementChild;
    if (first) first.click();
  });
  part("none").addEventListener("click", () => take(NONE));
  part("accept").addEventListener("click", () => decide(shown.filter((number) => !decided.has(number)).map((number) => [number, labelOf(number)])));
  part("undo").addEventListener("click", undo);
  part("download").addEventListener("click", download);
  select.addEventListener("change", render);
  limit.addEventListener("input", render);
  const watch = new IntersectionObserver((entries) => {
    if (next >= shown.length || !entries.some((entry) => entry.isIntersecting)) return;
    append();
    watch.unobserve(part("more")); // asks again whether the end is near
    watch.observe(part("more"));
  }, { rootMargin: "1500px" });
  watch.observe(part("more"));
  fillViews();
  render();
})();
