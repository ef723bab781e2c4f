"""The table of docs/api.md: `python -m pdd_e2e.parity.api_doc` writes it, `--check` says whether it is right."""

import sys

from pdd_e2e.environment import ROOT
from pdd_e2e.parity.catalogue import EXPLAINED, FEATURES, NOT_SERVED

PAGE = ROOT / "docs" / "api.md"
_BEGIN = "<!-- from pdd_e2e.parity.catalogue, by `make api-doc` -->\n"
_END = "<!-- end -->\n"


def table() -> str:
    lines = ["| | |", "|---|---|", *(f"| **{name}** | {what} |" for name, what in EXPLAINED.items()), ""]
    lines += ["| feature | routes | | why |", "|---|---|---|---|"]
    lines += [f"| {f.name} | {f.routes} | {f.disposition} | {f.why} |" for f in FEATURES]
    routes = ", ".join(f"`/v1/{route}`" for route in NOT_SERVED)
    return "\n".join([*lines, f"| {routes} | | refused | 404: not served |"]) + "\n"


def main() -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not rest or not page.endswith(after) or _END not in page:
        sys.exit(f"{PAGE}: lacks the lines {_BEGIN.strip()!r} and {_END.strip()!r}")
    right = f"{before}{_BEGIN}{table()}{_END}{after}"
    if "--check" in sys.argv:
        if page != right:
            sys.exit(f"{PAGE}: its table is not that of pdd_e2e.parity.catalogue: run `make api-doc`")
    else:
        PAGE.write_text(right)


if __name__ == "__main__":
    main()
