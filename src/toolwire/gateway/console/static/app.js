// The console: one page with four views, addressed by the part after `#`.

import { Feed, readSession, signIn, signOut, whenSignedOut, act } from './api.js';
import { button, element, iconButton, replace, toast } from './dom.js';
import { ExchangeStore } from './exchange_store.js';
import { ExchangesView } from './exchanges.js';
import { plural } from './format.js';

const VIEWS = [
  { name: 'exchanges', label: 'Exchanges', load: async () => ExchangesView },
  { name: 'playground', label: 'Playground', load: async () => (await import('./playground.js')).PlaygroundView },
  { name: 'runs', label: 'Runs', isForAdmins: true, load: async () => (await import('./runs.js')).RunsView },
  { name: 'status', label: 'Status', load: async () => (await import('./status.js')).StatusView },
];
const CAPTURE_SECONDS = 15 * 60;
const THEMES = ['auto', 'light', 'dark'];

const decodePart = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // malformed: the user typed the address
  }
};

class App {
  constructor() {
    this.store = new ExchangeStore();
    this.main = document.getElementById('view');
    this.capture = null;
    this.feedState = 'connecting';
    this.applyTheme(this.readTheme());
    addEventListener('hashchange', () => this.route());
    addEventListener('keydown', (event) => this.onKey(event));
    whenSignedOut(() => this.showSignIn());
  }

  async start() {
    try {
      this.session = await readSession();
    } catch (error) {
      replace(this.main, element('div', { class: 'notice' }, element('h1', {}, 'The gateway does not answer'), element('p', {}, error.message), button('Try again', () => this.start())));
      return;
    }
    if (!this.session.signed_in) {
      this.showSignIn();
      return;
    }
    this.buildBar();
    this.setCapture(this.session.capture);
    this.feed?.close();
    this.feed = new Feed((batch) => this.onBatch(batch), (state, problem) => this.setFeedState(state, problem));
    await this.route();
  }

  onBatch(batch) {
    if (batch.capture !== undefined) this.setCapture(batch.capture);
    this.store.addBatch(batch);
  }

  // ---- the bar

  buildBar() {
    const views = VIEWS.filter((view) => this.session.is_admin || !view.isForAdmins);
    replace(document.getElementById('views'), views.map((view) => element('a', { href: `#/${view.name}`, class: 'view-link', data: { view: view.name } }, view.label)));
    this.captureButton = this.session.is_admin ? button('', () => this.switchCapture(), { class: 'button capture' }) : null;
    this.state = element('span', { class: 'feed-state', role: 'status' });
    this.themeButton = iconButton('theme', 'Colors: automatic', () => this.nextTheme(), { isCompact: true });
    replace(document.getElementById('tools'), this.state, this.captureButton, this.themeButton,
      iconButton('keyboard', 'Keyboard shortcuts', () => this.showKeys(), { isCompact: true, class: 'button compact wide-only' }),
      this.session.needs_key ? iconButton('out', 'Sign out', () => this.leave(), { isCompact: true }) : null);
    this.setFeedState(this.feedState);
    this.applyTheme(this.readTheme());
  }

  setFeedState(state, problem) {
    this.feedState = state;
    if (!this.state) return;
    this.state.className = `feed-state ${state}`;
    replace(this.state, element('span', { class: 'feed-dot', 'aria-hidden': true }), element('span', { class: 'feed-text' }, state === 'live' ? 'Live' : state === 'lost' ? problem ?? 'Reconnecting' : 'Connecting'));
  }

  /** Show for how long bodies are captured; null means always. */
  setCapture(seconds) {
    this.capture = seconds;
    this.captureEndsAt = seconds ? Date.now() + seconds * 1000 : 0;
    this.drawCapture();
  }

  get isCapturing() {
    return this.capture === null || this.captureEndsAt > Date.now();
  }

  /** Whether this viewer may turn capturing on and off. */
  get canCapture() {
    return this.session.is_admin && this.capture !== null;
  }

  drawCapture() {
    clearTimeout(this.captureTimer);
    if (!this.captureButton) return;
    const left = Math.max(0, (this.captureEndsAt - Date.now()) / 1000);
    const isOn = this.isCapturing;
    this.captureButton.classList.toggle('on', isOn);
    this.captureButton.disabled = this.capture === null;
    this.captureButton.title = this.capture === null ? 'The configuration captures the bodies of all exchanges'
      : isOn ? 'Stop capturing the bodies of exchanges' : 'Keep the bodies of the next exchanges in memory, for 15 minutes';
    replace(this.captureButton, element('span', { class: 'record-dot', 'aria-hidden': true }), element('span', { class: 'capture-text' }, this.capture === null ? 'Capturing bodies' : isOn ? `Stop capturing, ${left < 60 ? `${Math.ceil(left)} s` : `${Math.ceil(left / 60)} min`} left` : 'Capture bodies'));
    if (left > 0) this.captureTimer = setTimeout(() => this.drawCapture(), left < 61 ? 1000 : 15_000);
    dispatchEvent(new Event('capture'));
  }

