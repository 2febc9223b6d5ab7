// Two held-out games of one instance side by side, round by round, as `rmft compare` prints them.
const SIDES = ["left", "right"], LINES = ["var(--a0)", "var(--a1)"];
let pair = null, shown = null;  // the games of an instance, and its row in the list

function pickInstances(held) {
  for (const [i, side] of SIDES.entries()) {
    options($(side), held.players);
    $(side).value = ["base", "trained-0"][i];
  }
  const found = held.instances.map(([instance, base, trained]) => ({ instance, base, trained, most: instance === held.most }));
  listGames(found, `${found.length} of ${held.n} instances: the first ones, and the one on which base and trained model differ most (scale ${scale}). Beside each: final regret, base → trained`);
}
const inListHeldOut = (one) => [
  element("span", {}, `instance ${one.instance} `, one.most ? element("span", { class: "soft" }, "differs most") : ""),
  element("span", {}, `${minus(one.base, 1)} → ${minus(one.trained, 1)}`),
];
const sides = () => SIDES.map((side) => ({ name: $(side).value, d: pair.d, rewards: pair.rewards, ...pair.players[$(side).value] }));

function drawPair(one, piece) {
  [shown, pair] = [one, piece];
  const both = sides(), held = heldOut(), T = pair.best.length;
  game = both[0];
  $("title").textContent = `Instance ${one.instance}, ${both[0].name} beside ${both[1].name}`;
  $("about").textContent = `${$("experiment").value}, held out: ${held.title}, ${pair.d} actions, ${T} rounds, model ${current().model}.`;
  const [first, second] = both.map((of) => of.regret.at(-1));
  const differ = both[0].action.filter((action, t) => action !== both[1].action[t]).length;
  const less = Math.abs(first - second) < 0.005 ? "Both have the same regret" : `${both[first < second ? 0 : 1].name} has less regret`;
  $("why").textContent = `${less}: ${both[0].name} ${minus(first)}, ${both[1].name} ${minus(second)} (expected regret of the whole game). They played different actions in ${differ} of ${T} rounds.${one.most ? " Of all instances this is the one on which base and trained model differ most; it is no typical one." : ""}`;
  $("why").className = "why";
  drawRegrets(both);
  $("strips").replaceChildren(...both.flatMap((of) => [element("h3", {}, of.name), ...(pair.rewards ? rewardStrip(of) : [element("p", { class: "note" }, "The rewards depend on the player.")])]));
  $("round").max = T;
  $("dialogue").replaceChildren(rounds(both));
  goTo(1, false);
}
function drawRegrets(both) {
  const all = both.flatMap((of) => of.regret), low = Math.min(0, ...all), high = Math.max(...all, low + 1e-9);
  const y = (value) => 100 - 100 * (value - low) / (high - low);
  const lines = both.map((of, i) => `<polyline points="${[[0, y(0)], ...of.regret.map((value, t) => [t + 1, y(value)])].map((point) => point.join(",")).join(" ")}" stroke="${LINES[i]}" stroke-width="2.5"${i ? "" : ' stroke-dasharray="6 4"'}/>`);
  const label = `Expected regret after each round, at the end ${both.map((of) => `${of.name} ${minus(of.regret.at(-1))}`).join(", ")}.`;
  $("regrets").replaceChildren(row([minus(high, 1), minus(low, 1)], strip(110, label, lines.join(""))), key(both.map((of, i) => [LINES[i], `${of.name}${i ? "" : " (dashed)"}`])));
}
const inPair = (t) => sides().map((of) => `${of.name} ${decided(of, t)}`).join(", ");
function rounds(both) {
  const head = element("tr", {}, ...["round", ...both.map((of) => of.name), "best"].map((name) => element("th", { scope: "col" }, name)));
  const body = element("tbody", {}, ...pair.best.map((best, t) => {
    const paid = pair.rewards ? ` would pay ${minus(pair.rewards[t * pair.d + best])}` : "";
    return element("tr", { class: "turn", id: `round-${t + 1}` }, element("th", { scope: "row" }, t + 1), ...both.map((of) => cell(of, t, best)), element("td", {}, `${best + 1}${paid}`));
  }));
  return element("table", { class: "rounds" }, element("caption", { class: "hidden" }, "Both games, round by round"), element("thead", {}, head), body);
}
function cell(of, t, best) {
  const action = of.action[t], share = of.policy ? ` (probability ${of.policy[t * pair.d + action].toFixed(2)})` : "";
  const made = element("td", {}, element("div", { class: action === best ? "best" : "" }, `${decided(of, t)}${share}`), element("div", { class: "note" }, `regret so far ${minus(of.regret[t])}`));
  if (of.replies) made.append(element("div", { class: "reply" }, of.replies[t]), element("details", {}, element("summary", {}, "prompt"), element("div", { class: "prompt" }, of.prompts[t])));
  return made;
}
