// SPDX-License-Identifier: Apache-2.0
// Host side of the forward pass: what is supported, workspace, arguments, launch.
#include "sm90/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "core/copy_engine.h"
#include "core/softmax_constants.h"
#include "core/split_mix.h"
#include "core/tile_table.h"
#include "core/validate.h"
#include "octavo/error.h"
#include "sm90/alignment.h"
#include "sm90/attention/args.h"
#include "sm90/attention/launch.h"
#include "sm90/attention/merge.h"
#include "sm90/check.h"
#include "sm90/device.h"
#include "sm90/quantize/quantize.h"
#include "sm90/tensor_map.h"
#include "sm90/tile/fragment.h"

namespace octavo::sm90 {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;
constexpr std::int64_t kMostItems = std::int64_t{1} << 30;
constexpr const char* kTooLong = "q.shape[1] and k.shape[1] must be at most 2^30";

bool per_key(const DescaleMap& descale) { return descale.granularity == Granularity::token; }

/// The head dims of the kernel that a call runs on; the copy engine fills in zeros.
struct KernelDims {
  int d, dv;
};
KernelDims kernel_dims(const Dims& n) {
  const int d = padded_head_dim(n.d), dv = padded_head_dim(n.dv);
  if (d == 192 && dv <= 128) return {192, 128};
  return {std::max(d, dv), std::max(d, dv)};
}

AttentionKernels kernels_for(KernelDims dims) {
  switch (dims.d) {
    case 64: return attention_kernels<64, 64>();
    case 96: return attention_kernels<96, 96>();
    case 128: return attention_kernels<128, 128>();
    case 192: return dims.dv == 128 ? attention_kernels<192, 128>() : attention_kernels<192, 192>();
    default: return attention_kernels<256, 256>();
  }
}

/// Q, K and V as the kernels read them.
struct Operands {
  CodesView q, k, v;
  DescaleMap q_descale, k_descale, v_descale;
  RowValues score_shift;
  DType k_format = DType::f8_e4m3;
  bool after_quantiser = false;  // in the stream, whose end the kernel may then overlap
};

/// What decides the variant of the kernel.
struct Needs {
  DType k_format;  // or the 16-bit type of all three
  bool k_per_key, v_per_key, softcap, direct;
  bool masked;
  std::int64_t sq;
};

/// The kernel for pairs of thread blocks (tile/cluster.cuh), which gain where both have the same to
/// do: no mask, and no tile of rows too many. Else the one for single blocks.
const AttentionKernel& pair_or_single(const AttentionKernel& pair, const AttentionKernel& single,
                                      const Needs& needs) {
  if (pair.function == nullptr || needs.masked) return single;
  return ceil_div(needs.sq, pair.block_rows()) % pair.cluster == 0 ? pair : single;
}

AttentionKernel kernel_for(KernelDims dims, const Needs& needs) {
  const AttentionKernels kernels = kernels_for(dims);
  if (!is_quantised(needs.k_format)) {
    const Kernels16Bit& of = needs.k_format == DType::bf16 ? kernels.bf16 : kernels.f16;
    return needs.softcap ? of.general : pair_or_single(of.pair, of.plain, needs);
  }
  if (needs.k_format == DType::f8_e5m2) {
    return needs.v_per_key ? kernels.folded_e5m2 : kernels.general_e5m2;
  }
  const FormatKernels& of = needs.k_format == DType::i8 ? kernels.int8 : kernels.e4m3;
  if (needs.v_per_key) return of.folded;
  const bool general = needs.k_per_key || needs.softcap;
  if (needs.direct) {
    return general ? of.general_direct : pair_or_single(of.direct_pair, of.direct, needs);
  }
  return general ? of.general : pair_or_single(of.pair, of.plain, needs);
}

Needs needs_of(const AttentionProblem& problem, DType k_format, bool k_per_key, bool v_per_key) {
  return {k_format,
          k_per_key,
          v_per_key,
          problem.softcap > 0,
          problem.softmax == SoftmaxPath::direct,
          problem.mask != MaskSpec::none(),
          problem.dims.sq};
}
Needs needs_of(const AttentionProblem& problem, const Operands& x) {
  return needs_of(problem, x.k_format, per_key(x.k_descale), per_key(x.v_descale));
}

/// Contiguous codes [batches, heads, rows, columns].
CodesView contiguous_codes(const void* data, std::int64_t columns, std::int64_t rows,
                           std::int64_t heads, std::int64_t batches) {
  return {data, columns, rows, heads, batches, columns, rows * columns, heads * rows * columns};
}
/// Row-major codes of an operand in the kernels' layout.
CodesView rows_of(const DeviceOperand& x) {
  return contiguous_codes(x.codes, x.padded_d, x.padded_rows, x.h, x.b);
}
/// The same of V^T.
CodesView transposed_rows_of(const DeviceOperand& x) {
  return contiguous_codes(x.codes, x.padded_rows, x.padded_d, x.h, x.b);
}
/// Rows [b, s, h, d] with any strides, in bytes.
CodesView rows_of(const TensorView& x) {
  const auto bytes = static_cast<std::int64_t>(size_of(x.dtype));
  return {x.data,     x.shape[3] * bytes,  x.shape[1],          x.shape[2],
          x.shape[0], x.stride[1] * bytes, x.stride[2] * bytes, x.stride[0] * bytes};
}

DescaleMap descales_of(const DeviceOperand& x) {
  DescaleMap map;
  map.data = x.descale;
  map.granularity = x.granularity;
  map.rows_per_block = std::max<std::int64_t>(x.padded_rows, 1);
  switch (x.granularity) {
    case Granularity::tensor: return map;
    case Granularity::head: map.stride_h = 1; break;
    case Granularity::block:
      map.rows_per_block = x.block_rows;
      map.stride_block = 1;
      map.stride_h = ceil_div(x.rows, x.block_rows);
      break;
    case Granularity::token:
      map.rows_per_block = 1;
      map.stride_block = 1;
      map.stride_h = x.padded_rows;
      break;
  }
  map.stride_b = x.h * map.stride_h;
  return map;
}

RowValues row_values(const TensorView& x) {
  if (!x.present()) return {};
  return {static_cast<float*>(x.data), x.stride[0], x.stride[1], x.stride[2]};
}
/// Contiguous [b, hq, sq].
RowValues row_values(float* data, const Dims& n) { return {data, n.hq * n.sq, n.sq, 1}; }

/// Where later rows see more keys, a tile of fewer query rows is the first one, not the last: how
/// many rows it lacks, in whole warpgroups, so that those stay where they are.
int lead_of(const AttentionProblem& problem, const AttentionKernel& kernel) {
  if (problem.mask.right < 0) return 0;
  const std::int64_t missing =
      ceil_div(problem.dims.sq, kernel.item_rows) * kernel.item_rows - problem.dims.sq;
  return static_cast<int>(missing / kWarpgroupRows * kWarpgroupRows);
}

/// How many items the device works on at a time.
int items_at_once(const AttentionKernel& kernel) { return multiprocessors() / kernel.cluster; }

/// Tiles of each head that come after all others: none where each has whole tiles only, as those of
/// pairs are.
int remainders_at_end(const AttentionProblem& problem, const AttentionKernel& kernel) {
  if (problem.mask != MaskSpec::none() || kernel.cluster > 1) return 0;
  const Dims& n = problem.dims;
  const std::int64_t m_blocks = ceil_div(n.sq, kernel.item_rows);
  const std::int64_t heads = n.hq * n.b * problem.num_splits;
  return tiles_at_end(m_blocks, n.sq % kernel.item_rows != 0, heads,
                      std::min<std::int64_t>(m_blocks * heads, items_at_once(kernel)));
}

/// Key lengths where any entry has fewer than sk.
std::vector<std::int64_t> shorter_lengths(const AttentionProblem& problem) {
  const std::vector<std::int64_t>& all = problem.key_lengths;
  const bool any =
      std::any_of(all.begin(), all.end(), [&](std::int64_t n) { return n != problem.dims.sk; });
  return any ? all : std::vector<std::int64_t>{};
}

/// Key tiles of each item, if items change hands (tile/relay.h); else 0. They must be equally long,
/// and the busiest thread blocks relieved of enough.
int relay_tiles(const AttentionProblem& problem, const AttentionKernel& kernel) {
  const Dims& n = problem.dims;
  const std::int64_t tiles = ceil_div(n.sk, kernel.key_tile);
  if (kernel.relay_from == 0 || tiles <= kernel.relay_from || problem.mask != MaskSpec::none() ||
      problem.num_splits != 1 || !shorter_lengths(problem).empty() || !device_is_hopper()) {
    return 0;
  }
  const std::int64_t workers = items_at_once(kernel);
  const std::int64_t items = ceil_div(n.sq, kernel.item_rows) * n.hq * n.b;
  if (items < workers || items > kMostItems / tiles) return 0;
  if (remainders_at_end(problem, kernel) > 0) return 0;  // which relieves them as well
  const std::int64_t relief = ceil_div(items, workers) * tiles - ceil_div(items * tiles, workers);
  return relief >= kernel.relay_from ? static_cast<int>(tiles) : 0;
}

std::size_t baton_bytes(const AttentionKernel& kernel) {
  return kernel.baton_bytes * static_cast<std::size_t>(items_at_once(kernel) * kernel.cluster);
}
/// .. that a call can use.
std::size_t baton_bytes(const AttentionProblem& problem, const AttentionKernel& kernel) {
  return relay_tiles(problem, kernel) > 0 ? baton_bytes(kernel) : 0;
}

/// What no other launch of this process has, and no memory by chance.
std::uint64_t new_ticket() {
  static std::atomic<std::uint64_t> launches{0};
  std::uint64_t state = ++launches;
  return split_mix(state);
}

Schedule schedule_of(const AttentionProblem& problem, const AttentionKernel& kernel,
                     int tiles_in_relay) {
  const Dims& n = problem.dims;
  const std::int64_t m_blocks = ceil_div(n.sq, kernel.item_rows), heads = n.hq * n.b;
  const std::int64_t items = m_blocks * heads * problem.num_splits;
  if (items == 0) return {};
  if (items > kMostItems) {
    throw Error(ErrorCode::unsupported, "attention_on_device: b * hq * num_splits * (tiles of " +
                                            std::to_string(kernel.item_rows) + " rows) is " +
                                            std::to_string(items) + "; must be at most 2^30");
  }
  const auto bytes = static_cast<std::int64_t>(size_of(problem.k_format()));  // of an element
  const std::int64_t head_bytes = n.sk * (n.d + n.dv) * bytes / n.group();
  const auto blocks = std::min<std::int64_t>(items, items_at_once(kernel));
  Sections sections;
  if (problem.mask.left < 0 && problem.mask.right >= 0) {  // lengths fall along the order
    sections = causal_sections(head_bytes, n.group(), heads, m_blocks * problem.num_splits, blocks);
  } else {
    sections = equal_sections(head_bytes, n.group(), heads);
  }
  Schedule schedule(static_cast<int>(m_blocks), static_cast<int>(n.hq), static_cast<int>(n.b),
                    sections, problem.num_splits, remainders_at_end(problem, kernel));
  if (tiles_in_relay > 0) schedule.relay(tiles_in_relay, static_cast<int>(blocks));
  return schedule;
}

void set_lengths(AttentionArgs& args, const AttentionProblem& problem,
                 const std::int32_t* device_lengths) {
  args.device_lengths = device_lengths;
  if (device_lengths != nullptr) return;
  const std::vector<std::int64_t> lengths = shorter_lengths(problem);
  args.has_lengths = !lengths.empty();
  if (lengths.size() > std::size_t{kMaxKeyLengths}) {
    throw Error(ErrorCode::unsupported, "attention_on_device: key_lengths.size is " +
                                            std::to_string(lengths.size()) + "; must be at most " +
                                            std::to_string(kMaxKeyLengths) +
                                            ", or given as device_key_lengths");
  }
  std::transform(lengths.begin(), lengths.end(), args.lengths,
                 [](std::int64_t n) { return static_cast<std::int32_t>(n); });
}

void set_scores(AttentionArgs& args, const AttentionProblem& problem) {
  const ScoreScale scale = score_scale(problem.sm_scale, problem.softcap);
  args.sm_scale = static_cast<float>(problem.sm_scale);
  args.sm_scale_log2 = scale.sm_scale_log2;
  args.softcap_scale = scale.softcap_scale;
  args.softcap_log2 = scale.softcap_log2;
}

AttentionArgs make_args(const AttentionProblem& problem, const Operands& x,
                        const Schedule& schedule, const std::int32_t* device_lengths) {
  const Dims& n = problem.dims;
  AttentionArgs args;
  args.q = make_tensor_map(x.q, 128, kWarpgroupRows);
  args.k = make_tensor_map(x.k, 128, problem.block_n());
  args.v = problem.precision == Precision::fp8
               ? make_tensor_map(x.v, kBlockN, kernel_dims(n).dv)  // V^T
               : make_tensor_map(x.v, 128, problem.block_n());
  args.q_descale = Descales(x.q_descale);
  args.k_descale = Descales(x.k_descale);
  args.v_descale = Descales(x.v_descale);
  args.k_per_key = per_key(x.k_descale);
  args.score_shift = x.score_shift;
  args.lse = row_values(problem.lse);
  args.out = {problem.out.data, problem.out.dtype, problem.out.stride[0], problem.out.stride[1],
              problem.out.stride[2]};
  args.wide_stores = problem.out.dtype == DType::f32 && rows_are_wide(problem.out);
  args.copies_out =
      problem.num_splits == 1 && problem.out.dtype != DType::f32 && copy_engine_reads(problem.out);
  if (args.copies_out) args.out_map = make_tensor_map(rows_of(problem.out), 128, kWarpRows);
  args.schedule = schedule;
  args.sq = static_cast<int>(n.sq);
  args.sk = static_cast<int>(n.sk);
  args.dv = static_cast<int>(n.dv);
  args.group = Divisor(static_cast<int>(n.group()));
  const auto reach = [](std::int64_t keys) {  // a side longer than any sequence is a limit, too
    return static_cast<int>(std::min(keys, kMostRows));
  };
  args.left = reach(problem.mask.left);
  args.right = reach(problem.mask.right);
  set_scores(args, problem);
  set_lengths(args, problem, device_lengths);
  return args;
}

/// Where parts of split rows (merge.h) lie in their share of the workspace; nowhere without splits.
struct PartLayout {
  explicit PartLayout(const AttentionProblem& problem)
      : rows(problem.dims.b * problem.dims.hq * problem.dims.sq) {
    if (problem.num_splits == 1) return;
    const std::int64_t parts = problem.num_splits * rows;
    lse_offset = aligned(static_cast<std::size_t>(parts * problem.dims.dv) * sizeof(float));
    bytes = lse_offset + aligned(static_cast<std::size_t>(parts) * sizeof(float));
  }

