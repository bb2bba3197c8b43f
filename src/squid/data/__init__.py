"""Datasets: files in, three checked splits of uint8 images out."""

from squid.data.base import DataConfig
from squid.data.chexpert import CheXpert
from squid.data.decode import read_many
from squid.data.digitanatomy import DigitAnatomy
from squid.data.folder import Folder
from squid.data.image import Image, read_image, resize
from squid.data.image_set import ANOMALOUS, NORMAL, Box, FileSet, ImageSet, Splits, check
from squid.data.medmnist import MedMnist
from squid.data.nih import Nih
from squid.data.rsna import Rsna
from squid.data.store import Augment, ImageStore
from squid.data.zhanglab import ZhangLab

DATASETS: dict[str, type[DataConfig]] = {
    "zhanglab": ZhangLab,
    "folder": Folder,
    "digitanatomy": DigitAnatomy,
    "nih": Nih,
    "rsna": Rsna,
    "chexpert": CheXpert,
    "medmnist": MedMnist,
}

__all__ = [
    "ANOMALOUS",
    "DATASETS",
    "NORMAL",
    "Augment",
    "Box",
    "CheXpert",
    "DataConfig",
    "DigitAnatomy",
    "FileSet",
    "Folder",
    "Image",
    "ImageSet",
    "ImageStore",
    "MedMnist",
    "Nih",
    "Rsna",
    "Splits",
    "ZhangLab",
    "check",
    "read_image",
    "read_many",
    "resize",
]
