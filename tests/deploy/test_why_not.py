"""
Why nothing is accepted, by what the box tells.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from mtpdeploy.core.machine import ModelFacts
from mtpdeploy.core.server import ServerSpec
from mtpdeploy.deploy.why_not import Evidence, gather, why_not
from tests.fakes.box import LocalBox

OWN = ServerSpec(name="s", flags={"model_path": "/m", "speculative_algorithm": "NEXTN"})
PAIRED = OWN.with_flags(speculative_algorithm="EAGLE3", speculative_draft_model_path="/d")
LEFT_OUT = "Parameter mtp.fc.weight_scale not found in params_dict, skip loading"


def model(*, has_mtp: bool | None = True, **config: Any) -> ModelFacts:
    """
    A checkpoint with this config.json.
    """
    return ModelFacts(path="/m", is_local=True, exists=True, config=json.dumps(config), has_mtp=has_mtp)


@pytest.mark.parametrize(
    ("server", "info", "evidence", "because", "remedy"),
    [
        (OWN, {"speculative_algorithm": None}, Evidence(model(has_mtp=False)), "not applied", "launch.sh"),
        (OWN, {}, Evidence(model(has_mtp=False)), "no tensors for the draft: nothing in /m", "take a"),
        (OWN, {}, Evidence(model(), left_out=(LEFT_OUT,)), "were not loaded: “Parameter mtp.fc", "35797"),
        (PAIRED, {}, Evidence(model(has_mtp=False, hidden_size=5120), model(hidden_size=4096)),
         "hidden_size is 4096, the model's 5120", "speculative_draft_model_path"),
        (PAIRED, {}, Evidence(model(text_config={"vocab_size": 9, "hidden_size": 5}), model(vocab_size=8)),
         "vocab_size is 8, the model's 9", "speculative_draft_model_path"),
        (PAIRED, {}, Evidence(model(hidden_size=5120), model(hidden_size=2048, target_hidden_size=5120)),
         "likely one of these", "Load weight end"),
        (OWN, {}, Evidence(model(quantization_config={"quant_method": "fp8"})), "quantised", "`unquant`"),
        (OWN.with_flags(quantization="fp8"), {}, Evidence(), "quantised", "`unquant`"),
        (OWN, {"speculative_algorithm": "EAGLE"}, Evidence(), "likely one of these", "Load weight end"),
        (OWN.with_flags(speculative_algorithm="NGRAM"), {}, Evidence(), "n-gram", "EAGLE"),
        (OWN, {}, Evidence(model(has_mtp=None)), "likely one of these", "Load weight end"),
        (OWN, {}, Evidence(ModelFacts("/m", is_local=True, exists=True, config="[1")), "likely", "Load"),
    ],
    ids=["flag", "no tensors", "left out", "pairing", "vocabulary", "a head that fits", "quantised", "flag 2",
         "nothing", "n-gram", "not known", "a broken config"],
)  # fmt: skip
def test_the_surest_reason_goes_first(
    server: ServerSpec, info: dict[str, Any], evidence: Evidence, because: str, remedy: str
) -> None:
    """
    Each has its sentence and something to do; a draft of its own needs no `mtp.` tensors.
    """
    reason = why_not(server, info, evidence)

    assert because in reason.because
    assert remedy in reason.remedy


def test_the_box_is_asked(tmp_path: Path) -> None:
    """
    The checkpoint's index, the draft's config, and the log's lines about tensors that were left out.
    """
    for name, keys in (("model", ["lm_head.weight"]), ("draft", ["fc.weight"])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"hidden_size": 1}))
        index = {"weight_map": dict.fromkeys(keys, "model.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    log = tmp_path / "attempt.log"
    other = "Parameter visual.x not found in params_dict"
    log.write_bytes(b"\xff\n" + f"ready\n[2026] {LEFT_OUT}\n{other}\n".encode())
    server = PAIRED.with_flags(
        model_path=str(tmp_path / "model"), speculative_draft_model_path=str(tmp_path / "draft")
    )
    with LocalBox(tmp_path) as box:
        found = gather(box, server, {}, str(log), "python3")

    assert found.model is not None
    assert found.draft is not None
    assert (False, '{"hidden_size": 1}') == (found.model.has_mtp, found.draft.config)
    assert (f"[2026] {LEFT_OUT}",) == found.left_out


def test_a_box_that_does_not_answer(tmp_path: Path) -> None:
    """
    No evidence is no error.
    """
    with LocalBox(tmp_path) as box:
        assert Evidence() == gather(box, OWN, {}, "", "/no/such/python")
