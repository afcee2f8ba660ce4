'use strict';
// Draws the icicle anew from the tree that the page carries: of the frame one looks at closely, from its own width on.
// A page has a graph for each run; the ids of their elements end with the run's number, but those of the first.
function graph(end) {
const $ = id => document.getElementById(id + end);
const report = JSON.parse($('report').textContent);
const picture = $('picture');
if (!picture) return;
// The picture that needs no script says what SVG is.
const SVG = picture.querySelector('svg').namespaceURI;
const all = report.tree.v;

// Every frame with the one above it, in order from top to bottom and from left to right.
const frames = [];
(function walk(node, up, row) {
  const frame = { text: node.n, kind: node.k, value: node.v, beyond: node.d, up, row, below: [], at: frames.length };
  frames.push(frame);
  for (const child of node.c || []) frame.below.push(walk(child, frame, row + 1));
  return frame;
})(report.tree, null, 0);
const deepest = frame => frame.below.reduce((most, f) => Math.max(most, deepest(f)), frame.row);

function joules(v) {
  if (v === 0) return '0 J';
  const steps = [[1, 'pJ'], [1e3, 'nJ'], [1e6, 'uJ'], [1e9, 'mJ'], [1e12, 'J']];
  const [by, unit] = steps.filter(([by]) => v >= by).pop();
  return `${(v / by).toFixed(2)} ${unit}`;
}
// Against the control: red grew, blue shrank.
function tint(v) {
  const faint = 235 - Math.floor(Math.min(120, 120 * Math.abs(v) / Math.max(1, report.widest)));
  return v === 0 ? 'rgb(235,235,235)' : v > 0 ? `rgb(255,${faint},${faint})` : `rgb(${faint},${faint},255)`;
}
const share = (part, of) => `${(part * 100 / Math.max(1, of)).toFixed(1)} %`;
function path(frame) {
  const names = [];
  for (let f = frame; f.up; f = f.up) names.unshift(f.text);
  return names.length ? names.join(' › ') : frame.text;
}
function told(frame) {
  let text = `${path(frame)}: ${joules(frame.value)}, ${share(frame.value, all)} of all`;
  if (state.root.up && frame.row > state.root.row) text += `, ${share(frame.value, state.root.value)} of ${state.root.text}`;
  if (frame.beyond !== undefined) text += `, ${frame.beyond < 0 ? '-' : '+'}${joules(Math.abs(frame.beyond))} against ${report.control.name}`;
  return text;
}

const state = { root: frames[0], chosen: frames[0], hits: new Set(), word: '' };
const svg = document.createElementNS(SVG, 'svg');
svg.setAttribute('class', report.control ? 'icicle live compared' : 'icicle live');
svg.setAttribute('width', '100%');
svg.setAttribute('tabindex', '0');
svg.setAttribute('role', 'tree');
svg.setAttribute('aria-label', 'Joules as an icicle: below each frame what it is made of');
picture.replaceChildren(svg);

// What is drawn where, in parts of the width: those above the one looked at fill it.
function places() {
  const out = [], wide = Math.max(1, svg.clientWidth);
  for (let f = state.root.up; f; f = f.up) out.push({ frame: f, x: 0, width: 1, above: true });
  (function lay(frame, x, width) {
    if (width * wide < 0.7) return;
    out.push({ frame, x, width });
    let at = x;
    for (const child of frame.below) {
      const part = frame.value ? width * child.value / frame.value : 0;
      lay(child, at, part);
      at += part;
    }
  })(state.root, 0, 1);
  return out;
}
let drawn = new Map();
function draw() {
  const wide = Math.max(1, svg.clientWidth), placed = places();
  svg.setAttribute('height', (Math.max(...placed.map(p => p.frame.row)) + 1) * report.row);
  svg.classList.toggle('searched', state.word !== '');
  drawn = new Map();
  const made = placed.map(p => {
    const { frame } = p, el = document.createElementNS(SVG, 'svg'), width = p.width * wide;
    const classes = [frame.kind, p.above && 'above', state.hits.has(frame) && 'hit', state.chosen === frame && 'chosen'];
    el.setAttribute('class', classes.filter(Boolean).join(' '));
    el.setAttribute('x', `${p.x * 100}%`);
    el.setAttribute('y', frame.row * report.row);
    el.setAttribute('width', `${Math.max(p.width * 100 - 50 / wide, p.width * 50)}%`);
    el.setAttribute('height', report.row - 1);
    el.setAttribute('id', `f${frame.at}${end}`);
    el.setAttribute('role', 'treeitem');
    el.setAttribute('aria-level', frame.row + 1);
    el.setAttribute('aria-label', told(frame));
    const rect = document.createElementNS(SVG, 'rect');
    rect.setAttribute('width', '100%');
    rect.setAttribute('height', '100%');
    if (frame.beyond !== undefined) rect.style.fill = tint(frame.beyond);
    el.append(rect);
    if (width >= 16) {
      const text = document.createElementNS(SVG, 'text');
      text.setAttribute('x', 3);
      text.setAttribute('y', 15);
      text.textContent = frame.text;
      el.append(text);
    }
    el.addEventListener('click', () => look(frame));
    el.addEventListener('pointerenter', e => { if (e.pointerType === 'mouse') tip(frame, e); });
    el.addEventListener('pointermove', e => { if (e.pointerType === 'mouse') tip(frame, e); });
    el.addEventListener('pointerleave', () => { $('tip').hidden = true; });
    drawn.set(frame, el);
    return el;
  });
  svg.replaceChildren(...made);
  svg.setAttribute('aria-activedescendant', `f${state.chosen.at}${end}`);
  $('out').disabled = !state.root.up;
}
function tip(frame, e) {
  const box = $('tip');
  box.textContent = told(frame);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(0, Math.min(e.clientX + 12, innerWidth - width - 4))}px`;
  box.style.top = `${e.clientY + 20 + height > innerHeight ? e.clientY - height - 8 : e.clientY + 20}px`;
}
function tell() {
  let text = told(state.chosen);
  if (state.word) text = `${hits()}. ${text}`;
  $('here').textContent = text;
}
// What frames with the word cost; one below another is in it already.
function hits() {
  let sum = 0;
  for (const frame of state.hits) {
    let up = frame.up;
    while (up && !state.hits.has(up)) up = up.up;
    if (!up) sum += frame.value;
  }
  return `${state.hits.size} frames have "${state.word}": ${joules(sum)}, ${share(sum, all)} of all`;
}
function look(frame) {
  state.root = frame;
  state.chosen = frame;
  $('tip').hidden = true;
  draw();
  tell();
}
function choose(frame) {
  if (!frame) return;
  state.chosen = frame;
  draw();
  tell();
}
const shown = frame => drawn.has(frame) ? frame : null;
const beside = by => {
  // The next one of the same row that is drawn, whoever's it is.
  const row = [...drawn.keys()].filter(f => f.row === state.chosen.row).sort((a, b) => a.at - b.at);
  return row[row.indexOf(state.chosen) + by];
};
svg.addEventListener('keydown', e => {
  const to = {
    ArrowDown: () => choose(shown(state.chosen.below.find(f => drawn.has(f)))),
    ArrowUp: () => choose(state.chosen.up),
    ArrowLeft: () => choose(beside(-1)),
    ArrowRight: () => choose(beside(1)),
    Home: () => choose(state.root),
    Enter: () => look(state.chosen),
    ' ': () => look(state.chosen),
    Backspace: () => state.root.up && look(state.root.up),
    Escape: () => look(frames[0]),
  }[e.key];
  if (!to || e.ctrlKey || e.altKey || e.metaKey) return;
  e.preventDefault();
  to();
});
if (!end) addEventListener('keydown', e => {
  if (e.key === '/' && e.target !== $('word')) { e.preventDefault(); $('word').focus(); }
});
function search() {
  state.word = $('word').value;
  const word = state.word.toLowerCase();
  state.hits = new Set(word ? frames.filter(f => f.text.toLowerCase().includes(word)) : []);
  draw();
  tell();
}
$('word').addEventListener('input', search);
$('word').addEventListener('keydown', e => {
  if (e.key === 'Escape') { $('word').value = ''; search(); svg.focus(); }
  if (e.key === 'Enter' && state.hits.size) {
    e.preventDefault();
    look([...state.hits].reduce((a, b) => b.value > a.value ? b : a));
    svg.focus();
  }
});
$('clear').addEventListener('click', () => { $('word').value = ''; search(); });
$('out').addEventListener('click', () => look(frames[0]));
addEventListener('resize', draw);
$('search').hidden = $('keys').hidden = false;
draw();
tell();
}
for (let n = 0; document.getElementById(`graph${n ? '-' + n : ''}`); n++) graph(n ? `-${n}` : '');
document.body.dataset.drawn = 'true';
