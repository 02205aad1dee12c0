"""The audit as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from andrea.audit.findings import Audit
from andrea.generate.stream import fit_for_terminal

SHOWN = 5  # marked samples


def verdict(audit: Audit) -> str:
    """Return the one line that says it."""
    return "healthy" if audit.healthy else "not healthy: " + "; ".join(audit.reasons)


def gate_line(audit: Audit) -> str:
    """Return what the gate would have done."""
    gate = audit.gate
    whose = "the run's own" if gate.own else "not the run's own"
    setting = f"below {gate.threshold:g}, {gate.patience} times in a row; {whose}"
    if all(step.score is None for step in audit.steps):
        return "the gate: no sample has a score"
    if gate.stops_at is None:
        return f"the gate ({setting}) would not have stopped this run"
    return (
        f"the gate ({setting}) stops at step {gate.stops_at:,}: "
        f"{gate.saved_steps:,} of {audit.history.last_step:,} steps saved"
    )


def copies_line(audit: Audit) -> str:
    """Return how much of the samples stands in the training data."""
    shares = [one.copied for one in audit.judged if one.copied is not None]
    if not shares:
        return "copies: not looked for"
    held_out = audit.held_out_copied
    measure = f" (held-out text: {held_out:.1%})" if held_out is not None else ""
    many = sum(one.is_copy for one in audit.judged)
    mean = sum(shares) / len(shares)
    return (
        f"copies of {audit.copies_of} ids or more: {mean:.1%} of the samples' ids{measure}; "
        f"{many} samples are copied by half or more"
    )


def size_line(audit: Audit) -> str:
    """Return how much was read."""
    samples, steps = len(audit.judged), len(audit.steps)
    return f"{samples:,} samples at {steps:,} steps, {audit.history.last_step:,} steps trained"


def text_lines(audit: Audit) -> Iterator[str]:
    """Yield the report."""
    yield f"{audit.history.run.name}: {verdict(audit)}"
    yield f"  {size_line(audit)}"
    kinds = Counter(mark.kind for one in audit.judged for mark in one.marks)
    yield "  marks: " + (", ".join(f"{kind} {n}" for kind, n in kinds.most_common()) or "none")
    if audit.episodes:
        shown = ", ".join(f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in audit.episodes[:10])
        yield f"  collapsed at steps {shown}" + (" ..." if len(audit.episodes) > 10 else "")
    scored = [step for step in audit.steps if step.score is not None]
    for name, part in (("first", scored[:10]), ("last", scored[-10:])):
        if part:
            mean = sum(step.score or 0.0 for step in part) / len(part)
            yield f"  coherence, mean of the {name} {len(part)} steps: {mean:.1f}"
    yield f"  {gate_line(audit)}"
    yield f"  {copies_line(audit)}"
    for note in audit.notes:
        yield f"  note: {note}"
    for one in [one for one in audit.judged if one.marks or one.is_copy][-SHOWN:]:
        why = "; ".join(f"{mark.kind}: {mark.seen}" for mark in one.marks) or f"{one.copied:.0%} copied"
        yield fit_for_terminal(f"  step {one.sample.step:,}: {why}").replace("\n", " ")
        yield fit_for_terminal(f"    {' '.join(one.sample.text.split())[:100]}")
