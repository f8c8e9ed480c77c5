"""Rules, which keep replicas together, and the engine that applies them."""

from .engine import Engine, gain_of
from .family import PRESETS, Family
from .rule import MOST, RuleSettings, caps
from .state import RuleNumbers, RuleState
