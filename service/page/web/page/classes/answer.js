// The answer for one row: the likeliest class, a bar for each class, the set that should contain the true one, and the split.

import { $, h, key, showBar } from '../dom.js';
import { byName, counted, percent } from '../format.js';
import { inWords, showSplit } from '../split.js';
import { showBars } from './bars.js';
import { named, others, ranked } from './chosen.js';

const MOST_BARS = 12;
const LONG = 16; // characters of a name
const SURE = 0.05; // nats: below it there is nothing to split
export const INTERVAL = [5, 95]; // percentiles of a class's probability over draws: 90 % of the draws

/** Shares of the classes among the training rows; null where the checkpoint does not tell them. */
function sharesOf({ target: { levels } }) {
  const total = levels?.reduce((sum, level) => sum + level.rows, 0);
  return total ? levels.map((level) => level.rows / total) : null;
}

const sum = (numbers, values) => numbers.reduce((total, number) => total + values[number], 0);
const nats = (value) => (value < 0.005 ? '<\u202f0.01' : value.toFixed(2));

/** An interval of a probability, in percent without the sign; finer near 0 and 100, which it never claims. */
function interval(low, high, joint) {
  if (high < 0.001) return `<\u202f0.1`;
  if (low > 0.999) return `>\u202f99.9`;
  return [low, high].map((end) => (100 * end).toFixed(low < 0.095 || high > 0.905 ? 1 : 0)).join(joint);
}

/** The numbers of the classes that have a bar, by their names if they are few, and those that are summed. */
export function split(weights, classes) {
  const order = ranked(weights);
  if (order.length <= MOST_BARS) return { shown: order.sort((a, b) => byName(classes[a], classes[b])), rest: [] };
  return { shown: order.slice(0, MOST_BARS - 1), rest: order.slice(MOST_BARS - 1) };
}

/** Classes in a sentence: "A", "A or B", "A, B or C". */
export function either(names) {
  if (names.length === 1) return names[0];
  const shown = names.length > MOST_BARS ? [...names.slice(0, MOST_BARS - 1), others(names.length - MOST_BARS + 1)] : names;
  return `${shown.slice(0, -1).join(', ')} or ${shown.at(-1)}`;
}

/** Shows an answer. `choices.coverage` is that of the set, in percent. */
export function showAnswer(overview, answer, choices) {
  const { target, calibration } = overview;
  const { classes } = answer;
  const [probabilities, intervals] = [answer.probabilities[0], answer.percentiles.values[0]];
  const likeliest = classes.indexOf(answer.prediction[0]);
  const [name, chance] = [named(answer.prediction[0]), percent(probabilities[likeliest])];
  const set = new Set(answer.prediction_set?.values[0].map((item) => classes.indexOf(item)));

  $('headline').replaceChildren(h('span', { class: 'target' }, target.name), h('strong', { class: name.length > LONG ? 'long' : null }, name), h('span', { class: 'spread' }, ` ${chance}`));
  showBar(target.name, `${name} ${chance}`);
  $('sure-text').textContent = answer.extrapolation[0] ? 'This row lies outside the training rows, so nothing checks its probabilities.'
    : answer.calibrated && calibration ? `Probabilities are calibrated on ${counted(calibration.rows, 'held-out row')}.` : 'Probabilities are not calibrated: there were no held-out rows for it.';

  const shares = sharesOf(overview);
  const { shown, rest } = split(probabilities, classes);
  const rows = shown.map((number) => {
    const [low, high] = intervals[number];
    const share = shares?.[number] ?? null;
    return {
      name: named(classes[number]), share, bars: [{ value: probabilities[number], low, high, color: set.has(number) ? 'accent' : 'out' }], figure: percent(probabilities[number]),
      note: [`, over draws ${interval(low, high, ' to ')} %${share === null ? '' : `, ${percent(share)} of the training rows`}${set.has(number) ? ', in the set' : ''}`, interval(low, high, '–')],
    };
  });
  if (rest.length) {
    rows.push({ name: others(rest.length), rest: true, share: shares && sum(rest, shares), bars: [{ value: sum(rest, probabilities), color: 'rest' }], figure: percent(sum(rest, probabilities)) });
  }
  showBars($('class-bars'), rows, `Probabilities of ${target.name}`);
  $('class-legend').replaceChildren(key('accent', `in the ${choices.coverage} % set`), key('out', 'not in it'), key('ink', '90 % of the draws', 'line'), shares ? key('grey', 'training rows') : '');

  showSet(answer, choices);
  const { entropy: [entropy], epistemic_entropy: [epistemic] } = answer;
  const most = Math.log(classes.length);
  const words = entropy < SURE ? 'There is next to no uncertainty to split.' : inWords(epistemic / entropy);
  showSplit(`${nats(entropy - epistemic)} nats`, `${nats(epistemic)} nats`, entropy > 0 ? epistemic / entropy : 0, `${words} The entropy is ${nats(entropy)} nats, of ${nats(most)} at most.`);
}

/** Says which classes are in the set, the likeliest first. */
function showSet(answer, choices) {
  const [probabilities] = answer.probabilities;
  const chance = (name) => probabilities[answer.classes.indexOf(name)];
  const names = answer.prediction_set?.values[0].toSorted((a, b) => chance(b) - chance(a)).map(named);
  $('coverage-text').textContent = `${choices.coverage} %`;
  $('coverage').setAttribute('aria-valuetext', `${choices.coverage} %`);
  $('set-text').replaceChildren(...(names ? [
    h('b', {}, either(names)), '. ', h('span', { class: 'soft' }, `For rows like the training rows, ${choices.coverage} % of such sets contain the true class${answer.calibrated ? '' : ' if the probabilities are right'}.${answer.extrapolation[0] ? ' This row is unlike them.' : ''}`),
  ] : ['The checkpoint has no sets.']));
}
