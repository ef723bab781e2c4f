"""Fingerprints of the model's files: equal where the files are, and only there."""

import json
import os
import random
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from pdd_engine.plugins.fingerprint import (
    MIB,
    FingerprintError,
    adapters_fingerprint,
    model_folder,
    tokenizer_fingerprint,
    weights_fingerprint,
)


def safetensors(size: int, seed: int = 0, **header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + random.Random(seed).randbytes(size)


def write(folder: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(folder)


WEIGHTS = {"config.json": b'{"layers": 2}', "generation_config.json": b"{}", "model.safetensors": safetensors(8 * MIB)}
TOKENIZER = {
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"eos": 2}',
    "chat_template.jinja": b"{{ messages }}",
}


class TestWeights:
    def test_a_copy_elsewhere_at_another_time_is_the_same(self, tmp_path: Path) -> None:
        one = write(tmp_path / "one", WEIGHTS)
        other = write(tmp_path / "deep" / "other", dict(reversed(WEIGHTS.items())))
        for path in Path(other).iterdir():
            os.utime(path, (1, 1))
        assert weights_fingerprint(one) == weights_fingerprint(other)
        assert len(weights_fingerprint(one)) == 64

    def test_links_are_followed(self, tmp_path: Path) -> None:
        """As in Hugging Face's cache, where a snapshot is links to blobs."""
        real = write(tmp_path / "real", WEIGHTS)
        (tmp_path / "snapshot").mkdir()
        (tmp_path / "blobs").mkdir()
        for number, path in enumerate(Path(real).iterdir()):
            path.rename(tmp_path / "blobs" / str(number))
            (tmp_path / "snapshot" / path.name).symlink_to(tmp_path / "blobs" / str(number))
        assert weights_fingerprint(str(tmp_path / "snapshot")) == weights_fingerprint(
            write(tmp_path / "plain", WEIGHTS)
        )

    @pytest.mark.parametrize(
        "change",
        [
            {"config.json": b'{"layers": 3}'},
            {"generation_config.json": b'{"temperature": 1}'},
            {"quantize_config.json": b"{}"},
            {"model.safetensors": safetensors(8 * MIB, seed=1)},
            {"model.safetensors": safetensors(8 * MIB + 1)},
            {"model.safetensors": safetensors(8 * MIB, tensor={"dtype": "F32"})},
            {"model-2.safetensors": b""},
        ],
        ids=["config", "generation", "quantisation", "values", "size", "header", "a file more"],
    )
    def test_another_model_is_another(self, change: dict[str, bytes], tmp_path: Path) -> None:
        one = write(tmp_path / "one", WEIGHTS)
        assert weights_fingerprint(write(tmp_path / "other", WEIGHTS | change)) != weights_fingerprint(one)

    @pytest.mark.parametrize("place", [0.0, 0.01, 0.2, 1 / 3, 0.999])
    def test_a_change_where_it_is_sampled_is_seen(self, place: float, tmp_path: Path) -> None:
        content = bytearray(safetensors(64 * MIB))
        one = weights_fingerprint(write(tmp_path, {"model.safetensors": bytes(content)}))
        content[int((len(content) - (64 << 10)) * place) + 8] ^= 1
        assert weights_fingerprint(write(tmp_path, {"model.safetensors": bytes(content)})) != one

    def test_a_header_longer_than_a_sample_counts_to_its_end(self, tmp_path: Path) -> None:
        prints = {
            weights_fingerprint(
                write(tmp_path, {"model.safetensors": safetensors(48 * MIB, a="x" * (MIB + 200_000), b=last)})
            )
            for last in "yz"
        }
        assert len(prints) == 2

    def test_a_large_file_is_not_read_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "model.safetensors"
        path.write_bytes(safetensors(0))
        os.truncate(path, 200 << 30)  # a hole
        assert weights_fingerprint(str(tmp_path))

    def test_what_vllm_does_not_load_does_not_count(self, tmp_path: Path) -> None:
        one = weights_fingerprint(write(tmp_path, WEIGHTS))
        more = {
            "pytorch_model.bin": b"old",
            "README.md": b"text",
            "tokenizer.json": b"{}",
            "original/model.safetensors": b"",
        }
        assert weights_fingerprint(write(tmp_path, more)) == one

    def test_an_index_says_which_files(self, tmp_path: Path) -> None:
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}
        shards = {f"model-{n}.safetensors": safetensors(10, seed=n) for n in (1, 2)}
        files = shards | {"model.safetensors.index.json": json.dumps(index).encode()}
        one = weights_fingerprint(write(tmp_path, files))
        assert weights_fingerprint(write(tmp_path, {"consolidated.safetensors": b"the same again"})) == one
        assert weights_fingerprint(write(tmp_path, {"model-2.safetensors": safetensors(10, seed=3)})) != one

    @pytest.mark.parametrize("name", ["model.gguf", "pytorch_model.bin"])
    def test_other_formats(self, name: str, tmp_path: Path) -> None:
        one = weights_fingerprint(write(tmp_path, {name: b"one", "training_args.bin": b"1"}))
        assert weights_fingerprint(write(tmp_path, {"training_args.bin": b"2"})) == one
        assert weights_fingerprint(write(tmp_path, {name: b"two"})) != one

    def test_one_file_is_a_model(self, tmp_path: Path) -> None:
        write(tmp_path, {"model.gguf": b"weights", "config.json": b"{}"})
        assert weights_fingerprint(str(tmp_path / "model.gguf"))

    @pytest.mark.parametrize(
        ("files", "error"),
        [
            ({"config.json": b"{}"}, "no weights in "),
            ({"model.safetensors": b"\xff" * (4 * MIB)}, "no safetensors file"),
            ({"model.safetensors": b"", "model.safetensors.index.json": b"[]"}, "expected a weight_map"),
            (
                {"model.safetensors": b"", "model.safetensors.index.json": b'{"weight_map": {"a": "gone"}}'},
                "No such file",
            ),
        ],
    )
    def test_an_error_says_what_was_expected(self, files: dict[str, bytes], error: str, tmp_path: Path) -> None:
        with pytest.raises(FingerprintError, match=error):
            weights_fingerprint(write(tmp_path, files))


