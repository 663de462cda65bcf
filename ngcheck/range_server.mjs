// A static file server with HTTP Range, CORS and optional faults.
// As a program:  node range_server.mjs DIR [PORT] [--fault NAME]...   (prints the URL, then one line per request)
// As a module:   import { startRangeServer } from './range_server.mjs'
import http from 'node:http';
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';

export const FAULTS = {
  'no-cors': 'send no Access-Control-* headers',
  'no-expose': 'send Access-Control-Allow-Origin but no Access-Control-Expose-Headers',
  'no-range': 'ignore Range: always 200 with the whole file',
  'no-content-range': '206 without Content-Range',
  'star-total': 'Content-Range: bytes a-b/* (total size unknown)',
  'no-head': '405 for HEAD',
  'shard-404': '404 for every .shard',
  'shard-403': '403 for every .shard',
  'shard-500': '500 for every .shard',
  'shard-503-once': '503 for the first request of every .shard',
  'short': '206 with one byte less than requested, and a Content-Range that says so',
  'liar': '206 with the correct Content-Range and one byte less in the body',
  'gzip-range': '206 whose body is gzip-compressed, Content-Encoding: gzip',
  'gzip-info': 'info files gzip-compressed, Content-Encoding: gzip',
  'no-options': '405 for OPTIONS',
  'chunked': 'Transfer-Encoding: chunked, no Content-Length',
  'slow': '30 ms before each response',
};

export function startRangeServer(dir, { port = 0, host = '127.0.0.1', faults = [], onRequest = () => {} } = {}) {
  const F = new Set(faults), seen = new Set();
  const server = http.createServer((req, res) => {
    const name = decodeURIComponent(new URL(req.url, 'http://x').pathname);
    const entry = { method: req.method, path: name, range: req.headers.range, acceptEncoding: req.headers['accept-encoding'],
      origin: req.headers.origin, acrh: req.headers['access-control-request-headers'], status: 0, bytes: 0 };
    const send = (status, headers, body) => {
      entry.status = status; entry.bytes = body ? body.length : 0;
      const h = { 'Cache-Control': 'no-cache', ...headers };
      if (!F.has('no-cors')) {
        h['Access-Control-Allow-Origin'] = '*';
        if (!F.has('no-expose')) h['Access-Control-Expose-Headers'] = 'Content-Range, Content-Encoding, Content-Length, Accept-Ranges';
      }
      if (body && !F.has('chunked')) h['Content-Length'] = body.length;
      onRequest(entry);
      const go = () => { res.writeHead(status, h); if (body && F.has('chunked')) res.write(body.subarray(0, 1)), res.end(body.subarray(1)); else res.end(req.method === 'HEAD' ? undefined : body); };
      F.has('slow') ? setTimeout(go, 30) : go();
    };
    if (req.method === 'OPTIONS') {
      if (F.has('no-options')) return send(405, {});
      return send(204, { 'Access-Control-Allow-Methods': 'GET, HEAD, OPTIONS', 'Access-Control-Allow-Headers': 'Range', 'Access-Control-Max-Age': '600' });
    }
    if (req.method === 'HEAD' && F.has('no-head')) return send(405, {});
    if (req.method !== 'GET' && req.method !== 'HEAD') return send(405, {});
    const isShard = name.endsWith('.shard');
    if (isShard && F.has('shard-404')) return send(404, {}, Buffer.from('not found\n'));
    if (isShard && F.has('shard-403')) return send(403, {}, Buffer.from('forbidden\n'));
    if (isShard && F.has('shard-500')) return send(500, {}, Buffer.from('server error\n'));
    if (isShard && F.has('shard-503-once') && !seen.has(name)) { seen.add(name); return send(503, {}, Buffer.from('later\n')); }
    const file = path.join(dir, path.normalize('/' + name));
    fs.readFile(file, (err, data) => {
      if (err) return send(404, {}, Buffer.from('not found\n'));
      const type = { 'Content-Type': /(^|\/)info$|\.json$/.test(name) ? 'application/json' : 'application/octet-stream' };
      const m = /^bytes=(\d+)-(\d*)$/.exec(req.headers.range ?? '');
      if (!m || F.has('no-range')) {
        if (F.has('gzip-info') && name.endsWith('info')) return send(200, { ...type, 'Content-Encoding': 'gzip' }, zlib.gzipSync(data));
        return send(200, { ...type, 'Accept-Ranges': 'bytes' }, data);
      }
      const a = Number(m[1]), b = Math.min(m[2] === '' ? Infinity : Number(m[2]), data.length - 1);
      if (a > b) return send(416, { 'Content-Range': `bytes */${data.length}` }, Buffer.alloc(0));
      let body = data.subarray(a, b + 1);
      const h = { ...type, 'Accept-Ranges': 'bytes' };
      if (!F.has('no-content-range')) h['Content-Range'] = `bytes ${a}-${F.has('short') ? b - 1 : b}/${F.has('star-total') ? '*' : data.length}`;
      if (F.has('short') || F.has('liar')) body = body.subarray(0, -1);
      if (F.has('gzip-range')) { body = zlib.gzipSync(body); h['Content-Encoding'] = 'gzip'; }
      send(206, h, body);
    });
  });
  return new Promise((ok, no) => { server.once('error', no); server.listen(port, host, () => ok({ server, url: `http://${host}:${server.address().port}` })); });
}

if (process.argv[1] && import.meta.url === 'file://' + fs.realpathSync(process.argv[1])) {
  const args = process.argv.slice(2), faults = [];
  for (let i; (i = args.indexOf('--fault')) >= 0;) faults.push(args.splice(i, 2)[1]);
  const { url } = await startRangeServer(args[0], { port: Number(args[1] ?? 0), faults,
    onRequest: e => console.log([e.method, e.path, e.range ?? '-', e.status, e.bytes].join(' ')) });
  console.log('listening ' + url);
}
