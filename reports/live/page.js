"use strict";
// Every text of an object becomes a text node; nothing is ever parsed as markup.
const base = location.pathname.replace(/\/?$/, "/");
const tables = {};
const by = id => document.getElementById(id);
const names = new Intl.Collator("en", {numeric: true});
const DRAWN = 200; // rows of one list; more make the page slow and are not read
const PERCENT = 100;

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name.includes("-") || name === "role" || name === "scope") node.setAttribute(name, value);
    else node[name] = value;
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
const rows = name => [...(tables[name] ?? new Map())];
const number = value => value.toLocaleString("en");
const percent = value => `${Math.round(value * 10) / 10} %`;
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
const clock = at => at ? new Date(at).toLocaleTimeString("en-GB") : "";
const button = (text, action) => element("button", {className: "link", type: "button", onclick: action}, text);

// --- lists: an element stays as long as its row stays, so that focus and scrolling do -----------------------------

function arrange(list, elements) {
  const stay = new Set(elements);
  for (const child of [...list.children]) if (!stay.has(child)) child.remove(); // first: an element that moves loses the focus
  elements.forEach((each, place) => {
    if (list.children[place] !== each) list.insertBefore(each, list.children[place] ?? null);
  });
}
function redraw(list, entries, build) {
  const before = new Map([...list.children].map(child => [child.entryKey, child]));
  arrange(list, entries.map(([key, row]) => {
    const old = before.get(key);
    if (old?.entryRow === row) return old;
    const fresh = build(key, row);
    fresh.entryKey = key;
    fresh.entryRow = row;
    if (old?.contains(document.activeElement)) {
      const place = [...old.querySelectorAll("button")].indexOf(document.activeElement);
      old.replaceWith(fresh);
      fresh.querySelectorAll("button")[place]?.focus();
    }
    return fresh;
  }));
}
function section(id, title, grows, empty) {
  const small = element("small"), list = element("div", {className: "list", tabIndex: 0, role: "group", "aria-label": title});
  const none = element("p", {className: "empty"}, empty), more = element("p", {className: "hidden", hidden: true});
  const box = element("section", {id, className: grows ? "grows" : "", "aria-labelledby": `${id}-title`},
    element("h2", {id: `${id}-title`}, title, " ", small), none, list, more);
  return {box, list, draw(entries, build, note = "") {
    small.textContent = note;
    none.hidden = entries.length > 0;
    list.hidden = entries.length === 0;
    const shown = entries.slice(0, DRAWN);
    more.hidden = shown.length === entries.length;
    more.textContent = `${number(entries.length - shown.length)} more are not drawn; use the filter.`;
    redraw(list, shown, build);
  }};
}
function matches(entries, text) {
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? entries.filter(entry => words.every(word => text(entry).toLowerCase().includes(word))) : entries;
}

// --- fleet -----------------------------------------------------------------------------------------------------

const shareOf = card => card.pods.some(([, core, memory]) => !core && !memory) ? PERCENT // a claim or a NIC: no share is known
  : Math.min(PERCENT, Math.max(card.core, card.memory));
