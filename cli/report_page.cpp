// SPDX-License-Identifier: Apache-2.0
#include "report_page.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <system_error>
#include <vector>

#include "octavo/error.h"
#include "output.h"

namespace octavo::cli {
namespace {

constexpr int kNotStarted = -1;
// Its exit code for a wrong file or flag, of which it has said what is wrong.
constexpr int kPythonRefused = 2;

std::string interpreter() {
  const char* name = std::getenv("OCTAVO_PYTHON_EXE");
  return name != nullptr && *name != '\0' ? name : "python3";
}

// The flags of the call, as the report spells them, too.
std::vector<std::string> call_arguments(const CallFlags& call) {
  std::vector<std::string> flags;
  if (call.causal) flags.emplace_back("--causal");
  if (call.no_mask) flags.emplace_back("--no-mask");
  const auto add = [&](const char* flag, const std::optional<std::string>& value) {
    if (value) flags.push_back(std::string(flag) + "=" + *value);
  };
  add("--window", call.window);
  add("--softcap", call.softcap);
  add("--scale", call.scale);
  add("--key-lengths", call.key_lengths);
  add("--layout", call.layout);
  return flags;
}

// Runs a command without a shell; returns its exit code, 128 + the signal that ended it, or
// kNotStarted with `why` filled in.
int run(const std::vector<std::string>& command, std::string& why) {
  std::vector<char*> arguments;
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  std::cout << std::flush;
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error != 0) {
    why = std::generic_category().message(error);
    return kNotStarted;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == EINTR) continue;
    why = std::generic_category().message(errno);
    return kNotStarted;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

void ReportPage::add_to(Command& command) {
  command.option("--report", "OUT.html", page,
                 "Write a page with drawings of the error (Python: pip install \".[report]\")");
  command.option("--png", "OUT.png", png, "The drawings of --report as a picture, too");
}

void ReportPage::check(const std::string& input) const {
  if (page) require_other_file("--report", *page, input);
  if (!png) return;
  if (!page) {
    throw Error(ErrorCode::invalid_argument,
                "--png is '" + *png + "'; must be left out without --report");
  }
  require_other_file("--png", *png, input);
}

int ReportPage::write(const std::string& input, const std::optional<std::string>& prefix,
                      const CallFlags& call, const EngineFlags& engine) const {
  if (!page) return kOk;
  const std::string python = interpreter();
  std::vector<std::string> command = {python, "-m", "octavo.report", "--output=" + *page};
  if (png) command.push_back("--png=" + *png);
  if (prefix) command.push_back("--prefix=" + *prefix);
  command.push_back("--engine=" + engine.engine);
  command.push_back("--threads=" + std::to_string(engine.threads));
  for (const std::string& flag : call_arguments(call)) command.push_back(flag);
  command.insert(command.end(), {"--", input});

  std::string why;
  const int code = run(command, why);
  if (code == 0) return kOk;
  const std::string failed = "--report: '" + python + " -m octavo.report' ";
  if (code == kPythonRefused) {
    remark(failed + "refused: see above");
  } else {
    remark(failed +
           (code == kNotStarted ? "did not start (" + why + ")"
                                : "ended with exit code " + std::to_string(code)) +
           "; it needs Octavo's Python package with matplotlib: pip install \".[report]\" in the "
           "folder of the sources (OCTAVO_PYTHON_EXE names another interpreter)");
  }
  return kComparisonFailed;
}

}  // namespace octavo::cli
