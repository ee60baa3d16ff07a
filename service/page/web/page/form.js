// The form of a row: one field a feature, with the training rows behind its slider.

import { breakable, h } from './dom.js';
import { dateOf, daysOf, percent, plain } from './format.js';

const SVG = 'http://www.w3.org/2000/svg';
const FEW = 4;
const LONG = 26; // characters of a name that has a line of its own
const SHOWN = 12; // features in sight: a form of more has a search, and shows the others when asked
let forms = 0;

/** Bars of the training rows, as a picture without a meaning of its own for readers of the text. */
function bars(histogram) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${histogram.counts.length} 20`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('class', 'bars');
  const most = Math.max(...histogram.counts);
  histogram.counts.forEach((rows, at) => {
    if (rows <= 0) return;
    const height = Math.max(0.8, 20 * Math.sqrt(rows / most));
    const bar = document.createElementNS(SVG, 'rect');
    for (const [name, value] of [['x', at + 0.08], ['y', 20 - height], ['width', 0.84], ['height', height]]) bar.setAttribute(name, value);
    svg.append(bar);
  });
  return svg;
}

/** A round step of about a two-hundredth of a range. */
function roundStep(range) {
  const power = 10 ** Math.floor(Math.log10(range / 200));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= range / 200);
}

const ofDate = (feature) => feature.kind === 'date';

/** A number or a date: a box to type into, and a slider over the training range. */
function numberField(feature, id, changed) {
  const box = h('input', { id, type: ofDate(feature) ? 'date' : 'number', step: ofDate(feature) ? null : 'any', class: 'value' });
  const parts = { box, read: () => undefined, write: () => {} };
  let slider = null;
  const [low, high] = ofDate(feature) && feature.min !== null ? [daysOf(feature.min), daysOf(feature.max)] : [feature.min, feature.max];
  if (low !== null && high > low) {
    const step = ofDate(feature) ? 1 : feature.step ?? roundStep(high - low);
    slider = h('input', { type: 'range', min: String(low), max: String(high), step: feature.step || ofDate(feature) ? String(step) : 'any', 'aria-label': `${feature.name}, slider`, class: 'slider' });
    slider.addEventListener('input', () => {
      const value = Number(slider.value);
      const places = Math.max(0, -Math.floor(Math.log10(step)));
      box.value = ofDate(feature) ? dateOf(value) : Number(value.toFixed(Math.min(places, 12)));
      changed();
    });
    parts.slider = slider;
    const end = (value, text) => h('span', { 'aria-hidden': 'true' }, ofDate(feature) ? text : plain(value));
    parts.ends = h('div', { class: 'ends' }, end(low, feature.min), end(high, feature.max));
    parts.track = h('div', { class: 'track' }, feature.histogram && bars(feature.histogram), slider);
  }
  box.addEventListener('input', () => {
    if (slider && box.value !== '') slider.value = ofDate(feature) ? daysOf(box.value) : Number(box.value);
    changed();
  });
  parts.read = () => {
    if (box.value === '') return undefined;
    return ofDate(feature) ? box.value : Number(box.value);
  };
  parts.write = (value) => {
    if (value === null || value === undefined) return;
    box.value = ofDate(feature) ? String(value).slice(0, 10) : String(value);
    if (slider) slider.value = ofDate(feature) ? daysOf(box.value) : Number(box.value);
  };
  parts.empty = ofDate(feature) ? 'Enter a date.' : 'Enter a number.';
  return parts;
}

/** A category or a boolean: buttons if there are few, else a list. */
function choiceField(feature, id, changed) {
  const known = feature.kind === 'boolean' ? [false, true] : [...feature.categories];
  const total = feature.levels?.reduce((sum, level) => sum + level.rows, 0);
  const share = (value) => { const level = feature.levels?.find((item) => item.value === value); return level ? level.rows / total : null; };
  const texts = known.map(String);
  if (known.length <= FEW && texts.join('').length <= 32) {
    const radios = [];
    const group = h('div', { class: 'choices', role: 'radiogroup', 'aria-labelledby': `${id}-name` });
    const offer = (value, text) => {
      const part = share(value);
      const radio = h('input', { type: 'radio', name: id, id: `${id}-${radios.length}`, value: String(value), onchange: changed });
      radios.push(radio);
      group.append(h('label', { for: radio.id, title: part === null ? null : `${percent(part)} of the training rows` }, radio, h('span', {}, text)));
    };
    known.forEach((value, at) => offer(value, texts[at] || '(empty)'));
    return {
      box: null, group, controls: radios, empty: 'Choose one.',
      read: () => { const at = radios.findIndex((radio) => radio.checked); return at < 0 ? undefined : known[at]; },
      write: (value) => {
        if (feature.kind === 'categorical' && typeof value === 'string' && !texts.includes(value)) { // a link's unseen category
          known.push(value);
          texts.push(value);
          offer(value, `${value} (unseen)`);
        }
        radios.forEach((radio, at) => { radio.checked = texts[at] === String(value); });
      },
    };
  }
  const select = h('select', { id, class: 'list', onchange: changed }, known.map((value, at) => {
    const part = share(value);
    return h('option', { value: texts[at] }, (texts[at] || '(empty)') + (part === null ? '' : `  (${percent(part)})`));
  }));
  return {
    box: select, group: select, empty: 'Choose one.',
    read: () => (select.selectedIndex < 0 ? undefined : known[select.selectedIndex]),
    write: (value) => {
      let at = texts.indexOf(String(value));
      if (at < 0 && value !== null && value !== undefined) { // a shared link may have an unseen category
        at = known.push(value) - 1;
        texts.push(String(value));
        select.append(h('option', { value: String(value) }, `${value} (unseen)`));
      }
      select.selectedIndex = at;
    },
  };
}

/**
 * Fills a form with fields.
 *
 * @param container The form element.
 * @param features As the overview lists them.
 * @param changed Called after every change by a person.
 * @returns `row()`, null if a field is empty; `fill(row)`; `say(messages)` to show warnings and errors at their fields.
 */
export function makeForm(container, features, changed) {
  forms += 1;
  const fields = features.map((feature, at) => {
    const id = `form${forms}-${at}`;
    const field = ['categorical', 'boolean'].includes(feature.kind) ? choiceField(feature, id, () => touched()) : numberField(feature, id, () => touched());
    const note = h('p', { class: 'note', id: `${id}-note`, role: 'status' });
    const controls = field.controls || [field.box, field.slider].filter(Boolean);
    controls.forEach((control) => control.setAttribute('aria-describedby', note.id));
    const missing = feature.missing ? h('input', { type: 'checkbox', 'aria-label': `${feature.name} is missing` }) : null;
    const style = feature.name.length > LONG ? 'name long' : 'name';
    const name = field.controls ? h('span', { id: `${id}-name`, class: style }, breakable(feature.name)) : h('label', { for: id, class: style }, breakable(feature.name));
    const ofMissing = missing && h('label', { class: 'missing' }, missing, h('span', { 'aria-hidden': 'true' }, 'missing'));
    const element = h('div', { class: `field ${feature.kind}`, 'data-feature': feature.name },
      h('div', { class: 'field-head' }, name, feature.unit && h('span', { class: 'unit' }, feature.unit),
        field.ends ? null : ofMissing, field.group ? null : field.box),
      field.group, field.track, field.ends, note);
    if (ofMissing) field.ends?.firstChild.after(ofMissing);
    const show = () => {
      element.classList.toggle('is-missing', Boolean(missing?.checked));
      controls.forEach((control) => { control.disabled = Boolean(missing?.checked); });
    };
    const touched = () => { show(); changed(feature); };
    missing?.addEventListener('change', touched);
    const say = (message, wrong) => {
      note.textContent = message || '';
      note.classList.toggle('wrong', Boolean(wrong));
      element.classList.toggle('has-note', Boolean(message));
      controls.forEach((control) => (wrong ? control.setAttribute('aria-invalid', 'true') : control.removeAttribute('aria-invalid')));
    };
    return {
      feature, element, say, empty: field.empty,
      read: () => (missing?.checked ? null : field.read()),
      write: (value) => {
        if (missing) missing.checked = value === null;
        field.write(value);
        show();
      },
    };
  });
  container.replaceChildren(...(fields.length > SHOWN ? shortened(fields) : fields.map((field) => field.element)));
  container.onsubmit = (event) => event.preventDefault();

  return {
    row() {
      const row = {};
      let whole = true;
      for (const field of fields) {
        const value = field.read();
        if (value === undefined || Number.isNaN(value)) {
          field.say(field.empty, true);
          whole = false;
        } else row[field.feature.name] = value;
      }
      return whole ? row : null;
    },
    /** Takes values, also as texts of a link; what is absent stays as it is. */
    fill(row) {
      for (const field of fields) {
        if (field.feature.name in row) field.write(row[field.feature.name]);
      }
    },
    /** Shows messages by feature: [{feature, message, wrong}]; the others are cleared. */
    say(messages) {
      for (const field of fields) {
        const own = messages.filter((item) => item.feature === field.feature.name);
        field.say(own.map((item) => item.message).join(' '), own.some((item) => item.wrong));
      }
    },
  };
}

/** The first fields under a search; the others are shown by a button, by a search, or while there is something to say of them. */
function shortened(fields) {
  const search = h('input', { type: 'search', class: 'search', placeholder: `Search ${fields.length} features`, 'aria-label': 'Search features' });
  const all = h('button', { type: 'button', class: 'quiet' });
  let whole = false;
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    fields.forEach(({ feature, element }, at) => {
      const found = words.every((word) => feature.name.toLowerCase().includes(word));
      element.classList.toggle('beyond', words.length ? !found : !whole && at >= SHOWN);
    });
    all.hidden = words.length > 0;
    all.textContent = whole ? `Show the first ${SHOWN}` : `Show all ${fields.length} features`;
  };
  search.addEventListener('input', show);
  all.addEventListener('click', () => { whole = !whole; show(); });
  show();
  return [search, ...fields.map((field) => field.element), all];
}

/** What a pointer such as "/inputs/0/Horse~1power" names: {row, feature}. */
export function pointed(pointer) {
  const [, , row, feature] = pointer.split('/');
  return { row: Number(row), feature: feature?.replaceAll('~1', '/').replaceAll('~0', '~') };
}

/** Warnings or errors of the service as messages for a form, without the feature's name in front. */
export function messagesOf(listed, wrong, row = 0) {
  return listed.map((item) => {
    const at = pointed(item.pointer);
    const text = item.message.startsWith(`${at.feature}: `) ? item.message.slice(at.feature.length + 2) : item.message;
    return { ...at, wrong, message: text.charAt(0).toUpperCase() + text.slice(1) };
  }).filter((item) => item.row === row || Number.isNaN(item.row));
}
