// Slices of a chunk: one plane at a time, with sliders for the other dimensions.

import { brief, h } from './dom.js';

/** A color for a segment; the same for the same number. */
function segmentColor(id) {
  let n = Number(BigInt.asUintN(32, BigInt(id) * 0x9e3779b97f4a7c15n >> 16n));
  if (BigInt(id) === 0n) return [0, 0, 0];
  const hue = (n % 360) / 60, x = Math.round(255 * (1 - Math.abs((hue % 2) - 1)) * .8), bright = 150 + (n >>> 9) % 90;
  return [[bright, x, 40], [x, bright, 40], [40, bright, x], [40, x, bright], [x, 40, bright], [bright, 40, x]][Math.floor(hue)];
}

/**
 * Draws the numbers that `at(x, y, z, channel)` returns, as grays between the smallest and the largest, or `labels` as colors.
 * `start` is the position of the first, and `names` are the names, of as many of x, y and z as there are.
 */
export function slices(box, { title, shape: [nx, ny, nz, channels], at, start, names, labels }) {
  let low = Infinity, high = -Infinity, z = 0, channel = 0;
  const eachOf = (c, k, visit) => { for (let y = 0; y < ny; y++) for (let x = 0; x < nx; x++) visit(at(x, y, k, c)); };
  const measure = v => { const n = Number(v); if (Number.isFinite(n)) { if (n < low) low = n; if (n > high) high = n; } };
  if (!labels) for (let c = 0; c < channels; c++) for (let k = 0; k < nz; k++) eachOf(c, k, measure);
  const canvas = h('canvas', { class: 'chunk', width: nx, height: ny, role: 'img' }), said = h('p', { class: 'help' });
  const fit = Math.min(box.clientWidth, 640) / nx, zoom = fit < 1 ? fit : Math.max(1, Math.min(Math.floor(fit), Math.floor(400 / ny)));
  canvas.style.width = `${nx * zoom}px`;
  const range = (d, n) => `${names[d]}: ${start[d]} to ${start[d] + n - 1}`;
  const words = () => `${names[2] ? `Slice ${names[2]} = ${start[2] + z}; ` : ''}${range(0, nx)}, ${range(1, ny)}`;
  function draw() {
    const c = canvas.getContext('2d'), image = c.createImageData(nx, ny);
    let o = 0;
    eachOf(channel, z, v => {
      const gray = labels ? 0 : high > low ? ((Number(v) - low) / (high - low)) * 255 : 128;
      image.data.set(labels ? [...segmentColor(v), 255] : [gray, gray, gray, 255], o);
      o += 4;
    });
    c.putImageData(image, 0, 0);
    canvas.setAttribute('aria-label', words());
    said.textContent = words();
  }
  canvas.onpointermove = event => {
    const area = canvas.getBoundingClientRect(), x = Math.floor(((event.clientX - area.left) / area.width) * nx), y = Math.floor(((event.clientY - area.top) / area.height) * ny);
    if (x < 0 || x >= nx || y < 0 || y >= ny) return;
    said.textContent = `${labels ? 'Segment' : 'Value'} ${at(x, y, z, channel)} at ${[x, y, z].slice(0, names.length).map((n, d) => `${names[d]} = ${start[d] + n}`).join(', ')}`;
  };
  canvas.onpointerleave = () => { said.textContent = words(); };
  const slider = (name, last, change) => h('label', {}, name, h('input', { type: 'range', min: 0, max: last, value: 0, oninput: event => { change(Number(event.target.value)); draw(); } }));
  box.append(h('p', { class: 'help' }, `${title}${labels || low > high ? '' : `, ${brief(low)} to ${brief(high)}`}.`),
    h('div', { class: 'controls' }, nz > 1 ? slider('Slice', nz - 1, n => { z = n; }) : null, channels > 1 ? slider('Channel', channels - 1, n => { channel = n; }) : null), canvas, said);
  draw();
}
