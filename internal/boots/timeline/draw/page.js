(() => {
'use strict';
const boot = JSON.parse(document.getElementById('boot').textContent);
const $ = id => document.getElementById(id);
const root = document.documentElement;
root.classList.add('js');

// --- words -------------------------------------------------------------------

const pad = (n, w) => String(n).padStart(w, '0');
// The same as Duration in duration.go.
function dur(us) {
	if (us < 0) return '-' + dur(-us);
	if (us === 0) return '0s';
	if (us < 1e3) return Math.floor(us) + 'µs';
	let ms = Math.round(us / 1e3);
	if (ms < 1e3) return ms + 'ms';
	if (ms < 6e4) return (ms / 1e3).toFixed(3) + 's';
	if (ms < 36e5) return Math.floor(ms / 6e4) + 'm' + (ms % 6e4 / 1e3).toFixed(3).padStart(6, '0') + 's';
	const s = Math.round(ms / 1e3), h = Math.floor(s / 3600);
	if (h >= 100) return Math.floor(h / 24) + 'd' + pad(h % 24, 2) + 'h';
	return h + 'h' + pad(Math.floor(s % 3600 / 60), 2) + 'm' + pad(s % 60, 2) + 's';
}
function tick(us) {
	const sign = us < 0 ? '-' : '';
	const a = Math.abs(us);
	const trim = n => String(+n.toFixed(6));
	if (a === 0) return '0s';
	if (a < 1e3) return sign + trim(a) + 'µs';
	if (a < 1e6) return sign + trim(a / 1e3) + 'ms';
	if (a < 6e7) return sign + trim(a / 1e6) + 's';
	if (a < 36e8) return sign + Math.floor(a / 6e7) + 'm' + (a % 6e7 ? trim(a % 6e7 / 1e6) + 's' : '');
	return sign + Math.floor(a / 36e8) + 'h' + (a % 36e8 ? trim(a % 36e8 / 6e7) + 'm' : '');
}
function tickStep(length, n) {
	for (let unit = 1; unit < 1e7; unit *= 10)
		for (const m of [1, 2, 5]) if (length / (m * unit) <= n) return m * unit;
	for (const s of [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400])
		if (length / (s * 1e6) <= n) return s * 1e6;
	return Math.ceil(length / n / 864e8) * 864e8;
}
function el(tag, cls, text) {
	const e = document.createElement(tag);
	if (cls) e.className = cls;
	if (text !== undefined) e.textContent = text;
	return e;
}
const key = c => ['base', 'node', 'platform', 'wait'].includes(c) ? 'k-' + c : '';

// --- what is there -------------------------------------------------------------

const spans = new Map(); // by id: {span, row}
const rows = [];         // all, in the order in which they are shown
const chart = $('chart');
chart.setAttribute('role', 'group');
chart.setAttribute('aria-label', 'Timeline, zoomable');

const head = el('div', 'head');
const over = el('div', 'lane over');
const win = el('div', 'window');
const axis = el('div', 'lane axis');
const pathlane = el('div', 'lane pathlane');
pathlane.setAttribute('role', 'group');
pathlane.setAttribute('aria-label', 'Critical path; arrow keys go from step to step');
for (const [label, lane] of [['Whole boot', over], ['After ' + (boot.originIs || 'the origin'), axis], ['Critical path', pathlane]]) {
	const line = el('div', 'line');
	line.append(el('div', 'label', label), lane);
	head.append(line);
}
const body = el('div', 'body');
const grid = el('div', 'gridlines');
grid.setAttribute('aria-hidden', 'true');
body.append(grid);
chart.append(head, body);
over.setAttribute('aria-hidden', 'true');
axis.setAttribute('aria-hidden', 'true');

const steps = boot.path.map((s, i) => {
	const b = el('button', key(s.class));
	b.type = 'button';
	b.tabIndex = i === 0 ? 0 : -1;
	b.setAttribute('aria-label', `${s.name}, ${dur(s.end - s.start)}, ${s.class}, at ${dur(s.start - boot.origin)}` + (s.wait ? ', ' + s.why.join(', ') : ''));
	const mini = el('i', key(s.class));
	over.append(mini);
	pathlane.append(b);
	return {step: s, button: b, mini};
});
over.append(win);

const groups = boot.groups.map((g, gi) => {
	const box = el('div', 'group');
	const line = el('div', 'line ghead');
	const toggle = el('button', '', '');
	toggle.type = 'button';
	toggle.append(g.source || 'no source', ' ', el('small', '', String(g.rows.length)));
	toggle.setAttribute('aria-expanded', 'true');
	const lane = el('div', 'lane');
	lane.style.height = '28px';
	const list = el('div', 'list');
	list.setAttribute('role', 'list');
	list.id = 'group-' + gi;
	toggle.setAttribute('aria-controls', list.id);
	const name = el('div', 'name');
	name.append(toggle);
	line.append(name, lane);
	box.append(line, list);
	const out = {toggle, list, lane, minis: [], rows: [], box};
	for (const s of g.rows) {
		const r = el('div', 'line row' + (s.class ? ' on' : ''));
		r.setAttribute('role', 'listitem');
		r.tabIndex = -1;
		const label = el('div', 'name', s.name);
		label.style.paddingLeft = (16 + 12 * s.depth) + 'px';
		if (s.result) label.append(' ', el('span', 'bad-mark', '✗'));
		label.title = s.name;
		const lane = el('div', 'lane');
		const bar = el('div', 'bar ' + key(s.class) + (s.end === s.start ? ' moment' : '') + (s.result ? ' bad' : '') + (s.open ? ' open' : ''));
		const t = el('span', 't', s.end === s.start ? 'at ' + dur(s.start - boot.origin) : dur(s.end - s.start));
		lane.append(bar, t);
		let unc = null;
		if (s.unc) lane.prepend(unc = el('i', 'unc'));
		r.append(label, lane);
		r.setAttribute('aria-label', `${s.name}, ${dur(s.end - s.start)}, from ${dur(s.start - boot.origin)}` + (s.class ? `, on the critical path: ${s.class}` : '') + (s.open ? ', not ended' : '') + (s.result ? ', ' + s.result : ''));
		list.append(r);
		const row = {span: s, el: r, bar, t, unc, group: out, words: (s.name + ' ' + s.id + ' ' + s.detail + ' ' + s.result).toLowerCase(), seen: true, told: t.textContent};
		r.row = row;
		rows.push(row);
		out.rows.push(row);
		if (s.id && !spans.has(s.id)) spans.set(s.id, row);
	}
	body.append(box);
	toggle.addEventListener('click', () => fold(out, toggle.getAttribute('aria-expanded') === 'true'));
	return out;
});
if (rows.length) rows[0].el.tabIndex = 0;

function fold(g, folded) {
	g.toggle.setAttribute('aria-expanded', String(!folded));
	g.list.hidden = folded;
	draw();
}

// Only rows that can be seen are placed.
const near = new IntersectionObserver(entries => {
	for (const e of entries) e.target.row.seen = e.isIntersecting;
	draw();
}, {rootMargin: '300px'});
for (const r of rows) near.observe(r.el);

// --- zoom and move ---------------------------------------------------------------

// What can be seen at most. Hours in which a machine lay in a pool, or what was
// started hours after the boot, would leave no room for the rest: they are seen
// on request.
const least = 50;
const bounds = all => {
	const lo = all ? boot.first : boot.from;
	const hi = Math.max(all ? boot.last : boot.to, lo + 1000);
	const more = (hi - lo) * 0.015;
	return [lo - more, hi + more];
};
let [lo, hi] = bounds(false);
let from = lo, to = hi;
let width = 1;

let pending = false;
function draw() {
	if (pending) return;
	pending = true;
	requestAnimationFrame(() => { pending = false; render(); });
}
function look(a, b) {
	let length = Math.min(Math.max(b - a, least), hi - lo);
	const mid = (a + b) / 2;
	from = mid - length / 2;
	if (from < lo) from = lo;
	if (from + length > hi) from = hi - length;
	to = from + length;
	draw();
}
function zoom(factor, at = (from + to) / 2) {
	const length = Math.min(Math.max((to - from) * factor, least), hi - lo);
	const share = (at - from) / (to - from);
	look(at - share * length, at + (1 - share) * length);
}
const move = share => look(from + share * (to - from), to + share * (to - from));
const x = t => (t - from) / (to - from) * width;
const px = n => n.toFixed(1) + 'px';

function render() {
	width = axis.clientWidth || 1;
	const step = tickStep(to - from, Math.max(2, Math.floor(width / 95)));
	const marks = [], lines = [];
	for (let i = Math.ceil((from - boot.origin) / step); i * step + boot.origin <= to; i++) {
		const at = x(i * step + boot.origin);
		const m = el('span', at < 18 ? 'first' : '', tick(i * step));
		m.style.left = px(Math.max(at, 0));
		if (at < width - 14) marks.push(m);
		const l = el('i');
		l.style.left = px(at);
		lines.push(l);
	}
	axis.replaceChildren(...marks);
	const shade = (tag, a, b) => {
		const left = Math.max(x(a), -5), right = Math.min(x(b), width + 5);
		if (right <= left) return;
		const e = el(tag);
		e.style.left = px(left);
		e.style.width = px(right - left);
		lines.push(e);
	};
	shade('u', Math.min(lo, from), boot.origin);
	shade('u', boot.end, Math.max(hi, to));
	for (const s of boot.path) if (s.class === 'wait' && s.end > s.start) shade('b', s.start, s.end);
	for (const t of [boot.origin, boot.end]) {
		const e = el('em');
		e.style.left = px(x(t));
		lines.push(e);
	}
	grid.replaceChildren(...lines);

	const whole = hi - lo;
	for (const {step: s, button, mini} of steps) {
		const a = Math.max(x(s.start), -50), b = Math.min(x(s.end), width + 50);
		button.hidden = b < 0 || a > width;
		button.style.left = px(a);
		button.style.width = px(Math.max(b - a, 1));
		const thin = b - Math.max(a, 0) < 46;
		button.classList.toggle('thin', thin);
		button.style.paddingLeft = thin ? '' : px(Math.max(5, 5 - a));
		const text = thin ? '' : s.name;
		if (button.textContent !== text) button.textContent = text;
		mini.style.left = ((s.start - lo) / whole * 100).toFixed(3) + '%';
		mini.style.width = Math.max((s.end - s.start) / whole * 100, .08).toFixed(3) + '%';
	}
	win.style.left = ((from - lo) / whole * 100).toFixed(3) + '%';
	win.style.width = ((to - from) / whole * 100).toFixed(3) + '%';

	for (const r of rows) if (r.seen) place(r);
	for (const g of groups) {
		if (!g.list.hidden) { if (g.lane.firstChild) g.lane.replaceChildren(); continue; }
		g.lane.replaceChildren(...g.rows.filter(r => r.span.end >= from && r.span.start <= to).map(r => {
			const i = el('i', key(r.span.class));
			i.style.left = px(x(r.span.start));
			i.style.width = px(Math.max(x(r.span.end) - x(r.span.start), 1));
			return i;
		}));
	}
	$('range').textContent = dur(Math.round(from - boot.origin)) + ' to ' + dur(Math.round(to - boot.origin));
	$('in').disabled = to - from <= least;
	$('out').disabled = $('fit').disabled = to - from >= hi - lo;
}

function place(r) {
	const s = r.span;
	const a = Math.min(Math.max(x(s.start), -20), width + 20), b = Math.min(Math.max(x(s.end), -20), width + 20);
	r.bar.style.left = px(a);
	r.bar.style.width = px(Math.max(b - a, 2));
	if (r.unc) {
		const ua = Math.max(x(s.start - s.unc), -20), ub = Math.min(x(s.end + s.unc), width + 20);
		r.unc.style.left = px(ua);
		r.unc.style.width = px(Math.max(ub - ua, 0));
		r.unc.hidden = (s.unc / (to - from)) * width < 3;
	}
	// What is out of sight is told where it would be seen.
	const words = s.end < from ? '◂ ' + r.told : s.start > to ? r.told + ' ▸' : r.told;
	if (r.t.textContent !== words) r.t.textContent = words;
	const right = s.end < from ? 4 : Math.min(Math.max(x(s.end + (r.unc && !r.unc.hidden ? s.unc : 0)), b), width) + (s.end === s.start ? 11 : 7);
	if (s.start <= to && right + 80 < width) {
		r.t.style.left = px(right);
		r.t.style.right = '';
	} else {
		r.t.style.left = '';
		r.t.style.right = px(s.start > to ? 4 : Math.max(width - a + (s.end === s.start ? 11 : 7), 4));
	}
}

new ResizeObserver(draw).observe(axis);

// --- pointers ---------------------------------------------------------------------

const laneX = e => e.clientX - axis.getBoundingClientRect().left;
const timeAt = px => from + px / width * (to - from);

chart.addEventListener('wheel', e => {
	const strip = head.contains(e.target);
	if (e.ctrlKey || e.metaKey || (strip && Math.abs(e.deltaY) > Math.abs(e.deltaX))) {
		e.preventDefault();
		const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
		zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY * unit)) * 0.006), timeAt(Math.max(0, Math.min(width, laneX(e)))));
	} else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
		e.preventDefault();
		move((e.deltaX || e.deltaY) / width);
	}
}, {passive: false});

