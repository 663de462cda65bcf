#!/usr/bin/env node
// The page of `sharddb serve` in headless Chromium, with the real server.
// usage: check.mjs --sharddb COMMAND --data DIR [--root DIR] [--out DIR] [--pictures DIR] [--only WORD] [-v]
// DATA: what scripts/page.sh builds. ROOT: this project, default: above this file. OUT: the screenshots. PICTURES: where those of README and docs/serve.md go.
// A line per check; the last one is `N passed, N failed`. Exit 0: all passed; 1: one failed; 2: the checks could not run.
import fs from 'node:fs';
import path from 'node:path';
import { createRequire } from 'node:module';
import { execFileSync, spawn } from 'node:child_process';
import { chromium } from 'playwright-core';

const HERE = path.dirname(fs.realpathSync(new URL(import.meta.url).pathname));
const AXE = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const MOST_BYTES = 100_000; // of all files of the page
const STUCK_MS = 120_000; // for whatever is waited for: many times what it takes on a busy machine
const opt = { out: path.join(HERE, 'out'), root: path.join(HERE, '..') };
for (let i = 2, args = process.argv; i < args.length; i++) {
  if (args[i] === '-v') opt.verbose = true;
  else if (args[i].startsWith('--')) opt[args[i].slice(2)] = args[++i];
}
if (!opt.data || !opt.sharddb) { console.error('usage: check.mjs --sharddb COMMAND --data DIR [--root DIR] [--out DIR] [--pictures DIR] [--only WORD] [-v]'); process.exit(2); }
fs.mkdirSync(opt.out, { recursive: true });

// ---- the server ----

/** Starts `sharddb serve` and returns it with the URL of its page, which is above that of the raw files. */
async function serve(...options) {
  const child = spawn(opt.sharddb, ['serve', opt.data, ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
  process.on('exit', () => child.kill());
  const url = await new Promise((resolve, reject) => {
    let text = '';
    child.stderr.on('data', data => { text += data; if (opt.verbose) process.stderr.write(data); });
    child.stdout.on('data', data => { text += data; const match = /(https?:\/\/[^\s]*?\/)raw\/?\s/.exec(text); if (match) resolve(match[1]); });
    child.on('close', code => reject(new Error(`the server ended (${code}): ${text}`)));
    setTimeout(() => reject(new Error(`the server printed no URL of raw files in ${STUCK_MS} ms: ${text}`)), STUCK_MS).unref();
  });
  return { child, url };
}
/** Ends a server; one that does not end is killed, and an error. */
const stop = ({ child }) => new Promise((resolve, reject) => {
  if (child.exitCode !== null || child.signalCode) return resolve();
  const watchdog = setTimeout(() => { child.kill('SIGKILL'); reject(new Error(`the server did not end in ${STUCK_MS} ms`)); }, STUCK_MS);
  child.once('exit', () => { clearTimeout(watchdog); resolve(); });
  child.kill('SIGTERM');
});
/** Serves on a port that was served before, as soon as no other program has it. */
async function serveAgain(port, ...options) {
  for (const begun = Date.now(); ;) {
    try {
      return await serve('--port', port, ...options);
    } catch (error) {
      if (!/in use/.test(error.message) || Date.now() - begun > STUCK_MS) throw error;
      await new Promise(resolve => setTimeout(resolve, 200));
    }
  }
}

let server, browser;
try {
  server = await serve('--port', '0');
  browser = await chromium.launch({ timeout: STUCK_MS, executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage', '--force-color-profile=srgb', '--disable-background-networking'] });
} catch (error) { console.error(error.message); process.exit(2); }

// ---- checks ----

let passed = 0, failed = 0;
const expect = (condition, message) => { if (!condition) throw new Error(message); };
const equal = (found, expected, what) => expect(JSON.stringify(found) === JSON.stringify(expected), `${what}: expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`);

/** A page, with what it must not do: errors on the console, requests that fail, requests to other hosts. */
async function open(hash = '', { allowed = [], base = server.url, settled = true, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1240, height: 900 }, reducedMotion: 'reduce', colorScheme: 'light', locale: 'en-GB', timezoneId: 'UTC', ...options });
  context.setDefaultTimeout(STUCK_MS);
  const page = await context.newPage(), wrong = [];
  page.on('console', message => { if (['error', 'warning'].includes(message.type()) && !allowed.some(text => message.text().includes(text))) wrong.push(`console: ${message.text()} ${message.location().url ?? ''}`); });
  page.on('pageerror', error => wrong.push(`exception: ${error.message}`));
  page.on('request', request => { if (!request.url().startsWith(base) && !/^(data|blob):/.test(request.url())) wrong.push(`request to ${request.url()}`); });
  page.wrong = wrong;
  page.pending = new Set();
  page.on('request', request => page.pending.add(request));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, request => page.pending.delete(request));
  await page.goto(base + hash);
  if (settled) await page.waitForFunction(() => document.querySelector('#content:not([hidden]) .chain, #empty:not([hidden]), #said:not(:empty)'));
  return page;
}

/** Runs a check on a page of its own. */
async function check(name, hash, run, options) {
  if (opt.only && !name.includes(opt.only)) return;
  let page;
  try {
    page = await open(hash, options);
    await run(page);
    equal(page.wrong, [], 'what the page must not do');
    passed++;
    console.log(`ok    ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${name}: ${error.message.split('\n').slice(0, 6).join('\n      ')}`);
    await page?.screenshot({ path: path.join(opt.out, `FAIL-${name.replaceAll(/\W+/g, '-')}.png`), fullPage: true }).catch(() => {});
  } finally {
    await page?.context().close();
  }
}

const textOf = (page, selector) => page.locator(selector).first().innerText();
/** Waits until the page says something, and until what it loads then is drawn. */
async function said(page, text) {
  await page.waitForFunction(text => document.querySelector('#said').textContent.includes(text), text);
  await quiet(page);
}
const boxes = page => page.locator('.chain li').evaluateAll(items => Object.fromEntries(items.map(item => [item.querySelector('b').textContent, item.querySelector('strong').textContent])));
const digits = text => text.replaceAll('\u202f', '');

/** Types a key and waits until its lookup and its value are on the page. */
async function find(page, key) {
  await page.fill('#key', key);
  await page.press('#key', 'Enter');
  await page.waitForFunction(() => /^(Key|Expected|The grid)/.test(document.querySelector('#said').textContent));
  await loaded(page);
}
const loaded = page => page.waitForSelector('#value:not([aria-busy=true])', { state: 'attached' });
/** Waits for two frames: the second one shows every change that was requested before. */
const drawn = page => page.evaluate(async () => { for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame); });
/** Waits for a condition, which is checked once per frame. */
async function until(page, condition, message) {
  for (const begun = Date.now(); !(await condition()); await drawn(page)) expect(Date.now() - begun < STUCK_MS, message);
}
/** Waits until no request is under way and its answer is drawn. */
async function quiet(page) {
  await loaded(page);
  await until(page, async () => { await drawn(page); return page.pending.size === 0; }, 'expected an end of the requests');
  await drawn(page);
}
const showTab = async (page, name) => { await page.click(`#tabs >> text="${name}"`); };

