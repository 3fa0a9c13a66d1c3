// The texts that the list shows of an exchange. The search looks through the same texts.

import { formatCost, formatDuration, formatTime, formatTokens, plural, protocolTitle } from './format.js';

const PROGRAMS = { 'claude-cli': 'Claude Code', codex_cli_rs: 'Codex', codex_exec: 'Codex', geminicli: 'Gemini CLI', qwencode: 'Qwen Code' };

/** Return the well-known name of a client's program, by the product in its user agent. */
export const programTitle = (program) => PROGRAMS[program.toLowerCase()] ?? program;

/** Name the target in the reason of a loss, which calls it `the target`. */
export const nameTarget = (reason, name) => (name ? reason.replaceAll(/\bthe target( protocol)?\b/g, name) : reason);

/** Describe an exchange: the client's program, protocols, stream, calls and failovers. */
export function describeExchange(row) {
  const calls = Object.values(row.calls ?? {}).reduce((sum, count) => sum + count, 0);
  const protocols = row.protocol && row.protocol !== row.client ? `${row.client} → ${row.protocol}` : row.client;
  return [
    row.program && programTitle(row.program), row.client ? protocols : `${row.method} ${row.path}`, row.streamed && 'stream', calls && plural(calls, 'call'), row.failovers && plural(row.failovers, 'failover'), row.is_simulated && 'simulated', row.key && `key ${row.key}`,
  ].filter(Boolean);
}

/** Format the cost. If the simulator answered, `~` marks the price of the model that it simulates. */
export const costText = (row) => (row.is_simulated && row.cost !== undefined ? `~${formatCost(row.cost)}` : formatCost(row.cost));
export const costTitle = (row) => (row.is_simulated && row.cost !== undefined ? 'Nothing was paid: the simulator answered. The model would cost this.' : null);

export const tokensText = (row) => (row.input === undefined && row.output === undefined ? '' : `${formatTokens(row.input ?? 0)} → ${formatTokens(row.output ?? 0)}`);

/** Name the severities of losses, with their counts. */
export const countLosses = (losses) => ['error', 'warning', 'info'].filter((severity) => losses?.[severity]).map((severity) => plural(losses[severity], severity === 'info' ? 'note' : severity));

/** Return the losses of a row as text: severity, what happened to which field, and why. */
export const lossTexts = (row) => [[row.loss_texts, row.protocol], [row.response_loss_texts, row.client]].flatMap(([texts = [], protocol]) => texts.map((text) => nameTarget(text.replace(/^info /, 'note '), protocol && protocolTitle(protocol))));

const texts = new WeakMap();

/** Return all text of a row, in lower case. */
export function searchText(row) {
  let text = texts.get(row);
  if (text === undefined) {
    text = [
      row.id, row.method, row.path, row.program, row.prompt, row.client_model, `${row.provider ?? ''}/${row.model ?? ''}`, row.status, row.error, row.is_open ? 'under way' : formatDuration(row.duration), formatTime(row.at), formatDuration(row.first),
      tokensText(row), costText(row), ...describeExchange(row), ...countLosses(row.losses), ...lossTexts(row),
    ].join(' ').toLowerCase();
    texts.set(row, text);
  }
  return text;
}

/** Return the first loss that contains a word of the search; undefined if none does. */
export function findLoss(row, search) {
  const words = search.toLowerCase().split(/\s+/).map((word) => word.replace(/^loss:/, '')).filter((word) => word.length > 1);
  return words.length ? lossTexts(row).find((text) => words.some((word) => text.toLowerCase().includes(word))) : undefined;
}
