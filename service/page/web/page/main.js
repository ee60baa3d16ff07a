// The page: one model, one row, and what is shown of it. Every change is answered at once.

import { $, debounced, h, options } from './dom.js';
import { getJson, predict, Problem, useKey } from './api.js';
import { read, write } from './state.js';
import { makeForm, messagesOf } from './form.js';
import { kindOf } from './kinds.js';
import { inOrder, isChoice, sweepable } from './axes.js';
import { sweepRequest } from './sweep.js';
import { mapRequest } from './map.js';
import { scoreFile, stopScoring } from './scoring.js';
import { fillTotals, showTotals, takeFile } from './totals.js';
import { showWhy, whyOptions } from './why.js';
import { copy, showRequests } from './requests.js';
import { showCard } from './card.js';
import { drawReport } from './report.js';

const VIEWS = ['sweep', 'compare', 'map', 'why', 'file', 'totals', 'request', 'card'];
const CHARTS = ['sweep', 'compare', 'map', 'why-0', 'why-1'];
const PAUSE = 12; // milliseconds: a fast hand on a slider sends fewer requests, and nobody feels it
const RETRY = 1500;
const COLUMNS = 12; // names of columns that are listed

let overview = null;
let kind = null; // of its target: what `kinds.js` says
let form = null;
let otherForm = null;
let wanted = read(location.hash);
let last = null; // the row and the answer that are shown, to be drawn again in other colours
let view = 'sweep';
let retrying = 0;
let begins = false; // whether no answer of the model has come yet
let pinned = false; // whether a person has chosen the feature of the sweep: else it is the one last edited
let turn = 0; // counts the changes, to know whether the page shows the last one

const feature = (name) => overview.features.find((item) => item.name === name);
const choices = () => ({ ...kind.choices(), mapOf: $('map-of').value });

// ---- what went wrong

function notice(text) {
  $('notice').hidden = !text;
  $('notice').textContent = text || '';
}

/** Says what is wrong where it is: at the field, at the key, or above the page. */
function explain(error) {
  if (!(error instanceof Problem)) throw error;
  if (error.status === 401 || error.status === 403) {
    askForKey(error.message);
  } else if (error.status === 422 && error.errors.length && form) {
    form.say(messagesOf(error.errors, true));
    const elsewhere = error.errors.filter((item) => !item.pointer.startsWith('/inputs/'));
    notice(elsewhere.map((item) => item.message).join(' '));
  } else {
    notice(error.message);
  }
  document.body.classList.add('stale');
  if ([0, 429, 503, 504].includes(error.status)) {
    clearTimeout(retrying);
    retrying = setTimeout(overview ? ask : start, error.retryAfter ? Math.min(1000 * error.retryAfter, 5000) : RETRY);
  }
}

function askForKey(why) {
  $('key').hidden = false;
  $('key-why').textContent = `${why} The key stays in this tab and is forgotten when the tab is closed.`;
  $('main').hidden = true;
  $('key-field').focus();
}

// ---- the answer, and what is below it

async function ask() {
  turn += 1;
  const mine = turn;
  document.body.dataset.state = 'asking';
  await answerAll();
  if (mine === turn) document.body.dataset.state = 'answered';
}

async function answerAll() {
  const row = form.row();
  if (row === null) {
    document.body.classList.add('stale');
    return;
  }
  remember(row);
  const asked = overview;
  const explored = explore(row); // side by side: the service computes both at once
  try {
    const answer = await predict(overview.name, { inputs: [row], ...kind.answer.options(choices(), overview) }, 'answer');
    if (answer === null || asked !== overview) return;
    notice('');
    last = { row, answer };
    document.body.classList.remove('stale');
    show(last);
    const again = begins && kind.begin(overview, answer);
    begins = false;
    if (again) {
      await answerAll();
      return;
    }
  } catch (error) {
    explain(error);
  }
  await explored;
}

function show({ answer }) {
  const messages = messagesOf(answer.warnings, false);
  form.say(messages);
  const elsewhere = messages.filter((item) => !feature(item.feature));
  $('row-warnings').hidden = elsewhere.length === 0;
  $('row-warnings').replaceChildren(...elsewhere.map((item) => Object.assign(document.createElement('li'), { textContent: item.message })));
  kind.answer.show(overview, answer, choices());
}

