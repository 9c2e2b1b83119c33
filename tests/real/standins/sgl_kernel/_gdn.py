"""Pure-torch gated-delta-net pieces for the sgl_kernel test stub (own code, slow)."""

import torch
import torch.nn.functional as F


def _norm(x):
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def _delta(q, k, v, g, beta, S, l2, keep=None):
    """One sequence. q,k [T,H,K] v [T,HV,V] g,beta [T,HV]; S [HV,V,K] float, changed in place."""
    r = v.shape[1] // q.shape[1]
    q, k = (t.float().repeat_interleave(r, 1) for t in (q, k))
    if l2:
        q, k = _norm(q), _norm(k)
    q = q * q.shape[-1] ** -0.5
    v, out = v.float(), torch.empty(v.shape, dtype=torch.float32)
    for t in range(v.shape[0]):
        S *= g[t].float().exp()[:, None, None]
        d = beta[t].float()[:, None] * (v[t] - torch.einsum("hvk,hk->hv", S, k[t]))
        S += d[:, :, None] * k[t][:, None, :]
        out[t] = torch.einsum("hvk,hk->hv", S, q[t])
        if keep is not None:
            keep[t] = S.to(keep.dtype)
    return out


def _gates(A_log, a, b, dt_bias):
    g = -A_log.float().exp() * F.softplus(a.float() + dt_bias.float())
    return g, torch.sigmoid(b.float())


def fused_gdn_gating_cpu(A_log, a, b, dt_bias):
    g, beta = _gates(A_log, a, b, dt_bias)
    return g.unsqueeze(0), beta.to(b.dtype).unsqueeze(0)


def chunk_gated_delta_rule_cpu(
    q,
    k,
    v,
    g,
    beta,
    initial_state,
    cu_seqlens,
    head_first=False,
    use_qk_l2norm_in_kernel=True,
    initial_state_indices=None,
):
    out, cu = torch.zeros_like(v), cu_seqlens.tolist()
    for i, slot in enumerate(initial_state_indices.tolist()):
        s, e = cu[i], cu[i + 1]
        if slot < 0 or s == e:
            continue
        S = initial_state[slot].float()
        out[0, s:e] = _delta(
            q[0, s:e], k[0, s:e], v[0, s:e], g[0, s:e], beta[0, s:e], S, use_qk_l2norm_in_kernel
        ).to(v.dtype)
        initial_state[slot] = S.to(initial_state.dtype)
    return out, None, None


def fused_sigmoid_gating_delta_rule_update_cpu(
    A_log,
    dt_bias,
    q,
    k,
    v,
    a,
    b,
    initial_state_source,
    initial_state_indices,
    cu_seqlens,
    use_qk_l2norm_in_kernel=True,
    softplus_beta=1.0,
    softplus_threshold=20.0,
    is_kda=False,
    disable_state_update=False,
    intermediate_states_buffer=None,
    intermediate_state_indices=None,
    cache_steps=None,
    retrieve_parent_token=None,
):
    g, beta = _gates(A_log, a, b, dt_bias)
    out, cu = torch.zeros_like(v), cu_seqlens.tolist()
    for i, slot in enumerate(initial_state_indices.tolist()):
        s, e = cu[i], cu[i + 1]
        if slot < 0 or s == e:
            continue
        S = initial_state_source[slot].float()
        keep = None
        if intermediate_states_buffer is not None:
            keep = intermediate_states_buffer[int(intermediate_state_indices[i])]
        out[0, s:e] = _delta(
            q[0, s:e], k[0, s:e], v[0, s:e], g[s:e], beta[s:e], S, use_qk_l2norm_in_kernel, keep
        ).to(v.dtype)
        if not disable_state_update:
            initial_state_source[slot] = S.to(initial_state_source.dtype)
    return out


