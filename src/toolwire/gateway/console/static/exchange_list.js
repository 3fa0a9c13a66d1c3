// The list of exchanges. Only the rows in view exist as elements.

import { button, element, icon, iconButton, replace, svg } from './dom.js';
import { isFailed } from './exchange_store.js';
import { costText, costTitle, describeExchange, findLoss, tokensText } from './exchange_text.js';
import { formatCount, formatDateTime, formatDuration, formatTime, plural } from './format.js';

const ROW_HEIGHT = 52;
const HEADER_HEIGHT = 33;
const OVERSCAN = 6;

const COLUMNS = [
  { key: 'time', label: 'Time' },
  { key: 'status', label: 'Status' },
  { key: null, label: 'Exchange' },
  { key: 'first', label: 'First token', isNumber: true },
  { key: 'duration', label: 'Total', isNumber: true },
  { key: 'tokens', label: 'Tokens', isNumber: true },
  { key: 'cost', label: 'Cost', isNumber: true },
  { key: 'losses', label: 'Losses', isNumber: true },
];

/** The menu of sort orders: a narrow list does not show all columns to click on. */
const SORTS = [['time', 'By time'], ['cost', 'By cost'], ['duration', 'By duration'], ['tokens', 'By tokens'], ['losses', 'By losses'], ['status', 'By status']];

/** Build the label of a keyboard shortcut. */
export const keyHint = (key) => element('kbd', { class: 'key-hint', 'aria-hidden': true }, key);

const buildKeyHints = () => element('p', { class: 'key-hints', 'aria-hidden': true },
  [['j k', 'move'], ['Enter', 'open'], ['[ ]', 'tabs'], ['Esc', 'close'], ['?', 'all keys']].map(([keys, text]) => element('span', {}, keys.split(' ').map((key) => element('kbd', {}, key)), text)));

/** Chips with the number of losses of each severity. */
export function lossChips(losses) {
  const chips = element('span', { class: 'loss-chips' });
  for (const [severity, sign] of [['error', '✕'], ['warning', '!'], ['info', 'i']]) {
    const count = losses?.[severity] ?? 0;
    if (count) chips.append(element('span', { class: `chip ${severity}`, title: plural(count, severity === 'info' ? 'note' : severity) }, element('span', { class: 'chip-sign', 'aria-hidden': true }, sign), String(count), element('span', { class: 'offscreen' }, ` ${severity}`)));
  }
  return chips;
}

/** The status of a row as a badge; the shape differs, not only the color. */
export function statusBadge(row) {
  if (row.is_open) return element('span', { class: 'status open', title: 'under way' }, element('span', { class: 'pulse', 'aria-hidden': true }), row.streamed ? 'stream' : 'open');
  const isBad = isFailed(row);
  const kind = isBad ? 'bad' : 'good';
  return element('span', { class: `status ${kind}`, title: row.error || (isBad ? 'failed' : 'succeeded') }, `${row.status || '—'}${row.failed && row.status < 400 ? '!' : ''}`);
}

/** The path of an exchange: the model asked for, and the provider and model that answered. */
export function routeLine(row) {
  const asked = row.client_model || row.model || row.path;
  const answered = row.provider ? `${row.provider}/${row.model || ''}` : '';
  const isSame = answered === asked || row.model === asked;
  return element('span', { class: 'route' },
    element('span', { class: 'route-asked' }, asked),
    row.has_bodies ? element('span', { class: 'captured', title: 'Bodies captured', role: 'img', 'aria-label': 'bodies captured' }, '{ }') : null,
    answered && answered !== asked ? [element('span', { class: 'route-arrow', 'aria-hidden': true }, '→'), element('span', { class: 'route-answered' }, isSame ? row.provider : answered)] : null);
}

/** Describe an exchange in the second line of its row. A narrow list shows there what it has no columns for, and cuts what comes last. */
function rowDetail(row) {
  const fact = (name, text) => (text ? element('span', { class: `fact-${name}` }, `${text} · `) : null);
  const [first, ...rest] = describeExchange(row);
  return [fact('time', formatTime(row.at)), element('span', { title: row.program }, first), rest.length ? ' · ' : null, fact('cost', costText(row)), fact('total', row.is_open || row.prompt ? '' : formatDuration(row.duration)), row.prompt ? [element('span', { class: 'row-prompt', title: row.prompt }, `“${row.prompt}”`), ' · '] : null, rest.join(' · ')];
}

