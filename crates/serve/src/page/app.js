// The page of `sharddb serve`: chooses a database, shows what is in it, finds keys. State is the address: #PATH/KEY?generation=N.

import { histogram, latencies, rate, shardMap } from './charts.js';
import { $, Failure, address, brief, bytes, count, encoded, h, json, plural, request, size } from './dom.js';
import { absence, showPath } from './path.js';
import { described, fromMorton, gridOf, toMorton, views } from './values.js';

const MOST_VALUE = 32 * 2 ** 20; // larger values are loaded on request
const MOST_KEY = 2n ** 64n - 1n;
const SHARDED = ['store', 'generation', 'foreign']; // the other kinds are containers: without a path of a key
const POLL = 2000;
const MOST_TRIES = 5; // to show a generation that is current and cannot be opened

let databases = [], version = '';
let shown = null; // the database on the page; `generation` is that of the address or null, `at` that of all requests
let work = new AbortController(); // of the current address: a new one aborts its requests
let lookup = new AbortController();

// ---- the address ----

const isKey = text => /^\d{1,20}$/.test(text) && BigInt(text) <= MOST_KEY;

/** Takes an address apart; the longest path of a database wins, because a path may end with a number. */
function parse(hash) {
  const [, path, query] = /^#?([^?]*)\??(.*)$/.exec(hash), generation = new URLSearchParams(query).get('generation');
  let text = path;
  try { text = decodeURIComponent(path); } catch { /* a stray % is part of the name */ }
  const known = name => databases.some(database => database.path === name), slash = text.lastIndexOf('/');
  if (!known(text) && isKey(text.slice(slash + 1)) && known(text.slice(0, Math.max(0, slash)))) return { path: text.slice(0, Math.max(0, slash)), key: text.slice(slash + 1), generation };
  return { path: text, key: null, generation };
}

function hashOf(path, key = null, generation = null) {
  return '#' + encoded(path) + (key === null ? '' : `/${key}`) + (generation === null ? '' : `?generation=${generation}`);
}

const go = (path, key, generation) => { const hash = hashOf(path, key, generation); if (location.hash === hash) route(); else location.hash = hash; };

// ---- messages ----

function gone(message) {
  $('gone').hidden = !message;
  $('gone').textContent = message ?? '';
  $('beat').classList.toggle('off', !!message);
  if (message) $('beat').textContent = 'no answer';
}

/** Shows an error of the whole page, or where a database should be. */
function instead(title, ...text) {
  shown = null;
  $('content').hidden = true;
  $('empty').hidden = false;
  $('empty').replaceChildren(h('h1', {}, title), ...text.map(line => h('p', {}, line)));
}

/** Runs `work`, and returns its result, or null after it reported a failure; aborted requests are silent. */
async function attempt(task, report) {
  try {
    return await task();
  } catch (error) {
    if (error.name === 'AbortError') return null;
    if (error.kind === 'gone') gone('The server does not answer. The page tries again every 2 seconds.');
    report?.(error instanceof Failure ? `${error.message} (${error.kind})` : error.message);
    return null;
  }
}

// ---- start, and changes of the address ----

async function start() {
  const list = await attempt(() => json(address(null)), message => instead('No list of data sets', message));
  if (!list) return;
  const before = JSON.stringify(databases);
  ({ databases, version } = list);
  gone(null);
  $('foot').textContent = `ShardDb ${version}`;
  if (JSON.stringify(databases) !== before) $('database').replaceChildren(...databases.map(({ path, kind, error }) => h('option', { value: path }, `${path || 'this data set'} · ${error ? 'cannot be opened' : kind}`)));
  await route();
}

async function route() {
  if (databases.length === 0) return instead('No data sets', 'No store, precomputed data set or container was found in the served directory. Build one with sharddb build, then reload.');
  const { path, key, generation } = location.hash.length > 1 ? parse(location.hash) : { path: (databases.find(({ error, kind }) => !error && SHARDED.includes(kind)) ?? databases[0]).path, key: null, generation: null };
  const database = databases.find(one => one.path === path);
  if (!database) return instead('No such data set', `Nothing named ${path} is served here.`);
  $('database').value = path;
  if (database.error) return instead(`${path} cannot be opened`, database.error);
  if (shown?.database !== database || shown.generation !== generation) {
    work.abort();
    work = new AbortController();
    if (!(await show(database, generation, work.signal))) return;
  }
  await (key === null ? preview() : find(key, true));
}

