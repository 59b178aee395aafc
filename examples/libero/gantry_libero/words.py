"""LIBERO's instructions as the word tokens that Gantry's language policies read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gantry_deploy.contract.parts import InstructionSpec
from gantry_deploy.language.instructions import tokens_of, words_of

LEFT_OUT = ("a", "the")
"""Words that no token stands for: with them some instructions have 19 words, and a policy reads 16."""
VOCABULARY = tuple(
    words_of(
        "alphabet and at back basket bbq between black book both bottle bottom bowl box butter cabinet caddy center "
        "cheese chocolate close compartment cookie cream drawer dressing from front frying in inside it juice ketchup "
        "left microwave middle milk moka mug next of off on open orange pan pick place plate pot pots pudding push "
        "put rack ramekin red right salad sauce shelf soup stack stove table them to tomato top tray turn under up "
        "white wine wooden yellow"
    )
)
"""Words of the five standard suites, sorted; one list for all, so that a policy of one suite can read another."""
_SPEC = InstructionSpec(VOCABULARY, ("pick up the alphabet soup and place it in the basket",))


def libero_tokens(text: str) -> NDArray[np.float32]:
    """Tokens of an instruction, shape (16,), dimensionless; words of no standard suite get the unknown token.

    Raises:
        InstructionError: If it has no word that is known, or more than 16 without articles.
    """
    return tokens_of(_SPEC, " ".join(word for word in words_of(text) if word not in LEFT_OUT))
