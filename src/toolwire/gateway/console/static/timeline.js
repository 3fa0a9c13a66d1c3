// The streams of an exchange on one time line: when each event came from the provider, and when it went to the client.

import { element, replace, svg } from './dom.js';
import { formatCount, formatDuration } from './format.js';
import { parseBody } from './comparison.js';
import { JsonTree } from './json_tree.js';

const WIDTH = 1000;
const LANE_HEIGHT = 34;
const MAX_TICKS = 1200;
const MAX_LISTED = 400;

const eventType = (value) => (typeof value === 'object' && value !== null ? value.type ?? value.event_type ?? value.object ?? (value.candidates ? 'candidates' : value.error ? 'error' : value.message ? 'message' : 'event') : value === '[DONE]' ? '[DONE]' : 'text');

/** Return the new text of an event, in any protocol. */
function eventText(value) {
  if (typeof value !== 'object' || value === null) return String(value).slice(0, 200);
  const choice = value.choices?.[0];
  const delta = choice?.delta ?? value.delta;
  const part = value.candidates?.[0]?.content?.parts?.[0];
  const texts = [
    typeof delta === 'string' ? delta : null, delta?.text, delta?.content, delta?.thinking, delta?.partial_json, delta?.reasoning_content,
    delta?.tool_calls?.[0]?.function?.arguments || delta?.tool_calls?.[0]?.function?.name, part?.text, part?.functionCall?.name, value.message?.content,
    value.content_block?.name ?? value.content_block?.type, value.item?.name ?? value.item?.type, choice?.finish_reason, value.delta?.stop_reason,
    value.error?.message,
  ];
  return String(texts.find((text) => typeof text === 'string' && text !== '') ?? '').slice(0, 200).replaceAll('\n', '⏎');
}

function lane(stream, index, scale, marks) {
  const y = 26 + index * LANE_HEIGHT;
  const step = Math.max(1, Math.ceil(stream.events.length / MAX_TICKS));
  return svg('g', { class: `lane lane-${index % 2}` },
    svg('line', { x1: 0, x2: WIDTH, y1: y + 9, y2: y + 9, class: 'lane-line' }),
    stream.events.filter((_, number) => number % step === 0).map((event) => svg('rect', { x: scale(event.at) - 0.75, y, width: 1.5, height: 18, class: 'tick' })),
    marks);
}

export function buildTimeline({ row, streams, provider }) {
  if (!streams?.length) return element('p', { class: 'hint' }, row.streamed ? 'The events of this stream were not captured.' : 'This response was not streamed: it came in one piece.');
  const names = streams.map((stream, index) => (index === streams.length - 1 ? `to the client (${stream.protocol})` : `from ${provider || 'the provider'} (${stream.protocol})${streams.length > 2 ? `, answer ${index + 1}` : ''}`));
  const ends = streams.flatMap((stream) => stream.events.slice(-1).map((event) => event.at));
  const end = Math.max(row.duration ?? 0, ...ends, 0.001);
  const scale = (at) => 2 + (at / end) * (WIDTH - 4);
  const height = 26 + streams.length * LANE_HEIGHT + 6;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${height}`, class: 'timeline', role: 'img', 'aria-label': `Events over ${formatDuration(end)}: ${names.map((name, index) => `${streams[index].events.length} ${name}`).join(', ')}`, preserveAspectRatio: 'none' },
    ticks.map((part) => svg('line', { x1: scale(part * end), x2: scale(part * end), y1: 18, y2: height, class: 'time-line' })),
    row.first === undefined || row.first === null ? null : svg('line', { x1: scale(row.first), x2: scale(row.first), y1: 14, y2: height, class: 'first-line' }),
    streams.map((stream, index) => lane(stream, index, scale)));
  const labels = element('div', { class: 'time-labels', 'aria-hidden': true }, ticks.map((part) => element('span', {}, part === 0 ? '0' : formatDuration(part * end))));
  const facts = element('dl', { class: 'facts' },
    [['First token', formatDuration(row.first)], ...streams.map((stream, index) => [names[index], `${formatCount(stream.events.length + (stream.more ?? 0))} events`]),
      ['Longest gap', longestGap(streams[streams.length - 1].events)], ['Delay added', addedDelay(streams)]].filter(([, text]) => text).map(([name, text]) => element('div', {}, element('dt', {}, name), element('dd', {}, text))));
  return element('div', { class: 'timeline-area' }, facts, element('div', { class: 'timeline-box' },
    element('div', { class: 'lane-names' }, names.map((name, index) => element('span', { class: `lane-name lane-${index % 2}` }, name))), picture, labels), eventTable(streams, names));
}

function longestGap(events) {
  let gap = 0;
  for (let index = 1; index < events.length; index += 1) gap = Math.max(gap, events[index].at - events[index - 1].at);
  return events.length > 1 ? formatDuration(gap) : '';
}

/** Return the time from the provider's first event to the client's first, as text. */
function addedDelay(streams) {
  if (streams.length !== 2 || !streams[0].events.length || !streams[1].events.length) return '';
  const delay = streams[1].events[0].at - streams[0].events[0].at;
  return delay >= 0 ? formatDuration(delay) : '';
}

function eventTable(streams, names) {
  const events = streams.flatMap((stream, index) => stream.events.map((event) => ({ ...event, lane: index, isHidden: stream.is_hidden })));
  events.sort((one, other) => one.at - other.at || one.lane - other.lane);
  const list = element('ol', { class: 'events', 'aria-label': 'Events' });
  const add = (start) => {
    for (const event of events.slice(start, start + MAX_LISTED)) list.append(eventItem(event, names));
    const left = events.length - start - MAX_LISTED;
    if (left > 0) {
      const more = element('li', {}, element('button', { type: 'button', class: 'button', onclick: () => { more.remove(); add(start + MAX_LISTED); } }, `Show more of ${formatCount(left)} events`));
      list.append(more);
    }
  };
  add(0);
  return list;
}

function eventItem(event, names) {
  const value = event.isHidden ? '' : parseBody(event.text);
  const body = element('div', { class: 'event-body' });
  const details = element('details', { class: `event lane-${event.lane % 2}`, ontoggle: () => {
    if (!details.open || body.childNodes.length) return;
    replace(body, event.isHidden ? 'Hidden: a secret is split over the events of this stream.' : typeof value === 'string' ? element('pre', { class: 'plain' }, value) : new JsonTree(value, { label: 'Event' }).root,
      event.cut ? element('p', { class: 'hint' }, `${formatCount(event.cut)} more characters are left out.`) : null);
  } }, element('summary', {},
    element('span', { class: 'event-time' }, formatDuration(event.at)), element('span', { class: 'event-lane', title: names[event.lane] }, event.lane === names.length - 1 ? 'client' : 'provider'),
    element('span', { class: 'event-type' }, event.isHidden ? 'hidden' : eventType(value)), element('span', { class: 'event-text' }, event.isHidden ? '' : eventText(value))), body);
  return element('li', {}, details);
}
