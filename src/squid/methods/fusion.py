"""Fusion: several different methods that score together, each in units of healthy scores.

Methods that fail on different images correct each other, e.g. an auto-encoder with uncertainty
(`ae_u`) and a segmenter of synthetic lesions.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator
from torch import Tensor

from squid.config import nearest
from squid.methods.ae_u import AeUConfig
from squid.methods.base import MAX_MEMBERS, Batch, Method, MethodConfig
from squid.methods.ensemble import Ensemble, PreparedBatches
from squid.methods.synthetic_lesions import SyntheticLesionsConfig
from squid.nn.standardiser import Standardiser

MAP_IMAGES = 512
"""Training images whose heatmaps give the scale of each part's heatmap."""


RADIOGRAPHS: tuple[MethodConfig, ...] = (
    AeUConfig(preprocess=("equalise",), smooth=0.025, region="lungs"),
    AeUConfig(preprocess=("standardise",), smooth=0.025, region="lungs"),
    SyntheticLesionsConfig(preprocess=("equalise",), region="lungs"),
)
"""Parts for frontal chest X-rays, chosen on validation images (docs/log.md)."""
SMALL_RADIOGRAPHS: tuple[MethodConfig, ...] = (
    *RADIOGRAPHS[:2],
    SyntheticLesionsConfig(
        channels=(16, 32, 64, 128, 128), preprocess=("equalise",), region="lungs"
    ),
)
"""The same with a quarter of the work in the U-Net, for images of 64 pixels and a CPU."""


class FusionConfig(MethodConfig):
    """Parts are whole `method` tables, each with members of its own and with preprocessing, which
    the whole has none of. All see the same images, so the size of the whole counts."""

    name: Literal["fusion"] = "fusion"
    parts: Annotated[
        tuple[SerializeAsAny[MethodConfig], ...], Field(min_length=2, validate_default=True)
    ] = RADIOGRAPHS

    @field_validator("parts", mode="before")
    @classmethod
    def _pick_methods(cls, parts: Any) -> Any:
        if not isinstance(parts, list | tuple):
            return parts
        if len(parts) > MAX_MEMBERS:  # before each of them is parsed
            raise ValueError(f"{len(parts):,} parts are too many; choose at most {MAX_MEMBERS}.")
        return [_parse(part) for part in parts]

    @field_validator("parts")
    @classmethod
    def _give_size(
        cls, parts: tuple[MethodConfig, ...], info: ValidationInfo
    ) -> tuple[MethodConfig, ...]:
        if "size" not in info.data:  # an impossible one, which is an error of its own
            return parts
        size = {"size": info.data["size"]}
        return tuple(type(part).model_validate({**part.model_dump(), **size}) for part in parts)

    @model_validator(mode="after")
    def _refuse_preprocess(self) -> Self:
        # Each part sees the images as they are, and prepares them for itself.
        if self.preprocess:
            raise ValueError(
                f'preprocess = ["{self.preprocess[0]}"] of the whole would do nothing; give it to '
                "each of its parts."
            )
        return self

    @model_validator(mode="after")
    def _check_members(self) -> Self:
        if (members := self.members * sum(part.members for part in self.parts)) > MAX_MEMBERS:
            raise ValueError(
                f"parts have {members:,} members in all; choose at most {MAX_MEMBERS}."
            )
        return self


def _parse(part: Any) -> Any:
    """A part's table as the settings of the method it names."""
    from squid.methods import METHODS  # which holds this method, too

    if not isinstance(part, Mapping):
        return part
    name = part.get("name")
    if name == "fusion":
        raise ValueError("a part is a fusion itself; name its parts here instead.")
    if name not in METHODS:
        raise ValueError(f"there is no method '{name}'; {nearest(str(name), METHODS)}")
    return METHODS[name].Config.model_validate(part)


class Fusion(Ensemble):
    """The mean of the parts' scores, and of their heatmaps, each standardised over the training
    images."""

    Config: ClassVar[type[MethodConfig]] = FusionConfig
    title = "Fusion"
    paper = "mean rule of Kittler et al., TPAMI 1998, doi:10.1109/34.667881"

    def __init__(self, config: FusionConfig) -> None:
        from squid.methods import build

        super().__init__(build(part) for part in config.parts)
        self.config = config
        # One scale for all pixels: a scale per location would hide where maps are bright.
        self.map_scale = Standardiser(len(self.members))

    def finalize(self, batches: Iterable[Batch]) -> None:
        super().finalize(batches)
        for number, member in enumerate(self.members):
            maps = list(_some_maps(PreparedBatches(batches, member), member))
            if maps:
                self.map_scale.fit(number, torch.cat(maps))

    def heatmap(self, images: Tensor) -> Tensor | None:
        """The mean over the parts that have one, each in units of healthy pixels."""
        standardised = [
            (maps - mean) / spread
            for member, mean, spread in zip(
                self.members, self.map_scale.mean, self.map_scale.spread, strict=True
            )
            if (maps := member.heatmap(member.prepare(images))) is not None
        ]
        return torch.stack(standardised).mean(0) if standardised else None

    def reconstruct(self, images: Tensor) -> Tensor | None:
        """That of the first part that has one."""
        made = (member.reconstruct(member.prepare(images)) for member in self.members)
        return next((one for one in made if one is not None), None)


def _some_maps(batches: Iterable[Batch], member: Method) -> Iterable[Tensor]:
    # Some images are enough for a mean and a spread over pixels, and their maps fit in memory.
    seen = 0
    for batch in batches:
        maps = member.heatmap(batch.images)
        if maps is None or seen >= MAP_IMAGES:
            return
        seen += len(maps)
        yield maps.float().flatten()
