// The list of losses. Losses that differ only in their place are one entry, so that repeated ones hide no others.

import { button, element } from './dom.js';
import { countLosses } from './exchange_text.js';
import { formatCount, plural } from './format.js';

const ORDER = { error: 0, warning: 1, info: 2 };
const SEVERITY_WORDS = { error: 'error', warning: 'warning', info: 'note' };
const MAX_LISTED = 8;
const MAX_UNFOLDED = 2;

const placeOf = (loss) => loss.target ?? (loss.path || '(body)');

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

/** Build the list; `onChoose` gets the index of the chosen loss. Without it, the entries are plain text. */
export function lossList(losses, onChoose) {
  const groups = groupLosses(losses);
  const list = element('ol', { class: 'losses' });
  list.append(...groups.slice(0, MAX_LISTED).map((group) => lossItem(group, onChoose)));
  if (groups.length > MAX_LISTED) {
    const rest = groups.slice(MAX_LISTED);
    const more = element('li', {}, button(`Show ${formatCount(rest.length)} more`, () => more.replaceWith(...rest.map((group) => lossItem(group, onChoose)))));
    list.append(more);
  }
  return list;
}

/** Build the list, folded to one line with its counts; at most two errors and warnings stay in view above it. */
export function foldedLossList(losses, onChoose) {
  const serious = losses.filter((loss) => loss.severity !== 'info');
  const areSeriousInView = groupLosses(serious).length <= MAX_UNFOLDED;
  const folded = areSeriousInView ? losses.filter((loss) => loss.severity === 'info') : losses;
  const listOf = (part) => (part.length ? lossList(part, (index) => onChoose(losses.indexOf(part[index]))) : null);
  const counts = Object.groupBy(folded, (loss) => loss.severity);
  const summary = countLosses(Object.fromEntries(Object.entries(counts).map(([severity, some]) => [severity, some.length]))).join(', ');
  return element('div', { class: 'folded-losses' }, areSeriousInView ? listOf(serious) : null, folded.length ? element('details', {}, element('summary', {}, `Losses: ${summary}`), listOf(folded)) : null);
}

function lossItem([first, ...others], onChoose) {
  const { loss } = first;
  const parts = [
    element('span', { class: `severity ${loss.severity}` }, SEVERITY_WORDS[loss.severity]),
    element('span', { class: 'loss-kind' }, loss.kind),
    element('code', { class: 'loss-path' }, placeOf(loss)),
    element('span', { class: 'loss-reason' }, loss.reason),
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
