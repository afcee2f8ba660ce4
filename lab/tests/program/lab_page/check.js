// Looks at a page of `joulefs lab report` from outside: its rows against what `joulefs lab papers --json` printed, its buttons
// against what they show, its width against the window. Put into the page by the test, behind GIVEN, what was printed; what it
// finds is the text of #checked.
(() => {
  const wrong = [];
  let counted = 0;
  const expect = (is, what) => { counted++; if (!is) wrong.push(what); };
  const flat = text => text.replace(/\s+/g, ' ').trim();
  try {
    const given = GIVEN;
    const shown = e => e.getClientRects().length > 0;
    const rows = () => [...document.querySelectorAll('.numbers tbody tr')];
    const all = given.papers.flatMap(p => p.numbers);
    expect(rows().length === all.length, `${rows().length} rows for ${all.length} numbers`);
    rows().forEach((row, n) => {
      const j = all[n], of = name => flat(row.querySelector('td.' + name).textContent), first = j.answers[0];
      expect(of('published') === flat(j.published), `row ${n}: ${of('published')}, not ${j.published}`);
      expect(of('what').startsWith(flat(j.quantity)), `row ${n}: ${of('what')}, not ${j.quantity}`);
      const ours = first ? flat(first.ours + ' ' + first.difference) : '';
      expect(of('ours') === ours, `row ${n}: ${of('ours')}, not ${ours}`);
      expect(row.className === j.class, `row ${n}: ${row.className}, not ${j.class}`);
      expect(/^\S+ \S/.test(of('class')), `row ${n}: no sign and word: ${of('class')}`);
      expect(of('why').includes(flat(j.why.replaceAll('`', ''))), `row ${n}: ${of('why')}, not ${j.why}`);
      if (first && first.is_experiment) {
        const link = row.querySelector('td.why a');
        expect(link && document.getElementById(link.hash.slice(1)), `row ${n}: leads nowhere`);
      }
    });
    // The buttons.
    for (const [name, count] of Object.entries(given.rows)) {
      if (count === 0) continue;
      const label = document.querySelector(`label[for=v-${name}]`);
      expect(label && label.dataset.count === String(count), `${name}: ${label && label.dataset.count}, not ${count}`);
      label.click();
      const left = rows().filter(shown);
      expect(left.length === count && left.every(r => r.className === name), `${name}: shows ${left.length}`);
    }
    document.querySelector('label[for=v-all]').click();
    given.papers.forEach((p, n) => {
      document.querySelector(`label[for=p-${n}]`).click();
      expect(rows().filter(shown).length === p.numbers.length, `${p.paper.short}: not its numbers`);
    });
    document.querySelector('label[for=p-all]').click();
    expect(rows().every(shown), 'rows stay hidden');
    // Nothing hangs out, with everything unfolded.
    document.querySelectorAll('details').forEach(d => { d.open = true; });
    const width = document.documentElement.clientWidth;
    expect(document.documentElement.scrollWidth <= width, `the page scrolls: it is ${document.documentElement.scrollWidth} wide in ${width}`);
  } catch (e) {
    wrong.push(String(e) + (e.stack || ''));
  }
  const pre = document.createElement('pre');
  pre.id = 'checked';
  pre.textContent = wrong.length ? 'WRONG\n' + wrong.slice(0, 40).join('\n') : `right: ${counted} of ${counted}`;
  document.body.append(pre);
})();
