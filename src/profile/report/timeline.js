/*
 * The timeline on a canvas. Slices lie in rows and lanes; in a lane they do not overlap, so that both their starts and
 * their ends grow. Drawing a lane finds the first visible slice by halving and, where slices are narrower than a pixel,
 * the next one that is not: it takes as long as the lane is wide, however many slices there are.
 */

const place = { laneHeight: 17, gap: 6, ruler: 22, memoryHeight: 46 };
const view = { from: 0, to: Math.max(report.span || 0, 1), select: null, chosen: null, found: null };
const palette = ["#0072b2", "#b35900", "#007a5a", "#8f4a78", "#5a6b1f", "#2f5fa8", "#a1383b", "#4c5d73", "#7a5bb0", "#8a6d00"];
let rows = [];
let canvas = null;
let totalHeight = 0;
let waiting = false;

function decodeRow(row) {
    const count = row.start.length;
    const start = new Float64Array(count);
    const end = new Float64Array(count);
    let time = 0;
    for (let i = 0; i < count; i++) {
        time += row.start[i];
        start[i] = time;
        end[i] = time + row.length[i];
    }
    const lane = row.lane || new Uint16Array(count);
    const lanes = Array.from({ length: Math.max(row.lanes, 1) }, () => []);
    for (let i = 0; i < count; i++) lanes[lane[i]].push(i);
    return { name: row.name, group: row.group, first: row.first, count, start, end, lane,
        lanes: lanes.map((items) => Int32Array.from(items)), names: row.names, kernel: row.kernel || null };
}

function decodeMemory(series) {
    const count = series.points.length / 2;
    const time = new Float64Array(count);
    const bytes = new Float64Array(count);
    for (let i = 0; i < count; i++) {
        time[i] = series.points[2 * i];
        bytes[i] = series.points[2 * i + 1];
    }
    return { name: series.name, memory: { time, bytes, peak: series.peak }, lanes: [] };
}

function layRows() {
    let top = place.ruler;
    for (const row of rows) {
        row.top = top;
        row.height = row.memory ? place.memoryHeight : row.lanes.length * place.laneHeight;
        top += row.height + place.gap;
    }
    totalHeight = top;
    byId("timeline-space").style.height = top + "px";
    byId("timeline").style.height = Math.min(top + 4, Math.round(window.innerHeight * 0.65)) + "px";
}

/* ---- where things are ---- */

/* Asking the page for a width may make it lay itself out: it is done when the size changes, not for every slice. */
const size = { width: 1, gutter: 0 };
function measureSize() {
    size.width = canvas.clientWidth;
    size.gutter = Math.min(132, Math.round(size.width * 0.24));
}
const canvasWidth = () => size.width;
const gutterWidth = () => size.gutter;
const scale = () => (size.width - size.gutter) / (view.to - view.from); // pixels a nanosecond
const xOf = (time) => gutterWidth() + (time - view.from) * scale();
const timeAt = (x) => view.from + (x - gutterWidth()) / scale();
const nameOf = (row, i) => report.names[row.names[i]];
/* The first slice of a lane that ends after a time. */
const firstAfter = (row, lane, time) => firstThat(lane.length, (i) => row.end[lane[i]] > time);

function colourOf(name) {
    let hash = 7;
    for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
    return palette[hash % palette.length];
}

const colours = [];
function colourOfNumber(number) {
    if (colours[number] === undefined) colours[number] = colourOf(report.names[number]);
    return colours[number];
}

/* ---- drawing ---- */

let styles = {};
function style(name) {
    if (!styles[name]) styles[name] = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    return styles[name];
}

function drawLane(pen, row, lane, y, words) {
    const { width, gutter } = size;
    const { start, end, names } = row;
    const height = place.laneHeight - 2;
    const pixels = scale();
    let ink = -1; // the name whose colour the pen has
    for (let i = firstAfter(row, lane, view.from); i < lane.length;) {
        const slice = lane[i];
        if (start[slice] >= view.to) break;
        const left = Math.max(gutter + (start[slice] - view.from) * pixels, gutter);
        const length = Math.min(gutter + (end[slice] - view.from) * pixels, width) - left;
        const number = names[slice];
        if (number !== ink) {
            pen.globalAlpha = view.found && !view.found[number] ? 0.18 : 1;
            pen.fillStyle = colourOfNumber(number);
            ink = number;
        }
        pen.fillRect(left, y, Math.max(length, 1), height);
        if (length > 26) {
            pen.fillStyle = "#ffffff";
            pen.fillText(report.names[number].slice(0, Math.floor((length - 5) / words)), left + 3, y + height - 4);
            ink = -1;
        }
        /* What begins and ends within this pixel is in the mark already. */
        i = length >= 1 ? i + 1 : Math.max(i + 1, firstAfter(row, lane, timeAt(left + 1)));
    }
    pen.globalAlpha = 1;
}

