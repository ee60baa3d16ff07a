// Answers along a feature, over its training range and beyond; and over two features, as a map.

import { $ } from './dom.js';
import { draw, palette, roomy } from './charts.js';
import { key, titled } from './answer.js';
import { dateOf, dateTicks, daysOf, placed, short } from './format.js';

const BEYOND = 0.2;
const DAY = 86400000;
const MOST_LEVELS = 40;

export const hasRange = (feature) => feature.min !== null && feature.max !== null && feature.min !== feature.max && !isChoice(feature);
export const isChoice = (feature) => feature.kind === 'categorical' || feature.kind === 'boolean';

/** Features that a sweep can go along. */
export const sweepable = (features) => features.filter((feature) => (isChoice(feature) ? (feature.categories?.length ?? 2) > 1 : hasRange(feature)));

const ends = (feature) => (feature.kind === 'date' ? [daysOf(feature.min), daysOf(feature.max)] : [feature.min, feature.max]);

/** Values of a feature along its axis: {value} as a request has it, and {at} as a chart has it. */
export function steps(feature, count, beyond) {
  if (feature.kind === 'boolean') return [false, true].map((value) => ({ value, at: String(value) }));
  if (feature.kind === 'categorical') return feature.categories.slice(0, MOST_LEVELS).map((value) => ({ value, at: value }));
  const [low, high] = ends(feature);
  const below = low - beyond * (high - low);
  // No length, weight or price is below zero, where none of the training rows is.
  const from = feature.kind !== 'date' && low >= 0 ? Math.max(0, below) : below;
  const to = high + beyond * (high - low);
  const seen = new Set();
  return Array.from({ length: count }, (_, i) => {
    const value = from + ((to - from) * i) / (count - 1);
    if (feature.kind === 'date') return { value: dateOf(value), at: Math.round(value) * DAY };
    const rounded = feature.step ? Math.round(value / feature.step) * feature.step : Number(value.toPrecision(6));
    return { value: rounded, at: rounded };
  }).filter((step) => !seen.has(step.at) && seen.add(step.at));
}

const place = (feature, value) => (feature.kind === 'date' ? Math.round(daysOf(value)) * DAY : isChoice(feature) ? String(value) : value);
const EXACT = { type: 'quantitative', scale: { nice: false, zero: false } };

/** The axis of a number or a date; dates are milliseconds, labelled as dates. */
function axisOf(feature, from, to, ticks) {
  if (feature.kind !== 'date') return { grid: false, tickCount: ticks };
  const { values, format } = dateTicks(from, to, ticks);
  return { grid: false, values, labelExpr: `utcFormat(datum.value, '${format}')` };
}

/** The bars of a column of whole numbers, each at its number. */
function wholeBars(histogram, width) {
  return histogram.counts.map((rows, i) => ({ at: i === histogram.counts.length - 1 ? histogram.stop : Math.ceil(histogram.start + i * width - 1e-9), rows })).filter((bar) => bar.rows > 0);
}

/** The request of a sweep. */
export function sweepRequest(feature, row, band) {
  const listed = steps(feature, 61, BEYOND);
  return { steps: listed, body: { inputs: listed.map((step) => ({ ...row, [feature.name]: step.value })), percentiles: [50 - band / 2, 50 + band / 2] } };
}

