"""Tokens of an instruction: lower case, without punctuation, one number per word of the contract's vocabulary."""

from __future__ import annotations

import difflib
import re

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import MAX_WORDS, InstructionSpec
from gantry_deploy.errors import InstructionError

PAD, UNKNOWN, FIRST_WORD = 0, 1, 2
"""Token after the last word, token of a word that is not in the vocabulary, and token of the vocabulary's first."""
MAX_CHARACTERS = 400
"""Longest text that is looked at."""


def words_of(text: str) -> list[str]:
    """Words of a text in lower case; punctuation separates them."""
    return re.findall(r"[a-z0-9]+", text.lower())


def tokens_of(spec: InstructionSpec, text: str) -> NDArray[np.float32]:
    """Tokens of an instruction, shape (16,), dimensionless whole numbers; words that the policy never read are
    :data:`UNKNOWN`.

    Args:
        spec: Vocabulary of the policy.
        text: Instruction.

    Raises:
        InstructionError: If it has no word, too many, or none that the policy knows.
    """
    words = words_of(text[: MAX_CHARACTERS + 1])
    if not words:
        raise InstructionError(f"The instruction '{text[:40]}' has no word. For example: {_examples(spec)}.")
    if len(text) > MAX_CHARACTERS or len(words) > MAX_WORDS:
        raise InstructionError(
            f"The instruction has {len(words)} words in {len(text)} characters, expected at most {MAX_WORDS} words and "
            f"{MAX_CHARACTERS} characters."
        )
    places = {word: FIRST_WORD + place for place, word in enumerate(spec.vocabulary)}
    if not any(word in places for word in words):
        raise InstructionError(
            f"The policy knows no word of the instruction '{text}'. It was trained on instructions such as: "
            f"{_examples(spec)}."
        )
    tokens = np.full(MAX_WORDS, PAD, dtype=np.float32)
    tokens[: len(words)] = [places.get(word, UNKNOWN) for word in words]
    return tokens


def unknown_words(spec: InstructionSpec, text: str) -> list[str]:
    """Words of an instruction that the policy was not trained on, each with the nearest known one where it is near."""
    found = []
    for word in dict.fromkeys(words_of(text)):
        if word not in spec.vocabulary:
            near = difflib.get_close_matches(word, spec.vocabulary, n=1)
            found.append(f"'{word}' (did you mean '{near[0]}'?)" if near else f"'{word}'")
    return found


def vocabulary_of(texts: list[str]) -> tuple[str, ...]:
    """All words of some texts, in alphabetical order."""
    return tuple(sorted({word for text in texts for word in words_of(text)}))


def _examples(spec: InstructionSpec) -> str:
    return ", ".join(f"'{example}'" for example in spec.examples[:3]) or "(none given)"
