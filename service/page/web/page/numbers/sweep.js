// The mean and its bands along a feature.

import { key } from '../dom.js';
import { isChoice } from '../axes.js';
import { palette, roomy } from '../charts.js';
import { placed, short, titled } from '../format.js';
import { drawSweep } from '../sweep.js';
import { within } from './answer.js';

/** The options of a sweep. */
export const sweepOptions = (choices) => ({ percentiles: [50 - choices.band / 2, 50 + choices.band / 2] });

/** Draws a sweep: the mean, the band of a new row, and the mean ± its epistemic std. */
export function showSweep(overview, feature, row, listed, answer, choices) {
  const colors = palette();
  const { target } = overview;
  const points = listed.map((step, i) => ({
    at: step.at, mean: answer.mean[i], low: answer.percentiles.values[i][0], high: answer.percentiles.values[i][1],
    under: answer.mean[i] - answer.epistemic_std[i], over: answer.mean[i] + answer.epistemic_std[i],
    value: String(step.value), epistemic: short(answer.epistemic_std[i]), text: placed(answer.mean[i], answer.std[i]), spread: short(answer.std[i]),
  }));
  const tooltip = [{ field: 'value', title: feature.name }, { field: 'text', title: 'mean' }, { field: 'spread', title: '±' }, { field: 'epistemic', title: 'epistemic std' }];
  const ofPoints = (mark, encoding) => ({ data: { name: 'points' }, mark, encoding });
  const layers = isChoice(feature) ? (x, y) => [
    ofPoints({ type: 'rule', color: colors.tint, strokeWidth: 22 }, { x, y: y('low'), y2: { field: 'high' }, tooltip }),
    ofPoints({ type: 'rule', color: colors.epistemic, strokeWidth: 10, opacity: 0.55 }, { x, y: y('under'), y2: { field: 'over' }, tooltip }),
    ofPoints({ type: 'point', filled: true, color: colors.accent, size: 60, opacity: 1 }, { x, y: y('mean'), tooltip }),
  ] : (x, y) => [
    ofPoints({ type: 'area', color: colors.tint, opacity: 0.85 }, { x, y: y('low'), y2: { field: 'high' } }),
    ofPoints({ type: 'area', color: colors.epistemic, opacity: 0.42 }, { x, y: y('under'), y2: { field: 'over' } }),
    ofPoints({ type: 'line', color: colors.accent, strokeWidth: 2 }, { x, y: y('mean') }),
  ];
  const [first, last] = [points[0], points[points.length - 1]];
  drawSweep(feature, row, listed, {
    domain: within(target, roomy(points.flatMap((point) => [point.low, point.high]), 0.05)), y: { title: titled(target) }, tooltip, layers,
    data: { points, threshold: choices.threshold === null ? [] : [{ y: choices.threshold }] },
    over: (y) => [{ data: { name: 'threshold' }, mark: { type: 'rule', color: colors.ink, strokeDash: [3, 3], opacity: 0.6, clip: true }, encoding: { y: y('y') } }],
  }, `${target.name} along ${feature.name}: from ${first.text} at ${first.value} to ${last.text} at ${last.value}`,
  [key('accent', 'mean', 'line'), key('epistemic', 'the mean ± its epistemic std'), key('noise', `${choices.band} % band of a new row`)]);
}
