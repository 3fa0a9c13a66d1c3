// Describe an element, as ElementFacts in guard.py. Runs in an isolated world, where the page can't tamper with it. All
// texts come from the page and are not trusted.
function (redactedSelector) {
  const CONTROLS =
    "button, a[href], input, select, textarea, label, summary, option, [contenteditable], [onclick], [role=button]," +
    "[role=link], [role=menuitem], [role=option], [role=tab], [role=switch], [role=checkbox], [role=slider], [role=textbox]";
  const SHADOW_HOST_TAGS = "ARTICLE ASIDE BLOCKQUOTE BODY DIV FOOTER H1 H2 H3 H4 H5 H6 HEADER MAIN NAV P SECTION SPAN".split(" ");
  const BUTTON_TYPES = ["submit", "button", "image", "reset"];
  const normalize = (value) => String(value ?? "").replace(/\s+/g, " ").trim().slice(0, 200);
  const parentOf = (element) => element.assignedSlot ?? element.parentElement ?? element.getRootNode().host ?? null;
  const isFrame = (element) => ["IFRAME", "FRAME", "OBJECT", "EMBED", "FENCEDFRAME"].includes(element.tagName);
  const isField = (element) =>
    ["TEXTAREA", "SELECT"].includes(element.tagName) || element.isContentEditable || element.matches("[role=textbox]") ||
    (element.tagName === "INPUT" && !BUTTON_TYPES.includes(element.type));
  const labelsOf = (element) => {
    const labelIds = (element.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
    const root = element.getRootNode();
    return [
      element.getAttribute("aria-label"),
      ...labelIds.map((id) => root.getElementById?.(id)?.textContent),
      ...[...(element.labels ?? [])].map((label) => label.textContent),
      element.getAttribute("title"),
      element.getAttribute("alt"),
      element.tagName === "INPUT" && BUTTON_TYPES.includes(element.type) ? element.value || element.type : "",
      isField(element) ? element.getAttribute("placeholder") : element.innerText ?? element.textContent,
      ...(isField(element) ? [] : [...element.querySelectorAll("img[alt], [aria-label], svg title")].slice(0, 8).map(
        (inner) => inner.getAttribute("alt") ?? inner.getAttribute("aria-label") ?? inner.textContent)),
    ].map(normalize).filter(Boolean);
  };
  const field = (element) => ({
    type: normalize(element.type),
    autocomplete: normalize(element.getAttribute("autocomplete")),
    hints: [element.getAttribute("name"), element.id, ...labelsOf(element)].map(normalize).filter(Boolean),
  });
  const submits = (element) => element.matches("button:not([type=button], [type=reset]), input[type=submit], input[type=image]");

  let node = this.nodeType === Node.DOCUMENT_NODE ? this.documentElement : this;
  if (node && node.nodeType !== Node.ELEMENT_NODE) node = node.parentElement ?? node.getRootNode().host;
  if (!node) return null;
  let control = node;
  while (control && !control.matches(CONTROLS)) control = parentOf(control);
  if (control?.tagName === "LABEL" && control.control) control = control.control;
  if (control?.tagName === "OPTION") control = control.closest("select") ?? control;
  const subject = control ?? node;
  const list = subject.tagName === "SELECT" && !subject.multiple && subject.size < 2 && !subject.disabled ? subject : null;
  let redacted = redactedSelector ? subject : null;
  while (redacted && !redacted.matches(redactedSelector)) redacted = parentOf(redacted);
  const form = subject.form ?? subject.closest("form");
  const inputs = form ? [...form.elements] : [...document.querySelectorAll("input, select, textarea")].filter((element) => !element.form);
  const submitButton = form ? inputs.filter(submits)[0] : undefined;
  return {
    frame: isFrame(node),
    redacted: Boolean(redacted),
    // A closed shadow root is invisible here; only these elements can have one.
    shadowed: node.tagName.includes("-") || SHADOW_HOST_TAGS.includes(node.tagName),
    tag: subject.tagName.toLowerCase(),
    control: Boolean(control),
    names: labelsOf(subject),
    field: isField(subject) ? field(subject) : null,
    fields: inputs.filter(isField).slice(0, 100).map(field),
    choices: list ? [...list.options].slice(0, 50).map((element) => normalize(element.label) + (element.selected ? " (chosen)" : "")) : [],
    submits: Boolean(control) && (submits(subject) || (!isField(subject) && !form && subject.tagName !== "A")),
    button: submitButton ? labelsOf(submitButton) : [],
  };
}
