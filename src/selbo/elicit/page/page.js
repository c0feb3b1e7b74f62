// The page: reads what is entered, asks the server what it means, shows the answer. The state lives in the address.

import { bars, draws, percent, picture } from "/charts.js";

const PAUSE = 120; // milliseconds of rest before the server is asked
const HINTS = {
  equal: "Equal widths, from 0 to 1.",
  unequal: "Edges at .01, .05, .1, .9, .95 and .99: for tasks where most cases are clear.",
  edges: "Numbers between 0 and 1, such as 0.05, 0.5, 0.95.",
  shells: "Corner shells: very sure and sure of each class; the rest, where no class stands out, is one region.",
  classes: "How often each class is predicted, however surely.",
  confidence: "The largest probability, whatever the class: for very many classes.",
};

const $ = (id) => document.getElementById(id);
const output = $("output");
let state = read(location.hash);
let shown = null; // the last answer
let file = null; // the scores, as long as this page is open
let question = null;
let timer = 0;

// --- state and address ---

function read(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (key, otherwise) => (given.has(key) ? Number(given.get(key)) : otherwise);
  const list = (key) => (given.get(key) ? given.get(key).split(",").map(Number) : []);
  return {
    classes: number("k", 2),
    names: given.getAll("name"),
    accuracy: number("accuracy", 0.9),
    fractions: given.has("shares") ? list("shares") : null,
    source: given.get("from") ?? "expect",
    heights: list("heights"),
    masses: list("masses"),
    rows: number("rows", 0),
    claimed: number("claimed", 0),
    regions: given.get("regions") ?? (number("k", 2) > 2 ? "shells" : "equal"),
    bins: number("bins", 10),
    edges: list("edges"),
    concentration: number("trust", 1000),
    seed: number("seed", 0),
  };
}

function address() {
  const said = new URLSearchParams();
  said.set("k", state.classes);
  for (const name of state.names.some(Boolean) ? state.names : []) said.append("name", name);
  said.set("accuracy", state.accuracy);
  if (state.fractions) said.set("shares", state.fractions.join(","));
  if (state.source !== "expect") said.set("from", state.source);
  if (state.source === "draw" && state.heights.length) said.set("heights", state.heights.join(","));
  if (state.source === "scores" && state.masses.length) {
    said.set("masses", state.masses.join(","));
    said.set("rows", state.rows);
    said.set("claimed", state.claimed);
  }
  said.set("regions", state.regions);
  if (state.regions === "equal") said.set("bins", state.bins);
  if (state.edges.length) said.set("edges", state.edges.join(","));
  said.set("trust", state.concentration);
  if (state.seed) said.set("seed", state.seed);
  return `#${said}`.replaceAll("%2C", ",");
}

// --- asking ---

