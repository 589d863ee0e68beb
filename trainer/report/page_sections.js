/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a report says, section by section; in which order stands at the end.
 */

/* ---- head --------------------------------------------------------------- */

const median = facts.median_step;
const summary = facts.summary;
const crowded = median !== null && median.cpu_share !== null &&
    median.cpu_share < 0.9 && median.compute_ms > 0;

function putHead() {
    const hosts = new Set(facts.ranks.map((rank) => rank.host)).size;
    document.title = facts.name + " - weft-train";
    document.getElementById("page").append(html("h1", {}, facts.name), note(
        "weft-train " + facts.weft + ", " + facts.date + ": " +
        plural(facts.nranks, "rank") + " on " + plural(hosts, "host") + ", " +
        facts.parameters + " parameters, " + facts.step + " steps"));
}

function putTiles() {
    const tile = (name, value, more) => html("div", {class: "tile"},
        html("span", {}, name), html("b", {}, value), html("span", {}, more));
    const hidden = summary.overlap_ratio;
    const known = "measured" in summary &&
        summary.measured.hiding_ratio !== null;
    const tiles = [];
    if (facts.val_loss !== null) {
        tiles.push(tile("validation loss", fixed(facts.val_loss, 4), "from " +
            fixed(facts.first_val_loss, 4) + ", " + summary.loss_unit));
    }
    if (median !== null) {
        tiles.push(tile("tokens/s", fixed(median.tokens_per_s, 0),
            "all ranks, median step"));
        tiles.push(tile("step", fixed(median.step_ms, 2) + " ms",
            percent(median.compute_ms, median.step_ms) + " of it compute"));
        tiles.push(known
            ? tile("H", fixed(summary.measured.hiding_ratio, 2),
                summary.measured.verdict)
            : tile("O, transfers under compute",
                hidden === null ? "n/a" : percent(hidden),
                hidden === null ? "there are none"
                    : crowded ? "oversubscribed: proves nothing"
                        : "of their time, median"));
    }
    if (summary.mfu !== null) {
        tiles.push(tile("MFU", percent(summary.mfu),
            `of ${fixed(summary.peak_gflops, 0)} GF/s measured (` +
            `${summary.blas_kernel})`));
    }
    tiles.push(tile("memory", bytes(most(facts.ranks.map(
        (rank) => rank.memory_bytes))), "peak of the largest rank"));
    document.getElementById("page").append(
        html("div", {class: "tiles"}, tiles));
}

/* What a reader must know before he believes a figure. */
function putWarnings() {
    const found = [];
    const trace = facts.trace;
    const waited = median === null ? 0
        : Math.max(median.bubble_ms, median.bubble_ms_max);
    const ran = facts.schedule === null ? null : facts.schedule.measured;
    if (crowded) {
        found.push("Oversubscribed: compute had a core for " +
            fixed(100 * median.cpu_share, 0) + "% of its time, so that what " +
            "is called hidden proves nothing.");
    }
    if (summary.dropped > 0) {
        found.push("The ledger had no room for " + summary.dropped +
            " records: the terms of those steps are incomplete.");
    }
    if (median !== null && waited > facts.bubble_warned * median.step_ms) {
        found.push("Bubble: of the median step the rank that waited most " +
            "spent " + percent(waited, median.step_ms) + " waiting for " +
            "pipeline messages." + (ran === null ? ""
            : " What would be better is under Pipeline."));
    } else if (ran !== null &&
        ran.bubble_ms > facts.bubble_warned * ran.makespan_ms) {
        found.push("Bubble: in " + percent(ran.bubble_ms, ran.makespan_ms) +
            " of the median step's pipeline the worst rank did not compute. " +
            "What would be better is under Pipeline.");
    }
    for (const name of moves) {
        const share = median === null ? 0
            : median.transfer_ms[name] / median.compute_ms;
        if (share > facts.transfers_warned) {
            found.push("Transfers of class " + name + " take " +
                percent(share) + " of the time of compute: another layout, " +
                "or faster links, would leave less to hide.");
        }
    }
    if (summary.emulated_gbps > 0) {
        found.push("Emulated: links are limited to " + summary.emulated_gbps +
            " GB/s by WEFT_EMULATE_GBPS.");
    }
    if (trace.events_left_out > 0) {
        found.push("The trace has the newest events only: " +
            trace.events_left_out + " older ones of its steps are left out.");
    }
    if (trace.clock_error_us > 0) {
        found.push("The hosts' clocks were compared to within " +
            fixed(trace.clock_error_us, 1) + " us: in the trace and in a " +
            "pipeline's step, events of two hosts may be that far from the " +
            "truth.");
    }
    if (trace.error !== null) {
        found.push("The trace could not be written: " + trace.error);
    }
    if (facts.machine === null) {
        found.push("A machine of this job could not be read.");
    }
    if (found.length > 0) {
        document.getElementById("page").append(html(
            "ul", {class: "warn", id: "warnings"},
            found.map((text) => html("li", {}, text))));
    }
}

