// Shows the state of the server, live. The page reloads it from /v1/overview whenever a stream begins, so that events
// missed between two streams leave nothing stale.

const SHOWN_SECONDS = 60;
const SLOWEST_SECONDS = 1;
const MAX_PAUSE_MS = 5000;
const PROBLEMS_EVERY_MS = 10_000;

const state = {
  workloads: [], out: new Map(), verdicts: new Map(), deploys: new Map(), current: new Map(), alarms: new Map(), traffic: [], story: [],
  binSeconds: 10, isOperator: false, alarmProblem: null,
};
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

// Returns the share of requests as text.
function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

function milliseconds(seconds) {
  return `${Math.round(seconds * 1000)} ms`;
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

// Sums the latest samples, as many as the detector judges together if that is 5 to 60 s.
function measure(recent) {
  const seconds = Math.min(SHOWN_SECONDS, Math.max(5, Math.round(state.binSeconds)));
  const last = recent.slice(-seconds);
  const sum = (value) => last.reduce((total, reading) => total + value(reading), 0);
  const requests = sum((reading) => reading.requests);
  const successes = sum((reading) => (reading.latency === null ? 0 : reading.requests - reading.faults));
  const slowness = sum((reading) => (reading.latency === null ? 0 : reading.latency * (reading.requests - reading.faults)));
  return {
    seconds,
    requests,
    share: requests ? sum((reading) => reading.faults) / requests : 0,
    latency: successes ? slowness / successes : null,
    rate: requests / Math.max(last.length, 1),
  };
}

function statusOf(workload, zone) {
  return state.out.get(`${zone} ${workload}`) ?? state.out.get(`${zone} `);
}

function openVerdicts() {
  return [...state.verdicts.values()].filter((verdict) => verdict.closed_at === null);
}

// Returns the state of a zone as a class, a word, and the reason in words.
function judge(workload, zone, measured) {
  const status = statusOf(workload.name, zone);
  if (status) {
    const end = status.expires === null ? "" : `, until ${when(status.expires)}`;
    return ["out", status.state, `since ${when(status.since)}${end}, by ${status.by}: ${status.reason}`];
  }
  const { max_fault_rate: maxShare, max_latency: maxLatency, min_requests: perBin = 1 } = workload.detector;
  if (maxShare === undefined && maxLatency === undefined) {
    return judgeByVerdict(workload, zone, measured);
  }
  const needed = Math.max(1, Math.ceil((perBin * measured.seconds) / state.binSeconds));
  if (measured.requests < needed) {
    const found = measured.requests ? `only ${measured.requests} requests` : "no requests";
    const wanted = `${needed} ${needed === 1 ? "is" : "are"} needed to judge the zone`;
    return ["unknown", "no data", `${found} in the last ${measured.seconds} s; ${wanted}`];
  }
  const causes = [];
  if (measured.share >= maxShare) causes.push(`${percent(measured.share)} of requests fail (threshold ${percent(maxShare)})`);
  if (measured.latency !== null && measured.latency >= maxLatency) {
    causes.push(`latency ${milliseconds(measured.latency)} (threshold ${milliseconds(maxLatency)})`);
  }
  const isJudged = openVerdicts().some((verdict) => verdict.workload === workload.name && [zone, null].includes(verdict.zone));
  if (causes.length) return ["above", "above its threshold", causes.join(", ") + (isJudged ? "" : "; not judged yet")];
  return ["healthy", "healthy", "below its thresholds"];
}

// Returns the same for a detector without fixed thresholds: what the verdict of the latest window says about the zone.
function judgeByVerdict(workload, zone, measured) {
  const verdict = state.current.get(workload.name);
  const kind = verdict?.kind ?? "unknown";
  if (kind === "unknown" && [zone, null].includes(verdict?.zone ?? null)) {
    return ["unknown", "not judged", verdict?.summary ?? "there is no verdict yet"];
  }
  // A shared resource is to blame, not a zone, even the one that has the resource.
  if (kind === "shared") return ["unknown", kind, `${verdict.resource}, which the zones share, fails; no zone is to blame`];
  // Only the sentence of the verdict has the names of the zones.
  if (kind === "regional") return ["above", kind, "several zones are worse than usual; the verdict names them"];
  if (verdict.zone === zone) return ["above", kind, verdict.summary];
  if (!measured.requests) return ["unknown", "no data", `no requests in the last ${measured.seconds} s`];
  return ["healthy", "healthy", "not worse than usual, nor than the other zones"];
}

const cards = [];

// Makes the card of a zone once: a card that is made again every second would lose clicks and the keyboard focus.
function zoneCard(workload, zone) {
  const badge = make("span", { className: "badge" });
  const cause = make("p");
  const figures = make("dl");
  const button = make("button", { type: "button" });
  const card = make("article", {}, make("header", {}, make("h3", { textContent: zone }), badge), cause, figures, button);
  button.onclick = () => askForChange(zone, workload.name);
  cards.push(() => {
    const recent = readings(workload.name, zone);
    const measured = measure(recent);
    const [kind, word, reason] = judge(workload, zone, measured);
    const shares = recent.map((reading) => (reading.requests ? reading.faults / reading.requests : 0));
    card.className = `zone ${kind}`;
    badge.textContent = word;
    cause.textContent = reason;
    button.hidden = !state.isOperator;
    button.textContent = nextChange(zone, workload.name).label;
    figures.replaceChildren(
      make("dt", { textContent: "failures" }),
      make("dd", {}, draw("failures", bars(shares))),
      make("dd", { className: "figure", textContent: measured.requests ? percent(measured.share) : "–" }),
      make("dt", { textContent: "latency p90" }),
      make("dd", {}, draw("latency", line(recent.map((reading) => reading.latency)))),
      make("dd", { className: "figure", textContent: measured.latency === null ? "–" : milliseconds(measured.latency) }),
      make("dt", { textContent: "requests" }),
      make("dd"),
      make("dd", { className: "figure", textContent: `${measured.rate.toFixed(0)} /s` }),
    );
  });
  return card;
}

// The verdict of the latest window in words. Without enough data it is unknown, not healthy.
function currentVerdict(workload) {
  const line = make("p", { className: "current" });
  cards.push(() => {
    const verdict = state.current.get(workload.name);
    const kind = verdict?.kind ?? "unknown";
    const reason = kind === "healthy" || !verdict ? "" : `: ${verdict.summary}`;
    line.textContent = `Verdict of detection: ${kind}${reason}.`;
  });
  return line;
}

// The announced deploys that are running: they may explain failures.
function runningDeploys(workload) {
  const line = make("p", { className: "deploys" });
  cards.push(() => {
    const now = Date.now() / 1000;
    const running = [...state.deploys.values()].filter(
      (deploy) => deploy.workload === workload.name && deploy.ended_at === null && deploy.expires_at > now,
    );
    line.hidden = running.length === 0;
    const words = running.map(
      (deploy) => `${deploy.zone ?? "all zones"} since ${when(deploy.started_at)}, by ${deploy.by}${deploy.note ? `: ${deploy.note}` : ""}`,
    );
    line.textContent = `Deploy running: ${words.join("; ")}.`;
  });
  return line;
}

// Lists the alarms of a workload that are in ALARM, those that conclude about a zone or a resource first. Alarms about
// single operations are not among them: there may be thousands.
const alarmLists = [];

function alarmList(workload) {
  const list = make("ul", { className: "alarms", ariaLabel: `Alarms of ${workload.name}`, ariaLive: "polite" });
  const note = make("p", { className: "current" });
  alarmLists.push(() => {
    const found = [...(state.alarms.get(workload.name)?.values() ?? [])];
    found.sort((one, other) => other.has_actions - one.has_actions || one.name.localeCompare(other.name));
    const words = found.length ? "Alarms, which advise and take no zone out:" : "Alarms: none is in ALARM.";
    note.textContent = state.alarmProblem === null ? words : `Alarms: unknown, because ${state.alarmProblem}`;
    list.replaceChildren(
      ...found.map((alarm) =>
        make(
          "li",
          { className: alarm.has_actions ? "concluding" : "" },
          make("strong", { textContent: alarm.name }),
          ` since ${when(alarm.since)}. ${alarm.description}`,
        ),
      ),
    );
  });
  return [note, list];
}

function build() {
  alarmLists.length = 0;
  cards.length = 0;
  element("unconfigured").hidden = state.workloads.length > 0;
  element("workloads").replaceChildren(
    ...state.workloads.map((workload) =>
      make(
        "div",
        {},
        make("h2", { textContent: `${workload.name} in ${workload.region}` }),
        currentVerdict(workload),
        runningDeploys(workload),
        make("div", { className: "zones" }, ...workload.zones.map((zone) => zoneCard(workload, zone))),
        ...alarmList(workload),
      ),
    ),
  );
}

function show() {
  cards.forEach((update) => update());
}

// The change that an operator can make: bring a zone in that is out, take it out otherwise. The button changes only the
// status; the command moves resources, too. Statuses that an evacuation wrote have the id of its run, `hf-...`.
function nextChange(zone, workload) {
  const status = statusOf(workload, zone);
  const scope = status && status.workload === null ? null : workload;
  const wanted = status ? "in" : "out";
  const action = status?.by.startsWith("hf-") ? "restore" : status ? "in" : "evacuate";
  const reason = action === "restore" ? [] : ["--reason", '"..."'];
  const words = ["holdfast", "zone", action, zone, ...(scope ? ["--workload", scope] : []), ...reason];
  return {
    scope,
    wanted,
    label: wanted === "in" ? `Bring ${zone} in` : `Take ${zone} out`,
    command: [...words, "--server", location.origin].join(" "),
  };
}

function askForChange(zone, workload) {
  const { scope, wanted, label } = nextChange(zone, workload);
  const effect = wanted === "in" ? "It gets traffic again." : "It gets no new traffic, and the other zones must carry it.";
  element("question").textContent = `${label} for ${scope ?? "all workloads"}? ${effect}`;
  element("confirm").textContent = label;
  element("failure").textContent = "";
  element("reason").value = "";
  element("cancel").onclick = () => element("change").close();
  element("decision").onsubmit = async (event) => {
    event.preventDefault();
    const body = JSON.stringify({ state: wanted, reason: element("reason").value });
    try {
      await request(`/v1/zones/${zone}${scope ? `/${scope}` : ""}`, { method: "PUT", body });
      element("change").close();
    } catch (error) {
      element("failure").textContent = error.message;
    }
  };
  element("change").showModal();
}

// What to do after a verdict: a sentence, and whether a change of the zone is part of it.
function advise(verdict) {
  const isOut = statusOf(verdict.workload, verdict.zone) !== undefined;
  if (verdict.kind === "isolated" && isOut) return [`${verdict.zone} is out. When it is healthy again, bring it back:`, true];
  if (verdict.kind === "isolated") {
    return [`${verdict.zone} is still in. If the other zones can carry its traffic, evacuate it:`, true];
  }
  if (verdict.kind === "instance") return [`replace the failing instances in ${verdict.zone}; the zone can stay in.`, false];
  if (verdict.kind === "shared") return [`look at ${verdict.resource}, which the zones share; taking a zone out does not help.`, false];
  if (verdict.kind === "regional") {
    return ["look for a cause that the zones share, such as a deployment or a database; taking a zone out does not help.", false];
  }
  return ["check the traffic of the other zones: none has enough of it to be called healthy, so none can take over.", false];
}

function showVerdicts() {
  element("verdicts").replaceChildren(
    ...openVerdicts().map((verdict) => {
      const [advice, canChange] = advise(verdict);
      const panel = make(
        "div",
        { className: "open-verdict" },
        make("h2", { textContent: `${verdict.workload}: ${describe(verdict)}` }),
        make("p", { textContent: `Why: ${verdict.summary}.` }),
        make("p", { textContent: `What to do: ${advice}` }),
      );
      if (!canChange) return panel;
      const { label, command } = nextChange(verdict.zone, verdict.workload);
      panel.append(make("p", {}, make("code", { textContent: command })));
      if (state.isOperator) {
        const onclick = () => askForChange(verdict.zone, verdict.workload);
        panel.append(make("button", { type: "button", textContent: label, onclick }));
      }
      return panel;
    }),
  );
}

function showStory() {
  element("quiet").hidden = state.story.length > 0;
  element("story").replaceChildren(
    ...state.story.map((entry) =>
      make(
        "li",
        { className: entry.kind },
        make("time", { textContent: when(entry.at), dateTime: new Date(entry.at * 1000).toISOString() }),
        entry.text,
      ),
    ),
  );
}

// The date, the time and the time zone: an operator may look at it on another day, and from another country.
function when(at) {
  return new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "long" });
}

