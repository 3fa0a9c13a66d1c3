// The place of each value of one body in the other. Between different protocols values move, so they are found by their
// text, then by their names; a value without a counterpart is placed beside its neighbors.

import { collectScalars, escapePointer, isContainer, nearestPointer, scalarKey, unescapePointer, valueAt } from './json_compare.js';

const MIN_PART = 8; // characters of a text that is found within another
const MIN_WHOLE = 40; // characters of a text that may hold others
const MAX_LEAVES = 200;
const MAX_NEIGHBORS = 20;

const parentOf = (pointer) => pointer.slice(0, pointer.lastIndexOf('/'));
const nameOf = (pointer) => unescapePointer(pointer.slice(pointer.lastIndexOf('/') + 1));
const normalize = (name) => name.toLowerCase().replaceAll('_', '');
const isIndex = (name) => /^\d+$/.test(name);

/** Count the names that two pointers share, from their ends. */
function similarity(one, other) {
  const [own, others] = [one, other].map((pointer) => pointer.split('/').slice(1).map(normalize).reverse());
  let shared = 0;
  while (shared < own.length && shared < others.length && own[shared] === others[shared]) shared += 1;
  return shared;
}

/** Return the place whose pointer resembles another one most. */
const mostSimilar = (places, pointer) => places.reduce((best, place) => (similarity(place.path, pointer) > similarity(best.path, pointer) ? place : best));

export class Counterparts {
  constructor(left, right, { isSameProtocol = false } = {}) {
    this.isSameProtocol = isSameProtocol;
    this.roots = { left, right };
    this.places = { left: collectScalars(left), right: collectScalars(right) };
    this.names = { left: this.collectNames('left'), right: this.collectNames('right') };
    this.parts = { left: new Map(), right: new Map() };
    this.found = { left: new Map(), right: new Map() };
  }

  collectNames(side) {
    const names = new Map();
    for (const places of this.places[side].values()) {
      for (const place of places) {
        const name = normalize(place.name);
        if (names.has(name)) names.get(name).push(place);
        else names.set(name, [place]);
      }
    }
    return names;
  }

  /** Return the counterpart of a value as `{ pointer, isExact }`; inexact ones are where the value would be. */
  find(side, pointer) {
    const known = this.found[side].get(pointer);
    if (known) return known;
    const found = this.search(side, pointer);
    this.found[side].set(pointer, found);
    return found;
  }

  search(side, pointer) {
    const other = this.roots[side === 'left' ? 'right' : 'left'];
    if (this.isSameProtocol) {
      const nearest = nearestPointer(other, pointer);
      return { pointer: nearest, isExact: nearest === pointer };
    }
    if (pointer === '') return { pointer: '', isExact: true };
    const match = this.match(side, pointer);
    return match === null ? this.findBeside(side, pointer) : { pointer: match, isExact: true };
  }

  /** Return the pointer of the same value in the other body; null if it has none. */
  match(side, pointer) {
    const value = valueAt(this.roots[side], pointer);
    if (value === undefined) return null;
    if (isContainer(value)) return this.matchContainer(side, pointer, value);
    return this.matchScalar(side, pointer, scalarKey(value)) ?? this.matchName(side, pointer);
  }

  matchScalar(side, pointer, key) {
    const other = side === 'left' ? 'right' : 'left';
    const places = this.places[other].get(key);
    if (!places) return this.matchPart(other, key.slice(1, -1));
    const own = this.places[side].get(key) ?? [];
    if (own.length === places.length && key.length > MIN_PART) return places[Math.max(0, own.findIndex((place) => place.path === pointer))].path;
    const best = mostSimilar(places, pointer);
    if (key.length > MIN_PART || places.length === 1 && own.length === 1) return best.path;
    return similarity(best.path, pointer) ? best.path : null; // words such as `user` and small numbers stand everywhere
  }

  /** Return where a text is a part of another one, or has it as a part. */
  matchPart(other, text) {
    const known = this.parts[other];
    if (!known.has(text)) known.set(text, this.findPart(other, text));
    return known.get(text);
  }

  findPart(other, text) {
    if (text.length <= MIN_PART) return null;
    for (const [key, [place]] of this.places[other]) {
      if (key.length > MIN_WHOLE && (key.includes(text) || text.includes(key.slice(1, -1)))) return place.path;
    }
    return null;
  }

  /** Return the only value of the same name, whose text was rewritten. */
  matchName(side, pointer) {
    const [other, name] = [side === 'left' ? 'right' : 'left', normalize(nameOf(pointer))];
    const [own, places] = [this.names[side].get(name), this.names[other].get(name)];
    if (!own || !places || isIndex(name) || own.length !== places.length) return null;
    return places[Math.max(0, own.findIndex((place) => place.path === pointer))].path;
  }

  /** Return the container that holds the longest scalar of this one. */
  matchContainer(side, pointer, value) {
    const leaves = [...collectScalars(value, MAX_LEAVES)].sort(([one], [two]) => two.length - one.length);
    for (const [key, [leaf]] of leaves) {
      if (key.length <= MIN_PART) break; // no word of a protocol identifies a container
      const found = this.matchScalar(side, pointer + leaf.path, key);
      if (found === null) continue;
      let container = found;
      for (let depth = leaf.path.split('/').length - 1; depth > 0 && parentOf(container); depth -= 1) container = parentOf(container);
      return container;
    }
    return null;
  }

  /** Return where a value without a counterpart would be: beside its nearest neighbor that has one. */
  findBeside(side, pointer) {
    const parent = parentOf(pointer);
    const holder = valueAt(this.roots[side], parent);
    if (!isContainer(holder)) return { ...this.find(side, nearestPointer(this.roots[side], parent)), isExact: false };
    const names = Object.keys(holder);
    const index = names.indexOf(nameOf(pointer));
    const neighbors = [...names.slice(Math.max(0, index - MAX_NEIGHBORS), Math.max(0, index)).reverse(), ...names.slice(index + 1, index + 1 + MAX_NEIGHBORS)];
    for (const name of parent || index >= 0 ? neighbors : []) {
      const match = this.match(side, `${parent}/${escapePointer(name)}`);
      if (match !== null) return { pointer: match, isExact: false };
    }
    return parent ? { ...this.find(side, parent), isExact: false } : { pointer: '', isExact: false };
  }
}
