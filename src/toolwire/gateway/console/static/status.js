// Status: usage and cost over time, providers with circuit breakers and call quality, limits, and what doctor says.

import { act, read } from './api.js';
import { buildChart } from './chart.js';
import { button, element, replace } from './dom.js';
import { isFailed, lossWeight, totalTokens } from './exchange_store.js';
import { costText, countLosses } from './exchange_text.js';
import { formatBytes, formatCost, formatCount, formatDuration, formatTokens, plural, protocolTitle } from './format.js';

const REFRESH = 3000;

export class StatusView {
  constructor(app) {
    this.app = app;
    this.charts = element('div', { class: 'charts' });
    this.top = element('div', {});
    this.models = element('div', {});
    this.providers = element('div', {});
    this.limits = element('div', {});
    this.findings = element('div', { 'aria-live': 'polite' });
    this.version = element('p', { class: 'faint' });
    const { is_admin: isAdmin } = app.session;
    this.doctor = button('Run the checks', () => this.diagnose(), { class: 'button' });
    this.root = element('div', { class: 'page', tabindex: 0, role: 'region', 'aria-label': 'Status' }, element('div', { class: 'page-inner' },
      element('header', { class: 'page-head' }, element('h1', {}, 'Status'), this.version),
      element('section', {}, element('h2', {}, isAdmin ? 'Usage' : 'Usage of this key'), this.top, this.charts),
      element('section', {}, element('h2', {}, 'Models'), this.models),
      isAdmin ? [element('section', {}, element('h2', {}, 'Providers'), this.providers),
        element('section', {}, element('h2', {}, 'Limits'), this.limits),
        element('section', {}, element('header', { class: 'section-head' }, element('h2', {}, 'Doctor'), this.doctor), element('p', { class: 'hint' }, 'Asks each provider for its list of models, which is free, and checks files, keys and routes.'), this.findings)] : null));
    this.onChange = () => this.scheduleUsage();
    app.store.addEventListener('rows', this.onChange);
    this.timer = setInterval(() => { if (!document.hidden) this.load(); }, REFRESH);
  }

  navigate() {
    this.drawUsage();
    this.load();
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.usageTimer);
    this.app.store.removeEventListener('rows', this.onChange);
  }

  scheduleUsage() {
    this.usageTimer ??= setTimeout(() => { this.usageTimer = null; this.drawUsage(); }, 800);
  }

  drawUsage() {
    const rows = [...this.app.store.rows.values()].filter((row) => row.client && !row.is_open);
    if (!rows.length) {
      const text = this.app.store.isComplete ? 'No exchanges yet.' : 'Loading …';
      replace(this.top, element('p', { class: 'hint' }, text));
      replace(this.charts);
      replace(this.models, element('p', { class: 'hint' }, text));
      return;
    }
    const sum = (value) => rows.reduce((total, row) => total + (value(row) ?? 0), 0);
    const dearest = rows.reduce((most, row) => ((row.cost ?? 0) > (most.cost ?? 0) ? row : most));
    const slowest = rows.reduce((most, row) => ((row.duration ?? 0) > (most.duration ?? 0) ? row : most));
    const lossiest = rows.reduce((most, row) => (lossWeight(row) > lossWeight(most) ? row : most));
    const tile = (label, row, text) => element('a', { class: 'tile', href: `#/exchanges/${encodeURIComponent(row.id)}` }, element('span', { class: 'tile-label' }, label), element('span', { class: 'tile-value' }, text), element('span', { class: 'tile-note' }, row.client_model || row.model || row.path));
    replace(this.top, element('div', { class: 'tiles' },
      dearest.cost ? tile('Most expensive', dearest, costText(dearest)) : null, tile('Slowest', slowest, formatDuration(slowest.duration)),
      lossWeight(lossiest) ? tile('Most losses', lossiest, countLosses(lossiest.losses).join(', ')) : null));
    const costs = rows.filter((row) => row.cost !== undefined);
    const costName = costs.every((row) => row.is_simulated) ? 'Simulated cost' : 'Cost';
    const failed = rows.filter(isFailed).length;
    replace(this.charts,
      buildChart({ title: 'Requests', total: `${formatCount(rows.length)}${failed ? `, ${formatCount(failed)} failed` : ''}`, rows, series: { succeeded: (row) => (isFailed(row) ? 0 : 1), failed: (row) => (isFailed(row) ? 1 : 0) }, format: (value) => formatCount(Math.round(value)) }),
      buildChart({ title: 'Tokens', total: formatTokens(sum(totalTokens)), rows, series: { input: (row) => row.input, output: (row) => row.output }, format: (value) => formatTokens(Math.round(value)) }),
      costs.length ? buildChart({ title: costName, total: formatCost(sum((row) => row.cost)), rows, series: { cost: (row) => row.cost }, format: formatCost }) : null);
    replace(this.models, modelTable(rows));
  }

  async load() {
    let status;
    try {
      status = await read('status');
    } catch {
      return; // the state of the feed shows it
    }
    replace(this.version, `toolwire ${status.version}, up for ${formatUptime(status.uptime)}`);
    if (!status.providers) return;
    replace(this.providers, table(['Provider', 'Protocol', 'Circuit breaker', '#Requests', '#Failed', '#Tokens', 'Calls'], status.providers.map((provider) => [
      [element('strong', {}, provider.name), element('div', { class: 'faint' }, provider.address)],
      [protocolTitle(provider.protocol), provider.host ? element('div', { class: 'faint' }, provider.host) : null],
      provider.open_breakers?.length ? element('span', { class: 'status bad' }, `open: ${provider.open_breakers.map((model) => model || 'all models').join(', ')}`) : element('span', { class: 'status good' }, 'closed'),
      formatCount(provider.requests ?? 0), formatCount(provider.failed ?? 0),
      `${formatTokens(provider.input ?? 0)} → ${formatTokens(provider.output ?? 0)}`,
      [callQuality(provider.calls ?? {}), Object.entries(provider.refused_settings ?? {}).map(([name, count]) => element('div', { class: 'faint' }, `refused ${name} ${plural(count, 'time')}`)), Object.entries(provider.failovers ?? {}).map(([reason, count]) => element('div', { class: 'faint' }, `${plural(count, 'failover')}: ${reason}`))],
    ])));
    replace(this.limits, table(['Limit', '#Used', '#Of', ''], status.limits.map((limit) => {
      const show = limit.unit === 'bytes' ? formatBytes : formatCount;
      const share = limit.limit ? limit.used / limit.limit : 0;
      return [limit.name, show(limit.used), limit.limit === undefined ? '' : show(limit.limit), limit.limit === undefined ? (limit.dropped ? `${formatCount(limit.dropped)} dropped` : '') : meter(share, limit.name)];
    })));
  }

  async diagnose() {
    this.doctor.disabled = true;
    replace(this.findings, element('p', { class: 'hint' }, 'Asking the providers …'));
    try {
      const { findings } = await act('diagnose', {});
      replace(this.findings, element('ul', { class: 'doctor' }, findings.map((finding) => element('li', {}, element('span', { class: `status ${finding.advice ? 'bad' : 'good'}` }, finding.advice ? 'problem' : 'ok'), element('span', {}, element('strong', {}, finding.subject), ` ${finding.detail}`, finding.advice ? element('div', {}, finding.advice) : null)))));
    } catch (error) {
      replace(this.findings, element('p', { class: 'problem' }, error.message));
    } finally {
      this.doctor.disabled = false;
    }
  }
}

