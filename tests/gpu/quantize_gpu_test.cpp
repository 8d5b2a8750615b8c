// SPDX-License-Identifier: Apache-2.0
// The GPU quantiser against quantize() on the CPU: the same bytes and descales, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "core/half.h"
#include "core/kv_order.h"
#include "core/quant_block.h"
#include "gpu/captured_graph.h"
#include "gpu/device_memory.h"
#include "octavo/cuda.h"
#include "support/random.h"

namespace octavo::test {
namespace {

enum class Layout { bshd, bhsd, packed };
enum class Embedding { none, interleaved, half_split };

struct Call {
  std::int64_t b = 2, sq = 130, sk = 130, hq = 4, hkv = 2, d = 64, dv = 64;
  DType dtype = DType::bf16;
  Layout layout = Layout::bshd;
  Embedding rope = Embedding::none;
  std::int64_t half = 0;  // pairs of channels of the embedding; 0: all, in units of 8
  Recipe recipe = Recipe::standard();
  std::vector<std::int64_t> lengths;

  std::string line() const {
    static constexpr const char* kLayouts[] = {"bshd", "bhsd", "packed"};
    static constexpr const char* kRopes[] = {"none", "interleaved", "half_split"};
    return "b" + std::to_string(b) + " sq" + std::to_string(sq) + " sk" + std::to_string(sk) +
           " hq" + std::to_string(hq) + " hkv" + std::to_string(hkv) + " d" + std::to_string(d) +
           " dv" + std::to_string(dv) + " " + dtype_name(dtype) + " " +
           kLayouts[static_cast<int>(layout)] + " rope=" + kRopes[static_cast<int>(rope)] + " " +
           recipe_name(recipe);
  }
};

std::int64_t up(std::int64_t x, std::int64_t unit) { return ceil_div(x, unit) * unit; }

/// Host bytes of q, k and v in one allocation, and views of the same layout on host and device.
class Operands {
 public:
  Operands(const Call& n, std::uint64_t seed) : dtype_(n.dtype) {
    const std::int64_t row =
        n.layout == Layout::packed ? (n.hq + n.hkv) * n.d + n.hkv * n.dv + 8 : 0;
    std::int64_t q_at = 0, k_at = 0, v_at = 0, total = 0;
    if (n.layout == Layout::packed) {  // [b, max(sq, sk), slices of q, k and v, 8 of padding]
      k_at = n.hq * n.d;
      v_at = k_at + n.hkv * n.d;
      total = n.b * std::max(n.sq, n.sk) * row;
    } else {
      k_at = up(n.b * n.sq * n.hq * n.d, 64);
      v_at = k_at + up(n.b * n.sk * n.hkv * n.d, 64);
      total = v_at + n.b * n.sk * n.hkv * n.dv;
    }
    fill(total, seed);
    q = view(n, q_at, n.sq, n.hq, n.d, row);
    k = view(n, k_at, n.sk, n.hkv, n.d, row);
    v = view(n, v_at, n.sk, n.hkv, n.dv, row);
  }

  TensorView on_host(const TensorView& at) { return moved(at, bytes_.data(), {}); }
  TensorView on_device(const TensorView& at, void* base) const {
    return moved(at, static_cast<std::uint8_t*>(base), {Device::Kind::cuda, 0});
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }
  void set(std::int64_t element, float x) { store(element, x); }

  TensorView q, k, v;  // data is the offset in elements

 private:
  TensorView view(const Call& n, std::int64_t offset, std::int64_t s, std::int64_t h,
                  std::int64_t d, std::int64_t row) const {
    TensorView x = n.layout == Layout::bhsd
                       ? transposed(contiguous(nullptr, n.dtype, {n.b, h, s, d}), 1, 2)
                       : contiguous(nullptr, n.dtype, {n.b, s, h, d});
    if (n.layout == Layout::packed) {
      x.stride[1] = row;
      x.stride[0] = row * std::max(n.sq, n.sk);
      x.stride[2] = d;
    }
    x.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(offset) + 1);  // never null
    return x;
  }
  TensorView moved(TensorView x, std::uint8_t* base, Device device) const {
    const auto offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.data) - 1);
    x.data = base + offset * static_cast<std::int64_t>(size_of(dtype_));
    x.device = device;
    return x;
  }
  void fill(std::int64_t total, std::uint64_t seed) {
    bytes_.resize(static_cast<std::size_t>(total) * size_of(dtype_));
    Random random(seed);
    for (std::int64_t i = 0; i < total; ++i) {
      store(i, static_cast<float>(random.uniform() * 8 - 4) * (random.chance(0.01) ? 30.0f : 1.0f));
    }
  }
  void store(std::int64_t i, float x) {
    if (dtype_ == DType::f32) {
      std::memcpy(bytes_.data() + 4 * i, &x, 4);
    } else {
      const std::uint16_t bits = dtype_ == DType::bf16 ? float_to_bf16(x) : float_to_f16(x);
      std::memcpy(bytes_.data() + 2 * i, &bits, 2);
    }
  }

  DType dtype_;
  std::vector<std::uint8_t> bytes_;
};

