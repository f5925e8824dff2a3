"""A folder with a Hugging Face config.json becomes a `ModelShape`.

Nothing is guessed: an architecture that is not in `simbatch.deployment.hf_families`, a missing key
or a number that cannot be is an error that names the file and the key. Parameters are counted from
the widths; the weights themselves are not looked at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simbatch.checks import shown
from simbatch.deployment.hf_families import FAMILIES, TEXT_PARTS, Family
from simbatch.deployment.hf_layers import dense_layers, local_layers
from simbatch.deployment.model import LatentAttention, ModelShape, count_params
from simbatch.errors import UsageError, unknown

_DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float16"}
"""What weights are stored in, and what they are served in: 32 bit as 16 bit, unless the user insists."""
_LARGEST = 2**40
"""No width, count or length of a model comes near."""


def is_model_folder(model: str | Path) -> bool:
    """Whether *model* means a folder (or its config.json) and not a known name."""
    written_as_path = isinstance(model, Path) or model.startswith((".", "/", "~"))
    try:
        return written_as_path or Path(model).name == "config.json" or (Path(model) / "config.json").is_file()
    except OSError:  # a name that no file can have, or a folder that may not be looked into
        return False


def read_model_folder(folder: str | Path) -> ModelShape:
    """The shape of the model in *folder*. Raises UsageError where it cannot be read for certain."""
    path = Path(folder)
    path = path if path.name == "config.json" else path / "config.json"
    try:
        path = path.expanduser()
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, RuntimeError) as error:
        if isinstance(error, RecursionError):
            raise UsageError(f"{path} is nested too deeply. Give the config.json of a Hugging Face model.") from None
        raise UsageError(f"{path} cannot be read. Give a known model or a folder with a config.json.") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}). Give the config.json of a Hugging Face model.") from None
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise UsageError(f"{path} has no list 'architectures'. Give the config.json of a Hugging Face model.")
    return _Reader(path, config, names[0]).shape()


class _Reader:
    """Takes keys out of one config.json and says where when one is missing or wrong."""

    def __init__(self, path: Path, config: dict[str, Any], architecture: str) -> None:
        self.path = path
        self.whole = config
        self.notes: list[str] = []
        if architecture in TEXT_PARTS:
            architecture = TEXT_PARTS[architecture]
            self.notes.append("the part that reads images is left out: its weights come on top")
        if architecture not in FAMILIES:
            raise unknown("architecture", architecture, FAMILIES, f"It is named in {path}.")
        text = config.get("text_config")
        self.config: dict[str, Any] = text if isinstance(text, dict) else config
        self.family: Family = FAMILIES[architecture]
        self.aliases = dict(self.family.aliases)

    def number(self, key: str, default: int | None = None, least: int = 1) -> int:
        """The whole number under *key*, at least *least*; *default* where the file has none."""
        key = self.aliases.get(key, key)
        value = self.config.get(key)
        if value is None:
            if default is None:
                raise UsageError(f"{self.path} has no {key}, and without it the model has no size. Add it.")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise UsageError(
                f"{self.path}: {key} is {shown(value)}, but a whole number of at least {least} is expected. Correct it."
            )
        return value

    def shape(self) -> ModelShape:
        family = self.family
        layers, hidden, heads = (
            self.number(key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads")
        )
        if self.config.get("word_embed_proj_dim") not in (None, hidden):
            raise UsageError(
                f"{self.path}: word_embed_proj_dim is not hidden_size, which is not modelled. Choose another."
            )
        kv_heads = self.number("num_key_value_heads", heads if family.kv_heads_as_heads or family.latent else None)
        if heads % kv_heads:
            raise UsageError(
                f"{self.path}: num_key_value_heads is {kv_heads}, which does not divide the {heads} attention heads. "
                "Correct it."
            )
        head_dim = 0 if family.latent else self.head_dim(hidden, heads)
        latent = self.latent() if family.latent else None
        length = self.max_model_len()
        positions = (length or 0) * hidden if family.learned_positions else 0
        # Shared experts of a sparse layer and the width of a dense one differ.
        experts = self.number(family.experts) if family.experts else 0
        per_token = self.number("num_experts_per_tok") if experts else 0
        if per_token > experts:
            raise UsageError(
                f"{self.path}: num_experts_per_tok is {per_token}, but there are {experts} experts. Correct it."
            )
        expert_width = self.number(family.expert_width) if experts else 0
        without_experts = dense_layers(self.config, layers, self.path) if experts else layers
        width, shared = self.widths(hidden, experts, expert_width, without_experts)
        window_tokens, local = local_layers(self.config, family.local, layers, self.path)
        tied = self.flag("tie_word_embeddings", family.tied_embeddings)
        params = count_params(
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=self.number("vocab_size"),
            tied_embeddings=tied,
            intermediate=width,
            gated=family.gated,
            shared_intermediate=shared,
            experts=experts,
            moe_intermediate=expert_width,
            moe_layers=layers - without_experts,
            latent=latent,
            position_params=positions,
        )
        if local:
            self.notes.append(
                f"{local} of {layers} layers attend to at most {window_tokens} tokens; "
                "KV memory is counted as if they kept everything"
            )
        return ModelShape(
            name=self.path.resolve().parent.name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab=self.number("vocab_size"),
            params=params,
            intermediate=max(width, shared),
            tied_embeddings=tied,
            position_params=positions,
            experts=experts,
            experts_per_token=per_token,
            moe_intermediate=expert_width,
            moe_layers=layers - without_experts,
            latent=latent,
            kv_layers=layers,
            local_layers=local,
            window_tokens=window_tokens,
            dtype=self.dtype(),
            quantization=self.quantization(),
            max_model_len=length,
            notes=tuple(self.notes),
            source="config.json",
        )

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, self.whole.get(key, default))
        if not isinstance(value, bool):
            raise UsageError(f"{self.path}: {key} is {value!r}, neither true nor false. Correct it.")
        return value

    def head_dim(self, hidden: int, heads: int) -> int:
        """Width of a head: stated, or hidden ÷ heads where the architecture has no other."""
        if self.family.head_dim_required or self.config.get("head_dim") is not None:
            return self.number("head_dim")
        if hidden % heads:
            raise UsageError(f"{self.path}: hidden_size {hidden} does not divide by {heads} heads. Add head_dim.")
        return hidden // heads

    def latent(self) -> LatentAttention:
        return LatentAttention(
            kv_lora_rank=self.number("kv_lora_rank"),
            q_lora_rank=self.number("q_lora_rank", 0, least=0),
            rope_dim=self.number("qk_rope_head_dim"),
            nope_dim=self.number("qk_nope_head_dim"),
            v_dim=self.number("v_head_dim"),
        )

    def widths(self, hidden: int, experts: int, expert_width: int, without_experts: int) -> tuple[int, int]:
        """(feed-forward width of the layers without experts, width of the shared experts in the others)."""
        if not experts:
            default = 4 * hidden if self.aliases.get("intermediate_size") == "n_inner" else None
            return self.number("intermediate_size", default), 0
        dense_key = "intermediate_size_mlp" if self.family.local == "chunked" else "intermediate_size"
        copies = self.number("n_shared_experts", 0, least=0)
        shared = self.number("shared_expert_intermediate_size", copies * expert_width, least=0)
        if self.family.local == "chunked":
            shared = expert_width
        return (self.number(dense_key) if without_experts else 0), shared

    def max_model_len(self) -> int | None:
        """Longest request: max_position_embeddings, lengthened by rope scaling as the engine does."""
        length = self.number("max_position_embeddings", 0) or None
        scaling = self.config.get("rope_scaling") or self.config.get("rope_parameters")
        if scaling is not None and not isinstance(scaling, dict):
            raise UsageError(f"{self.path}: rope_scaling is {shown(scaling)}, not an object. Correct it.")
        if length is None or not scaling or not self.family.scale_context:
            return length
        kind = scaling.get("rope_type", scaling.get("type"))
        factor = scaling.get("factor")
        if kind not in ("yarn", "linear", "dynamic") or factor is None:
            return length
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < _LARGEST:
            raise UsageError(f"{self.path}: factor of rope_scaling is {shown(factor)}, not above 0. Correct it.")
        original = scaling.get("original_max_position_embeddings")
        return round((original if kind == "yarn" and isinstance(original, int) else length) * factor)

    def dtype(self) -> str:
        """Of the arithmetic; bfloat16 where the file says nothing."""
        stated = (part.get(key) for part in (self.config, self.whole) for key in ("torch_dtype", "dtype"))
        name = next((name for name in stated if name is not None), "bfloat16")
        if not isinstance(name, str) or name.removeprefix("torch.") not in _DTYPES:
            raise UsageError(
                f"{self.path}: torch_dtype is {shown(name)}, but one of {', '.join(_DTYPES)} is expected. Correct it."
            )
        return _DTYPES[name.removeprefix("torch.")]

    def quantization(self) -> str | None:
        """The format that quantization_config describes."""
        stored = self.whole.get("quantization_config", self.config.get("quantization_config"))
        if stored is None:
            return None
        if not isinstance(stored, dict):
            raise UsageError(f"{self.path}: quantization_config is {shown(stored)}, not an object. Correct it.")
        method = stored.get("quant_method")
        bits = stored.get("bits", 4 if stored.get("load_in_4bit") else None)
        if method == "compressed-tensors":
            groups = stored.get("config_groups")
            group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
            weights = group.get("weights") if isinstance(group, dict) else None
            if isinstance(weights, dict):
                bits, method = weights.get("num_bits"), "fp8" if weights.get("type") == "float" else "integer"
        known: dict[tuple[object, object], str] = {
            ("fp8", None): "fp8", ("fp8", 8): "fp8", ("integer", 8): "int8", ("integer", 4): "int4",
            ("awq", 4): "int4", ("gptq", 4): "int4", ("gptq", 8): "int8", ("bitsandbytes", 4): "bitsandbytes",
            ("mxfp4", None): "mxfp4",
        }  # fmt: skip
        found = known.get((str(method), bits)) if isinstance(bits, int | None) else None
        if found is None:
            raise UsageError(
                f"{self.path}: weights in {stored.get('quant_method')!r} with {bits} bits are not known. Known are "
                "fp8, int8 and int4 (compressed-tensors, awq, gptq), bitsandbytes of 4 bits, mxfp4."
            )
        return found
