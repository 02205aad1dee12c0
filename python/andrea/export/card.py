"""README.md of an exported folder: a model card of what is known, and the manifest for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from andrea.export.source import DataSource, Trained

NOT_KNOWN = "not known"


def tokens_seen(trained: Trained) -> int:
    """Return the training tokens up to the step of the checkpoint."""
    train = trained.settings["train"]
    return int(trained.step * train["batch_size"] * train["micro_batches"] * trained.shape.context)


def data_manifest(trained: Trained, sources: Sequence[DataSource], licence: str | None) -> dict[str, Any]:
    """Return all that is known of the model's making as JSON values; no path of this machine is in it."""
    from andrea._core import VERSION

    settings = json.loads(json.dumps(trained.settings))
    data = settings.get("data", {})
    for entry in [data, *data.get("sources", ())]:
        for key in ("tokenizer", "train", "eval"):
            if isinstance(entry.get(key), str):
                entry[key] = entry[key].rpartition("/")[2]
    state = trained.state or {}
    return {
        "andrea": VERSION,
        "name": trained.name,
        "step": trained.step,
        "parameters": trained.shape.n_params,
        "tokens_seen": tokens_seen(trained) if trained.state else None,
        "licence": licence,
        "checkpoint_hash": state.get("bin_hash"),
        "tokenizer_hash": f"{trained.tokenizer.hash:016x}" if trained.tokenizer else None,
        "precision": state.get("precision"),
        "smma": state.get("smma") if state.get("has_smma") else None,
        "sources": [source.as_json() for source in sources],
        "experiment": settings,
    }


def card(trained: Trained, sources: Sequence[DataSource], licence: str | None, dtype: str) -> str:
    """Return the model card: front matter of the Hugging Face hub, then sections for people."""
    parts = [
        _front_matter(licence),
        f"# {trained.name}\n",
        _summary(trained, licence),
        _shape(trained, dtype),
    ]
    parts += [_training(trained), _data(sources), _use(trained)]
    return "\n".join(parts)


def _front_matter(licence: str | None) -> str:
    # An SPDX-like identifier goes in as it is; anything else needs the hub's "other" and a name.
    known = licence is not None and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", licence)
    lines = [f"license: {licence.lower()}"] if known and licence else ["license: other"]
    if not known:
        lines.append(f"license_name: {json.dumps(licence or 'not-stated', ensure_ascii=False)}")
    lines += ["library_name: transformers", "pipeline_tag: text-generation", "tags:", "- andrea", "- gpt2"]
    return "---\n" + "\n".join(lines) + "\n---\n"


def _summary(trained: Trained, licence: str | None) -> str:
    return (
        f"A decoder-only language model of **{trained.shape.n_params:,} parameters**, trained from scratch "
        f"with andrea and taken from step {trained.step:,} of its run. It continues text; it was not taught "
        "to refuse, to be right or to be kind, and small models make things up.\n\n"
        f"Licence of the weights: {licence or 'not stated by whoever exported them'}. Those of the training "
        "text are below.\n"
    )


def _shape(trained: Trained, dtype: str) -> str:
    shape = trained.shape
    head = "tied to the token embedding" if shape.tie_embeddings else "a matrix of its own"
    return (
        "## Shape\n\n"
        "| width | heads | layers | context | vocabulary | head | stored as |\n"
        "|---|---|---|---|---|---|---|\n"
        f"| {shape.d_model:,} | {shape.n_head} | {shape.n_layer} | {shape.context:,} | {shape.vocab_size:,} "
        f"| {head} | {'float32' if dtype == 'f32' else 'float16'} |\n\n"
        "Pre-norm, learned positions, GELU in the tanh form, LayerNorm with epsilon 1e-5, no biases (the "
        "zeros in the file are there because GPT-2's layout has them).\n"
    )


def _training(trained: Trained) -> str:
    train, state = trained.settings["train"], trained.state
    rows = [
        ("steps, of planned", f"{trained.step:,} of {train['steps']:,}"),
        ("tokens a step", f"{train['batch_size'] * train['micro_batches'] * trained.shape.context:,}"),
        (
            "learning rate",
            "{peak:g} to {min:g}, {warmup_steps:,} steps of warm-up".format(**train["lr"]),
        ),
        ("clip, seed", f"{train['clip_norm']:g}, {train['seed']}"),
        ("data mix", str(trained.settings.get("curriculum", {}).get("policy", NOT_KNOWN))),
    ]
    if state:
        rows.append(("tokens seen", f"{tokens_seen(trained):,}"))
        rows.append(("precision", str(state.get("precision", NOT_KNOWN))))
        if state.get("has_smma"):
            rows.append(("training loss, smoothed", f"{state['smma']:.4f} nats a token"))
    body = "".join(f"| {name} | {_cell(value)} |\n" for name, value in rows)
    return f"## Training\n\n| | |\n|---|---|\n{body}"


def _data(sources: Sequence[DataSource]) -> str:
    if not sources:
        return "## Data\n\nThe experiment names no source.\n"
    lines = [
        "## Data\n",
        "| source | documents | tokens | bytes | epochs | licence | origin |",
        "|---|---|---|---|---|---|---|",
    ]
    for s in sources:
        numbers = [NOT_KNOWN if n is None else f"{n:,}" for n in (s.n_docs, s.n_tokens, s.n_bytes)]
        epochs = NOT_KNOWN if s.epochs is None else f"{s.epochs:.2f}"
        lines.append(
            "| "
            + " | ".join(
                map(_cell, [s.name, *numbers, epochs, s.licence or NOT_KNOWN, s.origin or NOT_KNOWN])
            )
            + " |"
        )
    if any(source.licence is None for source in sources):
        lines.append("\nWhere a licence is not known, find it before you publish these weights.")
    return "\n".join(lines) + "\n"


def _use(trained: Trained) -> str:
    if trained.tokenizer is None:
        return (
            "## Use\n\nThe experiment names no tokenizer, so there is none here: the model takes "
            "and gives ids.\n"
        )
    return (
        "## Use\n\n```python\n"
        "from transformers import AutoTokenizer, GPT2LMHeadModel\n\n"
        'tokenizer = AutoTokenizer.from_pretrained(".")\n'
        'model = GPT2LMHeadModel.from_pretrained(".")\n'
        'inputs = tokenizer("Once", return_tensors="pt")  # id 256 goes in front, as in training\n'
        "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=100)[0], skip_special_tokens=True))\n"
        "```\n\nId 256 begins each document and so also ends the one before: it is BOS, EOS and padding.\n"
    )


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table: one line, no markup."""
    return re.sub(r"([\\|<>&`*_\[\]])", lambda m: f"&#{ord(m[1])};", " ".join(str(text).split()))
