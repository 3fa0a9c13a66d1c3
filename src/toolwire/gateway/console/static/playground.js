// The playground: a body of any protocol in every other one, with the losses and what the target would refuse.

import { act } from './api.js';
import { buildComparison, parseBody } from './comparison.js';
import { button, copyText, element, icon, replace } from './dom.js';
import { PROTOCOL_NAMES, plural, protocolTitle } from './format.js';
import { loadHosts } from './targets.js';

const DELAY = 250;
const EXAMPLES = {
  'A request with a tool': ['anthropic', {
    model: 'claude-sonnet-4-5', max_tokens: 1024, top_k: 40, system: [{ type: 'text', text: 'You are a careful assistant.', cache_control: { type: 'ephemeral' } }],
    tools: [{ name: 'get_weather', description: 'Get the current weather in a city.', input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }],
    messages: [{ role: 'user', content: 'Should I take an umbrella to Oslo today?' }],
  }],
  'A tool call and its result': ['openai-chat', {
    model: 'gpt-5.5', seed: 7, messages: [
      { role: 'user', content: 'Should I take an umbrella to Oslo today?' },
      { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city": "Oslo"}' } }] },
      { role: 'tool', tool_call_id: 'call_1', content: '{"temperature": 7, "rain": true}' }],
    tools: [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } }, strict: true } }],
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object', properties: { umbrella: { type: 'boolean' } } } } },
  }],
  'Thinking and a picture': ['gemini', {
    contents: [{ role: 'user', parts: [{ text: 'What is in this picture?' }, { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==' } }] }],
    generationConfig: { thinkingConfig: { thinkingBudget: 1024, includeThoughts: true }, topK: 20, responseMimeType: 'application/json' }, safetySettings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }],
  }],
  'A response to continue': ['openai-responses', { model: 'gpt-5.5', previous_response_id: null, input: 'Summarize the plot of Hamlet.', truncation: 'auto', reasoning: { effort: 'high' }, text: { verbosity: 'low' } }],
};

/** Guess the protocol of a body by its members; null if nothing speaks for one. */
export function guessProtocol(body) {
  if (typeof body !== 'object' || body === null) return null;
  if ('contents' in body) return 'gemini';
  if ('input' in body) return 'system_instruction' in body || 'generation_config' in body || 'agent' in body ? 'gemini-interactions' : 'openai-responses';
  if (!Array.isArray(body.messages)) return null;
  const tools = Array.isArray(body.tools) ? body.tools : [];
  const isBlock = (part) => ['tool_use', 'tool_result', 'thinking', 'image', 'document'].includes(part?.type);
  if ('system' in body || 'top_k' in body || tools.some((tool) => tool?.input_schema) || body.messages.some((message) => Array.isArray(message?.content) && message.content.some(isBlock))) return 'anthropic';
  if ('options' in body || 'keep_alive' in body) return 'ollama';
  if ('provider' in body || 'plugins' in body || Array.isArray(body.models)) return 'openrouter';
  return 'openai-chat';
}

export class PlaygroundView {
  constructor(app) {
    this.app = app;
    const given = app.playgroundInput;
    app.playgroundInput = null;
    const [protocol, body] = given ? [given.protocol, pretty(given.body)] : [EXAMPLES['A request with a tool'][0], JSON.stringify(EXAMPLES['A request with a tool'][1], null, 2)];
    this.protocol = element('select', { class: 'select', 'aria-label': 'Protocol of the body', onchange: () => { this.isChosen = true; this.update(0); } }, PROTOCOL_NAMES.map((name) => element('option', { value: name, selected: name === protocol }, protocolTitle(name))));
    this.text = element('textarea', { class: 'editor', 'aria-label': 'Body', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', oninput: () => this.onInput(), onkeydown: (event) => this.onEditorKey(event) });
    this.text.value = body;
    this.isChosen = Boolean(given);
    this.example = element('select', { class: 'select', 'aria-label': 'Examples', onchange: () => this.choose(this.example.value) }, element('option', { value: '' }, 'Examples'), Object.keys(EXAMPLES).map((name) => element('option', { value: name }, name)));
    this.host = element('select', { class: 'select', onchange: () => this.update(0) });
    this.problem = element('p', { class: 'problem', role: 'alert' });
    this.own = element('div');
    this.pills = element('div', { class: 'pills', role: 'tablist', 'aria-label': 'Target protocol' });
    this.result = element('div', { class: 'playground-result', role: 'tabpanel', id: 'playground-panel', tabindex: 0 });
    this.runTarget = element('select', { class: 'select' });
    this.runButton = button([icon('play'), element('span', {}, 'Run')], () => this.run(), { class: 'button primary' });
    this.runResult = element('div', { class: 'run-result', 'aria-live': 'polite' });
    this.target = PROTOCOL_NAMES.find((name) => name !== protocol);
    this.root = element('div', { class: 'page playground' }, element('h1', { class: 'offscreen' }, 'Playground'),
      element('section', { class: 'editor-pane', 'aria-label': 'Body to translate' },
        element('div', { class: 'editor-tools' }, this.protocol, this.example, button('Format', () => { this.text.value = pretty(this.text.value); this.update(0); })), this.text, this.problem, this.own),
      element('section', { class: 'target-pane', 'aria-label': 'Translations' }, element('h2', { class: 'offscreen' }, 'Translations'), this.pills,
        element('div', { class: 'run-tools' }, element('label', { class: 'labelled' }, 'Host', this.host), element('span', { class: 'push' }), element('label', { class: 'labelled' }, 'Run on', this.runTarget), this.runButton), this.runResult, this.result));
    this.drawRunTargets();
    this.update(0);
  }

  navigate() {}

  close() {
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  choose(name) {
    if (!name) return;
    const [protocol, body] = EXAMPLES[name];
    this.protocol.value = protocol;
    this.text.value = JSON.stringify(body, null, 2);
    this.isChosen = false;
    if (this.target === protocol) this.target = PROTOCOL_NAMES.find((other) => other !== protocol);
    this.update(0);
  }

  onInput() {
    if (!this.isChosen || !this.text.value.trim()) {
      const guessed = guessProtocol(parseBody(this.text.value));
      if (guessed) this.protocol.value = guessed;
    }
    this.update(DELAY);
  }

  onEditorKey(event) {
    if (event.key === 'Enter' && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      this.run();
    }
  }

  drawRunTargets() {
    const providers = this.app.session.providers ?? [];
    replace(this.runTarget, element('option', { value: '' }, 'Simulator, here in the gateway'), providers.map((provider) => element('option', { value: provider.name }, `${provider.name}${provider.model ? ` (${provider.model})` : ''}`)));
  }

  /** Translate again, once no key was pressed for a while. */
  update(delay) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.translate(), delay);
  }

  async translate() {
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    const body = this.text.value;
    this.problem.textContent = '';
    try {
      JSON.parse(body);
    } catch (error) {
      this.problem.textContent = `Not JSON yet: ${error.message}`;
      return;
    }
    try {
      const answer = await act('translate', { protocol: this.protocol.value, body }, abort.signal);
      this.targets = answer.targets;
      this.findings = answer.findings;
      await this.refreshTarget(abort.signal);
    } catch (error) {
      if (error.name !== 'AbortError') this.problem.textContent = error.message;
    }
  }

  /** Translate for the chosen host, if there is one, and draw. */
  async refreshTarget(signal) {
    const known = (await loadHosts())[this.target] ?? [];
    const chosen = known.some((host) => host.name === this.host.value) ? this.host.value : '';
    replace(this.host, element('option', { value: '' }, 'the vendor’s own'), known.map((host) => element('option', { value: host.name, selected: host.name === chosen }, host.title)));
    this.host.disabled = known.length === 0;
    this.answer = this.targets.find((target) => target.protocol === this.target);
    if (chosen) {
      const answer = await act('translate', { protocol: this.protocol.value, body: this.text.value, target: this.target, host: chosen }, signal);
      [this.answer] = answer.targets;
    }
    this.draw();
  }

  draw() {
    const source = this.protocol.value;
    replace(this.own, this.findings.length ? findingList(`${protocolTitle(source)} itself would refuse this body`, this.findings) : null);
    replace(this.pills, this.targets.map((target) => {
      const serious = (target.losses ?? []).filter((loss) => loss.severity !== 'info').length;
      const isRefused = target.refused || (target.findings ?? []).length;
      const note = target.refused ? 'not possible' : isRefused ? 'would be refused' : serious ? plural(serious, 'loss', 'losses') : 'nothing lost';
      return element('button', {
        type: 'button', class: 'pill', role: 'tab', id: `target-${target.protocol}`, 'aria-selected': String(target.protocol === this.target), 'aria-controls': 'playground-panel', title: note, tabindex: target.protocol === this.target ? 0 : -1,
        onclick: () => this.selectTarget(target.protocol), onkeydown: (event) => this.onPillKey(event),
      }, protocolTitle(target.protocol), isRefused ? element('span', { class: 'chip error' }, '✕') : serious ? element('span', { class: 'chip warning' }, String(serious)) : element('span', { class: 'chip good', 'aria-hidden': true }, '✓'), element('span', { class: 'offscreen' }, `, ${note}`));
    }));
    this.result.setAttribute('aria-labelledby', `target-${this.target}`);
    const { answer } = this;
    if (answer.refused) {
      replace(this.result, element('p', { class: 'detail-error' }, answer.refused));
      return;
    }
    const title = this.host.value ? this.host.selectedOptions[0].text : protocolTitle(answer.protocol);
    replace(this.result, (answer.findings ?? []).length ? findingList(`${title} would refuse it`, answer.findings) : null, buildComparison({
      left: { title: 'Source', subtitle: protocolTitle(source), text: this.text.value, protocol: source },
      right: { title: `To ${title}`, subtitle: answer.path ?? '', text: answer.body, protocol: answer.protocol },
      losses: answer.losses ?? [], empty: 'Nothing is lost.',
    }).root);
  }

  selectTarget(protocol) {
    this.target = protocol;
    this.refreshTarget();
  }

  onPillKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const index = PROTOCOL_NAMES.indexOf(this.target);
    this.target = PROTOCOL_NAMES[(index + step + PROTOCOL_NAMES.length) % PROTOCOL_NAMES.length];
    this.refreshTarget().then(() => this.pills.querySelector('[aria-selected="true"]').focus());
  }

  async run() {
    const provider = this.runTarget.value || null;
    this.runButton.disabled = true;
    replace(this.runResult, element('p', { class: 'hint' }, 'Running …'));
    try {
      const result = await act('run', { protocol: this.protocol.value, body: this.text.value, provider, target: provider ? null : this.target, host: provider ? null : this.host.value || null });
      const isGood = result.status < 300;
      replace(this.runResult, element('details', { class: 'run-answer', open: true },
        element('summary', {}, element('span', { class: `status ${isGood ? 'good' : 'bad'}` }, String(result.status)), ` ${provider ?? `Simulator as ${this.host.value ? this.host.selectedOptions[0].text : protocolTitle(this.target)}`}`,
          result.exchange ? [' · ', element('a', { href: `#/exchanges/${result.exchange}` }, 'see the exchange')] : null),
        buildComparison({
          left: { title: provider ? `From ${provider}` : 'From the simulator', subtitle: protocolTitle(result.protocol), text: result.answer || result.response, protocol: provider ? this.protocol.value : result.protocol },
          right: { title: 'As the client gets it', subtitle: protocolTitle(this.protocol.value), text: result.response, protocol: this.protocol.value },
          losses: result.losses ?? [], empty: isGood ? 'Nothing is lost in the response.' : 'The request was refused.',
        }).root));
    } catch (error) {
      replace(this.runResult, element('p', { class: 'problem' }, error.message));
    } finally {
      this.runButton.disabled = false;
    }
  }

  onKey(event) {
    if (event.key !== 'c' || !this.answer?.body) return false;
    copyText(this.answer.body, 'Translation');
    return true;
  }
}

function findingList(title, findings) {
  return element('div', { class: 'findings' }, element('h3', {}, title), element('ul', {}, findings.map((finding) => element('li', {}, element('code', {}, finding.path || '(body)'), ' ', finding.message))));
}

function pretty(text) {
  const value = parseBody(text);
  try {
    return typeof value === 'string' ? text : JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
