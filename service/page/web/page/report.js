// The charts of the training report: the service describes them, this page draws them in its own colours.

import { $, h } from './dom.js';
import { getJson } from './api.js';
import { drawReported } from './charts.js';

let shown = null; // {model, version, colours, charts}

/** Asks for the charts of a model once, and draws them below the card. */
export async function drawReport(overview) {
  const place = $('report');
  if (!place) return;
  if (shown?.name !== overview.name || shown.version !== overview.version) {
    const found = await getJson(`models/${encodeURIComponent(overview.name)}/charts`, { channel: 'charts' });
    if (found === null) return;
    shown = found;
  }
  const { charts } = shown;
  if (!place.isConnected || !charts.length) return;
  if (!place.children.length) {
    place.append(h('h3', {}, 'From its report'), ...charts.map((chart) => h('figure', {}, h('h4', {}, chart.title),
      h('figcaption', { class: 'soft' }, chart.caption), h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': chart.title }, h('div', { class: 'chart reported', id: `report-${chart.name}` })))));
  }
  await Promise.all(charts.map((chart) => drawReported($(`report-${chart.name}`), chart.specification, shown.colours, chart.title)));
}
