// The probability of each class along a feature, with 90 % of its draws.

import { key } from '../dom.js';
import { isChoice } from '../axes.js';
import { palette } from '../charts.js';
import { percent } from '../format.js';
import { drawSweep } from '../sweep.js';
import { INTERVAL } from './answer.js';
import { coloursOf, named, others, ranked } from './chosen.js';

const MOST_LINES = 6;
const LEAST_SHOWN = 0.02; // a class that is never likelier has no line
const LEAST_NAMED = 0.2; // a class that is never likelier has no name in the chart
const OTHERS = -1;

/** The options of a sweep. */
export const sweepOptions = () => ({ percentiles: INTERVAL });

/** The classes with lines of their own, the likeliest first: they are numbers. */
function linesOf(probabilities, classes) {
  const most = classes.map((_, number) => Math.max(...probabilities.map((of) => of[number])));
  const order = ranked(most);
  return order.slice(0, MOST_LINES).filter((number) => classes.length <= MOST_LINES || most[number] >= LEAST_SHOWN);
}

/** Draws a sweep. */
export function showSweep(overview, feature, row, listed, answer) {
  const { probabilities, classes } = answer;
  const colors = palette();
  const lines = linesOf(probabilities, classes);
  const left = classes.length - lines.length;
  const colours = coloursOf(lines);
  const colourOf = (number) => (number === OTHERS ? colors.soft : colors.classes[colours.get(number)]);
  const nameOf = (number) => (number === OTHERS ? others(left) : named(classes[number]));
  const rest = (i) => probabilities[i].reduce((total, value, number) => total + (colours.has(number) ? 0 : value), 0);
  const drawn = left && listed.some((_, i) => rest(i) >= LEAST_SHOWN) ? [...lines, OTHERS] : lines;
  const range = drawn.map(colourOf);

  const points = listed.map((step, i) => ({
    at: step.at, value: String(step.value), ...Object.fromEntries(drawn.map((number) => [`p${number}`, percent(number === OTHERS ? rest(i) : probabilities[i][number])])),
  }));
  const curves = listed.flatMap((step, i) => drawn.map((number) => {
    const mean = number === OTHERS ? rest(i) : probabilities[i][number];
    const [low, high] = number === OTHERS ? [mean, mean] : answer.percentiles.values[i][number];
    return { at: step.at, value: String(step.value), name: nameOf(number), mean, low, high, text: percent(mean) };
  }));
  const names = drawn.flatMap((number) => {
    const own = curves.filter((point) => point.name === nameOf(number));
    const top = own.reduce((best, point) => (point.mean > best.mean ? point : best));
    const place = own.indexOf(top) / Math.max(1, own.length - 1);
    return top.mean < LEAST_NAMED ? [] : [{ ...top, y: top.mean > 0.85 ? top.mean - 0.07 : top.mean + 0.06, side: place < 0.1 ? 'left' : place > 0.9 ? 'right' : 'center' }];
  });
  const color = { field: 'name', type: 'nominal', scale: { domain: drawn.map(nameOf), range }, legend: null };
  const tooltip = isChoice(feature) ? [{ field: 'value', title: feature.name }, { field: 'name', title: overview.target.name }, { field: 'text', title: 'probability' }]
    : [{ field: 'value', title: feature.name }, ...drawn.map((number) => ({ field: `p${number}`, title: nameOf(number) }))];
  const ofCurves = (mark, encoding) => ({ data: { name: 'curves' }, mark, encoding });
  const layers = isChoice(feature) ? (x, y) => {
    const xOffset = { field: 'name', type: 'nominal', sort: drawn.map(nameOf), scale: { padding: 0.8 } };
    return [
      ofCurves({ type: 'rule', strokeWidth: 5, opacity: 0.4 }, { x, xOffset, y: y('low'), y2: { field: 'high' }, color, tooltip }),
      ofCurves({ type: 'point', filled: true, size: 60, opacity: 1 }, { x, xOffset, y: y('mean'), color, tooltip }),
    ];
  } : (x, y) => [
    ofCurves({ type: 'area', opacity: drawn.length > 4 ? 0.12 : 0.2 }, { x, y: { ...y('low'), stack: null }, y2: { field: 'high' }, color }),
    ofCurves({ type: 'line', strokeWidth: 2 }, { x, y: y('mean'), color }),
    ...['left', 'center', 'right'].map((side) => ({ data: { name: side }, mark: { type: 'text', align: side, fontSize: 12, fontWeight: 600 }, encoding: { x, y: y('y'), text: { field: 'name' }, color } })),
  ];
  const ofSide = (side) => [side, names.filter((item) => item.side === side)];
  const told = (point) => `${point.name} ${point.text}`;
  const end = (i) => curves.slice(i * drawn.length, (i + 1) * drawn.length).reduce((best, point) => (point.mean > best.mean ? point : best));
  const [first, last] = [end(0), end(listed.length - 1)];
  drawSweep(feature, row, listed, {
    domain: [0, 1.04], y: { title: `probability of ${overview.target.name}`, axis: { format: '.0%', values: [0, 0.25, 0.5, 0.75, 1] } }, tooltip, layers,
    data: { points, curves, ...(isChoice(feature) ? {} : Object.fromEntries(['left', 'center', 'right'].map(ofSide))) },
  }, `${overview.target.name} along ${feature.name}: likeliest ${told(first)} at ${first.value}, and ${told(last)} at ${last.value}`,
  [...lines.map((number) => key(`c${colours.get(number)}`, nameOf(number), 'line')), drawn.includes(OTHERS) ? key('soft', nameOf(OTHERS), 'line') : '', key('pale', '90 % of the draws')]);
}
