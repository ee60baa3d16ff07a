// Why: what each cell of the row adds to the prediction and to its epistemic uncertainty, and which missing cell it would pay to know.

import { $, h } from './dom.js';
import { brief, draw, palette } from './charts.js';
import { counted, percent, placed, short, titled } from './format.js';

const MOST = 12; // features with a bar; the others are summed

/** The options of a request. */
export const whyOptions = { percentiles: [], include: ['why', 'worth_asking'] };

/** Draws the shares of a row. */
export function showWhy({ target }, row, { why, worth_asking: [asking], mean, std, prediction }) {
  const colors = palette();
  const unit = target.unit ? ` ${target.unit}` : '';
  const parts = target.classes ? [['probability', `the probability of ${prediction[0]}`], ['epistemic_entropy', 'epistemic entropy (nats)']]
    : [['mean', titled(target)], ['epistemic_variance', `epistemic variance${target.unit ? ` (${target.unit}²)` : ''}`]];
  const [from, to] = [why.baseline[parts[0][0]][0], why.baseline[parts[0][0]][0] + why[parts[0][0]][0].reduce((sum, share) => sum + share, 0)];
  const said = (value) => (target.classes ? percent(value) : `${placed(value, std[0])}${unit}`);
  $('why-text').replaceChildren(`Without any inputs, ${target.classes ? parts[0][1] : 'the mean'} would be ${said(from)}. The cells of this row bring it to ${said(target.classes ? to : mean[0])}: each adds its share.`,
    ...(asking.length ? [h('small', {}, `Worth asking: ${asking.slice(0, 3).map(({ feature, fall }) => `${feature} (${target.classes ? 'entropy' : 'variance'} ${fall < 0 ? 'rises' : 'falls'} by ${short(Math.abs(fall), 2)})`).join(', ')}.`)] : []));
  parts.forEach(([name, title], at) => {
    const listed = why.features.map((feature, i) => ({ feature, share: why[name][0][i], cell: row[feature] === null ? 'missing' : String(row[feature]) }))
      .sort((a, b) => Math.abs(b.share) - Math.abs(a.share));
    const rest = listed.splice(MOST);
    if (rest.length) listed.push({ feature: counted(rest.length, 'other'), share: rest.reduce((sum, each) => sum + each.share, 0), cell: '' });
    const y = { field: 'feature', type: 'nominal', sort: null, title: null, axis: { labelLimit: $(`why-${at}`).clientWidth < 480 ? 120 : 260, grid: false } };
    const bars = listed.map((each) => ({ ...each, sign: each.share < 0 ? 'less' : 'more', text: short(each.share) }));
    draw($(`why-${at}`), { height: 16 + 24 * bars.length, data: { name: 'bars' }, mark: { type: 'bar', height: 14 }, encoding: {
      y, x: { field: 'share', type: 'quantitative', stack: null, title: `effect on ${title}`, axis: { tickCount: 6, ...brief(bars.map(({ share }) => share)) } },
      color: { field: 'sign', type: 'nominal', scale: { domain: ['more', 'less'], range: [colors.accent, colors.second] }, legend: null },
      tooltip: [{ field: 'feature' }, { field: 'cell' }, { field: 'text', title: 'adds' }],
    } }, { bars }, `Effect of each input on ${title}: ${bars.slice(0, 6).map((bar) => `${bar.feature} ${bar.text}`).join(', ')}`);
  });
}