/* ---- over the steps ----------------------------------------------------- */

function putLoss() {
    const low = facts.history_least, high = facts.history_most;
    const said = [["validation before", facts.first_val_loss],
        ["after", facts.val_loss],
        ["a 2-gram model of the same text", summary.bigram_loss],
        ["a 4-gram", summary.fourgram_loss]]
        .filter(([, loss]) => loss !== null)
        .map(([name, loss]) => name + " " + fixed(loss, 4)).join(", ");
    const line = note(said ? said + " " + summary.loss_unit + "." : "No validation.");
    const bottom = least(known(low.loss).concat(known(low.val_loss)));
    const top = most(known(high.loss).concat(known(high.val_loss)));
    if (bottom > top) {
        section("Loss", line, say("No step was done."));
        return;
    }
    const room = 0.04 * (top - bottom);
    const validated = known(history.val_loss).length > 0;
    section("Loss", line, html("figure", {},
        chart("Loss over the steps", summary.loss_unit, bottom - room, top + room, [
            {name: "loss", low: low.loss, high: high.loss},
            {name: "loss", line: history.loss},
            {name: "loss", dots: middles.length === 1 ? history.loss : []},
            {name: "val", dots: history.val_loss}]),
        key([["loss", "training, over the whole global batch"]].concat(
            validated ? [["val", "validation"]] : [])),
        caption("Lower is better.", bands)),
    curveTable("losses", [["training", history.loss, 4],
        ["least", low.loss, 4], ["greatest", high.loss, 4],
        ["validation", history.val_loss, 4]]));
}

const moves = ["tp", "cp", "ep", "pp", "dp", "mem"];
/* In the order in which metrics take them, from below. */
const terms = ["compute", ...moves, "bubble", "skew", "idle"];
const titleOf = (term) => (moves.includes(term) ? "exposed " : "") + term;
const overSteps = (term) => history[term + "_ms"];

/* The greatest beside the rest: the first step, or a stall. A frame that shows
 * it shows nothing else, so it may be cut, and that is said. */
function findTop(values) {
    const sorted = known(values).sort((a, b) => a - b);
    const count = sorted.length;
    const odd = count < 4 ? 0 : count < 40 ? 1 : Math.floor(count / 20);
    const usual = Math.max(sorted[count - 1 - odd],
        1.5 * sorted[Math.floor((count - 1) / 2)]);
    return Math.min(sorted[count - 1] * 1.05, 1.15 * usual);
}

function medianTable() {
    const own = (term) => moves.includes(term) ? median.exposed_ms[term]
        : median[term + "_ms"];
    const shown = terms.filter(
        (term) => own(term) > 0 || !moves.includes(term) ||
            median.transfer_ms[term] > 0);
    const sum = terms.reduce((so_far, term) => so_far + (own(term) || 0), 0);
    const moving = (term) => median.transfer_ms[term] > 0
        ? fixed(median.transfer_ms[term], 3) + " (" +
            percent(median.transfer_ms[term], median.compute_ms) + ")" : "";
    const row = (name, ms, more) => [name, fixed(ms, 3),
        percent(ms, median.step_ms), more];
    return table("median", ["<median step, number " + median.step, "ms",
        "of the step", "hidden or not, ms (of compute)"],
    [...shown.map((term) => row(titleOf(term), own(term),
        moves.includes(term) ? moving(term) : "")),
        row("together", sum, ""),
        ["the step, by its own clock", fixed(median.step_ms, 3), "", ""]],
    shown.length);
}

