// Values under the pointer or the slider, the map over time, the choice of a step, and the copying of the command.
// Without it everything is there, one step under the other.
(() => {
  'use strict';
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const sources = new Map();

  function values(id) {
    if (!sources.has(id)) sources.set(id, JSON.parse(document.getElementById(id).textContent));
    return sources.get(id);
  }

  // As the numbers beside the plots: three digits, and no zeros that say nothing.
  function significant(value) {
    const size = Math.abs(value);
    const decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
    return String(Number(value.toFixed(decimals)));
  }

  function scaled(value, steps, rest) {
    const step = steps.find(([size]) => Math.abs(value) >= size);
    return step ? significant(value / step[2]) + step[1] : significant(value) + rest;
  }

  const binary = [40, 30, 20, 10].map((power, i) =>
    [2 ** power / 1.024, ' ' + ['TiB', 'GiB', 'MiB', 'KiB'][i], 2 ** power]);
  const decimal = [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']].map(([size, name]) =>
    [size * 0.9995, name, size]);
  const times = [[1e9, ' s'], [1e6, ' ms'], [1e3, ' µs']].map(([size, name]) =>
    [size * 0.9995, name, size]);

  function show(unit, value) {
    switch (unit) {
      case 'bytes': return scaled(value, binary, ' B');
      case 'bytes/s': return scaled(value, binary, ' B') + '/s';
      case 'count': return scaled(value, decimal, '');
      case 'count/s': return scaled(value, decimal, '') + '/s';
      case 'percent': return (value > 0 && value < 0.01 ? value.toPrecision(2) : significant(value)) + ' %';
      case 'ns': return scaled(value, times, ' ns');
      case 's': return significant(value) + ' s';
      // A metric's own unit, behind the word `plain`.
      default: return (Math.abs(value) >= 1e6 ? scaled(value, decimal, '') : significant(value)) + unit.slice(5);
    }
  }

  const readers = new Map(all('.reader input').map((input) => [input.dataset.group, input]));
  const plots = new Map();
  for (const figure of all('figure[data-group]')) {
    const group = figure.dataset.group;
    if (!plots.has(group)) plots.set(group, []);
    plots.get(group).push(figure);
  }

  // Between a share of the axis, 0 to 1, and a value.
  function scale(reader) {
    const low = Number(reader.dataset.low), high = Number(reader.dataset.high);
    return 'log' in reader.dataset
      ? { value: (share) => low * (high / low) ** share, share: (value) => Math.log(value / low) / Math.log(high / low) }
      : { value: (share) => low + share * (high - low), share: (value) => (value - low) / (high - low) };
  }

  // The sample that a place belongs to: the nearest, or the end of the step it lies in.
  function sample(places, share, axis, isStepped) {
    let low = 0, high = places.length - 1;
    const x = axis.value(share);
    if (x > places[high] && axis.share(places[high]) < share - 0.005) return -1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[middle] < x) low = middle + 1; else high = middle;
    }
    if (isStepped) return Math.max(low, Math.min(1, places.length - 1));
    const before = low > 0 && share - axis.share(places[low - 1]) < axis.share(places[low]) - share;
    return before ? low - 1 : low;
  }

  // What pageblocks held: one cell each, from moment to moment.
  const CELLS_WIDE = 32;
  const films = new Map();
  const colours = new Map(all('.legend li').map((item) => {
    const hex = getComputedStyle(item).getPropertyValue('--colour').trim();
    return [item.dataset.letter, [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16))];
  }));

  function stays(row, moments) {
    const letters = new Array(moments);
    let at = 0;
    for (const [, letter, count] of row.matchAll(/(\D)(\d+)/g)) {
      letters.fill(letter, at, at += Number(count));
    }
    return letters;
  }

  function open(figure) {
    const film = JSON.parse(figure.querySelector('script').textContent);
    const room = figure.querySelector('.zones');
    film.zones = film.zones.map((zone) => {
      const canvas = document.createElement('canvas');
      canvas.width = CELLS_WIDE;
      canvas.height = Math.ceil(zone.rows.length / CELLS_WIDE);
      const name = document.createElement('span');
      name.textContent = zone.name;
      room.append(name, canvas);
      return { canvas, rows: zone.rows.map((row) => stays(row, film.seconds.length)) };
    });
    const held = new Set(film.zones.flatMap((zone) => zone.rows.flat()));
    for (const item of all('.legend li', figure.closest('.step'))) {
      if (held.has(item.dataset.letter)) item.dataset.there = '';
    }
    return { figure, film, when: figure.querySelector('.when'), shown: -1 };
  }

  function showFilm(one, time) {
    const { seconds, zones } = one.film;
    let at = seconds.findIndex((second) => second > time) - 1;
    if (at < -1) at = seconds.length - 1;
    if (at < 0) at = 0;
    one.when.textContent = show('s', seconds[at]) + (time > seconds[seconds.length - 1] ? ', its end' : '');
    if (at === one.shown) return;
    one.shown = at;
    for (const { canvas, rows } of zones) {
      const context = canvas.getContext('2d');
      const image = context.createImageData(canvas.width, canvas.height);
      rows.forEach((row, cell) => {
        image.data.set([...(colours.get(row[at]) || [255, 255, 255]), 255], 4 * cell);
      });
      context.putImageData(image, 0, 0);
    }
  }

  for (const figure of all('figure[data-film]')) {
    const group = figure.dataset.film;
    if (!films.has(group)) films.set(group, []);
    films.get(group).push(open(figure));
    showFilm(films.get(group).at(-1), 0);
  }

  function point(group, share) {
    const reader = readers.get(group);
    const axis = scale(reader);
    let read = axis.value(share);
    for (const figure of plots.get(group) || []) {
      const data = values(figure.dataset.source);
      const at = sample(data.x, share, axis, 'stepped' in figure.dataset);
      const lines = data.plots[Number(figure.dataset.index)];
      const cursor = figure.querySelector('.cursor');
      cursor.hidden = at < 0;
      if (at >= 0) {
        // A step's value holds for all of it, so the cursor need not jump to its end.
        cursor.style.left = 100 * ('stepped' in figure.dataset ? share : axis.share(data.x[at])) + '%';
        if (!('stepped' in figure.dataset)) read = data.x[at];
      }
      all('.keys li', figure).forEach((key, i) => {
        const value = key.querySelector('.value');
        if (!value) return;
        const line = lines[i];
        const number = at < 0 || line === null ? null : Array.isArray(line) ? line[at] : line;
        value.textContent = number === null ? '–' : show(figure.dataset.unit, number);
      });
    }
    for (const one of films.get(group) || []) showFilm(one, axis.value(share));
    const text = show(reader.dataset.unit, read);
    reader.value = 1000 * share;
    reader.setAttribute('aria-valuetext', text);
    reader.closest('.reader').querySelector('output').textContent = text;
  }

  for (const [group, reader] of readers) {
    reader.addEventListener('input', () => point(group, reader.value / 1000));
    for (const figure of plots.get(group) || []) {
      const area = figure.querySelector('.area');
      const follow = (event) => {
        const box = area.getBoundingClientRect();
        point(group, Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
      };
      area.addEventListener('pointermove', follow);
      area.addEventListener('pointerdown', follow);
    }
  }

  // From where the slider stands to its end, in so many milliseconds for all of it.
  const PLAYED_IN = 12000;
  for (const button of all('button.play')) {
    const group = button.dataset.group, reader = readers.get(group);
    let timer = 0;
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      button.setAttribute('aria-pressed', 'false');
      button.textContent = 'Play';
    };
    button.addEventListener('click', () => {
      if (timer) {
        stop();
        return;
      }
      const first = reader.value >= 1000 ? 0 : reader.value / 1000;
      const began = performance.now();
      button.setAttribute('aria-pressed', 'true');
      button.textContent = 'Pause';
      timer = setInterval(() => {
        const share = Math.min(1, first + (performance.now() - began) / PLAYED_IN);
        point(group, share);
        if (share === 1) stop();
      }, 40);
    });
  }

  for (const choice of all('#step-choice, .step-choice')) {
    const steps = all('.step', choice.closest('section'));
    const choose = () => steps.forEach((step) => { step.hidden = step.id !== choice.value; });
    choice.addEventListener('change', choose);
    choose();
  }

  for (const button of all('button[data-copy]')) {
    button.addEventListener('click', () => {
      const code = document.getElementById(button.dataset.copy);
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      // A file opened from disk may not be allowed to write the clipboard: then it is selected at least.
      if (navigator.clipboard) {
        navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = 'Copied'; }, () => {});
      }
    });
  }

  // Paper cannot be unfolded.
  addEventListener('beforeprint', () => all('details').forEach((details) => { details.open = true; }));
})();
