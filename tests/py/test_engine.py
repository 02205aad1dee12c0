"""andrea.Engine from Python: numbers, checks with messages, checkpoints, threads and signals."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import andrea
from tiny_run import make_experiment


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny experiment with its data."""
    return make_experiment(tmp_path_factory.mktemp("engine"))


@pytest.fixture
def engine(config: Path) -> Any:
    """Return a fresh engine."""
    return andrea.Engine(config, "cpu", threads=1)


def ids_for(engine: Any, rows: int, seed: int = 0) -> np.ndarray:
    """Return random ids [rows, T+1] of the tiny model."""
    return np.random.default_rng(seed).integers(0, 331, (rows, 33)).astype(np.int32)


def test_no_data_is_opened_before_the_first_step(tmp_path: Path) -> None:
    config = make_experiment(tmp_path)
    (tmp_path / "alpha.btok").unlink()
    (tmp_path / "harris_segments.json").unlink()
    engine = andrea.Engine(config, "cpu", threads=1)
    assert np.isfinite(engine.train_batch(ids_for(engine, 4)).loss)
    with pytest.raises(andrea.Error, match=r"alpha\.btok"):
        engine.step()


def test_step_reports_rows_of_the_sources(engine: Any) -> None:
    report = engine.step()
    assert report.step == 0
    assert engine.steps_done == 1
    assert [row.row for row in report.rows] == [0, 1, 2, 3]
    assert {row.source for row in report.rows} <= {0, 1}
    assert report.loss == pytest.approx(np.mean([row.loss for row in report.rows]), rel=1e-6)
    assert "step=0" in repr(report)
    assert "rows=4" in repr(report)
    assert report.lr == pytest.approx(0.003 / 5)


def test_source_weights_are_used_from_the_next_row_on(engine: Any) -> None:
    engine.set_source_weights({"alpha": 0.0, "beta": 1.0})
    for _ in range(4):
        assert {row.source for row in engine.step().rows} == {1}
    with pytest.raises(andrea.ConfigError, match="gamma"):
        engine.set_source_weights({"gamma": 1.0})


def test_losses_are_those_of_the_logits(engine: Any) -> None:
    ids = ids_for(engine, 3)
    logits = engine.logits(ids[:, :-1]).astype(np.float64)
    assert logits.shape == (3, 32, 331)
    assert engine.logits(ids[:, :-1]).dtype == np.float32
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_probs, ids[:, 1:, None], -1)[..., 0].mean(-1)
    np.testing.assert_allclose(engine.row_losses(ids), expected, rtol=2e-5)
    assert engine.loss(ids) == pytest.approx(expected.mean(), rel=2e-5)


