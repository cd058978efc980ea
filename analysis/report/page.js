"use strict";
// Tables sort, filter and download; figures download. Without this the page shows all it has.
(() => {
  const FEW = 40; // rows that are shown at first
  const LISTED = 8; // rows from which a table has a filter
  const make = (tag, properties = {}, ...inside) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...inside);
    return element;
  };
  const text = (element) => element.textContent.replace(/\s+/g, " ").trim();
  const number = (said) => {
    const plain = said.replace(/\u2212/g, "-").replace(/,/g, "");
    const found = /^[+-]?\d+(\.\d+)?(e[+-]?\d+)?/i.exec(plain);
    return found ? Number(found[0]) : NaN;
  };

  function save(name, type, content) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // What sorts after what: numbers, then text, then what is undefined.
  function compare(one, other) {
    const [a, b] = [number(one), number(other)];
    const [x, y] = [one, other].map((said, k) => (said === "–" || said === "" ? 2 : isNaN([a, b][k]) ? 1 : 0));
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
        const undefinedLast = (said) => said === "–" || said === "";
        keyed.sort((a, b) => {
          const order = compare(a[0], b[0]);
          const keep = undefinedLast(a[0]) !== undefinedLast(b[0]);
          return (up || keep ? order : -order) || a[1] - b[1];
        });
        table.tBodies[0].append(...keyed.map((one) => one[2]));
      });
    });
  }

  // "0.9796 ± 0.0066" is two columns; marks and thousands' commas go.
  function csv(table, rows) {
    const clean = (said) => {
      const plain = said.replace(/[\u2020\u2021*]/g, "").replace(/\u2212/g, "-").trim();
      const value = plain === "–" ? "" : /^[+-]?[\d,]+(\.\d+)?$/.test(plain) ? plain.replace(/,/g, "") : plain;
      return /[",\n]/.test(value) ? `"${value.replace(/"/g, '""')}"` : value;
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
          const said = text(row).toLowerCase();
          row.hidden = !words.every((word) => said.includes(word));
          shown += !row.hidden;
        }
        table.classList.toggle("searched", words.length > 0);
        count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
      });
      bar.append(filter, count);
    }
    const name = region.getAttribute("aria-label").toLowerCase().replace(/\W+/g, "-");
    const download = make("button", { type: "button" }, "CSV");
    download.setAttribute("aria-label", `Download ${region.getAttribute("aria-label")} as CSV`);
    download.addEventListener("click", () =>
      save(`${name}.csv`, "text/csv", csv(table, [...table.tBodies[0].rows].filter((row) => !row.hidden))),
    );
    bar.append(download);
    region.before(bar);
    if (rows.length > FEW) {
      table.classList.add("folded");
      const all = make("button", { type: "button" }, `Show all ${rows.length} rows`);
      all.setAttribute("aria-expanded", "false");
      all.addEventListener("click", () => {
        const folded = table.classList.toggle("folded");
        all.setAttribute("aria-expanded", String(!folded));
        all.textContent = folded ? `Show all ${rows.length} rows` : `Show the first ${FEW}`;
      });
      region.after(make("div", { className: "controls" }, all));
    }
  }

  function figure(element) {
    const picture = element.querySelector("svg");
    const source = () => {
      const copy = picture.cloneNode(true);
      copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
      return '<?xml version="1.0" encoding="utf-8"?>\n' + new XMLSerializer().serializeToString(copy);
    };
    const button = make("button", { type: "button" }, "SVG");
    button.setAttribute("aria-label", `Download ${element.id} as SVG`);
    button.addEventListener("click", () => save(`${element.id}.svg`, "image/svg+xml", source()));
    element.querySelector("figcaption").append(" ", button);
  }

  document.querySelectorAll(".scroll > table").forEach(controls);
  document.querySelectorAll("figure").forEach(figure);
})();
