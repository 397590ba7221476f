// The labeling page. Cells, labels and names are only ever set as text.
import { lineChart } from "./charts.js";

const $ = (id) => document.getElementById(id);
const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "0"];
const WHY = {
  uncertain: ["Uncertain", "The most probable classes are close to each other."],
  unlike: ["Unlike the others", "No similar row has a label."],
  random: ["Random check", "Drawn at random, to measure the accuracy."],
};
const FOLD_TEXT = 1200, FOLD_VALUE = 160;
const LONGEST_WORD = 24;  // letters of a word of a class for which a column is made wider
const CHOOSING = 20, LIVE = 500;  // milliseconds between two looks: for cards, and for live numbers

const state = {
  session: null, number: 0, person: "",
  cards: [],            // the card shown, and the next
  sent: new Set(),      // rows whose answer is on its way
  chain: Promise.resolve(),
  keys: [],             // the classes of the keys 1 to 9 and 0, as shown
  unfolded: new Set(),  // lists that show all their classes
  status: null, view: "label",
  history: { start: 0, asked: 0 },
};

// -- helpers ----------------------------------------------------------------------------------

function make(name, options = {}, ...children) {
  const { text, class: kind, ...attributes } = options;
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const shareBar = (share) => make("progress", { class: "share", max: 1, value: share, "aria-hidden": "true" });
const pause = (time) => new Promise((done) => setTimeout(done, time));
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
const chance = (share) => (share < 0.005 ? "< 1 %" : share > 0.995 ? "> 99 %" : percent(share));
const keyOf = (card) => `${card.row} ${card.file}`;
const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

// Control characters are shown by their pictures, so that nothing is invisible.
function visible(text) {
  return text.replace(/\r\n/g, "\n").replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (sign) =>
    sign === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + sign.charCodeAt(0)));
}

class Refusal extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { ...options, credentials: "omit", redirect: "error" });
  } catch {
    throw new Refusal(0, "The server does not answer. Labels marked as saved are on the disk. Start the same command again, and open its address.");
  }
  let content = {};
  try { content = await answer.json(); } catch { /* an empty answer */ }
  if (!answer.ok) throw new Refusal(answer.status, content.error || `The server answered ${answer.status}.`);
  return content;
}

function alarm(text) {
  $("alert").hidden = !text;
  $("alert").querySelector("p").textContent = text;
}

const say = (text) => { $("said").textContent = text; };
const dialogOpen = () => document.querySelector("dialog[open]") !== null;
const focusCard = () => { if (state.view === "label" && current()) $("card").focus({ preventScroll: true }); };

// A dialog that closes gives the focus back at once, here to the card: keys that follow are the card's.
function openDialog(dialog) {
  focusCard();
  dialog.showModal();
}

// -- cells --------------------------------------------------------------------------------------

function foldable(cell, limit) {
  const holder = make("span");
  const value = make("span", { class: "value-text", dir: "auto" });
  holder.append(value);
  const whole = visible(cell.text);
  if (whole.length <= limit) {
    value.textContent = whole;
    return holder;
  }
  const button = make("button", { type: "button", class: "fold" });
  const fold = (open) => {
    value.textContent = open ? whole : `${whole.slice(0, limit * 0.6)} …`;
    button.textContent = open ? "Show less" : `Show all ${plural(whole.length, "character")}`;
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => fold(button.getAttribute("aria-expanded") !== "true"));
  fold(false);
  holder.append(make("br"), button);
  return holder;
}

