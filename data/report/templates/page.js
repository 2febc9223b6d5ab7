// Sections that open when they are linked to, searched for or printed; figures at full size; search, one verdict alone;
// lineage trees that are built when they are opened.
const $ = (selector) => document.querySelector(selector);
const articles = [...document.querySelectorAll("article")].map((element) => ({
  element,
  text: [element.id, ...[...element.querySelectorAll("summary > h3, .label, .label + p, .verdict, .known, code")].map((part) => part.textContent)].join(" ").toLowerCase(),
  entry: document.querySelector(`.contents [data-for="${element.id}"]`),
}));
const search = $("#search");
let only = null;

function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const { element, text, entry } of articles) {
    const shown = words.every((word) => text.includes(word)) && (!only || element.dataset.verdict === only);
    element.hidden = !shown;
    if (entry) entry.hidden = !shown;  // recorded figures are not in the contents
    count += shown;
  }
  for (const list of document.querySelectorAll(".contents h3 + ul")) list.previousElementSibling.hidden = !list.querySelector("li:not([hidden])");
  for (const part of document.querySelectorAll(".part")) part.hidden = !part.querySelector("article:not([hidden])");
  $("#nothing").hidden = count > 0;
  $("#found").textContent = words.length || only ? `${count} of ${articles.length}` : "";
}
search.addEventListener("input", show);
search.form.addEventListener("submit", (event) => {
  event.preventDefault();
  const first = document.querySelector("article:not([hidden])");
  if (first) { reveal(first); first.focus({ preventScroll: true }); }
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
  if (event.key === "Escape" && typing === search) { search.value = ""; show(); }
});
for (const chip of document.querySelectorAll("[data-filter]")) chip.addEventListener("click", () => {
  only = only === chip.dataset.filter ? null : chip.dataset.filter;
  for (const one of document.querySelectorAll("[data-filter]")) one.setAttribute("aria-pressed", one.dataset.filter === only);
  show();
});

function reveal(target) {
  if (!target) return;
  const own = target.querySelector(":scope > .fold");
  if (own) own.open = true;
  for (let around = target; around; around = around.parentElement) if (around.tagName === "DETAILS") around.open = true;
  target.scrollIntoView();
}
const named = (hash) => document.getElementById(decodeURIComponent(hash.slice(1)));
addEventListener("hashchange", () => reveal(named(location.hash)));
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) reveal(named(link.hash));  // then the address does not change
});
const folds = () => [...document.querySelectorAll("main article > .fold, main section > .fold")];
$("#unfold").addEventListener("click", (event) => {
  const open = event.target.getAttribute("aria-pressed") !== "true";
  for (const fold of folds()) fold.open = open;
  event.target.setAttribute("aria-pressed", open);
  event.target.textContent = open ? "Fold all" : "Open all";
});
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("main details:not([open], .lineage)")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => { for (const details of folded) details.open = false; });

const zoom = $("#zoom");
for (const figure of document.querySelectorAll("figure")) figure.addEventListener("click", () => {
  const image = figure.querySelector("img");
  $("#zoom-title").textContent = figure.querySelector(".zoom").dataset.title;
  Object.assign(zoom.querySelector("img"), { src: image.src, alt: image.alt });
  zoom.showModal();
});
const measured = new ResizeObserver((boxes) => { for (const { target } of boxes) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1); });
for (const box of document.querySelectorAll(".scroll")) measured.observe(box);

const wide = matchMedia("(min-width: 64rem)");
const fold = () => { for (const one of document.querySelectorAll("#contents, #method > .fold")) one.open = wide.matches; };
wide.addEventListener("change", fold);
fold();
$("#contents").addEventListener("click", (event) => { if (event.target.closest("a") && !wide.matches) $("#contents").open = false; });

const files = JSON.parse($("#lineage").textContent);
function branch(path) {
  const [rule, hash, inputs] = files[path];
  const parts = [path, rule.startsWith("no ") ? rule : rule ? `by ${rule}` : "a source", hash].filter(Boolean);
  const name = document.createElement(inputs.length ? "summary" : "div");
  const code = document.createElement("code");
  code.textContent = parts[0];
  const more = document.createElement("span");
  more.className = "hash";
  more.textContent = parts.slice(1).join("  ");
  name.append(code, more);
  if (!inputs.length) { name.className = "leaf"; return name; }
  const tree = document.createElement("details");
  tree.append(name);
  tree.addEventListener("toggle", () => { if (tree.open && !tree.children[1]) tree.append(...inputs.map(branch)); }, { once: false });
  return tree;
}
for (const tree of document.querySelectorAll(".lineage")) tree.addEventListener("toggle", () => {
  if (!tree.open || tree.dataset.built) return;
  tree.dataset.built = "yes";
  const root = branch(tree.dataset.path);
  tree.append(root);
  if (root.tagName === "DETAILS") root.open = true;
});
if (location.hash) reveal(named(location.hash));
