// The model card: what is known of a model before anybody asks it.

import { $, h, table } from './dom.js';
import { draw, palette } from './charts.js';
import { count, percent, plain, short } from './format.js';
import { titled } from './answer.js';
import { curveFigures, drawCurves } from './curves.js';
import { drawReport } from './report.js';

const METRICS = [['rmse', 'RMSE'], ['mae', 'MAE'], ['crps', 'CRPS'], ['nll', 'Negative log likelihood'], ['r2', 'R²']];
const LEVELS = ['50', '80', '90', '95'];

function metrics(overview) {
  const errors = overview.metrics.standard_errors || {};
  const unit = overview.target.unit ? ` ${overview.target.unit}` : '';
  const items = METRICS.filter(([name]) => Number.isFinite(overview.metrics[name])).map(([name, title]) => {
    const ofUnit = { nll: ' nats', r2: '' }[name] ?? unit;
    const error = errors[name] > 0 ? ` ± ${short(errors[name], 2)}` : '';
    return h('div', {}, h('dt', {}, title), h('dd', {}, short(overview.metrics[name]), h('small', {}, error + ofUnit)));
  });
  return items.length ? h('dl', { class: 'metrics' }, items) : h('p', { class: 'soft' }, 'The checkpoint has no metrics.');
}

function coverage(overview) {
  const { raw, calibrated } = overview.metrics;
  if (!raw?.coverage && !calibrated?.coverage) return null;
  const cell = (judged, level) => (Number.isFinite(judged?.coverage?.[level]) ? percent(judged.coverage[level], 1) : '–');
  const width = (judged, level) => (Number.isFinite(judged?.width?.[level]) ? short(judged.width[level]) : '–');
  return table(['Band', 'held, calibrated', 'width', 'held, raw', 'width'],
    LEVELS.map((level) => [`${level} %`, cell(calibrated, level), width(calibrated, level), cell(raw, level), width(raw, level)]), 'How many held-out rows the bands held');
}

function temperature(value) {
  if (!Number.isFinite(value)) return null;
  const meaning = value === 1 ? 'the textbook posterior: the data count once.'
    : value < 1 ? `the data count ${short(1 / value, 2)} times against the prior, which gives a sharper (“colder”) posterior. Held-out rows were predicted best so.`
      : `the data count ${short(1 / value, 2)} times against the prior, which gives a wider (“warmer”) posterior. Held-out rows were predicted best so.`;
  return h('p', {}, h('b', {}, `Temperature ${short(value, 2)}`), `: ${meaning}`);
}

function schema(overview) {
  const rows = overview.features.map((feature) => {
    const range = feature.categories ? `${feature.categories.slice(0, 8).join(', ')}${feature.categories.length > 8 ? ` and ${feature.categories.length - 8} more` : ''}`
      : feature.kind === 'boolean' ? 'false, true' : feature.min === null ? 'no value in training' : `${typeof feature.min === 'number' ? plain(feature.min) : feature.min} to ${typeof feature.max === 'number' ? plain(feature.max) : feature.max}`;
    return [feature.name, feature.kind, feature.unit || '', range, feature.missing ? (feature.learned_missing ? 'yes, learned' : 'yes, averaged over') : 'no'];
  });
  return table(['Feature', 'Kind', 'Unit', 'Training range', 'May be missing'], rows, 'Features');
}

/** Fills the card. The charts are drawn by `drawCard` once the card is seen. */
export function showCard(overview) {
  const { training } = overview;
  const facts = [
    training.rows && `Fitted to ${count(training.rows)} rows`, overview.calibration && `bands calibrated on ${count(overview.calibration.rows)} held-out rows (${overview.calibration.method})`,
    `${training.members} ${training.members === 1 ? 'network' : 'networks'} of ${training.hidden.join(' and ') || 'no'} hidden units`, `${training.likelihood} noise`,
    overview.created && `made ${overview.created.slice(0, 10)}`,
  ].filter(Boolean).join(', ');
  $('card').replaceChildren(...[
    h('p', {}, `${facts}.`), temperature(training.temperature),
    h('h3', {}, 'On rows it has not seen'), metrics(overview),
    h('div', { class: 'pair' },
      overview.reliability ? h('figure', {}, h('div', { id: 'reliability', class: 'chart' }), h('figcaption', { class: 'soft' }, 'Reliability: of the bands of each level, how many held the held-out rows. On the diagonal they say what they hold.')) : null,
      ...curveFigures(overview),
      overview.candidates?.length > 1 ? h('figure', {}, h('div', { id: 'candidates', class: 'chart' }), h('figcaption', { class: 'soft' }, 'Fits that the search tried, in order, by their loss on held-out rows (nats a row; lower is better).')) : null),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Coverage' }, coverage(overview) ?? ''),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Features' }, schema(overview)),
    Object.keys(overview.left_out).length ? h('p', { class: 'soft' }, 'Left out: ', Object.entries(overview.left_out).map(([name, why]) => `${name} (${why})`).join(', '), '.') : null,
    h('div', { id: 'report' }),
  ].filter(Boolean));
}

