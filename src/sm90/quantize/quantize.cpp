// SPDX-License-Identifier: Apache-2.0
// Host side of the quantiser: workspace, arguments, launches.
#include <cuda.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "core/tile_table.h"
#include "core/validate.h"
#include "octavo/cuda.h"
#include "sm90/alignment.h"
#include "sm90/check.h"
#include "sm90/device.h"
#include "sm90/driver.h"
#include "sm90/quantize/launch.h"
#include "sm90/quantize/quantize.h"

namespace octavo::sm90 {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "quantize_on_device: " + sentence);
}

std::int64_t descales_of_a_head(const DeviceOperand& x) {
  if (x.granularity == Granularity::token) return x.padded_rows;
  return x.granularity == Granularity::block ? ceil_div(x.rows, x.block_rows) : 1;
}

/// Hands out aligned pieces of a workspace; with a null base it only counts.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* take(std::int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += aligned(static_cast<std::size_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

bool is_coarse(Granularity granularity) {
  return granularity == Granularity::head || granularity == Granularity::tensor;
}

/// Everything that lives in the workspace of one call.
struct Workspace {
  Workspace(const AttentionProblem& problem, void* base) {
    const Recipe& recipe = problem.recipe;
    Arena arena(base);
    qkv.q = place(arena, problem.q.x, recipe.q, true);
    qkv.k = place(arena, problem.k.x, recipe.k, false);
    qkv.v = place(arena, problem.v.x, recipe.v, false);
    qkv.q.dtype = recipe.qk_format;
    qkv.k.dtype = recipe.k_format();
    qkv.v.dtype = recipe.kv_format;
    const Dims& n = problem.dims;
    if (recipe.smooth_k) {
      qkv.score_shift = arena.take<float>(n.b * n.hq * n.sq);
      mean = arena.take<float>(n.b * n.hkv * qkv.k.padded_d);
    }
    if (is_coarse(recipe.q) || is_coarse(recipe.k) || is_coarse(recipe.v)) {
      amax_count = n.b * (n.hq + 2 * n.hkv);
      amax = arena.take<float>(amax_count);
    }
    bytes = arena.used();
  }

  static DeviceOperand place(Arena& arena, const TensorView& x, Granularity granularity,
                             bool is_query) {
    DeviceOperand out = device_operand(x, granularity, is_query);
    out.codes = arena.take<std::uint8_t>(out.code_bytes());
    out.descale = arena.take<float>(out.descales());
    return out;
  }

  DeviceQkv qkv;
  float* mean = nullptr;
  float* amax = nullptr;
  std::int64_t amax_count = 0;
  std::size_t bytes = 0;
};

/// Whether the rows of a tile lie within 2^31 bytes: offsets of wide loads have 32 bits.
bool rows_are_near(const TensorView& x) {
  constexpr std::int64_t kMost = 0x7fffffff / (kTileRows * 4);
  return std::abs(x.stride[1]) <= kMost;
}

OperandArgs operand_args(const TensorView& x, const DeviceOperand& out, float* amax) {
  OperandArgs args;
  args.x = x.numel() == 0 ? nullptr : x.data;
  args.dtype = x.dtype;
  args.stride_b = x.stride[0];
  args.stride_s = x.stride[1];
  args.stride_h = x.stride[2];
  args.codes = out.codes;
  args.descale = out.descale;
  args.amax = amax;
  args.heads = static_cast<int>(out.h);
  args.rows = static_cast<int>(out.rows);
  args.padded_rows = static_cast<int>(out.padded_rows);
  args.d = static_cast<int>(out.d);
  args.granularity = out.granularity;
  args.format = out.dtype;
  args.wide_loads = rows_are_wide(x) && rows_are_near(x);
  return args;
}

/// Divides an operand's tiles: a thread block takes so many heads of the same rows, or the next
/// smaller number that divides them all.
void set_run(OperandArgs& args, int b, int run) {
  const std::int64_t row_tiles = args.padded_rows / kTileRows;
  if (args.x == nullptr || row_tiles == 0) return;
  while (args.heads % run != 0) --run;
  const std::int64_t runs = args.heads / run, blocks = runs * row_tiles * b;
  if (blocks > std::int64_t{1} << 30) {
    refuse("the call has " + std::to_string(blocks) + " tiles of 128 rows; must have at most 2^30");
  }
  args.run = run;
  args.blocks = static_cast<int>(blocks);
  args.by_runs = Divisor(static_cast<int>(runs));
  args.by_row_tiles = Divisor(static_cast<int>(row_tiles));
}

/// Whether the kernels may read four FP32 angles at a time.
bool angles_are_aligned(const TensorView& table) {
  return table.dtype == DType::f32 && table.stride[0] % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(table.data) % 16 == 0;
}

