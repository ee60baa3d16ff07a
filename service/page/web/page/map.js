// Answers over two features: what all kinds of targets share.

import { $ } from './dom.js';
import { draw, palette } from './charts.js';
import { axisOf, EXACT, isChoice, place, rowBars, steps } from './axes.js';
import { titled } from './format.js';

const HEIGHT = 310;
const EDGE = 30; // pixels between the map and an axis, for the training rows

/** The values of both features and the rows of a map. */
export function mapRequest(first, second, row, count = 30) {
  const [across, up] = [first, second].map((feature) => steps(feature, count, 0, row[feature.name]));
  return { across, up, inputs: up.flatMap((b) => across.map((a) => ({ ...row, [first.name]: a.value, [second.name]: b.value }))) };
}

/** Where the cell of a value ends, halfway to its neighbours; a choice has a place and no ends. */
function cellEnds(feature, listed, i) {
  if (isChoice(feature)) return [listed[i].at, null];
  const middle = (a, b) => (listed[a].at + listed[b].at) / 2;
  return [i > 0 ? middle(i - 1, i) : listed[0].at, i < listed.length - 1 ? middle(i, i + 1) : listed[i].at];
}

function axis(feature, listed, channel) {
  if (isChoice(feature)) return { field: channel, type: 'nominal', sort: channel === 'y' ? 'descending' : null, title: titled(feature), axis: { labelAngle: 0, labelLimit: 90, grid: false } };
  const domain = [listed[0].at, listed[listed.length - 1].at];
  return { field: channel, ...EXACT, scale: { ...EXACT.scale, domain }, title: titled(feature), axis: { ...axisOf(feature, ...domain, $('map').clientWidth < 480 ? 4 : 7), offset: feature.histogram ? EDGE : 0 } };
}

/** The training rows of each feature by itself, as bars between the map and its axis; none of a choice. */
function atEdge(feature, channel, encoding) {
  if (isChoice(feature)) return null;
  const [end, across, edge] = channel === 'x' ? ['x2', 'y', HEIGHT + EDGE] : ['y2', 'x', -EDGE];
  const bars = rowBars(feature, 0, EDGE, 0.85).map(({ at, to, y2 }) => ({ [channel]: at, [end]: to, size: channel === 'x' ? edge - y2 : edge + y2 }));
  return { name: `rows-${channel}`, bars, layer: {
    data: { name: `rows-${channel}` }, mark: { type: 'rect', color: palette().grey },
    encoding: { [channel]: encoding, [end]: { field: end }, [across]: { field: 'size', type: 'quantitative', scale: null, axis: null }, [`${across}2`]: { value: edge } } } };
}

/** The legend of a colour, where there is room for it. */
export const colourLegend = (more = {}) => ({ orient: $('map').clientWidth < 480 ? 'top' : 'right', titleLimit: 150, ...more });

/** The encoding of a number as a colour. */
export function shades(field, title) {
  const { low, high } = palette();
  return { field, type: 'quantitative', title, scale: { range: [low, high], interpolate: 'lab', zero: false, nice: false }, legend: colourLegend({ type: 'gradient', gradientLength: 160 }) };
}

/**
 * Draws a map.
 *
 * @param first The feature from left to right.
 * @param second The feature from below to above.
 * @param row The row of the form.
 * @param asked The values of `mapRequest`.
 * @param shown What the kind draws: `cells`, the fields of each row of the request; the `encoding` of their colour, and
 *   their `tooltip`.
 * @param label What the chart shows, in words.
 * @param caption What stands below it.
 */
export function drawMap(first, second, row, asked, shown, label, caption) {
  const cells = asked.up.flatMap((b, j) => asked.across.map((a, i) => {
    const [x, x2] = cellEnds(first, asked.across, i);
    const [y, y2] = cellEnds(second, asked.up, j);
    return { x, x2, y, y2, a: String(a.value), b: String(b.value), ...shown.cells[j * asked.across.length + i] };
  }));
  const [x, y] = [axis(first, asked.across, 'x'), axis(second, asked.up, 'y')];
  const encoding = { x, y, ...shown.encoding, tooltip: [{ field: 'a', title: first.name }, { field: 'b', title: second.name }, ...shown.tooltip] };
  if (!isChoice(first)) encoding.x2 = { field: 'x2' };
  if (!isChoice(second)) encoding.y2 = { field: 'y2' };
  const here = row[first.name] === null || row[second.name] === null ? [] : [{ x: place(first, row[first.name]), y: place(second, row[second.name]) }];
  const edges = [atEdge(first, 'x', x), atEdge(second, 'y', y)].filter((edge) => edge?.bars.length);
  const spec = {
    height: HEIGHT,
    layer: [
      { data: { name: 'cells' }, mark: { type: 'rect', strokeWidth: 0 }, encoding },
      ...edges.map(({ layer }) => layer),
      { data: { name: 'here' }, mark: { type: 'point', shape: 'cross', size: 130, color: palette().ink, strokeWidth: 1.5, filled: false, opacity: 1 }, encoding: { x, y } },
    ],
  };
  draw($('map'), spec, { cells, here, ...Object.fromEntries(edges.map(({ name, bars }) => [name, bars])) }, `${label} over ${first.name} and ${second.name}${caption ? `: ${caption}` : ''}`);
  $('map-legend').textContent = `${caption.charAt(0).toUpperCase()}${caption.slice(1)}. The cross is the input; everything else of the row stays as it is.${edges.length ? ' Bars along the axes are the training rows, of each feature by itself.' : ''}`;
}
