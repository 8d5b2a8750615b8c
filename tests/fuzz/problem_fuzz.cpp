// SPDX-License-Identifier: Apache-2.0
// Any line either is refused with an Error or survives a round trip through its canonical form.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/error.h"
#include "workload/problem.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  octavo::workload::Problem problem;
  try {
    problem = octavo::workload::parse_problem(line);
  } catch (const octavo::Error& error) {
    // A sentence for people: some text, and no control bytes from the input.
    const std::string sentence = error.what();
    if (sentence.empty()) std::abort();
    for (const char c : sentence) {
      if (c < 0x20 || c > 0x7e) std::abort();
    }
    return 0;
  }
  const std::string canonical = octavo::workload::format_problem(problem);
  if (!(octavo::workload::parse_problem(canonical) == problem)) std::abort();
  if (octavo::workload::format_problem(octavo::workload::parse_problem(canonical)) != canonical) {
    std::abort();
  }
  return 0;
}
