// SPDX-License-Identifier: Apache-2.0
// Work on a GPU: operands in device memory, a stream, a workspace. Nothing here synchronises with
// the host or allocates unless its comment says so; every call can be captured into a CUDA graph.
// In a library built without CUDA each function throws Error{unsupported}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/attention.h"
#include "octavo/quantize.h"

struct CUstream_st;

namespace octavo {

using CudaStream = CUstream_st*;

/// One operand as the kernels read it, in device memory.
///
/// Q and K: codes [b, h, padded_rows, padded_d]. V: codes [b, h, padded_d, padded_rows] with the
/// keys of each group of 32 in the order of docs/format.md. Rows and channels beyond the tensor are
/// code 0. descale: [1], [b, h], [b, h, blocks] or [b, h, padded_rows], contiguous, by granularity.
struct DeviceOperand {
  std::uint8_t* codes = nullptr;
  float* descale = nullptr;
  DType dtype = DType::f8_e4m3;
  Granularity granularity = Granularity::block;
  std::int64_t b = 0, h = 0;
  std::int64_t rows = 0, padded_rows = 0;  ///< padded_rows: the next multiple of 128
  std::int64_t d = 0, padded_d = 0;
  std::int64_t block_rows = 128;  ///< rows of a block under Granularity::block

  std::int64_t code_bytes() const { return b * h * padded_rows * padded_d; }
  /// [1], [b, h], [b, h, blocks] or [b, h, padded_rows], by granularity.
  std::vector<std::int64_t> descale_shape() const;
  std::int64_t descales() const;
};

/// Q, K and V of one call, quantised. Pointers lie in the workspace of the call that made it.
struct DeviceQkv {
  DeviceOperand q, k, v;
  float* score_shift = nullptr;  ///< [b, hq, sq], where the recipe smooths K
};

/// Bytes of device memory that quantize_on_device needs for this call; its codes and descales stay
/// there. Throws Error{invalid_argument}.
std::size_t quantize_workspace_bytes(const QuantizeParams& params);

/// quantize() on the GPU: params' tensors are in device memory, so is `workspace` (256-byte
/// aligned, quantize_workspace_bytes large). The same bits as on the CPU. At most one launch for Q,
/// K and V where they share a padded head dim (two where they do not), one before it for K's mean,
/// and one (with a memset) for amax where a scale spans a head or the tensor. params.key_lengths:
/// at most 128 entries, copied into the launch; beyond that use device_key_lengths (int32 [b] in
/// device memory), which a graph may change between replays. params.rope: rotary_dim / 2 a
/// multiple of 8 (interleaved: of 4), else Error{unsupported}.
DeviceQkv quantize_on_device(const QuantizeParams& params, void* workspace, std::size_t bytes,
                             CudaStream stream, const std::int32_t* device_key_lengths = nullptr);

/// V that is FP8 already, [b, s, h, d] row-major in device memory with any strides (last 1), into
/// the kernels' layout: `codes` of out must hold out.code_bytes(); its descales are not touched.
/// Keys past a batch entry's length (key_lengths or device_key_lengths as above; none: all) become
/// code 0.
void repack_v_on_device(const TensorView& v, const DeviceOperand& out, CudaStream stream,
                        const std::vector<std::int64_t>& key_lengths = {},
                        const std::int32_t* device_key_lengths = nullptr);

/// The geometry that repack_v_on_device and the kernels expect of an operand: all but its pointers.
DeviceOperand device_operand(const TensorView& x, Granularity granularity, bool is_query);

/// Bytes of device memory that attention_on_device is to have for this call: where precision is fp8
/// operands in 16 or 32 bits are quantised into it, V in FP8 is brought into the kernels' layout,
/// and with num_splits > 1 parts of O and LSE wait there to be merged: num_splits b sq hq (dv + 1)
/// floats. Without a mask it may have 7 to 18 MB more (on 132 multiprocessors; by the current
/// device, none without a Hopper one), by which multiprocessors share work evenly: with less than
/// those the call gives the same result, later where the work does not divide evenly among them (6
/// % in the worst of the benchmarks; at most nearly twice the time). Throws
/// Error{invalid_argument}.
std::size_t attention_workspace_bytes(const AttentionParams& params);

/// attention_forward() on the GPU: all tensors of `params` are in device memory, so is `workspace`
/// (256-byte aligned, attention_workspace_bytes large). Quantises what is in 16 or 32 bits (where
/// precision is fp8), attends, and merges split keys; no host synchronisation, no allocation. In 16
/// bits q, k and v are read where they are: strides and bases in multiples of 16 bytes, none
/// broadcast, and out must not overlap k or v. K and V in 8 bits may be
/// a cache: strides and bases of q and k in multiples of 16 bytes. params.key_lengths: at most 128
/// entries, copied into the launch; beyond that use device_key_lengths (int32 [b] in device
/// memory), which a graph may change between replays. A workspace is one call's at a time: two that
/// run at once (on two streams, or in two graphs) spoil each other's results or never end. Throws
/// Error{invalid_argument}, Error{unsupported}.
void attention_on_device(const AttentionParams& params, void* workspace, std::size_t bytes,
                         CudaStream stream, const std::int32_t* device_key_lengths = nullptr);

/// The same for operands that quantize_on_device made: params.q, k and v and their descales are
/// left out, one launch. params.num_splits must be 1: parts need a workspace. Slower than with a
/// workspace where attention_workspace_bytes(params, operands) is not 0.
void attention_on_device(const AttentionParams& params, const DeviceQkv& operands,
                         CudaStream stream, const std::int32_t* device_key_lengths = nullptr);

/// The same with any params.num_splits and a `workspace` of this call alone, 256-byte aligned,
/// attention_workspace_bytes(params, operands) large.
void attention_on_device(const AttentionParams& params, const DeviceQkv& operands, void* workspace,
                         std::size_t bytes, CudaStream stream,
                         const std::int32_t* device_key_lengths = nullptr);
/// Of which only what merges parts must be there, as above.
std::size_t attention_workspace_bytes(const AttentionParams& params, const DeviceQkv& operands);

/// The forward kernel that a call would run on: head dims, variant, threads, query rows a block,
/// shared memory and, where a device is there to ask, registers. Throws Error{invalid_argument}, or
/// Error{unsupported} with the reason.
std::string describe_attention_kernel(const AttentionParams& params);

/// A device of compute capability 9.0 that the kernels run on, or why there is none.
struct DeviceStatus {
  bool usable = false;
  std::string sentence;  ///< the device's name and size, or the reason
};
DeviceStatus device_status();

}  // namespace octavo