/** The findings of axe-core that matter to a user. */
async function accessible(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run(document));
  const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  equal(grave.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.target.join(' ')).slice(0, 3).join(', ')}`), [], 'axe-core');
  if (opt.verbose) for (const { id, impact, nodes } of violations) console.error(`      ${impact} ${id} ${nodes[0].target}`);
}
const noSidewaysScroll = async page => equal(await page.evaluate(() => document.documentElement.scrollWidth), page.viewportSize().width, 'width of the page');

/** The number of different colors in a canvas: a blank one has one. */
const colors = (page, selector) => page.locator(selector).evaluate(canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
});

const cities = new Map(fs.readFileSync(path.join(opt.root, 'examples/geonames-cities.ndjson'), 'utf8').trim().split('\n').map(line => { const key = /"key":(\d+)/.exec(line)[1]; return [key, JSON.parse(line).value]; }));
const keys = [...cities.keys()], KEY = '53654', LATE = keys.at(-1); // LATE is only in the second generation

await check('the page is under 100 KB, and sends its files with a type', '', async page => {
  const files = await page.evaluate(() => performance.getEntriesByType('resource').filter(({ name }) => /\/page\//.test(name)).map(({ name }) => name));
  let total = 0;
  for (const url of [server.url, ...files]) {
    const response = await fetch(url), length = (await response.arrayBuffer()).byteLength;
    expect(/^text\/(html|css|javascript)/.test(response.headers.get('content-type')), `${url}: type ${response.headers.get('content-type')}`);
    total += length;
  }
  expect(files.length >= 2 && total < MOST_BYTES, `expected fewer than ${MOST_BYTES} bytes, found ${total} in ${files.length + 1} files`);
  console.log(`      ${total} bytes in ${files.length + 1} files`);
});

await check('it opens with the first data set and a lookup', '', async page => {
  await page.waitForSelector('.chain');
  expect((await page.locator('#database option').count()) >= 8, 'expected all data sets in the list');
  expect((await page.locator('#facts dd').count()) === 5, 'expected five facts');
});

await check('it lists the data sets once: a second time would undo what was typed meanwhile', '#cities', async page => {
  const lists = await page.evaluate(list => performance.getEntriesByType('resource').filter(({ name }) => name === list).length, `${server.url}api/`);
  equal(lists, 1, 'requests of the list');
});

await check('a typed key is found: its path has the real numbers, and its bytes are where the page says', '#cities', async page => {
  await find(page, KEY);
  const found = await boxes(page), located = JSON.parse(execFileSync(opt.sharddb, ['locate', path.join(opt.data, 'cities'), KEY], { timeout: STUCK_MS }));
  equal([found.Key, found.Hash.slice(2), parseInt(found.Shard, 16), Number(digits(found.Minishard))], [KEY, located.hash.slice(2).padStart(16, '0'), located.shard, located.minishard], 'path');
  const [start, end] = digits(found.Bytes).split('–').map(Number);
  equal([start, end - start], [located.offset, located.stored_len], 'byte range');
  const file = (await textOf(page, '.chain .shard')).match(/file (\S+)/)[1];
  const bytes = await (await fetch(`${server.url}raw/cities/${file}`, { headers: { Range: `bytes=${start}-${end - 1}` } })).text();
  equal(JSON.parse(bytes), cities.get(KEY), 'the bytes of the range');
  equal(JSON.parse(await textOf(page, '#view pre')), cities.get(KEY), 'the value on the page');
  const bits = await page.locator('.bits i').allInnerTexts();
  equal(BigInt('0b' + bits.join('')).toString(16).padStart(16, '0'), found.Hash.slice(2), 'the bits');
  equal(await page.evaluate(() => location.hash), `#cities/${KEY}`, 'the address');
});

