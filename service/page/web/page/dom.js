// Small helpers of the document.

/** The element of an id. */
export const $ = (id) => document.getElementById(id);

/** Makes an element: attributes by name, `onevent` functions, then children (elements or text). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== 'string') element[name] = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Calls a function once a pause of some milliseconds has passed since the last call. */
export function debounced(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** A table with a header line. */
export function table(titles, rows, caption) {
  return h('table', {}, caption && h('caption', {}, caption),
    h('thead', {}, h('tr', {}, titles.map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell) => h('td', {}, cell))))));
}

/** An entry of a legend: a swatch of a colour of the style sheet, and what it stands for. */
export function key(color, text, kind = '') {
  return h('span', { class: 'key' }, h('i', { class: `swatch ${color} ${kind}` }), text);
}

/** Fills a list of choices: [value, text] each. */
export function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => h('option', { value, selected: value === chosen }, text)));
}

/** A name that may break after its underscores, dots, slashes and hyphens. */
export const breakable = (name) => name.split(/(?<=[_./-])/).flatMap((part, i) => (i ? [h('wbr'), part] : [part]));

/** Shows the answer in the bar that stays in sight on a phone: a long name is cut, the answer is not. */
export const showBar = (name, answer) => $('bar').replaceChildren(h('span', {}, name), ' ', h('b', {}, answer));
