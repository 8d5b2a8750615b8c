# SPDX-License-Identifier: Apache-2.0
"""octavo-eval: statistics, names of variants, interrupted runs, and both ways to run one small random model."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="the extra octavo[eval] is not installed")
pytest.importorskip("tokenizers", reason="the extra octavo[eval] is not installed")
from octavo_support import octavo  # noqa: E402

from octavo.eval import __main__ as command  # noqa: E402
from octavo.eval import gguf_model, runners, statistics, stress, variants  # noqa: E402

TEXT = "the quick brown fox jumps over the lazy dog. " * 60


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def write_model(path, pre="smollm", extra=()):
    """A random Llama: 2 layers, 4 query and 2 key/value heads of 32 channels; one token a byte."""
    random = np.random.default_rng(0)
    hidden, inner, heads, kv_heads, d = 128, 256, 4, 2, 32
    alphabet = sorted(gguf_alphabet())
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("tiny")
    out.add_block_count(2)
    out.add_context_length(512)
    out.add_embedding_length(hidden)
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_rope_dimension_count(d)
    out.add_rope_freq_base(50.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_tokenizer_pre(pre)
    out.add_token_list(alphabet)
    out.add_token_merges(["t h"])

    def tensor(name, *shape):
        out.add_tensor(name, (random.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))

    tensor("token_embd.weight", len(alphabet), hidden)
    for i in range(2):
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{i}.{name}.weight", np.ones(hidden, np.float32))
        tensor(f"blk.{i}.attn_q.weight", heads * d, hidden)
        tensor(f"blk.{i}.attn_k.weight", kv_heads * d, hidden)
        tensor(f"blk.{i}.attn_v.weight", kv_heads * d, hidden)
        tensor(f"blk.{i}.attn_output.weight", hidden, heads * d)
        tensor(f"blk.{i}.ffn_gate.weight", inner, hidden)
        tensor(f"blk.{i}.ffn_up.weight", inner, hidden)
        tensor(f"blk.{i}.ffn_down.weight", hidden, inner)
    out.add_tensor("output_norm.weight", np.full(hidden, 3, np.float32))
    for name in extra:
        tensor(name, len(alphabet), hidden)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def gguf_alphabet():
    from tokenizers import pre_tokenizers

    return [*pre_tokenizers.ByteLevel.alphabet(), "th"]


def test_a_shift_of_every_loss_is_the_difference():
    base = np.random.default_rng(0).random((4, 200)).astype(np.float32)
    row = statistics.compare("x", base + np.float32(0.01), base)
    assert row.tokens == 800 and row.perplexity == pytest.approx(np.exp(base.mean() + 0.01), rel=1e-5)
    for percent in (row.delta_percent, row.low_percent, row.high_percent):
        assert percent == pytest.approx(100 * np.expm1(0.01), rel=1e-3)


def test_the_interval_covers_the_mean_in_about_19_of_20_draws():
    random, inside = np.random.default_rng(1), 0
    for _ in range(200):
        difference = random.normal(0.001, 0.02, (8, 256)).astype(np.float32)
        row = statistics.compare("x", difference, np.zeros_like(difference))
        inside += row.low_percent < 0.1 < row.high_percent
    assert 175 <= inside <= 198


def test_correlated_neighbours_widen_the_interval():
    random = np.random.default_rng(2)
    alone = random.normal(0, 0.02, (8, 256)).astype(np.float32)
    together = np.repeat(random.normal(0, 0.02, (8, 16)), 16, axis=1).astype(np.float32)
    widths = [r.high_percent - r.low_percent for r in (statistics.compare("x", x, x * 0) for x in (alone, together))]
    assert widths[1] > 2.5 * widths[0]


def test_names_of_variants():
    assert variants.parse("bf16") == variants.SixteenBit()
    assert variants.parse("precision=bf16") == variants.Octavo("precision=bf16", {"precision": "bf16"})
    direct = variants.parse("block+rotate softmax=direct promote=none")
    assert direct.arguments == {
        "recipe": "block+rotate", "softmax": "direct", "accumulator": "hopper", "promote_every": 0,
    }  # fmt: skip
    only = variants.parse("imitate only=qk qk=int8 smooth=0")
    assert only.rounded == {"q", "k"} and only.qk == "int8" and only.rotate and not only.smooth
    assert variants.parse("imitate pv=none").rounded == {"q", "k"}


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("fp7", "begins with 'fp7'; must be bf16, precision=bf16, imitate or one of"),
        ("", "begins with ''"),
        ("precision=fp16", "begins with 'precision=fp16'; must be bf16, precision=bf16, "),
        ("precision=bf16 softmax=direct", "has softmax, which precision=bf16 does not know"),
        ("default direct", "has 'direct'; must be KEY=VALUE"),
        ("default speed=1", "has speed, which default does not know"),
        ("default+foo", "variant 'default\\+foo': .*recipe"),
        ("strict_causal softmax=direct", "variant 'strict_causal softmax=direct': "),
        ("default softmax=dirct", "has softmax=dirct; must be one of exact, direct"),
        ("default promote=x", "has promote=x; must be none or a number of key tiles"),
        ("default acc=fp32 acc=hopper", "has an option twice"),
        ("imitate only=x", "has only=x; must be letters of q, k, p and v"),
        ("imitate qk=int4", "has qk=int4; must be one of e4m3, int8, none"),
    ],
)
def test_wrong_names_are_refused(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        variants.parse(name)


class Counting:
    """A runner whose losses are known, and which stops at a call."""

    description, context = "counting", 100

    def __init__(self, stop_at=None, identity="a model"):
        self.calls, self.stop_at, self.identity = [], stop_at, identity

    def losses(self, ids, variant):
        if len(self.calls) == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append((ids[0], variant.name))
        return np.full(len(ids) - 1, 0.5 if variant.name == "bf16" else 0.6)


def test_a_stopped_run_goes_on(tmp_path):
    names, ids = ["bf16", "default"], list(range(75))
    with pytest.raises(KeyboardInterrupt):
        command.evaluate(Counting(stop_at=5), names, ids, 20, "auto", tmp_path)
    second = Counting()
    rows = command.evaluate(second, names, ids, 20, "auto", tmp_path)
    assert second.calls == [(40, "default")]  # three windows a variant; 75 - 60 tokens are left over
    assert rows[1].delta_percent == pytest.approx(100 * np.expm1(0.1), rel=1e-4) and rows[0].delta_percent == 0
    other_text = Counting()
    command.evaluate(other_text, names, ids[::-1], 20, "auto", tmp_path)
    other_model = Counting(identity="another")
    command.evaluate(other_model, names, ids, 20, "auto", tmp_path)
    assert len(other_text.calls) == len(other_model.calls) == 6
    again = Counting()
    command.evaluate(again, names, ids, 20, "auto", tmp_path)
    assert not again.calls


def test_losses_that_are_not_finite_are_refused(tmp_path):
    runner = Counting()
    runner.losses = lambda ids, variant: np.full(len(ids) - 1, np.nan)
    with pytest.raises(ValueError, match="window 0 has losses that are not finite"):
        command.evaluate(runner, ["bf16"], list(range(40)), 20, "auto", tmp_path)


def test_the_model_in_numpy(model_file):
    runner = runners.Numpy(gguf_model.Model(model_file), "emulate", "tiny")
    ids = runner.encode(TEXT)[:200]
    assert "th" in TEXT and len(runner.encode("the")) == 2
    exact = gguf_model.token_losses(gguf_model.Model(model_file).forward(ids), ids)
    sixteen, own, fp8 = (runner.losses(ids, variants.parse(name)) for name in ("bf16", "precision=bf16", "default"))
    assert 0 < np.abs(sixteen - exact).max() < 0.05
    assert np.abs(sixteen - exact).mean() < np.abs(fp8 - exact).mean() < 0.3
    assert 0 < np.abs(own - sixteen).mean() < 0.5 * np.abs(fp8 - sixteen).mean()
    with pytest.raises(ValueError, match="'imitate only=q' needs torch"):
        runner.losses(ids, variants.parse("imitate only=q"))


def test_models_that_would_be_read_wrongly_are_refused(tmp_path):
    with pytest.raises(ValueError, match="tokenizer.ggml.pre is 'llama-bpe'; must be 'smollm'"):
        gguf_model.Model(write_model(tmp_path / "a.gguf", pre="llama-bpe"))
    with pytest.raises(ValueError, match=r"tensors \['output.weight', "):
        gguf_model.Model(write_model(tmp_path / "b.gguf", extra=["output.weight"]))


def test_the_model_in_torch_is_that_in_numpy(model_file):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    runner = runners.load(str(model_file), "auto")
    assert isinstance(runner, runners.Torch)
    ids = runner.encode(TEXT)[:200]
    want = gguf_model.token_losses(gguf_model.Model(model_file).forward(ids), ids)
    got = {name: runner.losses(ids, variants.parse(name)) for name in ("bf16", "precision=bf16", "fp8", "imitate", "imitate only=v")}
    other = gguf_model.Model(model_file)
    other.theta = 10000.0
    wrong = gguf_model.token_losses(other.forward(ids), ids)
    assert np.abs(got["bf16"] - want).mean() < 0.1 < np.abs(got["bf16"] - wrong).mean()  # linear layers are in BF16
    assert len({x.tobytes() for x in got.values()}) == 5
    assert torch.is_grad_enabled()
    single = runners.load(str(model_file), "auto", "float32")
    numpy_runner = runners.Numpy(gguf_model.Model(model_file), "auto", "tiny")
    for name in ("bf16", "default"):  # attention's operands are rounded to BF16 or INT8 in all three
        variant = variants.parse(name)
        in_bf16, in_fp32, in_numpy = (x.losses(ids, variant) for x in (runner, single, numpy_runner))
        assert np.abs(in_fp32 - in_numpy).mean() < 0.25 * np.abs(in_bf16 - in_numpy).mean()
    assert single.identity != runner.identity


def test_an_imitation_has_the_error_of_the_library():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from octavo.eval import imitation

    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((1, h, 300, 64)).astype(np.float32) for h in (4, 2, 2))
    exact = octavo.attention(q, k, v, layout="bhsd", causal=True, engine="reference")

    def error(name):
        found = imitation.attention(variants.parse(name), *map(torch.from_numpy, (q, k, v)), 64**-0.5).numpy()
        return np.linalg.norm(found - exact) / np.linalg.norm(exact)

    for recipe, imitated in (("fp8", "imitate"), ("default", "imitate qk=int8")):
        library = octavo.attention(q, k, v, layout="bhsd", causal=True, recipe=recipe)
        want = np.linalg.norm(library - exact) / np.linalg.norm(exact)
        assert error(imitated) == pytest.approx(want, rel=0.1)
    assert error("imitate qk=none pv=none") < 1e-5
    assert error("imitate only=qk qk=int8") < 0.5 * error("imitate only=qk")
    for stage in "qkpv":
        assert 1e-3 < error(f"imitate only={stage}") < error("imitate")


def test_data_made_to_break_fp8():
    for case in stress.CASES:
        q, k, v = stress.operands(case, 256)
        assert q.shape == (1, 256, 8, 128) and k.shape == v.shape == (1, 256, 2, 128)
        assert all(np.array_equal(x, y) for x, y in zip(stress.operands(case, 256), (q, k, v), strict=True))
    assert stress.error("bias", 256, recipe="block") > 4 * stress.error("bias", 256, recipe="default")
    q, k, v = stress.operands("sink", 256)
    weight = np.exp(np.einsum("qhd,hd->hq", q[0, -64:, :4], k[0, 0, :1].repeat(4, 0)) / 128**0.5)
    others = np.exp(np.einsum("qhd,kd->hqk", q[0, -64:, :4], k[0, 1:, 0]) / 128**0.5).sum(-1)
    assert 0.1 < np.median(weight / (weight + others)) < 0.9
    with pytest.raises(ValueError, match="case is 'x'; must be one of plain, bias"):
        stress.operands("x")


def test_the_command(model_file, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    call = [sys.executable, "-m", "octavo.eval", "--model", str(model_file), "--text", str(text)]
    environment = {"PYTHONPATH": str(Path(octavo.__file__).parent.parent), "CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    done = subprocess.run(
        [*call, "--context", "64", "--tokens", "200", "--json", str(tmp_path / "out.json"), "bf16", "block"],
        capture_output=True, text=True, env=environment, check=True, timeout=300,
    )  # fmt: skip
    facts = json.loads((tmp_path / "out.json").read_text())
    assert [r["variant"] for r in facts["rows"]] == ["bf16", "block"] and facts["rows"][0]["tokens"] == 3 * 63
    assert "block" in done.stdout and "95 %" in done.stdout
    wrong = subprocess.run([*call, "--context", "4096"], capture_output=True, text=True, env=environment, timeout=300)
    assert wrong.returncode == 1 and "--context is 4096; must be from 2 to 512" in wrong.stderr