// ---- a database ----

async function show(database, generation, signal) {
  const info = await attempt(() => json(address(database.path, 'info', { generation }), signal), message => instead(`${database.path || 'The data set'} cannot be shown`, message));
  if (!info || signal.aborted) return false;
  lookup.abort();
  const at = database.kind === 'store' ? numberOf(info.generation) : null;
  shown = { database, generation, at, info, part: info.info ? described(info.info, info.sharding_at) : null, map: null, redraw: () => {}, statistics: null, first: null, next: null, range: null };
  $('empty').hidden = true;
  $('content').hidden = false;
  document.title = `${database.path || 'ShardDb'} · ShardDb`;
  showOverview();
  showGenerations();
  showSpecification();
  showElsewhere();
  showShards();
  for (const id of ['path', 'said', 'keys', 'keys-said', 'fill', 'size', 'rate', 'latency', 'totals']) $(id).replaceChildren();
  const grid = shown.part && gridOf(shown.part);
  $('key-help').textContent = `Decimal, or hex after 0x${grid ? `, or the position x,y,z of a chunk in the grid of ${grid.join(' × ')}` : ''}.`;
  $('value').hidden = true;
  for (const id of ['key', 'from', 'to']) $(id).value = '';
  $('browse').open = false;
  $('random').disabled = info.keys === 0;
  $('range').hidden = !info.spec;
  await poll();
  return !signal.aborted;
}

const TYPES = { skeletons: 'skeletons', mesh: 'legacy meshes', multires_mesh: 'multi-resolution meshes', volume: 'a volume', annotations: 'annotations' };

const numberOf = name => String(Number(name.replace(/^gen-0*/, '').split('-')[0]));

function kindInWords(kind, { native, type, generation, current }) {
  const source = { store: 'A store', generation: 'A generation of a store', foreign: 'A foreign data set', zarr: 'A Zarr container', bcolz: 'A bcolz container', bloscpack: 'A bloscpack file' }[kind] ?? kind;
  const what = TYPES[type] ? ` of ${TYPES[type]}` : '';
  const which = generation ? `, generation ${numberOf(generation)}${generation === current ? ', the current one' : ', not the current one'}` : '';
  return `${source}${what}${which}${native ? ', with checksums' : ''}.`;
}

function showOverview() {
  const { info, database } = shown, { keys, value_bytes: values, file_bytes: files, shards, spec } = info, slots = spec ? 2 ** Math.min(spec.shard_bits, 52) : null;
  $('title').textContent = database.path || 'This data set';
  $('kind').textContent = kindInWords(database.kind, info);
  const fact = (name, value, ...note) => h('div', {}, h('dt', {}, name), h('dd', {}, value, note.length ? h('small', {}, ...note) : null));
  const known = n => n !== null && n !== undefined;
  const lengths = list => (list?.length ? list.join(' × ') : null), { shape, chunk_shape, chunk_rows: rows, data_type, dtype, grid } = info.info ?? {};
  const chunk = chunk_shape ?? (rows && [rows, ...(shape ?? []).slice(1)]), type = data_type ?? dtype;
  const facts = spec ? [
    fact('Keys', known(keys) ? count(keys) : 'unknown', known(keys) && shards.length ? `${brief(keys / shards.length)} per shard` : ''),
    known(values) ? fact('Values', bytes(values), keys > 0 ? `mean ${size(Math.round(values / keys))}` : '') : null,
    known(files) ? fact('Files', bytes(files), keys > 0 && known(values) ? `${brief((files - values) / keys)} B per key beyond the value` : '') : null,
    fact('Shards', count(shards.length), slots < 2 ** 40 ? `of ${count(slots)} possible` : ''),
    fact('Minishards', count(2n ** BigInt(spec.minishard_bits)), 'in each shard'),
  ] : [['Shape', lengths(shape)], ['Chunk', lengths(chunk)], ['Grid of chunks', lengths(grid)], ['Data type', type]].map(([name, value]) => (value ? fact(name, String(value)) : null));
  $('facts').replaceChildren(...facts.filter(Boolean));
}

