// Draws numbers that the server computed; computes none but places on the screen.

const SVG = "http://www.w3.org/2000/svg";
const VIRIDIS = ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"];
const LONGEST_LABEL = 26;

export function percent(mass) {
  if (mass > 0 && mass < 5e-5) return "< 0.01 %";
  return `${(100 * mass).toFixed(mass > 0 && mass < 1e-3 ? 2 : 1)} %`;
}

function make(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function canvasOf(holder, width, height, label) {
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  holder.replaceChildren(svg);
  return svg;
}

function words(text, x, y, attributes = {}) {
  return make("text", { x, y, ...attributes }, String(text));
}

function short(text, longest = LONGEST_LABEL) {
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

function widthOf(holder, most) {
  return Math.max(240, Math.min(most, holder.clientWidth || most));
}

function ticksUpTo(value) {
  const step = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1].find((each) => value * 1.02 <= 5 * each) ?? 0.2;
  return Array.from({ length: Math.min(Math.ceil((value * 1.02) / step), Math.round(1 / step)) + 1 }, (_, i) => i * step);
}

// --- bars ---

export function isHistogram({ axis, s0 }) {
  return axis.labels.length === s0.length + 1; // bars side by side, with edges between them
}

export function bars(holder, answer) {
  const edges = isHistogram(answer);
  holder.classList.toggle("tall", !edges && answer.s0.length > 24);
  const label = `Where the predictions should fall: ${answer.labels.slice(0, 30).map((name, r) => `${name} ${percent(answer.s0[r])}`).join(", ")}`;
  if (edges) columns(holder, answer, label);
  else rows(holder, answer, label);
}

function columns(holder, { s0, low, high, axis }, label) {
  const width = widthOf(holder, 620);
  const height = 290;
  const box = { left: 44, right: width - 12, top: 22, bottom: height - 44 };
  const svg = canvasOf(holder, width, height, label);
  const ticks = ticksUpTo(Math.max(...high, ...s0));
  const top = ticks.at(-1);
  const wide = (box.right - box.left) / s0.length;
  const y = (mass) => box.bottom - (Math.min(mass, top) / top) * (box.bottom - box.top);
  for (const mass of ticks) {
    svg.append(
      make("line", { x1: box.left, x2: box.right, y1: y(mass), y2: y(mass), class: mass ? "grid" : "axis" }),
      words(`${+(100 * mass).toPrecision(3)} %`, box.left - 6, y(mass) + 4, { "text-anchor": "end", class: "soft" }),
    );
  }
  s0.forEach((mass, r) => {
    const middle = box.left + (r + 0.5) * wide;
    svg.append(make("rect", { x: box.left + r * wide + 1, width: Math.max(1, wide - 2), y: y(mass), height: box.bottom - y(mass), class: "bar", "data-mass": mass }));
    whisker(svg, middle, y(low[r]), middle, y(high[r]));
    if (wide > 42) svg.append(words(percent(mass), middle, y(Math.max(mass, high[r])) - 5, { "text-anchor": "middle" }));
  });
  let last = -Infinity;
  axis.labels.forEach((text, i) => {
    const x = box.left + axis.positions[i] * wide;
    const half = 3.6 * text.length;
    if (x - half < last + 4) return;
    svg.append(words(text, x, box.bottom + 16, { "text-anchor": "middle", class: "soft" }));
    last = x + half;
  });
  svg.append(words(axis.title, (box.left + box.right) / 2, height - 6, { "text-anchor": "middle" }));
}

function rows(holder, { s0, low, high, labels }, label) {
  const width = widthOf(holder, 620) - (labels.length > 24 ? 16 : 0);
  const step = labels.length > 12 ? 19 : 27;
  const longest = width < 340 ? 18 : LONGEST_LABEL;
  const text = Math.min(longest, Math.max(...labels.map((name) => name.length))) * 6.6 + 12;
  const top = ticksUpTo(Math.max(...high, ...s0)).at(-1);
  const box = { left: text, right: width - 56 };
  const svg = canvasOf(holder, width, labels.length * step + 8, label);
  const x = (mass) => box.left + (Math.min(mass, top) / top) * (box.right - box.left);
  svg.append(make("line", { x1: box.left, x2: box.left, y1: 0, y2: labels.length * step + 4, class: "axis" }));
  s0.forEach((mass, r) => {
    const middle = r * step + step / 2 + 2;
    const name = words(short(labels[r], longest), box.left - 8, middle + 4, { "text-anchor": "end" });
    name.append(make("title", {}, labels[r]));
    svg.append(
      name,
      make("rect", { x: box.left, width: Math.max(1, x(mass) - box.left), y: middle - step * 0.36, height: step * 0.72, class: "bar", "data-mass": mass }),
      words(percent(mass), x(Math.max(mass, high[r])) + 6, middle + 4),
    );
    whisker(svg, x(low[r]), middle, x(high[r]), middle);
  });
}

function whisker(svg, x1, y1, x2, y2) {
  svg.append(make("line", { x1, y1, x2, y2, class: "whisker" }));
}

// Two histograms, bar beside bar.
export function comparison(holder, { before, after, ends, title }) {
  const width = widthOf(holder, 720);
  const height = 290;
  const box = { left: 44, right: width - 12, top: 12, bottom: height - 44 };
  const spoken = before.map((mass, r) => `${ends[r]} to ${ends[r + 1]} %: ${percent(mass)} before, ${percent(after[r])} after`).join("; ");
  const svg = canvasOf(holder, width, height, `${title}: ${spoken}`);
  const ticks = ticksUpTo(Math.max(...before, ...after));
  const wide = (box.right - box.left) / before.length;
  const y = (mass) => box.bottom - (mass / ticks.at(-1)) * (box.bottom - box.top);
  for (const mass of ticks)
    svg.append(
      make("line", { x1: box.left, x2: box.right, y1: y(mass), y2: y(mass), class: mass ? "grid" : "axis" }),
      words(`${+(100 * mass).toPrecision(3)} %`, box.left - 6, y(mass) + 4, { "text-anchor": "end", class: "soft" }),
    );
  for (const [masses, kind, shift] of [[before, "drawn", 0.08], [after, "bar", 0.5]])
    masses.forEach((mass, r) =>
      svg.append(make("rect", { x: box.left + (r + shift) * wide, width: 0.42 * wide, y: y(mass), height: box.bottom - y(mass), class: kind, "data-mass": mass })),
    );
  ends.forEach((end, r) => svg.append(words(end, box.left + r * wide, box.bottom + 16, { "text-anchor": "middle", class: "soft" })));
  svg.append(words(title, (box.left + box.right) / 2, height - 6, { "text-anchor": "middle" }));
}

// --- draws ---

export function draws(holder, { draws: drawn, s0 }) {
  const top = Math.sqrt(Math.max(...s0, ...drawn.flat())) * 1.03;
  const [width, height] = [150, 84];
  const wide = width / s0.length;
  const y = (mass) => height - 3 - (Math.sqrt(mass) / top) * (height - 8); // a root, so that small shares show too
  holder.replaceChildren(
    ...drawn.map((masses, i) => {
      const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": `Example ${i + 1}` });
      masses.forEach((mass, r) =>
        svg.append(make("rect", { x: r * wide + 0.5, width: Math.max(0.7, wide - 1), y: y(mass), height: height - 3 - y(mass), class: "drawn", "data-mass": mass })),
      );
      const path = s0.map((mass, r) => `${r ? "L" : "M"}${r * wide} ${y(mass)}H${(r + 1) * wide}`).join("");
      svg.append(make("path", { d: path, class: "line" }), make("line", { x1: 0, x2: width, y1: height - 2.5, y2: height - 2.5, class: "axis" }));
      return svg;
    }),
  );
}

// --- pictures ---

export function picture(holder, answer) {
  const drawing = answer.picture;
  holder.replaceChildren();
  return { scores, simplex, confidence }[drawing.kind](holder, drawing, answer);
}

function scores(holder, { density, cuts, title }) {
  const width = widthOf(holder, 620);
  const height = 290;
  const box = { left: 50, right: width - 12, top: 22, bottom: height - 44 };
  const svg = canvasOf(holder, width, height, `Density of the probability of ${title}, on a logarithmic scale`);
  const highest = Math.max(1, Math.ceil(Math.log10(Math.max(...density))));
  const lowest = Math.max(highest - 4, Math.min(-1, Math.floor(Math.log10(Math.max(Math.min(...density), 1e-30)))));
  const y = (value) => {
    const level = (Math.log10(Math.max(value, 1e-300)) - lowest) / (highest - lowest);
    return box.bottom - Math.min(1, Math.max(0, level)) * (box.bottom - box.top);
  };
  const x = (score) => box.left + score * (box.right - box.left);
  for (let power = lowest; power <= highest; power++) {
    svg.append(
      make("line", { x1: box.left, x2: box.right, y1: y(10 ** power), y2: y(10 ** power), class: power === lowest ? "axis" : power ? "grid" : "even" }),
      words(`${power < 0 ? (10 ** power).toFixed(-power) : 10 ** power}×`, box.left - 6, y(10 ** power) + 4, { "text-anchor": "end", class: "soft" }),
    );
  }
  const cell = 1 / density.length;
  const steps = density.map((value, i) => `L${x(i * cell)} ${y(value)}H${x((i + 1) * cell)}`).join("");
  svg.append(make("path", { d: `M${x(0)} ${box.bottom}${steps}V${box.bottom}Z`, class: "area" }), make("path", { d: `M${x(0)} ${y(density[0])}${steps}`, class: "outline" }));
  for (const cut of cuts) svg.append(make("line", { x1: x(cut), x2: x(cut), y1: box.top, y2: box.bottom, class: "cut" }));
  for (const score of [0, 0.25, 0.5, 0.75, 1]) svg.append(words(100 * score, x(score), box.bottom + 16, { "text-anchor": "middle", class: "soft" }));
  svg.append(words(`probability of ${short(title, 30)}, %`, (box.left + box.right) / 2, height - 6, { "text-anchor": "middle" }));
  return ["The same as a curve", "How much more often a prediction occurs than if all were equally frequent (1×). Dashed: where ranges end."];
}

function simplex(holder, drawing) {
  const width = widthOf(holder, 520);
  const side = Math.min(width - 24, 400);
  const high = side * drawing.height;
  const lines = Math.max(...drawing.corners.map((notes) => notes.length));
  const left = (width - side) / 2;
  const top = 30;
  const height = top + high + 24 + 16 * lines + 40;
  const svg = canvasOf(holder, width, height, `Heat map of the belief on the triangle of ${drawing.names.join(", ")}`);
  holder.prepend(heatMap(drawing, { left, top, width: side, height: high }));
  svg.style.position = "relative";
  const place = ([x, y]) => [left + x * side, top + high - y * side];
  for (const kind of ["under", "border"])
    for (const ends of drawing.lines) {
      const [[x1, y1], [x2, y2]] = ends.map(place);
      svg.append(make("line", { x1, y1, x2, y2, class: kind }));
    }
  svg.append(make("polygon", { points: `${left},${top + high} ${left + side},${top + high} ${left + side / 2},${top}`, class: "triangle" }));
  for (const [x, y, text] of drawing.inside) {
    const [across, down] = place([x, y]);
    svg.append(words(text, across, down + 4, { "text-anchor": "middle", class: "over" }));
  }
  drawing.names.forEach((name, k) => {
    const [x, y, anchor] = [
      [Math.max(2, left - 8), top + high + 20, "start"],
      [Math.min(width - 2, left + side + 8), top + high + 20, "end"],
      [left + side / 2, top - 10, "middle"],
    ][k];
    svg.append(words(short(name, k < 2 ? 16 : 30), x, y, { "text-anchor": anchor, class: "name" }));
    drawing.corners[k].forEach((note, i) => {
      const place = k < 2 ? [x, y + 16 * (i + 1), anchor] : [left + side / 2 + 14 + 9.3 * drawing.corners[k].length, top + 12 + 16 * i, "start"];
      svg.append(words(note, place[0], place[1], { "text-anchor": place[2] }));
    });
  });
  scale(svg, drawing.limits, { left: width / 2 - 90, top: height - 30, width: 180 });
  return ["The same on a triangle", "Each point is a prediction, and a corner is certainty. Colour: how much more often it occurs than if all were equally frequent (1×). Lines: where ranges end."];
}

function heatMap({ columns, rows, shades }, place) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.setAttribute("aria-hidden", "true");
  for (const [side, value] of Object.entries(place)) canvas.style[side] = `${value}px`;
  const values = Uint8Array.from(atob(shades), (character) => character.charCodeAt(0));
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const palette = Array.from({ length: 256 }, (_, shade) => colour(shade / 255));
  values.forEach((shade, i) => image.data.set([...palette[shade], 255], 4 * i));
  context.putImageData(image, 0, 0);
  return canvas;
}

