// The decoders of the page return what other writers encoded: CloudVolume's Morton codes, compressed_segmentation, NumPy's numbers.
// The bins of its histograms have the numbers that are put in.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';
import zlib from 'node:zlib';

const root = process.env.ROOT ?? path.join(path.dirname(fs.realpathSync(new URL(import.meta.url).pathname)), '..');
// a copy, in which .js files are modules for every version of Node
const copy = fs.mkdtempSync(path.join(os.tmpdir(), 'pagecheck-'));
fs.cpSync(path.join(root, 'crates/serve/src/page'), copy, { recursive: true });
fs.writeFileSync(path.join(copy, 'package.json'), '{ "type": "module" }');
const { described, fromMorton, gridOf, segmentation, toMorton, views } = await import(path.join(copy, 'values.js'));
const { describedChunk, elements, elementType } = await import(path.join(copy, 'arrays.js'));
const { merged } = await import(path.join(copy, 'charts.js'));
fs.rmSync(copy, { recursive: true });
const golden = JSON.parse(fs.readFileSync(new URL('golden.json', import.meta.url)));
const inflate = text => new Uint8Array(zlib.inflateSync(Buffer.from(text, 'base64')));

test('compressed Morton codes in both directions', () => {
  for (const { grid, position, key } of golden.morton) {
    assert.equal(String(toMorton(position, grid)), key);
    assert.deepEqual(fromMorton(BigInt(key), grid), position);
  }
});

test('compressed_segmentation', () => {
  for (const { data_type: type, shape, block, encoded, voxels } of golden.compressed_segmentation) {
    const found = segmentation(inflate(encoded), shape, 1, type === 'uint64' ? BigUint64Array : Uint32Array, block);
    assert.ok(Buffer.from(found.buffer).equals(Buffer.from(inflate(voxels))), `${type} ${shape}`);
  }
});

test('compressed_segmentation that is cut off is an error', () => {
  const { shape, block, encoded } = golden.compressed_segmentation[1], whole = inflate(encoded);
  for (let length = 0; length < whole.length / 2; length += 4) assert.throws(() => segmentation(whole.slice(0, length), shape, 1, BigUint64Array, block), /cut off/);
});

test('the object that describes the shards, and its grid', () => {
  const info = { scales: [{}, { size: [10, 20, 31], chunk_sizes: [[10, 10, 10]] }] };
  assert.equal(described(info, '/scales/1'), info.scales[1]);
  assert.deepEqual(gridOf(info.scales[1]), [1, 2, 4]);
  assert.equal(described(info, null), info);
  assert.equal(gridOf(info), null);
});

test('views by what the bytes are', () => {
  const names = (data, more = {}) => views({ data: new Uint8Array(data), info: {}, type: null, part: null, ...more }).map(({ name }) => name);
  assert.deepEqual(names([]), ['Hex']);
  assert.deepEqual(names(Buffer.from('plain')), ['Text', 'Hex']);
  assert.deepEqual(names(Buffer.from('{"a": 18446744073709551615}')), ['JSON', 'Text', 'Hex']);
  assert.deepEqual(names([0xff, 0xd8, 0xff, 0xe0]), ['Image', 'Hex']);
  assert.deepEqual(names([0xff, 0xfe]), ['Hex']);
  // the metadata of a container, and that of a volume
  const bytes = [1, 2, 3, 0xff], info = { data_type: 'uint8', shape: [2, 2], chunk_shape: [2, 2], grid: [1, 1] };
  assert.deepEqual(names(bytes, { key: '0', info: { ...info, format: 'zarr_v3' } }), ['Chunk', 'Numbers', 'Hex']);
  assert.deepEqual(names(bytes, { key: '0', info: { ...info, format: 'zarr_v3', shape: [4], chunk_shape: [4], grid: [1] } }), ['Numbers', 'Hex']);
  assert.deepEqual(names(bytes, { key: '0', info: { format: 'bloscpack', metadata: { dtype: 'int32' } } }), ['Numbers', 'Hex']);
  assert.deepEqual(names(bytes, { key: '0', info: { format: 'bloscpack', metadata: null } }), ['Hex']);
  assert.deepEqual(names(bytes, { key: '0', info }), ['Hex']);
  assert.deepEqual(names(bytes, { key: '0', info: { format: 'zarr_v3', data_type: 'uint8' } }), ['Hex']); // an info that says it is an array
  // 2 vertices, 1 edge between them; then an edge to a vertex that is not there
  const skeleton = last => new Uint8Array(Uint32Array.of(2, 1, 0, 0, 0, 0, 0, 0, 0, last).buffer);
  assert.equal(names(skeleton(1))[0], 'Skeleton');
  assert.notEqual(names(skeleton(2))[0], 'Skeleton');
});

