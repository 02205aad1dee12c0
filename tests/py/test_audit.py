"""The audit sees collapse and copies, leaves real text alone, and shows hostile text as text."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest

from andrea.audit.copies import find_copies, run_hashes
from andrea.audit.findings import audit_run, collapsed_since, gate_stop
from andrea.audit.marks import longest_loop, marks_of
from andrea.audit.report_html import chosen, html_report
from andrea.audit.report_text import text_lines
from andrea.audit.samples import read_history
from andrea.cli import run
from andrea.data.btok import BtokWriter
from andrea.errors import ConfigError, DataError, IoError
from andrea.evaluate.judge import read_samples
from tiny_run import WORDS, cli, make_experiment, train
from tokenizer_cases import LANGUAGES, source_text, topics

PROSE = LANGUAGES["English"] + " All are equal before the law and are entitled without any discrimination."


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PROSE + " the" * 40, "one word"),
        ("they they they than they they " * 10, "one word"),
        (PROSE + " yes no" * 20, "two words"),
        (PROSE + " once upon a time" * 12, "phrase"),
        (" ".join(random.Random(1).choices([" a b c d e", " f g h i j", " k l m n"], k=40)), "n-grams"),
        (",.;:!?" * 20, "signs"),
        (PROSE + "?!.," * 40, "signs"),
        ("d" * 70, "one character"),
        (PROSE + "=" * 120, "one character"),
        (PROSE + " " * 120, "one character"),
        ("\ufffd x \x00 " * 30, "no text"),
    ],
)
def test_collapse_is_marked(text: str, kind: str) -> None:
    assert kind in [mark.kind for mark in marks_of(text)]


def test_real_text_has_no_marks() -> None:
    for text in (topics(), source_text()):
        pieces = [text[i : i + 1400] for i in range(0, len(text) - 1400, 1400)]
        assert len(pieces) > 150
        assert [marks_of(piece) for piece in pieces if marks_of(piece)] == []
    assert [marks_of(text) for text in LANGUAGES.values()] == [[]] * len(LANGUAGES)
    assert marks_of("") == []


def test_longest_loop() -> None:
    assert longest_loop(list("xabababc"), 2) == (1, 6)
    assert longest_loop(list("xaaaay"), 1) == (1, 4)
    assert longest_loop(list("abcd"), 2) == (0, 0)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 16])
def test_hashes_tell_runs_apart(n: int) -> None:
    ids = np.random.default_rng(n).integers(0, 3, 500)
    hashes = run_hashes(ids, n)
    runs = [tuple(ids[i : i + n].tolist()) for i in range(ids.size - n + 1)]
    assert hashes.size == len(runs)
    assert len(set(zip(runs, hashes.tolist(), strict=True))) == len(set(runs)) == len(set(hashes.tolist()))


def test_copies_are_those_a_plain_search_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    documents = [rng.integers(257, 300, rng.integers(3, 60)) for _ in range(80)]
    with BtokWriter(tmp_path / "a.btok", 300, 1) as writer:
        for document in documents:
            writer.add(document, 4 * document.size)
    n = 6
    texts = [rng.integers(257, 300, 50) for _ in range(8)]
    texts[2][10:22] = documents[7][2:14] if documents[7].size > 14 else documents[8][2:14]
    texts[5][:9] = documents[40][-9:]
    texts[6][:8] = np.concatenate([documents[3][-4:], documents[4][:4]])  # over an edge: no copy
    texts.append(rng.integers(257, 300, 3))  # shorter than a run
    known = {tuple(d[i : i + n].tolist()) for d in documents for i in range(d.size - n + 1)}
    expected = []
    for text in texts:
        covered = np.zeros(text.size, bool)
        for i in range(text.size - n + 1):
            if tuple(text[i : i + n].tolist()) in known:
                covered[i : i + n] = True
        expected.append(covered)
    assert expected[5][:9].all()
    assert expected[2][10:22].all()
    for block, batch in ((1 << 20, 1 << 22), (7, 60)):  # the edges of blocks and batches lose nothing
        monkeypatch.setattr("andrea.audit.copies.BLOCK", block)
        monkeypatch.setattr("andrea.audit.copies.BATCH", batch)
        found = find_copies(texts, [("a", tmp_path / "a.btok")], n)
        assert all(np.array_equal(one.covered, want) for one, want in zip(found, expected, strict=True))
        assert found[5].place is not None
        assert (found[5].place.source, found[5].place.document) == ("a", 40)


def test_gate_and_onset() -> None:
    scores = [(s, 20.0 if s in (3, 4, 6, 7, 8, 9) else 50.0) for s in range(12)]
    assert gate_stop(scores, 30, 2) == 4
    assert gate_stop(scores, 30, 4) == 9
    assert gate_stop(scores, 30, 5) is None
    assert collapsed_since([(s, s in (1, 6, 7, 9)) for s in range(10)], 5) == 6
    assert collapsed_since([(s, s < 6) for s in range(10)], 5) is None
    assert collapsed_since([(5, True)], 5) == 5


def write_samples(run: Path, texts: list[str], name: str = "x.samples.json", first: int = 0) -> None:
    lines = [
        json.dumps({"step": 10 * (first + k + 1), "loss": 2.0, "prompt": "", "text": text, "coherence": None})
        for k, text in enumerate(texts)
    ]
    (run / name).write_text("[\n" + ",\n".join(lines) + "\n]")


def test_archives_torn_lines_and_empty_runs(tmp_path: Path) -> None:
    write_samples(tmp_path, ["first", "second", "third"], "x.samples.until_000030.json")
    write_samples(tmp_path, ["newer", "fourth"], first=2)
    (tmp_path / "x.samples.json").write_text((tmp_path / "x.samples.json").read_text()[:-30])
    history = read_history(tmp_path)
    assert [(s.step, s.text) for s in history.samples] == [(10, "first"), (20, "second"), (30, "newer")]
    assert any("taken back" in note for note in history.notes)
    assert any("cut or damaged" in note for note in history.notes)
    (tmp_path / "y.samples.json").write_text("[]")
    with pytest.raises(ConfigError, match="several runs"):
        read_history(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no samples"):
        read_history(tmp_path / "empty")
    with pytest.raises(IoError, match="no such run"):
        read_history(tmp_path / "nowhere")


def test_reports_replace_nothing_but_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json RUN/x.samples.json` wrote over the very samples that it had read."""
    write_samples(tmp_path, [PROSE, PROSE])
    (tmp_path / "step_000010.bin").write_bytes(b"weights")
    (tmp_path / "page.html").write_text("<!doctype html><title>mine</title>")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for flag, name, says in (
        ("--json", "x.samples.json", "no report of an audit"),
        ("--html", "step_000010.bin", "no report of an audit"),
        ("--html", "page.html", "no report of an audit"),
        ("--html", ".", "is a folder"),
    ):
        assert run(["audit", str(tmp_path), flag, str(tmp_path / name)]) == 78
        shown = capsys.readouterr()
        assert says in shown.err
        assert shown.out == ""
    both = str(tmp_path / "both")
    assert run(["audit", str(tmp_path), "--html", both, "--json", both]) == 78
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    places = ["--html", str(tmp_path / "r.html"), "--json", str(tmp_path / "r.json")]
    for _ in range(2):  # an earlier report is replaced
        assert run(["audit", str(tmp_path), *places]) == 0