await check('hash values are those of the reference', '#cities', async page => {
  const vectors = fs.readFileSync(path.join(opt.root, 'tests/data/hash_vectors.jsonl'), 'utf8').trim().split('\n').map(JSON.parse).filter(({ hash, preshift_bits: preshift }) => hash !== 'identity' && preshift === 0);
  for (const { key, hex } of vectors.slice(0, 5)) {
    await find(page, key);
    await said(page, key);
    equal((await boxes(page)).Hash, `0x${hex}`, `hash of ${key}`);
  }
});

await check('keys: hex, separators, the largest, and mistakes', '#cities', async page => {
  await find(page, '0x' + BigInt(KEY).toString(16));
  await said(page, `Key ${KEY} found`);
  await find(page, ' 53\u202f654 ');
  await said(page, `Key ${KEY} found`);
  await find(page, '18446744073709551615');
  await said(page, 'Key 18446744073709551615 is absent');
  for (const wrong of ['18446744073709551616', 'seven', '-1', '', '53 654', '53_654', "53'654", '53\u2009654', '53,654', '0x 5']) {
    await find(page, KEY);
    await said(page, `Key ${KEY} found`);
    await page.fill('#key', wrong);
    await page.press('#key', 'Enter');
    await page.waitForSelector('#said.error');
  }
});

await check('an absent key says where it was looked for', '#cities/5', async page => {
  await said(page, 'Key 5 is absent');
  expect((await page.locator('.chain .stop').count()) === 1, 'expected the chain to stop');
  expect(await page.locator('#value').isHidden(), 'expected no value');
});

await check('a deep link opens a key, and back returns to the one before', `#cities/${KEY}`, async page => {
  await said(page, `Key ${KEY} found`);
  await find(page, keys[0]);
  await said(page, `Key ${keys[0]} found`);
  await page.goBack();
  await said(page, `Key ${KEY} found`);
});

await check('generations: by the table, by the list, by the address', `#cities/${LATE}`, async page => {
  await said(page, `Key ${LATE} found`);
  equal(await page.locator('#generations tbody th').allInnerTexts(), ['2', '1'], 'generations');
  await page.click('#generations button');
  await said(page, `Key ${LATE} is absent`);
  equal(await page.evaluate(() => location.hash), `#cities/${LATE}?generation=1`, 'the address');
  equal(digits(await textOf(page, '#facts dd')).split('\n')[0], '4000', 'keys');
  await find(page, KEY);
  await said(page, `Key ${KEY} found`);
  equal(JSON.parse(await textOf(page, '#view pre')), { name: 'as it was' }, 'the value of the first generation');
  await page.selectOption('#generation', '2');
  await page.waitForFunction(() => document.querySelector('#view pre')?.textContent.includes('Mogadishu'));
  await page.goBack();
  await page.waitForFunction(() => document.querySelector('#view pre')?.textContent.includes('as it was'));
});

await check('random keys are keys', '#cities', async page => {
  for (let i = 0; i < 3; i++) {
    const before = await page.evaluate(() => location.hash);
    await page.click('#random');
    await page.waitForFunction(before => location.hash !== before, before);
    await page.waitForFunction(() => /^Key \d+ found/.test(document.querySelector('#said').textContent));
    expect(cities.has(await page.inputValue('#key')), 'expected a key of the input');
  }
  const shards = new Set();
  for (let i = 0; i < 8; i++) {
    const before = await page.inputValue('#key');
    await page.click('#random');
    await page.waitForFunction(before => document.querySelector('#key').value !== before, before);
    await loaded(page);
    shards.add((await boxes(page)).Shard);
  }
  expect(shards.size > 2, `expected keys of many shards, found ${[...shards]}`);
});

