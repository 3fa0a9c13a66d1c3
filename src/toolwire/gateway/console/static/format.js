// Numbers, times and names as the console shows them.

const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const DATE_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23' });
const COUNT = new Intl.NumberFormat('en-US');

export const formatTime = (seconds) => TIME.format(seconds * 1000);
export const formatDateTime = (seconds) => DATE_TIME.format(seconds * 1000);
export const formatCount = (count) => COUNT.format(count);

/** Format seconds as `12 ms`, `1.24 s` or `2 m 05 s`. */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return '';
  if (seconds < 0.0095) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} m ${String(whole % 60).padStart(2, '0')} s`;
}

/** Format a number of tokens: exact below 10,000, then `12.3k`, `1.2M`. */
export function formatTokens(tokens) {
  if (tokens === null || tokens === undefined) return '';
  if (tokens < 10_000) return COUNT.format(tokens);
  if (tokens < 1e6) return `${(tokens / 1000).toFixed(tokens < 1e5 ? 1 : 0)}k`;
  return `${(tokens / 1e6).toFixed(2)}M`;
}

/** Format US dollars with two significant digits below a cent. */
export function formatCost(cost) {
  if (cost === null || cost === undefined) return '';
  if (cost === 0) return '$0';
  if (cost < 0.00001) return '<$0.00001';
  if (cost < 0.01) return `$${cost.toPrecision(2)}`.replace(/e.*/, '');
  return `$${cost.toFixed(cost < 1 ? 4 : 2)}`;
}

export function formatBytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

export const plural = (count, noun, nouns = `${noun}s`) => `${formatCount(count)} ${count === 1 ? noun : nouns}`;

const PROTOCOLS = {
  anthropic: 'Anthropic Messages', 'openai-chat': 'Chat Completions', 'openai-responses': 'Responses', gemini: 'Gemini',
  'gemini-interactions': 'Gemini Interactions', ollama: 'Ollama', openrouter: 'OpenRouter',
};
export const PROTOCOL_NAMES = Object.keys(PROTOCOLS);

/** Return the name of a protocol for people. */
export const protocolTitle = (protocol) => PROTOCOLS[protocol] ?? protocol;
