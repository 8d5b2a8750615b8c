// SPDX-License-Identifier: Apache-2.0
#include "workload/problem.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <variant>

#include "core/mask.h"
#include "octavo/error.h"
#include "workload/problem_text.h"

namespace octavo::workload {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;
constexpr double kMaxElements = 0x1p42;  // of one operand: beyond any memory, within int64 strides
constexpr std::size_t kMaxLine = 4096;   // characters; longer lines are mistakes

[[noreturn]] void fail(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, "problem: " + sentence);
}

Precision parse_fixed_precision(std::string_view text) {
  const Precision precision = parse_precision(std::string(text));
  if (precision == Precision::automatic) {
    fail("precision is 'auto'; must be fp8, bf16 or fp16, so that a line says what is computed");
  }
  return precision;
}

// Reads the tokens of one line into a problem, each field at most once.
class Parser {
 public:
  void token(std::string_view token) {
    // Beyond this point any part of a token may stand in an error sentence.
    if (!std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; })) {
      fail("token " + quoted(token) + " holds other bytes; must be printable ASCII");
    }
    const std::size_t equals = token.find('=');
    if (equals != std::string_view::npos) {
      setting(token, token.substr(0, equals), token.substr(equals + 1));
    } else if (token == "causal" || token == "none") {
      once(token, "mask");
      problem_.mask = token == "causal" ? MaskSpec::causal() : MaskSpec::none();
    } else {
      extent(token);
    }
  }

  Problem finish() {
    for (const char* name : {"sq", "sk"}) {
      if (!seen(name)) {
        fail(std::string(name) + " is missing; a line must set sq and sk (or both by s), as in \"" +
             "b1 s1024 h8 d128 causal\"");
      }
    }
    if (!seen("dv")) problem_.dv = problem_.d;
    if (!seen("in")) problem_.in = default_input(problem_.precision);
    if (problem_.layout == Layout::packed) check_packed();
    check_size();
    return problem_;
  }

 private:
  bool seen(std::string_view field) const {
    return std::find(seen_.begin(), seen_.end(), field) != seen_.end();
  }

  void once(std::string_view token, std::string_view field) {
    if (seen(field)) {
      fail("token " + quoted(token) + " sets " + std::string(field) +
           " again; must be set at most once");
    }
    seen_.emplace_back(field);
  }

  [[noreturn]] static void unknown(std::string_view token) {
    fail("token " + quoted(token) +
         " is unknown; must be an extent (b, s, sq, sk, h, hq, hkv, d, dv and a number), causal, "
         "none, or one of window= lens= scale= softcap= precision= recipe= softmax= acc= promote= "
         "splits= in= out= dist= seed= layout=");
  }

  void extent(std::string_view token) {
    const auto digits =
        std::find_if(token.begin(), token.end(), [](char c) { return c < 'a' || c > 'z'; });
    const auto letters = static_cast<std::size_t>(digits - token.begin());
    const std::string_view name = token.substr(0, letters);
    struct Extent {
      const char* name;
      std::vector<std::pair<const char*, std::int64_t Problem::*>> sets;
    };
    static const std::vector<Extent> kExtents = {
        {"b", {{"b", &Problem::b}}},
        {"s", {{"sq", &Problem::sq}, {"sk", &Problem::sk}}},
        {"sq", {{"sq", &Problem::sq}}},
        {"sk", {{"sk", &Problem::sk}}},
        {"h", {{"hq", &Problem::hq}, {"hkv", &Problem::hkv}}},
        {"hq", {{"hq", &Problem::hq}}},
        {"hkv", {{"hkv", &Problem::hkv}}},
        {"d", {{"d", &Problem::d}}},
        {"dv", {{"dv", &Problem::dv}}},
    };
    for (const Extent& known : kExtents) {
      if (name != known.name) continue;
      const std::int64_t value =
          parse_whole("problem: " + std::string(name), token.substr(letters), 1, kMaxExtent);
      for (const auto& [field, member] : known.sets) {
        once(token, field);
        problem_.*member = value;
      }
      return;
    }
    unknown(token);
  }

  void setting(std::string_view token, std::string_view key, std::string_view value) {
    using Setter = std::function<void(Problem&, std::string_view argument, std::string_view value)>;
    static const std::map<std::string_view, Setter> kSetters = {
        {"window", [](auto& p, auto a, auto v) { p.mask = parse_window(a, v); }},
        {"lens", [](auto& p, auto a, auto v) { p.lens = parse_lengths(a, v); }},
        {"scale", [](auto& p, auto a, auto v) { p.scale = parse_positive(a, v); }},
        {"softcap", [](auto& p, auto a, auto v) { p.softcap = parse_positive_float(a, v); }},
        {"precision", [](auto& p, auto, auto v) { p.precision = parse_fixed_precision(v); }},
        {"recipe", [](auto& p, auto, auto v) { p.recipe = parse_recipe(std::string(v)); }},
        {"softmax", [](auto& p, auto, auto v) { p.softmax = parse_softmax(std::string(v)); }},
        {"acc", [](auto& p, auto, auto v) { p.acc = parse_accumulator(std::string(v)); }},
        {"promote", [](auto& p, auto a, auto v) { p.promote = parse_promote(a, v); }},
        {"splits", [](auto& p, auto a, auto v) { p.splits = parse_splits(a, v); }},
        {"in", [](auto& p, auto a, auto v) { p.in = parse_input_dtype(a, v); }},
        {"out", [](auto& p, auto a, auto v) { p.out = parse_output_dtype(a, v); }},
        {"dist", [](auto& p, auto a, auto v) { p.dist = parse_distribution(a, v); }},
        {"seed", [](auto& p, auto a, auto v) { p.seed = parse_seed(a, v); }},
        {"layout", [](auto& p, auto a, auto v) { p.layout = parse_layout(a, v); }},
    };
    const auto setter = kSetters.find(key);
    if (setter == kSetters.end()) unknown(token);
    once(token, key == "window" ? "mask" : key);
    // The library's own parsers would repeat the whole text in their sentence, however long.
    if (value.empty() || value.size() > 256) {
      fail(std::string(key) + " is " + quoted(value) + "; must be 1 to 256 characters");
    }
    setter->second(problem_, "problem: " + std::string(key), value);
  }

  void check_packed() const {
    if (problem_.sq != problem_.sk || problem_.d != problem_.dv || is_fp8(problem_.in)) {
      fail(
          "layout is 'packed'; must have sq equal to sk, dv equal to d and in=bf16, f16 or f32, "
          "as Q, K and V are slices of one tensor");
    }
  }

  void check_size() const {
    const Problem& p = problem_;
    const auto elements = [&](const char* name, std::int64_t s, std::int64_t h, std::int64_t d) {
      const double n = double(p.b) * double(s) * double(h) * double(d);
      if (n > kMaxElements) {
        fail(std::string(name) + " has more than 2^42 elements; must fit in memory");
      }
    };
    elements("q", p.sq, p.hq, p.d);
    elements("k", p.sk, p.hkv, p.d);
    elements("v", p.sk, p.hkv, p.dv);
    elements("out", p.sq, p.hq, p.dv);
  }

  Problem problem_;
  std::vector<std::string> seen_;
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