/// cos and sin for `positions` positions of half pairs.
struct Tables {
  Tables(std::int64_t positions_, std::int64_t half_) : positions(positions_), half(half_) {
    Random random(77);
    for (std::int64_t i = 0; i < positions * half; ++i) {
      const double angle = random.uniform() * 6.28;
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  Rope rope(RopeStyle style, void* cos_at, void* sin_at, Device device) const {
    return {contiguous(cos_at, DType::f32, {positions, half}, device),
            contiguous(sin_at, DType::f32, {positions, half}, device), style, 3, 5};
  }
  std::int64_t positions, half;
  std::vector<float> cos, sin;
};

/// Codes of a device operand as the CPU's row-major ones; padding must be code 0.
std::vector<std::uint8_t> row_major(const DeviceOperand& x, const QuantizedTensor& like,
                                    bool is_v) {
  const std::vector<std::uint8_t> codes = download(x.codes, x.code_bytes());
  std::vector<std::uint8_t> out(like.codes.size(), 0xee);
  for (std::int64_t i = 0; i < x.code_bytes(); ++i) {
    const std::int64_t head = i / (x.padded_rows * x.padded_d),
                       at = i % (x.padded_rows * x.padded_d);
    const std::int64_t row = is_v ? key_at_position(at % x.padded_rows) : at / x.padded_d;
    const std::int64_t c = is_v ? at / x.padded_rows : at % x.padded_d;
    const std::uint8_t code = codes[static_cast<std::size_t>(i)];
    if (row >= x.rows || c >= like.shape[3]) {
      EXPECT_EQ(code, 0) << "padding at head " << head << " row " << row << " channel " << c;
      if (code != 0) return out;
      continue;
    }
    const std::int64_t to = ((head / x.h * x.rows + row) * x.h + head % x.h) * like.shape[3] + c;
    out[static_cast<std::size_t>(to)] = code;
  }
  return out;
}

/// Descales without those of padded rows.
std::vector<float> descales(const DeviceOperand& x) {
  std::vector<float> all = download(x.descale, x.descales());
  if (x.granularity != Granularity::token) return all;
  std::vector<float> out;
  for (std::int64_t i = 0; i < x.b * x.h * x.rows; ++i) {
    out.push_back(all[static_cast<std::size_t>(i / x.rows * x.padded_rows + i % x.rows)]);
  }
  return out;
}

/// The same bits; a NaN equals a NaN, since the sign of one is not defined.
template <typename T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (a != a && b != b);
}

template <typename T>
void expect_same(const std::vector<T>& gpu, const std::vector<T>& cpu, const char* what) {
  ASSERT_EQ(gpu.size(), cpu.size()) << what;
  if (gpu.empty() || std::memcmp(gpu.data(), cpu.data(), gpu.size() * sizeof(T)) == 0) return;
  std::size_t first = gpu.size(), wrong = 0;
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    if (same(gpu[i], cpu[i])) continue;
    first = std::min(first, i);
    ++wrong;
  }
  if (wrong == 0) return;
  FAIL() << what << ": " << wrong << " of " << gpu.size() << " differ, the first at " << first
         << ": " << +gpu[first] << " on the GPU, " << +cpu[first] << " on the CPU";
}

class QuantizeGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceStatus status = device_status();
    ASSERT_TRUE(status.usable) << status.sentence;
  }

  /// Quantises on both and compares everything.
  void expect_equal(const Call& n, Operands& x) {
    SCOPED_TRACE(n.line());
    QuantizeParams host, device;
    host.recipe = device.recipe = n.recipe;
    host.key_lengths = device.key_lengths = n.lengths;
    host.threads = n.b * std::max(n.sq, n.sk) > 2000 ? 0 : 1;
    host.q = x.on_host(x.q);
    host.k = x.on_host(x.k);
    host.v = x.on_host(x.v);
    DeviceBytes input(x.bytes().size());
    input.upload(x.bytes().data(), x.bytes().size());
    device.q = x.on_device(x.q, input.get());
    device.k = x.on_device(x.k, input.get());
    device.v = x.on_device(x.v, input.get());

    const std::int64_t half = n.half > 0 ? n.half : n.d / 16 * 8;
    Tables tables(std::max(n.sq, n.sk) + 8, half);
    DeviceBytes angles(2 * tables.cos.size() * 4 + 16);
    if (n.rope != Embedding::none) {
      const RopeStyle style =
          n.rope == Embedding::interleaved ? RopeStyle::interleaved : RopeStyle::half_split;
      angles.upload(tables.cos.data(), tables.cos.size() * 4);
      angles.upload(tables.sin.data(), tables.sin.size() * 4, tables.cos.size() * 4);
      auto* at = static_cast<float*>(angles.get());
      host.rope = tables.rope(style, tables.cos.data(), tables.sin.data(), {});
      device.rope = tables.rope(style, at, at + tables.cos.size(), {Device::Kind::cuda, 0});
    }

    DeviceBytes workspace(quantize_workspace_bytes(device));
    const DeviceQkv gpu = quantize_on_device(device, workspace.get(), workspace.size(), nullptr);
    sm90::check(cudaDeviceSynchronize(), "quantising");
    const QuantizedQkv cpu = quantize(host);
    expect_same(row_major(gpu.q, cpu.q, false), cpu.q.codes, "codes of q");
    expect_same(row_major(gpu.k, cpu.k, false), cpu.k.codes, "codes of k");
    expect_same(row_major(gpu.v, cpu.v, true), cpu.v.codes, "codes of v");
    expect_same(descales(gpu.q), cpu.q.descale, "descales of q");
    expect_same(descales(gpu.k), cpu.k.descale, "descales of k");
    expect_same(descales(gpu.v), cpu.v.descale, "descales of v");
    if (n.recipe.smooth_k) {
      expect_same(download(gpu.score_shift, n.b * n.hq * n.sq), cpu.score_shift, "score_shift");
    }
    workspace.expect_guard_untouched();
  }
  void expect_equal(const Call& n) {
    Operands x(n, 1);
    expect_equal(n, x);
  }
};

constexpr std::int64_t kLengths[] = {1, 63, 64, 65, 127, 128, 129, 799, 4224};

class QuantizeGpuRecipes : public QuantizeGpu, public ::testing::WithParamInterface<const char*> {};

TEST_P(QuantizeGpuRecipes, EqualTheCpuForEveryTypeHeadDimLengthLayoutAndEmbedding) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int64_t d : {64, 80, 96, 128, 192, 256}) {
      for (const std::int64_t length : kLengths) {
        for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::packed}) {
          for (const Embedding rope :
               {Embedding::none, Embedding::interleaved, Embedding::half_split}) {
            Call n;
            n.b = length > 500 ? 1 : 2;
            n.sq = n.sk = length;
            n.hq = 2;
            n.hkv = 1 + (d == 64);
            n.d = n.dv = d;
            n.dtype = dtype;
            n.layout = layout;
            n.rope = rope;
            n.recipe = parse_recipe(GetParam());
            expect_equal(n);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, QuantizeGpuRecipes,
                         ::testing::Values("per_tensor", "per_head", "block", "fp8",
                                           "strict_causal", "fp8+e5m2", "per_head+rotate+smooth",
                                           "default", "per_tensor+int8"));

/// Every kernel once on a small input: what compute-sanitizer watches.
TEST_F(QuantizeGpu, SmokeOfEveryKernel) {
  for (const std::int64_t d : {64, 96, 128, 192, 256}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const Embedding rope :
           {Embedding::none, Embedding::interleaved, Embedding::half_split}) {
        for (const char* recipe : {"fp8", "per_head+smooth+rotate", "strict_causal", "default"}) {
          Call n;
          n.d = n.dv = d;
          n.dtype = dtype;
          n.rope = rope;
          n.recipe = parse_recipe(recipe);
          expect_equal(n);
        }
      }
    }
  }
}

TEST_F(QuantizeGpu, HeadDimsOfQkAndVMayDiffer) {
  for (const auto& [d, dv] : {std::pair{192, 128}, std::pair{64, 256}, std::pair{40, 72}}) {
    for (const char* recipe : {"default", "per_head", "strict_causal"}) {
      Call n;
      n.d = d;
      n.dv = dv;
      n.recipe = parse_recipe(recipe);
      expect_equal(n);
    }
  }
}

