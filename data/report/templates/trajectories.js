// Choose a game from a list that draws only the rows in view; a scenario's games are unpacked when one is opened. Held-out
// games are drawn by held_out.js, which comes before this.
const $ = (id) => document.getElementById(id);
const { columns, experiments, scale } = JSON.parse($("index").textContent);
const ROW = 44, SPARE = 6, COLOURS = ["--a0", "--a1", "--a2", "--a3", "--a4"];
const colour = (action) => `var(${COLOURS[action % COLOURS.length]})`;
const ENVIRONMENTS = { fol: "full information", mab: "bandit", "ns-mab": "drifting bandit" };
const minus = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");  // −0 is 0
const unpacked = new Map();
let games = [], chosen = 0, game = null;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function options(select, values, text = (value) => value) {
  select.replaceChildren(...values.map((value) => element("option", { value }, text(value))));
}

async function unpack(name) {
  if (!unpacked.has(name)) {
    const bytes = Uint8Array.from(atob($(`piece/${name}`).textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(name, await new Response(stream).json());
  }
  return unpacked.get(name);
}

// --- Which games ---

const current = () => experiments[$("experiment").value];
const heldOut = () => current().held_out[$("played").value];  // undefined: games of training
function pickExperiment() {
  const { scenarios, held_out } = current();
  options($("played"), [...scenarios.keys(), ...Object.keys(held_out)], (key) => (key in held_out ? `held out: ${held_out[key].title} (${key})` : `training, iteration ${key}`));
  pickPlayed();
}
function pickPlayed() {
  const held = heldOut();
  for (const id of ["scenario", "order"]) $(id).parentElement.hidden = held;
  $("training").hidden = held;
  $("pair").hidden = !held;
  $("told").textContent = held ? "Round by round" : "Prompts and replies";
  if (held) return pickInstances(held);
  options($("scenario"), ["all", ...Object.keys(current().scenarios[$("played").value])]);
  pickGames();
}
function listGames(found, about) {
  games = found;
  $("count").textContent = about;
  list.firstChild.style.height = `${games.length * ROW}px`;
  list.scrollTop = 0;
  choose(0);
}
function pickGames() {
  const scenarios = Object.entries(current().scenarios[$("played").value]);
  const only = $("scenario").value;
  const found = scenarios.filter(([scenario]) => only === "all" || only === scenario).flatMap(([scenario, rows]) =>
    rows.map((row, place) => ({ scenario, place, of: rows, ...Object.fromEntries(columns.map((name, i) => [name, row[i]])) })));
  const orders = { best: (a, b) => a.regret - b.regret, worst: (a, b) => b.regret - a.regret, selected: (a, b) => b.selected - a.selected };
  if ($("order").value in orders) found.sort(orders[$("order").value]);
  const kept = found.filter((one) => one.selected).length;
  listGames(found, `${found.length} games, ${kept} selected (scale ${scale})`);
}

// --- The list: a row exists only while it can be seen ---

const list = $("list");
list.append(element("div", { role: "presentation" }));
const inList = (one) => [
  element("span", {}, `scenario ${one.scenario}, game ${one.trajectory} `, one.selected ? element("span", { class: "kept" }, "✓ selected") : ""),
  element("span", {}, minus(one.regret, 1)),
];
function drawList() {
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
  const last = Math.min(games.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
  const rows = [];
  for (let i = first; i < last; i++) {
    const one = games[i];
    const row = element("div", { role: "option", id: `game-${i}`, class: "game", "aria-selected": i === chosen, "aria-setsize": games.length, "aria-posinset": i + 1 },
      ...(one.scenario === undefined ? inListHeldOut(one) : inList(one)));
    row.style.top = `${i * ROW}px`;
    rows.push(row);
  }
  list.firstChild.replaceChildren(...rows);
  list.setAttribute("aria-activedescendant", `game-${chosen}`);
}
list.addEventListener("scroll", () => requestAnimationFrame(drawList));
addEventListener("resize", drawList);
list.addEventListener("click", (event) => {
  const row = event.target.closest(".game");
  if (row) choose(Number(row.id.slice(5)));
});
list.addEventListener("keydown", (event) => {
  const page = Math.floor(list.clientHeight / ROW);
  const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + page, PageUp: chosen - page, Home: 0, End: games.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  choose(Math.min(Math.max(to, 0), games.length - 1));
});

async function choose(i) {
  chosen = i;
  const top = i * ROW;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  drawList();
  const one = games[i], experiment = $("experiment").value, played = $("played").value;
  if (!one) return;
  const place = `${experiment}/${played}/${one.scenario ?? one.instance}`;
  const piece = await unpack(place);
  if (games[chosen] !== one) return;  // another was chosen while this one was unpacked
  history.replaceState(null, "", one.scenario === undefined ? `#${place}` : `#${place}/${one.trajectory}`);
  if (one.scenario === undefined) return drawPair(one, piece);
  game = piece[one.place];
  drawGame(one, experiment, played);
}

// --- One game ---

const SVG = "http://www.w3.org/2000/svg";
function svg(attributes, inside) {
  const made = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ role: "img", preserveAspectRatio: "none", ...attributes })) made.setAttribute(name, value);
  made.innerHTML = inside;  // numbers and names of colours alone
  return made;
}
const key = (entries) => element("div", { class: "key" }, ...entries.map(([tone, text]) => {
  const swatch = element("i");
  swatch.style.background = tone;
  return element("span", {}, swatch, text);
}));
const actions = () => Array.from({ length: game.d }, (_, a) => a);
const strip = (height, label, inside) => {
  const made = svg({ class: "strip", viewBox: `0 0 ${game.action.length} 100`, "aria-label": label, style: `--height:${height}px` }, `${inside}<line class="marker" y1="-4" y2="104" stroke="var(--ink)" stroke-width="1.5"/>`);
  made.addEventListener("click", (event) => {
    const box = made.getBoundingClientRect();
    goTo(Math.floor((event.clientX - box.left) / box.width * game.action.length) + 1);
  });
  return made;
};
const row = (names, drawn) => element("div", { class: "row" }, element("div", { class: names.length > 2 ? "axis" : "axis ends", "aria-hidden": "true" }, ...names.map((name) => element("span", {}, name))), drawn);

