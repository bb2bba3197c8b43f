"""Classes of intensity."""

import torch

from squid.nn.intensity import intensity_centres, quantise


def test_centres_are_the_levels_of_clustered_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.tensor([0.1, 0.4, 0.9])
    choice = torch.randint(3, (4, 1, 16, 16), generator=generator)
    noise = 0.02 * torch.randn(choice.shape, generator=generator)
    images = levels[choice] + noise
    centres = intensity_centres(iter(images.split(2)), 3)
    means = torch.stack([images[choice == k].mean() for k in range(3)])
    torch.testing.assert_close(centres, means, rtol=0, atol=2e-3)


def test_more_classes_than_levels_leave_the_last_ones_empty() -> None:
    images = torch.zeros(1, 1, 4, 4)
    images[..., 2:] = 1.0
    centres = intensity_centres([images], 5)
    assert centres.shape == (5,)
    assert quantise(images, centres).unique().tolist() == [0, 1]


def test_the_majority_of_neighbours_decides() -> None:
    images = torch.zeros(1, 1, 4, 4)
    images[..., 2:] = 1.0
    images[0, 0, 1, 0] = 1.0  # alone among zeros
    classes = quantise(images, torch.tensor([0.0, 1.0]))[0]
    assert classes[:, 0].eq(0).all()
    assert classes[:, 3].eq(1).all()
