// SPDX-License-Identifier: Apache-2.0
#include "workload/generate.h"

#include <algorithm>
#include <cmath>

#include "workload/rng.h"

namespace octavo::workload {
namespace {

// Streams of random numbers. Their numbers are part of what a seed means: append only.
enum Stream : std::uint64_t {
  kQuery = 0,
  kKey = 1,
  kValue = 2,
  kIsOutlier = 4,  // + kQuery, kKey or kValue
  kOutlier = 8,    // likewise
  kRowExponent = 12,
  kHeadExponent = 16,
  kChannelOffset = 17,
  kSinkDirection = 18,
};

// One row of an operand: where it is, and the index of its first element among all.
struct Row {
  std::int64_t b, s, h;
  std::uint64_t number;  // of the row
  std::uint64_t first;   // element
};

class Generator {
 public:
  Generator(const Problem& problem, const std::function<void(double)>& progress)
      : problem_(problem), progress_(progress) {
    const bool narrow = problem.in == DType::f16 || problem.out == DType::f16;
    span_ = narrow ? 10 : 20;
  }

  // x: [b, s, h, d]. Reports progress from share `begin` to `end` of the work.
  void fill(const TensorView& x, Stream operand, double begin, double end) const {
    std::vector<double> values(static_cast<std::size_t>(x.shape[3]));
    std::vector<float> rounded(values.size());
    const std::int64_t rows = row_count(x);
    for (std::int64_t number = 0; number < rows; ++number) {
      if (progress_ && number % 1024 == 0)
        progress_(begin + (end - begin) * double(number) / double(rows));
      const Row row{number / (x.shape[2] * x.shape[1]), number / x.shape[2] % x.shape[1],
                    number % x.shape[2], static_cast<std::uint64_t>(number),
                    static_cast<std::uint64_t>(number) * values.size()};
      fill_row(row, operand, values);
      for (std::size_t c = 0; c < values.size(); ++c) rounded[c] = static_cast<float>(values[c]);
      store_row(x, number, rounded);
    }
  }

 private:
  Random stream(std::uint64_t number) const { return Random(problem_.seed, number); }

  void fill_row(const Row& row, Stream operand, std::vector<double>& x) const {
    const Random base = stream(operand);
    if (problem_.dist == Distribution::uniform) {
      for (std::size_t c = 0; c < x.size(); ++c) x[c] = 2 * base.uniform(row.first + c) - 1;
      return;
    }
    for (std::size_t c = 0; c < x.size(); ++c) x[c] = base.normal(row.first + c);
    switch (problem_.dist) {
      case Distribution::outlier: return add_outliers(row, operand, x);
      case Distribution::channel:
        if (operand == kKey) add_offsets(row, x);
        return;
      case Distribution::sink:
        if (row.s == 0 && operand != kQuery) make_sink(row, operand, x);
        return;
      case Distribution::wide: return widen(row, operand, x);
      case Distribution::normal:
      case Distribution::uniform: return;
    }
  }

  void add_outliers(const Row& row, Stream operand, std::vector<double>& x) const {
    const Random is_outlier = stream(kIsOutlier + operand);
    const Random outlier = stream(kOutlier + operand);
    for (std::size_t c = 0; c < x.size(); ++c) {
      if (is_outlier.uniform(row.first + c) < 0.001) x[c] += 10 * outlier.normal(row.first + c);
    }
  }

  void add_offsets(const Row& row, std::vector<double>& x) const {
    const Random offset = stream(kChannelOffset);
    for (std::size_t c = 0; c < x.size(); ++c) {
      const double u = 2 * offset.uniform(static_cast<std::uint64_t>(row.h) * x.size() + c) - 1;
      x[c] += u < 0 ? -10 + 40 * u : 10 + 40 * u;
    }
  }

  void make_sink(const Row& row, Stream operand, std::vector<double>& x) const {
    if (operand == kValue) {
      for (double& value : x) value *= 1e-3;
      return;
    }
    const Random direction = stream(kSinkDirection);
    double norm = 0;
    for (std::size_t c = 0; c < x.size(); ++c) {
      x[c] = direction.normal(row.first + c);
      norm += x[c] * x[c];
    }
    for (double& value : x) value *= 300 / std::sqrt(norm);
  }

  void widen(const Row& row, Stream operand, std::vector<double>& x) const {
    const Random rows = stream(kRowExponent + operand);
    std::int64_t exponent = 0;
    if (operand == kValue) {
      exponent = rows.whole(row.number, -span_, span_);
    } else {
      const bool is_query = operand == kQuery;
      // Query head h reads KV head h / (hq / hkv): both must draw the same m.
      const std::int64_t group = std::max<std::int64_t>(problem_.hq / problem_.hkv, 1);
      const std::int64_t head = is_query ? row.h / group : row.h;
      const auto pair = static_cast<std::uint64_t>(row.b * problem_.hkv + head);
      const std::int64_t m = stream(kHeadExponent).whole(pair, -span_ / 2, span_ / 2);
      exponent = (is_query ? m : -m) - rows.whole(row.number, 0, span_ / 2);
    }
    for (double& value : x) value = std::ldexp(value, static_cast<int>(exponent));
  }

