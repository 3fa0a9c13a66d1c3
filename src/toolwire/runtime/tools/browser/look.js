// What the element at a point, or the one with the focus, is for. Runs in a world of its own, where the page can't
// change what it is asked. Everything it tells was written by the page, and is judged elsewhere.
function (leftOut) {
  const CONTROLS =
    "button, a[href], input, select, textarea, label, summary, option, [contenteditable], [onclick], [role=button]," +
    "[role=link], [role=menuitem], [role=option], [role=tab], [role=switch], [role=checkbox], [role=slider], [role=textbox]";
  const HOSTS = "ARTICLE ASIDE BLOCKQUOTE BODY DIV FOOTER H1 H2 H3 H4 H5 H6 HEADER MAIN NAV P SECTION SPAN".split(" ");
  const PUSHED = ["submit", "button", "image", "reset"];
  const short = (value) => String(value ?? "").replace(/\s+/g, " ").trim().slice(0, 200);
  const above = (one) => one.assignedSlot ?? one.parentElement ?? one.getRootNode().host ?? null;
  const isFrame = (one) => ["IFRAME", "FRAME", "OBJECT", "EMBED", "FENCEDFRAME"].includes(one.tagName);
  const isField = (one) =>
    ["TEXTAREA", "SELECT"].includes(one.tagName) || one.isContentEditable || one.matches("[role=textbox]") ||
    (one.tagName === "INPUT" && !PUSHED.includes(one.type));
  const named = (one) => {
    const referred = (one.getAttribute("aria-labelledby") ?? "").split(/\s+/).filter(Boolean);
    const root = one.getRootNode();
    return [
      one.getAttribute("aria-label"),
      ...referred.map((id) => root.getElementById?.(id)?.textContent),
      ...[...(one.labels ?? [])].map((label) => label.textContent),
      one.getAttribute("title"),
      one.getAttribute("alt"),
      one.tagName === "INPUT" && PUSHED.includes(one.type) ? one.value || one.type : "",
      isField(one) ? one.getAttribute("placeholder") : one.innerText ?? one.textContent,
      ...(isField(one) ? [] : [...one.querySelectorAll("img[alt], [aria-label], svg title")].slice(0, 8).map(
        (inner) => inner.getAttribute("alt") ?? inner.getAttribute("aria-label") ?? inner.textContent)),
    ].map(short).filter(Boolean);
  };
  const field = (one) => ({
    type: short(one.type),
    autocomplete: short(one.getAttribute("autocomplete")),
    hints: [one.getAttribute("name"), one.id, ...named(one)].map(short).filter(Boolean),
  });
  const submits = (one) => one.matches("button:not([type=button], [type=reset]), input[type=submit], input[type=image]");

  let node = this.nodeType === Node.DOCUMENT_NODE ? this.documentElement : this;
  if (node && node.nodeType !== Node.ELEMENT_NODE) node = node.parentElement ?? node.getRootNode().host;
  if (!node) return null;
  let control = node;
  while (control && !control.matches(CONTROLS)) control = above(control);
  if (control?.tagName === "LABEL" && control.control) control = control.control;
  if (control?.tagName === "OPTION") control = control.closest("select") ?? control;
  const subject = control ?? node;
  const list = subject.tagName === "SELECT" && !subject.multiple && subject.size < 2 && !subject.disabled ? subject : null;
  let redacted = leftOut ? subject : null;
  while (redacted && !redacted.matches(leftOut)) redacted = above(redacted);
  const form = subject.form ?? subject.closest("form");
  const inputs = form ? [...form.elements] : [...document.querySelectorAll("input, select, textarea")].filter((one) => !one.form);
  const pushed = form ? inputs.filter(submits)[0] : undefined;
  return {
    frame: isFrame(node),
    redacted: Boolean(redacted),
    // A closed root does not show; these can have one.
    shadowed: node.tagName.includes("-") || HOSTS.includes(node.tagName),
    tag: subject.tagName.toLowerCase(),
    control: Boolean(control),
    names: named(subject),
    field: isField(subject) ? field(subject) : null,
    fields: inputs.filter(isField).slice(0, 100).map(field),
    choices: list ? [...list.options].slice(0, 50).map((one) => short(one.label) + (one.selected ? " (chosen)" : "")) : [],
    submits: Boolean(control) && (submits(subject) || (!isField(subject) && !form && subject.tagName !== "A")),
    button: pushed ? named(pushed) : [],
  };
}
