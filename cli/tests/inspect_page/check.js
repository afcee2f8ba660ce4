// Looks at a page of `joulefs inspect --html` from outside: numbers against the report in it, bits against the numbers,
// clicks against what is drawn. Put behind the page's own script by the test; what it finds is the text of #checked.
(async () => {
  const wrong = [];
  let counted = 0;
  const expect = (is, what) => { counted++; if (!is) wrong.push(what); };
  const say = () => {
    const pre = document.createElement('pre');
    pre.id = 'checked';
    pre.textContent = wrong.length ? 'WRONG\n' + wrong.slice(0, 40).join('\n') : `right: ${counted} of ${counted}`;
    document.body.append(pre);
  };
  const tick = () => new Promise(done => setTimeout(done, 20));
  try {
    const report = JSON.parse(document.getElementById('report').textContent);
    const given = JSON.parse(document.getElementById('given').textContent);
    const pointer = at => at.split('/').slice(1).reduce((v, key) => v && v[key], report);

    // Numbers, written anew from the report.
    const unit = (n, steps, digits) => { const [by, name] = steps.filter(([by]) => n >= by).pop() || steps[0]; return (n / by).toFixed(digits) + ' ' + name; };
    const text = {
      count: v => v === null ? '-' : String(v),
      reads: v => v === null ? 'never' : String(v),
      bytes: v => v < 1024 ? v + ' B' : unit(v, [[1024, 'KiB'], [2 ** 20, 'MiB'], [2 ** 30, 'GiB'], [2 ** 40, 'TiB']], 2),
      mebibytes: v => (v / 256).toFixed(1),
      joules: v => v === 0 ? '0 J' : unit(v, [[1, 'pJ'], [1e3, 'nJ'], [1e6, 'uJ'], [1e9, 'mJ'], [1e12, 'J']], 2),
      time: v => v < 1e6 ? (v / 1e3).toFixed(1) + ' us' : v < 1e9 ? (v / 1e6).toFixed(2) + ' ms' : (v / 1e9).toFixed(3) + ' s',
      age: v => { if (v === null) return '-'; const s = Math.floor(v / 1e9); return s < 120 ? s + ' s' : s < 7200 ? Math.floor(s / 60) + ' min' : s < 172800 ? Math.floor(s / 3600) + ' h' : Math.floor(s / 86400) + ' d'; },
      ratio: v => v === null ? '-' : v.toFixed(2),
      share: (part, of) => (part * 100 / Math.max(1, of)).toFixed(1) + ' %',
      of_segments: (blocks, segments) => (blocks * 100 / (Math.max(1, segments) * 512)).toFixed(1) + ' %',
    };
    // Ties of rounding may fall either way.
    const close = (a, b) => a === b || a.replace(/[\d.]+/, '') === b.replace(/[\d.]+/, '') && Math.abs(parseFloat(a) - parseFloat(b)) <= 0.0100001 * Math.max(1, 10 ** (2 - (a.split('.')[1] || '00').match(/^\d*/)[0].length));
    const numbers = [...document.querySelectorAll('[data-at]')];
    for (const e of numbers) {
      const values = e.dataset.at.split(' ').map(pointer);
      expect(values.every(v => v !== undefined), `nothing is at ${e.dataset.at}`);
      const should = text[e.dataset.as](...values);
      expect(close(e.textContent, should), `${e.dataset.at}: ${e.textContent}, not ${should}`);
    }
    expect(numbers.length >= 12, `only ${numbers.length} numbers`);
    // Nothing with a digit stands anywhere else but in texts of the report, in names of sizes, and in what the script draws.
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const node = walk.currentNode;
      if (!/\d/.test(node.data) || node.parentElement.closest('script, style, [data-at], [data-text], [data-live], [data-fixed]')) continue;
      const fixed = node.data.replace(/2 MiB|512 blocks|F2FS/g, '');
      expect(!/\d/.test(fixed), `a number of no origin: ${node.data}`);
    }
    const told = JSON.stringify(report);
    const short = { '\n': '\\n', '\t': '\\t', '\r': '\\r' };
    const code = c => c.codePointAt(0).toString(16);
    const plain = text => text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
      c => short[c] || (c < '\u0080' ? `\\x${code(c).padStart(2, '0')}` : `\\u{${code(c)}}`));
    for (const e of document.querySelectorAll('[data-text]')) expect(told.includes(JSON.stringify(e.textContent).slice(1, -1)) || /\ufffd|\\x[0-9a-f]{2}|\\u\{|\\[ntr]/.test(e.textContent), `not in the report: ${e.textContent}`);
    expect(document.images.length === 0 && document.scripts.length <= 7, 'a name became an element');
    expect(document.documentElement.scrollWidth <= innerWidth, `wider than the window: ${document.documentElement.scrollWidth} of ${innerWidth}`);

    if (given.segments > 0) {
      for (let i = 0; i < 500 && !document.body.dataset.drawn; i++) await tick();
      expect(document.body.dataset.drawn, 'not drawn: ' + document.getElementById('here').textContent);

      // Bits, counted the plain way.
      const packed = Uint8Array.from(atob(document.getElementById('segments').textContent), c => c.charCodeAt(0));
      const raw = new Uint8Array(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))).arrayBuffer());
      const n = raw.length / 73, view = new DataView(raw.buffer);
      const used = new Uint8Array(given.segments * 512);
      let valid = 0;
      const perLog = [0, 0, 0, 0, 0, 0, 0, 0];
      for (let i = 0; i < n; i++) {
        const s = view.getUint32(4 * i, true);
        for (let k = 0; k < 512; k++) if (raw[9 * n + i * 64 + Math.floor(k / 8)] & (128 >> k % 8)) { used[s * 512 + k] = 1; valid++; }
        perLog[raw[8 * n + i]]++;
      }
      if (given.shows === 'valid') {
        expect(valid === report.space.valid_blocks, `${valid} bits, ${report.space.valid_blocks} valid blocks`);
        expect(n === report.space.segments - report.space.free_segments, `${n} segments in use`);
        if (given.modes.includes('temperature')) report.space.logs.forEach((l, i) => expect(l.segments === perLog[i], `segments of ${l.log}: ${perLog[i]}`));
        const pieces = Array(9).fill(0), blocks = Array(9).fill(0);
        let run = 0, torn = 0;
        for (let b = 0; b <= given.blocks; b++) {
          if (b < given.blocks && !used[b]) { run++; continue; }
          if (run) { const level = Math.min(8, Math.ceil(Math.log2(run))); pieces[level]++; blocks[level] += run; }
          run = 0;
        }
        for (let i = 0; i < n; i++) {
          const s = view.getUint32(4 * i, true);
          for (let k = 0; k <= 512; k++) {
            if (k < 512 && !used[s * 512 + k]) { run++; continue; }
            if (run > 0 && run < 32) torn += 126 * 127 / run;
            run = 0;
          }
        }
        report.space.free_pieces.forEach((p, i) => { expect(p.pieces === pieces[i], `${p.level}: ${pieces[i]} pieces`); expect(p.blocks === blocks[i], `${p.level}: ${blocks[i]} blocks`); });
        expect(Math.abs(torn / n - report.space.mean_f) <= 1e-6 * report.space.mean_f, `f is ${torn / n}, not ${report.space.mean_f}`);
      }

      // Clicks.
      const at = id => document.getElementById(id);
      const hex = getComputedStyle(document.documentElement).getPropertyValue('--mark').trim();
      const mark = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
      const marked = id => { const c = at(id), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let k = 0; for (let i = 0; i < d.length; i += 4) if (mark.every((v, j) => d[i + j] === v)) k++; return k; };
      const ids = ['volume', 'sections', 'blocks'];
      ids.forEach(id => expect(at(id).clientHeight > 0 && marked(id) === 0, `${id} is empty, or marks something already`));
      const rows = [...document.querySelectorAll('tr.pick')];
      expect(rows.length === report.worst.length, `${rows.length} rows`);
      rows.slice(0, 5).forEach((row, i) => {
        row.click();
        const file = report.worst[i], said = at('chosen').textContent;
        expect(rows.every((r, j) => r.getAttribute('aria-selected') === String(i === j)), `row ${i} alone is selected`);
        expect(!at('chosen').hidden && said.includes(plain(file.path)), `row ${i}: ${said}`);
        expect(said.includes(`in ${file.extents} extents, ${file.min_extents} would do`), `row ${i}: ${said}`);
        expect(said.includes(text.joules(file.read_pj)) && said.includes(text.joules(file.ideal_read_pj)), `row ${i}: ${said}`);
        if (given.shows === 'valid' && file.segments) expect(said.includes(`in ${file.segments} of ${report.space.segments} segments`), `row ${i}: ${said}, not ${file.segments}`);
        ids.forEach(id => expect(marked(id) > 0, `row ${i} marks nothing on ${id}`));
      });
      at('clear').click();
      ids.forEach(id => expect(marked(id) === 0, `${id} is still marked`));
      if (report.worst.length) {
        const path = report.worst[0].path;
        at('word').value = path.slice(-12).toUpperCase();
        at('word').dispatchEvent(new Event('input'));
        const hit = [...at('hits').querySelectorAll('button')].find(b => b.textContent === path);
        expect(hit, `${path} is not found`);
        if (hit) hit.click();
        expect(at('chosen').textContent.includes(path) && marked('volume') > 0, 'a hit selects nothing');
        at('clear').click();
      }
      const buttons = [...document.querySelectorAll('button[data-mode]')];
      expect(buttons.length === given.modes.length, `${buttons.length} colours`);
      const looks = new Set();
      buttons.forEach(b => { b.click(); looks.add(at('volume').toDataURL()); expect(b.getAttribute('aria-pressed') === 'true', b.dataset.mode); });
      if (n > 8 && given.shows === 'valid') expect(looks.size === buttons.length, `${looks.size} pictures of ${buttons.length} colours`);
      const before = at('level3').textContent;
      at('volume').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
      expect(given.segments < 2 || at('level3').textContent !== before, 'a key moves nothing');
      // What is told of a segment is what its bits say.
      const s = Number(/\d+/.exec(at('level3').textContent)[0]);
      const sum = used.subarray(s * 512, s * 512 + 512).reduce((a, b) => a + b, 0);
      expect(at('here').textContent.includes(sum ? `${sum} of 512 blocks` : given.shows === 'valid' ? 'free' : 'nothing'), `${at('here').textContent}: ${sum}`);
    }
  } catch (e) { wrong.push('failed: ' + e + '\n' + e.stack); }
  say();
})();
