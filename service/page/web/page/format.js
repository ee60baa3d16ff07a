// Numbers and dates as people read them.

const MINUS = '\u2212';
const THIN = '\u202f';

const thousands = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ',');

const grouped = (text) => {
  const [whole, rest] = text.split('.');
  const sign = whole.startsWith('-') && Number(text) !== 0 ? MINUS : '';
  const digits = whole.replace('-', '');
  const spaced = digits.length > 4 ? thousands(digits) : digits;
  return sign + spaced + (rest ? `.${rest}` : '');
};

/** A number with some significant digits, without an exponent unless it is extreme. */
export function short(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return value.toExponential(digits - 1).replace('-', MINUS);
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return grouped(value.toFixed(Math.min(places, 12)));
}

/** A number as it is, with at most some significant digits and no trailing zeros. */
export function plain(value, digits = 5) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  return size >= 1e9 || (size > 0 && size < 1e-4) ? short(value, 3) : grouped(String(Number(value.toPrecision(Math.max(digits, size >= 1 ? Math.ceil(Math.log10(size + 1)) : 0)))));
}

/** A number to the place that a spread gives it: two significant digits of the spread. */
export function placed(value, spread) {
  if (!(spread > 0)) return short(value, 5);
  const places = Math.max(0, Math.min(12, 1 - Math.floor(Math.log10(spread))));
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return short(value, 4);
  return grouped(value.toFixed(places));
}

/** A probability as a percentage that never claims certainty. */
export function percent(probability, decimals = null) {
  if (probability < 0.001) return `<${THIN}0.1${THIN}%`;
  if (probability > 0.999) return `>${THIN}99.9${THIN}%`;
  const places = decimals ?? (probability < 0.0995 || probability > 0.9005 ? 1 : 0);
  return `${(100 * probability).toFixed(places)}${THIN}%`;
}

/** The name of a target or a feature with its unit. */
export const titled = ({ name, unit }) => (unit ? `${name} (${unit})` : name);

/** Compares names as people count: 9 comes before 10. */
export const byName = new Intl.Collator('en', { numeric: true }).compare;

export const count = (value) => thousands(String(Math.round(value)));

/** "1 row", "2,000 rows". */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

const DAY = 86400000;

/** Days since 1970 of an ISO date. */
export const daysOf = (text) => Date.parse(text.length > 10 ? (/[Z+]/.test(text) ? text : `${text}Z`) : `${text}T00:00:00Z`) / DAY;

/** The ISO date of days since 1970. */
export const dateOf = (days) => new Date(Math.round(days) * DAY).toISOString().slice(0, 10);

/** About so many ticks on round dates, for milliseconds: {values, format}. */
export function dateTicks(from, to, wanted) {
  const months = (to - from) / (30.44 * DAY);
  if (months < wanted / 2) {
    const step = Math.max(1, Math.ceil((to - from) / DAY / wanted));
    const first = Math.ceil(from / DAY);
    return { values: Array.from({ length: Math.floor((to / DAY - first) / step) + 1 }, (_, i) => (first + i * step) * DAY), format: '%Y-%m-%d' };
  }
  const step = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((size) => months / size <= wanted) ?? 6000;
  const begin = new Date(from);
  const values = [];
  for (let month = Math.floor((begin.getUTCFullYear() * 12 + begin.getUTCMonth()) / step) * step; ; month += step) {
    const at = Date.UTC(Math.floor(month / 12), ((month % 12) + 12) % 12, 1);
    if (at > to) return { values, format: step >= 12 ? '%Y' : '%Y-%m' };
    if (at >= from) values.push(at);
  }
}