const fingers = new Map();
let grip = null; // {x, from, to, moved} of a drag; {gap, …} of a pinch
chart.addEventListener('pointerdown', e => {
	if (e.button !== 0 || !e.target.closest('.lane') || over.contains(e.target)) return;
	fingers.set(e.pointerId, e.clientX);
	grip = {from, to, moved: grip ? true : false, start: new Map(fingers)};
});
window.addEventListener('pointermove', e => {
	if (!fingers.has(e.pointerId) || !grip) return;
	fingers.set(e.pointerId, e.clientX);
	const left = axis.getBoundingClientRect().left;
	const ids = [...fingers.keys()];
	const scale = (grip.to - grip.from) / width;
	if (ids.length >= 2) {
		const [a0, b0] = ids.map(i => grip.start.get(i) - left).sort((p, q) => p - q);
		const [a1, b1] = ids.map(i => fingers.get(i) - left).sort((p, q) => p - q);
		const length = Math.min(Math.max(scale * (b0 - a0) / Math.max(b1 - a1, 8) * width, least), hi - lo);
		const at = grip.from + (a0 + b0) / 2 * scale;
		const start = at - (a1 + b1) / 2 / width * length;
		grip.moved = true;
		look(start, start + length);
		return;
	}
	const d = e.clientX - grip.start.get(e.pointerId);
	if (!grip.moved && Math.abs(d) < 4) return;
	if (!grip.moved) {
		grip.moved = true;
		chart.classList.add('dragging');
		hideTip();
	}
	look(grip.from - d * scale, grip.to - d * scale);
});
function lift(e) {
	if (!fingers.delete(e.pointerId)) return;
	if (fingers.size) {
		grip = {from, to, moved: true, start: new Map(fingers)};
		return;
	}
	chart.classList.remove('dragging');
	const moved = grip && grip.moved;
	grip = null;
	if (!moved) return;
	const still = e => e.stopPropagation(); // the end of a drag is no click
	window.addEventListener('click', still, {capture: true});
	setTimeout(() => window.removeEventListener('click', still, {capture: true}), 0);
}
window.addEventListener('pointerup', lift);
window.addEventListener('pointercancel', lift);

