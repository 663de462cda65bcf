// Writes values that the page draws: one file per key, in DIR/pictures and DIR/meshes. usage: values.mjs DIR
import fs from 'node:fs';
import path from 'node:path';
import zlib from 'node:zlib';

/** A PNG of 8-bit RGB. */
function png(width, height, color) {
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]), framed = Buffer.alloc(body.length + 8);
    framed.writeUInt32BE(data.length);
    body.copy(framed, 4);
    framed.writeUInt32BE(crc32(body), body.length + 4);
    return framed;
  };
  const header = Buffer.alloc(13), rows = [];
  header.writeUInt32BE(width);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  for (let y = 0; y < height; y++) rows.push(Buffer.from([0, ...Array.from({ length: width }, (_, x) => color(x, y)).flat()]));
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), chunk('IHDR', header), chunk('IDAT', zlib.deflateSync(Buffer.concat(rows))), chunk('IEND', Buffer.alloc(0))]);
}

function crc32(data) {
  let crc = 0xffffffff;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** A legacy mesh: number of vertices, vertices, triangles. A sphere with dents. */
function mesh(rows, columns) {
  const points = [], triangles = [];
  for (let i = 0; i <= rows; i++) for (let j = 0; j < columns; j++) {
    const a = (Math.PI * i) / rows, b = (2 * Math.PI * j) / columns, r = 100 + 12 * Math.sin(5 * a) * Math.cos(3 * b);
    points.push(r * Math.sin(a) * Math.cos(b), r * Math.sin(a) * Math.sin(b), r * Math.cos(a));
  }
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
    const [a, b, c, d] = [i * columns + j, i * columns + ((j + 1) % columns), (i + 1) * columns + j, (i + 1) * columns + ((j + 1) % columns)];
    triangles.push(a, b, c, b, d, c);
  }
  return Buffer.concat([Buffer.from(Uint32Array.of(points.length / 3).buffer), Buffer.from(Float32Array.from(points).buffer), Buffer.from(Uint32Array.from(triangles).buffer)]);
}

// 24 x 16 pixels
const JPEG = '/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqmx5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAQABgDASIAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAAAAQCBf/EAB8QAAEDBAMBAAAAAAAAAAAAAAEABBICAxQhBRNBUf/EABYBAQEBAAAAAAAAAAAAAAAAAAMEBf/EABkRAAIDAQAAAAAAAAAAAAAAAAASAQIxEf/aAAwDAQACEQMRAD8Ay0sZLiizKMjsHwqt3xWM3rvd0ojUR6PqkaX8ZxRejKJ0R4FW75XJb12emMhuR9PxR1RZ7poWdoXDnIiIxT//2Q==';

const write = (name, data) => { fs.mkdirSync(path.dirname(name), { recursive: true }); fs.writeFileSync(name, data); };
const dir = process.argv[2];
write(path.join(dir, 'pictures', '1'), png(48, 32, (x, y) => [x * 5, y * 7, 128]));
write(path.join(dir, 'pictures', '2'), Buffer.from(JPEG, 'base64'));
write(path.join(dir, 'pictures', '3'), '<script>globalThis.injected = true</script><img src=x onerror="injected = true">');
write(path.join(dir, 'pictures', '4'), '');
write(path.join(dir, 'meshes', '7'), mesh(40, 60));
write(path.join(dir, 'meshes', '9007199254740993'), mesh(20, 30));
