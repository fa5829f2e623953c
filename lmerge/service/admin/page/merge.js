// One merge: how it is, who wins, how fast and how steady the output is, the inputs, what differs, what happened, who reads.

import { COLORS, Chart, Moment, bands, bars, line, roundTop } from "./chart.js";
import { el, heading, keyed, row, set, show, table } from "./dom.js";
import { ago, bytes, count, duration, isCalendar, percent, plural, rate, readable, streamLag, streamTime, time, whole } from "./format.js";
import { badge, showBadge } from "./merges.js";
import { Samples } from "./samples.js";
import { KINDS, Timeline, sentence } from "./timeline.js";

const INPUTS = [["Input"], ["State"], ["Behind", "num"], ["Sends", "num"], ["Won, last minute", "num share"], ["Stable point", "num"], ["Attached", "num"]];
const READERS = [["Reader"], ["Behind", "num"], ["Waiting", "num"], ["Sent", "num"]];
const MINUTE = 60; // samples
const OCCURRENCES_KEPT = 256;
// An input that has gone stays in the table for so long, so that one sees who is missing.
const GONE_SHOWN_MS = 10 * 60_000;
const TABLE_ROWS = 30;
// Five minutes, once they are there. Before, the charts are as wide as what is there.
const WINDOW_MS = 300_000;
const WINDOW_LEAST_MS = 60_000;
// A pause that people notice, and that an alert would name.
const LONG_PAUSE_MS = 1000;
const GONE_KINDS = new Set(["died", "left", "ended", "gap", "reset"]);

export class MergeView {
  #announce;
  #samples = new Samples();
  #occurrences = [];
  #merge = null;
  #now = 0;
  #interval = 1000;
  #colors = new Map();
  #moment = new Moment();
  #badge = badge();
  #facts = el("dl", { class: "facts" });
  #details = el("dl", { class: "details" });
  #absent = el("p", { class: "notice", hidden: "" }, "There is no merge of this name on this server now. It appears here when a replica publishes to it.");
  #body;
  #legend = el("ul", { class: "legend", "aria-hidden": "true" });
  #won;
  #output;
  #pause;
  #values = table("Samples, newest first", [["Time"]]);
  #valuesBox;
  #inputs = table("Inputs", INPUTS);
  #readers = table("Readers", READERS);
  #noReaders = el("p", { class: "quiet" }, "Nobody reads this merge here.");
  #readersHead = el("h2", { id: "readers" }, "Readers");
  #differences = el("div");
  #openIntervals = null; // the starts of those that are unfolded; at first the newest
  #differencesCard;
  #differencesHead = el("h2", { id: "differences" }, "Differences");
  #timeline = new Timeline();

