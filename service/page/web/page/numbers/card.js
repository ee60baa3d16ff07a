// What the model card says of numbers: errors, and how often the bands held.

import { table } from '../dom.js';
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
  return table(['Band', 'coverage (calibrated)', 'width', 'coverage (raw)', 'width'],
    LEVELS.map((level) => [`${level} %`, cell(calibrated, level), width(calibrated, level), cell(raw, level), width(raw, level)]), 'How many held-out rows the bands held');
}

/** Tables of the card, by name. */
export const tables = (overview) => [['Coverage', coverage(overview)]];
