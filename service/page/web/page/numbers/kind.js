// Numbers as targets: the mean ± its standard deviation, a density, bands.

import { $ } from '../dom.js';
import { titled } from '../format.js';
import { showAnswer } from './answer.js';
import { facts, metrics, tables, words } from './card.js';
import { compareOptions, showCompare } from './compare.js';
import { LEVELS } from './distribution.js';
import { mapEntries, mapOptions, showMap } from './map.js';
import { showSweep, sweepOptions } from './sweep.js';

const threshold = () => ($('threshold').value === '' ? null : Number($('threshold').value));
const thresholds = (choices) => (choices.threshold !== null && Number.isFinite(choices.threshold) ? { thresholds: [choices.threshold] } : {});

/** The kind; `kinds.js` says what its members are. */
export const numbers = {
  template: 'answer-numbers',
  about: ({ target }) => titled(target),

  mount({ ask, askSoon }) {
    $('band').addEventListener('change', ask);
    $('threshold').addEventListener('input', askSoon);
  },
  fill({ target: { middle, spread } }, link) {
    const middling = middle === null ? '' : Number(middle.toPrecision(spread > Math.abs(middle) ? 1 : 2));
    $('threshold').value = link.threshold ?? middling;
    const band = link.band ?? (link.model ? '90' : null); // another model keeps the band, a link without one means 90
    if (['50', '80', '90', '95'].includes(band)) $('band').value = band;
  },
  choices: () => ({ band: Number($('band').value), threshold: threshold() }),
  state: ({ band }) => ({ band: band === 90 ? null : band, threshold: $('threshold').value }),
  begin({ target }, answer) { // where the middle of the targets is not known: the first answer's mean
    if (target.middle !== null || threshold() !== null) return false;
    $('threshold').value = Number(answer.mean[0].toPrecision(2));
    return true;
  },

  answer: { options: (choices) => ({ percentiles: LEVELS, ...thresholds(choices) }), show: showAnswer },
  sweep: { options: sweepOptions, show: showSweep },
  compare: { options: () => compareOptions, show: showCompare },
  map: { entries: () => mapEntries, options: mapOptions, show: showMap },
  request: {
    options: (choices) => ({ percentiles: [50 - choices.band / 2, 50, 50 + choices.band / 2], ...thresholds(choices) }),
    printed: 'prediction.mean, prediction.std', query: () => '',
  },
  totals: [['sum', 'sum'], ['mean', 'mean'], ['count_above', 'rows above the threshold']],
  card: { metrics, words, facts, tables },
};
