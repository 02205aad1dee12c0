// Drawing: palettes, one function a chart, all through Plotly. No text of a run becomes markup here.
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
  // Plotly reads a few tags in names and hover texts: a name has none.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, most = 48) => plain(text.length > most ? text.slice(0, most - 1) + "…" : text);
  const faint = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  const listeners = new WeakSet();

  function layout(options) {
    const soft = css("--soft"), grid = css("--grid");
    const axis = { gridcolor: grid, linecolor: css("--line"), zeroline: false, tickfont: { color: soft, size: 11.5 }, automargin: false };
    return {
      margin: { l: 56, r: 14, t: 6, b: options.xTitle ? 40 : 28 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: options.hovermode || "x unified",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--ink") },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink"), size: 12 } },
      xaxis: { ...axis, showgrid: false, ticks: "outside", ticklen: 4, tickcolor: css("--line"), hoverformat: options.xFormat || ",d",
        type: options.logX ? "log" : "linear", title: options.xTitle ? { text: options.xTitle, font: { size: 11.5, color: soft }, standoff: 6 } : undefined,
        ...(options.range ? { range: options.range, autorange: false } : { autorange: true }), ...(options.xaxis || {}) },
      yaxis: { ...axis, type: options.logY ? "log" : "linear", fixedrange: true, ...(options.yaxis || {}) },
      shapes: options.shapes || [], annotations: options.annotations || [], dragmode: "zoom", ...(options.more ? options.more(axis) : {}),
    };
  }

  // Plotly is 5 MB of script, which a browser reads for a second or two. Until then the lines are there without it.
  function sketch(place, traces, options) {
    const lines = traces.filter((trace) => trace.mode === "lines" && (trace.yaxis || "y") === "y");
    const width = place.clientWidth, height = place.clientHeight, ratio = window.devicePixelRatio || 1;
    const along = options.logX ? Math.log10 : Number, up = options.logY ? Math.log10 : Number;
    const drawn = (x, y) => y !== null && isFinite(x) && isFinite(y) && (!options.range || (x >= options.range[0] && x <= options.range[1]));
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity], points = 0;
    for (const trace of lines) trace.x.forEach((x, i) => {
      const at = along(x), value = trace.y[i] === null ? null : up(trace.y[i]);
      if (!drawn(at, value)) return;
      left = Math.min(left, at); right = Math.max(right, at); low = Math.min(low, value); high = Math.max(high, value); points++;
    });
    const canvas = document.createElement("canvas");
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.width = width + "px"; canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const box = { x: 56, y: 6, w: width - 70, h: height - 34 };
    for (const trace of lines) {
      pen.strokeStyle = trace.line.color; pen.lineWidth = trace.line.width; pen.globalAlpha = trace.opacity;
      pen.beginPath();
      let down = false;
      trace.x.forEach((x, i) => {
        const at = along(x), value = trace.y[i] === null ? null : up(trace.y[i]);
        if (!drawn(at, value)) { down = false; return; }
        const px = box.x + box.w * (at - left) / (right - left || 1), py = box.y + box.h * (1 - (value - low) / (high - low || 1));
        if (down) pen.lineTo(px, py); else pen.moveTo(px, py);
        down = true;
      });
      pen.stroke();
    }
    place.replaceChildren(canvas);
    place.dataset.sketched = String(points);
  }

  const waiting = new Map();

  // Plotly is there: sketches become charts, one at a time, the losses first.
  function finish() {
    const id = waiting.has("loss") ? "loss" : waiting.keys().next().value;
    if (id === undefined) return;
    setTimeout(finish, 0);
    draw(id, ...waiting.get(id));
  }

  function draw(id, traces, options, onZoom) {
    const place = document.getElementById("chart-" + id);
    if (!place) return;
    if (!window.Plotly) { waiting.set(id, [traces, options, onZoom]); sketch(place, traces, options); return; }
    waiting.delete(id);
    if (!place.data) place.replaceChildren();
    Plotly.react(place, traces, layout(options), { displayModeBar: false, responsive: true, doubleClick: false });
    if (!listeners.has(place)) {
      listeners.add(place);
      place.on("plotly_relayout", (change) => {
        const low = change["xaxis.range[0]"], high = change["xaxis.range[1]"];
        if (onZoom && low !== undefined && high !== undefined) onZoom(low, high);
      });
      place.on("plotly_doubleclick", () => { if (onZoom) onZoom(null, null); });
    }
    place.dataset.points = String(traces.reduce((sum, trace) => sum + (trace.x ? trace.x.length : 0), 0));
  }

  const line = (series, name, hex, more = {}) => ({
    type: "scatter", mode: "lines", x: series.x, y: series.y, name: short(name), connectgaps: false,
    line: { color: hex, width: 1.5, ...(more.line || {}) }, hovertemplate: more.hover || "%{y:.4f}", opacity: more.opacity || 1, ...(more.trace || {}),
  });

  function save(id, name) {
    const place = document.getElementById("chart-" + id);
    if (!window.Plotly || !place.data) return;
    const width = place.clientWidth, height = place.clientHeight;
    Plotly.toImage({ data: place.data, layout: { ...place.layout, paper_bgcolor: css("--paper") } }, { format: "png", width, height, scale: 2 })
      .then((url) => download(url, name + ".png"));
  }

  function download(url, name) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name.replace(/[^\w.-]+/g, "-");
    link.click();
  }

  return { colour, dash, css, plain, short, faint, draw, finish, line, save, download };
})();
