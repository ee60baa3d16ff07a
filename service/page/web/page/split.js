// Where uncertainty comes from: the noise of the observations (aleatoric), and the model's own uncertainty (epistemic).

import { $, h, key } from './dom.js';

/** What the epistemic share of the variance means, in words. */
export function inWords(share) {
  if (share < 0.1) return 'Almost all noise: more rows like this would hardly help.';
  if (share < 0.4) return 'Mostly noise: more rows like this would not help much.';
  if (share < 0.6) return 'About half is epistemic: more rows like this would help.';
  if (share < 0.9) return 'Mostly epistemic: the model has seen little like this, and more such rows would help much.';
  return 'Almost all epistemic: the model has hardly seen anything like this.';
}

/**
 * Shows a split.
 *
 * @param noise The part of the noise, as text.
 * @param epistemic The epistemic part, as text.
 * @param share The epistemic share, 0 to 1.
 * @param words What it means.
 */
export function showSplit(noise, epistemic, share, words = inWords(share)) {
  $('split').children[0].style.flexGrow = String(1 - share);
  $('split').children[1].style.flexGrow = String(share);
  $('split-text').replaceChildren(h('span', { class: 'legend' }, key('noise', `aleatoric (noise) ${noise}`), key('epistemic', `epistemic (model) ${epistemic}`)),
    h('span', { id: 'split-words' }, words));
}