def test_ids_may_be_any_integers(engine: Any) -> None:
    ids = ids_for(engine, 2)
    expected = engine.loss(ids)
    assert engine.loss(ids.astype(np.int64)) == expected
    assert engine.loss(ids.astype(np.uint16)) == expected
    assert engine.loss(ids.tolist()) == expected
    assert engine.loss(np.asfortranarray(ids)) == expected


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        ([1, 2, 3], ValueError, "2 dimensions"),
        ([[1.5, 2.0]], TypeError, "float64"),
        ([[1]], ValueError, "two columns"),
        (np.zeros((0, 5), np.int32), ValueError, "a row"),
        ([[1, 331]], andrea.DataError, "331"),
        ([[1, -1]], andrea.DataError, "-1"),
        ([[1, 2**40]], andrea.DataError, str(2**40)),
        (np.zeros((1, 34), np.int32), andrea.ConfigError, "32"),
    ],
)
def test_impossible_ids_are_refused_with_a_reason(engine: Any, ids: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        engine.loss(ids)


def test_train_batch_wants_its_exact_shape(engine: Any) -> None:
    with pytest.raises(ValueError, match=r"\[4, 33\], are \[3, 33\]"):
        engine.train_batch(ids_for(engine, 3))
    before = engine.parameters()
    with pytest.raises(andrea.DataError):
        engine.train_batch(np.full((4, 33), 331))
    for name, value in engine.parameters().items():
        np.testing.assert_array_equal(value, before[name])


def test_parameters_and_gradients_have_canonical_names_and_shapes(engine: Any) -> None:
    engine.train_batch(ids_for(engine, 4))
    parameters, gradients = engine.parameters(), engine.gradients()
    assert list(parameters)[:4] == ["tok_embed", "pos_embed", "layers.0.ln1.gamma", "layers.0.ln1.beta"]
    assert list(parameters)[-2:] == ["lnf.gamma", "lnf.beta"]
    assert parameters["tok_embed"].shape == (331, 16)
    assert parameters["layers.1.w_1"].shape == (64, 16)
    assert sum(value.size for value in parameters.values()) == engine.n_params
    assert {n: v.shape for n, v in gradients.items()} == {n: v.shape for n, v in parameters.items()}


def test_gradient_norm_is_that_of_the_gradients(engine: Any) -> None:
    report = engine.train_batch(ids_for(engine, 4))
    total = sum(float((g.astype(np.float64) ** 2).sum()) for g in engine.gradients().values())
    assert report.grad_norm == pytest.approx(total**0.5, rel=1e-5)


def test_gradient_agrees_with_finite_differences(engine: Any) -> None:
    ids = ids_for(engine, 4)
    before = engine.parameters()
    engine.train_batch(ids)
    gradients = engine.gradients()
    for name in ("layers.0.w_q", "layers.1.w_2", "pos_embed", "lnf.gamma"):
        direction = np.random.default_rng(1).standard_normal(before[name].shape).astype(np.float32)
        losses = []
        for sign in (1, -1):
            engine.load_parameters(before | {name: before[name] + np.float32(sign * 1e-2) * direction})
            losses.append(engine.loss(ids))
        slope = (losses[0] - losses[1]) / 2e-2
        assert slope == pytest.approx(float((gradients[name] * direction).sum()), rel=0.03, abs=2e-4), name


def test_load_parameters_changes_nothing_unless_all_is_right(engine: Any) -> None:
    before = engine.parameters()
    new = np.ones(16, np.float32)
    with pytest.raises(ValueError, match=r"lnf\.gamma: the shape must be \[16\], is \[15\]"):
        engine.load_parameters({"lnf.beta": new, "lnf.gamma": np.ones(15)})
    with pytest.raises(andrea.ConfigError, match="tok_embd"):
        engine.load_parameters({"lnf.beta": new, "tok_embd": new})
    np.testing.assert_array_equal(engine.parameters()["lnf.beta"], before["lnf.beta"])
    engine.load_parameters({"lnf.beta": new})
    np.testing.assert_array_equal(engine.parameters()["lnf.beta"], new)


def test_save_and_load_go_on_with_the_same_bits(config: Path, tmp_path: Path) -> None:
    first, second = (andrea.Engine(config, "cpu", threads=1) for _ in range(2))
    batches = [ids_for(first, 4, seed) for seed in range(6)]
    for ids in batches[:3]:
        first.train_batch(ids)
    first.save(tmp_path / "x.bin")
    second.load(tmp_path / "x.bin")
    assert second.steps_done == 3
    for ids in batches[3:]:
        assert first.train_batch(ids).loss == second.train_batch(ids).loss
    for name, value in first.parameters().items():
        np.testing.assert_array_equal(value, second.parameters()[name])


def test_threads_do_not_change_the_bits(config: Path) -> None:
    results = []
    for threads in (1, 2, 4):
        engine = andrea.Engine(config, "cpu", threads=threads)
        results.append([engine.step().loss for _ in range(8)] + [engine.parameters()["tok_embed"].tobytes()])
    assert results[0] == results[1] == results[2]


def test_generation_is_repeatable_and_leaves_training_alone(config: Path) -> None:
    plain, sampling = (andrea.Engine(config, "cpu", threads=1) for _ in range(2))
    for _ in range(3):
        assert plain.step().loss == sampling.step().loss
        one = sampling.generate([300, 301], 50, seed=5)
        assert one == sampling.generate([300, 301], 50, seed=5)
        assert len(one) == 50  # longer than the context
        assert one != sampling.generate([300, 301], 50, seed=6)
    greedy = sampling.generate([], 8, temperature=0)
    assert greedy == sampling.generate([], 8, temperature=0, seed=9)
    assert greedy[0] == int(sampling.logits([[256]])[0, 0].argmax())
    assert all(0 <= token < 331 for token in one)


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}, {"repetition_penalty": 0.0}],
)
def test_impossible_sampling_is_refused(engine: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(andrea.ConfigError):
        engine.generate([], 3, **settings)


def test_a_callback_may_stop_generation(engine: Any) -> None:
    seen: list[int] = []

    def stop_at_three(token: int) -> bool:
        seen.append(token)
        return len(seen) < 3

    assert engine.generate([300, 301, 302], 100, on_token=stop_at_three) == seen
    assert len(seen) == 3
    assert min(seen) >= 0
    with pytest.raises(ZeroDivisionError):
        engine.generate([], 10, on_token=lambda token: 1 // 0)


def test_python_signal_handlers_interrupt_generation(engine: Any) -> None:
    class Alarmed(Exception):
        pass

    def handler(*_: object) -> None:
        raise Alarmed

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Alarmed):
            engine.generate([], 5_000_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_other_threads_run_while_the_engine_works(engine: Any) -> None:
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1

    ids = np.tile(ids_for(engine, 4), (500, 1))
    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    engine.row_losses(ids)
    after = ticks
    done.set()
    thread.join()
    assert after - before > 100


def test_threads_take_turns(engine: Any) -> None:
    ids = ids_for(engine, 4)
    workers = [threading.Thread(target=lambda: [engine.train_batch(ids) for _ in range(5)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert engine.steps_done == 20


def test_plan_is_a_dict_of_all_bytes(engine: Any) -> None:
    plan = engine.plan
    assert plan["n_params"] == engine.n_params == 12_112
    assert sum(plan["groups"].values()) <= plan["device_bytes"]
    assert {"name", "group", "bytes", "offset"} <= set(plan["buffers"][0])
    assert "Memory plan" in engine.plan_text


def test_a_plan_that_does_not_fit_names_the_largest_batch(config: Path, tmp_path: Path) -> None:
    big = make_experiment(tmp_path, train__batch_size=500)
    with pytest.raises(andrea.OutOfMemory, match="largest"):
        andrea.Engine(big, "cpu", memory="10MB")
    shown: list[str] = []
    andrea.Engine(config, "cpu", memory=10_000_000, on_plan=shown.append)
    assert len(shown) == 1
    assert "Memory plan" in shown[0]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"device": "gpu"}, andrea.ConfigError),
        ({"threads": 0}, andrea.ConfigError),
        ({"memory": "lots"}, andrea.ConfigError),
        ({"memory": 0}, andrea.ConfigError),
        ({"precision": "fp7"}, andrea.ConfigError),
    ],
)
def test_impossible_arguments_are_refused(config: Path, arguments: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        andrea.Engine(config, **arguments)


def test_seed_replaces_that_of_the_experiment(config: Path) -> None:
    one, two, three = (andrea.Engine(config, "cpu", seed=seed) for seed in (7, None, 8))
    np.testing.assert_array_equal(one.parameters()["tok_embed"], two.parameters()["tok_embed"])
    assert (one.parameters()["tok_embed"] != three.parameters()["tok_embed"]).any()