function drawGame(one, experiment, iteration) {
  const about = current(), T = game.action.length;
  $("title").textContent = `Scenario ${one.scenario}, game ${one.trajectory}`;
  $("about").textContent = `${experiment}, iteration ${iteration}, training seed 0: ${ENVIRONMENTS[about.environment] ?? about.environment}, ${game.d} actions, ${T} rounds, played by ${about.model}${Number(iteration) ? `, fine-tuned ${iteration} times` : ", not fine-tuned yet"}.`;
  $("why").textContent = why(one, about);
  $("why").className = one.selected ? "why yes" : "why";
  drawRanking(one, about);
  $("rewards").replaceChildren(...rewardStrip(game));
  drawPolicy();
  drawRegret(about);
  $("round").max = T;
  $("dialogue").replaceChildren(...game.action.map((_, t) => turn(t)));
  goTo(1, false);
}
function why(one, about) {
  const others = one.of.map((row) => row[columns.indexOf("regret")]).sort((a, b) => a - b);
  const place = `its ${about.regret} regret of ${minus(one.regret)} is number ${one.rank + 1} of ${others.length} in this scenario, and the lowest ${about.selected === 1 ? "one is" : `${about.selected} are`} selected`;
  const lead = (name) => one.of.reduce((sum, row) => sum + row[columns.indexOf(name)], 0) / one.of.length - one[name];
  const than = (by) => `${minus(Math.abs(by))} ${by < 0 ? "worse" : "better"}`;
  const [here, again] = [lead("regret"), lead("rerolled")];
  const lucky = than(here) === than(again) ? "None of it is luck." : "The difference is luck.";
  const luck = `This is ${than(here)} than the scenario's average. With the rewards drawn again, the same actions are ${than(again)} than average. ${lucky}`;
  const copy = one.duplicate ? " Its replies equal those of a better game word for word, so it cannot be selected." : "";
  return `${one.selected ? "Selected" : "Not selected"}: ${place}.${copy} ${luck}${one.invalid ? ` ${one.invalid} of its replies were invalid.` : ""}`;
}
function drawRanking(one, about) {
  const of = one.of.map((row) => Object.fromEntries(columns.map((name, i) => [name, row[i]])));
  const values = of.flatMap((each) => [each.regret, each.rerolled]), low = Math.min(...values), high = Math.max(...values, low + 1e-9);
  const x = (value) => 1 + 98 * (value - low) / (high - low);
  const mark = (value, y, tone, wide) => `<rect x="${x(value) - wide / 2}" y="${y}" width="${wide}" height="34" fill="${tone}"/>`;
  const tone = (each) => (each.trajectory === one.trajectory ? "var(--accent)" : each.selected ? "var(--good)" : "var(--soft)");
  const inside = of.map((each) => mark(each.regret, 8, tone(each), each.trajectory === one.trajectory ? 1.2 : 0.6) + mark(each.rerolled, 58, tone(each), each.trajectory === one.trajectory ? 1.2 : 0.6)).join("");
  const label = `Regrets of ${of.length} games from ${minus(low)} to ${minus(high)}; this one ${minus(one.regret)} as played, ${minus(one.rerolled)} on rewards drawn again.`;
  $("ranking").replaceChildren(row(["played", "redrawn"], svg({ viewBox: "0 0 100 100", "aria-label": label, style: "height:64px" }, inside)),
    key([["var(--accent)", "this game"], ["var(--good)", "selected"], ["var(--soft)", "others"]]), element("div", { class: "note" }, `from ${minus(low)} to ${minus(high)}`));
}
function rewardStrip(game) {
  const d = game.d, height = 100 / d;
  const cells = game.action.map((played, t) => actions().map((a) => {
    const shade = Math.min(Math.max(game.rewards[t * d + a] / 10, 0), 1), x = t + 0.06, y = a * height + 3;
    return `<rect x="${x}" y="${y}" width=".88" height="${height - 6}" fill="${colour(a)}" fill-opacity="${(0.06 + 0.8 * shade).toFixed(2)}"/>` +
      (a === played ? `<rect x="${x}" y="${y}" width=".88" height="${height - 6}" fill="none" stroke="var(--ink)" stroke-width="2"/>` : "");
  }).join("")).join("");
  const counts = actions().map((a) => `action ${a + 1} ${game.action.filter((played) => played === a).length} times`);
  return [row(actions().map((a) => a + 1), strip(28 * d, `Rewards by action and round; played: ${counts.join(", ")}.`, cells)), key([["var(--a0)", "stronger: a higher reward, from 0 to 10"], ["var(--ink)", "framed: the action played"]])];
}
function drawPolicy() {
  const d = game.d;
  const stacks = game.action.map((_, t) => {
    let y = 100;
    return actions().map((a) => { const share = 100 * game.policy[t * d + a]; y -= share; return `<rect x="${t + 0.02}" y="${y}" width=".96" height="${share}" fill="${colour(a)}"/>`; }).join("");
  }).join("");
  $("policy").replaceChildren(row(["1", "0"], strip(70, "Probability of every action, round by round, stacked.", stacks)), key(actions().map((a) => [colour(a), `action ${a + 1}`])));
}
function drawRegret(about) {
  const low = Math.min(0, ...game.regret), high = Math.max(...game.regret, low + 1e-9), y = (value) => 100 - 100 * (value - low) / (high - low);
  const points = [[0, y(0)], ...game.regret.map((value, t) => [t + 1, y(value)])].map((point) => point.join(",")).join(" ");
  const label = `${about.regret} regret after each round, at the end ${minus(game.regret.at(-1))}.`;
  $("regret").replaceChildren(row([minus(high, 1), minus(low, 1)], strip(90, label, `<polyline points="${points}" stroke="var(--accent)" stroke-width="2.5"/>`)));
}
function turn(t) {
  const invalid = game.attempts[t] - 1 + game.fallback[t];
  const came = `${decided(game, t)}; regret so far ${minus(game.regret[t])}${invalid ? `; ${invalid} invalid repl${invalid > 1 ? "ies" : "y"}${game.fallback[t] ? ", so the action was drawn uniformly" : ""}` : ""}`;
  const made = element("div", { class: "turn", id: `round-${t + 1}` }, element("h3", {}, `round ${t + 1}`), element("div", { class: "prompt" }, game.prompts[t]), element("div", { class: "reply" }, game.replies[t]), element("div", { class: invalid ? "came wrong" : "came" }, came));
  return made;
}
const decided = ({ action, rewards, d }, t) => `action ${action[t] + 1}${rewards ? ` paid ${minus(rewards[t * d + action[t]])}` : ""}`;
function goTo(round, scroll = true) {
  $("round").value = round;
  const t = Number($("round").value);
  $("at").textContent = `${t} of ${game.action.length}: ${heldOut() ? inPair(t - 1) : decided(game, t - 1)}`;
  for (const marker of document.querySelectorAll(".marker")) { marker.setAttribute("x1", t - 0.5); marker.setAttribute("x2", t - 0.5); }
  document.querySelector(".turn.now")?.classList.remove("now");
  const now = $(`round-${t}`);
  now.classList.add("now");
  if (scroll) now.scrollIntoView({ block: "nearest" });
}
$("round").addEventListener("input", () => goTo(Number($("round").value)));

// --- Start, where the address says ---

options($("experiment"), Object.keys(experiments));
$("experiment").addEventListener("change", pickExperiment);
$("played").addEventListener("change", pickPlayed);
for (const side of SIDES) $(side).addEventListener("change", () => drawPair(shown, pair));
$("scenario").addEventListener("change", pickGames);
$("order").addEventListener("change", pickGames);
function start() {
  const [experiment, played, scenario, trajectory] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (experiment in experiments) $("experiment").value = experiment;
  pickExperiment();
  if (played in current().scenarios || played in current().held_out) { $("played").value = played; pickPlayed(); }
  const there = games.findIndex((one) => (heldOut() ? String(one.instance) === scenario : one.scenario === scenario && String(one.trajectory) === trajectory));
  if (there > 0) choose(there);
}
addEventListener("hashchange", start);
start();
