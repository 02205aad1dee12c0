"""Bandit simulations with known answers: what the curriculum's policy does where the truth is known.

    python bench/curriculum_simulate.py [--seeds 8] [--json]

1. Stationary and drifting arms (Bernoulli rewards): regret of UCB1 (the index of the curriculum), of its
   discounted form, of Exp3 and of uniform choice, against the best arm of each moment.
2. No learning at all, unequal noise: every source's loss is constant but for its noise. The given reward then
   averages 409 x the noise, so it ranks the noise; what the options do about it.
3. Sources that learn, at unequal rates down to unequal floors: the loss left after equal rows.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from arguments import ended, whole

from andrea.curriculum import Curriculum, CurriculumSettings, Source
from andrea.curriculum.arms import Arms
from andrea.curriculum.scoring import score_arms

Floats = npt.NDArray[np.float64]

# The options side by side; "given" is the default policy.
VARIANTS: dict[str, dict[str, Any]] = {
    "given": {},
    "phase_mean": {"reward": "phase_mean"},
    "signed": {"reward_sign": "change"},
    "signed, phase_mean": {"reward_sign": "change", "reward": "phase_mean"},
    "discount 0.9": {"discount": 0.9},
    "ucb_c 0": {"ucb_c": 0.0},
    "uniform": {"policy": "uniform"},
}


# ---- 1. arms with rewards


class Ucb:
    """UCB1 by the curriculum's own code, one pull at a time, rewards given from outside."""

    def __init__(self, arms: int, c: float | str, discount: float = 1.0) -> None:
        """Start without a pull; `discount` fades all counts at every pull."""
        self.settings = CurriculumSettings(ucb_c=c)
        self.discount = discount
        self.arms = Arms(self.settings, [Source(f"{k}", 1 << 40, 1, 1) for k in range(arms)])

    def choose(self, rng: np.random.Generator) -> int:
        """Return the arm with the highest index; arms without a pull first."""
        ucb = score_arms(self.arms, self.settings).ucb
        return int(np.argmax(np.where(np.isnan(ucb), np.inf, ucb)))

    def learn(self, arm: int, reward: float) -> None:
        """Take in one reward in 0..1."""
        state = self.arms
        if self.discount < 1.0:
            state.effective = [n * self.discount for n in state.effective]
            state.reward_sum = [r * self.discount for r in state.reward_sum]
        state.effective[arm] += 1.0
        state.reward_sum[arm] += reward


class Exp3:
    """Exp3 with exploration gamma (Auer et al., 2002), rewards in 0..1."""

    def __init__(self, arms: int, gamma: float) -> None:
        """Start with equal weights."""
        self.gamma, self.logs = gamma, np.zeros(arms)
        self.p = np.full(arms, 1.0 / arms)

    def choose(self, rng: np.random.Generator) -> int:
        """Draw an arm."""
        weights = np.exp(self.logs - self.logs.max())
        self.p = (1 - self.gamma) * weights / weights.sum() + self.gamma / len(weights)
        return int(rng.choice(len(self.p), p=self.p))

    def learn(self, arm: int, reward: float) -> None:
        """Take in one reward."""
        self.logs[arm] += self.gamma * reward / (self.p[arm] * len(self.p))


class Uniform:
    """Every arm alike."""

    def __init__(self, arms: int) -> None:
        """Choose among `arms`."""
        self.count = arms

    def choose(self, rng: np.random.Generator) -> int:
        """Draw an arm."""
        return int(rng.integers(self.count))

    def learn(self, arm: int, reward: float) -> None:
        """Learn nothing."""


