// Values as people read them: numbers, durations, times of the clock, and times of a stream.

const NONE = "–";
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
// A stream's time is a number. Between these two, 2000 and 2100 in microseconds, it is shown as a time of the calendar.
const FROM_US = 946684800e6;
const TO_US = 4102444800e6;

export function count(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(value >= 1e5 ? 0 : 1)} k`;
  return Number.isInteger(value) ? String(value) : value.toFixed(value >= 10 ? 0 : 1);
}

export function rate(value) {
  return value === null || value === undefined ? NONE : `${count(value)}/s`;
}

export function bytes(value) {
  return value >= 1 << 20 ? `${(value / (1 << 20)).toFixed(1)} MiB` : value >= 1024 ? `${(value / 1024).toFixed(0)} KiB` : `${value} B`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(Math.floor(s % 60)).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A past moment from now. Whole seconds, so that the text does not change faster than it can be read. */
export function ago(ms, now) {
  if (ms === null || ms === undefined) return NONE;
  return now - ms < 1000 ? "now" : `${whole(now - ms)} ago`;
}

/** A duration in whole seconds at least. */
export function whole(ms) {
  return duration(Math.floor(ms / 1000) * 1000).replace(".0", "").replace("0 ms", "0 s");
}

export function time(ms) {
  return clock.format(ms);
}

export function isCalendar(text) {
  const value = Number(text);
  return value >= FROM_US && value <= TO_US;
}

/** A time of a stream: of the calendar in UTC where it can be one, else the number; the infinities by name. */
export function streamTime(text) {
  if (text === "inf") return "∞ (closed)";
  if (text === "-inf") return "none yet";
  return isCalendar(text) ? new Date(Number(text) / 1000).toISOString().slice(0, 19).replace("T", " ") : text;
}

/** A sentence of the server, with the times of a stream in it as times of the calendar. */
export function readable(text) {
  return text.replace(/(?<![\w.])\d{15,16}(?![\w.])/g, (digits) => (isCalendar(digits) ? `${streamTime(digits)} UTC` : digits));
}

/** A distance of stream times. `isTime`: the stream's times are microseconds. */
export function streamLag(text, isTime) {
  if (text === null || text === undefined) return NONE;
  if (text === "0") return "0";
  return isTime ? duration(Number(text) / 1000) : count(Number(text));
}

export function percent(share) {
  return share === null || Number.isNaN(share) ? NONE : `${Math.round(share * 100)} %`;
}

export function plural(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