function callQuality(calls) {
  const total = Object.values(calls).reduce((sum, count) => sum + count, 0);
  if (!total) return element('span', { class: 'faint' }, 'none');
  const invalid = Object.entries(calls).filter(([outcome, count]) => outcome !== 'valid' && count);
  return [`${formatCount(calls.valid ?? 0)} of ${formatCount(total)} valid`, invalid.map(([outcome, count]) => element('div', { class: 'faint' }, `${count} ${outcome.replaceAll('_', ' ')}`))];
}

function meter(share, name) {
  const fill = element('span', { class: `meter-fill ${share > 0.9 ? 'full' : ''}` });
  fill.style.inlineSize = `${Math.min(100, share * 100)}%`;
  return element('span', { class: 'meter', role: 'img', 'aria-label': `${name}: ${Math.round(share * 100)} %` }, fill);
}

/** Build a table; a heading that begins with # is of numbers. */
function table(headings, rows) {
  return element('div', { class: 'table-box', tabindex: 0, role: 'region', 'aria-label': `Table: ${headings[0]}` }, element('table', {}, element('thead', {}, element('tr', {}, headings.map((heading) => element('th', { scope: 'col', class: heading.startsWith('#') ? 'number' : null }, heading.replace('#', ''))))),
    element('tbody', {}, rows.map((cells) => element('tr', {}, cells.map((cell, index) => element('td', { class: headings[index].startsWith('#') ? 'number' : null }, cell)))))));
}

function modelTable(rows) {
  const models = new Map();
  for (const row of rows) {
    if (!row.provider) continue;
    const name = `${row.provider}/${row.model ?? ''}`;
    const known = models.get(name) ?? { requests: 0, failed: 0, tokens: 0, cost: 0, hasCost: false, durations: [], firsts: [] };
    known.requests += 1;
    known.failed += isFailed(row) ? 1 : 0;
    known.tokens += totalTokens(row);
    known.cost += row.cost ?? 0;
    known.hasCost ||= row.cost !== undefined;
    known.durations.push(row.duration ?? 0);
    if (row.first !== undefined) known.firsts.push(row.first);
    models.set(name, known);
  }
  const sorted = [...models].sort(([, one], [, other]) => other.cost - one.cost || other.requests - one.requests);
  return table(['Model', '#Requests', '#Failed', '#Tokens', '#Cost', '#First token, median', '#Total, median', '#Total, 95 %'], sorted.map(([name, model]) => [
    name, formatCount(model.requests), formatCount(model.failed), formatTokens(model.tokens), model.hasCost ? formatCost(model.cost) : '', formatDuration(quantile(model.firsts, 0.5)), formatDuration(quantile(model.durations, 0.5)), formatDuration(quantile(model.durations, 0.95)),
  ]));
}

function quantile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(share * (sorted.length - 1))];
}

const formatUptime = (seconds) => (seconds < 3600 ? formatDuration(seconds) : seconds < 172_800 ? `${Math.floor(seconds / 3600)} hours` : `${Math.floor(seconds / 86_400)} days`);
