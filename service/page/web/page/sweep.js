// Answers along a feature, over its training range and beyond: what all kinds of targets share.

import { $, key } from './dom.js';
import { draw, palette } from './charts.js';
import { axisOf, EXACT, isChoice, levelBars, place, rangeOf, rowBars, steps } from './axes.js';
import { titled } from './format.js';

const BEYOND = 0.2;
// Labels and lines of the axis end where the curves do: the training rows below have no value there.
const ABOVE = { labelExpr: "datum.value < low - 1e-9 * (high - low) ? '' : datum.label", gridOpacity: { condition: { test: 'datum.value < low - 1e-9 * (high - low)', value: 0 }, value: 0.7 } };
const FLOOR = 0.16; // room for the training rows below the curves, as a share of their height

/** The values and the rows of a sweep. */
export function sweepRequest(feature, row, count = 61) {
  const listed = steps(feature, count, BEYOND, row[feature.name]);
  return { steps: listed, inputs: listed.map((step) => ({ ...row, [feature.name]: step.value })) };
}

/**
 * Draws a sweep: the curves of a kind over the training rows, with a mark where the row of the form is.
 *
 * @param feature The feature that changes.
 * @param row The row of the form.
 * @param listed The values of `sweepRequest`.
 * @param curves What the kind draws: `domain` and encoding `y` of its axis, `data` by name with `points` {at, …} for
 *   each value, `tooltip` of a value, `layers(x, y)` behind the mark of the row and `over(y)` in front of it; `y(field)`
 *   encodes a field, and `x` is the encoding of `at`.
 * @param label What the chart shows, in words.
 * @param keys Entries of the legend.
 */
export function drawSweep(feature, row, listed, curves, label, keys) {
  const colors = palette();
  const [low, high] = curves.domain;
  const floor = low - FLOOR * (high - low);
  const y = (field) => ({ field, type: 'quantitative', ...curves.y, axis: { ...curves.y.axis, ...ABOVE }, scale: { domain: [{ expr: 'floor' }, { expr: 'high' }], nice: false, zero: false } });
  const { tooltip } = curves;
  const now = row[feature.name] === null ? [] : [{ at: place(feature, row[feature.name]) }];
  const data = { ...curves.data, now };
  const layers = [];
  if (isChoice(feature)) {
    const x = { field: 'at', type: 'nominal', sort: null, title: titled(feature), axis: { labelAngle: 0, labelLimit: 90, labelOverlap: true } };
    data.rows = levelBars(feature, listed, floor, high - floor);
    layers.push(
      { data: { name: 'rows' }, mark: { type: 'bar', color: colors.grey, width: { band: 0.5 } }, encoding: { x, y: y('y'), y2: { field: 'y2' } } },
      ...curves.layers(x, y),
      { data: { name: 'now' }, mark: { type: 'point', shape: 'triangle-up', filled: true, color: colors.ink, size: 60, opacity: 1 }, encoding: { x, y: { datum: { expr: 'floor' }, type: 'quantitative' } } },
    );
  } else {
    const domain = [listed[0].at, listed[listed.length - 1].at];
    const x = { field: 'at', ...EXACT, scale: { ...EXACT.scale, domain }, title: titled(feature), axis: axisOf(feature, ...domain, 8) };
    const range = rangeOf(feature);
    data.beyond = [{ at: domain[0], to: range[0] }, { at: range[1], to: domain[1] }].filter((part) => part.to > part.at);
    data.rows = rowBars(feature, floor, high - floor);
    layers.push(
      { data: { name: 'beyond' }, mark: { type: 'rect', color: colors.grey, opacity: 0.28 }, encoding: { x, x2: { field: 'to' } } },
      { data: { name: 'rows' }, mark: { type: 'rect', color: colors.grey }, encoding: { x, x2: { field: 'to' }, y: y('y'), y2: { field: 'y2' } } },
      ...curves.layers(x, y),
      { data: { name: 'now' }, mark: { type: 'rule', color: colors.ink, strokeWidth: 1, clip: true }, encoding: { x } },
      { data: { name: 'points' }, mark: { type: 'rule', color: colors.ink, opacity: 0, strokeWidth: 9 }, encoding: { x, tooltip } },
    );
  }
  layers.push(...(curves.over?.(y) ?? []));
  draw($('sweep'), { height: 300, layer: layers }, data, label, { floor, low, high });
  $('sweep-legend').replaceChildren(...keys, data.rows.length ? key('grey', 'training rows') : '', isChoice(feature) ? '' : key('beyond', 'beyond the training range'));
}