def players(arms: int, pulls: int) -> dict[str, Callable[[], Any]]:
    """Return the algorithms compared; Exp3's gamma is the one that its bound asks for."""
    gamma = min(1.0, math.sqrt(arms * math.log(arms) / ((math.e - 1) * pulls)))
    return {
        "UCB1, C = sqrt(2)": lambda: Ucb(arms, math.sqrt(2.0)),
        "UCB1, C auto": lambda: Ucb(arms, "auto"),
        "UCB1, C = 0.3": lambda: Ucb(arms, 0.3),
        "UCB1, C = 0.3, discount 0.998": lambda: Ucb(arms, 0.3, 0.998),
        "Exp3": lambda: Exp3(arms, gamma),
        "uniform": lambda: Uniform(arms),
    }


def regret(make: Callable[[], Any], means: Floats, seed: int) -> float:
    """Return the pseudo-regret of one player; `means` are `[pulls, arms]`."""
    player, rng = make(), np.random.default_rng(seed)
    lost = 0.0
    for row in means:
        arm = player.choose(rng)
        player.learn(arm, float(rng.random() < row[arm]))
        lost += float(row.max() - row[arm])
    return lost


def arm_means(kind: str, pulls: int) -> Floats:
    """Return `[pulls, 5]` mean rewards: constant, or best and worst change places half-way."""
    base = np.array([0.2, 0.3, 0.4, 0.5, 0.7])
    if kind == "stationary":
        return np.tile(base, (pulls, 1))
    return np.array([base if 2 * t < pulls else base[::-1] for t in range(pulls)])


def auer_bound(means: Floats) -> float:
    """Return UCB1's bound (C = sqrt(2)) for constant arms: 8 sum ln T / gap + (1 + pi^2/3) sum gap."""
    gaps = means[0].max() - means[0]
    gaps = gaps[gaps > 0]
    return float(8 * (math.log(len(means)) / gaps).sum() + (1 + math.pi**2 / 3) * gaps.sum())


def bandits(seeds: int, pulls: int = 4000) -> dict[str, Any]:
    """Return the mean regret (and its spread over seeds) of every player on both kinds of arms."""
    out: dict[str, Any] = {}
    for kind in ("stationary", "drifting"):
        means = arm_means(kind, pulls)
        rows = {}
        for name, make in players(means.shape[1], pulls).items():
            values = [regret(make, means, seed) for seed in range(seeds)]
            rows[name] = {"regret": float(np.mean(values)), "spread": float(np.std(values))}
        out[kind] = {"pulls": pulls, "best possible": 0.0, "players": rows}
    out["stationary"]["bound of UCB1"] = auer_bound(arm_means("stationary", pulls))
    return out


# ---- 2 and 3. sources with losses

SOURCES = tuple(Source(f"s{k}", 100_000, 10_000_000, 40_000_000) for k in range(6))


def train(
    settings: dict[str, Any], loss: Callable[[int, int], float], noise: Sequence[float], steps: int, seed: int
) -> dict[str, Any]:
    """Run the policy for `steps` steps of 8 rows; `loss(source, rows so far)` is a row's expected loss.

    Returns rows, mean reward and expected loss of each source at the end.
    """
    count = len(noise)
    curriculum = Curriculum({"curriculum_warmup_steps": 0, **settings}, SOURCES[:count], seed)
    rng = np.random.default_rng(seed)
    rows = [0] * count
    step = 0
    while step < steps:
        phase = curriculum.begin_phase(step)
        drawn = rng.choice(count, size=(phase.steps, 8), p=phase.weights)
        losses = np.empty(drawn.shape, dtype=np.float32)
        for index, k in np.ndenumerate(drawn):
            losses[index] = loss(int(k), rows[k]) + noise[int(k)] * rng.normal()
            rows[k] += 1
        steps_of_rows = np.repeat(np.arange(step, phase.end), 8)
        curriculum.record(steps_of_rows, drawn.ravel(), np.ones(drawn.size, dtype=int), losses.ravel())
        step = phase.end
    curriculum.begin_phase(step + 2)
    _, means = curriculum.arms.counts_and_means()
    return {
        "rows": rows,
        "share": [n / sum(rows) for n in rows],
        "mean_reward": means.tolist(),
        "loss": [loss(k, rows[k]) for k in range(count)],
    }


