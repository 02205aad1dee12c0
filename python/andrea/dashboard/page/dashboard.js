// The page: asks for what is in sight, at the pixels there are, and draws it again when a run writes.
"use strict";

(() => {
  const { $, h, number, whole, brief, percent, bytes, duration, clock } = Elements;
  const state = {
    runs: new Map(), order: [], hidden: new Set(), axis: "step", smooth: null, logX: false, logY: false, replaced: false,
    view: null, visible: new Set(), dirty: new Set(), chosen: {}, isolated: new Set(), samples: new Map(), sampleAt: new Map(), followSample: true,
  };
  const embedded = $("data") ? JSON.parse($("data").textContent) : null;

  // ---- where the data comes from: a server, or what is written into this file

  async function ask(path, params) {
    const answer = await fetch("api/" + path + (params ? "?" + new URLSearchParams(params) : ""), { cache: "no-store" });
    if (!answer.ok) throw new Error(path + ": " + answer.status);
    return answer.json();
  }
  const source = embedded ? {
    series: async (id) => embedded.runs[id].series,
    sources: async (id) => embedded.runs[id].sources,
    events: async (id) => embedded.runs[id].events,
    samples: async (id) => embedded.runs[id].samples,
    sample: async (id, n) => ({ text: embedded.runs[id].texts[n] }),
    config: async (id) => embedded.runs[id].config,
    machine: async () => ({ samples: [], now: 0 }),
  } : {
    series: (id, params) => ask(`runs/${id}/series`, params),
    sources: (id, params) => ask(`runs/${id}/sources`, params),
    events: (id, params) => ask(`runs/${id}/events`, params),
    samples: (id) => ask(`runs/${id}/samples`),
    sample: (id, n) => ask(`runs/${id}/samples/${n}`),
    config: (id) => ask(`runs/${id}/config`),
    machine: () => ask("machine"),
  };

  // ---- small things

  const shown = () => state.order.filter((id) => !state.hidden.has(id) && state.runs.has(id));
  const hue = (id) => Charts.colour(state.order.indexOf(id));
  const label = (run) => {
    // Of runs of one name, as much of the end of the path as tells them apart.
    const path = (one) => one.directory.split("/"), end = (one, count) => path(one).slice(-count).join("/");
    const twins = state.order.map((id) => state.runs.get(id)).filter((one) => one !== run && one.name === run.name);
    if (!twins.length) return run.name;
    let count = 1;
    while (count < path(run).length && twins.some((one) => end(one, count) === end(run, count))) count++;
    return run.name + " · " + end(run, count);
  };
  const remember = (key, value) => { try { localStorage.setItem("andrea-" + key, value); } catch { /* a file may not */ } };
  const recall = (key) => { try { return localStorage.getItem("andrea-" + key); } catch { return null; } };

  // ---- runs at one glance

  const WORDS = { running: "running", finished: "finished", stopped: "stopped, saved", gate: "stopped by the gate", failed: "failed", dead: "dead", silent: "silent", gone: "gone", unknown: "" };

  function figure(name, value, title) { return h("div", { title }, h("dt", {}, name), h("dd", {}, value)); }

  function card(run) {
    const on = !state.hidden.has(run.id);
    const levels = run.levels;
    const learned = run.smma === null ? "" : levels.below_frequencies !== null ? "uses context since step " + whole(levels.below_frequencies)
      : levels.below_nothing !== null ? "learning frequencies since step " + whole(levels.below_nothing) : levels.nothing ? "still above ln V" : "";
    const words = run.loading ? "reading " + bytes(run.behind) : WORDS[run.state] ?? run.state;
    const why = run.state === "dead" ? "Its process is gone and did not say why. --resume goes on from the last checkpoint."
      : run.state === "gone" ? "Its files were removed or moved."
      : run.state === "silent" ? "Nothing was written since " + clock(run.newest) + "." : ["failed", "gate"].includes(run.state) ? run.why : "";
    return h("article", { class: "run", "data-shown": on, "data-run": run.id },
      h("div", { class: "top" }, h("span", { class: "swatch", style: { background: hue(run.id) } }),
        h("button", { class: "name", type: "button", "aria-pressed": on, title: "Show or hide", onclick: () => toggleRun(run.id) }, run.name),
        h("span", { class: "pill", "data-state": run.state }, words)),
      h("div", { class: "where", title: run.directory }, run.directory + (run.n_params ? "  ·  " + whole(run.n_params) + " parameters" : "")),
      h("div", { class: "main" }, h("b", {}, number(run.smma, 3)), h("span", {}, learned)),
      h("div", { class: "bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": run.steps || 0, "aria-valuenow": run.step, "aria-label": "Steps" },
        h("i", { style: { width: (run.steps ? Math.min(100, 100 * run.step / run.steps) : 0) + "%", background: hue(run.id) } })),
      h("dl", { class: "figures" },
        figure("step", whole(run.step) + (run.steps ? " / " + whole(run.steps) : "")), figure("loss", number(run.loss)),
        figure("perplexity", run.smma === null ? "–" : brief(Math.exp(run.smma)), "exp of the smoothed loss"),
        figure("bits/byte", number(run.bits_per_byte, 3), "held-out text, mean over sources"),
        figure("tokens/s", whole(run.tokens_per_second)), figure(run.state === "running" ? "left" : "LR", run.state === "running" ? duration(run.seconds_left) : brief(run.lr)),
        figure("grad norm", brief(run.grad_norm)), figure("skipped", whole(run.skipped))),
      run.state === "stopped" && run.steps ? h("p", { class: "why" }, `Stopped at step ${whole(run.step)} of ${whole(run.steps)}; --resume goes on.`) : null,
      run.damaged ? h("p", { class: "why" }, `${whole(run.damaged)} lines of its files are cut or damaged and were left out.`) : null,
      why ? h("p", { class: "why bad" }, why) : null);
  }

  function drawCards() {
    if (!state.order.length) return;
    const focused = document.activeElement?.closest?.(".run")?.dataset.run;
    $("runs").replaceChildren(...state.order.map((id) => card(state.runs.get(id))));
    if (focused) $("runs").querySelector(`[data-run="${CSS.escape(focused)}"] .name`)?.focus();
    const ids = shown();
    document.title = ids.length ? `${number(state.runs.get(ids[0]).smma, 3)} ${state.runs.get(ids[0]).name}` : "andrea";
    for (const select of document.querySelectorAll(".run-select")) {
      const wanted = state.order.map((id) => id + label(state.runs.get(id))).join("\n");
      if (select.dataset.runs !== wanted) {
        select.dataset.runs = wanted;
        select.replaceChildren(...state.order.map((id) => h("option", { value: id }, label(state.runs.get(id)))));
        if (state.chosen[select.id]) select.value = state.chosen[select.id];
      }
      select.closest("label").hidden = state.order.length < 2;
    }
  }
  const chosen = (select) => state.chosen[select] && state.runs.has(state.chosen[select]) ? state.chosen[select] : state.order[0];
  function toggleRun(id) {
    state.hidden.has(id) ? state.hidden.delete(id) : state.hidden.add(id);
    drawCards();
    refresh("loss", "steps");
  }

  // ---- charts over steps

  const AXES = {
    step: { title: "step", format: ",d", tick: "whole", text: (x) => "step " + whole(x - (state.logX ? 1 : 0)) },
    time: { title: "hours of training", format: ".3f", tick: "", text: (x) => x.toFixed(3) + " h" },
    tokens: { title: "tokens", format: ".4s", tick: "si", text: (x) => Frame.text(Number(x.toPrecision(4)), 1, "si") + " tokens" },
  };
  const shift = (xs) => state.logX && state.axis === "step" ? xs.map((x) => x === null ? null : x + 1) : xs; // step 0 has no logarithm
  const options = (more = {}) => ({
    xFormat: AXES[state.axis].format, xTick: AXES[state.axis].tick, xText: AXES[state.axis].text, logX: state.logX,
    range: state.view && (state.logX ? state.view.map((x) => Math.log10(Math.max(x, 1e-6))) : state.view), ...more,
  });
  function zoom(low, high) {
    if (low === null) state.view = null;
    else state.view = [low, high].map((x) => state.logX ? 10 ** x : x);
    $("reset").disabled = !state.view;
    refresh("loss", "steps", "sources");
  }
  function asked(names, pixels) {
    const params = { names, axis: state.axis, buckets: Math.max(200, Math.round(pixels)) };
    if (state.view) [params.low, params.high] = state.view;
    if (state.logX) params.log = 1;
    if (state.smooth) params.smooth = state.smooth;
    return params;
  }
  const each = async (ids, get) => new Map((await Promise.all(ids.map(async (id) => [id, await get(id)]))));

  const MARKS = {
    checkpoint: ["circle", "--soft", 5, "checkpoint"], resume: ["triangle-right", "--accent", 9, "resume"], signal: ["diamond", "--wait", 9, "signal"],
    skip: ["x-thin-open", "--bad", 9, "skipped"], warning: ["triangle-up", "--wait", 9, "warning"], gate: ["square", "--bad", 9, "gate"],
    polish: ["star", "--accent", 10, "polish"], end: ["line-ns-open", "--soft", 10, "end of a process"], error: ["x", "--bad", 9, "error"],
  };
  const markOf = (event) => event.kind === "end" && event.code === 70 ? "error" : event.kind;

  async function drawLoss() {
    const ids = shown(), place = $("chart-loss"), width = place.clientWidth;
    const names = "loss,smma" + (state.replaced ? ",replaced" : "");
    const [series, events, sources] = await Promise.all([
      each(ids, (id) => source.series(id, asked(names, width))), each(ids, (id) => source.events(id, { axis: state.axis })),
      state.axis === "step" ? each(ids, (id) => source.sources(id, { buckets: 2 })) : new Map()]);
    const raw = [], traces = [], strength = ids.length > 4 ? 0.12 : 0.3, kinds = new Set(), uprights = [];
    ids.forEach((id, lane) => {
      const run = state.runs.get(id), all = series.get(id), name = label(run);
      if (!run || !all) return;
      raw.push(Charts.line({ x: shift(all.loss.x), y: all.loss.y }, name, Charts.faint(hue(id), strength), { line: { width: 1 }, trace: { hoverinfo: "skip", hovertemplate: null } }));
      if (state.replaced && all.replaced) traces.push(Charts.line({ x: shift(all.replaced.x), y: all.replaced.y }, name + ", superseded", Charts.css("--soft"), { line: { width: 1, dash: "dot" } }));
      traces.push(Charts.line({ x: shift(all.smma.x), y: all.smma.y }, name, hue(id), { line: { width: 2.2, dash: Charts.dash(state.order.indexOf(id)) } }));
      const evals = (sources.get(id)?.evals || []).map((e) => [e.step, Object.values(e.sources).map((s) => s.loss)]);
      if (evals.length) traces.push({ mode: "markers", name: Charts.short(name + ", held-out"), x: shift(evals.map((e) => e[0])), y: evals.map((e) => e[1].reduce((a, b) => a + b, 0) / e[1].length), hovertemplate: "%{y:.4f}", marker: { symbol: "diamond-open", size: 6, color: hue(id), line: { width: 1.3 } } });
      const marked = (events.get(id)?.events || []).filter((e) => Object.hasOwn(MARKS, markOf(e)));
      marked.forEach((e) => kinds.add(markOf(e)));
      if (marked.length) traces.push({ mode: "markers", yaxis: "y2", name: "", x: shift(marked.map((e) => e.x)), y: marked.map(() => -lane), text: marked.map((e) => Charts.short(e.kind + ": " + e.message, 110)),
        hovertemplate: "%{text}<extra></extra>", marker: { symbol: marked.map((e) => MARKS[markOf(e)][0]), size: marked.map((e) => MARKS[markOf(e)][2]), color: marked.map((e) => markOf(e) === "checkpoint" ? hue(id) : Charts.css(MARKS[markOf(e)][1])), line: { width: 1.5, color: marked.map((e) => Charts.css(MARKS[markOf(e)][1])) }, opacity: 0.9 } });
    });
    const levels = new Map();
    for (const id of ids) {
      const { nothing, frequencies } = state.runs.get(id).levels;
      if (nothing) levels.set(nothing.toFixed(3), `knowing nothing, ln V = ${nothing.toFixed(3)}`);
      if (frequencies) levels.set(frequencies.toFixed(2), `knowing the frequencies, ${frequencies.toFixed(2)}`);
    }
    if (ids.length === 1 && state.axis === "step" && !state.view) {
      const { warmup, step } = state.runs.get(ids[0]);
      if (warmup > 0 && warmup < step) uprights.push({ x: warmup, text: "end of LR warm-up" });
    }
    // Below the curves a lane for the marks of each run.
    const lanes = Math.max(1, ids.length), low = Math.min(0.4, 0.05 + 0.035 * lanes);
    Charts.draw("loss", [...raw, ...traces], options({
      logY: state.logY, uprights, levels: [...levels].map(([value, text]) => ({ value: Number(value), text })), yTitle: "nats a token",
      ...(kinds.size ? { yaxis: { domain: [low + 0.04, 1] }, y2: { domain: [0, low], range: [-lanes + 0.4, 0.6], hideTicks: true } } : {}),
    }), zoom);
    $("marks").replaceChildren(...[...kinds].map((kind) => h("li", {}, { checkpoint: "●", resume: "▶", signal: "◆", skip: "×", warning: "▲", gate: "■", polish: "★", end: "|", error: "✕" }[kind] + " " + MARKS[kind][3])));
    const smooth = ids.length ? state.smooth || state.runs.get(ids[0]).smma_steps : null;
    $("loss-note").textContent = smooth ? `by ${AXES[state.axis].title}, smoothed over ${whole(smooth)} steps` + (ids.some((id) => state.runs.get(id).replaced) && !state.replaced ? "; a resume made some steps again" : "") : "";
  }

  async function drawSteps() {
    const ids = shown(), width = $("chart-lr").clientWidth;
    const series = await each(ids, (id) => source.series(id, asked("grad_norm,lr,rate,loss_scale,skips", width)));
    const curves = (name, hover, more = {}) => ids.map((id) => Charts.line({ x: shift(series.get(id)[name].x), y: series.get(id)[name].y }, label(state.runs.get(id)), hue(id), { hover, line: { width: 1.4, ...more } }));
    Charts.draw("grad_norm", curves("grad_norm", "%{y:.3g}"), options({ logY: true }), zoom);
    Charts.draw("lr", curves("lr", "%{y:.3g}"), options({ yaxis: { toZero: true } }), zoom);
    Charts.draw("rate", curves("rate", "%{y:,.0f}"), options({ yaxis: { toZero: true, tick: "si" } }), zoom);
    const total = ids.reduce((sum, id) => sum + state.runs.get(id).skipped, 0);
    const skipped = ids.map((id) => Charts.line({ x: shift(series.get(id).skips.x), y: series.get(id).skips.y }, label(state.runs.get(id)) + ", skipped", hue(id), { hover: "%{y:,d} skipped", line: { dash: "dot", width: 1.4, shape: "hv" }, trace: { yaxis: "y2" } }));
    const scales = curves("loss_scale", "scale %{y:,d}", { shape: "hv" });
    Charts.draw("loss_scale", total ? [...scales, ...skipped] : scales, options({ logY: true, yaxis: { tick: "whole", hideTicks: scales.every((trace) => !trace.x.length) }, margin: total ? { l: 62, r: 44 } : { l: 62 }, ...(total ? { y2: { right: true, toZero: true, tick: "whole" } } : {}) }), zoom);
    $("skips-note").textContent = total ? whole(total) + " skipped (dotted)" : "none skipped";
  }

  // ---- sources

  const MOST_SOURCES = 24; // more curves than that tell nothing
  async function drawSources() {
    const id = chosen("sources-run");
    if (!id) return;
    const params = { buckets: Math.round($("chart-source_loss").clientWidth / 3) };
    if (state.view && state.axis === "step") [params.low, params.high] = state.view;
    if (state.logX) params.log = 1;
    const data = await source.sources(id, params);
    const names = data.sources;
    const wanted = (k) => state.isolated.size ? state.isolated.has(names[k]) : k < MOST_SOURCES;
    const here = { xFormat: ",d", xText: AXES.step.text, logX: state.logX, range: state.axis === "step" ? options().range : null };
    const xs = state.logX ? data.step.map((x) => x + 1) : data.step;
    const lines = (rows, x, hover, more = {}) => names.map((name, k) => wanted(k) && rows[k] ? Charts.line({ x, y: rows[k] }, name, Charts.colour(k), { hover, line: { width: 1.6, dash: Charts.dash(k), ...more }, trace: { connectgaps: true } }) : null).filter(Boolean);
    const zoomHere = state.axis === "step" ? zoom : null;
    Charts.draw("source_loss", lines(data.loss, xs, "%{y:.4f}"), { ...here }, zoomHere);
    const which = $("figure").value;
    if (which === "drawn") {
      const asked = lines(data.weight, xs, "asked %{y:.1%}", { dash: "dot", width: 1.2, shape: "hv" });
      const floors = data.table.filter((row) => row.floor_share > 0 && state.isolated.has(row.source)).map((row) => ({ value: row.floor_share, text: "floor", colour: Charts.colour(names.indexOf(row.source)) }));
      Charts.draw("source_figure", [...lines(data.drawn, xs, "drawn %{y:.1%}"), ...asked], { ...here, levels: floors, yaxis: { tick: "percent", toZero: true } }, zoomHere);
    } else if (which === "focus") {
      const { traces, more } = focusMap(data, xs, names);
      Charts.draw("source_figure", traces, { ...here, ...more, plotlyOnly: true, hovermode: "closest" }, zoomHere);
    } else {
      const arms = data.arms[which], x = state.logX ? arms.step.map((v) => v + 1) : arms.step;
      Charts.draw("source_figure", lines(arms[which], x, which === "coverage" ? "%{y:.1%}" : "%{y:.4g}", { shape: "hv" }), { ...here, yaxis: { tick: which === "coverage" ? "percent" : "", toZero: true } }, zoomHere);
    }
    const run = state.runs.get(id), phase = run.phase;
    $("phase-note").textContent = !phase ? "" : phase.focus.length || phase.dice ? `steps ${whole(phase.step)} to ${whole(phase.step + phase.steps - 1)}: rolled ${phase.roll} with ${phase.dice}${phase.warm_up ? ", warm-up" : ""}` : "policy " + phase.policy;
    if (names.length > MOST_SOURCES && !state.isolated.size) $("phase-note").textContent += ` (curves of ${MOST_SOURCES} of ${names.length} sources: choose others in the table)`;
    drawTable(data, names);
  }

  // Which source was asked for when, as a map; dots where the dice fell for it.
  function focusMap(data, xs, names) {
    const n = names.length, row = new Map(names.map((name, k) => [name, n - 1 - k])), rolls = data.dice.flatMap((d) => d.focus.filter((name) => row.has(name)).map((name) => [d, name]));
    const labelled = names.map((name, k) => k).filter((k) => k % Math.ceil(n / 14) === 0);
    return {
      traces: [
        { type: "heatmap", name: "asked for", x: xs, y: names.map((_, k) => k), z: [...data.weight].reverse(), customdata: [...names].reverse().map((name) => xs.map(() => Charts.plain(Charts.short(name)))), colorscale: [[0, Charts.css("--grid")], [1, Charts.colour(0)]], zmin: 0, showscale: false, hovertemplate: "%{customdata}<br>asked for %{z:.1%}<extra></extra>", xgap: 0, ygap: n > 40 ? 0 : 3 },
        { mode: "markers", name: "in focus", x: rolls.map(([d]) => d.step + d.steps / 2 + (state.logX ? 1 : 0)), y: rolls.map(([, name]) => row.get(name)), text: rolls.map(([d]) => `steps ${d.step} to ${d.step + d.steps - 1}\nrolled ${d.roll} with ${d.dice}`), hovertemplate: "%{text}<extra>in focus</extra>", marker: { size: rolls.length > 120 || n > 40 ? 3 : 6, color: Charts.css("--ink"), symbol: "circle" } },
      ],
      more: { margin: { l: 116 }, yaxis: { range: [-0.6, n - 0.4] }, plotlyY: { showgrid: false, tickvals: labelled.map((k) => n - 1 - k), ticktext: labelled.map((k) => Charts.plain(Charts.short(names[k], 16))), tickfont: { size: 11, color: Charts.css("--soft") } } },
    };
  }

  function drawTable(data, names) {
    const has = (key) => data.table.some((row) => row[key] !== undefined && row[key] !== null);
    const columns = [["loss", "loss", number], ["drawn", "drawn", percent], ["weight", "asked for", percent], ["floor_share", "floor", (x) => x ? percent(x) : "–"], ["relative", "weight", (x) => number(x, 3)], ["mean_reward", "mean reward", (x) => number(x, 1)], ["epochs", "epochs", (x) => number(x, 2)], ["coverage", "coverage", percent], ["pulls", "pulls", whole]].filter(([key]) => has(key));
    const table = $("sources-table");
    table.tHead.replaceChildren(h("tr", {}, h("th", { scope: "col" }, "source"), ...columns.map(([, title]) => h("th", { scope: "col" }, title))));
    const focused = table.contains(document.activeElement) ? document.activeElement.textContent : null;
    table.tBodies[0].replaceChildren(...data.table.map((row) => {
      const k = names.indexOf(row.source), alone = state.isolated.has(row.source);
      const button = h("button", { type: "button", "aria-pressed": alone, title: "Draw only what is chosen", onclick: () => { alone ? state.isolated.delete(row.source) : state.isolated.add(row.source); refresh("sources"); } }, row.source);
      return h("tr", { class: row.focus ? "focus" : "" }, h("td", {}, h("span", { class: "swatch", style: { background: Charts.colour(k) } }), button), ...columns.map(([key, , form]) => h("td", {}, form(row[key]))));
    }));
    if (focused) [...table.querySelectorAll("button")].find((b) => b.textContent === focused)?.focus();
  }

  // ---- samples

  async function drawSamples() {
    const id = chosen("samples-run");
    if (!id) return;
    const list = (await source.samples(id)).samples;
    state.samples.set(id, list);
    const slider = $("sample");
    const at = state.followSample || !state.sampleAt.has(id) ? list.length - 1 : Math.min(state.sampleAt.get(id), list.length - 1);
    slider.max = Math.max(0, list.length - 1);
    slider.value = at;
    slider.disabled = list.length < 2;
    $("section-samples").hidden = list.length === 0;
    if (!list.length) return;
    const scored = list.filter((s) => s.score !== null);
    Charts.draw("coherence", [{ mode: "lines+markers", x: scored.map((s) => s.step), y: scored.map((s) => s.score), name: "coherence", line: { color: hue(id), width: 1.4 }, marker: { size: 4, color: hue(id) }, hovertemplate: "%{y:.1f}" }],
      { yaxis: { range: [0, 102] }, uprights: [{ x: list[at].step }], xText: (x) => "step " + whole(x) });
    await showSample(id, at);
  }
  async function showSample(id, at) {
    const item = state.samples.get(id)?.[at];
    if (!item) return;
    state.sampleAt.set(id, at);
    const { text } = await source.sample(id, at);
    if (state.sampleAt.get(id) !== at) return; // the slider has moved on
    const starts = item.prompt && text.startsWith(item.prompt);
    $("sample-text").replaceChildren(...(starts ? [h("span", { class: "prompt" }, item.prompt), text.slice(item.prompt.length)] : [text]));
    $("sample-note").textContent = `step ${whole(item.step)}` + (item.loss === null ? "" : `, loss ${number(item.loss)}`) + `, ${at + 1} of ${state.samples.get(id).length}`;
    const most = { bigrams: 35, trigrams: 35, words: 20, characters: 10 };
    const names = { bigrams: "word pairs", trigrams: "word triples", words: "known words", characters: "characters" };
    const part = (name, value, top) => h("div", { class: "part" }, h("span", {}, name), h("div", { class: "bar" }, h("i", { style: { width: Math.max(0, Math.min(100, 100 * value / top)) + "%" } })), h("span", {}, `${number(value, 1)} / ${top}`));
    $("sample-parts").replaceChildren(...(item.score === null ? [h("p", { class: "note" }, "This sample was not scored.")]
      : [part("coherence", item.score, 100), ...Object.entries(most).filter(([key]) => item.parts[key] !== null).map(([key, top]) => part(names[key], item.parts[key], top))]));
  }
  function stepSample(by) {
    const slider = $("sample");
    slider.value = Number(slider.value) + by;
    slider.dispatchEvent(new Event("input"));
  }

  // ---- machine, events, experiment

  async function drawMachine() {
    Machine.draw(await source.machine(), state.order.map((id) => state.runs.get(id)));
  }
  async function drawEvents() {
    const id = chosen("events-run");
    if (!id) return;
    const list = (await source.events(id, { axis: "step" })).events.filter((e) => e.kind !== "sample").slice(-500).reverse();
    $("events").replaceChildren(...list.map((e) => h("li", { class: ["skip", "gate", "warning"].includes(e.kind) || markOf(e) === "error" ? "bad" : "" },
      h("span", {}, clock(e.time)), h("span", {}, "step " + whole(e.step)), h("b", {}, e.kind), h("p", {}, e.message))));
    if (!list.length) $("events").replaceChildren(h("li", {}, h("p", {}, "No event log: this run was made before there was one.")));
    $("config").textContent = JSON.stringify(await source.config(id), null, 2);
  }

  // ---- drawing again: only what is in sight, never twice at a time

  const DRAW = { loss: drawLoss, steps: drawSteps, sources: drawSources, samples: drawSamples, machine: drawMachine, events: drawEvents };
  const busy = new Set();
  let used = false;
  function refresh(...parts) {
    for (const part of parts.length ? parts : Object.keys(DRAW)) state.dirty.add(part);
    for (const part of [...state.dirty]) if (state.visible.has(part)) run(part);
  }
  async function run(part) {
    if (busy.has(part)) return;
    busy.add(part);
    state.dirty.delete(part);
    const begun = performance.now();
    try {
      await DRAW[part]();
      document.body.dataset["drawn" + part[0].toUpperCase() + part.slice(1)] = String(Number(document.body.dataset["drawn" + part[0].toUpperCase() + part.slice(1)] || 0) + 1);
    } catch (error) {
      if (!(error instanceof TypeError && !embedded && !connected)) console.warn(part, error); // a server that is away is no news
    }
    if (part === "loss" && !used && Charts.drawn("loss")?.traces.some((trace) => trace.x.length)) { used = true; requestAnimationFrame(() => setTimeout(usable, 0)); }
    // A slow chart rests as long as it took, so that the page stays quick.
    setTimeout(() => { busy.delete(part); if (state.dirty.has(part) && state.visible.has(part)) run(part); }, Math.min(2000, Math.max(150, performance.now() - begun)));
  }
  // The first chart is painted, and answers to the pointer.
  function usable() {
    performance.mark("andrea-usable");
    Charts.plotlySoon();
  }
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const part = entry.target.id.replace("section-", "");
      if (entry.isIntersecting) { state.visible.add(part); if (state.dirty.has(part)) run(part); } else state.visible.delete(part);
    }
  }, { rootMargin: "120px" });

  // ---- live

  let connected = false;
  function connection(kind, text) {
    $("connection").dataset.state = kind;
    $("connection").textContent = text;
  }
  function take(summary) {
    if (!state.runs.has(summary.id)) state.order.push(summary.id);
    state.runs.set(summary.id, summary);
  }
  function listen() {
    const stream = new EventSource("api/stream");
    let timer = 0;
    stream.onopen = () => { connected = true; connection("live", "live"); refresh(); };
    stream.onerror = () => { connected = false; connection("lost", "connection lost, trying again"); if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 1000); };
    stream.addEventListener("run", (message) => {
      take(JSON.parse(message.data));
      timer ||= setTimeout(() => { timer = 0; drawCards(); refresh("loss", "steps", "sources", "samples", "events"); }, 30);
    });
  }

  // ---- controls

  function theme(name) {
    document.documentElement.dataset.theme = name;
    $("theme").textContent = name === "dark" ? "light" : "dark";
    drawCards();
    refresh();
  }
  function flip(key, id) {
    state[key] = !state[key];
    $(id).setAttribute("aria-pressed", state[key]);
    if (key === "logX") zoom(null); else refresh("loss", "steps", "sources");
  }
  function smoothing() {
    const value = Number($("smooth").value);
    state.smooth = value === 0 ? null : Math.round(10 ** value);
    $("smooth-shown").textContent = value === 0 ? "as trained" : whole(state.smooth) + " steps";
    refresh("loss");
  }
  function extent() {
    const trace = Charts.drawn("loss")?.traces.find((t) => t.x.length);
    return trace ? [trace.x[0], trace.x[trace.x.length - 1]] : null;
  }
  function move(shiftBy, factor) {
    const view = state.view || extent();
    if (!view) return;
    const [low, high] = view.map((v) => state.logX ? Math.log10(Math.max(v, 1e-6)) : v);
    const middle = (low + high) / 2 + shiftBy * (high - low), half = (high - low) / 2 * factor;
    zoom(middle - half, middle + half);
  }

  $("axis").onchange = () => { state.axis = $("axis").value; zoom(null); };
  $("smooth").oninput = smoothing;
  $("log-x").onclick = () => flip("logX", "log-x");
  $("log-y").onclick = () => flip("logY", "log-y");
  $("replaced").onclick = () => flip("replaced", "replaced");
  $("reset").onclick = () => zoom(null);
  const switchTheme = () => { const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; remember("theme", name); theme(name); };
  $("theme").onclick = switchTheme;
  $("help").onclick = () => $("keys").showModal();
  $("figure").onchange = () => refresh("sources");
  $("sample").oninput = () => {
    const id = chosen("samples-run"), at = Number($("sample").value);
    state.followSample = at === Number($("sample").max);
    state.sampleAt.set(id, at);
    showSample(id, at).catch(() => {});
    state.dirty.add("samples");
  };
  for (const select of document.querySelectorAll(".run-select")) select.onchange = () => { state.chosen[select.id] = select.value; state.isolated.clear(); refresh("sources", "samples", "events"); };
  for (const tools of document.querySelectorAll(".tools")) {
    const chart = tools.dataset.chart, title = () => { const of = tools.parentElement.querySelector("h2, h3"); return of.querySelector("select")?.selectedOptions[0].textContent || of.textContent; };
    tools.append(h("button", { type: "button", "aria-label": "Save as PNG: " + chart, onclick: () => Charts.save(chart, title(), "andrea-" + chart) }, "PNG"),
      h("button", { type: "button", "aria-label": "Save as CSV: " + chart, onclick: () => saveCsv(chart) }, "CSV"));
  }
  function saveCsv(chart) {
    // Every step, from the server; what has no such column, and a page without a server, gives what is drawn.
    if (!embedded && ["loss", "grad_norm", "lr", "rate", "loss_scale"].includes(chart)) {
      for (const id of shown()) Charts.download(`api/runs/${id}/csv`, "andrea-" + state.runs.get(id).name + ".csv");
      return;
    }
    const cell = (x) => x === null || x === undefined ? "" : typeof x === "number" ? String(x) : '"' + String(x).replace(/^[=+@-]/, "'$&").replace(/"/g, '""') + '"';
    const lines = ["curve,x,y"];
    for (const trace of Charts.drawn(chart).traces) if (trace.type !== "heatmap") trace.x.forEach((x, i) => lines.push([trace.name, x, trace.y[i]].map(cell).join(",")));
    const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    Charts.download(url, "andrea-" + chart + ".csv");
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open || ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
    const keys = {
      d: switchTheme, x: () => flip("logX", "log-x"), y: () => flip("logY", "log-y"), s: () => flip("replaced", "replaced"), r: () => zoom(null), "?": () => $("keys").showModal(),
      ArrowLeft: () => move(-0.2, 1), ArrowRight: () => move(0.2, 1), "+": () => move(0, 0.6), "-": () => move(0, 1 / 0.6), j: () => stepSample(1), k: () => stepSample(-1),
    };
    const action = keys[event.key] || (/^[1-9]$/.test(event.key) && state.order[event.key - 1] && (() => toggleRun(state.order[event.key - 1])));
    if (action) { event.preventDefault(); action(); }
  });

  // ---- begin

  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  preferred.addEventListener("change", (change) => { if (!recall("theme")) theme(change.matches ? "dark" : "light"); });
  theme(recall("theme") || (preferred.matches ? "dark" : "light"));
  function begin() {
    for (const part of Object.keys(DRAW)) { state.dirty.add(part); observer.observe($("section-" + part)); }
    if (embedded) {
      embedded.order.forEach((id) => take(embedded.runs[id].summary));
      connection("file", "as of " + clock(embedded.time));
      for (const id of ["axis", "smooth"]) $(id).closest("label").hidden = true;
      $("log-x").hidden = false;
      drawCards();
      refresh();
      return;
    }
    listen();
    setInterval(() => { if (connected) refresh("machine"); }, 2000);
    let width = window.innerWidth;
    window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; refresh("loss", "steps", "sources"); } });
  }
  begin();
})();
