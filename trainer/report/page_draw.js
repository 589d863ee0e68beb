/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a report is drawn with: elements, curves, timelines. facts is what the
 * run measured, as one object; nothing else is known here and nothing is
 * fetched. What it says becomes text nodes and attributes, never markup. Each
 * picture has its figures as a table below it.
 */
"use strict";
const facts = JSON.parse(document.getElementById("weft-report").textContent);

/* ---- elements ----------------------------------------------------------- */

function fill(node, attributes, children) {
    for (const name of Object.keys(attributes)) {
        node.setAttribute(name, attributes[name]);
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null));
    return node;
}

function html(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes, ...children) {
    const space = "http://www.w3.org/2000/svg";
    return fill(document.createElementNS(space, name), attributes, children);
}

const say = (...text) => html("p", {}, ...text);
const note = (...text) => html("p", {class: "soft"}, ...text);

function section(title, ...children) {
    document.getElementById("page").append(
        html("section", {}, html("h2", {}, title), ...children));
}

function details(title, ...children) {
    return html("details", {}, html("summary", {}, title), ...children);
}

/* Columns whose name begins with "<" hold text; row number sum adds up. */
function table(id, head, rows, sum = -1) {
    const names = head.map((name) => name.replace("<", ""));
    const side = (k) => head[k].startsWith("<") ? "left" : "";
    const cell = (text, k) => html(
        "td", {class: side(k), "data-label": names[k]}, String(text));
    return html("table", {id, class: head.length > 8 ? "many" : ""},
        html("thead", {}, html("tr", {}, names.map(
            (name, k) => html("th", {class: side(k)}, name)))),
        html("tbody", {}, rows.map((row, k) => html(
            "tr", {class: k === sum ? "sum" : ""}, row.map(cell)))));
}

/* A table that is made when somebody looks, if it is a long one. */
function detailsTable(id, head, count, rows) {
    const node = details("The same as a table");
    const make = () => node.append(table(id, head, rows()));
    if (count > 2000) {
        node.addEventListener("toggle", make, {once: true});
    } else {
        make();
    }
    return node;
}

/* ---- numbers ------------------------------------------------------------ */

const fixed = (value, digits) => value === null ? "n/a" : value.toFixed(digits);
const short = (value) =>
    value === null ? "" : String(Number(value.toPrecision(4)));
const percent = (part, whole = 1) =>
    (whole > 0 ? 100 * part / whole : 0).toFixed(1) + "%";
const plural = (count, noun) => count + " " + noun + (count === 1 ? "" : "s");
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

function bytes(value) {
    let unit = 0;
    for (; value >= 999.95 && unit < 4; unit++) {
        value /= 1000;
    }
    return value.toFixed(unit === 0 || value >= 99.995 ? 0 : 2) + " " +
        ["B", "kB", "MB", "GB", "TB"][unit];
}

/* Multiples of 1, 2 or 5 times a power of ten, some four to ten of them. */
function ticks(from, to) {
    const span = Math.max(to - from, 1e-12);
    const ten = Math.pow(10, Math.floor(Math.log10(span / 4)));
    const step = [1, 2, 5, 10].find((times) => span / (times * ten) <= 9) * ten;
    const found = [];
    for (let k = Math.ceil(from / step - 1e-9); k * step <= to + span * 1e-9;
        k++) {
        found.push(Number((k * step).toPrecision(12)));
    }
    return found;
}

/* ---- curves ------------------------------------------------------------- */

const history = facts.history;
const middles = history.first_step.map(
    (first, k) => (first + history.last_step[k]) / 2);
const each = history.stride > 1
    ? " Each point stands for " + history.stride + " steps: their mean" : "";
const bands = each && each + "; bands reach from the least to the greatest.";
const frame = {left: 64, right: 988, top: 26, bottom: 256};
let charts = 0;