await check('lists of keys: a range, the next page, a click', '#cities', async page => {
  await page.click('#browse summary');
  await page.waitForSelector('#keys li');
  await page.fill('#from', '50000');
  await page.fill('#to', '100000');
  await page.click('#range button');
  const expected = keys.filter(key => BigInt(key) >= 50000n && BigInt(key) < 100000n).sort((a, b) => Number(BigInt(a) - BigInt(b)));
  await page.waitForFunction(first => document.querySelector('#keys a')?.textContent === first, expected[0]);
  equal(await page.locator('#keys a').allInnerTexts(), expected.slice(0, 60), 'keys');
  await page.click('#keys a >> nth=1');
  await page.waitForFunction(() => /^Key \d+ found/.test(document.querySelector('#said').textContent));
});

await check('lists of keys: other text does not change a list, another data set begins without it', '#cities', async page => {
  await page.click('#browse summary');
  await page.waitForSelector('#keys li');
  await page.fill('#from', '50000');
  await page.click('#range button');
  const expected = keys.filter(key => BigInt(key) >= 50000n).sort((a, b) => (BigInt(a) < BigInt(b) ? -1 : 1));
  const first = at => page.waitForFunction(first => document.querySelector('#keys a')?.textContent === first, expected[at]);
  await first(0);
  await page.fill('#from', '9');
  await page.click('#more');
  await first(60);
  await page.fill('#from', 'x');
  await page.click('#range button');
  await page.waitForFunction(() => document.querySelector('#keys-said').textContent.startsWith('Expected a number'));
  await page.selectOption('#database', 'array.zarr');
  await page.waitForFunction(() => document.querySelector('#title').textContent === 'array.zarr' && !document.querySelector('#browse').open);
  await page.click('#browse summary');
  await page.waitForSelector('#keys li');
  equal(await page.inputValue('#from'), '', 'first key');
});

await check('values: text, JSON, hex', `#cities/${KEY}`, async page => {
  await said(page, 'found');
  equal(await page.locator('#tabs button').allInnerTexts(), ['JSON', 'Text', 'Hex'], 'tabs');
  await showTab(page, 'Hex');
  const hex = (await textOf(page, '#view pre')).split('\n').map(line => line.slice(10, 57)).join(' ').trim().split(/\s+/);
  equal(JSON.parse(Buffer.from(hex.join(''), 'hex').toString()), cities.get(KEY), 'bytes of the hex view');
});

await check('values: PNG and JPEG', '#pictures/1', async page => {
  await page.waitForFunction(() => document.querySelector('#view img')?.naturalWidth === 48);
  await find(page, '2');
  await page.waitForFunction(() => document.querySelector('#view img')?.naturalWidth === 24);
});

await check('values: markup is text, an empty value is present', '#pictures/3', async page => {
  await said(page, 'found');
  await page.waitForFunction(() => document.querySelector('#view pre')?.textContent.startsWith('<script>'));
  equal(await page.evaluate(() => globalThis.injected ?? null), null, 'injected');
  await find(page, '4');
  await page.waitForFunction(() => document.querySelector('#value-size').textContent === 'Present and empty.');
});

await check('values: a skeleton is drawn, and turns', '#fly/seg/skeletons', async page => {
  await page.waitForSelector('#view canvas.turn');
  await drawn(page);
  const image = () => page.locator('canvas.turn').evaluate(canvas => canvas.toDataURL()), before = await image();
  expect((await colors(page, 'canvas.turn')) > 4, 'expected lines');
  await page.focus('canvas.turn');
  await page.keyboard.press('ArrowLeft');
  await until(page, async () => (await image()) !== before, 'expected another picture after an arrow key');
  const turned = await image();
  const box = await page.locator('canvas.turn').boundingBox();
  await page.mouse.move(box.x + 100, box.y + 100);
  await page.mouse.down();
  await page.mouse.move(box.x + 160, box.y + 120, { steps: 4 });
  await page.mouse.up();
  await until(page, async () => (await image()) !== turned, 'expected another picture after dragging');
});

await check('values: a legacy mesh is drawn, with a key above 2^53', '#meshes/9007199254740993', async page => {
  await said(page, 'Key 9007199254740993 found');
  await page.waitForSelector('#view canvas.turn');
  await drawn(page);
  expect((await colors(page, 'canvas.turn')) > 50, 'expected shaded triangles');
  expect((await textOf(page, '#view')).includes('1 200 triangles'.replace(' ', '\u202f')), 'expected the number of triangles');
});

