/* The page's test of itself, when its address ends in #selftest: the verdict is in the root's data-selftest. */

function expect(holds, what) {
    if (!holds) failures.push(what);
}

function testTables() {
    for (const table of all("table.sortable")) {
        const columns = table.tHead.rows[0].cells.length;
        for (let column = 0; column < columns; column++)
            for (const down of [false, true]) {
                sortTable(table, column, down);
                const values = Array.from(bodyOf(table).rows).map((row) => cellValue(row, column));
                for (let i = 1; i < values.length; i++)
                    expect(compareCells(values[i - 1], values[i], down) <= 0, table.id + " column " + column + " is not sorted");
            }
        const before = Array.from(bodyOf(table).rows).length;
        filterTable(table, "no such words");
        expect(Array.from(bodyOf(table).rows).every((row) => row.hidden), table.id + " is not filtered");
        filterTable(table, "");
        expect(Array.from(bodyOf(table).rows).filter((row) => !row.hidden).length === before, table.id + " stays filtered");
        expect(tableAsCsv(table).split("\n").length === before + 1, table.id + " as CSV");
    }
}

function callsShown() {
    const table = byId("kernels");
    return Array.from(table ? bodyOf(table).rows : []).reduce((sum, row) => sum + (cellValue(row, kernelColumns.calls) || 0), 0);
}

function testMoving() {
    look(0, report.span);
    const whole = view.to - view.from;
    zoom(4, gutterWidth() + 100);
    expect(Math.abs(view.to - view.from - Math.max(whole / 4, 20)) < 1, "zooming in");
    const from = view.from;
    pan(0.5);
    expect(report.span < 100 || view.from > from, "moving to the right");
    actions.all();
    expect(Math.abs(view.to - view.from - whole) < 1, "all of it");
}

function testSelection() {
    const every = callsShown();
    expect(every === report.kernels.reduce((sum, kernel) => sum + kernel.calls, 0), "calls of the whole time");
    const from = report.span * 0.25;
    const to = report.span * 0.75;
    selectTime(from, to);
    let counted = 0;
    for (const row of rows)
        for (let i = 0; row.kernel && i < row.count; i++) {
            const middle = (row.start[i] + row.end[i]) / 2;
            counted += row.kernel[i] >= 0 && middle >= from && middle < to ? 1 : 0;
        }
    expect(callsShown() === counted, "calls of the selected time");
    clearSelection();
    expect(callsShown() === every, "calls after the selection");
}

function testChoosing() {
    const row = rows.find((r) => !r.memory && r.count > 0);
    if (!row) return;
    let longest = 0;
    for (let i = 0; i < row.count; i++) if (row.end[i] - row.start[i] > row.end[longest] - row.start[longest]) longest = i;
    const length = row.end[longest] - row.start[longest];
    look(row.start[longest] - length, row.end[longest] + length);
    byId("timeline").scrollTop = 0;
    const x = xOf((row.start[longest] + row.end[longest]) / 2);
    const hit = sliceAt(x, row.top + row.lane[longest] * place.laneHeight + 4);
    expect(hit && hit.slice === longest, "the slice under the pointer");
    choose(hit);
    expect(byId("about-slice").textContent.startsWith(nameOf(row, longest)), "words about a slice");
    showCard(hit, x, 40);
    const card = byId("slice-card");
    expect(!card.hidden && card.querySelector("b").textContent === nameOf(row, longest).split(", ")[0], "the card of a slice");
    expect(card.offsetLeft >= 0 && card.offsetLeft + card.offsetWidth <= byId("timeline").clientWidth + 1, "the card is inside");
    showCard(null);
    expect(card.hidden, "the card goes");
    find(nameOf(row, longest));
    expect(view.found[row.names[longest]], "finding a slice");
    find("");
    choose(null);
}

/* Frames from all of it down to a hundredth, and how long one takes. */
function testDrawing() {
    const frames = 40;
    const begun = performance.now();
    for (let i = 0; i < frames; i++) {
        look(0, report.span);
        zoom(Math.pow(100, i / frames), gutterWidth() + (i / frames) * 200);
        draw();
    }
    const each = (performance.now() - begun) / frames;
    document.documentElement.dataset.frameMs = each.toFixed(2);
    expect(each < 50, "a frame takes " + each.toFixed(0) + " ms");
    actions.all();
    draw();
}