async function ask(path, body, type, signal) {
  let reply;
  try {
    reply = await fetch(path, { method: "POST", body, headers: { "Content-Type": type }, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw { message: "The server does not answer: is selbo elicit still running?", field: "" };
  }
  const content = await reply.json().catch(() => ({ error: "The answer of the server cannot be read.", field: "" }));
  if (!reply.ok || content.error) throw { message: content.error, field: content.field };
  return content;
}

function change(update, { recount = false } = {}) {
  Object.assign(state, update);
  if (recount) Object.assign(state, { heights: [], masses: [], rows: 0, claimed: 0 });
  fill();
  clearTimeout(timer);
  output.setAttribute("aria-busy", "true");
  timer = setTimeout(refresh, PAUSE);
}

async function refresh() {
  question?.abort();
  const mine = (question = new AbortController());
  try {
    if (state.source === "scores" && file && !state.masses.length) await count(mine.signal);
    const answer = await ask("/api/belief", JSON.stringify(state), "application/json", mine.signal);
    if (mine !== question) return;
    shown = answer;
    problems();
    show();
    history.replaceState(null, "", address());
    $("link").value = location.href;
  } catch (error) {
    if (error.name === "AbortError" || mine !== question) return;
    problems(error);
  }
  output.setAttribute("aria-busy", "false");
}

async function count(signal) {
  const most = Number($("file").dataset.most);
  if (file.size > most) throw { message: `The file has ${Math.round(file.size / 2 ** 20)} MB, but at most ${most / 2 ** 20} MB are taken: a sample of the rows is enough.`, field: "file" };
  const asked = JSON.stringify({ classes: state.classes, regions: state.regions, bins: state.bins, edges: state.edges });
  const { masses, rows, claimed } = await ask(`/api/scores?state=${encodeURIComponent(asked)}`, file, "text/csv", signal);
  Object.assign(state, { masses, rows, claimed });
  fill();
}

function problems(error) {
  for (const place of document.querySelectorAll(".problem")) place.textContent = "";
  for (const control of document.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  output.classList.toggle("stale", Boolean(error));
  output.classList.toggle("empty", !shown);
  for (const button of document.querySelectorAll("[data-copy]")) button.disabled = Boolean(error);
  const place = error && $(`problem-${error.field}`);
  $("failure").hidden = !error;
  $("failure").textContent = error ? error.message : "";
  if (error) $("peek-text").textContent = error.message;
  if (place) place.textContent = error.message;
  if (error) $(error.field)?.setAttribute("aria-invalid", "true");
  if (error?.field === "fractions") for (const box of shareBoxes()) box.setAttribute("aria-invalid", "true");
  if (error?.field === "names") for (const box of nameBoxes()) box.setAttribute("aria-invalid", "true");
  $("rescale").hidden = !(error?.field === "fractions" && state.fractions?.every((share) => share > 0));
}

// --- showing the answer ---

function show() {
  const [headline, ...claims] = shown.claims;
  $("headline").textContent = $("peek-text").textContent = headline;
  $("claims").replaceChildren(...claims.map((text) => item("li", text)));
  $("warnings").hidden = !shown.warnings.length;
  $("warning-list").replaceChildren(...shown.warnings.map((text) => item("li", text)));
  drawCharts();
  $("belief").textContent = `The belief is ${shown.belief}.`;
  $("table").replaceChildren(
    ...shown.s0.map((mass, r) => {
      const row = document.createElement("tr");
      const head = item("th", shown.labels[r]);
      head.scope = "row";
      const cell = item("td", percent(mass));
      cell.dataset.mass = mass;
      row.append(head, cell, item("td", percent(shown.low[r])), item("td", percent(shown.high[r])));
      return row;
    }),
  );
  for (const [name, { text, note }] of Object.entries(shown.copies)) {
    const place = $(`take-${name}`);
    place.querySelector("pre").textContent = text;
    place.querySelector(".hint").textContent = note;
    place.querySelector("button").disabled = !text;
  }
  fillPad();
  $("edges").placeholder = shown.levels.join(", ");
}

function item(name, text) {
  const node = document.createElement(name);
  node.textContent = text;
  return node;
}

function drawCharts() {
  if (!shown) return;
  $("picture-section").hidden = !shown.picture;
  document.querySelector(".pair").classList.toggle("single", !shown.picture);
  bars($("bars"), shown);
  draws($("draws"), shown);
  if (!shown.picture) return;
  const [title, caption] = picture($("picture"), shown);
  $("picture-title").textContent = title;
  $("picture-caption").textContent = caption;
}

// --- filling in the form ---

const shareBoxes = () => [...document.querySelectorAll("#class-rows input[type=number]")];
const nameBoxes = () => [...document.querySelectorAll("#class-rows input[type=text]")];
const rounded = (value, digits = 12) => Number(Number(value).toPrecision(digits));
const asShare = (value) => rounded(100 * value, 5);

function set(control, given) {
  const value = Number.isNaN(given) ? "" : given;
  if (control !== document.activeElement && control.value !== String(value)) control.value = value;
}

function fill() {
  set($("classes"), state.classes);
  fillClasses();
  $("equal").checked = !state.fractions;
  set($("accuracy"), rounded(100 * state.accuracy));
  $("accuracy-range").min = Math.ceil(1000 / state.classes + 0.5) / 10;
  $("accuracy-range").max = 99.9;
  set($("accuracy-range"), rounded(100 * state.accuracy));
  for (const choice of document.querySelectorAll("[name=source]")) choice.checked = choice.value === state.source;
  $("scores-panel").hidden = state.source !== "scores";
  $("file-said").textContent = state.rows && state.masses.length ? `${state.rows} predictions counted${file ? ` in ${file.name}` : ""}.` : "";
  $("draw-panel").hidden = state.source !== "draw";
  for (const option of $("regions").options) option.hidden = option.disabled = "two" in option.dataset && state.classes > 2;
  $("regions").value = state.regions;
  $("regions-hint").textContent = HINTS[state.regions] ?? "";
  $("bins-panel").hidden = state.regions !== "equal";
  set($("bins"), state.bins);
  $("edges-panel").hidden = !["edges", "shells", "confidence"].includes(state.regions);
  $("edges-label").textContent = state.regions === "shells" ? "Thresholds, from 0.5 on" : "Edges, from left to right";
  set($("edges"), state.edges.join(", "));
  set($("concentration"), state.concentration);
  set($("concentration-range"), Math.round(10 * Math.log10(Math.max(1, state.concentration))));
}

function fillClasses() {
  const holder = $("class-rows");
  const wanted = Math.min(Math.max(state.classes || 0, 0), Number($("classes").max));
  if (nameBoxes().length !== wanted) {
    const titles = ["Name", "Share, %"].map((text) => Object.assign(item("span", text), { className: "title" }));
    holder.replaceChildren(...titles, ...Array.from({ length: wanted }, (_, k) => classRow(k)).flat());
  }
  nameBoxes().forEach((box, k) => set(box, state.names[k] ?? ""));
  shareBoxes().forEach((box, k) => {
    box.disabled = !state.fractions;
    set(box, asShare(state.fractions ? state.fractions[k] : 1 / state.classes));
  });
}

function classRow(k) {
  const name = Object.assign(document.createElement("input"), { type: "text", placeholder: `class ${k}`, maxLength: 60 });
  name.setAttribute("aria-label", `Name of class ${k}`);
  name.setAttribute("aria-describedby", "problem-names");
  name.addEventListener("input", () => change({ names: nameBoxes().map((box) => box.value) }));
  const share = Object.assign(document.createElement("input"), { type: "number", step: "any", min: 0, max: 100 });
  share.setAttribute("aria-label", `Share of class ${k}, percent`);
  share.setAttribute("aria-describedby", "problem-fractions");
  share.addEventListener("input", () => {
    const fractions = [...state.fractions];
    fractions[k] = rounded(share.valueAsNumber / 100);
    if (fractions.length === 2) fractions[1 - k] = rounded(1 - fractions[k]);
    change({ fractions });
  });
  return [name, share];
}

// --- drawing by hand ---

function padHeights() {
  return state.heights.length ? state.heights : (shown?.heights ?? []);
}

function fillPad() {
  const pad = $("pad");
  if (state.source !== "draw") return;
  const heights = padHeights();
  if (pad.children.length !== heights.length) pad.replaceChildren(...heights.map((_, r) => padBar(r)));
  [...pad.children].forEach((bar, r) => {
    bar.firstChild.style.height = `${heights[r]}%`;
    bar.setAttribute("aria-valuenow", Math.round(heights[r]));
    bar.setAttribute("aria-label", shown?.labels[r] ?? `Region ${r}`);
  });
  $("pad-first").textContent = shown?.labels[0] ?? "";
  $("pad-last").textContent = shown?.labels.at(-1) ?? "";
}

function padBar(r) {
  const bar = document.createElement("div");
  bar.append(document.createElement("span"));
  for (const [name, value] of Object.entries({ role: "slider", tabindex: 0, "aria-valuemin": 0, "aria-valuemax": 100, "aria-orientation": "vertical" })) bar.setAttribute(name, value);
  bar.addEventListener("keydown", (event) => {
    const now = padHeights()[r];
    const next = { ArrowUp: now + 2, ArrowRight: now + 2, ArrowDown: now - 2, ArrowLeft: now - 2, PageUp: now + 10, PageDown: now - 10, Home: 0, End: 100 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setBar(r, next);
  });
  return bar;
}

function setBar(r, height) {
  const heights = [...padHeights()];
  heights[r] = rounded(Math.min(100, Math.max(0, height)), 4);
  change({ heights });
  fillPad();
}

function paint(event) {
  const pad = $("pad");
  const box = pad.getBoundingClientRect();
  const r = Math.floor(((event.clientX - box.left) / box.width) * pad.children.length);
  if (r >= 0 && r < pad.children.length) setBar(r, (100 * (box.bottom - event.clientY)) / box.height);
}

$("pad").addEventListener("pointerdown", (event) => {
  $("pad").setPointerCapture(event.pointerId);
  paint(event);
});
$("pad").addEventListener("pointermove", (event) => {
  if ($("pad").hasPointerCapture(event.pointerId)) paint(event);
});
$("reset-pad").addEventListener("click", () => change({ heights: [] }));

// --- what is entered ---

$("classes").addEventListener("input", (event) => {
  const classes = event.target.valueAsNumber;
  const update = { classes, fractions: null, edges: [], names: Array.from({ length: Math.min(classes || 0, 1000) }, (_, k) => state.names[k] ?? "") };
  if (classes > 2 && ["equal", "unequal", "edges"].includes(state.regions)) update.regions = classes > 20 ? "confidence" : "shells";
  if (classes === 2 && ["shells", "confidence"].includes(state.regions)) update.regions = "equal";
  change(update, { recount: true });
});
$("equal").addEventListener("change", (event) => change({ fractions: event.target.checked ? null : Array(state.classes).fill(1 / state.classes) }));
$("rescale").addEventListener("click", () => {
  const total = state.fractions.reduce((sum, share) => sum + share, 0);
  change({ fractions: state.fractions.map((share) => share / total) });
});
$("use-counts").addEventListener("click", async () => {
  try {
    const { names, fractions } = await ask("/api/counts", $("counts").value, "text/plain");
    const classes = fractions.length;
    const regions = classes === 2 ? "equal" : classes > 20 ? "confidence" : "shells";
    change(classes === state.classes ? { names, fractions } : { classes, names, fractions, regions, edges: [] }, { recount: classes !== state.classes });
    $("problem-counts").textContent = "";
    $("counts").removeAttribute("aria-invalid");
  } catch (error) {
    $("problem-counts").textContent = error.message;
    $("counts").setAttribute("aria-invalid", "true");
  }
});
for (const id of ["accuracy", "accuracy-range"]) $(id).addEventListener("input", (event) => change({ accuracy: rounded(event.target.valueAsNumber / 100) }));
for (const choice of document.querySelectorAll("[name=source]"))
  choice.addEventListener("change", () => {
    const update = { source: choice.value };
    if (choice.value === "draw" && !state.heights.length && state.source === "scores" && state.masses.length && shown) update.heights = shown.heights;
    change(update);
  });
$("file").addEventListener("change", (event) => {
  file = event.target.files[0] ?? null;
  change({}, { recount: true });
});
$("regions").addEventListener("change", (event) => change({ regions: event.target.value, edges: [] }, { recount: true }));
$("bins").addEventListener("input", (event) => change({ bins: event.target.valueAsNumber }, { recount: true }));
$("edges").addEventListener("input", (event) => {
  const parts = event.target.value.split(/[\s,;]+/).filter(Boolean);
  change({ edges: parts.map(Number) }, { recount: true });
});
$("concentration").addEventListener("input", (event) => change({ concentration: event.target.valueAsNumber }));
$("concentration-range").addEventListener("input", (event) => change({ concentration: rounded(10 ** (event.target.valueAsNumber / 10), 2) }));
$("again").addEventListener("click", () => change({ seed: state.seed + 1 }));
$("input").addEventListener("submit", (event) => event.preventDefault());

// --- copying ---

for (const button of document.querySelectorAll("[data-copy]"))
  button.addEventListener("click", async () => {
    const kind = button.dataset.copy;
    const source = kind === "link" ? $("link") : $(`take-${kind}`).querySelector("pre");
    const text = kind === "link" ? source.value : source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      said(button, "Copied");
    } catch {
      if (kind === "link") source.select();
      else getSelection().selectAllChildren(source);
      said(button, "Selected: press Ctrl-C");
    }
  });

function said(button, text) {
  const label = button.firstChild;
  label.textContent = text;
  $("copied").textContent = text;
  setTimeout(() => {
    label.textContent = "Copy";
    $("copied").textContent = "";
  }, 2000);
}

// --- beginning ---

addEventListener("hashchange", () => {
  state = read(location.hash);
  file = null;
  change({});
});
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) drawCharts();
  width = innerWidth;
});
fill();
refresh();