function putBreakdown() {
    if (median === null) {
        return;
    }
    const top = findTop(history.step_ms);
    const cut = history.step_ms.filter((ms) => ms > top).length;
    const used = terms.filter((term) => overSteps(term).some((ms) => ms > 0));
    let below = middles.map(() => 0);
    const layers = used.map((term) => {
        const low = below;
        below = low.map((ms, k) => ms + (overSteps(term)[k] || 0));
        return {name: term, low, high: below};
    });
    section("Where the time of a step goes", html("figure", {},
        chart("Step time by term over the steps", "ms of rank 0", 0, top,
            layers),
        key(used.map((term) => [term, titleOf(term)])),
        caption("The terms add up to the step; transfers under compute take " +
            "no time of their own and are not seen here.", each && each + ".",
        cut === 0 ? "" : " " + plural(cut, "point") + (cut === 1 ? " lies"
            : " lie") + " above the frame, the highest step at " +
            fixed(most(known(facts.history_most.step_ms)), 0) + " ms.")),
    curveTable("terms", [["step", history.step_ms, 3], ...used.map(
        (term) => [titleOf(term), overSteps(term), 3])]),
    medianTable(),
    note("The median one of the last steps (at most 50), by its time, on " +
        "rank 0. Terms not listed are 0."));
}

function putThroughput() {
    if (median === null) {
        return;
    }
    const low = facts.history_least.tokens_per_s;
    const high = facts.history_most.tokens_per_s;
    section("Throughput", html("figure", {},
        chart("Tokens per second over the steps", "tokens/s, all ranks", 0,
            1.05 * most(known(high)), [{name: "loss", low, high},
                {name: "loss", line: history.tokens_per_s}]),
        caption("Validation and saving fall into the time of the step after " +
            "them: such steps dip.", bands)),
    curveTable("throughput", [["tokens/s", history.tokens_per_s, 0],
        ["least", low, 0], ["greatest", high, 0]]));
}

/* ---- pipeline ----------------------------------------------------------- */

function runTable(found) {
    const row = (way, more) => [way, short(found[way].makespan_ms),
        short(found[way].bubble_ms),
        percent(found[way].bubble_ms, found[way].makespan_ms),
        percent(found[way].bubble_ms, found[way].ideal_ms),
        short(found[way].peak_activation), more];
    return table("schedule", ["", "step, ms", "bubble, ms", "of the step",
        "of ideal", "peak activation", "imbalance, of the step"],
    [row("planned", percent(found.imbalance_ms, found.planned.makespan_ms)),
        row("measured", "")]);
}

function stageTable(found) {
    return table("stages", ["rank", "busy planned", "measured",
        "bubble planned", "measured", "peak planned", "measured",
        "W put off", "waiting at most"],
    found.ranks.map((rank, r) => [r, short(rank.planned.busy_ms),
        short(rank.measured.busy_ms), short(rank.planned.bubble_ms),
        short(rank.measured.bubble_ms), short(rank.planned.peak_activation),
        short(rank.measured.peak_activation), found.deferred[r],
        found.waiting[r]]));
}

function adviceTable(found) {
    return table("advice", ["schedule", "V", "m", "step, ms", "bubble",
        "imbalance", "activations", "copies", "messages", "<"],
    found.candidates.map((one) => {
        const name = one.schedule + (one.overlap ? ", FB" : "");
        return one.makespan_ms === null
            ? [name, "", one.microbatches, "", "", "", "", "", "", one.why]
            : [name, one.chunks, one.microbatches, short(one.makespan_ms),
                percent(one.bubble_ratio), percent(one.imbalance_ratio),
                short(one.activations), one.param_copies, one.messages,
                one.why];
    }));
}