def _conv(win, w, bias, silu):
    """win [D,K-1+T] -> [D,T]"""
    y = F.conv1d(
        win.float()[None], w.float()[:, None, :], None if bias is None else bias.float(), groups=w.shape[0]
    )[0]
    return F.silu(y) if silu else y


def causal_conv1d_fn_cpu(
    x, w, bias, activation, conv_states, has_initial_state, cache_indices, query_start_loc, seq_lens_cpu=None
):
    out, cu, K = torch.zeros_like(x), query_start_loc.tolist(), w.shape[1]
    for i, slot in enumerate(cache_indices.tolist()):
        s, e = cu[i], cu[i + 1]
        if slot < 0 or s == e:
            continue
        old = conv_states[slot][:, -(K - 1) :]
        if not bool(has_initial_state[i]):
            old = torch.zeros_like(old)
        win = torch.cat([old.to(x.dtype), x[:, s:e]], 1)
        out[:, s:e] = _conv(win, w, bias, activation in ("silu", "swish", True)).to(x.dtype)
        conv_states[slot][:, -(K - 1) :] = win[:, -(K - 1) :].to(conv_states.dtype)
    return out


def causal_conv1d_update_cpu(
    x,
    conv_states,
    w,
    bias,
    activation,
    conv_state_indices=None,
    intermediate_conv_window=None,
    intermediate_state_indices=None,
    **kw,
):
    K, xs = w.shape[1], x if x.dim() == 3 else x.unsqueeze(-1)
    out = torch.zeros_like(xs)
    for i, slot in enumerate(conv_state_indices.tolist()):
        if slot < 0:
            continue
        win = torch.cat([conv_states[slot][:, -(K - 1) :].to(x.dtype), xs[i]], 1)
        out[i] = _conv(win, w, bias, activation in ("silu", "swish", True)).to(x.dtype)
        if intermediate_conv_window is not None:
            dst = intermediate_conv_window[int(intermediate_state_indices[i])]
            for t in range(xs.shape[2]):
                dst[t] = win[:, t + 1 : t + K].to(dst.dtype)
        else:
            conv_states[slot][:, -(K - 1) :] = win[:, -(K - 1) :].to(conv_states.dtype)
    return out if x.dim() == 3 else out.squeeze(-1)


def fused_sigmoid_mul_cpu(x, gate):
    x.mul_(torch.sigmoid(gate.reshape(x.shape).float()).to(x.dtype))


def _gemma(x, w, eps):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + eps) * (1 + w.float())).to(x.dtype)


def fused_qk_gemma_rmsnorm_cpu(q, k, qw, kw, eps, head_dim):
    return _gemma(q.reshape(-1, head_dim), qw, eps), _gemma(k.reshape(-1, head_dim), kw, eps)


def fused_qk_gemma_rmsnorm_with_gate_cpu(q_gate, k, qw, kw, eps, head_dim, num_heads):
    qg = q_gate.reshape(q_gate.shape[0], num_heads, 2 * head_dim)
    q, gate = qg.split(head_dim, -1)
    return _gemma(q, qw, eps), _gemma(k.reshape(-1, head_dim), kw, eps), gate.contiguous()


def fused_qkvzba_split_reshape_cat_contiguous_cpu(qkvz, ba, nqk, nv, dqk, dv):
    qkv = 2 * nqk * dqk + nv * dv
    b, a = ba.split(nv, -1)
    return (
        qkvz[:, :qkv].contiguous(),
        qkvz[:, qkv:].reshape(-1, nv, dv).contiguous(),
        b.contiguous(),
        a.contiguous(),
    )


def rmsnorm_gated_forward(self, x, z=None):
    """Replaces the Triton-only RMSNorm.forward of sglang's layernorm_gated."""
    f = x.float()
    f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()
    if z is not None:
        g = z.float().reshape(f.shape)
        f = f * (torch.sigmoid(g) if self.activation == "sigmoid" else F.silu(g))
    return f.to(x.dtype)
