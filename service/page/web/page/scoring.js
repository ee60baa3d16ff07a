// A CSV file is scored piece by piece, and offered with its own columns in front.

import { $, h, table } from './dom.js';
import { Problem, send } from './api.js';
import { count, short } from './format.js';

const ROWS_PER_REQUEST = 2000;
const SHOWN_ROWS = 8;
const SHOWN_ERRORS = 12;

let stopper = null;

/** Splits CSV text into its records, as texts; line ends within quotes belong to their record. */
export function records(text) {
  const found = [];
  let begin = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  let quoted = false;
  for (let at = begin; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 34) quoted = !quoted;
    else if (!quoted && (code === 10 || code === 13)) {
      if (at > begin) found.push(text.slice(begin, at));
      begin = at + 1;
    }
  }
  if (begin < text.length) found.push(text.slice(begin));
  return found.filter((record) => record.trim() !== '');
}

/** The cells of a record. */
export function cells(record) {
  const found = [];
  const pattern = /("(?:[^"]|"")*"|[^,]*)(,|$)/gy;
  for (;;) {
    const match = pattern.exec(record);
    if (!match) break;
    found.push(match[1].startsWith('"') ? match[1].slice(1, -1).replaceAll('""', '"') : match[1]);
    if (match[2] === '') break;
  }
  return found;
}

/** What is wrong in a piece, with rows counted in the whole file from 1. */
function problemsOf(problem, first) {
  return problem.errors.map(({ pointer, message }) => {
    const parts = pointer.split('/').slice(2).map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    const row = parts.length > 1 ? first + Number(parts[1]) : null;
    const where = parts.length ? `${row === null ? '' : `row ${count(row)}, `}column ${parts[0]}` : '';
    return { where, message: row === null ? message : message.replace(/^Column '.*', row \d+: /, '') }; // rows of the piece
  });
}

/** Scores a file and shows how far it is. `query` has options of the requests. */
export async function scoreFile(file, model, query, quoted = ROWS_PER_REQUEST) {
  stopper?.abort();
  const stop = new AbortController();
  stopper = stop;
  $('file-state').hidden = false;
  $('file-done').hidden = true;
  $('file-errors').hidden = true;
  $('file-preview').replaceChildren();
  $('file-stop').hidden = false;
  $('file-name').textContent = file.name;
  $('file-progress').textContent = 'reading …';
  $('file-bar').value = 0;
  const fail = (title, listed = []) => {
    $('file-progress').textContent = 'not scored';
    $('file-stop').hidden = true;
    $('file-errors').hidden = false;
    $('file-errors').replaceChildren(h('p', {}, title), h('ul', {}, listed.slice(0, SHOWN_ERRORS).map((item) => h('li', {}, item.where && h('b', {}, `${item.where}: `), item.message))),
      listed.length > SHOWN_ERRORS ? h('p', {}, `and ${listed.length - SHOWN_ERRORS} more`) : '');
  };
  const lines = records(await file.text());
  if (lines.length < 2) {
    fail('The file has no rows. It needs a line with the names of the columns, and a line for each row.');
    return;
  }
  const [header, ...rows] = lines;
  const output = [];
  let warned = 0;
  let titles = '';
  for (let first = 0; first < rows.length; first += quoted) {
    const piece = rows.slice(first, first + quoted);
    const body = `${header}\n${piece.join('\n')}\n`;
    let response;
    try {
      response = await patient(() => send(`models/${encodeURIComponent(model)}/predict${query}`, { body, type: 'text/csv', accept: 'text/csv', signal: stop.signal }), stop.signal);
    } catch (error) {
      const listed = error instanceof Problem ? problemsOf(error, first + 1) : [];
      fail(listed.length ? 'Not scored. What is wrong:' : error.message, listed);
      return;
    }
    if (response === null || stopper !== stop) {
      if (stopper === stop) $('file-progress').textContent = 'stopped';
      $('file-stop').hidden = true;
      return;
    }
    warned += Number(response.headers.get('murho-warnings')) || 0;
    const [names, ...answers] = records(await response.text());
    titles = names;
    answers.forEach((line, i) => output.push(`${piece[i]},${line}`));
    $('file-bar').value = output.length / rows.length;
    $('file-progress').textContent = `${count(output.length)} of ${count(rows.length)} rows`;
  }
  finish(file, header, titles, output, warned);
}

/** Tries again what a busy service refused, as it says. */
async function patient(ask, signal) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Problem) || ![429, 503].includes(error.status) || attempt >= 5 || signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (error.retryAfter || 1)));
    }
  }
}

function finish(file, header, titles, output, warned) {
  const link = $('file-download');
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([`${header},${titles}\n${output.join('\n')}\n`], { type: 'text/csv' }));
  link.download = `${file.name.replace(/\.csv$/i, '')}-predicted.csv`;
  $('file-stop').hidden = true;
  $('file-done').hidden = false;
  $('file-summary').textContent = warned ? `${count(warned)} values are unlike the training rows.` : 'All rows are like the training rows.';
  const own = cells(header).length;
  const shown = output.slice(0, SHOWN_ROWS).map((line) => {
    const all = cells(line);
    return [...all.slice(own), ...all.slice(0, own)];
  });
  const answers = cells(titles);
  $('file-preview').replaceChildren(table([...answers, ...cells(header)],
    shown.map((row) => row.map((cell, i) => (i < answers.length && cell !== '' && Number.isFinite(Number(cell)) ? short(Number(cell), 4) : cell))), 'The first rows'));
}

export const stopScoring = () => stopper?.abort();
