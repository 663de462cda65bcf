// What a value is, and its pictures. `views` returns those that fit the bytes, the best first.
// Values are untrusted: a view that finds something else than it expects throws, and the page shows the message.

import { allElements, arrayViews, elementType, elements } from './arrays.js';
import { count, h, plural, size } from './dom.js';
import { slices } from './slices.js';
import { solid, lines } from './solid.js';

/** The object of `info` that describes the shards: a scale, an index of annotations, or `info` itself. */
export function described(info, pointer) {
  const names = (pointer ?? '').split('/').slice(1).map(name => name.replaceAll('~1', '/').replaceAll('~0', '~'));
  if (names.at(-1) === 'sharding') names.pop();
  return names.reduce((object, name) => object?.[name], info) ?? info;
}

// ---- positions of chunks: the compressed Morton code ----

const bitsOf = grid => grid.map(cells => (cells > 1 ? BigInt(cells - 1).toString(2).length : 0));

/** The grid of a volume's scale or of a spatial index; null for other data. */
export function gridOf(part) {
  if (Array.isArray(part?.grid_shape)) return part.grid_shape;
  const chunk = part?.chunk_sizes?.[0];
  return chunk && Array.isArray(part.size) ? part.size.map((cells, d) => Math.ceil(cells / chunk[d])) : null;
}

function eachMortonBit(grid, visit) {
  const bits = bitsOf(grid);
  let at = 0n;
  for (let bit = 0; bit < Math.max(0, ...bits); bit++) bits.forEach((n, d) => { if (bit < n) visit(d, BigInt(bit), at++); });
}

export function toMorton(position, grid) {
  let key = 0n;
  eachMortonBit(grid, (d, bit, at) => { key |= ((BigInt(position[d]) >> bit) & 1n) << at; });
  return key;
}

export function fromMorton(key, grid) {
  const position = grid.map(() => 0n);
  eachMortonBit(grid, (d, bit, at) => { position[d] |= ((key >> at) & 1n) << bit; });
  return position.map(Number);
}

// ---- reading bytes ----

const viewOf = data => new DataView(data.buffer, data.byteOffset, data.byteLength);
const expect = (condition, message) => { if (!condition) throw new Error(message); };

/** `length` numbers of 32 bits, copied: a value may begin at any offset. */
function copied(Type, data, offset, length) {
  const wanted = length * Type.BYTES_PER_ELEMENT;
  expect(offset + wanted <= data.length, `expected ${plural(offset + wanted, 'byte')}, found ${count(data.length)}`);
  return new Type(data.slice(offset, offset + wanted).buffer);
}

const widthOf = name => elementType(name)?.width ?? 0;

function skeleton(data, info) {
  expect(data.length >= 8, 'expected the counts of vertices and edges, found fewer than 8 bytes');
  const vertices = viewOf(data).getUint32(0, true), edges = viewOf(data).getUint32(4, true);
  const points = copied(Float32Array, data, 8, 3 * vertices), pairs = copied(Uint32Array, data, 8 + 12 * vertices, 2 * edges);
  const attributes = info.vertex_attributes ?? [], each = attributes.reduce((sum, a) => sum + widthOf(a.data_type) * a.num_components, 0);
  const wanted = 8 + 12 * vertices + 8 * edges + each * vertices;
  return { points, pairs, vertices, edges, attributes, exact: wanted === data.length, extra: data.length - wanted };
}

function mesh(data) {
  expect(data.length >= 4, 'expected the number of vertices, found fewer than 4 bytes');
  const vertices = viewOf(data).getUint32(0, true), points = copied(Float32Array, data, 4, 3 * vertices), rest = data.length - 4 - 12 * vertices;
  expect(rest % 12 === 0, `expected triangles of 12 bytes, found ${plural(rest, 'byte')}`);
  return { points, triangles: copied(Uint32Array, data, 4 + 12 * vertices, rest / 4), vertices };
}

const within = (numbers, limit) => numbers.every(n => n < limit);

// ---- chunks of a volume ----

/** The extent of the chunk at a grid position: chunks at the end of the volume are cut off. */
function extent(part, key) {
  const grid = gridOf(part), chunk = part.chunk_sizes[0], position = fromMorton(BigInt(key), grid);
  const start = position.map((p, d) => p * chunk[d]), shape = start.map((at, d) => Math.min(chunk[d], part.size[d] - at));
  return { start: start.map((at, d) => at + (part.voxel_offset?.[d] ?? 0)), shape, position };
}

