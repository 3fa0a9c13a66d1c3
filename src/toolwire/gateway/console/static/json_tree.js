// A JSON value as a tree of lines, with marks and their reasons at the fields. Closed branches have no elements.

import { ExactNumber } from './api.js';
import { button, element } from './dom.js';
import { formatCount } from './format.js';
import { escapePointer, isContainer } from './json_compare.js';

const OPEN_LINES = 300;
const MAX_EXPANDED_LINES = 4000;
const MAX_EXPANDED_TEXT = 400_000;
const MAX_TEXT = 280;
const MAX_MEMBERS = 200;

const SIGNS = { dropped: '−', added: '+', changed: '~', only: '·' };
const WORDS = { dropped: 'dropped', added: 'added', changed: 'changed', only: 'only on this side' };

export class JsonTree {
  /** `open` has the pointers that are in view from the start; `onHover` and `onChoose` get the pointer of a line. */
  constructor(value, { marks = new Map(), label = 'JSON', open = [], onHover = null, onChoose = null } = {}) {
    this.value = value;
    this.marks = marks;
    this.onChoose = onChoose;
    this.lines = new Map();
    this.branches = new Map();
    this.texts = [];
    this.openPaths = this.chooseOpen(open);
    this.root = element('div', { class: `json ${onChoose ? 'linked' : ''}`, role: 'group', 'aria-label': label });
    const pathOf = (event) => event.target.closest('.jl, .jn')?.dataset.path ?? null;
    if (onHover) {
      this.root.addEventListener('pointerover', (event) => onHover(pathOf(event)));
      this.root.addEventListener('pointerleave', () => onHover(null));
    }
    if (onChoose) {
      this.root.addEventListener('click', (event) => {
        const path = pathOf(event);
        if (path !== null && !event.target.closest('button') && getSelection().isCollapsed) onChoose(path);
      });
    }
    this.root.append(...this.build(null, value, '', 0, true));
  }

