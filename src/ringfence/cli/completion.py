"""`ringfence completion`: scripts made from the parser itself, so that they cannot fall behind it."""

from __future__ import annotations

import argparse
import sys

from ringfence.cli.parser import parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_FILES = {"DIR", "P", "F"}


def completion(options: argparse.Namespace) -> int:
    """Print the script for one shell."""
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    sys.stdout.write(make(dict(_commands())))
    return 0


def _commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _flags(sub: argparse.ArgumentParser) -> list[tuple[str, argparse.Action]]:
    return [(flag, action) for action in sub._actions for flag in action.option_strings]


def _bash(commands: dict[str, argparse.ArgumentParser]) -> str:
    cases = []
    for name, sub in commands.items():
        choices = [c for a in sub._actions if not a.option_strings and a.choices for c in a.choices]
        flags = " ".join([*choices, *(flag for flag, _ in _flags(sub))])
        cases.append(f'    {name}) COMPREPLY=($(compgen -W "{flags}" -- "$cur")) ;;')
    values = []
    for flag, action in sorted({(f, a) for sub in commands.values() for f, a in _flags(sub)}, key=lambda p: p[0]):
        if action.choices:
            words = " ".join(map(str, action.choices))
            values.append(f'    {flag}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return ;;')
        elif action.metavar in _FILES:
            values.append(f'    {flag}) COMPREPLY=($(compgen -f -- "$cur")); return ;;')
    return "\n".join(
        [
            "_ringfence() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" i',
            "  for ((i = 2; i < COMP_CWORD; i++)); do",
            "    [[ ${COMP_WORDS[i]} == -- ]] && { _command_offset $((i + 1)) 2>/dev/null; return; }",
            "  done",
            '  case "$prev" in',
            *dict.fromkeys(values),
            "  esac",
            f'  ((COMP_CWORD == 1)) && {{ COMPREPLY=($(compgen -W "{" ".join(commands)}" -- "$cur")); return; }}',
            '  case "${COMP_WORDS[1]}" in',
            *cases,
            "  esac",
            "}",
            "complete -o default -F _ringfence ringfence",
            "",
        ]
    )


def _zsh(commands: dict[str, argparse.ArgumentParser]) -> str:
    cases = []
    for name, sub in commands.items():
        flags = " ".join(f"'{flag}[{_plain(action.help)}]'" for flag, action in _flags(sub))
        cases.append(f"    {name}) _arguments {flags} '*::command:_normal' ;;")
    return "\n".join(
        [
            "#compdef ringfence",
            "_ringfence() {",
            f"  if ((CURRENT == 2)); then compadd {' '.join(commands)}; return; fi",
            '  case "$words[2]" in',
            *cases,
            "  esac",
            "}",
            "compdef _ringfence ringfence",
            "",
        ]
    )


def _fish(commands: dict[str, argparse.ArgumentParser]) -> str:
    lines = [f"complete -c ringfence -n __fish_use_subcommand -a '{' '.join(commands)}' -f"]
    for name, sub in commands.items():
        for flag, action in _flags(sub):
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            choices = f" -xa '{' '.join(map(str, action.choices))}'" if action.choices else ""
            when = f"__fish_seen_subcommand_from {name}"
            lines.append(f"complete -c ringfence -n '{when}' {kind}{choices} -d '{_plain(action.help)}'")
    return "\n".join([*lines, ""])


def _plain(text: str | None) -> str:
    return (text or "").translate({ord(c): " " for c in "'[]:"})
