// SPDX-License-Identifier: Apache-2.0
#include "sm90/quantize/quantize_host.h"

#include <cstring>
#include <memory>

#include "core/kv_order.h"
#include "core/problem.h"
#include "core/validate.h"
#include "octavo/cuda.h"
#include "sm90/check.h"

namespace octavo::sm90 {
namespace {

struct Free {
  void operator()(void* p) const { cudaFree(p); }
};
using Memory = std::unique_ptr<void, Free>;

Memory allocate(std::size_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, bytes == 0 ? 1 : bytes), "allocating device memory");
  return Memory(p);
}

void upload(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
}

template <typename T>
std::vector<T> download(const T* from, std::int64_t count) {
  std::vector<T> out(static_cast<std::size_t>(count));
  check(cudaMemcpy(out.data(), from, out.size() * sizeof(T), cudaMemcpyDeviceToHost),
        "copying from the device");
  return out;
}

/// A contiguous copy of a [b, s, h, d] or [n, m] host tensor in device memory.
TensorView to_device(const TensorView& x, std::vector<Memory>& owned) {
  TensorView as4 = x;  // leading dimensions of extent 1 up to rank 4
  while (as4.rank < 4) {
    for (int i = as4.rank; i > 0; --i) {
      as4.shape[static_cast<std::size_t>(i)] = as4.shape[static_cast<std::size_t>(i - 1)];
      as4.stride[static_cast<std::size_t>(i)] = as4.stride[static_cast<std::size_t>(i - 1)];
    }
    as4.shape[0] = 1;
    as4.stride[0] = 0;
    ++as4.rank;
  }
  const auto row_bytes = static_cast<std::size_t>(as4.shape[3]) * size_of(x.dtype);
  std::vector<std::byte> packed(static_cast<std::size_t>(x.numel()) * size_of(x.dtype));
  std::byte* to = packed.data();
  for (std::int64_t b = 0; b < as4.shape[0]; ++b) {
    for (std::int64_t s = 0; s < as4.shape[1]; ++s) {
      for (std::int64_t h = 0; h < as4.shape[2]; ++h, to += row_bytes) {
        std::memcpy(to, row_pointer(as4, b, s, h), row_bytes);
      }
    }
  }
  owned.push_back(allocate(packed.size()));
  upload(owned.back().get(), packed.data(), packed.size());
  TensorView out = x;
  out.data = owned.back().get();
  out.device = {Device::Kind::cuda, 0};
  std::int64_t stride = 1;
  for (int i = x.rank - 1; i >= 0; --i) {
    out.stride[static_cast<std::size_t>(i)] = stride;
    stride *= x.shape[static_cast<std::size_t>(i)];
  }
  return out;
}

/// Codes and descales of a device operand, row-major and without padding.
QuantizedTensor to_host(const DeviceOperand& x, bool is_v, bool padded_channels) {
  QuantizedTensor out;
  out.dtype = x.dtype;
  out.granularity = x.granularity;
  out.shape = {x.b, x.rows, x.h, padded_channels ? x.padded_d : x.d};
  const std::vector<std::uint8_t> codes = download(x.codes, x.code_bytes());
  out.codes.resize(static_cast<std::size_t>(x.b * x.rows * x.h * out.shape[3]));
  for (std::int64_t head = 0; head < x.b * x.h; ++head) {
    const std::uint8_t* from = codes.data() + head * x.padded_rows * x.padded_d;
    for (std::int64_t row = 0; row < x.rows; ++row) {
      std::uint8_t* to =
          out.codes.data() + ((head / x.h * x.rows + row) * x.h + head % x.h) * out.shape[3];
      for (std::int64_t c = 0; c < out.shape[3]; ++c) {
        to[c] = is_v ? from[c * x.padded_rows + position_of_key(row)] : from[row * x.padded_d + c];
      }
    }
  }
  out.descale = download(x.descale, x.descales());
  switch (x.granularity) {
    case Granularity::tensor: out.descale_shape = {1}; break;
    case Granularity::head: out.descale_shape = {x.b, x.h}; break;
    case Granularity::block: out.descale_shape = {x.b, x.h, ceil_div(x.rows, x.block_rows)}; break;
    case Granularity::token: {
      out.descale_shape = {x.b, x.h, x.rows};
      std::vector<float> kept;
      for (std::int64_t head = 0; head < x.b * x.h; ++head) {
        const auto first = out.descale.begin() + head * x.padded_rows;
        kept.insert(kept.end(), first, first + x.rows);
      }
      out.descale = std::move(kept);
    }
  }
  return out;
}

}  // namespace

QuantizedQkv quantize_host_tensors(const QuantizeParams& params) {
  const DeviceStatus status = device_status();
  if (!status.usable) throw Error(ErrorCode::unsupported, "quantize: sm90: " + status.sentence);
  const AttentionProblem problem = validate(params);
  std::vector<Memory> owned;
  QuantizeParams on_device = params;
  on_device.q = to_device(params.q, owned);
  on_device.k = to_device(params.k, owned);
  on_device.v = to_device(params.v, owned);
  if (params.rope) {
    on_device.rope->cos = to_device(params.rope->cos, owned);
    on_device.rope->sin = to_device(params.rope->sin, owned);
  }
  const std::size_t bytes = quantize_workspace_bytes(on_device);
  const Memory workspace = allocate(bytes);
  const DeviceQkv x = quantize_on_device(on_device, workspace.get(), bytes, nullptr);
  check(cudaDeviceSynchronize(), "quantising on the device");

  QuantizedQkv out;
  const bool rotated = problem.recipe.rotate;
  out.q = to_host(x.q, false, rotated);
  out.k = to_host(x.k, false, rotated);
  out.v = to_host(x.v, true, false);
  const Dims& n = problem.dims;
  if (problem.recipe.smooth_k) out.score_shift = download(x.score_shift, n.b * n.hq * n.sq);
  out.head_dim = n.d;
  return out;
}

}  // namespace octavo::sm90
