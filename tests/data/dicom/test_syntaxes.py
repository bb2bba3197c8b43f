"""One picture in every transfer syntax, written by other programs, gives the same gray values."""

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pydicom
import pytest
from pydicom.encaps import encapsulate

from squid.data.dicom import read_dicom
from squid.data.dicom.elements import read_file
from squid.data.dicom.header import layout_of
from squid.data.dicom.pixels import read_pixels
from squid.data.image import read_image, read_resized
from squid.data.reading import DicomReading
from squid.detector import Detector

from ...parts import need

imagecodecs = pytest.importorskip("imagecodecs", reason="the extra dicom is not installed")

Make = Callable[..., bytes]
JPEG_2000, HTJ2K = "1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.20"
"""The UID of the first one, and the beginning of those of the other."""
DCMTK = {
    "implicit": ["dcmconv", "+ti"],
    "big endian": ["dcmconv", "+tb"],
    "deflated": ["dcmconv", "+td"],
    "RLE": ["dcmcrle"],
    "JPEG lossless": ["dcmcjpeg", "+el"],
    "JPEG lossless SV1": ["dcmcjpeg", "+e1"],
    "JPEG-LS": ["dcmcjpls", "+el"],
}
OTHERS = {
    "JPEG 2000": (JPEG_2000, lambda a: imagecodecs.jpeg2k_encode(a, codecformat="j2k")),
    "JPEG 2000 in boxes": (JPEG_2000, lambda a: imagecodecs.jpeg2k_encode(a)),
    "HTJ2K": (f"{HTJ2K}1", lambda a: imagecodecs.htj2k_encode(a)),
    "HTJ2K RPCL": (f"{HTJ2K}2", lambda a: imagecodecs.htj2k_encode(a)),
}
LOSSLESS = ("uncompressed", *DCMTK, *OTHERS)
WHOLE = {"WindowCenter": 32767.5, "WindowWidth": 65535, "VOILUTFunction": "LINEAR_EXACT"}


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    """(70, 90) uint16 over the whole range, smooth but for noise."""
    rows, columns = np.mgrid[:70, :90]
    smooth = 30000 + 20000 * np.sin(rows / 20) + 10000 * np.cos(columns / 15)
    noise = np.random.default_rng(0).normal(0, 400, smooth.shape)
    scaled = np.clip(smooth + noise, 0, 65535).astype(np.uint16)
    scaled[0, :2] = (0, 65535)
    return scaled


def by_dcmtk(data: bytes, command: list[str], folder: Path) -> bytes:
    """The file as one of DCMTK's programs writes it."""
    need(command[0], package="dcmtk")
    source, target = folder / "source.dcm", folder / "target.dcm"
    source.write_bytes(data)
    subprocess.run([*command, str(source), str(target)], check=True, capture_output=True)
    return target.read_bytes()


def wrapped(data: bytes, syntax: str, frame: bytes) -> bytes:
    """The file with compressed pixels."""
    dataset = pydicom.dcmread(io.BytesIO(data))
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
    dataset.PixelData = encapsulate([frame])
    dataset["PixelData"].VR = "OB"
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def encoded(plain: bytes, pixels: np.ndarray, name: str, folder: Path) -> bytes:
    """An uncompressed file with these pixels, without loss in another transfer syntax."""
    if name in DCMTK:
        return by_dcmtk(plain, DCMTK[name], folder)
    if name in OTHERS:
        syntax, encoder = OTHERS[name]
        return wrapped(plain, syntax, encoder(pixels))
    return plain


@pytest.fixture(scope="module")
def encode(
    make: Make, picture: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], bytes]:
    folder = tmp_path_factory.mktemp("encoded")
    return lambda name: encoded(make(picture, **WHOLE), picture, name, folder)


@pytest.mark.parametrize("name", LOSSLESS)
def test_stored_values_survive(
    encode: Callable[[str], bytes], picture: np.ndarray, name: str
) -> None:
    gray = read_dicom(encode(name), DicomReading())
    np.testing.assert_array_equal(gray.pixels.values, picture)


def test_scores_are_those_of_the_picture_as_png(
    encode: Callable[[str], bytes], picture: np.ndarray, tiny_run: Path, tmp_path: Path
) -> None:
    PIL.Image.fromarray(picture).save(tmp_path / "picture.png")
    names = [name for name in LOSSLESS if name not in DCMTK or shutil.which(DCMTK[name][0])]
    for name in names:
        (tmp_path / name).write_bytes(encode(name))
    detector = Detector.load(tiny_run)
    png, *others = detector.predict([tmp_path / name for name in ("picture.png", *names)])
    assert len(others) == len(names) >= 5
    assert {one.score for one in others} == {png.score}


