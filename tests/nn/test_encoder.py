import pytest
import torch

from squid.nn.encoder import PooledEncoder, ResidualEncoder


@pytest.mark.parametrize("kind", [ResidualEncoder, PooledEncoder])
def test_maps_have_the_promised_channels_and_halve_from_level_to_level(kind):
    encoder = kind(width=4, depth=3)
    bottleneck, skips = encoder(torch.rand(2, 1, 32, 32))
    maps = [*skips, bottleneck]
    assert [m.shape[1] for m in maps] == list(encoder.channels)
    assert [m.shape[2] for m in maps] == [32, 16, 8, 4]


def test_the_pooled_encoder_has_the_channels_of_the_papers_table():
    assert PooledEncoder(width=32, depth=4).channels[1:] == (32, 64, 128, 256)
