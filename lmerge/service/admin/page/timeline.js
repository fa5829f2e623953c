// What has happened, newest first, and what of it a screen reader announces.

import { el, keyed, show } from "./dom.js";
import { ago, readable, time } from "./format.js";

// The sign, the tone and the words of each kind.
export const KINDS = {
  attached: { sign: "+", tone: "quiet", words: "attached" },
  joined: { sign: "●", tone: "good", words: "joined" },
  admitted: { sign: "●", tone: "warn", words: "admitted early" },
  left: { sign: "−", tone: "quiet", words: "left" },
  died: { sign: "✕", tone: "bad", words: "died" },
  ended: { sign: "✕", tone: "bad", words: "was ended" },
  switched: { sign: "↯", tone: "warn", words: "Algorithm switched" },
  differed: { sign: "≠", tone: "bad", words: "Inputs differ" },
  cutover: { sign: "⇄", tone: "good", words: "cutover" },
  released: { sign: "○", tone: "quiet", words: "released" },
  gap: { sign: "!", tone: "bad", words: "Gap" },
  reset: { sign: "!", tone: "warn", words: "Reset" },
};
const SHOWN = 60;

export function sentence(one) {
  const { words } = KINDS[one.kind] ?? { words: one.kind };
  return one.input ? `${one.input} ${words}` : words;
}

export class Timeline {
  #list = el("ol", { class: "timeline", tabindex: "0", "aria-label": "Timeline, newest first" });
  #none = el("p", { class: "quiet" }, "Nothing has happened yet.");

  constructor() {
    this.node = el("section", { class: "card", "aria-labelledby": "timeline" }, el("h2", { id: "timeline" }, "Timeline"), this.#none, this.#list);
  }

  show(occurrences, now) {
    this.#none.hidden = occurrences.length > 0;
    this.#list.hidden = !occurrences.length;
    const newest = occurrences.slice(-SHOWN).reverse();
    keyed(this.#list, newest, (one) => one.n, made, (node, one) => show(node.querySelector(".ago"), ago(one.at_ms, now)));
  }
}

function made(one) {
  const { sign, tone } = KINDS[one.kind] ?? { sign: "·", tone: "quiet" };
  return el(
    "li",
    { "data-kind": one.kind, "data-tone": tone },
    el("span", { class: "sign", "aria-hidden": "true" }, sign),
    el("span", { class: "what" }, sentence(one)),
    el("span", { class: "when" }, el("time", { datetime: new Date(one.at_ms).toISOString() }, time(one.at_ms)), " · ", el("span", { class: "ago" })),
    el("span", { class: "why" }, readable(one.text)),
  );
}
