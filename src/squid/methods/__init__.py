"""The methods by name. A new one is a file here and a line in `METHODS`."""

from squid.config import nearest
from squid.errors import ConfigError
from squid.methods.base import Method, MethodConfig
from squid.methods.squid import Squid

METHODS: dict[str, type[Method]] = {
    "squid": Squid,
}


def build(config: MethodConfig) -> Method:
    """The untrained method that `config` describes."""
    if config.name not in METHODS:
        raise ConfigError(f"There is no method '{config.name}'; {nearest(config.name, METHODS)}")
    return METHODS[config.name](config)
