// Kinds of targets: all that differs between numbers and classes is behind one interface.
//
// A kind has
//   template          id of the template of its answer
//   about(overview)   what it predicts, for the head of the page
//   mount(changed)    listens to the controls of its template; changed.ask() answers at once, changed.askSoon() after a pause
//   fill(overview, link)  sets these controls for a model, by a link where it says something
//   choices()         what is chosen there; everything below gets it, with `mapOf` of the map
//   state(choices)    what a link keeps of it
//   begin(overview, answer)  may set controls by a model's first answer; whether it did, so that the page asks again
//   answer, sweep, compare, map   options(choices, overview) of the request, and show(…) of its answer. Options of a map
//                     may be a text: what is missing. A sweep and a map may have rows(overview), their number along an axis.
//   map.entries(overview)  what a map can show: [value, text] each
//   request           options(choices) as a person would send them, what Python prints of the prediction, and
//                     query(choices), the same for a file to be scored
//   totals            statistics that totals can be of: [value, text] each
//   card              metrics, words on what they mean, facts(overview), tables(overview)
//
// A new kind is a folder like `numbers/`, its template in `index.html`, and a line here.

import { classes } from './classes/kind.js';
import { numbers } from './numbers/kind.js';

/** The kind of a model's target. */
export const kindOf = ({ target }) => (target.classes ? classes : numbers);
