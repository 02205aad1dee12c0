"""`andrea sample` and `andrea chat`: batches, streams, stop strings, turns, and the edge of the context."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea import ConfigError, DataError, Engine, Tokenizer, load_experiment
from andrea.cli import run
from andrea.data.turns import ASSISTANT, SYSTEM, USER, Turn, parse, render
from andrea.generate.chat import Chat, ReplyText
from andrea.generate.model import Reader, TrainedModel, idle_cores, load_model
from andrea.generate.sample import Choice, InOrder, Wanted, write_samples
from andrea.generate.stream import TextStream, fit_for_terminal
from tiny_run import make_wild_checkpoint

CONTEXT = 32


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an experiment with a checkpoint of wild weights beside it, so that texts differ."""
    return make_wild_checkpoint(tmp_path_factory.mktemp("generate"), 0.2)


def load(config: Path, sequences: int = 1) -> TrainedModel:
    return load_model(config.with_name("x.bin"), config, Reader("cpu", 1, sequences=sequences))


def words_of(samples: list[object]) -> list[str]:
    return [sample.text for sample in samples]  # type: ignore[attr-defined]


def andrea(
    capsys: pytest.CaptureFixture[str], config: Path, command: str, *flags: object
) -> tuple[int, str, str]:
    checkpoint = config.with_name("x.bin")
    arguments = [command, checkpoint, "--config", config, "--device", "cpu", "--threads", 1, *flags]
    code = run([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


# ---- the engine


def test_the_cache_gives_the_logits_of_training(config: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 257, (3, CONTEXT))
    trained = Engine(load_experiment(str(config)), "cpu", 1)
    trained.load(config.with_name("x.bin"))
    want = trained.logits(ids)
    reader = load(config, 3).engine
    got = reader.decode_logits(ids)
    for position in (0, 1, CONTEXT // 2, CONTEXT - 1):
        # float32 sums in another order: 2e-5 of logits that reach about 10.
        np.testing.assert_allclose(
            got[:, position], want[:, position], rtol=0, atol=2e-5 * np.abs(want).max()
        )
    with pytest.raises(ConfigError, match="B from 1 to 3"):
        reader.decode_logits(ids[[0, 1, 2, 0]])


def test_a_batch_is_what_its_texts_are_alone(config: Path) -> None:
    wanted = [Wanted(prompt, seed) for prompt in ("", " the of", " and" * 40) for seed in (1, 2)]
    choice = Choice(50, top_p=0.9, repetition_penalty=1.2)
    alone = [write_samples(load(config), [one], choice)[0][0] for one in wanted]
    together, timing = write_samples(load(config, 4), wanted, choice)
    assert together == alone
    assert len(set(words_of(together))) == len(together)
    assert timing.tokens == 300
    assert timing.prompt_tokens == 2 * (1 + 3 + 41)


def test_batches_refuse_what_does_not_fit(config: Path) -> None:
    engine = load(config, 2).engine
    with pytest.raises(ValueError, match="seeds has 3 values for 2 prompts"):
        engine.generate_batch([[1], [2]], 3, seeds=[1, 2, 3])
    with pytest.raises(DataError, match="outside the vocabulary"):
        engine.generate_batch([[1], [100_000]], 3)
    with pytest.raises(ConfigError, match="top_p"):
        engine.generate_batch([[1]], 3, top_p=0.0)
    with pytest.raises(ConfigError, match="training"):
        engine.train_batch(np.zeros((1, CONTEXT + 1), np.int32))
    assert engine.generate_batch([], 3) == []
    assert [len(ids) for ids in engine.generate_batch([[1], [2, 3]], [4, 0])] == [4, 0]


def test_cores_that_are_idle() -> None:
    assert 1 <= idle_cores() <= 4096


# ---- text from ids


@given(
    st.text(alphabet="ab é\U0001f600", max_size=30),
    st.lists(st.text("ab é", min_size=1, max_size=4), max_size=3),
)
def test_a_stream_shows_the_text_up_to_the_first_stop(text: str, stops: list[str]) -> None:
    stream = TextStream(Tokenizer.from_segments([" a", "ab"]), stops)
    shown = ""
    for byte in text.encode():
        shown += stream.push(byte)
        assert text.startswith(shown)  # never half a character, never more than is certain
    shown += stream.end()
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    # Of several stops the one that is complete first ends it.
    first_complete = min((text.find(stop) + len(stop) for stop in stops if stop in text), default=len(text))
    kept = [at for stop in stops if (at := text[:first_complete].find(stop)) >= 0]
    assert shown == stream.text == (text[: min(kept)] if ends else text)
    assert stream.finish == ("stop" if ends else "")


def test_a_stream_ends_at_a_new_document_and_shows_broken_bytes() -> None:
    tokenizer = Tokenizer.from_segments([" a"])
    stream = TextStream(tokenizer, one_document=True)
    assert [stream.push(token) for token in (257, 0xC3, 256, 257)] == [" a", "", "\ufffd", ""]
    assert (stream.finish, stream.tokens, stream.end()) == ("document", 3, "")


def test_texts_that_grow_together_are_shown_one_after_the_other() -> None:
    shown: list[str] = []
    show = InOrder(["[1]", "[2]", "[3]"], shown.append)
    for step in ((1, "b", False), (0, "a", False), (2, "c\x1b", True), (1, "B", True), (0, "A", True)):
        show(*step)
    assert "".join(shown) == "[1]aA\n[2]bB\n[3]c\ufffd\n"
    assert "".join(shown[:3]) == "[1]a"  # the first one live


# ---- the commands


def test_sample_writes_json_for_several_prompts(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prompts.txt").write_text(" of\n the\n")
    flags = ("--prompt", " and", "--prompts", tmp_path / "prompts.txt", "--n", 2, "--tokens", 9, "--timing")
    code, out, err = andrea(capsys, config, "sample", *flags, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(row["prompt"], row["seed"]) for row in rows] == [
        (prompt, seed) for prompt in (" and", " of", " the") for seed in (42, 43)
    ]
    assert all(row["tokens"] == 9 and row["finish"] == "length" for row in rows)
    assert "54 tokens after 12 of the prompts" in err
    assert "cpu, 1 threads" in err
    # The same texts for people, one by one, and at most three at once.
    code, out, _ = andrea(capsys, config, "sample", *flags, "--batch", 3)
    for row in rows:
        assert f"seed {row['seed']})\n{row['prompt']}{fit_for_terminal(row['text'])}\n" in out


def test_sample_stops_and_says_when_the_context_is_outgrown(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(andrea(capsys, config, "sample", "--json", "--tokens", 40)[1])
    stop = whole["text"][5:8]
    code, out, err = andrea(capsys, config, "sample", "--json", "--tokens", 40, "--stop", stop)
    stopped = json.loads(out)
    assert (code, stopped["finish"]) == (0, "stop")
    assert stopped["text"] == whole["text"][: whole["text"].find(stop)]
    assert "whenever it is full, the model goes on from the last 16" in err
    _, _, err = andrea(capsys, config, "sample", "--prompt", " the" * 40, "--tokens", 2)
    assert "only the last 16 are read" in err
    assert andrea(capsys, config, "sample", "--tokens", 20)[2] == ""


@given(st.text(alphabet="<>|\\ \nab", max_size=40), st.integers(1, 5))
def test_a_reply_is_read_as_the_turn_format_means_it(text: str, size: int) -> None:
    document = render([Turn(USER, "q"), Turn(ASSISTANT, text)])
    written = document[len("> q\n<") :]
    reader = ReplyText()
    pieces = [written[at : at + size] for at in range(0, len(written), size)]
    assert "".join(map(reader.push, pieces)) + reader.end() == text == parse(document)[1].text


def test_chat_keeps_to_the_context_and_says_what_it_drops(config: Path) -> None:
    model = load(config)
    talk = Chat(model, Choice(8, top_k=0), system="you")
    dropped = 0
    for turn in range(6):
        shown: list[str] = []
        reply = talk.ask(f" the {turn}", shown.append)
        assert "".join(shown) == reply.text == talk.turns[-1].text
        assert reply.tokens <= 8
        dropped += reply.dropped
        kept = talk.prompt(talk.turns[:-1])
        assert 1 + len(kept) + 8 <= CONTEXT
        assert talk.turns[0].role == USER
        # What the model reads is the document that parse() understands, with an open turn at its end.
        text = model.tokenizer.decode(kept)
        assert parse(text[: -len("\n<")]) == [Turn(SYSTEM, "you"), *talk.turns[:-1]]
    assert dropped == 2 * 6 - len(talk.turns)
    assert dropped > 0
    before = list(talk.turns)
    with pytest.raises(DataError, match="shorten it"):
        talk.ask(" the" * 40)
    assert talk.turns == before
    talk.reset()
    assert talk.turns == []


def test_a_reply_is_repeatable_and_an_interrupt_keeps_what_was_written(config: Path) -> None:
    replies = [Chat(load(config), Choice(8), seed=5).ask("hi").text for _ in range(2)]
    assert replies[0] == replies[1]
    assert replies[0] != Chat(load(config), Choice(8), seed=6).ask("hi").text
    shown: list[str] = []

    def interrupt(piece: str) -> None:
        shown.append(piece)
        if len(shown) == 2:
            raise KeyboardInterrupt

    talk = Chat(load(config), Choice(8), seed=5)
    reply = talk.ask("hi", interrupt)
    assert reply.finish == "interrupted"
    assert 0 < len(reply.text) < len(replies[0])
    assert replies[0].startswith(reply.text)
    assert talk.turns[-1] == Turn(ASSISTANT, reply.text)


def test_prompts_of_a_file_and_of_a_pipe_are_the_same_lines(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "prompts"

    def both(content: bytes, *flags: object) -> list[tuple[int, str, str]]:
        lines.write_bytes(content)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        return [
            andrea(capsys, config, "sample", "--prompts", at, "--tokens", 2, *flags) for at in (lines, "-")
        ]

    (code, out, _), piped = both("\ufeff the\x0c\u2028of\r\n\n and\n".encode(), "--json")
    assert (code, out) == piped[:2]
    prompts = [json.loads(line)["prompt"] for line in out.removesuffix("\n").split("\n")]
    assert prompts == [" the\x0c\u2028of", "", " and"]
    assert [code for code, _, _ in both(b" the\xff\n")] == [65, 65]
    assert "\x1b" not in both(b" the\x1b[31m\n")[0][1]  # a prompt does not act on the terminal


def test_standard_input_may_be_closed_or_no_text(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b" the\xff\n"), "utf-8"))
    assert andrea(capsys, config, "chat")[0] == 65
    monkeypatch.setattr("sys.stdin", None)
    for arguments in (("chat",), ("sample", "--prompts", "-")):
        code, _, err = andrea(capsys, config, *arguments)
        assert code == 74
        assert "standard input is closed" in err


def test_prompts_that_are_not_there_or_have_no_end(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, expected, says in (
        ("/nowhere/prompts", 74, "/nowhere/prompts: No such file or directory; check the path"),
        ("/dev/zero", 65, "more than 67,108,864 bytes"),
    ):
        code, out, err = andrea(capsys, config, "sample", "--prompts", path)
        assert (code, out) == (expected, "")
        assert says in err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--top-p", "0"),
        ("--top-p", "nan"),
        ("--temperature", "inf"),
        ("--repetition-penalty", "1e400"),
        ("-n", "999999999"),
        ("--stop", ""),
    ],
)
def test_values_that_mean_nothing_are_wrong_use(
    config: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    code, out, err = andrea(capsys, config, "sample", "--prompt", " the", flag, value)
    assert (code, out) == (64, "")
    assert flag in err


def test_chat_answers_messages_and_lines_of_a_pipe(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--tokens", 6, "--seed", 3)
    code, out, err = andrea(capsys, config, "chat", *flags, "-m", " the", "-m", " of")
    assert code == 0
    assert out.count("< ") >= 2
    assert "--tokens" in err
    monkeypatch.setattr("sys.stdin", io.StringIO(" the\n/reset\n/nonsense\n\n the\n/quit\r\n of\n"))
    code, piped, err = andrea(capsys, config, "chat", *flags)
    assert code == 0
    assert piped.startswith(out.splitlines()[0])
    assert "forgotten" in err
    assert "/nonsense is no command" in err
    monkeypatch.setattr("sys.stdin", io.StringIO(" the" * 40 + "\n"))
    code, out, err = andrea(capsys, config, "chat", *flags)
    assert (code, out) == (65, "")  # nothing that looks like a reply
    assert "shorten it" in err
