// Runs of agents, to read: turns, calls with their results, screenshots, and approvals that wait.

import { read } from './api.js';
import { quoteShell } from './commands.js';
import { parseBody } from './comparison.js';
import { button, copyText, element, icon, replace } from './dom.js';
import { formatDateTime, formatDuration, formatTokens, plural } from './format.js';
import { JsonTree } from './json_tree.js';

const STATES = { finished: 'good', running: 'open', queued: 'open', waiting: 'waiting', failed: 'bad' };
const REFRESH = 4000;

const stateBadge = (state) => element('span', { class: `status ${STATES[state] ?? 'waiting'}` }, state);

export class RunsView {
  constructor() {
    this.list = element('div', { class: 'run-list' });
    this.detail = element('div', { class: 'run-detail' });
    this.root = element('div', { class: 'runs' }, element('h1', { class: 'offscreen' }, 'Runs'), element('nav', { class: 'run-nav', 'aria-label': 'Runs' }, this.list), element('section', { class: 'run-main', tabindex: 0, 'aria-label': 'Run' }, this.detail));
    this.timer = setInterval(() => { if (!document.hidden) this.load(); }, REFRESH);
  }

  close() {
    clearInterval(this.timer);
  }

  navigate([id]) {
    this.id = id ?? null;
    this.shown = null;
    this.root.classList.toggle('with-detail', Boolean(id));
    this.load();
  }

  async load() {
    try {
      const runs = await read('runs');
      this.drawList(runs);
      if (this.id) {
        const run = await read(`runs/${encodeURIComponent(this.id)}`);
        const text = JSON.stringify(run);
        if (text !== this.shown) {
          this.shown = text;
          this.drawRun(run);
        }
      } else replace(this.detail, runs.length ? element('p', { class: 'hint' }, 'Choose a run.') : null);
    } catch (error) {
      replace(this.detail, element('p', { class: 'problem' }, error.message));
    }
  }

  drawList(runs) {
    const key = JSON.stringify([runs, this.id]);
    if (key === this.listKey) return;
    this.listKey = key;
    if (!runs.length) {
      replace(this.list, element('div', { class: 'empty' }, element('h2', {}, 'No runs yet'), element('p', {}, 'Runs of agents appear here once one was recorded:'), element('code', {}, 'toolwire ask "What is in this folder?"')));
      return;
    }
    replace(this.list, element('ol', {}, runs.map((run) => element('li', { class: run.id.includes('/') ? 'nested' : null }, element('a', { class: 'run-link', href: `#/runs/${encodeURIComponent(run.id)}`, 'aria-current': run.id === this.id ? 'true' : null },
      element('span', { class: 'run-prompt' }, run.prompt || `calls of ${run.agent || 'a client'}`),
      element('span', { class: 'run-facts' }, stateBadge(run.state), element('span', { class: 'run-model' }, run.model || '—'), element('time', {}, formatDateTime(run.at))))))));
  }

  drawRun(run) {
    const waiting = run.turns.flatMap((turn) => turn.calls).filter((call) => call.state === 'waiting');
    const facts = [['Started', formatDateTime(run.at)], ['Model', run.model], ['Agent', run.agent], ['Workspace', run.workspace], ['Turns', String(run.turns.length)],
      ['Tokens', run.usage ? `${formatTokens(run.usage.input ?? 0)} → ${formatTokens(run.usage.output ?? 0)}` : '']].filter(([, text]) => text);
    replace(this.detail, element('header', { class: 'run-head' },
      element('div', { class: 'detail-title' }, element('a', { class: 'button compact narrow-only', href: '#/runs', 'aria-label': 'Back to the list' }, icon('back')), stateBadge(run.state), element('h2', {}, run.id), button([icon('copy'), element('span', {}, 'Copy replay')], () => copyText(`toolwire runs replay ${quoteShell(run.id)}`, 'Command'), { class: 'button push' })),
      element('dl', { class: 'facts' }, facts.map(([name, text]) => element('div', {}, element('dt', {}, name), element('dd', {}, text)))),
      run.reason ? element('p', { class: 'hint' }, run.reason) : null,
      waiting.length ? element('div', { class: 'waiting-note' }, element('h3', {}, `${plural(waiting.length, 'call')} ${waiting.length === 1 ? 'waits' : 'wait'} for approval`), element('p', {}, 'Approve at the terminal:'), waiting.map((call) => element('p', {}, element('code', {}, call.command), button('Copy', () => copyText(call.command, 'Command'), { 'aria-label': `Copy the command for ${call.tool}` })))) : null),
    element('section', { class: 'message user' }, element('h3', {}, 'Prompt'), element('p', { class: 'prose' }, run.prompt)),
    run.turns.map((turn) => this.drawTurn(run, turn)));
  }

  drawTurn(run, turn) {
    return element('section', { class: 'turn' },
      element('header', {}, element('h3', {}, `Turn ${turn.turn}`), element('span', { class: 'faint' }, [turn.seconds === null ? 'not answered' : formatDuration(turn.seconds), turn.usage ? `${formatTokens(turn.usage.input ?? 0)} → ${formatTokens(turn.usage.output ?? 0)} tokens` : null].filter(Boolean).join(' · '))),
      turn.thinking ? element('details', { class: 'thinking' }, element('summary', {}, 'Thinking'), element('p', { class: 'prose' }, turn.thinking)) : null,
      turn.text ? element('p', { class: 'prose' }, turn.text) : null,
      turn.calls.map((call) => this.drawCall(run, call)));
  }

  drawCall(run, call) {
    const argumentsValue = parseBody(call.arguments || '{}');
    const kind = { ok: 'good', waiting: 'waiting', 'not finished': 'open' }[call.state] ?? 'bad';
    const notes = [call.seconds === undefined ? null : formatDuration(call.seconds), call.decision ?? call.approval, call.error].filter(Boolean).join(' · ');
    return element('details', { class: `call ${call.is_nested ? 'nested' : ''}`, open: call.state === 'waiting' || (call.pictures ?? []).length > 0 },
      element('summary', {}, element('span', { class: `status ${kind}` }, call.state), element('code', { class: 'call-name' }, call.tool), element('span', { class: 'call-arguments' }, typeof argumentsValue === 'string' ? argumentsValue : shorten(argumentsValue)), element('span', { class: 'faint push' }, notes)),
      element('div', { class: 'call-body' },
        call.reason ? element('p', { class: 'hint' }, call.reason) : null,
        call.preview ? element('pre', { class: 'plain' }, call.preview) : null,
        element('h4', {}, 'Arguments'), typeof argumentsValue === 'string' ? element('pre', { class: 'plain' }, argumentsValue) : new JsonTree(argumentsValue, { label: 'Arguments' }).root,
        call.result === undefined ? null : [element('h4', {}, 'Result'), element('pre', { class: 'plain result' }, call.result || '(empty)')],
        (call.pictures ?? []).map((number) => element('img', { class: 'screenshot', src: `/console/api/pictures/${encodeURIComponent(run.id)}/${number}`, alt: `Screenshot after ${call.tool}`, loading: 'lazy' }))));
  }
}

const shorten = (value) => JSON.stringify(value).slice(0, 160);