/* What the same layers would take in other schedules. */
function adviceParts(found) {
    return [
        html("h3", {}, "Which schedule"), say(`On paper, ${found.advice}.`),
        facts.auto === null ? null
            : say("Schedule auto had the same advice, tried what it says, " +
                `and chose ${facts.auto.reason}.`),
        found.warning === null ? null : html("ul", {class: "warn"},
            html("li", {}, found.warning + ".")),
        adviceTable(found),
        note("Simulated, all with the same costs of a layer and of the " +
            "model's ends, as they were in " + (found.advice_of_this_step
            ? "the step above" : "1f1b's first steps, before the run") +
            "; times in ms, activations and memory in micro-batches as they " +
            `are, with m = ${found.microbatches}, through all layers of a ` +
            "rank. To ask again, with other numbers:"),
        html("pre", {id: "command"}, found.command)];
}

function putSchedule() {
    const found = facts.schedule;
    if (found === null) {
        return;
    }
    section("Pipeline", runTable(found),
        note(`Step ${found.step}, the median one of the last steps by its ` +
            "length (at most 50). Planned with the costs that were measured " +
            "in it, stage by stage; a rank's, on average: F " +
            `${short(found.F_ms)}, I ${short(found.I_ms)}, W ` +
            `${short(found.W_ms)}, B ${short(found.B_ms)}, FB ` +
            `${short(found.FB_ms)} ms, a message ${short(found.p2p_ms)} ms` +
            (found.split_known ? "" : " (I and W: half of B each)") +
            ". Bubble is all of the step in which a rank does not compute, " +
            "of the worst rank; imbalance is that part of it which unequal " +
            "stages cause, however many micro-batches there are; " +
            "activations are in micro-batches through all layers of a rank."),
        crowded ? say("The ranks had no cores of their own and took turns: " +
            "how long an action took depends on what else ran just then. " +
            "These costs, and what is planned and advised with them, are " +
            "those of this crowd.") : null,
        timeline("actions", found), stageTable(found),
        found.advice === null ? null : adviceParts(found));
}

function trialRow(trial) {
    const off = trial.deferred.reduce((sum, count) => sum + count, 0);
    const basis = trial.schedule === "1f1b" ? (trial.emulated
        ? "its costs plan the emulated" : "its costs plan the others") : "";
    return [trial.schedule + (trial.chosen ? ", chosen" : ""), trial.chunks,
        short(trial.planned.makespan_ms), short(trial.measured.makespan_ms),
        (trial.difference < 0 ? "" : "+") + percent(trial.difference),
        percent(trial.planned.bubble_ms, trial.planned.makespan_ms),
        percent(trial.measured.bubble_ms, trial.measured.makespan_ms),
        short(trial.planned.peak_activation),
        short(trial.measured.peak_activation), short(trial.step_ms),
        off + (off > 0 && trial.deferred.length <= 8
            ? ` (${trial.deferred.join(", ")})` : ""),
        short(trial.step_ms_min), short(trial.step_ms_max),
        [trial.emulated ? "emulated" : "", basis].filter(Boolean).join("; ")];
}

function putTrials() {
    const costs = facts.trial_costs;
    if (costs === null) {
        return;
    }
    const {layer, first, last} = costs;
    section("Schedules side by side",
        table("trials", ["schedule", "V", "planned, ms", "measured",
            "difference", "bubble planned", "measured", "peak planned",
            "measured", "whole step, ms", "W put off", "least", "most", "<"],
        facts.trials.map(trialRow)),
        note(`Each ran ${costs.rounds} steps before the run, all in turn and ` +
            "again, so that what slows the machine for a while slows all of " +
            "them; shown is the one of median length, and of whole steps the " +
            "least and the most too. Planned are all of them with the costs " +
            `of 1f1b alone: a layer F ${short(layer.F_ms)} and B ` +
            `${short(layer.B_ms)} ms, the model's ends beside their layers F ` +
            `${short(first.F_ms)} and ${short(last.F_ms)}, B ` +
            `${short(first.B_ms)} and ${short(last.B_ms)}, a message ` +
            `${short(costs.p2p_ms)} ms. Planned and measured are the ` +
            "pipeline; a whole step has also the update and its transfers. W " +
            "put off: weight gradients that did not follow their I at once, " +
            "of all ranks (rank by rank)."),
        costs.emulated ? say("A host has more ranks than cores, on which " +
            "compute has no length of its own. Emulated: in place of " +
            "compute, waits as long as 1f1b's compute was; messages and " +
            "reductions are real, and so are the costs of 1f1b with those " +
            "waits.") : null,
        facts.auto === null ? null
            : say(`Schedule auto chooses ${facts.auto.reason}.`),
        facts.trials.map((trial, k) => [html("h3", {}, trial.schedule +
            (trial.emulated ? ", emulated" : "")),
        timeline("trial" + k, trial)]));
}

