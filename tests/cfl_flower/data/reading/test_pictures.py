import importlib

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.reading.pictures import Crop, images
from cfl_flower.errors import ConfigError


def test_boxes_are_cut_out_and_resized(tmp_path):
    path = tmp_path / "a.png"
    image = np.zeros((8, 8, 3), np.uint8)
    image[:4, 4:] = (10, 20, 30)
    Image.fromarray(image).save(path)
    x = images([Crop(path, (4, 0, 8, 4)), Crop(path)], (3, 2, 2))
    assert x.shape == (2, 3, 2, 2)
    assert [np.unique(channel).tolist() for channel in x[0]] == [[10], [20], [30]]
    # Resizing smooths the border between the quarters.
    assert x[1, :, 0, 1] == pytest.approx(np.array([10, 20, 30]), rel=0.3)
    assert x[1, :, 1, 0].max() <= 1


def test_pixels_of_16_bits_are_refused_rather_than_white(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((4, 4), 20000, np.uint16)).save(path)
    with pytest.raises(ConfigError, match="not bytes; convert it"):
        images([Crop(path)], (1, 4, 4))


def test_many_images_keep_their_order(tmp_path, monkeypatch):
    samples = importlib.import_module("cfl_flower.data.reading.pictures")
    monkeypatch.setattr(samples, "TAKEN_AT_ONCE", 4)
    for value in range(10):
        Image.new("L", (3, 3), value).save(tmp_path / f"{value}.png")
    x = images([Crop(tmp_path / f"{value}.png") for value in range(10)], (1, 3, 3))
    assert x[:, 0, 0, 0].tolist() == list(range(10))


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_an_image_that_is_cut_off_is_named(tmp_path, suffix, share):
    path = tmp_path / f"cut.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ConfigError, match=rf"cut\.{suffix} cannot be read"):
        images([Crop(path)], (3, 8, 8))


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_upright_however_the_camera_was_held(suffix, channels, tmp_path):
    pixels = np.zeros((32, 32), np.uint8)
    pixels[:8, :16] = 255
    seen = Image.fromarray(pixels).convert("RGB")
    turns = {1: None, 3: 180, 6: 90, 8: 270}
    crops = []
    for orientation, degrees in turns.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        path = tmp_path / f"{orientation}.{suffix}"
        stored = seen if degrees is None else seen.rotate(degrees)
        stored.save(path, exif=exif)
        crops.append(Crop(path))
    x = images(crops, (channels, 4, 4))
    assert (np.abs(x.astype(int) - x[0]) < 40).all()
    assert x[0, 0, 0, 0] > 200
    assert x[0, 0, 3, 3] < 50


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
@pytest.mark.parametrize("hidden", [0, 128, 255])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_transparent_pixels_hide_is_not_seen(mode, hidden, channels, tmp_path):
    pixels = np.full((8, 8, 4), hidden, np.uint8)
    pixels[..., 3] = 0
    pixels[:4] = (9, 9, 9, 255)
    image = Image.fromarray(pixels)
    stored = image.quantize(4) if mode == "P" else image.convert(mode)
    path = tmp_path / "a.png"
    stored.save(path)
    (x,) = images([Crop(path)], (channels, 8, 8))
    assert np.unique(x[:, 5:]).tolist() == [255]
    assert np.unique(x[:, :3]).tolist() == [9]
