// The view of exchanges: the list, and beside it the exchange that is selected.

import { button, copyText, element, iconButton, replace } from './dom.js';
import { captureButton, ExchangeDetail } from './exchange_detail.js';
import { ExchangeList } from './exchange_list.js';
import { compileSearch } from './exchange_store.js';

export class ExchangesView {
  constructor(app) {
    this.app = app;
    this.list = new ExchangeList(app.store, (id, options) => this.open(id, options));
    this.list.drawEmpty = (area, hasRows) => this.drawEmpty(area, hasRows);
    this.list.drawNote = (area, hasRows) => this.drawNote(area, hasRows);
    this.onCapture = () => app.store.schedule();
    addEventListener('capture', this.onCapture);
    this.side = element('aside', { class: 'detail', 'aria-label': 'Exchange', hidden: true });
    this.root = element('div', { class: 'exchanges' }, element('h1', { class: 'offscreen' }, 'Exchanges'), this.list.root, this.side);
    this.onRows = (event) => {
      const row = event.detail.find((candidate) => candidate.id === this.detail?.id);
      if (row) this.detail.update(row);
      const captured = event.detail.find((candidate) => this.detail?.awaits(candidate));
      if (!captured && event.detail.some((candidate) => candidate.has_bodies)) this.detail?.onCapture(); // offers the latest captured exchange
      if (captured) location.hash = `#/exchanges/${encodeURIComponent(captured.id)}/${this.detail.tab}`;
    };
    app.store.addEventListener('rows', this.onRows);
  }

  navigate([id, tab]) {
    clearTimeout(this.previewTimer); // what is opened now wins over a row that was passed before
    if (!id) {
      this.detail?.close();
      this.detail = null;
      this.side.hidden = true;
      this.root.classList.remove('with-detail');
      this.list.select(null);
      return;
    }
    if (this.detail?.id === id) {
      this.detail.selectTab(tab);
      return;
    }
    const wanted = tab ?? this.detail?.tab;
    this.detail?.close();
    this.detail = new ExchangeDetail(this.app, id, wanted, () => this.dismiss());
    replace(this.side, this.detail.root);
    this.side.hidden = false;
    this.root.classList.add('with-detail');
    this.list.select(id);
  }

  open(id, { isPreview = false } = {}) {
    const hash = `#/exchanges/${encodeURIComponent(id)}`;
    if (isPreview && location.hash.startsWith('#/exchanges')) {
      history.replaceState(null, '', hash);
      clearTimeout(this.previewTimer);
      this.previewTimer = setTimeout(() => this.navigate([id]), 60); // not for each row that is passed over
    } else location.hash = hash;
  }

  dismiss() {
    location.hash = '#/exchanges';
    this.list.grid.focus();
  }

  onKey(event) {
    switch (event.key) {
      case '/': this.list.search.focus(); return true;
      case 'p': this.list.togglePause(); return true;
      case 'j': this.step(1); return true;
      case 'k': this.step(-1); return true;
      case 'Escape': if (this.detail) this.dismiss(); return true;
      case '[': this.detail?.nextTab(-1); return true;
      case ']': this.detail?.nextTab(1); return true;
      case 'c': this.detail?.copyCurl(); return true;
      default: return false;
    }
  }

  /** Select another row, with the focus on the list, so that Enter opens it and presses no button. */
  step(count) {
    this.list.grid.focus({ preventScroll: true });
    this.list.move(count);
  }

  /** Offer to capture bodies, unless they are captured already or the viewer has declined. */
  drawNote(area, hasRows) {
    const { app } = this;
    area.hidden = !hasRows || !app.canCapture || app.isCapturing || app.hasDeclinedCapture;
    if (area.hidden) return;
    const text = `${app.store.hasBodies ? 'New bodies' : 'Bodies'} are not captured. With them, you can compare requests, and see what another provider would be sent.`;
    if (area.firstChild?.textContent === text) return;
    replace(area, element('span', {}, text), captureButton(app),
      iconButton('close', 'Not now', () => { app.hasDeclinedCapture = true; app.store.schedule(); }, { isCompact: true }));
  }

  /** Return searches that find something. */
  searchExamples() {
    const rows = [...this.app.store.rows.values()];
    return ['claude', 'top_k', 'rate limit', 'status:4xx', 'is:captured', rows[0].id].filter((example) => rows.some(compileSearch(example)));
  }

  drawEmpty(area, hasRows) {
    if (hasRows) {
      const { search } = this.app.store.filter;
      replace(area, element('h2', {}, 'No exchange matches'),
        search.trim() ? element('p', {}, 'Words of messages are found only in captured exchanges: the first words of the last message. The search finds models, programs, errors, lost fields and ids, for example ',
          this.searchExamples().map((example, index) => [index ? ', ' : null, button(element('code', {}, example), () => this.list.searchFor(example), { class: 'link' })]), '.') : null,
        element('p', {}, 'Change the search or the filters.'),
        button('Show all', () => { this.list.search.value = ''; this.app.store.setFilter({ search: '', status: 'all', losses: 'all', provider: '' }); for (const select of [this.list.status, this.list.losses, this.list.provider]) select.selectedIndex = 0; }));
      return;
    }
    const { app } = this;
    const { origin } = location;
    const key = app.session.needs_key ? '$TOOLWIRE_KEY' : 'none';
    const keyHeader = app.session.needs_key ? ` -H "x-api-key: ${key}"` : '';
    const samples = [
      ['Claude Code', `ANTHROPIC_BASE_URL=${origin} ANTHROPIC_AUTH_TOKEN=${key} claude`],
      ['Codex', `codex -c openai_base_url=${origin}/v1`],
      ['Any OpenAI client', `OPENAI_BASE_URL=${origin}/v1 OPENAI_API_KEY=${key} python your_agent.py`],
      ['curl', `curl ${origin}/v1/messages${keyHeader} -H 'content-type: application/json' -d '{"model": "any", "max_tokens": 200, "top_k": 5, "messages": [{"role": "user", "content": "Hello"}]}'`],
    ];
    replace(area, element('h2', {}, 'Waiting for the first request'), element('p', {}, 'Every request through this gateway appears here as it happens.'),
      app.canCapture ? element('div', { class: 'capture-box' },
        element('p', {}, app.isCapturing ? 'Bodies are captured: each exchange can be compared field by field, and translated for other providers.' : 'To compare requests and responses field by field, and to see what other providers would be sent, capture the bodies as well. They stay in the memory of the gateway.'),
        app.isCapturing ? null : captureButton(app)) : null,
      element('h3', {}, 'Point a client here'),
      element('dl', { class: 'samples' }, samples.map(([name, command]) => [element('dt', {}, name), element('dd', {}, element('code', {}, command), button('Copy', () => copyText(command, 'Command'), { 'aria-label': `Copy the command for ${name}` }))])));
  }

  close() {
    this.detail?.close();
    this.list.close();
    this.app.store.removeEventListener('rows', this.onRows);
    removeEventListener('capture', this.onCapture);
  }
}
