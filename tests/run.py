#!/usr/bin/env python3
"""Runs every test of the workspace, two programs side by side.

`cargo test` runs one test program after another. A program whose last test waits for a guest to boot leaves all
processors but one idle meanwhile, and there are many such. Here two programs run at a time, those that take longest
first, each with half of the processors; what one prints is shown when it has ended. The documentation's tests come last.

Usage: tests/run.py [CARGO]
Exit code: 0 if all passed, 1 if any test failed, cargo's if something does not build.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

AT_ONCE = 2
# Crates' folders and targets of the programs that take longest, from the longest on: what is begun last should be short.
LONGEST = [
    ("highorder", "all"),
    ("highorder", "real"),
    ("real", "vm"),
    ("lab", "attainable_guest"),
    ("recorder", "guest"),
    ("snapshot", "guest"),
    ("sim", "all"),
    ("page", "browser"),
    ("swarm", "memory"),
    ("swarm", "swarm"),
    ("lab", "families"),
    ("fuzz", "mutated"),
    ("record", "noise_rates"),
]


@dataclass(frozen=True)
class Program:
    """A test program, and what cargo would run it with."""

    path: str
    folder: Path
    target: str

    def rank(self) -> int:
        """Where it stands in the order of service."""
        name = (self.folder.name, self.target)
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def build(cargo: list[str]) -> list[Program]:
    """Builds all that `cargo test` would build, and returns the test programs."""
    command = [*cargo, "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    programs = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        is_built = message["reason"] == "compiler-artifact" and message["executable"]
        if is_built and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            programs.append(Program(message["executable"], folder, message["target"]["name"]))
    return programs


def run(program: Program, threads: int) -> tuple[Program, subprocess.CompletedProcess[str], float]:
    """Runs one to its end, where cargo would run it."""
    began = time.monotonic()
    ended = subprocess.run(
        [program.path, f"--test-threads={threads}"],
        cwd=program.folder,
        env={**os.environ, "CARGO_MANIFEST_DIR": str(program.folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return program, ended, time.monotonic() - began


def main() -> int:
    cargo = [*(sys.argv[1:] or ["cargo"]), "test", "--workspace", "--locked"]
    programs = sorted(build(cargo), key=Program.rank)
    threads = max(1, (os.cpu_count() or 1) // AT_ONCE)
    failed = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(run, program, threads) for program in programs]
        for number, future in enumerate(as_completed(running), start=1):
            program, ended, seconds = future.result()
            title = f"{program.folder.name} {program.target}"
            print(f"\n[{number}/{len(programs)}] {title}, {seconds:.0f} s", flush=True)
            print(ended.stdout, end="", flush=True)
            if ended.returncode != 0:
                failed.append(f"{title} (exit code {ended.returncode})")
    documented = subprocess.run([*cargo, "--doc", "--no-fail-fast"], check=False)
    if documented.returncode != 0:
        failed.append("documentation")
    for title in failed:
        print(f"FAILED: {title}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
