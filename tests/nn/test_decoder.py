import pytest
import torch
from einops import rearrange

from squid.nn.decoder import Decoder, MemoryBlock
from squid.nn.memory import MemoryMatrix, Shrinkage

AUTHORS = Shrinkage(topk="authors")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def block(slots: torch.Tensor, place: str) -> MemoryBlock:
    memory = MemoryMatrix(*slots.shape, AUTHORS)
    memory.slots.data.copy_(slots)
    return MemoryBlock(memory, grid=2, place=place)


def test_golden_window_memory(golden):
    case = golden("memory_matrix")
    module = block(torch.stack([case[f"memory{i}"] for i in range(4)]), "window")
    x = case["x"].requires_grad_()
    out = module(x)
    torch.testing.assert_close(out, case["eval_out"], **CLOSE)
    grads = torch.autograd.grad(out, [x, module.memory.slots], case["upstream"])
    torch.testing.assert_close(grads[0], case["grad_x"], **CLOSE)
    expected = torch.stack([case[f"grad_memory{i}"] for i in range(4)])
    torch.testing.assert_close(grads[1], expected, **CLOSE)
    torch.testing.assert_close(module(x, case["train_mask"]), case["train_out"], **CLOSE)


def test_golden_patch_memory(golden):
    case = golden("memory_matrix")
    rows = torch.stack([case[f"v3/memory{i}"] for i in range(4)])
    slots = rearrange(rows, "p n (c h w) -> p n (h w c)", c=8, h=8)
    out = block(slots, "patch")(case["x"])
    torch.testing.assert_close(out, case["v3/eval_out"], **CLOSE)


@pytest.mark.parametrize("skips", [True, False])
def test_patches_become_one_image(skips):
    decoder = Decoder((4, 8, 16), grid=2, merge_level=1, skips=skips)
    maps = [torch.randn(12, 4, 16, 16), torch.randn(12, 8, 8, 8)]
    image, features = decoder(torch.randn(12, 16, 4, 4), maps)
    assert image.shape == (3, 1, 32, 32)
    assert [tuple(f.shape) for f in features] == [(12, 8, 8, 8), (3, 4, 32, 32)]


def test_skips_matter_only_before_patches_are_merged():
    decoder = Decoder((4, 8, 16), grid=2, merge_level=1).eval()
    x, large, small = torch.randn(4, 16, 4, 4), torch.randn(4, 4, 16, 16), torch.randn(4, 8, 8, 8)
    image, _ = decoder(x, [large, small])
    assert torch.equal(decoder(x, [large + 1, small])[0], image)
    assert not torch.equal(decoder(x, [large, small + 1])[0], image)
