// One exchange: its facts, the request and the response on both sides, its streams, and what others would have been sent.

import { act, read } from './api.js';
import { buildComparison } from './comparison.js';
import { curlCommand, keyHeader } from './commands.js';
import { button, copyText, element, icon, iconButton, replace } from './dom.js';
import { lossChips, statusBadge } from './exchange_list.js';
import { costText, programTitle } from './exchange_text.js';
import { formatCount, formatDateTime, formatDuration, formatTime, protocolTitle } from './format.js';
import { countGroups, lossList } from './loss_list.js';
import { buildTimeline } from './timeline.js';

const TABS = [['request', 'Request'], ['response', 'Response'], ['stream', 'Stream'], ['elsewhere', 'Other providers']];

const PURPOSES = {
  request: 'Compare both requests field by field', response: 'Compare both responses field by field', stream: 'See the events of the stream', elsewhere: 'See what another provider would have been sent',
};

/** Build the button that captures the bodies of the next exchanges. */
export const captureButton = (app, onclick = () => {}) => button('Capture bodies for 15 minutes', () => { onclick(); app.switchCapture(); }, { class: 'button primary' });

const requestedModel = (row) => row.client_model || row.model || row.path;

export class ExchangeDetail {
  constructor(app, id, tab, onClose) {
    this.app = app;
    this.id = id;
    this.onClose = onClose;
    this.tab = TABS.some(([name]) => name === tab) ? tab : 'request';
    this.head = element('header', { class: 'detail-head' });
    this.tabs = element('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts of the exchange' });
    this.body = element('div', { class: 'detail-body', role: 'tabpanel', id: 'detail-panel', tabindex: 0 });
    this.root = element('div', { class: 'detail-root' }, this.head, this.tabs, this.body);
    this.abort = new AbortController();
    this.built = {};
    const known = app.store.rows.get(id);
    if (known) this.drawHead(known);
    this.onCapture = () => { if (this.data && !this.data.bodies) this.draw(); };
    addEventListener('capture', this.onCapture);
    this.load();
  }

  close() {
    this.abort.abort();
    removeEventListener('capture', this.onCapture);
  }

  async load() {
    try {
      this.data = await read(`exchanges/${encodeURIComponent(this.id)}`, this.abort.signal);
    } catch (error) {
      if (error.name === 'AbortError') return;
      replace(this.tabs);
      replace(this.head, element('div', { class: 'detail-title' }, element('h2', {}, this.id), iconButton('close', 'Close', this.onClose, { isCompact: true })));
      replace(this.body, element('p', { class: 'hint' }, `${error.message}.`));
      return;
    }
    this.built = {};
    this.drawHead(this.data.row);
    this.drawTabs();
    this.draw();
  }

  /** The row changed: load the details again, unless that is under way. */
  update(row) {
    this.drawHead(row);
    if (!row.is_open || !this.data) this.load();
  }

  drawHead(row) {
    const { data } = this;
    const usage = data?.usage ?? {};
    const facts = [
      ['First token', formatDuration(row.first)],
      ['Total', row.is_open ? 'under way' : formatDuration(row.duration)],
      ['Tokens', row.input === undefined && row.output === undefined ? '' : `${formatCount(row.input ?? 0)} → ${formatCount(row.output ?? 0)}`],
      ['From cache', row.cache_read ? formatCount(row.cache_read) : ''],
      ['Reasoning', usage.reasoning ? formatCount(usage.reasoning) : ''],
      [row.is_simulated ? 'Simulated cost' : 'Cost', costText(row)],
      ['Stop', data?.stop_reasons?.join(', ') ?? ''],
      ['Calls', row.calls ? Object.entries(row.calls).map(([outcome, count]) => `${count} ${outcome.replaceAll('_', ' ')}`).join(', ') : ''],
      ['Failovers', row.failovers ? String(row.failovers) : ''],
      ['Strict', data?.strict ?? ''],
      ['Key', row.key ?? ''],
    ].filter(([, text]) => text);
    const tools = element('div', { class: 'detail-tools' },
      iconButton('copy', 'Copy curl', () => this.copyCurl(), { title: data?.bodies ? 'Copy the client’s request as a curl command (c)' : 'This needs captured bodies', disabled: !data?.bodies }),
      data?.upstream ? iconButton('copy', `Copy curl to ${row.provider}`, () => copyUpstreamCurl(data.upstream, data.bodies.translated), { title: `Copy the request that ${row.provider} was sent as a curl command` }) : null,
      data?.replay ? iconButton('copy', 'Copy replay', () => copyText(`${data.replay} --to PROVIDER/MODEL`, 'Command (without --to, it goes to the same provider)'), { title: 'Copy the command that sends it again, to the same or another provider' }) : null,
      data?.bodies?.request ? this.playgroundLink() : null,
      element('a', { class: 'button', href: `/console/api/export/${encodeURIComponent(this.id)}`, download: `toolwire-${this.id}.zip`, title: 'Download as a zip file for a bug report, without secrets' }, icon('download'), element('span', {}, 'Export')));
    replace(this.head,
      element('div', { class: 'detail-title' }, iconButton('back', 'Back to the list', this.onClose, { isCompact: true, class: 'button compact narrow-only' }), statusBadge(row), element('h2', {}, requestedModel(row)), lossChips(row.losses), iconButton('close', 'Close (Esc)', this.onClose, { isCompact: true, class: 'button compact wide-only push' })),
      element('p', { class: 'detail-path' },
        row.program ? element('strong', { title: row.program }, programTitle(row.program)) : null, row.client ? element('span', { class: 'protocol' }, protocolTitle(row.client)) : null, element('code', {}, `${row.method ?? 'POST'} ${row.path}`),
        row.provider ? [element('span', { class: 'route-arrow', 'aria-label': 'to' }, '→'), element('span', { class: 'protocol' }, protocolTitle(row.protocol)), element('strong', {}, `${row.provider}/${row.model ?? ''}`)] : null),
      row.error ? element('p', { class: 'detail-error', role: 'note' }, row.error) : null,
      element('dl', { class: 'facts' }, facts.map(([name, text]) => element('div', {}, element('dt', {}, name), element('dd', {}, text)))),
      element('div', { class: 'detail-foot' }, tools, element('span', { class: 'detail-id' }, element('time', { title: formatDateTime(row.at) }, formatTime(row.at)), ' ', button(this.id, () => copyText(this.id, 'Id'), { class: 'id-button', title: 'Copy the id' }))));
  }

  drawTabs() {
    const { data } = this;
    const badges = Object.groupBy(data.losses, (loss) => loss.direction);
    replace(this.tabs, TABS.map(([name, label]) => element('button', {
      type: 'button', role: 'tab', class: 'tab', id: `tab-${name}`, 'aria-selected': String(this.tab === name), 'aria-controls': 'detail-panel', tabindex: this.tab === name ? 0 : -1,
      onclick: () => this.selectTab(name), onkeydown: (event) => this.onTabKey(event),
    }, label, badges[name] ? element('span', { class: 'tab-count', title: countGroups(badges[name]) }, String(badges[name].length)) : null)));
    this.body.setAttribute('aria-labelledby', `tab-${this.tab}`);
  }

  onTabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.nextTab(step);
    this.tabs.querySelector('[aria-selected="true"]').focus();
  }

  nextTab(step) {
    const index = TABS.findIndex(([name]) => name === this.tab);
    this.selectTab(TABS[(index + step + TABS.length) % TABS.length][0]);
  }

  selectTab(tab) {
    if (!tab || tab === this.tab || !TABS.some(([name]) => name === tab)) return;
    this.tab = tab;
    history.replaceState(null, '', `#/exchanges/${encodeURIComponent(this.id)}/${tab}`);
    if (!this.data) return;
    this.drawTabs();
    this.draw();
  }

  draw() {
    const { data, tab } = this;
    if (!data) return;
    if (!data.bodies) {
      replace(this.body, this.missingBodies());
      return;
    }
    this.built[tab] ??= { request: () => this.requestTab(), response: () => this.responseTab(), stream: () => buildTimeline({ row: data.row, streams: data.streams, provider: data.row.provider }), elsewhere: () => this.elsewhereTab() }[tab]();
    replace(this.body, this.built[tab]);
    this.body.scrollTop = 0;
  }

  requestTab() {
    const { data } = this;
    const { row, bodies } = data;
    const cut = data.cut?.length ? element('p', { class: 'hint' }, `Too long to show in full: ${data.cut.join(', ')}. The export has everything.`) : null;
    if (!bodies.translated) {
      return element('div', { class: 'fill' }, cut, element('p', { class: 'hint' }, 'Nothing was sent to a provider.'), buildComparison({
        left: { title: 'From the client', subtitle: protocolTitle(row.client), text: bodies.request ?? '', protocol: row.client }, right: { title: 'To the provider', subtitle: 'not sent', text: '', protocol: '' },
        losses: data.losses.filter((loss) => loss.direction === 'request'),
      }).root);
    }
    return element('div', { class: 'fill' }, cut, buildComparison({
      left: { title: 'From the client', subtitle: protocolTitle(row.client), text: bodies.request ?? '', protocol: row.client },
      right: { title: `To ${row.provider}`, subtitle: protocolTitle(row.protocol), text: bodies.translated, protocol: row.protocol },
      losses: data.losses.filter((loss) => loss.direction === 'request'),
      empty: row.client === row.protocol && bodies.request === bodies.translated ? 'Passed through: the bytes are equal.' : 'Nothing was lost in the request.',
    }).root);
  }

  responseTab() {
    const { data } = this;
    const { row, bodies } = data;
    const answers = bodies.answers ?? [];
    const losses = data.losses.filter((loss) => loss.direction === 'response');
    if (!answers.length && !bodies.response) return element('p', { class: 'hint' }, row.is_open ? 'The response has not begun.' : 'There was no response.');
    const sections = answers.slice(0, -1).map((answer, index) => element('details', { class: 'earlier' }, element('summary', {}, `Answer ${index + 1} of ${answers.length}, before the last`), element('pre', { class: 'plain' }, answer)));
    return element('div', { class: 'fill' }, row.streamed ? element('p', { class: 'hint' }, 'Streams are shown as one response here; their events are in the tab Stream.') : null, sections, buildComparison({
      left: { title: `From ${row.provider || 'the gateway'}`, subtitle: row.protocol ? protocolTitle(row.protocol) : '', text: answers.at(-1) ?? '', protocol: row.protocol },
      right: { title: 'To the client', subtitle: protocolTitle(row.client), text: bodies.response ?? '', protocol: row.client },
      losses, empty: 'Nothing was lost in the response.',
    }).root);
  }

  elsewhereTab() {
    const { data, app } = this;
    const area = element('div', { class: 'elsewhere fill' });
    const result = element('div', { class: 'elsewhere-result fill' });
    const status = element('p', { class: 'offscreen', role: 'status' });
    import('./targets.js').then(({ TargetPicker }) => {
      let latest = null;
      const picker = new TargetPicker(app, data.row.provider, async (target) => {
        latest = target;
        replace(result, element('p', { class: 'hint' }, 'Translating …'));
        try {
          const answer = await act('translate', { protocol: data.row.client, body: data.bodies.request ?? '', stream: data.row.streamed ?? false, model: data.row.client_model ?? null, ...target.request });
          if (latest !== target) return; // another one was chosen meanwhile
          replace(result, targetResult(answer.targets[0], target, data));
          status.textContent = `Translated for ${target.title}`;
        } catch (error) {
          if (latest === target) replace(result, element('p', { class: 'problem' }, error.message));
        }
      });
      replace(area, picker.root, status, result);
      picker.choose(picker.first(data.row.protocol));
    });
    return area;
  }

  /** Link to the playground with the client's request. */
  playgroundLink() {
    const { data, app } = this;
    return element('a', { class: 'button', href: '#/playground', 'aria-label': 'Open in playground', title: 'Open in the playground: edit the request, translate it for any provider, and run it', onclick: () => { app.playgroundInput = { protocol: data.row.client, body: data.bodies.request }; } }, icon('external'), element('span', {}, 'Playground'));
  }

  /** Show the losses, which need no bodies, and how to capture bodies. */
  missingBodies() {
    const { data, app, tab } = this;
    const losses = data.losses.filter((loss) => loss.direction === tab);
    const other = tab === 'request' ? 'response' : 'request';
    const target = protocolTitle(tab === 'request' ? data.row.protocol : data.row.client);
    const known = tab === 'request' || tab === 'response' ? [
      element('h3', {}, losses.length ? `Lost in the ${tab}: ${countGroups(losses)}` : `Nothing was lost in the ${tab}`), losses.length ? lossList(losses, null, { target }) : null,
      data.losses.length > losses.length ? element('p', {}, button(`See what was lost in the ${other}`, () => this.selectTab(other), { class: 'link' })) : null,
    ] : null;
    return element('div', { class: 'missing' }, known, element('section', { class: 'capture-box' }, element('h3', {}, PURPOSES[tab]),
      element('p', {}, data.missing_bodies === 'evicted' ? 'This needs the bodies, which were dropped from memory for those of later exchanges. Send the request again.' : 'This needs the bodies, which were not captured for this exchange. Capture them, and send the request again.'),
      this.captureSteps()));
  }

  /** Return the instructions that capture the bodies of the next exchange. */
  captureSteps() {
    const { app } = this;
    if (!app.session.is_admin) return element('p', { class: 'faint' }, 'Ask an admin of this gateway to capture bodies.');
    if (app.isCapturing) {
      const candidates = [...app.store.rows.values()].filter((row) => row.has_bodies && !row.is_open);
      const repeated = candidates.findLast((row) => this.isSameRequester(row));
      const captured = repeated ?? candidates.at(-1);
      this.isWaiting ||= app.capture !== null && this.hasSwitchedOn;
      return [element('p', { class: 'waiting-line' }, element('span', { class: 'pulse', 'aria-hidden': true }), this.isWaiting ? `Send the request again: the next exchange of ${requestedModel(this.data.row)} opens here.` : 'Bodies of new exchanges are captured. Send the request again.'),
        captured ? element('p', {}, element('a', { href: `#/exchanges/${encodeURIComponent(captured.id)}/${this.tab}` }, `Or open ${repeated ? 'the latest captured exchange' : 'a captured exchange of another client or model'}: ${requestedModel(captured)}, ${protocolTitle(captured.client)}, at ${formatTime(captured.at)}`)) : null,
        this.tab === 'elsewhere' ? element('p', {}, element('a', { href: '#/playground' }, 'Or paste a request into the playground')) : null];
    }
    return [captureButton(app, () => { this.hasSwitchedOn = true; }), element('p', { class: 'faint' }, 'Bodies stay in the memory of the gateway. This page never shows keys.')];
  }

  /** Return whether an exchange with bodies repeats the shown one, as the page asked the user to do. */
  awaits(row) {
    return Boolean(this.isWaiting && row.has_bodies && !row.is_open && this.isSameRequester(row));
  }

  /** Return whether an exchange has the client protocol and the model of the shown one. */
  isSameRequester(row) {
    const own = this.data?.row;
    return row.client === own?.client && row.client_model === own?.client_model;
  }

  copyCurl() {
    const { data } = this;
    if (!data?.bodies) return;
    const headers = [['content-type', 'application/json'], ...(data.client_headers ?? [])];
    if (this.app.session.needs_key) headers.push(keyHeader('authorization', 'TOOLWIRE_KEY'));
    copyText(curlCommand(location.origin + data.row.path, headers, data.bodies.request ?? ''), 'Command');
  }
}

