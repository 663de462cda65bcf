// Pictures of numbers: histogram, map of the shards, request rate, latencies, the parts of a shard file.
// Each function replaces the content of `box`, and is called again when the width of the box changes.

import { brief, count, h, plural, s, size, span, time } from './dom.js';

const width = box => Math.max(240, Math.floor(box.clientWidth));
const text = (x, y, label, attributes = {}) => s('text', { x, y, ...attributes }, label);

/** At most `most` round numbers from 0 to at least `max`. */
function ticks(max, most = 4) {
  const rough = Math.max(max, 1) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find(factor => factor * power >= rough) * power);
  return Array.from({ length: Math.ceil(Math.max(max, 1) / step) + 1 }, (_, i) => i * step);
}

const MOST_LINEAR = 64; // numbers, for a bar each whatever their distribution

/** Merges bins into about `room` of one width, or of one ratio for a logarithmic axis if most numbers are far below the largest. */
export function merged({ edges, counts }, room) {
  const first = edges[0], end = edges.at(-1), half = counts.reduce((sum, n) => sum + n, 0) / 2;
  let below = 0;
  const median = edges[counts.findIndex(n => (below += n) >= half)], log = end > MOST_LINEAR && median * 16 < end, kept = [];
  if (log) {
    const low = Math.max(1, first), per = [8, 4, 2].find(per => per * Math.log2(end / low) <= room) ?? 1;
    for (const edge of edges) if (!kept.length || edge === end || Math.log2(edge / kept.at(-1)) >= .9 / per) kept.push(edge);
  } else {
    let width = Math.max(...counts.map((_, i) => edges[i + 1] - edges[i]));
    while ((end - first) / width > Math.max(room, 1)) width *= 2;
    for (let edge = Math.floor(first / width) * width; edge < end + width; edge += width) kept.push(edge);
  }
  const sums = kept.slice(1).map(() => 0);
  let bin = 0;
  counts.forEach((n, i) => {
    while (kept[bin + 1] <= edges[i]) bin++;
    sums[bin] += n;
  });
  return { edges: kept, counts: sums, log };
}

/** Where numbers are on the axis, from 0 to 1; 0 has a place of its own on a logarithmic one. */
function scale({ edges, log }) {
  const first = edges[0], end = edges.at(-1);
  if (!log) return x => (x - first) / (end - first);
  const zero = first > 0 ? 0 : 1, low = first || edges[1], length = zero + Math.log2(end / low);
  return x => (x > 0 ? zero + Math.log2(x / low) : 0) / length;
}

/** Lists of round numbers on the axis, the longest first; `binary`: powers of two. */
function rounds({ edges, log }, binary) {
  const first = edges[0], end = edges.at(-1), inside = list => list.filter(n => n >= first && n <= end);
  const series = Array.from({ length: 63 }, (_, i) => (binary ? 2 ** i : [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)));
  if (log) return (binary ? [1, 2, 5, 10] : [1, 3, 6]).map(every => inside([0, ...series.filter((_, i) => i % every === 0)]));
  const multiples = step => Array.from({ length: (end - first) / step + 2 }, (_, i) => (Math.floor(first / step) + i) * step);
  return series.filter(step => step * 80 >= end - first).slice(0, 10).map(step => inside(multiples(step)));
}

