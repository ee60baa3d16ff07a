// Two inputs side by side: overlapping densities, and the probability that one exceeds the other.

import { $, h, key } from '../dom.js';
import { draw, palette } from '../charts.js';
import { percent, placed, titled } from '../format.js';
import { targetDomain } from './answer.js';
import { density, exceeds, LEVELS } from './distribution.js';

/** The options of a comparison. */
export const compareOptions = { percentiles: LEVELS, include: ['draws'] };

/** Shows a comparison. */
export function showCompare(overview, answer) {
  const { target } = overview;
  const colors = palette();
  const chance = exceeds(answer);
  const names = ['A', 'B'];
  const unit = target.unit ? ` ${target.unit}` : '';
  const of = (row) => `${placed(answer.mean[row], answer.std[row])} ± ${placed(answer.std[row], answer.std[row])}${unit}`;
  // Two equal rows of a batch may differ in their last digits: by 1e-5 std.
  const same = answer.percentiles.values[0].every((value, i) => Math.abs(value - answer.percentiles.values[1][i]) <= 1e-4 * answer.std[0]);
  $('compare-text').replaceChildren(...(same ? ['A and B are identical. Change B below.'] : [
    h('span', {}, 'A has more ', h('b', {}, target.name), ' than B with probability '), h('strong', { id: 'more' }, percent(chance.observed)), '.',
    h('small', {}, `A: ${of(0)}. B: ${of(1)}. On average over many such rows, A is above B with probability ${percent(chance.function)}. `
      + 'Both are answered by the same draws, so epistemic uncertainty that they share cancels; their noise is independent.')]));
  const limits = [target.minimum ?? -Infinity, target.maximum ?? Infinity];
  const curves = answer.percentiles.values.map((values) => density(answer.percentiles.levels, values, ...limits));
  const most = Math.max(...curves.flat().map((point) => point.y));
  const data = Object.fromEntries(curves.map((points, row) => [names[row], points.map(({ x, y }) => ({ x, y: y / most }))]));
  data.means = names.map((name, row) => ({ name, x: answer.mean[row], y: -0.06, text: same ? 'A = B' : name }));
  const domain = targetDomain(overview, curves.flatMap((points) => [points[0].x, points[points.length - 1].x]));
  const x = { field: 'x', type: 'quantitative', scale: { domain, nice: false, zero: false }, title: titled(target), axis: { tickCount: 7 } };
  const y = { field: 'y', type: 'quantitative', axis: null, scale: { domain: [-0.12, 1.06] } };
  const layer = names.flatMap((name, row) => {
    const shown = row === 0 ? colors.accent : colors.second;
    return [
      { data: { name }, mark: { type: 'area', color: shown, opacity: 0.22, clip: true }, encoding: { x, y, y2: { datum: 0 } } },
      { data: { name }, mark: { type: 'line', color: shown, strokeWidth: 1.8, clip: true }, encoding: { x, y } },
    ];
  });
  layer.push({ data: { name: 'means' }, mark: { type: 'text', fontSize: 12, fontWeight: 600, color: colors.ink }, encoding: { x, y, text: { field: 'text' } } });
  draw($('compare'), { height: 190, layer }, data, `Predictive densities of A (${of(0)}) and B (${of(1)})`);
  $('compare-legend').replaceChildren(key('accent', 'A', 'line'), key('second', 'B', 'line'));
}
