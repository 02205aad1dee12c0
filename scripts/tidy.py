"""Run clang-tidy over the sources that a build tree compiled, several at a time.

A file is looked at again only if it, a header of the project or .clang-tidy changed. usage: tidy.py BUILD
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources(build: Path) -> list[Path]:
    """Return the compiled sources under cpp/, each once; tests and CUDA are left to the compilers."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    found = {Path(entry["directory"], entry["file"]).resolve() for entry in entries}
    return sorted(path for path in found if path.suffix == ".cpp" and path.is_relative_to(ROOT / "cpp"))


def single_commands(build: Path, wanted: list[Path]) -> Path:
    """Write a database with one command a source: some are compiled for several instruction sets."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    first: dict[Path, dict[str, str]] = {}
    for entry in entries:
        first.setdefault(Path(entry["directory"], entry["file"]).resolve(), entry)
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    kept = [first[path] for path in wanted]
    for entry in kept:
        entry["command"] = entry["command"].replace(
            f"{os.environ.get('CMAKE_CXX_COMPILER_LAUNCHER', '-')} ", ""
        )
    (folder / "compile_commands.json").write_text(json.dumps(kept), encoding="utf-8")
    return folder


def common_digest() -> bytes:
    """Return a digest of what every result depends on."""
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for header in sorted((ROOT / "cpp").rglob("*.h")):
        digest.update(header.read_bytes())
    return digest.digest()


def compiler_headers() -> str:
    """Return the folder of the compiler's own headers: clang-tidy's wheel has no omp.h."""
    compiler = os.environ.get("CXX", "g++")
    found = subprocess.run([compiler, "-print-file-name=include"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def check(path: Path, database: Path, common: bytes, headers: str) -> str:
    """Return what clang-tidy says of one file; empty if nothing."""
    digest = hashlib.sha256(common + path.read_bytes()).hexdigest()
    stamp = database / f"{path.relative_to(ROOT).as_posix().replace('/', '.')}.ok"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return ""
    command = ["clang-tidy", "--quiet", f"-p={database}", f"--extra-arg=-idirafter{headers}", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0 and "warning:" not in result.stdout:
        stamp.write_text(digest, encoding="utf-8")
        return ""
    return result.stdout + ("" if "warning:" in result.stdout else result.stderr)


def main() -> None:
    """Check all; exit 1 if something was found."""
    build = Path(sys.argv[1])
    wanted = sources(build)
    database = single_commands(build, wanted)
    common = common_digest()
    headers = compiler_headers()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda path: check(path, database, common, headers), wanted)
        complaints = [text for text in results if text]
    for text in complaints:
        print(text)
    print(f"clang-tidy: {len(wanted)} files, {len(complaints)} with findings")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
