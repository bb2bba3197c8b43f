"""Every kind of file becomes one gray image in [0, 1] or one clear error."""

import io
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from zlib import compress, crc32

import numpy as np
import PIL.Image
import PIL.TiffImagePlugin
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from squid.data import container
from squid.data import image as module
from squid.data.damage import refuse_damage
from squid.data.decode import FILES, read_many
from squid.data.image import read_image, resize
from squid.data.levels import RangeWarning
from squid.data.reading import Reading
from squid.errors import DataError

RAMP = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5


def encode(array: np.ndarray | PIL.Image.Image, kind: str = "PNG", **options: object) -> bytes:
    picture = PIL.Image.fromarray(array) if isinstance(array, np.ndarray) else array
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP"])
def test_gray_bytes_are_kept_exactly(kind: str) -> None:
    image = read_image(encode(RAMP, kind))
    assert image.pixels.dtype == torch.float32
    assert torch.equal(image.pixels, torch.from_numpy(RAMP.astype(np.float32) / 255)[None])
    assert image.steps == ()


def test_sixteen_bits_are_scaled_to_one() -> None:
    image = read_image(encode(np.array([[0, 32768, 65535]], dtype=np.uint16)))
    assert image.pixels[0, 0].tolist() == pytest.approx([0.0, 32768 / 65535, 1.0])
    assert image.steps == ("16 bit scaled",)


def tiff(values: np.ndarray, **tags: object) -> bytes:
    """A TIFF file whose tags differ from what Pillow would write."""
    info = PIL.TiffImagePlugin.ImageFileDirectory_v2()
    for name, value in tags.items():
        info[TAGS[name]] = value
    return encode(values, "TIFF", tiffinfo=info)


TAGS = {"sample_format": 339, "least": 340, "largest": 341}
SIXTEEN = np.array([[0, 20000, 65535]], dtype=np.uint16)
TWELVE = np.array([[0, 1001, 4095]], dtype=np.uint16)


def test_white_is_zero_in_a_tiff_is_inverted() -> None:
    expected = [1.0, 1 - 20000 / 65535, 0.0]
    for values in (SIXTEEN, (SIXTEEN / 65535).astype(np.float32)):
        plain = read_image(tiff(values))
        image = read_image(_with_photometric(tiff(values), 0))
        assert image.pixels[0, 0].tolist() == pytest.approx(expected, abs=1e-6)
        assert torch.allclose(image.pixels, 1 - plain.pixels)
        assert image.steps[-1] == "inverted, since zero is white"
    eight = _with_photometric(tiff(RAMP), 0)
    assert torch.allclose(read_image(eight).pixels, 1 - read_image(tiff(RAMP)).pixels)


def _with_photometric(data: bytes, value: int) -> bytes:
    """The same TIFF file with another photometric interpretation: Pillow's writer sets its own."""
    entry = struct.pack("<HHI", 262, 3, 1)
    place = data.index(entry) + len(entry)
    return data[:place] + struct.pack("<H", value) + data[place + 2 :]


def test_a_declared_largest_value_sets_the_bits() -> None:
    for largest in (4095, 3871):  # the range of 12 bits, and a file's own maximum in it
        image = read_image(tiff(np.minimum(TWELVE, largest), largest=largest))
        assert image.pixels[0, 0, 1].item() == pytest.approx(1001 / 4095)
        assert image.steps == ("12 bit scaled",)


@pytest.mark.parametrize("largest", [5095, 4871])
def test_a_declared_least_value_is_black(largest: int) -> None:
    """Twelve bits, moved up by a thousand, would else be thirteen."""
    values = np.minimum(TWELVE + 1000, largest).astype(np.uint16)
    image = read_image(tiff(values, least=1000, largest=largest))
    assert image.pixels[0, 0].tolist() == pytest.approx([0, 1001 / 4095, (largest - 1000) / 4095])
    assert image.steps == ("1,000 subtracted, the least value that it declares", "12 bit scaled")
    inverted = read_image(_with_photometric(tiff(values, least=1000, largest=largest), 0))
    assert torch.allclose(inverted.pixels, 1 - image.pixels)


def test_a_least_value_that_cannot_be_is_refused_or_not_taken() -> None:
    lies = tiff(TWELVE, least=1000, largest=5095)
    with pytest.raises(DataError, match=r"holds the value 0, less than the 1,000 .*; set bits to"):
        read_image(lies)
    assert read_image(lies, reading=Reading(bits=12)).pixels.max() == 1.0
    nonsense = tiff(SIXTEEN, least=9000, largest=9000)  # no range at all
    assert read_image(nonsense, reading=Reading(bits=16)).steps == ("16 bit scaled",)