function showCells(place, cells) {
  const parts = [];
  const texts = cells.filter((cell) => cell.long);
  for (const cell of texts) {
    const text = make("div", { class: "cell-text" });
    if (cells.length > 1) text.append(make("span", { class: "name", text: cell.name }));
    text.append(foldable(cell, FOLD_TEXT));
    parts.push(text);
  }
  const values = cells.filter((cell) => !cell.long);
  if (values.length) {
    const list = make("dl", { class: "values" });
    for (const cell of values) {
      const entry = make("dd", {}, foldable(cell, FOLD_VALUE));
      const wide = cell.text.length > 28 || cell.text.includes("\n");
      list.append(make("div", wide ? { class: "wide" } : {}, make("dt", { text: cell.name }), entry));
    }
    parts.push(list);
  }
  if (!parts.length) parts.push(make("p", { text: "All shown cells of this row are empty." }));
  place.replaceChildren(...parts);
}

// -- classes ------------------------------------------------------------------------------------

// Up to ten classes stay where they are. Of more, the likely ones come first, then those with most
// labels, up to ten; all others follow from A to Z.
function ordered(classes, likely) {
  const names = classes.map(([name]) => name);
  if (names.length <= KEYS.length) return [names, []];
  const by = [...classes].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const first = [...new Set([...likely.filter((name) => names.includes(name)), ...by])].slice(0, KEYS.length);
  return [first, fromAToZ(names.filter((name) => !first.includes(name)))];
}

const fromAToZ = (names) => [...names].sort(new Intl.Collator("en", { numeric: true }).compare);
const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

// The names that have all typed words in them; first those that begin with the typed text.
function found(names, typed) {
  const text = plain(typed).trim(), words = text.split(/\s+/);
  const rank = (name) => (name === text ? 0 : name.startsWith(text) ? 1 : 2);
  return names.filter((name) => words.every((word) => plain(name).includes(word)))
    .sort((one, other) => rank(plain(one)) - rank(plain(other)));
}

// The parts of a name between which a line may break: words are never broken.
const parts = (text) => text.split(/(?<=[\s_\-\/.,:;&+|])|(?<=\p{Ll})(?=\p{Lu})/u);

function nameOf(name) {
  const made = make("span", { class: "name", dir: "auto" });
  for (const part of parts(visible(name))) made.append(part, make("wbr"));
  return made;
}

function classButton(name, choose, { key = "", share, guess = false } = {}) {
  const button = make("button", { type: "button", class: guess ? "class guess" : "class" });
  button.dataset.label = name;
  if (key) button.append(make("kbd", { text: key, "aria-hidden": "true" }));
  button.append(nameOf(name));
  if (share !== undefined) {
    button.append(make("span", { class: "chance", text: chance(share) }), shareBar(share));
  }
  button.addEventListener("click", () => choose(name));
  return button;
}

// A button that unfolds a list. Returns whether the list is unfolded.
function foldButton(button, number, noun, key = "") {
  const open = state.unfolded.has(button.id);
  button.hidden = number === 0;
  button.setAttribute("aria-expanded", String(open));
  button.replaceChildren(
    ...(key ? [make("kbd", { text: key, "aria-hidden": "true" }), " "] : []),
    open ? `Show only ${KEYS.length} ${noun}` : `Show ${number} more ${noun}`,
  );
  return open;
}

function toggle(button, draw) {
  if (!state.unfolded.delete(button.id)) state.unfolded.add(button.id);
  draw();
}

// -- the card -----------------------------------------------------------------------------------

const current = () => state.cards[0];

function showCard({ focus = true, moved = true } = {}) {
  const card = current();
  $("card").hidden = $("answers").hidden = !card;
  $("waiting").hidden = Boolean(card) || state.finished;
  $("finished").hidden = Boolean(card) || !state.finished;
  if (!card) return;
  const [badge, why] = WHY[card.why] || WHY.uncertain;
  $("why-badge").textContent = badge;
  $("why-badge").className = `badge ${card.why}`;
  $("why").textContent = card.again ? `${why} You undid your answer.` : why;
  $("card-title").textContent = `Row ${card.row.toLocaleString("en")} of ${visible(card.file)}`;
  showCells($("cells"), card.cells);
  foldExplanation(card);
  $("filter").value = "";
  showClasses();
  if (focus && !dialogOpen()) focusCard();
  if (moved && focus) scrollTo({ top: 0 });
}

