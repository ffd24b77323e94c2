// Shows the state of the server, live. The page reloads it from /v1/overview whenever a stream begins, so that events
// missed between two streams leave nothing stale.

const SHOWN_SECONDS = 60;
const SLOWEST_SECONDS = 1;
const MAX_PAUSE_MS = 5000;
const PROBLEMS_EVERY_MS = 10_000;

const state = { workloads: [], out: new Map(), traffic: [], story: [] };
const element = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function draw(kind, path) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", `0 0 ${SHOWN_SECONDS} 10`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(space, "path");
  shape.setAttribute("class", kind);
  shape.setAttribute("d", path);
  picture.append(shape);
  return picture;
}

function readings(workload, zone) {
  return state.traffic.map((sample) => sample.workloads[workload]?.[zone] ?? { requests: 0, faults: 0, latency: null });
}

function bars(values) {
  const first = SHOWN_SECONDS - values.length;
  return values
    .map((value, index) => (value ? `M${first + index} 10h.8v${-10 * value}h-.8z` : ""))
    .join("");
}

function line(values) {
  const first = SHOWN_SECONDS - values.length;
  let pen = "M";
  return values
    .map((value, index) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const step = `${pen}${first + index} ${10 - 10 * Math.min(value / SLOWEST_SECONDS, 1)}`;
      pen = "L";
      return step;
    })
    .join("");
}

function zoneCard(workload, zone) {
  const recent = readings(workload, zone);
  const last = recent.slice(-5);
  const requests = last.reduce((sum, reading) => sum + reading.requests, 0);
  const faults = last.reduce((sum, reading) => sum + reading.faults, 0);
  const latencies = last.map((reading) => reading.latency).filter((value) => value !== null);
  const latency = latencies.length ? Math.max(...latencies) : null;
  const status = state.out.get(`${zone} ${workload}`) ?? state.out.get(`${zone} `);
  const shares = recent.map((reading) => (reading.requests ? reading.faults / reading.requests : 0));
  return make(
    "article",
    { className: status ? "zone out" : "zone" },
    make("header", {}, make("h3", { textContent: zone }), make("span", { className: "badge", textContent: status ? status.state : "in" })),
    make("p", { textContent: status ? `since ${clock(status.since)}, by ${status.by}` : "" }),
    make(
      "dl",
      {},
      make("dt", { textContent: "failures" }),
      make("dd", {}, draw("failures", bars(shares))),
      make("dd", { className: "figure", textContent: requests ? `${((100 * faults) / requests).toFixed(1)} %` : "–" }),
      make("dt", { textContent: "latency p90" }),
      make("dd", {}, draw("latency", line(recent.map((reading) => reading.latency)))),
      make("dd", { className: "figure", textContent: latency === null ? "–" : `${Math.round(latency * 1000)} ms` }),
      make("dt", { textContent: "requests" }),
      make("dd"),
      make("dd", { className: "figure", textContent: `${(requests / Math.max(last.length, 1)).toFixed(0)} /s` }),
    ),
  );
}

function show() {
  element("workloads").replaceChildren(
    ...state.workloads.map((workload) =>
      make(
        "div",
        {},
        make("h2", { textContent: `${workload.name} in ${workload.region}` }),
        make("div", { className: "zones" }, ...workload.zones.map((zone) => zoneCard(workload.name, zone))),
      ),
    ),
  );
}

function showStory() {
  element("quiet").hidden = state.story.length > 0;
  element("story").replaceChildren(
    ...state.story.map((entry) =>
      make("li", { className: entry.kind }, make("time", { textContent: clock(entry.at) }), entry.text),
    ),
  );
}

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString();
}

function addEntry(key, kind, at, text) {
  if (state.story.some((entry) => entry.key === key)) return;
  state.story.unshift({ key, kind, at, text });
  state.story.length = Math.min(state.story.length, 50);
  showStory();
}

function describe(verdict) {
  return verdict.zone ? `Verdict: ${verdict.kind} impact in ${verdict.zone}` : `Verdict: ${verdict.kind} impact`;
}

function statusKey(status) {
  return `${status.zone} ${status.workload} ${status.version}`;
}

