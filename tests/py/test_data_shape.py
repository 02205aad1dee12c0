"""`has_system_prompt_shape`: measured on labelled examples in nine languages, and never by script."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea.data.shape import has_system_prompt_shape
from andrea.data.turns import ASSISTANT, SYSTEM, USER, Turn, render

LABELLED = Path(__file__).parent / "data" / "shape_labelled.jsonl"
PROMPT = (
    "You are Ada, a tutor.\n- Always ask.\n- Never tell the answer.\n- You must stay polite.\n- Avoid jargon."
)


def test_precision_and_recall() -> None:
    rows = [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").split("\n") if line]
    hits = sum(row["prompt"] and has_system_prompt_shape(row["text"]) for row in rows)
    false = [row["text"] for row in rows if not row["prompt"] and has_system_prompt_shape(row["text"])]
    prompts = sum(row["prompt"] for row in rows)
    assert len(rows) - prompts >= 30
    assert false == []
    assert hits / prompts >= 0.95


@pytest.mark.parametrize(
    "document",
    [
        PROMPT,
        render([Turn(SYSTEM, PROMPT), Turn(USER, "Hi"), Turn(ASSISTANT, "Hello.")]),
        PROMPT + "\n> Hi\n< Hello.",
        render([Turn(USER, PROMPT + "\n\nHi"), Turn(ASSISTANT, "Hello.")]),
    ],
)
def test_the_same_prompt_in_four_places(document: str) -> None:
    assert has_system_prompt_shape(document)


def test_a_reply_may_say_anything() -> None:
    assert not has_system_prompt_shape(render([Turn(USER, "Write me a prompt."), Turn(ASSISTANT, PROMPT)]))


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=80))
def test_no_script_and_no_sign_is_banned(text: str) -> None:
    letters = "".join(c for c in text if unicodedata.category(c)[0] in "LMN")
    assert not has_system_prompt_shape(letters)
    assert has_system_prompt_shape(f"{PROMPT} {letters}")
