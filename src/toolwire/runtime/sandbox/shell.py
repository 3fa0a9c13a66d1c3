"""The sandbox of shell commands, by bubblewrap.

The workspace can be written, the rest only read, and what is private is not there. There is no network unless it is
allowed, and no process outside can be seen.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from .limits import Limits

ALLOWED = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOROOT", "GOPATH"),
        *("RUSTUP_HOME", "CARGO_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
"""The variables that a command is given, and LC_*: named ones only, so that no key comes along."""
FIXED = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}

PRIVATE = (
    *("/root", "/home", "/run", "/mnt", "/media", "/boot"),
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/docker", "/etc/kubernetes", "/etc/NetworkManager", "/etc/wireguard"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/spool", "/var/mail", "/var/log"),
    *("/var/backups",),
)
"""Not seen. Whose files they are does not help: for root, the sandbox's user is root outside."""
SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".git-credentials"),
    *(".config", ".local/state", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml", ".bash_history"),
    *(".zsh_history", ".python_history", ".claude", ".codex", ".gemini"),
)
"""Of a home folder that is the workspace itself, or in it."""
TOOLCHAINS = (
    *(".pyenv", ".nvm", ".rbenv", ".asdf", ".volta", ".sdkman", ".rustup", ".cargo/bin", ".bun/bin", ".deno/bin"),
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", "go/bin"),
)
"""Of the home folder, what programs are found in: it can be read."""


def child_environment(environment: Mapping[str, str], more: Mapping[str, str] | None = None) -> dict[str, str]:
    given = {name: value for name, value in environment.items() if name in ALLOWED or name.startswith("LC_")}
    return {"PATH": os.defpath, **given, **FIXED, **(more or {})}


def private_places(environment: Mapping[str, str]) -> list[Path]:
    """What of the home folder and of the state of programs is nobody's, ours among it."""
    home = Path(environment.get("HOME") or "~").expanduser()
    named = [environment.get(f"XDG_{kind}_HOME", "") for kind in ("STATE", "CONFIG", "CACHE", "DATA")]
    return [*(home / name for name in SECRETS), *(Path(name) for name in named if name.startswith("/"))]


class Sandbox(Struct, frozen=True, kw_only=True):
    """`program` is bubblewrap's, `identity` its options that make the user. `why_not`: why there is none, then every
    command asks a person, unless the sandbox is `waived`."""

    program: str = ""
    identity: tuple[str, ...] = ()
    why_not: str = ""
    waived: bool = False

    def wrapped(
        self,
        command: Sequence[str],
        *,
        workspace: Path,
        folder: Path,
        limits: Limits,
        environment: Mapping[str, str],
        network: bool = False,
        hidden: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        protected: Sequence[Path] = (),
    ) -> list[str]:
        mounts = _Mounts(workspace, limits.scratch)
        home = Path(environment.get("HOME") or "~").expanduser()
        for path in (*map(Path, PRIVATE), *private_places(environment), *hidden):
            mounts.hide(path)
        for path in (Path("/tmp"), Path("/var/tmp"), home):  # noqa: S108 - they are the sandbox's own
            mounts.give(path)
        for path in (*(home / name for name in TOOLCHAINS), *readable):
            mounts.show(path)
        if network:
            mounts.show(Path("/run/systemd/resolve"))
        mounts.guard(workspace / ".git", "hooks", "config", "config.worktree", "modules")
        for path in protected:
            mounts.protect(path)
        return [
            self.program,
            *self.identity,
            *_ISOLATED,
            *(() if network else ("--unshare-net",)),
            *mounts.options(),
            *("--chdir", str(folder), "--"),
            *limits.wrapped(list(command), counted=True),
        ]


NO_SANDBOX = Sandbox(why_not="the sandbox is turned off", waived=True)
"""The explicit choice to run commands with all rights of the user: rules and `--yes` then cover them."""

_ISOLATED = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"),
    *("--cap-drop", "ALL", "--hostname", "sandbox"),
)