function applyStatus(status) {
  const key = `${status.zone} ${status.workload ?? ""}`;
  if (status.state === "in") state.out.delete(key);
  else state.out.set(key, status);
}

const handlers = {
  traffic(sample) {
    if (state.traffic.length && sample.at <= state.traffic.at(-1).at) return;
    state.traffic.push(sample);
    state.traffic = state.traffic.slice(-SHOWN_SECONDS);
    show();
  },
  verdict({ verdict, at, closed }) {
    addEntry(`${verdict.id} ${closed}`, "verdict", at, closed ? `${describe(verdict)}, closed` : describe(verdict));
  },
  status(status) {
    applyStatus(status);
    addEntry(statusKey(status), "status", status.since, `Zone ${status.zone} is ${status.state}: ${status.reason}`);
    show();
  },
};

async function request(path, options = {}) {
  const token = sessionStorage.getItem("credential");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, ...options });
  if (response.status === 401 || response.status === 403) {
    const problem = await response.json();
    throw Object.assign(new Error(problem.detail), { refused: true });
  }
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response;
}

async function loadOverview() {
  const overview = await (await request("/v1/overview")).json();
  state.workloads = overview.workloads;
  state.traffic = overview.traffic.slice(-SHOWN_SECONDS);
  state.out.clear();
  overview.statuses.forEach(applyStatus);
  state.story = [
    ...overview.verdicts.map((verdict) => ({
      key: `${verdict.id} false`,
      kind: "verdict",
      at: verdict.opened_at,
      text: describe(verdict),
    })),
    ...overview.verdicts
      .filter((verdict) => verdict.closed_at !== null)
      .map((verdict) => ({
        key: `${verdict.id} true`,
        kind: "verdict",
        at: verdict.closed_at,
        text: `${describe(verdict)}, closed`,
      })),
    ...overview.statuses.map((status) => ({
      key: statusKey(status),
      kind: "status",
      at: status.since,
      text: `Zone ${status.zone} is ${status.state}: ${status.reason}`,
    })),
  ].sort((one, other) => other.at - one.at);
  show();
  showStory();
}

// Reads the stream itself, because EventSource cannot send a credential.
async function listen(onLive) {
  const response = await request("/v1/events");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((row) => row.split(/: (.*)/s).slice(0, 2)));
      if (fields.event === "hello") {
        await Promise.all([loadOverview(), showProblems()]);
        onLive();
        showConnection("live");
      } else if (fields.event in handlers) {
        handlers[fields.event](JSON.parse(fields.data));
      }
    }
  }
}

// Parts of the server that do not work. A failed check says why the whole server is not ready.
async function showProblems() {
  let problems = [];
  try {
    const answer = await (await fetch("/ready")).json();
    problems = Object.entries(answer.problems ?? (answer.detail ? { server: answer.title } : {}));
  } catch {
    // the connection is lost, which is shown already
  }
  element("problems").replaceChildren(
    ...problems.map(([part, reason]) => Object.assign(document.createElement("li"), { textContent: `${part} unavailable: ${reason}; see the server's log` })),
  );
  element("problems").hidden = problems.length === 0;
}

function showConnection(status) {
  element("connection").className = status;
  element("connection").textContent = { live: "live", lost: "no connection to the server; trying again" }[status] ?? status;
}

async function follow() {
  let pause = 250;
  for (;;) {
    try {
      element("credential").hidden = true;
      await listen(() => (pause = 250));
    } catch (error) {
      if (error.refused) {
        const given = sessionStorage.getItem("credential");
        showConnection("a credential is needed");
        element("refusal").textContent = given ? error.message : "";
        element("credential").hidden = false;
        await new Promise((resolve) => (element("credential").onsubmit = (event) => (event.preventDefault(), resolve())));
        sessionStorage.setItem("credential", element("token").value.trim());
        continue;
      }
    }
    showConnection("lost");
    await new Promise((resolve) => setTimeout(resolve, pause * (0.5 + Math.random() / 2)));
    pause = Math.min(pause * 2, MAX_PAUSE_MS);
  }
}

setInterval(showProblems, PROBLEMS_EVERY_MS);
follow();