/** Bars with axes. `unit` formats a number, `axis` and `things` name what is on the x and the y axis. */
export function histogram(box, data, { unit, axis, things }) {
  if (!data?.counts.length) return box.replaceChildren(h('p', { class: 'help' }, `No ${things} to count.`));
  const w = width(box), bins = merged(data, (w - 60) / 4), { edges, counts, log } = bins, at = scale(bins), top = 26, left = 46, bottom = 176, right = Math.min(w - 14, left + 84 * counts.length);
  const most = Math.max(...counts), marks = ticks(most), high = marks.at(-1);
  const x = edge => left + at(edge) * (right - left), y = n => bottom - (n / high) * (bottom - top);
  // whole numbers: the bin of 1..2 has only the 1
  const bin = i => (edges[i + 1] - edges[i] === 1 ? unit(edges[i]) : `${unit(edges[i])} to ${unit(edges[i + 1] - (unit === count ? 1 : 0))}`);
  const svg = s('svg', { height: 216, viewBox: `0 0 ${w} 216`, role: 'img' });
  for (const mark of marks) svg.append(s('path', { class: 'axis', d: `M${left} ${y(mark)}H${right}` }), text(left - 8, y(mark) + 4, brief(mark), { 'text-anchor': 'end' }));
  counts.forEach((n, i) => {
    if (n === 0) return;
    const a = x(edges[i]), b = x(edges[i + 1]), height = Math.max(2, bottom - y(n));
    svg.append(s('rect', { class: 'bar', x: a + .5, y: bottom - height, width: Math.max(1, b - a - 1), height }, s('title', {}, `${bin(i)}: ${plural(n, things.slice(0, -1))}`)));
  });
  // a bar of one whole number has its label below it; wider bars have theirs at the edges
  const single = !log && edges[1] - edges[0] === 1, half = n => unit(n).length * 3.4;
  const middle = n => (single ? (x(n) + x(n + 1)) / 2 : x(n)), place = n => Math.min(Math.max(middle(n), half(n)), w - half(n));
  const lists = rounds(bins, unit === size).map(list => list.filter(n => !single || n < edges.at(-1)));
  const fits = list => list.length > 0 && list.every((n, i) => i === 0 || place(n) - half(n) - place(list[i - 1]) - half(list[i - 1]) >= 12);
  for (const n of lists.find(fits) ?? [edges[0]]) {
    svg.append(s('path', { class: 'tick', d: `M${middle(n)} ${bottom}v4` }), text(place(n), bottom + 17, unit(n), { 'text-anchor': 'middle' }));
  }
  svg.append(text(0, 10, things), text(left, 212, axis + (log ? ', logarithmic' : '')));
  const peak = counts.indexOf(most), last = edges.at(-1) - (unit === count || single ? 1 : 0);
  svg.setAttribute('aria-label', `Histogram: ${axis}, from ${unit(edges[0])} to ${unit(last)}. Most frequent: ${bin(peak)}, ${plural(most, things.slice(0, -1))}.`);
  box.replaceChildren(svg);
}