/* layer: {name: classes, line | dots: values} or {name, low, high}. */
function chart(title, yName, from, to, layers) {
    const first = middles[0], last = middles[middles.length - 1];
    const {left, right, top, bottom} = frame;
    const x = (step) => (left + (right - left) *
        (last > first ? (step - first) / (last - first) : 0.5)).toFixed(1);
    const y = (value) => (bottom - (bottom - top) *
        (to > from ? (value - from) / (to - from) : 0.5)).toFixed(1);
    const clip = "frame" + charts++;
    const points = (values) => values.map((value, k) =>
        value === null ? null : x(middles[k]) + " " + y(value));
    const draw = {
        line: (layer) => {
            const path = points(layer.line).map((point, k, all) => point &&
                (all[k - 1] ? "L" : "M") + point).filter(Boolean);
            return svg("path", {class: "line " + layer.name, d: path.join("")});
        },
        dots: (layer) => points(layer.dots).filter(Boolean).map((point) => {
            const [cx, cy] = point.split(" ");
            return svg("circle", {class: "dot " + layer.name, cx, cy, r: 3.5});
        }),
        low: (layer) => {
            const around = points(layer.high).concat(
                points(layer.low).reverse()).filter(Boolean);
            return svg("path", {class: "band " + layer.name,
                d: around.length ? "M" + around.join("L") + "Z" : ""});
        },
    };
    const text = (at, height, anchor, words) => svg(
        "text", {x: at, y: height, "text-anchor": anchor}, String(words));
    return svg("svg", {viewBox: "0 0 1000 300", role: "img",
        "aria-label": title},
    svg("clipPath", {id: clip}, svg("rect", {x: left, y: top,
        width: right - left, height: bottom - top})),
    ticks(from, to).map((value) => [
        svg("path", {class: "grid", d: `M${left} ${y(value)}H${right}`}),
        text(left - 6, Number(y(value)) + 4, "end", value)]),
    ticks(first, last).map((step) => [
        svg("path", {class: "axis", d: `M${x(step)} ${bottom}v5`}),
        text(x(step), bottom + 20, "middle", step)]),
    svg("g", {"clip-path": `url(#${clip})`}, layers.map((layer) =>
        draw[["line", "dots", "low"].find((way) => way in layer)](layer))),
    text(left, 14, "start", yName), text(right, 294, "end", "step"));
}

function key(entries) {
    return html("ul", {class: "key"}, entries.map(([name, text]) => html(
        "li", {}, svg("svg", {viewBox: "0 0 12 12", "aria-hidden": "true"},
            svg("rect", {width: 12, height: 12, rx: 2, class: name})), text)));
}

const caption = (...text) => html("figcaption", {}, ...text);
const stepsOf = (k) => history.stride > 1
    ? history.first_step[k] + " to " + history.last_step[k]
    : history.first_step[k];

/* [[name, values, digits]], step by step. */
function curveTable(id, columns) {
    return detailsTable(id, ["steps", ...columns.map(([name]) => name)],
        middles.length, () => middles.map((_, k) => [stepsOf(k),
            ...columns.map(([, values, digits]) =>
                values[k] === null ? "" : values[k].toFixed(digits))]));
}

const known = (values) => values.filter((value) => value !== null);

/* ---- a timeline --------------------------------------------------------- */

/* "3F2", or "(0F4;7B1)OVERLAP_F_B", which has two. */
function partsOf(action) {
    return Array.from(action.matchAll(/(\d+)([A-Z_]+?)(\d*)(?=$|;|\))/g),
        ([, stage, kind, batch]) => ({stage: Number(stage), kind, batch}));
}

/* The first stages of a direction are the encoder's, if there is one. */
const isEncoder = (run, stage) => stage % run.stages < run.encoder_stages;

/* Later stages of a rank, of the same branch, are paler. */
function tintsOf(run, rank) {
    const stages = new Set(rank.flatMap((one) => partsOf(one.action)).map(
        (part) => part.stage));
    const sorted = Array.from(stages).sort((a, b) => a - b);
    return (stage) => {
        const own = sorted.filter((other) =>
            isEncoder(run, other) === isEncoder(run, stage));
        return own.length < 2 ? 1
            : 1 - 0.55 * own.indexOf(stage) / (own.length - 1);
    };
}

function kindOf(run, part) {
    return "FIWB".includes(part.kind)
        ? "k" + part.kind + (isEncoder(run, part.stage) ? "e" : "") : "kother";
}

/* What is drawn of begin..end: x and width in the window, or null. */
function clipSpan(begin, end, view) {
    const from = Math.max(begin, view.from), to = Math.min(end, view.to);
    return to <= from ? null : {x: 64 + (from - view.from) * view.scale,
        width: (to - from) * view.scale};
}

function drawAction(one, way, run, tint, view, y) {
    const [begin, end, wait] = one[way + "_ms"];
    const at = clipSpan(begin, end, view);
    if (at === null) {
        return null;
    }
    const parts = partsOf(one.action);
    const height = view.row / parts.length;
    return svg("g", {}, svg("title", {}, one.action + ": " + short(begin) +
        " to " + short(end) + " ms" + (wait ? ", waited for: " + wait : "")),
    parts.map((part, p) => [
        svg("rect", {x: at.x.toFixed(2), y: y + p * height,
            width: at.width.toFixed(2), height,
            class: kindOf(run, part),
            "fill-opacity": tint(part.stage).toFixed(2)}),
        height >= 8 && part.batch && at.width >= 6 * part.batch.length + 2
            ? svg("text", {class: "label", x: (at.x + at.width / 2).toFixed(2),
                y: y + p * height + height / 2 + 3.5}, part.batch) : null]));
}

