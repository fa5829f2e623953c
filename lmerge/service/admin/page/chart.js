// Charts of the last minutes: a stacked band of shares, and lines with bars. All charts of a view have one moment, which
// the pointer or the arrow keys choose, and a table with the same values stands behind each.

import { el, set, show, svg } from "./dom.js";
import { time } from "./format.js";

export const COLORS = 8;
const HEIGHT = { band: 150, line: 84 };
const LEFT = 46;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 18;

/** One moment for several charts: the place of a sample, or null for none. */
export class Moment {
  #listeners = [];
  place = null;

  listen(listener) {
    this.#listeners.push(listener);
  }

  choose(place) {
    if (place === this.place) return;
    this.place = place;
    for (const listener of this.#listeners) listener();
  }
}

/** A chart. `kind`: band or line. `textAt(place)`: the values at a place, as text. */
export class Chart {
  #svg;
  #plot = svg("g");
  #axis = svg("g", { class: "axis" });
  #marks = svg("g", { class: "marks" });
  #cursor = svg("line", { class: "cursor", visibility: "hidden" });
  #readout = el("p", { class: "readout", "aria-hidden": "true" });
  #slider;
  #kind;
  #moment;
  #textAt;
  #at = [];
  #width = 600;
  #from = 0;
  #to = 1;
  #draw = () => {};

