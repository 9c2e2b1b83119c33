"""Patches applied in every sglang process through the entry point group sglang.srt.plugins."""

import sys

import torch

from sgl_kernel import _gdn


def apply():
    from sglang.kernels.ops.attention.fla import fused_norm_gate, layernorm_gated

    fused_norm_gate.FusedRMSNormGated.forward = _gdn.rmsnorm_gated_forward
    layernorm_gated.RMSNorm.forward = _gdn.rmsnorm_gated_forward

    # shared-expert gate: Triton only
    from sglang.kernels.ops.elementwise import elementwise

    def gate_mul_add(h, w, shared, final):
        final += torch.sigmoid(h.float() @ w.float().reshape(-1, 1)).to(final.dtype) * shared

    elementwise.fused_gate_sigmoid_mul_add = gate_mul_add
    m = sys.modules.get("sglang.srt.models.qwen2_moe")
    if m:
        m.fused_gate_sigmoid_mul_add = gate_mul_add

    # MTP on hybrid models: commit the accepted step's conv and ssm states
    def scatter(caches, idx, steps, track_idx, track_steps, src_indices_raw=None):
        rows = src_indices_raw
        for dst, src in [
            (caches.temporal, caches.intermediate_ssm),
            *zip(caches.conv, caches.intermediate_conv_window),
        ]:
            for ii, ss in ((idx, steps), (track_idx, track_steps)):
                if ii is None or dst.numel() == 0:
                    continue
                for i, (d, st) in enumerate(zip(ii.tolist(), ss.tolist())):
                    if st >= 0 and d >= 0:
                        dst[:, d] = src[:, int(rows[i]) if rows is not None else i, st].to(dst.dtype)

    from sglang.srt.layers.attention import hybrid_linear_attn_backend

    hybrid_linear_attn_backend.scatter_mamba_states_after_mtp_verify = scatter

    # EAGLE/NEXTN (topk 1) on the torch_native attention backend
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.speculative.draft_utils import DraftBackendFactory

    class lens:  # change length fields for one call
        def __init__(self, fb, **new):
            self.fb, self.new = fb, new

        def __enter__(self):
            self.old = {k: getattr(self.fb, k, None) for k in self.new}
            for k, v in self.new.items():
                setattr(self.fb, k, v)

        def __exit__(self, *a):
            for k, v in self.old.items():
                setattr(self.fb, k, v)

    class Step(TorchNativeAttnBackend):
        def __init__(self, runner, step):
            super().__init__(runner)
            self.step = step

        def forward_decode(self, q, k, v, layer, fb, save_kv_cache=True, **kw):
            with lens(fb, seq_lens=fb.seq_lens + self.step + 1):
                return super().forward_decode(q, k, v, layer, fb, save_kv_cache)

    class MultiStep:
        def __init__(self, runner, topk, steps):
            assert topk == 1, "stub: topk 1 only"
            self.attn_backends = [Step(runner, i) for i in range(steps - 1)]

        def init_forward_metadata(self, fb):
            for b in self.attn_backends:
                b.init_forward_metadata(fb)

    plain_extend = TorchNativeAttnBackend.forward_extend

    def forward_extend(self, q, k, v, layer, fb, save_kv_cache=True, **kw):
        if fb.forward_mode.is_target_verify():
            n = q.shape[0] // fb.seq_lens.shape[0]
            with lens(
                fb,
                seq_lens=fb.seq_lens + n,
                extend_prefix_lens=fb.seq_lens,
                extend_seq_lens=torch.full_like(fb.seq_lens, n),
            ):
                return plain_extend(self, q, k, v, layer, fb, save_kv_cache)
        return plain_extend(self, q, k, v, layer, fb, save_kv_cache)

    TorchNativeAttnBackend.forward_extend = forward_extend

    plain_create = DraftBackendFactory._create_backend

    def create(self, backend_name, backend_map, *a, **k):
        r, t, n = self.draft_model_runner, self.topk, self.speculative_num_steps
        backend_map.setdefault(
            "torch_native",
            lambda: (
                "torch_native",
                MultiStep(r, t, n)
                if backend_name == "decode_attention_backend"
                else TorchNativeAttnBackend(r),
            ),
        )
        return plain_create(self, backend_name, backend_map, *a, **k)

    DraftBackendFactory._create_backend = create
