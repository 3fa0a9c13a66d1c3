// Elements are built from text only: nothing in the console is ever parsed as HTML.

/** Create an element. Children are nodes or text; `null` and `false` are left out. */
export function element(tag, properties = {}, ...children) {
  const created = document.createElement(tag);
  setProperties(created, properties);
  append(created, children);
  return created;
}

const SVG = 'http://www.w3.org/2000/svg';

/** Create an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const created = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) created.setAttribute(name, value);
  }
  append(created, children);
  return created;
}

const ALLOWED_ATTRIBUTES = /^(aria-[a-z]+|role|for|type|placeholder|title|tabindex|colspan|scope|spellcheck|autocomplete|autocapitalize|rows|min|max|step|name|download|open|lang|inputmode|alt|loading|width|height)$/;

function setProperties(created, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) created.addEventListener(name.slice(2), value);
    else if (name === 'class') created.className = value;
    else if (name === 'data') Object.assign(created.dataset, value);
    else if (name === 'href') created.setAttribute('href', safeLink(value));
    else if (name === 'src') created.setAttribute('src', safeSource(value));
    else if (name === 'value' || name === 'checked' || name === 'disabled' || name === 'hidden' || name === 'selected') created[name] = value;
    else if (name === 'id' || ALLOWED_ATTRIBUTES.test(name)) created.setAttribute(name, value === true && !name.startsWith('aria-') ? '' : String(value));
    else throw new Error(`attribute ${name} is not allowed`);
  }
}

/** Links stay on this page, or are downloads from this server. */
function safeLink(link) {
  if (link.startsWith('#') || link.startsWith('/console/')) return link;
  throw new Error('only links within the console are allowed');
}

function safeSource(source) {
  if (source.startsWith('/console/')) return source;
  throw new Error('only images of the console are allowed');
}

function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace all children of an element. */
export function replace(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

/** Create a button; `label` is its accessible name if the text is only a symbol. */
export function button(text, onclick, properties = {}) {
  return element('button', { type: 'button', class: 'button', onclick, ...properties }, text);
}

const ICONS = {
  pause: 'M8 5v14M16 5v14', play: 'M8 5l10 7-10 7z', copy: 'M9 9h10v10H9zM5 15V5h10', close: 'M6 6l12 12M18 6L6 18',
  search: 'M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5', theme: 'M12 4a8 8 0 100 16V4z', download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  back: 'M15 5l-7 7 7 7', record: 'M12 7a5 5 0 100 10 5 5 0 000-10z', arrow: 'M4 12h15M13 6l6 6-6 6', keyboard: 'M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8', external: 'M7 17L17 7M9 7h8v8', 
  widen: 'M9 6l-6 6 6 6M15 6l6 6-6 6M3 12h18', narrow: 'M3 6l6 6-6 6M21 6l-6 6 6 6', out: 'M10 5H5v14h5M14 8l4 4-4 4M18 12H9',
};

/** Create an icon, hidden from assistive technology. */
export function icon(name) {
  return svg('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true' }, svg('path', { d: ICONS[name] }));
}

/** Create a button with an icon, and a text unless `isCompact`. */
export function iconButton(name, label, onclick, { isCompact = false, ...properties } = {}) {
  return button([icon(name), isCompact ? null : element('span', {}, label)], onclick, {
    title: properties.title ?? label, 'aria-label': isCompact ? label : null, class: `button ${isCompact ? 'compact' : ''}`, ...properties,
  });
}

let toastTimer = 0;

/** Show a short message, which screen readers announce. */
export function toast(text) {
  const area = document.getElementById('toast');
  replace(area, element('span', {}, text));
  area.classList.add('shown');
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => area.classList.remove('shown'), 3500);
}

/** Copy a text and say so. */
export async function copyText(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${name} copied`);
  } catch {
    const area = element('textarea', { class: 'offscreen' });
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand('copy');
    area.remove();
    toast(isCopied ? `${name} copied` : 'the browser does not allow copying here');
  }
}
