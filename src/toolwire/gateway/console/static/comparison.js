// Two bodies side by side, with what was dropped, changed or added marked at its place, and the list of losses above.

import { parseJson } from './api.js';
import { copyText, element, iconButton, replace } from './dom.js';
import { formatBytes } from './format.js';
import { compare } from './json_compare.js';
import { JsonTree } from './json_tree.js';
import { foldedLossList, lossList } from './loss_list.js';

/** Parse a body, or return it as text. */
export function parseBody(text) {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}

function pane({ title, subtitle, address, text: body }, tree) {
  return element('section', { class: 'pane', 'aria-label': title },
    element('header', { class: 'pane-head' }, element('h3', {}, title), element('span', { class: 'pane-subtitle' }, subtitle), element('span', { class: 'pane-size' }, formatBytes(new Blob([body]).size)),
      iconButton('copy', `Copy the body ${title.toLowerCase()}`, () => copyText(body, 'Body'), { isCompact: true }), address ? element('code', { class: 'pane-address' }, address) : null),
    element('div', { class: 'pane-body', tabindex: 0, role: 'region', 'aria-label': `${title}, body` }, tree));
}

/** Build a comparison. `left` and `right` have `title`, `subtitle`, `text`, `protocol`, and the `address` of the request if it is of interest. */
export function buildComparison({ left, right, losses, empty = 'Nothing was lost.', areLossesFolded = false }) {
  const values = [parseBody(left.text), parseBody(right.text)];
  const isSameProtocol = left.protocol === right.protocol;
  const areJson = values.every((value) => typeof value !== 'string');
  const marks = areJson ? compare(values[0], values[1], losses, { isSameProtocol }) : { left: new Map(), right: new Map() };
  const trees = [];
  const hover = (text) => trees.forEach((tree) => tree.highlight?.(text));
  const build = (value, side, label) => {
    if (typeof value === 'string') return element('pre', { class: 'plain' }, value || '(empty)');
    const tree = new JsonTree(value, { marks: marks[side], label, onHover: hover });
    trees.push(tree);
    return tree.root;
  };
  const panes = [pane(left, build(values[0], 'left', left.title)), pane(right, build(values[1], 'right', right.title))];
  const choose = (index) => {
    const loss = losses[index];
    const [tree, pointer] = loss.kind === 'added' && loss.target !== undefined ? [trees[1], loss.target] : [trees[0], loss.path];
    tree?.show(pointer);
  };
  const list = element('div', { class: 'loss-area' });
  replace(list, losses.length ? (areLossesFolded ? foldedLossList : lossList)(losses, choose) : element('p', { class: 'nothing-lost' }, empty));
  const hasOnly = ['left', 'right'].some((side) => [...marks[side].values()].some((found) => found.some((mark) => mark.kind === 'only')));
  const legend = element('p', { class: 'legend' },
    isSameProtocol ? 'Same protocol: fields are compared at equal paths. ' : 'Point at a value to see where it went. ',
    hasOnly ? [element('span', { class: 'legend-sign' }, '·'), ' marks values that only this side has: renamed, rewritten or set by the target’s form.'] : null);
  return { root: element('div', { class: 'comparison' }, list, legend, element('div', { class: 'panes' }, panes)), choose, trees };
}