  async switchCapture(seconds = CAPTURE_SECONDS) {
    try {
      this.setCapture((await act('capture', { seconds: this.isCapturing ? 0 : seconds })).capture);
      toast(this.isCapturing ? `bodies of new exchanges are captured for ${plural(Math.round(this.capture / 60), 'minute')}` : 'bodies are no longer captured');
    } catch (error) {
      toast(error.message);
    }
  }

  // ---- views

  async route() {
    if (!this.session?.signed_in) return;
    const [name, ...rest] = (location.hash.replace(/^#\/?/, '') || 'exchanges').split('/');
    const view = VIEWS.find((candidate) => candidate.name === name && (this.session.is_admin || !candidate.isForAdmins)) ?? VIEWS[0];
    for (const link of document.querySelectorAll('.view-link')) {
      if (link.dataset.view === view.name) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    const argument = rest.map(decodePart);
    document.title = `${view.label} · toolwire`;
    if (this.view?.name === view.name) {
      this.view.navigate(argument);
      return;
    }
    const View = await view.load();
    this.view?.close?.();
    this.view = new View(this);
    this.view.name = view.name;
    replace(this.main, this.view.root);
    this.view.navigate(argument);
  }

  // ---- sign-in

  showSignIn() {
    this.feed?.close();
    this.view?.close?.();
    this.view = null;
    this.session = null;
    this.store = new ExchangeStore();
    replace(document.getElementById('views'));
    replace(document.getElementById('tools'));
    const field = element('input', { type: 'password', id: 'key', autocomplete: 'current-password', class: 'text-input', spellcheck: 'false' });
    const problem = element('p', { class: 'problem', role: 'alert' });
    const submit = async (event) => {
      event.preventDefault();
      problem.textContent = '';
      try {
        await signIn(field.value);
        await this.start();
      } catch (error) {
        problem.textContent = error.message;
        field.select();
      }
    };
    replace(this.main, element('form', { class: 'sign-in', onsubmit: submit },
      element('h1', {}, 'Sign in'), element('p', {}, 'This gateway requires a key. It shows you the exchanges that were made with the same key.'),
      element('label', { for: 'key' }, 'Key'), field, problem, element('button', { type: 'submit', class: 'button primary' }, 'Sign in')));
    field.focus();
  }

  async leave() {
    await signOut();
    this.showSignIn();
  }

  // ---- colors

  readTheme() {
    try {
      return localStorage.getItem('toolwire-theme') ?? 'auto';
    } catch {
      return 'auto';
    }
  }

  nextTheme() {
    const next = THEMES[(THEMES.indexOf(this.readTheme()) + 1) % THEMES.length];
    try {
      localStorage.setItem('toolwire-theme', next);
    } catch { /* not stored, but applied */ }
    this.applyTheme(next);
    toast(`colors: ${next === 'auto' ? 'as in the system' : next}`);
  }

  applyTheme(theme) {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    this.themeButton?.setAttribute('aria-label', `Colors: ${theme === 'auto' ? 'automatic' : theme}`);
  }

  // ---- keyboard

  onKey(event) {
    if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
    if (event.target.matches?.('input, textarea, select, [contenteditable]')) return;
    const views = { 1: 'exchanges', 2: 'playground', 3: 'runs', 4: 'status' };
    if (event.key in views && this.session) location.hash = `#/${views[event.key]}`;
    else if (event.key === '?') this.showKeys();
    else if (!this.view?.onKey?.(event)) return;
    event.preventDefault();
  }

  showKeys() {
    const keys = [['j k ↓ ↑', 'next or previous exchange'], ['Enter', 'open the selected exchange'], ['Esc', 'close it'], ['[ ]', 'previous or next tab of an exchange'], ['/', 'search'], ['p', 'pause or resume the list'], ['c', 'copy as curl'], ['1 2 3 4', 'exchanges, playground, runs, status'], ['?', 'this list']];
    const dialog = element('dialog', { class: 'dialog', 'aria-label': 'Keyboard shortcuts', onclose: () => dialog.remove(), onclick: (event) => { if (event.target === dialog) dialog.close(); } },
      element('h2', {}, 'Keyboard'), element('dl', { class: 'keys' }, keys.map(([key, text]) => [element('dt', {}, key.split(' ').map((one) => element('kbd', {}, one))), element('dd', {}, text)])),
      button('Close', () => dialog.close()));
    document.body.append(dialog);
    dialog.showModal();
  }
}

new App().start();