const holder = ([pod, core, memory]) => core || memory ? `${pod}: core ${percent(core)}, memory ${percent(memory)}` : pod;
const cardName = (name, card) => `${name} ${typeof card.minor === "number" ? `${card.type} ` : ""}${card.minor}`; // a name of a slice has its type
function description(name, node, card) {
  const numa = card.numa === null || card.numa < 0 ? "" : `, NUMA ${card.numa}`;
  return [`${cardName(name, card)}${card.type === "gpu" && node.model ? ` · ${node.model}` : ""}${numa}`,
    card.health === "ok" ? `${percent(shareOf(card))} given out` : `${card.health}; ${percent(shareOf(card))} given out`,
    ...card.pods.slice(0, 8).map(holder), card.pods.length > 8 ? `and ${card.pods.length - 8} more pods` : ""].filter(Boolean);
}
function cardButton(name, node, card) {
  const sick = card.health !== "ok", share = shareOf(card);
  const cell = element("button", {type: "button", tabIndex: -1,
    className: `card${sick ? " sick" : share >= 99.95 ? " full" : ""}`, "aria-label": description(name, node, card).join(", "),
    onclick: () => showCard(name, node, card)}, sick ? "✕" : "");
  cell.style.setProperty("--given", `${share}%`);
  cell.tip = description(name, node, card).join("\n");
  return cell;
}
function nodeRow(name, node) {
  const cards = element("span", {className: "cards"});
  let kind = "";
  for (const card of node.cards) {
    if (card.type !== kind && (kind || card.type !== "gpu")) cards.append(element("span", {className: "kind"}, card.type));
    kind = card.type;
    cards.append(cardButton(name, node, card));
  }
  if (!node.cards.length) cards.append(element("span", {className: "muted"}, `no cards, ${plural(node.pods, "pod")}`));
  return element("div", {className: "node"}, element("span", {className: "name mono", title: name}, name), cards,
    node.state ? element("span", {className: "flag warn"}, node.state) : null);
}
function groupRow(key, group) {
  const gpus = group.flatMap(([, node]) => node.cards).filter(card => card.type === "gpu");
  const model = group[0][1].model, share = gpus.reduce((sum, card) => sum + shareOf(card), 0) / (gpus.length || 1);
  return element("div", {className: "group"}, key, element("small", {}, [plural(group.length, "node"), model,
    gpus.length ? `${plural(gpus.length, "card")}, ${percent(share)} given out` : ""].filter(Boolean).join(" · ")));
}
function drawFleet(view) {
  const all = rows("nodes"), visible = matches(all, ([name, node]) =>
    [name, node.model, node.state, ...node.cards.flatMap(card => [card.health, ...card.pods.map(([pod]) => pod)])].join(" "));
  visible.sort(([a, one], [b, other]) => names.compare(one.group, other.group) || names.compare(a, b));
  const groups = Map.groupBy ? Map.groupBy(visible, ([, node]) => node.group) : new Map();
  if (!Map.groupBy) for (const entry of visible) groups.set(entry[1].group, [...groups.get(entry[1].group) ?? [], entry]);
  const entries = [];
  let drawnNodes = 0;
  for (const [group, members] of groups) {
    if (drawnNodes >= DRAWN) break;
    entries.push([`group ${group}`, members]);
    for (const [name, node] of members.slice(0, DRAWN - drawnNodes)) entries.push([name, node]);
    drawnNodes += Math.min(members.length, DRAWN - drawnNodes);
  }
  const hidden = all.length - drawnNodes;
  redraw(view.list, entries, (key, row) => Array.isArray(row) ? groupRow(key.slice(6), row) : nodeRow(key, row));
  view.box.querySelector(".empty").hidden = entries.length > 0;
  view.box.querySelector("h2 small").textContent = `${number(drawnNodes)} of ${plural(all.length, "node")}${hidden ? `, ${number(hidden)} hidden` : ""}`;
  const first = view.list.querySelector(".card");
  if (first && !view.list.querySelector('.card[tabindex="0"]')) first.tabIndex = 0;
}
// One card is in the tab order; arrow keys go from card to card.
function moveTo(card) {
  document.querySelectorAll('.card[tabindex="0"]').forEach(each => { each.tabIndex = -1; });
  card.tabIndex = 0;
  card.focus();
}
document.addEventListener("keydown", event => {
  const at = event.target;
  if (!at.classList?.contains("card")) return;
  const own = [...at.parentElement.querySelectorAll(".card")], lines = [...document.querySelectorAll(".cards:has(.card)")];
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key], line = {ArrowDown: 1, ArrowUp: -1}[event.key];
  const target = step ? own[own.indexOf(at) + step]
    : line ? lines[lines.indexOf(at.parentElement) + line]?.querySelectorAll(".card")[own.indexOf(at)] : null;
  if (step || line) event.preventDefault();
  if (target) moveTo(target);
});
function tip(card) {
  const box = by("tip");
  box.hidden = !card;
  if (!card) return;
  box.textContent = card.tip;
  const place = card.getBoundingClientRect(), below = place.bottom + 6 + box.offsetHeight < innerHeight;
  box.style.left = `${Math.max(8, Math.min(place.left, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${below ? place.bottom + 6 : place.top - box.offsetHeight - 6}px`;
}
for (const name of ["pointerover", "focusin"]) document.addEventListener(name, event => tip(event.target.closest?.(".card")));
document.addEventListener("scroll", () => tip(null), true);

// --- queue, gangs, quotas, decisions, events, cases -----------------------------------------------------------------

const entry = (head, side, ...rest) => element("div", {className: "entry"},
  element("span", {className: "head"}, ...[head].flat()), element("span", {className: "side"}, side), ...rest);
