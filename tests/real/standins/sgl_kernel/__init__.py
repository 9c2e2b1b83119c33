"""Test-tier stand-in for the sgl_kernel package: pure torch, CPU only, slow, own code.

Only what sglang's CPU path without AMX calls is implemented; every other name
resolves to a function that raises NotImplementedError when *called*.
torch.ops.sgl_kernel.convert_weight_packed must stay undefined: its absence is
what makes sglang choose torch_native attention and pure-torch layers.
"""

import sys
import types

import torch

__version__ = "0.0.0+teststub"
_ops = torch.ops.sgl_kernel  # an attribute bag; plain functions may be set on it


def _missing(name):
    def f(*a, **k):
        raise NotImplementedError("sgl_kernel test stub: %s is not implemented" % name)

    f.__name__ = name
    return f


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)


# ---- kv pool bookkeeping ---------------------------------------------------
def assign_req_to_token_pool_cpu(rows, req_to_token, start, end, locs, pool_len):
    p = 0
    for r, s, e in zip(rows.tolist(), start.tolist(), end.tolist()):
        req_to_token[r, s:e] = locs[p : p + e - s].to(req_to_token.dtype)
        p += e - s


def assign_extend_cache_locs_cpu(rows, req_to_token, start, end, out, pool_len):
    p = 0
    for r, s, e in zip(rows.tolist(), start.tolist(), end.tolist()):
        out[p : p + e - s] = req_to_token[r, s:e].to(out.dtype)
        p += e - s


def assign_draft_cache_locs_contiguous_cpu(rows, req_to_token, seq_lens, out, pool_len, topk, steps):
    n = topk * steps
    for i, (r, s) in enumerate(zip(rows.tolist(), seq_lens.tolist())):
        out.view(-1)[i * n : (i + 1) * n] = req_to_token[r, s : s + n].to(out.dtype)


def copy_all_layer_kv_cache_cpu(ptrs, strides, tgt, src):
    import ctypes

    t, s = tgt.tolist(), src.tolist()
    for base, st in zip(ptrs.tolist(), strides.tolist()):
        rows = [ctypes.string_at(base + i * st, st) for i in s]
        for i, b in zip(t, rows):
            ctypes.memmove(base + i * st, b, st)


# ---- speculative decoding --------------------------------------------------
def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus, stride):
    flat = accept_tokens.view(-1)
    for i, n in enumerate(accept_lens.tolist()):
        bonus[i] = flat[i * stride + n - 1]


def fill_accept_out_cache_loc_cpu(accept_index, locs, out):
    keep = accept_index.view(-1)
    keep = keep[keep > -1].long()
    out[: keep.numel()] = locs[keep]


def rotate_input_ids_cpu(ids, start, lens, topk_index, select_index=None):
    new = topk_index.view(-1).tolist()
    for i, (s, n) in enumerate(zip(start.tolist(), lens.tolist())):
        ids[s : s + n - 1] = ids[s + 1 : s + n].clone()
        ids[int(select_index[i]) if select_index is not None else s + n - 1] = new[i]


def build_tree_kernel_efficient_cpu(
    parent_list, selected, seq_lens, mask, positions, r_index, r_next, r_sib, topk, depth, n, mode
):
    bs = seq_lens.numel()
    parents = parent_list.reshape(bs, -1).tolist() if parent_list.numel() else [[]] * bs
    sel = selected.reshape(bs, -1).tolist()
    flat, off = mask.view(-1), 0
    ri, rn, rs, pos = (t.view(bs, n) for t in (r_index, r_next, r_sib, positions))
    for b, L in enumerate(seq_lens.tolist()):
        par = [-1] * n  # tree parent of each draft node; node 0 is the root
        for i in range(1, n):
            g = sel[b][i - 1] // topk
            par[i] = 0 if g == 0 else (sel[b].index(parents[b][g]) + 1 if parents[b][g] in sel[b] else 0)
        nxt, sib = [-1] * n, [-1] * n
        for i in range(n - 1, 0, -1):
            sib[i], nxt[par[i]] = nxt[par[i]], i
        rows = torch.zeros(n, n, dtype=torch.bool)
        for i in range(n):
            d, j = 0, i
            while j > 0:
                rows[i, j] = True
                j, d = par[j], d + 1
            rows[i, 0] = True
            pos[b, i] = L + d
        ri[b] = torch.arange(b * n, (b + 1) * n)
        rn[b], rs[b] = torch.tensor(nxt), torch.tensor(sib)
        width = n + (L if mode == 0 else 0)  # FULL_MASK has the prefix too (all visible)
        full = flat[off : off + n * width].view(n, width)
        full[:, : width - n] = True
        full[:, width - n :] = rows
        off += n * width


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    bs, n = candidates.shape
    tp = target_predict.view(-1)
    for b in range(bs):
        last, cur, cnt = int(retrive_index[b, 0]), 0, 0
        accept_index[b, 0] = last
        for _ in range(1, accept_index.shape[1]):
            cur = int(retrive_next_token[b, cur])
            while cur != -1 and int(candidates[b, cur]) != int(tp[last]):
                cur = int(retrive_next_sibling[b, cur])
            if cur == -1:
                break
            predicts[last] = tp[last]
            cnt += 1
            last = int(retrive_index[b, cur])
            accept_index[b, cnt] = last
        accept_token_num[b] = cnt
        predicts[last] = tp[last]


def reconstruct_indices_from_tree_mask(mask, seq_lens, positions, r_index, r_next, r_sib, bs, n):
    m = mask.view(bs, n, n).bool()
    pos, ri, rn, rs = (t.view(bs, n) for t in (positions, r_index, r_next, r_sib))
    for b in range(bs):
        anc = [[j for j in range(i) if m[b, i, j]] for i in range(n)]
        par = [max(a) if a else -1 for a in anc]
        for i in range(n):
            pos[b, i] = len(anc[i]) + int(seq_lens[b])
            ri[b, i] = b * n + i
            rn[b, i] = min((k for k in range(i + 1, n) if i in anc[k]), default=-1)
            rs[b, i] = min((k for k in range(i + 1, n) if par[i] >= 0 and par[k] == par[i]), default=-1)


# ---- submodules ------------------------------------------------------------
def _sub(name, **names):
    m = types.ModuleType(__name__ + "." + name)
    m.__dict__.update(names)
    m.__getattr__ = __getattr__
    sys.modules[m.__name__] = m
    return m


for _n in (
    "flash_attn",
    "utils",
    "quantization",
    "kvcacheio",
    "speculative",
    "mamba",
    "moe",
    "elementwise",
    "gemm",
    "sampling",
    "top_k",
):  # no scalar_type: sglang has its own fallback
    globals()[_n] = _sub(_n)
speculative.reconstruct_indices_from_tree_mask = reconstruct_indices_from_tree_mask
kvcacheio.copy_all_layer_kv_cache_cpu = copy_all_layer_kv_cache_cpu

import importlib

_gdn = importlib.import_module("sgl_kernel._gdn")

for _n, _f in vars(_gdn).items():
    if _n.endswith("_cpu"):
        globals()[_n] = _f
        setattr(mamba, _n, _f)
        if not hasattr(_ops, _n):
            setattr(_ops, _n, _f)
setattr(_ops, "fused_moe_router_cpu", _missing("fused_moe_router_cpu"))


def plugin():
    """Entry point 'sglang.srt.plugins': runs in every sglang process, after sglang is importable."""
    importlib.import_module("sgl_kernel._plugin").apply()