function drawMemory(pen, row, y) {
    const { time, bytes, peak } = row.memory;
    const gutter = gutterWidth();
    const width = canvasWidth();
    const level = (value) => y + row.height - (peak > 0 ? (value / peak) * (row.height - 12) : 0);
    let at = firstThat(time.length, (i) => time[i] > view.from) - 1;
    pen.beginPath();
    pen.moveTo(gutter, y + row.height);
    for (let x = gutter; x < width; x++) {
        const until = timeAt(x + 1);
        let most = at >= 0 ? bytes[at] : 0;
        while (at + 1 < time.length && time[at + 1] <= until) most = Math.max(most, bytes[++at]);
        pen.lineTo(x, level(most));
        pen.lineTo(x + 1, level(most));
    }
    pen.lineTo(width, y + row.height);
    pen.fillStyle = style("--c3");
    pen.globalAlpha = 0.55;
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = style("--soft");
    pen.fillText("peak " + byteCount(peak), gutter + 4, y + 10);
}

function roundStep(span, marks) {
    const least = span / marks;
    const power = Math.pow(10, Math.floor(Math.log10(least)));
    return power * (least / power > 5 ? 10 : least / power > 2 ? 5 : least / power > 1 ? 2 : 1);
}

/* Words of the ruler's marks: where all would begin alike (5.000120 s, 5.000140 s) the first says where it is, and the others how far
 * from it. */
function tickWords(from, to, step) {
    const first = Math.ceil(from / step) * step;
    const relative = first >= 20 * step;
    const words = [];
    for (let time = first; time <= to; time += step)
        words.push({ time, words: relative && time > first ? "+" + duration(time - first) : duration(time) });
    return words;
}

function drawRuler(pen) {
    const gutter = gutterWidth();
    const width = canvasWidth();
    pen.fillStyle = style("--panel");
    pen.fillRect(0, 0, width, place.ruler - 2);
    pen.fillStyle = style("--soft");
    pen.strokeStyle = style("--line");
    const step = roundStep(view.to - view.from, Math.max((width - gutter) / 90, 1));
    for (const tick of tickWords(view.from, view.to, step)) {
        const x = Math.round(xOf(tick.time)) + 0.5;
        pen.beginPath();
        pen.moveTo(x, place.ruler - 7);
        pen.lineTo(x, place.ruler - 2);
        pen.stroke();
        if (x + 50 < width) pen.fillText(tick.words, x + 3, 12);
    }
}