/** Copy a request to a provider as a command, which takes the key from a variable. */
function copyUpstreamCurl({ url, headers = [], key_header: name }, body) {
  copyText(curlCommand(url, [...headers, ...(name ? [keyHeader(name, 'KEY')] : [])], body), 'Command');
}

function targetResult(answer, target, data) {
  const refused = answer.refused ? element('p', { class: 'detail-error' }, answer.refused) : null;
  const findings = (answer.findings ?? []).length ? element('div', { class: 'findings' }, element('h3', {}, `${target.title} would refuse it`), element('ul', {}, answer.findings.map((finding) => element('li', { class: finding.level }, element('code', {}, finding.path || '(body)'), ' ', finding.message)))) : null;
  if (answer.refused) return refused;
  return element('div', { class: 'fill' }, findings, buildComparison({
    left: { title: 'From the client', subtitle: protocolTitle(data.row.client), address: `${data.row.method ?? 'POST'} ${data.row.path}`, text: data.bodies.request ?? '', protocol: data.row.client },
    right: { title: `To ${target.title}`, subtitle: [answer.model, protocolTitle(answer.protocol)].filter(Boolean).join(' · '), address: answer.path ? `POST ${answer.path}` : null, text: answer.body, protocol: answer.protocol, tools: answer.upstream ? iconButton('copy', 'curl', () => copyUpstreamCurl(answer.upstream, answer.body), { class: 'button small', title: `Copy this request to ${target.title} as a curl command`, 'aria-label': `Copy curl to ${target.title}` }) : [] },
    losses: answer.losses ?? [], empty: 'Nothing would be lost.', areLossesFolded: true,
  }).root);
}