// The explanation is folded on every new card, and asked for when it is unfolded.
function foldExplanation(card) {
  const fold = $("explanation");
  fold.hidden = !card.probabilities.length;
  if (fold.dataset.row === keyOf(card)) return;
  fold.dataset.row = keyOf(card);
  fold.open = false;
}

async function showExplanation() {
  const card = current();
  $("explained").textContent = $("explanation").open ? "The prediction is being explained." : "";
  $("votes").replaceChildren();
  if (!card || !$("explanation").open) return;
  const isShown = () => $("explanation").open && current() && keyOf(current()) === keyOf(card);
  try {
    const found = await ask(`explanation?${new URLSearchParams({ file: card.file, row: card.row })}`);
    if (!isShown()) return;
    $("explained").textContent = `The model now predicts ${visible(found.label)} (${chance(found.probability)}).`;
    $("votes").replaceChildren(...votesOf(found));
  } catch (error) { if (isShown()) $("explained").textContent = error.message; }
}

// The members of the pool; then columns and labeled rows of the experts of largest weight that have them.
function votesOf(found) {
  const ofColumns = found.votes.find((vote) => vote.columns.length), ofRows = found.votes.find((vote) => vote.rows.length);
  const spoken = (name) => visible(name).replaceAll("_", " "), label = visible(found.label);
  const signed = (part) => `${part.contribution < 0 ? "\u2212" : "+"}${Math.abs(part.contribution).toFixed(2)}`;
  const list = (title, note, entries) => (entries.length
    ? [make("h3", { text: title }), make("p", { class: "small", text: note }), make("ul", {}, ...entries)] : []);
  const entry = (number, name, text) => make(
    "li", {}, make("span", { class: "number", text: number }),
    make("span", {}, make("span", { class: "name", text: `${name} `, dir: "auto" }), foldable({ text }, FOLD_VALUE)),
  );
  const members = found.members.map((each) => entry(
    percent(each.weight), spoken(each.name), `${label} ${chance(each.probability)}`));
  const columns = (ofColumns?.columns || []).map((part) => entry(
    signed(part), visible(part.name), part.is_word ? `has "${part.value}"` : part.value === null ? "(missing)" : String(part.value)));
  const rows = (ofRows?.rows || []).map((part) => entry(
    signed(part), part.label === null ? "(label not kept)" : visible(part.label),
    Object.entries(part.row).map(([name, text]) => `${name} ${text}`).join(" · ") || "(its cells are not stored)"));
  const note = (vote) => `Contributions to the ${vote.unit} of ${label} by the ${spoken(vote.expert)} expert.`;
  return [
    ...list("Experts", `Their weights, and their probabilities of ${label}.`, members),
    ...(ofColumns ? list("Columns", note(ofColumns), columns) : []),
    ...(ofRows ? list("Labeled rows for and against", note(ofRows), rows) : []),
  ];
}

