"""What only M-KD has: the small cloner, and its disagreement with the teacher."""

import torch
import torch.nn.functional as F

from squid.methods.mkd import Mkd, MkdConfig
from squid.nn.conv import BatchNorm


def tiny() -> Mkd:
    torch.manual_seed(0)
    return Mkd(MkdConfig(size=32)).eval()


def images() -> torch.Tensor:
    return torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))


def test_the_cloner_has_the_published_widths() -> None:
    widths = [
        [layer.out_channels for layer in block if isinstance(layer, torch.nn.Conv2d)]
        for block in tiny().cloner.blocks
    ]
    assert widths == [[16, 16], [16, 128], [16, 16, 256], [16, 16, 512], [16, 16, 512]]
    for block in tiny().cloner.blocks:
        kinds = [type(layer) for layer in block]
        assert kinds[-3:] == [torch.nn.Conv2d, torch.nn.ReLU, torch.nn.MaxPool2d]
        assert kinds.count(BatchNorm) == kinds.count(torch.nn.Conv2d) - 1


def test_the_score_is_the_published_sum_over_the_last_three_pools() -> None:
    method = tiny()
    with torch.no_grad():
        maps = zip(method.teacher(images()), method.cloner(images(), 5), strict=True)
        pairs = [(a.flatten(1), b.flatten(1)) for a, b in maps][2:]
        expected = sum(
            1 - F.cosine_similarity(a, b) + 0.01 * (a - b).square().mean(1) for a, b in pairs
        )
        torch.testing.assert_close(method.score(images()), expected)


def test_the_teacher_never_learns_and_sees_plain_images() -> None:
    method = tiny()
    assert not any(parameter.requires_grad for parameter in method.teacher.parameters())
    assert not method.teacher.normalize


def test_the_heatmap_works_without_gradients_and_leaves_none() -> None:
    method = tiny()
    with torch.no_grad():
        heatmap = method.heatmap(images())
    assert heatmap.shape == (2, 32, 32)
    assert (heatmap > 0).all()
    assert all(parameter.grad is None for parameter in method.parameters())
