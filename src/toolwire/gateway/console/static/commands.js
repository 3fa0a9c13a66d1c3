// Command lines to copy.

/** Quote a text for a POSIX shell. */
export function quoteShell(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Escape control characters as JSON does, which a terminal would obey when the command is pasted. */
const escapeControls = (body) => body.replaceAll(/[\u0000-\u0008\u000b-\u000c\u000e-\u001f\u007f-\u009f]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** Return the header that carries a key, which the shell takes from a variable. */
export function keyHeader(name, variable) {
  return [name, name === 'authorization' ? 'Bearer ' : '', variable];
}

/** Return a curl command with the body on stdin, so that it may be of any length. */
export function curlCommand(url, headers, body) {
  const options = headers.map(([name, value, variable]) => `  -H ${quoteShell(`${name}: ${value}`)}${variable ? `"$${variable}"` : ''}`);
  const text = escapeControls(body);
  let mark = 'BODY';
  while (text.includes(mark)) mark += '_';
  return `${[`curl -sS ${quoteShell(url)}`, ...options].join(' \\\n')} \\\n  --data-binary @- <<'${mark}'\n${text}\n${mark}\n`;
}
