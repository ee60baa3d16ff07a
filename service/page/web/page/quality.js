// Live quality: how good recorded predictions were, by the outcomes that came since.

import { $, h, key, table } from './dom.js';
import { getJson, Problem } from './api.js';
import { draw, palette } from './charts.js';
import { count, percent, short } from './format.js';

const LEVEL = '90';
const interval = ({ share, low, high }) => `${percent(share, 1)} (${percent(low, 0)} to ${percent(high, 0)})`;

/** A button below the card that asks for the quality: the service may keep no predictions. */
export function offerQuality(overview) {
  const button = h('button', { type: 'button', onclick: () => showQuality(overview) }, 'Compare with outcomes');
  return h('div', { id: 'quality' }, h('h3', {}, 'Live quality'), h('p', {}, button), h('div', { id: 'quality-told', role: 'status' }));
}

async function showQuality({ name, target }) {
  let found;
  try {
    found = await getJson(`models/${encodeURIComponent(name)}/quality?window=90d`, { channel: 'quality' });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    $('quality-told').replaceChildren(h('p', { class: 'soft' }, error.errors[0]?.message ?? error.message));
    return;
  }
  if (!found) return;
  const { versions } = found;
  if (!versions.length) {
    $('quality-told').replaceChildren(h('p', { class: 'soft' }, 'No outcome of a recorded prediction has come in the last 90 days.'));
    return;
  }
  const classes = Boolean(target.classes);
  const shares = (of) => (classes ? { accuracy: of.accuracy, 'coverage of sets': of.sets.coverage } : Object.fromEntries(Object.entries(of.coverage).map(([level, share]) => [`${level} % band`, share])));
  const scores = (of) => (classes ? [of.log_loss, of.ece] : [of.crps, of.bias]).map((value) => short(value));
  const rows = versions.map((of) => [of.version, count(of.n), ...Object.values(shares(of)).map(interval), ...scores(of)]);
  const alarms = versions.filter(({ alarm }) => alarm?.raised).map(({ version, alarm }) => h('p', { class: 'problem' }, h('b', {}, `Version ${version} is wrong since ${(alarm.since ?? '').slice(0, 10)}: `), 'its outcomes differ from its held-out rows.'));
  $('quality-told').replaceChildren(...(alarms.length ? alarms : [h('p', {}, 'No alarm: nothing shows that outcomes differ from the held-out rows.')]),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Live quality' }, table(['Version', 'Outcomes', ...Object.keys(shares(versions[0])), ...(classes ? ['log loss', 'ECE'] : ['CRPS', 'bias'])], rows, 'The last 90 days, with 95 % intervals')),
    h('div', { id: 'quality-history', class: 'chart' }), h('p', { class: 'legend' }, key('accent', classes ? 'accuracy, with its 95 % interval' : `coverage of ${LEVEL} % bands, with its 95 % interval`, 'line')));
  const colors = palette();
  const history = versions.flatMap((of) => of.history.map((step) => ({ at: Date.parse(step.from), version: of.version, n: step.n, ...(classes ? step.accuracy : step.coverage[LEVEL]) })));
  const x = { field: 'at', type: 'temporal', title: null };
  const y = (field) => ({ field, type: 'quantitative', title: classes ? 'accuracy' : 'coverage', scale: { zero: false }, axis: { format: '~%' } });
  const tooltip = [{ field: 'at', type: 'temporal' }, { field: 'version' }, { field: 'share', format: '.1%' }, { field: 'n', title: 'outcomes' }];
  await draw($('quality-history'), { height: 180, layer: [
    ...(classes ? [] : [{ data: { name: 'promised' }, mark: { type: 'rule', color: colors.soft, strokeDash: [3, 3] }, encoding: { y: y('share') } }]),
    { data: { name: 'history' }, mark: { type: 'rule', color: colors.accent }, encoding: { x, y: y('low'), y2: { field: 'high' }, tooltip } },
    { data: { name: 'history' }, mark: { type: 'point', filled: true, size: 50, color: colors.accent, opacity: 1 }, encoding: { x, y: y('share'), tooltip } },
  ] }, { history, promised: [{ share: Number(LEVEL) / 100 }] }, `${classes ? 'Accuracy' : 'Coverage'} by time: ${history.map((step) => percent(step.share, 0)).join(', ')}`);
}
