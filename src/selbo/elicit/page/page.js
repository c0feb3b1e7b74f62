// The page: reads what is entered, asks the server what it means, shows the answer. A link has all of it in its address. The
// tab remembers what an address does not have, such as names of classes that are gone or a number that is wrong, so that
// neither a reload nor Back loses anything.

import { bars, comparison, draws, isHistogram, percent, picture } from "/charts.js";

const PAUSE = 60; // milliseconds between questions: a slider that is dragged is followed
const PATIENCE = 2000; // milliseconds after which a question is given up for a newer one
const SMALLEST_DRAWN = 1e-3; // share of the highest bar that a bar at zero counts as, see state.py
const PAUSE_OF_EDITS = 1000; // milliseconds without which changes of one control are one step of Undo
const MOST_STEPS = 200; // of Undo
const LONGEST_TABLE = 3000; // characters of a table of groups that a link may carry
const SCORES = ["equal", "unequal", "edges"]; // regions of two classes
const HINTS = {
  equal: "From 0 to 100 %.",
  unequal: "Limits at 1, 5, 10, 90, 95 and 99 %: for tasks where most cases are clear.",
  edges: "Numbers between 0 and 1, such as 0.05, 0.5, 0.95.",
  shells: "Corner shells: for each class, one region of very sure and one of fairly sure predictions. Predictions in which no class stands out are one more. Limits must be 0.5 or more.",
  classes: "How often each class is predicted, at any confidence.",
  confidence: "The largest probability: for very many classes.",
};
const WAYS = {
  questions: { waiting: "Computing …", accuracy: "2. How often could a careful expert be right?", hint: "If unsure, say the lower number." },
  predictions: { waiting: "Choose a file: the corrected predictions are shown here.", accuracy: "2. How often is this model right?", hint: "From a report, or from a sample of cases that you checked." },
  groups: { waiting: "Paste a table: what it says is shown here." },
};

const $ = (id) => document.getElementById(id);
const output = $("output");
let visit = history.state?.visit; // names what the tab remembers; entries of the history that only jump on the page share it
let entered = { ...read(location.hash), ...remembered() };
let shown = null; // the last answer about the questions
let shownGroups = null;
let shownFrozen = null; // with the corrected file
let file = null; // the predictions of an earlier model, as long as this page is open
let frozen = null; // the predictions to correct, likewise
let isNew = false; // whether they were chosen just now
let question = null; // that waits for an answer
let asked = 0; // when it began
let asking = false;
let changed = false;
let link = location.hash; // of the last state that was right

// --- what is entered, and its address ---

function read(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const number = (key, otherwise) => (given.has(key) ? Number(given.get(key)) : otherwise);
  const list = (key) => (given.get(key) ? given.get(key).split(",").map(Number) : []);
  const classes = number("k", 2);
  const regions = given.get("regions") ?? (classes > 2 ? "shells" : "equal");
  const found = {
    way: given.get("way") ?? "questions",
    groups: given.get("groups") ?? "",
    test: [null, null, null], // prevalence, sensitivity, specificity
    correct: given.has("correct"), // correct predictions by the shares too
    classes,
    names: given.getAll("name"), // of more classes than there are, if there were more
    equal: !given.has("shares"),
    shares: list("shares"), // null where none is stated
    pasted: "",
    accuracy: number("accuracy", 0.9),
    labels: number("labels", null),
    concentration: number("concentration", null), // by the number of labels if null
    source: given.get("from") ?? "expect",
    drawn: {}, // heights, by layout
    counted: {}, // answers to an upload, by layout
    file: "",
    regions,
    chosen: given.has("regions") ? { [kind(classes)]: regions } : {}, // regions for two classes, and for more
    bins: number("bins", 10),
    edges: { [regions]: list("edges").join(", ") }, // text, by regions
    seed: number("seed", 0),
  };
  if (given.has("heights")) found.drawn[layout(found)] = list("heights");
  if (given.has("masses"))
    found.counted[layout(found)] = { masses: list("masses"), rows: number("rows", 0), claimed: number("claimed", 0), predicted: list("predicted") };
  return found;
}

function kind(classes) {
  return classes === 2 ? "two" : "more";
}

function edgesOf({ edges, regions }) {
  return (edges[regions] ?? "").split(/[\s,;]+/).filter(Boolean).map(Number);
}

function layout(given = entered) {
  return [given.classes, given.regions, given.regions === "equal" ? given.bins : "", edgesOf(given)].join(" ");
}

function isCount(classes) {
  return Number.isInteger(classes) && classes >= 2 && classes <= Number($("classes").max);
}

function statedShares() {
  return Array.from({ length: isCount(entered.classes) ? entered.classes : 0 }, (_, k) => entered.shares[k] ?? null);
}

