"""Continues a text with a language model that was trained on tokens.

python -m mpibow.generate runs/NAME --prompt "It was "
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from .data.dataset import Array
from .data.text import BYTES, FILE, Tokens, bytes_of, read_tokens
from .errors import ConfigError
from .fitted import Fitted, load
from .job.predictor import Predictor
from .system.command import main_of, natural, parser_of, positive
from .system.streams import as_command

ASCII = 128
Draw = Callable[[Array], int]  # from logits (vocabulary,) to a token


def parser() -> argparse.ArgumentParser:
    made = parser_of("generate", "Continues a text with a net that was trained to predict the next token.")
    made.add_argument("net", type=Path, metavar="RUN", help="a run directory, a checkpoint, or a file of Fitted.save")
    made.add_argument("--prompt", required=True, metavar="TEXT", help="the text to continue")
    made.add_argument("--tokens", type=positive, default=200, metavar="N", help="tokens to add (default: 200)")
    made.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="logits are divided by it; 0 takes the likeliest token every time (default: 1)",
    )
    made.add_argument("--top-k", type=positive, metavar="K", help="draw among the K likeliest tokens (default: all)")
    made.add_argument("--seed", type=natural, default=0, help="seed of the draws (default: 0)")
    made.add_argument(
        "--tokenizer", metavar="FILE", help=f"a {FILE}, or {BYTES} for UTF-8 (default: the {FILE} that the run kept)"
    )
    made.add_argument("--average", action="store_true", help="generate with the average of the centre (a run with ema)")
    return made


def _run(arguments: argparse.Namespace) -> None:
    threadpool_limits(1)
    fitted = load(arguments.net)
    predictor = fitted.predictor(1, arguments.average)
    tokens = _tokens(fitted, arguments.net, arguments.tokenizer)
    prompt = tokens.encode(arguments.prompt)
    if not len(prompt):
        raise ConfigError("--prompt: must have at least one character, got ''")
    generator = np.random.default_rng(arguments.seed)
    draw = partial(pick, temperature=arguments.temperature, top_k=arguments.top_k, generator=generator)
    sys.stdout.write(arguments.prompt)
    shown = tokens.decode(prompt)
    made = prompt.tolist()
    for token in continued(predictor, prompt, arguments.tokens, draw, _size(predictor, tokens, prompt)):
        made.append(token)
        text = tokens.decode(made)
        if text.startswith(shown) and not text.endswith("\ufffd"):  # a character of several tokens comes as a whole
            sys.stdout.write(text[len(shown) :])
            sys.stdout.flush()
            shown = text
    sys.stdout.write(tokens.decode(made)[len(shown) :] + "\n")


def continued(predictor: Predictor, prompt: Array, count: int, draw: Draw, size: int) -> Iterator[int]:
    """`count` tokens after the `prompt` (n,), each drawn from the logits of the last tokens that fit into the net.

    `size` is the size of the vocabulary. Raises ConfigError where the net does not predict tokens.
    """
    context, output = _form(predictor)
    seen = prompt.tolist()
    for _ in range(count):
        last = seen[-context:]
        window = np.zeros((1, context), np.int32)
        window[0, : len(last)] = last  # a position depends on none behind it
        logits = predictor(window)[output][0, len(last) - 1, :size]
        seen.append(draw(logits.astype(np.float64)))
        yield seen[-1]


def _size(predictor: Predictor, tokens: Tokens, prompt: Array) -> int:
    """The size of the vocabulary; for bytes, that of ASCII where the net has no others. Raises ConfigError."""
    given = predictor.outputs[_form(predictor)[1]][1]
    size = min(tokens.size, given) if tokens.kind == BYTES and given == ASCII else tokens.size
    if size > given:
        raise ConfigError(
            f"--tokenizer: has {size} tokens, the net gives {given}; give the tokenizer that it was trained with"
        )
    if int(prompt.max()) >= size:
        raise ConfigError(f"--prompt: must be ASCII, as the net gives {given} characters")
    return size


def pick(logits: Array, *, temperature: float, top_k: int | None, generator: np.random.Generator) -> int:
    """A token by softmax(logits / temperature) of the `top_k` likeliest; the likeliest at temperature 0."""
    if temperature == 0:
        return int(np.argmax(logits))
    if top_k is not None and top_k < len(logits):
        logits = np.where(logits >= np.partition(logits, -top_k)[-top_k], logits, -np.inf)
    likely = np.exp((logits - logits.max()) / temperature)
    return int(generator.choice(len(logits), p=likely / likely.sum()))


def _form(predictor: Predictor) -> tuple[int, str]:
    """The length of the net's context, and its output of logits (n, tokens, vocabulary). Raises ConfigError."""
    inputs = [predictor.graph.tensors[name] for name in predictor.inputs]
    if len(inputs) == 1 and inputs[0].dtype == "int32" and len(inputs[0].shape) == 2:
        context = inputs[0].shape[1]
        for name, shape in predictor.outputs.items():
            if len(shape) == 2 and shape[0] == context:
                return context, name
    takes = ", ".join(f"{each.name} {each.shape[1:]} {each.dtype}" for each in inputs)
    gives = ", ".join(f"{name} {shape}" for name, shape in predictor.outputs.items())
    raise ConfigError(
        "generate: needs a net from tokens (n, t) int32 to logits (n, t, vocabulary); "
        f"this one takes {takes} and gives {gives} for a sample"
    )


def _tokens(fitted: Fitted, net: Path, given: str | None) -> Tokens:
    """The given tokenizer, or the run's. Raises ConfigError, RecordError."""
    if given == BYTES:
        return bytes_of()
    if given is not None:
        return read_tokens(Path(given))
    if fitted.folder is None or not (fitted.folder / FILE).is_file():
        raise ConfigError(f"--tokenizer: {net} kept no {FILE}; give one, or --tokenizer {BYTES} for a net of bytes")
    return read_tokens(fitted.folder / FILE)


main = main_of(
    parser,
    _run,
    lambda each: None if each.temperature >= 0 else f"--temperature: must be at least 0, got {each.temperature:g}",
)

if __name__ == "__main__":
    as_command(main)
