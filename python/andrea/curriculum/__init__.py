"""The curriculum that learns: a bandit over data sources, its proxy and the coherence gate."""

from andrea.curriculum.collapse import Coherence, coherence, lexicon_of
from andrea.curriculum.policy import Curriculum, Phase
from andrea.curriculum.settings import CurriculumSettings, PhaseKind, Source

__all__ = [
    "Coherence",
    "Curriculum",
    "CurriculumSettings",
    "Phase",
    "PhaseKind",
    "Source",
    "coherence",
    "lexicon_of",
]
