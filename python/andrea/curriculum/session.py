"""One trainer's conversation with the policy: a line in, a line out. No sockets here."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from andrea.curriculum.engine_policy import EnginePolicy
from andrea.curriculum.experiment import CurriculumPlan, Scorer
from andrea.curriculum.policy import Phase
from andrea.curriculum.protocol import (
    MAX_STATE,
    PROTOCOL,
    AskState,
    Bye,
    ErrorReply,
    Hello,
    PhaseReply,
    Reply,
    Request,
    RowColumns,
    Sample,
    StateReply,
    Verdict,
    read_request,
)
from andrea.errors import CheckpointError, ConfigError, DataError


class Session:
    """Answers the lines of one trainer; a new one is made for every connection."""

    def __init__(
        self,
        plan: CurriculumPlan,
        scorer: Scorer | None,
        on_phase: Callable[[str, int, Phase], None] = lambda model, seed, phase: None,
    ) -> None:
        """Serve `plan`; `on_phase(model, seed, phase)` is told of every new decision."""
        self._plan = plan
        self._scorer = scorer
        self._on_phase = on_phase
        self._policy: EnginePolicy | None = None
        self._model, self._seed = "", 0
        self._lock = threading.Lock()
        self.closed = False

    def answer(self, line: bytes) -> Reply | None:
        """Answer one line; None after a goodbye. A fault becomes an error reply and closes the session."""
        with self._lock:
            try:
                return self._answer(read_request(line))
            except DataError as wrong:
                return self._refuse("protocol", str(wrong))
            except CheckpointError as wrong:
                return self._refuse("state", str(wrong))
            except ConfigError as wrong:
                return self._refuse("order" if self._policy else "sources", str(wrong))

    def _answer(self, request: Request) -> Reply | None:
        if isinstance(request, Bye):
            self.closed = True
            return None
        if isinstance(request, Hello):
            return self._hello(request)
        if isinstance(request, Sample):
            return self._verdict(request)
        if self._policy is None:
            return self._refuse("protocol", "the first line must be a hello")
        if isinstance(request, AskState):
            return StateReply(self._policy.state())
        return self._phase(self._policy, request.step, request.rows)

    def _hello(self, hello: Hello) -> Reply:
        if hello.protocol != PROTOCOL:
            return self._refuse(
                "protocol",
                f"the trainer speaks protocol {hello.protocol}, this proxy {PROTOCOL}; use one version",
            )
        if hello.state is not None and len(hello.state) > MAX_STATE:
            return self._refuse(
                "state", f"a state may have {MAX_STATE} bytes, this one has {len(hello.state)}"
            )
        sizes = [(s.name, s.documents, s.tokens, s.bytes) for s in hello.sources]
        policy = EnginePolicy(self._plan.curriculum(sizes, hello.seed))
        if hello.state is not None:
            policy.restore(hello.state)
        self._policy, self._model, self._seed = policy, hello.model, hello.seed
        return self._phase(policy, hello.step, hello.rows)

    def _phase(self, policy: EnginePolicy, step: int, rows: RowColumns) -> Reply:
        steps, weights, log = policy.begin_phase(step, msgspec.structs.asdict(rows))
        if policy.curriculum.phase is not None:
            self._on_phase(self._model, self._seed, policy.curriculum.phase)
        return PhaseReply(step, steps, weights, log, policy.state())

    def _verdict(self, sample: Sample) -> Reply:
        if self._scorer is None:
            return Verdict(None, "null")
        result = self._scorer(sample.text.decode("utf-8", errors="replace"))
        return Verdict(result.score, msgspec.json.encode(result.as_json()).decode())

    def _refuse(self, code: str, message: str) -> ErrorReply:
        self.closed = True
        return ErrorReply(code, message)