function colour(level) {
  const place = level * (VIRIDIS.length - 1);
  const index = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const [from, to] = [VIRIDIS[index], VIRIDIS[index + 1]].map((text) => [0, 2, 4].map((i) => parseInt(text.slice(i, i + 2), 16)));
  return from.map((value, i) => Math.round(value + (place - index) * (to[i] - value)));
}

function scale(svg, [low, high], { left, top, width }) {
  const cells = 45;
  for (let i = 0; i < cells; i++)
    svg.append(make("rect", { x: left + (i * width) / cells, y: top, width: width / cells + 0.5, height: 9, fill: `rgb(${colour(i / (cells - 1)).join(" ")})` }));
  for (const value of [low, 1, high]) {
    const x = left + (width * Math.log(value / low)) / Math.log(high / low);
    svg.append(words(`${value}×`, x, top + 23, { "text-anchor": "middle", class: "soft" }));
  }
}

function confidence(holder, { labels, masses }) {
  const none = masses.map(() => 0);
  rows(holder, { s0: masses, low: none, high: none, labels }, `Share of predictions by confidence: ${labels.map((name, r) => `${name} ${percent(masses[r])}`).join(", ")}`);
  for (const line of holder.querySelectorAll(".whisker")) line.remove();
  return ["How sure it should be", "Share of the predictions by their largest probability, whatever the class."];
}
