// The choice of a target for a translation: a configured provider, or a protocol with the profile of a host.

import { read } from './api.js';
import { element, replace } from './dom.js';
import { PROTOCOL_NAMES, protocolTitle } from './format.js';

let hosts = null;

/** Return the host profiles of each protocol. */
export async function loadHosts() {
  hosts ??= (await read('hosts')).hosts;
  return hosts;
}

export class TargetPicker {
  /** `sent` is the provider that got the request. */
  constructor(app, sent, onChoose) {
    this.app = app;
    this.sent = sent;
    this.onChoose = onChoose;
    this.providers = app.session.providers ?? [];
    this.providerPills = element('div', { class: 'pills', role: 'group', 'aria-label': 'Configured providers' });
    this.protocolPills = element('div', { class: 'pills' });
    this.host = element('select', { class: 'select', 'aria-label': 'Host', hidden: true, onchange: () => { this.app.target = { ...this.chosen, host: this.host.value }; this.choose(this.app.target); } });
    this.more = element('details', { class: 'more-targets', open: !this.providers.length }, element('summary', {}, 'Any server that speaks …'), this.protocolPills, this.host);
    this.root = element('div', { class: 'targets', role: 'group', 'aria-label': 'Target' },
      this.providers.length ? this.providerPills : null, this.more);
    this.draw();
  }

  get options() {
    return [
      ...this.providers.map((provider) => ({ key: `provider ${provider.name}`, provider: provider.name, protocol: provider.protocol, title: provider.name })),
      ...PROTOCOL_NAMES.map((protocol) => ({ key: `protocol ${protocol}`, protocol, title: protocolTitle(protocol) })),
    ];
  }

  /** Return the target chosen last on this page; before any choice, the first provider of another protocol. */
  first(protocol) {
    const { options, app: { target } } = this;
    const known = options.find((option) => option.key === target?.key);
    return known ? { ...known, host: target.host } : options.find((option) => option.protocol !== protocol) ?? options[0];
  }

  draw() {
    const pill = (option) => element('button', {
      type: 'button', class: 'pill', 'aria-pressed': String(this.chosen?.key === option.key), title: option.provider ? `${option.title}, ${protocolTitle(option.protocol)}` : option.title, onclick: () => { this.app.target = option; this.choose(option); },
    }, option.title, option.provider && option.provider === this.sent ? element('span', { class: 'pill-note' }, ' · was sent') : null);
    replace(this.providerPills, this.options.filter((option) => option.provider).map(pill));
    replace(this.protocolPills, this.options.filter((option) => !option.provider).map(pill));
  }

  async choose(option) {
    this.chosen = option;
    this.draw();
    this.host.hidden = Boolean(option.provider);
    if (!option.provider) {
      this.more.open = true;
      const known = (await loadHosts())[option.protocol] ?? [];
      const current = option.host ?? '';
      replace(this.host, element('option', { value: '' }, 'the vendor’s own server'), known.map((host) => element('option', { value: host.name, selected: host.name === current }, host.title)));
      this.host.hidden = known.length === 0;
    }
    const host = option.host || null;
    this.onChoose({ title: option.host ? [...this.host.options].find((entry) => entry.value === option.host)?.text ?? option.host : option.title, request: option.provider ? { provider: option.provider } : { target: option.protocol, host } });
  }
}
