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

from toolwire.runtime.sandbox.process import CommandLimits

ALLOWED_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "JAVA_HOME", "GOROOT", "GOPATH"),
        *("RUSTUP_HOME", "CARGO_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
"""The variables that a command is given, and LC_*: named ones only, so that no key comes along."""
FIXED_VARIABLES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}

PRIVATE_PATHS = (
    *("/root", "/home", "/run", "/mnt", "/media", "/boot"),
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/docker", "/etc/kubernetes", "/etc/NetworkManager", "/etc/wireguard"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/spool", "/var/mail", "/var/log"),
    *("/var/backups",),
)
"""Not seen. Whose files they are does not help: for root, the sandbox's user is root outside."""
HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".git-credentials"),
    *(".config", ".local/state", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml", ".bash_history"),
    *(".zsh_history", ".python_history", ".claude", ".codex", ".gemini"),
)
"""Of a home folder that is the workspace itself, or in it."""
HOME_TOOLCHAINS = (
    *(".pyenv", ".nvm", ".rbenv", ".asdf", ".volta", ".sdkman", ".rustup", ".cargo/bin", ".bun/bin", ".deno/bin"),
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", "go/bin"),
)
"""Of the home folder, what programs are found in: it can be read."""


def child_environment(environment: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    given = {name: value for name, value in environment.items() if name in ALLOWED_VARIABLES or name.startswith("LC_")}
    return {"PATH": os.defpath, **given, **FIXED_VARIABLES, **(extra or {})}


def private_paths(environment: Mapping[str, str]) -> list[Path]:
    """What of the home folder and of the state of programs is nobody's, ours among it."""
    home = Path(environment.get("HOME") or "~").expanduser()
    named = [environment.get(f"XDG_{kind}_HOME", "") for kind in ("STATE", "CONFIG", "CACHE", "DATA")]
    return [*(home / name for name in HOME_SECRETS), *(Path(name) for name in named if name.startswith("/"))]


class Sandbox(Struct, frozen=True, kw_only=True):
    """`program` is bubblewrap's, `identity` its options that make the user. `why_not`: why there is none, then every
    command asks a person, unless the sandbox is `waived`."""

    program: str = ""
    user_options: tuple[str, ...] = ()
    unavailable_reason: str = ""
    is_waived: bool = False

    def wrap_command(
        self,
        command: Sequence[str],
        *,
        workspace: Path,
        directory: Path,
        limits: CommandLimits,
        environment: Mapping[str, str],
        network: bool = False,
        hidden: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        protected: Sequence[Path] = (),
    ) -> list[str]:
        mounts = _Mounts(workspace, limits.scratch_bytes)
        home = Path(environment.get("HOME") or "~").expanduser()
        for path in (*map(Path, PRIVATE_PATHS), *private_paths(environment), *hidden):
            mounts.hide(path)
        for path in (Path("/tmp"), Path("/var/tmp"), home):  # noqa: S108 - they are the sandbox's own
            mounts.add_tmpfs(path)
        for path in (*(home / name for name in HOME_TOOLCHAINS), *readable):
            mounts.add_readable(path)
        if network:
            mounts.add_readable(Path("/run/systemd/resolve"))
        mounts.protect_git(workspace / ".git", "hooks", "config", "config.worktree", "modules")
        for path in protected:
            mounts.protect(path)
        return [
            self.program,
            *self.user_options,
            *_ISOLATION_OPTIONS,
            *(() if network else ("--unshare-net",)),
            *mounts.options(),
            *("--chdir", str(directory), "--"),
            *limits.wrap_command(list(command), limit_processes=True),
        ]


NO_SANDBOX = Sandbox(unavailable_reason="the sandbox is turned off", is_waived=True)
"""The explicit choice to run commands with all rights of the user: rules and `--yes` then cover them."""

_ISOLATION_OPTIONS = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"),
    *("--cap-drop", "ALL", "--hostname", "sandbox"),
)