const text = words => words ? element("span", {className: "text"}, words) : null;
const tag = (words, kind = "") => words ? element("span", {className: `tag ${kind}`}, words) : null;
const short = pod => pod.replace(/^default\//, "");

const pendingRow = (pod, row) => entry([button(short(pod), () => showPod(pod)), tag(row.gang && `gang ${short(row.gang)}`),
  tag(row.quota && `quota ${row.quota}`)], `since ${clock(row.since)}`, text(row.message || row.reason || "not tried yet"));
const gangRow = (gang, row) => entry([short(gang), row.placed >= row.minimum && row.placed ? tag("placed", "good") : tag("waits", "warn")],
  `${row.placed} of ${row.members} placed, needs ${row.minimum}`);
function quotaRow(quota, row) {
  const box = entry(short(quota), "");
  for (const resource of Object.keys({...row.max, ...row.min, ...row.used}).sort()) {
    const used = amount(row.used[resource]), least = amount(row.min[resource]), most = amount(row.max[resource]);
    const whole = Math.max(most, used, least) || 1, bar = element("span", {className: "bar"});
    bar.style.setProperty("--given", `${PERCENT * used / whole}%`);
    bar.style.setProperty("--mark", `${PERCENT * least / whole}%`);
    box.append(element("span", {className: "meter"}, element("span", {className: "muted"}, resource), bar,
      element("span", {}, `${row.used[resource] ?? 0} used, ${row.min[resource] ?? 0} guaranteed, ${row.max[resource] ?? "no"} limit`)));
  }
  return box;
}
const UNITS = {m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40};
function amount(quantity) { // for the length of a bar only; the text has the quantity itself
  const [, digits, unit] = /^([\d.]+)([A-Za-z]*)$/.exec(`${quantity ?? 0}`) ?? ["", "0", ""];
  return Number(digits) * (UNITS[unit] ?? 1);
}
const decisionRow = (key, row) => entry(
  [button(short(`${row.pod.namespace}/${row.pod.name}`), () => showDecision(row)), row.node ? ` → ${row.node}` : tag("not placed", "warn")],
  clock(row.time), row.node ? null : text(row.message));
const podNamed = subject => subject.startsWith("Pod ") ? button(short(subject.slice(4)), () => showPod(subject.slice(4))) : subject;
const eventRow = (key, row) => entry([podNamed(row.subject), tag(row.reason, "warn"), row.count > 1 ? tag(`${row.count} times`) : null],
  clock(row.at), text(row.message));
const KINDS = {passed: "good", failed: "bad", broken: "warn"};
const caseRow = (key, row) => entry([tag(row.verdict, `lead ${KINDS[row.verdict] ?? ""}`), ` ${row.case ? `${row.case}: ` : ""}${row.title}`],
  `${row.suite} · ${Math.round(row.seconds * 10) / 10} s`, row.verdict === "passed" ? null : text(row.reason),
  row.verdict === "failed" || row.verdict === "broken" ? element("span", {className: "text"}, ...row.evidence.flatMap(([name, file]) =>
    [element("a", {href: base + file.split("/").map(encodeURIComponent).join("/"), target: "_blank", rel: "noopener"}, name), "  "])) : null);

// --- details ------------------------------------------------------------------------------------------------------

function grid(head, lines, numeric = []) {
  const cell = (value, place) => element("td", {className: numeric.includes(place) ? "num" : ""}, value);
  return element("div", {className: "scroll", tabIndex: 0, role: "group", "aria-label": head.join(", ")}, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((words, place) => element("th", {scope: "col", className: numeric.includes(place) ? "num" : ""}, words)))),
    element("tbody", {}, ...lines.map(line => element("tr", {}, ...line.map(cell))))));
}
function show(title, ...parts) {
  tip(null);
  by("dialog-title").textContent = title;
  by("dialog-body").replaceChildren(...parts.filter(Boolean));
  if (!by("dialog").open) by("dialog").showModal();
  by("dialog-body").focus();
}
by("dialog").addEventListener("click", event => { if (event.target === by("dialog")) by("dialog").close(); });
const paragraph = (words, kind = "") => words ? element("p", {className: kind}, words) : null;
const heading = words => element("h3", {}, words);

