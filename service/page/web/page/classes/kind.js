// Classes as targets: probabilities, the likeliest class, a set that should contain the true one.

import { $ } from '../dom.js';
import { INTERVAL, showAnswer } from './answer.js';
import { facts, metrics, tables, words } from './card.js';
import { compareOptions, showCompare } from './compare.js';
import { mapEntries, mapOptions, showMap } from './map.js';
import { showSweep, sweepOptions } from './sweep.js';

const [LEAST, MOST, DEFAULT] = [50, 99, 90]; // percent of coverage
const MOST_NUMBERS = 90000; // of one answer: fewer points along an axis where there are many classes

/** The kind; `kinds.js` says what its members are. */
export const classes = {
  template: 'answer-classes',
  about: ({ target }) => `${target.name}, one of ${target.classes.length} classes`,

  mount({ askSoon }) {
    $('coverage').addEventListener('input', askSoon);
  },
  fill(_, link) {
    const coverage = Number(link.coverage ?? (link.model ? DEFAULT : NaN)); // as a band of numbers
    if (coverage >= LEAST && coverage <= MOST) $('coverage').value = String(Math.round(coverage));
  },
  choices: () => ({ coverage: Number($('coverage').value) }),
  state: ({ coverage }) => ({ coverage: coverage === DEFAULT ? null : coverage }),
  begin: () => false,

  answer: { options: ({ coverage }) => ({ percentiles: INTERVAL, coverage: coverage / 100 }), show: showAnswer },
  sweep: { options: sweepOptions, show: showSweep, rows: ({ target }) => (target.classes.length > 300 ? 31 : 61) },
  compare: { options: compareOptions, show: showCompare },
  map: { entries: mapEntries, options: mapOptions, show: showMap, rows: ({ target }) => Math.max(8, Math.min(30, Math.floor(Math.sqrt(MOST_NUMBERS / target.classes.length)))) },
  request: {
    options: ({ coverage }) => ({ percentiles: [5, 50, 95], coverage: coverage / 100 }),
    printed: 'prediction.prediction, prediction.probabilities', query: ({ coverage }) => `?coverage=${coverage / 100}`,
  },
  totals: [['count', 'rows of each class']],
  card: { metrics, words, facts, tables },
};
