// The text of a document as a person would read it, without what is hidden, what is to be left out, and secret fields.
function (leftOut, longest) {
  const SILENT = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "IFRAME", "OBJECT", "SVG"]);
  const SECRET = /password|one-time-code|cc-/;
  const pieces = [];
  let length = 0;
  const say = (text) => { pieces.push(text); length += text.length; };
  const visit = (node) => {
    if (length > longest) return;
    if (node.nodeType === Node.TEXT_NODE) return say(node.data.replace(/\s+/g, " "));
    if (node.nodeType === Node.DOCUMENT_FRAGMENT_NODE) return node.childNodes.forEach(visit);
    if (node.nodeType !== Node.ELEMENT_NODE || SILENT.has(node.tagName.toUpperCase())) return;
    if (leftOut && node.matches(leftOut)) return say("[redacted]");
    const style = getComputedStyle(node);
    if (style.display === "none" || style.visibility === "hidden") return;
    if (node.tagName === "BR") return say("\n");
    const apart = !style.display.startsWith("inline") && style.display !== "contents";
    if (apart) say("\n");
    if (node.tagName === "INPUT" || node.tagName === "TEXTAREA") {
      const secret = SECRET.test(`${node.type} ${node.autocomplete}`);
      if (node.type === "checkbox" || node.type === "radio") say(node.checked ? " [x] " : " [ ] ");
      else if (node.value) say(secret ? " [hidden] " : ` [${node.value}] `);
    } else if (node.tagName === "SELECT") {
      say(` [${[...node.selectedOptions].map((option) => option.label).join(", ")}] `);
    } else if (node.tagName === "SLOT" && node.assignedNodes().length) {
      node.assignedNodes().forEach(visit);
    } else {
      (node.shadowRoot ?? node).childNodes.forEach(visit);
    }
    if (apart) say("\n");
    else if (style.display.includes("block") || style.display === "table-cell") say(" ");
  };
  if (document.body) visit(document.body);
  return pieces.join("").replace(/[ \t]*\n[ \t\n]*/g, "\n").replace(/ {2,}/g, " ").trim().slice(0, longest);
}
