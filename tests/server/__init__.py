"""A strict, scripted Messages API over real HTTP, for all tests of the project (README.md)."""

from tests.server.cache import CacheRules
from tests.server.errors import ApiError
from tests.server.faults import KINDS, MOMENTS, Fault
from tests.server.models import Model
from tests.server.prefix import Break
from tests.server.record import Record
from tests.server.script import Call, ScriptError, Step, StepLike, load
from tests.server.server import KEY, Server, serve

__all__ = [
    "KEY",
    "KINDS",
    "MOMENTS",
    "ApiError",
    "Break",
    "CacheRules",
    "Call",
    "Fault",
    "Model",
    "Record",
    "ScriptError",
    "Server",
    "Step",
    "StepLike",
    "load",
    "serve",
]
