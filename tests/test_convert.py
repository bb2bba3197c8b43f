"""The authors' state dicts, and what their modules made of them."""

import numpy as np
import pytest
import torch

from squid.convert import from_reference
from squid.errors import DataError
from squid.methods.squid.losses import distillation
from squid.methods.squid.scores import Prediction
from squid.nn.patches import merge

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def case(shared):
    with np.load(shared("golden", "generator_small.npz")) as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def discriminator_case(shared):
    with np.load(shared("golden", "discriminator.npz")) as file:
        return {key: file[key] for key in file.files}


def states(case, discriminator_case):
    under = "sd/"
    return tuple(
        {key.removeprefix(under): value for key, value in c.items() if key.startswith(under)}
        for c in (case, discriminator_case)
    )


@pytest.fixture
def method(case, discriminator_case):
    return from_reference(*states(case, discriminator_case))


def tensor(array):
    return torch.from_numpy(np.asarray(array))


def test_sizes_are_read_from_the_shapes(method):
    config = method.config
    assert (config.size, config.grid, config.width, config.depth) == (128, 2, 4, 4)
    assert (config.slots, config.matrix_slots, config.merge_level) == (24, 24, 2)
    assert config.decoder_memory == "window"
    assert config.topk == "authors"


def test_reconstruction_is_the_authors(method, case):
    with torch.no_grad():
        reconstruction = method.reconstruct(tensor(case["x"]))
    torch.testing.assert_close(reconstruction, tensor(case["eval/recon"]), **CLOSE)


def test_score_is_minus_the_authors_logit_of_a_batch_of_one(method, discriminator_case):
    """Their logits are of plain images, so the generator is left out of this one."""
    method._predict = lambda images: Prediction(images, log_variance=None)
    expected = tensor(discriminator_case["official_score_batch1_trainmode_logits"])[:, 0]
    with torch.no_grad():
        scores = method.score(tensor(discriminator_case["x"]))
    torch.testing.assert_close(scores, -expected, **CLOSE)


def test_every_stage_of_the_way_is_the_authors(method, case):
    seen = {}

    def watch(name, module):
        module.register_forward_hook(lambda _m, _i, out: seen.update({name: out}))

    watch("in_conv", method.encoder.enter)
    watch("inpaint", method.inpainting)
    for i in range(4):
        watch(f"down{i}", method.encoder.levels[i])
        watch(f"up{i}", method.student.levels[i])
        watch(f"teacher_up{i}", method.teacher.levels[i])
    watch("mem3", method.student.memories[0])
    watch("mem2", method.student.memories[1])
    with torch.no_grad():
        method.reconstruct(tensor(case["x"]))
        bottleneck, skips = method._encode(tensor(case["x"]))
        teacher, _ = method.teacher(bottleneck, skips)
    expected = {key.split("/")[-1]: value for key, value in case.items() if "/inter/" in key}
    assert seen.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(seen[name], tensor(value), **CLOSE)
    torch.testing.assert_close(teacher, tensor(case["eval/teacher_recon"]), **CLOSE)


def test_what_is_distilled_and_the_whole_bottleneck_are_the_authors(method, case):
    with torch.no_grad():
        bottleneck, skips = method._encode(tensor(case["x"]))
        features = method.student(method._inpaint(bottleneck), skips)[1]
        teacher_features = method.teacher(bottleneck, skips)[1]
    expected = tensor(case["eval/dist_loss"])
    torch.testing.assert_close(distillation(features, teacher_features), expected, **CLOSE)
    whole = merge(bottleneck, method.config.grid)
    torch.testing.assert_close(whole, tensor(case["eval/embedding"]), **CLOSE)


def test_precision_is_kept(case, discriminator_case):
    generator, discriminator = states(case, discriminator_case)
    doubled = {k: v.astype("float64") if v.dtype == "float32" else v for k, v in generator.items()}
    method = from_reference(doubled, discriminator)
    assert method.encoder.enter.enter[0].weight.dtype == torch.float64
    assert method.inpainting.memory.slots.dtype == torch.float64


def test_patch_memories_are_recognised_and_turned(case, discriminator_case):
    generator, discriminator = states(case, discriminator_case)
    rng = np.random.default_rng(0)
    rows = {}
    for level, width in ((3, 32 * 8 * 8), (2, 16 * 16 * 16)):
        for i in range(4):
            rows[level, i] = rng.normal(size=(24, width)).astype("float32")
            generator[f"memory_blocks.{level}.memory.{i}.memMatrix"] = rows[level, i]
    method = from_reference(generator, discriminator)
    assert method.config.decoder_memory == "patch"
    slots = method.student.memories[0].memory.slots.detach()
    expected = rows[3, 1].reshape(24, 32, 64).transpose(0, 2, 1).reshape(24, -1)
    assert torch.equal(slots[1], tensor(expected))


@pytest.mark.parametrize(
    "key",
    [
        "in_conv.conv.conv1.0.weight",
        "inpaint_block.attention.in_proj_bias",
        "memory_blocks.2.memory.1.memMatrix",
        "teacher_out.conv.bias",
        "down_blocks.3.mpconv.conv1.0.bias",
    ],
)
def test_a_missing_entry_is_named(case, discriminator_case, key):
    generator, discriminator = states(case, discriminator_case)
    del generator[key]
    with pytest.raises(DataError, match=r"has no|hold nothing|should have"):
        from_reference(generator, discriminator)


def test_an_entry_too_many_is_named(case, discriminator_case):
    generator, discriminator = states(case, discriminator_case)
    with pytest.raises(DataError, match="surprise"):
        from_reference(generator | {"surprise.weight": np.zeros(3)}, discriminator)
    with pytest.raises(DataError, match="surprise"):
        from_reference(generator, discriminator | {"surprise.weight": np.zeros(3)})


def test_a_wrong_shape_is_named(case, discriminator_case):
    generator, discriminator = states(case, discriminator_case)
    discriminator["regressor.weight"] = np.zeros((1, 128), dtype="float32")
    with pytest.raises(DataError, match=r"head\.weight"):
        from_reference(generator, discriminator)
    with pytest.raises(DataError, match="authors' checkpoints"):
        from_reference(discriminator, generator)


@pytest.mark.parametrize(
    "change",
    [
        {"in_conv.conv.conv1.0.weight": np.float32(3.0)},
        {"in_conv.conv.conv1.0.weight": np.zeros((), "float32")},
        {"in_conv.conv.conv1.0.weight": np.zeros((8, 1, 3, 3), "int64")},
        {"in_conv.conv.conv1.0.weight": "text"},
        {"in_conv.conv.conv1.0.weight": torch.eye(3).to_sparse()},
        {"in_conv.conv.conv1.0.weight": torch.zeros(8, 1, 3, 3, dtype=torch.complex64)},
        {"in_conv.conv.conv1.0.weight": torch.zeros(1).expand(10**7, 1, 3, 3)},
        {"inpaint_block.memory.0.memMatrix": np.zeros(3, "float32")},
        {"inpaint_block.bottleneck_conv1.0.weight": np.zeros((0, 3), "float32")},
        {"inpaint_block.attention.in_proj_weight": np.zeros((), "float32")},
        {7: np.zeros(3, "float32")},
        {"epoch": 3},
    ],
    ids=str,
)
def test_odd_entries_are_one_sentence(case, discriminator_case, change):
    generator, discriminator = states(case, discriminator_case)
    with pytest.raises(DataError) as caught:
        from_reference(generator | change, discriminator)
    assert "\n" not in str(caught.value)