/** Draws what the open tab shows of a row. */
async function explore(row) {
  const model = overview;
  const isOf = (answer, name) => answer !== null && view === name && model === overview; // what was asked is still wanted
  try {
    if (view === 'sweep') {
      const along = feature($('sweep-feature').value);
      if (!along) return;
      const asked = sweepRequest(along, row, kind.sweep.rows?.(overview));
      const answer = await predict(overview.name, { inputs: asked.inputs, ...kind.sweep.options(choices(), overview) }, 'explore');
      if (isOf(answer, 'sweep')) kind.sweep.show(overview, along, row, asked.steps, answer, choices());
    } else if (view === 'compare') {
      const other = otherForm.row();
      if (other === null) return;
      const answer = await predict(overview.name, { inputs: [row, other], ...kind.compare.options(choices(), overview) }, 'explore');
      if (!isOf(answer, 'compare')) return;
      otherForm.say(messagesOf(answer.warnings, false, 1));
      kind.compare.show(overview, answer, choices());
    } else if (view === 'map') {
      const [first, second] = [feature($('map-x').value), feature($('map-y').value)];
      if (!first || !second || first === second) {
        $('map-legend').textContent = 'Choose two features that differ.';
        return;
      }
      const wished = kind.map.options(choices(), overview);
      if (typeof wished === 'string') {
        $('map-legend').textContent = wished;
        return;
      }
      const asked = mapRequest(first, second, row, kind.map.rows?.(overview));
      const answer = await predict(overview.name, { inputs: asked.inputs, ...wished }, 'explore');
      if (isOf(answer, 'map')) kind.map.show(overview, first, second, row, asked, answer, choices());
    } else if (view === 'why') {
      const answer = await predict(overview.name, { inputs: [row], ...whyOptions }, 'explore');
      if (isOf(answer, 'why')) showWhy(overview, row, answer);
    } else if (view === 'totals') {
      await showTotals(overview, choices());
    } else if (view === 'request') {
      showRequests(overview.name, row, kind.request.options(choices()), kind.request.printed);
    } else if (view === 'card') {
      await drawReport(overview);
    }
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (view === 'why') $('why-text').textContent = error.errors[0]?.message ?? error.message;
    if (view === 'compare' && error.status === 422) otherForm.say(messagesOf(error.errors, true, 1));
    // Anything else is said once, by the answer's own request.
  }
}

const askAfterPause = debounced(ask, PAUSE);

function askSoon() {
  document.body.dataset.state = 'asking';
  askAfterPause();
}

/** The sweep goes along the feature that was last edited, unless one was chosen. */
function follow(edited) {
  const along = $('sweep-feature');
  if (!pinned && [...along.options].some((option) => option.value === edited.name)) along.value = edited.name;
}

function remember(row) {
  const state = {
    model: overview.name, row, ...kind.state(choices()), view: view === 'sweep' ? null : view,
    sweep: $('sweep-feature').value, mapX: view === 'map' ? $('map-x').value : null, mapY: view === 'map' ? $('map-y').value : null,
    mapOf: view === 'map' ? $('map-of').value : null, other: view === 'compare' ? otherForm.row() : null,
  };
  history.replaceState(null, '', write(state));
}

// ---- tabs

function open(name, focus = false) {
  view = VIEWS.includes(name) ? name : 'sweep';
  for (const item of VIEWS) {
    const chosen = item === view;
    $(`tab-${item}`).setAttribute('aria-selected', String(chosen));
    $(`tab-${item}`).tabIndex = chosen ? 0 : -1;
    $(`panel-${item}`).hidden = !chosen;
  }
  if (focus) $(`tab-${view}`).focus();
}

function installTabs() {
  for (const [at, name] of VIEWS.entries()) {
    const tab = $(`tab-${name}`);
    tab.addEventListener('click', () => { open(name); ask(); });
    tab.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const to = event.key === 'Home' ? 0 : event.key === 'End' ? VIEWS.length - 1 : step ? (at + step + VIEWS.length) % VIEWS.length : null;
      if (to === null) return;
      event.preventDefault();
      open(VIEWS[to], true);
      ask();
    });
  }
}

// ---- a model

/** Cells of a link that the model has, for `fill`. */
const known = (row) => Object.fromEntries(Object.entries(row || {}).filter(([name]) => feature(name)));

/** Puts the answer of a kind of target into the page, unless it is there. */
function take(chosen) {
  if (kind === chosen) return;
  kind = chosen;
  last = null;
  $('answer-body').replaceChildren($(kind.template).content.cloneNode(true));
  for (const id of CHARTS) $(id).replaceWith(h('div', { id, class: 'chart' })); // kinds draw them in their own ways
  kind.mount({ ask: () => ask(), askSoon });
}