  constructor(title, kind, moment, textAt, extra = []) {
    this.#kind = kind;
    this.#moment = moment;
    this.#textAt = textAt;
    this.#svg = svg("svg", { "aria-hidden": "true", height: HEIGHT[kind] }, this.#axis, this.#plot, this.#marks, this.#cursor);
    this.#slider = el(
      "div",
      {
        class: "plot",
        role: "slider",
        tabindex: "0",
        "aria-label": `${title}: moment`,
        "aria-valuemin": 0,
        keydown: (event) => this.#key(event),
        pointermove: (event) => this.#point(event),
        pointerleave: () => this.#moment.choose(null),
      },
      this.#svg,
    );
    this.node = el("figure", {}, el("figcaption", {}, el("h3", {}, title), this.#readout), this.#slider, ...extra);
    moment.listen(() => this.#showMoment());
    new ResizeObserver(([entry]) => {
      this.#width = Math.max(120, Math.round(entry.contentRect.width));
      this.#redraw();
    }).observe(this.#slider);
  }

  /** Show samples. `at`: their times. `marks`: [{at, tone, text}]. `draw(plot, x, y)`: draws the values. */
  show(at, windowMs, marks, ticks, draw) {
    this.#at = at;
    this.#to = at.length ? at[at.length - 1] : 1;
    this.#from = this.#to - windowMs;
    this.#draw = () => {
      const height = HEIGHT[this.#kind] - TOP - BOTTOM;
      const x = (ms) => LEFT + ((ms - this.#from) / (this.#to - this.#from)) * (this.#width - LEFT - RIGHT);
      const y = (part) => TOP + (1 - part) * height;
      this.#axis.replaceChildren(...this.#axes(x, y, ticks));
      this.#plot.replaceChildren(...draw(x, y));
      this.#marks.replaceChildren(
        ...marks.filter((mark) => mark.at >= this.#from).map((mark) => markLine(x(mark.at), mark, HEIGHT[this.#kind])),
      );
    };
    this.#redraw();
  }

  #redraw() {
    set(this.#svg, { width: this.#width, viewBox: `0 0 ${this.#width} ${HEIGHT[this.#kind]}` });
    this.#draw();
    this.#showMoment();
  }

  #axes(x, y, ticks) {
    const nodes = ticks.flatMap(([part, text]) => [
      svg("line", { class: "grid", x1: LEFT, x2: this.#width - RIGHT, y1: y(part), y2: y(part) }),
      svg("text", { x: LEFT - 6, y: y(part) + 4, "text-anchor": "end" }, text),
    ]);
    const step = (this.#to - this.#from) / (this.#width < 400 ? 3 : 5);
    const base = HEIGHT[this.#kind] - 4;
    for (let ms = this.#to; ms > this.#from + step / 2; ms -= step) {
      const isLast = ms === this.#to;
      nodes.push(svg("text", { x: isLast ? this.#width - RIGHT : x(ms), y: base, "text-anchor": isLast ? "end" : "middle" }, time(ms)));
    }
    return nodes;
  }

  #showMoment() {
    const last = this.#at.length - 1;
    const place = this.#moment.place === null ? null : Math.min(this.#moment.place, last);
    const shown = place ?? last;
    const text = last < 0 ? "no samples yet" : `${time(this.#at[shown])}: ${this.#textAt(shown)}`;
    set(this.#slider, { "aria-valuemax": Math.max(0, last), "aria-valuenow": Math.max(0, shown), "aria-valuetext": text });
    show(this.#readout, last < 0 ? "" : text);
    if (place === null || place < 0) {
      set(this.#cursor, { visibility: "hidden" });
      return;
    }
    const x = LEFT + ((this.#at[place] - this.#from) / (this.#to - this.#from)) * (this.#width - LEFT - RIGHT);
    set(this.#cursor, { visibility: "visible", x1: x, x2: x, y1: TOP, y2: HEIGHT[this.#kind] - BOTTOM });
  }

  #key(event) {
    const last = this.#at.length - 1;
    const place = this.#moment.place ?? last;
    const to = {
      ArrowLeft: place - 1,
      ArrowDown: place - 1,
      ArrowRight: place + 1,
      ArrowUp: place + 1,
      PageDown: place - 10,
      PageUp: place + 10,
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === "Escape") this.#moment.choose(null);
    else if (to === undefined) return;
    else this.#moment.choose(Math.max(0, Math.min(last, to)));
    event.preventDefault();
  }

  #point(event) {
    if (!this.#at.length) return;
    const part = (event.clientX - this.#slider.getBoundingClientRect().left - LEFT) / (this.#width - LEFT - RIGHT);
    const ms = this.#from + part * (this.#to - this.#from);
    let nearest = 0;
    for (let place = 1; place < this.#at.length; place += 1) {
      if (Math.abs(this.#at[place] - ms) < Math.abs(this.#at[nearest] - ms)) nearest = place;
    }
    this.#moment.choose(nearest);
  }
}

function markLine(x, mark, height) {
  return svg(
    "g",
    { "data-tone": mark.tone },
    svg("line", { x1: x, x2: x, y1: TOP - 4, y2: height - BOTTOM }),
    svg("circle", { cx: x, cy: TOP - 4, r: 3 }),
    svg("title", {}, mark.text),
  );
}

/** The areas of a stacked band. `parts[place]`: null where there is no output, else a share for each name, in order. */
export function bands(at, parts, names, colorOf, x, y) {
  const runs = [];
  parts.forEach((part, place) => {
    if (!part) return;
    const run = runs[runs.length - 1];
    if (run && run[run.length - 1] === place - 1) run.push(place);
    else runs.push([place]);
  });
  return runs.flatMap((run) => {
    let below = run.map(() => 0);
    return names.map((name, series) => {
      const above = run.map((place, k) => below[k] + parts[place][series]);
      const half = run.length === 1 ? 500 : 0; // a single sample is as wide as its second
      const edge = (values, k, shift) => `${(x(at[run[k]] + shift)).toFixed(1)},${y(values[k]).toFixed(1)}`;
      const there = run.flatMap((_, k) => (half ? [edge(above, k, -half), edge(above, k, half)] : [edge(above, k, 0)]));
      const back = run.flatMap((_, k) => (half ? [edge(below, k, -half), edge(below, k, half)] : [edge(below, k, 0)])).reverse();
      below = above;
      return svg("polygon", { class: `band c${colorOf(name)}`, points: [...there, ...back].join(" ") });
    });
  });
}

/** A line through values, broken where there is none. */
export function line(at, values, top, x, y) {
  let path = "";
  let isDrawing = false;
  values.forEach((value, place) => {
    if (value === null) {
      isDrawing = false;
      return;
    }
    path += `${isDrawing ? "L" : "M"}${x(at[place]).toFixed(1)},${y(Math.min(1, value / top)).toFixed(1)}`;
    isDrawing = true;
  });
  return path ? [svg("path", { class: "line", d: path })] : [];
}

/** Bars for values, one for each sample. */
export function bars(at, values, top, x, y, toneOf) {
  const width = at.length > 1 ? Math.max(1, x(at[1]) - x(at[0]) - 0.5) : 2;
  return values.flatMap((value, place) => {
    if (!value) return [];
    const above = y(Math.min(1, value / top));
    return [svg("rect", { class: "bar", "data-tone": toneOf(value), x: x(at[place]) - width, y: above, width, height: Math.max(1, y(0) - above) })];
  });
}

/** The least round number that is not below a value: 1, 2 or 5 times a power of ten. */
export function roundTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((top) => top >= value);
}
