"use strict";
(() => {
  const root = document.documentElement;
  const find = (selector, parent = document) => parent.querySelector(selector);
  const findAll = (selector, parent = document) => [...parent.querySelectorAll(selector)];

  function element(name, attributes = {}, text = "") {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return node;
  }

  function button(text, onClick, attributes = {}) {
    const node = element("button", { type: "button", ...attributes }, text);
    node.addEventListener("click", onClick);
    return node;
  }

  let timer;
  function announce(text) {
    find("#live").textContent = text;
    clearTimeout(timer);
    timer = setTimeout(() => { find("#live").textContent = ""; }, 2500);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // Some browsers allow the clipboard only on pages from a server.
      const area = element("textarea", { style: "position:fixed;opacity:0" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    announce("Copied");
  }

  function download(name, type, content) {
    const address = URL.createObjectURL(new Blob([content], { type }));
    const link = element("a", { href: address, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    announce(`Saved ${name}`);
  }

  // Light and dark.
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const themeSwitch = find("[data-theme-switch]");
  function setTheme(theme) {
    root.dataset.theme = theme;
    themeSwitch.textContent = theme === "dark" ? "Light" : "Dark";
    themeSwitch.setAttribute("aria-label", `Switch to ${themeSwitch.textContent.toLowerCase()}`);
    redraw();
  }
  themeSwitch.addEventListener("click", () => {
    setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  });
  systemDark.addEventListener("change", () => setTheme(systemDark.matches ? "dark" : "light"));

  // Figures.
  const figures = JSON.parse(find("#figures").textContent);
  const drawn = new Set();  // The figure elements that Plotly has drawn.

  function withColors(value, style) {
    if (typeof value === "string") {
      const variable = /^var\((--[\w-]+)\)$/.exec(value);
      return variable ? style.getPropertyValue(variable[1]).trim() : value;
    }
    if (Array.isArray(value)) {
      return typeof value[0] === "number" && typeof value[1] !== "string"
        ? value : value.map((item) => withColors(item, style));
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, item]) => [key, withColors(item, style)]));
    }
    return value;
  }

  const config = { displayModeBar: false, responsive: true, doubleClick: false,
    showTips: false };

  function draw(node) {
    if (!window.Plotly) return undefined;  // It draws the reader's choices when it is unpacked.
    const canvas = find(".canvas", node);
    find(".preview", canvas)?.remove();
    drawn.add(node);
    const { data, layout } = withColors(figures[node.dataset.figure], getComputedStyle(root));
    return Plotly.react(canvas, data, layout, config);
  }

  function redraw() {
    for (const node of drawn) draw(node);
  }

  function switchAxes(node, state) {
    const { xaxis, yaxis, labels } = state.linear;
    const marks = state.data.find((trace) => trace.meta.role === "mark");
    state.linear = { xaxis: state.layout.xaxis, yaxis: state.layout.yaxis,
      labels: marks && { text: marks.text, textposition: marks.textposition } };
    Object.assign(state.layout, { xaxis, yaxis });
    if (marks) Object.assign(marks, labels);
    draw(node);
  }

  function swatch(trace) {
    const role = trace.meta.role;
    const color = trace.line?.color || trace.marker?.color;
    const paint = `style="--series: ${color}"`;
    const dashes = (trace.line?.dash || "solid").replace("solid", "none");
    const line = `<path d="M0 7H28" stroke-width="2.5" stroke-dasharray="${dashes}"/>`;
    const dot = `<circle cx="14" cy="7" r="3.5" class="${trace.marker?.symbol?.endsWith("open")
      ? "open" : ""}"/>`;
    const shape = { bars: '<rect x="1" y="1" width="12" height="12" rx="2"/>', ideal: line,
      checked: dot, beaten: dot }[role] || line + dot;
    const holder = element("span", { "aria-hidden": "true", class: "swatch" });
    holder.innerHTML = `<svg width="${role === "bars" ? 14 : 28}" height="14" ${paint}>${shape}</svg>`;
    return holder;
  }

  function plainText(escaped) {
    return new DOMParser().parseFromString(escaped, "text/html").documentElement.textContent;
  }

  function seriesButtons(node, state) {
    const row = element("div", { class: "series", role: "group", "aria-label": "Shown series" });
    const names = new Map();
    for (const trace of state.data) {
      if (["mark", "band", "heat"].includes(trace.meta.role)) continue;
      if (!names.has(trace.meta.series)) names.set(trace.meta.series, trace);
    }
    if (names.size < 2) return row;
    const isIdeal = (trace) => trace.meta.role === "ideal";
    const ordered = [...names].sort(([, a], [, b]) => isIdeal(a) - isIdeal(b));
    for (const [name, trace] of ordered) {
      const toggle = button("", () => {
        const shown = toggle.getAttribute("aria-pressed") !== "true";
        toggle.setAttribute("aria-pressed", shown);
        for (const other of state.data) if (other.meta.series === name) other.visible = shown;
        draw(node);
      }, { "aria-pressed": "true" });
      toggle.append(swatch(trace), element("span", {}, plainText(trace.name)));
      row.append(toggle);
    }
    return row;
  }

  function savePlot(node, state, format) {
    if (!drawn.has(node)) return;
    const theme = root.dataset.theme;
    root.dataset.theme = "light";
    const { data, layout } = withColors(state, getComputedStyle(root));
    root.dataset.theme = theme;
    const title = { text: find("figcaption", node).textContent.replace(/[&<>]/g, (sign) =>
      ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]), automargin: true };
    Plotly.downloadImage(
      { data, layout: { ...layout, title, paper_bgcolor: "#fff", showlegend: data.length > 1 } },
      { format, width: 960, height: 600, scale: format === "png" ? 2 : 1,
        filename: node.dataset.figure });
    announce(`Saved ${node.dataset.figure}.${format}`);
  }

  function nameCells(trace) {
    const { rows, columns, x, y } = trace.meta;
    trace.text = trace.z.map((row, i) => row.map((value, j) => (
      `${y} ${rows[i]}<br>${columns[j]} ${x}: <b>${value}</b> ${trace.meta.series}`)));
  }

  function prepareFigure(node) {
    const state = figures[node.dataset.figure];
    for (const trace of state.data) if (trace.type === "heatmap") nameCells(trace);
    const tools = element("div", { class: "tools" });
    if (state.linear) {
      const axes = button("Linear axes", () => {
        switchAxes(node, state);
        axes.textContent = axes.textContent === "Log axes" ? "Linear axes" : "Log axes";
      });
      tools.append(axes);
    }
    for (const format of ["svg", "png"]) {
      tools.append(button(format.toUpperCase(), () => savePlot(node, state, format),
        { "aria-label": `Save this plot as ${format.toUpperCase()}` }));
    }
    const head = element("div", { class: "plot-head" });
    const caption = find("figcaption", node);
    caption.after(head);
    head.append(caption, tools);
    head.after(seriesButtons(node, state));
  }

  async function unpack(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = new Uint8Array(packed.length);
    for (let k = 0; k < packed.length; k += 1) bytes[k] = packed.charCodeAt(k);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function drawFigures() {
    const nodes = findAll("figure.plot");
    if (!nodes.length) return;
    nodes.forEach(prepareFigure);
    if (document.readyState === "loading") {  // Plotly comes last, so that the rest is seen early.
      await new Promise((resolve) => { addEventListener("DOMContentLoaded", resolve); });
    }
    try {
      document.head.append(element("script", {}, await unpack("plotly")));
      for (const node of nodes) {
        await draw(node);
        await new Promise((resolve) => setTimeout(resolve));  // Let the reader scroll.
      }
    } catch (problem) {
      find("#no-plots").hidden = false;
      for (const node of nodes.filter((figure) => !drawn.has(figure))) {
        find(".canvas", node).hidden = !find(".preview", node);
        findAll(".tools, .series", node).forEach((part) => part.remove());
      }
    }
    root.dataset.ready = "true";
  }

  // Tables.
  const units = { d: 86400, h: 3600, min: 60, s: 1, ms: 1e-3, "µs": 1e-6 };

  function sortKey(text) {
    const match = /^[+]?(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(\S*)/.exec(text.trim());
    return match ? Number(match[1].replaceAll(",", "")) * (units[match[2]] || 1) : NaN;
  }

  function sortBy(table, header, index) {
    const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of findAll("th", table)) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows].map((row) => {
      const text = row.cells[index].textContent;
      return { row, text, key: sortKey(text), unknown: text.trim() === "–" };
    });
    rows.sort((a, b) => a.unknown - b.unknown || sign * (
      Number.isNaN(a.key) || Number.isNaN(b.key) ? a.text.localeCompare(b.text) : a.key - b.key));
    table.tBodies[0].append(...rows.map(({ row }) => row));
  }

  function cells(table) {
    return [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  }

  const number = /^[+-]?[\d,]*\.?\d+(e[+-]?\d+)?$/;

  function safeCell(text) {  // A spreadsheet would run it as a formula.
    return /^\s*[=+\-@＝＋－＠]/.test(text) && !number.test(text) ? `'${text}` : text;
  }

  function csvCell(text) {
    const safe = safeCell(text);
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  function prepareTable(holder) {
    const table = find("table", holder);
    const title = holder.dataset.title;
    [...table.tHead.rows[0].cells].forEach((header, index) => {
      const label = header.textContent.trim();
      if (!label) return;
      header.textContent = "";
      header.append(button(label, () => sortBy(table, header, index)));
    });
    const tools = element("div", { class: "tools" });
    if (find(".all, .wide", table)) {
      const more = button("All columns", () => {
        const all = holder.classList.toggle("all-columns");
        more.setAttribute("aria-pressed", all);
      }, { "aria-pressed": "false" });
      if (!find(".all", table)) more.classList.add("only-narrow");
      tools.append(more);
    }
    tools.append(
      button("Copy",
        () => copy(cells(table).map((row) => row.map(safeCell).join("\t")).join("\n")),
        { "aria-label": `Copy the table: ${title}` }),
      button("CSV", () => download(`${title.replace(/[^\w]+/g, "-").slice(0, 60)}.csv`, "text/csv",
        cells(table).map((row) => row.map(csvCell).join(",") + "\n").join("")),
      { "aria-label": `Save the table as CSV: ${title}` }));
    find(".table-head", holder).append(tools);
  }

  // The page as a whole.
  for (const command of findAll(".command")) {
    command.append(button("Copy", () => copy(find("code", command).textContent),
      { "aria-label": "Copy the command" }));
  }
  for (const node of findAll("[data-download]")) {
    const [id, name, type] = node.dataset.download === "csv"
      ? ["csv", "scalewise.csv", "text/csv"] : ["numbers", "scalewise.json", "application/json"];
    node.addEventListener("click", async () => download(name, type, await unpack(id)));
  }
  find(".actions").hidden = false;
  findAll(".table").forEach(prepareTable);

  const contents = find(".toc details");
  const wide = matchMedia("(min-width: 72rem)");
  const fold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
  const links = new Map(findAll(".toc a").map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -75% 0px" });
  findAll(".sections > section").forEach((section) => watcher.observe(section));

  let themeBeforePrint;
  addEventListener("beforeprint", () => {
    themeBeforePrint = root.dataset.theme;
    setTheme("light");
    for (const node of drawn) {
      Plotly.relayout(find(".canvas", node), { width: 640, height: 330 });
    }
  });
  addEventListener("afterprint", () => {
    for (const node of drawn) {
      Plotly.relayout(find(".canvas", node), { autosize: true, width: null, height: null });
    }
    setTheme(themeBeforePrint);
  });

  setTheme(systemDark.matches ? "dark" : "light");
  drawFigures();
})();
