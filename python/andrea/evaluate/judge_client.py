"""One question to an OpenAI-compatible chat endpoint: time-outs, retries with back-off, strict reading.

Only what all such servers share is used: POST {url}/chat/completions with model and messages, the answer in
choices[0].message.content. The key travels in the Authorization header and nowhere else: redirects are not
followed, and a server that repeats the key has it struck out of every message.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from andrea.errors import ConfigError, Error
from andrea.evaluate.bounded_request import Answer, post

_MOST_BYTES = 1 << 20  # of an answer
_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}


class JudgeError(Error):
    """One sample could not be judged."""


class EndpointError(JudgeError):
    """The endpoint cannot be used at all: no connection, a refused key, an unknown model."""


class BusyError(JudgeError):
    """One sample was asked for as often as is allowed, and the endpoint did not answer it."""


@dataclass(frozen=True)
class Verdict:
    """A score from 0 to 10, and why."""

    score: float
    reason: str


@dataclass(frozen=True)
class Endpoint:
    """Where the judge is, and how patient we are. `body` is merged into each request; null removes a key."""

    url: str  # such as https://api.example.org/v1
    model: str
    key: str = field(default="", repr=False)
    body: dict[str, Any] = field(default_factory=dict)
    timeout: float = 60.0  # seconds from the name's look-up to the last byte of an answer
    retries: int = 4
    longest_wait: float = 60.0  # seconds between two tries

    def __post_init__(self) -> None:
        wrong = f"--url {self.url!r}: write the endpoint's base in ASCII, such as https://host/v1"
        try:
            parts = urlsplit(self.url)
            _ = parts.port  # beyond 65535 the system would take another one
            (parts.hostname or "").encode("idna")  # labels that no name has
        except ValueError as error:
            raise ConfigError(f"{wrong} ({error})") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or not _is_plain(self.url):
            raise ConfigError(wrong)
        if parts.username or parts.password:
            raise ConfigError("--url: no user or password in it; name the key's variable with --key-env")
        if not _is_plain(self.key):
            raise ConfigError("the judge's key holds blanks or characters that no key has; set it again")

    @property
    def address(self) -> str:
        """The address that is asked; what stands behind a ? stays there (api-version=...)."""
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        return parts._replace(path=path, fragment="").geturl()


def _is_plain(text: str) -> bool:
    return all(33 <= ord(character) <= 126 for character in text)


def ask(
    endpoint: Endpoint, messages: list[dict[str, str]], sleep: Callable[[float], object] = time.sleep
) -> str:
    """Return what the judge answers. Raises EndpointError, BusyError or JudgeError."""
    request = {"model": endpoint.model, "messages": messages, "temperature": 0} | endpoint.body
    data = json.dumps({key: value for key, value in request.items() if value is not None}).encode()
    for attempt in range(endpoint.retries + 1):
        last = attempt == endpoint.retries
        try:
            answer = _post(endpoint, data)
        except (OSError, http.client.HTTPException) as error:  # URLError and time-outs are OSErrors
            reason = getattr(error, "reason", None) or error
            what = _strike(
                endpoint, f"{endpoint.address} cannot be reached: {reason or type(error).__name__}"
            )
            if last:
                raise EndpointError(f"{what} (tried {attempt + 1} times)") from None
            wait = None
        else:
            if 200 <= answer.status < 300:
                # A judge that repeats the key must not get it into a reason, and so into the cache.
                return _strike(endpoint, _content(endpoint, answer.content))
            what = _strike(
                endpoint, f"{endpoint.address} answered {answer.status}: {_detail(answer, endpoint)}"
            )
            if answer.status not in _RETRIED:
                raise EndpointError(f"{what}{_advice(answer.status)}")
            if last:
                raise BusyError(f"{what} (tried {attempt + 1} times)")
            wait = _asked_wait(answer.headers.get("Retry-After"))
        backed_off = min(2.0**attempt * random.uniform(0.5, 1.0), endpoint.longest_wait)
        sleep(backed_off if wait is None else min(wait, endpoint.longest_wait))
    raise AssertionError("unreachable")


def _post(endpoint: Endpoint, data: bytes) -> Answer:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "andrea"}
    request = urllib.request.Request(endpoint.address, data, headers, method="POST")
    if endpoint.key:
        request.add_unredirected_header("Authorization", f"Bearer {endpoint.key}")
    return post(request, endpoint.timeout, _MOST_BYTES + 1)


def _content(endpoint: Endpoint, answer: bytes) -> str:
    if len(answer) > _MOST_BYTES:
        raise JudgeError(f"{endpoint.address} answered more than {_MOST_BYTES} bytes")
    try:
        content = json.loads(answer)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise JudgeError("the answer is not one of the chat protocol (choices[0].message.content)") from None
    if not isinstance(content, str):
        raise JudgeError("the answer holds no text (choices[0].message.content)")
    return content


def read_verdict(content: str) -> Verdict:
    """Return the verdict in an answer: one JSON object with a number `score` from 0 to 10, and nothing else.

    A code fence around it is allowed. Anything looser would let a chatty judge, or a sample that speaks of
    scores, decide by accident. Raises JudgeError.
    """
    text = content.strip()
    if fenced := re.fullmatch(r"```(?:json)?\s*\n(.*?)\n?\s*```", text, re.DOTALL):
        text = fenced[1]
    try:
        verdict = json.loads(text)
    except (ValueError, RecursionError):
        raise JudgeError(f"the judge did not answer with JSON alone: {content[:80]!r}") from None
    score = verdict.get("score") if isinstance(verdict, dict) else None
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 10:
        raise JudgeError(f"the judge gave no number from 0 to 10 as score: {content[:80]!r}")
    reason = verdict.get("reason", "")
    return Verdict(float(score), reason if isinstance(reason, str) else "")


def _detail(answer: Answer, endpoint: Endpoint) -> str:
    """Return what the server says of an error, on one short line."""
    text = answer.content[:2000].decode("utf-8", "replace")
    try:
        said = json.loads(text)["error"]
        text = said["message"] if isinstance(said, dict) else str(said)
    except (ValueError, LookupError, TypeError):
        pass
    return " ".join(_strike(endpoint, str(text)).split())[:200] or answer.reason


def _advice(code: int) -> str:
    if code in (401, 403):
        return " (is the key right? --key-env names the variable that holds it)"
    if code == 404:
        return " (--url is the base before /chat/completions, --model a model that it serves)"
    if 300 <= code < 400:
        return " (redirects are not followed, so that the key stays where it belongs: give the new address)"
    return ""


def _strike(endpoint: Endpoint, text: str) -> str:
    """Return `text` without the key, as it is or as JSON spells it."""
    for spelling in {endpoint.key, json.dumps(endpoint.key)[1:-1]} - {""}:
        text = text.replace(spelling, "***")
    return text


def _asked_wait(header: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