export class ExchangeList {
  constructor(store, onOpen) {
    this.store = store;
    this.onOpen = onOpen;
    this.selectedId = null;
    this.elements = new Map();
    this.spacer = element('div', { class: 'rows-spacer', role: 'rowgroup' });
    this.empty = element('div', { class: 'empty', hidden: true });
    this.note = element('div', { class: 'list-note', hidden: true });
    this.header = element('div', { class: 'row row-header', role: 'row' });
    this.scroller = element('div', { class: 'rows', onscroll: () => this.scheduleDraw() }, element('div', { role: 'rowgroup', class: 'header-group' }, this.header), this.spacer);
    this.grid = element('div', { class: 'grid', role: 'grid', 'aria-label': 'Exchanges', tabindex: 0, onkeydown: (event) => this.onKey(event) },
      this.scroller);
    this.root = element('section', { class: 'list', 'aria-label': 'List of exchanges' }, this.buildToolbar(), this.note, this.grid, this.empty, buildKeyHints());
    this.onChange = () => this.refresh();
    store.addEventListener('change', this.onChange);
    this.resizes = new ResizeObserver(() => this.scheduleDraw());
    this.resizes.observe(this.scroller);
    this.buildHeader();
    store.schedule();
  }

  close() {
    this.store.removeEventListener('change', this.onChange);
    this.resizes.disconnect();
  }

  buildToolbar() {
    const { filter } = this.store;
    this.search = element('input', {
      type: 'search', class: 'search-input', placeholder: 'Search models, errors, lost fields', title: 'Words, or status:4xx, provider:…, model:…, client:…, key:…, loss:…, is:stream, is:captured', 'aria-label': 'Search exchanges', value: filter.search, autocomplete: 'off', spellcheck: 'false',
      oninput: () => this.store.setFilter({ search: this.search.value }),
      onkeydown: (event) => { if (event.key === 'Escape' || event.key === 'Enter' || event.key === 'ArrowDown') { event.preventDefault(); event.stopPropagation(); this.grid.focus(); } },
    });
    const select = (label, key, options) => {
      const created = element('select', { 'aria-label': label, class: 'select', onchange: () => this.store.setFilter({ [key]: created.value }) },
        options.map(([value, text]) => element('option', { value, selected: filter[key] === value }, text)));
      return created;
    };
    this.status = select('Status', 'status', [['all', 'Status'], ['ok', 'Succeeded'], ['failed', 'Failed'], ['open', 'Under way']]);
    this.losses = select('Losses', 'losses', [['all', 'Losses'], ['any', 'With losses'], ['error', 'With errors']]);
    this.provider = select('Provider', 'provider', [['', 'Provider']]);
    this.sort = element('select', { 'aria-label': 'Sort', class: 'select narrow-sort', onchange: () => { this.store.setSort(this.sort.value); this.buildHeader(); } },
      SORTS.map(([value, text]) => element('option', { value }, text)));
    this.pause = iconButton('pause', 'Pause', () => this.togglePause(), { 'aria-pressed': 'false', title: 'Pause the list (p)' });
    this.count = element('span', { class: 'count', role: 'status', 'aria-live': 'off' });
    return element('div', { class: 'toolbar' },
      element('label', { class: 'search' }, icon('search'), this.search, keyHint('/')), this.status, this.losses, this.provider, this.sort, this.pause, this.count);
  }

  searchFor(text) {
    this.search.value = text;
    this.search.focus();
    this.store.setFilter({ search: text });
  }

  togglePause() {
    this.store.setPaused(!this.store.isPaused);
  }

  buildHeader() {
    const { sort } = this.store;
    this.sort.value = sort.key;
    replace(this.header, COLUMNS.map(({ key, label, isNumber }, index) => {
      const isSorted = key !== null && sort.key === key;
      const content = key === null ? label : button([label, svg('svg', { viewBox: '0 0 8 8', class: isSorted ? 'sort-mark' : 'sort-mark idle', 'aria-hidden': 'true' }, svg('path', { d: isSorted && !sort.descending ? 'M1 6h6L4 1z' : 'M1 2h6L4 7z' }))], () => { this.store.setSort(key); this.buildHeader(); }, { class: 'sort', title: `Sort by ${label.toLowerCase()}` });
      return element('div', { class: `cell c${index} ${isNumber ? 'number' : ''}`, role: 'columnheader', 'aria-sort': isSorted ? (sort.descending ? 'descending' : 'ascending') : null }, content);
    }));
  }

  refresh() {
    const { store } = this;
    const providers = store.providers;
    if (providers.join('\n') !== this.providerNames) {
      this.providerNames = providers.join('\n');
      replace(this.provider, element('option', { value: '' }, 'Provider'), providers.map((name) => element('option', { value: name, selected: store.filter.provider === name }, name)));
    }
    this.provider.hidden = providers.length < 2;
    const total = store.rows.size;
    const waiting = store.waiting.length;
    this.count.textContent = store.visible.length === total ? plural(total, 'exchange') : `${formatCount(store.visible.length)} of ${formatCount(total)}`;
    this.pause.setAttribute('aria-pressed', String(store.isPaused));
    replace(this.pause, icon(store.isPaused ? 'play' : 'pause'), element('span', { class: 'pause-text' }, store.isPaused ? (waiting ? `Resume, ${formatCount(waiting)} new` : 'Resume') : 'Pause'), keyHint('p'));
    const isEmpty = store.visible.length === 0;
    this.empty.hidden = !isEmpty;
    this.grid.hidden = isEmpty;
    if (isEmpty) this.drawEmpty?.(this.empty, total > 0);
    this.drawNote?.(this.note, total > 0);
    this.anchor();
    this.spacer.style.height = `${store.visible.length * ROW_HEIGHT}px`;
    this.grid.setAttribute('aria-rowcount', String(store.visible.length + 1));
    this.draw();
  }

