"""`has_system_prompt_shape`: does a whole document look like instructions to a model?

The shape, not the characters: no script, language or sign is banned. Three features are looked for in the
part that comes before the first reply: a role is assigned ("You are ..."), rules are listed, and the part is
long against what follows. Precision and recall on labelled examples stand in docs/DATA.md.
"""

from __future__ import annotations

import re

_LOOKED_AT = 40_000  # characters; a system prompt stands at the front
_ROLE_WITHIN = 400
LONG_PREAMBLE = 600
LONG_REQUEST = 1_200

# "You are", "Act as", "Your task is" at the start of a line or a sentence, in languages that sources have.
# A language that is missing costs recall, never precision.
_ASSIGNMENTS = (
    r"you\s+are\s+(?:now\s+|to\s+act\s+as\s+)?(?:an?\b|the\b|(?-i:[A-Z])[\w-]+)",
    r"you(?:'|’)re\s+(?:now\s+)?(?:an?|the)\b",
    r"(?:please\s+)?(?:act|behave|respond|roleplay|role-play)\s+(?:as|like)\s+(?:if\s+you|an?\b|the\b|(?-i:[A-Z]))",
    r"(?:i\s+want\s+you\s+to|from\s+now\s+on,?\s+you|you\s+(?:will|must|should)\s+(?:act|play|respond|reply))\b",
    r"your\s+(?:role|task|job|name|purpose|goal|mission|objective)\s+(?:is|will\s+be)\b",
    r"(?:pretend|imagine|assume)\s+(?:that\s+)?you(?:(?:'|’)re|\s+are)\b",
    r"(?:take\s+on|assume)\s+the\s+role\b",
    r"as\s+an?\s+(?:ai|language\s+model|assistant)\b",
    r"(?:du\s+bist|sie\s+sind)\s+(?:ein|eine|der|die|das)\b",
    r"(?:deine|ihre)\s+aufgabe\s+ist\b",
    r"(?:tu\s+es|vous\s+êtes)\s+(?:un|une|le|la|l')\b",
    r"(?:ta|votre)\s+(?:tâche|mission)\s+est\b",
    r"(?:eres|usted\s+es|actúa\s+como)\s+(?:un|una|el|la)\b",
    r"tu\s+tarea\s+es\b",
    r"(?:sei|lei\s+è)\s+un[ao']?\b",
    r"(?:você\s+é|aja\s+como)\s+(?:um|uma|o|a)\b",
    r"je\s+bent\s+een\b",
    r"(?:ты|вы)\s*[—–-]\s*\w",
    r"(?:ты|вы)\s+(?:явля|должн?[аы]?)",
    r"(?:你|您)(?:现在)?是",
    r"请?你?(?:扮演|充当)",
    r"あなたは",
    r"당신은",
    r"(?:أنت|انت)\s+\w",
    r"(?:तुम|आप)\s+एक\s",
)
_ROLE = re.compile(
    r"(?:^|(?<=[.!?:。！？\n>|]))[\s#*_“\"'-]*(?:" + "|".join(_ASSIGNMENTS) + ")",
    re.IGNORECASE,
)
# Every assignment holds one of these: looking for them first is ten times faster than the expression.
_HINTS = (
    *(
        "you",
        " as ",
        " like ",
        "the role",
        "as a",
        "du bist",
        "sie sind",
        "aufgabe ist",
        "tu es",
        "mission est",
    ),
    *("eres", "usted es", "tarea es", "sei un", "aja como", "je bent"),
)
_HINTS_BEYOND_ASCII = (
    *("êtes", "tâche est", "actúa", "lei è", "você", "ты", "вы", "你", "您", "扮演", "充当"),
    *("あなたは", "당신은", "أنت", "انت", "तुम", "आप"),
)
_ITEM = re.compile(r"(?m)^[ \t]*(?:[-*+•●▪–]|\(?\w{1,3}[.):、．]|[①-⑳])[ \t]*\S.{8,}$")
_WORDS_OF_RULES = (
    r"\b(?:must(?:\s+not)?|never|always|do\s+not|don['’]t|should(?:\s+not)?|avoid|ensure|make\s+sure|refuse"
    r"|only\s+(?:use|answer|respond|reply)|respond|reply|answer\s+(?:in|with|as)|under\s+no\s+circumstances"
    r"|stay\s+in\s+character|niemals|immer|musst|sollst|jamais|toujours|dois|devez|nunca|siempre|debes|debe"
    r"|sempre|deve|mai|nooit|altijd)\b",
    r"никогда|всегда|долж(?:ен|на|ны)|отвечай",
    r"不要|不得|必须|禁止|始终|请用|必ず|てください",
    r"하세요|마세요|반드시",
    r"يجب|دائما|हमेशा|कभी",
)
_RULE = re.compile("|".join(_WORDS_OF_RULES), re.IGNORECASE)
_FRAME = re.compile(
    r"(?im)^\s*(?:#+\s*)?(?:system(?:\s+(?:prompt|message|instructions?))?\s*:|<<sys>>"
    r"|<\|(?:im_start\|>)?system|\[inst\]\s*<<sys>>|<(?:system|tools|instructions|rules)>)"
    r"|\{\{[^{}\n]{1,200}\}\}"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？।\n]")
