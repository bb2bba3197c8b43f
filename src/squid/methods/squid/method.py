"""SQUID: deep feature in-painting for unsupervised anomaly detection (Xiang et al., CVPR 2023,
arXiv:2111.13495).

Patches of an image are encoded; a student generator reconstructs the image from features that an
in-painting block read from memories of normal images; a discriminator scores how real the
reconstruction looks. A teacher generator, without memories, guides the student in training only.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from squid.errors import ConfigError
from squid.methods.base import Batch, Method, MethodConfig, Objective, Shared, Stage
from squid.methods.squid import losses
from squid.methods.squid.blocks import inpainting_block, mask_noise, student_memories
from squid.methods.squid.config import MapScore, SquidConfig
from squid.methods.squid.distillation import ScoreDistillation, zero_head_copy
from squid.methods.squid.lesions import LesionStage
from squid.methods.squid.losses import StudentPass, TeacherPass
from squid.methods.squid.scores import Prediction, worst_patch
from squid.methods.squid.temporal_ensemble import TemporalEnsemble
from squid.nn.conv import at_least_float32
from squid.nn.decoder import Decoder
from squid.nn.discriminator import Discriminator, real_or_fake
from squid.nn.encoder import Encoder, PooledEncoder, ResidualEncoder
from squid.nn.gaussian import Gaussian, ledoit_wolf
from squid.nn.inpainting import InpaintingBlock, shortcut
from squid.nn.lesions import lesion_noise
from squid.nn.lungs import Lungs
from squid.nn.memory import MemoryQueue
from squid.nn.noise import NoiseSpec
from squid.nn.patches import split
from squid.nn.standardiser import Standardiser
from squid.nn.unet import UNet


class Squid(Method):
    """The method of the paper, with a switch for each of its parts."""

    Config: ClassVar[type[MethodConfig]] = SquidConfig
    title = "SQUID"
    paper = "Xiang et al., CVPR 2023, arXiv:2111.13495"
    training_only = ("teacher.", "temporal_ensemble.")

    encoder: Encoder

    def __init__(self, config: SquidConfig) -> None:
        super().__init__()
        self.config = config
        build_encoder = PooledEncoder if config.encoder == "pooled" else ResidualEncoder
        self.encoder = build_encoder(config.width, config.depth, bias=config.conv_bias)
        channels = self.encoder.channels
        self.inpainting = (
            None if config.inpainting == "none" else inpainting_block(config, channels[-1])
        )
        memories = student_memories(config, channels)
        # Student and teacher have the same decoder; only the student has memories.
        decoder = partial(
            Decoder,
            channels,
            grid=config.grid,
            merge_level=config.merge_level,
            skips=config.skips,
            bias=config.conv_bias,
        )
        self.student = decoder(memories=memories, uncertainty=config.uncertainty)
        self.teacher = decoder() if config.distillation else None
        self.discriminator = Discriminator(config.size, config.discriminator_width)
        # The networks of the second stage exist only where there is one.
        distilled = config.target_updates > 0
        self.temporal_ensemble = TemporalEnsemble(self.discriminator) if distilled else None
        self.image_discriminator = zero_head_copy(self.discriminator) if distilled else None
        self.segmentation = UNet(config.lesions.channels, inputs=2) if config.lesions else None
        # What the scores are fitted with.
        self.lungs = Lungs(config.size) if config.region == "lungs" else None
        self.gaussian = Gaussian() if "features" in config.scores else None
        self.standardiser = Standardiser(len(config.scores)) if len(config.scores) > 1 else None

    # ---------------------------------------------------------------- training

    def begin(self, images: int) -> None:
        if self.temporal_ensemble is not None:
            self.temporal_ensemble.begin(images)

    def noise(self, b: int) -> Mapping[str, NoiseSpec]:
        """The masks of each pass (`mask_noise`); then the draws of the stage of lesions."""
        passes = ("shared",) if self.config.forwards == "shared" else ("discriminator", "generator")
        masks = {f"{name}.{key}": spec for name in passes for key, spec in self._draws(b).items()}
        return masks | lesion_noise(b) if self.config.lesions else masks

    def _draws(self, b: int) -> dict[str, NoiseSpec]:
        return mask_noise(self.config, b, len(self.student.memories))

    def stages(self) -> tuple[Stage, ...]:
        config = self.config
        # Queues are filled at the end of every step, or right after each update of the generator.
        each_step = config.queue_update == "step"
        commit = self._commit if self._queues else None
        second = self._score_distillation()
        shared = config.forwards == "shared"
        # The discriminator first: the generator then meets its updated weights.
        discriminator = Objective(
            name="discriminator",
            parameters=tuple(self.discriminator.parameters()),
            loss=self._discriminator_loss,
            optimizer=config.discriminator,
        )
        generator = Objective(
            name="generator",
            parameters=tuple(self._generator_parameters()),
            loss=self._generator_loss,
            optimizer=config.generator,
            every=config.generator_every,
            concurrent=self._concurrent_teacher if shared and self.teacher else None,
            after=None if each_step else commit,
        )
        train = Stage(
            name="train",
            objectives=(discriminator, generator),
            batch_size=config.batch_size,
            epochs=config.epochs,
            drop_last=config.drop_last,
            epoch_steps=config.epoch_steps,
            shared=self._shared if shared else None,
            after=commit if each_step else None,
            prepare=second.observe if second else None,
            every_epochs=1,
            snapshots=not config.lesions,  # whose score would be that of an untrained network
        )
        later = (second, self._lesion_stage())
        return (train, *(one.stage() for one in later if one is not None))

    def _score_distillation(self) -> ScoreDistillation | None:
        if self.temporal_ensemble is None or self.image_discriminator is None:
            return None
        return ScoreDistillation(
            self.config,
            self.temporal_ensemble,
            (self.discriminator, self.image_discriminator),
            reconstruct=self._reconstruct_eval,
            score=self._discriminator_score,
        )

    def _lesion_stage(self) -> LesionStage | None:
        if self.config.lesions is None or self.segmentation is None:
            return None
        return LesionStage(
            self.config.lesions, self.segmentation, self._reconstruct_eval, self.lungs
        )

    def _generator_parameters(self) -> list[nn.Parameter]:
        # Everything but what only scores belongs to the generator's objective.
        scoring = ("discriminator.", "temporal_ensemble.", "image_discriminator.", "segmentation.")
        return [p for name, p in self.named_parameters() if not name.startswith(scoring)]

    def _reconstruct_eval(self, images: Tensor) -> Tensor:
        """Reconstructions in eval mode, while the discriminators may be in training mode."""
        for part in (self.encoder, self.inpainting, self.student):
            if isinstance(part, nn.Module):
                part.eval()
        with torch.no_grad():
            return self.reconstruct(images)

    def _shared(self, batch: Batch, active: frozenset[str]) -> Shared:
        """One student pass for both objectives, without gradients where the generator is not
        updated."""
        with torch.set_grad_enabled("generator" in active and torch.is_grad_enabled()):
            return {"student": self._student_pass(batch, "shared")}

    def _concurrent_teacher(self, batch: Batch, shared: Shared) -> Shared:
        """Only the generator's loss needs the teacher."""
        return {"teacher": self._teacher_pass(shared["student"])}

    def _discriminator_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        config = self.config
        if config.forwards == "shared":
            student: StudentPass = shared["student"]
        else:
            with torch.no_grad():
                student = self._student_pass(batch, "discriminator")
                self._teacher_pass(student)  # tracks its batch statistics, as the authors do
        fake = student.reconstruction.detach().to(batch.images.dtype)
        # Real and reconstructed images in one pass, each half with its own batch statistics.
        both = torch.cat((batch.images, fake))
        real_logits, fake_logits = self.discriminator(both, "halves").chunk(2)
        share = 0.5 if config.discriminator_loss == "average" else 1.0
        weight = config.loss_weights.discriminator * share
        return {"discriminator": weight * real_or_fake(real_logits, fake_logits)}

    def _generator_loss(self, batch: Batch, shared: Shared) -> dict[str, Tensor]:
        config = self.config
        if config.forwards == "shared":
            student, teacher = shared["student"], shared.get("teacher")
        else:
            student = self._student_pass(batch, "generator")
            teacher = self._teacher_pass(student)
        # Detached, because a compiled backward pass would also compute the discriminator's
        # gradients.
        frozen = {name: p.detach() for name, p in self.discriminator.named_parameters()}
        inputs = (student.reconstruction, "batch")
        logits: Tensor = functional_call(self.discriminator, frozen, inputs)
        adversarial = config.loss_weights.generator * losses.fooling(logits, config.generator_loss)
        terms = losses.reconstruction_terms(config, student, teacher, batch.images)
        return terms | {"generator": adversarial}

    def _student_pass(self, batch: Batch, name: str) -> StudentPass:
        """Encoder, in-painting and student, with the random masks that `noise` declares under
        `name`."""
        # A mask that was not declared is None: that shortcut then has no random part.
        draws = {key: batch.noise[f"{name}.{key}"] for key in self._draws(batch.images.shape[0])}
        bottleneck, skips = self._encode(batch.images, draws.get("keep"))
        masks = [draws.get(f"mask{i + 1}") for i in range(len(self.student.memories))]
        inpainted = self._inpaint(bottleneck, draws.get("mask0"))
        reconstruction, features = self.student(inpainted, skips, masks)
        log_variance = self.student.predict_log_variance(features)
        return StudentPass(reconstruction, features, log_variance, bottleneck, skips)

    def _encode(self, images: Tensor, keep: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        # Pixel in-painting zeroes whole patches of the input.
        patches = split(images, self.config.grid)
        return self.encoder(patches if keep is None else patches * keep.to(patches.dtype))

    def _inpaint(self, bottleneck: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.inpainting is None:
            return bottleneck
        kind, rho = self.config.shortcut, self.config.rho
        return shortcut(bottleneck, self.inpainting(bottleneck), kind, mask=mask, rho=rho)

    def _teacher_pass(self, student: StudentPass) -> TeacherPass | None:
        if self.teacher is None:
            return None
        bottleneck, skips = student.bottleneck, student.skips
        # The encoder then learns from the student alone.
        if self.config.stop_gradient:
            bottleneck, skips = bottleneck.detach(), [skip.detach() for skip in skips]
        image_and_features: TeacherPass = self.teacher(bottleneck, skips)
        return image_and_features

    @property
    def _queues(self) -> list[MemoryQueue]:
        return [module for module in self.modules() if isinstance(module, MemoryQueue)]

    def _commit(self) -> None:
        for queue in self._queues:
            queue.commit()

    # ----------------------------------------------------------------- scoring

    def finalize(self, batches: Iterable[Batch]) -> None:
        if self.lungs is not None:
            self.lungs.fit(batch.images for batch in batches)
        if self.gaussian is not None:
            reconstructions = (self.reconstruct(batch.images) for batch in batches)
            features = torch.cat([self._pooled_features(one) for one in reconstructions])  # (n, d)
            self.gaussian.fit(features.mean(0)[None], ledoit_wolf(features)[None])
        if self.standardiser is not None:
            scores = torch.cat([self._scores(batch.images) for batch in batches])  # (n, kinds)
            for number, of_kind in enumerate(scores.unbind(1)):
                self.standardiser.fit(number, of_kind)

    def score(self, images: Tensor) -> Tensor:
        scores = self._scores(images)
        if self.standardiser is None:
            return scores[:, 0]
        standardised: Tensor = self.standardiser(scores)
        return standardised.mean(1)

    def _scores(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, kinds)."""
        prediction = self._predict(images)
        scores = []
        for kind in self.config.scores:
            if kind == "discriminator":
                scores.append(self._discriminator_score(images, prediction.reconstruction))
            elif kind == "features":
                assert self.gaussian is not None
                features = self._pooled_features(prediction.reconstruction)
                scores.append(self.gaussian.distance(features[:, None])[:, 0])
            else:
                maps = self._map(kind, images, prediction)
                # The worst patch decides, so that a small anomaly is not averaged away.
                worst = kind == "structure"
                scores.append(worst_patch(maps, self.config.grid) if worst else self._mean(maps))
        return torch.stack(scores, 1)

    def _mean(self, maps: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b,), over what counts."""
        return maps.mean((1, 2, 3)) if self.lungs is None else self.lungs.mean(maps[:, 0])

    def _map(self, kind: MapScore, images: Tensor, prediction: Prediction) -> Tensor:
        """(b, 1, h, w): the map of a score that has one."""
        if kind == "lesions":
            assert self.segmentation is not None
            logits: Tensor = self.segmentation(torch.cat((images, prediction.reconstruction), 1))
            return logits
        return prediction.map(kind, images, patch=self.config.size // self.config.grid)

    def _discriminator_score(self, images: Tensor, reconstruction: Tensor) -> Tensor:
        """(b, 1, h, w) twice -> (b,): how unreal the reconstruction looks to the discriminator, and
        the image to the image discriminator."""
        statistics = self.config.score_statistics
        logits: Tensor = self.discriminator(reconstruction, statistics)
        if self.image_discriminator is not None:
            logits = logits + self.image_discriminator(images, statistics)
        return -logits.mean(1)

    def _pooled_features(self, reconstruction: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, 2c): mean and spread of each channel of the discriminator."""
        maps = self.discriminator.features(reconstruction, self.config.score_statistics)
        spread, mean = torch.std_mean(at_least_float32(maps), (2, 3), correction=0)
        return torch.cat((mean, spread), 1)

    def heatmap(self, images: Tensor) -> Tensor:
        kind = self.config.heatmap
        maps = self._map(kind, images, self._predict(images))[:, 0]  # (b, h, w)
        if self.lungs is None:
            return maps
        # Logits have both signs, and what fades out has to be positive.
        return self.lungs.shade(maps.sigmoid() if kind == "lesions" else maps)

    def reconstruct(self, images: Tensor) -> Tensor:
        return self._predict(images).reconstruction

    def _predict(self, images: Tensor) -> Prediction:
        bottleneck, skips = self._encode(images)
        reconstruction, features = self.student(self._inpaint(bottleneck), skips)
        return Prediction(reconstruction, self.student.predict_log_variance(features))

    # ------------------------------------------------------------- explanation

    def features(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, p, d): the features that read the memory, at each position."""
        return self._block().features(self._encode(images)[0])

    def memory_distance(self, images: Tensor) -> Tensor:
        """(b, 1, h, w) -> (b, grid, grid): distance of each position's feature from its memory
        read."""
        features = self.features(images)
        distance: Tensor = (features - self._block().memory(features)).norm(dim=-1)
        return distance.view(-1, self.config.grid, self.config.grid)

    def _block(self) -> InpaintingBlock:
        if self.inpainting is None:
            raise ConfigError(
                "inpainting = 'none' has no memory to read; use 'feature' or 'pixel'."
            )
        return self.inpainting