  std::int64_t rows;  // of one part
  std::size_t lse_offset = 0, bytes = 0;
};

/// Has the kernel write parts to `space`; returns how they become the output it was to write.
MergeArgs divert_to_parts(AttentionArgs& args, const AttentionProblem& problem, std::byte* space) {
  const Dims& n = problem.dims;
  const PartLayout layout(problem);
  auto* parts = reinterpret_cast<float*>(space);
  auto* lses = reinterpret_cast<float*>(space + layout.lse_offset);
  MergeArgs merge;
  merge.parts = parts;
  merge.lses = lses;
  merge.splits = problem.num_splits;
  merge.heads = static_cast<int>(n.hq);
  merge.sq = args.sq;
  merge.dv = args.dv;
  merge.rows = layout.rows;
  merge.out = args.out;
  merge.lse = args.lse;
  args.out = {parts, DType::f32, n.hq * n.sq * n.dv, n.dv, n.sq * n.dv, layout.rows * n.dv};
  args.wide_stores = true;
  args.lse = row_values(lses, n);
  args.lse.stride_split = layout.rows;
  return merge;
}

/// Device memory of the kernels: parts of split rows, or batons if there is room for them.
struct Space {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// None where a workspace that need not be there is none or not aligned.
Space space_in(void* workspace, std::size_t bytes) {
  if (workspace == nullptr || !is_aligned(workspace)) return {};
  return {static_cast<std::byte*>(workspace), bytes};
}

void launch(const AttentionProblem& problem, const Operands& x, const Space& space,
            CudaStream stream, const std::int32_t* device_lengths) {
  const AttentionKernel kernel = kernel_for(kernel_dims(problem.dims), needs_of(problem, x));
  int tiles_in_relay = device_lengths == nullptr ? relay_tiles(problem, kernel) : 0;
  if (space.bytes < baton_bytes(kernel)) tiles_in_relay = 0;
  const Schedule schedule = schedule_of(problem, kernel, tiles_in_relay);
  const int items = schedule.items();
  if (items == 0) return;  // before tensor maps of nothing are made
  AttentionArgs args = make_args(problem, x, schedule, device_lengths);
  args.lead = lead_of(problem, kernel);
  if (schedule.relay().is_on()) {
    args.batons = space.data;
    args.ticket = new_ticket();
  }
  MergeArgs merge;
  if (problem.num_splits > 1) merge = divert_to_parts(args, problem, space.data);
  check(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kernel.shared_bytes)),
        "reserving shared memory");
  cudaLaunchConfig_t config{};
  const int clusters = std::min(items, items_at_once(kernel));
  config.gridDim = dim3(static_cast<unsigned>(clusters * kernel.cluster));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (kernel.cluster > 1) {
    cudaLaunchAttribute& pairs = attributes[config.numAttrs++];
    pairs.id = cudaLaunchAttributeClusterDimension;
    pairs.val.clusterDim = {static_cast<unsigned>(kernel.cluster), 1, 1};
  }
  if (x.after_quantiser) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  void* parameters[] = {&args};
  check(cudaLaunchKernelExC(&config, kernel.function, parameters), "attention kernel");
  if (problem.num_splits > 1) check(launch_merge(merge, stream), "merge kernel");
}