  /** Choose the branches to open: those above these pointers, then breadth first until there are enough lines. */
  chooseOpen(pointers) {
    const open = new Set(['']);
    for (const pointer of pointers) {
      for (let above = pointer.slice(0, pointer.lastIndexOf('/')); above && !open.has(above); above = above.slice(0, above.lastIndexOf('/'))) open.add(above);
    }
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
    if (!isContainer(value)) return this.decorate(this.line(name, path, depth, [this.scalar(value), comma]), path, depth);
    const isArray = Array.isArray(value);
    const [opening, closing] = isArray ? '[]' : '{}';
    const count = Object.keys(value).length;
    if (count === 0) return this.decorate(this.line(name, path, depth, [element('span', { class: 'jp' }, `${opening}${closing}${comma}`)]), path, depth);
    const toggle = button('', () => this.toggle(path), { class: 'jt', 'aria-expanded': 'false', 'aria-label': `${name ?? 'root'}, ${count} ${isArray ? 'items' : 'members'}` });
    const summary = element('span', { class: 'jp' });
    const line = this.line(name, path, depth, [summary], toggle);
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

  /** Unfold a pointer and scroll to it; flash its line, unless it only is near what is looked for. */
  show(pointer, { isFlashed = true, isScrolled = true } = {}) {
    const line = this.reveal(pointer);
    if (!line) return;
    if (isScrolled) scrollTo(line);
    line.classList.remove('flash');
    if (!isFlashed) return;
    void line.offsetWidth;
    line.classList.add('flash');
  }

  /** Return whether the line of a pointer is not folded away. */
  isShown(pointer) {
    const line = this.lines.get(pointer);
    return line !== undefined && line.closest('[hidden]') === null;
  }

  /** Highlight the line of a pointer, or none. */
  highlight(pointer) {
    this.highlighted?.classList.remove('same');
    this.highlighted = this.lines.get(pointer);
    this.highlighted?.classList.add('same');
  }

  /** Open all branches and texts, up to a limit; return whether all are open. */
  expand() {
    let textLeft = MAX_EXPANDED_TEXT;
    for (const branch of this.branches.values()) { // grows while its members are added
      if (this.lines.size > MAX_EXPANDED_LINES) return false;
      this.draw(branch, true);
      for (let more = branch.members.lastElementChild; more?.matches('.jmore') && this.lines.size <= MAX_EXPANDED_LINES; more = branch.members.lastElementChild) more.click();
    }
    for (const text of this.texts) {
      textLeft -= text.size;
      if (textLeft < 0) return false;
      text.setOpen(true);
    }
    return !this.root.querySelector('.jmore');
  }

  /** Close all branches but the root, and all texts. */
  collapse() {
    for (const branch of this.branches.values()) this.draw(branch, branch.path === '');
    for (const text of this.texts) text.setOpen(false);
  }

  line(name, path, depth, content, toggle = null) {
    const line = element('div', { class: 'jl' }, element('span', { class: 'jg', 'aria-hidden': true }), toggle ?? element('span', { class: 'jt-space' }),
      name === null ? null : [element('span', { class: 'jk' }, quote(name)), element('span', { class: 'jp' }, ': ')], content);
    line.style.paddingInlineStart = `calc(${depth} * var(--indent) + var(--gutter))`;
    if (path !== null) {
      this.lines.set(path, line);
      line.dataset.path = path;
    }
    return line;
  }

  /** Add the marks of a path to its line, and a line with the reason of each. */
  decorate(line, path, depth) {
    const marks = this.marks.get(path);
    if (!marks) return [line];
    const [strongest] = [...marks].sort((one, other) => rank(other) - rank(one));
    line.classList.add('marked', strongest.kind, strongest.severity ?? 'unexplained');
    const word = strongest.word ?? WORDS[strongest.kind];
    line.firstChild.replaceWith(this.onChoose ? button(SIGNS[strongest.kind], () => this.onChoose(path), { class: 'jg', 'aria-label': `${word}: show the other side`, title: `${word}: show the other side` }) : element('span', { class: 'jg', 'aria-hidden': true }, SIGNS[strongest.kind]));
    line.append(element('span', { class: 'offscreen' }, ` (${word})`));
    const notes = marks.filter((mark) => mark.reason).map((mark) => {
      const below = mark.pointer !== undefined && mark.pointer !== path ? `${mark.pointer.slice(path.length)} ` : '';
      const note = element('div', { class: `jn ${mark.severity}`, data: { loss: String(mark.loss), path } }, element('span', { class: 'jn-kind' }, mark.word ?? WORDS[mark.kind]), ' ', below && element('code', {}, below), mark.reason);
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
    const setOpen = (shouldOpen) => {
      isOpen = shouldOpen;
      span.replaceChildren();
      span.classList.toggle('block', isOpen);
      const first = quote(value.slice(0, MAX_TEXT)).slice(0, -1);
      span.append(isOpen ? value : `${first}${isLong ? '…' : '"'}`);
      span.append(button(isOpen ? 'less' : isLong ? `${formatCount(value.length)} characters` : 'as text', () => setOpen(!isOpen), { class: 'jx' }));
    };
    setOpen(false);
    this.texts.push({ size: value.length, setOpen });
    return span;
  }
}

const rank = (mark) => (mark.kind === 'only' ? 0 : { error: 4, warning: 3, info: 2 }[mark.severity] ?? 1);
const quote = (text) => JSON.stringify(text);

/** Scroll a line into view: within its pane, if that scrolls by itself. */
function scrollTo(line) {
  const behavior = matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth';
  const scroller = line.closest('.pane-body');
  if (!scroller || scroller.scrollHeight <= scroller.clientHeight + 1) {
    line.scrollIntoView({ block: 'center', behavior });
    return;
  }
  scroller.closest('.pane').scrollIntoView({ block: 'nearest' });
  const [own, frame] = [line.getBoundingClientRect(), scroller.getBoundingClientRect()];
  scroller.scrollTo({ top: scroller.scrollTop + own.top - frame.top - Math.max(0, (frame.height - own.height) / 2), behavior }); // `scrollIntoView` moves one of two panes only
}

/** Return what a closed branch holds, in a few words. */
function preview({ value, isArray, count }) {
  const names = ['type', 'role', 'name', 'id'];
  if (!isArray) {
    const words = names.filter((name) => typeof value[name] === 'string').map((name) => value[name]);
    if (words.length) return `${words.join(' · ').slice(0, 60)} …`;
  }
  return isArray ? `${formatCount(count)} items` : `${Object.keys(value).slice(0, 3).join(', ').slice(0, 60)}${count > 3 ? ', …' : ''}`;
}