// The strip of the whole boot: its window is dragged; a click elsewhere moves it.
let brush = null;
over.addEventListener('pointerdown', e => {
	const box = over.getBoundingClientRect();
	const at = lo + (e.clientX - box.left) / box.width * (hi - lo);
	if (at < from || at > to) look(at - (to - from) / 2, at + (to - from) / 2);
	brush = {x: e.clientX, from, to, scale: (hi - lo) / box.width};
	over.setPointerCapture(e.pointerId);
});
over.addEventListener('pointermove', e => {
	if (brush) look(brush.from + (e.clientX - brush.x) * brush.scale, brush.to + (e.clientX - brush.x) * brush.scale);
});
for (const up of ['pointerup', 'pointercancel']) over.addEventListener(up, () => { brush = null; });

// --- details --------------------------------------------------------------------------

const tip = el('div', 'tip');
tip.hidden = true;
tip.setAttribute('aria-hidden', 'true');
const panel = el('section', 'panel');
panel.hidden = true;
panel.setAttribute('role', 'region');
panel.setAttribute('aria-label', 'Details');
panel.setAttribute('aria-live', 'polite');
document.body.append(tip, panel);

function hideTip() { tip.hidden = true; }
function showTip(lines, ex, ey) {
	tip.replaceChildren(...lines.map((l, i) => el(i ? 'div' : 'b', '', l)));
	tip.hidden = false;
	const w = tip.offsetWidth, h = tip.offsetHeight;
	tip.style.left = px(Math.max(4, Math.min(ex + 14, innerWidth - w - 8)));
	tip.style.top = px(ey + 18 + h > innerHeight ? Math.max(4, ey - h - 12) : ey + 18);
}
const stepLines = s => [s.name, `${dur(s.end - s.start)} (${s.class}), at ${dur(s.start - boot.origin)}`, ...s.why];
const spanLines = s => [s.name, `${dur(s.end - s.start)}${s.open ? ', not ended' : ''}, from ${dur(s.start - boot.origin)} to ${dur(s.end - boot.origin)}`,
	...(s.class ? ['on the critical path: ' + s.class] : []), ...(s.result ? ['result: ' + s.result] : []), ...(s.detail ? [s.detail] : [])];
