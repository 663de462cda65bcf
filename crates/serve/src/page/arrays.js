// Chunks of containers: the numbers that the metadata of a Zarr array, a bcolz array or a bloscpack file describes.

import { count, h, plural } from './dom.js';
import { slices } from './slices.js';

const MOST_NUMBERS = 400; // of the table
const MOST_PIXELS = 4096; // of a canvas, along each axis
const METHODS = { bool8: 'Uint8', float16: 'Uint16', int64: 'BigInt64', uint64: 'BigUint64' }; // of DataView, where the name differs
const FORMATS = ['zarr_v3', 'bcolz', 'bloscpack'];
const CODES = { i: 'int', u: 'uint', f: 'float' };

/** The type of an element by its name in Zarr or NumPy; null if it is no number. */
export function elementType(name, endianness) {
  if (typeof name !== 'string') return null;
  const [, order, plain] = /^([<>=|]?)(.*)$/s.exec(name), little = order === '>' ? false : order === '<' || endianness !== 'big';
  if (['bool', '?', 'b1'].includes(plain)) return { kind: 'bool', width: 1, little };
  const [, word, bits, code, bytes] = /^(?:(u?int|float)(8|16|32|64)|([iuf])([1248]))$/.exec(plain) ?? [];
  const kind = word ?? CODES[code], width = bits ? bits / 8 : Number(bytes);
  return kind && !(kind === 'float' && width === 1) ? { kind, width, little } : null;
}

/** The number of a float16. */
function half(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, rest = bits & 1023;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + rest / 1024) * 2 ** (exponent - 15) : rest * 2 ** -24);
}

/** A float in the fewest digits that are the same number again; a float16 in five. */
function digits(n, width) {
  const same = [6, 7, 8].find(precision => Math.fround(n.toPrecision(precision)) === n) ?? 9;
  return width === 8 ? String(n) : String(Number(n.toPrecision(width === 4 ? same : 5)));
}

/** `at(i)` returns element i, and `text(i)` writes it; there are `length` whole ones. */
export function elements(data, { kind, width, little }) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength), name = kind + width * 8;
  const method = `get${METHODS[name] ?? name[0].toUpperCase() + name.slice(1)}`, read = i => view[method](i * width, little), at = name === 'float16' ? i => half(read(i)) : read;
  const text = i => (kind === 'bool' ? String(at(i) !== 0) : kind === 'float' ? digits(at(i), width) : String(at(i)));
  return { at, text, length: Math.floor(data.length / width) };
}

/** `at` of exactly `wanted` elements. */
export function allElements(data, type, wanted) {
  if (data.length !== wanted * type.width) throw new Error(`expected ${plural(wanted * type.width, 'byte')} for ${plural(wanted, 'element')}, found ${count(data.length)}`);
  return elements(data, type).at;
}

/** The position of a chunk in a grid that is numbered in C order. */
export function fromLinear(key, grid) {
  let rest = BigInt(key);
  return [...grid].reverse().map(cells => { const at = rest % BigInt(cells); rest /= BigInt(cells); return Number(at); }).reverse();
}

/** The type of a chunk's elements, where they begin, and how many are `inside` of the array; null without a type of numbers. */
export function describedChunk(info, key) {
  const name = info.data_type ?? info.dtype ?? info.metadata?.dtype, type = elementType(name, info.endianness);
  if (!type || !FORMATS.includes(info.format)) return null;
  if (info.format !== FORMATS[0]) return { type, name, row: info.shape?.slice(1) ?? [], first: info.shape?.length === 1 ? key * info.chunk_rows : 0 };
  const shape = info.chunk_shape, position = fromLinear(key, info.grid), start = position.map((at, d) => at * shape[d]);
  const inside = shape.map((n, d) => Math.min(n, info.shape[d] - start[d])), names = shape.map((_, d) => info.dimension_names?.[d] ?? `dimension ${d}`);
  return { type, name, shape, position, start, inside, names, row: shape.slice(1), first: shape.length === 1 ? start[0] : 0 };
}

function showSlices(box, { type, name, shape, position, start, inside, names }, data) {
  const wanted = shape.reduce((a, b) => a * b, 1), at = allElements(data, type, wanted);
  // the last dimension is x
  const last = list => list.slice(-3).reverse(), [nx, ny, nz = 1] = last(shape), [mx, my, mz = 1] = last(inside), plane = nx * ny;
  slices(box, { title: `Chunk ${position.join(', ')} of the grid: ${shape.join(' × ')} elements of ${name}`, shape: [mx, my, mz, wanted / (plane * nz)],
    at: (x, y, z, channel) => at(x + nx * (y + ny * (z + nz * channel))), start: last(start), names: last(names) });
}

function showNumbers(box, { type, name, shape, row, first }, data) {
  const { text, length } = elements(data, type), most = Math.min(length, MOST_NUMBERS), long = row.at(-1);
  const columns = long > 1 && long <= 16 ? long : box.clientWidth >= 620 ? 8 : 4, range = n => Array.from({ length: n }, (_, i) => i);
  const th = (scope, name) => h('th', { scope, class: 'n' }, name), line = at => h('tr', {}, th('row', count(first + at)), range(Math.min(columns, most - at)).map(i => h('td', { class: 'n mono' }, text(at + i))));
  box.append(h('p', { class: 'help' }, `${plural(length, 'number')} of ${name}${shape?.length ? `, ${shape.join(' × ')} in C order` : ''}${length > most ? `, the first ${most}` : ''}.`),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Numbers' }, h('table', {},
      h('thead', {}, h('tr', {}, th('col', row.length ? 'In chunk' : 'Index'), range(columns).map(i => th('col', `+${i}`)))),
      h('tbody', {}, range(Math.ceil(most / columns)).map(i => line(i * columns))))));
}

/** The views of a chunk by its metadata: none if that does not describe numbers. */
export function arrayViews({ data, info, key }) {
  const chunk = describedChunk(info, key);
  if (!chunk || data.length === 0) return [];
  const numbers = { name: 'Numbers', show: box => showNumbers(box, chunk, data) }, hasPlanes = chunk.shape?.length > 1 && chunk.shape.slice(-2).every(n => n <= MOST_PIXELS);
  return hasPlanes ? [{ name: 'Chunk', show: box => showSlices(box, chunk, data) }, numbers] : [numbers];
}
