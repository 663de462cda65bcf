// The path of a key: key -> hash -> shard -> minishard -> row -> bytes, with the numbers of one lookup.

import { strip } from './charts.js';
import { bytes, count, h, plural, span } from './dom.js';

const binary = (n, bits) => (bits === 0 ? '' : BigInt(n).toString(2).padStart(bits, '0'));
const bitNames = (low, bits) => (bits === 0 ? 'no bits' : bits === 1 ? `bit ${low}` : `bits ${low} to ${low + bits - 1}`);

/** The bits of the hash that choose the shard; a specification may name more than 64. */
const shardBits = spec => Math.min(spec.shard_bits, 64 - Math.min(64, spec.minishard_bits));

/** Why the key is absent, or null. */
export function absence(found, hasFile) {
  if (found.found) return null;
  if (!hasFile) return `no file ${found.file}`;
  if (!found.minishard_index) return `minishard ${found.minishard} of ${found.file} has no keys`;
  return `minishard ${found.minishard} of ${found.file} has ${plural(found.minishard_index.rows, 'key')}, but not this one`;
}

function boxes(found, spec, hasFile, note) {
  const { minishard_bits: minishardBits, preshift_bits: preshift } = spec, index = found.minishard_index, shard = BigInt('0x' + found.shard);
  const box = (kind, name, value, ...notes) => h('li', { class: kind }, h('b', {}, name), h('strong', {}, value), notes.map(note => h('span', {}, note)));
  const stop = (name, note) => box('stop', name, 'none', note);
  const shifted = preshift > 0 ? `key >> ${preshift}` : 'the key';
  const all = [
    box('', 'Key', found.key, preshift > 0 ? `its ${plural(preshift, 'low bit')} dropped: ${BigInt(found.key) >> BigInt(preshift)}` : '64 bits, unsigned', ...(note ? [note] : [])),
    box('', 'Hash', found.hashed, spec.hash === 'identity' ? `${shifted}, unchanged` : `MurmurHash3 of ${shifted}, low 64 bits`),
    box('shard', 'Shard', found.shard, `${bitNames(minishardBits, shardBits(spec))}: ${count(shard)} of ${count(2n ** BigInt(shardBits(spec)))}`, `file ${found.file}`),
  ];
  if (!hasFile) return [...all, stop('File', `${found.file} does not exist, so it has no keys`)];
  all.push(box('mini', 'Minishard', count(found.minishard), `${bitNames(0, minishardBits)}, of ${count(2n ** BigInt(minishardBits))}`, `entry at bytes ${span(found.shard_index_entry)}`));
  if (!index) return [...all, stop('Index', 'the entry is empty: no keys')];
  if (!found.found) return [...all, box('mini', 'Index', plural(index.rows, 'row'), `${index.encoding}, bytes ${span(index)}`), stop('Row', 'no row has this key')];
  all.push(box('mini', 'Row', `${count(found.row)} of ${count(index.rows)}`, `counted from 0, in the ${index.encoding} index`, `bytes ${span(index)}`));
  all.push(box('value', 'Bytes', span(found.value), plural(found.value.end - found.value.start, 'byte'), `stored ${found.value.encoding}`));
  return all;
}

function hashBits(found, spec) {
  const mini = Math.min(64, spec.minishard_bits), shards = shardBits(spec), all = binary(found.hashed, 64);
  const role = bit => (bit < mini ? 'mini' : bit < mini + shards ? 'shard' : '');
  const minishard = binary(found.minishard, mini), shard = binary('0x' + found.shard, shards);
  return [
    h('div', { class: 'bits', role: 'img', 'aria-label': `The hash in binary: ${all}` }, Array.from(all, (digit, i) => h('i', { class: `${role(63 - i)} ${digit === '1' ? 'one' : ''}` }, digit))),
    h('p', { class: 'key-of-bits' }, h('span', { class: 'sw shard' }, shards ? `shard ${shard} = ${found.shard}` : 'one shard, no bits'), h('span', { class: 'sw mini' }, mini ? `minishard ${minishard} = ${found.minishard}` : 'one minishard, no bits'),
      h('span', { class: 'sw' }, 'the hash, highest bit first; other bits are not used')),
  ];
}

/** The reads of a reader that knows nothing yet: what each is for, where, and what it says. */
function reads(found) {
  const { shard_index_entry: entry, minishard_index: index, value } = found;
  const row = (kind, name, range, says) => h('tr', {}, h('th', { scope: 'row', class: `sw ${kind}` }, name), h('td', { class: 'mono' }, span(range)), h('td', { class: 'n' }, bytes(range.end - range.start)), h('td', {}, says));
  const rows = [row('shard', 'Shard index entry', entry, index ? `minishard ${found.minishard} has its index at ${span(index)}` : 'the minishard is empty')];
  if (index) rows.push(row('mini', 'Minishard index', index, value ? `row ${found.row} of ${index.rows}: the value is at ${span(value)}` : `none of its ${plural(index.rows, 'row')} has the key`));
  if (value) rows.push(row('value', 'Value', value, value.encoding === 'gzip' ? 'a gzip member' : 'as stored, not compressed'));
  const head = ['Read', 'Bytes of the file', 'Length', 'What it says'];
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Reads of the lookup' },
    h('table', { class: 'reads' }, h('thead', {}, h('tr', {}, head.map((name, i) => h('th', { scope: 'col', class: i === 2 ? 'n' : null }, name)))), h('tbody', {}, rows)));
}

/**
 * Shows the path in `box`. `file` is the shard's `{ file, bytes }`, or undefined if it has none; `note` is
 * about the key. Returns a function that draws the picture anew.
 */
export function showPath(box, found, spec, file, note) {
  box.replaceChildren(h('ol', { class: 'chain', 'aria-label': 'Path of the key' }, boxes(found, spec, !!file, note)), ...hashBits(found, spec));
  if (!file) return () => {};
  const picture = h('div', { class: 'strip' }), indexEnd = 16 * 2 ** spec.minishard_bits;
  const parts = [{ kind: 'index', name: 'Shard index', start: 0, end: indexEnd }];
  if (found.minishard_index) parts.push({ kind: 'mini', name: 'Minishard index', ...found.minishard_index });
  if (found.value) parts.push({ kind: 'value', name: 'Value', ...found.value });
  box.append(picture, reads(found));
  const draw = () => strip(picture, parts, file.bytes, file.file);
  draw();
  return draw;
}
