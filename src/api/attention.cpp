// SPDX-License-Identifier: Apache-2.0
// validate -> dispatch -> engine.
#include "octavo/attention.h"

#include "core/dispatch.h"
#include "core/validate.h"
#include "emulate/emulate.h"
#include "emulate/simd/stages.h"
#include "octavo/engine.h"
#include "octavo/error.h"
#include "reference/reference.h"
#include "sm90/quantize/quantize_host.h"
#include "sm90/sm90.h"

namespace octavo {
namespace {

/// In order of preference.
const std::vector<Engine>& engines() {
  static const std::vector<Engine> ordered = {sm90::kEngine, emulate::kEngine, reference::kEngine};
  return ordered;
}

}  // namespace

AttentionStats attention_forward(const AttentionParams& params) {
  const AttentionProblem problem = validate(params);
  AttentionStats stats = choose_engine(engines(), params.engine, problem).run(problem);
  stats.precision = problem.precision;
  return stats;
}

QuantizedQkv quantize(const QuantizeParams& params) {
  const AttentionProblem problem = validate(params);
  require_host_memory(problem);
  if (params.engine == "sm90") return sm90::quantize_host_tensors(params);
  if (params.engine == "auto" || params.engine == "emulate") return emulate::quantise_all(problem);
  throw Error(ErrorCode::invalid_argument,
              "quantize: engine is '" + params.engine + "'; must be one of auto, sm90, emulate");
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const Engine& engine : engines()) names.emplace_back(engine.name);
  return names;
}

std::vector<EngineVerdict> explain_dispatch(const AttentionParams& params) {
  const AttentionProblem problem = validate(params);
  std::vector<EngineVerdict> verdicts;
  for (const Engine& engine : engines()) {
    const std::string reason = engine.why_unsupported(problem);
    verdicts.push_back({engine.name, reason.empty(), reason.empty() ? engine.description : reason,
                        engine.automatic});
  }
  return verdicts;
}

std::string why_unsupported(const AttentionParams& params, const std::string& engine) {
  const AttentionProblem problem = validate(params);
  for (const Engine& candidate : engines()) {
    if (engine == candidate.name) return candidate.why_unsupported(problem);
  }
  throw Error(ErrorCode::invalid_argument, "why_unsupported: engine is '" + engine +
                                               "'; must be one of sm90, emulate, reference");
}

std::vector<std::string> simd_targets() { return emulate::simd::target_names(); }

TensorView QuantizedTensor::view() {
  return contiguous(codes.data(), dtype, {shape[0], shape[1], shape[2], shape[3]});
}

TensorView QuantizedTensor::descale_view() {
  TensorView x = contiguous(descale.data(), DType::f32, {});
  x.rank = static_cast<int>(descale_shape.size());
  std::int64_t stride = 1;
  for (int i = x.rank - 1; i >= 0; --i) {
    x.shape[i] = descale_shape[static_cast<std::size_t>(i)];
    x.stride[i] = stride;
    stride *= x.shape[i];
  }
  return x;
}

}  // namespace octavo
