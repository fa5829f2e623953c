// Elements from values. Text is set as text only: nothing that a server sends can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. Attributes with functions are event listeners; false and null leave an attribute out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  set(node, attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Set attributes that have changed; null and false remove one. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === null || value === undefined || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
  }
}

/** Set the text of an element, if it has changed. */
export function show(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make the children of `parent` those of `items`, in order. Elements are kept by key, with the focus in them. */
export function keyed(parent, items, keyOf, make, update) {
  const kept = parent.keyedChildren ?? (parent.keyedChildren = new Map());
  const keys = new Set(items.map(keyOf));
  for (const [key, node] of kept) {
    if (!keys.has(key)) {
      node.remove();
      kept.delete(key);
    }
  }
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    let node = kept.get(key);
    if (!node) {
      node = make(item);
      kept.set(key, node);
    }
    update(node, item);
    const place = before ? before.nextSibling : parent.firstChild;
    if (place !== node) parent.insertBefore(node, place);
    before = node;
  }
}

/**
 * Make a table. Columns are [title, class]; narrow screens show each row as a card, with the titles in it. The roles stand
 * there because a table that is shown as blocks has none of its own.
 */
export function table(caption, columns) {
  const body = el("tbody", { role: "rowgroup" });
  const head = el("tr", { role: "row" }, columns.map(heading));
  const node = el("table", { role: "table" }, el("caption", { class: "unseen" }, caption), el("thead", { role: "rowgroup" }, head), body);
  return { node, body };
}

/** Make a row of such a table; `row.cells` are its cells in order. The first one names the row. */
export function row(columns) {
  return el(
    "tr",
    { role: "row" },
    columns.map(([title, kind], at) =>
      el(at ? "td" : "th", { role: at ? "cell" : "rowheader", scope: at ? null : "row", class: kind ?? null, "data-label": title }),
    ),
  );
}

/** Make the head of a column. */
export function heading([title, kind]) {
  return el("th", { role: "columnheader", scope: "col", class: kind ?? null }, title);
}
