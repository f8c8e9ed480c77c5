"""The nets of the catalogue: timm, torchvision and transformers have small members here, all with random weights.

A net is a function that returns a module and an example of its inputs, a tuple or tensors by name; three samples.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

Example = tuple[Tensor, ...] | dict[str, Tensor]
Maker = Callable[[], tuple[nn.Module, Example]]

COUNT, CLASSES, WORDS, LENGTH = 3, 5, 97, 12
NARROW = {"depth": 2, "embed_dim": 48, "num_heads": 3}

# A member of each module of timm, the side of its images, and its settings.
TIMM: dict[str, tuple[str, int, dict[str, Any]]] = {
    "beit": ("beit_base_patch16_224", 32, {"img_size": 32, **NARROW}),
    "byoanet": ("botnet26t_256", 64, {"img_size": 64}),
    "byobnet": ("test_byobnet", 64, {}),
    "cait": ("cait_xxs24_224", 32, {"img_size": 32, "depth": 2}),
    "coat": ("coat_lite_tiny", 64, {"img_size": 64}),
    "convit": ("convit_tiny", 32, {"img_size": 32, "depth": 3, "local_up_to_layer": 2}),
    "convmixer": ("convmixer_768_32", 32, {}),
    "convnext": ("test_convnext", 64, {}),
    "cpubone": ("cpubone_nano", 64, {}),
    "crossvit": ("crossvit_tiny_240", 240, {}),
    "csatv2": ("csatv2", 128, {}),
    "cspnet": ("cs3darknet_s", 64, {}),
    "cspnext": ("cspnext_tiny", 64, {}),
    "davit": ("davit_tiny", 64, {"depths": (1, 1, 1, 1), "embed_dims": (24, 48, 96, 192)}),
    "deepseek_vit": ("deepseek_vit_412m", 28, {"img_size": 28, **NARROW}),
    "deit": ("deit_tiny_distilled_patch16_224", 32, {"img_size": 32, "depth": 2}),
    "densenet": ("densenet121", 64, {"growth_rate": 8, "block_config": (2, 2, 2, 2)}),
    "dla": ("dla46_c", 64, {}),
    "dpn": ("dpn48b", 64, {}),
    "edgenext": ("edgenext_xx_small", 64, {}),
    "efficientformer": ("efficientformer_l1", 224, {}),
    "efficientformer_v2": ("efficientformerv2_s0", 224, {}),
    "efficientnet": ("test_efficientnet", 64, {}),
    "efficientvim": ("efficientvim_m1", 64, {}),
    "efficientvit_mit": ("efficientvit_b0", 64, {}),
    "efficientvit_msra": ("efficientvit_m0", 224, {}),
    "eva": ("eva02_tiny_patch14_224", 28, {"img_size": 28, "depth": 2}),
    "fasternet": ("fasternet_t0", 64, {}),
    "fastvit": ("fastvit_t8", 64, {}),
    "focalnet": ("focalnet_tiny_srf", 64, {}),
    "gcvit": ("gcvit_xxtiny", 224, {}),
    "gemma4_vit": ("gemma4_vit_167m", 32, {"img_size": 32, **NARROW}),
    "ghostnet": ("ghostnet_050", 64, {}),
    "hardcorenas": ("hardcorenas_a", 64, {}),
    "hgnet": ("hgnetv2_b0", 64, {}),
    "hiera": ("hiera_tiny_224", 64, {"img_size": 64, "stages": (1, 1, 1, 1), "embed_dim": 24}),
    "hieradet_sam2": ("sam2_hiera_tiny", 64, {}),
    "hrnet": ("hrnet_w18_small", 64, {}),
    "iformer": ("iformer_t", 64, {}),
    "inception_next": ("inception_next_atto", 64, {}),
    "inception_resnet_v2": ("inception_resnet_v2", 96, {}),
    "inception_v3": ("inception_v3", 96, {}),
    "inception_v4": ("inception_v4", 96, {}),
    "lcnetv2": ("lcnetv2_small", 64, {}),
    "levit": ("levit_128s", 224, {}),
    "lowformer": ("lowformer_b0", 64, {}),
    "mambaout": ("test_mambaout", 64, {}),
    "maxxvit": ("test_maxvit", 160, {}),
    "metaformer": ("poolformer_s12", 64, {}),
    "mlp_mixer": ("gmlp_ti16_224", 64, {"img_size": 64}),
    "mobilenetv3": ("mobilenetv3_small_050", 64, {}),
    "mobilenetv5": ("mobilenetv5_base", 64, {"channel_multiplier": 0.25}),
    "mobilevit": ("mobilevit_xxs", 64, {}),
    "mvitv2": ("mvitv2_tiny", 64, {"img_size": 64}),
    "naflexvit": ("naflexvit_base_patch16_gap", 32, {"img_size": 32, **NARROW}),
    "nasnet": ("nasnetalarge", 64, {"stem_size": 24, "num_features": 96, "channel_multiplier": 2}),
    "nest": ("nest_tiny", 64, {"img_size": 64}),
    "nextvit": ("nextvit_small", 64, {}),
    "nfnet": ("test_nfnet", 64, {}),
    "pit": ("pit_ti_distilled_224", 64, {"img_size": 64}),
    "pnasnet": ("pnasnet5large", 64, {}),
    "pvt_v2": ("pvt_v2_b0", 64, {"depths": (1, 1, 1, 1)}),
    "qwen3_vit": ("qwen3_vit_88m", 32, {"img_size": 32, **NARROW}),
    "rdnet": ("rdnet_tiny", 64, {}),
    "regnet": ("regnety_002", 64, {}),
    "repghost": ("repghostnet_050", 64, {}),
    "repvit": ("repvit_m0_9", 64, {}),
    "res2net": ("res2net50_14w_8s", 64, {}),
    "resnest": ("resnest14d", 64, {}),
    "resnet": ("test_resnet", 64, {}),
    "resnetv2": ("resnetv2_18", 64, {}),
    "rexnet": ("rexnet_100", 64, {}),
    "selecsls": ("selecsls42b", 64, {}),
    "senet": ("legacy_seresnet18", 64, {}),
    "sequencer": ("sequencer2d_s", 56, {"layers": (1, 1, 1, 1), "embed_dims": (24, 48, 48, 48)}),
    "shvit": ("shvit_s1", 64, {}),
    "sknet": ("skresnet18", 64, {}),
    "starnet": ("starnet_s050", 64, {}),
    "swiftformer": ("swiftformer_xs", 64, {}),
    "swin_transformer": ("swin_tiny_patch4_window7_224", 56, {"img_size": 56, "depths": (2, 2), "embed_dim": 24,
                                                              "num_heads": (3, 3)}),
    "swin_transformer_v2": ("swinv2_tiny_window8_256", 64, {"img_size": 64, "depths": (2, 2), "embed_dim": 24,
                                                            "num_heads": (3, 3)}),
    "swin_transformer_v2_cr": ("swinv2_cr_tiny_224", 64, {"img_size": 64, "depths": (2, 2), "embed_dim": 24,
                                                          "num_heads": (3, 3)}),
    "tiny_vit": ("tiny_vit_5m_224", 64, {}),
    "tnt": ("tnt_s_patch16_224", 32, {"img_size": 32, "depth": 2}),
    "tresnet": ("tresnet_m", 64, {"layers": (1, 1, 1, 1)}),
    "twins": ("twins_svt_small", 64, {"img_size": 64, "depths": (1, 1, 2, 1)}),
    "vgg": ("vgg11", 32, {"mlp_ratio": 0.05}),
    "visformer": ("visformer_tiny", 64, {"img_size": 64}),
    "vision_transformer": ("test_vit", 32, {"img_size": 32}),
    "vision_transformer_hybrid": ("vit_tiny_r_s16_p8_224", 128, {"img_size": 128, "depth": 2}),
    "vision_transformer_relpos": ("test_vit_relpos", 32, {"img_size": 32}),
    "vision_transformer_sam": ("samvit_base_patch16_224", 64, {"img_size": 64, "global_attn_indexes": (1,),
                                                               "window_size": 2, **NARROW}),
    "vitamin": ("vitamin_small_224", 64, {"img_size": 64, "depth": 2}),
    "volo": ("volo_d1_224", 64, {"img_size": 64}),
    "vovnet": ("ese_vovnet19b_slim_dw", 64, {}),
    "xception": ("legacy_xception", 64, {}),
    "xception_aligned": ("xception41", 64, {}),
    "xcit": ("xcit_nano_12_p16_224", 64, {"img_size": 64, "depth": 2}),
}  # fmt: skip

# A member of each classification family of torchvision, and the side of its images.
TORCHVISION = {
    "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64,
    "googlenet": 64, "inception_v3": 96, "maxvit_t": 224, "mnasnet0_5": 64, "mobilenet_v2": 64,
    "mobilenet_v3_small": 64, "regnet_y_400mf": 64, "resnet18": 64, "resnext50_32x4d": 64, "shufflenet_v2_x0_5": 64,
    "squeezenet1_1": 64,
    "swin_t": 64, "swin_v2_t": 64, "vgg11_bn": 32, "vit_b_16": 32, "wide_resnet50_2": 64,
}  # fmt: skip
SMALLER: dict[str, dict[str, Any]] = {"vit_b_16": {"image_size": 32}}

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": WORDS, "max_position_embeddings": 32}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PIXELS = {"image_size": 32, "patch_size": 8}
SEQ2SEQ = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "dropout": 0.0,
    "max_position_embeddings": 32,
}  # fmt: skip
LLAMA = {**TEXT, "num_key_value_heads": 2, "pad_token_id": 0}

# Classes of transformers: the model, its config and the config's settings, and the kind of its inputs.
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "albert": ("AlbertForSequenceClassification", "AlbertConfig", {**TEXT, **STILL, "embedding_size": 16}, "text"),
    "bart": ("BartForConditionalGeneration", "BartConfig", SEQ2SEQ, "pairs"),
    "bert": ("BertForSequenceClassification", "BertConfig", {**TEXT, **STILL}, "text"),
    "bert masked": ("BertForMaskedLM", "BertConfig", {**TEXT, **STILL}, "text"),
    "bert eager": ("BertForSequenceClassification", "BertConfig",
                   {**TEXT, **STILL, "attn_implementation": "eager"}, "text"),
    "clip": ("CLIPVisionModelWithProjection", "CLIPVisionConfig", {**SMALL, **PIXELS, "projection_dim": 16}, "image"),
    "clip text": ("CLIPTextModelWithProjection", "CLIPTextConfig",
                  {**TEXT, "projection_dim": 16, "eos_token_id": 2}, "text"),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig",
                 {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]}, "image"),
    "deit": ("DeiTForImageClassification", "DeiTConfig", {**SMALL, **STILL, **PIXELS}, "image"),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig",
                   {"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "dropout": 0.0,
                    "attention_dropout": 0.0, "seq_classif_dropout": 0.0}, "text"),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", {**TEXT, **STILL, "embedding_size": 16}, "text"),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**LLAMA, "head_dim": 8}, "text"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config",
             {"vocab_size": WORDS, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "text"),
    "gpt2 eager": ("GPT2LMHeadModel", "GPT2Config",
                   {"vocab_size": WORDS, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4,
                    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"}, "text"),
    "gpt neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**TEXT, "hidden_dropout": 0.0}, "text"),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA, "text"),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**LLAMA, "sliding_window": 6}, "text"),
    "opt": ("OPTForCausalLM", "OPTConfig",
            {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64, "num_attention_heads": 4,
             "word_embed_proj_dim": 32, "max_position_embeddings": 32, "dropout": 0.0}, "text"),
    "phi": ("PhiForCausalLM", "PhiConfig", TEXT, "text"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA, "text"),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", {**TEXT, **STILL}, "text"),
    "swin": ("SwinForImageClassification", "SwinConfig",
             {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
              "window_size": 4, **STILL, "drop_path_rate": 0.0}, "image"),
    "t5": ("T5ForConditionalGeneration", "T5Config",
           {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
            "dropout_rate": 0.0}, "pairs"),
    "vit": ("ViTForImageClassification", "ViTConfig", {**SMALL, **STILL, **PIXELS}, "image"),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config",
                 {**SMALL, "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0,
                  "feat_proj_dropout": 0.0, "layerdrop": 0.0, "mask_time_prob": 0.0, "conv_dim": (16, 16, 16),
                  "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3,
                  "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 16},
                 "sound"),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig",
                {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32,
                 "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}, "spectrum"),
}  # fmt: skip


def drawn(*shape: int) -> Tensor:
    return torch.randn(COUNT, *shape)


def words() -> Tensor:
    """Token numbers, the last of each sample 2, an end."""
    tokens = torch.randint(3, WORDS, (COUNT, LENGTH))
    tokens[:, -1] = 2
    return tokens


def padding() -> Tensor:
    """1 for tokens, 0 for the last ones of some samples."""
    return (torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 3], [LENGTH - 5]])).long()


INPUTS: Mapping[str, Callable[[], dict[str, Tensor]]] = {
    "text": lambda: {"input_ids": words(), "attention_mask": padding()},
    "pairs": lambda: {"input_ids": words(), "attention_mask": padding(), "decoder_input_ids": words()},
    "image": lambda: {"pixel_values": drawn(3, 32, 32)},
    "sound": lambda: {"input_values": drawn(800)},
    "spectrum": lambda: {"input_features": drawn(8, 32), "decoder_input_ids": words()},
}


def of_timm(name: str) -> tuple[nn.Module, Example]:
    model, side, settings = TIMM[name]
    made = import_module("timm").create_model(model, pretrained=False, num_classes=CLASSES, **settings)
    return made, (drawn(3, side, side),)


def of_torchvision(name: str) -> tuple[nn.Module, Example]:
    more = {"aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    made = import_module("torchvision.models").get_model(
        name, weights=None, num_classes=CLASSES, **more, **SMALLER.get(name, {})
    )
    return made, (drawn(3, TORCHVISION[name], TORCHVISION[name]),)


def of_transformers(name: str) -> tuple[nn.Module, Example]:
    model, config, settings, kind = TRANSFORMERS[name]
    package = import_module("transformers")
    return getattr(package, model)(getattr(package, config)(**settings)), INPUTS[kind]()


class Recurrent(nn.Module):
    """The last state of a recurrent layer, and a head."""

    def __init__(self, kind: type[nn.RNNBase], **settings: Any) -> None:
        super().__init__()
        self.layer = kind(8, 12, batch_first=True, **settings)
        self.head = nn.Linear(24 if settings.get("bidirectional") else 12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.layer(x)[0][:, -1])
        return made


class Cells(nn.Module):
    """A recurrent cell that is applied at each step."""

    def __init__(self, kind: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.head = kind(8, 12), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        made: Tensor = self.head(state[0] if isinstance(state, tuple) else state)
        return made


def of_segmentation(name: str) -> tuple[nn.Module, Example]:
    made = import_module("torchvision.models.segmentation")
    return getattr(made, name)(weights=None, weights_backbone=None, num_classes=CLASSES), (drawn(3, 64, 64),)


def of_video(name: str, frames: int, side: int) -> tuple[nn.Module, Example]:
    made = import_module("torchvision.models.video")
    return getattr(made, name)(weights=None, num_classes=CLASSES), (drawn(3, frames, side, side),)


def transformer() -> tuple[nn.Module, Example]:
    module = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    return module, (drawn(6, 16), drawn(4, 16))


def encoder() -> tuple[nn.Module, Example]:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2), (drawn(6, 16),)


OTHERS: dict[str, Maker] = {
    "nn.Transformer": transformer,
    "nn.TransformerEncoder": encoder,
    "nn.RNN": lambda: (Recurrent(nn.RNN, num_layers=2), (drawn(7, 8),)),
    "nn.LSTM": lambda: (Recurrent(nn.LSTM, num_layers=2, bidirectional=True), (drawn(7, 8),)),
    "nn.GRU": lambda: (Recurrent(nn.GRU, bias=False), (drawn(7, 8),)),
    "nn.LSTMCell": lambda: (Cells(nn.LSTMCell), (drawn(4, 8),)),
    "nn.GRUCell": lambda: (Cells(nn.GRUCell), (drawn(4, 8),)),
    "fcn_resnet50": partial(of_segmentation, "fcn_resnet50"),
    "deeplabv3_mobilenet_v3_large": partial(of_segmentation, "deeplabv3_mobilenet_v3_large"),
    "lraspp_mobilenet_v3_large": partial(of_segmentation, "lraspp_mobilenet_v3_large"),
    "r3d_18": partial(of_video, "r3d_18", 4, 32),
    "r2plus1d_18": partial(of_video, "r2plus1d_18", 4, 32),
    "mc3_18": partial(of_video, "mc3_18", 4, 32),
}

GROUPS: dict[str, Mapping[str, Maker]] = {
    "timm": {name: partial(of_timm, name) for name in TIMM},
    "torchvision": {name: partial(of_torchvision, name) for name in TORCHVISION},
    "transformers": {name: partial(of_transformers, name) for name in TRANSFORMERS},
    "others": OTHERS,
}


def declare_suppression() -> None:
    """Names two operators of torchvision's compiled part, which does not load beside a PyTorch of another build."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        try:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        except RuntimeError:  # it has loaded
            return
    KEPT.append(library)


KEPT: list[torch.library.Library] = []
