// The answer for one row: the number, its density, the chance of more than a threshold, and where the spread comes from.

import { $, h, key, showBar } from '../dom.js';
import { brief, draw, palette, roomy } from '../charts.js';
import { counted, percent, placed, short, titled } from '../format.js';
import { inWords, showSplit } from '../split.js';
import { density, quantile } from './distribution.js';

/** The axis of the target: the range of the training rows and all that is shown. */
export function targetDomain(overview, values) {
  const { target } = overview;
  if (target.middle === null) return roomy(values, 0.1);
  const known = target.range ? [...target.range] : [target.middle - 2.5 * target.spread, target.middle + 2.5 * target.spread];
  // A long tail would squeeze everything else.
  const near = [Math.max(known[0], target.middle - 4 * target.spread), Math.min(known[1], target.middle + 4 * target.spread)];
  return within(target, roomy([...near, ...values], 0.02));
}

/** An axis that ends at the limits of the target. */
export const within = ({ minimum, maximum }, [low, high]) => [Math.max(low, minimum ?? -Infinity), Math.min(high, maximum ?? Infinity)];

/** The training rows' targets as bars of a given height; empty where the checkpoint has none. */
export function targetBars(overview, height) {
  const histogram = overview.target.histogram;
  if (!histogram) return [];
  const most = Math.max(...histogram.counts);
  const width = (histogram.stop - histogram.start) / histogram.counts.length;
  return histogram.counts.map((rows, at) => ({ x: histogram.start + at * width, x2: histogram.start + (at + 1) * width, y: (height * rows) / most }));
}

/** Shows an answer. `choices` are the chosen band in percent and the threshold (null: none). */
export function showAnswer(overview, answer, choices) {
  const { target } = overview;
  const [mean, std, epistemic, noise] = ['mean', 'std', 'epistemic_std', 'aleatoric_std'].map((name) => answer[name][0]);
  const { levels } = answer.percentiles;
  const values = answer.percentiles.values[0];
  const [low, high] = [50 - choices.band / 2, 50 + choices.band / 2].map((level) => quantile(levels, values, level));
  const unit = target.unit ? ` ${target.unit}` : '';

  $('headline').replaceChildren(
    h('span', { class: 'target' }, target.name), h('strong', {}, placed(mean, std)),
    h('span', { class: 'spread' }, ` ± ${placed(std, std)}`), unit && h('span', { class: 'unit' }, unit));
  showBar(target.name, `${placed(mean, std)} ± ${placed(std, std)}${unit}`);
  const calibrated = answer.calibrated && overview.calibration ? `, calibrated on ${counted(overview.calibration.rows, 'held-out row')}` : '';
  const ends = `${placed(low, std)} and ${placed(high, std)}${unit}`;
  $('band-text').textContent = answer.extrapolation[0] ? `band: between ${ends}. This row lies outside the training rows: its band is wider there, and nothing checks it.` : `of such rows lie between ${ends}${calibrated}.`;

  const share = std > 0 ? epistemic ** 2 / std ** 2 : 0;
  showSplit(short(noise) + unit, short(epistemic) + unit, share, `${inWords(share)} Their squares add up: ${short(noise)}² + ${short(epistemic)}² = ${short(std)}².`);

  const chance = answer.exceedance?.values[0][0];
  $('exceedance').textContent = chance === undefined ? '–' : percent(chance);
  $('threshold-unit').textContent = target.unit || '';
  drawDensity(overview, { mean, std, epistemic, low, high, levels, values }, choices);
}

function drawDensity(overview, shown, choices) {
  const { target } = overview;
  const colors = palette();
  const limits = [target.minimum ?? -Infinity, target.maximum ?? Infinity];
  const points = density(shown.levels, shown.values, ...limits);
  const domain = targetDomain(overview, [points[0].x, points[points.length - 1].x]);
  const most = Math.max(...points.map((point) => point.y));
  const curve = points.map(({ x, y }) => ({ x, y: y / most }));
  const above = choices.threshold === null ? [] : curve.filter((point) => point.x >= choices.threshold);
  const x = { field: 'x', type: 'quantitative', scale: { domain, nice: false, zero: false }, title: titled(target), axis: { tickCount: 7, ...brief(domain) } };
  const y = { field: 'y', type: 'quantitative', axis: null, scale: { domain: [-0.22, 1.06] } };
  const spec = {
    height: 190,
    layer: [
      { data: { name: 'rows' }, mark: { type: 'rect', color: colors.grey, opacity: 0.55, clip: true }, encoding: { x, x2: { field: 'x2' }, y, y2: { datum: 0 } } },
      { data: { name: 'curve' }, mark: { type: 'area', color: colors.tint, opacity: 0.9, clip: true }, encoding: { x, y, y2: { datum: 0 } } },
      { data: { name: 'above' }, mark: { type: 'area', color: colors.accent, opacity: 0.5, clip: true }, encoding: { x, y, y2: { datum: 0 } } },
      { data: { name: 'curve' }, mark: { type: 'line', color: colors.accent, strokeWidth: 1.6, clip: true }, encoding: { x, y } },
      { data: { name: 'threshold' }, mark: { type: 'rule', color: colors.ink, strokeDash: [3, 3], clip: true }, encoding: { x } },
      { data: { name: 'band' }, mark: { type: 'rule', color: colors.accent, strokeWidth: 2, clip: true }, encoding: { x, x2: { field: 'x2' }, y } },
      { data: { name: 'function' }, mark: { type: 'rule', color: colors.epistemic, strokeWidth: 7, clip: true }, encoding: { x, x2: { field: 'x2' }, y } },
      { data: { name: 'mean' }, mark: { type: 'point', shape: 'circle', filled: true, color: colors.surface, stroke: colors.epistemic, strokeWidth: 2, size: 70, opacity: 1, clip: true }, encoding: { x, y } },
    ],
  };
  const line = -0.11;
  draw($('density'), spec, {
    rows: targetBars(overview, 0.45), curve, above,
    threshold: choices.threshold === null ? [] : [{ x: choices.threshold }],
    band: [{ x: shown.low, x2: shown.high, y: line }],
    function: [{ x: shown.mean - shown.epistemic, x2: shown.mean + shown.epistemic, y: line }],
    mean: [{ x: shown.mean, y: line }],
  }, `Predictive density of ${target.name}: mean ${placed(shown.mean, shown.std)}, ${choices.band} % band from ${placed(shown.low, shown.std)} to ${placed(shown.high, shown.std)}`);
  $('density-legend').replaceChildren(key('noise', 'what a new row may be'), key('accent', `${choices.band} % band`, 'line'), key('epistemic', 'the mean ± its epistemic std', 'thick'),
    overview.target.histogram ? key('grey', 'training rows') : '');
}