/** Draws the charts of the card. */
export async function drawCard(overview) {
  const colors = palette();
  if ($('reliability')) {
    const points = overview.reliability.levels.map((level, i) => ({ x: level, y: overview.reliability.raw[i] }));
    const errors = overview.metrics.standard_errors?.calibrated?.coverage || {};
    const dots = LEVELS.filter((level) => Number.isFinite(overview.metrics.calibrated?.coverage?.[level])).map((level) => {
      const held = overview.metrics.calibrated.coverage[level];
      return { x: Number(level) / 100, y: held, y1: held - 1.96 * (errors[level] || 0), y2: held + 1.96 * (errors[level] || 0) };
    });
    const axis = { format: '.0%', values: [0, 0.25, 0.5, 0.75, 1] };
    const x = { field: 'x', type: 'quantitative', scale: { domain: [0, 1] }, title: 'level of the band', axis };
    const y = { field: 'y', type: 'quantitative', scale: { domain: [0, 1] }, title: 'rows held', axis };
    draw($('reliability'), {
      height: 230,
      layer: [
        { data: { name: 'ideal' }, mark: { type: 'line', color: colors.soft, strokeDash: [3, 3], strokeWidth: 1 }, encoding: { x, y } },
        { data: { name: 'raw' }, mark: { type: 'line', color: colors.second, strokeWidth: 1.8 }, encoding: { x, y } },
        { data: { name: 'dots' }, mark: { type: 'rule', color: colors.accent }, encoding: { x, y: { ...y, field: 'y1' }, y2: { field: 'y2' } } },
        { data: { name: 'dots' }, mark: { type: 'point', filled: true, color: colors.accent, size: 60, opacity: 1 }, encoding: { x, y } },
        { data: { name: 'names' }, mark: { type: 'text', align: 'left', dx: 6 }, encoding: { x, y, text: { field: 'text' } } },
      ],
    }, {
      raw: points, dots, ideal: [{ x: 0, y: 0 }, { x: 1, y: 1 }],
      names: [{ x: 0.52, y: 0.3, text: 'raw: line' }, { x: 0.52, y: 0.2, text: 'calibrated: dots' }],
    }, `Reliability. ${dots.map((dot) => `Of ${percent(dot.x)} bands, ${percent(dot.y)} held`).join('; ')}.`);
  }
  drawCurves(overview);
  if ($('candidates')) {
    const tried = overview.candidates.map((item, i) => ({ ...item, order: i + 1, loss: item.nll, about: [item.noise, item.encoding, item.transform, `T ${item.temperature}`].join(', ') })).filter((item) => Number.isFinite(item.loss));
    draw($('candidates'), {
      height: 230, data: { name: 'tried' },
      mark: { type: 'point', filled: true, size: 70, opacity: 1, color: colors.accent },
      encoding: {
        x: { field: 'order', type: 'quantitative', title: 'fit', axis: { tickMinStep: 1, format: 'd' }, scale: { nice: false, padding: 10 } },
        y: { field: 'loss', type: 'quantitative', title: 'loss', scale: { zero: false } },
        tooltip: [{ field: 'about', title: 'fit' }, { field: 'loss', format: '.4~g' }, { field: 'stage' }],
      },
    }, { tried }, `Losses of ${tried.length} fits that the search tried`);
  }
  await drawReport(overview);
}

export const aboutLine = (overview) => `predicts ${titled(overview.target)}, version ${overview.version}`;
