"""Files of a run are taken in the order of their steps, which have six digits, or more from a million on."""

from __future__ import annotations

from pathlib import Path

import msgspec

from andrea.curriculum.runs import Run, newest_states
from andrea.dashboard.samples import Samples


def test_states_from_the_newest_on(tmp_path: Path) -> None:
    for name in ("step_999999", "step_1000000", "step_000005", "step_x", "other_000001"):
        (tmp_path / f"{name}.state.json").touch()
    names = [path.name.removesuffix(".state.json") for path in newest_states(tmp_path)]
    assert names == ["step_1000000", "step_999999", "step_000005"]


def test_archives_come_before_what_replaced_them(tmp_path: Path) -> None:
    for step in (1_000_000, 999_999):
        sample = msgspec.json.encode({"step": step, "text": "x"})
        (tmp_path / f"a[b].samples.until_{step:06d}.json").write_bytes(b"[\n" + sample + b"\n]")
    samples = Samples()
    samples.begin_anew(Run(tmp_path, "a[b]"))
    assert [entry["step"] for entry in samples.index()] == [999_999, 1_000_000]
