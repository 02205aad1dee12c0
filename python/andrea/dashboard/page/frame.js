// Where things lie in a chart: what is seen of its axes, and the ticks. The canvas and Plotly both draw what is
// told here, so that one takes over from the other without a jump.
"use strict";

const Frame = (() => {
  const MARGIN = { l: 56, r: 24, t: 8, b: 28 };
  // Places on an axis are in its own unit: on a logarithmic one, exponents of ten.
  const unit = (log) => (log ? (v) => (v > 0 ? Math.log10(v) : NaN) : Number);
  const known = (v) => v !== null && v !== undefined;

  function widened(low, high, share, log) {
    if (low > high) return [0, 1];
    const room = high > low ? share * (high - low) : log ? 0.3 : Math.abs(low) * 0.05 || 0.5;
    return [low - room, high + room];
  }

  function xRange(traces, options) {
    if (options.range) return options.range;
    let low = Infinity, high = -Infinity;
    const along = unit(options.logX);
    for (const trace of traces) for (const v of trace.x) {
      const x = known(v) ? along(v) : NaN;
      if (x < low) low = x;
      if (x > high) high = x;
    }
    return widened(low, high, 0.01, options.logX);
  }

  // Of what lies within the x range; lines at a level are in sight as long as nobody zooms.
  function yRange(traces, options, name, x, log) {
    const given = (name === "y" ? options.yaxis : options.y2) || {};
    if (given.range) return given.range;
    let low = Infinity, high = -Infinity;
    const along = unit(options.logX), up = unit(log);
    const take = (v) => { if (v < low) low = v; if (v > high) high = v; };
    for (const trace of traces) if ((trace.yaxis || "y") === name) trace.x.forEach((v, i) => {
      if (!known(v) || !known(trace.y[i])) return;
      const at = along(v);
      if (at >= x[0] && at <= x[1]) take(up(trace.y[i]));
    });
    if (name === "y" && !options.range) for (const level of options.levels || []) take(up(level.value));
    if (given.toZero && low <= high) return [Math.min(0, low * 1.05), Math.max(0, high * 1.05) || 1];
    return widened(low, high, 0.05, log);
  }

  const SI = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  function text(value, step, kind) {
    const digits = Math.max(0, Math.min(12, Math.ceil(-Math.log10(step) - 1e-9)));
    if (kind === "percent") return (100 * value).toFixed(Math.max(0, digits - 2)) + " %";
    if (kind === "whole") return Math.round(value).toLocaleString("en");
    const size = Math.abs(value);
    if (kind === "si" && size >= 1e3) {
      const [by, letter] = SI.find(([by]) => size >= by);
      return trimmed((value / by).toFixed(6)) + " " + letter;
    }
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return Number(value.toPrecision(6)).toExponential();
    return step >= 1 ? value.toLocaleString("en") : trimmed(value.toFixed(digits));
  }

  function linearTicks([low, high], most, kind) {
    const rough = (high - low) / most, base = 10 ** Math.floor(Math.log10(rough));
    let step = base * ([1, 2, ...(base >= 10 ? [2.5] : []), 5, 10].find((k) => k * base >= rough * 0.999) || 10);
    if (kind === "whole") step = Math.max(1, step);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && found.length < 40; k++) found.push({ at: k * step + 0, text: text(k * step + 0, step, kind) }); // + 0: no -0
    return found;
  }

  function logTicks([low, high], most, kind) {
    const decades = high - low;
    if (decades < 0.9) {
      return linearTicks([10 ** low, 10 ** high], most, kind).filter((tick) => tick.at > 0).map((tick) => ({ ...tick, at: Math.log10(tick.at) }));
    }
    const every = Math.max(1, Math.ceil(decades / most)), found = [];
    for (let e = Math.floor(low); e <= high; e++) for (const k of 3 * decades <= most ? [1, 2, 5] : 2 * decades <= most + 1 ? [1, 3] : [1]) {
      const value = k * 10 ** e, at = e + Math.log10(k);
      if (e % every === 0 && at >= low && at <= high) found.push({ at, text: text(value, 10 ** e, kind) });
    }
    return found;
  }

  const ticks = (range, log, most, kind) => (log ? logTicks : linearTicks)(range, most, kind);
  const count = (pixels, each) => Math.max(2, Math.min(9, Math.floor(pixels / each)));

  // `range` and `ticks` of x, y and y2, and the box in pixels that they fill.
  function of(place, traces, options) {
    const width = place.clientWidth, height = place.clientHeight, margin = { ...MARGIN, ...(options.margin || {}) };
    const box = { x: margin.l, y: margin.t, w: Math.max(1, width - margin.l - margin.r), h: Math.max(1, height - margin.t - margin.b) };
    const x = { range: xRange(traces, options), log: options.logX };
    x.ticks = ticks(x.range, x.log, count(box.w, 95), options.xTick || "whole");
    const upright = (name, given, log) => {
      const range = yRange(traces, options, name, x.range, log), domain = given.domain || [0, 1];
      const few = count(box.h * (domain[1] - domain[0]), 34);
      return { range, domain, log, ticks: given.hideTicks ? [] : ticks(range, log, few, given.tick) };
    };
    const frame = { width, height, margin, box, x, y: upright("y", options.yaxis || {}, options.logY) };
    if (options.y2) frame.y2 = upright("y2", options.y2, false);
    return frame;
  }

  return { of, unit, known, text };
})();