function testTicks() {
    const far = tickWords(5e9, 5e9 + 1e5, 2e4).map((tick) => tick.words);
    expect(far.length === 6 && !far[0].startsWith("+") && far[1] === "+20.0 us" && far[5] === "+100 us", "relative ticks: " + far);
    expect(tickWords(0, 1e5, 2e4).every((tick) => !tick.words.startsWith("+")), "ticks from the start");
}

function testColours() {
    const pane = document.createElement("pre");
    for (const words of ["kernel f(in float x[n]) // so", "a = \"b\" + 0x1f; /* here", "and there */ return 2;"]) {
        const line = document.createElement("span");
        line.className = "l";
        line.append(document.createElement("u"), words);
        pane.append(line);
    }
    const before = pane.textContent;
    colourPane(pane);
    const kinds = all("span[class^=x]", pane).map((piece) => piece.className + " " + piece.textContent).join("|");
    expect(pane.textContent === before, "colours change no text");
    expect(kinds === 'xk kernel|xk in|xt float|xc // so|xs "b"|xn 0x1f|xc /* here|xc and there */|xk return|xn 2', "colours: " + kinds);
}

function testSources() {
    testColours();
    for (const block of all(".kernel-source")) {
        const line = block.querySelector(".l[data-line]");
        if (!line) continue;
        linkLine(block, line.dataset.line);
        expect(line.classList.contains("linked"), "lines that are linked");
        linkLine(block, line.dataset.line);
        for (const tab of all("[data-tab]", block)) {
            tab.click();
            expect(all("[data-pane]:not([hidden])", block).length === 1, "one pane at a time");
        }
        all("[data-tab]", block).slice(0, 1).forEach((tab) => tab.click());
    }
}

/* As on a narrow phone: what is wider scrolls inside its own box. */
function testWidth() {
    const body = document.body;
    expect(document.documentElement.scrollWidth <= window.innerWidth + 1, "the page is wider than the screen");
    body.style.width = "360px";
    for (const part of all("section, header > *"))
        expect(part.scrollWidth <= 362, (part.id || part.tagName) + " is wider than 360 pixels: " + part.scrollWidth);
    for (const figure of all(".figure"))
        expect(figure.scrollWidth <= figure.clientWidth + 1, "a picture is cut off at 360 pixels: " + figure.scrollWidth);
    body.style.width = "";
}

/* Red, green, blue and how much of it there is, of a computed colour. */
function colourParts(words) {
    const numbers = (words.match(/[0-9.]+/g) || [0, 0, 0, 0]).map(Number);
    return [...numbers.slice(0, 3), numbers.length > 3 ? numbers[3] : 1];
}

function luminance(parts) {
    const [r, g, b] = parts.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : Math.pow((v / 255 + 0.055) / 1.055, 2.4)));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function backOf(element) {
    for (let at = element; at; at = at.parentElement) {
        const parts = colourParts(getComputedStyle(at).backgroundColor);
        if (parts[3] > 0.9) return parts;
    }
    return [255, 255, 255, 1];
}

/* Words stand out from what is behind them: 4.5 to 1, as the guidelines for readable pages ask. One of each kind is looked at. */
function testContrast() {
    all("pre").slice(0, 4).forEach(colourPane);
    const seen = new Set();
    for (const element of all("body *")) {
        const own = Array.from(element.childNodes).some((child) => child.nodeType === 3 && child.nodeValue.trim());
        if (!own || !element.getClientRects().length) continue;
        const style = getComputedStyle(element);
        const front = colourParts(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
        const back = backOf(element);
        const key = front + "/" + back;
        if (seen.has(key) || front[3] < 0.05) continue;
        seen.add(key);
        const lights = [luminance(front), luminance(back)].sort((a, b) => b - a);
        const ratio = (lights[0] + 0.05) / (lights[1] + 0.05);
        expect(ratio >= 4.5, "`" + element.textContent.trim().slice(0, 20) + "` is hard to read, " + ratio.toFixed(1) + " to 1");
    }
}

function selfTest() {
    try {
        testTables();
        testTicks();
        if (canvas) {
            testMoving();
            testSelection();
            testChoosing();
            testDrawing();
        }
        testSources();
        testWidth();
        testContrast();
    } catch (error) {
        failures.push(String(error.stack || error));
    }
    document.documentElement.dataset.selftest = failures.length ? Array.from(new Set(failures)).join("; ") : "ok";
}

if (location.hash.includes("selftest")) window.addEventListener("load", selfTest);