Problem parse_problem(std::string_view line) {
  if (line.size() > kMaxLine) {
    fail("the line has " + std::to_string(line.size()) + " characters; must have at most " +
         std::to_string(kMaxLine));
  }
  Parser parser;
  auto at = line.begin();
  while (at != line.end()) {
    const auto begin = std::find_if_not(at, line.end(), is_space);
    at = std::find_if(begin, line.end(), is_space);
    if (begin != at) {
      parser.token(line.substr(static_cast<std::size_t>(begin - line.begin()),
                               static_cast<std::size_t>(at - begin)));
    }
  }
  return parser.finish();
}

std::string format_problem(const Problem& p) {
  static const Problem kDefault{};
  std::string line;
  const auto add = [&](const std::string& token) { line += (line.empty() ? "" : " ") + token; };
  const auto extent = [&](const char* name, std::int64_t value) {
    add(name + std::to_string(value));
  };
  if (p.b != kDefault.b) extent("b", p.b);
  if (p.sq == p.sk) {
    extent("s", p.sq);
  } else {
    extent("sq", p.sq);
    extent("sk", p.sk);
  }
  if (p.hq == p.hkv) {
    if (p.hq != kDefault.hq) extent("h", p.hq);
  } else {
    if (p.hq != kDefault.hq) extent("hq", p.hq);
    if (p.hkv != kDefault.hkv) extent("hkv", p.hkv);
  }
  if (p.d != kDefault.d) extent("d", p.d);
  if (p.dv != p.d) extent("dv", p.dv);
  if (p.mask == MaskSpec::causal()) {
    add("causal");
  } else if (p.mask != MaskSpec::none()) {
    add("window=" + window_text(p.mask));
  }
  if (!p.lens.empty()) add("lens=" + lengths_text(p.lens));
  if (p.scale) add("scale=" + number_text(*p.scale));
  if (p.softcap != 0) add("softcap=" + number_text(p.softcap));
  if (p.precision != kDefault.precision) {
    add(std::string("precision=") + precision_name(p.precision));
  }
  if (p.recipe != kDefault.recipe) add("recipe=" + recipe_name(p.recipe));
  if (p.softmax != kDefault.softmax) add(std::string("softmax=") + softmax_name(p.softmax));
  if (p.acc != kDefault.acc) add(std::string("acc=") + accumulator_name(p.acc));
  if (p.promote != kDefault.promote) {
    add("promote=" + (p.promote == 0 ? std::string("none") : std::to_string(p.promote)));
  }
  if (p.splits != kDefault.splits) add("splits=" + std::to_string(p.splits));
  if (p.in == DType::f8_e4m3) {
    add("in=f8");
  } else if (p.in != default_input(p.precision)) {
    add(std::string("in=") + dtype_name(p.in));
  }
  if (p.out != kDefault.out) add(std::string("out=") + dtype_name(p.out));
  if (p.dist != kDefault.dist) add(std::string("dist=") + distribution_name(p.dist));
  if (p.seed != kDefault.seed) add("seed=" + std::to_string(p.seed));
  if (p.layout != kDefault.layout) add(std::string("layout=") + layout_name(p.layout));
  return line;
}