/** Draws a sweep: the mean, the band of a new row, the mean ± its epistemic std, and the training rows below. */
export function showSweep(overview, feature, row, listed, answer, choices) {
  const colors = palette();
  const { target } = overview;
  const points = listed.map((step, i) => ({
    at: step.at, mean: answer.mean[i], low: answer.percentiles.values[i][0], high: answer.percentiles.values[i][1],
    under: answer.mean[i] - answer.epistemic_std[i], over: answer.mean[i] + answer.epistemic_std[i],
    value: String(step.value), doubt: short(answer.epistemic_std[i]), text: placed(answer.mean[i], answer.std[i]), spread: short(answer.std[i]),
  }));
  const [low, high] = roomy(points.flatMap((point) => [point.low, point.high]), 0.05);
  const floor = low - 0.16 * (high - low);
  const y = (field) => ({ field, type: 'quantitative', scale: { domain: [floor, high], nice: false, zero: false }, title: titled(target) });
  const tooltip = [{ field: 'value', title: feature.name }, { field: 'text', title: 'mean' }, { field: 'spread', title: '±' }, { field: 'doubt', title: 'doubt' }];
  const title = feature.unit ? `${feature.name} (${feature.unit})` : feature.name;
  const now = row[feature.name] === null ? [] : [{ at: place(feature, row[feature.name]) }];
  const data = { points, now, threshold: choices.threshold === null ? [] : [{ y: choices.threshold }] };
  const layers = [];
  if (isChoice(feature)) {
    const x = { field: 'at', type: 'nominal', sort: null, title, axis: { labelAngle: 0, labelLimit: 90, labelOverlap: true } };
    const most = Math.max(...(feature.levels || []).map((level) => level.rows), 1);
    data.rows = (feature.levels || []).filter((level) => listed.some((step) => step.at === String(level.value)))
      .map((level) => ({ at: String(level.value), y: floor, y2: floor + (0.13 * (high - floor) * level.rows) / most }));
    layers.push(
      { data: { name: 'rows' }, mark: { type: 'bar', color: colors.grey, width: { band: 0.5 } }, encoding: { x, y: y('y'), y2: { field: 'y2' } } },
      { data: { name: 'points' }, mark: { type: 'rule', color: colors.tint, strokeWidth: 22 }, encoding: { x, y: y('low'), y2: { field: 'high' }, tooltip } },
      { data: { name: 'points' }, mark: { type: 'rule', color: colors.doubt, strokeWidth: 10, opacity: 0.55 }, encoding: { x, y: y('under'), y2: { field: 'over' }, tooltip } },
      { data: { name: 'points' }, mark: { type: 'point', filled: true, color: colors.accent, size: 60, opacity: 1 }, encoding: { x, y: y('mean'), tooltip } },
      { data: { name: 'now' }, mark: { type: 'point', shape: 'triangle-up', filled: true, color: colors.ink, size: 60, opacity: 1 }, encoding: { x, y: { datum: floor, type: 'quantitative' } } },
    );
  } else {
    const domain = [listed[0].at, listed[listed.length - 1].at];
    const x = { field: 'at', ...EXACT, scale: { ...EXACT.scale, domain }, title, axis: axisOf(feature, ...domain, 8) };
    const range = ends(feature).map((end) => (feature.kind === 'date' ? end * DAY : end));
    data.beyond = [{ at: domain[0], to: range[0] }, { at: range[1], to: domain[1] }].filter((part) => part.to > part.at);
    const histogram = feature.histogram;
    const width = histogram ? (range[1] - range[0]) / histogram.counts.length : 0;
    const most = histogram ? Math.max(...histogram.counts) : 1;
    data.rows = !histogram ? [] : feature.step && range[1] - range[0] <= 40 ? wholeBars(histogram, width).map(({ at, rows }) => ({ at: at - 0.15, to: at + 0.15, y: floor, y2: floor + (0.13 * (high - floor) * rows) / most })) : histogram.counts.map((rows, i) => ({ at: range[0] + i * width, to: range[0] + (i + 0.86) * width, y: floor, y2: floor + (0.13 * (high - floor) * rows) / most }));
    layers.push(
      { data: { name: 'beyond' }, mark: { type: 'rect', color: colors.grey, opacity: 0.28 }, encoding: { x, x2: { field: 'to' } } },
      { data: { name: 'rows' }, mark: { type: 'rect', color: colors.grey }, encoding: { x, x2: { field: 'to' }, y: y('y'), y2: { field: 'y2' } } },
      { data: { name: 'points' }, mark: { type: 'area', color: colors.tint, opacity: 0.85 }, encoding: { x, y: y('low'), y2: { field: 'high' } } },
      { data: { name: 'points' }, mark: { type: 'area', color: colors.doubt, opacity: 0.42 }, encoding: { x, y: y('under'), y2: { field: 'over' } } },
      { data: { name: 'points' }, mark: { type: 'line', color: colors.accent, strokeWidth: 2 }, encoding: { x, y: y('mean') } },
      { data: { name: 'now' }, mark: { type: 'rule', color: colors.ink, strokeWidth: 1, clip: true }, encoding: { x } },
      { data: { name: 'points' }, mark: { type: 'rule', color: colors.ink, opacity: 0, strokeWidth: 9 }, encoding: { x, tooltip } },
    );
  }
  layers.push({ data: { name: 'threshold' }, mark: { type: 'rule', color: colors.ink, strokeDash: [3, 3], opacity: 0.6, clip: true }, encoding: { y: { ...y('y') } } });
  const [first, last] = [points[0], points[points.length - 1]];
  draw($('sweep'), { height: 300, layer: layers }, data, `${target.name} along ${feature.name}: from ${first.text} at ${first.value} to ${last.text} at ${last.value}`);
  $('sweep-legend').replaceChildren(key('accent', 'mean', 'line'), key('doubt', 'the mean ± its doubt'), key('noise', `${choices.band} % band of a new row`),
    data.rows.length ? key('grey', 'training rows') : '', isChoice(feature) ? '' : key('beyond', 'beyond the training range'));
}

