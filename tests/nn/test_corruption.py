"""What restoration is trained on."""

import torch

from squid.nn.corruption import bend_intensities, fill_box, shuffle_blocks


def test_pixels_stay_in_their_block_and_unchosen_blocks_stay():
    images, order = torch.rand(2, 2, 1, 16, 16).unbind()
    chosen = torch.zeros(2, 16)
    chosen[:, 5] = 1  # row 1, column 1
    shuffled = shuffle_blocks(images, order, chosen, 4)
    changed = (shuffled != images)[:, 0]
    assert changed[:, 4:8, 4:8].any()
    changed[:, 4:8, 4:8] = False
    assert not changed.any()
    before, after = (x[:, 0, 4:8, 4:8].flatten(1).sort().values for x in (images, shuffled))
    assert torch.equal(before, after)


def test_a_curve_rises_between_fixed_ends():
    ramp = torch.linspace(0, 1, 64).expand(5, 1, 1, 64)
    bent = bend_intensities(ramp, torch.rand(5, 2))
    assert (bent[..., 1:] >= bent[..., :-1]).all()
    torch.testing.assert_close(bent[..., [0, -1]], ramp[..., [0, -1]])
    straight = bend_intensities(ramp, torch.tensor([2 / 3, 1 / 3]).expand(5, 2))
    torch.testing.assert_close(straight, ramp)


def test_a_box_lies_within_the_image():
    images = torch.rand(3, 1, 16, 16)
    box = torch.tensor([[0.0, 0, 0, 0, 0.5], [1, 1, 1, 1, 0.5], [1, 0, 0, 1, 0.5]])
    filled = fill_box(images, box, (0.125, 0.5)) == 0.5
    assert filled.sum((1, 2, 3)).tolist() == [4, 64, 16]
    assert filled[0, 0, :2, :2].all()
    assert filled[1, 0, 8:, 8:].all()
    assert filled[2, 0, 14:, :8].all()
