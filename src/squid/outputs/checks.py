"""What `squid data check` found, as JSON and as rows of a table."""

from typing import Any

from squid.data.checking import CheckedFile, FolderCheck, Values
from squid.data.dicom import DicomFacts


def check_record(found: FolderCheck) -> dict[str, Any]:
    """Everything but the single files."""
    return {
        "root": str(found.root),
        "images": len(found.images),
        "bytes": sum(file.bytes for file in found.files),
        "groups": [row._asdict() for row in found.groups()],
        "formats": found.formats(),
        "headers": found.headers(),
        "sizes": found.sizes(),
        "values": [
            {"bits": bits, "low": low, "high": high, "images": images}
            for bits, (low, high, images) in found.values().items()
        ],
        "steps": found.steps(),
        "left_out": found.left_out,
        "unreadable": {file.name: file.unreadable for file in found.unreadable},
        "not_applicable": {file.name: file.not_applicable for file in found.not_applicable},
        "duplicates": [[file.name for file in files] for files in found.duplicates()],
        "shared_patients": [shared._asdict() for shared in found.shared_patients()],
        "other_files": found.others,
        "warnings": [*found.warnings, *(w for file in found.read for w in file.warnings)],
    }


def check_row(file: CheckedFile) -> dict[str, Any]:
    """One file, without its patient."""
    facts = file.facts or DicomFacts()
    width, height = file.size
    return {
        "name": file.name,
        "split": file.split,
        "kind": file.kind,
        "finding": file.finding,
        "bytes": file.bytes,
        "format": file.format,
        "modality": facts.modality,
        "view": facts.view,
        "body_part": facts.body_part,
        "width": width,
        "height": height,
        **dict(zip(Values._fields, file.values or ("", "", ""), strict=True)),
        "steps": "; ".join(file.steps),
        "warnings": "; ".join(file.warnings),
        "digest": file.digest,
        "not_applicable": file.not_applicable,
        "left_out": file.left_out,
        "unreadable": file.unreadable,
    }