async function choose(name, link) {
  try {
    const found = await getJson(`models/${encodeURIComponent(name)}/overview`, { channel: 'overview' });
    if (found === null) return;
    found.features = inOrder(found);
    overview = found;
    take(kindOf(found));
  } catch (error) {
    explain(error);
    return;
  }
  begins = true;
  notice('');
  $('key').hidden = true;
  $('main').hidden = false;
  $('about').textContent = `predicts ${kind.about(overview)}, version ${overview.version}`;
  document.title = `${overview.name} · Murho`;
  pinned = false;
  form = makeForm($('form'), overview.features, (edited) => { follow(edited); askSoon(); });
  otherForm = makeForm($('other'), overview.features, askSoon);
  form.fill({ ...overview.typical, ...known(link.row) });
  otherForm.fill({ ...overview.typical, ...known(link.row), ...known(link.other) });
  kind.fill(overview, link);
  const axes = sweepable(overview.features);
  const entries = axes.map((item) => [item.name, item.name]);
  const numbers = axes.filter((item) => !isChoice(item));
  const varied = (item) => (item.histogram?.counts.filter((rows) => rows > 0).length ?? 0) > 15;
  const [one, two] = [...numbers.filter(varied), ...numbers.filter((item) => !varied(item)), ...axes.filter((item) => !numbers.includes(item))].map((item) => item.name);
  options($('sweep-feature'), entries, feature(link.sweep) ? link.sweep : one);
  options($('map-x'), entries, feature(link.mapX) ? link.mapX : one);
  options($('map-y'), entries, feature(link.mapY) ? link.mapY : two);
  const shown = kind.map.entries(overview);
  const listed = (value) => shown.some(([known]) => known === value);
  options($('map-of'), shown, [link.mapOf, $('map-of').value].find(listed) ?? shown[0][0]);
  const more = overview.features.length - COLUMNS;
  $('file-columns').textContent = `Columns: ${overview.features.slice(0, COLUMNS).map((item) => item.name).join(', ')}${more > 0 ? ` and ${more} more` : ''}.`;
  stopScoring();
  $('file-state').hidden = true;
  fillTotals(overview, kind.totals);
  showCard(overview);
  open(link.view);
  await ask();
}

async function start() {
  try {
    const listed = await getJson('models', { channel: 'models' });
    if (listed === null) return;
    if (!listed.models.length) {
      notice('No model is served yet. `murho train DATA --target COLUMN` makes one; it appears here by itself.');
      retrying = setTimeout(start, RETRY);
      return;
    }
    const names = listed.models.map((model) => model.name);
    const name = names.includes(wanted.model) ? wanted.model : listed.default ?? names[0];
    options($('model'), names.map((item) => [item, item]), name);
    $('model').disabled = names.length < 2;
    await choose(name, wanted.model && wanted.model !== name ? {} : wanted);
    if (wanted.model && wanted.model !== name) notice(`The link is to the model ${wanted.model}, which is not served here. This is ${name}.`);
  } catch (error) {
    explain(error);
  }
}

// ---- the rest

function installDrop() {
  const accept = async (file) => {
    if (!file || !overview) return;
    if (view === 'totals') {
      await takeFile(file);
      await ask();
      return;
    }
    open('file');
    scoreFile(file, overview.name, kind.request.query(choices()));
  };
  addEventListener('dragover', (event) => { event.preventDefault(); document.body.classList.add('dragging'); });
  addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dragging'); });
  addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    accept(event.dataTransfer.files[0]);
  });
  for (const id of ['file', 'totals-file']) $(id).addEventListener('change', () => { accept($(id).files[0]); $(id).value = ''; });
  $('file-stop').addEventListener('click', stopScoring);
}

$('model').addEventListener('change', () => choose($('model').value, { view }));
$('typical').addEventListener('click', () => { form.fill(overview.typical); ask(); });
$('copy-row').addEventListener('click', () => { const row = form.row(); if (row) { otherForm.fill(row); ask(); } });
$('share').addEventListener('click', () => copy(location.href, $('share')));
$('sweep-feature').addEventListener('change', () => { pinned = true; });
for (const id of ['sweep-feature', 'map-x', 'map-y', 'map-of', 'totals-of', 'totals-by']) $(id).addEventListener('change', () => ask());
$('key').addEventListener('submit', (event) => {
  event.preventDefault();
  useKey($('key-field').value.trim());
  $('key-field').value = '';
  $('key').hidden = true;
  start();
});
addEventListener('hashchange', () => { wanted = read(location.hash); start(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  if (last && form) { show(last); const row = form.row(); if (row) explore(row); }
});
installTabs();
installDrop();
start();
