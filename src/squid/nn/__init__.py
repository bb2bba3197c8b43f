"""Blocks that know no method: convolutions, patches, memories, discriminators, losses ..."""
