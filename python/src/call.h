// SPDX-License-Identifier: Apache-2.0
// One attention call, filled in from Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "octavo/attention.h"

namespace octavo::python {

class Call {
 public:
  Call(const std::string& layout, std::pair<std::int64_t, std::int64_t> window, double softcap,
       std::optional<double> sm_scale, std::vector<std::int64_t> key_lengths,
       const std::optional<std::string>& recipe, const std::string& softmax,
       const std::string& accumulator, int promote_every, int num_splits, std::string engine,
       int threads);

  /// Sets the tensor of that name in AttentionParams. Returns its shape, as the caller counts axes,
  /// and the name of its type.
  nb::tuple set(const std::string& name, nb::handle array, const std::optional<std::string>& dtype);

  /// Computes; other threads of Python run meanwhile. Returns the name of the engine.
  std::string run() const;

  /// Empty where the engine (or under "auto" any automatic one) computes this call; else why not.
  std::string why_unsupported() const;

 private:
  bool bhsd_;
  Arrays arrays_;
  AttentionParams params_;
};

}  // namespace octavo::python