_MARKS = ("> ", "< ", "| ")
_MARK = re.compile(r"(?m)^[<>|] ")
_REPLY = re.compile(r"(?m)^< ")


def _assigns_role(text: str) -> bool:
    folded = text.lower()
    hinted = any(hint in folded for hint in _HINTS)
    if not hinted and not text.isascii():
        hinted = any(hint in folded for hint in _HINTS_BEYOND_ASCII)
    return hinted and _ROLE.search(text) is not None


def _rules(text: str) -> int:
    """Count sentences and list items that order or forbid."""
    return sum(1 for sentence in _SENTENCE_END.split(text) if _RULE.search(sentence))


def has_system_prompt_shape(document: str) -> bool:
    """Whether a document is, or begins with, instructions to a model (a system prompt).

    Looks at the first 40,000 characters of a document as it is packed: turns marked `> `, `< `, `| `, or
    plain text. A request that merely begins with "Act as ..." and goes on for a sentence or two is none.
    """
    head = document[:_LOOKED_AT]
    if head[:2] not in _MARKS and not ("\n> " in head and "\n< " in head):
        return _plain_has_it(head)
    first = _MARK.search(head)
    if first is None:
        return _plain_has_it(head)
    reply = _REPLY.search(head)
    before = head[: reply.start()] if reply else head
    preamble = head[: first.start()]
    if first.group() == "| ":
        user = before.find("\n> ")
        preamble = before if user < 0 else before[:user]
    if preamble.strip():
        return (
            _assigns_role(preamble[:_ROLE_WITHIN])
            or _FRAME.search(preamble) is not None
            or _rules(preamble) >= 3
            or len(_ITEM.findall(preamble)) >= 3
            or len(preamble) >= LONG_PREAMBLE
        )
    request = before[2:]
    if _FRAME.search(request[:2000]) is not None and (
        _ROLE.search(request[:_ROLE_WITHIN]) or _rules(request) >= 2
    ):
        return True
    if not _assigns_role(request[:_ROLE_WITHIN]):
        return False
    rules = _rules(request)
    return rules >= 3 or (rules >= 1 and len(request) >= LONG_REQUEST) or len(_ITEM.findall(request)) >= 4


def _plain_has_it(text: str) -> bool:
    """The rule for text without turns: the role comes first, and rules follow close by."""
    opening = text[:2500]
    if not _assigns_role(opening[:200]):
        framed = _FRAME.match(opening)
        return framed is not None and _rules(opening) >= 3
    rules = _rules(opening)
    return rules >= 3 or (rules >= 1 and len(_ITEM.findall(opening)) >= 3)