/** The request of a map over two features. */
export function mapRequest(first, second, row, choices) {
  const [across, up] = [steps(first, 30, 0), steps(second, 30, 0)];
  const inputs = up.flatMap((b) => across.map((a) => ({ ...row, [first.name]: a.value, [second.name]: b.value })));
  const body = { inputs, samples: 64, percentiles: [50] };
  if (choices.mapOf === 'exceedance' && choices.threshold !== null) body.thresholds = [choices.threshold];
  return { across, up, body };
}

/** Draws a map. */
export function showMap(overview, first, second, row, asked, answer, choices) {
  const colors = palette();
  const values = choices.mapOf === 'exceedance' ? answer.exceedance.values.map((of) => of[0]) : answer[choices.mapOf];
  const edges = (feature, listed, i) => {
    if (isChoice(feature)) return [listed[i].at, null];
    const middle = (a, b) => (listed[a].at + listed[b].at) / 2;
    const from = i > 0 ? middle(i - 1, i) : listed[0].at;
    return [from, i < listed.length - 1 ? middle(i, i + 1) : listed[i].at];
  };
  const cells = asked.up.flatMap((b, j) => asked.across.map((a, i) => {
    const [x, x2] = edges(first, asked.across, i);
    const [y, y2] = edges(second, asked.up, j);
    const value = values[j * asked.across.length + i];
    return { x, x2, y, y2, value, a: String(a.value), b: String(b.value) };
  }));
  const axis = (feature, listed, channel) => {
    const title = feature.unit ? `${feature.name} (${feature.unit})` : feature.name;
    if (isChoice(feature)) return { field: channel, type: 'nominal', sort: channel === 'y' ? 'descending' : null, title, axis: { labelAngle: 0, labelLimit: 90, grid: false } };
    const domain = [listed[0].at, listed[listed.length - 1].at];
    return { field: channel, ...EXACT, scale: { ...EXACT.scale, domain }, title, axis: axisOf(feature, ...domain, 7) };
  };
  const name = { mean: overview.target.name, epistemic_std: 'doubt', exceedance: `chance of more than ${choices.threshold}` }[choices.mapOf];
  const x = axis(first, asked.across, 'x');
  const y = axis(second, asked.up, 'y');
  const encoding = {
    x, y, color: { field: 'value', type: 'quantitative', title: name, scale: { range: [colors.low, colors.high], interpolate: 'lab', zero: false, nice: false }, legend: { type: 'gradient', gradientLength: 160, orient: $('map').clientWidth < 480 ? 'top' : 'right', titleLimit: 150 } },
    tooltip: [{ field: 'a', title: first.name }, { field: 'b', title: second.name }, { field: 'value', title: name, format: '.3~g' }],
  };
  if (!isChoice(first)) encoding.x2 = { field: 'x2' };
  if (!isChoice(second)) encoding.y2 = { field: 'y2' };
  const here = row[first.name] === null || row[second.name] === null ? [] : [{ x: place(first, row[first.name]), y: place(second, row[second.name]) }];
  const spec = {
    height: 340,
    layer: [
      { data: { name: 'cells' }, mark: { type: 'rect', strokeWidth: 0 }, encoding },
      { data: { name: 'here' }, mark: { type: 'point', shape: 'cross', size: 130, color: colors.ink, strokeWidth: 1.5, filled: false, opacity: 1, clip: true }, encoding: { x, y } },
    ],
  };
  const [least, most] = [Math.min(...values), Math.max(...values)];
  draw($('map'), spec, { cells, here }, `${name} over ${first.name} and ${second.name}: from ${short(least)} to ${short(most)}`);
  $('map-legend').textContent = `From ${short(least)} to ${short(most)}. The cross is the input; everything else of the row stays as it is.`;
}
