'use strict';
// Draws the volume in three levels, and finds files on it. Everything shown comes from what the page carries.
(() => {
const $ = id => document.getElementById(id);
const given = JSON.parse($('given').textContent);
const BLOCKS = 512, BYTES = BLOCKS / 8;

async function unpack(id) {
  const text = $(id) ? $(id).textContent : '';
  if (!text) return new Uint8Array(0);
  const packed = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Columns of segments: numbers, ages, logs, bits.
function table(bytes) {
  const n = bytes.length / (9 + BYTES);
  return {
    n,
    numbers: new Uint32Array(bytes.buffer, 0, n),
    ages: new Uint32Array(bytes.buffer, 4 * n, n),
    logs: bytes.subarray(8 * n, 9 * n),
    bits: bytes.subarray(9 * n),
  };
}
function places(t) {
  const at = new Int32Array(given.segments).fill(-1);
  for (let i = 0; i < t.n; i++) at[t.numbers[i]] = i;
  return at;
}
const bit = (bits, row, block) => row >= 0 && (bits[row * BYTES + (block >> 3)] >> (7 - (block & 7)) & 1) === 1;

// Free space of a row: used blocks, the factor f as a share of its maximum, runs of free blocks, the longest.
function look(t, row) {
  let used = 0, torn = 0, runs = 0, longest = 0, run = 0;
  const end = () => {
    if (!run) return;
    runs++;
    longest = Math.max(longest, run);
    if (run < 32) torn += 1 / run;
    run = 0;
  };
  for (let b = 0; b < BYTES; b++) {
    const byte = t.bits[row * BYTES + b];
    if (byte === 0) { run += 8; continue; }
    if (byte === 255) { end(); used += 8; continue; }
    for (let k = 7; k >= 0; k--) if (byte >> k & 1) { end(); used++; } else run++;
  }
  end();
  return { used, torn: torn / 256, runs, longest };
}

// Files: a stream of numbers of seven bits a byte, and paths with a zero behind each.
function files(bytes) {
  let at = 0;
  const next = () => {
    let n = 0, by = 1, b;
    do { b = bytes[at++]; n += (b & 127) * by; by *= 128; } while (b & 128);
    return n;
  };
  const signed = () => { const n = next(); return n % 2 ? -(n + 1) / 2 : n / 2; };
  const count = next(), all = [], extents = [];
  for (let i = 0; i < count; i++) {
    const f = { size: next(), blocks: next(), extents: next(), fewest: next(), read: next(), ideal: next(), inline: next(), worst: next() - 1, from: extents.length };
    let addr = 0;
    for (let k = next(); k > 0; k--) {
      addr += signed();
      const blocks = next();
      extents.push([addr, blocks, i]);
      addr += blocks;
    }
    f.to = extents.length;
    all.push(f);
  }
  const paths = new TextDecoder().decode(bytes.subarray(at)).split('\0');
  all.forEach((f, i) => { f.path = paths[i]; f.low = paths[i].toLowerCase(); });
  return { all, extents };
}

// What people read, as the program prints it.
const bytesText = n => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let u = 0;
  while (u < 5 && n >= 1024 ** (u + 1)) u++;
  return u ? (n / 1024 ** u).toFixed(2) + ' ' + units[u] : n + ' B';
};
const joules = n => {
  if (n === 0) return '0 J';
  const [scale, unit] = [[1, 'pJ'], [1e3, 'nJ'], [1e6, 'uJ'], [1e9, 'mJ'], [1e12, 'J']].findLast(([s]) => n >= s);
  return (n / scale).toFixed(2) + ' ' + unit;
};
const age = s => s < 120 ? s + ' s' : s < 7200 ? Math.floor(s / 60) + ' min' : s < 172800 ? Math.floor(s / 3600) + ' h' : Math.floor(s / 86400) + ' d';

const dark = matchMedia('(prefers-color-scheme: dark)');
const RAMPS = {
  occupancy: [['#d3e5f5', '#08437f'], ['#17395c', '#9ccdff']],
  f: [['#fde6c8', '#a82f04'], ['#40220f', '#ffb27a']],
  age: [['#e6def2', '#43217d'], ['#2d1f4a', '#d3bcff']],
};
// Hot, warm, cold data; hot, warm, cold nodes; none. Told apart by people who see colours differently, too.
const LOGS = ['#d55e00', '#e69f00', '#56b4e9', '#cc79a7', '#009e73', '#0072b2', '#8c8c8c'];
const NEW = '#0072b2', GONE = '#e69f00';
const EMPTY = ['#ececec', '#26282c'], SAME = ['#b9b9b9', '#5a5d63'];
const rgb = h => [1, 3, 5].map(i => parseInt(h.slice(i, i + 2), 16));
const mix = (a, b, t) => { const [x, y] = [rgb(a), rgb(b)]; return x.map((v, i) => Math.round(v + (y[i] - v) * t)); };
const theme = () => dark.matches ? 1 : 0;
const css = c => typeof c === 'string' ? c : `rgb(${c.join()})`;
const mark = () => getComputedStyle(document.documentElement).getPropertyValue('--mark').trim();
const ink = () => getComputedStyle(document.documentElement).getPropertyValue('--text').trim();

async function begin() {
  const [now, old, f] = await Promise.all(['segments', 'before', 'files'].map(unpack));
  const t = table(now), before = table(old), found = files(f);
  const row = places(t), rowBefore = places(before);
  const looks = Array.from({ length: t.n }, (_, i) => look(t, i));
  const oldest = given.modes.includes('age') ? t.ages.reduce((a, b) => Math.max(a, b), 1) : 1;
  // Extents by address, to say whose a block is.
  const byAddress = found.extents.slice().sort((a, b) => a[0] - b[0]);
  const state = { mode: given.modes[0], at: 0, file: -1, marked: new Map() };

  function owner(addr) {
    let [lo, hi] = [0, byAddress.length];
    while (lo < hi) { const m = (lo + hi) >> 1; if (byAddress[m][0] <= addr) lo = m + 1; else hi = m; }
    const e = byAddress[lo - 1];
    return e && addr < e[0] + e[1] ? e[2] : -1;
  }
  const ramp = (name, x) => mix(...RAMPS[name][theme()], Math.max(0, Math.min(1, x)));
  function changes(s) {
    const [a, b] = [row[s], rowBefore[s]];
    let [come, gone, same] = [0, 0, 0];
    for (let k = 0; k < BLOCKS; k++) {
      const [is, was] = [bit(t.bits, a, k), bit(before.bits, b, k)];
      if (is && was) same++; else if (is) come++; else if (was) gone++;
    }
    return { come, gone, same };
  }
  const changed = given.modes.includes('changed')
    ? Array.from({ length: given.segments }, (_, s) => row[s] < 0 && rowBefore[s] < 0 ? null : changes(s)) : [];
  function colour(s) {
    if (state.mode === 'changed') {
      const c = changed[s];
      if (!c || c.come + c.gone + c.same === 0) return rgb(EMPTY[theme()]);
      const moved = c.come + c.gone;
      return moved ? mix(GONE, NEW, c.come / moved) : rgb(SAME[theme()]);
    }
    const r = row[s];
    if (r < 0 || looks[r].used === 0) return rgb(EMPTY[theme()]);
    if (state.mode === 'temperature') return rgb(LOGS[Math.min(6, t.logs[r])]);
    if (state.mode === 'age') return ramp('age', Math.log1p(t.ages[r]) / Math.log1p(oldest));
    if (state.mode === 'f') return ramp('f', Math.sqrt(looks[r].torn));
    return ramp('occupancy', looks[r].used / BLOCKS);
  }
  // A block's colour is its segment's, but where occupancy or change is shown: there each has its own.
  function blockColour(s, k) {
    if (s * BLOCKS + k >= given.blocks) return rgb(['#ffffff', '#141517'][theme()]);
    const is = bit(t.bits, row[s], k);
    if (state.mode === 'changed') {
      const was = bit(before.bits, rowBefore[s], k);
      return is ? rgb(was ? SAME[theme()] : NEW) : rgb(was ? GONE : EMPTY[theme()]);
    }
    if (!is) return rgb(EMPTY[theme()]);
    return state.mode === 'occupancy' ? ramp('occupancy', .8) : colour(s);
  }

  function size(canvas, height) {
    const by = devicePixelRatio || 1, width = canvas.clientWidth;
    canvas.style.height = height + 'px';
    canvas.width = Math.max(1, Math.round(width * by));
    canvas.height = Math.max(1, Math.round(height * by));
    const c = canvas.getContext('2d');
    c.setTransform(by, 0, 0, by, 0, 0);
    c.imageSmoothingEnabled = false;
    return c;
  }
  // Level 1: a cell a segment, row by row; several segments a cell where there are too many.
  const volume = $('volume'), sections = $('sections'), blocks = $('blocks');
  let grid = {};
  function layVolume() {
    const width = Math.max(1, volume.clientWidth);
    let [cell, per] = [18, 1];
    const rows = () => Math.ceil(Math.ceil(given.segments / per) / Math.floor(width / cell));
    while (cell > 1 && rows() * cell > 420) cell--;
    while (rows() > 2000) per *= 2;
    grid = { cell, per, columns: Math.floor(width / cell), rows: rows() };
  }
  function drawVolume() {
    layVolume();
    const { cell, per, columns, rows } = grid, c = size(volume, rows * cell);
    const image = new ImageData(columns, rows), m = rgb(mark());
    for (let n = 0; n * per < given.segments; n++) {
      let sum = [0, 0, 0], count = 0, hit = false;
      for (let s = n * per; s < Math.min(given.segments, (n + 1) * per); s++) {
        hit = hit || state.marked.has(s);
        colour(s).forEach((v, i) => { sum[i] += v; });
        count++;
      }
      image.data.set(hit ? [...m, 255] : [...sum.map(v => v / count), 255], n * 4);
    }
    const small = new OffscreenCanvas(columns, rows);
    small.getContext('2d').putImageData(image, 0, 0);
    c.drawImage(small, 0, 0, columns * cell, rows * cell);
    if (cell >= 6) {
      c.fillStyle = getComputedStyle(document.body).backgroundColor;
      for (let x = 1; x <= columns; x++) c.fillRect(x * cell - 1, 0, 1, rows * cell);
      for (let y = 1; y <= rows; y++) c.fillRect(0, y * cell - 1, columns * cell, 1);
    }
    const n = Math.floor(state.at / per), pad = cell >= 6 ? 0 : 3;
    c.strokeStyle = ink();
    c.lineWidth = 2;
    c.strokeRect(n % columns * cell - pad, Math.floor(n / columns) * cell - pad, cell + 2 * pad - 1, cell + 2 * pad - 1);
  }
  // Level 2: segments around the one that is looked at, each 32 x 16 blocks; a line around each section.
  let strip = {};
  function drawSections() {
    const scale = sections.clientWidth >= 620 ? 2 : 1, [w, h, gap] = [32 * scale, 16 * scale, 6];
    const columns = Math.max(1, Math.floor(sections.clientWidth / (w + gap))), rows = scale === 2 ? 4 : 5;
    const most = columns * rows, sec = given.per_section;
    const whole = Math.max(1, Math.floor(most / sec)) * sec;
    const first = Math.max(0, Math.min(Math.floor(state.at / sec) * sec - Math.floor(whole / sec / 2) * sec, Math.ceil(given.segments / sec) * sec - whole));
    const count = Math.min(most, given.segments - first);
    strip = { w, h, gap, columns, first, count };
    const c = size(sections, Math.ceil(count / columns) * (h + gap)), m = rgb(mark());
    for (let i = 0; i < count; i++) {
      const s = first + i, x = i % columns * (w + gap), y = Math.floor(i / columns) * (h + gap);
      const image = new ImageData(32, 16);
      for (let k = 0; k < BLOCKS; k++) image.data.set([...marks(s, k) ? m : blockColour(s, k), 255], k * 4);
      const small = new OffscreenCanvas(32, 16);
      small.getContext('2d').putImageData(image, 0, 0);
      c.drawImage(small, x + 2, y + 2, w, h);
      if (s === state.at || Math.floor(s / sec) % 2 && sec > 1) {
        c.strokeStyle = s === state.at ? ink() : css(SAME[theme()]);
        c.lineWidth = s === state.at ? 2 : 1;
        c.strokeRect(x + 1, y + 1, w + 2, h + 2);
      }
    }
  }
  // Level 3: the blocks of a segment.
  let tile = {};
  function drawBlocks() {
    const wide = blocks.clientWidth >= 620, columns = wide ? 64 : 32;
    const cell = Math.max(4, Math.min(12, Math.floor(blocks.clientWidth / columns)));
    tile = { columns, cell };
    const c = size(blocks, BLOCKS / columns * cell);
    for (let k = 0; k < BLOCKS; k++) {
      c.fillStyle = marks(state.at, k) ? mark() : css(blockColour(state.at, k));
      c.fillRect(k % columns * cell, Math.floor(k / columns) * cell, cell - 1, cell - 1);
    }
    $('level3').textContent = `Blocks of ${given.cell.toLowerCase()} ${state.at}, from address ${given.first + state.at * BLOCKS}`;
  }
  const marks = (s, k) => (state.marked.get(s) || []).some(([from, to]) => from <= k && k < to);

  function segmentText(s) {
    const r = row[s], parts = [];
    if (r < 0 || looks[r].used === 0) parts.push(given.shows === 'files' ? 'nothing of the files that were looked at' : 'free');
    else {
      const l = looks[r];
      if (t.logs[r] < 7) parts.push(given.logs[t.logs[r]]);
      parts.push(`${l.used} of ${BLOCKS} blocks ${given.shows === 'files' ? 'of files that were looked at' : 'in use'}`);
      if (given.shows === 'valid') parts.push(`f ${(l.torn * 100).toFixed(1)} %`, `${l.runs} free runs, the longest ${l.longest}`);
      if (given.modes.includes('age')) parts.push(`written ${age(t.ages[r])} ago`);
    }
    if (changed[s]) parts.push(`${changed[s].come} blocks new, ${changed[s].gone} no longer used`);
    return `${given.cell} ${s}: ${parts.join(', ')}`;
  }
  function tell(s, k) {
    let text = segmentText(s);
    if (k !== undefined) {
      const addr = given.first + s * BLOCKS + k, of = owner(addr);
      const whose = of >= 0 ? 'of ' + found.all[of].path : bit(t.bits, row[s], k) ? 'of no file that this page knows' : given.shows === 'files' ? 'unknown' : 'free';
      text = `Block ${addr}: ${whose}. ${text}`;
    }
    $('here').textContent = text;
  }

  function legend() {
    const at = $('legend'), th = theme();
    at.textContent = '';
    const item = (background, text, isRamp) => {
      const span = document.createElement('span'), i = document.createElement('i');
      i.style.background = background;
      if (isRamp) i.className = 'ramp';
      span.append(i, text);
      at.append(span);
    };
    const gradient = name => `linear-gradient(90deg, ${RAMPS[name][th].join()})`;
    const none = given.shows === 'files' ? 'nothing known' : 'free';
    if (state.mode === 'temperature') given.logs.slice(0, 6).forEach((name, i) => item(LOGS[i], name));
    if (state.mode === 'changed') [[NEW, 'new'], [GONE, 'no longer used'], [SAME[th], 'as before']].forEach(([c, n]) => item(c, n));
    if (state.mode === 'occupancy') item(gradient('occupancy'), given.shows === 'files' ? 'few to all blocks of files looked at' : 'few to all blocks in use', true);
    if (state.mode === 'f') item(gradient('f'), 'free space in one piece to every second block free', true);
    if (state.mode === 'age') item(gradient('age'), `written just now to ${age(oldest)} ago`, true);
    item(EMPTY[th], none);
    if (state.file >= 0) item(mark(), 'the chosen file');
  }

  function redraw() { drawVolume(); drawSections(); drawBlocks(); legend(); }
  function go(s) {
    state.at = Math.max(0, Math.min(given.segments - 1, s));
    drawVolume(); drawSections(); drawBlocks(); tell(state.at);
  }
  function choose(i) {
    state.file = i;
    state.marked = new Map();
    document.querySelectorAll('tr.pick').forEach(tr => tr.setAttribute('aria-selected', String(i >= 0 && Number(tr.dataset.worst) === found.all[i].worst)));
    const box = $('chosen');
    box.hidden = i < 0;
    if (i >= 0) {
      const f = found.all[i];
      let nearest = Infinity;
      for (const [addr, count] of found.extents.slice(f.from, f.to)) {
        for (let b = addr - given.first, end = b + count; b < end;) {
          const s = Math.floor(b / BLOCKS), from = b - s * BLOCKS, to = Math.min(BLOCKS, from + end - b);
          if (s >= 0 && s < given.segments) {
            if (!state.marked.has(s)) state.marked.set(s, []);
            state.marked.get(s).push([from, to]);
            nearest = Math.min(nearest, s);
          }
          b += to - from;
        }
      }
      const [path, facts] = box.querySelectorAll('p');
      path.textContent = f.path;
      facts.textContent = f.extents
        ? `${bytesText(f.size)} in ${f.extents} extents, ${f.fewest} would do; ${joules(f.read)} a read as it lies, ${joules(f.ideal)} at best; in ${state.marked.size} of ${given.segments} ${given.cells}`
        : f.inline ? `${bytesText(f.size)} in the inode: it has no extent` : `${bytesText(f.size)}, without a block that has an address`;
      if (f.extents && f.to === f.from) facts.textContent += '; its extents are too many for this page';
      if (nearest < Infinity) state.at = nearest;
    }
    redraw();
    tell(state.at);
  }
  function search() {
    const word = $('word').value.toLowerCase(), list = $('hits');
    list.textContent = '';
    if (!word) return choose(-1);
    let shown = 0, hits = 0;
    found.all.forEach((f, i) => {
      if (!f.low.includes(word)) return;
      hits++;
      if (shown++ >= 30) return;
      const li = document.createElement('li'), b = document.createElement('button');
      b.type = 'button';
      b.textContent = f.path;
      b.addEventListener('click', () => choose(i));
      li.append(b);
      list.append(li);
    });
    if (hits === 0 || hits > 30) {
      const li = document.createElement('li');
      li.className = 'note';
      li.textContent = hits ? `and ${hits - 30} more` : 'no such path among those this page knows';
      list.append(li);
    }
  }

  // Where on a canvas a pointer is, in cells; null outside.
  const spot = (e, w, h) => { const r = e.target.getBoundingClientRect(); return [Math.floor((e.clientX - r.left) / w), Math.floor((e.clientY - r.top) / h)]; };
  const inVolume = e => {
    const [x, y] = spot(e, grid.cell, grid.cell), s = (y * grid.columns + x) * grid.per;
    return x >= 0 && x < grid.columns && s >= 0 && s < given.segments ? s : null;
  };
  const inSections = e => {
    const [x, y] = spot(e, strip.w + strip.gap, strip.h + strip.gap), i = y * strip.columns + x;
    return x < strip.columns && i >= 0 && i < strip.count ? strip.first + i : null;
  };
  const inBlocks = e => {
    const [x, y] = spot(e, tile.cell, tile.cell), k = y * tile.columns + x;
    return x < tile.columns && k >= 0 && k < BLOCKS ? k : null;
  };
  for (const [canvas, where] of [[volume, inVolume], [sections, inSections]]) {
    canvas.addEventListener('pointerdown', e => { const s = where(e); if (s !== null) go(s); });
    canvas.addEventListener('pointermove', e => { const s = where(e); if (s !== null) { if (e.buttons & 1 && canvas === volume) go(s); else tell(s); } });
    canvas.addEventListener('keydown', e => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns * grid.per, ArrowDown: grid.columns * grid.per }[e.key];
      if (by) { e.preventDefault(); go(state.at + by); }
    });
  }
  blocks.addEventListener('pointermove', e => { const k = inBlocks(e); if (k !== null) tell(state.at, k); });
  blocks.addEventListener('pointerdown', e => {
    const k = inBlocks(e);
    if (k === null) return;
    const of = owner(given.first + state.at * BLOCKS + k), at = state.at;
    if (of >= 0) { choose(of); go(at); }
    tell(at, k);
  });
  document.querySelectorAll('button[data-mode]').forEach(b => b.addEventListener('click', () => {
    state.mode = b.dataset.mode;
    document.querySelectorAll('button[data-mode]').forEach(o => o.setAttribute('aria-pressed', String(o === b)));
    redraw();
  }));
  document.querySelectorAll('tr.pick').forEach(tr => {
    const pick = () => choose(found.all.findIndex(f => f.worst === Number(tr.dataset.worst)));
    tr.addEventListener('click', pick);
    tr.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); pick(); } });
  });
  $('word').addEventListener('input', search);
  $('word').addEventListener('keydown', e => { if (e.key === 'Enter') { e.preventDefault(); const b = $('hits').querySelector('button'); if (b) b.click(); } });
  $('clear').addEventListener('click', () => { $('word').value = ''; search(); });
  dark.addEventListener('change', redraw);
  addEventListener('resize', redraw);
  // Where there is something to see.
  state.at = t.n ? t.numbers[0] : 0;
  redraw();
  tell(state.at);
  document.body.dataset.drawn = 'true';
}
if (given.segments > 0) begin().catch(e => { $('here').textContent = 'The map cannot be drawn here: ' + e; });
})();
