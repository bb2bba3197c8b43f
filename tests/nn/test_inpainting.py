import pytest
import torch

from squid.convert import inpainting_state
from squid.nn.inpainting import (
    InpaintingBlock,
    binary_code,
    masked_shortcut,
    neighbour_index,
    shortcut,
)
from squid.nn.memory import MemoryQueue, Shrinkage

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def case(golden):
    return golden("inpaint_grid2")


@pytest.fixture
def block(case):
    memory = MemoryQueue(4, 20, 128, Shrinkage(topk="authors"))
    module = InpaintingBlock(32, memory, grid=2, side=4)
    state = {k.removeprefix("sd/"): v for k, v in case.items() if k.startswith("sd/")}
    module.load_state_dict(inpainting_state(state))
    return module


def test_golden_evaluation_and_its_intermediate_results(block, case):
    block.eval()
    inside = {}
    block.layer.mix.register_forward_hook(lambda _m, i, o: inside.update(inputs=i, mixed=o))
    block.expand.register_forward_pre_hook(lambda _m, i: inside.update(expand=i[0]))
    torch.testing.assert_close(block(case["x"]), case["eval_out"], **CLOSE)
    torch.testing.assert_close(block.reduce(case["x"]), case["eval_conv1_out"], **CLOSE)
    features, found = inside["inputs"]
    torch.testing.assert_close(features.flatten(0, 1), case["eval_attn_query"][0], **CLOSE)
    padded = torch.cat((found, found.new_zeros(3, 1, 128)), 1)
    neighbours = padded[:, neighbour_index(2)].flatten(0, 1)  # (b*p, 8, d)
    torch.testing.assert_close(neighbours.transpose(0, 1), case["eval_attn_kv"], **CLOSE)
    torch.testing.assert_close(inside["mixed"].flatten(0, 1), case["eval_attn_out"][0], **CLOSE)
    torch.testing.assert_close(inside["expand"], case["eval_conv2_in"], **CLOSE)


def test_golden_training(block, case):
    out = masked_shortcut(case["x"], block(case["x"]), case["train_mask"])
    torch.testing.assert_close(out, case["train_out"], **CLOSE)
    for ours, theirs in [("reduce.1", "bottleneck_conv1.1"), ("expand.1", "bottleneck_conv2.1")]:
        for key in ("running_mean", "running_var"):
            expected = case[f"train_after/{theirs}.{key}"]
            torch.testing.assert_close(block.state_dict()[f"{ours}.{key}"], expected, **CLOSE)


def test_golden_features_pending_for_the_queue(block, case):
    features = block.eval().features(case["x"])
    block.memory.train()(features)
    for i in range(4):
        torch.testing.assert_close(block.memory.pending[:, i], case[f"eval_enqueued{i}"], **CLOSE)


def test_golden_location_code(case):
    assert torch.equal(binary_code(4), case["binary_encoding"])
    assert binary_code(9).shape == (9, 4)


def test_neighbours_of_a_corner_and_of_the_centre():
    index = neighbour_index(3)
    assert index[0].tolist() == [9, 9, 9, 9, 1, 9, 3, 4]
    assert index[4].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert neighbour_index(1).tolist() == [[1] * 8]


def test_shortcuts():
    x, inpainted = torch.zeros(2, 3, 2, 2), torch.ones(2, 3, 2, 2)
    mask = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    masked = shortcut(x, inpainted, "masked", mask=mask, rho=0.9)
    assert torch.equal(masked[0], inpainted[0])
    assert torch.equal(masked[1], x[1])
    assert torch.equal(shortcut(x, inpainted, "masked", mask=None, rho=0.9), inpainted)
    assert torch.equal(shortcut(x, inpainted, "none", mask=mask, rho=0.9), inpainted)
    assert torch.equal(shortcut(x + 1, inpainted, "residual", mask=None, rho=0.9), inpainted * 2)
    soft = shortcut(x, inpainted, "soft", mask=None, rho=0.9)
    torch.testing.assert_close(soft, torch.full_like(soft, 0.9))


def test_straight_passes_gradients_around_the_block_and_no_feature():
    x = torch.rand(2, 3, 2, 2, requires_grad=True)
    inpainted = torch.ones(2, 3, 2, 2, requires_grad=True)
    out = shortcut(x, inpainted, "straight", mask=None, rho=0.9)
    assert torch.equal(out, inpainted)
    for gradient in torch.autograd.grad(out.sum(), [x, inpainted]):
        assert torch.equal(gradient, torch.ones_like(gradient))


@pytest.mark.parametrize("layer", ["transformer", "standard", "convolution", "none"])
@pytest.mark.parametrize("location_code", [True, False])
def test_every_kind_of_block_keeps_the_shape(layer, location_code):
    memory = MemoryQueue(9, 5, 16, Shrinkage())
    block = InpaintingBlock(
        16, memory, grid=3, side=2, layer=layer, heads=4, location_code=location_code
    )
    x = torch.randn(18, 16, 2, 2)
    assert block(x).shape == x.shape
    assert memory.pending.shape == (2, 9, 16)
