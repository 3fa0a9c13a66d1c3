// Return the visible text of a document, without redacted elements and the values of secret fields.
function (redactedSelector, maxLength) {
  const SKIPPED_TAGS = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "IFRAME", "OBJECT", "SVG"]);
  const SECRET = /password|one-time-code|cc-/;
  const parts = [];
  let length = 0;
  const append = (text) => { parts.push(text); length += text.length; };
  const visit = (node) => {
    if (length > maxLength) return;
    if (node.nodeType === Node.TEXT_NODE) return append(node.data.replace(/\s+/g, " "));
    if (node.nodeType === Node.DOCUMENT_FRAGMENT_NODE) return node.childNodes.forEach(visit);
    if (node.nodeType !== Node.ELEMENT_NODE || SKIPPED_TAGS.has(node.tagName.toUpperCase())) return;
    if (redactedSelector && node.matches(redactedSelector)) return append("[redacted]");
    const style = getComputedStyle(node);
    if (style.display === "none" || style.visibility === "hidden") return;
    if (node.tagName === "BR") return append("\n");
    const isBlock = !style.display.startsWith("inline") && style.display !== "contents";
    if (isBlock) append("\n");
    if (node.tagName === "INPUT" || node.tagName === "TEXTAREA") {
      const secret = SECRET.test(`${node.type} ${node.autocomplete}`);
      if (node.type === "checkbox" || node.type === "radio") append(node.checked ? " [x] " : " [ ] ");
      else if (node.value) append(secret ? " [hidden] " : ` [${node.value}] `);
    } else if (node.tagName === "SELECT") {
      append(` [${[...node.selectedOptions].map((option) => option.label).join(", ")}] `);
    } else if (node.tagName === "SLOT" && node.assignedNodes().length) {
      node.assignedNodes().forEach(visit);
    } else {
      (node.shadowRoot ?? node).childNodes.forEach(visit);
    }
    if (isBlock) append("\n");
    else if (style.display.includes("block") || style.display === "table-cell") append(" ");
  };
  if (document.body) visit(document.body);
  return parts.join("").replace(/[ \t]*\n[ \t\n]*/g, "\n").replace(/ {2,}/g, " ").trim().slice(0, maxLength);
}
