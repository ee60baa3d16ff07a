// Two inputs side by side: the probabilities of the classes, how they change, and which is sure to be the larger.

import { $, h, key } from '../dom.js';
import { percent } from '../format.js';
import { INTERVAL, split } from './answer.js';
import { showBars } from './bars.js';
import { named, others, ranked } from './chosen.js';

const MOST_NUMBERS = 60000; // of the draws, so that the answer stays small
const ALIKE = 0.005;

/** The options of a comparison: fewer draws where there are many classes. */
export const compareOptions = (_, { target }) => ({
  percentiles: INTERVAL, include: ['draws'], samples: Math.max(16, Math.min(256, Math.floor(MOST_NUMBERS / (2 * target.classes.length)))),
});

/** The share of the draws in which the probability of a class is larger for A than for B; half of those where it is equal. */
export function moreProbable([a, b], number) {
  // Two equal rows of a batch may differ in their last digits.
  const more = (p, q) => (Math.abs(p - q) <= 1e-5 * Math.max(p, q) ? 0.5 : Number(p > q));
  return a.reduce((sum, draw, k) => sum + more(draw[number], b[k][number]), 0) / a.length;
}

/** The probability that A and B are of different classes: their noise is independent, and their draws are shared. */
export function differ([a, b]) {
  return 1 - a.reduce((sum, draw, k) => sum + draw.reduce((same, value, number) => same + value * b[k][number], 0), 0) / a.length;
}

const points = (change) => {
  const size = Math.abs(100 * change).toFixed(Math.abs(change) < 0.095 ? 1 : 0);
  return `${Number(size) === 0 ? '' : change < 0 ? '\u2212' : '+'}${size} points`;
};

/** Shows a comparison. */
export function showCompare(overview, answer) {
  const { classes, draws, probabilities: [a, b], percentiles: { values } } = answer;
  const change = a.map((value, number) => b[number] - value);
  const most = ranked(change.map(Math.abs))[0];
  const alike = Math.abs(change[most]) < ALIKE;
  const likeliest = (of) => { const number = ranked(of)[0]; return `${named(classes[number])}, ${percent(of[number])}`; };
  const [name, chance] = [named(classes[most]), moreProbable(draws, most)];
  const sure = change[most] < 0 ? chance : 1 - chance;
  $('compare-text').replaceChildren(...(alike ? ['A and B are identical. Change B below.'] : [
    h('span', {}, h('b', {}, name), ` is ${change[most] < 0 ? 'less' : 'more'} probable for B than for A by `, h('strong', { id: 'change' }, points(change[most]).slice(1)), '; in ', h('b', { id: 'sure' }, percent(sure)), ' of the draws it is so.'),
    h('small', {}, `A: ${likeliest(a)}. B: ${likeliest(b)}. They are of different classes with probability `, h('span', { id: 'differ' }, percent(differ(draws))),
      '. Both are answered by the same draws, so epistemic uncertainty that they share cancels.')]));
  const { shown, rest } = split(a.map((value, number) => Math.max(value, b[number])), classes);
  const rows = shown.map((number) => ({
    name: named(classes[number]), bars: [['accent', 0], ['second', 1]].map(([color, row]) => ({ value: [a, b][row][number], low: values[row][number][0], high: values[row][number][1], color })),
    figure: [`: A ${percent(a[number])}, B ${percent(b[number])}, `, `${percent(a[number])} → ${percent(b[number])}`],
    note: [`${points(change[number])}, A is more probable in ${percent(moreProbable(draws, number))} of the draws`, percent(moreProbable(draws, number))],
  }));
  const summed = (of) => rest.reduce((sum, number) => sum + of[number], 0);
  if (rest.length) rows.push({ name: others(rest.length), rest: true, bars: [{ value: summed(a), color: 'accent' }, { value: summed(b), color: 'second' }], figure: `${percent(summed(a))} → ${percent(summed(b))}` });
  showBars($('compare'), rows, `Probabilities of ${overview.target.name} for A and for B`, ['A → B', 'A > B']);
  $('compare-legend').replaceChildren(key('accent', 'A'), key('second', 'B'), key('ink', '90 % of the draws', 'line'), h('span', {}, 'A > B: the share of the draws in which the class is more probable for A'));
}
