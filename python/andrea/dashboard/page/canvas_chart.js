// A chart without Plotly: lines, dots and levels on a canvas, values under the pointer, zoom by dragging, all of it
// by a double click. It is there as soon as the first data; Plotly's chart takes its place when that is read.
"use strict";

const CanvasChart = (() => {
  const { h } = Elements;
  const shown = new WeakMap(); // place: what is drawn there, and the parts it is made of
  let held = null; // the chart that is being dragged over

  // The part of d3's format language that the hover texts use.
  function reading(template, value) {
    return (template || "%{y:.4f}").replace("<extra></extra>", "").replace(/%\{y:(,?)(?:\.(\d+))?([fgd%])\}/, (_, comma, digits, kind) => {
      if (kind === "%") return (100 * value).toFixed(digits || 0) + "%";
      if (kind === "g") return String(Number(value.toPrecision(digits || 6)));
      const places = kind === "d" ? 0 : Number(digits || 0);
      return comma ? value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }) : value.toFixed(places);
    });
  }

  function scales({ box, x, y, y2 }) {
    const upright = (axis) => (v) => box.y + box.h * (1 - axis.domain[0] - (axis.domain[1] - axis.domain[0]) * (v - axis.range[0]) / (axis.range[1] - axis.range[0]));
    return {
      x: (v) => box.x + box.w * (v - x.range[0]) / (x.range[1] - x.range[0]),
      back: (px) => x.range[0] + (px - box.x) / box.w * (x.range[1] - x.range[0]),
      y: upright(y), y2: y2 && upright(y2),
    };
  }

  function paint(pen, { traces, options, frame, to, look }) {
    const { box, width, height } = frame, line = (x0, y0, x1, y1) => { pen.beginPath(); pen.moveTo(x0, y0); pen.lineTo(x1, y1); pen.stroke(); };
    pen.font = "11.5px " + look.font;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    let widest = 0;
    for (const [axis, scale, at, align] of [[frame.y, to.y, box.x - 3, "right"], [frame.y2, to.y2, box.x + box.w + 3, "left"]]) for (const tick of axis?.ticks || []) {
      const y = Math.round(scale(tick.at)) + 0.5;
      pen.strokeStyle = look.grid; pen.fillStyle = look.soft; pen.textAlign = align;
      if (align === "right") line(box.x, y, box.x + box.w, y);
      pen.fillText(tick.text, at, y);
      widest = Math.max(widest, pen.measureText(tick.text).width);
    }
    pen.textAlign = "center"; pen.strokeStyle = look.line;
    line(box.x, box.y + box.h + 0.5, box.x + box.w, box.y + box.h + 0.5);
    for (const tick of frame.x.ticks) {
      const x = Math.round(to.x(tick.at)) + 0.5;
      line(x, box.y + box.h, x, box.y + box.h + 4);
      pen.fillText(tick.text, x, box.y + box.h + 15);
    }
    if (options.yTitle) {
      pen.save(); pen.translate(box.x - 17 - widest, box.y + box.h * (1 - (frame.y.domain[0] + frame.y.domain[1]) / 2)); pen.rotate(-Math.PI / 2); pen.fillText(options.yTitle, 0, 0); pen.restore();
    }
    pen.save();
    pen.beginPath(); pen.rect(box.x, 0, box.w, height); pen.clip();
    const along = Frame.unit(options.logX), up = Frame.unit(options.logY);
    pen.setLineDash([2, 3]); pen.strokeStyle = look.soft;
    for (const level of options.levels || []) {
      const y = to.y(up(level.value));
      if (up(level.value) < frame.y.range[0] || up(level.value) > frame.y.range[1]) continue;
      pen.strokeStyle = level.colour || look.soft;
      line(box.x, y, box.x + box.w, y);
      pen.textAlign = "right"; pen.fillText(level.text || "", box.x + box.w - 3, y - 8);
    }
    pen.setLineDash([]); pen.textAlign = "left";
    for (const upright of options.uprights || []) {
      const x = to.x(along(upright.x));
      pen.strokeStyle = look.line;
      line(x, box.y, x, box.y + box.h);
      pen.fillText(upright.text || "", x + 4, box.y + 8);
    }
    for (const trace of traces) curve(pen, trace, frame, to, along, trace.yaxis === "y2" ? Number : up);
    pen.restore();
  }

  const DASH = { dash: [7, 5], dot: [2, 3], dashdot: [7, 3, 2, 3], longdash: [10, 5] };
  function curve(pen, trace, { box }, to, along, up) {
    const scale = trace.yaxis === "y2" ? to.y2 : to.y, colours = trace.marker?.color;
    const lines = trace.mode.includes("lines"), dots = trace.mode.includes("markers");
    pen.globalAlpha = trace.opacity ?? 1;
    pen.strokeStyle = pen.fillStyle = trace.line?.color || "#888"; pen.lineWidth = trace.line?.width || 1.5; pen.lineJoin = "round";
    pen.setLineDash(DASH[trace.line?.dash] || []);
    pen.beginPath();
    let before = null;
    trace.x.forEach((v, i) => {
      const y = Frame.known(v) && Frame.known(trace.y[i]) ? scale(up(trace.y[i])) : NaN, x = Frame.known(v) ? to.x(along(v)) : NaN;
      if (!isFinite(x) || !isFinite(y)) { if (!trace.connectgaps) before = null; return; }
      if (dots) {
        const radius = (Array.isArray(trace.marker.size) ? trace.marker.size[i] : trace.marker.size) / 2;
        if (x < box.x || x > box.x + box.w) return;
        pen.fillStyle = Array.isArray(colours) ? colours[i] : colours || pen.strokeStyle;
        pen.fillRect(x - radius * 0.7, y - radius * 0.7, 1.4 * radius, 1.4 * radius);
      }
      if (!lines) return;
      if (before === null) pen.moveTo(x, y);
      else { if (trace.line.shape === "hv") pen.lineTo(x, before); pen.lineTo(x, y); }
      before = y;
    });
    if (lines) pen.stroke();
    pen.globalAlpha = 1; pen.setLineDash([]);
  }

  // The index of the point nearest to x in a rising row of places.
  function nearest(xs, x) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (Frame.known(xs[middle]) && xs[middle] < x) low = middle; else high = middle; }
    return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
  }

  function point(at, px) {
    const { traces, options, frame, to, parts } = at, { box } = frame, inside = px >= box.x - 2 && px <= box.x + box.w + 2;
    parts.rule.hidden = parts.readout.hidden = !inside;
    if (!inside) return;
    const value = options.logX ? 10 ** to.back(px) : to.back(px), along = Frame.unit(options.logX), rows = [];
    let shownX = null;
    for (const trace of traces) if (trace.x.length && trace.hoverinfo !== "skip") {
      const i = nearest(trace.x, value), dots = trace.mode === "markers";
      if (!Frame.known(trace.x[i]) || !Frame.known(trace.y[i]) || (dots && Math.abs(to.x(along(trace.x[i])) - px) > 6)) continue;
      if (!dots || shownX === null) shownX ??= trace.x[i];
      const colour = Array.isArray(trace.marker?.color) ? trace.marker.color[i] : trace.line?.color || trace.marker?.color;
      rows.push(h("div", {}, h("i", { style: { background: colour } }), trace.text ? trace.text[i] : (trace.name ? trace.name + ": " : "") + reading(trace.hovertemplate, trace.y[i])));
    }
    parts.rule.style.transform = `translateX(${px}px)`;
    parts.readout.replaceChildren(h("b", {}, shownX === null ? "" : options.xText ? options.xText(shownX) : Elements.whole(shownX)), ...rows.slice(0, 12));
    parts.readout.hidden = !rows.length;
    const left = px > box.x + box.w / 2;
    Object.assign(parts.readout.style, { left: left ? "" : px + 12 + "px", right: left ? frame.width - px + 12 + "px" : "" });
  }

  function select(at, from, to) {
    const { box } = at.frame, left = Math.max(box.x, Math.min(from, to)), right = Math.min(box.x + box.w, Math.max(from, to));
    Object.assign(at.parts.picked.style, { left: left + "px", width: Math.max(0, right - left) + "px", top: box.y + "px", height: box.h + "px" });
    return [left, right];
  }

  function build(place) {
    const parts = { canvas: h("canvas", {}), picked: h("div", { class: "picked", hidden: "" }), rule: h("div", { class: "rule", hidden: "" }), readout: h("div", { class: "readout", hidden: "" }) };
    const whole = h("div", { class: "canvas-chart" }, ...Object.values(parts));
    const here = (event) => event.clientX - whole.getBoundingClientRect().left;
    const end = () => { parts.picked.hidden = true; held = null; };
    whole.addEventListener("pointermove", (event) => {
      const at = shown.get(place), px = here(event);
      if (held?.place === place) select(at, held.from, px); else point(at, px);
    });
    whole.addEventListener("pointerleave", () => { if (!held) parts.rule.hidden = parts.readout.hidden = true; });
    whole.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || !shown.get(place).onZoom) return;
      whole.setPointerCapture(event.pointerId);
      held = { place, from: here(event) };
      parts.rule.hidden = parts.readout.hidden = true;
      select(shown.get(place), held.from, held.from);
      parts.picked.hidden = false;
    });
    whole.addEventListener("pointerup", (event) => {
      if (held?.place !== place) return;
      const at = shown.get(place), [left, right] = select(at, held.from, here(event)), range = [at.to.back(left), at.to.back(right)];
      end();
      if (right - left < 5) return;
      draw(place, at.traces, { ...at.options, range }, at.onZoom); // what is there already, until the server answers
      at.onZoom(...range);
    });
    whole.addEventListener("pointercancel", end);
    whole.addEventListener("dblclick", () => { const { onZoom } = shown.get(place); if (onZoom) onZoom(null, null); });
    place.replaceChildren(whole);
    return parts;
  }

  function draw(place, traces, options, onZoom) {
    const before = shown.get(place), parts = before?.parts.canvas.isConnected ? before.parts : build(place);
    const frame = Frame.of(place, traces, options), ratio = window.devicePixelRatio || 1;
    const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
    const at = { traces, options, onZoom, frame, to: scales(frame), parts, look: { font: getComputedStyle(document.body).fontFamily, soft: of("--soft"), line: of("--line"), grid: of("--grid") } };
    shown.set(place, at);
    parts.canvas.width = Math.round(frame.width * ratio); parts.canvas.height = Math.round(frame.height * ratio);
    Object.assign(parts.canvas.style, { width: frame.width + "px", height: frame.height + "px" });
    const pen = parts.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    paint(pen, at);
  }

  return { draw, held: () => held !== null };
})();
