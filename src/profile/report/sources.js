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
