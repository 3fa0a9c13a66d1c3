// Comparison of two JSON values: marks at JSON pointers, for the left and the right pane.
//
// Losses are exact: toolwire reports each with its place and reason. Between equal protocols every other difference is
// found by path. Between different protocols fields move, so the rest is compared by value: what only one side has was
// renamed or rewritten.

import { ExactNumber } from './api.js';

export const escapePointer = (name) => String(name).replaceAll('~', '~0').replaceAll('/', '~1');
export const unescapePointer = (name) => name.replaceAll('~1', '/').replaceAll('~0', '~');

export const isContainer = (value) => value !== null && typeof value === 'object' && !(value instanceof ExactNumber);

/** Return the value at a pointer; undefined if there is none. */
export function valueAt(root, pointer) {
  let value = root;
  for (const name of pointer.split('/').slice(1).map(unescapePointer)) {
    if (!isContainer(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}

/** Return the deepest existing pointer on the path of another one. */
export function nearestPointer(root, pointer) {
  let nearest = pointer;
  while (nearest && valueAt(root, nearest) === undefined) nearest = nearest.slice(0, nearest.lastIndexOf('/'));
  return nearest;
}

const addMark = (marks, path, mark) => {
  const known = marks.get(path);
  if (known) known.push(mark);
  else marks.set(path, [mark]);
};

/** Return the marks of both panes. `losses` point into the left value, or with `target` into the right one; `describe` returns the reason of one. */
export function compare(left, right, losses, { isSameProtocol, describe }) {
  const marks = { left: new Map(), right: new Map() };
  losses.forEach((loss, index) => {
    const kind = loss.kind === 'dropped' ? 'dropped' : loss.kind === 'added' ? 'added' : 'changed';
    const mark = { kind, word: loss.kind, severity: loss.severity, reason: describe(loss), loss: index };
    if (loss.kind === 'added' && loss.target !== undefined) addMark(marks.right, nearestPointer(right, loss.target), { ...mark, pointer: loss.target });
    else addMark(marks.left, nearestPointer(left, loss.path), { ...mark, pointer: loss.path });
  });
  if (isSameProtocol) markDifferences(left, right, '', marks);
  else markMoved(left, right, marks);
  return marks;
}

function markDifferences(left, right, path, marks) {
  if (isContainer(left) && isContainer(right) && Array.isArray(left) === Array.isArray(right)) {
    for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
      const member = `${path}/${escapePointer(name)}`;
      if (!Object.hasOwn(right, name)) { if (!marks.left.has(member)) addMark(marks.left, member, { kind: 'dropped' }); }
      else if (!Object.hasOwn(left, name)) { if (!marks.right.has(member)) addMark(marks.right, member, { kind: 'added' }); }
      else markDifferences(left[name], right[name], member, marks);
    }
  } else if (!isEqualScalar(left, right)) {
    if (!marks.left.has(path)) addMark(marks.left, path, { kind: 'changed' });
    if (!marks.right.has(path)) addMark(marks.right, path, { kind: 'changed' });
  }
}

export const scalarKey = (value) => (value instanceof ExactNumber ? value.source : JSON.stringify(value));
const isEqualScalar = (one, other) => !isContainer(one) && !isContainer(other) && scalarKey(one) === scalarKey(other);

/** Fields whose values are words of a protocol. */
const WORDS = new Set(['type', 'role', 'object', 'status', 'finish_reason', 'stop_reason', 'finishReason', 'stopReason']);

function markMoved(left, right, marks) {
  const leftValues = collectScalars(left);
  const rightValues = collectScalars(right);
  for (const [own, other, ownMarks] of [[leftValues, rightValues, marks.left], [rightValues, leftValues, marks.right]]) {
    const texts = [...other.keys()].filter((key) => key.length > 40).join('\n');
    for (const [key, places] of own) {
      if (other.has(key) || (key.length > 8 && texts.includes(key.slice(1, -1)))) continue;
      for (const { path, name } of places) {
        if (!WORDS.has(name) && !hasMarkAbove(ownMarks, path)) addMark(ownMarks, path, { kind: 'only' });
      }
    }
  }
}

function hasMarkAbove(marks, path) {
  for (let above = path; above; above = above.slice(0, above.lastIndexOf('/'))) {
    if (marks.get(above)?.some((mark) => mark.kind !== 'only')) return true;
  }
  return false;
}

const MAX_SCALARS = 20_000;

/** Return the places of each scalar in their order, by its JSON text. */
export function collectScalars(root, limit = MAX_SCALARS) {
  const found = new Map();
  const stack = [[root, '', '']];
  let count = 0;
  while (stack.length && count < limit) {
    const [value, path, name] = stack.pop();
    if (isContainer(value)) {
      for (const [member, child] of Object.entries(value).reverse()) stack.push([child, `${path}/${escapePointer(member)}`, member]);
      continue;
    }
    count += 1;
    const key = scalarKey(value);
    const places = found.get(key);
    if (places) places.push({ path, name });
    else found.set(key, [{ path, name }]);
  }
  return found;
}
