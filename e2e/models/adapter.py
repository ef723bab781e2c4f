"""Make /models/tiny-adapter: a LoRA adapter of the tiny model, in the format that PEFT writes and vLLM reads.

Its weights are drawn from a fixed seed, and wide enough that the model says other things with it than without: a test
of tokens would otherwise not see an engine that left it out. That is checked here.

    python adapter.py TINY_FOLDER OUTPUT_FOLDER
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny import continuation
from transformers import AutoModelForCausalLM

SEED = 21
RANK = 8
STD = 0.15
# KV is made by k_proj and v_proj: with the adapter it is other KV.
TARGETS = ("q_proj", "k_proj", "v_proj")


def main() -> None:
    source, output = sys.argv[1], Path(sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    prompt = torch.randint(100, 40_000, (64,), generator=torch.Generator().manual_seed(SEED))
    plain = continuation(model, prompt)
    draw = torch.Generator().manual_seed(SEED)
    tensors = {}
    for name, module in model.named_modules():
        if name.endswith(TARGETS):
            wide, long = module.weight.shape
            a, b = (torch.randn(shape, generator=draw) * STD for shape in ((RANK, long), (wide, RANK)))
            tensors[f"base_model.model.{name}.lora_A.weight"], tensors[f"base_model.model.{name}.lora_B.weight"] = a, b
            module.weight.data += b @ a
    if continuation(model, prompt) == plain:
        sys.exit("adapter.py: the model says the same with the adapter: change STD")
    output.mkdir()
    save_file(tensors, output / "adapter_model.safetensors")
    (output / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "lora_dropout": 0.0,
                    "bias": "none", "target_modules": TARGETS, "base_model_name_or_path": source})
    )  # fmt: skip
    for path in output.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    main()
