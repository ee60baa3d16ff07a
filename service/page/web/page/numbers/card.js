// What the model card says of numbers: errors, and how often the bands held.

import { $, h, table } from '../dom.js';
import { draw, palette } from '../charts.js';
import { count, percent, short } from '../format.js';

const LEVELS = ['50', '80', '90', '95'];

/** The metrics: [name, title, unit or null for the target's own]. */
export const metrics = [['rmse', 'RMSE'], ['mae', 'MAE'], ['crps', 'CRPS'], ['nll', 'Negative log likelihood', 'nats'], ['r2', 'R²', '']];

/** What was fitted, for the first line of the card. */
export const facts = ({ calibration, training }) => [
  calibration && `bands calibrated on ${count(calibration.rows)} held-out rows (${calibration.method})`, `${training.likelihood} noise`];

/** How many held-out rows the bands held; null where the checkpoint does not say. */
function coverage(overview) {
  const { raw, calibrated } = overview.metrics;
  if (!raw?.coverage && !calibrated?.coverage) return null;
  const cell = (judged, level) => (Number.isFinite(judged?.coverage?.[level]) ? percent(judged.coverage[level], 1) : '–');
  const width = (judged, level) => (Number.isFinite(judged?.width?.[level]) ? short(judged.width[level]) : '–');
  return table(['Band', 'held, calibrated', 'width', 'held, raw', 'width'],
    LEVELS.map((level) => [`${level} %`, cell(calibrated, level), width(calibrated, level), cell(raw, level), width(raw, level)]), 'How many held-out rows the bands held');
}

/** Tables of the card, by name. */
export const tables = (overview) => [['Coverage', coverage(overview)]];

/** The chart of the card, to be drawn into by `drawReliability`. */
export function figures(overview) {
  if (!overview.reliability) return [];
  return [h('figure', {}, h('div', { id: 'reliability', class: 'chart' }), h('figcaption', { class: 'soft' }, 'Reliability: of the bands of each level, how many held the held-out rows. On the diagonal they say what they hold.'))];
}

/** Draws the chart of the card: raw bands as a line, calibrated ones as dots. */
export function drawFigures(overview) {
  if (!$('reliability')) return;
  const colors = palette();
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