function shares() {
  const stated = statedShares();
  const open = stated.filter((share) => share === null).length;
  const rest = 1 - stated.reduce((sum, share) => sum + share, 0);
  return stated.map((share) => share ?? (rest > 1e-9 ? rounded(rest / open) : null)); // equal parts of what is left
}

function state() {
  const { classes, accuracy, source, regions, bins, concentration, seed } = entered;
  const counted = (source === "scores" && entered.counted[layout()]) || {};
  return {
    classes,
    names: statedShares().map((_, k) => entered.names[k] ?? ""),
    accuracy,
    fractions: entered.equal ? null : shares(),
    source,
    heights: (source === "draw" && entered.drawn[layout()]) || [],
    ...counted,
    regions,
    bins,
    edges: edgesOf(entered),
    num_labels: entered.labels,
    concentration,
    seed,
  };
}

function address() {
  const { names, fractions, heights, masses = [], rows, claimed, predicted = [], edges } = state();
  const said = new URLSearchParams();
  if (entered.way === "groups") {
    said.set("way", "groups");
    if (entered.groups.length <= LONGEST_TABLE) said.set("groups", entered.groups);
    return `#${said}`;
  }
  if (entered.way !== "questions") said.set("way", entered.way);
  if (entered.correct) said.set("correct", 1);
  said.set("k", entered.classes);
  for (const name of names.some(Boolean) ? names : []) said.append("name", name);
  said.set("accuracy", entered.accuracy);
  if (fractions) said.set("shares", fractions.join(","));
  if (entered.labels !== null) said.set("labels", entered.labels);
  if (entered.source !== "expect") said.set("from", entered.source);
  if (heights.length) said.set("heights", heights.join(","));
  if (masses.length) {
    said.set("masses", masses.join(","));
    said.set("rows", rows);
    said.set("claimed", claimed);
    if (predicted.length) said.set("predicted", predicted.join(","));
  }
  said.set("regions", entered.regions);
  if (entered.regions === "equal") said.set("bins", entered.bins);
  if (edges.length) said.set("edges", edges.join(","));
  if (entered.concentration !== null) said.set("concentration", entered.concentration);
  if (entered.seed) said.set("seed", entered.seed);
  return `#${said}`.replaceAll("%2C", ",");
}

// --- what the tab remembers ---

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(visit ?? ""));
  } catch {
    return null; // the browser remembers nothing: the address does
  }
}

function remember() {
  visit ??= `${Date.now()} ${Math.random()}`;
  try {
    if (history.state?.visit !== visit || location.hash !== link) history.replaceState({ visit }, "", link || location.href);
    sessionStorage.setItem(visit, JSON.stringify(entered));
  } catch {
    return; // the browser forbids it, or the address changes too often for it
  }
}

function arrive() {
  if (history.state?.visit === visit) return remember(); // Back from a jump on this page: nothing has changed
  if (!history.state?.visit && !location.hash.includes("=")) return remember(); // a place on this page, and no state
  visit = history.state?.visit;
  link = location.hash;
  entered = { ...read(location.hash), ...remembered() };
  file = frozen = shownFrozen = shownGroups = null;
  $("file").value = $("predictions").value = "";
  begin();
}

// --- undo ---

let past = []; // states, as text
let future = [];
let present = "";
let lastEdit = { place: null, time: 0 };

function note() {
  const now = JSON.stringify(entered);
  if (now === present) return;
  const focused = document.activeElement;
  const place = $("pad").contains(focused) ? $("pad") : focused;
  const goesOn = place === lastEdit.place && place.matches("input:not([type=radio], [type=checkbox]), textarea, #pad") && performance.now() - lastEdit.time < PAUSE_OF_EDITS;
  if (!goesOn) past = [...past, present].slice(-MOST_STEPS);
  lastEdit = { place, time: performance.now() };
  [present, future] = [now, []];
}

function travel(from, to) {
  if (!from.length) return;
  to.push(present);
  present = from.pop();
  lastEdit = { place: null, time: 0 };
  entered = JSON.parse(present);
  unfold();
  fill(true);
  change();
}

$("undo").addEventListener("click", () => travel(past, future));
$("redo").addEventListener("click", () => travel(future, past));
addEventListener("keydown", (event) => {
  const key = event.key.toLowerCase();
  if (!(event.ctrlKey || event.metaKey) || event.altKey || (key !== "z" && key !== "y") || event.target.tagName === "TEXTAREA") return;
  event.preventDefault(); // in a text of several lines, the browser undoes words
  if (key === "y" || event.shiftKey) travel(future, past);
  else travel(past, future);
});

// --- asking ---