/// The 16- and 32-bit operands of a call as the quantiser takes them; quantised ones become empty.
QuantizeParams quantize_params(const AttentionProblem& problem) {
  QuantizeParams params;
  const DType dtype = problem.q.quantised() ? problem.k.x.dtype : problem.q.x.dtype;
  const auto part = [&](const Operand& operand) {
    TensorView x = operand.x;
    if (operand.quantised()) {
      x.dtype = is_quantised(dtype) ? DType::bf16 : dtype;
      x.shape[1] = 0;
    }
    return x;
  };
  params.q = part(problem.q);
  params.k = part(problem.k);
  params.v = part(problem.v);
  params.recipe = problem.recipe;
  params.rope = problem.rope;
  if (!problem.k.quantised()) params.key_lengths = shorter_lengths(problem);
  return params;
}

/// Whether anything is left to quantise.
bool quantises(const AttentionProblem& problem) {
  return problem.precision == Precision::fp8 &&
         !(problem.q.quantised() && problem.k.quantised() && problem.v.quantised());
}

/// The kernel of a call whose operands have not been looked at yet.
AttentionKernel kernel_of(const AttentionProblem& problem) {
  const bool fp8 = problem.precision == Precision::fp8;
  const auto token = [&](const Operand& x, Granularity of_recipe) {
    return fp8 && (x.quantised() ? x.descale.granularity : of_recipe) == Granularity::token;
  };
  return kernel_for(kernel_dims(problem.dims),
                    needs_of(problem, problem.k_format(), token(problem.k, problem.recipe.k),
                             token(problem.v, problem.recipe.v)));
}

