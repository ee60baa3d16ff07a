// The page: one model, one row, and what is shown of it. Every change is answered at once.

import { $, debounced, options } from './dom.js';
import { getJson, predict, Problem, useKey } from './api.js';
import { read, write } from './state.js';
import { makeForm, messagesOf } from './form.js';
import { LEVELS } from './distribution.js';
import { showAnswer } from './answer.js';
import { mapRequest, showMap, showSweep, sweepable, sweepRequest } from './sweep.js';
import { compareRequest, showCompare } from './compare.js';
import { scoreFile, stopScoring } from './scoring.js';
import { copy, showRequests } from './requests.js';
import { aboutLine, drawCard, showCard } from './card.js';

const VIEWS = ['sweep', 'compare', 'map', 'file', 'request', 'card'];
const PAUSE = 12; // milliseconds: a fast hand on a slider sends fewer requests, and nobody feels it
const RETRY = 1500;

let overview = null;
let form = null;
let otherForm = null;
let wanted = read(location.hash);
let last = null; // the answer that is shown, to be drawn again in other colours
let view = 'sweep';
let retrying = 0;
let begins = false; // whether no answer of the model has come yet
let turn = 0; // counts the changes, to know whether the page shows the last one

const feature = (name) => overview.features.find((item) => item.name === name);
const band = () => Number($('band').value);
const threshold = () => ($('threshold').value === '' ? null : Number($('threshold').value));
const choices = () => ({ band: band(), threshold: threshold(), mapOf: $('map-of').value });

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
  const body = { inputs: [row], percentiles: LEVELS };
  if (threshold() !== null && Number.isFinite(threshold())) body.thresholds = [threshold()];
  try {
    const answer = await predict(overview.name, body, 'answer');
    if (answer === null) return;
    notice('');
    last = answer;
    document.body.classList.remove('stale');
    show(answer);
    if (begins && overview.target.middle === null && threshold() === null) { // an older checkpoint: its first answer's mean
      begins = false;
      $('threshold').value = Number(answer.mean[0].toPrecision(2));
      await answerAll();
      return;
    }
    begins = false;
  } catch (error) {
    explain(error);
  }
  await explore(row);
}

function show(answer) {
  const messages = messagesOf(answer.warnings, false);
  form.say(messages);
  const elsewhere = messages.filter((item) => !feature(item.feature));
  $('row-warnings').hidden = elsewhere.length === 0;
  $('row-warnings').replaceChildren(...elsewhere.map((item) => Object.assign(document.createElement('li'), { textContent: item.message })));
  showAnswer(overview, answer, choices());
}

/** Draws what the open tab shows of a row. */
async function explore(row) {
  try {
    if (view === 'sweep') {
      const along = feature($('sweep-feature').value);
      if (!along) return;
      const asked = sweepRequest(along, row, band());
      const answer = await predict(overview.name, asked.body, 'explore');
      if (answer && view === 'sweep') showSweep(overview, along, row, asked.steps, answer, choices());
    } else if (view === 'compare') {
      const other = otherForm.row();
      if (other === null) return;
      const answer = await predict(overview.name, compareRequest(row, other), 'explore');
      if (!answer || view !== 'compare') return;
      otherForm.say(messagesOf(answer.warnings, false, 1));
      showCompare(overview, answer);
    } else if (view === 'map') {
      const [first, second] = [feature($('map-x').value), feature($('map-y').value)];
      if (!first || !second || first === second) {
        $('map-legend').textContent = 'Choose two features that differ.';
        return;
      }
      const asked = mapRequest(first, second, row, choices());
      if ($('map-of').value === 'exceedance' && !asked.body.thresholds) {
        $('map-legend').textContent = 'Enter a threshold first, at the answer above.';
        return;
      }
      const answer = await predict(overview.name, asked.body, 'explore');
      if (answer && view === 'map') showMap(overview, first, second, row, asked, answer, choices());
    } else if (view === 'request') {
      showRequests(overview.name, row, choices());
    } else if (view === 'card') {
      await drawCard(overview);
    }
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (view === 'compare' && error.status === 422) otherForm.say(messagesOf(error.errors, true, 1));
    // Anything else is said once, by the answer's own request.
  }
}

const askAfterPause = debounced(ask, PAUSE);

function askSoon() {
  document.body.dataset.state = 'asking';
  askAfterPause();
}

function remember(row) {
  const state = {
    model: overview.name, row, band: band() === 90 ? null : band(), threshold: $('threshold').value, view: view === 'sweep' ? null : view,
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

async function choose(name, link) {
  try {
    const found = await getJson(`models/${encodeURIComponent(name)}/overview`, { channel: 'overview' });
    if (found === null) return;
    overview = found;
  } catch (error) {
    explain(error);
    return;
  }
  begins = true;
  notice('');
  $('key').hidden = true;
  $('main').hidden = false;
  $('about').textContent = aboutLine(overview);
  document.title = `${overview.name} · Murho`;
  form = makeForm($('form'), overview.features, askSoon);
  otherForm = makeForm($('other'), overview.features, askSoon);
  form.fill({ ...overview.typical, ...known(link.row) });
  otherForm.fill({ ...overview.typical, ...known(link.row), ...known(link.other) });
  const { middle, spread } = overview.target;
  const middling = middle === null ? '' : Number(middle.toPrecision(spread > Math.abs(middle) ? 1 : 2));
  $('threshold').value = link.threshold ?? middling;
  if (['50', '80', '90', '95'].includes(link.band)) $('band').value = link.band;
  const axes = sweepable(overview.features);
  const entries = axes.map((item) => [item.name, item.name]);
  const numbers = axes.filter((item) => !['categorical', 'boolean'].includes(item.kind));
  const varied = (item) => (item.histogram?.counts.filter((rows) => rows > 0).length ?? 0) > 15;
  const [one, two] = [...numbers.filter(varied), ...numbers.filter((item) => !varied(item)), ...axes.filter((item) => !numbers.includes(item))].map((item) => item.name);
  options($('sweep-feature'), entries, feature(link.sweep) ? link.sweep : one);
  options($('map-x'), entries, feature(link.mapX) ? link.mapX : one);
  options($('map-y'), entries, feature(link.mapY) ? link.mapY : two);
  if (['mean', 'epistemic_std', 'exceedance'].includes(link.mapOf)) $('map-of').value = link.mapOf;
  $('file-columns').textContent = `Columns: ${overview.features.map((item) => item.name).join(', ')}.`;
  stopScoring();
  $('file-state').hidden = true;
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
  const accept = (file) => {
    if (!file || !overview) return;
    open('file');
    scoreFile(file, overview.name);
  };
  addEventListener('dragover', (event) => { event.preventDefault(); document.body.classList.add('dragging'); });
  addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dragging'); });
  addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    accept(event.dataTransfer.files[0]);
  });
  $('file').addEventListener('change', () => { accept($('file').files[0]); $('file').value = ''; });
  $('file-stop').addEventListener('click', stopScoring);
}

$('model').addEventListener('change', () => choose($('model').value, { view }));
$('typical').addEventListener('click', () => { form.fill(overview.typical); ask(); });
$('copy-row').addEventListener('click', () => { const row = form.row(); if (row) { otherForm.fill(row); ask(); } });
$('share').addEventListener('click', () => copy(location.href, $('share')));
$('band').addEventListener('change', () => ask());
$('threshold').addEventListener('input', askSoon);
for (const id of ['sweep-feature', 'map-x', 'map-y', 'map-of']) $(id).addEventListener('change', () => ask());
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
