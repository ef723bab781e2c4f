"""Give a CUDA build of torch what its loader asks for, on a machine that has no CUDA.

PyPI's torch is linked against two dozen NVIDIA libraries (2.7 GB). A CPU engine calls none of them, but the dynamic
loader refuses torch without them. This writes a stand-in for each, a few KB of ELF beside torch's own libraries:
every function that torch asks of it is there, under the symbol version that torch asks for, and answers 100
(cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE): "no device", which is the truth.

Everything needed is in torch's own files: DT_NEEDED names the libraries, .gnu.version_r their symbol versions, the
undefined entries of .dynsym the functions. Only C functions of NVIDIA's interfaces are stubbed; the real libraries
also export C++ symbols of the standard library, and a stub of one of those would be called and crash.

    python stub_cuda.py SITE_PACKAGES
"""

import re
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

NVIDIA_LIBRARY = re.compile(r"lib(cu|nccl|nv)")
NVIDIA_FUNCTION = re.compile(r"(cu|nccl|nv|__cuda|__nv)")
ANSWER_NO_DEVICE = {
    62: bytes.fromhex("b864000000c3"),  # x86-64:  mov eax, 100; ret
    183: bytes.fromhex("800c8052c0035fd6"),  # aarch64: mov w0, #100; ret
}
PAGE = 0x10000  # the largest page size of the two machines

SHT_DYNAMIC, SHT_DYNSYM, SHT_VERSYM, SHT_VERNEED = 6, 11, 0x6FFFFFFF, 0x6FFFFFFE
DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 0, 1, 4, 5, 6, 10, 11, 14
DT_VERSYM, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD


@dataclass
class Wants:
    """What one ELF file asks of others."""

    machine: int
    libraries: list[str] = field(default_factory=list)
    functions: list[tuple[str, str, str]] = field(default_factory=list)
    """(name, version, library); version and library are empty where the reference is not versioned."""


