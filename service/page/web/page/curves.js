// Training curves: how the fits that led to the served model went, epoch by epoch.

import { $, h, key } from './dom.js';
import { draw, palette, roomy } from './charts.js';
import { count, short } from './format.js';

const KL_TICKS = [-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000];
const PANELS = [
  { id: 'curves-fit', title: 'Training curves: the fit to the rows', curves: [['nll', 'training rows', 'accent'], ['validation', 'rows not seen', 'second']],
    caption: 'Negative log likelihood. Validation that falls and levels off is good; a rise at the end means overfitting.' },
  { id: 'curves-energy', title: 'Training curves: free energy and its KL', curves: [['free_energy', 'free energy', 'ink'], ['kl', 'KL from the prior', 'second']], logarithmic: true,
    caption: 'Free energy is the negative log likelihood of the training rows plus the KL. The fit minimises it' },
];

/** The elements of the curves, to be drawn into; none where the checkpoint keeps no curves. */
export function curveFigures({ curves, training }) {
  if (!curves) return [];
  const weighed = training.temperature === 1 || !Number.isFinite(training.temperature) ? '.' : `, with the KL counted ${short(training.temperature, 2)} times, its temperature.`;
  const updated = curves.some((fit) => fit.stage === 'update') ? ' The KL of an update is from the posterior before it.' : '';
  return PANELS.map(({ id, curves: listed, caption, logarithmic }) => h('figure', {}, h('div', { id, class: 'chart' }),
    h('p', { class: 'legend' }, listed.map(([, name, color]) => key(color, name, 'line')), curves.length > 1 ? key('ink', `begin of the ${curves.slice(1).map((fit) => fit.stage).join(', then the ')}`, 'dashed') : null),
    h('figcaption', { class: 'soft' }, caption + (logarithmic ? weighed + updated : ''))));
}

/** The curves as points of one course: the epochs of a fit go on where those of the fit before it ended. */
function points(curves, name, label) {
  let before = 0;
  return curves.flatMap((fit) => {
    const found = fit.epoch.map((epoch, i) => ({ epoch: before + epoch, value: fit[name][i], stage: fit.stage, curve: label })).filter((point) => point.value !== null);
    before += fit.epoch.at(-1) ?? 0;
    return found;
  });
}

/** Draws the curves. */
export function drawCurves({ curves }) {
  if (!curves) return;
  const colors = palette();
  const ends = curves.reduce((sums, fit) => [...sums, (sums.at(-1) ?? 0) + (fit.epoch.at(-1) ?? 0)], []);
  for (const { id, title, curves: listed, logarithmic } of PANELS) {
    const data = Object.fromEntries(listed.map(([name, label]) => [name, points(curves, name, label)]));
    const values = listed.flatMap(([name]) => data[name].map((point) => point.value));
    const x = { field: 'epoch', type: 'quantitative', title: 'epoch', scale: { domain: [0, ends.at(-1)], nice: false }, axis: { tickCount: 5, format: '~s' } };
    const scale = logarithmic ? { type: 'symlog', constant: 1 } : { domain: roomy(values), zero: false, nice: false };
    const y = { field: 'value', type: 'quantitative', title: 'nats a row', scale, axis: logarithmic ? { values: KL_TICKS } : { tickCount: 5 } };
    const layers = listed.map(([name, , color], at) => ({
      data: { name }, mark: { type: 'line', color: colors[color], strokeWidth: 1.8, strokeDash: logarithmic && at ? [6, 4] : [1, 0], clip: true },
      encoding: { x, y, tooltip: [{ field: 'curve' }, { field: 'epoch' }, { field: 'value', format: '.4~g' }], detail: { field: 'stage' } },
    }));
    if (ends.length > 1) layers.push({ data: { name: 'joints' }, mark: { type: 'rule', color: colors.soft, strokeDash: [3, 3] }, encoding: { x } });
    const told = listed.filter(([name]) => data[name].length)
      .map(([name, label]) => `${label} from ${short(data[name][0].value)} to ${short(data[name].at(-1).value)}`).join(', ');
    draw($(id), { height: 210, layer: layers }, { ...data, joints: ends.slice(0, -1).map((epoch) => ({ epoch })) },
      `${title}, nats a row over ${count(ends.at(-1))} epochs: ${told}`);
  }
}