/** The voxels of a chunk with the encoding compressed_segmentation, in the order x, y, z, channel. */
export function segmentation(data, shape, channels, Type, block) {
  const words = copied(Uint32Array, data, 0, data.length >> 2), voxels = shape[0] * shape[1] * shape[2], out = new Type(voxels * channels);
  const wide = Type === BigUint64Array, grid = shape.map((n, d) => Math.ceil(n / block[d]));
  const word = at => { expect(at < words.length, 'the compressed segmentation is cut off'); return words[at]; };
  for (let channel = 0; channel < channels; channel++) {
    const base = word(channel);
    for (let z = 0, i = channel * voxels; z < shape[2]; z++) for (let y = 0; y < shape[1]; y++) for (let x = 0; x < shape[0]; x++, i++) {
      const header = base + 2 * (Math.floor(x / block[0]) + grid[0] * (Math.floor(y / block[1]) + grid[1] * Math.floor(z / block[2])));
      const first = word(header), bits = first >>> 24, at = bits * ((x % block[0]) + block[0] * ((y % block[1]) + block[1] * (z % block[2])));
      const row = bits ? (word(base + word(header + 1) + (at >> 5)) >>> (at & 31)) & (bits === 32 ? -1 : (1 << bits) - 1) : 0;
      const entry = base + (first & 0xffffff) + (row >>> 0) * (wide ? 2 : 1);
      out[i] = wide ? BigInt(word(entry)) | (BigInt(word(entry + 1)) << 32n) : word(entry);
    }
  }
  return out;
}

/** The function that returns a voxel by its number in the chunk. */
function voxelsOf(data, part, { data_type: name }, shape, channels) {
  const type = elementType(name), wanted = shape.reduce((a, b) => a * b, channels);
  expect(type, `expected a data type of the format, found ${name}`);
  if (part.encoding === 'compressed_segmentation') {
    const voxels = segmentation(data, shape, channels, type.width === 8 ? BigUint64Array : Uint32Array, part.compressed_segmentation_block_size ?? [8, 8, 8]);
    return i => voxels[i];
  }
  return allElements(data, type, wanted);
}

function showChunk(box, { data, info, part, key }) {
  const { start, shape, position } = extent(part, key), channels = info.num_channels ?? 1, voxel = voxelsOf(data, part, info, shape, channels), [nx, ny, nz] = shape;
  slices(box, { title: `Chunk ${position.join(', ')} of the grid: ${shape.join(' × ')} voxels of ${info.data_type}`, shape: [...shape, channels],
    at: (x, y, z, channel) => voxel(x + nx * (y + ny * (z + nz * channel))), start, names: ['x', 'y', 'z'], labels: info.type === 'segmentation' });
}

// ---- annotations ----

const POINTS = { point: 1, line: 2, axis_aligned_bounding_box: 2, ellipsoid: 2 };

/** Reads annotations: one with its relationships from the index by id, else a list with their ids. */
function annotations(data, info, pointer) {
  const rank = Object.keys(info.dimensions ?? {}).length, points = POINTS[info.annotation_type];
  expect(points, `expected a known type of annotations, found ${info.annotation_type}`);
  let at = 0;
  const read = name => { const type = elementType(name); at += type.width; expect(at <= data.length, `expected more than ${plural(data.length, 'byte')}`); return elements(data.subarray(at - type.width), type).at(0); };
  const width = ({ type }) => widthOf(type) || 1, properties = [...(info.properties ?? [])].sort((a, b) => width(b) - width(a));
  const color = n => '#' + Array.from({ length: n }, () => read('uint8').toString(16).padStart(2, '0')).join('');
  function one() {
    const begin = at, row = { points: Array.from({ length: points }, () => Array.from({ length: rank }, () => Number(read('float32').toPrecision(6))).join(', ')) };
    for (const { id, type } of properties) row[id] = type === 'rgb' ? color(3) : type === 'rgba' ? color(4) : read(type);
    at += (4 - ((at - begin) % 4)) % 4;
    return row;
  }
  if (/by_id/.test(pointer)) {
    const row = one();
    for (const { id } of info.relationships ?? []) row[id] = Array.from({ length: read('uint32') }, () => String(read('uint64'))).join(', ');
    return { rows: [row], total: 1 };
  }
  const total = Number(read('uint64')), rows = [];
  expect(total * 4 * points * rank <= data.length, `expected ${plural(total, 'annotation')}, found ${plural(data.length, 'byte')}`);
  for (let i = 0; i < total; i++) rows.push(one());
  for (const row of rows) row.id = String(read('uint64'));
  return { rows, total };
}

