"""The danger class of a command or a path, as a summary tells it. It is a word for people and protects nothing.

Source: odek notes, section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.limits import MAX_SUMMARY_COMMAND_CHARS
from broker.wire.odek.events.words import Command, split_commands

RISK_CLASSES: Final = (
    "safe",
    "local_write",
    "unknown",
    "network_egress",
    "install",
    "code_execution",
    "system_write",
    "destructive",
    "blocked",
)
"""From the least to the greatest; of several the greatest is told."""

_WRAPPERS: Final = frozenset("sudo doas env nohup nice ionice time timeout xargs command exec stdbuf setsid".split())
_BY_CLASS: Final = {
    "safe": (
        "ls cat head tail wc grep egrep fgrep rg find fd pwd echo printf true false test [ stat file du df tree diff "
        "cmp sort uniq cut tr awk sed which type whoami id date uname env printenv ps top basename dirname realpath "
        "readlink "
        "cd sha256sum md5sum jq less more git seq sleep wait export set column nl xxd od strings hostname"
    ),
    "local_write": "touch mkdir cp mv ln tee truncate patch tar zip unzip gzip gunzip install rsync rmdir split",
    "network_egress": "curl wget ssh scp sftp ftp nc ncat netcat telnet dig nslookup host ping traceroute http",
    "install": "pip pip3 pipx uv npm npx yarn pnpm apt apt-get dnf yum apk brew gem cargo go conda poetry snap",
    "code_execution": (
        "sh bash zsh dash ksh fish python python3 node deno bun ruby perl php lua java make cmake ninja gcc cc clang "
        "docker podman kubectl eval source . pytest tox"
    ),
    "system_write": (
        "chmod chown chgrp mount umount systemctl service useradd usermod passwd crontab sysctl iptables kill killall "
        "pkill ldconfig update-alternatives visudo"
    ),
    "destructive": "rm shred dd mkfs fdisk parted wipefs shutdown reboot halt poweroff",
}
_CLASS_OF: Final = {program: name for name, programs in _BY_CLASS.items() for program in programs.split()}
_SYSTEM_DIRECTORIES: Final = tuple(
    f"/{name}" for name in "etc usr bin sbin lib lib64 boot dev proc sys var opt root System Library".split()
)
_PRIVATE_NAMES: Final = frozenset(".ssh .gnupg .aws .bashrc .profile .bash_profile .zshrc .gitconfig .netrc".split())


def greatest(classes: Iterable[str]) -> str:
    """The greatest of ``classes``; ``unknown`` of none."""
    return max(classes, key=RISK_CLASSES.index, default="unknown")


def command_class(text: str) -> str:
    """The greatest class of all simple commands in ``text``; of a very long text its beginning decides."""
    commands = split_commands(text[:MAX_SUMMARY_COMMAND_CHARS])
    classes = [_simple_class(command) for command in commands]
    if len(text) > MAX_SUMMARY_COMMAND_CHARS:
        classes.append("unknown")
    if any("$(" in word or "`" in word for command in commands for word in command.words):
        classes.append("unknown")
    return greatest(classes)


def path_class(path: str, *, writes: bool) -> str:
    """The class of reading or writing ``path``."""
    if not writes:
        return "safe"
    if path.startswith("/dev/null"):
        return "safe"
    parts = path.split("/")
    outside = any(path == directory or path.startswith(directory + "/") for directory in _SYSTEM_DIRECTORIES)
    return "system_write" if outside or not _PRIVATE_NAMES.isdisjoint(parts) else "local_write"


def program_name(word: str) -> str:
    """The program that ``word`` names, without its directory."""
    return word.rstrip("/").rpartition("/")[2]


def _simple_class(command: Command) -> str:
    classes = [path_class(path, writes=True) for path in command.written]
    names = [program_name(word) for word in command.words]
    if names and names[0] in _WRAPPERS and len(names) > 1:
        # Which of the words behind a wrapper and its options is the program, only the wrapper knows.
        classes += [_CLASS_OF[name] for name in names[1:] if name in _CLASS_OF] or ["unknown"]
    elif names:
        classes.append(_CLASS_OF.get(names[0], "unknown"))
        if classes[-1] == "local_write":
            classes += [path_class(word, writes=True) for word in command.words if word.startswith("/")]
    return greatest(classes)