// Classes that are added while a card is shown leave the keys as they are.
function showClasses({ stay = false } = {}) {
  const card = current(), focused = document.activeElement?.dataset?.label;
  const shares = new Map(card ? card.probabilities : []), guess = card?.probabilities[0]?.[0];
  const classes = state.status?.classes || [], typed = $("filter").value.trim();
  const [first, others] = ordered(classes, stay ? state.keys : [...shares.keys()]);
  const many = others.length > 0, choose = (name) => answer("label", name);
  const button = (name, key) => classButton(name, choose, { key, share: shares.get(name), guess: guess === name });
  state.keys = first;
  $("finder").hidden = !many;
  if (many && typed) {
    const names = found([...first, ...others], typed);
    $("classes").replaceChildren(...names.map((name, place) => button(name, place ? "" : "Enter")));
    $("matches").textContent = names.length
      ? `${names.length} of ${classes.length} classes`
      : "No class has this name. Press Enter to name a new class.";
    $("more-classes").hidden = true;
    $("other-classes").replaceChildren();
  } else {
    $("classes").replaceChildren(...first.map((name, place) => button(name, KEYS[place])));
    $("matches").textContent = "";
    const open = foldButton($("more-classes"), others.length, "classes", "m");
    $("other-classes").replaceChildren(...(open ? others.map((name) => button(name)) : []));
  }
  const longest = Math.max(0, ...classes.flatMap(([name]) => parts(visible(name)).map((part) => part.length)));
  $("answers").style.setProperty("--longest", Math.min(longest, LONGEST_WORD));
  $("guess").replaceChildren(...(guess === undefined ? [] : [
    `The model guesses ${visible(guess)} (${chance(shares.get(guess))}). `,
    ...(typed ? [] : [make("span", { class: "by-key" }, make("kbd", { text: "Enter" }), " accepts it.")]),
  ]));
  $("classes-title").textContent = classes.length ? "Which class is it?" : "No class yet: press n to name the first one.";
  if (focused !== undefined) buttonsOfClasses().find((each) => each.dataset.label === focused)?.focus();
}

const buttonsOfClasses = () => [...$("answers").querySelectorAll(".class")];

function takeCards(cards) {
  if (cards === null) return pause(CHOOSING).then(fetchCards);  // a round is being chosen
  state.cards = cards.filter((card) => !state.sent.has(keyOf(card)));
  state.finished = cards.length === 0;
  if (cards.length === 1) setTimeout(prefetch, 300);  // the next round is being chosen
  return undefined;
}

async function prefetch() {
  const tries = state.tries = (state.tries || 0) + 1;
  if (state.sent.size || state.cards.length !== 1 || tries > 20) return;
  try { await fetchCards(); } catch { /* the next answer shows the error */ }
}

// Takes away a card that the same person has answered on another page.
async function lookAgain() {
  if (state.session === null || !state.cards.length || state.sent.size) return;
  const shown = keyOf(current());
  try { await fetchCards(); } catch { return; }
  if (!current() || keyOf(current()) !== shown) showCard();
}

async function fetchCards() {
  const { cards, number } = await ask(`cards?session=${encodeURIComponent(state.session)}`);
  state.number = number;  // of the last action that the server knows
  return takeCards(cards);
}

// An answer is sent in the background; the next card is shown at once.
function answer(action, label) {
  const card = current();
  if (!card || state.session === null) return;
  state.cards.shift();
  state.tries = 0;
  state.sent.add(keyOf(card));
  showCard();
  const request = { action, file: card.file, row: card.row, version: card.version };
  if (label !== undefined) request.label = label;
  state.chain = state.chain.then(async () => {
    const shown = current();
    try {
      const done = await act(request);
      state.sent.delete(keyOf(card));
      alarm("");
      say(action === "skip" ? `Skipped row ${card.row}.` : `Saved: row ${card.row} is ${visible(label)}.`);
      showStatus(done.status);
      await takeCards(done.cards);
    } catch (error) {
      state.sent.delete(keyOf(card));
      await recover(error, `Row ${card.row} was not saved. `);
    }
    const same = shown && current() && keyOf(shown) === keyOf(current());
    if (!same) showCard();  // buttons are not replaced while somebody may press one
  });
}

function act(request) {
  state.number += 1;
  return ask("act", { session: state.session, number: state.number, ...request });
}

async function recover(error, before = "") {
  state.number -= 1;
  alarm(before + error.message);
  try { await fetchCards(); } catch { /* the first error is shown */ }
}

function undo() {
  state.chain = state.chain.then(async () => {
    try {
      const done = await act({ action: "undo" });
      alarm("");
      say(`Undone: row ${done.row} has no label of yours.`);
      showStatus(done.status);
      await takeCards(done.cards);
    } catch (error) {
      await recover(error);
    }
    showCard();
  });
}

