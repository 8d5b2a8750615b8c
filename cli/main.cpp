// SPDX-License-Identifier: Apache-2.0
// The octavo command. Errors are one sentence on stderr; exit codes are in command.h.
#include <exception>
#include <new>

#include "command.h"
#include "octavo/error.h"
#include "output.h"

namespace {

constexpr const char* kFooter = R"(
Examples:
  octavo info
  octavo gen -o qkv.safetensors "b1 s1024 h8 d128 causal dist=outlier seed=7"
  octavo compare qkv.safetensors
  octavo attend qkv.safetensors -o out.safetensors --lse
  octavo verify "s1023 h4 d64 causal"

"octavo COMMAND --help" tells more, with examples.
Exit codes: 0; 1 where a comparison failed; 2 where flags, a file or the call itself are wrong.
OCTAVO_VERBOSE=dispatch prints which engines declined a call and why.)";

int bad_input(const std::string& sentence) {
  octavo::cli::remark(sentence);
  return octavo::cli::kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace octavo::cli;
  try {
    return dispatch(
        argc, argv,
        {{"attend", "Compute attention on q, k and v of a file", set_up_attend},
         {"compare", "Show the error of every recipe on a file", set_up_compare},
         {"quantize", "Turn q, k and v of a file into 8 bits with descales", set_up_quantize},
         {"gen", "Write the operands of a one-line problem to a file", set_up_gen},
         {"verify", "Hold one engine against another on problems", set_up_verify},
         {"bench", "Time problems from end to end", set_up_bench},
         {"info", "Show the build, its engines and their verdicts", set_up_info}},
        kFooter);
  } catch (const octavo::Error& error) {
    return bad_input(error.what());
  } catch (const std::bad_alloc&) {
    return bad_input("out of memory: the tensors of this call do not fit");
  } catch (const std::exception& error) {
    return bad_input(std::string("unexpected error: ") + error.what());
  }
}