struct Workspace {
  explicit Workspace(const AttentionProblem& problem) {
    if (quantises(problem)) {
      quantised = aligned(quantize_workspace_bytes(quantize_params(problem)));
    }
    if (problem.v.quantised()) {
      v = device_operand(problem.v.x, problem.v.descale.granularity, false);
      repacked = aligned(static_cast<std::size_t>(v.code_bytes()));
    }
    parts = PartLayout(problem).bytes;
  }
  std::size_t bytes() const { return quantised + repacked + parts; }
  /// What the kernels have of it.
  Space space(std::byte* workspace, std::size_t given) const {
    const std::size_t before = quantised + repacked;
    return space_in(workspace + before, given - before);
  }

  std::size_t quantised = 0, repacked = 0, parts = 0;
  DeviceOperand v;
};

/// Those that quantize_on_device made.
Operands operands_of(const DeviceQkv& qkv, const Dims& n) {
  Operands x;
  x.q = rows_of(qkv.q);
  x.k = rows_of(qkv.k);
  x.v = transposed_rows_of(qkv.v);
  x.q_descale = descales_of(qkv.q);
  x.k_descale = descales_of(qkv.k);
  x.v_descale = descales_of(qkv.v);
  x.score_shift = row_values(qkv.score_shift, n);
  x.k_format = qkv.k.dtype;
  return x;
}

