// The state of the page in the part of the address behind #, which browsers do not send to servers.

const PLAIN = { m: 'model', band: 'band', t: 'threshold', cover: 'coverage', view: 'view', sweep: 'sweep', x: 'mapX', y: 'mapY', of: 'mapOf' };

/** What a link says: texts, each row as an object of texts with null for missing cells; null for no row. */
export function read(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ''));
  const state = { row: null, other: null };
  for (const [key, name] of Object.entries(PLAIN)) if (given.has(key)) state[name] = given.get(key);
  for (const [key, value] of given) {
    const [which, name] = [key.slice(0, 2), key.slice(2)];
    if (which === 'a.' || which === 'A.') (state.row ??= {})[name] = which === 'A.' ? null : value;
    if (which === 'b.' || which === 'B.') (state.other ??= {})[name] = which === 'B.' ? null : value;
  }
  return state;
}

/** The text for the address. Capital letters mark missing cells: "A.Horsepower=". */
export function write(state) {
  const params = new URLSearchParams();
  for (const [key, name] of Object.entries(PLAIN)) {
    if (state[name] !== null && state[name] !== undefined && state[name] !== '') params.set(key, state[name]);
  }
  for (const [letter, row] of [['a', state.row], ['b', state.other]]) {
    for (const [name, value] of Object.entries(row || {})) {
      if (value === null) params.set(`${letter.toUpperCase()}.${name}`, '');
      else params.set(`${letter}.${name}`, String(value));
    }
  }
  return `#${params}`;
}
