// Drawing: palettes, and one call a chart. A canvas draws at once; Plotly takes over when it has been read.
"use strict";

const Charts = (() => {
  // Okabe and Ito's colours; on dark paper their lighter relatives. Told apart with any kind of colour vision.
  const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b38600", "#56b4e9", "#5b5b5b", "#7a3e9d"];
  const DARK = ["#56b4e9", "#ff8a4c", "#2fcf9f", "#ea9ac6", "#f0c63c", "#8fb8ff", "#c3c7cc", "#c69bea"];
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const dark = () => document.documentElement.dataset.theme === "dark";
  const colour = (i) => (dark() ? DARK : LIGHT)[i % LIGHT.length];
  const dash = (i) => DASHES[Math.floor(i / LIGHT.length) % DASHES.length];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads a few tags in names and hover texts: what a run says has none.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\n/g, "<br>");
  const short = (text, most = 48) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const faint = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  const drawn = new Map(); // by id: what was drawn last
  const listening = new WeakSet();

  // ---- Plotly

  function layout(options, frame) {
    const soft = css("--soft"), small = { size: 11, color: soft };
    const axis = { gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, tickfont: { color: soft, size: 11.5 }, automargin: false };
    const placed = ({ range, ticks, log }) => ({ range, autorange: false, type: log ? "log" : "linear", tickmode: "array", tickvals: ticks.map((t) => (log ? 10 ** t.at : t.at)), ticktext: ticks.map((t) => t.text) });
    const up = Frame.unit(options.logY), along = Frame.unit(options.logX);
    const levels = (options.levels || []).filter((level) => up(level.value) >= frame.y.range[0] && up(level.value) <= frame.y.range[1]);
    const line = (hex, dashed) => ({ color: hex, width: 1, dash: dashed });
    const note = (more) => ({ showarrow: false, font: small, ...more });
    return {
      margin: frame.margin, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: options.hovermode || "x unified", dragmode: "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 } },
      xaxis: { ...axis, showgrid: false, ticks: "outside", ticklen: 4, tickcolor: css("--line"), hoverformat: options.xFormat || ",d", ...placed(frame.x), anchor: "free", position: 0, spikecolor: css("--soft"), spikethickness: 1, spikedash: "solid" },
      yaxis: { ...axis, showline: false, fixedrange: true, ...placed(frame.y), domain: frame.y.domain, title: options.yTitle ? { text: options.yTitle, font: { size: 11.5, color: soft }, standoff: 8 } : undefined, ...(options.plotlyY || {}) },
      ...(frame.y2 ? { yaxis2: { ...axis, showline: false, showgrid: false, fixedrange: true, ...placed(frame.y2), ...(options.y2.right ? { side: "right", overlaying: "y" } : { domain: frame.y2.domain }) } } : {}),
      shapes: [...levels.map((level) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: level.value, y1: level.value, line: line(level.colour || soft, "dot"), layer: "below" })),
        ...(options.uprights || []).map(({ x }) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: x, x1: x, line: line(css("--line")), layer: "below" }))],
      annotations: [...levels.filter((level) => level.text).map((level) => note({ xref: "paper", x: 1, xanchor: "right", yref: "y", y: up(level.value), yanchor: "bottom", text: plain(level.text) })),
        ...(options.uprights || []).filter((upright) => upright.text).map((upright) => note({ x: along(upright.x), xanchor: "left", yref: "paper", y: 1, yanchor: "top", text: plain(upright.text) }))],
    };
  }
  const forPlotly = (trace) => ({ type: "scatter", cliponaxis: trace.mode === "lines", ...trace, name: plain(trace.name), ...(trace.text ? { text: trace.text.map(plain) } : {}) });

  function plotlyDraw(place, { traces, options, onZoom }) {
    if (!place.data) place.replaceChildren();
    Plotly.react(place, traces.map(forPlotly), layout(options, Frame.of(place, traces, options)), { displayModeBar: false, responsive: true, doubleClick: false });
    if (listening.has(place)) return;
    listening.add(place);
    const zoom = (low, high) => drawn.get(place.id.slice(6))?.onZoom?.(low, high);
    place.on("plotly_relayout", (change) => {
      const low = change["xaxis.range[0]"], high = change["xaxis.range[1]"];
      if (low !== undefined && high !== undefined) zoom(low, high);
    });
    place.on("plotly_doubleclick", () => zoom(null, null));
  }

  // Plotly is 5 MB of script: reading it stops the page for half a second. So it waits until nobody has pointed or
  // typed for a while, unless a chart needs it. The promise is fulfilled when all charts are Plotly's.
  const QUIET = 1000;
  let touched = 0, asked = null;
  for (const kind of ["pointermove", "pointerdown", "keydown", "wheel"]) addEventListener(kind, () => { touched = performance.now(); }, { passive: true, capture: true });
  function plotlyNow() {
    asked ||= new Promise((done) => {
      if (window.Plotly) { done(); return; }
      const script = Elements.h("script", { src: document.documentElement.dataset.plotly, onload: () => takeOver([...drawn.keys()], done), onerror: () => { asked = null; setTimeout(plotlySoon, 5000); } });
      document.head.append(script);
    });
    return asked;
  }
  function plotlySoon() {
    touched = performance.now();
    const look = () => { if (performance.now() - touched >= QUIET) plotlyNow(); else setTimeout(look, 250); };
    look();
  }
  // One chart at a time, so that the page stays quick; none under the pointer while it drags.
  function takeOver(ids, done) {
    if (!ids.length) { done(); return; }
    if (CanvasChart.held()) { setTimeout(() => takeOver(ids, done), 100); return; }
    redraw(ids[0]);
    setTimeout(() => takeOver(ids.slice(1), done), 0);
  }

  // ---- one chart

  // `options`: range, logX, logY, levels, uprights, yaxis and y2 (domain, range, toZero, tick), xTick, xText, margin.
  function draw(id, traces, options, onZoom) {
    const place = document.getElementById("chart-" + id);
    if (!place) return;
    drawn.set(id, { traces, options, onZoom });
    redraw(id);
    place.dataset.points = String(traces.reduce((sum, trace) => sum + trace.x.length, 0));
  }
  function redraw(id) {
    const place = document.getElementById("chart-" + id), at = drawn.get(id), empty = at.traces.every((trace) => !trace.x.length);
    place.classList.toggle("empty-chart", empty);
    for (const button of document.querySelectorAll(`[data-chart="${id}"] button`)) button.disabled = empty;
    if (window.Plotly) { plotlyDraw(place, at); place.dataset.drawnBy = "plotly"; return; }
    place.dataset.drawnBy = "canvas";
    if (at.options.plotlyOnly) plotlyNow(); else CanvasChart.draw(place, at.traces, at.options, at.onZoom);
  }

  const line = (series, name, hex, more = {}) => ({
    mode: "lines", x: series.x, y: series.y, name: short(name), connectgaps: false,
    line: { color: hex, width: 1.5, ...(more.line || {}) }, hovertemplate: more.hover || "%{y:.4f}", opacity: more.opacity || 1, ...(more.trace || {}),
  });

  // ---- files

  async function save(id, title, name) {
    await plotlyNow();
    const place = document.getElementById("chart-" + id), { layout } = place;
    const width = Math.max(480, place.clientWidth), names = place.data.filter((trace) => trace.name && trace.hoverinfo !== "skip");
    const legend = names.length > 1 ? { showlegend: true, legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", font: { size: 11.5 } } } : {};
    const data = place.data.map((trace) => ({ ...trace, showlegend: names.includes(trace) }));
    const top = 40 + (names.length > 1 ? 22 * Math.ceil(names.length * 150 / width) : 0);
    const url = await Plotly.toImage({
      data, layout: { ...layout, ...legend, paper_bgcolor: css("--paper"), margin: { ...layout.margin, t: top }, title: { text: plain(title), x: 0, xref: "paper", xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 12 }, font: { size: 15 } } },
    }, { format: "png", width, height: place.clientHeight + top, scale: 2 });
    download(url, name + ".png");
  }

  function download(url, name) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name.replace(/[^\w.-]+/g, "-");
    link.click();
  }

  return { colour, dash, css, plain, short, faint, draw, drawn: (id) => drawn.get(id), line, plotlySoon, save, download };
})();