/// Those of a call in 16 bits, as they are.
Operands operands_of(const AttentionProblem& problem) {
  Operands x;
  x.q = rows_of(problem.q.x);
  x.k = rows_of(problem.k.x);
  x.v = rows_of(problem.v.x);
  x.k_format = problem.k.x.dtype;
  return x;
}

/// Quantises what is in 16 bits, repacks V where it came in 8 bits.
Operands prepare(const AttentionProblem& problem, Workspace work, std::byte* workspace,
                 CudaStream stream, const std::int32_t* device_lengths) {
  if (problem.precision != Precision::fp8) return operands_of(problem);
  Operands x;
  if (quantises(problem)) {
    const bool shifts = problem.lse.present() || problem.softcap > 0;
    x = operands_of(
        quantize_on_device(quantize_params(problem), workspace, work.quantised, stream,
                           device_lengths, shifts ? ScoreShift::wanted : ScoreShift::unused),
        problem.dims);
    x.after_quantiser = true;
  }
  if (problem.score_shift.present()) x.score_shift = row_values(problem.score_shift);
  if (problem.q.quantised()) {
    x.q = rows_of(problem.q.x);
    x.q_descale = problem.q.descale;
  }
  if (problem.k.quantised()) {
    x.k = rows_of(problem.k.x);
    x.k_descale = problem.k.descale;
    x.k_format = problem.k.x.dtype;
  }
  if (problem.v.quantised()) {
    work.v.codes = reinterpret_cast<std::uint8_t*>(workspace + work.quantised);
    repack_v_on_device(problem.v.x, work.v, stream, shorter_lengths(problem), device_lengths);
    x.v = transposed_rows_of(work.v);
    x.v_descale = problem.v.descale;
  }
  return x;
}

