"""Which extra a feature needs, and the command that installs it."""

import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from toolwire import installation
from toolwire.installation import EXTRAS, MissingExtra, has_extra, install_command, require_extra

ROOT = Path(__file__).parents[1]


class InstalledDistribution(Distribution):
    """A distribution that was installed from a package index, or from a directory."""

    def __init__(self, source: str | None) -> None:
        self._source = source

    def read_text(self, filename: str) -> str | None:
        return self._source if filename == "direct_url.json" else None

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


def installed_from(monkeypatch: pytest.MonkeyPatch, source: str | None) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: InstalledDistribution(source))


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/ada/.venv", "pip install 'toolwire[web]'"),
        ("/home/ada/.local/share/uv/tools/toolwire", "uv tool install 'toolwire[web]'"),
        ("/home/ada/.cache/uv/archive-v0/Tz3x", "uvx --from 'toolwire[web]' toolwire"),
        ("/home/ada/.local/share/pipx/venvs/toolwire", "pipx install --force 'toolwire[web]'"),
    ],
)
def test_command_fits_the_installation(monkeypatch: pytest.MonkeyPatch, prefix: str, command: str) -> None:
    installed_from(monkeypatch, None)
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(installation, "find_spec", lambda _: object())
    assert install_command("web") == command


def test_environment_without_pip_uses_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, None)
    monkeypatch.setattr(sys, "prefix", "/home/ada/.venv")
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    assert install_command("web") == "uv pip install 'toolwire[web]'"


def test_clone_is_installed_again_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed_from(monkeypatch, f'{{"url": "{clone.as_uri()}", "dir_info": {{"editable": true}}}}')
    monkeypatch.setattr(sys, "executable", str(clone / ".venv/bin/python"))
    monkeypatch.setattr(installation, "find_spec", lambda _: object())
    monkeypatch.chdir(clone)
    assert install_command("web") == ".venv/bin/python -m pip install --editable '.[web]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("web") == "'my clone/.venv/bin/python' -m pip install --editable 'my clone[web]'"


def test_install_from_a_folder_or_file_is_repeated_from_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", "/home/ada/.venv")
    monkeypatch.setattr(installation, "find_spec", lambda _: object())
    installed_from(monkeypatch, f'{{"url": "{tmp_path.as_uri()}", "dir_info": {{}}}}')
    assert install_command("web") == f"pip install '{tmp_path}[web]'"
    wheel = tmp_path / "toolwire-0.1.0-py3-none-any.whl"
    installed_from(monkeypatch, f'{{"url": "{wheel.as_uri()}", "archive_info": {{}}}}')
    assert install_command("web") == "pip install 'toolwire[web]'"  # the file is gone
    wheel.touch()
    assert install_command("web") == f"pip install 'toolwire[web] @ {wheel.as_uri()}'"


def test_missing_module_of_an_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(monkeypatch, None)
    monkeypatch.setattr(sys, "prefix", "/home/ada/.venv")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtra) as caught, require_extra("grammars", "checking a Lark grammar"):
        import llguidance  # noqa: F401
    assert str(caught.value).startswith("checking a Lark grammar needs the extra `grammars`: ")


def test_other_missing_modules_are_not_explained() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, require_extra("web", "the web"):
        import toolwire.nothing  # type: ignore[import-not-found]  # noqa: F401
    assert not isinstance(caught.value, MissingExtra)


def test_every_extra_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) == declared.keys() - {"all", "dev"}
    assert declared["all"] == [f"toolwire[{','.join(extra for extra in declared if extra not in ('all', 'dev'))}]"]
    assert all(map(has_extra, EXTRAS)), "the tests need all extras"
