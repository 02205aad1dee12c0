// The machine: a row of gauges a GPU, those of the runs first, and one for the rest. A value that a card does not
// tell says so in its place.
"use strict";

const Machine = (() => {
  const { $, h, bytes } = Elements;
  const opened = new Set(); // GPUs that no run is known to use are folded away beside one that is

  function gauge(name, value, values, top) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 100 40");
    svg.setAttribute("preserveAspectRatio", "none");
    const curve = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const high = top || Math.max(1e-9, ...values);
    curve.setAttribute("points", values.map((v, i) => `${(100 * i / Math.max(1, values.length - 1)).toFixed(2)},${(39 - 38 * Math.min(1, v / high)).toFixed(2)}`).join(" "));
    svg.append(curve);
    return h("div", { class: "gauge" }, h("h4", {}, name), h("b", {}, value), svg);
  }

  // Each figure of a GPU: its key, its name, its text, its size and the end of its scale.
  const FIGURES = [
    ["utilisation_percent", "use", (g) => g.utilisation_percent + " %", (g) => g.utilisation_percent, () => 100],
    ["memory", "memory", (g) => `${bytes(g.memory.used)} of ${bytes(g.memory.total)}`, (g) => g.memory?.used, (g) => g.memory.total],
    ["power_watts", "power", (g) => g.power_watts.toFixed(0) + " W" + (g.power_limit_watts ? ` of ${g.power_limit_watts.toFixed(0)} W` : ""), (g) => g.power_watts, (g) => g.power_limit_watts],
    ["temperature_celsius", "temperature", (g) => g.temperature_celsius + " °C", (g) => g.temperature_celsius, () => 100],
    ["fan_percent", "fan", (g) => g.fan_percent + " %", (g) => g.fan_percent, () => 100],
  ];
  const known = (x) => x !== null && x !== undefined;

  function gpuRow(gpu, samples) {
    const reasons = new Set(FIGURES.map(([key]) => known(gpu[key]) ? "" : gpu.missing?.[key]));
    if (reasons.size === 1 && !reasons.has("")) return h("p", { class: "note" }, [...reasons][0]); // lost: said once
    const past = samples.map((s) => (Array.isArray(s.gpus) ? s.gpus.find((g) => (gpu.uuid ? g.uuid === gpu.uuid : g.index === gpu.index)) : null)).filter(Boolean);
    return h("div", { class: "gauges" }, ...FIGURES.map(([key, name, text, size, top]) => known(gpu[key])
      ? gauge(name, text(gpu), past.map(size).filter((x) => typeof x === "number"), top(gpu))
      : h("div", { class: "gauge" }, h("h4", {}, name), h("p", { class: "note" }, gpu.missing?.[key] || "not told by this card"))));
  }

  // The runs that train here now, by the PCI bus id that both CUDA and the driver know a card by.
  const users = (gpu, runs) => runs.filter((run) => run.gpu && run.gpu === gpu.pci_bus_id);

  function gpuBlocks(samples, runs) {
    const gpus = samples[samples.length - 1].gpus, used = gpus.some((gpu) => users(gpu, runs).length);
    return [...gpus].sort((a, b) => users(b, runs).length - users(a, runs).length || a.index - b.index).map((gpu) => {
      const names = users(gpu, runs).map((run) => run.name), key = gpu.uuid || String(gpu.index);
      const title = `GPU ${gpu.index}` + (gpu.name ? ", " + gpu.name : "") + (gpu.mig ? ", split (MIG): figures of the whole card" : "") + (names.length ? ": " + names.join(", ") : "");
      if (!used || names.length) return h("div", {}, h("h3", {}, title), gpuRow(gpu, samples));
      const block = h("details", {}, h("summary", {}, title), gpuRow(gpu, samples));
      block.open = opened.has(key);
      block.addEventListener("toggle", () => { if (block.isConnected) opened[block.open ? "add" : "delete"](key); });
      return block;
    });
  }

  function note(last, age, running, shown) {
    const words = [];
    if (age > 15) words.push(`The last look at this machine is ${Math.round(age)} s old.`);
    if (typeof last.gpus === "string") words.push(last.gpus);
    const away = running.filter((run) => run.host && last.host && run.host !== last.host);
    if (away.length) words.push(`These are the figures of ${last.host}; ${away.map((run) => `${run.name} trains on ${run.host}`).join(", ")}.`);
    else if (Array.isArray(last.gpus) && last.gpus.length > 1 && running.length && !shown.length) words.push("All GPUs of this machine; the runs do not say which is theirs.");
    return words.join(" ");
  }

  function draw({ samples, now }, runs) {
    $("section-machine").hidden = samples.length === 0;
    if (!samples.length) return;
    const last = samples[samples.length - 1], of = (get) => samples.map(get).filter((x) => typeof x === "number");
    const running = runs.filter((run) => run.state === "running"), here = running.filter((run) => !run.host || run.host === last.host);
    const gpus = Array.isArray(last.gpus) ? last.gpus : [];
    $("machine-note").textContent = note(last, now - last.time, running, gpus.flatMap((gpu) => users(gpu, here)));
    $("gpus").replaceChildren(...(gpus.length ? gpuBlocks(samples, here) : []));
    $("host").textContent = last.memory && gpus.length ? last.host || "" : "";
    $("machine").replaceChildren(...(last.memory ? [
      gauge("CPU", `${last.cpu_percent.toFixed(0)} % of ${last.cpus} cores`, of((s) => s.cpu_percent), 100),
      gauge("memory", `${bytes(last.memory.total - last.memory.available)} of ${bytes(last.memory.total)}`, of((s) => s.memory && s.memory.total - s.memory.available), last.memory.total),
      gauge("disk", bytes(last.disk.free) + " free", of((s) => s.disk && s.disk.total - s.disk.free), last.disk.total),
    ] : []));
  }

  return { draw };
})();
