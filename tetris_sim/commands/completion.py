"""`completion bash|zsh|fish`: a script that lets a shell complete verbs and flags."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tetris_sim.commands import VERBS, add_common_arguments, home
from tetris_sim.errors import ExitCode

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    parser.epilog = (
        "bash: tetris-sim completion bash > ~/.local/share/bash-completion/completions/tetris-sim; "
        "zsh: tetris-sim completion zsh > a folder of $fpath/_tetris-sim; "
        "fish: tetris-sim completion fish > ~/.config/fish/completions/tetris-sim.fish"
    )


def run(args: argparse.Namespace) -> int:
    """Print it."""
    print("\n".join({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](words_of_verbs())))
    return ExitCode.OK


def words_of_verbs() -> dict[str, list[tuple[str, str]]]:
    """Of each verb its flags and fixed words, each with what it means."""
    found = {}
    for verb in VERBS:
        parser = argparse.ArgumentParser()
        add_common_arguments(parser)
        module, add_arguments, _ = home(verb)
        getattr(module, add_arguments)(parser)
        words: dict[str, str] = {}
        for action in parser._actions:
            means = (action.help or "").split("; ")[0].split(" (")[0]
            words |= dict.fromkeys(action.option_strings, means)
            if not action.option_strings:
                words |= dict.fromkeys(map(str, action.choices or ()), means)
        found[verb] = list(words.items())
    return found


def bash(verbs: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """For bash 4 and later: words, and files where none fits."""
    yield "# completion of tetris-sim for bash"
    yield "_tetris_sim() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" verb="" word'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        [[ $word != -* ]] && { verb="$word"; break; }'
    yield "    done"

    yield "    local words"
    yield '    case "$verb" in'
    for verb, words in verbs.items():
        yield f'        {verb}) words="{" ".join(word for word, _ in words)}" ;;'
    yield f'        *) words="{" ".join(verbs)} --help --version" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield '    [[ -n $verb && $current != -* ]] && COMPREPLY+=($(compgen -f -- "$current"))'
    yield "}"
    yield "complete -o filenames -F _tetris_sim tetris-sim"


def zsh(verbs: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """For zsh: words with what they mean, and files."""
    yield "#compdef tetris-sim"
    yield "# completion of tetris-sim for zsh"
    yield "_tetris_sim() {"
    yield "    local -a found"
    yield '    local verb="${${(@)words[2,CURRENT-1]:#-*}[1]}"'
    yield '    case "$verb" in'
    for verb, words in verbs.items():
        yield f"        {verb}) found=({_described(words)}) ;;"
    yield f"        *) found=({_described(VERBS.items())}) ;;"
    yield "    esac"
    yield "    _describe tetris-sim found"
    yield "    [[ -n $verb ]] && _files"
    yield "}"
    yield 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _tetris_sim "$@"'
    yield "else compdef _tetris_sim tetris-sim; fi"


def _described(words: object) -> str:
    return " ".join(
        _quoted(f"{word}:{means}".rstrip(":"))
        for word, means in words  # type: ignore[attr-defined]
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish(verbs: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """For fish: a line per word."""
    yield "# completion of tetris-sim for fish"
    for verb, means in VERBS.items():
        yield (f"complete -c tetris-sim -n __fish_use_subcommand -f -a {verb} -d {_in_fish(means)}")
    for verb, words in verbs.items():
        seen = f"-n '__fish_seen_subcommand_from {verb}'"
        for word, means in words:
            how = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            if word.startswith("-") and not word.startswith("--"):
                how = f"-s {word[1:]}"
            yield f"complete -c tetris-sim {seen} {how} -d {_in_fish(means)}"


def _in_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
