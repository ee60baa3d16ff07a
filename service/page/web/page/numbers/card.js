// What the model card says of numbers: errors, and the coverage of bands.

import { table } from '../dom.js';
import { counted, percent, short } from '../format.js';

const LEVELS = ['50', '80', '90', '95'];

/** The metrics: [name, title, unit or null for the target's own]. */
export const metrics = [['rmse', 'RMSE'], ['mae', 'MAE'], ['crps', 'CRPS'], ['nll', 'Negative log likelihood', 'nats'], ['r2', 'R²', '']];

/** What the metrics mean. */
export const words = 'RMSE and MAE are typical errors of the mean, and RMSE weighs large ones more. CRPS is the mean distance of the predicted distribution from the observation. Lower is better, except for R².';

/** What was fitted, for the first line of the card. */
export const facts = ({ calibration, training }) => [
  calibration && `bands calibrated on ${counted(calibration.rows, 'held-out row')} (${calibration.method})`, `${training.likelihood} noise`];

/** Coverage and width of the bands on held-out rows; null where the checkpoint does not say. */
function coverage(overview) {
  const { raw, calibrated } = overview.metrics;
  if (!raw?.coverage && !calibrated?.coverage) return null;
  const cell = (judged, level) => (Number.isFinite(judged?.coverage?.[level]) ? percent(judged.coverage[level], 1) : '–');
  const width = (judged, level) => (Number.isFinite(judged?.width?.[level]) ? short(judged.width[level]) : '–');
  return table(['Band', 'coverage (calibrated)', 'width', 'coverage (raw)', 'width'],
    LEVELS.map((level) => [`${level} %`, cell(calibrated, level), width(calibrated, level), cell(raw, level), width(raw, level)]), 'Coverage on held-out rows');
}

/** Tables of the card, by name. */
export const tables = (overview) => [['Coverage', coverage(overview)]];
