"""Cut shared libraries down to what the loader maps, and drop GPU code from it.

A third of a CPU engine's bytes are symbol tables and debug information that only a debugger reads, and torch's kernels
for GPUs (.nv_fatbin), which nobody reads without one. Each library is written anew with the contents of its segments
only, without section headers. The GPU code is in the middle of a segment: it is left out of the file, and its address
range stays, as a hole that reads as zeros.

Run after stub_cuda.py, which reads section headers.

    python slim_libraries.py DIRECTORY
"""

import struct
import sys
from dataclasses import dataclass, replace
from pathlib import Path

WORTHWHILE = 5_000_000
PAGE = 0x1000
PT_LOAD = 1
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True)
class Segment:
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size_in_file: int
    size_in_memory: int
    align: int


def segments(library: bytes) -> list[Segment]:
    header = HEADER.unpack_from(library)
    start, size, count = header[5], header[9], header[10]
    return [Segment(*SEGMENT.unpack_from(library, start + index * size)) for index in range(count)]


def gpu_code(library: bytes) -> tuple[int, int]:
    """The whole pages of .nv_fatbin, as addresses; an empty range where there is none."""
    header = HEADER.unpack_from(library)
    start, size, count, names_index = header[6], header[11], header[12], header[13]
    sections = [SECTION.unpack_from(library, start + index * size) for index in range(count)]
    for name, _type, _flags, address, _offset, length, *_ in sections:
        at = sections[names_index][4] + name
        if library[at : at + 11] == b".nv_fatbin\0":
            return -(-address // PAGE) * PAGE, (address + length) // PAGE * PAGE
    return 0, 0


def without(segment: Segment, start: int, end: int) -> list[Segment]:
    """A segment, in three where the range of addresses lies in it: the middle one is not in the file."""
    if not segment.address <= start < end <= segment.address + segment.size_in_file:
        return [segment]
    before, after = start - segment.address, end - segment.address
    return [
        replace(segment, size_in_file=before, size_in_memory=before),
        replace(segment, address=start, physical=start, size_in_file=0, size_in_memory=end - start),
        replace(
            segment,
            offset=segment.offset + after,
            address=end,
            physical=end,
            size_in_file=segment.size_in_file - after,
            size_in_memory=segment.size_in_memory - after,
        ),
    ]


def slim(library: bytes) -> bytes:
    """The same library with the contents of its segments only."""
    start, end = gpu_code(library)
    loads, others = [], []
    for segment in segments(library):
        if segment.kind == PT_LOAD:
            loads += without(segment, start, end)
        else:
            others.append(segment)

    image = bytearray()
    placed: list[Segment] = []
    for load in loads:
        # Offsets and addresses agree modulo the alignment. The first segment starts with the ELF header, at 0.
        align = max(load.align, PAGE)
        offset = len(image) + (load.address - len(image)) % align
        if load.size_in_file:
            image += bytes(offset - len(image))
            image += library[load.offset : load.offset + load.size_in_file]
        placed.append(replace(load, offset=offset if load.size_in_file else load.address % align))
    moved = [in_its_new_place(segment, placed) for segment in others]
    image += bytes(-len(image) % 8)
    header = list(HEADER.unpack_from(library))
    header[5], header[10] = len(image), len(placed + moved)  # program headers: where and how many
    header[6] = header[12] = header[13] = 0  # section headers: none
    for segment in placed + moved:
        image += SEGMENT.pack(*vars(segment).values())
    HEADER.pack_into(image, 0, *header)
    return bytes(image)


def in_its_new_place(segment: Segment, loads: list[Segment]) -> Segment:
    """A segment that lies within a loaded one moves with it."""
    for load in loads:
        if segment.size_in_file and load.address <= segment.address < load.address + load.size_in_file:
            return replace(segment, offset=load.offset + segment.address - load.address)
    return segment


def is_library(library: bytes) -> bool:
    """A 64-bit little-endian shared object whose first segment starts with the ELF header."""
    if library[:6] != b"\x7fELF\x02\x01" or HEADER.unpack_from(library)[1] != 3:
        return False
    loads = [segment for segment in segments(library) if segment.kind == PT_LOAD]
    return bool(loads) and loads[0].offset == 0 and loads[0].address == 0


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: slim_libraries.py DIRECTORY")
    saved = 0
    for path in sorted(Path(sys.argv[1]).rglob("*.so*")):
        if path.is_symlink() or path.stat().st_size < WORTHWHILE:
            continue
        library = path.read_bytes()
        if not is_library(library):
            continue
        slimmed = slim(library)
        if len(slimmed) < len(library):
            path.write_bytes(slimmed)
            saved += len(library) - len(slimmed)
            print(f"{path.name}: {len(library) / 1e6:.0f} -> {len(slimmed) / 1e6:.0f} MB")
    print(f"{saved / 1e6:.0f} MB less")


if __name__ == "__main__":
    main()
