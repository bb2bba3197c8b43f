"""Prepares published datasets: `python -m squid.data.prepare nih` or `rsna`.

`nih` packs NIH's images into `nih_pa.npz`, since decoding files of 1,024 pixels takes a while.
`rsna` writes `rsna_nih.csv`, which names the patient, view, sex and age of each image of the RSNA
challenge.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np

from squid.data.files import read_files
from squid.data.nih import NO_FINDING, PACKED, Nih, age_of, list_published, read_metadata
from squid.data.reading import AS_DECLARED
from squid.data.rsna import Rsna
from squid.data.tables import read_json
from squid.errors import DataError, SquidError

MAPPING = "pneumonia-challenge-dataset-mappings_2018.json"


def pack_nih(root: Path, size: int) -> Path:
    """The PA images of adults in NIH's published files, as one npz file next to them."""
    images, _ = read_files(list_published(root), size, "refuse", None, AS_DECLARED)
    findings = images.findings or ()
    columns = {name: np.array(values) for name, values in images.columns.items()}
    packed = root / PACKED
    part = packed.with_suffix(".part")
    # Written under another name first: an interrupted file is never taken for a whole one.
    with part.open("wb") as file:
        np.savez_compressed(
            file,
            images=images.pixels[:, 0].numpy(),
            names=np.array(images.names),
            labels=np.array([finding or NO_FINDING for finding in findings]),
            abnormal=images.labels.astype(bool),
            patient=np.array([int(patient) for patient in images.patients or ()]),
            view=columns["view"],
            sex=columns["sex"],
            age=columns["age"],
        )
    os.replace(part, packed)
    return packed


def write_rsna_patients(root: Path, nih: Path) -> Path:
    """`rsna_nih.csv` from RSNA's mapping to NIH's images and from NIH's table of these."""
    try:
        mapping = read_json(root / MAPPING)
        names = {entry["subset_img_id"]: entry["img_id"] for entry in mapping}
    except (TypeError, KeyError) as error:
        raise DataError(f"{root / MAPPING} is not RSNA's mapping ({error}).") from None
    known = {row["Image Index"]: row for row in read_metadata(nih)}
    path = root / "rsna_nih.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["patientId", "nih_name", "nih_patient", "view", "sex", "age"])
        for image, name in names.items():
            if row := known.get(name):
                patient, view = int(row["Patient ID"]), row["View Position"]
                writer.writerow([image, name, patient, view, row["Patient Gender"], age_of(row)])
    return path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m squid.data.prepare", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    nih = commands.add_parser("nih", help=f"pack NIH's images into {PACKED}")
    nih.add_argument("--root", type=Path, help="folder of the published files")
    nih.add_argument("--size", type=int, default=128, help="side of an image in pixels (128)")
    rsna = commands.add_parser("rsna", help="write rsna_nih.csv")
    rsna.add_argument("--root", type=Path, help=f"folder of {MAPPING}")
    rsna.add_argument("--nih", type=Path, help="folder of NIH's table (the same if left out)")
    options = parser.parse_args(arguments)
    try:
        if options.command == "nih":
            written = pack_nih(Nih(root=options.root).find_folder(), options.size)
        else:
            root = Rsna(root=options.root).find_folder()
            written = write_rsna_patients(root, options.nih or root)
    except SquidError as error:
        parser.error(str(error))
    print(f"Written: {written}")


if __name__ == "__main__":
    main()
