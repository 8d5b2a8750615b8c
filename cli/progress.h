// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

namespace octavo::cli {

/// A progress bar on stderr. Draws nothing unless stderr is a terminal and the work has lasted two
/// seconds; leaves no trace when it is done. Safe to call from several threads.
class Progress {
 public:
  /// `steps`: runs of about equal length.
  explicit Progress(int steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Names the step that begins; those before it are done.
  void begin_step(int step, const std::string& label);

  /// To be called with the share of the current step that is done, 0 to 1.
  std::function<void(double)> callback();

  /// Removes the bar so that a line can be printed; it comes back with the next update.
  void hide();

 private:
  void draw(double share);

  using Clock = std::chrono::steady_clock;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point last_drawn_ = start_;
  std::mutex mutex_;
  std::string label_;
  int steps_ = 1;
  int step_ = 0;
  bool visible_ = false;
};

}  // namespace octavo::cli
