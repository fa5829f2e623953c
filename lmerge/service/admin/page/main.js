// The page: which view is shown, whether it is live, and what is announced.

import { el, set, show } from "./dom.js";
import { duration, plural, time } from "./format.js";
import { Live, keepToken } from "./live.js";
import { MergeView } from "./merge.js";
import { MergesView } from "./merges.js";

const main = document.getElementById("main");
const pill = document.getElementById("live");
const pillText = document.getElementById("live-text");
const pillNext = document.getElementById("live-next");
const why = document.getElementById("why");
const announcer = document.getElementById("announcer");
// A screen reader reads what is added; older lines are only weight.
const ANNOUNCED_MAX = 20;

let live = null;
let lastAt = null;
let broken = null;

function route() {
  const match = /^#\/merge\/(.+)$/.exec(location.hash);
  if (!match) return null;
  try {
    return decodeURIComponent(match[1]);
  } catch {
    return match[1];
  }
}

function open(isFirst) {
  live?.stop();
  const merge = route();
  const view = merge === null ? new MergesView() : new MergeView(merge, announce);
  document.title = merge === null ? "Merges · lmerge" : `${merge} · lmerge`;
  main.replaceChildren(view.node);
  if (!isFirst) view.title.focus();
  setState({ state: "connecting" });
  live = new Live(
    merge,
    (name, data) => {
      if (name === "ended") {
        refuse({ status: 401, text: data.reason });
        return;
      }
      lastAt = Date.now();
      if (data?.server) showServer(data.server);
      view.take(name, data);
    },
    setState,
  );
  live.start();
}

function setState(state) {
  if (state.state === "refused") {
    refuse(state);
    return;
  }
  broken = state.state === "broken" ? state : null;
  set(pill, { "data-state": state.state });
  why.hidden = broken === null;
  show(why, broken ? broken.text : "");
  set(main, { "data-stale": broken !== null });
  const since = lastAt === null ? "no data yet" : `last data ${time(lastAt)}`;
  show(pillText, state.state === "live" ? "Live" : state.state === "connecting" ? "Connecting" : `Not live: ${since}`);
  count();
}

function count() {
  show(pillNext, broken ? ` · again in ${Math.max(0, Math.ceil((broken.retryAt - Date.now()) / 1000))} s` : "");
}

function refuse({ status, text }) {
  live?.stop();
  broken = null;
  set(pill, { "data-state": "refused" });
  why.hidden = true;
  show(pillText, "Not live: refused");
  show(pillNext, "");
  set(main, { "data-stale": true });
  main.querySelector(".door")?.remove();
  const input = el("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: "" });
  const submit = (event) => {
    event.preventDefault();
    keepToken(input.value.trim());
    open(false);
  };
  const form = el(
    "form",
    { submit },
    el("label", { for: "token" }, "Token with the role status or admin for every merge"),
    el("div", { class: "line" }, input, el("button", {}, "Open")),
    el("p", { class: "quiet" }, "It is kept in this tab only, and sent to this server only."),
  );
  const heading = status === 401 ? "This server identifies its callers" : "The server has refused";
  const door = el("section", { class: "door", role: "alert" }, el("h2", {}, heading), el("p", {}, text), status === 400 ? null : form);
  main.prepend(door);
  if (status !== 400) input.focus();
}

function showServer(server) {
  const parts = [location.host, `${server.version}, ${server.engine}`, `up ${duration(server.uptime_s * 1000)}`];
  parts.push(plural(server.viewers, "viewer"));
  show(document.getElementById("server"), parts.join(" · ") + (server.not_ready ? ` · not ready: ${server.not_ready}` : ""));
}

function announce(text) {
  announcer.append(el("p", {}, text));
  while (announcer.childElementCount > ANNOUNCED_MAX) announcer.firstChild.remove();
}

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  open(false);
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
setInterval(count, 1000);
open(true);
