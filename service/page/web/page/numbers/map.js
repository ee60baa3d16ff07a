// The mean, its epistemic uncertainty or the chance of more than the threshold over two features.

import { percent, short } from '../format.js';
import { drawMap, shades } from '../map.js';

/** What a map can show. */
export const mapEntries = [['mean', 'mean'], ['epistemic_std', 'epistemic std'], ['exceedance', 'chance of more than the threshold']];

/** The options of a map; a text where something is missing. */
export function mapOptions(choices) {
  if (choices.mapOf !== 'exceedance') return { samples: 64, percentiles: [50] };
  if (choices.threshold === null) return 'Enter a threshold first, at the answer above.';
  return { samples: 64, percentiles: [50], thresholds: [choices.threshold] };
}

/** Draws a map. */
export function showMap(overview, first, second, row, asked, answer, choices) {
  const values = choices.mapOf === 'exceedance' ? answer.exceedance.values.map((of) => of[0]) : answer[choices.mapOf];
  const name = { mean: overview.target.name, epistemic_std: 'epistemic std', exceedance: `chance of more than ${choices.threshold}` }[choices.mapOf];
  const said = choices.mapOf === 'exceedance' ? percent : short;
  drawMap(first, second, row, asked, {
    cells: values.map((value) => ({ value, text: said(value) })), encoding: { color: shades('value', name) }, tooltip: [{ field: 'text', title: name }],
  }, name, `from ${said(Math.min(...values))} to ${said(Math.max(...values))}`);
}
