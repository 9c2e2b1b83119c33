"""
Tiny models for a real SGLang: run by its own Python, `make_models.py FOLDER`; no network, a second or two.

- `dense`: Qwen3 of two layers, random weights.
- `hybrid`: Qwen3.5 of three Gated DeltaNet layers and one of attention, with `mtp.` tensors; all of it
  random, so that its drafts are as good as never accepted.
- `chain`: a hybrid that computes one thing, which word follows which: its layers add nothing, and the head
  turns a token's embedding into the next token of a ring of words. Its draft computes the same, so every
  draft is accepted.
- `dense-chain`: the same without draft and Gated DeltaNet, for drafts from n-grams.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 512
HIDDEN = 64
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END = 2

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

RING = """
river stone light winter bread window letter garden silver mountain yellow paper music finger
candle ocean ladder pocket summer engine butter mirror copper branch tunnel basket velvet hammer
island carpet needle shadow bridge orange thunder pencil harbor marble feather blanket lantern saddle
meadow kettle ribbon walnut chimney anchor pepper canyon whistle button turtle
"""
WORDS = RING.split()
"""The ring: each is one token, and longer than the shortest repetition that a reader would call nonsense."""

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": END,
    "pad_token_id": 0,
}

GATED_DELTA_NET = {
    "num_hidden_layers": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """
    Pairs of bytes, learned from the words of the ring, so that each becomes one token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([" " + " ".join(WORDS)] * 8, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=4096,
        chat_template=CHAT,
    )


def save(folder: Path, tokenizer: Any, model: Any, **changes: Any) -> dict[str, torch.Tensor]:
    """
    Write a model with its tokenizer; `changes` go into config.json. Its tensors.
    """
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [END]}))
    return load_file(folder / "model.safetensors")


def with_draft(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    The same with a layer of multi-token prediction: the last layer once more, and what joins it.
    """
    last = {name: t for name, t in tensors.items() if name.startswith("model.layers.3.")}
    draft = {name.replace("model.layers.3.", "mtp.layers.0."): t.clone() for name, t in last.items()}
    draft["mtp.fc.weight"] = (torch.randn(HIDDEN, 2 * HIDDEN) * 0.02).bfloat16()
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        draft[f"mtp.{name}.weight"] = torch.zeros(HIDDEN).bfloat16()
    return {**tensors, **draft}


def chained(tensors: dict[str, torch.Tensor], tokenizer: Any) -> dict[str, torch.Tensor]:
    """
    The same, turned into the ring of words: no layer adds anything, and the head maps a token to its next.

    Tokens outside the ring look like one of it.
    """
    tokens = [tokenizer.convert_tokens_to_ids("\u0120" + word) for word in WORDS]
    if None in tokens or len(set(tokens)) < len(WORDS):
        raise SystemExit("a word of the ring is not one token")
    directions = torch.nn.functional.normalize(torch.randn(len(tokens), HIDDEN), dim=1)
    embedding = torch.stack([directions[token % len(tokens)] for token in range(VOCABULARY)])
    embedding[tokens] = directions
    head = torch.zeros(VOCABULARY, HIDDEN)
    head[tokens[1:] + tokens[:1]] = directions
    made = {
        name: torch.zeros_like(t)
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight"))
        else t
        for name, t in tensors.items()
    }
    made["model.embed_tokens.weight"] = embedding.bfloat16()
    made["lm_head.weight"] = head.bfloat16()
    if "mtp.fc.weight" in made:
        made["mtp.fc.weight"] = torch.cat([torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)], 1).bfloat16()
    return made


def write(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """
    Replace a model's weights.
    """
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def main(folder: Path) -> None:
    """
    Make all of them.
    """
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    dense = Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_hidden_layers=2))
    tensors = save(folder / "dense", tokenizer, dense)
    save(folder / "dense-chain", tokenizer, dense)
    write(folder / "dense-chain", chained(tensors, tokenizer))
    hybrid = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SHAPE, **GATED_DELTA_NET))
    # transformers 5.19 writes neither of them, and SGLang 0.5.23 needs both.
    keys = {"full_attention_interval": 4, "mtp_num_hidden_layers": 1}
    tensors = with_draft(save(folder / "hybrid", tokenizer, hybrid, **keys))
    write(folder / "hybrid", tensors)
    save(folder / "chain", tokenizer, hybrid, **keys)
    write(folder / "chain", chained(tensors, tokenizer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
