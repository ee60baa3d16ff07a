// What the model card says of classes: scores, prediction sets, and the classes themselves.

import { h, table } from '../dom.js';
import { count, counted, percent, short } from '../format.js';
import { named, others, ranked } from './chosen.js';

const MOST_CLASSES = 12;
const JUDGED = [['log_loss', 'Log loss', short], ['brier', 'Brier score', short], ['ece', 'ECE', (share) => percent(share, 1)]];

/** The metrics: [name, title, unit]. */
export const metrics = [['accuracy', 'Accuracy', '%'], ['balanced_accuracy', 'Balanced accuracy', '%'], ['log_loss', 'Log loss', 'nats'], ['brier', 'Brier score', ''],
  ['auc', 'AUC', ''], ['ece', 'Calibration error (ECE)', '%']];

/** What the metrics mean. */
export const words = 'Log loss is minus the logarithm of the probability given to the observed class, and the Brier score the squared distance of the probabilities from it. The calibration error is the mean distance of stated probabilities from observed shares. For these three, lower is better. AUC is 0.5 by chance and 1 at best.';

/** What was fitted, for the first line of the card. */
export const facts = ({ calibration, target }) => [
  calibration && `probabilities calibrated on ${counted(calibration.rows, 'held-out row')} (${calibration.method})`, `${target.classes.length} classes`];

/** Scores of raw and of calibrated probabilities; null where the checkpoint does not say. */
function judged({ metrics: { raw, calibrated } }) {
  const rows = JUDGED.filter(([name]) => Number.isFinite(raw?.[name]) || Number.isFinite(calibrated?.[name]))
    .map(([name, title, said]) => [title, said(calibrated?.[name]), said(raw?.[name])]);
  return rows.length && calibrated ? table(['Score', 'calibrated', 'raw'], rows, 'Probabilities before and after calibration') : null;
}

/** How often the sets contained the class, and their size; null where the checkpoint does not say. */
function sets({ metrics: { sets: found } }) {
  const levels = Object.keys(found?.coverage ?? {});
  return levels.length ? table(['Set', 'contained the class', 'classes in it'],
    levels.map((level) => [`${level} %`, percent(found.coverage[level], 1), short(found.size?.[level])]), 'Coverage of prediction sets on held-out rows') : null;
}

/** The classes with their training rows; null where the checkpoint does not tell them. */
function classTable({ target: { name, levels } }) {
  if (!levels) return null;
  const total = levels.reduce((sum, level) => sum + level.rows, 0);
  const order = ranked(levels.map((level) => level.rows));
  const shown = order.length > MOST_CLASSES ? order.slice(0, MOST_CLASSES - 1) : order;
  const rows = shown.map((number) => [named(levels[number].value), count(levels[number].rows), percent(levels[number].rows / total)]);
  const rest = order.slice(shown.length).reduce((sum, number) => sum + levels[number].rows, 0);
  if (order.length > shown.length) rows.push([others(order.length - shown.length), count(rest), percent(rest / total)]);
  return table([name, 'Training rows', 'Share'], rows, 'Classes');
}

/** Tables of the card, by name. */
export const tables = (overview) => [['Calibration', judged(overview)], ['Prediction sets', sets(overview)], ['Classes', classTable(overview)]];
