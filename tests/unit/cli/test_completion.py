"""`holdfast completion` prints what the shells understand."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.mark.parametrize("shell", CHECKS)
def test_a_script_names_every_command(run: Run, shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    for word in ("holdfast", "backup", "check", "credential", "create", "revoke", "up", "role"):
        assert word in ran.out


# bash is needed for the build anyway; the others are asked where somebody uses them.
@pytest.mark.parametrize("shell", [shell for shell in CHECKS if shell == "bash" or shutil.which(shell)])
def test_a_script_is_accepted_by_its_shell(run: Run, here: Path, shell: str) -> None:
    script = here / "script"
    script.write_text(run("completion", shell).out)
    finished = subprocess.run([*CHECKS[shell], script], capture_output=True, text=True, timeout=30, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_bash_completes_a_command(run: Run, here: Path) -> None:
    script = here / "script"
    script.write_text(run("completion", "bash").out)
    # What the shell itself does when the key is pressed after `holdfast cred`.
    key = "COMP_WORDS=(holdfast cred); COMP_CWORD=1; $(complete -p holdfast | cut -d ' ' -f 3)"
    finished = subprocess.run(
        ["bash", "-c", f"source {script}; {key}; echo ${{COMPREPLY[@]}}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert finished.stdout.split() == ["credential"], finished.stderr