await check('values: a chunk of a volume, by its position', '#fly/image/s0', async page => {
  await find(page, '1,0,2');
  await said(page, 'Key 33 found');
  const shown = await page.locator('canvas.chunk').evaluate(canvas => { const { data } = canvas.getContext('2d').getImageData(0, 0, 32, 32); return Array.from({ length: 1024 }, (_, i) => data[4 * i]); });
  const bytes = new Uint8Array(await (await fetch(`${server.url}api/fly/image/s0/get/33`)).arrayBuffer()), low = Math.min(...bytes), high = Math.max(...bytes);
  expect(high > low, 'expected different voxels');
  for (let i = 0; i < 1024; i++) expect(Math.abs(shown[i] - ((bytes[i] - low) / (high - low)) * 255) <= 1, `pixel ${i}: value ${bytes[i]} of ${low} to ${high}, shown as ${shown[i]}`);
  await page.locator('#view input[type=range]').fill('20');
  await page.waitForFunction(() => document.querySelector('canvas.chunk').getAttribute('aria-label').includes('z = 84'));
  await find(page, '4,0,0');
  await said(page, 'The grid has 4 × 4 × 4 chunks');
  await find(page, ' 1, 0, 2 ');
  await said(page, 'Key 33 found');
  await find(page, '1 0 2'); // not key 102, and not the position 1,0,2
  await said(page, 'Expected a number');
});

await check('values: segments, annotations, a manifest with a link to Neuroglancer', '#fly/seg/s0', async page => {
  await page.waitForSelector('canvas.chunk');
  expect((await colors(page, 'canvas.chunk')) >= 1, 'expected a chunk');
  await page.selectOption('#database', 'fly/ann/by_id');
  await page.waitForFunction(() => document.querySelector('#view')?.textContent.includes('1 annotation of type point'));
  await page.selectOption('#database', 'fly/ann/rel');
  await page.waitForFunction(() => /\d annotations of type point/.test(document.querySelector('#view')?.textContent));
  await page.selectOption('#database', 'fly/seg/mesh');
  await page.waitForFunction(() => document.querySelector('#view')?.textContent.includes('manifest'));
  const link = await page.locator('#value-links a', { hasText: 'Neuroglancer' }).getAttribute('href'), state = JSON.parse(decodeURIComponent(link.split('#!')[1]));
  expect(/^https?:/.test(link), 'expected a link');
  equal(state.layers.map(({ type, segments }) => [type, segments]), [['segmentation', [await page.inputValue('#key')]]], 'layers of Neuroglancer');
});

await check('values: a large one is loaded on request, whatever its stored length', '#large/7', async page => {
  await page.waitForFunction(() => document.querySelector('#value-size').textContent === '32.4 MiB');
  equal(await page.locator('#tabs button').count(), 0, 'views');
  await page.click('#view button');
  await page.waitForFunction(() => document.querySelector('#value-size').textContent.replaceAll('\u202f', '') === '34000000 bytes');
});

await check('a container has keys and values, but no path', '#array.zarr', async page => {
  await page.waitForFunction(() => document.querySelector('#tabs button'));
  expect((await page.locator('.chain').count()) === 0, 'expected no path');
  equal((await page.locator('#facts dd').allInnerTexts()).slice(0, 2), ['50 × 70 × 60', '8 × 16 × 16'], 'shape and chunk');
});

await check('a container: an absent chunk is not found', '#array.zarr', async page => {
  await page.waitForFunction(() => document.querySelector('#tabs button'));
  const words = await page.evaluate(() => { const all = []; new MutationObserver(() => all.push(document.querySelector('#said').textContent)).observe(document.querySelector('#said'), { childList: true }); globalThis.words = all; return all; });
  equal(words, [], 'what the page said');
  await find(page, '140'); // the grid has 7 × 5 × 4 chunks
  await said(page, 'Key 140 is absent');
  expect(await page.locator('#value').isHidden(), 'expected no value');
  await find(page, '139');
  await said(page, 'Key 139 found');
  await page.waitForSelector('#tabs button');
  expect(await page.locator('#value').isVisible(), 'expected a value');
  equal(await page.evaluate(() => globalThis.words), ['Key 140 is absent.', 'Key 139 found.'], 'what the page said');
}, { allowed: ['Failed to load resource'] });

const golden = JSON.parse(fs.readFileSync(path.join(HERE, 'golden.json')));