class _Mounts:
    """What is mounted, in order: what covers folders around the workspace, what is seen there all the same, the
    workspace, and what is covered in it."""

    def __init__(self, workspace: Path, scratch_bytes: int) -> None:
        self._workspace, self._scratch_bytes = workspace, str(scratch_bytes)
        self._hidden, self._private_tmpfs = set[Path](), set[Path]()
        self._readable_options, self._protected_options = list[str](), list[str]()
        self._remount_options = list[str]()

    def hide(self, path: Path) -> None:
        real = _real_path(path)
        if real is not None and real != self._workspace:
            self._hidden.add(real)

    def add_tmpfs(self, path: Path) -> None:
        """An empty folder of its own."""
        real = _real_path(path)
        if real is not None and real != self._workspace and self._workspace not in real.parents:
            self._private_tmpfs.add(real)

    def add_readable(self, path: Path) -> None:
        real = _real_path(path)
        if real is not None and real != self._workspace and real not in self._workspace.parents:
            self._readable_options += ("--ro-bind", str(real), str(real))

    def protect_git(self, git_directory: Path, *names: str) -> None:
        """Git's own folder can be written but not moved away. What is in it that the next git command of the person
        would run can't be written, and can't be made."""
        if git_directory.is_file():
            self.protect(git_directory)
        if git_directory.is_symlink() or not git_directory.is_dir():
            return
        self._protected_options += ("--bind", str(git_directory), str(git_directory))
        for name in names:
            self.protect(git_directory / name)
        if not (hooks := git_directory / "hooks").exists():
            self._protected_options += ("--perms", "0555", "--tmpfs", str(hooks))
            self._remount_options += ("--remount-ro", str(hooks))

    def protect(self, path: Path) -> None:
        if path.exists() and not path.is_symlink() and self._workspace in path.parents:
            self._protected_options += ("--ro-bind", str(path), str(path))

    def options(self) -> list[str]:
        root = str(self._workspace)
        own = ("--perms", "1777", "--size", self._scratch_bytes, "--tmpfs", "/dev/shm")  # noqa: S108
        start = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *own, "--remount-ro", "/dev")
        within = {path for path in self._hidden if self._workspace in path.parents}
        around = self._cover_options(self._hidden - within, self._private_tmpfs)
        covered = self._cover_options(within, set())
        return [
            *start,
            *around,
            *self._readable_options,
            "--bind",
            root,
            root,
            *self._protected_options,
            *covered,
            *self._remount_options,
        ]

    def _cover_options(self, hidden: set[Path], tmpfs: set[Path]) -> list[str]:
        """Outer folders first, or they would cover what is mounted in them. What is covered already need not be."""
        made = list[str]()
        for path in sorted(hidden | tmpfs):
            if path in tmpfs:
                made += ("--perms", "1777", "--size", self._scratch_bytes, "--tmpfs", str(path))
            elif (hidden | tmpfs).intersection(path.parents):
                continue
            elif path.is_dir():
                made += ("--perms", "0755", "--tmpfs", str(path))
                self._remount_options += ("--remount-ro", str(path))
            else:
                made += ("--ro-bind", "/dev/null", str(path))
        return made


def _real_path(path: Path) -> Path | None:
    """Where it is, if it is there at all: nothing can be mounted onto a link."""
    try:
        return path.resolve(strict=True)
    except OSError:
        return None


@lru_cache(maxsize=1)
def detect_bubblewrap() -> Sandbox:
    """How it works here, tried out once."""
    program = shutil.which("bwrap")
    if program is None:
        return Sandbox(unavailable_reason="bubblewrap is not installed")
    # For root, a user of its own, or files of root's could be changed through what is mounted.
    user = ("--unshare-user", "--uid", str(os.getuid() or 1000), "--gid", str(os.getgid() or 1000))
    said = ""
    for identity in (("--disable-userns", *user), user):
        command = [
            program,
            *identity,
            *_ISOLATION_OPTIONS,
            "--unshare-net",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "true",
        ]
        try:
            tried = subprocess.run(command, capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            return Sandbox(unavailable_reason=f"bubblewrap does not work here: {error}")
        if tried.returncode == 0:
            return Sandbox(program=program, user_options=identity)
        said = tried.stderr.decode("utf-8", "replace").strip()
    return Sandbox(unavailable_reason=f"bubblewrap does not work here: {said}")
