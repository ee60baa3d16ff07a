// Requests to the service: the key, cancelling what is outdated, and errors.

const KEY = 'murho-api-key';
const base = new URL('.', location.href.split('#')[0].split('?')[0]);
const running = new Map();

/** An answer that is no success; `status` is 0 where the service did not answer at all. */
export class Problem extends Error {
  constructor(status, document, retryAfter = null) {
    super(document.detail || document.title || `The service answered ${status}.`);
    this.status = status;
    this.errors = document.errors || [];
    this.retryAfter = retryAfter;
  }
}

export const address = (path) => new URL(path, base).href;
export const key = () => sessionStorage.getItem(KEY);
export const useKey = (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY));

/**
 * Sends a request. A later request of the same channel cancels it; what was cancelled is answered by null.
 */
export async function send(path, { channel = null, body = null, type = 'application/json', accept = null, signal = null } = {}) {
  const headers = {};
  if (body !== null) headers['content-type'] = type;
  if (accept) headers.accept = accept;
  if (key()) headers.authorization = `Bearer ${key()}`;
  const own = new AbortController();
  if (channel) {
    running.get(channel)?.abort();
    running.set(channel, own);
  }
  signal?.addEventListener('abort', () => own.abort());
  try {
    const response = await fetch(address(path), { method: body === null ? 'GET' : 'POST', body, headers, signal: own.signal });
    if (response.ok) return response;
    const document = await response.json().catch(() => ({}));
    throw new Problem(response.status, document, Number(response.headers.get('retry-after')) || null);
  } catch (error) {
    if (error.name === 'AbortError') return null;
    if (error instanceof Problem) throw error;
    throw new Problem(0, { detail: 'The service does not answer. Is it still running?' });
  }
}

export async function getJson(path, choices) {
  const response = await send(path, choices);
  return response && response.json().catch((error) => (error.name === 'AbortError' ? null : Promise.reject(error)));
}

/** Asks a model for predictions. */
export function predict(model, request, channel) {
  return getJson(`models/${encodeURIComponent(model)}/predict`, { channel, body: JSON.stringify(request) });
}
