/* Kernels' texts side by side: a line chosen in one marks what came from it in the others. */

function linkLine(block, line) {
    const chosen = all(".l.linked", block).some((mark) => mark.dataset.line === line);
    for (const mark of all(".l", block)) mark.classList.toggle("linked", !chosen && mark.dataset.line === line);
    if (chosen) return;
    /* Each pane shows the first of its lines, without moving the page. */
    for (const pane of all("pre:not([hidden])", block)) {
        const first = pane.querySelector(".l.linked");
        if (first && (first.offsetTop < pane.scrollTop || first.offsetTop > pane.scrollTop + pane.clientHeight - 20))
            pane.scrollTop = first.offsetTop - pane.clientHeight / 3;
    }
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