for (const [hash, { key, position, start, inside, slice, low, high, numbers }] of [['array.zarr', golden.planes[0]], ['plane.zarr', golden.planes[1]]]) {
  await check(`values: a chunk of ${hash} has the elements of zarr-python`, `#${hash}/${key}`, async page => {
    await page.waitForSelector('canvas.chunk');
    equal((await page.locator('#tabs button').allInnerTexts()).slice(0, 2), ['Chunk', 'Numbers'], 'tabs');
    if (inside.length > 2) {
      await page.locator('#view input[type=range]').fill(String(slice));
      await page.waitForFunction(words => document.querySelector('canvas.chunk').getAttribute('aria-label').startsWith(words), `Slice dimension 0 = ${start[0] + slice}; `);
    }
    expect((await textOf(page, '#view')).startsWith(`Chunk ${position.join(', ')} of the grid: `), 'expected the position');
    const [height, width] = inside.slice(-2), shown = await page.locator('canvas.chunk').evaluate(canvas => ({ width: canvas.width, height: canvas.height, data: [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data] }));
    equal([shown.width, shown.height], [width, height], 'elements in the array');
    numbers.forEach((number, i) => expect(Math.abs(shown.data[4 * i] - ((number - low) / (high - low)) * 255) <= 1, `pixel ${i}: ${number} of ${low} to ${high} is shown as ${shown.data[4 * i]}`));
    const box = await page.locator('canvas.chunk').boundingBox(), [y, x] = [height - 1, 1];
    await page.mouse.move(box.x + ((x + .5) / width) * box.width, box.y + ((y + .5) / height) * box.height);
    const [, value] = /^Value (\S+) at /.exec(await page.locator('#view p.help').last().innerText());
    expect(Math.abs(Number(value) - numbers[y * width + x]) < 1e-9 || Math.fround(Number(value)) === Math.fround(numbers[y * width + x]), `expected ${numbers[y * width + x]}, found ${value}`);
  });
}

await check('values: a chunk of a bcolz array is a table of its numbers', `#column/${golden.column.key}`, async page => {
  const { first, numbers } = golden.column;
  await page.waitForSelector('#view table');
  equal(await page.locator('#tabs button').allInnerTexts(), ['Numbers', 'Hex'], 'tabs');
  equal((await page.locator('#view td').allInnerTexts()).map(Number), numbers, 'numbers');
  equal((await page.locator('#view tbody th').allInnerTexts()).slice(0, 2).map(digits), [String(first), String(first + 8)], 'indexes');
  equal((await page.locator('#facts dd').allInnerTexts()), ['3000', '1024', '>f4'], 'shape, chunk, type');
});

await check('values: a chunk of strings is not a table of numbers', '#words', async page => {
  await page.waitForSelector('#tabs button');
  equal((await page.locator('#tabs button').allInnerTexts()).filter(name => name !== 'Text'), ['Hex'], 'tabs');
});

// 16 minishards by the lowest bits of the keys, as scripts/page.sh fills them
const FILL = [5, 6, 6, 7, 9, 9, 9, 12, 15, 20, 20, 22, 25, 29, 30, 30];
for (const [name, options] of [['wide', {}], ['phone', { viewport: { width: 360, height: 780 } }]]) {
  await check(`histograms: a bar per number of keys, with labels below their bars, ${name}`, '#sparse', async page => {
    await page.waitForSelector('#fill svg');
    const { bars, labels, right } = await page.locator('#fill svg').evaluate(svg => ({
      bars: [...svg.querySelectorAll('.bar')].map(bar => ({ words: bar.textContent, middle: Number(bar.getAttribute('x')) + Number(bar.getAttribute('width')) / 2, height: Number(bar.getAttribute('height')) })),
      labels: [...svg.querySelectorAll('text[text-anchor=middle]')].map(text => { const { left, right } = text.getBoundingClientRect(); return { text: text.textContent, x: Number(text.getAttribute('x')), left, right }; }),
      right: svg.getBoundingClientRect().right,
    }));
    const counted = new Map();
    for (const fill of FILL) counted.set(fill, (counted.get(fill) ?? 0) + 1);
    equal(bars.map(({ words }) => words), [...counted].map(([fill, n]) => `${fill}: ${n} minishard${n > 1 ? 's' : ''}`), 'bars');
    bars.forEach(({ height }, i) => expect(Math.abs(height - (bars[0].height * [...counted.values()][i]) / counted.get(5)) < 1, `height of bar ${i}`));
    expect(labels.length >= 3, `expected labels, found ${JSON.stringify(labels)}`);
    for (const { text, x } of labels) {
      const bar = bars.find(({ words }) => words.startsWith(`${text}: `));
      if (bar) expect(Math.abs(bar.middle - x) < .6, `expected ${text} below its bar at ${bar.middle}, found it at ${x}`);
    }
    labels.slice(1).forEach((label, i) => expect(label.left > labels[i].right + 4 && label.right <= right + 1, `label ${label.text} is too near, or cut off`));
    equal(await page.locator('#fill svg').getAttribute('aria-label'), 'Histogram: keys in a minishard, from 5 to 30. Most frequent: 9, 3 minishards.', 'words');
  }, options);
}

await check('histograms: sizes of values on a logarithmic or linear axis are in their bins', '#cities', async page => {
  await page.waitForSelector('#size svg');
  const lengths = fs.readFileSync(path.join(opt.root, 'examples/geonames-cities.ndjson'), 'utf8').trim().split('\n').map(line => Buffer.byteLength(/"value":(.*)\}$/.exec(line)[1]));
  const bars = (await page.locator('#size .bar title').evaluateAll(titles => titles.map(title => title.textContent))).map(text => /^(\d+) B to (\d+) B: ([\d\u202f]+) values?$/.exec(text) ?? /^(\d+) B(): ([\d\u202f]+) values?$/.exec(text));
  expect(bars.length > 8 && bars.every(Boolean), 'expected many bars');
  for (const [text, from, to, n] of bars) equal(Number(digits(n)), lengths.filter(length => length >= Number(from) && length < Number(to || Number(from) + 1)).length, text);
});

