// Plain progress lines for a log: the same words as `andrea train` writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/run/trainer.h"

namespace andrea {

/// "step 120/1000  loss 4.1234  smma 4.2011 ..."
std::string progress_line(const Progress& progress);

/// An event in one line; empty for those that only belong in the history. Samples are cut to their beginning.
std::string event_line(const Event& event);

/// Writes to standard output: a line each ten steps or five seconds, at most four a second; warnings go to
/// standard error.
class ProgressLines {
 public:
  explicit ProgressLines(bool quiet) : quiet_(quiet) {}
  void progress(const Progress& progress);
  void event(const Event& event) const;

 private:
  bool quiet_;
  std::int64_t last_step_ = -1;
  std::chrono::steady_clock::time_point last_time_;
};

}  // namespace andrea
