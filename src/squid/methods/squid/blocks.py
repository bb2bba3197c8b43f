"""The blocks of SQUID that hold memories, built from its settings, and the masks they draw."""

from typing import Literal

from squid.errors import ConfigError
from squid.methods.squid.config import SquidConfig
from squid.nn.decoder import MemoryBlock
from squid.nn.inpainting import InpaintingBlock
from squid.nn.memory import MemoryMatrix, MemoryQueue
from squid.nn.noise import NoiseSpec


def inpainting_block(config: SquidConfig, channels: int) -> InpaintingBlock:
    """The in-painting block at the bottleneck, whose map has `channels` channels."""
    token = channels // 4 * config.side**2  # values
    if config.layer != "convolution" and (not token or token % config.heads):
        raise ConfigError(
            f"{config.heads} heads do not divide a token of {token} values; "
            "change heads, width or depth."
        )
    # One region for all positions has as many slots as all their regions together.
    regions = config.grid**2 if config.space_aware else 1
    slots = config.slots * config.grid**2 // regions
    kind = MemoryQueue if config.memory == "queue" else MemoryMatrix
    return InpaintingBlock(
        channels,
        kind(regions, slots, token, config.shrink, config.similarity),
        grid=config.grid,
        side=config.side,
        layer="none" if config.inpainting == "pixel" else config.layer,
        heads=config.heads,
        location_code=config.location_code,
    )


def student_memories(config: SquidConfig, channels: tuple[int, ...]) -> list[MemoryBlock]:
    """The student's memories, one per level before patches are merged, the deepest first."""
    place = config.decoder_memory
    if place == "none":
        return []
    return [
        _student_memory(config, place, channels[-1 - i], config.side * 2**i)
        for i in range(1, config.depth - config.merge_level + 1)
    ]


def _student_memory(
    config: SquidConfig, place: Literal["window", "patch"], channels: int, side: int
) -> MemoryBlock:
    # As in the in-painting block, one region for all positions has the slots of all together.
    regions = config.grid**2 if config.space_aware else 1
    slots = config.matrix_slots * config.grid**2 // regions
    # A token is a window of a patch's map, or that whole map.
    token_side = side // config.grid if place == "window" else side
    width = channels * token_side**2
    kind = MemoryQueue if config.decoder_slots == "queue" else MemoryMatrix
    return MemoryBlock(
        kind(regions, slots, width, config.shrink, config.similarity),
        grid=config.grid,
        place=place,
        shortcut=config.decoder_shortcut,
        rho=config.decoder_rho,
    )


def mask_noise(config: SquidConfig, b: int, memories: int) -> dict[str, NoiseSpec]:
    """The random masks of one pass of `b` images: `mask0` of the in-painting block, `mask1` ... of
    as many memories of the student, `keep` of pixel in-painting."""
    # Masks have one value per place of the map, shared by its channels.
    patches, draws = b * config.grid**2, {}
    if config.inpainting != "none" and config.shortcut == "masked":
        shape = (patches, 1, config.side, config.side)
        draws["mask0"] = NoiseSpec(shape, "bernoulli", config.rho)
    if config.decoder_shortcut == "masked":
        for i in range(1, memories + 1):
            shape = (patches, 1, config.side * 2**i, config.side * 2**i)
            draws[f"mask{i}"] = NoiseSpec(shape, "bernoulli", config.decoder_rho)
    if config.inpainting == "pixel":
        draws["keep"] = NoiseSpec((patches, 1, 1, 1), "bernoulli", 1 - config.pixel_dropout)
    return draws
