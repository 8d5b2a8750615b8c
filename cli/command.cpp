// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "octavo/error.h"
#include "octavo/version.h"
#include "output.h"
#include "workload/problem_text.h"

namespace octavo::cli {
namespace {

// Help texts start at column 30; lines end before column 100.
std::string wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 68;
  std::string lines;
  std::size_t begin = 0;
  while (text.size() - begin > kWidth) {
    const std::size_t space = text.rfind(' ', begin + kWidth);
    if (space == std::string::npos || space <= begin) break;
    lines += text.substr(begin, space - begin) + "\n";
    begin = space + 1;
  }
  return lines + text.substr(begin);
}

class Cli11Command : public Command {
 public:
  Cli11Command(CLI::App& app, int& exit_code) : app_(app), exit_code_(exit_code) {}

  void positional(const char* name, std::string& target, const char* help) override {
    app_.add_option(name, target, wrapped(help))->type_name("")->required();
  }
  void positional(const char* name, std::optional<std::string>& target, const char* help) override {
    app_.add_option(name, target, wrapped(help))->type_name("");
  }
  void positional(const char* name, std::vector<std::string>& target, const char* help) override {
    app_.add_option(name, target, wrapped(help))->type_name("");
  }

  void group(const char* title) override { group_ = title; }
  void required(const char* flag, const char* value, std::string& target,
                const char* help) override {
    dress(app_.add_option(flag, target, wrapped(help)), value)->required();
  }
  void option(const char* flag, const char* value, std::string& target, const char* help) override {
    auto* added = dress(app_.add_option(flag, target, wrapped(help)), value);
    if (!target.empty()) added->capture_default_str();
  }
  void option(const char* flag, const char* value, std::optional<std::string>& target,
              const char* help) override {
    dress(app_.add_option(flag, target, wrapped(help)), value);
  }
  void option(const char* flag, const char* value, std::vector<std::string>& target,
              const char* help) override {
    // One value behind each flag: more would swallow the positional arguments that follow.
    dress(app_.add_option(flag, target, wrapped(help)), value)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  void option(const char* flag, const char* value, int& target, int low, int high,
              const char* help) override {
    dress(app_.add_option(flag, target, wrapped(help)), value)
        ->check(checked(
            [=](const std::string& text) { workload::parse_whole("value", text, low, high); }))
        ->capture_default_str();
  }
  void option(const char* flag, const char* value, std::uint64_t& target,
              const char* help) override {
    dress(app_.add_option(flag, target, wrapped(help)), value)
        ->check(checked([=](const std::string& text) { workload::parse_seed("value", text); }))
        ->capture_default_str();
  }
  void flag(const char* flag, bool& target, const char* help) override {
    dress(app_.add_flag(flag, target, wrapped(help)), nullptr)
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  void exclusive(const std::vector<std::string>& flags) override {
    for (std::size_t i = 0; i < flags.size(); ++i) {
      for (std::size_t j = i + 1; j < flags.size(); ++j) {
        app_.get_option(flags[i])->excludes(app_.get_option(flags[j]));
      }
    }
  }

  void footer(const char* text) override { app_.footer(text); }
  void on_run(std::function<int()> run) override {
    app_.callback([this, run = std::move(run)] { exit_code_ = run(); });
  }

 private:
  // The library's own sentence instead of CLI11's, which names no rule.
  static std::function<std::string(const std::string&)> checked(
      std::function<void(const std::string&)> parse) {
    return [parse = std::move(parse)](const std::string& text) -> std::string {
      try {
        parse(text);
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    };
  }

  CLI::Option* dress(CLI::Option* option, const char* value) const {
    if (value != nullptr) option->type_name(value);
    return option->group(group_);
  }

  CLI::App& app_;
  int& exit_code_;
  std::string group_ = "Options";
};

// The command whose --help answers a parse error.
std::string help_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "octavo --help" : "octavo " + chosen.front()->get_name() + " --help";
}

// CLI11 would only say that a subcommand is missing. Empty where all is well.
std::string unknown_command(int argc, char** argv, const std::vector<Subcommand>& subcommands) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::string names;
  for (const Subcommand& known : subcommands) {
    if (argv[1] == std::string(known.name)) return "";
    names += std::string(names.empty() ? "" : ", ") + known.name;
  }
  return workload::quoted(argv[1]) + " is no command; must be one of " + names;
}

}  // namespace

int dispatch(int argc, char** argv, const std::vector<Subcommand>& subcommands,
             const std::string& footer) {
  CLI::App app{"Block-scaled 8-bit attention for NVIDIA Hopper, with CPU engines.", "octavo"};
  int exit_code = kOk;
  std::vector<std::unique_ptr<Cli11Command>> commands;
  app.set_version_flag("--version", std::string("octavo ") + version(),
                       "Print the version and exit");
  app.require_subcommand(1);
  app.footer(footer);
  for (const Subcommand& subcommand : subcommands) {
    CLI::App* sub = app.add_subcommand(subcommand.name, subcommand.help);
    commands.push_back(std::make_unique<Cli11Command>(*sub, exit_code));
    subcommand.set_up(*commands.back());
  }
  if (const std::string wrong = unknown_command(argc, argv, subcommands); !wrong.empty()) {
    remark(wrong);
    return kBadInput;
  }
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string sentence = error.what();
    while (!sentence.empty() && (sentence.back() == '\n' || sentence.back() == '.')) {
      sentence.pop_back();
    }
    remark(sentence + " (see " + help_command(app) + ")");
    return kBadInput;
  }
}

}  // namespace octavo::cli
