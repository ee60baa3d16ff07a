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

/** What separates the cells of a header: the most frequent of these outside quotes. */
export function delimiterOf(header) {
  const bare = header.replace(/"(?:[^"]|"")*"/g, '');
  const times = (mark) => bare.split(mark).length;
  return [',', ';', '\t', '|'].reduce((best, mark) => (times(mark) > times(best) ? mark : best));
}

/** The cells of a record. */
export function cells(record, delimiter = ',') {
  const found = [];
  const mark = delimiter === '|' ? '\\|' : delimiter;
  const pattern = new RegExp(`("(?:[^"]|"")*"|[^${mark}]*)(${mark}|$)`, 'gy');
  for (;;) {
    const match = pattern.exec(record);
    if (!match) break;
    found.push(match[1].startsWith('"') ? match[1].slice(1, -1).replaceAll('""', '"') : match[1]);
    if (match[2] === '') break;
  }
  return found;
}

/** A line of the answer in the file's own dialect: its delimiter, and its decimal comma where it has one. */
export function inDialect(line, { delimiter, comma }) {
  if (delimiter === ',') return line;
  return cells(line).map((cell) => {
    if (comma && cell !== '' && Number.isFinite(Number(cell))) return cell.replace('.', ',');
    return cell.includes(delimiter) || /["\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  }).join(delimiter);
}

/** What is wrong in a piece, in words of the file: rows are counted in all of it, from 1. */
function problemsOf(problem, first) {
  const listed = problem.errors.map(({ pointer, message }) => {
    const [column, row = null] = pointer.split('/').slice(2).map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    return { column, row, message };
  });
  const lacks = ({ column, row, message }) => column !== undefined && row === null && message.includes(' is absent');
  const absent = listed.filter(lacks).map(({ column }) => column);
  const others = listed.filter((item) => !lacks(item)).map(({ column, row, message }) => ({
    where: column === undefined ? '' : `${row === null ? '' : `row ${count(first + Number(row))}, `}column ${column}`,
    message: (row === null ? message : message.replace(/^Column '.*', row \d+: /, '')) // rows of the piece
      .replace(/^The body, line (\d+): /, (_, line) => `row ${count(first + Number(line) - 2)}: `).replace(/^The body/, 'The file').replace(/: send CSV, .*/, ': save it as CSV.')
      .replace('or null if', 'or an empty cell if').replace('is not a feature of this model', 'is not a column that the model knows'),
  }));
  return [...(absent.length ? [{ where: '', message: `The file has no column ${absent.slice(0, SHOWN_ERRORS).join(', ')}${absent.length > SHOWN_ERRORS ? `, nor ${absent.length - SHOWN_ERRORS} more` : ''}. If the values are unknown, add a column of empty cells.` }] : []), ...others];
}

/** Says what is wrong with a file whose piece begins with a row, counted from 1. */
export function explainFile(element, error, first) {
  const listed = error instanceof Problem ? problemsOf(error, first) : [];
  element.hidden = false;
  element.replaceChildren(h('p', {}, listed.length ? 'What is wrong:' : error.message), h('ul', {}, listed.slice(0, SHOWN_ERRORS).map((item) => h('li', {}, item.where && h('b', {}, `${item.where}: `), item.message))),
    listed.length > SHOWN_ERRORS ? h('p', {}, `and ${listed.length - SHOWN_ERRORS} more`) : '');
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
  const fail = (error, first) => {
    $('file-progress').textContent = 'not scored';
    $('file-stop').hidden = true;
    explainFile($('file-errors'), error, first);
  };
  const lines = records(await file.text());
  if (lines.length < 2) {
    fail(new Error('The file has no rows. It needs a line with the names of the columns, and a line for each row.'));
    return;
  }
  const [header, ...rows] = lines;
  const delimiter = delimiterOf(header);
  const comma = delimiter !== ',' && rows.slice(0, ROWS_PER_REQUEST).some((row) => cells(row, delimiter).some((cell) => /^\s*-?[\d.]*,\d+\s*$/.test(cell)));
  const dialect = { delimiter, comma };
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
      fail(error, first + 1);
      return;
    }
    if (response === null || stopper !== stop) {
      if (stopper === stop) $('file-progress').textContent = 'stopped';
      $('file-stop').hidden = true;
      return;
    }
    warned += Number(response.headers.get('murho-extrapolation'));
    const [names, ...answers] = records(await response.text());
    titles = names;
    answers.forEach((line, i) => output.push([piece[i], line]));
    $('file-bar').value = output.length / rows.length;
    $('file-progress').textContent = `${count(output.length)} of ${count(rows.length)} rows`;
  }
  finish(file, header, titles, output, warned, dialect);
}

/** Tries again what a busy service refused, as it says. */
export async function patient(ask, signal) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Problem) || ![429, 503].includes(error.status) || attempt >= 5 || signal.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (error.retryAfter || 1)));
    }
  }
}

function finish(file, header, titles, output, warned, dialect) {
  const link = $('file-download');
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([`${[[header, titles], ...output].map(([row, line]) => `${row}${dialect.delimiter}${inDialect(line, dialect)}`).join('\n')}\n`], { type: 'text/csv' }));
  link.download = `${file.name.replace(/\.csv$/i, '')}-predicted.csv`;
  $('file-stop').hidden = true;
  $('file-done').hidden = false;
  $('file-summary').textContent = warned ? `Rows unlike the training rows: ${count(warned)} of ${count(output.length)}.` : 'All rows are like the training rows.';
  const shown = output.slice(0, SHOWN_ROWS).map(([row, line]) => [...cells(line), ...cells(row, dialect.delimiter)]);
  const answers = cells(titles);
  $('file-preview').replaceChildren(table([...answers, ...cells(header, dialect.delimiter)],
    shown.map((row) => row.map((cell, i) => (i < answers.length && cell !== '' && Number.isFinite(Number(cell)) ? short(Number(cell), 4) : cell))), 'The first rows'));
}

export const stopScoring = () => stopper?.abort();