std::optional<Recipe> recipe_of_call(const Problem& p) {
  const bool by_default = p.recipe == Recipe::standard();
  if (is_fp8(p.in) || (p.precision != Precision::fp8 && by_default)) return std::nullopt;
  return p.recipe;
}

DType default_input(Precision precision) {
  return precision == Precision::fp16 ? DType::f16 : DType::bf16;
}

std::vector<Problem> read_problem_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw Error(ErrorCode::io, path + ": cannot be opened; must be a readable problem file");
  }
  std::vector<Problem> problems;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    if (std::all_of(line.begin(), line.end(), is_space)) continue;
    try {
      problems.push_back(parse_problem(line));
    } catch (const Error& error) {
      throw Error(error.code(), path + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  // A directory opens, but reading it fails.
  if (file.bad()) throw Error(ErrorCode::io, path + ": reading failed; must be a problem file");
  return problems;
}

const char* distribution_name(Distribution dist) noexcept {
  switch (dist) {
    case Distribution::normal: return "normal";
    case Distribution::outlier: return "outlier";
    case Distribution::channel: return "channel";
    case Distribution::sink: return "sink";
    case Distribution::wide: return "wide";
    case Distribution::uniform: return "uniform";
  }
  return "?";
}

const char* layout_name(Layout layout) noexcept {
  switch (layout) {
    case Layout::bshd: return "bshd";
    case Layout::bhsd: return "bhsd";
    case Layout::packed: return "packed";
  }
  return "?";
}

std::int64_t visible_pairs(const Problem& p) {
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < p.b; ++b) {
    const auto entry = static_cast<std::size_t>(b);
    const std::int64_t keys = entry < p.lens.size() ? std::min(p.lens[entry], p.sk) : p.sk;
    pairs += std::visit(
        [&](const auto& mask) {
          std::int64_t sum = 0;
          for (std::int64_t i = 0; i < p.sq; ++i) {
            const KeyRange range = mask.row(i);
            if (!range.empty()) sum += range.end - range.begin;
          }
          return sum;
        },
        make_mask(p.mask, p.sq, keys));
  }
  return pairs;
}

double flop_count(const Problem& p) {
  return 2.0 * double(p.d + p.dv) * double(p.hq) * double(visible_pairs(p));
}

}  // namespace octavo::workload