await check('the map of the shards: marks, keyboard, pointer', `#cities/${KEY}`, async page => {
  await said(page, 'found');
  const shard = (await boxes(page)).Shard, words = () => page.getAttribute('#map', 'aria-valuetext');
  expect((await words()).startsWith(`${shard}.shard: `), 'expected the shard of the key');
  await page.focus('#map');
  await page.keyboard.press('Home');
  expect((await words()).startsWith('00.shard: '), 'expected the first shard');
  await page.keyboard.press('ArrowRight');
  expect((await words()).startsWith('01.shard: '), 'expected the second shard');
  await page.keyboard.press('End');
  expect((await words()).startsWith('3f.shard: '), 'expected the last shard');
  const box = await page.locator('#map canvas').boundingBox();
  await page.mouse.move(box.x + 3, box.y + 3);
  expect((await textOf(page, '#map-said')).startsWith('00.shard: '), 'expected the shard under the pointer');
});

await check('only the keyboard: skip link, key, tabs', '#cities', async page => {
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  equal(await page.evaluate(() => document.activeElement.id), 'key', 'focus');
  await page.keyboard.press('Control+A');
  await page.keyboard.type(KEY);
  await page.keyboard.press('Enter');
  await said(page, `Key ${KEY} found`); // the tabs before are those of the first key
  await page.focus('#tab-0');
  await page.keyboard.press('ArrowRight');
  equal(await page.evaluate(() => document.activeElement.textContent), 'Text', 'tab');
  equal(await page.locator('#tabs [aria-selected=true]').allInnerTexts(), ['Text'], 'selected tab');
});

await check('live numbers: requests are counted while the page is open', '#tiles-of-nothing', async page => {
  await page.evaluate(key => { location.hash = `#cities/${key}`; }, KEY);
  const total = async () => Number(/^(\d+)/.exec(digits(await textOf(page, '#totals')))[1]);
  await page.waitForSelector('#latency svg');
  const before = await total();
  await Promise.all(keys.slice(0, 200).map(key => fetch(`${server.url}api/cities/get/${key}`).then(response => response.arrayBuffer())));
  await page.waitForFunction(before => Number(/^[\d\u202f]+/.exec(document.querySelector('#totals').textContent)[0].replaceAll('\u202f', '')) >= before + 200, before);
  expect(/Latency: p50 /.test(await page.locator('#latency svg').getAttribute('aria-label')), 'expected percentiles');
  for (const id of ['fill', 'size']) expect((await page.locator(`#${id} rect`).count()) > 0, 'expected bars');
});

await check('live numbers: the rate is that of the last complete second', '#tiles-of-nothing', async page => {
  await page.route('**/stats*', async route => {
    const response = await route.fetch(), statistics = await response.json();
    await route.fulfill({ response, json: { ...statistics, requests_per_s: [...Array(57).fill(0), 12, 7, 3] } });
  });
  await page.evaluate(() => { location.hash = '#cities'; });
  await page.waitForFunction(() => document.querySelector('#beat').textContent === '7 per second');
  equal(await page.locator('#rate svg').getAttribute('aria-label'), 'Requests per second in the last minute: 7 in the last second, at most 12.', 'words');
  equal(await page.locator('#rate .strong').allTextContents(), ['7'], 'the number');
  const dot = await page.locator('#rate .dot').getAttribute('cx'), end = await page.locator('#rate .rate-line').getAttribute('d');
  expect(end.split('L').length === 59 && Math.abs(Number(end.split('L').at(-1).split(' ')[0]) - Number(dot)) < .1, 'expected the line to end with the dot');
});

await check('odd names', `#${['odd #1 100% é', 'x'].map(encodeURIComponent).join('/')}`, async page => {
  equal(await textOf(page, '#title'), 'odd #1 100% é/x', 'title');
  await find(page, '1');
  await said(page, 'Key 1 found');
});

await check('no keys', '#empty', async page => said(page, 'no keys'));
await check('no such data set', '#nothing', async page => expect((await textOf(page, '#empty')).includes('nothing'), 'expected a message'));
await check('a data set that cannot be opened', '#unreadable', async page => expect((await textOf(page, '#empty')).includes('cannot be'), 'expected a message'), { allowed: ['Failed to load resource'] });
await check('a damaged value', '#damaged/53654', async page => {
  await page.waitForSelector('#view .error');
  expect(/corrupt/.test(await textOf(page, '#view')), 'expected the kind of the error');
  await page.waitForSelector('.chain');
}, { allowed: ['Failed to load resource'] });