function showGenerations() {
  const { info, database } = shown, all = [...(info.generations ?? [])].sort((a, b) => b.number - a.number);
  $('generations-box').hidden = all.length === 0;
  $('generation-box').hidden = all.length < 2;
  const chosen = all.find(one => one.name === info.generation), usable = all.filter(one => one.state !== 'incomplete');
  const to = one => go(database.path, currentKey(), one.state === 'current' ? null : String(one.number));
  $('generation').replaceChildren(...usable.map(one => h('option', { value: one.number, selected: one === chosen }, `${one.number}${one.state === 'current' ? ', current' : ''}`)));
  $('generation').onchange = event => to(usable.find(one => String(one.number) === event.target.value));
  const look = one => (one === chosen ? ' on this page' : one.state === 'incomplete' ? '' : h('button', { type: 'button', 'aria-label': `Show generation ${one.number}`, onclick: () => to(one) }, 'Show'));
  const row = one => h('tr', {}, h('th', { scope: 'row' }, String(one.number)), h('td', {}, h('span', { class: `tag ${one.state}` }, one.state), look(one)),
    h('td', {}, h('time', { datetime: one.modified, title: one.modified }, new Date(one.modified).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' }))),
    h('td', { class: 'n' }, one.keys === null ? 'unknown' : count(one.keys)), h('td', { class: 'n' }, one.bytes === null ? 'unknown' : bytes(one.bytes)));
  $('generations').replaceChildren(h('thead', {}, h('tr', {}, ['Number', 'State', 'Written', 'Keys', 'Size'].map((name, i) => h('th', { scope: 'col', class: i > 2 ? 'n' : null }, name)))), h('tbody', {}, all.map(row)));
}

function specInWords({ hash, preshift_bits: preshift, minishard_bits: mini, shard_bits: shard, minishard_index_encoding: index, data_encoding: data }) {
  const raw = encoding => (encoding === 'gzip' ? 'compressed with gzip' : 'not compressed'), bits = n => (n === 1 ? 'bit' : `${n} bits`);
  const choice = (n, which, noun) => (n === 0 ? `There is one ${noun}.` : `The ${which} ${bits(n)} choose${n === 1 ? 's' : ''} one of ${count(2n ** BigInt(Math.min(n, 64)))} ${noun}s.`);
  return [
    preshift ? `The lowest ${bits(preshift)} of a key ${preshift === 1 ? 'is' : 'are'} dropped, so ${count(2n ** BigInt(preshift))} neighbours share a minishard.` : '',
    hash === 'identity' ? `${preshift ? 'The rest is' : 'Keys are'} not hashed.` : `MurmurHash3 (x86, 128 bits, of which 64 are used) hashes ${preshift ? 'the rest' : 'the key'}.`,
    mini ? choice(mini, 'lowest', 'minishard') : 'A shard has one minishard.', choice(shard, mini ? 'next' : 'lowest', 'shard'),
    `Minishard indexes are ${raw(index)}, values are ${raw(data)}.`,
  ].filter(Boolean).join(' ');
}

function showSpecification() {
  const { info } = shown;
  $('spec-words').textContent = info.spec ? specInWords(info.spec) : 'A container: a key is the number of a chunk.';
  $('spec').parentElement.hidden = !info.spec;
  $('spec').textContent = JSON.stringify(info.spec, null, 2);
  $('info').parentElement.hidden = !info.info;
  $('info').previousElementSibling.textContent = info.spec ? 'The file info' : 'Metadata';
  $('info').textContent = JSON.stringify(info.info, null, 2);
}

/** What opens the database in another program; clicking a button copies its line. */
function showElsewhere() {
  const { database } = shown, here = new URL('.', location.href);
  const copy = text => h('button', { type: 'button', class: 'copy', onclick: async event => {
    try { await navigator.clipboard.writeText(text); event.target.textContent = 'Copied'; } catch { event.target.textContent = 'Select it and copy'; }
    setTimeout(() => { event.target.textContent = 'Copy'; }, 2000);
  } }, 'Copy');
  const entry = (name, text) => (text ? [h('dt', {}, name), h('dd', {}, h('code', {}, text), copy(text))] : []);
  const link = database.neuroglancer ? [h('dt', {}, 'Neuroglancer'), h('dd', {}, h('a', { href: database.neuroglancer, target: '_blank', rel: 'noreferrer' }, 'Open in Neuroglancer'))] : [];
  $('open').replaceChildren(...link, ...entry('Layer source, sharded', database.layer), ...entry('Layer source, by object', database.objects_layer), ...entry('Files', new URL(`raw/${encoded(database.path)}/`, here).href), ...entry('Values', new URL(address(database.path, 'get/'), here).href + 'KEY'));
}

function showShards() {
  const { shards, spec } = shown.info;
  $('map').closest('section').hidden = !shards.length;
  $('fill').closest('.pair').hidden = !spec;
  if (!shards.length) return;
  $('map-words').textContent = 'A cell per shard, in order of their numbers. The filled height is its size' + (shards.some(shard => shard.keys !== null) ? ', the strength of the color its number of keys.' : '.');
  shown.map = shardMap($('map'), $('map-said'), shards, spec?.shard_bits);
}

// ---- statistics, every 2 seconds while the page is visible ----

let polling = null, tried = {};

async function poll() {
  clearTimeout(polling);
  const of = shown;
  if (!document.hidden && of) {
    let isRemoved = false;
    const statistics = await attempt(() => json(address(of.database.path, 'stats', { generation: of.at })), message => { isRemoved = message.endsWith('(not-found)'); });
    if (of !== shown) return; // another database is on the page, and polls by itself
    if (statistics) showStatistics(statistics);
    if (of.generation === null && of.at && (isRemoved || isNewer(statistics?.current))) return follow();
  } else if (!document.hidden) {
    await start();
  }
  again();
}

function again() {
  clearTimeout(polling);
  polling = setTimeout(poll, POLL);
}

/** Whether another generation is current, and may be opened. */
function isNewer(current) {
  if (!current || current === shown.info.generation) return false;
  const name = `${shown.database.path}/${current}`;
  tried = { name, times: tried.name === name ? tried.times + 1 : 1 };
  return tried.times <= MOST_TRIES;
}

/** Shows the current generation: the page follows it unless its address has a number. */
async function follow() {
  shown = null;
  await route();
  if (!shown) return again();
  $('said').textContent = `Generation ${shown.at} is current now. ${$('said').textContent}`;
}

function showStatistics(statistics) {
  gone(null);
  const drawn = JSON.stringify([shown.statistics?.minishard_fill, shown.statistics?.value_size]);
  shown.statistics = statistics;
  if (drawn !== JSON.stringify([statistics.minishard_fill, statistics.value_size])) drawHistograms();
  drawLive();
}

function drawHistograms() {
  const { minishard_fill: fill, value_size: sizes, sampled, damaged } = shown.statistics, part = (sampled ? ', of a sample' : '') + (damaged ? ', without damaged parts' : '');
  histogram($('fill'), fill, { unit: count, axis: `keys in a minishard${part}`, things: 'minishards' });
  histogram($('size'), sizes, { unit: size, axis: `size of a value, as stored${part}`, things: 'values' });
}

function drawLive() {
  const { requests_per_s: seconds, latency_us: latency, requests, errors, bytes_sent: sent, uptime_s: uptime } = shown.statistics;
  const perSecond = seconds.slice(0, -1); // the last second is not over
  rate($('rate'), perSecond);
  latencies($('latency'), latency);
  $('totals').replaceChildren(`${plural(requests, 'request')}, ${plural(errors, 'error')} and `, bytes(sent), ` sent in ${uptime < 120 ? `${Math.round(uptime)} s` : uptime < 7200 ? `${Math.round(uptime / 60)} minutes` : `${brief(uptime / 3600)} hours`}.`);
  $('beat').hidden = false;
  $('beat').textContent = `${brief(perSecond.at(-1) ?? 0)} per second`;
}

// ---- a key ----

const currentKey = () => parse(location.hash).key;

/** The key that a text names: decimal, also as `count` writes it, 0x.., or the position of a chunk. Throws what is wrong. */
function keyOf(text) {
  const plain = text.trim().replaceAll('\u202f', ''), grid = shown.part && gridOf(shown.part);
  if (/^\d+(, *\d+){2}$/.test(plain) && grid) {
    const position = plain.split(',').map(Number);
    if (position.some((at, d) => at >= grid[d])) throw new Error(`The grid has ${grid.join(' × ')} chunks, numbered from 0.`);
    return String(toMorton(position, grid));
  }
  if (!/^(\d+|0x[0-9a-f]+)$/i.test(plain)) throw new Error(grid ? 'Expected a number, 0x and hex digits, or the position x,y,z of a chunk.' : 'Expected a number, or 0x and hex digits.');
  const key = BigInt(plain);
  if (key > MOST_KEY) throw new Error(`Keys are at most ${MOST_KEY}.`);
  return String(key);
}

/** The position of the chunk that a key names, in words; null if it names none. */
function chunkName(key) {
  const grid = shown.part && gridOf(shown.part), position = grid && fromMorton(BigInt(key), grid);
  return position && toMorton(position, grid) === BigInt(key) && position.every((at, d) => at < grid[d]) ? `chunk ${position.join(', ')} of the grid` : null;
}

/** Shows the first key, so that the page has a lookup to look at; the address and the screen reader are left alone. */
async function preview() {
  if (shown.info.keys === 0) { $('said').textContent = 'This generation has no keys.'; return; }
  const of = shown, first = await attempt(() => json(address(of.database.path, 'keys', { limit: 1, generation: of.at }), work.signal));
  if (first?.keys.length && of === shown && currentKey() === null) await find(first.keys[0], false);
}

/** Looks up a key and shows its path and its value. */
async function find(key, announce) {
  lookup.abort();
  lookup = new AbortController();
  const { signal } = lookup, of = shown, at = what => address(of.database.path, `${what}/${key}`, { generation: of.at });
  $('key').value = key;
  let wrong = null;
  $('value').setAttribute('aria-busy', true);
  const say = text => { $('said').textContent = text; $('said').classList.toggle('error', !!wrong); };
  const located = of.info.spec && await attempt(() => json(at('locate'), signal), message => { wrong = message; });
  if (signal.aborted || of !== shown) return;
  if (located) {
    const file = of.info.shards.find(shard => shard.file === located.file);
    of.redraw = showPath($('path'), located, of.info.spec, file, chunkName(key));
    of.map?.mark(located.file, String(BigInt('0x' + located.shard)));
    const why = absence(located, !!file);
    if (why) {
      $('value').hidden = true;
      $('value').setAttribute('aria-busy', false);
      return say(`Key ${key} is absent: ${why}.`);
    }
  } else {
    $('path').replaceChildren();
  }
  const found = () => say(wrong ?? (announce ? `Key ${key} found.` : 'The first key. Type another, or take one at random.'));
  if (located) found();
  if (await load(at('get'), key, signal, MOST_VALUE)) say(`Key ${key} is absent.`);
  else if (!located && !signal.aborted) found();
}

const DRAWN = ['skeletons', 'mesh', 'multires_mesh'];

/** A link that opens Neuroglancer with the object of a key. */
function drawing({ database, info }, key) {
  if (!database.neuroglancer || !DRAWN.includes(info.type)) return [];
  const [url, state] = database.neuroglancer.split('#!'), all = JSON.parse(decodeURIComponent(state));
  all.layers[0].segments = [key];
  return [' ', h('a', { href: `${url}#!${encodeURIComponent(JSON.stringify(all))}`, rel: 'noreferrer', target: '_blank' }, 'Draw in Neuroglancer')];
}

function valueHead(url, key, text) {
  $('value').hidden = false;
  $('value').setAttribute('aria-busy', false);
  $('value-size').textContent = text;
  $('value-links').replaceChildren(h('a', { href: url, download: `${key}` }, 'Download'), ...(shown ? drawing(shown, key) : []));
  $('tabs').replaceChildren();
  $('view').replaceChildren();
}

/** Loads a value and shows it; only its length if that is more than `most`. Returns whether the key is absent. */
async function load(url, key, signal, most) {
  let length = 0, absent;
  const failed = message => { valueHead(url, key, ''); $('value-links').replaceChildren(); $('view').append(h('p', { class: 'error' }, message)); $('value').hidden = absent = /^key \d+ is absent/.test(message); };
  const data = await attempt(async () => {
    const response = await request(url, signal);
    length = Number(response.headers.get('content-length'));
    if (length <= most) return new Uint8Array(await response.arrayBuffer());
    response.body.cancel();
    return null;
  }, failed);
  if (signal.aborted || !shown) return;
  if (length > most) {
    valueHead(url, key, size(length));
    $('view').append(h('button', { type: 'button', onclick: () => load(url, key, lookup.signal, Infinity) }, 'Load the value'));
  }
  if (!data) return absent;
  valueHead(url, key, data.length === 0 ? 'Present and empty.' : plural(data.length, 'byte'));
  const { info, part } = shown;
  showTabs(views({ data, key, type: info.type, info: info.info ?? {}, part, pointer: info.sharding_at ?? '' }));
}

/** Tabs in the pattern of ARIA: arrow keys choose, one tab stop. */
function showTabs(all) {
  const tabs = all.map((view, i) => h('button', { type: 'button', role: 'tab', id: `tab-${i}`, 'aria-controls': 'view', onclick: () => choose(i) }, view.name));
  function choose(i) {
    tabs.forEach((tab, n) => { tab.setAttribute('aria-selected', n === i); tab.tabIndex = n === i ? 0 : -1; });
    $('view').setAttribute('aria-labelledby', `tab-${i}`);
    $('view').replaceChildren();
    try { all[i].show($('view')); } catch (error) { $('view').append(h('p', { class: 'error' }, `Cannot be shown as ${all[i].name.toLowerCase()}: ${error.message}.`)); }
  }
  $('tabs').onkeydown = event => {
    const at = tabs.indexOf(document.activeElement), to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    choose(next);
    tabs[next].focus();
  };
  $('tabs').replaceChildren(...tabs);
  choose(0);
}

// ---- random keys, and lists of keys ----

const FIRST = 1000;

/**
 * A key by chance: of the first thousand if there are no more, else of a random shard, after a random number of its keys.
 * Ranges would read all indexes.
 */
async function randomKey() {
  const of = shown, { shards } = of.info, below = n => Math.floor(Math.random() * n);
  const page = place => json(address(of.database.path, 'keys', { limit: FIRST, ...place, generation: of.at }), work.signal);
  let found = of.first ??= await page({});
  if (found.next !== null && shards.length) {
    const { file, keys } = shards[below(shards.length)];
    found = await page({ shard: file.split('.')[0], skip: below(keys ?? 1) });
    if (keys > 0) found.keys.length = Math.min(1, found.keys.length);
  }
  return found.keys[below(found.keys.length)] ?? null;
}

let lists = 0;

async function listKeys(cursor) {
  const of = shown, list = ++lists, said = message => { $('keys-said').textContent = message; };
  const page = await attempt(async () => {
    const [from, to] = ['from', 'to'].map(id => ($(id).value.trim() === '' ? '' : keyOf($(id).value)));
    if (cursor === null) of.range = from + to === '' ? null : `${from}..${to}`; // the next pages are of the same range
    return json(address(of.database.path, 'keys', { range: of.range, limit: 60, cursor, generation: of.at }), work.signal);
  }, said);
  if (!page || of !== shown || list !== lists) return; // a later list is under way
  $('keys').replaceChildren(...page.keys.map(key => h('li', {}, h('a', { href: hashOf(of.database.path, key, of.generation) }, key))));
  said(page.keys.length ? plural(page.keys.length, 'key') + (page.next ? ', and more' : '') : 'No keys.');
  of.next = page.next;
  $('more').hidden = !page.next;
}

// ---- events ----

$('database').onchange = event => go(event.target.value, null, null);
$('form').onsubmit = event => {
  event.preventDefault();
  try {
    go(shown.database.path, keyOf($('key').value), shown.generation);
  } catch (error) {
    $('said').textContent = error.message;
    $('said').classList.add('error');
  }
};
$('random').onclick = async () => {
  const report = message => { $('said').textContent = message; }, of = shown, key = await attempt(randomKey, report);
  if (key) go(of.database.path, key, of.generation);
};
$('range').onsubmit = event => { event.preventDefault(); listKeys(null); };
$('more').onclick = () => listKeys(shown.next);
$('browse').ontoggle = () => { if ($('browse').open && $('keys').children.length === 0) listKeys(null); };
$('skip').onclick = event => { event.preventDefault(); $('key').focus(); };
window.onhashchange = route;
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => shown?.map?.draw());

let width = innerWidth;
window.addEventListener('resize', () => {
  if (innerWidth === width || !shown) return;
  width = innerWidth;
  shown.map?.draw();
  shown.redraw();
  if (shown.statistics) { drawHistograms(); drawLive(); }
});

start().finally(again);