RopeArgs rope_args(const Rope& rope) {
  RopeArgs args;
  args.cos = rope.cos.data;
  args.sin = rope.sin.data;
  args.cos_stride = rope.cos.stride[0];
  args.sin_stride = rope.sin.stride[0];
  args.dtype = rope.cos.dtype;
  args.half = static_cast<int>(rope.cos.shape[1]);
  args.interleaved = rope.style == RopeStyle::interleaved;
  args.wide_loads = angles_are_aligned(rope.cos) && angles_are_aligned(rope.sin);
  args.q_offset = rope.q_offset;
  args.k_offset = rope.k_offset;
  return args;
}

KeyLengths key_lengths(const std::vector<std::int64_t>& values, const std::int32_t* device) {
  KeyLengths lengths{};
  lengths.device = device;
  lengths.use_value = device == nullptr && !values.empty();
  if (!lengths.use_value) return lengths;
  if (values.size() > static_cast<std::size_t>(kMaxInlineLengths)) {
    refuse("key_lengths.size is " + std::to_string(values.size()) + "; must be at most " +
           std::to_string(kMaxInlineLengths) + ", or given as device_key_lengths");
  }
  std::transform(values.begin(), values.end(), lengths.value,
                 [](std::int64_t n) { return static_cast<std::int32_t>(n); });
  return lengths;
}

void set_rotation(QuantizeArgs& args, std::uint64_t seed, int padded_d) {
  args.rotate = true;
  args.signs = SignBits(seed);
  const int n = hadamard_size(padded_d);
  args.q.norm = args.k.norm = hadamard_norm(n);
  args.shift_norm = 1.0f / static_cast<float>(n);
}

QuantizeArgs make_args(const AttentionProblem& problem, const QuantizeParams& params,
                       const Workspace& work, const std::int32_t* device_lengths) {
  const Dims& n = problem.dims;
  float* amax = work.amax;
  QuantizeArgs args;
  args.q = operand_args(problem.q.x, work.qkv.q, amax);
  args.k = operand_args(problem.k.x, work.qkv.k, amax == nullptr ? nullptr : amax + n.b * n.hq);
  args.v = operand_args(problem.v.x, work.qkv.v,
                        amax == nullptr ? nullptr : amax + n.b * (n.hq + n.hkv));
  args.b = static_cast<int>(n.b);
  args.by_group = Divisor(static_cast<int>(n.group()));
  if (problem.recipe.rotate) {
    set_rotation(args, problem.recipe.seed, static_cast<int>(work.qkv.q.padded_d));
  }
  args.mean = work.mean;
  args.score_shift = work.qkv.score_shift;
  if (problem.rope) args.rope = rope_args(*problem.rope);
  args.lengths = key_lengths(params.key_lengths, device_lengths);
  return args;
}

QuantizeKernels kernels_for(std::int64_t padded_d, std::size_t element_bytes,
                            const RopeArgs& rope = {}) {
  switch (padded_d) {
    case 64: return quantize_kernels<64>(element_bytes, rope);
    case 96: return quantize_kernels<96>(element_bytes, rope);
    case 128: return quantize_kernels<128>(element_bytes, rope);
    case 192: return quantize_kernels<192>(element_bytes, rope);
    default: return quantize_kernels<256>(element_bytes, rope);
  }
}

/// One launch. `overlaps`: it may begin before the launch before it has ended, and waits for that
/// by itself where it must.
struct Launch {
  const void* kernel;
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes = 0;
  bool overlaps = false;

  void operator()(const QuantizeArgs& args, CudaStream stream, const char* what) const {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlaps ? 1 : 0;
    constexpr std::size_t kUnasked = 48 * 1024;  // which any launch may have
    if (shared_bytes > kUnasked) {
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes)),
            what);
    }
    void* parameters[] = {const_cast<QuantizeArgs*>(&args)};
    check(cudaLaunchKernelExC(&config, kernel, parameters), what);
  }
};

// With more heads a thread block its copies wait less; with fewer, blocks end closer together.
constexpr int kWaves = 2;       // of resident blocks that are left at least
constexpr int kPlainHeads = 4;  // at most

std::int64_t tiles(const OperandArgs& operand, int b) {
  return operand.x == nullptr ? 0
                              : std::int64_t{operand.heads} * (operand.padded_rows / kTileRows) * b;
}

/// Heads that a thread block of Q or K takes where it stages an embedding's angles: all blocks run
/// at the same time, if that can be, and stage once.
int embedded_run(const QuantizeArgs& args, std::int64_t resident) {
  const std::int64_t rows = tiles(args.q, args.b) + tiles(args.k, args.b);
  return static_cast<int>(std::clamp<std::int64_t>(ceil_div(rows, resident), 1, kMostHeads));
}

