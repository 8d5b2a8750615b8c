// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include "device.h"
#include "octavo/cuda.h"
#include "octavo/engine.h"

namespace octavo::python {
namespace {

constexpr const char* kFunction = "attention_forward";

/// The tensor of that name, and whether it has the four axes that a layout orders.
std::pair<TensorView*, bool> slot(AttentionParams& params, const std::string& name) {
  if (name == "q") return {&params.q, true};
  if (name == "k") return {&params.k, true};
  if (name == "v") return {&params.v, true};
  if (name == "out") return {&params.out, true};
  if (name == "lse") return {&params.lse, false};
  if (name == "q_descale") return {&params.q_descale, false};
  if (name == "k_descale") return {&params.k_descale, false};
  if (name == "v_descale") return {&params.v_descale, false};
  if (name == "score_shift") return {&params.score_shift, false};
  throw Error(ErrorCode::invalid_argument, std::string(kFunction) + ": has no tensor " + name);
}

std::string why_no_automatic(const AttentionParams& params) {
  std::string reasons;
  for (const EngineVerdict& verdict : explain_dispatch(params)) {
    if (!verdict.automatic) continue;
    if (verdict.accepts) return "";
    reasons += (reasons.empty() ? "" : "; ") + verdict.name + ": " + verdict.reason;
  }
  return reasons;
}

}  // namespace

Call::Call(const std::string& layout, std::pair<std::int64_t, std::int64_t> window, double softcap,
           std::optional<double> sm_scale, const std::string& precision,
           const std::optional<std::string>& recipe, const std::string& softmax,
           const std::string& accumulator, int promote_every, int num_splits, std::string engine,
           int threads)
    : bhsd_(is_bhsd(kFunction, layout)) {
  params_.mask = MaskSpec::window(window.first, window.second);
  params_.softcap = static_cast<float>(softcap);
  params_.sm_scale = sm_scale;
  params_.precision = parse_precision(precision);
  if (recipe) params_.recipe = parse_recipe(*recipe);
  params_.softmax = parse_softmax(softmax);
  params_.accumulator = parse_accumulator(accumulator);
  params_.promote_every = promote_every;
  params_.num_splits = num_splits;
  params_.engine = std::move(engine);
  params_.threads = threads;
}

Call Call::fresh(std::vector<std::int64_t> key_lengths) const {
  Call call;
  call.bhsd_ = bhsd_;
  call.params_ = params_;
  call.params_.key_lengths = std::move(key_lengths);
  return call;
}

nb::tuple Call::set(const std::string& name, nb::handle array,
                    const std::optional<std::string>& dtype) {
  const bool written = name == "out" || name == "lse";
  const Argument argument{kFunction, name};
  const TensorView view =
      written ? arrays_.write(argument, array, dtype) : arrays_.read(argument, array, dtype);
  assign(name, view);
  return describe(view);
}

nb::tuple Call::set_torch(const std::string& name, nb::handle tensor,
                          const std::optional<std::string>& dtype) {
  const TensorView view = torch_view({kFunction, name}, tensor, dtype);
  assign(name, view);
  return describe(view);
}

void Call::assign(const std::string& name, const TensorView& view) {
  const auto [tensor, ordered] = slot(params_, name);
  *tensor = ordered && bhsd_ && view.rank == 4 ? transposed(view, 1, 2) : view;
  const bool operand = ordered && name != "out";
  // Descales are set before the codes that they are of.
  if (!operand || !is_quantised(view.dtype) || slot(params_, name + "_descale").first->present()) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              std::string(kFunction) + ": " + name + "_descale is missing; must be given, since " +
                  name + " is " + dtype_name(view.dtype) +
                  " (a descale of 1 is never assumed): pass QuantizedTensor(" + name +
                  ", descale)");
}

std::size_t Call::workspace_bytes() const {
  return counting_axes(bhsd_, [&] { return attention_workspace_bytes(params_); });
}

void Call::run_on_device(std::uintptr_t stream, std::uintptr_t workspace, std::size_t bytes,
                         std::uintptr_t key_lengths) const {
  require_device_engine(kFunction, params_.engine);
  const nb::gil_scoped_release release;
  const CurrentDevice current(params_.q.device.index);
  counting_axes(bhsd_, [&] {
    const auto queue = reinterpret_cast<CudaStream>(stream);
    const auto* lengths = reinterpret_cast<const std::int32_t*>(key_lengths);
    if (workspace != 0) {
      attention_on_device(params_, reinterpret_cast<void*>(workspace), bytes, queue, lengths);
    } else {
      const StreamBuffer own(attention_workspace_bytes(params_), queue);
      attention_on_device(params_, own.data(), own.bytes(), queue, lengths);
    }
  });
}

TensorView Call::set_exchanged(const Exchange& exchange, const char* name, nb::handle tensor,
                               const std::optional<std::string>& dtype) {
  const TensorView view = exchange.view({kFunction, name}, tensor, dtype);
  assign(name, view);
  return view;
}

nb::object Call::attend(nb::handle q, nb::handle k, nb::handle v, nb::handle out,
                        const std::optional<std::string>& out_dtype, bool return_lse) {
  const std::optional<Exchange> exchange = Exchange::of(q.type());
  if (!exchange) throw nb::type_error("attend: tensors of this type have no exchange table");
  const TensorView q_view = set_exchanged(*exchange, "q", q, std::nullopt);
  set_exchanged(*exchange, "k", k, std::nullopt);
  const TensorView v_view = set_exchanged(*exchange, "v", v, std::nullopt);
  const int device = q_view.device.index;
  const bool ranks_fit = q_view.rank == 4 && v_view.rank == 4;  // else q or v is refused below
  const auto q_extent = [&](int axis) { return ranks_fit ? q_view.shape[axis] : 0; };

  nb::object result = nb::borrow(out);
  if (out.is_none()) {
    const DType own = is_quantised(q_view.dtype) ? DType::bf16 : q_view.dtype;
    result =
        exchange->empty({q_extent(0), q_extent(1), q_extent(2), ranks_fit ? v_view.shape[3] : 0},
                        out_dtype ? parse_dtype(*out_dtype) : own, device);
  }
  set_exchanged(*exchange, "out", result, out_dtype);
  nb::object lse;
  if (return_lse) {
    lse = exchange->empty({q_extent(0), q_extent(bhsd_ ? 1 : 2), q_extent(bhsd_ ? 2 : 1)},
                          DType::f32, device);
    set_exchanged(*exchange, "lse", lse, std::nullopt);
  }

  const std::size_t bytes = workspace_bytes();
  const Exchange::Buffer workspace(*exchange, bytes, device);
  run_on_device(reinterpret_cast<std::uintptr_t>(exchange->current_stream(device)),
                reinterpret_cast<std::uintptr_t>(workspace.data()), bytes, 0);
  return return_lse ? nb::object(nb::make_tuple(result, lse)) : result;
}

std::string Call::run() const {
  const nb::gil_scoped_release release;
  return counting_axes(bhsd_, [&] { return attention_forward(params_).engine; });
}

std::string Call::why_unsupported() const {
  return counting_axes(bhsd_, [&] {
    if (params_.engine == "auto") return why_no_automatic(params_);
    return octavo::why_unsupported(params_, params_.engine);
  });
}

}  // namespace octavo::python
