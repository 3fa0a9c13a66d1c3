"""The sandbox of shell commands, built with bubblewrap.

The workspace is writable, the rest of the file system read-only, and private paths are hidden. There is no network
unless it is enabled, and processes outside the sandbox are not visible.
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
"""The environment variables passed to a command, besides LC_*: an allowlist, so that no API key is passed."""
FIXED_VARIABLES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}

PRIVATE_PATHS = (
    *("/root", "/home", "/run", "/mnt", "/media", "/boot"),
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/docker", "/etc/kubernetes", "/etc/NetworkManager", "/etc/wireguard"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/spool", "/var/mail", "/var/log"),
    *("/var/backups",),
)
"""Hidden system paths. File permissions are not enough: if toolwire runs as root, so does the sandbox's user."""
HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".git-credentials"),
    *(".config", ".local/state", ".local/share/keyrings", ".mozilla", ".cargo/credentials.toml", ".bash_history"),
    *(".zsh_history", ".python_history", ".claude", ".codex", ".gemini"),
)
"""Hidden paths below the home directory, also if it is the workspace or inside it."""
HOME_TOOLCHAINS = (
    *(".pyenv", ".nvm", ".rbenv", ".asdf", ".volta", ".sdkman", ".rustup", ".cargo/bin", ".bun/bin", ".deno/bin"),
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", "go/bin"),
)
"""Readable paths below the home directory, which hold installed programs."""


def child_environment(environment: Mapping[str, str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command: the allowed variables, fixed ones, and `extra`."""
    allowed = {
        name: value for name, value in environment.items() if name in ALLOWED_VARIABLES or name.startswith("LC_")
    }
    return {"PATH": os.defpath, **allowed, **FIXED_VARIABLES, **(extra or {})}


def private_paths(environment: Mapping[str, str]) -> list[Path]:
    """Return the paths that are always hidden from commands: secrets of the home directory and program state."""
    home = Path(environment.get("HOME") or "~").expanduser()
    xdg_paths = [environment.get(f"XDG_{kind}_HOME", "") for kind in ("STATE", "CONFIG", "CACHE", "DATA")]
    return [*(home / name for name in HOME_SECRETS), *(Path(name) for name in xdg_paths if name.startswith("/"))]


class Sandbox(Struct, frozen=True, kw_only=True):
    """The sandbox as it works on this machine."""

    # The path of bubblewrap's executable.
    program: str = ""
    # bubblewrap's options that set the user.
    user_options: tuple[str, ...] = ()
    # If set, there is no sandbox, and every command needs a person's approval unless the sandbox is waived.
    unavailable_reason: str = ""
    # Whether the user chose to run commands without a sandbox.
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
        """Return the command line that runs `command` in the sandbox, within the limits."""
        mounts = _Mounts(workspace, limits.scratch_bytes)
        home = Path(environment.get("HOME") or "~").expanduser()
        for path in (*map(Path, PRIVATE_PATHS), *private_paths(environment), *hidden):
            mounts.hide(path)
        for path in (Path("/tmp"), Path("/var/tmp"), home):  # noqa: S108 - private to the sandbox
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
"""No sandbox, by explicit choice: commands have all permissions of the user, and rules and `--yes` apply to them."""

_ISOLATION_OPTIONS = (
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"),
    *("--cap-drop", "ALL", "--hostname", "sandbox"),
)


class _Mounts:
    """The mounts of the sandbox, in order.

    Directories around the workspace are covered first, then readable paths inside them are mounted, then the
    workspace, then the paths covered inside it.
    """

    def __init__(self, workspace: Path, scratch_bytes: int) -> None:
        self._workspace, self._scratch_bytes = workspace, str(scratch_bytes)
        self._hidden, self._private_tmpfs = set[Path](), set[Path]()
        self._readable_options, self._protected_options = list[str](), list[str]()
        self._remount_options = list[str]()

    def hide(self, path: Path) -> None:
        """Cover a path, so that it appears empty."""
        real = _real_path(path)
        if real is not None and real != self._workspace:
            self._hidden.add(real)

    def add_tmpfs(self, path: Path) -> None:
        """Replace a directory with an empty, writable one."""
        real = _real_path(path)
        if real is not None and real != self._workspace and self._workspace not in real.parents:
            self._private_tmpfs.add(real)

    def add_readable(self, path: Path) -> None:
        """Mount a path read-only, even inside a covered directory."""
        real = _real_path(path)
        if real is not None and real != self._workspace and real not in self._workspace.parents:
            self._readable_options += ("--ro-bind", str(real), str(real))

    def protect_git(self, git_directory: Path, *names: str) -> None:
        """Make the git directory writable, but not removable, and protect what git executes in it.

        Hooks and configuration can't be changed or created, because the user's next git command would run them.
        """
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
        """Mount a path of the workspace read-only, if it exists."""
        if path.exists() and not path.is_symlink() and self._workspace in path.parents:
            self._protected_options += ("--ro-bind", str(path), str(path))

    def options(self) -> list[str]:
        """Return bubblewrap's options for all mounts."""
        root = str(self._workspace)
        shared_memory = ("--perms", "1777", "--size", self._scratch_bytes, "--tmpfs", "/dev/shm")  # noqa: S108
        base = ("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *shared_memory, "--remount-ro", "/dev")
        hidden_inside = {path for path in self._hidden if self._workspace in path.parents}
        covers_outside = self._cover_options(self._hidden - hidden_inside, self._private_tmpfs)
        covers_inside = self._cover_options(hidden_inside, set())
        return [
            *base,
            *covers_outside,
            *self._readable_options,
            "--bind",
            root,
            root,
            *self._protected_options,
            *covers_inside,
            *self._remount_options,
        ]

    def _cover_options(self, hidden: set[Path], tmpfs: set[Path]) -> list[str]:
        """Return bubblewrap's options that make paths appear empty, outer directories first.

        Paths inside a covered directory are skipped.
        """
        options = list[str]()
        for path in sorted(hidden | tmpfs):
            if path in tmpfs:
                options += ("--perms", "1777", "--size", self._scratch_bytes, "--tmpfs", str(path))
            elif (hidden | tmpfs).intersection(path.parents):
                continue
            elif path.is_dir():
                options += ("--perms", "0755", "--tmpfs", str(path))
                self._remount_options += ("--remount-ro", str(path))
            else:
                options += ("--ro-bind", "/dev/null", str(path))
        return options


def _real_path(path: Path) -> Path | None:
    """Resolve a path, since nothing can be mounted onto a symbolic link; None if it does not exist."""
    try:
        return path.resolve(strict=True)
    except OSError:
        return None


@lru_cache(maxsize=1)
def detect_bubblewrap() -> Sandbox:
    """Return the sandbox with the options that work on this machine, tested once."""
    program = shutil.which("bwrap")
    if program is None:
        return Sandbox(unavailable_reason="bubblewrap is not installed")
    # root gets another user inside the sandbox, or it could change root's files through the mounts.
    user_options = ("--unshare-user", "--uid", str(os.getuid() or 1000), "--gid", str(os.getgid() or 1000))
    error_text = ""
    for options in (("--disable-userns", *user_options), user_options):
        command = [
            program,
            *options,
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
            result = subprocess.run(command, capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            return Sandbox(unavailable_reason=f"bubblewrap does not work here: {error}")
        if result.returncode == 0:
            return Sandbox(program=program, user_options=options)
        error_text = result.stderr.decode("utf-8", "replace").strip()
    return Sandbox(unavailable_reason=f"bubblewrap does not work here: {error_text}")
