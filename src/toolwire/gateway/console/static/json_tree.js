// A JSON value as a tree of lines, with marks and their reasons at the fields. Closed branches have no elements.

import { ExactNumber } from './api.js';
import { button, element } from './dom.js';
import { formatCount } from './format.js';
import { escapePointer, isContainer } from './json_compare.js';

const OPEN_LINES = 160;
const MAX_TEXT = 280;
const MAX_MEMBERS = 200;

const SIGNS = { dropped: '−', added: '+', changed: '~', only: '·' };
const WORDS = { dropped: 'dropped', added: 'added', changed: 'changed', only: 'only on this side' };

export class JsonTree {
  constructor(value, { marks = new Map(), label = 'JSON', onHover = null } = {}) {
    this.value = value;
    this.marks = marks;
    this.onHover = onHover;
    this.lines = new Map();
    this.branches = new Map();
    this.byValue = new Map();
    this.markedAbove = new Set();
    for (const [path, found] of marks) {
      if (found.every((mark) => mark.kind === 'only')) continue;
      for (let above = path; above; above = above.slice(0, above.lastIndexOf('/'))) this.markedAbove.add(above.slice(0, above.lastIndexOf('/')));
    }
    this.openPaths = this.chooseOpen();
    this.root = element('div', { class: 'json', role: 'group', 'aria-label': label });
    if (onHover) {
      this.root.addEventListener('pointerover', (event) => onHover(event.target.closest('.jl')?.dataset.value ?? null));
      this.root.addEventListener('pointerleave', () => onHover(null));
    }
    this.root.append(...this.build(null, value, '', 0, true));
  }

  /** Choose the branches to open: those with marks, then breadth first until there are enough lines. */
  chooseOpen() {
    const open = new Set(['', ...this.markedAbove]);
    let lines = 0;
    const queue = [['', this.value]];
    while (queue.length && lines < OPEN_LINES) {
      const [path, value] = queue.shift();
      if (!isContainer(value)) continue;
      const members = Object.entries(value);
      lines += members.length;
      if (lines > OPEN_LINES && path !== '') break;
      open.add(path);
      for (const [name, child] of members) queue.push([`${path}/${escapePointer(name)}`, child]);
    }
    return open;
  }

  /** Return the lines of a value, with those of its members if it is open. */
  build(name, value, path, depth, isLast) {
    const comma = isLast ? '' : ',';
    if (!isContainer(value)) return this.decorate(this.line(name, path, depth, [this.scalar(value), comma], scalarText(value)), path, depth);
    const isArray = Array.isArray(value);
    const [opening, closing] = isArray ? '[]' : '{}';
    const count = Object.keys(value).length;
    if (count === 0) return this.decorate(this.line(name, path, depth, [element('span', { class: 'jp' }, `${opening}${closing}${comma}`)]), path, depth);
    const toggle = button('', () => this.toggle(path), { class: 'jt', 'aria-expanded': 'false', 'aria-label': `${name ?? 'root'}, ${count} ${isArray ? 'items' : 'members'}` });
    const summary = element('span', { class: 'jp' });
    const line = this.line(name, path, depth, [summary], null, toggle);
    const members = element('div', { class: 'jm', hidden: true });
    const end = this.line(null, null, depth, [element('span', { class: 'jp' }, `${closing}${comma}`)]);
    end.hidden = true;
    const branch = { value, path, depth, toggle, summary, members, end, opening, closing, comma, count, isArray, isBuilt: false };
    this.branches.set(path, branch);
    this.draw(branch, this.openPaths.has(path));
    return [...this.decorate(line, path, depth), members, end];
  }

  draw(branch, isOpen) {
    const { toggle, summary, members, end } = branch;
    if (isOpen && !branch.isBuilt) {
      branch.isBuilt = true;
      this.addMembers(branch, 0);
    }
    members.hidden = end.hidden = !isOpen;
    toggle.setAttribute('aria-expanded', String(isOpen));
    summary.replaceChildren(isOpen ? branch.opening : `${branch.opening} `);
    if (!isOpen) summary.append(element('span', { class: 'jc' }, preview(branch)), ` ${branch.closing}${branch.comma}`);
  }

  addMembers(branch, start) {
    const entries = Object.entries(branch.value);
    const shown = entries.slice(start, start + MAX_MEMBERS);
    for (const [index, [name, child]] of shown.entries()) {
      branch.members.append(...this.build(branch.isArray ? null : name, child, `${branch.path}/${escapePointer(name)}`, branch.depth + 1, start + index === entries.length - 1));
    }
    const left = entries.length - start - shown.length;
    if (left > 0) {
      const more = button(`${formatCount(left)} more`, () => { more.remove(); this.addMembers(branch, start + MAX_MEMBERS); }, { class: 'jmore' });
      branch.members.append(more);
    }
  }

  toggle(path) {
    const branch = this.branches.get(path);
    this.draw(branch, branch.members.hidden);
  }

