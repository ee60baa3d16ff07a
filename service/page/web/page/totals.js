// Totals of a file: sums, means or counts of its rows by a column, as bars with their intervals.

import { $, h, key, options, table } from './dom.js';
import { send } from './api.js';
import { draw, palette } from './charts.js';
import { isChoice } from './axes.js';
import { count, counted, placed, titled } from './format.js';
import { explainFile, patient } from './scoring.js';

const MOST = 40; // groups that are drawn

let file = null; // {name, text}
let turn = 0;

/** Offers what a model can add up, and forgets the file of another one. */
export function fillTotals({ features }, statistics) {
  file = null;
  $('totals').replaceWith(h('div', { id: 'totals', class: 'chart' }));
  for (const id of ['totals-legend', 'totals-table', 'totals-errors']) $(id).replaceChildren();
  $('totals-state').textContent = 'Choose a CSV file, or drop it on this page: its rows are added up.';
  const columns = [...features.filter(isChoice), ...features.filter((feature) => !isChoice(feature))];
  options($('totals-by'), [['', 'all rows'], ...columns.map(({ name }) => [name, name])], columns.find(isChoice)?.name ?? '');
  options($('totals-of'), statistics, statistics[0][0]);
}

/** Reads a file, for `showTotals`. */
export async function takeFile(chosen) {
  file = { name: chosen.name, text: await chosen.text() };
}

/** Adds up the file, and draws a bar for each group, or for each class of each group. */
export async function showTotals({ name, target }, { band = 90, threshold = null }) {
  if (!file) return;
  turn += 1;
  const mine = turn;
  const [by, statistic] = [$('totals-by').value, $('totals-of').value];
  const query = new URLSearchParams({ statistic, percentiles: [50 - band / 2, 50 + band / 2].join() });
  if (by) query.set('by', by);
  if (statistic === 'count_above') query.set('threshold', threshold ?? '');
  $('totals-state').textContent = `Adding up ${file.name} …`;
  let answer;
  try {
    const stop = new AbortController();
    const response = await patient(() => send(`models/${encodeURIComponent(name)}/aggregate?${query}`, { body: file.text, type: 'text/csv', channel: 'totals', signal: stop.signal }), stop.signal);
    answer = await response?.json();
  } catch (error) {
    $('totals-state').textContent = `${file.name}: not added up.`;
    explainFile($('totals-errors'), error, 1);
    return;
  }
  if (!answer || mine !== turn) return;
  $('totals-errors').hidden = true;
  const classes = answer.classes ?? [null];
  const of = (values, group, place) => (answer.classes ? values[group][place] : values[group]);
  const bars = answer.groups.flatMap((labels, group) => classes.map((ofClass, place) => {
    const [mean, std] = [of(answer.mean, group, place), of(answer.std, group, place)];
    const [low, high] = of(answer.percentiles.values, group, place);
    const text = { mean: `${placed(mean, std)} ± ${placed(std, std)}`, band: `${placed(low, std)} to ${placed(high, std)}` };
    return { label: by ? String(labels[0] ?? 'missing') : 'all rows', name: ofClass ?? '', rows: answer.rows[group], mean, low, high, ...text, value: mean };
  }));
  const what = { sum: `sum of ${titled(target)}`, mean: `mean of ${titled(target)}`, count_above: `rows above ${threshold}`, count: `rows of each ${target.name}` }[statistic];
  const rows = answer.rows.reduce((sum, each) => sum + each, 0);
  $('totals-state').textContent = `${file.name}: ${counted(rows, 'row')}, ${counted(answer.groups.length, 'group')}${answer.groups.length > MOST ? `, of which ${MOST} are drawn` : ''}.`;
  const drawn = bars.slice(0, MOST * classes.length);
  const colors = palette();
  const y = { field: 'label', type: 'nominal', sort: null, title: by || null, axis: { labelLimit: 160, grid: false } };
  const color = { field: 'name', type: 'nominal', sort: null, scale: { range: answer.classes ? colors.classes : [colors.tint] }, legend: answer.classes ? { orient: 'top', title: null } : null };
  const x = (field) => ({ field, type: 'quantitative', title: what, scale: { zero: statistic !== 'mean' } });
  const line = answer.classes ? colors.ink : colors.accent;
  const shared = { y, ...(answer.classes ? { yOffset: { field: 'name', sort: null } } : {}), tooltip: [{ field: 'label', title: by || 'group' }, ...(answer.classes ? [{ field: 'name', title: target.name }] : []), { field: 'mean', title: what }, { field: 'band', title: `${band} % band` }, { field: 'rows' }] };
  const spec = { height: 16 + drawn.length * (answer.classes ? 14 : 26), layer: [
    ...(statistic === 'mean' ? [] : [{ data: { name: 'bars' }, mark: { type: 'bar' }, encoding: { ...shared, x: x('value'), color } }]),
    { data: { name: 'bars' }, mark: { type: 'rule', strokeWidth: 2, color: line }, encoding: { ...shared, x: x('low'), x2: { field: 'high' } } },
    { data: { name: 'bars' }, mark: { type: 'point', filled: true, size: 45, color: line, opacity: 1 }, encoding: { ...shared, x: x('value') } },
  ] };
  draw($('totals'), spec, { bars: drawn }, `${what}${by ? ` by ${by}` : ''}: ${drawn.slice(0, 8).map((bar) => `${bar.label} ${bar.name} ${bar.mean}`).join(', ')}`);
  $('totals-legend').replaceChildren(key(answer.classes ? 'ink' : 'accent', `${band} % band of the ${statistic === 'mean' ? 'mean' : 'total'}`, 'line'));
  $('totals-table').replaceChildren(table([by || 'group', ...(answer.classes ? [target.name] : []), 'rows', what, `${band} % band`],
    drawn.map((bar) => [bar.label, ...(answer.classes ? [bar.name] : []), count(bar.rows), bar.mean, bar.band])));
}