async function ask(path, body, type, signal) {
  let reply;
  try {
    reply = await fetch(path, { method: "POST", body, headers: { "Content-Type": type }, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (body instanceof Blob && !(await isReadable(body))) throw { message: "The file was changed or removed: choose it again.", field: body === file ? "file" : "predictions" };
    throw { message: "The server does not answer: is selbo elicit still running?", field: "" };
  }
  const content = await reply.json().catch(() => ({ error: "The answer of the server cannot be read.", field: "" }));
  if (!reply.ok || content.error) throw { message: content.error, field: content.field };
  return content;
}

async function isReadable(blob) {
  return blob.slice(0, 1).arrayBuffer().then(() => true, () => false);
}

function change(update) {
  Object.assign(entered, update);
  note();
  remember();
  fill();
  output.setAttribute("aria-busy", "true");
  changed = true;
  if (!asking) keepUp();
  else if (performance.now() - asked > PATIENCE) question?.abort();
}

async function keepUp() {
  asking = true;
  while (changed) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    changed = false;
    await refresh();
  }
  asking = false;
  output.setAttribute("aria-busy", "false");
}

async function refresh() {
  question = new AbortController();
  asked = performance.now();
  try {
    if (entered.way === "groups") await askGroups(question.signal);
    else if (entered.way === "predictions") await askFrozen(question.signal);
    else await askBelief(question.signal);
    if (changed) return;
    link = address();
    remember();
    $("link").value = new URL(link, location.href).href;
  } catch (error) {
    if (error.name !== "AbortError" && !changed) problems(error);
  }
}

async function askBelief(signal) {
  if (entered.source === "scores" && !entered.counted[layout()]) await count(signal);
  shown = await ask("/api/belief", JSON.stringify(state()), "application/json", signal);
  problems();
  show();
}

async function askGroups(signal) {
  shownGroups = entered.groups.trim() ? await ask("/api/groups", entered.groups, "text/plain", signal) : null;
  problems();
  if (shownGroups) showGroups(shownGroups);
}

async function askFrozen(signal) {
  if (!frozen) return problems();
  tooLarge(frozen, "predictions");
  const { accuracy, concentration, fractions } = state();
  const known = entered.correct && !isNew ? (fractions ?? statedShares().map(() => 1 / entered.classes)) : null;
  const [asking, given] = [frozen, { accuracy, concentration, fractions: known, name: frozen.name }];
  const found = await ask(`/api/calibrate?state=${encodeURIComponent(JSON.stringify(given))}`, frozen, "text/csv", signal);
  if (frozen !== asking) return;
  shownFrozen = found;
  if (isNew) {
    isNew = false;
    if (found.classes.join("\n") !== statedShares().map((_, k) => entered.names[k]).join("\n")) {
      setClasses(found.classes.length);
      change({ names: found.classes, shares: [], equal: true, correct: false });
    } else if (entered.correct) change();
  }
  problems();
  showFrozen(found);
}

function tooLarge({ size }, field) {
  const most = Number($("file").dataset.most);
  if (size > most) throw { message: `The file has ${Math.round(size / 2 ** 20)} MB, but at most ${most / 2 ** 20} MB are taken: a sample of the rows is enough.`, field };
}

async function count(signal) {
  if (!file && entered.file)
    throw { message: `${entered.file} was counted in other regions or classes: choose those again, or the file.`, field: "file" };
  if (!file) return;
  tooLarge(file, "file");
  const [place, { classes, regions, bins, edges }] = [layout(), state()];
  const [given, counting] = [JSON.stringify({ classes, regions, bins, edges }), file];
  const { masses, rows, claimed, predicted } = await ask(`/api/scores?state=${encodeURIComponent(given)}`, file, "text/csv", signal);
  if (file !== counting) return; // another one was chosen meanwhile
  entered.counted[place] = { masses, rows, claimed, predicted };
  entered.file = file.name;
  present = JSON.stringify(entered); // counting is no step of its own
  remember();
  fill();
}

function problems(error) {
  for (const place of document.querySelectorAll(".problem")) place.textContent = "";
  for (const control of document.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  output.classList.toggle("stale", Boolean(error));
  output.classList.toggle("empty", !{ questions: shown, predictions: shownFrozen, groups: shownGroups }[entered.way]);
  for (const button of document.querySelectorAll("[data-copy], #download")) button.disabled = Boolean(error);
  const place = error && $(`problem-${error.field}`);
  $("failure").hidden = !error;
  $("failure").textContent = error ? error.message : "";
  if (error) $("peek-text").textContent = error.message;
  if (place) place.textContent = error.message;
  if (error) $(error.field)?.setAttribute("aria-invalid", "true");
  if (error?.field === "fractions") for (const box of shareBoxes()) box.setAttribute("aria-invalid", "true");
  if (error?.field === "names") for (const box of nameBoxes()) box.setAttribute("aria-invalid", "true");
  if ($("advanced").contains(place)) $("advanced").open = true;
  if (!error && output.classList.contains("empty")) $("peek-text").textContent = WAYS[entered.way].waiting;
  $("rescale").hidden = !(error?.field === "fractions" && !entered.equal && statedShares().every((share) => share === null || share > 0));
}

// --- showing the answer ---

function show() {
  const [headline, ...claims] = shown.claims;
  $("headline").textContent = $("peek-text").textContent = headline;
  $("claims").replaceChildren(...claims.map((text) => item("li", text)));
  $("warnings").hidden = !shown.warnings.length;
  $("warning-list").replaceChildren(...shown.warnings.map((text) => item("li", text)));
  drawCharts();
  $("belief").textContent = `The belief is ${shown.belief}. The shares are the summary s₀ of the paper, with 5 and 95 % quantiles.`;
  $("table").replaceChildren(...shown.s0.map((mass, r) => tableRow(shown.labels[r], [mass, shown.low[r], shown.high[r]].map(percent))));
  [...$("table").rows].forEach((row, r) => (row.cells[1].dataset.mass = shown.s0[r]));
  for (const [name, { text, note }] of Object.entries(shown.copies)) fillTake(name, text, note);
  fillPad();
  fillStrength();
  $("edges").placeholder = shown.levels.join(", ");
}

function fillTake(name, text, note) {
  const place = $(`take-${name}`);
  place.querySelector("pre").textContent = text;
  if (note !== undefined) place.querySelector(".hint").textContent = note;
  place.querySelector("button").disabled = !text;
}

function tableRow(name, cells) {
  const row = document.createElement("tr");
  const head = item("th", name);
  head.scope = "row";
  row.append(head, ...cells.map((text) => item("td", text)));
  return row;
}

function showGroups({ column, classes, groups, fractions, said, note, texts }) {
  $("groups-said").textContent = $("peek-text").textContent = said;
  $("groups-note").textContent = note;
  $("groups-head").replaceChildren(...[column, ...classes].map((name) => Object.assign(item("th", name), { scope: "col" })));
  $("groups-table").replaceChildren(...groups.map((name, i) => tableRow(name, fractions[i].map(percent))));
  for (const [kind, text] of Object.entries(texts)) fillTake(kind, text);
}

function showFrozen({ claims: [headline, ...claims], warnings, rows, copies }) {
  $("frozen-headline").textContent = $("peek-text").textContent = headline;
  $("frozen-claims").replaceChildren(...claims.map((text) => item("li", text)));
  $("doubts").hidden = !warnings.length;
  $("doubt-list").replaceChildren(...warnings.map((text) => item("li", text)));
  $("frozen-table").replaceChildren(...rows.map(([name, ...values]) => tableRow(name, values.map((value) => (value === null ? "–" : percent(value))))));
  for (const [name, { text, note }] of Object.entries(copies)) fillTake(name, text, note);
  drawCharts();
}

function item(name, text) {
  const node = document.createElement(name);
  node.textContent = text;
  return node;
}

function drawCharts() {
  if (entered.way === "predictions" && shownFrozen) comparison($("frozen-bars"), shownFrozen.histogram);
  if (entered.way !== "questions" || !shown) return;
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

const shareBoxes = () => [...document.querySelectorAll("#share-rows input")];
const nameBoxes = () => [...document.querySelectorAll("#name-rows input")];
const rounded = (value, digits = 12) => Number(Number(value).toPrecision(digits));
const inPercent = (value) => (value === null ? null : rounded(100 * value));
const asShare = (value) => rounded(100 * value, 5);

let forced = false; // whether a control that is being used is filled in too

function set(control, given) {
  const value = Number.isNaN(given) ? "" : (given ?? "");
  if ((forced || control !== document.activeElement) && control.value !== String(value)) control.value = value;
}

function fill(all = false) {
  forced = all;
  fillWay();
  set($("classes"), entered.classes);
  fillClasses();
  $("equal").checked = entered.equal;
  $("use-shares").checked = entered.correct;
  $("shares-hint").textContent = entered.classes > 2 ? "In percent. Classes that you leave out get equal parts of the rest." : "";
  $("shares-panel").hidden = entered.way === "predictions" && !entered.correct;
  set($("groups"), entered.groups);
  fillTest();
  set($("counts"), entered.pasted);
  set($("accuracy"), inPercent(entered.accuracy));
  if (isCount(entered.classes)) $("accuracy-range").min = Math.ceil(1000 / entered.classes + 0.5) / 10;
  $("accuracy-range").max = 99.9;
  set($("accuracy-range"), inPercent(entered.accuracy));
  set($("labels"), entered.labels);
  fillStrength();
  for (const choice of document.querySelectorAll("[name=source]")) choice.checked = choice.value === entered.source;
  $("scores-panel").hidden = entered.source !== "scores";
  const counted = entered.counted[layout()];
  $("file-said").textContent = counted
    ? `${counted.rows} predictions counted${entered.file ? ` in ${entered.file}` : ""}.`
    : file || entered.file ? "" : "No file yet: until you choose one, the belief is that of the answers above.";
  $("draw-panel").hidden = entered.source !== "draw";
  for (const option of $("regions").options) option.hidden = option.disabled = SCORES.includes(option.value) && entered.classes > 2;
  $("regions").value = entered.regions;
  $("regions-hint").textContent = HINTS[entered.regions] ?? "";
  $("bins-panel").hidden = entered.regions !== "equal";
  set($("bins"), entered.bins);
  $("edges-panel").hidden = !["edges", "shells", "confidence"].includes(entered.regions);
  set($("edges"), entered.edges[entered.regions]);
  for (const [id, steps] of [["undo", past], ["redo", future]]) $(id).setAttribute("aria-disabled", steps.length === 0); // it keeps the focus
  forced = false;
}

function fillWay() {
  for (const choice of document.querySelectorAll("[name=way]")) choice.checked = choice.value === entered.way;
  for (const part of document.querySelectorAll("[data-ways]")) part.hidden = !part.dataset.ways.split(" ").includes(entered.way);
  const { waiting, accuracy, hint } = WAYS[entered.way] ?? WAYS.questions;
  $("waiting").textContent = waiting;
  $("accuracy-title").textContent = accuracy;
  $("accuracy-hint").textContent = hint;
  $("test").hidden ||= entered.classes !== 2;
  $("link-hint").textContent = {
    predictions: "It holds your answers, and nothing of the file.",
    groups: entered.groups.length > LONGEST_TABLE ? "The table is too long for a link: send results.csv." : "It holds the table.",
  }[entered.way] ?? "It holds everything on this page.";
  $("link-hint").append(" Elsewhere, open it with ", item("code", "selbo elicit 'LINK'"), ".");
}

// Of all cases, those that a test answers rightly: the ill that it finds, and the healthy that it clears.
function fillTest() {
  const [prevalence, sensitivity, specificity] = entered.test;
  ["prevalence", "sensitivity", "specificity"].forEach((id, i) => set($(id), inPercent(entered.test[i])));
  const accuracy = testAccuracy();
  const known = accuracy !== null;
  $("use-test").hidden = !known;
  const [negative, positive] = [0, 1].map((k) => entered.names[k] || `class ${k}`);
  const of1000 = (share) => `${rounded(1000 * share, 3)}`;
  const text = (share) => `${rounded(100 * share, 4)} %`;
  const lines = known
    ? [
        `Right answers: ${text(prevalence)} × ${text(sensitivity)} + ${text(1 - prevalence)} × ${text(specificity)} = ${text(accuracy)}.`,
        `Of 1000 cases, ${of1000(prevalence)} are “${positive}”: ${of1000(prevalence * sensitivity)} are found and ${of1000(prevalence * (1 - sensitivity))} missed.`,
        `Of the ${of1000(1 - prevalence)} that are “${negative}”, ${of1000((1 - prevalence) * specificity)} are cleared and ${of1000((1 - prevalence) * (1 - specificity))} are false alarms.`,
      ]
    : [`How often “${positive}” occurs, how many of these are found, and how many of “${negative}” are cleared.`];
  const [now, before] = [lines.join(), [...$("arithmetic").children].map((line) => line.textContent).join()];
  if (now !== before) $("arithmetic").replaceChildren(...lines.map((line) => item("p", line)));
}

function testAccuracy() {
  const [prevalence, sensitivity, specificity] = entered.test;
  const inside = entered.test.every((each) => typeof each === "number" && each >= 0 && each <= 1) && prevalence > 0 && prevalence < 1;
  return inside ? rounded(prevalence * sensitivity + (1 - prevalence) * specificity) : null;
}

function fillStrength() {
  const strength = entered.concentration ?? shown?.strength;
  set($("concentration"), entered.concentration);
  $("concentration").placeholder = strength ?? "";
  if (strength) set($("concentration-range"), Math.round(10 * Math.log10(Math.max(1, strength))));
  const known = [...$("sure").options].some((option) => option.value === String(entered.concentration ?? ""));
  const own = $("sure").options[$("sure").options.length - 1];
  own.hidden = own.disabled = known;
  own.textContent = `As after ${entered.concentration} cases`;
  $("sure").value = known ? String(entered.concentration ?? "") : "own";
  const otherwise = entered.way === "predictions" ? "Your numbers then count as much as 1000 observed cases." : "Your numbers then count as much as the labelled examples, and at most as 1000 of them.";
  $("sure-hint").textContent = entered.concentration === null ? otherwise : "The surer you are, the more your numbers count against the data.";
}

function fillClasses() {
  if (isCount(entered.classes) && nameBoxes().length !== entered.classes) {
    const rows = Array.from({ length: entered.classes }, (_, k) => [nameRow(k), shareRow(k)]);
    $("name-rows").replaceChildren(...rows.map(([name]) => name));
    $("share-rows").replaceChildren(...rows.flatMap(([, share]) => share));
  }
  if (!isCount(entered.classes)) return; // the number is being typed: the rows wait
  nameBoxes().forEach((box, k) => set(box, entered.names[k]));
  document.querySelectorAll("#share-rows label").forEach((label, k) => (label.textContent = entered.names[k] || `class ${k}`));
  const [stated, all] = [statedShares(), entered.equal ? [] : shares()];
  shareBoxes().forEach((box, k) => {
    box.classList.toggle("derived", entered.equal || stated[k] === null);
    set(box, entered.equal ? asShare(1 / entered.classes) : all[k] === null ? "" : asShare(all[k]));
  });
}

function nameRow(k) {
  const name = Object.assign(document.createElement("input"), { type: "text", placeholder: `class ${k}`, maxLength: 60 });
  name.setAttribute("aria-label", `Name of class ${k}`);
  name.setAttribute("aria-describedby", "problem-names");
  name.addEventListener("input", () => {
    entered.names[k] = name.value;
    change();
  });
  return name;
}

function shareRow(k) {
  const label = Object.assign(document.createElement("label"), { htmlFor: `share-${k}` });
  const share = Object.assign(document.createElement("input"), { id: `share-${k}`, type: "number", inputMode: "decimal", step: "any", min: 0, max: 100 });
  share.setAttribute("aria-describedby", "problem-fractions shares-hint");
  share.addEventListener("input", () => {
    const stated = entered.equal || entered.classes === 2 ? [] : [...entered.shares]; // of two classes, one share says both
    stated[k] = Number.isNaN(share.valueAsNumber) ? null : rounded(share.valueAsNumber / 100);
    change({ shares: stated, equal: false });
  });
  return [label, share];
}

// --- drawing by hand ---

const MOVES = { up: ["ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp"], across: ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"] };
let current = 0; // the bar that Tab goes to
let brush = null; // the last bar that the pointer drew, and how high
let reveal = false; // bring the pad into view when it is filled

function padHeights() {
  return entered.drawn[layout()] ?? shown?.heights ?? [];
}

function fillPad() {
  const pad = $("pad");
  if (entered.source !== "draw" || !shown) return;
  const heights = padHeights();
  const raised = heights.map((height) => Math.max(height, SMALLEST_DRAWN * Math.max(...heights)));
  const total = raised.reduce((sum, height) => sum + height, 0);
  const upright = isHistogram(shown);
  pad.classList.toggle("upright", upright);
  pad.classList.toggle("narrow", heights.length > 10);
  if (pad.children.length !== heights.length) pad.replaceChildren(...heights.map((_, r) => padBar(r)));
  current = Math.min(current, heights.length - 1);
  [...pad.children].forEach((bar, r) => {
    const mass = total > 0 ? raised[r] / total : 0;
    const [name, track, value] = bar.children;
    name.textContent = name.title = shown.labels[r] ?? "";
    track.firstChild.style[upright ? "height" : "width"] = `${heights[r]}%`;
    track.firstChild.style[upright ? "width" : "height"] = "";
    value.textContent = upright ? percent(mass).replace(" %", "") : percent(mass);
    bar.tabIndex = r === current ? 0 : -1;
    bar.setAttribute("aria-label", name.textContent || `Region ${r}`);
    bar.setAttribute("aria-orientation", upright ? "vertical" : "horizontal");
    bar.setAttribute("aria-valuenow", Math.round(heights[r]));
    bar.setAttribute("aria-valuetext", `${percent(mass)} of predictions`);
    if (r === current) $("pad-said").textContent = `${name.textContent}: ${percent(mass)} of predictions`;
  });
  const [previous, next, lower, higher] = upright ? ["←", "→", "↓", "↑"] : ["↑", "↓", "←", "→"];
  $("pad-hint").textContent = `Draw with the pointer. Or press Tab to get here, ${previous} ${next} to choose a bar, ${lower} ${higher} to change it. Only proportions count.`;
  fillAxis(upright ? shown.axis : { labels: [] });
  if (reveal) $("draw-panel").scrollIntoView({ block: "nearest" });
  reveal = false;
}

function fillAxis({ labels, positions }) {
  let last = -Infinity;
  const bars = labels.length - 1;
  const width = $("pad").clientWidth;
  $("pad-axis").replaceChildren(
    ...labels.flatMap((text, i) => {
      const [x, half] = [(width * positions[i]) / bars, 3.2 * text.length];
      if (x - half < last + 8) return [];
      last = x + half;
      const mark = item("span", text);
      mark.style.left = `${(100 * positions[i]) / bars}%`;
      return [mark];
    }),
  );
}

function padBar(r) {
  const bar = document.createElement("div");
  const [name, track, value] = ["name", "track", "value"].map((part) => Object.assign(document.createElement("span"), { className: part }));
  track.append(document.createElement("span"));
  bar.append(name, track, value);
  for (const [key, each] of Object.entries({ role: "slider", "aria-valuemin": 0, "aria-valuemax": 100 })) bar.setAttribute(key, each);
  bar.addEventListener("focus", () => {
    if (r !== current) go(r);
  });
  bar.addEventListener("keydown", (event) => {
    const [previous, next, lower, higher] = MOVES[$("pad").classList.contains("upright") ? "up" : "across"];
    const step = { [previous]: -1, [next]: 1 }[event.key];
    const now = padHeights()[r];
    const height = { [lower]: now - 2, [higher]: now + 2, PageDown: now - 10, PageUp: now + 10, Home: 0, End: 100 }[event.key];
    if (step === undefined && height === undefined) return;
    event.preventDefault();
    if (step) $("pad").children[r + step]?.focus();
    else setBars([[r, height]]);
  });
  return bar;
}

function go(r) {
  current = r;
  fillPad();
}

function setBars(given) {
  const heights = [...padHeights()];
  for (const [r, height] of given) heights[r] = rounded(Math.min(100, Math.max(0, height)), 4);
  entered.drawn[layout()] = heights;
  change();
  fillPad();
}

function paint(event) {
  const bars = [...$("pad").children];
  const upright = $("pad").classList.contains("upright");
  const [along, first, last] = upright ? [event.clientX, "left", "right"] : [event.clientY, "top", "bottom"];
  const r = bars.findIndex((bar) => along >= bar.getBoundingClientRect()[first] && along <= bar.getBoundingClientRect()[last]);
  if (r < 0) return;
  const box = bars[r].querySelector(".track").getBoundingClientRect();
  const height = 100 * (upright ? (box.bottom - event.clientY) / box.height : (event.clientX - box.left) / box.width);
  const from = brush ?? [r, height];
  const count = Math.abs(r - from[0]);
  const passed = Array.from({ length: count }, (_, i) => [from[0] + ((i + 1) * (r - from[0])) / count, from[1] + ((i + 1) * (height - from[1])) / count]);
  current = r;
  setBars(count ? passed : [[r, height]]); // a pointer that moves fast skips bars
  brush = [r, height];
}

$("pad").addEventListener("pointerdown", (event) => {
  event.preventDefault();
  $("pad").setPointerCapture(event.pointerId);
  brush = null;
  $("pad").children[current]?.focus({ preventScroll: true }); // so that a stroke is one step of Undo
  paint(event);
  $("pad").children[current]?.focus({ preventScroll: true });
});
$("pad").addEventListener("pointermove", (event) => {
  if ($("pad").hasPointerCapture(event.pointerId)) paint(event);
});
$("reset-pad").addEventListener("click", () => {
  delete entered.drawn[layout()];
  change();
});

// --- entering ---

function setClasses(classes) {
  entered.classes = classes;
  if (isCount(classes)) entered.regions = entered.chosen[kind(classes)] ?? (classes === 2 ? "equal" : classes > 20 ? "confidence" : "shells");
}

$("classes").addEventListener("input", (event) => {
  setClasses(event.target.valueAsNumber);
  change();
});
$("equal").addEventListener("change", (event) => change({ equal: event.target.checked }));
$("rescale").addEventListener("click", () => {
  const stated = statedShares();
  const open = stated.filter((share) => share === null).length;
  const total = stated.reduce((sum, share) => sum + share, 0) / (1 - open / stated.length);
  change({ shares: stated.map((share) => (share === null ? 1 / stated.length : share / total)) });
});
$("counts").addEventListener("input", (event) => {
  entered.pasted = event.target.value;
  remember();
});
$("use-counts").addEventListener("click", async () => {
  try {
    const { names, fractions } = await ask("/api/counts", $("counts").value, "text/plain");
    if (fractions.length !== entered.classes) setClasses(fractions.length);
    change({ names: names.length ? names : entered.names, shares: fractions, equal: false });
    $("problem-counts").textContent = "";
    $("counts").removeAttribute("aria-invalid");
  } catch (error) {
    $("problem-counts").textContent = error.message;
    $("counts").setAttribute("aria-invalid", "true");
  }
});
$("groups").addEventListener("input", (event) => change({ groups: event.target.value }));
$("groups-file").addEventListener("change", async ({ target }) => {
  if (!target.files.length) return;
  change({ groups: await target.files[0].text() });
  target.value = ""; // the same file can be chosen again, changed
});
for (const id of ["file", "predictions"])
  $(id).addEventListener("click", ({ target }) => {
    if (target.getAttribute("aria-invalid")) target.value = ""; // likewise
  });
$("predictions").addEventListener("change", (event) => {
  if (!event.target.files.length) return; // the dialog was left: what was chosen stays
  [frozen, isNew] = [event.target.files[0], true];
  change();
});
$("download").addEventListener("click", () => {
  const url = URL.createObjectURL(new Blob([shownFrozen.csv], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href: url, download: "calibrated.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
});
for (const choice of document.querySelectorAll("[name=way]")) choice.addEventListener("change", () => change({ way: choice.value }));
$("use-shares").addEventListener("change", (event) => change({ correct: event.target.checked }));
["prevalence", "sensitivity", "specificity"].forEach((id, i) =>
  $(id).addEventListener("input", (event) => {
    entered.test[i] = Number.isNaN(event.target.valueAsNumber) ? null : rounded(event.target.valueAsNumber / 100);
    change();
  }),
);
$("use-test").addEventListener("click", () => change({ accuracy: testAccuracy(), shares: [null, entered.test[0]], equal: false }));
$("sure").addEventListener("change", (event) => change({ concentration: event.target.value ? Number(event.target.value) : null }));
for (const id of ["accuracy", "accuracy-range"]) $(id).addEventListener("input", (event) => change({ accuracy: rounded(event.target.valueAsNumber / 100) }));
$("labels").addEventListener("input", (event) => change({ labels: orNull(event.target.valueAsNumber) }));
$("concentration").addEventListener("input", (event) => change({ concentration: orNull(event.target.valueAsNumber) }));
$("concentration-range").addEventListener("input", (event) => change({ concentration: rounded(10 ** (event.target.valueAsNumber / 10), 2) }));
for (const choice of document.querySelectorAll("[name=source]"))
  choice.addEventListener("change", () => {
    if (choice.value === "draw" && entered.source === "scores" && entered.counted[layout()] && shown) entered.drawn[layout()] ??= shown.heights;
    reveal = choice.value === "draw";
    change({ source: choice.value });
  });
$("file").addEventListener("change", (event) => {
  if (!event.target.files.length) return; // the dialog was left: what was counted stays
  file = event.target.files[0];
  change({ counted: {}, file: "" });
});
$("regions").addEventListener("change", (event) => {
  const regions = event.target.value;
  Object.assign(entered.chosen, regions === "classes" ? { two: regions, more: regions } : { [kind(entered.classes)]: regions });
  change({ regions });
});
$("bins").addEventListener("input", (event) => change({ bins: event.target.valueAsNumber }));
$("edges").addEventListener("input", (event) => {
  entered.edges[entered.regions] = event.target.value;
  change();
});
$("again").addEventListener("click", () => change({ seed: entered.seed + 1 }));
$("input").addEventListener("submit", (event) => event.preventDefault());

function orNull(number) {
  return Number.isNaN(number) ? null : number;
}

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

// --- moving about, and beginning ---

for (const jump of document.querySelectorAll("a[href='#output']"))
  jump.addEventListener("click", (event) => {
    event.preventDefault(); // the address is the state
    history.pushState({ visit }, "", location.href); // Back returns to the form
    output.focus({ preventScroll: true });
    output.scrollIntoView();
  });
addEventListener("popstate", arrive);
addEventListener("hashchange", arrive);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  drawCharts();
  fillPad();
});

function unfold() {
  const usual = entered.regions === (entered.classes > 20 ? "confidence" : entered.classes > 2 ? "shells" : "equal") && entered.bins === 10 && !edgesOf(entered).length;
  const isPlain = usual && entered.labels === null && [null, 10, 100, 1000].includes(entered.concentration) && entered.source === "expect";
  if (!isPlain) $("advanced").open = true;
  if (entered.pasted) $("paste").open = true;
  if (entered.test.some((each) => each !== null)) $("test").open = true;
}

function begin() {
  for (const part of ["advanced", "paste", "test"]) $(part).open = false;
  entered.way = entered.way in WAYS ? entered.way : "questions";
  [past, future, present] = [[], [], JSON.stringify(entered)];
  unfold();
  change();
}

begin();