TEST_F(QuantizeGpu, ManyKeysUseAllChunksOfTheMean) {
  for (const std::int64_t sk : {4096, 4097, 40000, 163840}) {
    Call n;
    n.b = 1;
    n.sq = 100;
    n.sk = sk;
    n.hq = n.hkv = 1;
    n.d = n.dv = 128;
    expect_equal(n);
  }
}

TEST_F(QuantizeGpu, RowsThatStartAnywhereAreRead) {
  Call n;
  n.d = 72;
  n.dv = 72;
  n.layout = Layout::packed;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    n.dtype = dtype;
    Operands x(n, 3);
    for (TensorView* view :
         {&x.q, &x.k, &x.v}) {  // one element further: no 16-byte boundary at all
      view->data = static_cast<std::byte*>(view->data) + 1;
    }
    expect_equal(n, x);
  }
}

TEST_F(QuantizeGpu, KeyLengthsHideWhateverLiesBehindThem) {
  for (const char* recipe : {"default", "per_tensor", "strict_causal"}) {
    Call n;
    n.b = 4;
    n.sk = 256;
    n.lengths = {130, 0, 256, 1};
    n.recipe = parse_recipe(recipe);
    Operands x(n, 4);
    const std::int64_t row = n.hkv * n.d;
    const auto k_first = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.k.data) - 1);
    const auto v_first = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.v.data) - 1);
    for (std::int64_t i = 130 * row; i < 256 * row; ++i) {  // batch entry 0, behind its 130 keys
      x.set(k_first + i, NAN);
      x.set(v_first + i, NAN);
    }
    expect_equal(n, x);
  }
}

TEST_F(QuantizeGpu, MagnitudesFromTinyToHugeAndZero) {
  for (const float scale : {1e4f, 1e-6f, 0.0f}) {
    for (const char* recipe : {"fp8", "default"}) {
      Call n;
      n.dtype = DType::f32;
      n.recipe = parse_recipe(recipe);
      Operands x(n, 5);
      for (std::size_t i = 0; i < x.bytes().size() / 4; ++i) {
        float value;
        std::memcpy(&value, x.bytes().data() + 4 * i, 4);
        x.set(static_cast<std::int64_t>(i), value * scale);
      }
      expect_equal(n, x);
    }
  }
}

TEST_F(QuantizeGpu, NanAndInfinitiesBecomeTheNanCodeAndSpareTheirBlock) {
  // INT8 has no such code: there the whole block has the descale NaN.
  for (const char* recipe : {"fp8", "block", "per_head", "strict_causal", "block+e5m2", "default",
                             "block+int8", "per_head+int8", "per_tensor+int8"}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      Call n;
      n.recipe = parse_recipe(recipe);
      Operands x(n, 6);
      for (std::int64_t at : {std::int64_t{3}, std::int64_t{40000}}) x.set(at, bad);
      x.set(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.k.data) - 1) + 700, bad);
      x.set(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x.v.data) - 1) + 900, bad);
      expect_equal(n, x);
    }
  }
}

TEST_F(QuantizeGpu, ManyBatchEntries) {
  Call n;
  n.b = 8300;
  n.sq = n.sk = 1;
  n.hq = n.hkv = 16;
  n.d = n.dv = 128;
  expect_equal(n);
}