def test_signed_tiff_pixels_have_one_bit_less() -> None:
    image = read_image(tiff(np.array([[0, 32767]], dtype=np.uint16), sample_format=2))
    assert image.pixels.max() == 1.0
    with pytest.raises(DataError, match="negative"):
        read_image(tiff(np.array([[0, 65535]], dtype=np.uint16), sample_format=2))


def _with_significant_bits(data: bytes, bits: int) -> bytes:
    """A PNG with the chunk sBIT after its header."""
    return data[:33] + _chunk(b"sBIT", bytes([bits])) + data[33:]


def test_significant_bits_of_a_png_are_used_whether_or_not_it_scales_them() -> None:
    for values in (TWELVE, TWELVE << 4, TWELVE << 4 | TWELVE >> 8):
        image = read_image(_with_significant_bits(encode(values), 12))
        assert image.pixels[0, 0].tolist() == pytest.approx([0, 1001 / 4095, 1], abs=3e-4)


def test_a_small_part_of_the_range_is_reported_and_bits_correct_it() -> None:
    data = encode(TWELVE)
    with pytest.warns(RangeWarning, match=r"uses the values 0 to 4,095 of 65,535 \(6.2 %\)"):
        read_image(data)
    assert read_image(data, reading=Reading(bits=12)).pixels.max() == 1.0
    with pytest.raises(DataError, match="set bits to 12 or more"):
        read_image(data, reading=Reading(bits=10))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "LA", "1"])
def test_colour_palette_and_bits_become_gray(mode: str) -> None:
    white = PIL.Image.new("L", (5, 4), 255).convert(mode)
    image = read_image(encode(white))
    assert image.pixels.shape == (1, 4, 5)
    assert image.pixels.min() == 1.0
    assert image.steps == (f"gray from {mode}",)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])
def test_transparent_pixels_are_refused(mode: str) -> None:
    picture = PIL.Image.new("RGBA", (5, 4), (255, 255, 255, 0)).convert(mode)
    options = {} if mode.endswith("A") else {"transparency": picture.getpixel((0, 0))}
    with pytest.raises(DataError, match="partly transparent; save it without"):
        read_image(encode(picture, **options))


@pytest.mark.parametrize("alpha", [bytes([255] * 256), 7])
def test_an_opaque_palette_gives_the_same_gray(alpha: bytes | int) -> None:
    colours = np.random.default_rng(0).integers(0, 256, 768).tolist()
    picture = PIL.Image.fromarray(RAMP).convert("P")
    picture.putpalette(colours)
    assert 7 not in RAMP
    transparent = read_image(encode(picture, transparency=alpha))
    assert torch.equal(transparent.pixels, read_image(encode(picture)).pixels)


def test_exif_orientation_turns_the_image() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    picture = PIL.Image.new("L", (32, 16), 0)
    picture.paste(255, (0, 0, 32, 8))
    image = read_image(encode(picture, "JPEG", quality=95, exif=exif))
    assert image.pixels.shape == (1, 32, 16)
    assert image.pixels[0, :, 12:].min() > 0.9
    assert image.pixels[0, :, :4].max() < 0.1
    assert image.steps == ("turned as its EXIF orientation says",)


def test_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "half.jpeg"
    data = encode(np.tile(RAMP, (20, 20)), "JPEG")
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(
        DataError, match=r"half\.jpeg is damaged: Premature end of JPEG file; save it again"
    ):
        read_image(path)


def test_missing_file_foreign_format_and_empty_dicom_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.png cannot be read"):
        read_image(tmp_path / "absent.png")
    with pytest.raises(DataError, match="not a PNG, JPEG, TIFF, BMP or DICOM file"):
        read_image(encode(RAMP, "GIF"))
    with pytest.raises(DataError, match="DICOM file that names no transfer syntax"):
        read_image(bytes(128) + b"DICM" + bytes(64))