NOISE = (0.05, 0.1, 0.2, 0.4, 0.8)


def no_learning(seeds: int, steps: int = 3000) -> dict[str, Any]:
    """Return, for each variant, the shares of sources that differ in noise alone."""
    out: dict[str, Any] = {"noise": list(NOISE), "variants": {}}
    for name, settings in VARIANTS.items():
        runs = [train(settings, lambda k, n: 3.0, NOISE, steps, seed) for seed in range(seeds)]
        share = np.mean([run["share"] for run in runs], axis=0)
        reward = np.mean([run["mean_reward"] for run in runs], axis=0)
        out["variants"][name] = {
            "share": share.tolist(),
            "mean_reward": reward.tolist(),
            "reward_over_noise": (reward / np.array(NOISE)).tolist(),
            "share of the noisiest over the quietest": float(share[-1] / share[0]),
        }
    return out


# What each source of the learning simulation does: floor, height above it, rows until it has halved, noise.
CURVES = (
    (2.0, 2.0, 4000, 0.3),  # slow and worth it
    (2.5, 1.5, 300, 0.3),  # quickly learned
    (3.5, 0.3, 2000, 0.3),  # little to learn
    (4.0, 0.0, 1, 0.9),  # pure noise
    (1.5, 2.0, 2000, 0.15),  # quiet, learns well
)


def learning(seeds: int, steps: int = 3000) -> dict[str, Any]:
    """Return, for each variant, the excess loss left (mean and worst over sources) after equal rows."""

    def loss(k: int, n: int) -> float:
        floor, height, half, _ = CURVES[k]
        return floor + height / (1.0 + n / half)

    noise = [curve[3] for curve in CURVES]
    out: dict[str, Any] = {}
    for name, settings in VARIANTS.items():
        excess, shares = [], []
        for seed in range(seeds):
            run = train(settings, loss, noise, steps, seed)
            excess.append([x - curve[0] for x, curve in zip(run["loss"], CURVES, strict=True)])
            shares.append(run["share"])
        means, worst = np.mean(excess, axis=1), np.max(excess, axis=1)
        out[name] = {
            "mean excess": float(means.mean()),
            "spread": float(means.std()),
            "worst excess": float(worst.mean()),
            "share": np.mean(shares, axis=0).tolist(),
        }
    return out


def show(result: dict[str, Any]) -> None:
    """Print the result as tables."""
    for kind in ("stationary", "drifting"):
        part = result["bandits"][kind]
        bound = f" (bound of UCB1: {part['bound of UCB1']:.0f})" if "bound of UCB1" in part else ""
        print(f"regret, {kind} arms, {part['pulls']} pulls{bound}")
        for name, row in part["players"].items():
            print(f"  {name:<32}{row['regret']:8.1f} +- {row['spread']:.1f}")
    part = result["no learning"]
    print(f"no learning, noise {part['noise']}: share of rows, mean reward / noise")
    for name, row in part["variants"].items():
        shares = " ".join(f"{x:6.3f}" for x in row["share"])
        ratios = " ".join(f"{x:7.1f}" for x in row["reward_over_noise"])
        print(f"  {name:<20}{shares}   {ratios}")
    print("learning: excess loss left, mean over sources +- spread over seeds, worst source; shares")
    for name, row in result["learning"].items():
        shares = " ".join(f"{x:6.3f}" for x in row["share"])
        print(
            f"  {name:<20}{row['mean excess']:.4f} +- {row['spread']:.4f}   "
            f"{row['worst excess']:.4f}   {shares}"
        )


def main() -> None:
    """Run all simulations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=whole(), default=8)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    arguments = parser.parse_args()
    result = {
        "bandits": bandits(arguments.seeds),
        "no learning": no_learning(arguments.seeds),
        "learning": learning(arguments.seeds),
    }
    print(json.dumps(result, indent=2)) if arguments.json else show(result)


if __name__ == "__main__":
    ended(main)