@pytest.mark.parametrize("name", LOSSLESS)
@pytest.mark.parametrize("bits", [16, 12])
def test_signed_values_survive_compression(
    make: Make, picture: np.ndarray, tmp_path: Path, name: str, bits: int
) -> None:
    values = ((picture.astype(np.int32) - 2**15) >> (16 - bits)).astype(np.int16)
    assert (values.min(), values.max()) == (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    file = encoded(make(values, BitsStored=bits), values, name, tmp_path)
    found = read_file(file)
    stored = read_pixels(found, layout_of(found.dataset))
    np.testing.assert_array_equal(stored.values[stored.patterns], values)


UIDS = {"JPEG 2000": "1.2.840.10008.1.2.4.91", "HTJ2K": f"{HTJ2K}3"}
LOSSY = {
    "JPEG Baseline": (8, ["dcmcjpeg", "+eb"]),
    "JPEG Extended": (12, ["dcmcjpeg", "+ee"]),
    "JPEG-LS near lossless": (16, ["dcmcjpls", "+en"]),
    "JPEG 2000": (
        16,
        lambda a: imagecodecs.jpeg2k_encode(a, codecformat="j2k", level=60, reversible=False),
    ),
    "HTJ2K": (16, lambda a: imagecodecs.htj2k_encode(a, level=0.001, reversible=False)),
}
"""Bits of the pixels, and DCMTK's command or an encoder of imagecodecs."""


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_pixels_move_a_score_by_little(
    make: Make, picture: np.ndarray, tiny_run: Path, tmp_path: Path, name: str
) -> None:
    """By less than a hundredth of the spread of healthy scores."""
    bits, encoder = LOSSY[name]
    stored = (picture >> (16 - bits)).astype(np.uint8 if bits == 8 else np.uint16)
    plain = make(stored, BitsStored=bits)
    if callable(encoder):
        lossy = wrapped(plain, UIDS[name], encoder(stored))
    else:
        lossy = by_dcmtk(plain, encoder, tmp_path)
    assert len(lossy) < 0.75 * len(plain)
    (tmp_path / "plain").write_bytes(plain)
    (tmp_path / "lossy").write_bytes(lossy)
    detector = Detector.load(tiny_run)
    before, after = detector.predict([tmp_path / "plain", tmp_path / "lossy"])
    assert after.steps[0] == f"DICOM, {name}"
    assert abs(before.score - after.score) < detector.calibration.std / 100


@pytest.mark.parametrize(("option", "bits"), [("+ee", 12), ("+eb", 8)])
def test_lossy_jpeg_is_decoded_as_dcmtk_does(
    make: Make, picture: np.ndarray, tmp_path: Path, option: str, bits: int
) -> None:
    kind = np.uint8 if bits == 8 else np.uint16
    stored = (picture >> (16 - bits)).astype(kind)
    plain = make(stored, BitsStored=bits)
    lossy = by_dcmtk(plain, ["dcmcjpeg", option], tmp_path)
    decoded = pydicom.dcmread(io.BytesIO(by_dcmtk(lossy, ["dcmdjpeg"], tmp_path)))
    expected = np.frombuffer(decoded.PixelData, kind).reshape(stored.shape)
    found = read_dicom(lossy, DicomReading(voi="full")).pixels.values
    # Two versions of libjpeg may round one value up or down.
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert np.abs(found.astype(int) - stored).mean() < 2**bits / 100


def test_near_lossless_jpeg_ls_is_decoded_as_dcmtk_does(
    make: Make, picture: np.ndarray, tmp_path: Path
) -> None:
    lossy = by_dcmtk(make(picture), ["dcmcjpls", "+en", "+md", "3"], tmp_path)
    found = read_dicom(lossy, DicomReading(voi="full"))
    assert found.steps[0] == "DICOM, JPEG-LS near lossless"
    decoded = pydicom.dcmread(io.BytesIO(by_dcmtk(lossy, ["dcmdjpls"], tmp_path)))
    expected = np.frombuffer(decoded.PixelData, np.uint16).reshape(picture.shape)
    np.testing.assert_array_equal(found.pixels.values, expected)
    assert np.abs(expected.astype(int) - picture).max() == 3


@pytest.mark.parametrize("kind", [np.uint16, np.int16])
def test_lossy_htj2k_is_decoded_as_another_library_does(
    make: Make, picture: np.ndarray, kind: type
) -> None:
    """OpenJPEG reads what OpenJPH wrote, and as OpenJPH reads it, but for rounding."""
    values = (picture.astype(np.int32) + np.iinfo(kind).min).astype(kind)
    frame = imagecodecs.htj2k_encode(values, level=0.001, reversible=False)
    file = read_file(wrapped(make(values), UIDS["HTJ2K"], frame))
    stored = read_pixels(file, layout_of(file.dataset))
    found = stored.values[stored.patterns]
    assert np.abs(found - imagecodecs.htj2k_decode(frame).astype(int)).max() <= 1
    assert 0 < np.abs(found - values).mean() < 50


def test_compressed_twins_of_real_radiographs_are_equal(gray_files: dict[str, Path]) -> None:
    named = {path.name: path for path in gray_files.values()}
    plain, lossless = (read_resized(named[f"RG3_{kind}.dcm"], 128) for kind in ("UNCR", "J2KR"))
    assert np.array_equal(plain.pixels, lossless.pixels)
    assert plain.steps[-2:] == lossless.steps[-2:]
    assert lossless.steps[0] == "DICOM, JPEG 2000 lossless"
    lossy = read_resized(named["RG3_J2KI.dcm"], 128)
    assert np.abs(lossy.pixels.astype(int) - plain.pixels).max() <= 2


def test_pixels_are_read_from_several_fragments(
    encode: Callable[[str], bytes], make: Make, picture: np.ndarray
) -> None:
    frame = imagecodecs.jpeg2k_encode(picture, codecformat="j2k")
    dataset = pydicom.dcmread(io.BytesIO(encode("JPEG 2000")))
    dataset.PixelData = encapsulate([frame], fragments_per_frame=3)
    buffer = io.BytesIO()
    dataset.save_as(buffer)
    image = read_image(buffer.getvalue())
    np.testing.assert_allclose(image.pixels[0].numpy(), picture / 65535, atol=1e-6)