/* ---- what is counted ---------------------------------------------------- */

function putOverlap() {
    if (summary.overlap_trial === null) {
        return;
    }
    section("Overlap's own trial",
        table("overlap", ["<class", "H", "overlapped, ms", "blocking",
            "spread", "<"],
        Object.entries(summary.overlap_trial.classes).map(([name, own]) =>
            [name, own.lost ? "n/a" : "", fixed(own.overlapped_ms, 3),
                fixed(own.blocking_ms, 3), fixed(own.spread_ms, 3),
                own.verdict])),
        note((summary.overlap_trial.resumed
            ? "As the checkpoint has it that this run went on from: "
            : "Tried before the run: ") +
            "steps under compute and blocking ones took turns; medians of " +
            "the slowest rank. A class whose overlap lost by more than " +
            "three spreads blocks in this run."));
}

function putMeasured() {
    if (!("measured" in summary)) {
        return;
    }
    const measured = summary.measured;
    section("What overlap is worth",
        table("measured", ["the same steps", "median, ms", "least", "most"],
            [["overlapped", measured.overlapped_ms],
                ["compute alone", measured.compute_ms],
                ["one after the other", measured.serial_ms],
                ["transfers alone", measured.transfers_ms]].map(
                ([name, times]) => [name, fixed(times.median, 3),
                    fixed(times.min, 3), fixed(times.max, 3)])),
        table("ratios", ["", "", "<"], [
            ["O", fixed(measured.overlap_ratio, 4),
                "share of the transfer time under compute"],
            ["H", fixed(measured.hiding_ratio, 4), "share of the time that " +
                "transfers cost in turn which overlap saves"],
            ["s_C", fixed(measured.s_C, 4),
                "compute beside transfers / compute alone"],
            ["s_M", fixed(measured.s_M, 4),
                "transfers beside compute / transfers alone"]]),
        table("measured-classes", ["<class", "transfers, ms", "exposed",
            "without, ms", "serial", "O", "H", "<"],
        Object.entries(measured.classes).map(([name, own]) => [name,
            fixed(own.transfer_ms, 3), fixed(own.exposed_ms, 3),
            fixed(own.without_ms.median, 3), fixed(own.serial_ms.median, 3),
            fixed(own.overlap_ratio, 4), fixed(own.hiding_ratio, 4),
            own.verdict])),
        table("ceilings", ["<class", "H", "at most", "H_bare", "not hidden, ms",
            "rest", "c", "not hidden / (rest + c)", "<"],
        [...Object.entries(measured.classes), ["all", measured]].map(
            ([name, own]) => [name, fixed(own.hiding_ratio, 4),
                fixed(own.hiding_ceiling, 4), fixed(own.bare_hiding_ratio, 4),
                fixed(own.not_hidden_ms, 3),
                fixed(own.rest_ms, 3), fixed(own.bare_cpu_ms, 3),
                fixed(own.not_hidden_ratio, 3),
                own.exceeds ? "more than 1.15 times" : ""])),
        note(measured.rest.why === null
            ? "Rest: what the nodes in their order could not hide, " +
                fixed(measured.rest.rest_ms, 3) + " ms of " +
                fixed(measured.rest.alone_ms, 3) + " that all operations " +
                "take one after the other; in any order at least " +
                fixed(measured.rest.any_order_ms, 3) + ". c: CPU time of " +
                "plain sockets for as many bytes. H_bare: what those hide " +
                "behind the same compute."
            : "There is no rest: " + measured.rest.why + "."),
        note(`${measured.steps} steps of each kind, taking turns; the ` +
            "slowest rank of each."));
}

