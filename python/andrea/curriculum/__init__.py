"""The curriculum that learns: a bandit over data sources, its proxy and the coherence gate."""

from andrea.curriculum.policy import Curriculum, Phase
from andrea.curriculum.settings import CurriculumSettings, PhaseKind, Source

__all__ = ["Curriculum", "CurriculumSettings", "Phase", "PhaseKind", "Source"]