const stepOf = target => { const b = target.closest && target.closest('.pathlane button'); return b && steps.find(s => s.button === b); };
const rowOf = target => { const r = target.closest && target.closest('.row'); return r && r.row; };

chart.addEventListener('pointermove', e => {
	if (fingers.size || e.pointerType === 'touch') return;
	const s = stepOf(e.target), r = rowOf(e.target);
	if (s) showTip(stepLines(s.step), e.clientX, e.clientY);
	else if (r) showTip(spanLines(r.span), e.clientX, e.clientY);
	else hideTip();
});
chart.addEventListener('pointerleave', hideTip);
window.addEventListener('scroll', hideTip, {passive: true});

let chosen = null;
function choose(what) {
	for (const r of rows) r.el.classList.remove('sel', 'dep');
	for (const s of steps) s.button.classList.remove('sel');
	chosen = what;
	if (!what) {
		panel.hidden = true;
		return;
	}
	hideTip();
	const s = what.span || what.step;
	const list = el('dl');
	const tell = (name, text) => { if (text) list.append(el('dt', '', name), el('dd', '', text)); };
	tell('took', dur(s.end - s.start) + (s.open ? ', not ended' : ''));
	tell('from', dur(s.start - boot.origin) + ' to ' + dur(s.end - boot.origin) + ' after ' + (boot.originIs || 'the origin'));
	if (boot.wall) tell('at', new Date(boot.wall + s.start / 1e3).toISOString().replace('T', ' '));
	if (s.unc) tell('may be off', '± ' + dur(s.unc));
	tell('class', s.class ? s.class + (boot.means[s.class] ? ': ' + boot.means[s.class] : '') : 'not on the critical path');
	tell('stage', s.stage);
	tell('kind', s.kind);
	tell('id', s.id);
	tell('result', s.result);
	tell('detail', s.detail);
	if (s.why && s.why.length) tell('wait', s.why.join('; '));
	const links = el('ul', 'links');
	const link = (text, row) => {
		const li = el('li'), b = el('button', '', row.span.name);
		b.type = 'button';
		b.addEventListener('click', () => reveal(row));
		li.append(text, b);
		links.append(li);
	};
	if (what.span) {
		what.el.classList.add('sel');
		const after = s.after.map(id => spans.get(id)).filter(Boolean).sort((a, b) => b.span.end - a.span.end);
		for (const r of after) r.el.classList.add('dep');
		for (const r of after.slice(0, 12)) link(`after (ended ${dur(Math.abs(s.start - r.span.end))} ${s.start >= r.span.end ? 'before' : 'after its start'}) `, r);
		if (spans.has(s.parent)) link('part of ', spans.get(s.parent));
	} else {
		what.button.classList.add('sel');
		for (const [text, id] of [['span: ', s.span], ['before: ', s.before], ['after: ', s.after]]) if (spans.has(id)) link(text, spans.get(id));
	}
	const fit = el('button', '', 'Zoom to it');
	fit.type = 'button';
	fit.addEventListener('click', () => zoomTo(s));
	const close = el('button', 'x', '×');
	close.type = 'button';
	close.setAttribute('aria-label', 'Close');
	close.addEventListener('click', () => choose(null));
	panel.replaceChildren(el('h3', '', s.name), close, list, links, el('p', 'hint'), fit);
	panel.hidden = false;
}
function zoomTo(s) {
	const more = Math.max((s.end - s.start) * 0.6, 2000);
	look(s.start - more, s.end + more);
}
function reveal(row) {
	fold(row.group, false);
	if (row.el.hidden) showOnly(false);
	focusRow(row);
	if (row.span.end < from || row.span.start > to) zoomTo(row.span);
	choose(row);
}
function focusRow(row) {
	for (const r of rows) r.el.tabIndex = r === row ? 0 : -1;
	row.el.focus({preventScroll: true});
	const box = row.el.getBoundingClientRect();
	if (box.top < head.offsetHeight + 8 || box.bottom > innerHeight - 8) row.el.scrollIntoView({block: 'center'});
}
chart.addEventListener('click', e => {
	const s = stepOf(e.target), r = rowOf(e.target);
	if (s) choose(s);
	else if (r) { focusRow(r); choose(r); }
});

