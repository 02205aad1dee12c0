"""Real text passes, collapse fails, in any script."""

from __future__ import annotations

import argparse
import difflib
import inspect
import random
import textwrap
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea.curriculum import coherence, lexicon_of

ENGLISH = inspect.getdoc(textwrap.TextWrapper) + inspect.getdoc(difflib.SequenceMatcher)  # type: ignore[operator]
ARABIC = """في صباح يوم بارد خرج الصياد العجوز من بيته الصغير قرب البحر، وكان يحمل شبكته القديمة على كتفه.
نظر إلى السماء الرمادية وقال في نفسه: ربما يكون الحظ اليوم أفضل من الأمس. جلس في قاربه وانتظر ساعات طويلة،
ثم تحركت الشبكة فجأة فقام بسرعة وسحبها بكل قوته. وجد فيها سمكة كبيرة تلمع مثل الفضة تحت ضوء الشمس،
فضحك وعاد إلى القرية حيث كانت زوجته تعد الخبز وتنتظر رجوعه مع الأولاد."""
CHINESE = """清晨,老渔夫离开海边的小屋,肩上扛着旧渔网。他抬头看看灰色的天空,心里想:今天的运气也许会比昨天好。
他坐在船上等了很久,忽然网动了,他立刻站起来,用尽全身力气把网拉上船。网里有一条大鱼,在阳光下像银子一样闪闪发亮。
老人笑了,慢慢划回村子,妻子正在家里烤饼,孩子们在门口等他回来讲今天的故事。"""
THAI = """เช้าวันหนึ่งชาวประมงเฒ่าออกจากบ้านหลังเล็กใกล้ทะเลพร้อมแหเก่าบนบ่าเขามองท้องฟ้าสีเทาแล้วคิดว่าวันนี้โชคอาจจะดีกว่าเมื่อวาน"""
HINDI = """एक ठंडी सुबह बूढ़ा मछुआरा समुद्र के पास अपने छोटे घर से निकला और उसके कंधे पर पुराना जाल था।
उसने धूसर आकाश की ओर देखा और सोचा कि शायद आज का भाग्य कल से अच्छा होगा।"""


@pytest.mark.parametrize("text", [ENGLISH[:1400], ARABIC, CHINESE, THAI, HINDI])
def test_real_text_passes(text: str) -> None:
    half = coherence(text, lexicon_of([text[: len(text) // 2]]))  # an incomplete lexicon
    assert half.score > 60.0
    full = coherence(text, lexicon_of([text]))
    assert full.words == 20.0
    assert full.score == pytest.approx(full.bigrams + full.trigrams + full.words + full.characters)


def collapses() -> dict[str, str | bytes]:
    rng = random.Random(7)
    return {
        "one word": "the " * 420,
        "one long word": "Pneumonoultramicroscopicsilicovolcanoconiosis " * 60,
        "two words": "the sea " * 210,
        "one Chinese character": "的" * 420,
        "two Chinese characters": "我们" * 210,
        "one Arabic word": "كان " * 300,
        "one letter": "a" * 1400,
        "punctuation": "".join(rng.choice(".,;:!?-()") for _ in range(1400)),
        "Chinese punctuation": "。,!" * 300,
        "dots and words": "the ... " * 200,
        "emoji": "😀🎉🔥" * 140,
        "digits": "0 1 " * 210,
        "white space": " \n\t" * 400,
        "nothing": "",
        "random bytes": bytes(rng.randrange(256) for _ in range(420)),
        "many random bytes": bytes(rng.randrange(256) for _ in range(4000)),
        "random bytes as Latin-1": bytes(rng.randrange(256) for _ in range(1400)).decode("latin-1"),
        "control characters": "\x00\x01\x02" * 200,
    }


@pytest.mark.parametrize("name", collapses())
def test_collapse_fails_with_the_richest_lexicon(name: str) -> None:
    text = collapses()[name]
    own = [] if "random" in name else [text]
    lexicon = lexicon_of([ENGLISH, ARABIC, CHINESE, THAI, HINDI, *own])
    assert coherence(text, lexicon).score < 30.0


def test_the_parts_by_hand() -> None:
    score = coherence("A cat, a dog. A CAT!", frozenset({"a", "cat"}))
    # words a cat a dog a cat: pairs 5, distinct (a cat) (cat a) (a dog) (dog a); triples 4, all distinct
    assert score.bigrams == pytest.approx(35 * 4 / 5)
    assert score.trigrams == pytest.approx(35 * 4 / 4)
    assert score.words == pytest.approx(20 * 5 / 6)
    assert score.characters == pytest.approx(10 * len(set("Acat,dog.CT!")) / 30)
    assert score.as_json()["score"] == score.score


def test_standard_library_prose_passes_sample_by_sample() -> None:
    modules = (argparse, difflib, inspect, random, textwrap, types)
    texts = [inspect.getsource(module) for module in modules]
    lexicon = lexicon_of(texts[:3])
    scores = [
        coherence(text[i : i + 1400], lexicon).score
        for text in texts[3:]
        for i in range(0, len(text) - 1400, 1400)
    ]
    assert len(scores) > 20
    assert min(scores) > 30.0


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300)))
def test_any_text_gets_a_score_within_bounds(text: str | bytes) -> None:
    score = coherence(text, frozenset({"a"}))
    assert 0.0 <= score.score <= 100.0
    assert min(score.bigrams, score.trigrams, score.words, score.characters) >= 0.0
    assert score.bigrams <= 35.0
    assert score.trigrams <= 35.0
    assert score.words <= 20.0
    assert score.characters <= 10.0


def test_a_long_text_takes_linear_time() -> None:
    text = "ab" * 500_000
    assert coherence(text, frozenset()).score < 30.0
