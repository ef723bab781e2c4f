"""Make /models/tiny: a model of random weights for tests, in the shape of SmolLM2-135M.

Same architecture, tokenizer, chat template and key-value heads as the real model, so everything that a token test
looks at is exercised, at a tenth of the time and size. The weights are drawn from a fixed seed: every build makes
the same bytes. They are wide enough (STD) that greedy decoding wanders over many tokens and depends on every token
of the prompt; otherwise a test of tokens would not see wrong KV. Both are checked here.

    python tiny.py SMOLLM2_FOLDER OUTPUT_FOLDER
"""

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

SEED = 20
STD = 0.12
NEW_TOKENS = 64
DISTINCT = 20
SMALLER = {
    "num_hidden_layers": 2,
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_attention_heads": 6,
    "tie_word_embeddings": False,
}


def make(source: str) -> torch.nn.Module:
    config = AutoConfig.from_pretrained(source)
    for name, value in SMALLER.items():
        setattr(config, name, value)
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(0.0, STD)
    return model.half()


def continuation(model: torch.nn.Module, prompt: torch.Tensor) -> list[int]:
    output = model.generate(
        prompt[None], attention_mask=torch.ones_like(prompt[None]), do_sample=False,
        max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
    )  # fmt: skip
    return output[0, len(prompt) :].tolist()


def check(model: torch.nn.Module) -> None:
    """Refuse weights that decode to a loop, or that do not attend to all of the prompt."""
    draw = torch.Generator().manual_seed(SEED)
    for length in (8, 64, 256):
        prompt = torch.randint(100, 40_000, (length,), generator=draw)
        answer = continuation(model, prompt)
        if len(set(answer)) <= DISTINCT:
            sys.exit(f"tiny.py: greedy decoding loops ({len(set(answer))} distinct tokens): change STD or SEED")
        for position in (0, length // 2):
            changed = prompt.clone()
            changed[position] += 1
            if continuation(model, changed) == answer:
                sys.exit(f"tiny.py: token {position} of {length} does not matter: change STD or SEED")
        print(f"prompt of {length}: {len(set(answer))} distinct tokens of {NEW_TOKENS}")


def main() -> None:
    source, output = sys.argv[1], Path(sys.argv[2])
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = make(source)
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    for path in output.iterdir():
        path.chmod(0o644)  # safetensors writes 0600, which a pod that does not run as root cannot read
    check(model.float())


if __name__ == "__main__":
    main()
