"use strict";
// Tables can be sorted, filtered and downloaded; figures can be downloaded and switched between
// datasets, classifiers and schemes, and name their runs. Without scripts the page shows everything.
(() => {
  const FEW = 40; // rows shown at first
  const LISTED = 8; // fewest rows of a table with a filter
  const make = (tag, properties = {}, ...inside) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...inside);
    return element;
  };
  const text = (element) => element.textContent.replace(/\s+/g, " ").trim();
  const number = (words) => {
    const plain = words.replace(/\u2212/g, "-").replace(/,|^< /g, "");
    const found = /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?/i.exec(plain);
    return found ? Number(found[0]) : NaN;
  };

  const button = (words, label, act) => {
    const made = make("button", { type: "button" }, words);
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };

  function save(name, type, content) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  const isUndefined = (words) => words === "–" || words === "";

  // Numbers sort before text, and text before undefined values.
  function compare(one, other) {
    const [a, b] = [number(one), number(other)];
    const [x, y] = [one, other].map((words, k) => (isUndefined(words) ? 2 : isNaN([a, b][k]) ? 1 : 0));
    if (x !== y) return x - y;
    return x === 0 ? a - b : one.localeCompare(other, "en", { numeric: true });
  }

  function sorting(table, rows) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", className: "sort" }, ...head.childNodes);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const keyed = rows.map((row, place) => [text(row.cells[column]), place, row]);
        keyed.sort((a, b) => {
          const order = compare(a[0], b[0]);
          const keep = isUndefined(a[0]) !== isUndefined(b[0]);
          return (up || keep ? order : -order) || a[1] - b[1];
        });
        table.tBodies[0].append(...keyed.map((one) => one[2]));
      });
    });
  }

  const shown = (table) => [...table.tBodies[0].rows].filter((row) => !row.hidden);

  // For the package booktabs; numbers are set in math mode.
  function latex(table, rows, title) {
    const special = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
    const signs = [
      [/\u03b1\u0302/g, "$\\hat\\alpha$"], [/\u03b4/g, "$\\delta$"], [/\u03b5/g, "$\\varepsilon$"], [/\u03c1/g, "$\\rho$"],
      [/\u2020/g, "\\dag{}"], [/\u2021/g, "\\ddag{}"], [/\u00d7/g, "$\\times$"], [/\u00b1/g, "$\\pm$"], [/\u2264/g, "$\\le$"],
      [/\u2212/g, "$-$"], [/\u2013/g, "--"], [/\u00b7/g, "$\\cdot$"],
    ];
    const clean = (words) => {
      const plain = words.replace(/[\\{}~^]/g, (one) => special[one]).replace(/[&%$#_]/g, "\\$&");
      return signs.reduce((now, [from, to]) => now.replace(from, to), plain);
    };
    const cell = (words) => {
      const found = /^([+\u2212-]?[\d,.]+)(\*?)(?: ± ([\d.]+))?$/.exec(words);
      if (!found) return clean(words);
      const value = found[1].replace(/\u2212/g, "-").replace(/,/g, "{,}");
      return `$${value}${found[2] ? "^{*}" : ""}${found[3] ? ` \\pm ${found[3]}` : ""}$`;
    };
    const heads = [...table.tHead.rows[0].cells];
    const line = (cells) => `${cells.join(" & ")} \\\\`;
    return [
      "% needs \\usepackage{booktabs}",
      `% ${title}`,
      `\\begin{tabular}{${heads.map((head) => (head.classList.contains("num") ? "r" : "l")).join("")}}`,
      "\\toprule",
      line(heads.map((head) => clean(text(head)))),
      "\\midrule",
      ...rows.map((row) => line([...row.cells].map((one) => cell(text(one))))),
      "\\bottomrule",
      "\\end{tabular}",
      "",
    ].join("\n");
  }

  const quoted = (value) => (/[",\n]/.test(value) ? `"${String(value).replace(/"/g, '""')}"` : String(value));

  // The values of a figure's dots, one row each.
  function dotted({ runs, panels, values }) {
    const { panel, ...others } = values;
    const columns = [runs, panel.map((index) => panels[index]), ...Object.values(others)];
    const rows = runs.map((_, row) => columns.map((column) => column[row]));
    return [["run", "panel", ...Object.keys(others)], ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  }

  // "0.9796 ± 0.0066" becomes two columns; marks and thousands separators are removed.
  function csv(table, rows) {
    const clean = (words) => {
      const plain = words.replace(/[\u2020\u2021*]/g, "").replace(/\u2212/g, "-").trim();
      return quoted(plain === "–" ? "" : /^[+-]?[\d,]+(\.\d+)?$/.test(plain) ? plain.replace(/,/g, "") : plain);
    };
    const parts = (cell) => {
      const [value, error] = text(cell).split("±");
      return [value, error ?? ""].map(clean);
    };
    const heads = [...table.tHead.rows[0].cells].map((head) => text(head).replace(/ ±.*/, ""));
    const all = rows.map((row) => [...row.cells].map(parts));
    const doubled = heads.map((_, column) => all.some((row) => row[column][1] !== ""));
    const line = (cells) =>
      cells.flatMap(([value, error], column) => (doubled[column] ? [value, error] : [value])).join(",");
    return [line(heads.map((head) => [clean(head), clean(`${head} ±`)])), ...all.map(line)].join("\n") + "\n";
  }

  const TELLS = 1.5; // priority of columns with words that tell rows apart

  // On a narrow screen the least important columns are hidden, last ones first, and named; files have all.
  // If that is not enough, words that tell rows apart stand below those of the first column.
  function fitting(table, bar) {
    const region = table.closest(".scroll");
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    const tells = (column) => rows.some((row) => text(row.cells[column]) !== text(rows[0].cells[column]));
    const matters = heads.map((head, column) => {
      if (head.dataset.matters) return Number(head.dataset.matters);
      if (!head.classList.contains("num")) return tells(column) ? TELLS : 0.5; // 0.5: the same words in all rows
      return head.matches(".more, .less") ? 0.25 : 0; // counts go before results
    });
    const order = heads.map((_, column) => column).slice(1);
    order.sort((a, b) => matters[a] - matters[b] || b - a);
    const hidden = make("span");
    const all = make("button", { type: "button" });
    const line = make("div", { className: "controls", hidden: true }, all, hidden);
    let out = [];
    let whole = false;
    const join = (columns) => {
      table.classList.toggle("joined", columns.length > 0);
      for (const row of table.rows) row.cells[0].dataset.with = columns.map((one) => text(row.cells[one])).join(" \u00b7 ");
    };
    const leave = (columns, away) => {
      for (const row of table.rows) for (const column of columns) row.cells[column].classList.toggle("away", away);
    };
    const fit = () => {
      leave(out, false);
      if (table.classList.contains("joined")) join([]);
      out = [];
      let joined = [];
      const width = (one) => one.getBoundingClientRect().width;
      const over = () => width(table) > width(region);
      line.hidden = !over() || region.clientWidth === 0;
      if (!line.hidden && !whole) {
        for (const column of order) {
          if (!over() || matters[column] >= TELLS) break;
          leave([column], true);
          out.push(column);
        }
        if (over()) {
          joined = order.filter((column) => matters[column] === TELLS).sort((a, b) => a - b);
          join(joined);
          leave(joined, true);
        }
        out.push(...joined);
      }
      const names = out.filter((column) => !joined.includes(column)).sort((a, b) => a - b).map((column) => text(heads[column]));
      hidden.textContent = names.length ? `no room for: ${names.join(", ")}` : "";
      all.textContent = whole ? "Columns that fit" : "All columns";
      all.setAttribute("aria-pressed", String(whole));
    };
    all.addEventListener("click", () => {
      whole = !whole;
      fit();
    });
    bar.after(line);
    let wide = -1;
    const look = () => {
      if (region.clientWidth === wide) return;
      wide = region.clientWidth;
      fit();
    };
    new ResizeObserver(() => requestAnimationFrame(look)).observe(region);
    if (!region.closest("details:not([open])")) look(); // else it would be laid out for nothing
  }

  function controls(table) {
    const rows = [...table.tBodies[0].rows];
    const region = table.closest(".scroll");
    const bar = make("div", { className: "controls" });
    const count = make("span", { role: "status" });
    sorting(table, rows);
    if (rows.length >= LISTED) {
      const filter = make("input", { type: "search", placeholder: "filter rows" });
      filter.setAttribute("aria-label", `Filter ${region.getAttribute("aria-label")}`);
      filter.addEventListener("input", () => {
        const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        let shown = 0;
        for (const row of rows) {
          const content = text(row).toLowerCase();
          row.hidden = !words.every((word) => content.includes(word));
          shown += !row.hidden;
        }
        table.classList.toggle("searched", words.length > 0);
        count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
      });
      bar.append(filter, count);
    }
    const name = region.getAttribute("aria-label").toLowerCase().replace(/\W+/g, "-");
    const title = region.getAttribute("aria-label");
    bar.append(
      button("CSV", `Download ${title} as CSV`, () => save(`${name}.csv`, "text/csv", csv(table, shown(table)))),
      button("LaTeX", `Download ${title} as LaTeX`, () =>
        save(`${name}.tex`, "application/x-tex", latex(table, shown(table), `${document.title}: ${title}`)),
      ),
    );
    region.before(bar);
    if (rows.length > FEW) {
      const all = make("button", { type: "button" }, `Show all ${rows.length} rows`);
      all.setAttribute("aria-expanded", "false");
      all.addEventListener("click", () => {
        const folded = table.classList.toggle("folded");
        all.setAttribute("aria-expanded", String(!folded));
        all.textContent = folded ? `Show all ${rows.length} rows` : `Show the first ${FEW}`;
      });
      region.after(make("div", { className: "controls" }, all));
    }
    fitting(table, bar);
  }

  const SCALE = 4; // pixels of PNG per unit of the figure: 288 per inch
  const INK = "#1a1c1f";

  // The figure as a standalone file, dark on white.
  function source(picture) {
    const copy = picture.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("color", INK);
    copy.querySelectorAll(".veil").forEach((one) => one.remove());
    return '<?xml version="1.0" encoding="utf-8"?>\n' + new XMLSerializer().serializeToString(copy);
  }

  function png(picture, name) {
    const { width, height } = picture.viewBox.baseVal;
    const image = new Image(width * SCALE, height * SCALE);
    image.onload = () => {
      const canvas = make("canvas", { width: width * SCALE, height: height * SCALE });
      const pen = canvas.getContext("2d");
      pen.fillStyle = "#fff";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(`${name}.png`, "image/png", blob));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source(picture))}`;
  }

  // Print the figure alone, on paper of its size, to get vectors and embedded fonts.
  function pdf(element, picture) {
    const { width, height } = picture.viewBox.baseVal;
    const sized = make("style", {}, `@page { size: ${width + 1}pt ${height + 2}pt; margin: 0 }`);
    const folds = [...document.querySelectorAll("details")].filter((one) => one.contains(element) && !one.open);
    const title = document.title;
    document.head.append(sized);
    document.title = element.id;
    document.body.classList.add("alone");
    element.classList.add("printed");
    folds.forEach((one) => (one.open = true));
    print();
    folds.forEach((one) => (one.open = false));
    element.classList.remove("printed");
    document.body.classList.remove("alone");
    document.title = title;
    sized.remove();
  }

  const NEAR = 7; // largest distance at which the pointer selects a dot, in units of the figure
  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("role", "status");

  // The dot under the pointer or finger names its run; , and . go to the previous and the next one.
  function naming(element, picture) {
    const marks = element.querySelector("script.marks");
    if (!marks) return;
    let [x, y, runs, order] = [[], [], [], []];
    const read = () => {
      if (runs.length) return;
      ({ x, y, runs } = JSON.parse(marks.textContent));
      order = [...runs.keys()].sort((a, b) => x[a] - x[b] || y[a] - y[b]);
    };
    let at = -1;
    const show = (index) => {
      const place = new DOMPoint(x[index], y[index]).matrixTransform(picture.getScreenCTM());
      tip.textContent = `run ${runs[index]} (manyseed status DIR ${runs[index]})`;
      tip.hidden = false;
      const left = Math.min(place.x + 10, innerWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(left, 4) + scrollX}px`;
      tip.style.top = `${place.y + 12 + scrollY}px`;
    };
    const look = (event) => {
      read();
      const here = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
      let best = -1;
      let least = NEAR * NEAR;
      const veils = [...picture.querySelectorAll(".veil")].map((one) => [one.y.baseVal.value, one.height.baseVal.value]);
      const veiled = (index) => veils.some(([top, tall]) => y[index] >= top && y[index] < top + tall);
      for (let index = 0; index < x.length; index++) {
        const far = (x[index] - here.x) ** 2 + (y[index] - here.y) ** 2;
        if (far < least && !veiled(index)) [best, least] = [index, far];
      }
      if (best < 0) tip.hidden = true;
      else show(best);
    };
    picture.addEventListener("pointermove", look);
    picture.addEventListener("pointerdown", look);
    picture.addEventListener("pointerleave", () => (tip.hidden = true));
    const region = element.querySelector(".scroll");
    region.setAttribute("aria-description", "Dots are runs: press full stop for the next, comma for the previous one.");
    region.addEventListener("keydown", (event) => {
      const step = { ".": 1, ",": -1 }[event.key];
      if (!step) return;
      read();
      at = (at + step + order.length) % order.length;
      show(order[at]);
    });
    region.addEventListener("blur", () => (tip.hidden = true));
  }

  function figure(element) {
    const picture = element.querySelector("svg");
    const name = element.id;
    const files = {
      SVG: () => save(`${name}.svg`, "image/svg+xml", source(picture)),
      PNG: () => png(picture, name),
      PDF: () => pdf(element, picture),
    };
    const dots = element.querySelector("script.marks");
    if (dots) files.CSV = () => save(`${name}.csv`, "text/csv", dotted(JSON.parse(dots.textContent)));
    const numbers = element.querySelector("script.numbers");
    const [form, end] = dots ? ["Quantiles", "-quantiles"] : ["CSV", ""]; // CSV holds the runs, if there are dots
    if (numbers) files[form] = () => save(`${name}${end}.csv`, "text/csv", JSON.parse(numbers.textContent));
    for (const [form, act] of Object.entries(files)) {
      element.querySelector("figcaption").append(" ", button(form, `Download ${name} as ${form}`, act));
    }
    naming(element, picture);
  }

  // Cover the rows of a figure that are not chosen.
  function cover(picture, rows) {
    picture.querySelectorAll(".veil").forEach((one) => one.remove());
    for (const [, top, bottom] of rows) {
      const veil = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const place = { class: "veil", x: 0, y: top, width: picture.viewBox.baseVal.width, height: bottom - top };
      for (const [key, value] of Object.entries(place)) veil.setAttribute(key, value);
      picture.append(veil);
    }
  }

  // Choose which figures of datasets to show: all or one dataset, classifier, and level of each axis.
  function switching(first) {
    const figures = [...document.querySelectorAll("figure[data-dataset]")];
    const datasets = [...new Set(figures.map((one) => one.dataset.dataset))];
    const rows = figures.map((one) => JSON.parse(one.dataset.bands || "[]"));
    const switches = JSON.parse(first.dataset.switches);
    const bar = make("div", { className: "controls" });
    const choice = (label, names, act) => {
      const select = make("select", {}, make("option", { value: "" }, "all"));
      select.append(...names.map((name) => make("option", { value: name }, name)));
      select.addEventListener("change", () => act(select.value));
      bar.append(make("label", {}, `${label} `, select));
    };
    let dataset = "";
    const levels = switches.map(() => -1);
    const show = () =>
      figures.forEach((one, index) => {
        const out = rows[index].filter(([of]) => levels.some((level, k) => level >= 0 && of[k] !== level));
        const fold = one.closest("details.fold");
        const other = dataset !== "" && one.dataset.dataset !== dataset;
        (fold || one).hidden = other || (out.length > 0 && out.length === rows[index].length);
        if (fold && dataset !== "") fold.open = !fold.hidden;
        cover(one.querySelector("svg"), out);
      });
    if (datasets.length > 1) {
      choice("dataset", datasets, (name) => {
        dataset = name;
        show();
      });
    }
    const colours = JSON.parse(first.dataset.colours);
    const names = Object.keys(colours);
    if (names.length > 1) {
      const dim = document.head.appendChild(make("style"));
      choice("classifier", names, (name) => {
        const others = names.filter((one) => name !== "" && one !== name).map((one) => colours[one]);
        const rules = others.map((one) => `figure[data-dataset] svg [style*="${one}" i]`);
        dim.textContent = rules.length ? `${rules.join(",")} { opacity: 0.06 !important }` : "";
      });
    }
    switches.forEach(([axis, of], k) =>
      choice(axis.replaceAll("_", " "), of, (name) => {
        levels[k] = of.indexOf(name);
        show();
      }),
    );
    if (bar.children.length) first.after(bar);
  }

  document.querySelectorAll(".scroll > table").forEach(controls);
  document.querySelectorAll("figure").forEach(figure);
  document.querySelectorAll("#cells").forEach(switching);
  document.body.append(tip);
})();