/// Operands that the attention kernel reads where they are: Q and K in 8 bits, all three in 16.
std::string why_unreadable(const AttentionProblem& problem) {
  const bool fp8 = problem.precision == Precision::fp8;
  for (const auto& [name, operand] :
       {std::pair{"q", &problem.q}, {"k", &problem.k}, {"v", &problem.v}}) {
    const bool repacked = fp8 && operand == &problem.v;
    const TensorView& x = operand->x;
    if (repacked || !problem.multiplied_as_is(*operand) || copy_engine_reads(x)) continue;
    const std::string what = std::string(name) + " is " + (fp8 ? "quantised" : "in 16 bits");
    if (is_broadcast(x)) {
      return what + " and broadcast, with a stride of 0; must be copied for the Hopper kernels";
    }
    return what +
           " with strides or a base that are no multiples of 16 bytes; must be for the Hopper "
           "kernels";
  }
  return "";
}

/// The same for calls in 16 bits.
std::string why_unsupported_16bit(const AttentionProblem& problem) {
  if (problem.dims.sq > kMostRows || problem.dims.sk > kMostRows) return kTooLong;
  return why_unreadable(problem);
}

}  // namespace

std::string why_unsupported_on_device(const AttentionProblem& problem) {
  const Dims& n = problem.dims;
  if (problem.precision != Precision::fp8) return why_unsupported_16bit(problem);
  const std::string never = why_not_in_fp8(problem);
  if (!never.empty()) return never;
  const DType k_format = problem.k_format(), v_format = problem.v_format();
  if (problem.softmax == SoftmaxPath::direct && k_format == DType::f8_e5m2) {
    return "softmax is direct; must be exact where k and v are E5M2";
  }
  if (problem.accumulator != Accumulator::hopper) {
    return "accumulator is fp32; must be hopper, which is what the tensor cores do";
  }
  if (problem.promote_every != 1) {
    return "promote_every is " + std::to_string(problem.promote_every) +
           "; must be 1, which is what the Hopper kernels do";
  }
  if (n.sq > kMostRows || n.sk > kMostRows) return kTooLong;
  if (problem.k.quantised() != problem.v.quantised()) {
    return "one of k and v is quantised; must be both or neither";
  }
  if (k_format == DType::i8 && v_format != DType::f8_e4m3) {
    return "v is E5M2; must be E4M3 where k is INT8";
  }
  if (k_format != DType::i8 && k_format != v_format) {
    return "k and v are FP8 of two formats; must be of one";
  }
  if (problem.q.quantised() && problem.recipe.smooth_k && quantises(problem)) {
    return "q is quantised and k is smoothed; must be both in 16 or 32 bits, or neither";
  }
  const std::string quantiser = why_not_quantised(problem);
  if (!quantiser.empty()) return quantiser;
  return why_unreadable(problem);
}