  const Problem& problem_;
  const std::function<void(double)>& progress_;
  std::int64_t span_;
};

// A tensor of the layout's memory order, seen as [b, s, h, d].
TensorView allocate(Inputs& inputs, DType dtype, Layout layout,
                    const std::array<std::int64_t, 4>& bshd) {
  const bool heads_first = layout == Layout::bhsd;
  inputs.storage.push_back(heads_first ? make_tensor(dtype, {bshd[0], bshd[2], bshd[1], bshd[3]})
                                       : make_tensor(dtype, {bshd[0], bshd[1], bshd[2], bshd[3]}));
  const TensorView x = inputs.storage.back().view();
  return heads_first ? transposed(x, 1, 2) : x;
}

// Heads [first, first + count) of x.
TensorView heads_of(TensorView x, std::int64_t first, std::int64_t count) {
  x.data = static_cast<std::byte*>(x.data) +
           first * x.stride[2] * static_cast<std::int64_t>(size_of(x.dtype));
  x.shape[2] = count;
  return x;
}

void allocate_operands(const Problem& p, DType dtype, Layout layout, Inputs& inputs) {
  if (layout == Layout::packed) {
    const TensorView qkv = allocate(inputs, dtype, layout, {p.b, p.sq, p.hq + 2 * p.hkv, p.d});
    inputs.q = heads_of(qkv, 0, p.hq);
    inputs.k = heads_of(qkv, p.hq, p.hkv);
    inputs.v = heads_of(qkv, p.hq + p.hkv, p.hkv);
    return;
  }
  inputs.q = allocate(inputs, dtype, layout, {p.b, p.sq, p.hq, p.d});
  inputs.k = allocate(inputs, dtype, layout, {p.b, p.sk, p.hkv, p.d});
  inputs.v = allocate(inputs, dtype, layout, {p.b, p.sk, p.hkv, p.dv});
}

// The codes in the problem's layout.
TensorView codes_view(Inputs& inputs, QuantizedTensor& x, Layout layout) {
  if (layout != Layout::bhsd) return x.view();
  inputs.storage.push_back(copy_of(transposed(x.view(), 1, 2)));
  return transposed(inputs.storage.back().view(), 1, 2);
}

Inputs quantise(const Problem& p, const Inputs& wide) {
  QuantizeParams params;
  params.q = wide.q;
  params.k = wide.k;
  params.v = wide.v;
  params.recipe = p.recipe;
  params.key_lengths = p.lens;
  Inputs inputs;
  inputs.quantized = std::make_unique<QuantizedQkv>(quantize(params));
  QuantizedQkv& qkv = *inputs.quantized;
  inputs.q = codes_view(inputs, qkv.q, p.layout);
  inputs.k = codes_view(inputs, qkv.k, p.layout);
  inputs.v = codes_view(inputs, qkv.v, p.layout);
  inputs.q_descale = qkv.q.descale_view();
  inputs.k_descale = qkv.k.descale_view();
  inputs.v_descale = qkv.v.descale_view();
  if (!qkv.score_shift.empty()) {
    inputs.score_shift = contiguous(qkv.score_shift.data(), DType::f32, {p.b, p.hq, p.sq});
  }
  return inputs;
}

}  // namespace

Inputs generate(const Problem& problem, const std::function<void(double)>& progress) {
  const bool fp8 = is_fp8(problem.in);
  Inputs inputs;
  allocate_operands(problem, fp8 ? DType::bf16 : problem.in, fp8 ? Layout::bshd : problem.layout,
                    inputs);
  const Generator generator(problem, progress);
  generator.fill(inputs.q, kQuery, 0.0, 0.34);
  generator.fill(inputs.k, kKey, 0.34, 0.67);
  generator.fill(inputs.v, kValue, 0.67, 1.0);
  return fp8 ? quantise(problem, inputs) : std::move(inputs);
}

AttentionParams attention_params(const Problem& problem, const Inputs& inputs) {
  AttentionParams params;
  params.q = inputs.q;
  params.k = inputs.k;
  params.v = inputs.v;
  params.q_descale = inputs.q_descale;
  params.k_descale = inputs.k_descale;
  params.v_descale = inputs.v_descale;
  params.score_shift = inputs.score_shift;
  params.mask = problem.mask;
  params.softcap = problem.softcap;
  params.key_lengths = problem.lens;
  if (problem.scale) params.sm_scale = *problem.scale;
  if (is_fp8(problem.in)) {
    // Rotated codes have a padded head dim; the softmax scale is that of the unpadded one.
    const double by_default = 1.0 / std::sqrt(static_cast<double>(problem.d));
    if (!params.sm_scale) params.sm_scale = by_default;
  }
  params.precision = problem.precision;
  params.recipe = recipe_of_call(problem);
  params.softmax = problem.softmax;
  params.accumulator = problem.acc;
  params.promote_every = problem.promote;
  params.num_splits = problem.splits;
  return params;
}

}  // namespace octavo::workload
