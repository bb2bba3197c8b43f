"use strict";
// The worklist in the browser: a list, a picture, and the reader's answers.

const find = (id) => document.getElementById(id);
const about = JSON.parse(find("about").textContent);
const rows = JSON.parse(find("rows").textContent);
const STORE = "squid-worklist-" + about.id;
const ANSWERS = ["agree", "disagree", "unsure"];
const MARKS = { new: "", seen: "seen", agree: "✓ agree", disagree: "✕ disagree", unsure: "? unsure" };
const CALM = "in which nothing stands out beside the other images";
const PLAIN = { zoom: 1, x: 0, y: 0, level: 127.5, window: 255, invert: false };

const view = { ...PLAIN, heat: false, reconstruction: false, opacity: 0.7 };
let shown = []; // numbers of the rows in the list, in its order
let current = -1;
let pictures = {}; // the decoded pictures of the current row
let shaded = null; // the current image after window, level and inversion

// ------------------------------------------------------------------ answers

let answers = {};
try {
  answers = JSON.parse(localStorage.getItem(STORE)) || {};
} catch {
  find("kept").textContent = "This browser keeps no answers; export them before you close the page.";
}

const stateOf = (row) => (answers[row.source] || {}).state || "new";

function setState(row, state) {
  answers[row.source] = { state, time: new Date().toISOString() };
  try {
    localStorage.setItem(STORE, JSON.stringify(answers));
  } catch {
    find("kept").textContent = "Answers could not be kept; export them before you close the page.";
  }
  mark(row);
  count();
}

function answer(state) {
  const row = rows[current];
  if (row && row.score !== null) {
    setState(row, stateOf(row) === state ? "seen" : state);
    showAnswer(row);
  }
}

// A spreadsheet would run a cell that begins like a formula.
const cell = (value) => {
  const text = String(value ?? "").replace(/^[=+\-@\t\r]/, (first) => "'" + first);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function exported() {
  const head = ["image", "score", "p_value", "flagged", "state", "answered", "run", "model"];
  const lines = rows.map((row) => {
    const kept = answers[row.source] || {};
    const number = (value) => (value === null ? "" : value);
    const given = [number(row.score), number(row.p_value), row.flagged ?? ""];
    const cells = [row.source, stateOf(row), kept.time, about.run, about.digest].map(cell);
    return [cells[0], ...given, ...cells.slice(1)].join(",");
  });
  return [head.join(","), ...lines].join("\r\n") + "\r\n";
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([exported()], { type: "text/csv" }));
  link.download = "worklist-answers.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --------------------------------------------------------------------- list

const FILTERS = {
  all: (row) => row.score !== null,
  flagged: (row) => row.flagged === true,
  unread: (row) => row.score !== null && stateOf(row) === "new",
  unscored: (row) => row.score === null,
};

function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function entry(row, number) {
  const button = element("button");
  button.type = "button";
  button.dataset.row = number;
  if (row.picture) {
    const image = element("img");
    Object.assign(image, { src: row.picture, alt: "", loading: "lazy", decoding: "async" });
    button.append(image);
  } else {
    button.append(element("span", "none", row.score === null ? "no score" : "no picture"));
  }
  const says = element("span", row.score === null ? "says reason" : "says");
  if (row.flagged) says.append(element("span", "flagged", "▲ flagged"), " · ");
  says.append(row.score === null ? row.reason : row.rarity || `score ${row.score.toPrecision(4)}`);
  button.append(element("span", "file", row.name), element("span", "mark"), says);
  button.title = row.source;
  button.addEventListener("click", () => open(number));
  const item = element("li");
  item.append(button);
  return item;
}

const items = rows.map(entry);

function mark(row) {
  const item = items[rows.indexOf(row)];
  const state = stateOf(row);
  item.querySelector(".mark").textContent = MARKS[state];
  item.classList.toggle("unread", row.score !== null && state === "new");
}

function count() {
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.querySelector("b").textContent = rows.filter(FILTERS[button.dataset.filter]).length;
  }
}

function filter(name) {
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.setAttribute("aria-pressed", button.dataset.filter === name);
  }
  shown = [...rows.keys()].filter((number) => FILTERS[name](rows[number]));
  find("list").replaceChildren(...shown.map((number) => items[number]));
  if (!shown.includes(current)) shown.length ? open(shown[0], true) : empty();
}

// ------------------------------------------------------------------ opening

const see = (row) => row.score !== null && stateOf(row) === "new" && setState(row, "seen");