def test_caps_are_checked_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(RAMP)
    for name, limit in (("MAX_PIXELS", 47), ("MAX_SIDE", 7)):
        with monkeypatch.context() as patch:
            patch.setattr(container, name, limit)
            for kind in ("PNG", "BMP", "TIFF"):
                with pytest.raises(DataError, match=f"has 8 x 6 pixels, more than {limit}"):
                    read_image(encode(RAMP, kind))
    monkeypatch.setattr(module, "MAX_BYTES", len(data) - 1)
    with pytest.raises(DataError, match="MiB"):
        read_image(data)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_pixels_of_32_bits_have_a_lower_limit(dtype: type[np.generic]) -> None:
    """80 million of them, which compress to half a megabyte, took 1.1 GiB."""
    data = bytearray(encode(np.zeros((6, 8), dtype), "TIFF"))
    for tag, side in ((256, 8000), (257, 5001)):
        place = next(
            data.index(entry)
            for kind in (3, 4)
            if (entry := struct.pack("<HHI", tag, kind, 1)) in data
        )
        data[place : place + 12] = struct.pack("<HHII", tag, 4, 1, side)
    with pytest.raises(DataError, match="8000 x 5001 pixels of 32 bits, more than 40,000,000"):
        read_image(bytes(data))


def test_decompression_bomb_is_an_error_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(DataError, match="has too many pixels, the limit is 80,000,000"):
        read_image(encode(RAMP))


@pytest.mark.parametrize("size", [(1, 80_000_000), (80_000_000, 1), (50_000, 50_000)])
def test_huge_pictures_are_refused_by_their_header(size: tuple[int, int]) -> None:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 16, 0, 0, 0, 0))
    data = container.PNG + header + _chunk(b"IDAT", compress(b"")) + _chunk(b"IEND", b"")
    with pytest.raises(DataError, match=f"has {size[0]} x {size[1]} pixels, more than"):
        read_image(data)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc32(kind + content))
    )


def test_wrong_checksums_and_cut_chunks_of_a_png_are_damage() -> None:
    data = bytearray(encode(RAMP))
    place = data.index(b"IDAT") + 10
    data[place] ^= 1
    with pytest.raises(DataError, match="is damaged: a checksum of the PNG is wrong"):
        read_image(bytes(data))
    with pytest.raises(DataError, match="is damaged: it ends within a PNG chunk"):
        read_image(bytes(data[:place]))


ACCEPTING = Reading(damaged="accept")


def test_a_damaged_png_is_read_if_damage_is_accepted() -> None:
    data = bytearray(encode(RAMP))
    data[data.index(b"IDAT") - 5] ^= 1  # a checksum
    data[data.index(b"IEND") + 4 :] = b""  # the last one
    with pytest.warns(
        RangeWarning, match="is damaged: a checksum of the PNG is wrong; it was read"
    ):
        image = read_image(bytes(data), reading=ACCEPTING)
    assert torch.equal(image.pixels, read_image(encode(RAMP)).pixels)
    assert image.steps == ("read although damaged",)
    with pytest.raises(DataError, match="is not a readable image"):
        read_image(bytes(data[: data.index(b"IDAT") + 8]), reading=ACCEPTING)


SMOOTH = PIL.Image.radial_gradient("L")


def test_a_damaged_jpeg_is_refused_or_read_with_a_warning() -> None:
    whole = encode(SMOOTH, "JPEG", quality=95)
    cut = whole[: len(whole) * 3 // 4]
    with pytest.raises(DataError, match="is damaged: Premature end of JPEG file; save it again"):
        read_image(cut)
    with pytest.warns(RangeWarning, match="is damaged: Premature end of JPEG file; it was read"):
        image = read_image(cut, reading=ACCEPTING)
    expected = read_image(whole).pixels
    assert torch.equal(image.pixels[:, :64], expected[:, :64])
    assert not torch.equal(image.pixels, expected)


def test_most_changed_bits_of_a_jpeg_that_break_its_codes_are_noticed() -> None:
    data = encode(SMOOTH, "JPEG", quality=95)
    start, rng, noticed = data.index(b"\xff\xda") + 14, np.random.default_rng(0), 0
    for place in rng.integers(start, len(data) - 2, 100):
        broken = bytearray(data)
        broken[place] ^= 1 << rng.integers(0, 8)
        try:
            read_image(bytes(broken))
        except DataError:
            noticed += 1
    assert noticed >= 20


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 2}, {"quality": 30}]
)
def test_jpeg_pixels_are_those_of_pillow(mode: str, options: dict[str, int]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    data = encode(PIL.Image.fromarray(noise).convert(mode), "JPEG", **options)
    with PIL.Image.open(io.BytesIO(data)) as picture:
        expected = np.array(picture.convert("L"))
    assert np.array_equal((read_image(data).pixels[0].numpy() * 255).round(), expected)


def test_what_pillow_warns_about_is_an_error_outside_of_tests_as_well() -> None:
    data = bytearray(encode(RAMP, "TIFF", description="x" * 20))
    entry = data.index(struct.pack("<HH", 270, 2))
    data[entry + 4 : entry + 8] = struct.pack("<I", 10**6)  # a text longer than the file
    with warnings.catch_warnings():
        warnings.resetwarnings()
        refuse_damage()
        with pytest.raises(DataError, match=r"upload is damaged: .*; save it again"):
            read_image(bytes(data), "upload")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RangeWarning)
            accepted = read_image(bytes(data), "upload", reading=ACCEPTING)
    assert torch.equal(accepted.pixels, read_image(encode(RAMP)).pixels)
    assert ["upload is damaged" in str(one.message) for one in caught] == [True]