function drawSelection(pen, height) {
    if (!view.select) return;
    const left = Math.max(xOf(view.select.from), gutterWidth());
    const right = Math.min(xOf(view.select.to), canvasWidth());
    if (right <= left) return;
    pen.globalAlpha = 0.16;
    pen.fillStyle = style("--mark");
    pen.fillRect(left, 0, right - left, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = style("--mark");
    pen.strokeRect(left + 0.5, 0.5, right - left - 1, height - 1);
    pen.fillStyle = style("--mark");
    pen.fillText(duration(view.select.to - view.select.from), left + 4, place.ruler + 10);
}

function rowOfSlice(number) {
    return rows[firstThat(rows.length, (i) => rows[i].memory || rows[i].first > number) - 1];
}

function centreOf(number, scrolled) {
    const row = rowOfSlice(number);
    const i = number - row.first;
    return { x: xOf(row.start[i]), end: xOf(row.end[i]),
        y: row.top - scrolled + row.lane[i] * place.laneHeight + place.laneHeight / 2 - 1 };
}

/* The slice that was chosen, and arrows between a launch and what it started. */
function drawChosen(pen, scrolled) {
    if (view.chosen === null) return;
    const box = centreOf(view.chosen, scrolled);
    pen.strokeStyle = style("--ink");
    pen.lineWidth = 2;
    pen.strokeRect(box.x, box.y - place.laneHeight / 2 + 1, Math.max(box.end - box.x, 2), place.laneHeight - 2);
    for (const [from, to] of arrowsOf(view.chosen)) {
        const a = centreOf(from, scrolled);
        const b = centreOf(to, scrolled);
        pen.beginPath();
        pen.moveTo(a.x, a.y);
        pen.bezierCurveTo(a.x, (a.y + b.y) / 2, b.x, (a.y + b.y) / 2, b.x, b.y);
        pen.stroke();
    }
    pen.lineWidth = 1;
}

function draw() {
    waiting = false;
    const box = byId("timeline");
    const height = box.clientHeight;
    const density = window.devicePixelRatio || 1;
    const width = canvasWidth();
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
        canvas.width = Math.round(width * density);
        canvas.height = Math.round(height * density);
    }
    const pen = canvas.getContext("2d");
    const scrolled = box.scrollTop;
    pen.setTransform(density, 0, 0, density, 0, 0);
    pen.fillStyle = style("--back");
    pen.fillRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    const words = pen.measureText("abcdefghij").width / 10;
    const gutter = gutterWidth();
    for (const row of rows) {
        const y = row.top - scrolled;
        if (y > height || y + row.height < place.ruler) continue;
        if (row.memory) drawMemory(pen, row, y);
        else row.lanes.forEach((lane, i) => drawLane(pen, row, lane, y + i * place.laneHeight, words));
        pen.fillStyle = style("--back");
        pen.fillRect(0, y - 2, gutter, row.height + 4);
        pen.fillStyle = style("--ink");
        const most = Math.floor((gutter - 6) / words);
        pen.fillText(row.name.length > most ? row.name.slice(0, most - 1) + "\u2026" : row.name, 4, y + 12);
        pen.strokeStyle = style("--line");
        pen.beginPath();
        pen.moveTo(0, y + row.height + place.gap / 2);
        pen.lineTo(width, y + row.height + place.gap / 2);
        pen.stroke();
    }
    drawChosen(pen, scrolled);
    drawRuler(pen);
    drawSelection(pen, height);
}

function drawSoon() {
    if (waiting || !canvas) return;
    waiting = true;
    requestAnimationFrame(draw);
}

/* ---- moving ---- */

function look(from, to) {
    const span = Math.min(Math.max(to - from, 20), report.span * 1.02 + 20);
    const middle = (from + to) / 2;
    const least = -0.01 * report.span - 10;
    view.from = Math.min(Math.max(middle - span / 2, least), Math.max(report.span * 1.01 + 10 - span, least));
    view.to = view.from + span;
    drawSoon();
}

function zoom(factor, x) {
    const time = x === undefined ? (view.from + view.to) / 2 : timeAt(x);
    look(time - (time - view.from) / factor, time + (view.to - time) / factor);
}

