#!/usr/bin/env node
// Acceptance test of a sharded precomputed data set: Neuroglancer in headless Chromium must draw it.
// usage: run_ng_check.mjs DIR|URL|--server CMD [--objects] [--expect FILE] [--scene NAME]... [--out DIR] [--timeout S]
//                         [--fault NAME]... [--unsharded-ok] [-v]
// DIR: a directory, which this program serves with Range and CORS. URL: the base URL of another server.
// CMD: started with /bin/sh; the first http://... that it prints, except in a line `page`, is the base URL, with --objects
// `objects` for its last part `raw`; stopped with SIGTERM, by which or with exit code 0 it must end.
// Exit 0: every scene was drawn as ng_expect.json says; 1: a scene was not; 2: the check could not run.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import zlib from 'node:zlib';
import http from 'node:http';
import { spawn } from 'node:child_process';
import { chromium } from 'playwright-core';
import { startRangeServer } from './range_server.mjs';

const HERE = path.dirname(fs.realpathSync(new URL(import.meta.url).pathname));
const args = process.argv.slice(2);
const opt = { scene: [], fault: [], out: path.join(HERE, 'out'), timeout: '120' };
let target;
for (let i = 0; i < args.length; i++) {
  const a = args[i];
  if (a === '-v') opt.verbose = true;
  else if (a === '--unsharded-ok') opt.unshardedOk = true;
  else if (a === '--url-state') opt.urlState = true;
  else if (a === '--objects') opt.objects = true;
  else if (a === '--scene' || a === '--fault') opt[a.slice(2)].push(args[++i]);
  else if (a.startsWith('--')) opt[a.slice(2)] = args[++i];
  else target = a;
}
if (!target && !opt.server) { console.error('usage: run_ng_check.mjs DIR|URL|--server CMD [--objects] [--expect FILE] [--scene NAME]... [--out DIR] [--timeout S] [--fault NAME]... [--unsharded-ok] [-v]'); process.exit(2); }
const T0 = Date.now();
const CLIENT = process.env.NG_CLIENT ?? path.join(HERE, 'client');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const log = (...a) => opt.verbose && console.error(...a);
const sleep = ms => new Promise(r => setTimeout(r, ms));
const STUCK_MS = 120_000; // for the start and the end of a program: many times what it takes on a busy machine
const STILL = 200; // probes, which follow one another in 150 ms or more, without a change: no scene takes such a pause

// ---- the client: static files below /v/ng/, and the event stream that the Python build expects ----
const MIME = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.svg': 'image/svg+xml' };
const clientServer = http.createServer((req, res) => {
  const p = new URL(req.url, 'http://x').pathname;
  if (p.startsWith('/events/')) { res.writeHead(200, { 'Content-Type': 'text/event-stream' }); res.write(': hello\n\n'); return; }
  if (p.startsWith('/state/')) { res.writeHead(200, { 'Content-Type': 'application/json' }).end('{"g":"0"}'); return; }
  if (!p.startsWith('/v/ng/')) { res.writeHead(404).end(); return; }
  const f = path.join(CLIENT, path.normalize('/' + (p.slice(6) || 'index.html')));
  fs.readFile(f, (e, d) => e ? res.writeHead(404).end() : res.writeHead(200, { 'Content-Type': MIME[path.extname(f)] ?? 'application/octet-stream' }).end(d));
});
await new Promise(r => clientServer.listen(0, '127.0.0.1', r));
const clientUrl = `http://127.0.0.1:${clientServer.address().port}/v/ng/`;

