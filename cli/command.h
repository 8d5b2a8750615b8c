// SPDX-License-Identifier: Apache-2.0
// One subcommand: its flags, its help and what it runs. A thin front for CLI11, which takes ten
// seconds to compile and is therefore included only by command.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octavo::cli {

inline constexpr int kOk = 0;
inline constexpr int kComparisonFailed = 1;  // it ran, and the figures are not what they must be
inline constexpr int kBadInput = 2;          // flags, files or a call that makes no sense

/// Targets must live until the command has run; unless said otherwise a flag may be left out and
/// given once, and its target's value is the default that --help shows.
class Command {
 public:
  virtual ~Command() = default;

  virtual void positional(const char* name, std::string& target, const char* help) = 0;
  virtual void positional(const char* name, std::optional<std::string>& target,
                          const char* help) = 0;
  virtual void positional(const char* name, std::vector<std::string>& target, const char* help) = 0;

  /// Titles the flags that follow in --help.
  virtual void group(const char* title) = 0;
  virtual void required(const char* flag, const char* value, std::string& target,
                        const char* help) = 0;
  virtual void option(const char* flag, const char* value, std::string& target,
                      const char* help) = 0;
  virtual void option(const char* flag, const char* value, std::optional<std::string>& target,
                      const char* help) = 0;
  /// May be given several times.
  virtual void option(const char* flag, const char* value, std::vector<std::string>& target,
                      const char* help) = 0;
  /// A whole number within [low, high].
  virtual void option(const char* flag, const char* value, int& target, int low, int high,
                      const char* help) = 0;
  virtual void option(const char* flag, const char* value, std::uint64_t& target,
                      const char* help) = 0;
  virtual void flag(const char* flag, bool& target, const char* help) = 0;
  /// At most one of these may be given.
  virtual void exclusive(const std::vector<std::string>& flags) = 0;

  /// Text after the flags in --help: details and examples.
  virtual void footer(const char* text) = 0;
  /// The work; returns the exit code.
  virtual void on_run(std::function<int()> run) = 0;
};

/// Everything that `octavo` can do: names a subcommand and sets it up.
struct Subcommand {
  const char* name;
  const char* help;
  void (*set_up)(Command&);
};

/// Parses the arguments and runs the subcommand; returns the exit code. Prints --help and
/// --version, and what is wrong with the arguments. Lets exceptions of the subcommand through.
int dispatch(int argc, char** argv, const std::vector<Subcommand>& subcommands,
             const std::string& footer);

void set_up_attend(Command& command);
void set_up_bench(Command& command);
void set_up_compare(Command& command);
void set_up_gen(Command& command);
void set_up_info(Command& command);
void set_up_quantize(Command& command);
void set_up_verify(Command& command);

}  // namespace octavo::cli
