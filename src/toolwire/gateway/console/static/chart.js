// Plots as SVG: bars over time, stacked by series.

import { element, replace, svg } from './dom.js';
import { formatTime } from './format.js';

const WIDTH = 600;
const HEIGHT = 120;
const BUCKETS = 40;

/** Return a step of 1, 2 or 5 times a power of ten that is at least the value. */
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= value * 0.999) ?? value;
}

/** Sum values of rows in equal parts of time. `series` maps a name to a function of a row. */
export function bucketRows(rows, series) {
  const [start, end] = rows.reduce(([first, last], row) => [Math.min(first, row.at), Math.max(last, row.at)], [Infinity, -Infinity]);
  const width = Math.max((end - start) / BUCKETS, 0.5);
  const names = Object.keys(series);
  const buckets = Array.from({ length: BUCKETS }, (_, index) => ({ at: start + index * width, rows: 0, values: names.map(() => 0) }));
  for (const row of rows) {
    const bucket = buckets[Math.min(BUCKETS - 1, Math.floor((row.at - start) / width))];
    bucket.rows += 1;
    names.forEach((name, index) => { bucket.values[index] += series[name](row) ?? 0; });
  }
  return { buckets, names, width };
}

const seriesClass = (name, index) => (name === 'failed' ? 'failed' : `series-${index}`);

/** Build a figure with bars. */
export function buildChart({ title, total, rows, series, format }) {
  const { buckets, names, width } = bucketRows(rows, series);
  const most = Math.max(...buckets.map((bucket) => bucket.values.reduce((sum, value) => sum + value, 0)));
  const top = most > 0 ? niceCeiling(most) : 1;
  const barWidth = WIDTH / BUCKETS;
  const hint = element('span', { class: 'chart-hint' });
  const bars = buckets.flatMap((bucket, position) => {
    let bottom = HEIGHT;
    return bucket.values.map((value, index) => {
      const height = (value / top) * HEIGHT;
      bottom -= height;
      return height > 0 ? svg('rect', { x: position * barWidth + 1, y: bottom, width: Math.max(1, barWidth - 2), height, class: `column ${seriesClass(names[index], index)}` }) : null;
    });
  });
  const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'chart', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: ${total}` },
    [0.5, 1].map((part) => svg('line', { x1: 0, x2: WIDTH, y1: HEIGHT * (1 - part) + 0.5, y2: HEIGHT * (1 - part) + 0.5, class: 'time-line' })), bars, svg('line', { x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5, class: 'base-line' }));
  picture.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect();
    const bucket = buckets[Math.max(0, Math.min(BUCKETS - 1, Math.floor(((event.clientX - box.left) / box.width) * BUCKETS)))];
    replace(hint, `${formatTime(bucket.at)}: ${names.map((name, index) => `${names.length > 1 ? `${name} ` : ''}${format(bucket.values[index])}`).join(', ')}`);
  });
  picture.addEventListener('pointerleave', () => replace(hint));
  return element('figure', { class: 'figure' },
    element('figcaption', {}, element('span', { class: 'figure-title' }, title), element('span', { class: 'figure-total' }, total), hint),
    element('div', { class: 'chart-box' }, picture, element('span', { class: 'axis-top' }, format(top))),
    element('div', { class: 'time-labels', 'aria-hidden': true }, element('span', {}, formatTime(buckets[0].at)), names.length > 1 ? element('span', { class: 'series-names' }, names.map((name, index) => element('span', { class: `series-name ${seriesClass(name, index)}` }, name))) : null, element('span', {}, formatTime(buckets[0].at + width * BUCKETS))));
}
