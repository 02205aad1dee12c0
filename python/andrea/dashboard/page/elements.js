// Elements and numbers as text. What a run says becomes text nodes, never markup.
"use strict";

const Elements = (() => {
  const $ = (id) => document.getElementById(id);

  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined) continue;
      if (key === "style") Object.assign(element.style, value);
      else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  const none = (x) => x === null || x === undefined || !isFinite(x);
  const number = (x, digits = 4) => none(x) ? "–" : Number(x).toFixed(digits);
  const whole = (x) => none(x) ? "–" : Math.round(x).toLocaleString("en");
  const brief = (x) => none(x) ? "–" : Math.abs(x) >= 1000 && Math.abs(x) < 1e7 ? whole(x) : (x !== 0 && Math.abs(x) < 0.001 ? Number(x).toExponential(1) : Number(x).toPrecision(3)).replace(/\.?0+e/, "e");
  const percent = (x) => none(x) ? "–" : (100 * x).toFixed(1) + " %";
  const bytes = (x) => x >= 2 ** 30 ? (x / 2 ** 30).toFixed(1) + " GiB" : (x / 2 ** 20).toFixed(0) + " MiB";
  function duration(s) {
    if (none(s)) return "–";
    const t = Math.round(s), d = Math.floor(t / 86400), two = (n) => String(n).padStart(2, "0");
    return (d ? d + " d " : "") + Math.floor(t / 3600) % 24 + ":" + two(Math.floor(t / 60) % 60) + ":" + two(t % 60);
  }
  const clock = (t) => new Date(t * 1000).toLocaleString("sv");

  return { $, h, number, whole, brief, percent, bytes, duration, clock };
})();
