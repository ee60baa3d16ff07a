// The request that the page sends, to copy: for a shell, for Python, and as JSON.

import { $, h } from './dom.js';
import { address, key } from './api.js';

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function python(value) {
  if (value === null) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`;
  return JSON.stringify(value);
}

/**
 * The three forms of a request, by title.
 *
 * @param model Name of the model.
 * @param row The row.
 * @param options Options of the request.
 * @param printed What Python prints of the prediction.
 */
export function forms(model, row, options, printed) {
  const body = { inputs: [row], ...options };
  const json = JSON.stringify(body, null, 1).replace(/\[\s+([^[\]{}]*?)\s+\]/g, (_, inner) => `[${inner.replace(/\s+/g, ' ')}]`);
  const service = address('').replace(/\/$/, '');
  const withKey = key() ? ' \\\n  -H "authorization: Bearer $MURHO_API_KEY"' : '';
  const cells = Object.entries(row).map(([name, value]) => `    ${python(name)}: ${python(value)},`).join('\n');
  const keywords = Object.entries(options).map(([name, value]) => `        ${name}=${python(value)},\n`).join('');
  return {
    curl: `curl -s ${service}/models/${model}/predict \\\n  -H 'content-type: application/json'${withKey} \\\n  -d ${quoted(JSON.stringify(body))}`,
    Python: `from murho_client import Client\n\nrow = {\n${cells}\n}\nwith Client(${python(service)}) as client:${key() ? '  # the key comes from MURHO_API_KEY' : ''}\n    prediction = client.predict(\n        row,\n        model=${python(model)},\n${keywords}    )\nprint(${printed})`,
    JSON: json,
  };
}

/** Copies a text; says so on the button. */
export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // without a secure address there is no clipboard
    const area = h('textarea', { class: 'hidden-copy', 'aria-hidden': 'true' }, text);
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = before; }, 1500);
}

/** Shows the request of the row; the arguments are those of `forms`. */
export function showRequests(model, row, options, printed) {
  const all = Object.entries(forms(model, row, options, printed));
  const known = $('requests').children.length === all.length;
  if (!known) {
    $('requests').replaceChildren(...all.map(([title]) => {
      const code = h('pre', { tabindex: '0', 'aria-label': `${title} request` }, h('code', {}));
      const button = h('button', { type: 'button', class: 'quiet', 'aria-label': `Copy ${title}`, onclick: () => copy(code.textContent, button) }, 'Copy');
      return h('section', { class: 'code' }, h('div', { class: 'section-head' }, h('h3', {}, title), button), code);
    }));
  }
  all.forEach(([, text], i) => { $('requests').children[i].querySelector('code').textContent = text; });
}