def test_a_history_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for name in ("folder", "pipe", "endless"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder" / "x.samples.json").mkdir()
    os.mkfifo(tmp_path / "pipe" / "x.samples.json")
    (tmp_path / "endless" / "x.samples.json").symlink_to("/dev/zero")
    for name in ("folder", "pipe", "endless"):
        for read in (read_history, read_samples):
            with pytest.raises(IoError, match="no regular file"):
                read(tmp_path / name)


def test_steps_that_no_run_has_are_left_out(tmp_path: Path) -> None:
    write_samples(tmp_path, ["whole"])
    odd = ["-5", "true", "99999999999999999999", "1.5", "null"]
    lines = [f'{{"step": {step}, "text": "odd"}}' for step in odd]
    path = tmp_path / "x.samples.json"
    path.write_text(path.read_text().removesuffix("\n]") + ",\n" + ",\n".join(lines) + "\n]")
    (tmp_path / "x.loss.json").write_text("[\n[0, 2.0],\n[99999999999999999999, 1.0],\n[-1, 1.0]\n]")
    history = read_history(tmp_path)
    assert [sample.text for sample in history.samples] == ["whole"]
    assert history.losses == [(0, 2.0)]
    assert any("5 samples hold no text or no step" in note for note in history.notes)


def test_page_shows_hostile_text_as_text(tmp_path: Path) -> None:
    hostile = '<script>alert(1)</script><img src=x onerror="x"></pre> \x1b[31m'
    write_samples(tmp_path, [hostile, "the " * 50, PROSE])
    page = html_report(audit_run(read_history(tmp_path)))
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=[\"']?http", page)
    assert "\x1b" not in "".join(text_lines(audit_run(read_history(tmp_path))))


def test_many_samples_are_thinned(tmp_path: Path) -> None:
    write_samples(tmp_path, [PROSE if k % 3 else "no " * 50 for k in range(1000)])
    audit = audit_run(read_history(tmp_path))
    shown = chosen(audit.judged)
    assert 300 < len(shown) <= 400
    assert [one.sample.step for one in shown] == sorted(one.sample.step for one in shown)
    assert len(audit.as_json()["samples"]) == 1000


def test_run_driven_into_collapse_is_caught(tmp_path: Path) -> None:
    """No clip, no warm-up, a huge learning rate; the gate is off, so that the run goes on to its end."""
    collapse = {
        "train__clip_norm": 1e9,
        "train__lr": {"peak": 3.0, "min": 3.0, "warmup_steps": 0},
        "train__steps": 150,
        "train__eval_every": 0,
        "samples__sample_every": 5,
        "samples__tokens": 60,
        "checkpoint__every": 100,
    }
    config = make_experiment(tmp_path, **collapse)
    assert train(config, tmp_path / "run").returncode == 0
    out = cli("audit", tmp_path / "run", "--json", tmp_path / "a.json", "--html", tmp_path / "a.html")
    assert out.returncode == 79, out.stderr
    told = json.loads((tmp_path / "a.json").read_text())
    assert not told["healthy"]
    assert told["collapsed_since"] < 75
    gate = told["gate"]
    assert gate["saved_steps"] == 150 - gate["stops_at"] > 30
    assert f"{gate['saved_steps']} of 150 steps saved" in out.stdout
    assert f"collapsed since step {told['collapsed_since']}" in out.stdout

    # The gate says the same when it is on: the run ends at the step that the audit names.
    gated = make_experiment(tmp_path, **collapse, samples__threshold=30, samples__patience=5)
    assert train(gated, tmp_path / "gated").returncode == 79
    losses = json.loads((tmp_path / "gated" / "tiny.loss.json").read_text())
    assert losses[-1][0] + 1 == gate["stops_at"]
    assert cli("audit", tmp_path / "gated").returncode == 79


def test_healthy_run_and_copies(tmp_path: Path) -> None:
    config = make_experiment(tmp_path, train__steps=60)
    assert train(config, tmp_path / "run").returncode == 0
    out = cli("audit", tmp_path / "run")
    assert out.returncode == 0, out.stdout
    assert "would not have stopped" in out.stdout

    from andrea import Tokenizer
    from andrea.data.btok import Btok

    tokenizer = Tokenizer.load(str(tmp_path / "harris_segments.json"))
    document = max(Btok(tmp_path / "beta.btok"), key=len)
    copied = tokenizer.decode_bytes(document).decode()
    own = " " + " ".join(random.Random(3).choices(WORDS, k=30))
    write_samples(tmp_path / "run", [copied + own] * 6, "tiny.samples.json")
    audit = audit_run(read_history(tmp_path / "run"))
    one = audit.judged[0]
    assert one.place is not None
    assert one.place.source == "beta"
    (begin, end), *_ = one.passages
    assert copied in (copied + own).encode()[begin:end].decode()
    assert 0 < (one.copied or 0) < 1
    assert "<mark>" in html_report(audit)
    write_samples(tmp_path / "run", [copied] * 6, "tiny.samples.json")
    audit = audit_run(read_history(tmp_path / "run"))
    assert [one.is_copy for one in audit.judged] == [True] * 6
    assert any(reason.startswith("copies: ") for reason in audit.reasons)
