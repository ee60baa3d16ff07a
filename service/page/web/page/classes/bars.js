// A bar for each class, with the interval of its probability and its share of the training rows.

import { h } from '../dom.js';

const percents = (value) => `${(100 * Math.max(0, Math.min(1, value))).toFixed(2)}%`;

/** Puts an element between two shares of its track. */
function placed(element, from, to) {
  element.style.left = percents(from);
  element.style.width = percents(to - from);
  return element;
}

/** The bars of a row over the share of the training rows; for eyes only. */
function track(row) {
  const share = row.share === null || row.share === undefined ? null : placed(h('i', { class: 'share' }), 0, row.share);
  const bars = row.bars.map(({ value, low, high, color }) => h('span', { class: 'bar' }, placed(h('i', { class: `value ${color}` }), 0, value),
    low === undefined ? null : placed(h('i', { class: 'interval' }), low, high)));
  return h('span', { class: 'track', 'aria-hidden': 'true' }, share, bars);
}

/**
 * Shows bars.
 *
 * @param element Where.
 * @param rows {name, bars, share, figure, note}: `bars` have a value, the ends of an interval, and the class of their
 *   colour; `figure` and `note` are texts, or [text for readers' ears, text for their eyes].
 * @param label What they are, in words.
 * @param heads Titles of figure and note, if they need any.
 */
export function showBars(element, rows, label, heads = null) {
  const text = (given, name) => (Array.isArray(given) ? h('span', { class: name }, h('span', { class: 'inline' }, given[0]), h('span', { 'aria-hidden': 'true' }, given[1])) : h('span', { class: name }, given));
  element.replaceChildren(h('ul', { class: 'bars-of-classes', 'aria-label': label },
    heads && h('li', { class: 'heads', 'aria-hidden': 'true' }, h('span', { class: 'figure-text' }, heads[0]), h('span', { class: 'note-text' }, heads[1])),
    rows.map((row) => h('li', { class: row.rest ? 'rest' : null }, h('span', { class: 'class-name', title: row.name }, row.name), track(row), text(row.figure, 'figure-text'), text(row.note ?? '', 'note-text')))));
}