test('elements by their names in Zarr and NumPy', () => {
  for (const { data_type: name, bytes, numbers } of golden.elements) {
    const type = elementType(name), { at, text, length } = elements(new Uint8Array(Buffer.from(bytes, 'hex')), type), isHalf = type.kind === 'float' && type.width === 2;
    assert.equal(length, numbers.length, name);
    // the digits that NumPy writes; a float16 has five
    numbers.forEach((number, i) => assert.equal(text(i), String(isHalf && Number.isFinite(number) ? Number(number.toPrecision(5)) : number), name));
    if (type.kind === 'float' && type.width !== 4) assert.deepEqual(numbers.map((_, i) => at(i)), numbers.map(Number));
  }
  assert.equal(elementType('float32', 'big').little, false);
  assert.equal(elementType('<f4', 'big').little, true);
  for (const name of ['complex64', 'r16', 'float8', 'f1', '|S5', 'datetime64[ns]', "[('a', '<i4')]", 'object', '', null, { name: 'x' }]) assert.equal(elementType(name), null);
});

test('the place of a chunk, and how much of it is in the array', () => {
  for (const { path: name, key, position, start, inside } of golden.planes) {
    const { shape, chunk_grid: { configuration: { chunk_shape: shard } }, codecs } = JSON.parse(fs.readFileSync(path.join(process.env.ARRAYS, name, 'zarr.json')));
    const chunk = codecs.find(codec => codec.name === 'sharding_indexed')?.configuration.chunk_shape ?? shard;
    const found = describedChunk({ format: 'zarr_v3', data_type: 'uint16', shape, chunk_shape: chunk, grid: shape.map((n, d) => Math.ceil(n / chunk[d])) }, key);
    assert.deepEqual([found.position, found.start, found.inside], [position, start, inside]);
  }
});

// bins as the server has them: a number each below 64, then 32 per power of two
const binOf = n => { if (n < 64) return [n, n + 1]; const width = 2 ** (Math.floor(Math.log2(n)) - 5), first = Math.floor(n / width) * width; return [first, first + width]; };
function served(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b), edges = [binOf(sorted[0])[0]];
  while (edges.at(-1) <= sorted.at(-1)) edges.push(binOf(edges.at(-1))[1]);
  return { edges, counts: edges.slice(1).map((end, i) => sorted.filter(n => n >= edges[i] && n < end).length) };
}

test('a histogram has a bar per number for small ones', () => {
  const fill = [5, 6, 6, 7, 9, 9, 9, 12, 15, 20, 20, 22, 25, 29, 30, 30], { edges, counts, log } = merged(served(fill), 100);
  assert.deepEqual([edges[0], edges.at(-1), edges.length, log], [5, 31, 27, false]);
  edges.slice(0, -1).forEach((number, i) => assert.equal(counts[i], fill.filter(n => n === number).length));
  // mostly empty minishards: still a bar per number
  assert.equal(merged(served([...Array(1000).fill(0), 1, 2, 40]), 100).edges.length, 42);
});

test('bins of one width on a linear axis, of about one ratio on a logarithmic one', () => {
  for (const [numbers, isLog] of [[Array.from({ length: 500 }, (_, i) => 900 + (i % 230)), false], [Array.from({ length: 300 }, (_, i) => i), false], [Array.from({ length: 400 }, (_, i) => Math.floor(1.03 ** i)), true], [[0, 0, 0, 5, 70000], true], [[7], false], [[2 ** 40], false]]) {
    for (const room of [20, 60, 130]) {
      const { edges, counts, log } = merged(served(numbers), room), widths = edges.slice(1).map((edge, i) => edge - edges[i]);
      assert.equal(log, isLog);
      assert.deepEqual(counts, widths.map((_, i) => numbers.filter(n => n >= edges[i] && n < edges[i + 1]).length), 'each number is in its bin');
      assert.ok(counts.length <= room + 2, `${counts.length} bins of ${room}`);
      if (!log) assert.equal(new Set(widths).size, 1);
      else widths.slice(0, -1).forEach((width, i) => assert.ok(width === 1 || edges[i + 1] / edges[i] < 2.2, `${edges[i]} to ${edges[i + 1]}`));
    }
  }
});