// -- live numbers -------------------------------------------------------------------------------

function barList(place, pairs) {
  const most = Math.max(1, ...pairs.map(([, count]) => count));
  place.replaceChildren(...pairs.map(([name, count]) => make(
    "li", {}, make("span", { class: "name", text: visible(name), dir: "auto" }),
    make("span", { class: "number", text: String(count) }), shareBar(count / most),
  )));
}

// Of more than ten classes, those with most labels come first; the others are folded.
function showCounts() {
  const { classes } = state.status, [, others] = ordered(classes, []);
  const open = foldButton($("more-counts"), others.length, "classes");
  const sorted = others.length ? [...classes].sort((one, other) => other[1] - one[1]) : classes;
  barList($("counts"), open ? sorted : sorted.slice(0, KEYS.length));
}

function showAccuracy(status) {
  const { checks, queried } = status;
  $("accuracy").textContent = checks.n ? percent(checks.value) : "–";
  $("interval").textContent = checks.n ? `${percent(checks.low)} to ${percent(checks.high)}` : "";
  $("accuracy-text").textContent = checks.n
    ? `${Math.round(checks.value * checks.n)} of ${checks.n} recent random checks predicted correctly, before their labels were known, with the 95 % interval.`
    : "Measured on random checks, as soon as two classes have labels.";
  $("queried").textContent = queried.n ? `Queried rows: ${percent(queried.value)}.` : "";
}

function showChanges(status) {
  $("hint").textContent = status.hint;
  const points = status.changes.map(([labels, share]) => [labels, share]);
  const top = Math.max(0.02, ...points.map(([, share]) => share));
  const nice = Math.ceil(top * 20) / 20;
  $("change-chart").replaceChildren(...(points.length > 1
    ? [lineChart(`Predictions changed by every ten labels, last ${percent(points.at(-1)[1], 1)}`, points, nice)]
    : []));
}

function showPeople(status) {
  $("people-section").hidden = status.people.length < 2;
  barList($("people"), status.people);
  $("agreement").replaceChildren(...status.agreement.map((each) => {
    const kappa = each.kappa === null ? "not defined" : each.kappa.toFixed(2);
    return make("li", { text: `${each.people.map(visible).join(" and ")}: equal labels for ${percent(each.agreement)} of ${plural(each.n, "row")}, kappa ${kappa}` });
  }));
  $("n-disputes").hidden = !status.disputes;
  $("n-disputes").textContent = String(status.disputes);
  $("show-disputes").hidden = status.people.length < 2 && !status.disputes;
}

function showStatus(status) {
  const classes = JSON.stringify(state.status?.classes.map(([name]) => name));
  state.status = status;
  $("title").textContent = visible(status.title) || "seqmed label";
  document.title = `${status.labels} labels – ${visible(status.title)} – seqmed label`;
  $("labels").textContent = status.labels.toLocaleString("en");
  $("goal").textContent = status.goal.toLocaleString("en");
  $("bar").max = status.goal;
  $("bar").value = Math.min(status.goal, status.labels);
  $("earlier").textContent = status.earlier ? `The model had ${plural(status.earlier, "label")} before. They are counted below.` : "";
  showCounts();
  showAccuracy(status);
  showChanges(status);
  showPeople(status);
  const learned = status.events - status.waiting;
  const parts = [`${plural(status.events, "answer")} on the disk.`];
  parts.push(status.waiting ? `The model has learned ${learned}.` : "The model has learned all of them.");
  if (status.kept) parts.push(`The model has another label of ${plural(status.kept, "row")}: they were learned too long ago, or equal rows have other labels. Delete the model and run the command again to learn all labels anew.`);
  if (status.unsaved) parts.push(`The model cannot be saved (${status.unsaved}); it is tried again. Free some space. Labels marked as saved are on the disk.`);
  if (status.trouble) parts.push("The model has stopped learning because of an error: end the command to see it. Labels are still saved.");
  $("saved").textContent = parts.join(" ");
  if (JSON.stringify(status.classes.map(([name]) => name)) !== classes) showClasses({ stay: true });
}