  /** Open every branch on the way to a pointer, and return its line. */
  reveal(pointer) {
    let path = '';
    const names = pointer.split('/').slice(1);
    for (const name of names) {
      const branch = this.branches.get(path);
      if (!branch) break;
      if (branch.members.hidden) this.draw(branch, true);
      for (let start = MAX_MEMBERS; !this.lines.has(`${path}/${name}`) && start < branch.count; start += MAX_MEMBERS) branch.members.querySelector(':scope > .jmore')?.click();
      path = `${path}/${name}`;
    }
    return this.lines.get(path) ?? null;
  }

  /** Scroll to a pointer and flash its line. */
  show(pointer) {
    const line = this.reveal(pointer);
    if (!line) return;
    line.scrollIntoView({ block: 'center', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' });
    line.classList.remove('flash');
    void line.offsetWidth;
    line.classList.add('flash');
  }

  /** Highlight the lines with this scalar. */
  highlight(text) {
    for (const line of this.highlighted ?? []) line.classList.remove('same');
    this.highlighted = text === null ? [] : (this.byValue.get(text) ?? []).slice(0, 50);
    for (const line of this.highlighted) line.classList.add('same');
  }

  line(name, path, depth, content, text = null, toggle = null) {
    const line = element('div', { class: 'jl' }, element('span', { class: 'jg', 'aria-hidden': true }), toggle ?? element('span', { class: 'jt-space' }),
      name === null ? null : [element('span', { class: 'jk' }, quote(name)), element('span', { class: 'jp' }, ': ')], content);
    line.style.paddingInlineStart = `calc(${depth} * var(--indent) + var(--gutter))`;
    if (path !== null) this.lines.set(path, line);
    if (text !== null && text.length > 1 && text !== 'true' && text !== 'false' && text !== 'null') {
      line.dataset.value = text.slice(0, 500);
      const known = this.byValue.get(line.dataset.value);
      if (known) known.push(line);
      else this.byValue.set(line.dataset.value, [line]);
    }
    return line;
  }

  /** Add the marks of a path to its line, and a line with the reason of each. */
  decorate(line, path, depth) {
    const marks = this.marks.get(path);
    if (!marks) return [line];
    const [strongest] = [...marks].sort((one, other) => rank(other) - rank(one));
    line.classList.add('marked', strongest.kind, strongest.severity ?? 'unexplained');
    line.firstChild.textContent = SIGNS[strongest.kind];
    line.append(element('span', { class: 'offscreen' }, ` (${WORDS[strongest.kind]})`));
    const notes = marks.filter((mark) => mark.reason).map((mark) => {
      const below = mark.pointer !== undefined && mark.pointer !== path ? `${mark.pointer.slice(path.length)} ` : '';
      const note = element('div', { class: `jn ${mark.severity}`, data: { loss: String(mark.loss) } }, element('span', { class: 'jn-kind' }, WORDS[mark.kind]), ' ', below && element('code', {}, below), mark.reason);
      note.style.marginInlineStart = `calc(${depth} * var(--indent) + var(--gutter) + 18px)`;
      return note;
    });
    return [line, ...notes];
  }

  scalar(value) {
    if (typeof value !== 'string') {
      const kind = value instanceof ExactNumber || typeof value === 'number' ? 'number' : 'word';
      return element('span', { class: `jv ${kind}` }, value instanceof ExactNumber ? value.source : String(value));
    }
    const isLong = value.length > MAX_TEXT;
    const isBlock = value.includes('\n');
    const span = element('span', { class: 'jv string' });
    if (!isLong && !isBlock) {
      span.textContent = quote(value);
      return span;
    }
    let isOpen = false;
    const drawText = () => {
      span.replaceChildren();
      span.classList.toggle('block', isOpen);
      const first = quote(value.slice(0, MAX_TEXT)).slice(0, -1);
      span.append(isOpen ? value : `${first}${isLong ? '…' : '"'}`);
      span.append(button(isOpen ? 'less' : isLong ? `${formatCount(value.length)} characters` : 'as text', () => { isOpen = !isOpen; drawText(); }, { class: 'jx' }));
    };
    drawText();
    return span;
  }
}

const rank = (mark) => (mark.kind === 'only' ? 0 : { error: 4, warning: 3, info: 2 }[mark.severity] ?? 1);
const quote = (text) => JSON.stringify(text);
const scalarText = (value) => (value instanceof ExactNumber ? value.source : String(value));

/** Return what a closed branch holds, in a few words. */
function preview({ value, isArray, count }) {
  const names = ['type', 'role', 'name', 'id'];
  if (!isArray) {
    const words = names.filter((name) => typeof value[name] === 'string').map((name) => value[name]);
    if (words.length) return `${words.join(' · ').slice(0, 60)} …`;
  }
  return isArray ? `${formatCount(count)} items` : `${Object.keys(value).slice(0, 3).join(', ').slice(0, 60)}${count > 3 ? ', …' : ''}`;
}
