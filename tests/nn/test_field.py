"""Implicit fields: encoding of places, dropout from few draws."""

import torch

from squid.nn.field import Dropout, ImplicitField, place_encoding


def test_places_are_encoded_by_doubling_waves() -> None:
    encoding = place_encoding(5, 3).view(5, 5, 2, 6)  # row, column, coordinate, wave
    y, x = -0.5, 1.0  # row 1, column 4
    frequency = torch.pi * torch.tensor([1.0, 2.0, 4.0])
    for place, row in zip((y, x), encoding[1, 4], strict=True):
        waves = frequency * place
        torch.testing.assert_close(row, torch.cat((waves.sin(), waves.cos())))


def test_dropout_keeps_its_share_and_pairs_are_independent() -> None:
    generator = torch.Generator().manual_seed(0)
    n = 40_000
    points, units = (torch.rand(n, 2, 2, generator=generator) for _ in range(2))
    kept = Dropout(points, units, 0.2)(torch.ones(n, 2, 2), 1)  # (b, points, units)
    assert set(kept.unique().tolist()) == {0.0, 1.25}
    share = kept.gt(0).float()
    assert abs(share.mean() - 0.8) < 0.01
    # below four times the error of so many draws
    for other in (share[:, 0, 1], share[:, 1, 0], share[:, 1, 1]):
        assert abs(torch.corrcoef(torch.stack((share[:, 0, 0], other)))[0, 1]) < 0.02


def test_each_image_has_its_own_field() -> None:
    torch.manual_seed(0)
    field = ImplicitField(code=3, place=8, hidden=16, layers=4, outputs=5, again=2)
    codes, places = torch.randn(2, 3), place_encoding(4, 2)[None]
    both = field(codes, places)
    assert both.shape == (2, 16, 5)
    torch.testing.assert_close(both[1:], field(codes[1:], places))
    assert not torch.allclose(both[0], both[1])
