"""The settings of SQUID: sizes, the switches of the paper's ablations, and both readings where the
paper and the authors' code differ."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from squid.config import Config
from squid.methods.base import MethodConfig, OptimizerConfig
from squid.methods.lesion_segmentation import LesionConfig
from squid.nn.lungs import Region
from squid.nn.memory import Shrinkage

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
MapScore = Literal["residual", "relative_residual", "structure", "lesions"]
WITHIN_LUNGS: tuple[MapScore, ...] = ("residual", "relative_residual", "lesions")
"""Scores that are the mean of a map, so that it can be taken over the lungs."""
"""Scores that are the mean, or the worst patch, of a map."""
Score = Literal["discriminator", "features"] | MapScore


class LossWeights(Config):
    """Weights of the five losses (sec. 4.4)."""

    student: float = 10.0
    teacher: float = 0.01
    distillation: float = 0.001
    generator: float = 0.005
    discriminator: float = 0.005
    uncertainty: float = 0.01
    """Not in the paper; only with `uncertainty`."""


class SquidConfig(MethodConfig):
    """Where the paper and the authors' code differ, the text of a field names both readings."""

    name: Literal["squid"] = "squid"

    # The network
    encoder: Literal["residual", "pooled"] = "residual"
    """`residual`: strided residual blocks (authors). `pooled`: convolutions and pooling, as the
    paper's text and table read."""
    grid: Count = 2
    """The image is cut into grid x grid patches."""
    width: Count = 32
    """Channels of the first level; they double from level to level."""
    depth: Annotated[int, Field(ge=1, le=12)] = 4
    """How often a patch is halved."""
    merge_level: Count = 2
    """Number of doublings after the patches are merged into one map."""
    skips: bool = True
    """Whether encoder features join both generators at the levels before patches are merged."""
    conv_bias: bool = False
    """Biases of convolutions before batch normalisation, which cancels them (authors: true)."""
    discriminator_width: Count = 16
    """Channels of the discriminator's first level."""

    # Memories
    memory: Literal["queue", "matrix"] = "queue"
    """The memory of the in-painting block: copies of past features, or learned slots."""
    space_aware: bool = True
    """One region per position; if not, all positions share one region of the same total size."""
    slots: Count = 200
    """Slots of each region that the in-painting block reads."""
    matrix_slots: Count = 200
    """Slots of each region of the student's memories."""
    decoder_memory: Literal["none", "window", "patch"] = "window"
    """Memories in the student. `patch`: tied to the place in the image (paper). `window`: one per
    window of every patch, shared by all patches (authors)."""
    decoder_slots: Literal["matrix", "queue"] = "matrix"
    """The slots of the student's memories: learned, or copies of its past features."""
    similarity: Literal["dot", "distance", "cosine"] = "dot"
    """Similarity of a slot to a feature: their product (authors), nearness, or direction."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides similarities; the lower it is, the fewer slots make up a read."""
    shrinkage: Literal["gumbel", "hard", "none"] = "gumbel"
    """The slots that a read combines: the most similar, those above `threshold`, or all."""
    shrink_of: Literal["softmax", "similarity"] = "softmax"
    """The weights that are shrunk: the softmax, then renormalised (authors), or raw similarities
    (eq. 1 as written)."""
    k: Count = 5
    """Number of slots that Gumbel shrinkage keeps."""
    topk: Literal["paper", "authors"] = "paper"
    """`paper` keeps k slots, the authors' code k - 1."""
    threshold: float = 0.01
    """Threshold of hard shrinkage, larger than 1 / slots; the authors' base setting has 0.0005."""
    queue_update: Literal["step", "generator"] = "step"
    """Features enter the queue in every step (paper) or with each update of the generator
    (authors)."""

    # In-painting
    inpainting: Literal["feature", "pixel", "none"] = "feature"
    """`pixel` zeroes patches of the input instead, and then only reads the memory; `none` leaves
    the block out."""
    pixel_dropout: Share = 0.25
    """Share of the patches that `pixel` zeroes."""
    layer: Literal["transformer", "standard", "convolution"] = "transformer"
    """`transformer`: the residual is the position's own memory read (authors). `standard`: it is
    the feature, as in a standard transformer layer (paper). `convolution`: the ablation."""
    heads: Count = 8
    """Attention heads."""
    location_code: bool = True
    """Whether the number of the patch is appended to its in-painted features (authors; not in the
    paper)."""
    shortcut: Literal["masked", "soft", "residual", "straight", "none"] = "masked"
    """How a feature bypasses the in-painting block; `straight`: its gradient only."""
    rho: Share = 0.95
    """Share of features that do not bypass the block."""
    decoder_shortcut: Literal["masked", "soft", "residual", "straight", "deferred", "none"] = (
        "masked"
    )
    """The same around the student's memories (authors; not in the paper). `deferred`: features
    bypass the memories throughout training, which only fills the queues, and never after it."""
    decoder_rho: Share = 0.95
    """Share of features that do not bypass the student's memories."""

    # Losses
    loss_weights: LossWeights = LossWeights()
    distillation: bool = True
    """Whether there is a teacher."""
    distillation_learner: Literal["both", "student", "teacher"] = "both"
    """The generator that learns the features of the other (authors: both learn)."""
    distillation_reduction: Literal["mean", "sum"] = "mean"
    """Squared distance as a mean over the values of a level (authors), or summed over each image
    (paper)."""
    stop_gradient: bool = True
    """Whether the teacher sends no gradient to the encoder."""
    generator_loss: Literal["saturating", "non_saturating"] = "non_saturating"
    """log(1 - D) as the paper writes it, or -log D (authors)."""
    discriminator_loss: Literal["sum", "average"] = "sum"
    """The sum of the terms of real and reconstructed images (authors), or their average (paper)."""

    # Training and scoring
    forwards: Literal["shared", "separate"] = "shared"
    """`shared`: one pass of the generator serves both objectives. `separate`: each has its own,
    with masks of its own, the teacher in both (authors)."""
    generator_every: Count = 2
    """The generator is updated in every n-th step."""
    epochs: Count = 200
    """Paper 1000, authors 200."""
    batch_size: Count = 16
    drop_last: bool = True
    """The authors keep the incomplete last batch of an epoch."""
    epoch_steps: Count | None = None
    """The most steps of an epoch; the authors' CheXpert setting has 85."""
    generator: OptimizerConfig = OptimizerConfig(
        final_lr=2e-5, schedule="cosine", betas=(0.5, 0.999), eps=1e-7, weight_decay=1e-5
    )
    discriminator: OptimizerConfig = OptimizerConfig(
        final_lr=2e-5, schedule="cosine", betas=(0.5, 0.999), weight_decay=1e-5
    )
    target_updates: Annotated[int, Field(ge=0)] = 0
    """Temporal ensembling (Laine & Aila 2017): how often, evenly over the training, an averaged
    discriminator scores all training images. In a second stage, score distillation, the
    discriminator learns the mean of these scores, together with an image discriminator whose input
    is the image itself. 0: no second stage, the discriminator of the last epoch scores."""
    score_distillation_epochs: Count = 10
    """Length of that second stage."""
    score_distillation: OptimizerConfig = OptimizerConfig(lr=3e-4, final_lr=0.0, schedule="cosine")
    """The optimiser of that second stage."""
    uncertainty: bool = False
    """Whether the student also predicts the variance of each pixel, as AE-U does: the memory says
    what is healthy, the variance what differs among the healthy (not in the paper)."""
    lesions: LesionConfig | None = None
    """A last stage in which a U-Net learns, from an image and its reconstruction, to find
    synthetic lesions (after DRAEM; not in the paper)."""
    score: Score | tuple[Score, ...] = "discriminator"
    """`discriminator`: how unreal the reconstruction looks to it (the paper). `features`: distance
    of the discriminator's features of the reconstruction from those of healthy images. `residual`:
    squared error. `relative_residual`: squared error over the predicted variance. `structure`:
    difference in structure from the image in the worst patch. `lesions`: mean logit of the U-Net.
    Several are averaged, each in units of its spread over the training images."""
    region: Region = "image"
    """Where lesions are centred, and what counts for the scores `residual`, `relative_residual` and
    `lesions` and for their heatmaps: the whole image, or the lungs of frontal chest X-rays, which
    the mean of the training images shows (not in the paper)."""
    score_statistics: Literal["image", "running"] = "image"
    """Statistics by which the discriminator normalises when scoring: those of each image alone (the
    authors, in effect) or the tracked ones."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """The kinds of scores, at least one."""
        return (self.score,) if isinstance(self.score, str) else self.score

    @property
    def heatmap(self) -> MapScore:
        """The first score that has a map, or else the difference in structure."""
        for one in self.scores:
            if one != "discriminator" and one != "features":
                return one
        return "structure"

    @property
    def side(self) -> int:
        """Side of a patch's map at the bottleneck."""
        return self.size // (self.grid << self.depth)

    @property
    def shrink(self) -> Shrinkage:
        return Shrinkage(
            kind=self.shrinkage,
            of=self.shrink_of,
            k=self.k,
            topk=self.topk,
            threshold=self.threshold,
            temperature=self.temperature,
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.size % (self.grid * 2**self.depth):
            raise ValueError(
                f"size {self.size} cannot be cut into {self.grid} x {self.grid} patches halved "
                f"{self.depth} times; choose a multiple of {self.grid * 2**self.depth}."
            )
        if self.merge_level > self.depth:
            raise ValueError(
                f"merge_level {self.merge_level} is more than depth; choose at most {self.depth}."
            )
        remembers = self.decoder_memory == "window" and self.merge_level < self.depth
        # The smallest map with a memory; the sides of the others are multiples of it.
        if remembers and 2 * self.side % self.grid:
            raise ValueError(
                f"decoder_memory 'window' cannot cut {2 * self.side}-pixel maps into "
                f"{self.grid} x {self.grid} windows; use 'patch'."
            )
        if self.decoder_shortcut == "deferred" and self.decoder_slots != "queue":
            raise ValueError(
                "decoder_shortcut 'deferred' never teaches a matrix; use decoder_slots 'queue'."
            )
        if not self.scores or len(set(self.scores)) < len(self.scores):
            raise ValueError("score must name at least one kind, and each kind once.")
        if "relative_residual" in self.scores and not self.uncertainty:
            raise ValueError("score 'relative_residual' needs uncertainty = true.")
        if ("lesions" in self.scores) != (self.lesions is not None):
            raise ValueError("score 'lesions' and the table lesions need each other.")
        if self.lesions is not None:
            self.lesions.check_size(self.size)
        if self.region == "lungs" and not {*self.scores} & {*WITHIN_LUNGS}:
            raise ValueError(
                f"region 'lungs' would do nothing for score '{self.scores[0]}'; it is for "
                f"{', '.join(WITHIN_LUNGS)}."
            )
        if self.shrinkage == "gumbel" and self.k > min(self.slots, self.matrix_slots):
            raise ValueError(f"k {self.k} is more than there are slots; choose a smaller k.")
        if self.queue_update == "step" and self.forwards == "separate":
            raise ValueError(
                "queue_update 'step' with forwards 'separate' would let the second pass read "
                "its own features; use queue_update 'generator' or forwards 'shared'."
            )
        return self
