// Skeletons and meshes, drawn without a library: orthographic, turned by dragging or the arrow keys.

import { h } from './dom.js';

/** Center and radius of the finite points. */
function bounds(points) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  for (let i = 0; i < points.length; i++) {
    const d = i % 3;
    if (points[i] < low[d]) low[d] = points[i];
    if (points[i] > high[d]) high[d] = points[i];
  }
  const center = low.map((n, d) => (n + high[d]) / 2);
  return { center, radius: Math.hypot(...low.map((n, d) => high[d] - n)) / 2 || 1 };
}

let redraw = null; // of the last drawing, which is the one on the page

/** A canvas that calls `paint(canvas, project)` for each view; `project` returns x, y and depth in pixels. */
function turntable(box, points, name, paint) {
  const { center, radius } = bounds(points), wide = Math.min(box.clientWidth, 720), ratio = Math.min(2, devicePixelRatio || 1);
  const canvas = h('canvas', { class: 'turn', tabindex: 0, role: 'img', 'aria-label': `${name}. Arrow keys turn it, + and - zoom.`, width: wide * ratio, height: 380 * ratio });
  canvas.style.width = `${wide}px`;
  let yaw = .6, pitch = .35, zoom = 1, waiting = false;
  function project() {
    const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)], scale = (Math.min(canvas.width, canvas.height) * .47 * zoom) / radius, n = points.length / 3;
    const out = new Float32Array(points.length);
    for (let i = 0; i < n; i++) {
      const x = points[3 * i] - center[0], y = points[3 * i + 1] - center[1], z = points[3 * i + 2] - center[2], turned = sy * x + cy * z;
      out[3 * i] = canvas.width / 2 + scale * (cy * x - sy * z);
      out[3 * i + 1] = canvas.height / 2 + scale * (cp * y - sp * turned);
      out[3 * i + 2] = scale * (sp * y + cp * turned);
    }
    return out;
  }
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(canvas, project(), ratio); });
  }
  const turn = (dx, dy) => { yaw += dx; pitch = Math.max(-1.57, Math.min(1.57, pitch + dy)); draw(); };
  const magnify = by => { zoom = Math.max(.2, Math.min(40, zoom * by)); draw(); };
  canvas.onpointerdown = event => canvas.setPointerCapture(event.pointerId);
  canvas.onpointermove = event => { if (event.buttons) turn(-event.movementX * .01, event.movementY * .01); };
  const keys = { ArrowLeft: () => turn(.15, 0), ArrowRight: () => turn(-.15, 0), ArrowUp: () => turn(0, -.15), ArrowDown: () => turn(0, .15), '+': () => magnify(1.25), '=': () => magnify(1.25), '-': () => magnify(.8) };
  canvas.onkeydown = event => { if (keys[event.key]) { event.preventDefault(); keys[event.key](); } };
  const button = (label, words, by) => h('button', { type: 'button', class: 'copy', 'aria-label': words, onclick: () => magnify(by) }, label);
  box.append(canvas, h('div', { class: 'controls' }, h('span', { class: 'help' }, 'Drag or use the arrow keys to turn'), button('+', 'Zoom in', 1.25), button('−', 'Zoom out', .8)));
  if (!redraw) matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraw());
  redraw = draw;
  draw();
}

const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Edges between points; nearer ones are stronger. */
export function lines(box, points, pairs) {
  turntable(box, points, 'The skeleton', (canvas, at, ratio) => {
    const c = canvas.getContext('2d'), depths = 6, half = Math.min(canvas.width, canvas.height) * .47, layers = Array.from({ length: depths }, () => new Path2D());
    c.clearRect(0, 0, canvas.width, canvas.height);
    for (let i = 0; i + 1 < pairs.length; i += 2) {
      const a = 3 * pairs[i], b = 3 * pairs[i + 1], depth = (at[a + 2] + at[b + 2]) / 2 / half, layer = layers[Math.max(0, Math.min(depths - 1, Math.floor(((1 - depth) / 2) * depths)))];
      if (!layer || Number.isNaN(depth)) continue;
      layer.moveTo(at[a], at[a + 1]);
      layer.lineTo(at[b], at[b + 1]);
    }
    c.strokeStyle = color('--value');
    c.lineWidth = 1.6 * ratio;
    layers.forEach((layer, i) => { c.globalAlpha = .35 + (.65 * (i + 1)) / depths; c.stroke(layer); });
  });
}

/** Triangles with flat shading and a depth buffer. */
export function solid(box, points, triangles) {
  turntable(box, points, 'The mesh', (canvas, at) => {
    const { width, height } = canvas, c = canvas.getContext('2d'), image = c.createImageData(width, height), pixels = new Uint32Array(image.data.buffer), depth = new Float32Array(width * height).fill(Infinity);
    const [red, green, blue] = rgb(color('--value'));
    for (let i = 0; i + 2 < triangles.length; i += 3) {
      const a = 3 * triangles[i], b = 3 * triangles[i + 1], d = 3 * triangles[i + 2];
      const ax = at[a], ay = at[a + 1], bx = at[b] - ax, by = at[b + 1] - ay, dx = at[d] - ax, dy = at[d + 1] - ay, area = bx * dy - by * dx;
      if (!(Math.abs(area) > 1e-9)) continue;
      const az = at[a + 2], bz = at[b + 2] - az, dz = at[d + 2] - az, nx = by * dz - bz * dy, ny = bz * dx - bx * dz;
      const light = .35 + .65 * Math.abs(area) / Math.hypot(nx, ny, area), shade = (255 << 24) | ((blue * light) << 16) | ((green * light) << 8) | (red * light);
      const left = Math.max(0, Math.floor(ax + Math.min(0, bx, dx))), right = Math.min(width - 1, Math.ceil(ax + Math.max(0, bx, dx))), top = Math.max(0, Math.floor(ay + Math.min(0, by, dy))), bottom = Math.min(height - 1, Math.ceil(ay + Math.max(0, by, dy)));
      for (let y = top; y <= bottom; y++) for (let x = left; x <= right; x++) {
        const u = ((x - ax) * dy - (y - ay) * dx) / area, v = ((y - ay) * bx - (x - ax) * by) / area;
        if (u < -.001 || v < -.001 || u + v > 1.001) continue;
        const z = az + u * bz + v * dz, p = y * width + x;
        if (z < depth[p]) { depth[p] = z; pixels[p] = shade; }
      }
    }
    c.putImageData(image, 0, 0);
  });
}

/** The components of a color in the notation #rrggbb. */
const rgb = text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
