"""All methods by name. A new one is a file here and a line in `METHODS`."""

from squid.config import nearest
from squid.errors import ConfigError
from squid.methods.ae_u import AeU
from squid.methods.auto_encoder import AutoEncoder
from squid.methods.base import Method, MethodConfig
from squid.methods.cutpaste import CutPaste
from squid.methods.ensemble import Ensemble
from squid.methods.f_anogan import FAnogan
from squid.methods.fusion import Fusion, FusionConfig
from squid.methods.ganomaly import Ganomaly
from squid.methods.if2d import If2d
from squid.methods.igd import Igd
from squid.methods.memae import MemAE
from squid.methods.mkd import Mkd
from squid.methods.mnad import Mnad
from squid.methods.padim import Padim
from squid.methods.panda import Panda
from squid.methods.parameters import MAX_PARAMETERS, count_parameters, excess
from squid.methods.patch_memae import PatchMemAE
from squid.methods.salad import Salad
from squid.methods.squid import Squid
from squid.methods.synthetic_lesions import SyntheticLesions
from squid.methods.vae import Vae

METHODS: dict[str, type[Method]] = {
    "auto_encoder": AutoEncoder,
    "vae": Vae,
    "ganomaly": Ganomaly,
    "f_anogan": FAnogan,
    "memae": MemAE,
    "mnad": Mnad,
    "salad": Salad,
    "cutpaste": CutPaste,
    "panda": Panda,
    "mkd": Mkd,
    "if2d": If2d,
    "padim": Padim,
    "igd": Igd,
    "ae_u": AeU,
    "synthetic_lesions": SyntheticLesions,
    "fusion": Fusion,
    "patch_memae": PatchMemAE,
    "squid": Squid,
}


def build(config: MethodConfig) -> Method:
    """The untrained method that `config` describes."""
    if (count := _count(config)) > MAX_PARAMETERS:
        raise excess(config, count)
    method = _method(config)
    if config.members == 1:
        return method(config)
    return Ensemble(method(config) for _ in range(config.members))


def _count(config: MethodConfig) -> int:
    """Parameters and buffers of all members and parts."""
    if isinstance(config, FusionConfig):
        return config.members * sum(map(_count, config.parts))
    return config.members * count_parameters(config, _method(config))


def _method(config: MethodConfig) -> type[Method]:
    if config.name not in METHODS:
        raise ConfigError(f"There is no method '{config.name}'; {nearest(config.name, METHODS)}")
    return METHODS[config.name]
