/* Hands on the timeline: mouse, fingers, keys, buttons. */

const fingers = new Map(); // by pointer: where it is
let gesture = null; // { kind: "pan" | "select" | "pinch", ... }
let selecting = false; // the button: a drag selects

function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function pressed(event) {
    const at = placeOf(event);
    showCard(null);
    fingers.set(event.pointerId, at);
    canvas.setPointerCapture(event.pointerId);
    if (fingers.size === 2) {
        const [a, b] = Array.from(fingers.values());
        gesture = { kind: "pinch", apart: Math.max(Math.abs(a.x - b.x), 8), from: view.from, to: view.to,
            time: timeAt((a.x + b.x) / 2) };
    } else if (event.shiftKey || selecting || at.y < place.ruler) {
        gesture = { kind: "select", time: timeAt(at.x), x: at.x };
    } else {
        gesture = { kind: "pan", x: at.x, y: at.y, from: view.from, to: view.to, moved: false };
    }
}

function moved(event) {
    const at = placeOf(event);
    if (!gesture) {
        showCard(sliceAt(at.x, at.y), at.x, at.y);
        return;
    }
    fingers.set(event.pointerId, at);
    if (gesture.kind === "pinch" && fingers.size === 2) {
        const [a, b] = Array.from(fingers.values());
        const factor = Math.max(Math.abs(a.x - b.x), 8) / gesture.apart;
        look(gesture.time - (gesture.time - gesture.from) / factor, gesture.time + (gesture.to - gesture.time) / factor);
    } else if (gesture.kind === "select") {
        view.select = { from: Math.min(gesture.time, timeAt(at.x)), to: Math.max(gesture.time, timeAt(at.x)) };
        drawSoon();
    } else if (gesture.kind === "pan") {
        const shift = ((gesture.x - at.x) / (canvasWidth() - gutterWidth())) * (gesture.to - gesture.from);
        gesture.moved = gesture.moved || Math.abs(at.x - gesture.x) > 3;
        look(gesture.from + shift, gesture.to + shift);
        if (event.pointerType === "mouse") byId("timeline").scrollTop += gesture.y - at.y;
        gesture.y = at.y;
    }
}

function released(event) {
    const at = placeOf(event);
    fingers.delete(event.pointerId);
    if (gesture && gesture.kind === "select" && event.type === "pointerup") {
        if (Math.abs(at.x - gesture.x) > 2) selectTime(gesture.time, timeAt(at.x));
        else clearSelection();
    } else if (gesture && gesture.kind === "pan" && !gesture.moved && event.type === "pointerup") {
        choose(sliceAt(at.x, at.y));
    }
    gesture = null;
}

function rolled(event) {
    const at = placeOf(event);
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY * 0.004), at.x);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / 800);
    else return; // the page, or the rows, scroll
    event.preventDefault();
}

const actions = {
    in: () => zoom(2),
    out: () => zoom(0.5),
    left: () => pan(-0.25),
    right: () => pan(0.25),
    all: () => look(0, report.span),
    clear: () => (clearSelection(), choose(null)),
    select: () => {
        selecting = !selecting;
        document.querySelector('[data-do="select"]').setAttribute("aria-pressed", String(selecting));
    },
};
const keys = { "+": "in", "=": "in", w: "in", "-": "out", s: "out", a: "left", ArrowLeft: "left", d: "right",
    ArrowRight: "right", 0: "all", Escape: "clear" };

if (canvas) {
    canvas.addEventListener("pointerdown", pressed);
    canvas.addEventListener("pointermove", moved);
    canvas.addEventListener("pointerup", released);
    canvas.addEventListener("pointercancel", released);
    canvas.addEventListener("pointerleave", () => showCard(null));
    canvas.addEventListener("wheel", rolled, { passive: false });
    for (const button of all("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());
    byId("timeline").addEventListener("keydown", (event) => {
        if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        actions[keys[event.key]]();
    });
    byId("find").addEventListener("input", (event) => find(event.target.value));
}