/// Codes of the last head of a tensor of 2^32 elements equal those of that head alone.
TEST_F(QuantizeGpu, OffsetsBeyond32BitsAreRight) {
  const std::int64_t b = 4, s = 262144 + 5, h = 33, d = 128;
  const auto bytes = static_cast<std::size_t>(b * s * h * d) * 2;
  ASSERT_GT(bytes / 2, std::size_t{1} << 32);
  DeviceBytes input(bytes);
  sm90::check(cudaMemset(input.get(), 0, bytes), "clearing");

  Call n;
  n.b = 1;
  n.sq = 1;
  n.sk = s;
  n.hq = n.hkv = 1;
  n.d = n.dv = d;
  Operands small(n, 8);
  const TensorView head = small.on_host(small.k);
  const std::int64_t last = (b - 1) * s * h * d + (h - 1) * d;
  sm90::check(cudaMemcpy2D(static_cast<std::uint8_t*>(input.get()) + last * 2,
                           static_cast<std::size_t>(h * d) * 2, head.data,
                           static_cast<std::size_t>(d) * 2, static_cast<std::size_t>(d) * 2,
                           static_cast<std::size_t>(s), cudaMemcpyHostToDevice),
              "uploading one head");
  const Device cuda{Device::Kind::cuda, 0};
  QuantizeParams device, host;
  device.k = device.v = contiguous(input.get(), DType::bf16, {b, s, h, d}, cuda);
  device.q = contiguous(input.get(), DType::bf16, {b, 1, h, d}, cuda);
  host.q = small.on_host(small.q);
  host.k = host.v = head;
  DeviceBytes workspace(quantize_workspace_bytes(device));
  const DeviceQkv gpu = quantize_on_device(device, workspace.get(), workspace.size(), nullptr);
  sm90::check(cudaDeviceSynchronize(), "quantising");
  const QuantizedQkv cpu = quantize(host);

  DeviceOperand k = gpu.k, v = gpu.v;
  for (DeviceOperand* x : {&k, &v}) {
    x->codes += (x->b * x->h - 1) * x->padded_rows * x->padded_d;
    x->descale += (x->b * x->h - 1) * ceil_div(s, 128);
    x->b = x->h = 1;
  }
  expect_same(row_major(k, cpu.k, false), cpu.k.codes, "codes of k");
  expect_same(row_major(v, cpu.v, true), cpu.v.codes, "codes of v");
  expect_same(descales(k), cpu.k.descale, "descales of k");
}

TEST_F(QuantizeGpu, AGraphReplaysWithNewContentsAndLengths) {
  Call n;
  n.recipe = parse_recipe("per_head+smooth+rotate");
  Operands first(n, 10), second(n, 11);
  DeviceBytes input(first.bytes().size()), lengths(16);
  QuantizeParams device;
  device.recipe = n.recipe;
  device.q = first.on_device(first.q, input.get());
  device.k = first.on_device(first.k, input.get());
  device.v = first.on_device(first.v, input.get());
  DeviceBytes workspace(quantize_workspace_bytes(device));
  const auto* device_lengths = static_cast<const std::int32_t*>(lengths.get());

  DeviceQkv gpu;
  const CapturedGraph graph([&](cudaStream_t stream) {
    gpu = quantize_on_device(device, workspace.get(), workspace.size(), stream, device_lengths);
  });

  for (const auto& [contents, keys] : {std::pair{&first, 130}, std::pair{&second, 97}}) {
    const std::int32_t host_lengths[2] = {keys, 130};
    input.upload(contents->bytes().data(), contents->bytes().size());
    lengths.upload(host_lengths, sizeof host_lengths);
    workspace.poison();
    graph.replay();
    QuantizeParams host;
    host.recipe = n.recipe;
    host.key_lengths = {keys, 130};
    host.q = contents->on_host(contents->q);
    host.k = contents->on_host(contents->k);
    host.v = contents->on_host(contents->v);
    const QuantizedQkv cpu = quantize(host);
    expect_same(row_major(gpu.k, cpu.k, false), cpu.k.codes, "codes of k");
    expect_same(row_major(gpu.v, cpu.v, true), cpu.v.codes, "codes of v");
    expect_same(descales(gpu.q), cpu.q.descale, "descales of q");
    expect_same(descales(gpu.k), cpu.k.descale, "descales of k");
  }
}

TEST_F(QuantizeGpu, TwoStreamsAtOnceDoNotDisturbEachOther) {
  Call n;
  n.sq = n.sk = 799;
  n.d = n.dv = 128;
  Operands contents[2] = {Operands(n, 20), Operands(n, 21)};
  DeviceBytes input[2] = {DeviceBytes(contents[0].bytes().size()),
                          DeviceBytes(contents[0].bytes().size())};
  QuantizeParams params[2], host[2];
  cudaStream_t streams[2];
  for (int i = 0; i < 2; ++i) {
    input[i].upload(contents[i].bytes().data(), contents[i].bytes().size());
    params[i].q = contents[i].on_device(contents[i].q, input[i].get());
    params[i].k = contents[i].on_device(contents[i].k, input[i].get());
    params[i].v = contents[i].on_device(contents[i].v, input[i].get());
    host[i].q = contents[i].on_host(contents[i].q);
    host[i].k = contents[i].on_host(contents[i].k);
    host[i].v = contents[i].on_host(contents[i].v);
    sm90::check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "stream");
  }
  const std::size_t bytes = quantize_workspace_bytes(params[0]);
  DeviceBytes workspace[2] = {DeviceBytes(bytes), DeviceBytes(bytes)};
  DeviceQkv gpu[2];
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 2; ++i) {
      gpu[i] = quantize_on_device(params[i], workspace[i].get(), bytes, streams[i]);
    }
  }
  sm90::check(cudaDeviceSynchronize(), "both streams");
  for (int i = 0; i < 2; ++i) {
    const QuantizedQkv cpu = quantize(host[i]);
    expect_same(row_major(gpu[i].k, cpu.k, false), cpu.k.codes, "codes of k");
    expect_same(row_major(gpu[i].v, cpu.v, true), cpu.v.codes, "codes of v");
    expect_same(descales(gpu[i].q), cpu.q.descale, "descales of q");
    cudaStreamDestroy(streams[i]);
  }
}

