/* The script of the report's page. base: the data, words for numbers, light and dark. */
"use strict";

const failures = []; // for the self test
window.addEventListener("error", (event) => failures.push(String(event.message)));

const byId = (id) => document.getElementById(id);
const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
const report = JSON.parse(byId("data").textContent);

function duration(ns) {
    const units = ["ns", "us", "ms", "s"];
    let unit = 0;
    if (!ns) return "0";
    while (Math.abs(ns) >= 999.5 && unit < 3) {
        ns /= 1000;
        unit++;
    }
    const size = Math.abs(ns);
    return ns.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2) + " " + units[unit];
}

function byteCount(bytes) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    while (bytes >= 999.5 && unit < 4) {
        bytes /= 1000;
        unit++;
    }
    return bytes.toFixed(unit && bytes < 99.95 ? 1 : 0) + " " + units[unit];
}

/* The place of the first of `count` items that `holds`; those after it hold too. */
function firstThat(count, holds) {
    let low = 0;
    let high = count;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (holds(middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

const onTheme = []; // called when the colours change

function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(name) {
    document.documentElement.dataset.theme = name;
    onTheme.forEach((call) => call());
}

byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => onTheme.forEach((call) => call()));
if (location.hash.includes("dark")) setTheme("dark");
if (location.hash.includes("light")) setTheme("light");

/* A table of contents: the sections that this page has. */
function listSections() {
    const nav = document.createElement("nav");
    nav.setAttribute("aria-label", "sections");
    for (const section of all("section[id]")) {
        const title = section.querySelector("h2");
        if (!title) continue;
        const link = document.createElement("a");
        link.href = "#" + section.id;
        link.textContent = title.textContent;
        nav.append(link);
    }
    const main = document.querySelector("main");
    if (main && nav.children.length > 1) main.prepend(nav);
}
listSections();