function showCard(name, node, card) {
  show(cardName(name, card), ...description(name, node, card).slice(0, 2).map(line => paragraph(line, "muted")),
    card.pods.length ? grid(["pod", "core", "memory"], card.pods.map(([pod, core, memory]) =>
      [button(pod, () => showPod(pod)), ...[core, memory].map(share => core || memory ? percent(share) : "–")]), [1, 2]) : paragraph("No pod holds a part of it."));
}
function scores(feasible) {
  const plugins = [...new Set(feasible.flatMap(node => Object.keys(node.byPlugin)))].sort()
    .filter(plugin => feasible.some(node => node.byPlugin[plugin])); // most plugins give all nodes 0
  return grid(["plugin", ...feasible.map(node => node.node)], [["total", ...feasible.map(node => number(node.score))],
    ...plugins.map(plugin => [plugin, ...feasible.map(node => number(node.byPlugin[plugin] ?? 0))])], feasible.map((_, place) => place + 1));
}
function kept(decision) { // what each plugin scored then
  if (!decision.plugins) return [paragraph("The scores by plugin are not kept: too many pods were placed at once.", "muted")];
  const all = decision.plugins.map(({plugin, weight}, place) => [plugin, weight, ...decision.best.map(node => node.scores[place])])
    .filter(([, , ...scores]) => scores.some(([raw, normal]) => raw || normal));
  if (!all.length) return [];
  const cell = ([raw, normal]) => raw === normal ? number(raw) : `${number(raw)} → ${number(normal)}`;
  return [heading("Scores by plugin"), grid(["plugin", "weight", ...decision.best.map(node => node.node)],
    all.map(([plugin, weight, ...scores]) => [plugin, number(weight), ...scores.map(cell)]), [1, ...decision.best.map((_, place) => place + 2)])];
}
function decisionParts(decision) {
  return [paragraph(`Decided at ${clock(decision.time)}${decision.secondsSinceCreation === null ? "" : `, ${decision.secondsSinceCreation} s after the pod's creation`}.`),
    paragraph(decision.node ? "" : decision.message),
    decision.best.length ? grid(["node", "score", ""], decision.best.map(each => [each.node, `${each.exact ? "" : "at most "}${number(each.score)}`,
      each.node === decision.node ? "selected" : ""]), [1]) : null,
    ...(decision.best.length ? kept(decision) : []),
    decision.rejected.length ? grid(["rejected nodes", "by one of"], decision.rejected.map(each => [number(each.nodes), each.plugins]), [0]) : null];
}
function explanationParts(data, message) {
  if (data.error) return [paragraph(data.error, "muted")];
  if (data.node && data.decision) return [heading(`Placed on ${data.node}`), ...decisionParts(data.decision)];
  const place = data.node ? `On node ${data.node}` : `Pending, in queue ${data.queue || "none"}`;
  return [paragraph(`${place}; ${number(data.fits)} of ${plural(data.nodes, "node")} fit now.`),
    paragraph(data.heldBack && data.heldBack !== message ? `Held back: ${data.heldBack}` : ""), ...data.notes.map(note => paragraph(`Note: ${note}`)),
    data.lacking.length ? grid(["resource", "asked", "most free", "on node"], data.lacking.map(one => [one.resource, one.asked, one.mostFree, one.mostFreeOn])) : null,
    ...(data.reasons.length ? [heading("Why nodes are rejected now"), grid(["nodes", "plugin", "reason", "preemption"], data.reasons, [0])] : []),
    ...(data.feasible.length ? [heading("Scores of the best nodes now, by plugin"), scores(data.feasible)] : [])];
}
async function explanation(pod) {
  if (frozen) return {error: "The page shows what was there; the scheduler is not asked."};
  try {
    return await (await fetch(`${base}explain/${pod.split("/").map(encodeURIComponent).join("/")}`)).json();
  } catch {
    return {error: "The page's process does not answer."};
  }
}
async function detail(pod, message, parts) {
  const wait = paragraph("asking the scheduler …", "muted");
  show(pod, ...parts, wait);
  const more = explanationParts(await explanation(pod), message).filter(Boolean);
  if (wait.isConnected) wait.replaceWith(...more);
}
function showPod(pod) {
  const row = tables.pending?.get(pod);
  return detail(pod, row?.message, row ? [paragraph([`Pending since ${clock(row.since)}`, row.gang && `gang ${row.gang}`, row.quota && `quota ${row.quota}`,
    `scheduler ${row.scheduler}`].filter(Boolean).join(" · "), "muted"), paragraph(row.message)] : []);
}
function showDecision(row) {
  const pod = `${row.pod.namespace}/${row.pod.name}`;
  if (row.node) show(pod, heading(`Placed on ${row.node}`), ...decisionParts(row));
  else detail(pod, row.message, [heading("Not placed"), ...decisionParts(row), heading("Now")]);
}

// --- the page -----------------------------------------------------------------------------------------------------

const view = {
  nodes: section("fleet", "Fleet", true, "No node matches."),
  pending: section("pending", "Pending pods", true, "No pod waits."),
  gangs: section("gangs", "Gangs", false, ""),
  quotas: section("quotas", "Quotas", false, ""),
  decisions: section("decisions", "Decisions", true, "The scheduler has made none, or keeps none."),
  events: section("events", "Warnings and faults", true, "None."),
  cases: section("cases", "Cases", true, "No case has ended."),
};
const LAYOUTS = {cluster: [["nodes", "gangs", "quotas"], ["pending"], ["decisions", "events"]], run: [["cases"]]};
view.nodes.box.querySelector("h2").append(element("small", {className: "legend"}, ...[["", "free"], ["part", "shared"], ["full", "full"], ["sick", "unhealthy"]]
  .map(([kind, words]) => element("span", {}, element("i", {className: kind}), words))));
const latest = key => ([, one], [, other]) => one[key] < other[key] ? 1 : one[key] > other[key] ? -1 : 0;
const oldest = key => (one, other) => latest(key)(other, one);
const all = ([key, row]) => `${key} ${Object.values(row).map(value => typeof value === "object" ? JSON.stringify(value) : value).join(" ")}`;

function drawCluster() {
  drawFleet(view.nodes);
  const waiting = matches(rows("pending"), all).sort(oldest("since"));
  view.pending.draw(waiting, pendingRow, number(waiting.length));
  for (const [name, build] of [["gangs", gangRow], ["quotas", quotaRow]]) {
    const visible = matches(rows(name), all).sort(([a], [b]) => names.compare(a, b));
    view[name].box.hidden = !tables[name]?.size;
    view[name].draw(visible, build, number(visible.length));
  }
  const decisions = matches(rows("decisions"), all).sort(latest("number"));
  view.decisions.box.hidden = frozen !== null;
  view.decisions.draw(decisions, decisionRow, "newest first; click one for its scores");
  view.events.draw(matches(rows("events"), all).sort(latest("at")), eventRow, "newest first");
  const cards = rows("nodes").flatMap(([, node]) => node.cards).filter(card => card.type === "gpu");
  const share = cards.reduce((sum, card) => sum + shareOf(card), 0) / (cards.length || 1), sick = cards.filter(card => card.health !== "ok").length;
  const pods = tables.about?.get("pods") ?? {pods: 0, pending: 0};
  totals([[rows("nodes").length, "nodes"], [cards.length, "cards"], [percent(share), "given out"], [pods.pods, "pods"],
    [pods.pending, "pending", pods.pending ? "warn" : ""], ...(sick ? [[sick, "unhealthy", "bad"]] : [])]);
}
function drawRun() {
  const order = {failed: 0, broken: 1};
  const ended = rows("cases"), shown = matches(ended, all).sort((one, other) =>
    (order[one[1].verdict] ?? 2) - (order[other[1].verdict] ?? 2) || latest("ended")(one, other));
  view.cases.draw(shown, caseRow, "failed and broken ones first, then newest first");
  totals([[ended.length, "ended"], ...["passed", "failed", "broken", "skipped"].map(verdict =>
    [ended.filter(([, row]) => row.verdict === verdict).length, verdict, verdict === "skipped" ? "" : KINDS[verdict]])]);
}
function totals(parts) {
  by("totals").replaceChildren(...parts.flatMap(([value, words, kind], place) => [place ? " · " : "",
    element("b", {className: value ? kind ?? "" : ""}, typeof value === "number" ? number(value) : value), ` ${words}`]));
}
let awaitsFrame = false, layout = "";
function draw() {
  awaitsFrame = false;
  const kind = tables.about ? "cluster" : "run";
  if (layout !== kind) {
    layout = kind;
    by("main").className = layout;
    by("filter").placeholder = layout === "run" ? "Filter: case, suite, reason" : "Filter: node, pod, model, reason";
    by("main").replaceChildren(...LAYOUTS[layout].map(column => element("div", {className: "column"}, ...column.map(name => view[name].box))));
  }
  (layout === "cluster" ? drawCluster : drawRun)();
}
function plan() {
  if (!awaitsFrame) requestAnimationFrame(draw);
  awaitsFrame = true;
}
function take(message) {
  if (message.all) for (const name of Object.keys(tables)) delete tables[name];
  for (const [name, changed] of Object.entries(message.all ?? message.changes)) {
    const table = tables[name] ??= new Map();
    for (const [key, row] of Object.entries(changed)) if (row === null) table.delete(key); else table.set(key, row);
  }
  plan();
}
function state(kind, words) {
  by("state").className = `state ${kind}`;
  by("state").textContent = words;
}
function follow() {
  const source = new EventSource(`${base}stream`);
  source.onmessage = event => { state("on", "live"); take(JSON.parse(event.data)); };
  source.onerror = () => {
    state("off", layout === "run" ? "the run has ended" : "not connected");
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 3000); // a refusal ends it; else it tries again itself
  };
}
const frozen = by("rows");
if (frozen) {
  state("", "as it was");
  take({all: JSON.parse(frozen.textContent)});
} else follow();
by("filter").addEventListener("input", plan);
