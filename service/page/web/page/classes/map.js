// The likeliest class and its probability over two features; or its epistemic entropy, or the probability of one class.

import { COLOURS, palette } from '../charts.js';
import { percent, short } from '../format.js';
import { colourLegend, drawMap, shades } from '../map.js';
import { coloursOf, named, others } from './chosen.js';

const OF_CLASS = 'p:';

/** What a map can show: the likeliest class, its epistemic entropy, or the probability of one class. */
export const mapEntries = ({ target }) => [['likeliest', 'likeliest class and its probability'], ['epistemic_entropy', 'epistemic entropy'],
  ...target.classes.map((name) => [`${OF_CLASS}${name}`, `probability of ${named(name)}`])];

/** The options of a map. */
export const mapOptions = () => ({ samples: 64, percentiles: [] });

/** Draws a map. */
export function showMap(overview, first, second, row, asked, answer, { mapOf }) {
  if (mapOf === 'likeliest') {
    drawLikeliest(overview, first, second, row, asked, answer);
    return;
  }
  const number = answer.classes.indexOf(mapOf.slice(OF_CLASS.length));
  const values = mapOf === 'epistemic_entropy' ? answer.epistemic_entropy : answer.probabilities.map((of) => of[number]);
  const name = mapOf === 'epistemic_entropy' ? 'epistemic entropy' : `probability of ${named(answer.classes[number])}`;
  const said = mapOf === 'epistemic_entropy' ? (value) => `${short(value, 2)} nats` : (value) => percent(value);
  drawMap(first, second, row, asked, {
    cells: values.map((value) => ({ value, text: said(value) })), encoding: { color: shades('value', name) }, tooltip: [{ field: 'text', title: name }],
  }, name, `from ${said(Math.min(...values))} to ${said(Math.max(...values))}`);
}

function drawLikeliest(overview, first, second, row, asked, answer) {
  const { classes, prediction } = answer;
  const colors = palette();
  const cellsOf = new Map();
  for (const name of prediction) cellsOf.set(name, (cellsOf.get(name) ?? 0) + 1);
  const found = [...cellsOf.keys()].sort((a, b) => cellsOf.get(b) - cellsOf.get(a));
  const listed = found.slice(0, found.length > COLOURS ? COLOURS - 1 : COLOURS).map((name) => classes.indexOf(name));
  const colours = coloursOf(listed);
  const rest = others(found.length - listed.length);
  const titleOf = (name) => (colours.has(classes.indexOf(name)) ? named(name) : rest);
  const domain = [...listed.map((number) => named(classes[number])), ...(found.length > listed.length ? [rest] : [])];
  const range = [...listed.map((number) => colors.classes[colours.get(number)]), colors.soft].slice(0, domain.length);
  const certain = prediction.map((name, i) => answer.probabilities[i][classes.indexOf(name)]);
  drawMap(first, second, row, asked, {
    cells: prediction.map((name, i) => ({ group: titleOf(name), certain: certain[i], name: named(name), text: percent(certain[i]) })),
    encoding: {
      color: { field: 'group', type: 'nominal', title: overview.target.name, scale: { domain, range }, legend: colourLegend({ symbolType: 'square', symbolOpacity: 1, labelLimit: 140 }) },
      opacity: { field: 'certain', type: 'quantitative', scale: { domain: [1 / classes.length, 1], range: [0.08, 0.95], clamp: true }, legend: null },
    },
    tooltip: [{ field: 'name', title: overview.target.name }, { field: 'text', title: 'probability' }],
  }, `likeliest ${overview.target.name}`, `${domain.join(', ')}: the deeper the colour, the more probable the class, from ${percent(Math.min(...certain))} to ${percent(Math.max(...certain))}`);
}
