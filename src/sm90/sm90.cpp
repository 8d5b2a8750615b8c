// SPDX-License-Identifier: Apache-2.0
#include "sm90/sm90.h"

#include "octavo/error.h"

namespace octavo::sm90 {
namespace {

std::string why_unsupported(const AttentionProblem&) {
  return "this version has no Hopper attention kernels yet";
}

AttentionStats run(const AttentionProblem& problem) {
  throw Error(ErrorCode::unsupported, "sm90: " + why_unsupported(problem));
}

}  // namespace

const Engine kEngine{"sm90", "Hopper FP8 tensor cores", true, why_unsupported, run};

}  // namespace octavo::sm90