function putRanks() {
    section("Ranks", table("ranks", ["rank", "<host", "step, ms", "compute",
        "exposed", "bubble", "skew", "idle", "memory planned", "grown",
        "peak"],
    facts.ranks.map((rank, r) => [r, rank.host, ...["step", "compute",
        "exposed", "bubble", "skew", "idle"].map(
        (term) => fixed(rank[term + "_ms"], 3)), bytes(rank.planned_bytes),
    bytes(rank.grown_bytes), bytes(rank.memory_bytes)])),
    note(`Means over the ${facts.ranks[0].steps} steps of this run, each on ` +
        "its rank's clock. Memory planned is that of parameters, gradients, " +
        "moments, activations, buffers, communicators and the ledger; grown, " +
        "by how much more the rank held of its own after training than " +
        "before they were made, without what it reads in other ranks' " +
        "memory; peak, all that was resident. Of ranks that are threads of " +
        "one process the last two are the process's."));
}

function putTraffic() {
    const steps = Math.max(1, facts.trace.steps);
    const all = facts.traffic.reduce((sum, one) => sum + one.bytes, 0);
    section("Bytes by fabric", table("traffic", ["collective", "<fabric",
        "pieces a step", "bytes a step"],
    [...facts.traffic.map((one) => [one.collective, one.fabric,
        short(one.pieces / steps), bytes(one.bytes / steps)]),
    ["together", "", "", bytes(all / steps)]], facts.traffic.length),
    note("Payload that ranks sent and received, all together, in the last " +
        `${steps} steps. A piece is a run of chunks that moved without a ` +
        "pause. self: a rank alone; shm: shared memory; net: between hosts."));
}

/* null: experts stay where they are. */
function putExperts() {
    const moves = summary.expert_moves;
    if (moves === null || moves.length === 0) {
        return;
    }
    section("Experts that moved", table("experts", ["behind step", "experts",
        "bytes", "busiest rank / mean, before", "planned", "after",
        "step, ms, before", "after"],
    moves.map((one) => [one.step, one.experts, bytes(one.bytes),
        fixed(one.before.ratio, 3), fixed(one.ratio_planned, 3),
        fixed(one.after.ratio, 3), fixed(one.before.step_ms, 2),
        fixed(one.after.step_ms, 2)])),
    note("Before: the steps since the placement before; after: those up to " +
        "the next one, or the run's end. Ratios are of the layer where they " +
        "are worst, and planned is that of the loads before with experts as " +
        "they were placed then. Steps are rank 0's, in the mean."));
}

function putMachine() {
    if (facts.machine !== null) {
        section("Machine and routes", html("pre", {}, facts.machine));
    }
}

function putSettings() {
    const whence = (line) => line > 0 ? "line " + line
        : line < 0 ? "--set" : "default";
    const keys = (id, rows) => table(id, ["key", "<value", "<from"], rows.map(
        (one) => [one.section + "." + one.key, Array.isArray(one.value)
            ? one.value.join(", ") : one.value, whence(one.line)]));
    const given = facts.settings.filter((one) => one.line !== 0);
    const left = facts.settings.filter((one) => one.line === 0);
    section("Settings", keys("given", given),
        facts.environment.length === 0 ? null
            : table("environment", ["environment of rank 0", "<value", "<"],
                facts.environment.map(
                    (one) => [one.name, one.value, one.meaning])),
        details("Keys left at their defaults",
            keys("defaults", left)));
}

function putMeaning() {
    section("How to read this", html("dl", {}, [
        ["compute", "time in which this rank computes"],
        ["exposed", "data move for it and nothing computes; by what they " +
            "move for: tp, cp, ep, pp, dp, mem, each without those before it"],
        ["bubble", "it waits for a pipeline message and nothing moves"],
        ["skew", "it waits for a rank that is late to a collective"],
        ["idle", "nothing of this: loading, saving, the time between"],
        ["hidden", "share of the transfer time under compute; how much that " +
            "saves, --measure shows"]].map(([name, meaning]) =>
        [html("dt", {}, name), html("dd", {}, meaning)])),
    facts.trace.error !== null ? null
        : say("The last steps, operation by operation, are in ",
            html("code", {}, facts.trace.file), " beside this page, for " +
            "Perfetto or chrome://tracing."));
}

for (const put of [putHead, putTiles, putWarnings, putLoss, putBreakdown,
    putSchedule, putTrials, putOverlap, putMeasured, putThroughput, putRanks,
    putExperts, putTraffic, putMachine, putSettings, putMeaning]) {
    put();
}