// --- search and filters -------------------------------------------------------------------

let onlyPath = false, hits = [], hit = -1;
function showOnly(path) {
	onlyPath = path;
	$('show-all').setAttribute('aria-pressed', String(!path));
	$('show-path').setAttribute('aria-pressed', String(path));
	for (const r of rows) r.el.hidden = path && !r.span.class;
	for (const g of groups) g.box.hidden = path && !g.rows.some(r => r.span.class);
	draw();
}
$('show-all').addEventListener('click', () => showOnly(false));
$('show-path').addEventListener('click', () => showOnly(true));
$('fold').addEventListener('click', () => {
	const all = $('fold').getAttribute('aria-pressed') !== 'true';
	$('fold').setAttribute('aria-pressed', String(all));
	for (const g of groups) fold(g, all);
});
const find = $('find');
function search() {
	const words = find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
	hits = words.length ? rows.filter(r => words.every(w => r.words.includes(w))) : [];
	hit = -1;
	for (const r of rows) r.el.classList.toggle('no', words.length > 0 && !hits.includes(r));
	$('found').textContent = words.length ? hits.length + (hits.length === 1 ? ' span' : ' spans') : '';
}
find.addEventListener('input', search);
find.addEventListener('keydown', e => {
	if (e.key === 'Enter' && hits.length) {
		hit = (hit + (e.shiftKey ? hits.length - 1 : 1)) % hits.length;
		const h = hits[hit];
		reveal(h);
		find.focus({preventScroll: true});
		$('found').textContent = `${hit + 1} of ${hits.length}`;
		e.preventDefault();
	} else if (e.key === 'Escape') {
		find.value = '';
		search();
		find.blur();
	}
	e.stopPropagation();
});