  /** Keep the rows in view in place when others are added above them. */
  anchor() {
    const top = this.scroller.scrollTop;
    const { visible } = this.store;
    if (top > 4 && this.firstShown) {
      const index = visible.findIndex((row) => row.id === this.firstShown.id);
      if (index >= 0) {
        this.spacer.style.height = `${visible.length * ROW_HEIGHT}px`;
        const shifted = index * ROW_HEIGHT + this.firstShown.offset;
        if (Math.abs(shifted - top) > 1) this.scroller.scrollTop = shifted;
      }
    }
  }

  scheduleDraw() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.draw();
    });
  }

  draw() {
    const { visible, filter: { search } } = this.store;
    const top = this.scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(visible.length, Math.ceil((top + this.scroller.clientHeight) / ROW_HEIGHT) + OVERSCAN);
    const atTop = visible[Math.floor(top / ROW_HEIGHT)];
    this.firstShown = atTop && { id: atTop.id, offset: top % ROW_HEIGHT };
    const shown = new Set();
    for (let index = first; index < last; index += 1) {
      const row = visible[index];
      shown.add(row.id);
      let entry = this.elements.get(row.id);
      if (entry === undefined || entry.row !== row || entry.search !== search) {
        const created = this.buildRow(row);
        if (entry === undefined) this.spacer.append(created);
        else entry.element.replaceWith(created);
        entry = { row, search, element: created };
        this.elements.set(row.id, entry);
      }
      entry.element.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
      entry.element.setAttribute('aria-rowindex', String(index + 2));
      const isSelected = row.id === this.selectedId;
      entry.element.classList.toggle('selected', isSelected);
      entry.element.setAttribute('aria-selected', String(isSelected));
    }
    for (const [id, entry] of this.elements) {
      if (!shown.has(id)) {
        entry.element.remove();
        this.elements.delete(id);
      }
    }
    const selected = this.selectedId && shown.has(this.selectedId) ? `row-${this.selectedId}` : null;
    if (selected) this.grid.setAttribute('aria-activedescendant', selected);
    else this.grid.removeAttribute('aria-activedescendant');
  }

  buildRow(row) {
    const loss = findLoss(row, this.store.filter.search);
    const detail = loss ? element('span', { class: `row-loss ${loss.split(' ')[0]}` }, loss) : row.error && isFailed(row) ? element('span', { class: 'row-error' }, row.error) : rowDetail(row);
    const cell = (index, content, isNumber = false, title = null) => element('div', { class: `cell c${index} ${isNumber ? 'number' : ''}`, role: 'gridcell', title }, content);
    return element('div', { class: 'row', role: 'row', id: `row-${row.id}`, onclick: () => { this.select(row.id); this.onOpen(row.id); this.grid.focus({ preventScroll: true }); } },
      cell(0, formatTime(row.at), false, formatDateTime(row.at)),
      cell(1, statusBadge(row)),
      cell(2, [routeLine(row), element('div', { class: 'row-detail' }, detail)]),
      cell(3, formatDuration(row.first), true),
      cell(4, row.is_open ? '' : formatDuration(row.duration), true),
      cell(5, tokensText(row), true, row.cache_read ? `${formatCount(row.cache_read)} tokens read from the prompt cache` : null),
      cell(6, costText(row), true, costTitle(row)),
      cell(7, lossChips(row.losses), true));
  }

  select(id) {
    this.selectedId = id;
    this.draw();
  }

  /** Move the selection, and open what is selected. */
  move(step) {
    const { visible } = this.store;
    if (!visible.length) return;
    const current = visible.findIndex((row) => row.id === this.selectedId);
    const index = current < 0 ? 0 : Math.max(0, Math.min(visible.length - 1, current + step));
    this.reveal(index);
    this.select(visible[index].id);
    this.onOpen(visible[index].id, { isPreview: true });
  }

  reveal(index) {
    const top = index * ROW_HEIGHT;
    const { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + ROW_HEIGHT > scroller.scrollTop + scroller.clientHeight - HEADER_HEIGHT) scroller.scrollTop = top + ROW_HEIGHT - scroller.clientHeight + HEADER_HEIGHT;
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW_HEIGHT) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps && !event.target.matches('select, input')) {
      event.preventDefault();
      this.move(steps[event.key]);
    } else if (event.key === 'Enter' && this.selectedId && event.target === this.grid) {
      event.preventDefault();
      this.onOpen(this.selectedId);
    }
  }
}
