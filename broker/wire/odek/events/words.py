"""A shell's command line taken apart as far as a summary needs it: programs and their words, never what was assigned.

Quotes, escapes and substitutions are followed, so that no part of a quoted value is taken for a word of its own. It
knows no expansions: a word is what was written. Anything can be read, an unfinished quote goes to the end, and each
character is looked at once. Source: odek contract, "Event schema"; odek notes, section 5.4.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import define, field

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^]]*\])?\+?=")
_BLANK: Final = " \t\r"
_SEPARATORS: Final = ";&|\n"
_CLOSERS: Final = {"(": ")", "{": "}"}


@define
class Command:
    """One simple command: ``words`` without the leading assignments, and the files it writes by redirection."""

    words: list[str] = field(factory=list)
    written: list[str] = field(factory=list)


def split_commands(text: str) -> list[Command]:
    """The simple commands of ``text`` in the order they stand; those without a word are left out."""
    return _Splitter(text).run()


class _Splitter:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._command = Command()
        self._commands: list[Command] = []
        self._word: list[str] = []
        self._in_word = False
        self._redirecting = ""

    def run(self) -> list[Command]:
        text, size = self._text, len(self._text)
        while self._at < size:
            character = text[self._at]
            if character in _SEPARATORS:
                self._end_command()
                self._at += 1
            elif character in _BLANK:
                self._end_word()
                self._at += 1
            elif character in "<>" and text[self._at + 1 : self._at + 2] != "(":
                self._redirect()
            elif character in "()" and not self._in_word:
                self._end_command()
                self._at += 1
            elif character == "#" and not self._in_word:
                end = text.find("\n", self._at)
                self._at = size if end < 0 else end
            else:
                self._in_word = True
                self._take(character)
        self._end_command()
        return self._commands

    def _take(self, character: str) -> None:
        """Add what begins here to the word: a quoted part, a substitution, or one character."""
        text = self._text
        if character == "'":
            end = text.find("'", self._at + 1)
            self._add_to(end, self._at + 1)
        elif character == '"':
            self._at += 1
            self._double_quoted()
        elif character == "\\":
            following = text[self._at + 1 : self._at + 2]
            self._word.append("" if following == "\n" else following)
            self._at += 2
        elif character == "`":
            end = text.find("`", self._at + 1)
            self._add_to(end, self._at)
        elif character in "$<>(" and (self._opens(character)):
            self._nested()
        elif character == ")":
            self._end_command()
            self._at += 1
        else:
            self._word.append(character)
            self._at += 1

    def _opens(self, character: str) -> bool:
        return character == "(" or self._text[self._at + 1 : self._at + 2] in ("(", "{")

    def _add_to(self, end: int, start: int) -> None:
        end = len(self._text) if end < 0 else end
        self._word.append(self._text[start:end])
        self._at = end + 1

    def _double_quoted(self) -> None:
        text, size = self._text, len(self._text)
        while self._at < size:
            character = text[self._at]
            if character == '"':
                self._at += 1
                return
            if character == "$" and self._opens(character):
                self._nested()
                continue
            if character == "\\" and text[self._at + 1 : self._at + 2] in ("\\", '"', "$", "`", "\n"):
                self._at += 1
                character = text[self._at]
            self._word.append(character)
            self._at += 1

    def _nested(self) -> None:
        """A substitution or a list in brackets, whole: quotes inside hide brackets."""
        text, size = self._text, len(self._text)
        start = self._at
        closers: list[str] = []
        quoted = ""
        while self._at < size:
            character = text[self._at]
            self._at += 1
            if character == "\\" and quoted != "'":
                self._at += 1
            elif quoted:
                quoted = "" if character == quoted else quoted
            elif character in "'\"`":
                quoted = character
            elif character in _CLOSERS:
                closers.append(_CLOSERS[character])
            elif closers and character == closers[-1]:
                closers.pop()
                if not closers:
                    break
        self._word.append(text[start : self._at])

    def _redirect(self) -> None:
        if self._in_word and "".join(self._word).isdigit():
            self._word, self._in_word = [], False
        self._end_word()
        start = self._at
        while self._text[self._at : self._at + 1] in ("<", ">", "&", "|") and self._at - start < 3:
            self._at += 1
        self._redirecting = self._text[start : self._at]

    def _end_word(self) -> None:
        if not self._in_word:
            return
        word = "".join(self._word)
        self._word, self._in_word = [], False
        if self._redirecting:
            if ">" in self._redirecting and not (self._redirecting.endswith("&") and word.strip("-").isdigit()):
                self._command.written.append(word)
            self._redirecting = ""
        elif self._command.words or _ASSIGNMENT.match(word) is None:
            self._command.words.append(word)

    def _end_command(self) -> None:
        self._end_word()
        self._redirecting = ""
        if self._command.words or self._command.written:
            self._commands.append(self._command)
        self._command = Command()
