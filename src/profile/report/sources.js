/* Kernels' texts side by side: a line chosen in one marks what came from it in the others. */

function linkLine(block, line) {
    const chosen = all(".l.linked", block).some((mark) => mark.dataset.line === line);
    for (const mark of all(".l", block)) mark.classList.toggle("linked", !chosen && mark.dataset.line === line);
    if (chosen) return;
    /* Each pane shows the first of its lines, without moving the page. */
    for (const pane of all("pre:not([hidden])", block)) {
        const first = pane.querySelector(".l.linked");
        const at = first ? first.offsetTop - pane.offsetTop : 0;
        if (first && (at < pane.scrollTop || at > pane.scrollTop + pane.clientHeight - 20))
            pane.scrollTop = at - pane.clientHeight / 3;
    }
}

/* Colours of the language: comments, strings, numbers, words that are not names. One line at a time; a comment over several lines
 * goes on in the next. */
const tokens = /(\/\*.*?(?:\*\/|$)|\/\/.*$)|("(?:[^"\\]|\\.)*")|\b(0[xb][\da-fA-F]+|\d[\d.]*(?:e[-+]?\d+)?[fLuU]*)\b|\b([A-Za-z_]\w*)\b/g;
const wordKinds = new Map([
    ["k", "kernel tensor bench launch tune then tile const in out inout scratch let if else for while break continue return import static inline extern template typename struct typedef goto do switch case default __global__ __device__ __shared__ __restrict__ restrict"],
    ["t", "float double int void bool char short long unsigned signed f16 f32 f64 bf16 tf32 i8 i16 i32 i64 u8 u16 u32 u64 half T auto"],
].flatMap(([kind, words]) => words.split(" ").map((word) => [word, kind])));

function colourLine(line, inComment) {
    const node = line.lastChild;
    if (!node || node.nodeType !== Node.TEXT_NODE) return inComment;
    const words = node.textContent;
    const parts = [];
    const add = (text, kind) => {
        if (!text) return;
        if (!kind) return parts.push(document.createTextNode(text));
        const piece = document.createElement("span");
        piece.className = "x" + kind;
        piece.textContent = text;
        parts.push(piece);
    };
    let at = 0;
    if (inComment) {
        const end = words.indexOf("*/");
        at = end < 0 ? words.length : end + 2;
        add(words.slice(0, at), "c");
        if (end < 0) {
            node.replaceWith(...parts);
            return true;
        }
    }
    tokens.lastIndex = at;
    let open = false;
    for (let m = tokens.exec(words); m; m = tokens.exec(words)) {
        const kind = m[1] ? "c" : m[2] ? "s" : m[3] ? "n" : wordKinds.get(m[4]);
        add(words.slice(at, m.index));
        add(m[0], kind);
        at = m.index + m[0].length;
        open = Boolean(m[1]) && m[1].startsWith("/*") && !m[1].endsWith("*/");
    }
    add(words.slice(at));
    node.replaceWith(...parts);
    return open;
}

/* When a pane is shown first: pages have many that nobody looks at. */
function colourPane(pane) {
    if (pane.dataset.coloured) return;
    pane.dataset.coloured = "yes";
    let inComment = false;
    for (const line of all(".l", pane)) inComment = colourLine(line, inComment);
}
const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) colourPane(entry.target);
});
for (const pane of all("pre")) watcher.observe(pane);

/* The source begins at the kernel, not at the head of its file. */
for (const pane of all("pre.source")) {
    const line = pane.querySelector('.l[data-line="' + pane.dataset.at + '"]');
    if (line) pane.scrollTop = line.offsetTop - pane.offsetTop - 4;
}

for (const block of all(".kernel-source")) {
    block.addEventListener("click", (event) => {
        const mark = event.target.closest(".l[data-line]");
        if (mark) linkLine(block, mark.dataset.line);
        const tab = event.target.closest("[data-tab]");
        if (!tab) return;
        for (const button of all("[data-tab]", block)) button.setAttribute("aria-selected", String(button === tab));
        for (const pane of all("[data-pane]", block)) pane.hidden = pane.dataset.pane !== tab.dataset.tab;
    });
}
