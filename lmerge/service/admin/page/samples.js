// The samples of one merge: columns that grow with each message, and lose what is too old.

export class Samples {
  from = 0;
  at = [];
  out = [];
  pause = [];
  inputs = new Map();

  /** Take the history of a message: all of it, or the samples since the message before. */
  take(history, isWhole) {
    if (!history) {
      if (isWhole) this.#clear(0);
      return;
    }
    const next = this.from + this.at.length;
    if (isWhole || history.from > next || history.from < this.from) this.#clear(history.from);
    const known = this.from + this.at.length - history.from; // samples that came before already
    const fresh = history.at_ms.slice(known);
    for (const name of Object.keys(history.inputs)) {
      if (!this.inputs.has(name)) {
        const none = this.at.map(() => null);
        this.inputs.set(name, { won: [...none], received: [...none] });
      }
    }
    this.at.push(...fresh);
    this.out.push(...history.out.slice(known));
    this.pause.push(...history.pause_ms.slice(known));
    for (const [name, columns] of this.inputs) {
      const more = history.inputs[name];
      columns.won.push(...(more ? more.won.slice(known) : fresh.map(() => null)));
      columns.received.push(...(more ? more.in.slice(known) : fresh.map(() => null)));
    }
    this.#forget(Math.max(0, this.at.length - history.kept));
  }

  /** The names of the inputs, in an order that does not change while they are there. */
  get names() {
    return [...this.inputs.keys()].sort();
  }

  /** Each input's share of the output at a place, in the order of `names`; null if there was no output. */
  shares(place, names) {
    const won = names.map((name) => this.inputs.get(name).won[place] ?? 0);
    const sum = won.reduce((a, b) => a + b, 0);
    return sum > 0 ? won.map((value) => value / sum) : null;
  }

  /** The share of an input in the newest `count` samples; null if there was no output. */
  shareOf(name, count) {
    let own = 0;
    let sum = 0;
    for (const [other, columns] of this.inputs) {
      const won = columns.won.slice(-count).reduce((a, b) => a + (b ?? 0), 0);
      sum += won;
      if (other === name) own = won;
    }
    return sum > 0 ? own / sum : null;
  }

  longestPause(count) {
    const pauses = this.pause.slice(-count).filter((pause) => pause !== null);
    return pauses.length ? Math.max(...pauses) : null;
  }

  #clear(from) {
    this.from = from;
    this.at = [];
    this.out = [];
    this.pause = [];
    this.inputs.clear();
  }

  #forget(count) {
    if (!count) return;
    this.from += count;
    for (const column of [this.at, this.out, this.pause]) column.splice(0, count);
    for (const [name, columns] of this.inputs) {
      columns.won.splice(0, count);
      columns.received.splice(0, count);
      if (columns.received.every((value) => value === null) && columns.won.every((value) => value === null)) this.inputs.delete(name);
    }
  }
}
