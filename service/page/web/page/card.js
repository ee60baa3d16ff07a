// The model card: what is known of a model before anybody asks it.

import { $, h, table } from './dom.js';
import { counted, plain, short } from './format.js';
import { kindOf } from './kinds.js';
import { offerQuality } from './quality.js';

/** The metrics of the kind that the checkpoint has, with their standard errors. */
function metrics(overview) {
  const errors = overview.metrics.standard_errors || {};
  const items = kindOf(overview).card.metrics.filter(([name]) => Number.isFinite(overview.metrics[name])).map(([name, title, unit]) => {
    const scale = unit === '%' ? 100 : 1;
    const error = errors[name] > 0 ? ` ± ${short(scale * errors[name], 2)}` : '';
    const of = unit ?? overview.target.unit;
    const value = unit === '%' ? (100 * overview.metrics[name]).toFixed(1) : short(overview.metrics[name]);
    return h('div', {}, h('dt', {}, title), h('dd', {}, value, h('small', {}, error + (of ? ` ${of}` : ''))));
  });
  return items.length ? [h('dl', { class: 'metrics' }, items), h('p', { class: 'legend' }, kindOf(overview).card.words)] : h('p', { class: 'soft' }, 'The checkpoint has no metrics.');
}

function temperature(value) {
  if (!Number.isFinite(value)) return null;
  const meaning = value === 1 ? 'the textbook posterior: the data count once.'
    : value < 1 ? `the data count ${short(1 / value, 2)} times against the prior, which gives a sharper (“colder”) posterior. Held-out rows were predicted best so.`
      : `the data count ${short(1 / value, 2)} times against the prior, which gives a wider (“warmer”) posterior. Held-out rows were predicted best so.`;
  return h('p', {}, h('b', {}, `Temperature ${short(value, 2)}`), `: ${meaning}`);
}

function schema(overview) {
  const rows = overview.features.map((feature) => {
    const range = feature.categories ? `${feature.categories.slice(0, 8).join(', ')}${feature.categories.length > 8 ? ` and ${feature.categories.length - 8} more` : ''}`
      : feature.kind === 'boolean' ? 'false, true' : feature.min === null ? 'no value in training' : `${typeof feature.min === 'number' ? plain(feature.min) : feature.min} to ${typeof feature.max === 'number' ? plain(feature.max) : feature.max}`;
    return [feature.name, feature.kind, feature.unit || '', range, feature.missing ? (feature.learned_missing ? 'yes, learned' : 'yes, averaged over') : 'no'];
  });
  return table(['Feature', 'Kind', 'Unit', 'Training range', 'May be missing'], rows, 'Features');
}

/** Fills the card. The charts of the report are drawn by `drawReport` once the card is seen. */
export function showCard(overview) {
  const { training } = overview;
  const { card } = kindOf(overview);
  const [calibrated, ...others] = card.facts(overview);
  const facts = [
    training.rows && `Fitted to ${counted(training.rows, 'row')}`, calibrated,
    `${counted(training.members, 'network')} of ${training.hidden.join(' and ') || 'no'} hidden units`, ...others,
    overview.created && `made ${overview.created.slice(0, 10)}`,
  ].filter(Boolean).join(', ');
  const scrolled = (name, content) => content && h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': name }, content);
  $('card').replaceChildren(...[
    h('p', {}, `${facts}.`), temperature(training.temperature),
    h('h3', {}, 'On rows it has not seen'), ...[metrics(overview)].flat(),
    offerQuality(overview),
    ...card.tables(overview).map(([name, content]) => scrolled(name, content)), scrolled('Features', schema(overview)),
    Object.keys(overview.left_out).length ? h('p', { class: 'soft' }, 'Left out: ', Object.entries(overview.left_out).map(([name, why]) => `${name} (${why})`).join(', '), '.') : null,
    h('div', { id: 'report' }),
  ].filter(Boolean));
}
