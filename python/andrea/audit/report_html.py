"""The audit as one HTML file: no script, no network, everything that a model wrote escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from andrea.audit.findings import Audit, Judged, Step
from andrea.audit.report_text import copies_line, gate_line, size_line, verdict

MOST_SAMPLES = 400  # shown in full; the JSON has all
MOST_POINTS = 1200
WIDTH, HEIGHT, LEFT, BOTTOM = 900, 260, 44, 26

STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --paper: #fbfbfa; --soft: #6b7280; --line: #dcdfe4;
  --good: #0072b2; --bad: #d55e00; --copy: #fff1c2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --paper: #16181d; --soft: #9aa2af;
  --line: #333842; --good: #56b4e9; --bad: #e69f00; --copy: #4d4213; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem }
.verdict { font-size: 1.1rem; margin: .3rem 0 1.2rem } .bad { color: var(--bad) } .good { color: var(--good) }
ul { padding-left: 1.2rem } .soft { color: var(--soft) }
svg { width: 100%; height: auto; display: block } svg text { font-size: 12px; fill: var(--soft) }
.axis { stroke: var(--line) } .limit { stroke: var(--soft); stroke-dasharray: 4 4 }
.curve { stroke: var(--good); fill: none; stroke-width: 1.5; opacity: .55 }
.dot { fill: var(--good) } .hit { fill: var(--bad) } .event { stroke: var(--bad); stroke-dasharray: 2 3 }
details { border-top: 1px solid var(--line); padding: .45rem 0 }
summary { cursor: pointer }
.badge { border: 1px solid var(--bad); color: var(--bad); border-radius: .7rem; padding: 0 .5rem;
  font-size: .82rem; margin-left: .35rem; white-space: nowrap }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0;
  font: 14px/1.5 ui-monospace, monospace }
mark { background: var(--copy); color: inherit } .prompt { color: var(--soft) }
"""


def html_report(audit: Audit) -> str:
    """Return the page."""
    return "".join(_page(audit))


def _page(audit: Audit) -> Iterator[str]:
    name = escape(audit.history.run.name)
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: sample audit</title><style>{STYLE}</style></head><body><h1>{name}</h1>"
    )
    tone = "good" if audit.healthy else "bad"
    yield f'<p class="verdict {tone}">{escape(verdict(audit))}</p><ul>'
    facts = [
        size_line(audit),
        gate_line(audit),
        copies_line(audit),
        *audit.notes,
    ]
    yield "".join(f"<li>{escape(fact)}</li>" for fact in facts) + "</ul>"
    if any(step.score is not None for step in audit.steps):
        yield "<h2>Coherence over time</h2>" + _chart(audit)
        yield '<p class="soft">A dot is the mean of a step, in orange if it collapsed. Dashed: the gate.</p>'
    shown = chosen(audit.judged)
    yield f"<h2>Samples</h2><p class='soft'>{len(shown):,} of {len(audit.judged):,}; marked ones open. "
    yield "<mark>Marked text</mark> stands in the training data word for word.</p>"
    for one in shown:
        yield _sample(one)
    yield "</body></html>\n"


def chosen(judged: Sequence[Judged], most: int = MOST_SAMPLES) -> list[Judged]:
    """Return the samples to show: all, else half of them spread over the run and half the newest marked."""
    if len(judged) <= most:
        return list(judged)
    spread = {k * len(judged) // (most // 2) for k in range(most // 2)}
    marked = [k for k, one in enumerate(judged) if (one.marks or one.is_copy) and k not in spread]
    return [judged[k] for k in sorted(spread | set(marked[-(most // 2) :]))]


def _chart(audit: Audit) -> str:
    steps = [step for step in audit.steps if step.score is not None]
    # Of too many, the collapsed ones stay, the others are thinned.
    stride = 1 + len(steps) // MOST_POINTS
    kept = [step for k, step in enumerate(steps) if k % stride == 0 or step.collapsed][: 2 * MOST_POINTS]
    first, last = steps[0].step, max(steps[-1].step, audit.history.last_step, steps[0].step + 1)

    def x(step: int) -> float:
        return LEFT + (WIDTH - LEFT - 10) * (step - first) / (last - first)

    def y(score: float) -> float:
        return 10 + (HEIGHT - 10 - BOTTOM) * (1 - score / 100)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="coherence by step">']
    for score in (0, 25, 50, 75, 100):
        parts.append(
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(score):.1f}" y2="{y(score):.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y(score) + 4:.1f}" text-anchor="end">{score}</text>')
    for k in range(5):
        step = first + (last - first) * k // 4
        anchor = "end" if k == 4 else "middle"
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{step:,}</text>')
    limit = y(audit.gate.threshold)
    parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - 10}" y1="{limit:.1f}" y2="{limit:.1f}"/>')
    for event, word in ((audit.collapsed_since, "collapsed"), (audit.gate.stops_at, "gate")):
        if event is not None:
            at = 24 if word == "gate" else 10
            parts.append(f'<path class="event" d="M{x(event):.1f} 10V{HEIGHT - BOTTOM}"/>')
            parts.append(f'<text x="{x(event) + 4:.1f}" y="{at + 10}">{word}, step {event:,}</text>')
    parts.append(f'<polyline class="curve" points="{_points(kept, x, y)}"/>')
    parts += [
        f'<circle class="{"hit" if step.collapsed else "dot"}" cx="{x(step.step):.1f}" '
        f'cy="{y(step.score or 0.0):.1f}" r="3"><title>step {step.step:,}: {step.score:.1f}</title></circle>'
        for step in kept
    ]
    return "".join(parts) + "</svg>"


def _points(steps: Sequence[Step], x: object, y: object) -> str:
    assert callable(x)
    assert callable(y)
    return " ".join(f"{x(step.step):.1f},{y(step.score):.1f}" for step in steps)


def _sample(one: Judged) -> str:
    sample = one.sample
    badges = "".join(
        f'<span class="badge" title="{escape(mark.seen)}">{escape(mark.kind)}</span>' for mark in one.marks
    )
    if one.is_copy:
        badges += '<span class="badge">copy</span>'
    told = [] if sample.score is None else [f"coherence {sample.score:.1f}"]
    told += [] if one.copied is None else [f"{one.copied:.0%} copied"]
    if one.place is not None:
        told.append(f"from {one.place.source}, document {one.place.document:,}")
    state = " open" if badges else ""
    return (
        f"<details{state}><summary>step {sample.step:,} "
        f'<span class="soft">{escape(", ".join(told))}</span>{badges}</summary>'
        f"<pre>{_text(one)}</pre></details>"
    )


def _text(one: Judged) -> str:
    """The text, prompt greyed, copied passages marked; cut at bytes, so half characters show as U+FFFD."""
    data = one.sample.text.encode("utf-8", "surrogatepass")
    at = (
        len(one.sample.prompt.encode("utf-8", "surrogatepass"))
        if one.sample.text.startswith(one.sample.prompt)
        else 0
    )
    parts = [f'<span class="prompt">{_shown(data[:at])}</span>'] if at else []
    for begin, end in one.passages:
        parts += [_shown(data[at:begin]), f"<mark>{_shown(data[begin:end])}</mark>"]
        at = end
    return "".join([*parts, _shown(data[at:])])


_CONTROL = dict.fromkeys({*range(32), *range(0x7F, 0xA0)} - {9, 10}, "\ufffd")


def _shown(data: bytes) -> str:
    return escape(data.decode("utf-8", "replace").translate(_CONTROL))
