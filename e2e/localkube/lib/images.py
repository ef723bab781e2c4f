#!/usr/bin/env python3
"""Images for nodes without a registry, each layer once on the machine's disk.

A layer is unpacked once into $PDD_CACHE/layers/<digest>, and every node that needs it sees that same
directory, mounted read-only where its containerd expects the unpacked layer (an overlay never writes to
its lower layers). What a node's containerd itself holds of an image is its manifest and configuration, a
few kilobytes. So an image costs its unpacked size once, however many nodes there are, and a node has it
within a second or two.

    images.py make OUT.tar REFERENCE PROGRAM     an image of one static program, as a docker-archive
    images.py store ARCHIVE [REFERENCE]          into the cache; prints the references
    images.py has REFERENCE                      exit status 0 if it is in the cache
    images.py mount RECORD ROOT                  in a starting node: the layers that it had before
    images.py give RECORD < REFERENCES           in a running node: the images that it does not have yet
    images.py prune RECORD... < REFERENCES       drop from the cache what is neither named nor in use

ARCHIVE is a docker-archive or an OCI archive, its layers plain or gzipped. RECORD is where a node
remembers which layer is mounted for which snapshot. Standard library only.
"""

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

CACHE = Path(os.environ.get("PDD_CACHE", "/var/cache/pdd"))
LAYERS = CACHE / "layers"
INDEX = CACHE / "layers" / "images"
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def encode(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


# ---------------------------------------------------------------- the cache


def thin_archive(reference: str) -> Path:
    """Where the image is kept: an OCI archive with everything but the layers."""
    return INDEX / (urllib.parse.quote(reference, safe="") + ".tar")


def layer_directory(diff_id: str) -> Path:
    return LAYERS / diff_id.removeprefix("sha256:")


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    INDEX.mkdir(parents=True, exist_ok=True)
    with (LAYERS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    file = archive.extractfile(name)  # follows links: some archives store a layer twice that way
    if file is None:
        raise SystemExit(f"images: {name} is missing in the archive")
    return file


def images_in(archive: tarfile.TarFile) -> Iterator[tuple[list[str], bytes, list[str]]]:
    """Each image of an archive: its references, its configuration, the members that are its layers."""
    names = set(archive.getnames())
    if "manifest.json" in names:
        for image in json.load(read(archive, "manifest.json")):
            yield image["RepoTags"] or [], read(archive, image["Config"]).read(), image["Layers"]
        return
    if "index.json" not in names:
        raise SystemExit("images: neither a docker-archive nor an OCI archive")

    def blob(descriptor: dict[str, Any]) -> str:
        return "blobs/" + str(descriptor["digest"]).replace(":", "/")

    for entry in json.load(read(archive, "index.json"))["manifests"]:
        manifest = json.load(read(archive, blob(entry)))
        name = entry.get("annotations", {}).get("org.opencontainers.image.ref.name")
        config, layers = read(archive, blob(manifest["config"])).read(), [blob(layer) for layer in manifest["layers"]]
        yield [name] if name else [], config, layers


def unpack_layer(packed: IO[bytes], diff_id: str) -> None:
    """One layer into its directory, as containerd's overlay snapshotter would leave it."""
    target = layer_directory(diff_id)
    partial = target.with_name(target.name + ".partial")
    remove_tree(partial)
    partial.mkdir(mode=0o755)
    start = packed.read(2)
    packed.seek(0)
    plain = gzip.GzipFile(fileobj=packed) if start == b"\x1f\x8b" else packed
    found = hashlib.sha256()
    keep = "--preserve-permissions --same-owner --numeric-owner --xattrs --xattrs-include=* --delay-directory-restore"
    command = ["tar", "--extract", "--file=-", f"--directory={partial}", "--warning=no-timestamp", *keep.split()]
    tar = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert tar.stdin
    while chunk := plain.read(1 << 20):
        found.update(chunk)
        tar.stdin.write(chunk)
    tar.stdin.close()
    if tar.wait() != 0:
        raise SystemExit("images: tar failed")
    if "sha256:" + found.hexdigest() != diff_id:
        raise SystemExit(f"images: a layer has digest {found.hexdigest()}, its configuration says {diff_id}")
    convert_whiteouts(partial)
    partial.rename(target)


def convert_whiteouts(top: Path) -> None:
    """A deleted file is ".wh.NAME" in a layer's tar and a character device 0/0 in an overlay."""
    for directory, _, files in os.walk(top):
        for name in files:
            if not name.startswith(".wh."):
                continue
            path = Path(directory, name)
            path.unlink()
            if name == ".wh..wh..opq":
                os.setxattr(directory, "trusted.overlay.opaque", b"y")
            elif not name.startswith(".wh..wh."):
                os.mknod(path.with_name(name.removeprefix(".wh.")), stat.S_IFCHR, os.makedev(0, 0))


def write_thin_archive(reference: str, config: bytes, sizes: list[int]) -> None:
    about = json.loads(config)
    layers = [
        {"mediaType": LAYER, "digest": diff_id, "size": size}
        for diff_id, size in zip(about["rootfs"]["diff_ids"], sizes, strict=True)
    ]
    manifest = encode({
        "schemaVersion": 2, "mediaType": MANIFEST, "layers": layers,
        "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
    })  # fmt: skip
    index = encode({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest),
            "platform": {"os": about["os"], "architecture": about["architecture"]},
            "annotations": {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference},
        }],
    })  # fmt: skip
    target = thin_archive(reference)
    partial = target.with_name(target.name + ".partial")
    write_tar(partial, {
        "oci-layout": encode({"imageLayoutVersion": "1.0.0"}),
        "blobs/" + digest(manifest).replace(":", "/"): manifest,
        "blobs/" + digest(config).replace(":", "/"): config,
        "index.json": index,
    })  # fmt: skip
    partial.rename(target)


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o644
            archive.addfile(about, io.BytesIO(data))


