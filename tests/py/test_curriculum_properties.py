"""What must hold for every run: limits, sums, replay, resume, sources that come and go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea.curriculum import Curriculum, Phase, Source
from andrea.curriculum.replay import decision_at, replay
from andrea.errors import CheckpointError

OPTIONS = st.fixed_dictionaries(
    {
        "curriculum_warmup_steps": st.sampled_from([0, 30, 100]),
        "ucb_c": st.sampled_from(["auto", 0.0, 2.5]),
        "background_weight": st.sampled_from([0.0, 0.1, 1.0]),
        "discount": st.sampled_from([1.0, 0.9, 1e-9]),
        "epoch_penalty": st.sampled_from(["reciprocal", "exponential"]),
        "reward": st.sampled_from(["row", "phase_mean"]),
        "reward_unit": st.sampled_from(["token", "byte"]),
        "reward_sign": st.sampled_from(["gain", "change"]),
    }
)


@st.composite
def source_lists(draw: st.DrawFn, most: int = 6) -> list[Source]:
    sources = []
    for k in range(draw(st.integers(1, most))):
        cap = draw(st.sampled_from([1.0, 1.0, 0.5, 0.0 if k else 1.0, 3.0]))
        floor = min(cap, draw(st.sampled_from([0.0, 0.0, 0.4, 0.8, 2.0])))
        documents = draw(st.sampled_from([1, 3, 50, 500_000]))
        sources.append(Source(f"s{k}", documents, documents * 40, documents * 160, floor, cap))
    return sources


class Run:
    """A trainer in small: draws rows by the weights, makes losses up, keeps the log."""

    def __init__(self, curriculum: Curriculum, seed: int, rows: int = 4) -> None:
        self.curriculum, self.rows, self.seed = curriculum, rows, seed
        self.lines: list[str] = []
        self.phases: list[Phase] = []

    def rows_of(self, step: int, weights: np.ndarray) -> tuple[list[int], list[int], list[float | None]]:
        rng = np.random.default_rng([self.seed, step])
        source = rng.choice(len(weights), size=self.rows, p=weights).tolist()
        loss: list[float | None] = (5.0 / (1 + step * 0.01) + rng.normal(0, 0.3, self.rows)).tolist()
        if rng.random() < 0.05:
            loss = [None] * self.rows
        loss = [x if x is None else float(np.float32(x)) for x in loss]
        return source, rng.integers(0, 3, self.rows).tolist(), loss

    def go(self, begin: int, end: int, phase: Phase | None = None) -> Phase:
        """Train steps begin..end-1 as the engine does: the next phase is asked for one step early."""
        step = begin
        current = phase or self.ask(begin)
        following: Phase | None = None
        while step < end:
            if step == current.end - 1:
                following = self.ask(current.end)
            source, documents, loss = self.rows_of(step, current.weights)
            self.curriculum.record(step, source, documents, loss)
            for row, (k, count, x) in enumerate(zip(source, documents, loss, strict=True)):
                name = self.curriculum.names[k]
                self.lines.append(
                    json.dumps({"step": step, "row": row, "source": name, "documents": count, "loss": x})
                )
            step += 1
            if following is not None:
                current, following = following, None
        return current

    def ask(self, step: int) -> Phase:
        phase = self.curriculum.begin_phase(step)
        self.phases.append(phase)
        self.lines.append(phase.log_json())
        return phase


def summary(phase: Phase) -> tuple[Any, ...]:
    return phase.step, phase.steps, phase.weights.tolist(), phase.relative.tolist(), phase.focus, phase.roll


@settings(max_examples=60, deadline=None)
@given(options=OPTIONS, sources=source_lists(), seed=st.integers(0, 2**32 - 1))
def test_limits_sums_and_replay(options: dict[str, Any], sources: list[Source], seed: int) -> None:
    warm = [source.name for source in sources if source.cap > 0][:2]
    section = {**options, "curriculum_warmup_sources": warm}
    run = Run(Curriculum(section, sources, seed), seed % 1000)
    run.go(0, 200)
    for phase in run.phases:
        warming = phase.step < options["curriculum_warmup_steps"]
        assert np.isfinite(phase.weights).all()
        assert phase.weights.sum() == pytest.approx(1.0, abs=1e-12)
        for source, relative, weight in zip(sources, phase.relative, phase.weights, strict=True):
            if source.cap == 0.0 or (warming and source.name not in warm):
                assert relative == weight == 0.0
            else:
                assert source.floor <= relative <= source.cap
        assert all(sources[run.curriculum.index[name]].cap > 0.0 for name in phase.focus)
        assert 1 <= phase.roll <= 4
        assert "NaN" not in phase.log_json()
        assert "Infinity" not in phase.log_json()
    result = replay(run.lines)
    assert result.differences == []
    assert result.decisions == len(run.phases)


def test_a_changed_row_is_found_by_replay() -> None:
    sources = [Source(f"s{k}", 50, 2000, 8000) for k in range(4)]
    run = Run(Curriculum({}, sources, 1), 1)
    run.go(0, 120)
    touched = next(i for i, line in enumerate(run.lines) if '"loss": 4' in line)
    run.lines[touched] = run.lines[touched].replace('"loss": 4', '"loss": 3')
    assert not replay(run.lines).exact


@settings(max_examples=40, deadline=None)
@given(options=OPTIONS, sources=source_lists(), cut=st.integers(1, 130), seed=st.integers(0, 1000))
def test_a_resume_at_any_step_changes_nothing(
    options: dict[str, Any], sources: list[Source], cut: int, seed: int
) -> None:
    warm = [source.name for source in sources if source.cap > 0][:1]
    section = {**options, "curriculum_warmup_sources": warm}
    whole = Run(Curriculum(section, sources, seed), seed)
    whole.go(0, 180)

    first = Run(Curriculum(section, sources, seed), seed)
    current = first.go(0, cut)
    state = first.curriculum.state()
    second = Run(Curriculum(section, sources, seed), seed)
    second.curriculum.restore(state)
    assert second.curriculum.state() == state
    assert second.curriculum.phase is not None
    assert summary(second.curriculum.phase) == summary(first.phases[-1])
    second.go(cut, 180, current)
    again = [summary(phase) for phase in first.phases + second.phases]
    assert again == [summary(phase) for phase in whole.phases]
    assert second.curriculum.state() == whole.curriculum.state()
    assert replay(first.lines + second.lines).exact


@settings(max_examples=25, deadline=None)
@given(sources=source_lists(), seed=st.integers(0, 1000), scalars=st.booleans())
def test_records_of_the_step_before_do_not_matter_however_they_come(
    sources: list[Source], seed: int, scalars: bool
) -> None:
    """The phase at s depends on records of steps <= s - 2: later ones may be there already, or not."""
    one, two = Curriculum({}, sources, seed), Curriculum({}, sources, seed)
    rng = np.random.default_rng(seed)
    step = 0
    for _ in range(5):
        assert summary(one.begin_phase(step)) == summary(two.begin_phase(step))
        end = one.phase.end  # type: ignore[union-attr]
        rows = [(s, int(rng.integers(len(sources))), 1, float(rng.normal(3, 1))) for s in range(step, end)]
        early, late = rows[: max(0, len(rows) - 1)], rows[max(0, len(rows) - 1) :]
        one.record(*map(list, zip(*rows, strict=True)))
        if scalars:
            for row in early:
                two.record(*row)
        elif early:
            two.record(*map(np.array, zip(*early, strict=True)))
        a, b = one.begin_phase(end), two.begin_phase(end)
        assert summary(a) == summary(b)
        for row in late:
            two.record(*row)
        step = a.end


@given(documents=st.integers(1, 40), pulls=st.lists(st.integers(0, 7), max_size=30))
def test_coverage_is_exact_arithmetic(documents: int, pulls: list[int]) -> None:
    """Documents come without replacement within an epoch, so min(consumed, n) counts the distinct ones."""
    rng = np.random.default_rng(documents)
    order: list[int] = []
    seen: set[int] = set()
    curriculum = Curriculum({}, [Source("a", documents, documents * 9, documents * 30)], 1)
    for step, count in enumerate(pulls):
        for _ in range(count):
            order = order or rng.permutation(documents).tolist()
            seen.add(order.pop())
        curriculum.record(step, 0, count, 3.0)
    curriculum.begin_phase(1000)
    assert curriculum.arms.coverage().tolist() == [len(seen) / documents]
    assert curriculum.arms.epochs().tolist() == [sum(pulls) / documents]


@pytest.mark.parametrize("count", [1, 500])
def test_one_source_and_five_hundred(count: int) -> None:
    sources = [Source(f"s{k}", 1 + k * 1000, 1000 * (k + 1), 4000 * (k + 1)) for k in range(count)]
    run = Run(Curriculum({"curriculum_warmup_steps": 0}, sources, 9), 9, rows=16)
    run.go(0, 300)
    assert replay(run.lines).exact
    if count == 1:
        assert all(phase.weights.tolist() == [1.0] for phase in run.phases)


def test_an_exhausted_source_fades_but_is_never_lost() -> None:
    sources = [Source("tiny", 1, 40, 160), Source("large", 10_000, 400_000, 1_600_000)]
    curriculum = Curriculum({"phases": [{"steps": 7, "dice": "1d1"}], "ucb_c": 0.0}, sources, 1)
    for step in range(50):
        curriculum.record(step, [0, 1], [20, 1], [4.0 - step * 0.01] * 2)
    phase = curriculum.begin_phase(60)
    assert phase.focus == ("large",)  # the same reward, but tiny has been read 1,000 times
    assert phase.relative[0] == pytest.approx(0.1 / 1001)
    assert phase.weights[0] > 0.0


def test_sources_may_be_added_and_removed_between_runs() -> None:
    a, b, c = (Source(name, 100, 4000, 16000) for name in "abc")
    run = Run(Curriculum({}, [a, b], 1), 1)
    run.go(0, 100)
    before = run.curriculum
    kept = dict(zip(before.names, before.arms.pulls, strict=True))
    begin = run.phases[-1].step

    without = Curriculum({}, [b, c], 1)
    without.restore(before.state())
    assert any("c is new" in note for note in without.notes)
    assert any("a is gone" in note for note in without.notes)
    assert without.arms.pulls == [kept["b"], 0]
    phase = without.begin_phase(begin)  # the old phase binds no longer
    assert phase.focus[0] == "c"  # a source without a pull ranks first
    assert any("a is gone" in note for note in phase.reasons["notes"])

    back = Curriculum({}, [a, b, c], 1)
    back.restore(without.state())
    assert back.arms.pulls[0] == kept["a"]
    assert any("a is back" in note for note in back.notes)


def test_new_floors_and_caps_are_told_and_hold_from_the_next_decision() -> None:
    run = Run(Curriculum({}, [Source("a", 100, 4000, 16000), Source("b", 100, 4000, 16000)], 1), 1)
    run.go(0, 40)
    polished = Curriculum({}, [Source("a", 100, 4000, 16000, 0.2, 0.4), Source("b", 100, 4000, 16000)], 1)
    polished.restore(run.curriculum.state())
    assert polished.phase is None
    assert polished.notes == ["source a: floor 0 -> 0.2, cap 1 -> 0.4"]
    assert 0.2 <= polished.begin_phase(40).relative[0] <= 0.4
    assert polished.arms.pulls[0] > 0


def test_rewards_of_another_kind_are_not_added_up() -> None:
    sources = [Source("a", 100, 4000, 16000)]
    run = Run(Curriculum({}, sources, 1), 1)
    run.go(0, 40)
    run.curriculum.begin_phase(1000)
    other = Curriculum({"reward_unit": "byte"}, sources, 1)
    other.restore(run.curriculum.state())
    assert other.arms.pulls == [0]
    assert other.arms.consumed == run.curriculum.arms.consumed
    assert any("start anew" in note for note in other.notes)


def test_a_state_that_is_not_whole_is_refused_and_changes_nothing() -> None:
    run = Run(Curriculum({}, [Source("a", 100, 4000, 16000)], 1), 1)
    run.go(0, 40)
    good = json.loads(run.curriculum.state())
    fresh = Curriculum({}, [Source("a", 100, 4000, 16000)], 1)
    blank = fresh.state()
    broken: list[Any] = []
    for key in good:
        broken.append({k: v for k, v in good.items() if k != key})
        broken.append({**good, key: "nonsense"})
    for column in good["arms"]:
        broken.append({**good, "arms": {k: v for k, v in good["arms"].items() if k != column}})
        broken.append({**good, "arms": {**good["arms"], column: []}})
    broken += [None, [], 3, {**good, "version": 2}, {**good, "names": ["a", "a"]}, {**good, "extra": 1}]
    broken.append({**good, "pending": {**good["pending"], "loss": []}})
    for state in broken:
        with pytest.raises(CheckpointError):
            fresh.restore(json.dumps(state))
        assert fresh.state() == blank
    for text in ("", "{", "\x00", "[" * 100_000):
        with pytest.raises(CheckpointError):
            fresh.restore(text)


def test_the_decision_at_a_step_is_found_in_a_log(tmp_path: Path) -> None:
    run = Run(Curriculum({}, [Source("a", 100, 4000, 16000), Source("b", 100, 4000, 16000)], 1), 1)
    run.go(0, 100)
    path = tmp_path / "x.rows.jsonl"
    path.write_text("\n".join(run.lines) + '\n{"kind":"phase","step":9')
    decision, counts = decision_at(path, 50)
    assert decision["step"] <= 50 < decision["step"] + decision["steps"]
    assert sum(counts.values()) == 4 * decision["steps"]
    last, _ = decision_at(path, None)
    assert last["step"] == run.phases[-1].step
