"""The blocks of SQUID that hold memories, built from its settings."""

from typing import Literal

from squid.errors import ConfigError
from squid.methods.squid.config import SquidConfig
from squid.nn.decoder import MemoryBlock
from squid.nn.inpainting import InpaintingBlock
from squid.nn.memory import MemoryMatrix, MemoryQueue


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