def read_wants(path: Path) -> Wants | None:
    """Read the dynamic section of a 64-bit little-endian ELF file; None for any other file."""
    with path.open("rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            return None
        machine, section_offset = struct.unpack_from("<18xH20xQ", header)
        section_size, section_count = struct.unpack_from("<HH", header, 58)

        def load(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        table = load(section_offset, section_size * section_count)
        # (type, offset, size, link) of each section
        sections = [struct.unpack_from("<4xI16xQQI", table, index * section_size) for index in range(section_count)]

        def section(kind: int) -> tuple[bytes, bytes]:
            """The content of the first section of a kind, and of the string table it refers to."""
            for type_, offset, size, link in sections:
                if type_ == kind:
                    return load(offset, size), load(sections[link][1], sections[link][2])
            return b"", b""

        dynamic, strings = section(SHT_DYNAMIC)
        wants = Wants(machine)
        for tag, value in struct.iter_unpack("<qQ", dynamic):
            if tag == DT_NEEDED:
                wants.libraries.append(_string(strings, value))
        versions = dict(_version_needs(*section(SHT_VERNEED)))
        symbols, names = section(SHT_DYNSYM)
        version_of, _ = section(SHT_VERSYM)
        for index, (name, _info, _other, defined_in, _value, _size) in enumerate(
            struct.iter_unpack("<IBBHQQ", symbols)
        ):
            if name and defined_in == 0:
                version_index = struct.unpack_from("<H", version_of, 2 * index)[0] if version_of else 0
                version, library = versions.get(version_index & 0x7FFF, ("", ""))
                wants.functions.append((_string(names, name), version, library))
        return wants


def _version_needs(content: bytes, strings: bytes) -> Iterator[tuple[int, tuple[str, str]]]:
    """Walk .gnu.version_r: version index -> (version, library)."""
    at = 0
    while content:
        _, count, file, first, following = struct.unpack_from("<HHIII", content, at)
        aux = at + first
        for _ in range(count):
            _, _, index, name, next_aux = struct.unpack_from("<IHHII", content, aux)
            yield index, (_string(strings, name), _string(strings, file))
            aux += next_aux
        if not following:
            return
        at += following


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _elf_hash(name: bytes) -> int:
    """The System V hash by which the loader finds symbols and versions."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high
    return value & 0xFFFFFFFF


class _Strings:
    def __init__(self) -> None:
        self.content = bytearray(b"\0")

    def add(self, text: str) -> int:
        offset = len(self.content)
        self.content += text.encode() + b"\0"
        return offset


def stub(soname: str, machine: int, functions: dict[str, str]) -> bytes:
    """A shared library in which every function answers "no device". `functions` maps a name to its version or ""."""
    strings = _Strings()
    soname_at = strings.add(soname)
    versions = sorted({version for version in functions.values() if version})
    index_of = {"": 1} | {version: index for index, version in enumerate(versions, start=2)}

    code_at = 64 + 3 * 56  # the ELF header and three program headers come first
    code = ANSWER_NO_DEVICE[machine].ljust(16, b"\0")
    names = sorted(functions)
    symbols = bytearray(24)
    version_of = bytearray(2)
    for name in names:
        symbols += struct.pack("<IBBHQQ", strings.add(name), 0x12, 0, 1, code_at, len(code))  # global function
        version_of += struct.pack("<H", index_of[functions[name]])

    definitions = bytearray()
    for version in ["", *versions]:  # the first one names the library itself
        text = version or soname
        following = 28 if index_of[version] <= len(versions) else 0
        definitions += struct.pack(
            "<HHHHIII", 1, 0 if version else 1, index_of[version], 1, _elf_hash(text.encode()), 20, following
        )
        definitions += struct.pack("<II", strings.add(text), 0)

    buckets, chains = [0] * max(1, len(names) // 2), [0] * (len(names) + 1)
    for index, name in enumerate(names, start=1):
        bucket = _elf_hash(name.encode()) % len(buckets)
        buckets[bucket], chains[index] = index, buckets[bucket]
    hashes = struct.pack(f"<{2 + len(buckets) + len(chains)}I", len(buckets), len(chains), *buckets, *chains)

    image = bytearray(code_at) + code
    place: dict[int, int] = {}
    for tag, part in (
        (DT_SYMTAB, symbols),
        (DT_HASH, hashes),
        (DT_VERSYM, version_of),
        (DT_VERDEF, definitions),
        (DT_STRTAB, strings.content),
    ):
        image += bytes(-len(image) % 8)
        place[tag] = len(image)
        image += part
    read_only_size = len(image)

    # The loader writes into the dynamic section: it gets a writable page of its own.
    image += bytes(-len(image) % 8)
    dynamic_offset, dynamic_address = len(image), len(image) + PAGE
    entries = [*place.items(), (DT_SONAME, soname_at), (DT_STRSZ, len(strings.content)), (DT_SYMENT, 24)]
    entries += [(DT_VERDEFNUM, 1 + len(versions)), (DT_NULL, 0)]
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in entries)
    image += dynamic

    struct.pack_into(
        "<16sHHIQQQIHHHHHH", image, 0,
        b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0,
    )  # fmt: skip
    load, dynamic_segment, read_execute, read_write = 1, 2, 5, 6
    for slot, segment in enumerate(
        (
            (load, read_execute, 0, 0, 0, read_only_size, read_only_size, PAGE),
            (load, read_write, dynamic_offset, dynamic_address, dynamic_address, len(dynamic), len(dynamic), PAGE),
            (dynamic_segment, read_write, dynamic_offset, dynamic_address, dynamic_address, *[len(dynamic)] * 2, 8),
        )
    ):
        struct.pack_into("<IIQQQQQQ", image, 64 + slot * 56, *segment)
    return bytes(image)


def collect(wants: Iterable[Wants]) -> dict[str, dict[str, str]]:
    """The stubs that a set of ELF files needs: library -> function -> version.

    A reference without a version does not say which library answers it, so it goes to one that its file loads.
    """
    stubs: dict[str, dict[str, str]] = {}
    for want in wants:
        libraries = [library for library in want.libraries if NVIDIA_LIBRARY.match(library)]
        for library in libraries:
            stubs.setdefault(library, {})
        for name, version, library in want.functions:
            if not libraries or not NVIDIA_FUNCTION.match(name):
                continue
            if library in libraries:
                stubs[library][name] = version
            elif not library:
                stubs[libraries[0]].setdefault(name, "")
    return stubs


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: stub_cuda.py SITE_PACKAGES")
    torch = Path(sys.argv[1]) / "torch"
    wants = [want for path in sorted(torch.rglob("*.so*")) if (want := read_wants(path))]
    if not wants:
        sys.exit(f"stub_cuda.py: no shared libraries under {torch}: is torch installed there?")
    for library, functions in sorted(collect(wants).items()):
        (torch / "lib" / library).write_bytes(stub(library, wants[0].machine, functions))
        print(f"{library}: {len(functions)} functions")


if __name__ == "__main__":
    main()
