/* Tables: sorted by a click on a head, filtered by a word, copied as CSV; the kernels' one recomputed for a time. */

const bodyOf = (table) => table.tBodies[0];

function cellValue(row, column) {
    const cell = row.cells[column];
    return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent === "-" ? null : cell.textContent;
}

/* What is not known comes last, whichever way. */
function compareCells(a, b, down) {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return down ? -order : order;
}

function sortTable(table, column, down) {
    const rows = Array.from(bodyOf(table).rows);
    rows.sort((a, b) => compareCells(cellValue(a, column), cellValue(b, column), down));
    bodyOf(table).append(...rows);
    Array.from(table.tHead.rows[0].cells).forEach((head, i) => {
        if (i === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
    });
}

function sortAgain(table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    if (column >= 0) sortTable(table, column, heads[column].getAttribute("aria-sort") === "descending");
}

function headChosen(table, column) {
    const head = table.tHead.rows[0].cells[column];
    const numbers = Array.from(bodyOf(table).rows).some((row) => row.cells[column].dataset.v !== undefined);
    const now = head.getAttribute("aria-sort");
    sortTable(table, column, now ? now === "ascending" : numbers);
}

function filterTable(table, word) {
    const wanted = word.toLowerCase();
    for (const row of bodyOf(table).rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

function tableAsCsv(table) {
    const quoted = (words) => (/[",\n]/.test(words) ? '"' + words.replace(/"/g, '""') + '"' : words);
    const rows = [table.tHead.rows[0], ...Array.from(bodyOf(table).rows).filter((row) => !row.hidden)];
    return rows.map((row) => Array.from(row.cells).map((cell) =>
        quoted(cell.dataset.v !== undefined ? cell.dataset.v : cell.innerText.replace(/\s+/g, " "))).join(",")).join("\n");
}

function copyWords(words, button) {
    const label = button.textContent;
    const said = (what) => {
        button.textContent = what;
        setTimeout(() => (button.textContent = label), 1500);
    };
    /* A page from a file may not be allowed to use the clipboard: then the old way. */
    const area = document.createElement("textarea");
    area.value = words;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    said(done ? "copied" : "not allowed here");
}

for (const table of all("table.sortable")) {
    const first = bodyOf(table).rows[0];
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
        if (first && first.cells[column] && first.cells[column].classList.contains("n")) head.classList.add("n");
        head.addEventListener("click", () => headChosen(table, column));
        head.addEventListener("keydown", (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            headChosen(table, column);
        });
    });
}
/* A column that knows nothing of any row (occupancy on a CPU), or the one device of all of them, takes no room; a copy as
 * CSV has it. */
for (const table of all("table.sortable")) {
    const rows = Array.from(bodyOf(table).rows);
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
        const first = rows.length && rows[0].cells[column].textContent;
        if (!rows.length || (first !== "-" && head.textContent !== "device")) return;
        if (rows.some((row) => row.cells[column].textContent !== first)) return;
        for (const row of [table.tHead.rows[0], ...rows]) row.cells[column].classList.add("none");
    });
}
for (const input of all("[data-filter]"))
    input.addEventListener("input", () => filterTable(byId(input.dataset.filter), input.value));
for (const button of all("[data-csv]"))
    button.addEventListener("click", () => copyWords(tableAsCsv(byId(button.dataset.csv)), button));

/* ---- the kernels of a time ---- */

const kernelColumns = { total: 1, share: 2, roof: 3, bound: 4, mean: 5, calls: 6, bandwidth: 7, rate: 8 };

function setCell(row, column, value, words) {
    const cell = row.cells[column];
    if (value === null || !isFinite(value)) {
        delete cell.dataset.v;
        cell.textContent = "-";
        return;
    }
    cell.dataset.v = value;
    cell.textContent = words;
}

/* calls and totals: by kernel. */
function showKernels(calls, totals, words) {
    const table = byId("kernels");
    if (!table) return;
    const everything = totals.reduce((sum, ns) => sum + ns, 0);
    for (const row of bodyOf(table).rows) {
        const number = Number(row.dataset.kernel);
        const kernel = report.kernels[number];
        const known = (value) => (value === null || value === undefined ? NaN : value);
        const mean = totals[number] / calls[number];
        const bandwidth = known(kernel.bytes) / mean;
        const rate = (known(kernel.flops) / mean) * 1e-3;
        const roof = 100 * known(kernel.roof) * (kernel.total / kernel.calls / mean);
        const share = (100 * totals[number]) / Math.max(everything, 1);
        row.classList.toggle("none", calls[number] === 0);
        setCell(row, kernelColumns.calls, calls[number], String(calls[number]));
        setCell(row, kernelColumns.total, totals[number], duration(totals[number]));
        setCell(row, kernelColumns.share, share, share.toFixed(1));
        setCell(row, kernelColumns.mean, mean, duration(mean));
        setCell(row, kernelColumns.bandwidth, bandwidth, bandwidth.toFixed(1));
        setCell(row, kernelColumns.rate, rate, rate.toFixed(3));
        setCell(row, kernelColumns.roof, roof, roof.toFixed(0));
        if (kernel.bound) row.cells[kernelColumns.bound].textContent = roof >= 100.5 ? kernel.above : kernel.bound;
    }
    byId("kernels-of").textContent = words;
    sortAgain(table);
}

function chooseKernel(number) {
    for (const mark of all("[data-kernel]"))
        mark.classList.toggle("chosen", number !== null && Number(mark.dataset.kernel) === number);
}

for (const dot of all("circle[data-kernel]"))
    dot.addEventListener("click", () => chooseKernel(Number(dot.dataset.kernel)));
