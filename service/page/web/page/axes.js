// The axis of a feature: its values over the training range and beyond, and its training rows.

import { byName, dateOf, dateTicks, daysOf } from './format.js';

const DAY = 86400000;
const MOST_LEVELS = 40;
const BARS = 0.13; // the height of the tallest bar of the training rows, as a share of the chart's

const hasRange = (feature) => feature.min !== null && feature.max !== null && feature.min !== feature.max && !isChoice(feature);
export const isChoice = (feature) => feature.kind === 'categorical' || feature.kind === 'boolean';

/** Features that a sweep can go along. */
export const sweepable = (features) => features.filter((feature) => (isChoice(feature) ? (feature.categories?.length ?? 2) > 1 : hasRange(feature)));

/** Ends of the training range as numbers: a date is days since 1970. */
const ends = (feature) => (feature.kind === 'date' ? [daysOf(feature.min), daysOf(feature.max)] : [feature.min, feature.max]);

/**
 * Values of a feature along its axis: {value} as a request has it, and {at} as a chart has it.
 *
 * @param beyond How far it goes beyond the training range, as a share of it.
 * @param current The value of the row (null: missing), which stays in sight wherever it is.
 */
export function steps(feature, count, beyond, current) {
  if (feature.kind === 'boolean') return [false, true].map((value) => ({ value, at: String(value) }));
  if (feature.kind === 'categorical') return feature.categories.slice(0, MOST_LEVELS).map((value) => ({ value, at: value }));
  const [low, high] = ends(feature);
  const below = low - beyond * (high - low);
  // No length, weight or price is below zero, where none of the training rows is.
  const now = current === null ? low : feature.kind === 'date' ? daysOf(current) : current;
  const from = Math.min(now, feature.kind !== 'date' && low >= 0 ? Math.max(0, below) : below);
  const to = Math.max(now, high + beyond * (high - low));
  const seen = new Set();
  return Array.from({ length: count }, (_, i) => {
    const value = from + ((to - from) * i) / (count - 1);
    if (feature.kind === 'date') return { value: dateOf(value), at: Math.round(value) * DAY };
    const rounded = feature.step ? Math.round(value / feature.step) * feature.step : Number(value.toPrecision(6));
    return { value: rounded, at: rounded };
  }).filter((step) => !seen.has(step.at) && seen.add(step.at));
}

/** Where a value of a row lies on the axis. */
export const place = (feature, value) => (feature.kind === 'date' ? Math.round(daysOf(value)) * DAY : isChoice(feature) ? String(value) : value);
/** A scale that ends where its values do. */
export const EXACT = { type: 'quantitative', scale: { nice: false, zero: false } };

/** The axis of a number or a date; dates are milliseconds, labelled as dates. */
export function axisOf(feature, from, to, ticks) {
  if (feature.kind !== 'date') return { grid: false, tickCount: ticks };
  const { values, format } = dateTicks(from, to, ticks);
  return { grid: false, values, labelExpr: `utcFormat(datum.value, '${format}')` };
}

/** The bars of a column of whole numbers, each at its number. */
function wholeBars(histogram, width) {
  return histogram.counts.map((rows, i) => ({ at: i === histogram.counts.length - 1 ? histogram.stop : Math.ceil(histogram.start + i * width - 1e-9), rows })).filter((bar) => bar.rows > 0);
}

/** The training range as the axis has it. */
export const rangeOf = (feature) => ends(feature).map((end) => (feature.kind === 'date' ? end * DAY : end));

/** The training rows of a number or a date as bars {at, to, y, y2} on a floor; none where the checkpoint has none. */
export function rowBars(feature, floor, height, share = BARS) {
  const { histogram } = feature;
  if (!histogram) return [];
  const range = rangeOf(feature);
  const width = (range[1] - range[0]) / histogram.counts.length;
  const most = Math.max(...histogram.counts);
  const top = (rows) => floor + (share * height * rows) / most;
  if (feature.step && range[1] - range[0] <= 40) {
    return wholeBars(histogram, width).map(({ at, rows }) => ({ at: at - 0.15, to: at + 0.15, y: floor, y2: top(rows) }));
  }
  return histogram.counts.map((rows, i) => ({ at: range[0] + i * width, to: range[0] + (i + 0.86) * width, y: floor, y2: top(rows) }));
}

/** The training rows of the levels of a choice, as `rowBars` has them. */
export function levelBars(feature, listed, floor, height) {
  const most = Math.max(...(feature.levels || []).map((level) => level.rows), 1);
  return (feature.levels || []).filter((level) => listed.some((step) => step.at === String(level.value)))
    .map((level) => ({ at: String(level.value), y: floor, y2: floor + (BARS * height * level.rows) / most }));
}

/** The features of a model, the most important for its answers first, with categories as people count: 9 before 10. */
export const inOrder = ({ features, importance }) => importance.map((name) => features.find((feature) => feature.name === name))
  .map((feature) => (feature.categories ? { ...feature, categories: feature.categories.toSorted(byName) } : feature));