await check('a value whose path cannot be described', '#cities', async page => {
  await page.route('**/locate/**', route => route.fulfill({ status: 413, json: { error: { kind: 'too-large', message: 'a long index' } } }));
  await page.fill('#key', KEY);
  await page.press('#key', 'Enter');
  await said(page, 'a long index (too-large)');
  await page.waitForFunction(name => document.querySelector('#view').textContent.includes(name), cities.get(KEY).name);
}, { allowed: ['Failed to load resource'] });

await check('the server ends and returns, without a token', '', async () => {
  let other = await serve('--port', '0', '--no-token');
  const { port } = new URL(other.url);
  const page = await open('#cities', { base: other.url, allowed: ['Failed to load resource'] });
  try {
    await stop(other);
    await page.waitForSelector('#gone:not([hidden])');
    expect((await textOf(page, '#gone')).includes('does not answer'), 'expected a message');
    other = await serveAgain(port, '--no-token');
    await page.waitForSelector('#gone', { state: 'hidden' });
    await find(page, KEY);
    await said(page, `Key ${KEY} found`);
    equal(page.wrong, [], 'what the page must not do');
  } finally {
    await page.context().close();
    await stop(other);
  }
});

// ---- accessibility and pictures, in each color scheme and width ----

const LOOKS = { desktop: {}, dark: { colorScheme: 'dark' }, phone: { viewport: { width: 360, height: 780 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 }, 'dark-phone': { colorScheme: 'dark', viewport: { width: 360, height: 780 } }, tablet: { viewport: { width: 820, height: 1100 } } };
const MOST = [`cities/${KEY}`, 'fly/seg/skeletons', 'fly/image/s0'], ALL = [...MOST, 'cities/5', 'fly/seg/mesh', 'fly/ann/rel', 'pictures/1', 'meshes/7', 'empty', 'nothing', 'array.zarr', 'column', 'sparse'];
for (const [name, options] of Object.entries(LOOKS)) {
  for (const hash of ['desktop', 'dark', 'phone'].includes(name) ? ALL : MOST) {
    await check(`${name}: ${hash} is accessible and fits`, `#${hash}`, async page => {
      await quiet(page);
      await page.evaluate(() => document.querySelectorAll('details').forEach(details => { details.open = true; }));
      await accessible(page);
      await noSidewaysScroll(page);
      await page.evaluate(() => document.querySelectorAll('details').forEach(details => { details.open = false; }));
      await page.screenshot({ path: path.join(opt.out, `${name}-${hash.replaceAll('/', '-')}.png`), fullPage: true });
    }, options);
  }
}

if (opt.pictures) {
  await check('the pictures of README and docs/serve.md', `#cities/${KEY}`, async page => {
    await said(page, 'found');
    await page.waitForSelector('#fill svg');
    await page.evaluate(() => document.activeElement.blur());
    await quiet(page);
    const end = await page.locator('section:has(#map)').boundingBox(), way = await page.locator('#path').boundingBox(), margin = 12;
    const picture = async (name, clip) => {
      const file = path.join(opt.pictures, name);
      await page.screenshot({ path: file, fullPage: true, clip });
      const length = fs.statSync(file).size;
      expect(length < 200_000, `expected fewer than 200,000 bytes in ${name}, found ${length}`);
    };
    await picture('serve.png', { x: 0, y: 0, width: 1240, height: Math.ceil(end.y + end.height + margin) });
    await picture('lookup.png', { x: way.x - margin, y: way.y - margin, width: way.width + 2 * margin, height: way.height + 2 * margin });
  });
}

// the last ones: they change the store
await check('a generation that is published meanwhile appears', `#cities/${KEY}`, async page => {
  await said(page, 'found');
  execFileSync(opt.sharddb, ['put', path.join(opt.data, 'cities'), KEY, '--value', '{"name": "as it is now"}'], { stdio: 'pipe', timeout: STUCK_MS });
  await page.waitForFunction(() => document.querySelector('#view pre')?.textContent.includes('as it is now'));
  await said(page, 'Generation 3 is current now');
});
await check('a generation that cannot be shown at first appears later', `#cities/${KEY}`, async page => {
  await said(page, 'found');
  await page.route('**/info*', route => route.fulfill({ status: 404, json: { error: { kind: 'not-found', message: 'it is away' } } }));
  execFileSync(opt.sharddb, ['put', path.join(opt.data, 'cities'), KEY, '--value', '{"name": "as it is then"}'], { stdio: 'pipe', timeout: STUCK_MS });
  await page.waitForFunction(() => document.querySelector('#empty:not([hidden])')?.textContent.includes('it is away'));
  await page.unroute('**/info*');
  await page.waitForFunction(() => document.querySelector('#content:not([hidden]) #view pre')?.textContent.includes('as it is then'));
}, { allowed: ['Failed to load resource'] });

await browser.close();
await stop(server);
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