// Asks for the live numbers, which other people and the learner change.
async function follow() {
  for (;;) {
    await pause(LIVE);
    try {
      const status = await ask("status"), before = state.status;
      if (state.lost) { state.lost = false; alarm(""); }
      if (status.events < before.events || JSON.stringify(status) === JSON.stringify(before)) continue;
      showStatus(status);
      if (status.events > before.events && !state.sent.size) state.chain = state.chain.then(lookAgain);
    } catch (error) {
      state.lost = true;
      alarm(error.message);
    }
  }
}

// -- history ------------------------------------------------------------------------------------

function historyEntry(row) {
  const entry = make("li");
  const given = Object.entries(row.given).map(([person, label]) => `${visible(person)}: ${visible(label)}`);
  const label = row.label === null
    ? make("span", { class: "label none", text: row.disputed ? "disagreement" : "no label" })
    : make("span", { class: "label", text: visible(row.label) });
  const details = [`row ${row.row} of ${visible(row.file)}`, ...given];
  if (row.settled !== null) details.push("settled");
  if (row.skipped.length) details.push(`skipped by ${row.skipped.map(visible).join(", ")}`);
  if (row.guess) details.push(`guess ${visible(row.guess)}`);
  const button = make("button", { type: "button", text: row.disputed ? "Settle" : "Change" });
  button.setAttribute("aria-label", `${row.disputed ? "Settle" : "Change"} row ${row.row} of ${visible(row.file)}`);
  button.dataset.row = keyOf(row);
  button.addEventListener("click", () => edit(row.file, row.row));
  entry.append(
    make("span", { class: "what" }, label, make("span", { text: ` ${visible(row.text)}` })),
    make("span", { class: "where", text: details.join(" · ") }), button,
  );
  return entry;
}

async function showHistory(more = false) {
  const asked = ++state.history.asked;
  state.history.start = more ? state.history.start : 0;
  const only = state.view === "disputes" ? "disputes" : $("only-skipped").checked ? "skipped" : "";
  const query = new URLSearchParams({ search: $("search").value, only, start: state.history.start });
  try {
    const found = await ask(`history?${query}`);
    if (asked !== state.history.asked) return;
    const entries = found.rows.map(historyEntry);
    if (more) $("history").append(...entries); else $("history").replaceChildren(...entries);
    state.history.start = found.start + found.rows.length;
    $("more").hidden = state.history.start >= found.total;
    $("found").textContent = found.total ? plural(found.total, "row") : "No row.";
  } catch (error) { alarm(error.message); }
}

function show(view) {
  state.view = view;
  $("view-label").hidden = view !== "label";
  $("view-history").hidden = view === "label";
  for (const each of ["label", "history", "disputes"]) {
    if (each === view) $(`show-${each}`).setAttribute("aria-current", "page");
    else $(`show-${each}`).removeAttribute("aria-current");
  }
  if (view === "label") return showCard({ moved: false });
  $("history-title").textContent = view === "disputes" ? "Disagreements" : "History";
  $("skipped-label").hidden = view === "disputes";
  $("history-title").focus({ preventScroll: true });
  return showHistory();
}

const buttonOf = (row) => [...$("history").querySelectorAll("button")].find((each) => each.dataset.row === keyOf(row));