def store(path: str, reference: str | None = None) -> list[str]:
    stored = []
    with exclusive(), tarfile.open(path) as archive:
        for names, config, members in images_in(archive):
            wanted = [reference] if reference else names
            if not wanted:
                raise SystemExit(f"images: an image in {path} has no name; give a reference")
            sizes = []
            for diff_id, member in zip(json.loads(config)["rootfs"]["diff_ids"], members, strict=True):
                packed = read(archive, member)
                sizes.append(packed.seek(0, io.SEEK_END))
                packed.seek(0)
                if not layer_directory(diff_id).exists():
                    unpack_layer(packed, diff_id)
            for name in wanted:
                write_thin_archive(name, config, sizes)
                stored.append(name)
    return stored


def has(reference: str) -> bool:
    thin = thin_archive(reference)
    return thin.exists() and all(layer_directory(diff_id).exists() for diff_id in diff_ids(reference))


def diff_ids(reference: str) -> list[str]:
    with tarfile.open(thin_archive(reference)) as archive:
        manifest = json.load(read(archive, "index.json"))["manifests"][0]["digest"]
        layers = json.load(read(archive, "blobs/" + manifest.replace(":", "/")))["layers"]
        return [layer["digest"] for layer in layers]


def remove_tree(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)


def prune(keep: set[str], records: list[Path]) -> None:
    """Drop images that are not named, then layers that no image needs and no node has, running or not."""
    with exclusive():
        needed: set[str] = set()
        for thin in INDEX.glob("*.tar"):
            reference = urllib.parse.unquote(thin.name.removesuffix(".tar"))
            if reference in keep:
                needed.update(x.removeprefix("sha256:") for x in diff_ids(reference))
            else:
                thin.unlink()
        for record in records:
            if record.exists():
                needed.update(line.split(":")[1] for line in record.read_text().splitlines())
        for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
            with contextlib.suppress(OSError):
                roots = [line.split()[3] for line in mounts.read_text().splitlines()]
                needed.update(Path(root).name for root in roots if Path(root).parent.name == LAYERS.name)
        for layer in LAYERS.iterdir():
            if layer.is_dir() and layer != INDEX and layer.name not in needed:
                print(f"images: dropping layer {layer.name[:12]}", file=sys.stderr)
                remove_tree(layer)


