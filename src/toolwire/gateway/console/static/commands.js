// Command lines to copy.

/** Quote a text for a POSIX shell. */
export function quoteShell(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return the header that carries a key, which the shell takes from a variable. */
export function keyHeader(name, variable) {
  return [name, name === 'authorization' ? 'Bearer ' : '', variable];
}

/** Return a curl command with the body on stdin, so that it may be of any length. */
export function curlCommand(url, headers, body) {
  const options = headers.map(([name, value, variable]) => `  -H ${quoteShell(`${name}: ${value}`)}${variable ? `"$${variable}"` : ''}`);
  let mark = 'BODY';
  while (body.includes(mark)) mark += '_';
  return `${[`curl -sS ${quoteShell(url)}`, ...options].join(' \\\n')} \\\n  --data-binary @- <<'${mark}'\n${body}\n${mark}\n`;
}
