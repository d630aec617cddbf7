"""Models of the transformers package, tiny: some steps of AdamW agree with CPU, in one program, and
leave the device nowhere.

By default a few that differ most; all of them, in five minutes:

    TORCH_XLA_ARCHITECTURES=all python -m pytest tests/models/test_architectures.py
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import torch_xla

transformers = pytest.importorskip("transformers")

ALL = os.environ.get("TORCH_XLA_ARCHITECTURES") == "all"
BY_DEFAULT = {"mixtral", "deepseek_v3", "t5", "mamba2", "detr"}
STEPS, VOCABULARY = 3, 96

Batch = dict[str, Any]

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FEW_KEYS = {**SIZES, "num_key_value_heads": 2}
WITH_HEADS = {**FEW_KEYS, "head_dim": 8}
EXPERTS = {"num_experts_per_tok": 2}
IMAGE_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
TWO_STACKS = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}


def tokens(length: int = 16, lowest: int = 3) -> torch.Tensor:
    return torch.randint(lowest, VOCABULARY, (2, length))


def language() -> Batch:
    x = tokens()
    return {"input_ids": x, "labels": x.clone()}


def sentences() -> Batch:
    mask = torch.ones(2, 16, dtype=torch.long)
    return {"input_ids": tokens(), "attention_mask": mask, "labels": torch.tensor([0, 1])}


def translation() -> Batch:
    return {"input_ids": tokens(), "labels": tokens(12)}


def images(size: int = 32) -> Batch:
    return {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.tensor([0, 1])}


def sound() -> Batch:
    return {"input_features": torch.randn(2, 8, 40), "labels": tokens(10)}


def speech() -> Batch:
    return {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 32, (2, 6))}


def captions() -> Batch:
    pixels = torch.randn(2, 3, 32, 32)
    return {"input_ids": tokens(12), "pixel_values": pixels, "return_loss": True}


def boxes() -> Batch:
    found = {"class_labels": torch.tensor([1, 2]), "boxes": torch.rand(2, 4) * 0.4 + 0.1}
    return {"pixel_values": torch.randn(1, 3, 32, 32), "labels": [found]}


class Architecture(NamedTuple):
    model: str
    config: str
    sizes: dict[str, Any]
    batch: Callable[[], Batch]


def causal(name: str, **sizes: Any) -> Architecture:
    return Architecture(f"{name}ForCausalLM", f"{name}Config", sizes, language)


ARCHITECTURES = {
    "roberta": Architecture("RobertaForMaskedLM", "RobertaConfig", SIZES, language),
    "distilbert": Architecture(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
        language,
    ),
    "albert": Architecture(
        "AlbertForMaskedLM", "AlbertConfig", {**SIZES, "embedding_size": 16}, language
    ),
    "electra": Architecture(
        "ElectraForMaskedLM", "ElectraConfig", {**SIZES, "embedding_size": 16}, language
    ),
    "deberta_v2": Architecture(
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        {
            **SIZES,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
        },
        sentences,
    ),
    "longformer": Architecture(
        "LongformerForMaskedLM",
        "LongformerConfig",
        {**SIZES, "attention_window": 8, "max_position_embeddings": 70},
        language,
    ),
    "xlnet": Architecture(
        "XLNetForSequenceClassification",
        "XLNetConfig",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
        sentences,
    ),
    "gpt_neox": causal("GPTNeoX", **SIZES),
    "opt": causal("OPT", **SIZES, ffn_dim=64, word_embed_proj_dim=32),
    "bloom": causal("Bloom", vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4),
    "mistral": causal("Mistral", **FEW_KEYS, sliding_window=8),
    "qwen3": causal("Qwen3", **WITH_HEADS),
    "gemma3": Architecture("Gemma3ForCausalLM", "Gemma3TextConfig", WITH_HEADS, language),
    "phi3": causal("Phi3", **FEW_KEYS),
    "falcon": causal("Falcon", **SIZES),
    "olmo2": causal("Olmo2", **FEW_KEYS),
    "cohere": causal("Cohere", **FEW_KEYS),
    "mixtral": causal("Mixtral", **FEW_KEYS, **EXPERTS, num_local_experts=4),
    "qwen2_moe": causal(
        "Qwen2Moe",
        **FEW_KEYS,
        **EXPERTS,
        num_experts=4,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    ),
    "olmoe": causal("Olmoe", **FEW_KEYS, **EXPERTS, num_experts=4),
    "gpt_oss": causal("GptOss", **WITH_HEADS, **EXPERTS, num_local_experts=4, sliding_window=8),
    "deepseek_v3": causal(
        "DeepseekV3",
        **SIZES,
        **EXPERTS,
        num_key_value_heads=4,
        moe_intermediate_size=32,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
    ),
    "mamba": causal(
        "Mamba", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4
    ),
    "mamba2": causal(
        "Mamba2",
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        state_size=8,
        num_heads=8,
        head_dim=8,
        n_groups=1,
        chunk_size=8,
    ),
    "t5": Architecture(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": VOCABULARY,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        translation,
    ),
    "bart": Architecture(
        "BartForConditionalGeneration",
        "BartConfig",
        {**TWO_STACKS, "max_position_embeddings": 64},
        translation,
    ),
    "whisper": Architecture(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **TWO_STACKS,
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        sound,
    ),
    "wav2vec2": Architecture(
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        {
            "vocab_size": 32,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "conv_dim": (16, 16),
            "conv_kernel": (8, 4),
            "conv_stride": (4, 2),
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "mask_time_prob": 0.0,
        },
        speech,
    ),
    "vit": Architecture("ViTForImageClassification", "ViTConfig", IMAGE_SIZES, images),
    "swin": Architecture(
        "SwinForImageClassification",
        "SwinConfig",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        images,
    ),
    "convnext": Architecture(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
        images,
    ),
    "segformer": Architecture(
        "SegformerForImageClassification",
        "SegformerConfig",
        {
            "hidden_sizes": [8, 16, 16, 16],
            "num_attention_heads": [1, 2, 2, 2],
            "depths": [1, 1, 1, 1],
            "decoder_hidden_size": 16,
        },
        lambda: images(64),
    ),
    "clip": Architecture(
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": {**SIZES, "max_position_embeddings": 32},
            "vision_config": IMAGE_SIZES,
            "projection_dim": 16,
        },
        captions,
    ),
    "detr": Architecture(
        "DetrForObjectDetection",
        "DetrConfig",
        {
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 16],
                "depths": [1, 1],
                "out_features": ["stage2"],
            },
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "num_queries": 5,
            "num_labels": 3,
        },
        boxes,
    ),
}


def without_dropout(config: Any) -> Any:
    for name, value in vars(config).items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def moved(value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list):
        return [moved(each, device) for each in value]
    if isinstance(value, dict):
        return {name: moved(each, device) for name, each in value.items()}
    return value


def losses(model: torch.nn.Module, batches: list[Batch], after: Callable[[], None]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for batch in batches:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        after()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if ALL or name in BY_DEFAULT])
def test_trains_as_on_cpu(name, device, metrics, no_fallback):
    architecture = ARCHITECTURES[name]
    config = getattr(transformers, architecture.config)(**architecture.sizes)
    model = getattr(transformers, architecture.model)(without_dropout(config))
    batches = [architecture.batch() for _ in range(STEPS)]
    expected = losses(copy.deepcopy(model), batches, after=lambda: None)

    compiled = []

    def sync():
        torch_xla.sync()
        compiled.append(metrics.metric_data("CompileTime")[0])

    got = losses(model.to(device), moved(batches, device), after=sync)
    assert got == pytest.approx(expected, rel=1e-4)
    assert compiled[-1] == compiled[0], f"programs after each step: {compiled}"