// The first image is opened by the page: it counts as seen once the reader goes on.
function open(number, quietly) {
  if (current >= 0) {
    items[current].firstChild.removeAttribute("aria-current");
    if (!quietly) see(rows[current]);
  }
  current = number;
  const row = rows[number];
  const button = items[number].firstChild;
  button.setAttribute("aria-current", "true");
  button.scrollIntoView({ block: "nearest" });
  if (!quietly) button.focus({ preventScroll: true });
  Object.assign(view, PLAIN, { heat: false });
  describe(row);
  load(row, number);
  if (!quietly) see(row);
  showAnswer(row);
}

function describe(row) {
  const place = `${shown.indexOf(current) + 1} of ${shown.length}`;
  const flag = { true: "▲ Flagged", false: "Not flagged", null: "" }[row.flagged];
  find("place").textContent = place;
  find("name").textContent = row.name;
  find("flag").textContent = flag;
  find("flag").className = row.flagged ? "flagged" : "";
  find("rarity").textContent = inWords(row);
  const facts = row.facts.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", value));
    return pair;
  });
  find("facts").replaceChildren(...facts);
  find("spoken").textContent = [place, row.name, flag, find("rarity").textContent].join(". ");
  find("heat").disabled = !row.heat;
  find("reconstruction").disabled = !row.reconstruction;
  find("canvas").setAttribute("aria-label", row.name);
}

function inWords(row) {
  if (row.score === null) return `No score: ${row.reason}`;
  return row.rarity ? `${row.rarity} healthy images scores this high` : "Not calibrated: no p-value";
}

function showAnswer(row) {
  for (const button of document.querySelectorAll("[data-answer]")) {
    button.setAttribute("aria-pressed", stateOf(row) === button.dataset.answer);
    button.disabled = row.score === null;
  }
}

async function load(row, number) {
  const decoded = async (source) => {
    if (!source) return null;
    const image = new Image();
    image.src = source;
    await image.decode();
    return image;
  };
  const kinds = ["picture", "heat", "reconstruction"];
  const images = await Promise.all(kinds.map((kind) => decoded(row[kind])));
  if (number !== current) return; // another one was opened meanwhile
  pictures = Object.fromEntries(kinds.map((kind, place) => [kind, images[place]]));
  shade();
  draw();
}

function empty() {
  current = -1;
  pictures = {};
  shaded = null;
  for (const id of ["place", "name", "flag", "rarity"]) find(id).textContent = "";
  find("rarity").textContent = "No image is in this list.";
  find("facts").replaceChildren();
  draw();
}

function step(by) {
  const place = Math.min(Math.max(shown.indexOf(current) + by, 0), shown.length - 1);
  if (shown.length && shown[place] !== current) open(shown[place]);
}

// ------------------------------------------------------------------ picture

// Gray values between the ends of the window become black to white; 8 bits in, 8 bits out.
function table() {
  const low = view.level - view.window / 2;
  const shares = Uint8ClampedArray.from({ length: 256 }, (_, v) => (255 * (v - low)) / view.window);
  return view.invert ? shares.map((v) => 255 - v) : shares;
}

