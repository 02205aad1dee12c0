"""Message trees (OASST): one message a row, parents by id, in any order.

One conversation a tree: from a prompter's root, at each branching the reply of the best (lowest) rank,
unranked ones last, then the one that stands first in the file. Deleted and badly reviewed messages are
left out with all below them; so are orphans and cycles. A file's messages are held in memory (about
three times the size of the file).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from andrea.data.tally import Tally
from andrea.data.text import clean
from andrea.data.turns import ASSISTANT, USER, Turn, render, role_of


class Message(msgspec.Struct):
    """The keys of a message that are looked at."""

    message_id: str
    text: str | None = None
    role: str | None = None
    parent_id: str | None = None
    lang: str | None = None
    rank: int | float | None = None
    deleted: bool | None = None
    review_result: bool | None = None


class _Node:
    __slots__ = ("children", "line", "message")

    def __init__(self, message: Message, line: int) -> None:
        self.message, self.line = message, line
        self.children: list[_Node] = []


def _order(node: _Node) -> tuple[float, int]:
    rank = node.message.rank
    return (float("inf") if rank is None else float(rank), node.line)


def _usable(message: Message, lang: str | None) -> str | None:
    """Return why a message is left out, or None if it is usable."""
    if message.deleted:
        return "deleted message"
    if message.review_result is False:
        return "message that its reviewers turned down"
    if lang is not None and message.lang != lang:
        return "message in another language"
    if role_of(message.role) not in (USER, ASSISTANT):
        return "unknown role"
    if not (message.text or "").strip():
        return "empty message"
    return None


def render_trees(
    rows: Iterable[tuple[int, Message]], path: Path, tally: Tally, lang: str | None = None
) -> Iterator[str]:
    """Yield the best path of each tree as a conversation, in the order of the roots."""
    nodes: dict[str, _Node] = {}
    for line, message in rows:
        if message.message_id in nodes:
            tally.drop("repeated message id", f"{path}:{line}: {message.message_id}")
        else:
            nodes[message.message_id] = _Node(message, line)
    roots: list[_Node] = []
    for node in nodes.values():
        parent = node.message.parent_id
        if parent is None:
            roots.append(node)
        elif parent in nodes and nodes[parent] is not node:
            nodes[parent].children.append(node)
    seen = 0
    for root in roots:
        path_turns: list[Turn] = []
        level = [root]
        stack = [root]
        while stack:  # everything below the root, to tell orphans and cycles by what is not seen
            node = stack.pop()
            seen += 1
            stack.extend(node.children)
        while level:
            good: list[_Node] = []
            for node in level:
                reason = _usable(node.message, lang)
                if reason is None:
                    good.append(node)
                else:
                    tally.drop(reason, f"{path}:{node.line}: {node.message.message_id}")
            if not good:
                break
            best = min(good, key=_order)
            path_turns.append(
                Turn(role_of(best.message.role) or USER, clean(best.message.text or "").strip())
            )
            level = best.children
        place = f"{path}:{root.line}: {root.message.message_id}"
        if path_turns and path_turns[0].role != USER:
            tally.drop("tree that begins with a reply", place)
        elif any(turn.role == ASSISTANT for turn in path_turns):
            tally.layouts["tree"] += 1
            yield render(path_turns)
        elif path_turns:
            tally.drop("no reply to learn from", place)
    if seen < len(nodes):
        _count_lost(nodes, roots, path, tally)


def _count_lost(nodes: dict[str, _Node], roots: list[_Node], path: Path, tally: Tally) -> None:
    reached: set[str] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        reached.add(node.message.message_id)
        stack.extend(node.children)
    for name, node in nodes.items():
        if name not in reached:
            tally.drop("message without a root (orphan or cycle)", f"{path}:{node.line}: {name}")