class TestTokenizer:
    def test_weights_and_the_tokenizer_are_apart(self, tmp_path: Path) -> None:
        model = write(tmp_path, WEIGHTS | TOKENIZER)
        weights, tokenizer = weights_fingerprint(model), tokenizer_fingerprint(model)
        write(tmp_path, {"model.safetensors": b"other"})
        assert tokenizer_fingerprint(model) == tokenizer
        assert weights_fingerprint(model) != weights

    @pytest.mark.parametrize(
        "change",
        [
            {"tokenizer.json": b"{ }"},
            {"tokenizer_config.json": b"{}"},
            {"chat_template.jinja": b""},
            {"additional_chat_templates/tools.jinja": b""},
        ],
    )
    def test_another_tokenizer_or_template_is_another(self, change: dict[str, bytes], tmp_path: Path) -> None:
        one = write(tmp_path / "one", TOKENIZER)
        assert tokenizer_fingerprint(write(tmp_path / "other", TOKENIZER | change)) != tokenizer_fingerprint(one)

    def test_the_same_vocabulary_in_an_older_format_does_not_count_beside_a_tokenizer(self, tmp_path: Path) -> None:
        one = tokenizer_fingerprint(write(tmp_path, TOKENIZER))
        assert tokenizer_fingerprint(write(tmp_path, {"vocab.json": b"{}", "tokenizer.model": b""})) == one

    def test_without_a_complete_one_the_vocabulary_counts(self, tmp_path: Path) -> None:
        one = tokenizer_fingerprint(write(tmp_path, {"tokenizer.model": b"1"}))
        assert tokenizer_fingerprint(write(tmp_path, {"tokenizer.model": b"2"})) != one

    def test_no_tokenizer_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FingerprintError, match=r"no tokenizer in .*: expected one of tokenizer.json"):
            tokenizer_fingerprint(str(tmp_path))


class TestModelFolder:
    @pytest.fixture
    def hub(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
        """huggingface_hub, whose cache has `org/model` at revision `v2`."""
        calls: list[Any] = []
        module = ModuleType("huggingface_hub")

        def snapshot_download(repo: str, **options: Any) -> str:
            calls.append((repo, options))
            if (repo, options["revision"]) != ("org/model", "v2"):
                raise FileNotFoundError("not cached")
            return str(tmp_path)

        module.snapshot_download = snapshot_download  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)
        return calls

    def test_a_repository_is_its_snapshot_on_this_machine(self, hub: list[Any], tmp_path: Path) -> None:
        assert model_folder("org/model", "v2", "/cache") == tmp_path
        _, options = hub[0]
        assert options["local_files_only"] is True
        assert options["cache_dir"] == "/cache"

    def test_nothing_is_downloaded(self, hub: list[Any]) -> None:
        with pytest.raises(FingerprintError, match="org/model at revision main is not in the cache"):
            model_folder("org/model", "", None)

    def test_a_path_is_no_repository(self, hub: list[Any]) -> None:
        with pytest.raises(FingerprintError, match="no such file or directory: /models/gone"):
            model_folder("/models/gone", None, None)
        assert not hub


class TestAdapters:
    FILES: ClassVar = {"adapter_config.json": b'{"r": 8}', "adapter_model.safetensors": safetensors(1000)}

    def test_none(self) -> None:
        assert adapters_fingerprint({}) == ""

    def test_a_copy_is_the_same(self, tmp_path: Path) -> None:
        one, other = write(tmp_path / "one", self.FILES), write(tmp_path / "other", self.FILES)
        assert adapters_fingerprint({"a": one, "b": other}) == adapters_fingerprint({"b": one, "a": other})

    @pytest.mark.parametrize("changed", ["name", "adapter_config.json", "adapter_model.safetensors", "more"])
    def test_whatever_differs_is_seen(self, tmp_path: Path, changed: str) -> None:
        one = write(tmp_path / "one", self.FILES)
        other = write(tmp_path / "other", self.FILES | ({changed: b"xyz"} if changed in self.FILES else {}))
        adapters = {"name": {"b": one}, "more": {"a": one, "b": one}}.get(changed, {"a": other})
        assert adapters_fingerprint({"a": one}) != adapters_fingerprint(adapters)

    def test_a_folder_without_an_adapter(self, tmp_path: Path) -> None:
        with pytest.raises(FingerprintError, match="no adapter in"):
            adapters_fingerprint({"a": write(tmp_path / "model", WEIGHTS)})
