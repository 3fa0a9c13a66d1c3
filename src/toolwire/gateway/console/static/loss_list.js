// The list of losses. Losses that differ only in their place are one entry, so that repeated ones hide no others.

import { button, element } from './dom.js';
import { countLosses, nameTarget } from './exchange_text.js';
import { formatCount, plural } from './format.js';
import { isContainer, valueAt } from './json_compare.js';

const ORDER = { error: 0, warning: 1, info: 2 };
const SEVERITY_WORDS = { error: 'error', warning: 'warning', info: 'note' };
const MAX_LISTED = 8;
const MAX_LISTED_ABOVE_BODIES = 3;
const MAX_UNFOLDED = 2;

const placeOf = (loss) => loss.target ?? (loss.path || '(body)');

/** Return the name of the tool at a pointer or around it; undefined if there is none. */
function toolName(body, pointer) {
  if (!isContainer(body) || !pointer.startsWith('/tools/')) return undefined;
  const names = pointer.split('/');
  for (let length = names.length; length > 2; length -= 1) {
    const value = valueAt(body, names.slice(0, length).join('/'));
    const name = [value?.name, value?.function?.name].find((candidate) => typeof candidate === 'string');
    if (name !== undefined) return name;
  }
  return undefined;
}

/** Return the number of losses, and of their groups if they are fewer. */
export function countGroups(losses) {
  const groups = groupLosses(losses).length;
  const count = plural(losses.length, 'loss', 'losses');
  return groups < losses.length ? `${count} in ${plural(groups, 'group')}` : count;
}

/** Group losses that are equal except for the numbers in their paths, the most severe first. */
export function groupLosses(losses) {
  const groups = new Map();
  losses.forEach((loss, index) => {
    const key = JSON.stringify([loss.severity, loss.kind, loss.reason, placeOf(loss).replaceAll(/\/\d+(?=\/|$)/g, '/*')]);
    const group = groups.get(key);
    if (group) group.push({ loss, index });
    else groups.set(key, [{ loss, index }]);
  });
  return [...groups.values()].sort(([one], [other]) => ORDER[one.loss.severity] - ORDER[other.loss.severity]);
}

/** Build the list. `onChoose` gets the index of the chosen loss; without it, the entries are plain text.
 *
 * `body` is what the losses point into, and `target` the name of what lacks the fields. */
export function lossList(losses, onChoose, { body, target, limit = onChoose ? MAX_LISTED_ABOVE_BODIES : MAX_LISTED } = {}) {
  const groups = groupLosses(losses);
  const list = element('ol', { class: limit === Infinity ? 'losses scrolls' : 'losses' });
  const itemOf = (group) => lossItem(group, onChoose, { body, target });
  const listed = groups.length > limit + 1 ? limit : groups.length; // a button would take the place of the last one
  list.append(...groups.slice(0, listed).map(itemOf));
  const rest = groups.slice(listed);
  if (rest.length) {
    const more = element('li', {}, button(`Show ${formatCount(rest.length)} more`, () => {
      const items = rest.map(itemOf);
      more.replaceWith(...items);
      if (onChoose) list.classList.add('scrolls');
      items[0].querySelector('button')?.focus();
    }, { class: 'link more-losses' }), element('span', { class: 'faint' }, ` · ${countGroups(losses)}`));
    list.append(more);
  }
  return list;
}

/** Build the list, folded to one line with its counts; at most two errors and warnings stay in view above it. */
export function foldedLossList(losses, onChoose, options) {
  const serious = losses.filter((loss) => loss.severity !== 'info');
  const areSeriousInView = groupLosses(serious).length <= MAX_UNFOLDED;
  const folded = areSeriousInView ? losses.filter((loss) => loss.severity === 'info') : losses;
  const listOf = (part) => (part.length ? lossList(part, (index) => onChoose(losses.indexOf(part[index])), { ...options, limit: Infinity }) : null);
  const counts = Object.groupBy(folded, (loss) => loss.severity);
  const summary = countLosses(Object.fromEntries(Object.entries(counts).map(([severity, some]) => [severity, some.length]))).join(', ');
  return element('div', { class: 'folded-losses' }, areSeriousInView ? listOf(serious) : null, folded.length ? element('details', {}, element('summary', {}, `Losses: ${summary}`), listOf(folded)) : null);
}

function lossItem([first, ...others], onChoose, { body, target }) {
  const { loss } = first;
  const tool = toolName(body, loss.path);
  const parts = [
    element('span', { class: `severity ${loss.severity}` }, SEVERITY_WORDS[loss.severity]),
    element('span', { class: 'loss-kind' }, loss.kind),
    element('code', { class: 'loss-path' }, placeOf(loss)), tool === undefined ? null : element('span', { class: 'loss-tool' }, tool),
    element('span', { class: 'loss-reason' }, nameTarget(loss.reason, target)),
  ];
  const item = element('li', { class: `loss ${loss.severity}` },
    onChoose ? button(parts, () => onChoose(first.index), { class: 'loss-text' }) : element('div', { class: 'loss-text' }, parts));
  if (others.length) {
    const more = button(`and ${plural(others.length, 'more place')}`, () => {
      const places = element('ol', { class: 'places' }, others.map((other) => element('li', {}, onChoose ? button(placeOf(other.loss), () => onChoose(other.index), { class: 'place' }) : element('code', {}, placeOf(other.loss)))));
      more.replaceWith(places);
    }, { class: 'link more-places' });
    item.append(more);
  }
  return item;
}