  constructor(name, announce) {
    this.#announce = announce;
    this.title = el("h1", { tabindex: "-1" }, name);
    this.#won = new Chart("Who won", "band", this.#moment, (place) => this.#wonText(place), [this.#legend]);
    this.#output = new Chart("Output, elements a second", "line", this.#moment, (place) => rate(this.#samples.out[place]));
    this.#pause = new Chart("Longest pause of the output", "line", this.#moment, (place) => duration(this.#samples.pause[place]));
    this.#valuesBox = el("div", { class: "values", id: "values", hidden: "", tabindex: "0", role: "region", "aria-label": "Samples as a table" }, this.#values.node);
    this.#differencesCard = card("differences", this.#differencesHead, this.#differences);
    this.#differencesCard.hidden = true;
    const toggle = el("button", { class: "plain", "aria-expanded": "false", "aria-controls": "values", click: () => this.#toggle(toggle) }, "Show as a table");
    const charts = el("section", { class: "card charts", "aria-labelledby": "charts" });
    charts.append(el("div", { class: "head" }, el("h2", { id: "charts" }, "Last minutes"), toggle), this.#won.node, this.#output.node, this.#pause.node, this.#valuesBox);
    const left = el("div", { class: "wide" }, charts, card("inputs", el("h2", { id: "inputs" }, "Inputs"), this.#inputs.node), this.#differencesCard);
    const right = el("div", { class: "side" }, this.#timeline.node, card("readers", this.#readersHead, this.#noReaders, this.#readers.node), card("details", el("h2", { id: "details" }, "Details"), this.#details));
    this.#body = el("div", { hidden: "" }, this.#facts, el("div", { class: "columns" }, left, right));
    const back = el("nav", { "aria-label": "Breadcrumb" }, el("a", { href: "#/" }, "All merges"));
    this.node = el("div", { class: "view" }, back, el("div", { class: "head" }, this.title, this.#badge), this.#absent, this.#body);
  }

  take(name, data) {
    if (name === "differences") this.#showDifferences(data);
    if (name !== "merge") return;
    this.#now = data.now_ms;
    this.#interval = data.interval_ms;
    this.#merge = data.merge;
    this.#absent.hidden = data.merge !== null;
    this.#body.hidden = this.#badge.hidden = data.merge === null;
    const fresh = this.#note(data.occurrences, data.whole);
    this.#samples.take(data.history, data.whole);
    if (data.merge === null) return;
    this.#draw();
    for (const one of fresh) this.#announce(`${this.#merge.name}: ${sentence(one)}. ${readable(one.text)}`);
  }

  /** Keep occurrences; return those that are new and have happened while the page was open. */
  #note(occurrences, isWhole) {
    const isFirst = !this.#occurrences.length;
    const last = isFirst ? 0 : this.#occurrences[this.#occurrences.length - 1].n;
    const isAnew = isWhole && occurrences.length > 0 && occurrences[occurrences.length - 1].n < last; // another server
    const fresh = occurrences.filter((one) => isAnew || one.n > last);
    this.#occurrences = (isWhole ? occurrences : [...this.#occurrences, ...fresh]).slice(-OCCURRENCES_KEPT);
    return isFirst || isAnew ? [] : fresh;
  }

  #draw() {
    const merge = this.#merge;
    showBadge(this.#badge, merge.health, merge.text);
    this.#drawFacts(merge);
    this.#drawCharts();
    this.#drawInputs(merge);
    this.#timeline.show(this.#occurrences, this.#now);
    this.#drawReaders(merge);
    this.#drawDetails(merge);
  }

  #drawFacts(merge) {
    const pause = this.#samples.longestPause(MINUTE);
    const facts = [
      ["Losses survived", String(merge.survives), merge.survives ? "good" : "bad"],
      ["Output", rate(merge.rate)],
      ["Longest pause, last minute", duration(pause), pause >= LONG_PAUSE_MS ? "warn" : null],
      ["Last output", merge.silent_ms === null ? "none yet" : ago(this.#now - merge.silent_ms, this.#now)],
      [isCalendar(merge.stable) ? "Stable point, UTC" : "Stable point", streamTime(merge.stable)],
      ["Differences", count(merge.divergences), merge.divergences ? "warn" : null],
      ["Readers", String(merge.subscriber_count)],
    ];
    keyed(this.#facts, facts, ([title]) => title, ([title]) => el("div", {}, el("dt", {}, title), el("dd")), (node, [, value, tone]) => {
      show(node.lastChild, value);
      set(node, { "data-tone": tone ?? null });
    });
  }

  #colorOf(name) {
    if (!this.#colors.has(name)) this.#colors.set(name, this.#colors.size % COLORS);
    return this.#colors.get(name);
  }

  #drawCharts() {
    const samples = this.#samples;
    const names = samples.names;
    const at = samples.at;
    const known = at.length ? at[at.length - 1] - at[0] : 0;
    const window = Math.min(WINDOW_MS, Math.max(WINDOW_LEAST_MS, 1.1 * known));
    const marks = this.#occurrences
      .filter((one) => ["died", "ended", "cutover", "gap", "reset", "joined", "attached"].includes(one.kind))
      .map((one) => ({ at: one.at_ms, tone: KINDS[one.kind].tone, text: `${time(one.at_ms)} ${sentence(one)}` }));
    const parts = at.map((_, place) => samples.shares(place, names));
    this.#won.show(at, window, marks, [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]], (x, y) => bands(at, parts, names, (name) => this.#colorOf(name), x, y));
    const top = roundTop(Math.max(...samples.out, 1));
    this.#output.show(at, window, marks, [[0, "0"], [1, count(top)]], (x, y) => line(at, samples.out, top, x, y));
    const longest = roundTop(Math.max(...samples.pause, 100));
    this.#pause.show(at, window, marks, [[0, "0"], [1, duration(longest)]], (x, y) => bars(at, samples.pause, longest, x, y, (ms) => (ms >= LONG_PAUSE_MS ? "warn" : null)));
    keyed(this.#legend, names, (name) => name, (name) => el("li", {}, swatch(this.#colorOf(name)), el("span"), " ", el("b")), (node, name) => {
      show(node.children[1], name);
      show(node.children[2], percent(samples.shareOf(name, MINUTE)));
    });
    this.#drawValues(names);
  }

  #wonText(place) {
    const names = this.#samples.names;
    const shares = this.#samples.shares(place, names);
    return shares ? names.map((name, at) => `${name} ${percent(shares[at])}`).join(", ") : "no output";
  }

  #toggle(button) {
    const isOpen = this.#valuesBox.hidden;
    this.#valuesBox.hidden = !isOpen;
    set(button, { "aria-expanded": String(isOpen) });
    show(button, isOpen ? "Hide the table" : "Show as a table");
    this.#drawValues(this.#samples.names);
  }

  #drawValues(names) {
    if (this.#valuesBox.hidden) return;
    const columns = [["Time"], ["Output", "num"], ["Pause", "num"], ...names.map((name) => [`${name} won`, "num"])];
    const head = this.#values.node.tHead.rows[0];
    keyed(head, columns, ([title]) => title, heading, () => {});
    const { at, out, pause } = this.#samples;
    const places = at.map((_, place) => place).slice(-TABLE_ROWS).reverse();
    this.#values.body.replaceChildren(
      ...places.map((place) => {
        const node = row(columns);
        const shares = this.#samples.shares(place, names);
        [time(at[place]), rate(out[place]), duration(pause[place]), ...names.map((_, k) => percent(shares ? shares[k] : null))].forEach((text, k) => show(node.cells[k], text));
        return node;
      }),
    );
  }

  #drawInputs(merge) {
    const isTime = isCalendar(merge.stable);
    keyed(this.#inputs.body, [...merge.inputs, ...this.#gone(merge)], (one) => one.name, (one) => this.#inputRow(one), (node, one) => {
      set(node, { "data-state": one.state, "data-tone": one.tone ?? (one.lacks && one.role === "active" ? "warn" : null) });
      const cells = node.cells;
      show(cells[1].firstChild, one.state);
      show(cells[1].lastChild, readable(one.lacks));
      show(cells[2], one.isGone ? "–" : one.lag_ms ? duration(one.lag_ms) : "0");
      set(cells[2], { title: one.lag ? `${streamLag(one.lag, isTime)} of the stream's time behind the furthest input` : null });
      show(cells[3], rate(one.rate));
      const share = one.isGone ? null : this.#samples.shareOf(one.name, MINUTE);
      show(cells[4].firstChild, percent(share));
      set(cells[4].lastChild, { value: share ?? 0, hidden: share === null ? "" : null });
      show(cells[5], one.isGone ? "–" : streamTime(one.stable));
      show(cells[6], one.isGone ? ago(one.at_ms, this.#now) : whole(one.attached_s * 1000));
    });
  }

  #inputRow(one) {
    const node = row(INPUTS);
    node.cells[0].append(swatch(this.#colorOf(one.name)), el("span", { class: "name" }, one.name));
    node.cells[1].append(el("span", { class: "state" }), el("span", { class: "why" }));
    node.cells[4].append(el("span"), el("meter", { min: 0, max: 1, "aria-hidden": "true" }));
    return node;
  }

  /** The inputs that have gone of late and have not come back. */
  #gone(merge) {
    const attached = new Set(merge.inputs.map((one) => one.name));
    const last = new Map();
    for (const one of this.#occurrences) if (one.input && GONE_KINDS.has(one.kind)) last.set(one.input, one);
    return [...last.values()]
      .filter((one) => !attached.has(one.input) && this.#now - one.at_ms < GONE_SHOWN_MS)
      .map((one) => ({
        name: one.input,
        state: one.kind,
        lacks: one.text,
        tone: one.kind === "left" ? "quiet" : "bad",
        isGone: true,
        at_ms: one.at_ms,
        lag: null,
        rate: null,
      }));
  }

  #drawReaders(merge) {
    const more = merge.subscriber_count - merge.subscribers.length;
    show(this.#readersHead, more > 0 ? `Readers: the ${merge.subscribers.length} with the longest queues of ${merge.subscriber_count}` : "Readers");
    this.#noReaders.hidden = merge.subscriber_count > 0;
    this.#readers.node.hidden = !merge.subscriber_count;
    keyed(this.#readers.body, merge.subscribers.map((one) => ({ ...one, key: `${one.peer} ${one.name}` })), (one) => one.key, readerRow, (node, one) => {
      [one.lag_ms ? duration(one.lag_ms) : "0", bytes(one.queued_bytes), count(one.sent)].forEach((text, at) => show(node.cells[at + 1], text));
    });
  }

  #drawDetails(merge) {
    const details = [
      ["Algorithm", `${merge.algorithm}: ${merge.algorithm_reason}`],
      ["Policy", `${merge.policy}; when inputs differ: ${merge.divergence_policy}`],
      ["Engine", merge.engine],
      ["Store", merge.store],
      ["Recording", merge.recording],
      ["Live events", `${count(merge.live_events)}, ${bytes(merge.live_bytes)}`],
      ["Too late or refused", `${count(merge.late)} elements late, ${count(merge.refused)} refused`],
      ["Gaps", merge.gaps ? plural(merge.gaps, "gap") : ""],
      ["Cut-off readers", merge.cut_off ? count(merge.cut_off) : ""],
      ["Cutover", merge.cutover_to ? `to ${merge.cutover_to}, going on` : ""],
      ["Disputed", readable(merge.disputed.join(", "))],
      ["Quarantined", merge.quarantined.map((one) => `${one.name}: ${readable(one.why)}`).join("; ")],
      ["Epoch", merge.epoch ? String(merge.epoch) : ""],
    ].filter(([, text]) => text);
    keyed(this.#details, details, ([title]) => title, ([title]) => el("div", {}, el("dt", {}, title), el("dd")), (node, [, text]) => show(node.lastChild, text));
  }

  #showDifferences(data) {
    this.#differencesCard.hidden = !data?.count;
    if (!data?.count) return;
    show(this.#differencesHead, `Differences: ${plural(data.count, "interval")}`);
    this.#openIntervals ??= new Set(data.intervals.slice(0, 1).map((one) => one.start));
    const withheld = data.withheld ? el("p", { class: "quiet" }, "The events are not shown: your token lacks the role subscribe or admin.") : null;
    this.#differences.replaceChildren(...[withheld, ...data.intervals.map((one) => this.#intervalNode(one))].filter((node) => node !== null));
  }

  #intervalNode(one) {
    const columns = [["Event"], [isCalendar(one.start) ? "Valid, UTC" : "Valid"], ["Delivered by"], ["Not by"]];
    const { node, body } = table(`Events that differ in ${one.start} to ${one.end}`, columns);
    for (const event of one.events) {
      const line = row(columns);
      line.cells[0].append(el("code", {}, event.payload));
      show(line.cells[1], `${streamTime(event.vs)} – ${streamTime(event.ve)}`);
      show(line.cells[2], event.present.join(", ") || "none");
      show(line.cells[3], event.absent.join(", ") || "none");
      body.append(line);
    }
    const digests = one.digests.map((digest) => `${digest.input} ${plural(digest.events, "event")}`).join(", ");
    const toggled = (event) => this.#openIntervals[event.target.open ? "add" : "delete"](one.start);
    return el(
      "details",
      { class: "interval", open: this.#openIntervals.has(one.start) ? "" : null, toggle: toggled },
      el("summary", {}, el("span", {}, `${streamTime(one.start)} – ${streamTime(one.end)}`), el("span", { class: "quiet" }, digests)),
      one.events.length ? node : null,
      one.missing ? el("p", { class: "quiet" }, one.missing) : null,
    );
  }
}

function readerRow(one) {
  const node = row(READERS);
  node.cells[0].append(el("span", {}, one.name || "(without a name)"), el("span", { class: "why" }, one.peer.replace(/^ipv[46]:/, "")));
  return node;
}

function card(name, head, ...children) {
  return el("section", { class: `card ${name}`, "aria-labelledby": head.id }, head, ...children);
}

function swatch(color) {
  return el("span", { class: `swatch c${color}`, "aria-hidden": "true" });
}
