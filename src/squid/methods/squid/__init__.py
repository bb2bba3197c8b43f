"""SQUID, the paper's method."""

from squid.methods.squid.config import SquidConfig
from squid.methods.squid.method import Squid

__all__ = ["Squid", "SquidConfig"]