/// Divides the operands' tiles; the number of thread blocks.
std::int64_t set_runs(QuantizeArgs& args, const QuantizeKernels& kernels) {
  const std::int64_t total = tiles(args.q, args.b) + tiles(args.k, args.b) + tiles(args.v, args.b);
  const std::int64_t resident = std::int64_t{kernels.resident} * multiprocessors();
  const auto run =
      static_cast<int>(std::clamp<std::int64_t>(total / (kWaves * resident), 1, kPlainHeads));
  const int row_run = args.rope.cos == nullptr ? run : embedded_run(args, resident);
  set_run(args.v, args.b, run);
  set_run(args.q, args.b, row_run);
  set_run(args.k, args.b, row_run);
  return std::int64_t{args.v.blocks} + args.k.blocks + args.q.blocks;
}

/// Amax (where a scale spans a head or the tensor) and the cast, of the operands that `args` names.
void launch_cast(const QuantizeKernels& kernels, QuantizeArgs args, bool after_mean,
                 CudaStream stream) {
  Launch launch{kernels.quantize, set_runs(args, kernels), kernels.threads, kernels.shared_bytes};
  if (launch.blocks == 0) return;
  if (args.q.amax != nullptr) {
    Launch amax = launch;
    amax.kernel = kernels.amax;
    amax(args, stream, "amax kernel");
  }
  launch.overlaps = after_mean && args.q.amax == nullptr;
  launch(args, stream, "quantize kernel");
}

void launch_all(const QuantizeArgs& args, std::int64_t d, std::int64_t dv, std::size_t bytes_qk,
                std::size_t bytes_v, CudaStream stream) {
  const QuantizeKernels kernels = kernels_for(d, bytes_qk, args.rope);
  const std::int64_t means = std::int64_t{args.b} * args.k.heads;
  const bool mean = args.mean != nullptr && means > 0;
  if (mean) {
    const Launch launch{kernels.key_mean, means, kernels.mean_threads};
    launch(args, stream, "key mean kernel");
  }
  if (d == dv && bytes_qk == bytes_v) return launch_cast(kernels, args, mean, stream);
  QuantizeArgs qk = args, v = args;
  qk.v.x = nullptr;
  v.q.x = v.k.x = nullptr;
  launch_cast(kernels, qk, mean, stream);
  launch_cast(kernels_for(dv, bytes_v), v, false, stream);
}

/// No tile stores the descale of a tensor without elements, which is that of zeros.
void fill_descales_of_nothing(const DeviceOperand& x, CudaStream stream) {
  const std::int64_t count = x.descales();
  if (x.rows * x.h * x.b != 0 || count == 0) return;
  static const auto fill =
      reinterpret_cast<decltype(&cuMemsetD32Async)>(driver_function("cuMemsetD32Async", 3020));
  const float descale = scale_of(0.0f, x.dtype).descale;
  const CUresult result =
      fill(reinterpret_cast<CUdeviceptr>(x.descale), std::bit_cast<unsigned>(descale),
           static_cast<std::size_t>(count), stream);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::cuda,
                "filling descales: driver error " + std::to_string(static_cast<int>(result)));
  }
}

void check_memory(const AttentionProblem& problem) {
  for (const TensorView* x : {&problem.q.x, &problem.k.x, &problem.v.x}) {
    if (x->device.kind != Device::Kind::cuda) refuse("q, k and v must be in device memory");
  }
  const Dims& n = problem.dims;
  constexpr std::int64_t kMost = 0x7fffff00;
  if (n.sq > kMost || n.sk > kMost) refuse("sequence lengths must be below 2^31 - 256");
}

}  // namespace

std::string why_not_quantised(const AttentionProblem& problem) {
  const TensorView &q = problem.q.x, &k = problem.k.x;
  if (!is_quantised(q.dtype) && !is_quantised(k.dtype) && size_of(q.dtype) != size_of(k.dtype)) {
    return "k.dtype is " + std::string(dtype_name(k.dtype)) + "; must have the size of q.dtype (" +
           dtype_name(q.dtype) + ") for the GPU kernels";
  }
  if (!problem.rope) return "";
  const std::int64_t half = problem.rope->cos.shape[1];
  const std::int64_t unit = problem.rope->style == RopeStyle::interleaved ? 4 : 8;
  if (half % unit == 0) return "";
  return "rope.cos.shape[1] is " + std::to_string(half) + "; must be a multiple of " +
         std::to_string(unit) + " for the GPU kernels";
}

