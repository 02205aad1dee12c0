"""The given numbers of the policy, each worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from andrea.curriculum import Curriculum, Source
from andrea.curriculum.arms import Arms, ema_step
from andrea.curriculum.philox import StepDraws, below, philox4x32
from andrea.curriculum.scoring import coverage_bonus, epoch_penalty, exploration_constant, rank, score_arms
from andrea.curriculum.settings import GIVEN_PHASES, CurriculumSettings
from andrea.errors import ConfigError


def source(name: str, **values: float) -> Source:
    sizes = {"documents": 1000, "tokens": 100_000, "bytes": 400_000}
    return Source(name, **{**sizes, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, int, int, int]
) -> None:
    assert philox4x32(counter, key) == words


def test_draws_are_arithmetic_of_the_step_and_stay_in_range() -> None:
    assert [StepDraws(7, 3).below(5) for _ in range(3)] == [StepDraws(7, 3).below(5)] * 3
    draws = StepDraws(7, 2**40 + 3)
    values = [draws.below(6) for _ in range(600)]
    assert set(values) == set(range(6))
    assert below(0xFFFFFFFF, 3) == 2
    assert below(0, 3) == 0
    counts = np.bincount([StepDraws(1, step).below(5) for step in range(5000)], minlength=5)
    assert counts.min() > 850  # 1000 expected, standard deviation 28
    assert counts.max() < 1150


def test_reward_and_ema_of_the_given_example() -> None:
    reward, ema = ema_step(4.521, 4.520)
    assert reward == pytest.approx(1.0, abs=1e-9)
    assert ema == pytest.approx(4.5209, abs=1e-12)
    assert ema_step(4.5, 4.6)[0] == 0.0


def test_first_loss_seeds_the_ema_and_only_the_pulled_source_moves() -> None:
    curriculum = Curriculum({}, [source("a"), source("b")], 1)
    curriculum.record(0, "a", 2, 4.5)
    curriculum.begin_phase(2)
    arms = curriculum.arms
    assert (arms.ema, arms.reward_sum, arms.pulls) == ([4.5, None], [0.0, 0.0], [1, 0])
    curriculum.record(curriculum.phase.end, "a", 0, 4.25)  # type: ignore[union-attr]
    curriculum.begin_phase(curriculum.phase.end + 2)  # type: ignore[union-attr]
    assert curriculum.arms.reward_sum == [250.0, 0.0]
    assert curriculum.arms.ema == [0.9 * 4.5 + 0.1 * 4.25, None]
    assert curriculum.arms.consumed == [2, 0]


def test_losses_count_as_float32() -> None:
    arms = Curriculum({}, [source("a")], 1)
    arms.record(0, 0, 0, 4.521)
    arms.begin_phase(2)
    assert arms.arms.ema == [float(np.float32(4.521))]


def test_a_skipped_row_consumes_its_documents_but_is_no_pull() -> None:
    curriculum = Curriculum({}, [source("a")], 1)
    curriculum.record([0, 0, 0], [0, 0, 0], [1, 1, 1], [float("nan"), float("inf"), None])
    curriculum.begin_phase(2)
    assert curriculum.arms.pulls == [0]
    assert curriculum.arms.consumed == [3]
    assert curriculum.arms.ema == [None]


def test_penalty_and_bonus_of_the_given_examples() -> None:
    settings = CurriculumSettings()
    assert epoch_penalty(np.array([5600 / 1400, 0.0]), settings).tolist() == [0.2, 1.0]
    assert coverage_bonus(np.array([0.0, 0.25, 0.5, 1.0])).tolist() == pytest.approx([1.30, 1.15, 1.0, 1.0])
    exponential = CurriculumSettings(epoch_penalty="exponential")
    assert epoch_penalty(np.array([0.3, 1.0, 6.0]), exponential).tolist() == [1.0, 1.0, math.exp(-1.0)]


def test_ucb_by_hand() -> None:
    arms = Arms(CurriculumSettings(), [source("a"), source("b"), source("c")])
    arms.effective, arms.pulls, arms.reward_sum = [30.0, 10.0, 0.0], [30, 10, 0], [300.0, 200.0, 0.0]
    arms.consumed = [500, 3000, 0]
    scores = score_arms(arms, CurriculumSettings())
    c = math.sqrt(2.0) * 15.0
    assert scores.c == pytest.approx(c)
    assert scores.total == 40.0
    ucb = [10.0 + c * math.sqrt(math.log(40) / 30), 20.0 + c * math.sqrt(math.log(40) / 10)]
    assert scores.ucb[:2].tolist() == pytest.approx(ucb)
    assert math.isnan(scores.ucb[2])
    assert scores.score[:2].tolist() == pytest.approx([ucb[0] / 1.5, ucb[1] * 0.25])
    assert rank(scores.score, np.array([True, True, True])) == [2, 0, 1]
    assert rank(scores.score, np.array([False, True, True])) == [2, 1]


def test_exploration_constant_is_at_least_one_and_skips_arms_without_a_pull() -> None:
    auto = CurriculumSettings()
    assert exploration_constant(np.array([math.nan, math.nan]), auto) == 1.0
    assert exploration_constant(np.array([0.1, math.nan]), auto) == 1.0
    assert exploration_constant(np.array([4.0, math.nan, 2.0]), auto) == pytest.approx(math.sqrt(2.0) * 3.0)
    assert exploration_constant(np.array([4.0]), CurriculumSettings(ucb_c=0.5)) == 0.5


def test_ties_and_unpulled_arms_go_by_config_order() -> None:
    everyone = np.array([True] * 4)
    assert rank(np.array([1.0, math.nan, 1.0, math.nan]), everyone) == [1, 3, 0, 2]


def test_weights_of_a_phase_by_hand() -> None:
    sources = [source("a", floor=0.8), source("b", cap=0.5), source("c", floor=0.05), source("d", cap=0.0)]
    curriculum = Curriculum({"phases": [{"steps": 7, "dice": "1d1"}]}, sources, 1)
    curriculum.record([0] * 4, [0, 1, 2, 2], [1000, 1000, 1000, 2000], [3.0, 3.0, 3.0, 2.0])
    phase = curriculum.begin_phase(2)
    # c earned 1,000 in two pulls and is worn four-fold; a and b earned nothing, and a comes first.
    assert phase.focus == ("c",)
    assert phase.relative.tolist() == pytest.approx([0.8, 0.05, 1.0, 0.0])  # floor; 0.1 x 1/2; focus; cap 0
    assert phase.weights.tolist() == pytest.approx([0.8 / 1.85, 0.05 / 1.85, 1.0 / 1.85, 0.0])
    assert phase.reasons["arms"]["weight"] == phase.weights.tolist()
    assert (phase.die, phase.roll, phase.steps) == ("1d1", 1, 7)


def test_phases_are_drawn_uniformly_with_their_own_dice() -> None:
    curriculum = Curriculum({"curriculum_warmup_steps": 0}, [source(f"s{k}") for k in range(6)], 3)
    lengths: dict[int, int] = {}
    rolls: dict[str, set[int]] = {}
    step = 0
    for _ in range(2000):
        phase = curriculum.begin_phase(step)
        assert len(phase.focus) == phase.roll
        lengths[phase.steps] = lengths.get(phase.steps, 0) + 1
        rolls.setdefault(phase.die, set()).add(phase.roll)
        assert (phase.steps, phase.die) in {(kind.steps, kind.dice) for kind in GIVEN_PHASES}
        step = phase.end
    assert set(lengths) == {7, 14, 21, 28, 42}
    assert min(lengths.values()) > 300  # 400 expected, standard deviation 18
    assert rolls == {"1d3": {1, 2, 3}, "1d4": {1, 2, 3, 4}}


def test_warm_up_lets_only_its_sources_in_and_the_floors_of_the_others_rest() -> None:
    sources = [source("a", floor=0.7), source("b"), source("c", floor=0.9)]
    settings = {"curriculum_warmup_steps": 50, "curriculum_warmup_sources": ["b"]}
    curriculum = Curriculum(settings, sources, 1)
    step = 0
    while step < 200:
        phase = curriculum.begin_phase(step)
        if step < 50:
            assert phase.weights.tolist() == [0.0, 1.0, 0.0]
            assert phase.focus == ("b",)
        else:
            assert phase.relative[0] >= 0.7
            assert phase.relative[2] >= 0.9
        curriculum.record(step, 1, 1, 3.0)
        step = phase.end


def test_the_baselines_are_plain() -> None:
    sources = [
        source("a", tokens=300, floor=0.9, weight=3.0),
        source("b", tokens=100, weight=1.0),
        source("c", tokens=600),
    ]
    for policy, expected in (
        ("uniform", [1 / 3] * 3),
        ("proportional", [0.3, 0.1, 0.6]),
        ("fixed", [0.6, 0.2, 0.2]),
    ):
        curriculum = Curriculum({"policy": policy}, sources, 1)
        for step in (0, 1000):
            assert curriculum.begin_phase(step).weights.tolist() == pytest.approx(expected)


def test_a_reward_by_bits_per_byte_uses_the_sizes_of_the_source() -> None:
    sources = [source("a", documents=10, tokens=90, bytes=400)]
    curriculum = Curriculum({"reward_unit": "byte"}, sources, 1)
    curriculum.record(0, 0, 1, 4.0)
    curriculum.begin_phase(2)
    assert curriculum.arms.ema[0] == pytest.approx(4.0 / math.log(2) * (90 + 10) / 400)


def test_a_reward_by_phase_means_is_one_pull_a_phase() -> None:
    curriculum = Curriculum({"reward": "phase_mean"}, [source("a"), source("b")], 1)
    curriculum.record([0, 0, 0], [0, 0, 1], [1, 1, 1], [4.0, 2.0, 5.0])
    first = curriculum.begin_phase(2)
    assert curriculum.arms.ema == [3.0, 5.0]
    assert curriculum.arms.pulls == [1, 1]
    curriculum.record([2, 3], [0, 0], [0, 0], [3.5, 1.5])
    curriculum.begin_phase(first.end)
    assert curriculum.arms.reward_sum == [500.0, 0.0]
    assert curriculum.arms.pulls == [2, 1]


def test_a_discount_fades_pulls_and_rewards_alike() -> None:
    curriculum = Curriculum({"discount": 0.5}, [source("a")], 1)
    curriculum.record([0, 0], [0, 0], [1, 1], [4.0, 3.0])
    end = curriculum.begin_phase(2).end
    curriculum.begin_phase(end)
    assert curriculum.arms.effective == [1.0]
    assert curriculum.arms.pulls == [2]
    counts, means = curriculum.arms.counts_and_means()
    assert counts.tolist() == [1.0]
    assert means.tolist() == [500.0]


def test_signed_rewards_add_up_to_the_fall_of_the_ema() -> None:
    rng = np.random.default_rng(5)
    losses = rng.normal(3.0, 0.5, 400).astype(np.float32)
    curriculum = Curriculum({"reward_sign": "change"}, [source("a")], 1)
    curriculum.record(0, [0] * 400, [0] * 400, losses)
    curriculum.begin_phase(2)
    ema = curriculum.arms.ema[0]
    assert ema is not None
    assert curriculum.arms.reward_sum[0] == pytest.approx((float(losses[0]) - ema) / 0.1 * 1000, rel=1e-9)


def test_all_faults_of_a_section_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Curriculum(
            {"polcy": "uniform", "ema_alpha": 2, "phases": [{"steps": 0, "dice": "1d3"}], "ucb_c": "autp"},
            [source("a")],
            1,
        )
    text = str(caught.value)
    for part in ("curriculum.polcy", "did you mean 'policy'", "curriculum.ema_alpha", "[0].steps", "ucb_c"):
        assert part in text


@pytest.mark.parametrize(
    ("section", "sources", "part"),
    [
        ({}, [], "at least one source"),
        ({}, [source("a"), source("a")], "a name of its own"),
        ({}, [source("a", floor=0.9, cap=0.5)], "floor 0.9 is above cap 0.5"),
        ({}, [source("a", documents=0)], "documents must be at least 1"),
        ({}, [source("a", cap=0.0)], "every cap is 0"),
        ({}, [source("a", floor=-1.0)], "floor: must lie between"),
        ({}, [source("a", cap=math.inf)], "cap: must lie between"),
        ({"policy": "fixed"}, [source("a", weight=0.0)], "needs a weight above 0"),
        ({"curriculum_warmup_sources": ["gutenbrg"]}, [source("gutenberg")], "did you mean 'gutenberg'"),
        ({"curriculum_warmup_sources": ["a"]}, [source("a", cap=0.0), source("b")], "has cap 0"),
        ({"phases": [{"steps": 7, "dice": "1d0"}]}, [source("a")], "dice must be like"),
        ({"phases": []}, [source("a")], "at least one"),
        ({"ucb_c": math.nan}, [source("a")], "ucb_c"),
        ({"curriculum_warmup_steps": True}, [source("a")], "whole number"),
    ],
)
def test_what_cannot_be_is_refused(section: dict[str, object], sources: list[Source], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        Curriculum(section, sources, 1)


@pytest.mark.parametrize(
    ("record", "part"),
    [
        ((0, 5, 1, 3.0), "index in 0..1"),
        ((0, -1, 1, 3.0), "index in 0..1"),
        ((0, "nobody", 1, 3.0), "names source"),
        ((0, 0, -1, 3.0), "documents cannot"),
        ((0, [0, 1], [1], [3.0, 3.0]), "one length"),
        (([3, 2], [0, 0], [1, 1], [3.0, 3.0]), "row order"),
        ((0, 0.5, 1, 3.0), "whole numbers"),
        ((0, 0, 1, "low"), "numbers or null"),
    ],
)
def test_records_that_cannot_be_are_refused(record: tuple[object, ...], part: str) -> None:
    curriculum = Curriculum({}, [source("a"), source("b")], 1)
    with pytest.raises(ConfigError, match=part):
        curriculum.record(*record)


def test_steps_never_go_back_but_a_phase_may_be_cut_or_held() -> None:
    curriculum = Curriculum({}, [source("a")], 1)
    end = curriculum.begin_phase(10).end
    with pytest.raises(ConfigError, match="step 10 has begun"):
        curriculum.begin_phase(9)
    with pytest.raises(ConfigError, match="steps start at 0"):
        Curriculum({}, [source("a")], 1).begin_phase(-1)
    assert curriculum.begin_phase(end - 1).step == end - 1
    assert curriculum.begin_phase(end + 50).step == end + 50