function windowed(image) {
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  const gray = table();
  for (let i = 0; i < pixels.data.length; i += 4) {
    pixels.data[i] = pixels.data[i + 1] = pixels.data[i + 2] = gray[pixels.data[i]];
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function shade() {
  shaded = null;
  if (!pictures.picture) return;
  const beside = view.reconstruction && pictures.reconstruction;
  shaded = { image: windowed(pictures.picture), beside: beside && windowed(beside) };
}

function draw() {
  const canvas = find("canvas");
  const scale = devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  const context = canvas.getContext("2d");
  find("message").textContent = note();
  for (const [id, value] of [["level", view.level], ["window", view.window]]) find(id).value = value;
  find("invert").setAttribute("aria-pressed", view.invert);
  find("reconstruction").setAttribute("aria-pressed", view.reconstruction);
  if (!shaded) return;
  const panes = shaded.beside ? [shaded.image, shaded.beside] : [shaded.image];
  const width = canvas.width / panes.length;
  panes.forEach((pane, place) => {
    context.save();
    context.beginPath();
    context.rect(place * width, 0, width - (panes.length - 1 - place) * 4, canvas.height);
    context.clip();
    const [x, y, w, h] = frame(width, canvas.height);
    context.drawImage(pane, place * width + x, y, w, h);
    if (view.heat && pictures.heat && place === 0) {
      context.globalAlpha = view.opacity;
      context.drawImage(pictures.heat, place * width + x, y, w, h);
    }
    context.restore();
  });
}

// Where an image of the first one's shape lies in a pane; both panes zoom and move together.
function frame(width, height) {
  const { naturalWidth, naturalHeight } = pictures.picture;
  const fit = Math.min(width / naturalWidth, height / naturalHeight) * view.zoom;
  const [w, h] = [naturalWidth * fit, naturalHeight * fit];
  const scale = devicePixelRatio || 1;
  return [(width - w) / 2 + view.x * scale, (height - h) / 2 + view.y * scale, w, h];
}

function note() {
  const row = rows[current];
  if (!row || row.score === null) return "";
  if (!row.picture) return row.note || about.no_picture;
  const parts = [];
  if (view.heat && row.heat) parts.push(`heatmap, ${row.calm ? CALM : "on one scale for all images"}`);
  if (view.reconstruction && row.reconstruction) parts.push("left: image, right: reconstruction");
  if (view.invert) parts.push("inverted");
  if (view.level !== PLAIN.level || view.window !== PLAIN.window) {
    parts.push(`level ${Math.round(view.level)}, window ${Math.round(view.window)} of 8 bits`);
  }
  return parts.join(" · ");
}

function change(values, again) {
  Object.assign(view, values);
  view.zoom = Math.min(Math.max(view.zoom, 0.2), 20);
  view.level = Math.min(Math.max(view.level, 0), 255);
  view.window = Math.min(Math.max(view.window, 2), 510);
  if (again) shade();
  draw();
}

const zoom = (by) => change({ zoom: view.zoom * by, x: view.x * by, y: view.y * by });
const fit = () => change({ zoom: 1, x: 0, y: 0 });
const reset = () => change({ level: PLAIN.level, window: PLAIN.window }, true);
const invert = () => change({ invert: !view.invert }, true);
const compare = () => rows[current]?.reconstruction && change({ reconstruction: !view.reconstruction }, true);

// ----------------------------------------------------------------- buttons

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  i: invert,
  r: compare,
  1: fit,
  "+": () => zoom(1.25),
  "=": () => zoom(1.25),
  "-": () => zoom(0.8),
  a: () => answer("agree"),
  d: () => answer("disagree"),
  u: () => answer("unsure"),
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") {
    find("help").open ? find("help").close() : find("help").showModal();
    return event.preventDefault();
  }
  if (find("help").open) return;
  const key = event.key.toLowerCase();
  if (key === "h" && !event.repeat) change({ heat: true });
  else if (KEYS[key] && !(event.repeat && "iradu".includes(key))) KEYS[key]();
  else return;
  event.preventDefault();
});
const hide = () => view.heat && change({ heat: false });
addEventListener("keyup", (event) => event.key.toLowerCase() === "h" && hide());
addEventListener("blur", hide);

const press = (id, action) => find(id).addEventListener("click", action);
press("export", save);
press("help-open", () => find("help").showModal());
press("invert", invert);
press("reconstruction", compare);
press("fit", fit);
press("reset", reset);
press("in", () => zoom(1.25));
press("out", () => zoom(0.8));
for (const button of document.querySelectorAll("[data-filter]")) {
  button.addEventListener("click", () => filter(button.dataset.filter));
}
for (const button of document.querySelectorAll("[data-answer]")) {
  button.addEventListener("click", () => answer(button.dataset.answer));
}
find("heat").addEventListener("pointerdown", () => change({ heat: true }));
for (const end of ["pointerup", "pointerleave", "pointercancel"]) find("heat").addEventListener(end, hide);
// A button that is held by the keyboard: space or enter, down and up.
find("heat").addEventListener("keydown", (event) => {
  if ([" ", "Enter"].includes(event.key) && !event.repeat) change({ heat: true });
});
find("heat").addEventListener("keyup", hide);
find("opacity").addEventListener("input", (event) => change({ opacity: event.target.value / 100 }));
for (const id of ["level", "window"]) {
  find(id).addEventListener("input", (event) => change({ [id]: Number(event.target.value) }, true));
}

const canvas = find("canvas");
let drag = null;
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("pointerdown", (event) => {
  drag = { button: event.button, x: event.clientX, y: event.clientY, from: { ...view } };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
  if (drag.button === 2) change({ window: drag.from.window + x, level: drag.from.level + y }, true);
  else change({ x: drag.from.x + x, y: drag.from.y + y });
});
for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (drag = null));
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const by = Math.exp(-event.deltaY / 400);
    // What is under the pointer stays there.
    const panes = shaded && shaded.beside ? 2 : 1;
    const pane = canvas.clientWidth / panes;
    const x = (event.offsetX % pane) - pane / 2;
    const y = event.offsetY - canvas.clientHeight / 2;
    change({ zoom: view.zoom * by, x: x + (view.x - x) * by, y: y + (view.y - y) * by });
  },
  { passive: false },
);
new ResizeObserver(draw).observe(canvas);

rows.forEach(mark);
count();
filter("all");
