"""NIH's labels were mined from reports; radiologists of the RSNA challenge read some of the images
again. AUC of their abnormal classes against their healthy one, whatever NIH's label says."""

import numpy as np
from numpy.typing import NDArray

from squid.config import Config
from squid.data.image_set import ImageSet
from squid.data.nih import RSNA_CLASS
from squid.data.rsna import HEALTHY, OPACITY, OTHER
from squid.evaluation.confounds import LEAST
from squid.evaluation.metrics import Estimate, estimate, resampled_auc

GROUPS = {"opacity": (OPACITY,), "not normal": (OTHER,), "either": (OPACITY, OTHER)}
"""Classes that are compared with the healthy one."""


class ClassAuc(Config):
    """How well scores separate images of abnormal classes from those of the healthy class."""

    normal: int
    anomalous: int
    auc: Estimate


def rsna_class_aucs(
    scores: NDArray[np.float64], images: ImageSet, *, seed: int = 0, resamples: int = 1000
) -> dict[str, ClassAuc]:
    """By name in `GROUPS`; empty where RSNA's classes are not known, and without groups that have
    too few images."""
    column = images.columns.get(RSNA_CLASS)
    if column is None:
        return {}
    classes = np.array(column)
    found = {}
    for name, abnormal in GROUPS.items():
        kept = np.isin(classes, (HEALTHY, *abnormal))
        labels = (classes[kept] != HEALTHY).astype(np.int64)
        anomalous = int(labels.sum())
        normal = len(labels) - anomalous
        if min(normal, anomalous) >= LEAST:
            value, resampled = resampled_auc(scores[kept], labels, seed=seed, resamples=resamples)
            auc = estimate(value, resampled)
            found[name] = ClassAuc(normal=normal, anomalous=anomalous, auc=auc)
    return found
