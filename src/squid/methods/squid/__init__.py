"""SQUID (Xiang et al., CVPR 2023), the method of the paper."""

from squid.methods.squid.config import SquidConfig
from squid.methods.squid.method import Squid

__all__ = ["Squid", "SquidConfig"]
