// Looks at a page of `--flame FILE.html` from outside: numbers against the report in it, widths against the tree, clicks and
// keys against what is drawn then. Put behind the page's own script by the test; what it finds is the text of #checked.
(async () => {
  const wrong = [];
  let counted = 0;
  const expect = (is, what) => { counted++; if (!is) wrong.push(what); };
  const ends = [...document.querySelectorAll('section')].map((_, n) => n ? `-${n}` : '');
  for (const end of ends) try {
    const $ = id => document.getElementById(id + end);
    const report = JSON.parse($('report').textContent);
    const pointer = at => at.split('/').slice(1).reduce((v, key) => v && v[key], report);
    const joules = v => {
      if (v === 0) return '0 J';
      for (const [by, unit] of [[1e12, 'J'], [1e9, 'mJ'], [1e6, 'uJ'], [1e3, 'nJ'], [1, 'pJ']]) if (v >= by) return (v / by).toFixed(2) + ' ' + unit;
    };
    const percent = (part, of) => (part * 100 / of).toFixed(1) + ' %';
    const text = {
      joules, count: String, difference: v => (v < 0 ? '-' : '+') + joules(Math.abs(v)), share: percent,
      time: v => v < 1e6 ? (v / 1e3).toFixed(1) + ' us' : v < 1e9 ? (v / 1e6).toFixed(2) + ' ms' : (v / 1e9).toFixed(3) + ' s',
    };
    const close = (a, b) => a === b || a.replace(/[\d.]+/, '') === b.replace(/[\d.]+/, '') && Math.abs(parseFloat(a) - parseFloat(b)) <= 0.1000001;
    const numbers = [...$('graph').querySelectorAll('[data-at]')];
    for (const e of numbers) {
      const should = text[e.dataset.as](...e.dataset.at.split(' ').map(pointer));
      expect(close(e.textContent, should), `${e.dataset.at}: ${e.textContent}, not ${should}`);
    }
    expect(numbers.length >= 15, `only ${numbers.length} numbers`);
    expect(report.components.reduce((s, c) => s + c.pj, 0) === report.all.pj, 'components do not add up');
    expect(report.tree.v === report.all.pj, 'the tree is not all');

    // The tree, by number of frame.
    const nodes = [];
    (function walk(node, up, row) {
      const me = { node, up, row, at: nodes.length };
      nodes.push(me);
      const sum = (node.c || []).reduce((s, c) => s + c.v, 0);
      expect(!node.c || sum === node.v, `${node.n}: ${node.v}, below it ${sum}`);
      me.below = (node.c || []).map(c => walk(c, me, row + 1));
      return me;
    })(report.tree, null, 0);

    const icicle = $('picture').querySelector('svg');
    expect(document.body.dataset.drawn, 'not drawn');
    const frame = me => $(`f${me.at}`);
    // A frame cuts off its text; the text's own box is not the frame's.
    const boxOf = me => frame(me).querySelector('rect').getBoundingClientRect();
    const width = me => boxOf(me).width;
    const wide = () => icicle.getBoundingClientRect().width;
    // What is drawn below `root`, which fills the width: each as wide as it costs, none missing that has a pixel, none over another.
    const looked = root => {
      let drawn = 0;
      for (const me of nodes) {
        let inside = me;
        while (inside && inside !== root) inside = inside.up;
        const above = (() => { for (let u = root.up; u; u = u.up) if (u === me) return true; return false; })();
        const el = frame(me), should = above ? 1 : inside ? me.node.v / root.node.v : 0;
        if (!el) { expect(should * wide() < 1, `${me.node.n} is not drawn, ${should * wide()} wide`); continue; }
        expect(should > 0, `${me.node.n} is drawn and is not in sight`);
        drawn++;
        const box = boxOf(me), top = icicle.getBoundingClientRect();
        expect(Math.abs(box.width - should * wide()) < 1.1, `${me.node.n}: ${box.width} wide, not ${should * wide()}`);
        expect(Math.abs(box.top - top.top - me.row * report.row) < 1, `${me.node.n}: in another row`);
        const label = el.getAttribute('aria-label');
        expect(label.includes(`: ${joules(me.node.v)}, ${percent(me.node.v, report.all.pj)} of all`), `${me.node.n}: ${label}`);
        const beyond = me.node.d, fill = getComputedStyle(el.querySelector('rect')).fill;
        if (report.control) {
          expect(label.endsWith(`${beyond < 0 ? '-' : '+'}${joules(Math.abs(beyond))} against ${report.control.name}`), `${me.node.n}: ${label}`);
          const [red, , blue] = fill.match(/\d+/g).map(Number);
          expect(Math.sign(red - blue) === Math.sign(beyond), `${me.node.n}: ${beyond} is ${fill}`);
        }
        if (el.querySelector('text')) expect(el.querySelector('text').textContent === me.node.n, `${me.node.n}: another text`);
      }
      expect(drawn === icicle.children.length, `${icicle.children.length} frames, ${drawn} of the tree`);
      for (let row = 0; row < 40; row++) {
        const boxes = nodes.filter(me => me.row === row && frame(me)).map(boxOf);
        for (let i = 1; i < boxes.length; i++) expect(boxes[i].left >= boxes[i - 1].right - 1.1, `row ${row}: one over another`);
      }
    };
    const root = nodes[0];
    looked(root);
    expect(document.documentElement.scrollWidth <= innerWidth, `wider than the window: ${document.documentElement.scrollWidth}`);

    // A click comes closer, another goes up again.
    const small = nodes.filter(me => frame(me) && me.below.length > 1 && me.row > 1).sort((a, b) => width(a) - width(b))[0];
    frame(small).dispatchEvent(new MouseEvent('click', { bubbles: true }));
    looked(small);
    expect($('here').textContent.startsWith(small.up.up ? '' : small.node.n) && $('here').textContent.includes(small.node.n), 'what was clicked is not told');
    frame(small.up).dispatchEvent(new MouseEvent('click', { bubbles: true }));
    looked(small.up);
    $('out').click();
    looked(root);

    // Keys.
    const key = name => icicle.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
    const chosen = () => icicle.getAttribute('aria-activedescendant');
    key('ArrowDown');
    expect(chosen() === `f${root.below[0].at}${end}`, `down chose ${chosen()}`);
    key('ArrowRight');
    if (root.below.length > 1 && frame(root.below[1])) expect(chosen() === `f${root.below[1].at}${end}`, `right chose ${chosen()}`);
    key('ArrowLeft');
    key('ArrowUp');
    expect(chosen() === `f0${end}`, `up chose ${chosen()}`);
    key('ArrowDown');
    key('Enter');
    looked(root.below[0]);
    key('Escape');
    looked(root);

    // Search: what frames with a word cost, none counted twice.
    const word = 'a', found = nodes.filter(me => me.node.n.toLowerCase().includes(word));
    const inOther = me => { for (let u = me.up; u; u = u.up) if (found.includes(u)) return true; return false; };
    const sum = found.filter(me => !inOther(me)).reduce((s, me) => s + me.node.v, 0);
    $('word').value = word;
    $('word').dispatchEvent(new Event('input'));
    const says = `${found.length} frames have "${word}": ${joules(sum)}, ${percent(sum, report.all.pj)} of all`;
    expect($('here').textContent.startsWith(says), `${$('here').textContent}, not ${says}`);
    expect(found.some(inOther), 'no hit below another: the sum is not tried');
    expect(icicle.querySelectorAll('.hit').length === found.filter(frame).length, 'other frames are marked');
    $('clear').click();
    expect(icicle.querySelectorAll('.hit').length === 0, 'marks stay');

    // A pointer over a frame shows its joules and share.
    frame(small.up || root).dispatchEvent(new PointerEvent('pointerenter', { pointerType: 'mouse', clientX: innerWidth - 5, clientY: 100 }));
    const tip = $('tip').getBoundingClientRect();
    expect(!$('tip').hidden && $('tip').textContent.includes(' of all'), 'no tooltip');
    expect(tip.left >= 0 && tip.right <= innerWidth, 'the tooltip is cut off');
    expect(document.images.length === 0 && document.scripts.length <= 3 + ends.length, 'a name became an element');
  } catch (e) {
    wrong.push(String(e.stack || e));
  }
  const pre = document.createElement('pre');
  pre.id = 'checked';
  pre.textContent = wrong.length ? 'WRONG\n' + wrong.slice(0, 40).join('\n') : `right: ${counted} of ${counted}`;
  document.body.append(pre);
})();
