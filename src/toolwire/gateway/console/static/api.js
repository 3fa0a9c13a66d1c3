// Requests to the gateway. Whatever acts carries the token of this page.

const BASE = '/console/api/';

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let token = '';
let onSignedOut = () => {};

/** Call `callback` when the session has ended. */
export function whenSignedOut(callback) {
  onSignedOut = callback;
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(BASE + path, { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'the gateway does not answer');
  }
  if (response.ok) return response;
  let message = `status ${response.status}`;
  try {
    message = (await response.json()).error ?? message;
  } catch { /* not JSON */ }
  if (response.status === 401 && path !== 'session') onSignedOut();
  throw new ApiError(response.status, message);
}

export async function readSession() {
  const session = await (await request('session')).json();
  token = session.token ?? '';
  return session;
}

export async function signIn(key) {
  await request('session', { method: 'POST', body: JSON.stringify({ key }) });
}

export async function signOut() {
  await request('session', { method: 'DELETE' });
}

export async function read(path, signal) {
  return parseJson(await (await request(path, { signal })).text());
}

export async function act(path, body, signal) {
  const send = () => request(path, {
    method: 'POST', signal, body: JSON.stringify(body), headers: { 'toolwire-console-token': token },
  });
  let response;
  try {
    response = await send();
  } catch (error) {
    if (error.status !== 403) throw error;
    await readSession(); // the gateway was restarted, and issues another token
    response = await send();
  }
  return parseJson(await response.text());
}

/** A number that JavaScript can't represent, as it was written. */
export class ExactNumber {
  constructor(source) {
    this.source = source;
  }
}

/** Parse JSON; numbers that would change keep their spelling. */
export function parseJson(text) {
  return JSON.parse(text, (_, value, context) => (
    typeof value === 'number' && context?.source !== undefined && isChanged(value, context.source) ? new ExactNumber(context.source) : value
  ));
}

function isChanged(value, source) {
  return String(value) !== source && (!Number.isFinite(value) || /^-?\d{16,}$/.test(source) || /\.\d{16,}/.test(source));
}

/** The live feed; reconnects by itself, and continues where it stopped. */
export class Feed {
  constructor(onBatch, onState) {
    this.onBatch = onBatch;
    this.onState = onState;
    // A page in the back/forward cache would hold its connection, of which browsers allow six to a host.
    addEventListener('pagehide', () => this.close());
    addEventListener('pageshow', (event) => { if (event.persisted) this.open(); });
    this.open();
  }

  open() {
    this.source = new EventSource(`${BASE}feed`);
    this.source.onopen = () => this.onState('live');
    this.source.onmessage = (event) => this.onBatch(JSON.parse(event.data));
    this.source.onerror = async () => {
      this.onState('lost');
      if (this.source.readyState !== EventSource.CLOSED) return;
      // The gateway answered with an error, after which browsers do not reconnect.
      try {
        const session = await readSession();
        if (!session.signed_in) {
          onSignedOut();
          return;
        }
        if (session.feed_problem) this.onState('lost', session.feed_problem);
      } catch { /* not reachable: try again */ }
      this.timer = setTimeout(() => this.open(), 2000);
    };
  }

  close() {
    clearTimeout(this.timer);
    this.source.close();
  }
}