function showAnnotations(box, { data, info, pointer }) {
  const { rows, total } = annotations(data, info, pointer), names = Object.keys(rows[0] ?? {}), most = 200;
  const cell = value => h('td', { class: 'mono' }, Array.isArray(value) ? value.join(' to ') : String(value));
  box.append(h('p', { class: 'help' }, `${plural(total, 'annotation')} of type ${info.annotation_type}${total > most ? `, the first ${most}` : ''}.`),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Annotations' }, h('table', {}, h('thead', {}, h('tr', {}, names.map(name => h('th', { scope: 'col' }, name)))), h('tbody', {}, rows.slice(0, most).map(row => h('tr', {}, names.map(name => cell(row[name]))))))));
}

// ---- the manifest of a multi-resolution mesh ----

function showManifest(box, { data }) {
  const floats = (at, n) => Array.from(copied(Float32Array, data, at, n), n => Number(n.toPrecision(6))), numbers = (at, n) => Array.from(copied(Uint32Array, data, at, n));
  const levels = numbers(24, 1)[0];
  expect(levels > 0 && levels <= 64, `expected 1 to 64 levels of detail, found ${levels}`);
  const scales = floats(28, levels), fragments = numbers(28 + 16 * levels, levels);
  let at = 28 + 20 * levels;
  const rows = fragments.map((n, level) => {
    const sizes = numbers(at + 12 * n, n);
    at += 16 * n;
    return h('tr', {}, [level, scales[level], count(n), size(sizes.reduce((a, b) => a + b, 0))].map(cell => h('td', { class: 'n' }, cell)));
  });
  box.append(h('p', {}, 'The manifest of a multi-resolution mesh. Its fragments are Draco files directly before it in the shard.'),
    h('p', { class: 'help' }, `Chunks of ${floats(0, 3).join(' × ')}, grid origin ${floats(12, 3).join(', ')}.`),
    h('table', {}, h('thead', {}, h('tr', {}, ['Level of detail', 'Scale', 'Fragments', 'Size'].map(name => h('th', { scope: 'col', class: 'n' }, name)))), h('tbody', {}, rows)));
}

// ---- text, JSON, hex, images ----

const SIGNATURES = [['image/png', [0x89, 0x50, 0x4e, 0x47]], ['image/jpeg', [0xff, 0xd8, 0xff]], ['image/gif', [0x47, 0x49, 0x46, 0x38]]];
const MOST_TEXT = 200000;

function imageType(data) {
  if (data.length > 12 && String.fromCharCode(...data.slice(0, 4), ...data.slice(8, 12)) === 'RIFFWEBP') return 'image/webp';
  return SIGNATURES.find(([, bytes]) => bytes.every((byte, i) => data[i] === byte))?.[0] ?? null;
}

function textOf(data) {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(data);
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch { return null; }
}

/** The text again, indented, with numbers as they are: a round trip through numbers would lose digits. */
function indented(text) {
  let out = '', depth = 0, quoted = false;
  const line = () => '\n' + '  '.repeat(depth);
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) { out += c; if (c === '\\') out += text[++i]; else if (c === '"') quoted = false; continue; }
    if (/\s/.test(c)) continue;
    if (c === '"') { quoted = true; out += c; }
    else if (c === '{' || c === '[') { const empty = /^\s*[}\]]/.exec(text.slice(i + 1, i + 40)); if (empty) { out += c + empty[0].trim(); i += empty[0].length; } else { depth++; out += c + line(); } }
    else if (c === '}' || c === ']') { depth--; out += line() + c; }
    else out += c === ',' ? c + line() : c === ':' ? ': ' : c;
  }
  return out;
}

const isJson = text => { try { return typeof JSON.parse(text) === 'object'; } catch { return false; } };

function showText(box, text) {
  const cut = text.length > MOST_TEXT ? `\n… ${count(text.length - MOST_TEXT)} more characters` : '';
  box.append(h('pre', { tabindex: 0, role: 'region', 'aria-label': 'The value' }, text.slice(0, MOST_TEXT) + cut));
}

