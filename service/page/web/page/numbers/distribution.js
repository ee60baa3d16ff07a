// Predictive distributions from their percentiles.

/** Levels asked for with every answer: 1 to 99, with the ends of the 95 % band in the place of two inner ones. */
export const LEVELS = [...Array.from({ length: 99 }, (_, i) => i + 1).filter((level) => level !== 49 && level !== 51), 2.5, 97.5]
  .sort((a, b) => a - b);

/** The value at a level, interpolated where it was not asked for. */
export function quantile(levels, values, level) {
  const at = levels.findIndex((known) => known >= level);
  if (at < 0) return values[values.length - 1];
  if (at === 0 || levels[at] === level) return values[at];
  const share = (level - levels[at - 1]) / (levels[at] - levels[at - 1]);
  return values[at - 1] + share * (values[at] - values[at - 1]);
}

/**
 * The density as points {x, y}, from percentiles: a kernel at each of 99 even levels, as wide as its neighbours are far.
 * Dense percentiles make narrow kernels, so that peaks and limits of the target stay sharp.
 */
export function density(levels, values, low, high, points = 161) {
  const even = Array.from({ length: 99 }, (_, i) => quantile(levels, values, i + 1));
  const scale = (quantile(levels, values, 84) - quantile(levels, values, 16)) / 2 || (high - low) / 400;
  const width = even.map((_, i) => {
    const [from, to] = [Math.max(0, i - 4), Math.min(98, i + 4)];
    return Math.max((2.4 * (even[to] - even[from])) / (to - from), 0.3 * scale);
  });
  const from = Math.max(low, even[0] - 2.5 * width[0]);
  const to = Math.min(high, even[98] + 2.5 * width[98]);
  return Array.from({ length: points }, (_, i) => {
    const x = from + ((to - from) * i) / (points - 1);
    let y = 0;
    for (let k = 0; k < 99; k += 1) {
      const z = (x - even[k]) / width[k];
      if (Math.abs(z) < 5) y += Math.exp(-0.5 * z * z) / width[k];
    }
    return { x, y: y / (99 * Math.sqrt(2 * Math.PI)) };
  });
}

/** The standard normal distribution function (Abramowitz and Stegun 26.2.17, error below 1e-7). */
export function normalCdf(z) {
  const t = 1 / (1 + 0.2316419 * Math.abs(z));
  const tail = Math.exp(-0.5 * z * z) * 0.3989422804014327
    * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  return z > 0 ? 1 - tail : tail;
}

/** The standard normal quantile: normalCdf inverted by bisection. */
export function normalQuantile(probability) {
  let [low, high] = [-8, 8];
  for (let i = 0; i < 40; i += 1) {
    const middle = (low + high) / 2;
    if (normalCdf(middle) < probability) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** A line through points of rising x (ties allowed), which goes on beyond the outermost ones as it was there. */
function along(xs, ys, x) {
  let at = xs.findIndex((known) => known > x);
  if (at < 0) at = xs.length - 1;
  const to = Math.max(at, 1);
  let [from, end] = [to - 1, to];
  if (x < xs[0]) while (end < xs.length - 1 && xs[end] === xs[from]) end += 1;
  else while (from > 0 && xs[end] === xs[from]) from -= 1;
  if (xs[end] === xs[from]) return x === xs[end] ? (ys[0] + ys[ys.length - 1]) / 2 : x > xs[end] ? 8 : -8;
  return ys[from] + ((x - xs[from]) / (xs[end] - xs[from])) * (ys[end] - ys[from]);
}

/**
 * The probability that A exceeds B, from one answer for both rows that lists the draws.
 *
 * Draw k is one function for both rows, so epistemic uncertainty that they share cancels: their correlation is the covariance of the
 * draws, stretched to the calibrated epistemic std, over the product of both std. The noise is independent. The rows'
 * own distributions are their percentiles, as they are drawn, joined by a normal copula of this correlation.
 * Returns the probability for two observations, and for the two function values (a share of draws).
 */
export function exceeds(answer) {
  const [a, b] = answer.draws.map((draws, row) => {
    const mean = draws.reduce((sum, value) => sum + value, 0) / draws.length;
    const std = Math.sqrt(draws.reduce((sum, value) => sum + (value - mean) ** 2, 0) / draws.length);
    const stretch = std > 0 ? answer.epistemic_std[row] / std : 1;
    return draws.map((value) => answer.mean[row] + (value - mean) * stretch);
  });
  const ofFunction = a.reduce((sum, value, k) => sum + (value > b[k] ? 1 : value === b[k] ? 0.5 : 0), 0) / a.length;
  const shared = a.reduce((sum, value, k) => sum + (value - answer.mean[0]) * (b[k] - answer.mean[1]), 0) / a.length;
  const spread = answer.std[0] * answer.std[1];
  const correlation = spread > 0 ? Math.max(-0.9999, Math.min(0.9999, shared / spread)) : 0;
  const { levels, values } = answer.percentiles;
  const scores = levels.map((level) => normalQuantile(level / 100));
  const points = 400;
  let observed = 0;
  for (let i = 0; i < points; i += 1) {
    const score = normalQuantile((i + 0.5) / points);
    const less = along(values[1], scores, along(scores, values[0], score)); // the score of A's value among B's
    observed += normalCdf((less - correlation * score) / Math.sqrt(1 - correlation ** 2)) / points;
  }
  return { observed, function: ofFunction };
}