/* Which step of the generator's recipe a stretch of the row is in. */
function drawRecipe(rank, way, view, y) {
    const drawn = [];
    for (let k = 0, next; k < rank.length; k = next) {
        const recipe = rank[k].recipe;
        next = rank.findIndex((one, j) => j > k && one.recipe !== recipe);
        next = next < 0 ? rank.length : next;
        const at = recipe > 0 && clipSpan(rank[k][way + "_ms"][0],
            rank[next - 1][way + "_ms"][1], view);
        if (at) {
            drawn.push(svg("path", {class: "axis", d: `M${at.x.toFixed(2)} ` +
                `${y}v3h${at.width.toFixed(2)}v-3`}, svg("title", {},
                "step " + recipe)));
            drawn.push(at.width < 10 ? null : svg("text", {class: "label",
                x: (at.x + at.width / 2).toFixed(2), y: y + 12},
            String(recipe)));
        }
    }
    return drawn;
}

/* A window of a run, rank below rank. */
function drawWindow(run, way, view) {
    const recipe = run.timeline.flat().some((one) => one.recipe > 0);
    const pitch = view.row + 6 + (recipe ? 12 : 0);
    const bottom = run.timeline.length * pitch;
    return svg("svg", {viewBox: `0 0 1000 ${bottom + 24}`, role: "img",
        "aria-label": `${way}, ${short(view.from)} to ${short(view.to)} ms`},
    run.timeline.map((rank, r) => {
        const y = r * pitch, own = run.ranks[r][way], tint = tintsOf(run, rank);
        return [svg("text", {x: 58, y: y + view.row / 2 + 4,
            "text-anchor": "end"}, "rank " + r),
        svg("rect", {class: "row", x: 64, y, width: 924, height: view.row},
            svg("title", {}, `rank ${r}: busy ${short(own.busy_ms)}, bubble ` +
                `${short(own.bubble_ms)} ms, holds ` +
                `${short(own.peak_activation)} activations`)),
        rank.map((one) => drawAction(one, way, run, tint, view, y)),
        recipe ? drawRecipe(rank, way, view, y + view.row + 1) : null];
    }),
    ticks(view.from, view.to).map((ms) => {
        const x = (64 + (ms - view.from) * view.scale).toFixed(2);
        return [svg("path", {class: "axis", d: `M${x} ${bottom}v5`}),
            svg("text", {x, y: bottom + 19, "text-anchor": "middle"},
                ms + " ms")];
    }));
}

/* Planned above measured on one scale, in so many lines each. */
function drawRuns(run, lines) {
    const whole = Math.max(run.planned.makespan_ms, run.measured.makespan_ms);
    const width = whole / lines;
    return ["planned", "measured"].map((way) => [
        say(html("b", {}, way), `: ${short(run[way].makespan_ms)} ms in all, ` +
            `bubble ${short(run[way].bubble_ms)} on the worst rank (` +
            percent(run[way].bubble_ms, run[way].makespan_ms) + "), at most " +
            `${short(run[way].peak_activation)} activations`),
        Array.from({length: lines}, (_, k) => drawWindow(run, way, {
            from: k * width, to: (k + 1) * width, scale: 924 / width,
            row: run.timeline.length <= 32 ? 24 : 10}))]);
}

function timeline(id, run) {
    if (run.timeline === null) {
        return say("There are too many actions to draw.");
    }
    const busiest = most(run.timeline.map((rank) => rank.length));
    const lines = Math.ceil(busiest * 30 / 924);
    const rows = () => run.timeline.flatMap((rank, r) => rank.map((one) =>
        [r, one.action, ...[...one.planned_ms, ...one.measured_ms].map(
            (cell) => typeof cell === "number" ? short(cell) : cell)]));
    const count = run.timeline.reduce((n, rank) => n + rank.length, 0);
    return html("figure", {}, drawRuns(run, 1),
        key([["kF", "F forward"], ["kI", "I backward for inputs"],
            ["kW", "W backward for weights"], ["kB", "B full backward"],
            ...(run.encoder_stages === 0 ? [] : [["kFe", "F of the encoder"],
                ["kIe", "I"], ["kWe", "W"], ["kBe", "B of it"]]),
            ["kother", "other: RECOMPUTE or OPT"], ["row", "bubble"]]),
        caption("A number is a micro-batch. Paler: the rank's further " +
            "stages. F above B: a pair that overlaps. A bracket under a row: " +
            "a step of the schedule's recipe."),
        lines > 1 ? details("The same, larger", drawRuns(run, lines)) : null,
        detailsTable(id, ["rank", "<action", "planned from, ms", "to",
            "<waited for", "measured from, ms", "to", "<waited for"], count,
        rows));
}
