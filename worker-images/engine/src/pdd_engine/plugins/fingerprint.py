"""Which weights, tokenizer and adapters an engine has: values that are equal where the files are.

Two engines may hand KV over to each other if they run the same model. NIXL sees the same shapes in a fine-tuned or a
newly quantised model, and passes its KV on; the tokens are wrong, and nobody is told. The fingerprints tell them apart.

A fingerprint is a SHA-256 in hexadecimal over names, sizes in bytes and contents of files, in the order of their names.
It knows nothing of times, of the directory or of what a link points to, so a copy, a volume and a cache of the same
model agree. Small files are read whole. Of a weight file count its name, its size, the header of its safetensors format
(name, type, shape and place of every tensor), its first and last MiB and 16 pieces of 64 KiB in equal steps between:
140 GB in 30 files take 90 MiB of reading. What that can miss is a change of a few tensors, in a file of the same size,
which lies between the pieces: training, quantisation and merged adapters touch each layer, a single edited tensor may
go unseen.

A difference means that the files differ, in a byte that may not matter: a comment in `config.json` is enough. Nothing
here says that two models compute the same; that they differ is worth a person's look before their KV is mixed.
"""

import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MIB = 1 << 20
PIECE = 64 << 10
PIECES = 16
MOST_HEADER = 100 * MIB
"""What the safetensors format allows."""

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
"""In vLLM's order of preference: where a model has several formats, the first one here is loaded."""
WEIGHTS_INDEX = "model.safetensors.index.json"
NOT_WEIGHTS = ("training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.pt", "scheduler.pt")
CONFIGURATIONS = (
    "config.json", "generation_config.json", "params.json",
    "quantization_config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json",
)  # fmt: skip

ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
ADAPTER_SETTINGS = ("adapter_config.json", "new_embeddings.*")