// --- buttons and keys -------------------------------------------------------------------------

$('in').addEventListener('click', () => zoom(0.5));
$('out').addEventListener('click', () => zoom(2));
$('fit').addEventListener('click', () => look(lo, hi));
if (boot.first < boot.from || boot.last > boot.to) {
	const b = $('idle');
	b.hidden = false;
	b.textContent = [boot.first < boot.from ? 'before' : '', boot.last > boot.to ? 'after' : ''].filter(Boolean).join(' and ').replace(/^./, c => c.toUpperCase());
	b.title = 'Also from ' + dur(boot.first - boot.origin) + ' to ' + dur(boot.last - boot.origin);
	b.addEventListener('click', () => {
		const all = b.getAttribute('aria-pressed') !== 'true';
		b.setAttribute('aria-pressed', String(all));
		[lo, hi] = bounds(all);
		look(lo, hi);
	});
}
$('theme').addEventListener('click', () => {
	const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
	root.dataset.theme = dark ? 'light' : 'dark';
});
$('table').addEventListener('click', () => {
	const shown = $('all').classList.toggle('shown');
	$('table').setAttribute('aria-expanded', String(shown));
});
document.addEventListener('keydown', e => {
	if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input,textarea')) return;
	const lane = pathlane.contains(e.target), row = rowOf(e.target);
	switch (e.key) {
	case '+': case '=': zoom(0.6); break;
	case '-': case '_': zoom(1 / 0.6); break;
	case '0': look(lo, hi); break;
	case '/': find.focus(); break;
	case 'Escape': choose(null); hideTip(); break;
	case 'ArrowLeft': case 'ArrowRight': {
		const by = e.key === 'ArrowLeft' ? -1 : 1;
		if (!lane) {
			if (!chart.contains(e.target) && e.target !== document.body) return;
			move(by * 0.15);
			break;
		}
		const i = steps.findIndex(s => s.button === e.target) + by;
		if (i < 0 || i >= steps.length) break;
		for (const s of steps) s.button.tabIndex = -1;
		const next = steps[i];
		next.button.tabIndex = 0;
		if (next.step.end < from || next.step.start > to) {
			const half = (to - from) / 2;
			look(next.step.start - half, next.step.start + half);
		}
		next.button.hidden = false;
		next.button.focus({preventScroll: true});
		if (chosen) choose(next);
		break;
	}
	case 'ArrowUp': case 'ArrowDown': {
		if (!row) return;
		const shown = rows.filter(r => !r.el.hidden && !r.group.list.hidden);
		const next = shown[shown.indexOf(row) + (e.key === 'ArrowUp' ? -1 : 1)];
		if (next) {
			focusRow(next);
			if (chosen) choose(next);
		}
		break;
	}
	case 'Enter': case ' ':
		if (!row) return;
		choose(row);
		break;
	default: return;
	}
	e.preventDefault();
});

draw();
})();
