"""The simulations' known answers, at a size that is quick: regret, and the ranking of pure noise."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def simulate() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "curriculum_simulate.py"
    spec = importlib.util.spec_from_file_location("curriculum_simulate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))  # where its imports are, as when it is run
        spec.loader.exec_module(module)
    return module


def test_ucb1_keeps_its_bound_and_beats_uniform(simulate: ModuleType) -> None:
    means = simulate.arm_means("stationary", 2000)
    players = simulate.players(5, 2000)
    ucb = np.mean([simulate.regret(players["UCB1, C = sqrt(2)"], means, seed) for seed in range(2)])
    uniform = simulate.regret(players["uniform"], means, 0)
    assert ucb < simulate.auer_bound(means)
    assert ucb < 0.4 * uniform
    assert uniform == pytest.approx(2000 * (0.7 - 0.42), rel=0.05)


def test_a_discount_finds_the_new_best_arm_sooner(simulate: ModuleType) -> None:
    means = simulate.arm_means("drifting", 4000)
    plain = sum(simulate.regret(lambda: simulate.Ucb(5, 0.3), means, seed) for seed in (1, 2))
    faded = sum(simulate.regret(lambda: simulate.Ucb(5, 0.3, 0.998), means, seed) for seed in (1, 2))
    assert faded < 0.6 * plain


def test_without_learning_the_given_reward_ranks_the_noise(simulate: ModuleType) -> None:
    run = simulate.train({}, lambda k, n: 3.0, simulate.NOISE, 1500, 1)
    for reward, noise in zip(run["mean_reward"], simulate.NOISE, strict=True):
        assert reward / noise == pytest.approx(
            409, rel=0.06
        )  # 1000 sqrt(1 + alpha / (2 - alpha)) / sqrt(2 pi)
    assert run["share"] == sorted(run["share"])  # the noisier, the more
    assert run["share"][-1] > 4 * run["share"][0]


def test_signed_rewards_do_not_rank_the_noise(simulate: ModuleType) -> None:
    settings = {"reward_sign": "change"}
    run = simulate.train(settings, lambda k, n: 3.0, simulate.NOISE, 1500, 1)
    for reward, noise in zip(run["mean_reward"], simulate.NOISE, strict=True):
        assert abs(reward / noise) < 40