DeviceQkv quantize_on_device(const QuantizeParams& params, void* workspace, std::size_t bytes,
                             CudaStream stream, const std::int32_t* device_key_lengths,
                             ScoreShift shift) {
  const AttentionProblem problem = validate(params);
  check_memory(problem);
  const std::string reason = why_not_quantised(problem);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, "quantize_on_device: " + reason);
  Workspace work(problem, workspace);
  if (workspace == nullptr || bytes < work.bytes || !is_aligned(workspace)) {
    refuse("workspace has " + std::to_string(bytes) + " bytes; must have " +
           std::to_string(work.bytes) + " at a 256-byte boundary");
  }
  if (shift == ScoreShift::unused) work.qkv.score_shift = nullptr;
  const QuantizeArgs args = make_args(problem, params, work, device_key_lengths);
  if (work.amax != nullptr) {
    check(cudaMemsetAsync(work.amax, 0, static_cast<std::size_t>(work.amax_count) * sizeof(float),
                          stream),
          "clearing amax");
  }
  for (const DeviceOperand* x : {&work.qkv.q, &work.qkv.k, &work.qkv.v}) {
    fill_descales_of_nothing(*x, stream);
  }
  launch_all(args, work.qkv.q.padded_d, work.qkv.v.padded_d, size_of(problem.q.x.dtype),
             size_of(problem.v.x.dtype), stream);
  return work.qkv;
}

}  // namespace octavo::sm90

namespace octavo {

std::vector<std::int64_t> DeviceOperand::descale_shape() const {
  switch (granularity) {
    case Granularity::tensor: return {1};
    case Granularity::head: return {b, h};
    case Granularity::block:
    case Granularity::token: return {b, h, sm90::descales_of_a_head(*this)};
  }
  return {0};
}

std::int64_t DeviceOperand::descales() const {
  return granularity == Granularity::tensor ? 1 : b * h * sm90::descales_of_a_head(*this);
}

DeviceOperand device_operand(const TensorView& x, Granularity granularity, bool is_query) {
  DeviceOperand out;
  out.dtype = is_quantised(x.dtype) ? x.dtype : DType::f8_e4m3;
  out.granularity = granularity;
  out.b = x.shape[0];
  out.rows = x.shape[1];
  out.h = x.shape[2];
  out.d = x.shape[3];
  out.padded_rows = ceil_div(out.rows, sm90::kTileRows) * sm90::kTileRows;
  out.padded_d = padded_head_dim(out.d);
  out.block_rows = is_query ? kQuantBlockQ : kQuantBlockKv;
  return out;
}

std::size_t quantize_workspace_bytes(const QuantizeParams& params) {
  return sm90::Workspace(validate(params), nullptr).bytes;
}

DeviceQkv quantize_on_device(const QuantizeParams& params, void* workspace, std::size_t bytes,
                             CudaStream stream, const std::int32_t* device_key_lengths) {
  return sm90::quantize_on_device(params, workspace, bytes, stream, device_key_lengths,
                                  sm90::ScoreShift::wanted);
}

void repack_v_on_device(const TensorView& v, const DeviceOperand& out, CudaStream stream,
                        const std::vector<std::int64_t>& key_lengths,
                        const std::int32_t* device_key_lengths) {
  if (!is_fp8(v.dtype) || v.rank != 4 || v.stride[3] != 1 || v.device.kind != Device::Kind::cuda) {
    throw Error(
        ErrorCode::invalid_argument,
        "repack_v_on_device: v must be an FP8 [b, s, h, d] tensor in device memory whose last "
        "stride is 1");
  }
  sm90::QuantizeArgs args;
  args.v = sm90::operand_args(v, out, nullptr);
  sm90::set_run(args.v, static_cast<int>(out.b), 1);
  if (args.v.blocks == 0) return;
  args.lengths = sm90::key_lengths(key_lengths, device_key_lengths);
  const sm90::QuantizeKernels kernels = sm90::kernels_for(out.padded_d, 2);
  void* parameters[] = {&args};
  sm90::check(cudaLaunchKernel(kernels.repack, dim3(static_cast<unsigned>(args.v.blocks)),
                               dim3(static_cast<unsigned>(kernels.threads)), parameters, 0, stream),
              "repack kernel");
}

DeviceStatus device_status() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess)
    return {false, std::string("no CUDA device: ") + cudaGetErrorString(error)};
  int device = 0;
  cudaDeviceProp properties{};
  sm90::check(cudaGetDevice(&device), "reading the current device");
  sm90::check(cudaGetDeviceProperties(&properties, device), "reading the device's properties");
  const std::string name = std::string(properties.name) + ", compute capability " +
                           std::to_string(properties.major) + "." +
                           std::to_string(properties.minor);
  if (properties.major != 9 || properties.minor != 0) {
    return {false, name + "; the kernels need 9.0 (Hopper)"};
  }
  return {true, name + ", " + std::to_string(properties.multiProcessorCount) + " multiprocessors"};
}

}  // namespace octavo