TOKENIZERS = ("tokenizer.json", "tekken.json")
"""Complete tokenizers: the files in other formats beside them are not looked at, and not everywhere there."""
VOCABULARIES = ("vocab.json", "vocab.txt", "merges.txt", "*.model", "*.tiktoken")
TOKENIZER_SETTINGS = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template*", "chat_templates/*", "additional_chat_templates/*",
)  # fmt: skip


class FingerprintError(Exception):
    """The files are not there, or make no sense."""


def weights_fingerprint(model: str, revision: str | None = None, cache_dir: str | None = None) -> str:
    """Of the weights and of the files that say what to compute with them."""
    folder = model_folder(model, revision, cache_dir)
    if folder.is_file():  # one GGUF file, configuration included
        return _fingerprint(folder.parent, [], [folder])
    weights = _weight_files(folder)
    if not weights:
        raise FingerprintError(f"no weights in {folder}: expected files {', '.join('*' + each for each in WEIGHTS)}")
    return _fingerprint(folder, _present(folder, CONFIGURATIONS), weights)


def tokenizer_fingerprint(tokenizer: str, revision: str | None = None, cache_dir: str | None = None) -> str:
    """Of what makes token ids of a client's text: tokenizer and chat template, as they come with the model."""
    folder = model_folder(tokenizer, revision, cache_dir)
    if folder.is_file():
        return _fingerprint(folder.parent, [], [folder])
    tokenizers = _present(folder, TOKENIZERS) or _present(folder, VOCABULARIES)
    if not tokenizers:
        expected = ", ".join((*TOKENIZERS, *VOCABULARIES))
        raise FingerprintError(f"no tokenizer in {folder}: expected one of {expected}")
    return _fingerprint(folder, [*tokenizers, *_present(folder, TOKENIZER_SETTINGS)], [])


def adapters_fingerprint(adapters: Mapping[str, str], cache_dir: str | None = None) -> str:
    """Of the LoRA adapters (name to path) that clients may ask for; empty where there are none.

    The prompt's KV has an adapter in it as it has the weights: another one of the same name gives wrong tokens.
    """
    found = {}
    for name, path in adapters.items():
        folder = model_folder(path, None, cache_dir)
        weights = _present(folder, ADAPTERS)
        if not weights:
            raise FingerprintError(f"no adapter in {folder}: expected one of {', '.join(ADAPTERS)}")
        found[name] = _fingerprint(folder, _present(folder, ADAPTER_SETTINGS), weights)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""


def model_folder(model: str, revision: str | None, cache_dir: str | None) -> Path:
    """A path as it is; of a Hugging Face repository the snapshot that is on this machine. Nothing is downloaded."""
    path = Path(model).expanduser()
    if path.exists():
        return path
    if path.is_absolute():
        raise FingerprintError(f"no such file or directory: {model}")
    hub: Any = importlib.import_module("huggingface_hub")  # the image has it, not everyone who tests this
    try:
        return Path(
            hub.snapshot_download(
                model,
                revision=revision or None,
                cache_dir=cache_dir or None,
                local_files_only=True,
                # A snapshot of which some files were never asked for is no error.
                allow_patterns=["config.json"],
            )
        )
    except (OSError, ValueError) as error:
        raise FingerprintError(f"{model} at revision {revision or 'main'} is not in the cache: {error}") from error


def _weight_files(folder: Path) -> list[Path]:
    """Those that vLLM loads: of one format, and where an index names files, only these."""
    for suffix in WEIGHTS:
        files = [path for path in _present(folder, (f"*{suffix}",)) if path.name not in NOT_WEIGHTS]
        if files and suffix == WEIGHTS[0] and (folder / WEIGHTS_INDEX).is_file():
            return _indexed(folder / WEIGHTS_INDEX)
        if files:
            return files
    return []


def _indexed(index: Path) -> list[Path]:
    try:
        names = {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise FingerprintError(f"{index}: expected a weight_map") from error
    return [index.parent / name for name in names]


def _present(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def _fingerprint(folder: Path, whole: Iterable[Path], sampled: Iterable[Path]) -> str:
    files = {path.relative_to(folder).as_posix(): (path, False) for path in whole}
    files |= {path.relative_to(folder).as_posix(): (path, True) for path in sampled}
    digest = hashlib.sha256()
    for name, (path, is_sampled) in sorted(files.items()):
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                # Lengths before contents: no two sets of files read the same.
                digest.update(json.dumps([name, size]).encode() + b"\n")
                for start, length in _samples(file, size) if is_sampled else [(0, size)]:
                    _add(digest, file, start, length)
        except OSError as error:
            raise FingerprintError(f"{path}: {error.strerror or error}") from error
    return digest.hexdigest()


def _samples(file: BinaryIO, size: int) -> list[tuple[int, int]]:
    """Start and length of what is read of a weight file; it follows from size and header, so from what is hashed."""
    if size <= 2 * MIB + PIECES * PIECE:
        return [(0, size)]
    steps = [(size - PIECE) * step // (PIECES - 1) for step in range(PIECES)]
    header = _safetensors_header(file, size) if Path(file.name).suffix == ".safetensors" else 0
    return [(0, header), (0, MIB), *((start, PIECE) for start in steps), (size - MIB, MIB)]


def _safetensors_header(file: BinaryIO, size: int) -> int:
    """Its length in bytes, with the eight that tell the length."""
    file.seek(0)
    length = 8 + int.from_bytes(file.read(8), "little")
    if length > min(size, MOST_HEADER):
        raise FingerprintError(f"{file.name}: no safetensors file, its header would be {length} B of {size}")
    return length


def _add(digest: "hashlib._Hash", file: BinaryIO, start: int, length: int) -> None:
    file.seek(start)
    while length > 0:
        part = file.read(min(length, MIB))
        if not part:
            raise FingerprintError(f"{file.name} ended while it was read")
        digest.update(part)
        length -= len(part)
