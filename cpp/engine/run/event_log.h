// What happened in a run, and when: for people who look on, never for a resume (docs/DASHBOARD.md).
#pragma once

#include <cstdint>
#include <string>

#include "engine/model/engine.h"

namespace andrea {

/// `<name>.events.jsonl`: a JSON array a step and a JSON object an event, with wall-clock times. It only
/// grows, over all attempts, and is no part of a checkpoint: a resume neither reads nor cuts it. Nothing that
/// goes wrong with it reaches the run: lines that cannot be written are kept up to kMostWaiting bytes, then
/// dropped.
class EventLog {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{1} << 20;

  explicit EventLog(std::string path) : path_(std::move(path)) {}
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// [step, loss or null, grad_norm, lr, loss_scale, unix time]: into the buffer.
  void step(const StepReport& report);
  /// {"kind", "step", "time", "message"} and `more`, which is empty or `,"key":value...`: written at once.
  void event(const std::string& kind, std::int64_t step, const std::string& message,
             const std::string& more = "");
  void flush();

 private:
  void open();
  void drop_what_is_too_much();

  std::string path_;
  int fd_ = -1;
  std::string buffer_;
};

/// The details of a "start" event: process, machine, size of a step, and the whole experiment.
std::string start_details(const Engine& engine, const DeviceInfo& device, std::int64_t end);

}  // namespace andrea
