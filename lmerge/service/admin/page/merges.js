// The list of merges: the worst first, then by name.

import { el, keyed, row, set, show, table } from "./dom.js";
import { ago, count, plural, rate, streamTime } from "./format.js";

const ORDER = { critical: 0, warning: 1, ok: 2 };
export const SIGNS = { critical: "✕", warning: "!", ok: "✓" };
export const LEVELS = { critical: "Critical", warning: "Warning", ok: "Healthy" };
const COLUMNS = [
  ["Merge"],
  ["Health"],
  ["Inputs", "num"],
  ["Losses survived", "num"],
  ["Output", "num"],
  ["Last output", "num"],
  ["Stable point", "num"],
  ["Readers", "num"],
  ["Differences", "num"],
];

export class MergesView {
  #rows = new Map();
  #table = table("Merges of this server", COLUMNS);
  #summary = el("p", { class: "quiet", role: "status" }, "Waiting for the server");
  #filter;
  #now = 0;

  constructor() {
    this.title = el("h1", { tabindex: "-1" }, "Merges");
    this.#filter = el("input", { type: "search", id: "filter", placeholder: "Filter by name", input: () => this.#draw() });
    const search = el("p", { class: "search" }, el("label", { for: "filter", class: "unseen" }, "Filter by name"), this.#filter);
    const head = el("div", { class: "head" }, el("div", {}, this.title, this.#summary), search);
    this.node = el("div", { class: "view" }, head, el("div", { class: "card" }, this.#table.node));
  }

  take(name, data) {
    if (name !== "merges") return;
    if (data.whole) this.#rows.clear();
    for (const one of data.rows) this.#rows.set(one.name, one);
    for (const gone of data.gone) this.#rows.delete(gone);
    this.#now = data.now_ms;
    this.#draw();
  }

  #draw() {
    const all = [...this.#rows.values()].sort((a, b) => ORDER[a.health] - ORDER[b.health] || (a.name < b.name ? -1 : 1));
    const text = this.#filter.value.trim().toLowerCase();
    const shown = text ? all.filter((one) => one.name.toLowerCase().includes(text)) : all;
    keyed(this.#table.body, shown, (one) => one.name, (one) => this.#made(one), (node, one) => this.#update(node, one));
    const healthy = all.filter((one) => one.health === "ok").length;
    const problems = all.length - healthy;
    const parts = [plural(all.length, "merge")];
    if (all.length) parts.push(problems ? `${problems} with a problem` : "all healthy");
    if (shown.length < all.length) parts.push(`${shown.length} shown`);
    show(this.#summary, all.length ? parts.join(", ") : "No merges yet. A merge appears when the first replica publishes to it.");
    set(this.#table.node, { hidden: all.length ? null : "" });
  }

  #made(one) {
    const node = row(COLUMNS);
    node.cells[0].append(el("a", { href: `#/merge/${encodeURIComponent(one.name)}` }, one.name));
    node.cells[1].append(badge());
    return node;
  }

  #update(node, one) {
    const cells = node.cells;
    showBadge(cells[1].firstChild, one.health, one.text);
    show(cells[2], String(one.inputs));
    show(cells[3], String(one.survives));
    show(cells[4], rate(one.rate));
    show(cells[5], ago(one.last_ms, this.#now));
    show(cells[6], streamTime(one.stable));
    show(cells[7], String(one.subscribers));
    show(cells[8], count(one.divergences));
  }
}

/** The sign and the text of a health level: never by colour alone. */
export function badge() {
  return el("span", { class: "badge" }, el("span", { class: "sign", role: "img" }), el("span", { class: "why" }));
}

export function showBadge(node, level, text) {
  set(node, { "data-level": level });
  set(node.firstChild, { "aria-label": LEVELS[level] });
  show(node.firstChild, SIGNS[level]);
  show(node.lastChild, text);
}
