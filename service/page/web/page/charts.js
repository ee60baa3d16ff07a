// Charts by Vega-Lite, without eval: expressions go through its interpreter.

import { h } from './dom.js';

/** The number of colours of classes in the style sheet, --c0 and so on. */
export const COLOURS = 8;

/** The labels of an axis that has these values: 2M for 2,000,000, but 0.2 as it is. */
export const brief = (values) => (Math.max(...values.map(Math.abs)) < 10000 ? {} : { format: '~s' });

const views = new WeakMap();

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The colours of the page, light or dark; those of classes are a list. */
export function palette() {
  const shown = Object.fromEntries(
    ['ink', 'soft', 'line', 'surface', 'accent', 'tint', 'epistemic', 'grey', 'second', 'low', 'high'].map((name) => [name, color(`--${name}`)]));
  return { ...shown, classes: Array.from({ length: COLOURS }, (_, i) => color(`--c${i}`)) };
}

function config() {
  const shown = palette();
  const font = getComputedStyle(document.body).fontFamily;
  return {
    aria: false, background: null, font, padding: { left: 2, right: 10, top: 6, bottom: 2 },
    view: { stroke: null },
    axis: {
      labelColor: shown.soft, titleColor: shown.soft, gridColor: shown.line, domainColor: shown.line, tickColor: shown.line,
      labelFontSize: 11, titleFontSize: 12, titleFontWeight: 'normal', grid: false, labelPadding: 5, titlePadding: 8, tickSize: 4, titleLimit: 260,
    },
    axisY: { domain: false, ticks: false, grid: true, gridOpacity: 0.7, minExtent: 34 },
    legend: { labelColor: shown.soft, titleColor: shown.soft, titleFontWeight: 'normal', labelFontSize: 11, titleFontSize: 12 },
    text: { color: shown.soft, fontSize: 11 },
  };
}

/** Hands data and numbers to a chart. */
function hand(view, { data, numbers }) {
  for (const [name, values] of Object.entries(data)) view.data(name, values);
  for (const [name, value] of Object.entries(numbers)) view.signal(name, value);
  return view.runAsync();
}

/**
 * Draws a chart, or hands new data and numbers to the one that is there: making a chart anew takes ten times as long.
 *
 * @param element Where to draw.
 * @param spec Vega-Lite, with `data: {name}` for each data set.
 * @param data Data sets by name.
 * @param label What the chart shows, for those who do not see it.
 * @param numbers Numbers by name that change with the data, such as the ends of an axis: `{ expr: name }` in the spec.
 */
export async function draw(element, spec, data, label, numbers = {}) {
  // The library names its own element; the name for readers is on the one around it.
  element.setAttribute('role', 'img');
  element.setAttribute('aria-label', label);
  const inner = element.firstElementChild ?? element.appendChild(h('div', { 'aria-hidden': 'true' }));
  const whole = { $schema: 'https://vega.github.io/schema/vega-lite/v6.json', width: 'container', autosize: { type: 'fit-x', contains: 'padding' }, ...spec, config: config() };
  const form = JSON.stringify(whole);
  const known = views.get(element);
  if (known?.form === form) {
    Object.assign(known, { data, numbers });
    const view = await known.view;
    if (view && views.get(element) === known && known.data === data) await hand(view, known);
    return;
  }
  const made = { form, data, numbers, view: null };
  views.set(element, made);
  const before = await known?.view;
  made.view = globalThis.vegaEmbed(inner, { ...whole, params: Object.entries(numbers).map(([name, value]) => ({ name, value })), datasets: data }, {
    mode: 'vega-lite', renderer: 'svg', actions: false, ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true },
  }).then(async (result) => {
    before?.finalize();
    if (made.data !== data) await hand(result.view, made);
    return result.view;
  });
  await made.view;
}

/**
 * Draws a chart of the report as it is, in the colours of the page.
 *
 * @param element Where to draw.
 * @param spec Vega-Lite with its data, and a size of its own.
 * @param colours The role of each of its colours.
 * @param label What the chart shows, for those who do not see it.
 */
export async function drawReported(element, spec, colours, label) {
  const shown = palette();
  const roles = { ink: shown.ink, muted: shown.soft, rule: shown.line, paper: 'transparent', blue: shown.accent, orange: shown.second, grey: shown.grey, band: shown.tint };
  const form = Object.entries(colours).reduce((text, [colour, role]) => text.replaceAll(colour, roles[role] ?? colour), JSON.stringify(spec));
  if (views.get(element)?.form === form) return;
  views.set(element, { form });
  element.setAttribute('role', 'img');
  element.setAttribute('aria-label', label);
  const inner = element.firstElementChild ?? element.appendChild(h('div', { 'aria-hidden': 'true' }));
  const font = getComputedStyle(document.body).fontFamily;
  const whole = JSON.parse(form);
  await globalThis.vegaEmbed(inner, { ...whole, config: { ...whole.config, aria: false, font } }, {
    mode: 'vega-lite', renderer: 'svg', actions: false, ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true },
  });
}

/** A domain with some room at both ends. */
export function roomy(values, share = 0.04, least = 0) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  const room = share * (high - low) || least || Math.abs(high) * 0.05 || 1;
  return [low - room, high + room];
}