TEST_F(QuantizeGpu, RepackMovesForeignCodesIntoKeyOrder) {
  for (const std::int64_t d : {64, 72, 128, 256}) {
    const std::int64_t b = 2, s = 300, h = 3;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(b * s * h * d));
    Random random(30);
    for (auto& code : codes) code = static_cast<std::uint8_t>(random.bits());
    DeviceBytes input(codes.size());
    input.upload(codes.data(), codes.size());
    const TensorView v =
        contiguous(input.get(), DType::f8_e4m3, {b, s, h, d}, {Device::Kind::cuda, 0});
    DeviceOperand out = device_operand(v, Granularity::head, false);
    DeviceBytes packed(static_cast<std::size_t>(out.code_bytes()));
    out.codes = static_cast<std::uint8_t*>(packed.get());
    repack_v_on_device(v, out, nullptr);
    sm90::check(cudaDeviceSynchronize(), "repacking");
    QuantizedTensor like;
    like.shape = {b, s, h, d};
    like.codes = codes;
    expect_same(row_major(out, like, true), codes, "repacked codes");
    packed.expect_guard_untouched();
  }
}

TEST_F(QuantizeGpu, EmbeddingsThatTheKernelsLackAreRefused) {
  constexpr std::int64_t kHalf = 20;  // no multiple of 8
  Call n;
  n.d = n.dv = 128;
  Operands x(n, 1);
  DeviceBytes input(x.bytes().size()), table(static_cast<std::size_t>(200 * kHalf) * 4);
  QuantizeParams device;
  device.q = x.on_device(x.q, input.get());
  device.k = x.on_device(x.k, input.get());
  device.v = x.on_device(x.v, input.get());
  const TensorView angles =
      contiguous(table.get(), DType::f32, {200, kHalf}, {Device::Kind::cuda, 0});
  device.rope = Rope{angles, angles, RopeStyle::half_split, 0, 0};
  DeviceBytes workspace(quantize_workspace_bytes(device));
  EXPECT_THROW(quantize_on_device(device, workspace.get(), workspace.size(), nullptr), Error);
}

/// Pairs over a part of the row.
TEST_F(QuantizeGpu, PartialEmbeddingsEqualTheCpu) {
  for (const std::int64_t d : {64, 96, 128, 192, 256}) {
    for (const std::int64_t half : {std::int64_t{8}, std::int64_t{16}, d / 4, d / 2}) {
      for (const Embedding rope : {Embedding::interleaved, Embedding::half_split}) {
        Call n;
        n.d = n.dv = d;
        n.rope = rope;
        n.half = half;
        expect_equal(n);
      }
    }
  }
}

TEST_F(QuantizeGpu, BadWorkspacesAreRefusedAndNothingIsWritten) {
  Call n;
  Operands x(n, 1);
  DeviceBytes input(x.bytes().size());
  QuantizeParams device;
  device.q = x.on_device(x.q, input.get());
  device.k = x.on_device(x.k, input.get());
  device.v = x.on_device(x.v, input.get());
  DeviceBytes workspace(quantize_workspace_bytes(device));
  EXPECT_THROW(quantize_on_device(device, workspace.get(), workspace.size() - 1, nullptr), Error);
  EXPECT_THROW(quantize_on_device(device, nullptr, workspace.size(), nullptr), Error);
  EXPECT_THROW(quantize_on_device(device, static_cast<std::byte*>(workspace.get()) + 16,
                                  workspace.size(), nullptr),
               Error);
  sm90::check(cudaDeviceSynchronize(), "nothing");
  const auto first = download(static_cast<const std::uint8_t*>(workspace.get()), 4096);
  for (std::uint8_t byte : first) ASSERT_EQ(byte, DeviceBytes::kPoison);
}

}  // namespace
}  // namespace octavo::test
