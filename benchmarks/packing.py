"""Takes a dataset along to a rented GPU as one file, without loss.

    python benchmarks/packing.py pack ../data/rsna128 rsna.pack [--keep NAMES.txt]
    python benchmarks/packing.py unpack rsna.pack data/rsna128

Gray PNG files of 8 bits, and `images` in npz files, are stored as differences from what their
neighbours predict (the median of left, upper and left + upper - upper left, as in JPEG-LS), packed
by LZMA; all other files as they are. That takes nine tenths of the space of PNG files and two
thirds of that of npz files. PNG files come back with equal pixels, not equal bytes.
"""

import argparse
import io
import json
import lzma
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]  # (n, h, w)

INDEX = "index.json"
TOGETHER = 500
"""Images that one process restores at a time."""


def pack(folder: Path, out: Path, keep: frozenset[str] | None = None) -> None:
    """Every file of a folder, but for PNG files whose name without its ending is not to be kept."""
    stacks: dict[str, list[str]] = {}
    with zipfile.ZipFile(out, "w") as archive:
        for name, pixels, paths in _stacks(folder, keep):
            stacks[name] = paths
            shape = json.dumps(pixels.shape).encode()
            archive.writestr(name, shape + b"\n" + lzma.compress(differences(pixels).tobytes()))
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".png":
                name = path.relative_to(folder).as_posix()
                archive.writestr(f"files/{name}", lzma.compress(_without_images(path)))
        archive.writestr(INDEX, json.dumps(stacks))


def unpack(packed: Path, folder: Path) -> None:
    """What `pack` has stored, in a folder that is made where it is missing."""
    with zipfile.ZipFile(packed) as archive:
        stacks: dict[str, list[str]] = json.loads(archive.read(INDEX))
        for entry in archive.namelist():
            if entry.startswith("files/"):
                path = _inside(folder, entry.removeprefix("files/"))
                path.write_bytes(lzma.decompress(archive.read(entry)))
        for name, paths in stacks.items():
            shape, _, data = archive.read(name).partition(b"\n")
            stored = np.frombuffer(lzma.decompress(data), np.uint8).reshape(json.loads(shape))
            _write(folder, restored(stored), paths)


def differences(pixels: Pixels) -> Pixels:
    """(n, h, w) -> (n, h, w): each pixel less what its neighbours predict, modulo 256."""
    padded = np.pad(pixels.astype(np.int16), ((0, 0), (1, 0), (1, 0)))
    left, upper, corner = padded[:, 1:, :-1], padded[:, :-1, 1:], padded[:, :-1, :-1]
    return (pixels - _predicted(left, upper, corner)).astype(np.uint8)


def restored(stored: Pixels) -> Pixels:
    """The pixels whose differences these are."""
    parts = np.array_split(stored, max(1, len(stored) // TOGETHER))
    with ProcessPoolExecutor() as pool:
        return np.concatenate(list(pool.map(_restore, parts)))


def _restore(stored: Pixels) -> Pixels:
    count, height, width = stored.shape
    # Pixel by pixel, as each is predicted from those before it, but for all images at once.
    known = np.zeros((height + 1, width + 1, count), np.int16)
    columns = stored.transpose(1, 2, 0).astype(np.int16)  # (h, w, n)
    for y in range(height):
        for x in range(width):
            predicted = _predicted(known[y + 1, x], known[y, x + 1], known[y, x])
            known[y + 1, x + 1] = (predicted + columns[y, x]) & 255
    return known[1:, 1:].transpose(2, 0, 1).astype(np.uint8)


def _predicted(
    left: NDArray[np.int16], upper: NDArray[np.int16], corner: NDArray[np.int16]
) -> NDArray[np.int16]:
    low, high = np.minimum(left, upper), np.maximum(left, upper)
    predicted: NDArray[np.int16] = np.minimum(np.maximum(left + upper - corner, low), high)
    return predicted


def _stacks(folder: Path, keep: frozenset[str] | None) -> Iterator[tuple[str, Pixels, list[str]]]:
    """Name, pixels and paths of the images of one size, or of one npz file."""
    by_size: dict[tuple[int, ...], list[tuple[str, Pixels]]] = defaultdict(list)
    for path in sorted(folder.rglob("*.png")):
        if keep is None or path.stem in keep:
            pixels = np.array(Image.open(path))
            if pixels.dtype != np.uint8 or pixels.ndim != 2:
                raise SystemExit(f"{path} is no gray PNG of 8 bits.")
            by_size[pixels.shape].append((path.relative_to(folder).as_posix(), pixels))
    for (height, width), images in by_size.items():
        names, stack = zip(*images, strict=True)
        yield f"pixels-{height}x{width}", np.stack(stack), list(names)
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as arrays:
            if _has_images(arrays):
                name = path.relative_to(folder).as_posix()
                yield f"pixels-{name}", arrays["images"], [name]


def _has_images(arrays: "np.lib.npyio.NpzFile") -> bool:
    return "images" in arrays and arrays["images"].dtype == np.uint8 and arrays["images"].ndim == 3


def _without_images(path: Path) -> bytes:
    """The bytes of a file; of an npz file without the images that are packed by themselves."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            if _has_images(arrays):
                others, data = {k: arrays[k] for k in arrays if k != "images"}, io.BytesIO()
                np.savez(data, **others)
                return data.getvalue()
    return path.read_bytes()


def _write(folder: Path, pixels: Pixels, paths: list[str]) -> None:
    """PNG files, or the images of an npz file beside its other arrays."""
    if paths[0].endswith(".npz"):
        path = _inside(folder, paths[0])
        with np.load(path) as arrays:
            others = dict(arrays)
        np.savez(path, images=pixels, **others)
        return
    places = [_inside(folder, name) for name in paths]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda place, one: Image.fromarray(one).save(place), places, pixels))


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise SystemExit(f"The pack names {name}, which is outside the folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="pack a folder")
    packing.add_argument("folder", type=Path)
    packing.add_argument("pack", type=Path)
    packing.add_argument("--keep", type=Path, help="a file that names a PNG to keep in each line")
    unpacking = commands.add_parser("unpack", help="restore it")
    unpacking.add_argument("pack", type=Path)
    unpacking.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "unpack":
        return unpack(options.pack, options.folder)
    keep = frozenset(options.keep.read_text().split()) if options.keep else None
    pack(options.folder, options.pack, keep)
    print(f"{options.pack}: {options.pack.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