namespace {

void require_supported(const AttentionProblem& problem) {
  const std::string reason = why_unsupported_on_device(problem);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, "attention_on_device: " + reason);
}

void require_workspace(const void* workspace, std::size_t bytes, std::size_t needed) {
  if (needed == 0 || (workspace != nullptr && bytes >= needed && is_aligned(workspace))) return;
  throw Error(ErrorCode::invalid_argument, "attention_on_device: workspace has " +
                                               std::to_string(bytes) + " bytes; must have " +
                                               std::to_string(needed) + " at a 256-byte boundary");
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionProblem& problem) {
  return Workspace(problem).bytes() + baton_bytes(problem, kernel_of(problem));
}

std::string describe_kernel(const AttentionProblem& problem) {
  require_supported(problem);
  const KernelDims dims = kernel_dims(problem.dims);
  const AttentionKernel kernel = kernel_of(problem);
  std::string text = "d" + std::to_string(dims.d) + " dv" + std::to_string(dims.dv) + " " +
                     kernel.name + ": " + std::to_string(kernel.block_rows()) +
                     " query rows a block, " + std::to_string(kernel.threads) + " threads, " +
                     std::to_string(kernel.shared_bytes / 1024) + " KB of shared memory";
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel.function) == cudaSuccess) {
    text += ", " + std::to_string(attributes.numRegs) + " registers a thread at launch";
  } else {
    cudaGetLastError();  // no device: not an error here
  }
  return text;
}

