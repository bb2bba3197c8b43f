"""What only Ganomaly has: matched features, and a discriminator that is initialised again."""

import pytest
import torch

from squid.calibration import UNCALIBRATED
from squid.config import parse
from squid.detector import CHUNK, Detector
from squid.inference.batches import BATCH_SIZE
from squid.inference.onnx import ExportError, export_onnx
from squid.methods import build
from squid.methods.base import Batch
from squid.methods.ganomaly import Ganomaly, GanomalyConfig
from squid.recipe import Recipe


def small(**settings):
    torch.manual_seed(0)
    return Ganomaly(GanomalyConfig(size=32, width=4, code=6, **settings))


def draw_batch():
    images = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images, torch.arange(4), {})


def weights(network):
    return [parameter.clone() for parameter in network.parameters()]


@pytest.mark.parametrize(("loss", "again"), [(float("inf"), False), (2e-5, False), (9e-6, True)])
def test_a_collapsed_discriminator_is_initialised_again_at_the_end_of_an_epoch(loss, again):
    method = small()
    (stage,) = method.stages()
    assert stage.every_epochs == 1
    before = weights(method.discriminator)
    method.discriminator_loss.fill_(loss)
    stage.prepare(())
    after = weights(method.discriminator)
    moved = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
    assert any(moved) == again
    kernels = torch.cat([p.flatten() for p in after if p.ndim == 4])
    assert abs(kernels.std() - 0.02) < 0.002


def test_the_discriminator_remembers_its_last_loss():
    method = small()
    batch, (stage,) = draw_batch(), method.stages()
    shared = stage.shared(batch, frozenset({"generator", "discriminator"}))
    terms = stage.objectives[1].loss(batch, shared)
    assert torch.equal(method.discriminator_loss, terms["discriminator"].detach())


def test_the_score_is_the_distance_of_the_two_codes():
    method = small().eval()
    images = draw_batch().images
    with torch.no_grad():
        # The first weights are so small that every score is about zero.
        for kernel in (p for p in method.parameters() if p.ndim == 4):
            torch.nn.init.kaiming_normal_(kernel)
        reconstruction = method.reconstruct(images)
        codes = method.encoder(2 * images - 1), method.second_encoder(2 * reconstruction - 1)
        expected = (codes[0] - codes[1]).square().mean(1)
        assert expected.min() > 0.1
        torch.testing.assert_close(method.score(images), expected)


def test_features_are_matched_not_the_logits():
    method = small()
    batch, (stage,) = draw_batch(), method.stages()
    shared = stage.shared(batch, frozenset())
    with torch.no_grad():
        method.discriminator.leave.weight.zero_()
    adversarial = stage.objectives[0].loss(batch, shared)["adversarial"]
    assert adversarial > 0
    features = [method.discriminator.features(shared[key]) for key in ("real", "fake")]
    torch.testing.assert_close(adversarial, (features[0] - features[1]).square().mean())


def test_published_sizes():
    with torch.device("meta"):
        method = Ganomaly(GanomalyConfig())
    widths = [conv.out_channels for conv in method.encoder.convs]
    assert widths == [64, 128, 256, 512, 1024]
    assert method.encoder(torch.empty(2, 1, 128, 128, device="meta")).shape == (2, 100)


def test_scoring_by_each_image_alone_is_a_choice():
    images = draw_batch().images
    with torch.no_grad():
        alone = small(score_statistics="image").eval()
        scores = alone.score(images)
        torch.testing.assert_close(alone.score(images[1:2]), scores[1:2])
        assert not torch.allclose(scores, small().eval().score(images))


def test_statistics_of_the_scored_images_are_a_choice_that_changes_no_state():
    """The authors score in training mode, in which the network goes on tracking."""
    images = draw_batch().images
    method = small(score_statistics="batch").eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    with torch.no_grad():
        scores = method.score(images)
        assert not torch.allclose(method.score(images[:2]), scores[:2]), "others have a part"
        training = small().train()
        signed = training._pass(2 * images - 1)
    torch.testing.assert_close(scores, (signed[2] - signed[1]).square().mean(1))
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())


SETTINGS = {"name": "ganomaly", "size": 32, "width": 4, "code": 6, "batch_size": 8}


def batch_detector(**settings):
    torch.manual_seed(0)
    values = {"data": {"name": "digitanatomy"}, "method": {**SETTINGS, **settings}}
    recipe = parse(Recipe, values, "here")
    method = build(recipe.method)
    for kernel in (p for p in method.parameters() if p.ndim == 4):
        torch.nn.init.kaiming_normal_(kernel)
    return Detector(method, UNCALIBRATED, recipe, device="cpu")


def pictures(n=20):
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (n, 1, 32, 32), generator=generator, dtype=torch.uint8)


def test_scores_by_the_batch_are_those_of_shuffled_batches_of_the_authors_size():
    detector, pixels = batch_detector(score_statistics="batch"), pictures()
    scores = torch.from_numpy(detector.score(pixels)).float()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    assert order.tolist() != list(range(20)), "classes stand one after the other in a test set"
    with torch.no_grad():
        for part in (order[:8], order[8:16], order[16:]):  # the rest is not filled up
            expected = detector.method.score(pixels[part].float() / 255)
            torch.testing.assert_close(scores[part], expected)


@pytest.mark.parametrize("members", [1, 2])
def test_scores_by_the_batch_do_not_depend_on_what_the_device_takes_at_once(monkeypatch, members):
    pixels, found = pictures(), []
    for at_once in (4, 256):  # of a CPU and of a GPU
        monkeypatch.setitem(BATCH_SIZE, "cpu", at_once)
        monkeypatch.setitem(CHUNK, "cpu", 4 * at_once)
        found.append(batch_detector(score_statistics="batch", members=members).score(pixels))
    assert (found[0] == found[1]).all()


def test_what_is_scored_by_the_batch_is_reconstructed_alone():
    detector, pixels = batch_detector(score_statistics="batch"), pictures()
    alone = detector.reconstruct(pixels[:1])
    torch.testing.assert_close(*map(torch.from_numpy, (detector.reconstruct(pixels)[:1], alone)))


def test_what_is_scored_by_the_batch_has_no_onnx_form(tmp_path):
    with pytest.raises(ExportError, match="scores images by each other"):
        export_onnx(small(score_statistics="batch"), tmp_path / "file.onnx", size=32)