async function edit(file, number) {
  let row;
  try {
    row = await ask(`row?${new URLSearchParams({ file, row: number })}`);
  } catch (error) { return alarm(error.message); }
  const dialog = $("edit");
  $("edit-title").textContent = `Row ${row.row} of ${visible(row.file)}`;
  $("edit-error").textContent = "";
  showCells($("edit-cells"), row.cells);
  $("edit-given").replaceChildren(...Object.entries(row.given).map(([person, label]) =>
    make("li", { text: `${visible(person)}: ${visible(label)}` })));
  const settling = row.disputed, mine = row.given[state.person];
  $("edit-question").textContent = settling ? "Settle on" : mine === undefined ? "Your label" : "Change your label to";
  $("withdraw").hidden = mine === undefined;
  const send = (request) => {
    state.chain = state.chain.then(async () => {
      try {
        const done = await act({ ...request, file: row.file, row: row.row, version: row.version });
        showStatus(done.status);
        await takeCards(done.cards);
        alarm("");
        dialog.close();
      } catch (error) {
        await recover(error);
        alarm("");
        $("edit-error").textContent = error.message;
      }
      await showHistory();
      if (!dialog.open) (buttonOf(row) || $("history-title")).focus();
    });
  };
  const all = state.status.classes.map(([name]) => name);
  const choices = settling ? [...new Set(Object.values(row.given))] : all;
  const many = choices.length > KEYS.length, filter = $("edit-filter");
  const choose = (name) => send({ action: settling ? "settle" : "label", label: name });
  const draw = () => {
    const names = many ? found(fromAToZ(choices), filter.value) : choices;
    $("edit-classes").replaceChildren(...names.map((name) => {
      const own = !settling && name === mine, button = classButton(name, choose, { guess: own });
      button.disabled = own;
      return button;
    }));
  };
  filter.value = "";
  filter.oninput = draw;
  filter.onkeydown = (event) => {
    if (event.key === "Enter" && !event.isComposing) $("edit-classes").querySelector("button:enabled")?.click();
  };
  $("edit-finder").hidden = !many;
  draw();
  $("withdraw").onclick = () => send({ action: "withdraw" });
  openDialog(dialog);
  return undefined;
}

// -- keys ---------------------------------------------------------------------------------------

// Left and right go to the next button; up and down to the nearest one of the next row.
function moveFocus(key) {
  const buttons = [...$("answers").querySelectorAll(".class, #more-classes:not([hidden])")];
  if (!buttons.length) return;
  const at = buttons.indexOf(document.activeElement), step = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  const last = buttons.length - 1, around = step > 0 ? 0 : last;
  if (at < 0) return buttons[around].focus();
  if (key === "ArrowLeft" || key === "ArrowRight") return (buttons[at + step] || buttons[around]).focus();
  const boxes = buttons.map((button) => button.getBoundingClientRect());
  const down = (box) => step * (box.top - boxes[at].top);
  const next = Math.min(...boxes.map(down).filter((distance) => distance > 1));
  const inRow = buttons.map((_, place) => place).filter((place) => Math.abs(down(boxes[place]) - next) <= 1);
  const aside = (place) => Math.abs(boxes[place].left - boxes[at].left);
  return buttons[inRow.sort((one, other) => aside(one) - aside(other))[0] ?? around].focus();
}

function onFilterKey(event) {
  const first = $("classes").querySelector(".class"), typed = $("filter").value.trim();
  const does = (work) => { event.preventDefault(); work(); };
  if (event.key === "ArrowDown" && first) return does(() => first.focus());
  if (event.key === "Escape") return does(endFilter);
  if (event.key !== "Enter" || event.repeat || !typed) return undefined;
  return does(() => (first ? answer("label", first.dataset.label) : newClass(typed)));
}