def make(out: str, reference: str, program: str) -> None:
    name = Path(program).name
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for directory, mode in (("tmp", 0o1777), ("etc", 0o755), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)):
            about = tarfile.TarInfo(directory)
            about.type, about.mode = tarfile.DIRTYPE, mode
            archive.addfile(about)
        about = tarfile.TarInfo(name)
        about.size, about.mode = Path(program).stat().st_size, 0o755
        with open(program, "rb") as file:
            archive.addfile(about, file)
    layer = packed.getvalue()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = encode({
        "architecture": machine, "os": "linux", "config": {"Entrypoint": ["/" + name], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    })  # fmt: skip
    manifest = encode([{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}])
    write_tar(Path(out), {"config.json": config, "layer.tar": layer, "manifest.json": manifest})


# ---------------------------------------------------------------- within a node


def ctr(*arguments: str) -> str:
    done = subprocess.run(["ctr", "--namespace", "k8s.io", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"images: ctr {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def mount_layer(diff_id: str, where: Path) -> None:
    subprocess.run(["mount", "--bind", "--options", "ro", layer_directory(diff_id), where], check=True)


def mount(record: Path, root: Path) -> None:
    """The mounts of a node end with its power, what its containerd knows about them does not."""
    if record.exists():
        for line in record.read_text().splitlines():
            snapshot, diff_id = line.split()
            mount_layer(diff_id, root / SNAPSHOTS / snapshot / "fs")


def give(record: Path, references: list[str]) -> None:
    present = set(ctr("images", "list", "--quiet").split())
    known = {line.split()[0] for line in ctr("snapshots", "list").splitlines()[1:]}
    for reference in references:
        if reference in present:
            continue
        started = time.monotonic()
        parent = ""
        for diff_id in diff_ids(reference):
            chain = digest(f"{parent} {diff_id}".encode()) if parent else diff_id
            if chain not in known:
                if f"given-{chain}" in known:  # a power cut came in between
                    ctr("snapshots", "remove", f"given-{chain}")
                give_layer(record, diff_id, chain, parent)
                known.add(chain)
            parent = chain
        ctr("images", "import", str(thin_archive(reference)))
        print(f"images: {reference} in {time.monotonic() - started:.1f} s")


def give_layer(record: Path, diff_id: str, chain: str, parent: str) -> None:
    """Make a snapshot by the name that containerd would give it, with the cached layer as its contents."""
    active = f"given-{chain}"
    mounts = json.loads(ctr("snapshots", "prepare", "--mounts", active, *([parent] if parent else [])))
    upper = [option.removeprefix("upperdir=") for option in mounts[0]["Options"] if option.startswith("upperdir=")]
    where = Path(upper[0] if upper else mounts[0]["Source"])  # the lowest layer is no overlay yet
    mount_layer(diff_id, where)
    with record.open("a") as file:
        file.write(f"{where.parent.name} {diff_id}\n")
    ctr("snapshots", "commit", chain, active)


def main(command: str = "", *arguments: str) -> None:
    lines = sys.stdin.read().split() if command in ("give", "prune") else []
    if command == "make":
        make(*arguments)
    elif command == "store":
        print("\n".join(store(*arguments)))
    elif command == "has":
        raise SystemExit(0 if has(*arguments) else 1)
    elif command == "mount":
        mount(Path(arguments[0]), Path(arguments[1]))
    elif command == "give":
        give(Path(arguments[0]), lines)
    elif command == "prune":
        prune(set(lines), [Path(argument) for argument in arguments])
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