void attend_on_device(const AttentionProblem& problem, void* workspace, std::size_t bytes,
                      CudaStream stream, const std::int32_t* device_lengths) {
  require_supported(problem);
  const Workspace work(problem);
  require_workspace(workspace, bytes, work.bytes());
  auto* space = static_cast<std::byte*>(workspace);
  const Operands x = prepare(problem, work, space, stream, device_lengths);
  launch(problem, x, work.space(space, bytes), stream, device_lengths);
}

std::size_t attention_workspace_bytes(const AttentionProblem& problem, const DeviceQkv& qkv) {
  const AttentionKernel kernel =
      kernel_for(kernel_dims(problem.dims), needs_of(problem, operands_of(qkv, problem.dims)));
  return PartLayout(problem).bytes + baton_bytes(problem, kernel);
}

void attend_on_device(const AttentionProblem& problem, const DeviceQkv& qkv, void* workspace,
                      std::size_t bytes, CudaStream stream, const std::int32_t* device_lengths) {
  require_supported(problem);
  require_workspace(workspace, bytes, PartLayout(problem).bytes);
  launch(problem, operands_of(qkv, problem.dims), space_in(workspace, bytes), stream,
         device_lengths);
}

}  // namespace octavo::sm90

namespace octavo {
namespace {

/// A view of codes in the kernels' layout, for checks of shapes and types.
TensorView view_of(const DeviceOperand& x) {
  TensorView view = contiguous(x.codes, x.dtype, {x.b, x.rows, x.h, x.d}, {Device::Kind::cuda, 0});
  view.stride[0] = x.h * x.padded_rows * x.padded_d;
  view.stride[1] = x.padded_d;
  view.stride[2] = x.padded_rows * x.padded_d;
  return view;
}

/// Descales may take any form here: the operands say which.
TensorView one_descale(const DeviceOperand& x) {
  return contiguous(x.descale, DType::f32, {1}, {Device::Kind::cuda, 0});
}

AttentionParams with_operands(AttentionParams params, const DeviceQkv& qkv) {
  if (params.q.present() || params.k.present() || params.v.present()) {
    throw Error(ErrorCode::invalid_argument,
                "attention_on_device: params.q, k or v is given; must be left out where operands "
                "are");
  }
  params.q = view_of(qkv.q);
  params.k = view_of(qkv.k);
  params.v = view_of(qkv.v);
  params.q_descale = one_descale(qkv.q);
  params.k_descale = one_descale(qkv.k);
  params.v_descale = one_descale(qkv.v);
  return params;
}

}  // namespace

std::string describe_attention_kernel(const AttentionParams& params) {
  return sm90::describe_kernel(validate(params));
}

std::size_t attention_workspace_bytes(const AttentionParams& params) {
  return sm90::attention_workspace_bytes(validate(params));
}

void attention_on_device(const AttentionParams& params, void* workspace, std::size_t bytes,
                         CudaStream stream, const std::int32_t* device_key_lengths) {
  sm90::attend_on_device(validate(params), workspace, bytes, stream, device_key_lengths);
}

std::size_t attention_workspace_bytes(const AttentionParams& params, const DeviceQkv& operands) {
  return sm90::attention_workspace_bytes(validate(with_operands(params, operands)), operands);
}

void attention_on_device(const AttentionParams& params, const DeviceQkv& operands,
                         CudaStream stream, const std::int32_t* device_key_lengths) {
  attention_on_device(params, operands, nullptr, 0, stream, device_key_lengths);
}

void attention_on_device(const AttentionParams& params, const DeviceQkv& operands, void* workspace,
                         std::size_t bytes, CudaStream stream,
                         const std::int32_t* device_key_lengths) {
  sm90::attend_on_device(validate(with_operands(params, operands)), operands, workspace, bytes,
                         stream, device_key_lengths);
}

}  // namespace octavo