function addEntry(key, kind, at, text) {
  if (state.story.some((entry) => entry.key === key)) return;
  state.story.push({ key, kind, at, text });
  state.story.sort((one, other) => other.at - one.at);
  state.story.length = Math.min(state.story.length, 50);
}

function describe(verdict) {
  return verdict.zone ? `${verdict.kind} impact in ${verdict.zone}` : `${verdict.kind} impact`;
}

function applyVerdict(verdict) {
  state.verdicts.set(verdict.id, verdict);
  const text = `Verdict: ${describe(verdict)}. Why: ${verdict.summary}`;
  addEntry(`${verdict.id} opened`, "verdict", verdict.opened_at, text);
  if (verdict.closed_at !== null) {
    addEntry(`${verdict.id} closed`, "verdict", verdict.closed_at, `Verdict closed: ${describe(verdict)}`);
  }
}

function applyStatus(status) {
  const key = `${status.zone} ${status.workload ?? ""}`;
  if (status.state === "in") state.out.delete(key);
  else state.out.set(key, status);
  const text = `Zone ${status.zone} is ${status.state} for ${status.workload ?? "all workloads"}: ${status.reason}`;
  addEntry(`${key} ${status.version}`, "status", status.since, text);
}

const handlers = {
  traffic(sample) {
    if (state.traffic.length && sample.at <= state.traffic.at(-1).at) return;
    state.traffic.push(sample);
    state.traffic = state.traffic.slice(-SHOWN_SECONDS);
    show();
  },
  verdict({ verdict, at, is_closed: isClosed }) {
    const openedAt = state.verdicts.get(verdict.id)?.opened_at ?? at;
    applyVerdict({ ...verdict, opened_at: openedAt, closed_at: isClosed ? at : null });
    showAll();
  },
  alarms({ workload, changes }) {
    const known = state.alarms.get(workload) ?? new Map();
    state.alarms.set(workload, known);
    for (const change of changes) {
      if (change.new === "ALARM") known.set(change.name, change);
      else known.delete(change.name);
    }
    showAlarms();
  },
  current({ verdict }) {
    state.current.set(verdict.workload, verdict);
    show();
  },
  deploy(deploy) {
    state.deploys.set(deploy.id, deploy);
    show();
  },
  status(status) {
    applyStatus(status);
    showAll();
  },
};

