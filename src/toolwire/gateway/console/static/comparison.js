// Two bodies side by side, with what was dropped, changed or added marked at its place, and the list of losses above.

import { parseJson } from './api.js';
import { BodyPane } from './body_pane.js';
import { Counterparts } from './counterparts.js';
import { element, replace } from './dom.js';
import { nameTarget } from './exchange_text.js';
import { protocolTitle } from './format.js';
import { compare } from './json_compare.js';
import { foldedLossList, lossList } from './loss_list.js';

const MAX_OPENED = 60; // marks that are unfolded on both sides

/** Parse a body, or return it as text. */
export function parseBody(text) {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}

/** Return the pointers that are in view from the start on each side: those of marks, and of their counterparts. */
function chooseOpen(marks, counterparts) {
  const open = { left: [], right: [] };
  for (const [side, other] of [['left', 'right'], ['right', 'left']]) {
    const isLoss = (found) => found.some((mark) => mark.kind !== 'only');
    const marked = [...marks[side]].sort(([, one], [, two]) => isLoss(two) - isLoss(one));
    for (const [index, [pointer, found]] of marked.entries()) {
      if (index >= MAX_OPENED && !isLoss(found)) break;
      open[side].push(pointer);
      if (index < MAX_OPENED) open[other].push(counterparts.find(side, pointer).pointer);
    }
  }
  return open;
}

class Comparison {
  constructor({ left, right, losses, empty = 'Nothing was lost.', areLossesFolded = false }) {
    this.sides = { left, right };
    this.losses = losses;
    const values = { left: parseBody(left.text), right: parseBody(right.text) };
    const isSameProtocol = left.protocol === right.protocol;
    const areJson = Object.values(values).every((value) => typeof value !== 'string');
    const target = right.protocol && protocolTitle(right.protocol);
    const marks = areJson ? compare(values.left, values.right, losses, { isSameProtocol, describe: (loss) => nameTarget(loss.reason, target) }) : { left: new Map(), right: new Map() };
    this.marks = marks;
    this.counterparts = areJson ? new Counterparts(values.left, values.right, { isSameProtocol }) : null;
    const open = this.counterparts ? chooseOpen(marks, this.counterparts) : { left: [], right: [] };
    const isMarked = (side) => [...marks[side].values()].some((found) => found.some((mark) => mark.kind === 'only'));
    this.hint = [areJson ? 'Click a value to see where it went. ' : null,
      isMarked('left') || isMarked('right') ? [element('span', { class: 'legend-sign' }, '·'), ' has no equal value on the other side'] : null];
    this.legend = replace(element('p', { class: 'legend' }), this.hint);
    this.panes = Object.fromEntries(['left', 'right'].map((side) => [side, new BodyPane(this.sides[side], values[side], {
      marks: marks[side], open: open[side], onHover: (pointer) => this.point(side, pointer), onChoose: this.counterparts ? (pointer) => this.show(side, pointer) : null, onOnly: () => this.showOnly(this.only === side ? null : side),
    })]));
    this.paneArea = element('div', { class: 'panes fill' }, this.panes.left.root, this.panes.right.root);
    const buildList = areLossesFolded ? foldedLossList : lossList;
    const list = losses.length ? buildList(losses, (index) => this.choose(index), { body: values.left, target }) : element('p', { class: 'nothing-lost' }, empty);
    this.root = element('div', { class: 'comparison fill' }, element('div', { class: 'loss-area' }, list), this.legend, this.paneArea);
  }

  /** Show the place of a loss, and its counterpart. */
  choose(index) {
    const loss = this.losses[index];
    if (loss.kind === 'added' && loss.target !== undefined) this.show('right', loss.target);
    else this.show('left', loss.path);
  }

  /** Unfold a value on its side, and its counterpart on the other. */
  show(side, pointer) {
    const other = side === 'left' ? 'right' : 'left';
    if (this.only === other) this.showOnly(null);
    this.panes[side].tree?.show(pointer);
    const found = this.counterparts?.find(side, pointer);
    if (!found) return;
    this.panes[other].tree.show(found.pointer, { isFlashed: found.isExact, isScrolled: this.areSideBySide });
    this.point(side, pointer);
  }

  get areSideBySide() {
    const [left, right] = Object.values(this.panes).map((pane) => pane.root.getBoundingClientRect());
    return left.top === right.top;
  }

  /** Highlight the counterpart of a value, and show both paths. */
  point(side, pointer) {
    const other = side === 'left' ? 'right' : 'left';
    const found = pointer === null || !this.counterparts ? null : this.counterparts.find(side, pointer);
    this.panes[side].tree?.highlight(null);
    this.panes[other].tree?.highlight(found?.isExact ? found.pointer : null);
    if (!found) {
      replace(this.legend, this.hint);
      return;
    }
    const own = element('code', {}, pointer || '(body)');
    const isChanged = this.marks[side].get(pointer)?.some((mark) => mark.kind === 'changed');
    const counterpart = found.isExact ? element('code', {}, found.pointer || '(body)') : `${isChanged ? 'no equal value' : 'not'} in “${this.sides[other].title}”`;
    const isFolded = found.isExact && !this.only && !this.panes[other].tree.isShown(found.pointer);
    replace(this.legend, side === 'left' ? [own, ' → ', counterpart] : [counterpart, ' → ', own], isFolded ? ' (folded: click to show it)' : null);
  }

  /** Show one body in full width, or both. */
  showOnly(side) {
    this.only = side;
    for (const [name, pane] of Object.entries(this.panes)) {
      pane.root.hidden = side !== null && side !== name;
      pane.setOnly(side === name);
    }
    this.paneArea.classList.toggle('single', side !== null);
  }
}

/** Build a comparison. `left` and `right` have `title`, `subtitle`, `text`, `protocol`, and the `address` of the request if it is of interest. */
export const buildComparison = (options) => new Comparison(options);