class _Mounts:
    """What is mounted, in order: what covers folders around the workspace, what is seen there all the same, the
    workspace, and what is covered in it."""

    def __init__(self, workspace: Path, scratch: int) -> None:
        self._workspace, self._scratch = workspace, str(scratch)
        self._hidden, self._own = set[Path](), set[Path]()
        self._shown, self._guarded = list[str](), list[str]()
        self._closed = list[str]()

    def hide(self, path: Path) -> None:
        real = _real(path)
        if real is not None and real != self._workspace:
            self._hidden.add(real)

    def give(self, path: Path) -> None:
        """An empty folder of its own."""
        real = _real(path)
        if real is not None and real != self._workspace and self._workspace not in real.parents:
            self._own.add(real)

    def show(self, path: Path) -> None:
        real = _real(path)
        if real is not None and real != self._workspace and real not in self._workspace.parents:
            self._shown += ("--ro-bind", str(real), str(real))

    def guard(self, folder: Path, *names: str) -> None:
        """Git's own folder can be written but not moved away. What is in it that the next git command of the person
        would run can't be written, and can't be made."""
        if folder.is_file():
            self.protect(folder)
        if folder.is_symlink() or not folder.is_dir():
            return
        self._guarded += ("--bind", str(folder), str(folder))
        for name in names:
            self.protect(folder / name)
        if not (hooks := folder / "hooks").exists():
            self._guarded += ("--perms", "0555", "--tmpfs", str(hooks))
            self._closed += ("--remount-ro", str(hooks))

    def protect(self, path: Path) -> None:
        if path.exists() and not path.is_symlink() and self._workspace in path.parents:
            self._guarded += ("--ro-bind", str(path), str(path))

    def options(self) -> list[str]:
        root = str(self._workspace)
        own = ("--perms", "1777", "--size", self._scratch, "--tmpfs", "/dev/shm")  # noqa: S108
        start = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *own, "--remount-ro", "/dev")
        within = {path for path in self._hidden if self._workspace in path.parents}
        around = self._covering(self._hidden - within, self._own)
        covered = self._covering(within, set())
        return [*start, *around, *self._shown, "--bind", root, root, *self._guarded, *covered, *self._closed]

    def _covering(self, hidden: set[Path], own: set[Path]) -> list[str]:
        """Outer folders first, or they would cover what is mounted in them. What is covered already need not be."""
        made = list[str]()
        for path in sorted(hidden | own):
            if path in own:
                made += ("--perms", "1777", "--size", self._scratch, "--tmpfs", str(path))
            elif (hidden | own).intersection(path.parents):
                continue
            elif path.is_dir():
                made += ("--perms", "0755", "--tmpfs", str(path))
                self._closed += ("--remount-ro", str(path))
            else:
                made += ("--ro-bind", "/dev/null", str(path))
        return made


def _real(path: Path) -> Path | None:
    """Where it is, if it is there at all: nothing can be mounted onto a link."""
    try:
        return path.resolve(strict=True)
    except OSError:
        return None


@lru_cache(maxsize=1)
def bubblewrap() -> Sandbox:
    """How it works here, tried out once."""
    program = shutil.which("bwrap")
    if program is None:
        return Sandbox(why_not="bubblewrap is not installed")
    # For root, a user of its own, or files of root's could be changed through what is mounted.
    user = ("--unshare-user", "--uid", str(os.getuid() or 1000), "--gid", str(os.getgid() or 1000))
    said = ""
    for identity in (("--disable-userns", *user), user):
        command = [program, *identity, *_ISOLATED, "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
        try:
            tried = subprocess.run(command, capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            return Sandbox(why_not=f"bubblewrap does not work here: {error}")
        if tried.returncode == 0:
            return Sandbox(program=program, identity=identity)
        said = tried.stderr.decode("utf-8", "replace").strip()
    return Sandbox(why_not=f"bubblewrap does not work here: {said}")