const pan = (share) => look(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

/* ---- what is chosen ---- */

let arrowMap = null;
function arrowsOf(number) {
    if (!arrowMap) {
        arrowMap = new Map();
        const pairs = report.arrows || [];
        for (let i = 0; i < pairs.length; i += 2)
            for (const end of [pairs[i], pairs[i + 1]]) {
                if (!arrowMap.has(end)) arrowMap.set(end, []);
                arrowMap.get(end).push([pairs[i], pairs[i + 1]]);
            }
    }
    return (arrowMap.get(number) || []).slice(0, 500);
}

function sliceAt(x, y) {
    if (x < gutterWidth() || y < place.ruler) return null;
    const inside = y + byId("timeline").scrollTop;
    const row = rows.find((r) => !r.memory && inside >= r.top && inside < r.top + r.height);
    if (!row) return null;
    const lane = row.lanes[Math.floor((inside - row.top) / place.laneHeight)];
    const i = lane ? firstAfter(row, lane, timeAt(x - 2)) : 0;
    return lane && i < lane.length && row.start[lane[i]] <= timeAt(x + 2) ? { row, slice: lane[i] } : null;
}

function sliceWords(row, i) {
    const kernel = row.kernel && row.kernel[i] >= 0 ? report.kernels[row.kernel[i]] : null;
    const words = [nameOf(row, i), duration(row.end[i] - row.start[i]), "at " + duration(row.start[i]), "on " + row.name];
    if (!kernel) return words.join(", ");
    if (kernel.shapes) words.push(kernel.shapes);
    if (kernel.ops) words.push("ops: " + kernel.ops);
    if (kernel.file) words.push(kernel.file + ":" + kernel.line);
    const length = row.end[i] - row.start[i];
    if (kernel.bytes !== null) words.push((kernel.bytes / length).toFixed(1) + " GB/s");
    if (kernel.flops !== null) words.push(((kernel.flops / length) * 1e-3).toFixed(3) + " TFLOP/s");
    if (kernel.blocks) words.push(kernel.blocks + " blocks");
    return words.join(", ");
}

/* A card beside the pointer: what a slice is, a line for each thing that is known of it. */
function showCard(hit, x, y) {
    const card = byId("slice-card");
    card.hidden = !hit;
    if (!hit) return;
    const [title, ...rest] = sliceWords(hit.row, hit.slice).split(", ").reduce((parts, part) => {
        const open = parts.length && parts[parts.length - 1].split("[").length > parts[parts.length - 1].split("]").length;
        if (open) parts[parts.length - 1] += ", " + part; // shapes have commas of their own
        else parts.push(part);
        return parts;
    }, []);
    const name = document.createElement("b");
    name.textContent = title;
    card.replaceChildren(name, ...rest.map((words) => {
        const line = document.createElement("span");
        line.textContent = words;
        return line;
    }));
    const room = byId("timeline").getBoundingClientRect();
    card.style.left = Math.max(4, Math.min(x + 14, room.width - card.offsetWidth - 6)) + "px";
    card.style.top = byId("timeline").scrollTop + Math.max(4, Math.min(y + 16, room.height - card.offsetHeight - 6)) + "px";
}

function choose(hit) {
    view.chosen = hit ? hit.row.first + hit.slice : null;
    byId("about-slice").textContent = hit ? sliceWords(hit.row, hit.slice) : "No slice is selected.";
    chooseKernel(hit && hit.row.kernel && hit.row.kernel[hit.slice] >= 0 ? hit.row.kernel[hit.slice] : null);
    drawSoon();
}

/* A slice belongs to the time in which its middle lies, so that neighbouring times share none. */
function selectTime(from, to) {
    const calls = new Array(report.kernels.length).fill(0);
    const totals = new Array(report.kernels.length).fill(0);
    view.select = { from: Math.min(from, to), to: Math.max(from, to) };
    for (const row of rows) {
        if (!row.kernel) continue;
        for (let i = 0; i < row.count; i++) {
            const middle = (row.start[i] + row.end[i]) / 2;
            if (row.kernel[i] < 0 || middle < view.select.from || middle >= view.select.to) continue;
            calls[row.kernel[i]]++;
            totals[row.kernel[i]] += row.end[i] - row.start[i];
        }
    }
    const sum = totals.reduce((total, ns) => total + ns, 0);
    showKernels(calls, totals, "Of " + duration(view.select.to - view.select.from) + " from " +
        duration(view.select.from) + ": kernels take " + duration(sum) + " of it" +
        (report.left_out ? " (slices under " + duration(report.left_out_below) + " are not in this file)." : "."));
    drawSoon();
}

function clearSelection() {
    view.select = null;
    showKernels(report.kernels.map((k) => k.calls), report.kernels.map((k) => k.total), "Of the whole time.");
    drawSoon();
}

function find(word) {
    const wanted = word.toLowerCase();
    view.found = wanted ? report.names.map((name) => name.toLowerCase().includes(wanted)) : null;
    drawSoon();
}

function openTimeline() {
    canvas = byId("canvas");
    rows = report.rows.map(decodeRow).concat((report.memory || []).map(decodeMemory));
    layRows();
    measureSize();
    look(0, report.span);
    draw();
    onTheme.push(() => ((styles = {}), drawSoon()));
    byId("timeline").addEventListener("scroll", drawSoon);
    new ResizeObserver(() => (measureSize(), drawSoon())).observe(byId("timeline"));
}

if (report.rows && byId("canvas")) openTimeline();
