// One body of a comparison: a header that stays in view, and the body, which scrolls by itself on wide screens.

import { button, copyText, element, icon, iconButton, replace, toast } from './dom.js';
import { formatBytes } from './format.js';
import { JsonTree } from './json_tree.js';

export class BodyPane {
  /** `side` has the `title`, `subtitle`, `address` and `text` of the body, and `tools` for its header. */
  constructor(side, value, { marks, open, onHover, onChoose, onOnly }) {
    const { title, subtitle, address, text, tools = [] } = side;
    this.title = title;
    this.tree = typeof value === 'string' ? null : new JsonTree(value, { marks, label: title, open, onHover, onChoose });
    this.expansion = button('Expand all', () => this.toggleExpansion(), { class: 'button small' });
    this.only = button('', onOnly, { class: 'button small compact' });
    this.setOnly(false);
    this.root = element('section', { class: 'pane', 'aria-label': title },
      element('header', { class: 'pane-head' },
        element('h3', {}, title),
        element('span', { class: 'pane-tools' }, this.tree ? this.expansion : null, tools, this.only, iconButton('copy', `Copy the body ${title.toLowerCase()}`, () => copyText(text, 'Body'), { isCompact: true, class: 'button small compact' })),
        element('p', { class: 'pane-source' }, element('span', { class: 'pane-subtitle' }, subtitle), subtitle ? ' · ' : null, element('span', { class: 'pane-size' }, formatBytes(new Blob([text]).size)), address ? [' · ', element('code', { class: 'pane-address' }, address)] : null)),
      element('div', { class: 'pane-body', tabindex: 0, role: 'region', 'aria-label': `${title}, body` }, this.tree?.root ?? element('pre', { class: 'plain' }, value || '(empty)')));
  }

  toggleExpansion() {
    this.isExpanded = !this.isExpanded;
    if (!this.isExpanded) this.tree.collapse();
    else if (!this.tree.expand()) toast('The body is long: the rest stays folded');
    this.expansion.textContent = this.isExpanded ? 'Collapse' : 'Expand all';
  }

  /** Show whether this body is the only one in view. */
  setOnly(isOnly) {
    const label = isOnly ? 'Show both bodies' : `Show only the body ${this.title.toLowerCase()}`;
    this.only.title = label;
    this.only.setAttribute('aria-label', label);
    replace(this.only, icon(isOnly ? 'narrow' : 'widen'));
  }
}
