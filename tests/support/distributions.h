// SPDX-License-Identifier: Apache-2.0
// Operands on which quantisation is judged: each kind of content that real models are known for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/call.h"

namespace octavo::test {

enum class Distribution : std::uint8_t { normal, outlier, channel_offset, sink, wide };

inline const char* distribution_name(Distribution distribution) {
  switch (distribution) {
    case Distribution::normal: return "normal";
    case Distribution::outlier: return "outlier";
    case Distribution::channel_offset: return "channel_offset";
    case Distribution::sink: return "sink";
    case Distribution::wide: return "wide";
  }
  return "?";
}

/// N(0, 1) + N(0, 100) Bernoulli(0.001) in all operands (random.h).
inline Inputs outlier_inputs(const Extents& n, std::uint64_t seed, DType dtype) {
  const auto tensor = [&](const std::vector<std::int64_t>& shape, std::uint64_t stream) {
    const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    return Tensor(dtype, shape, outlier_values(count, 3 * seed + stream));
  };
  return {tensor(n.q_shape(), 0), tensor(n.k_shape(), 1), tensor(n.v_shape(), 2), {}, {}, {}, {}};
}

/// Adds to K one offset a (head, channel), of magnitude `low` to `high` and either sign, the same
/// for all tokens: it adds one number to all scores of a row, which softmax must not notice.
inline void add_channel_offsets(Inputs& x, double low, double high, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> offset(static_cast<std::size_t>(x.k.extent(2) * x.k.extent(3)));
  for (float& o : offset) {
    o = static_cast<float>(low + (high - low) * random.uniform());
    if (random.chance(0.5)) o = -o;
  }
  for (std::int64_t i = 0; i < x.k.numel(); ++i) {
    x.k.set(i, x.k.get(i) + offset[static_cast<std::size_t>(i) % offset.size()]);
  }
}

/// Key 0 of every head becomes 300 times a random unit vector and its value row 1e-3 of what it
/// was: what an attention sink looks like.
inline void make_sink(Inputs& x, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t d = x.k.extent(3);
  for (std::int64_t b = 0; b < x.k.extent(0); ++b) {
    for (std::int64_t h = 0; h < x.k.extent(2); ++h) {
      std::vector<float> direction(static_cast<std::size_t>(d));
      double size = 0;
      for (float& c : direction) {
        c = random.normal();
        size += static_cast<double>(c) * static_cast<double>(c);
      }
      const auto scale = static_cast<float>(300 / std::sqrt(size));
      for (std::int64_t c = 0; c < d; ++c) {
        x.k.set(x.k.at(b, 0, h, c), scale * direction[static_cast<std::size_t>(c)]);
      }
    }
  }
  scale_rows(x.v, 0, 1, 1e-3f);
}

/// Magnitudes over 36 octaves. Values: every block of 128 keys has its own power of two, growing
/// with the key, so that under a causal mask every row is made of its own block and those before
/// it. Scores: every KV head has its own power of two, and its query heads the reciprocal.
inline void spread_magnitudes(Inputs& x) {
  constexpr std::int64_t kSpan = 36;
  const auto power = [](std::int64_t i, std::int64_t n) {
    return std::ldexp(1.0f, static_cast<int>(n > 1 ? kSpan * i / (n - 1) - kSpan / 2 : 0));
  };
  const std::int64_t keys = x.k.extent(1), blocks = (keys + 127) / 128;
  for (std::int64_t block = 0; block < blocks; ++block) {
    scale_rows(x.v, 128 * block, std::min(128 * block + 128, keys), power(block, blocks));
  }
  const std::int64_t heads = x.k.extent(2), d = x.k.extent(3), heads_q = x.q.extent(2);
  for (std::int64_t i = 0; i < x.k.numel(); ++i) {
    x.k.set(i, x.k.get(i) * power(i / d % heads, heads));
  }
  for (std::int64_t i = 0; i < x.q.numel(); ++i) {
    x.q.set(i, x.q.get(i) / power(i / d % heads_q / (heads_q / heads), heads));
  }
}

inline Inputs draw(Distribution distribution, const Extents& n, std::uint64_t seed,
                   DType dtype = DType::bf16) {
  if (distribution == Distribution::outlier) return outlier_inputs(n, seed, dtype);
  Inputs x = normal_inputs(n, seed, dtype);
  if (distribution == Distribution::channel_offset) add_channel_offsets(x, 10, 50, seed + 1);
  if (distribution == Distribution::sink) make_sink(x, seed + 1);
  if (distribution == Distribution::wide) spread_magnitudes(x);
  return x;
}

}  // namespace octavo::test
