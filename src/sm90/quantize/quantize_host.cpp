// SPDX-License-Identifier: Apache-2.0
#include "sm90/quantize/quantize_host.h"

#include <vector>

#include "core/kv_order.h"
#include "core/problem.h"
#include "core/validate.h"
#include "octavo/cuda.h"
#include "sm90/check.h"
#include "sm90/host_tensors.h"

namespace octavo::sm90 {
namespace {

template <typename T>
std::vector<T> fetch(const T* from, std::int64_t count) {
  std::vector<T> out(static_cast<std::size_t>(count));
  check(cudaMemcpy(out.data(), from, out.size() * sizeof(T), cudaMemcpyDeviceToHost),
        "copying from the device");
  return out;
}

/// Codes and descales of a device operand, row-major and without padding.
QuantizedTensor to_host(const DeviceOperand& x, bool is_v, bool padded_channels) {
  QuantizedTensor out;
  out.dtype = x.dtype;
  out.granularity = x.granularity;
  out.shape = {x.b, x.rows, x.h, padded_channels ? x.padded_d : x.d};
  const std::vector<std::uint8_t> codes = fetch(x.codes, x.code_bytes());
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
  out.descale = fetch(x.descale, x.descales());
  out.descale_shape = x.descale_shape();
  if (x.granularity != Granularity::token) return out;
  out.descale_shape.back() = x.rows;
  std::vector<float> kept;
  for (std::int64_t head = 0; head < x.b * x.h; ++head) {
    const auto first = out.descale.begin() + head * x.padded_rows;
    kept.insert(kept.end(), first, first + x.rows);
  }
  out.descale = std::move(kept);
  return out;
}

}  // namespace

QuantizedQkv quantize_host_tensors(const QuantizeParams& params) {
  const DeviceStatus status = device_status();
  if (!status.usable) throw Error(ErrorCode::unsupported, "quantize: sm90: " + status.sentence);
  const AttentionProblem problem = validate(params);
  Uploads uploads;
  QuantizeParams on_device = params;
  on_device.q = uploads.add(params.q);
  on_device.k = uploads.add(params.k);
  on_device.v = uploads.add(params.v);
  if (params.rope) {
    on_device.rope->cos = uploads.add(params.rope->cos);
    on_device.rope->sin = uploads.add(params.rope->sin);
  }
  const std::size_t bytes = quantize_workspace_bytes(on_device);
  const DeviceMemory workspace = allocate(bytes);
  const DeviceQkv x = quantize_on_device(on_device, workspace.get(), bytes, nullptr);
  check(cudaDeviceSynchronize(), "quantising on the device");

  QuantizedQkv out;
  const bool rotated = problem.recipe.rotate;
  out.q = to_host(x.q, false, rotated);
  out.k = to_host(x.k, false, rotated);
  out.v = to_host(x.v, true, false);
  const Dims& n = problem.dims;
  if (problem.recipe.smooth_k) out.score_shift = fetch(x.score_shift, n.b * n.hq * n.sq);
  out.head_dim = n.d;
  return out;
}

}  // namespace octavo::sm90
