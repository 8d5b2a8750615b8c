// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace octavo::cli {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);  // shorter work needs no bar
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr int kWidth = 32;
constexpr std::size_t kLabel = 36;  // with the bar: 80 columns

}  // namespace

Progress::Progress(int steps) : terminal_(isatty(STDERR_FILENO) == 1), steps_(std::max(steps, 1)) {}

Progress::~Progress() { hide(); }

void Progress::begin_step(int step, const std::string& label) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  label_ = label.substr(0, kLabel);
  draw(0);
}

std::function<void(double)> Progress::callback() {
  if (!terminal_) return {};
  return [this](double share) {
    const std::lock_guard lock(mutex_);
    draw(share);
  };
}

void Progress::hide() {
  const std::lock_guard lock(mutex_);
  if (!visible_) return;
  std::fputs("\r\033[K", stderr);
  visible_ = false;
}

void Progress::draw(double share) {
  const auto now = Clock::now();
  if (!terminal_ || now - start_ < kPatience || now - last_drawn_ < kBetweenDraws) return;
  last_drawn_ = now;
  const double done = (step_ + std::clamp(share, 0.0, 1.0)) / steps_;
  const int filled = std::clamp(static_cast<int>(std::lround(done * kWidth)), 0, kWidth);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kWidth - filled), '.');
  std::fprintf(stderr, "\r\033[K[%s] %3.0f %%  %s", bar.c_str(), 100 * done, label_.c_str());
  std::fflush(stderr);
  visible_ = true;
}

}  // namespace octavo::cli
