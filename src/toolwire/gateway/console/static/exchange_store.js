// The exchanges that the page knows, filtered and sorted for the list.

import { lossTexts, programTitle, searchText } from './exchange_text.js';

const MAX_EXCHANGES = 20_000;

export const lossWeight = (row) => (row.losses?.error ?? 0) * 1e6 + (row.losses?.warning ?? 0) * 1e3 + (row.losses?.info ?? 0);
export const totalTokens = (row) => (row.input ?? 0) + (row.output ?? 0);

const SORT_KEYS = {
  time: (row) => row.at,
  first: (row) => row.first ?? -1,
  duration: (row) => row.duration ?? 0,
  tokens: totalTokens,
  cost: (row) => row.cost ?? -1,
  losses: lossWeight,
  status: (row) => row.status ?? 0,
};

export const isFailed = (row) => Boolean(row.failed) || row.status >= 400;

const countOf = (losses, severity) => (losses && Object.hasOwn(losses, severity) ? losses[severity] : 0);

/** Return a predicate for a search text: words, and `key:value` for a single column. */
export function compileSearch(text) {
  const tests = text.trim().toLowerCase().split(/\s+/).filter(Boolean).map(compileTerm);
  return (row) => tests.every((test) => test(row));
}

function compileTerm(term) {
  const [, key, value] = /^(\w+):(.+)$/.exec(term) ?? [];
  switch (key) {
    case 'status': return (row) => String(row.status ?? '').startsWith(value.replace(/x+$/, ''));
    case 'provider': return (row) => (row.provider ?? '').toLowerCase().includes(value);
    case 'model': return (row) => `${row.client_model ?? ''} ${row.model ?? ''}`.toLowerCase().includes(value);
    case 'key': return (row) => (row.key ?? '').toLowerCase().includes(value);
    case 'client': return (row) => `${row.client ?? ''} ${row.program ?? ''} ${programTitle(row.program ?? '')}`.toLowerCase().includes(value);
    case 'loss': return (row) => (value === 'any' ? lossWeight(row) > 0 : countOf(row.losses, value) > 0 || lossTexts(row).some((text) => text.toLowerCase().includes(value)));
    case 'is': return (row) => ({ stream: row.streamed, failed: isFailed(row), open: row.is_open, captured: row.has_bodies, bodies: row.has_bodies })[value] === true;
    default: return (row) => searchText(row).includes(term);
  }
}

export class ExchangeStore extends EventTarget {
  constructor() {
    super();
    this.rows = new Map();
    this.waiting = [];
    this.isPaused = false;
    this.isComplete = false;
    this.hasBodies = false;
    this.filter = { search: '', status: 'all', losses: 'all', provider: '' };
    this.sort = { key: 'time', descending: true };
    this.visible = [];
    this.isScheduled = false;
  }

  /** Take a batch of the live feed. */
  addBatch(batch) {
    for (const row of batch.rows) row.worker = batch.worker;
    if (batch.reset) this.forget(batch);
    this.isComplete = batch.complete;
    if (this.isPaused) this.waiting.push(...batch.rows);
    else this.addRows(batch.rows);
    this.schedule();
  }

  /** Drop the exchanges of a worker that was replaced, and of workers that no longer exist. */
  forget({ worker, workers }) {
    const isGone = (row) => row.worker === worker || row.worker >= workers;
    for (const [id, row] of this.rows) if (isGone(row)) this.rows.delete(id);
    this.waiting = this.waiting.filter((row) => !isGone(row));
  }

  addRows(rows) {
    for (const row of rows) {
      const known = this.rows.get(row.id);
      if (known && !known.is_open && row.is_open) continue;
      row.number ??= 0;
      if (known) row.at = known.at; // rows do not jump when they finish
      this.rows.set(row.id, row);
      this.hasBodies ||= Boolean(row.has_bodies);
    }
    while (this.rows.size > MAX_EXCHANGES) this.rows.delete(this.rows.keys().next().value);
    this.dispatchEvent(new CustomEvent('rows', { detail: rows }));
  }

  setPaused(isPaused) {
    this.isPaused = isPaused;
    if (!isPaused) {
      const rows = this.waiting;
      this.waiting = [];
      this.addRows(rows);
    }
    this.schedule();
  }

  setFilter(changes) {
    Object.assign(this.filter, changes);
    this.schedule();
  }

  setSort(key) {
    const isSame = this.sort.key === key;
    this.sort = { key, descending: isSame ? !this.sort.descending : true };
    this.schedule();
  }

  /** Update the visible rows once per frame at most. */
  schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.update();
    });
  }

  update() {
    const { search, status, losses, provider } = this.filter;
    const matches = compileSearch(search);
    const visible = [];
    for (const row of this.rows.values()) {
      if (status === 'ok' && (isFailed(row) || row.is_open)) continue;
      if (status === 'failed' && !isFailed(row)) continue;
      if (status === 'open' && !row.is_open) continue;
      if (losses === 'any' && !lossWeight(row)) continue;
      if (losses === 'error' && !row.losses?.error) continue;
      if (provider && row.provider !== provider) continue;
      if (matches(row)) visible.push(row);
    }
    const key = SORT_KEYS[this.sort.key];
    const sign = this.sort.descending ? -1 : 1;
    visible.sort((one, other) => sign * (key(one) - key(other)) || other.at - one.at || other.number - one.number);
    this.visible = visible;
    this.dispatchEvent(new Event('change'));
  }

  get providers() {
    return [...new Set([...this.rows.values()].map((row) => row.provider).filter(Boolean))].sort();
  }
}