// ---- the data: a directory is served here, a URL is used unchanged ----
let base, dataServer, child; const serverLog = [];
if (opt.server) {
  child = spawn('/bin/sh', ['-c', 'exec ' + opt.server], { stdio: ['ignore', 'pipe', 'pipe'] });
  process.on('exit', () => child.kill());
  target = await new Promise((ok, no) => {
    let text = ''; const more = d => { text += d; const m = /^(?!page\t).*?(https?:\/\/[^\s"'<>]+)\s/m.exec(text); if (m) ok(m[1]); };
    child.stdout.on('data', more); child.stderr.on('data', more);
    child.on('exit', c => no(new Error(`the server ended (${c}): ${text.slice(-300)}`)));
    setTimeout(() => no(new Error(`the server printed no URL in ${STUCK_MS} ms: ${text.slice(-300)}`)), STUCK_MS).unref();
  }).catch(e => { console.error(e.message); process.exit(2); });
  if (opt.objects) target = target.replace(/raw\/?$/, 'objects');
}
if (/^https?:/.test(target)) base = target.replace(/\/$/, '');
else {
  const s = await startRangeServer(target, { faults: opt.fault, onRequest: e => serverLog.push(e) });
  base = s.url; dataServer = s.server;
}
let expect;
try {
  expect = JSON.parse(opt.expect ? fs.readFileSync(opt.expect) : dataServer ? fs.readFileSync(path.join(target, 'ng_expect.json')) : await (await fetch(base + '/ng_expect.json')).text());
} catch (e) { console.error('no expectations: ' + e.message); process.exit(2); }
const scenes = expect.scenes.filter(s => !opt.scene.length || opt.scene.includes(s.name));
fs.mkdirSync(opt.out, { recursive: true });

// ---- PNG -> {w,h,at(x,y)} (8-bit, not interlaced, as Chromium writes them) ----
function png(buf) {
  let p = 8, w, h, bpp; const idat = [];
  while (p < buf.length) {
    const n = buf.readUInt32BE(p), t = buf.toString('latin1', p + 4, p + 8), d = buf.subarray(p + 8, p + 8 + n);
    if (t === 'IHDR') { w = d.readUInt32BE(0); h = d.readUInt32BE(4); bpp = { 2: 3, 6: 4 }[d[9]]; if (d[8] !== 8 || !bpp || d[12]) throw new Error('png kind'); }
    if (t === 'IDAT') idat.push(d);
    p += 12 + n;
  }
  const raw = zlib.inflateSync(Buffer.concat(idat)), L = w * bpp, px = Buffer.alloc(L * h);
  for (let y = 0; y < h; y++) {
    const f = raw[y * (L + 1)], o = y * L;
    for (let i = 0; i < L; i++) {
      const a = i >= bpp ? px[o + i - bpp] : 0, b = y ? px[o - L + i] : 0, c = y && i >= bpp ? px[o - L + i - bpp] : 0;
      let q = 0;
      if (f === 1) q = a; else if (f === 2) q = b; else if (f === 3) q = (a + b) >> 1;
      else if (f === 4) { const r = a + b - c, pa = Math.abs(r - a), pb = Math.abs(r - b), pc = Math.abs(r - c); q = pa <= pb && pa <= pc ? a : pb <= pc ? b : c; }
      px[o + i] = raw[y * (L + 1) + 1 + i] + q;
    }
  }
  return { w, h, at: (x, y) => { const o = y * L + x * bpp; return [px[o], px[o + 1], px[o + 2]]; } };
}
const near = (a, b, tol) => Math.abs(a[0] - b[0]) <= tol && Math.abs(a[1] - b[1]) <= tol && Math.abs(a[2] - b[2]) <= tol;
// Same hue at any brightness, for lit surfaces: compared after scaling the largest component to 255.
function sameHue(p, c) {
  const m = Math.max(...p), k = Math.max(...c);
  return m >= 40 && near(p.map(v => v * 255 / m), c.map(v => v * 255 / k), 14);
}

const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'ngcheck-'));
const W = 1100, H = 760;
let ctx;
try {
  ctx = await chromium.launchPersistentContext(profile, { executablePath: CHROMIUM, headless: true, timeout: STUCK_MS, viewport: { width: W, height: H }, deviceScaleFactor: 1,
    args: ['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
      '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--ignore-gpu-blocklist', '--disable-dev-shm-usage', '--force-color-profile=srgb'] });
} catch (e) { console.error('no browser: ' + e.message); process.exit(2); }
const browserLog = []; let inFlight = 0, events = 0;
ctx.on('request', r => { if (r.url().startsWith(base)) inFlight++, events++; });
for (const ev of ['requestfinished', 'requestfailed']) ctx.on(ev, r => { if (r.url().startsWith(base)) inFlight--, events++; });
ctx.on('response', r => { if (r.url().startsWith(base)) browserLog.push({ method: r.request().method(), path: decodeURIComponent(r.url().slice(base.length)), range: r.request().headers().range, status: r.status() }); });
ctx.on('requestfailed', r => { if (r.url().startsWith(base)) browserLog.push({ method: r.method(), path: decodeURIComponent(r.url().slice(base.length)), range: r.headers().range, status: 'failed: ' + r.failure()?.errorText }); });
const TB = Date.now();

// Runs in the page, after two frames, so that a picture is of what was loaded before: whether the viewer is ready, and the number
// of chunks in each state per source type.
const probe = async () => {
  for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
  const v = globalThis.viewer; if (!v) return { ready: false };
  const ready = v.isReady(); const out = {};
  for (const [src, st] of await v.chunkQueueManager.getStatistics()) {
    const k = src.RPC_TYPE_ID ?? src.constructor.name; const o = out[k] ??= { gpu: 0, mem: 0, busy: 0, failed: 0 };
    for (let s = 0; s < 8; s++) for (let t = 0; t < 3; t++) {
      const n = st[(s * 3 + t) * 3];
      if (s === 0) o.gpu += n; else if (s <= 2) o.mem += n; else if (s === 6) o.failed += n; else if (t === 0 && s <= 5) o.busy += n;
    }
  }
  const panel = [...v.display.panels].map(p => p.element).find(e => /sliceview|perspective|rendered-data-panel/.test(e.className)) ?? [...v.display.panels][0]?.element;
  const r = panel?.getBoundingClientRect();
  return { ready, stats: out, panel: r && { x: r.x, y: r.y, w: r.width, h: r.height }, n: v.display.panels.size };
};

const results = [];
const brief = bad => {
  const b = bad.filter(x => !x.startsWith('client says')), c = bad.filter(x => x.startsWith('client says'));
  const shown = opt.verbose ? b : b.slice(0, 3);
  return bad.length ? ['', ...shown, ...(b.length > shown.length ? [`and ${b.length - shown.length} more`] : []), ...c].join('\n       ') : '';
};
for (const sc of scenes) {
  const t = Date.now(), from = serverLog.length, fromB = browserLog.length, bad = [];
  const page = await ctx.newPage();
  const said = new Map(), say = s => { s = s.replace(/\s+/g, ' ').trim().slice(0, 240); said.set(s, (said.get(s) ?? 0) + 1); log('  says', s); };
  page.on('console', m => { const s = m.text(); if (/error|fail|invalid/i.test(s) && !/favicon|Failed to load resource/.test(s)) say(s); });
  page.on('worker', w => w.on('console', m => { if (/error|fail/i.test(m.text())) say(m.text()); }));
  page.on('pageerror', e => log('  pageerror', e.message.slice(0, 300)));
  const state = JSON.stringify(sc.state).replaceAll('$URL', base);
  let p = { ready: false }, quiet = 0, still = 0, sig = '', drawn;
  const check = async () => {             // compares the picture and the text with the expectations; returns the differences
    const wrong = [], shot = await page.screenshot({ path: path.join(opt.out, sc.name + '.png') });
    const img = png(shot), { panel } = p; let okPx = 0, nPx = 0;
    if (!panel) return ['no panel'];
    const spots = [...(sc.pixels ?? []).map(s => [...s, (q, c) => near(q, c, 8)]), ...(sc.huePixels ?? []).map(s => [...s, (q, c) => Math.max(...c) ? sameHue(q, c) : near(q, c, 8)])];
    const k = sc.scale3d ? panel.h / sc.scale3d : 1;    // 3-d scenes: positions in voxels
    for (const [dx, dy, rgb, test] of spots) {
      nPx++;
      const x = Math.round(panel.x + panel.w / 2 + dx * k), y = Math.round(panel.y + panel.h / 2 + dy * k);
      if (x < 0 || y < 0 || x >= img.w || y >= img.h) { wrong.push(`pixel ${dx},${dy} is outside`); continue; }
      const got = img.at(x, y);
      if (test(got, rgb)) okPx++; else wrong.push(`pixel ${dx},${dy}: ${got} for ${rgb}`);
    }
    for (const [kind, test] of [['colors', (q, c) => near(q, c, 8)], ['hues', sameHue]]) for (const [rgb, least] of sc[kind] ?? []) {
      let n = 0; nPx++;
      for (let y = Math.ceil(panel.y) + 2; y < panel.y + panel.h - 2; y++) for (let x = Math.ceil(panel.x) + 2; x < panel.x + panel.w - 2; x++) if (test(img.at(x, y), rgb)) n++;
      if (n >= least) okPx++; else wrong.push(`${kind} ${rgb}: ${n} pixels, not ${least}`);
    }
    if (sc.text) {
      const text = await page.evaluate(() => document.body.innerText + '\n' + [...document.querySelectorAll('input')].map(i => i.value).join('\n'));
      for (const s of sc.text) { nPx++; if (text.includes(s)) okPx++; else wrong.push(`text ${s} is not shown`); }
    }
    for (const [k, least] of Object.entries(sc.chunks ?? {})) {
      let n = 0; for (const [name, o] of Object.entries(p.stats ?? {})) if (name.toLowerCase().includes(k.toLowerCase())) n += o.gpu;
      if (n < least) wrong.push(`${k}: ${n} chunks in GPU memory, not ${least}`);
    }
    drawn = `${okPx}/${nPx}`;
    return wrong;
  };
  try {
    // The state is passed to the viewer, not in the URL (#!{...}, --url-state). With a state in the URL, a client that takes
    // more than 400 ms to restore it writes the half-restored state back to the URL; an annotation layer then throws in toJSON
    // ("Cannot read properties of undefined (reading 'length')") and is removed. See README.md.
    await page.goto(clientUrl + (opt.urlState ? '#!' + encodeURIComponent(state) : ''), { waitUntil: 'load', timeout: STUCK_MS });
    if (!opt.urlState) await page.evaluate(s => globalThis.viewer.state.restoreState(JSON.parse(s)), state);
    let wrong = ['never ready'];
    while (Date.now() - t < opt.timeout * 1000) {
      await sleep(150);
      p = await page.evaluate(probe);
      const busy = Object.values(p.stats ?? {}).reduce((n, o) => n + o.busy, 0), failed = Object.values(p.stats ?? {}).reduce((n, o) => n + o.failed, 0);
      const settled = busy === 0 && p.panel && (p.ready || failed > 0);
      quiet = settled ? quiet + 1 : 0;
      const now = JSON.stringify([p.stats, p.ready, events]);
      still = now === sig && inFlight <= 0 && p.panel ? still + 1 : 0; sig = now;
      const stuck = still > STILL;
      if (quiet < 2 && !stuck) continue;
      wrong = await check();
      if (!p.ready) wrong.unshift('never ready');
      if (!wrong.length || quiet > 6 || stuck) break;
    }
    if (wrong[0] === 'never ready') { const w = await check(); wrong.push(...w); }
    bad.push(...wrong);
    const failed = Object.values(p.stats ?? {}).reduce((n, o) => n + o.failed, 0);
    if (failed) bad.push(`${failed} chunks failed`);
    // the data must come from shards, by range requests
    const entries = serverLog.length ? serverLog.slice(from) : browserLog.slice(fromB);
    const ranged = entries.filter(e => sc.files && e.path.includes('/' + sc.files) && e.path.endsWith('.shard') && e.status === 206);
    if (!opt.unshardedOk && sc.files && !ranged.length) bad.push(`no 206 answer for ${sc.files}*.shard`);
    sc.ranged = ranged.length;
    if (bad.length) {
      const msgs = await page.evaluate(() => [document.querySelector('#neuroglancer-status-container')?.innerText ?? '',
        ...globalThis.viewer.layerManager.managedLayers.flatMap(l => (l.layer?.dataSources ?? []).map(d => d.loadState?.error ? `source ${d.spec?.url}: ${d.loadState.error.message}` : ''))].filter(Boolean));
      for (const m of msgs) say(m);
      for (const [m, n] of [...said].slice(0, 3)) bad.push(`client says: ${m}` + (n > 1 ? ` (${n} times)` : ''));
    }
  } catch (e) { bad.push('error: ' + e.message.split('\n')[0]); }
  await page.close();
  const ms = Date.now() - t;
  results.push({ name: sc.name, ok: !bad.length, ms, drawn, ranged: sc.ranged, bad, stats: p.stats });
  console.error(`${bad.length ? 'FAIL' : 'ok  '} ${sc.name.padEnd(12)} ${(ms / 1000).toFixed(1)} s, drawn ${drawn ?? '-'}, ${sc.ranged ?? 0} range reads of shards` + brief(bad));
  log('   ', JSON.stringify(p.stats));
}
const version = ctx.browser()?.version() ?? '';
await ctx.close();
fs.rmSync(profile, { recursive: true, force: true });
clientServer.closeAllConnections(); clientServer.close();
dataServer?.closeAllConnections(); dataServer?.close();
const ended = child && await new Promise(ok => {
  child.removeAllListeners('exit');
  if (child.exitCode !== null || child.signalCode) return ok(child.exitCode ?? child.signalCode);
  setTimeout(() => { child.kill('SIGKILL'); }, STUCK_MS).unref();
  child.once('exit', (code, signal) => ok(code ?? signal));
  child.kill();
});
if (ended && ended !== 'SIGTERM') results.push({ name: 'server', ok: false }), console.error(`FAIL the server ended with ${ended}`);
const all = serverLog.length ? serverLog : browserLog;
fs.writeFileSync(path.join(opt.out, 'requests.json'), JSON.stringify({ server: serverLog, browser: browserLog }, null, 1));
fs.writeFileSync(path.join(opt.out, 'results.json'), JSON.stringify(results, null, 1));
const ok = results.filter(r => r.ok).length, n206 = all.filter(e => e.status === 206).length;
const methods = {}; for (const e of all) { const k = e.method + ' ' + e.status; methods[k] = (methods[k] ?? 0) + 1; }
console.log(`${ok === results.length && ok ? 'PASS' : 'FAIL'} neuroglancer: ${ok}/${results.length} scenes drawn, ${n206} range reads (206) of ${all.length} requests [${Object.entries(methods).map(([k, v]) => k + ' x' + v).join(', ')}], ${((Date.now() - T0) / 1000).toFixed(1)} s`);
process.exit(ok === results.length && ok ? 0 : 1);