def test_pages_scans_chunks_and_texts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PIL.Image.fromarray(RAMP)
    three = encode(page, "TIFF", save_all=True, append_images=[page, page])
    assert read_image(three).steps == ("first of 3 pages",)
    monkeypatch.setattr(container, "MAX_PAGES", 2)
    with pytest.raises(DataError, match="more than 2 pages"):
        read_image(three)
    monkeypatch.setattr(container, "MAX_SCANS", 2)
    with pytest.raises(DataError, match="JPEG scans, more than 2"):
        read_image(encode(RAMP, "JPEG", progressive=True))
    data = encode(RAMP)
    text = _chunk(b"zTXt", b"Comment\0\0" + compress(bytes(2**21)))
    with pytest.raises(DataError, match="texts or its colour profile are too large"):
        read_image(data[:33] + text + data[33:])
    monkeypatch.setattr(container, "MAX_CHUNKS", 2)
    with pytest.raises(DataError, match="more than 2 PNG chunks"):
        read_image(data)


SAMPLES = [encode(np.tile(RAMP, (3, 3)), kind) for kind in ("PNG", "JPEG", "TIFF", "BMP")] + [
    encode(np.arange(64, dtype=np.uint16).reshape(8, 8) * 999)
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sample=st.sampled_from(SAMPLES),
    keep=st.floats(0.0, 1.0),
    changes=st.lists(st.tuples(st.floats(0.0, 0.999), st.integers(0, 255)), max_size=8),
)
def test_broken_bytes_give_an_image_or_a_data_error(
    sample: bytes, keep: float, changes: list[tuple[float, int]]
) -> None:
    data = bytearray(sample)
    for place, value in changes:
        data[int(place * len(data))] = value
    try:
        image = read_image(bytes(data[: int(keep * len(data)) + 1]), "upload")
    except DataError:
        return
    assert image.pixels.shape[0] == 1
    assert image.pixels.min() >= 0.0
    assert image.pixels.max() <= 1.0


def test_resize_equals_pillow_and_leaves_the_right_size_alone() -> None:
    pixels = torch.from_numpy(RAMP)[None]
    expected = PIL.Image.fromarray(RAMP).resize((5, 5), PIL.Image.Resampling.BICUBIC)
    assert np.array_equal(resize(pixels, 5)[0].numpy(), np.array(expected))
    assert torch.equal(resize(pixels.float() / 255, 5), resize(pixels, 5))
    square = pixels[:, :, :6]
    assert torch.equal(resize(square, 6), square)


def test_reading_keeps_order_reports_progress_and_skips(tmp_path: Path) -> None:
    count = FILES + 12
    paths = [tmp_path / f"{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_bytes(encode(np.full((6, 8), i, dtype=np.uint8)))
    paths[3].write_bytes(b"nothing")
    seen: list[tuple[int, int]] = []
    loaded = read_many(paths, 4, on_error="skip", progress=lambda *step: seen.append(step))
    assert loaded.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, *range(4, count)]
    assert loaded.places == (0, 1, 2, *range(4, count))
    assert [name for name, _ in loaded.skipped] == [str(paths[3])]
    assert seen == [(FILES, count), (count, count)]
    with pytest.raises(DataError, match=r"3\.png"):
        read_many(paths, 4)


def test_originals_become_the_published_128_pixel_images(shared: Callable[..., Path]) -> None:
    folder = shared("data", "zhanglab_originals")
    for part, kind in (("train", "normal"), ("test", "normal"), ("test", "pneumonia")):
        files = sorted((folder / part / kind.upper()).iterdir())
        with np.load(shared("data", "zhanglab128", f"{part}_{kind}.npz")) as arrays:
            places = [arrays["names"].tolist().index(path.name) for path in files]
            expected = arrays["images"][places].astype(int)
        difference = np.abs(read_many(files, 128).pixels[:, 0].numpy().astype(int) - expected)
        assert difference.max() <= 1  # JPEG decoders may differ by one
        assert difference.mean() < 0.01
