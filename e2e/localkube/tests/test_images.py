"""The image cache: what is unpacked is what containerd would have unpacked."""

import gzip
import io
import json
import os
import stat
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import images  # type: ignore[import-not-found,unused-ignore]  # a script beside its node scripts, not a package

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device files and trusted attributes need root")


def layer(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(text), 0o644
            archive.addfile(about, io.BytesIO(text.encode()))
    return packed.getvalue()


LOWER = layer({"kept/one": "1", "kept/two": "2", "emptied/old": "3"})
UPPER = layer({"kept/.wh.two": "", "emptied/.wh..wh..opq": "", "emptied/new": "4"})


def configuration(*layers: bytes) -> bytes:
    diff_ids = [images.digest(packed) for packed in layers]
    about = {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    return json.dumps(about).encode()


def blob(data: bytes) -> str:
    return "blobs/" + images.digest(data).replace(":", "/")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(images, "LAYERS", tmp_path / "layers")
    monkeypatch.setattr(images, "INDEX", tmp_path / "layers" / "images")
    return tmp_path / "image.tar"


def write_docker_archive(archive: Path, *layers: bytes, config: bytes | None = None) -> None:
    members = {f"{i}/layer.tar": packed for i, packed in enumerate(layers)}
    manifest = [{"Config": "config.json", "RepoTags": ["localhost/x:1"], "Layers": list(members)}]
    members |= {"config.json": config or configuration(*layers), "manifest.json": json.dumps(manifest).encode()}
    images.write_tar(archive, members)


def unpacked(packed: bytes) -> Path:
    return Path(images.layer_directory(images.digest(packed)))


def test_deletions_become_what_an_overlay_understands(archive: Path) -> None:
    write_docker_archive(archive, LOWER, UPPER)
    assert images.store(archive) == ["localhost/x:1"]
    deleted = (unpacked(UPPER) / "kept/two").stat()
    assert stat.S_ISCHR(deleted.st_mode)
    assert deleted.st_rdev == 0
    assert os.getxattr(unpacked(UPPER) / "emptied", "trusted.overlay.opaque") == b"y"
    assert os.listdir(unpacked(UPPER) / "emptied") == ["new"]
    assert os.listdir(unpacked(UPPER) / "kept") == ["two"]


def test_an_oci_archive_with_gzipped_layers_is_the_same_image(archive: Path) -> None:
    config, packed = configuration(LOWER), gzip.compress(LOWER)
    layers = [{"digest": images.digest(packed)}]
    manifest = json.dumps({"config": {"digest": images.digest(config)}, "layers": layers}).encode()
    index = json.dumps({"manifests": [{"digest": images.digest(manifest)}]}).encode()
    images.write_tar(archive, {"index.json": index} | {blob(part): part for part in (config, packed, manifest)})
    assert images.store(archive, "localhost/y:1") == ["localhost/y:1"]
    assert images.diff_ids("localhost/y:1") == [images.digest(LOWER)]
    assert (unpacked(LOWER) / "kept/one").read_text() == "1"


def test_a_layer_that_is_not_what_its_configuration_says_is_refused(archive: Path) -> None:
    write_docker_archive(archive, LOWER, config=configuration(UPPER))
    with pytest.raises(SystemExit, match="digest"):
        images.store(archive)
    assert not images.has("localhost/x:1")


def test_prune_keeps_what_is_named_or_recorded_by_a_node(archive: Path, tmp_path: Path) -> None:
    write_docker_archive(archive, LOWER, UPPER)
    images.store(archive, "localhost/both:1")
    write_docker_archive(archive, UPPER)
    images.store(archive, "localhost/upper:1")
    record = tmp_path / "record"
    record.write_text(f"7 {images.digest(LOWER)}\n")
    images.prune({"localhost/upper:1"}, [record])
    assert not images.has("localhost/both:1")
    assert images.has("localhost/upper:1")
    assert unpacked(LOWER).exists()
    images.prune(set(), [])
    assert not unpacked(LOWER).exists()
    assert not unpacked(UPPER).exists()
