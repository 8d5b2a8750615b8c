// SPDX-License-Identifier: Apache-2.0
#include "workload/random_problem.h"

#include <algorithm>
#include <array>

#include "workload/rng.h"

namespace octavo::workload {
namespace {

// Around the tile sizes, and lengths that divide nothing.
constexpr std::array<std::int64_t, 14> kLengths = {1,   3,   17,  63,  64,  65,   113,
                                                   127, 128, 129, 257, 799, 1023, 4224};
constexpr std::array<std::int64_t, 12> kHeadDims = {8,   40,  64,  72,  80,  96,
                                                    112, 128, 128, 160, 192, 256};
constexpr double kMaxWork = 0x1p26;  // b hq sq sk (d + dv): a fraction of a second in the emulation

class Chooser {
 public:
  Chooser(std::uint64_t seed, std::uint64_t index) : random_(seed, kStream + index) {}

  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return random_.whole(next_++, low, high);
  }
  bool one_in(std::int64_t n) { return whole(1, n) == 1; }
  template <typename T, std::size_t kCount>
  T one_of(const std::array<T, kCount>& choices) {
    return choices[static_cast<std::size_t>(whole(0, kCount - 1))];
  }

 private:
  static constexpr std::uint64_t kStream = 1u << 20;  // away from the generator's streams
  Random random_;
  std::uint64_t next_ = 0;
};

void choose_extents(Chooser& choose, Problem& p) {
  p.b = choose.whole(1, 3);
  p.hkv = choose.whole(1, 3);
  p.hq = p.hkv * choose.whole(1, 4);
  p.d = choose.one_of(kHeadDims);
  p.dv = choose.one_in(4) ? choose.one_of(kHeadDims) : p.d;
  p.sq = choose.one_of(kLengths);
  p.sk = choose.one_in(3) ? p.sq : choose.one_of(kLengths);
  const auto work = [&] {
    return double(p.b) * double(p.hq) * double(p.sq) * double(p.sk) * double(p.d + p.dv);
  };
  if (work() > kMaxWork) p.b = 1;
  if (work() > kMaxWork) p.hq = p.hkv = 1;
  while (work() > kMaxWork) p.sq = (p.sq + 1) / 2;
}

void choose_mask(Chooser& choose, Problem& p) {
  switch (choose.whole(0, 3)) {
    case 0: break;
    case 1: p.mask = MaskSpec::causal(); break;
    case 2: p.mask = MaskSpec::window(choose.whole(0, p.sk), choose.whole(0, p.sk)); break;
    case 3: p.mask = MaskSpec::window(choose.whole(0, 200), choose.one_in(2) ? 0 : -1); break;
  }
  if (choose.one_in(4)) {
    for (std::int64_t i = 0; i < p.b; ++i) p.lens.push_back(choose.whole(0, p.sk));
  }
  if (choose.one_in(6)) p.softcap = static_cast<float>(choose.whole(5, 50));
  if (choose.one_in(6)) p.scale = static_cast<float>(choose.whole(1, 16)) / 64.0f;
}

void choose_numerics(Chooser& choose, Problem& p) {
  const auto names = recipe_names();
  p.recipe = parse_recipe(names[static_cast<std::size_t>(
      choose.whole(0, static_cast<std::int64_t>(names.size()) - 1))]);
  if (choose.one_in(8)) p.recipe.rotate = true;
  if (choose.one_in(8)) {
    p.recipe.kv_format = DType::f8_e5m2;
    p.recipe.qk_format = DType::f8_e4m3;
  } else if (choose.one_in(3)) {
    p.recipe.qk_format = DType::i8;
  }
  if (choose.one_in(3)) p.softmax = SoftmaxPath::direct;
  // No engine folds a descale per token of V into codes that come straight from the scores.
  if (p.recipe.v == Granularity::token) p.softmax = SoftmaxPath::exact;
  if (choose.one_in(3)) p.acc = Accumulator::fp32;
  if (choose.one_in(6)) p.promote = static_cast<int>(choose.whole(1, 4));
  p.in =
      choose.one_of(std::array{DType::bf16, DType::bf16, DType::f16, DType::f32, DType::f8_e4m3});
  p.out = choose.one_of(std::array{DType::bf16, DType::bf16, DType::f16, DType::f32});
}

/// Nothing is quantised: what says how goes back to its default.
void keep_16_bits(Problem& p, Precision precision) {
  p.precision = precision;
  p.in = default_input(precision);
  p.recipe = Recipe::standard();
  p.softmax = SoftmaxPath::exact;
  p.promote = 1;
}

}  // namespace

Problem random_problem(std::uint64_t seed, std::uint64_t index) {
  Chooser choose(seed, index);
  Problem p;
  choose_extents(choose, p);
  choose_mask(choose, p);
  choose_numerics(choose, p);
  p.dist = choose.one_of(std::array{Distribution::normal, Distribution::normal,
                                    Distribution::outlier, Distribution::channel,
                                    Distribution::sink, Distribution::wide, Distribution::uniform});
  p.layout = choose.one_of(std::array{Layout::bshd, Layout::bshd, Layout::bhsd, Layout::packed});
  const bool can_pack = p.sq == p.sk && p.d == p.dv && !is_fp8(p.in);
  if (p.layout == Layout::packed && !can_pack) p.layout = Layout::bhsd;
  if (choose.one_in(6)) p.splits = static_cast<int>(choose.whole(2, 5));
  if (choose.one_in(6)) {
    keep_16_bits(p, choose.one_in(2) ? Precision::bf16 : Precision::fp16);
  }
  p.seed = index;
  return p;
}

}  // namespace octavo::workload
