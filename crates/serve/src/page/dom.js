// Elements, numbers and requests: what every other module of the page uses.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined));
  return element;
}

/** An HTML element; attributes `on..` are listeners. */
export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const $ = id => document.getElementById(id);

/** A whole number with thin separators between groups of three digits. */
export const count = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');

/** `1 key`, `2 keys`. */
export const plural = (n, noun) => `${count(n)} ${noun}${Number(n) === 1 ? '' : 's'}`;

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

/** A number of bytes in three digits and a binary unit. */
export function size(n) {
  let unit = 0, value = Number(n);
  while (value >= 999.5 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${UNITS[unit]}`;
}

/** Bytes in few digits; the exact number on hover. */
export const bytes = n => h('span', { title: plural(n, 'byte') }, size(n));

/** A number in few digits: 12, 3.4k, 5.1M. */
export function brief(n) {
  for (const [unit, suffix] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    if (n >= unit) return Number((n / unit).toPrecision(3)) + suffix;
  }
  return String(Number(Number(n).toPrecision(3)));
}

/** A duration given in microseconds. */
export function time(us) {
  if (us >= 1e6) return `${Number((us / 1e6).toPrecision(3))} s`;
  if (us >= 1e3) return `${Number((us / 1e3).toPrecision(3))} ms`;
  return `${Number(us.toPrecision(3))} µs`;
}

/** A half-open range as text. */
export const span = ({ start, end }) => `${count(start)}–${count(end)}`;

/** The error of a request: `kind` is the server's, or `gone` if there was no answer. */
export class Failure extends Error {
  constructor(kind, message) { super(message); this.kind = kind; }
}

/** A path with each name escaped. */
export const encoded = path => path.split('/').map(encodeURIComponent).join('/');

/** Address of the API; `generation` null: the current one. */
export function address(database, what, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== ''));
  const path = database === null ? 'api/' : database === '' ? `api/${what}` : `api/${encoded(database)}/${what}`;
  return `${query}` ? `${path}?${query}` : path;
}

/** Sends a request and returns the response; throws `Failure` for an error of any kind but an abort. */
export async function request(url, signal) {
  let response;
  try {
    response = await fetch(url, { signal });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Failure('gone', 'The server does not answer.');
  }
  if (response.ok) return response;
  let kind = 'http', message = `${response.status} ${response.statusText}`;
  try {
    ({ kind, message } = (await response.json()).error);
  } catch { /* not an error of the API: the status line is all there is */ }
  throw new Failure(kind, message);
}

export const json = async (url, signal) => (await request(url, signal)).json();