function showHex(box, { data }) {
  const pre = h('pre', { class: 'hex', tabindex: 0, role: 'region', 'aria-label': 'The bytes' }), more = h('button', { type: 'button', onclick: () => add(16384) }, 'Show more bytes'), wide = box.clientWidth >= 620 ? 16 : 8;
  let at = 0;
  function add(length) {
    const end = Math.min(data.length, at + length), out = [];
    for (; at < end; at += wide) {
      const row = Array.from(data.subarray(at, Math.min(at + wide, end))), hex = row.map(byte => byte.toString(16).padStart(2, '0')).join(' ').padEnd(wide * 3 - 1);
      out.push(`${at.toString(16).padStart(wide === 16 ? 8 : 6, '0')}  ${hex}  ${row.map(byte => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '·')).join('')}`);
    }
    at = end;
    pre.append(out.join('\n') + '\n');
    more.hidden = at >= data.length;
  }
  box.append(pre, more);
  add(1024);
}

function showImage(box, { data, key }, type) {
  const url = URL.createObjectURL(new Blob([data], { type })), said = h('p', { class: 'help' }, type);
  box.append(h('img', { src: url, alt: `Value of key ${key} as an image`,
    onload: event => { said.textContent = `${type}, ${event.target.naturalWidth} × ${event.target.naturalHeight} pixels`; URL.revokeObjectURL(url); },
    onerror: () => { said.textContent = `The browser cannot decode this as ${type}.`; said.className = 'error'; } }), said);
}

function showSkeleton(box, { data, info }) {
  const { points, pairs, vertices, edges, attributes, extra } = skeleton(data, info);
  const names = attributes.map(a => `${a.id} (${a.data_type}${a.num_components > 1 ? ` × ${a.num_components}` : ''})`).join(', ');
  box.append(h('p', { class: 'help' }, `${count(vertices)} vertices, ${plural(edges, 'edge')}${names ? `; attributes ${names}` : ''}${extra ? `; ${plural(Math.abs(extra), 'byte')} ${extra > 0 ? 'more' : 'fewer'} than info describes` : ''}.`));
  expect(within(pairs, vertices), 'expected edges between vertices of the skeleton, found a larger number');
  lines(box, points, pairs);
}

function showMesh(box, { data }) {
  const { points, triangles, vertices } = mesh(data);
  box.append(h('p', { class: 'help' }, `${count(vertices)} vertices, ${plural(triangles.length / 3, 'triangle')}.`));
  expect(within(triangles, vertices), 'expected triangles between vertices of the mesh, found a larger number');
  solid(box, points, triangles);
}

// ---- the choice ----

const tryTo = read => { try { return read(); } catch { return null; } };
const looksLikeSkeleton = data => tryTo(() => { const s = skeleton(data, {}); return s.vertices > 0 && s.edges > 0 && s.exact && within(s.pairs, s.vertices); });
const looksLikeMesh = data => tryTo(() => { const m = mesh(data); return m.vertices > 2 && m.triangles.length > 0 && within(m.triangles, m.vertices); });

/** The views that fit a value, each `{ name, show(box) }`. */
export function views(value) {
  const { data, type, part, info } = value, image = imageType(data), text = textOf(data), found = tryTo(() => arrayViews(value)) ?? [];
  const add = (name, show) => found.push({ name, show });
  if (type === 'skeletons' || (!type && looksLikeSkeleton(data))) add('Skeleton', box => showSkeleton(box, value));
  if (type === 'mesh' || (!type && looksLikeMesh(data))) add('Mesh', box => showMesh(box, value));
  if (type === 'multires_mesh') add('Manifest', box => showManifest(box, value));
  if (type === 'annotations') add('Annotations', box => showAnnotations(box, value));
  if (type === 'volume' && part?.chunk_sizes && ['raw', 'compressed_segmentation'].includes(part.encoding) && info.data_type) add('Chunk', box => showChunk(box, value));
  if (image) add('Image', box => showImage(box, value, image));
  if (text !== null && data.length > 0) {
    if (isJson(text)) add('JSON', box => showText(box, indented(text)));
    add('Text', box => showText(box, text));
  }
  add('Hex', box => showHex(box, value));
  return found;
}