// Not with every sample of traffic: a screen reader would read the alarms again.
function showAlarms() {
  alarmLists.forEach((update) => update());
}

function showAll() {
  show();
  showAlarms();
  showVerdicts();
  showStory();
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem("credential");
  const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { headers, ...options });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    const refused = response.status === 401 || response.status === 403;
    throw Object.assign(new Error(problem.detail ?? `${path} answered ${response.status}`), { refused });
  }
  return response;
}

// Returns the alarms of all workloads. Without them, the page still shows the zones.
async function loadAlarms() {
  try {
    const found = await (await request("/v1/alarms")).json();
    state.alarmProblem = null;
    return found;
  } catch (error) {
    if (error.refused) throw error;
    state.alarmProblem = error.message;
    return [];
  }
}

async function loadOverview() {
  const overview = await (await request("/v1/overview")).json();
  const caller = await (await request("/v1/whoami")).json();
  const alarms = await loadAlarms();
  state.isOperator = caller.role === "operator";
  state.workloads = overview.workloads;
  state.binSeconds = overview.bin_seconds;
  state.current = new Map(Object.entries(overview.current_verdicts));
  state.alarms = new Map(
    alarms.map((each) => {
      const shown = each.alarms.filter((alarm) => alarm.state === "ALARM" && !alarm.is_about_operation);
      return [each.workload, new Map(shown.map((alarm) => [alarm.name, alarm]))];
    }),
  );
  state.traffic = overview.traffic.slice(-SHOWN_SECONDS);
  state.deploys = new Map(overview.deploys.map((deploy) => [deploy.id, deploy]));
  state.out.clear();
  state.verdicts.clear();
  state.story = [];
  overview.verdicts.forEach(applyVerdict);
  overview.statuses.forEach(applyStatus);
  build();
  showAll();
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
