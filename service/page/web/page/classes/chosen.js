// Which classes are shown where there is no room for all, and in which colours.

import { COLOURS } from '../charts.js';
import { counted } from '../format.js';

/** The numbers of the classes in order of a weight, largest first. */
export const ranked = (weights) => weights.map((_, i) => i).sort((a, b) => weights[b] - weights[a] || a - b);

/**
 * A colour for each of some classes, as numbers below `COLOURS`: its own wherever it is free, so that a class looks
 * alike in all charts, else the next that is free.
 *
 * @param listed Numbers of at most `COLOURS` classes, the most important first.
 */
export function coloursOf(listed) {
  const taken = new Set();
  return new Map(listed.map((number) => {
    let colour = number % COLOURS;
    while (taken.has(colour)) colour = (colour + 1) % COLOURS;
    taken.add(colour);
    return [number, colour];
  }));
}

/** How the rest is called. */
export const others = (count) => counted(count, 'other');

/** The name of a class as people see it. */
export const named = (name) => (name === '' ? '(empty)' : name);