function endFilter() {
  $("filter").value = "";
  showClasses({ stay: true });
  $("card").focus({ preventScroll: true });
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || dialogOpen()) return;
  const target = event.target;
  if (target === $("filter")) return onFilterKey(event);
  if (target instanceof HTMLInputElement) {
    if (event.key === "Escape") { target.blur(); show("label"); event.preventDefault(); }
    return;
  }
  const key = event.key;
  const does = (work) => { event.preventDefault(); work(); };
  if (key === "?") return does(() => openDialog($("help")));
  if (key === "h" && state.view === "label") return does(() => show("history"));
  if ((key === "l" || key === "Escape") && state.view !== "label") return does(() => show("label"));
  if (state.view !== "label" || state.session === null) return undefined;
  const onControl = target instanceof HTMLElement && target.closest("button, a, summary") !== null;
  const number = KEYS.indexOf(key), filtered = $("filter").value.trim() !== "";
  if (number >= 0 && !event.repeat) {
    return does(() => { if (!filtered && number < state.keys.length) answer("label", state.keys[number]); });
  }
  if (key.startsWith("Arrow")) return does(() => moveFocus(key));
  if (key === "Escape" && filtered) return does(endFilter);
  if (event.repeat) return undefined;
  if (key === "Enter" && !onControl) return does(() => { if (!filtered) acceptGuess(); });
  if (key === "/" && !$("finder").hidden) return does(() => $("filter").select());
  if (key === "m" && !$("more-classes").hidden) return does(() => $("more-classes").click());
  if (key === "n") return does(() => newClass());
  if (key === "u" || key === "Backspace") return does(undo);
  if (key === "f") return does(() => $("cells").querySelectorAll(".fold").forEach((each) => each.click()));
  if (key === " " && !onControl) return does(() => answer("skip"));
  return undefined;
}

function acceptGuess() {
  const guess = current()?.probabilities[0];
  if (guess) answer("label", guess[0]);
  else say("The model has no guess yet.");
}

function newClass(name = "") {
  if (!current()) return;
  $("new-name").value = name;
  $("new-error").textContent = "";
  openDialog($("new"));
}

// -- start --------------------------------------------------------------------------------------

async function join(event) {
  event.preventDefault();
  try {
    const joined = await ask("join", { name: $("name").value });
    Object.assign(state, { session: joined.session, number: joined.number, person: joined.person });
    $("person").textContent = visible(joined.person);
    $("join").close();
    await fetchCards();
    showCard();
  } catch (error) { $("join-error").textContent = error.message; }
}

function onNewClass(event) {
  event.preventDefault();
  const name = $("new-name").value.trim();
  if (!name) { $("new-error").textContent = "Type a name."; return; }
  $("new").close();
  answer("label", name);
}

addEventListener("keydown", onKey);
$("join-form").addEventListener("submit", join);
$("join").addEventListener("cancel", (event) => event.preventDefault());
$("new-form").addEventListener("submit", onNewClass);
$("new-class").addEventListener("click", () => newClass());
$("filter").addEventListener("input", () => showClasses({ stay: true }));
$("more-classes").addEventListener("click", () => toggle($("more-classes"), () => showClasses({ stay: true })));
$("more-counts").addEventListener("click", () => toggle($("more-counts"), showCounts));
$("explanation").addEventListener("toggle", showExplanation);
$("skip").addEventListener("click", () => answer("skip"));
$("undo").addEventListener("click", undo);
$("help-button").addEventListener("click", () => openDialog($("help")));
$("close-alert").addEventListener("click", () => alarm(""));
$("more").addEventListener("click", () => showHistory(true));
$("search-form").addEventListener("submit", (event) => { event.preventDefault(); showHistory(); });
$("search").addEventListener("input", () => showHistory());
$("only-skipped").addEventListener("change", () => showHistory());
for (const view of ["label", "history", "disputes"]) $(`show-${view}`).addEventListener("click", () => show(view));
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
// If there was no card when the dialog opened, nothing has the focus now.
for (const dialog of document.querySelectorAll("dialog")) dialog.addEventListener("close", () => { if (document.activeElement === document.body) focusCard(); });

const first = await ask("status").catch((error) => { alarm(error.message); return null; });
if (first) {
  showStatus(first);
  $("known-people").replaceChildren(...first.people.map(([name]) => make("option", { value: name })));
  if (first.people.length === 1) $("name").value = first.people[0][0];
  showCard({ focus: false, moved: false });
  $("join").showModal();
  $("name").select();
  follow();
}