/** Requests per second of the last minute, of complete seconds. */
export function rate(box, perSecond) {
  const w = width(box), left = 46, right = w - 14, top = 24, bottom = 108, high = ticks(Math.max(...perSecond), 3).at(-1);
  const x = i => left + (i / (perSecond.length - 1 || 1)) * (right - left), y = n => bottom - (n / high) * (bottom - top);
  const line = perSecond.map((n, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)} ${y(n).toFixed(1)}`).join('');
  const now = perSecond.at(-1) ?? 0;
  box.replaceChildren(s('svg', { height: 132, viewBox: `0 0 ${w} 132`, role: 'img', 'aria-label': `Requests per second in the last minute: ${brief(now)} in the last second, at most ${brief(Math.max(0, ...perSecond))}.` },
    text(0, 10, 'requests per second'), text(right, 10, brief(now), { 'text-anchor': 'end', class: 'strong' }),
    [0, high].flatMap(mark => [s('path', { class: 'axis', d: `M${left} ${y(mark)}H${right}` }), text(left - 8, y(mark) + 4, brief(mark), { 'text-anchor': 'end' })]),
    s('path', { class: 'rate-area', d: `${line}L${right} ${bottom}L${left} ${bottom}Z` }), s('path', { class: 'rate-line', d: line }), s('circle', { class: 'dot', cx: right, cy: y(now), r: 3 }),
    text(left, 127, '1 minute ago'), text(right, 127, 'last second', { 'text-anchor': 'end' })));
}

/** Percentiles on a ruler of times, from 1 µs to the first decade that has all. */
export function latencies(box, latency) {
  const marks = ['p50', 'p90', 'p99', 'max'].map(name => [name, latency[name]]).filter(([, us]) => us !== null && us !== undefined);
  if (!marks.some(([, us]) => us > 0)) return box.replaceChildren(h('p', { class: 'help' }, 'No request yet.'));
  const w = width(box), left = 8, right = w - 92, y = 100, high = Math.max(3, Math.ceil(Math.log10(Math.max(...marks.map(([, us]) => us)) + 1)));
  const x = us => left + (Math.log10(Math.max(us, 1)) / high) * (right - left);
  const svg = s('svg', { height: 132, viewBox: `0 0 ${w} 132`, role: 'img', 'aria-label': `Latency: ${marks.map(([name, us]) => `${name} ${time(us)}`).join(', ')}.` }, text(0, 10, 'time per request, logarithmic'), s('path', { class: 'tick', d: `M${left} ${y}H${right}` }));
  const every = right - left > 52 * high ? 1 : 2;
  for (let decade = 0; decade <= high; decade++) {
    for (let digit = 1; digit < (decade < high ? 10 : 2); digit++) svg.append(s('path', { class: 'tick', d: `M${x(digit * 10 ** decade)} ${y}v${digit === 1 ? 8 : 4}` }));
    if (decade % every === 0) svg.append(text(x(10 ** decade), y + 22, time(10 ** decade), { 'text-anchor': decade === 0 ? 'start' : 'middle' }));
  }
  // flags to the right of their poles, the lowest percentile on top: no pole crosses a flag
  marks.forEach(([name, us], i) => {
    const row = 34 + 18 * i;
    svg.append(s('path', { class: 'tick', d: `M${x(us)} ${y}V${row - 9}` }), s('circle', { class: 'dot', cx: x(us), cy: y, r: 3.5 }), text(x(us) + 5, row, `${name} ${time(us)}`, { class: 'strong' }));
  });
  box.replaceChildren(svg);
}

/** The parts of a shard file in file order, without overlaps: the bytes between the named ones are `other`. */
function inOrder(parts, length) {
  const sorted = parts.filter(part => part.end > part.start).sort((a, b) => a.start - b.start), all = [];
  let at = 0;
  for (const part of sorted) {
    if (part.start > at) all.push({ kind: 'other', start: at, end: part.start });
    all.push(part);
    at = Math.max(at, part.end);
  }
  if (length > at) all.push({ kind: 'other', start: at, end: length });
  return all;
}

/** A shard file twice: to scale, and with every part wide enough to see. */
export function strip(box, parts, length, file) {
  const all = inOrder(parts, length), w = width(box), least = Math.min(54, w / all.length / 1.5);
  const free = w - least * all.length, total = all.reduce((sum, part) => sum + Math.log2(2 + part.end - part.start), 0);
  const svg = s('svg', { height: 100, viewBox: `0 0 ${w} 100`, role: 'img', 'aria-label': `Parts of ${file}: ${parts.map(part => `${part.name} at bytes ${part.start} to ${part.end}`).join(', ')}, of ${length} bytes.` });
  svg.append(text(0, 11, `${file}, to scale`), text(w, 11, `${count(length)} bytes`, { 'text-anchor': 'end' }));
  let left = 0;
  for (const part of all) {
    const a = (part.start / length) * w, b = Math.max((part.end / length) * w, a + 1.5), wide = least + (free * Math.log2(2 + part.end - part.start)) / total;
    if (part.kind !== 'other') svg.append(s('path', { class: 'lens', d: `M${a} 28L${left} 54H${left + wide}L${b} 28Z` }));
    svg.append(s('rect', { class: `part-${part.kind}`, x: a, y: 18, width: b - a, height: 10 }),
      s('rect', { class: `part-${part.kind}`, x: left, y: 54, width: Math.max(1, wide - 1), height: 26 }, s('title', {}, `${part.name ?? 'other data'}: bytes ${span(part)}`)));
    if (part.name && wide > part.name.length * 6.6 + 8) svg.append(text(left + wide / 2, 71, part.name, { class: 'in', 'text-anchor': 'middle' }));
    if (wide > count(part.start).length * 7) svg.append(text(left, 95, count(part.start)));
    left += wide;
  }
  svg.append(s('rect', { class: 'frame', x: .5, y: 18.5, width: w - 1, height: 9 }));
  box.replaceChildren(svg);
}

const MOST_CELLS = 4096;

/** Cells of the map: one per possible shard while they are few, else one per file, else one per group of files. */
function cells(shards, shardBits) {
  const slots = 2 ** (shardBits ?? 64);
  if (slots <= MOST_CELLS) {
    const all = Array.from({ length: slots }, (_, number) => ({ number: String(number), shards: [] }));
    for (const shard of shards) all[shard.number]?.shards.push(shard);
    return all;
  }
  const group = Math.ceil(shards.length / MOST_CELLS);
  return Array.from({ length: Math.ceil(shards.length / group) }, (_, i) => ({ shards: shards.slice(i * group, (i + 1) * group) }));
}

/** What a cell is, in words. */
function say(cell, mean) {
  const { shards } = cell;
  if (shards.length === 0) return `Shard ${cell.number}: no file, no keys`;
  const total = shards.reduce((sum, shard) => sum + shard.bytes, 0), keys = shards.some(shard => shard.keys === null) ? null : shards.reduce((sum, shard) => sum + Number(shard.keys), 0);
  const name = shards.length === 1 ? shards[0].file : `${shards[0].file} to ${shards.at(-1).file}`;
  return `${name}: ${keys === null ? '' : plural(keys, 'key') + ', '}${size(total)}, ${(total / shards.length / mean).toFixed(2)} times the mean size`;
}

/**
 * A map of the shards: the height of a cell's fill is its size, the strength of its color its keys. A slider for the
 * keyboard: arrow keys move between the cells. `say` shows the words of the cell under the pointer or the keyboard.
 */
export function shardMap(box, readout, shards, shardBits) {
  const all = cells(shards, shardBits), sum = shards.reduce((total, shard) => total + shard.bytes, 0), mean = sum / (shards.length || 1) || 1;
  const load = cell => cell.shards.reduce((total, shard) => total + shard.bytes, 0), keys = cell => cell.shards.reduce((total, shard) => total + Number(shard.keys ?? 0), 0);
  const largest = Math.max(1, ...all.map(load)), fullest = Math.max(1, ...all.map(keys)), known = shards.some(shard => shard.keys !== null);
  const canvas = h('canvas', { 'aria-hidden': 'true' });
  let at = 0, found = -1, columns = 1, cell = 8;
  const rows = () => Math.ceil(all.length / columns);

  function draw() {
    const style = getComputedStyle(document.documentElement), color = name => style.getPropertyValue(name).trim(), ratio = devicePixelRatio || 1;
    const w = width(box);
    // a power of two, so that a row is a prefix of the shard's number
    columns = 2 ** Math.floor(Math.log2(w / Math.max(7, Math.min(30, Math.sqrt((w * 120) / all.length)))));
    cell = Math.min(40, Math.floor(w / columns));
    columns = Math.min(columns, all.length);
    canvas.width = columns * cell * ratio; canvas.height = rows() * cell * ratio;
    canvas.style.width = `${columns * cell}px`; canvas.style.height = `${rows() * cell}px`;
    const c = canvas.getContext('2d');
    c.scale(ratio, ratio);
    all.forEach((one, i) => {
      const x = (i % columns) * cell, y = Math.floor(i / columns) * cell, inner = cell - 1;
      c.fillStyle = color('--faint'); c.fillRect(x, y, inner, inner);
      if (one.shards.length) {
        const high = Math.max(2, (load(one) / largest) * inner);
        c.globalAlpha = known ? .4 + .6 * (keys(one) / fullest) : .8; c.fillStyle = color('--shard'); c.fillRect(x, y + inner - high, inner, high);
      }
      c.globalAlpha = 1;
      if (i === found) { c.lineWidth = 2.5; c.strokeStyle = color('--value'); c.strokeRect(x + 1, y + 1, inner - 2, inner - 2); }
      if (i === at && box.matches(':focus, :hover')) { c.lineWidth = 1.5; c.strokeStyle = color('--ink'); c.strokeRect(x + .5, y + .5, inner - 1, inner - 1); }
    });
  }
  function move(to) {
    at = Math.min(Math.max(to, 0), all.length - 1);
    const words = say(all[at], mean);
    readout.textContent = words;
    box.setAttribute('aria-valuenow', at); box.setAttribute('aria-valuetext', words);
    draw();
  }
  const moves = { ArrowRight: () => at + 1, ArrowLeft: () => at - 1, ArrowDown: () => at + columns, ArrowUp: () => at - columns, Home: () => 0, End: () => all.length - 1 };
  box.onkeydown = event => { if (moves[event.key]) { event.preventDefault(); move(moves[event.key]()); } };
  box.onpointermove = event => {
    const { left, top } = canvas.getBoundingClientRect(), column = Math.floor((event.clientX - left) / cell), row = Math.floor((event.clientY - top) / cell);
    if (column >= 0 && column < columns && row >= 0 && row * columns + column < all.length) move(row * columns + column);
  };
  box.onfocus = box.onblur = box.onpointerleave = draw;
  const attributes = { role: 'slider', tabindex: 0, 'aria-label': 'Shard', 'aria-valuemin': 0, 'aria-valuemax': Math.max(0, all.length - 1), 'aria-orientation': 'horizontal' };
  for (const [name, value] of Object.entries(attributes)) box.setAttribute(name, value);
  box.replaceChildren(canvas);
  move(0);
  return {
    draw,
    /** Marks the shard of a key and shows its words. Numbers above 2^53 are not exact, names of files are. */
    mark(file, number) {
      found = all.findIndex(one => one.number === number || one.shards.some(shard => shard.file === file));
      if (found >= 0) move(found); else draw();
    },
  };
}
