// The connection to the server: reads an event stream, reports whether it is live, and comes back by itself.
//
// fetch, and not EventSource, because a token goes into a header: an address with a token in it would be kept in logs.

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 8000;
// The server sends a message every interval. After three without one the connection is dead, whatever the network says.
const MISSED_INTERVALS = 3;
const LEAST_SILENCE_MS = 2500;
const TOKEN = "lmerge.token";

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export class Live {
  #merge;
  #onEvent;
  #onState;
  #abort = null;
  #timer = 0;
  #watchdog = 0;
  #wait = FIRST_WAIT_MS;
  #interval = 1000;
  #stopped = false;

  /** `onEvent(name, data)`; `onState({state, text, retryAt})`: connecting, live, broken, refused. */
  constructor(merge, onEvent, onState) {
    this.#merge = merge;
    this.#onEvent = onEvent;
    this.#onState = onState;
  }

  start() {
    this.#stopped = false;
    this.#connect();
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#watchdog);
    this.#abort?.abort();
  }

  async #connect() {
    const abort = (this.#abort = new AbortController());
    const token = sessionStorage.getItem(TOKEN);
    const query = this.#merge === null ? "" : `?merge=${encodeURIComponent(this.#merge)}`;
    this.#watch(abort);
    try {
      const response = await fetch(`live${query}`, {
        signal: abort.signal,
        cache: "no-store",
        headers: token ? { Authorization: `Bearer ${token}` } : {},
      });
      if (!response.ok) {
        const text = (await response.text()).trim();
        if (this.#stopped) return;
        if (response.status === 401 || response.status === 403 || response.status === 400) {
          clearTimeout(this.#watchdog);
          if (response.status === 401) sessionStorage.removeItem(TOKEN);
          this.#onState({ state: "refused", status: response.status, text });
          return;
        }
        throw new Error(text || `the server answered ${response.status}`);
      }
      await this.#read(response.body, abort);
      throw new Error("the server has ended the stream");
    } catch (problem) {
      if (!this.#stopped && this.#abort === abort) this.#again(problem);
    }
  }

  async #read(body, abort) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const [head, data] = part.split("\n", 2);
        this.#take(head.slice("event: ".length), JSON.parse(data.slice("data: ".length)), abort);
      }
    }
  }

  #take(name, data, abort) {
    if (this.#stopped || abort.signal.aborted) return;
    this.#wait = FIRST_WAIT_MS;
    this.#interval = data?.interval_ms ?? this.#interval;
    this.#watch(abort);
    if (name !== "ended") this.#onState({ state: "live" });
    this.#onEvent(name, data);
  }

  #watch(abort) {
    clearTimeout(this.#watchdog);
    const silence = Math.max(LEAST_SILENCE_MS, MISSED_INTERVALS * this.#interval);
    this.#watchdog = setTimeout(() => abort.abort(new Error(`nothing has come for ${Math.round(silence / 1000)} s`)), silence);
  }

  #again(problem) {
    clearTimeout(this.#watchdog);
    // Half of the wait is random, so that many pages do not come back to a restarted server at once.
    const wait = this.#wait * (0.5 + Math.random() / 2);
    this.#wait = Math.min(LONGEST_WAIT_MS, this.#wait * 2);
    this.#onState({ state: "broken", text: problem.message, retryAt: Date.now() + wait });
    this.#timer = setTimeout(() => this.#connect(), wait);
  }
}
