// The three history files of a run as one: losses, samples, rows. A write that fails keeps its line for
// later.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/history.h"

namespace andrea {

class RunLog {
 public:
  /// `stem` is directory/name. `keep` holds the lengths of a checkpoint by file name (a file that is not in
  /// it begins anew); null: all begin anew. `new_samples`: the samples were archived and begin anew in any
  /// case.
  RunLog(const std::string& stem, const std::vector<std::pair<std::string, std::int64_t>>* keep,
         bool new_samples);

  void loss(std::int64_t step, float loss, bool applied);  ///< [step, loss]; null if the step was skipped
  void sample(const std::string& json_object);
  void line(const std::string& json);  ///< of rows.jsonl

  /// Writes what is waiting. Returns an empty string, or why it could not: everything is kept and tried
  /// again.
  std::string flush();
  /// Writes what is waiting, or throws IoError: with bytes() the first half of what a checkpoint needs.
  void write();
  /// fsync of all files: the second half; may run in another thread while lines are added.
  void sync_written();
  /// File names and lengths, for the state of a checkpoint. Valid after write().
  std::vector<std::pair<std::string, std::int64_t>> bytes() const;

  static std::string loss_path(const std::string& stem) { return stem + ".loss.json"; }
  static std::string samples_path(const std::string& stem) { return stem + ".samples.json"; }
  static std::string rows_path(const std::string& stem) { return stem + ".rows.jsonl"; }

 private:
  struct Array {
    std::string name;
    std::unique_ptr<JsonArrayFile> file;
    std::deque<std::string> waiting;
  };
  Array losses_, samples_;
  std::string rows_name_;
  std::unique_ptr<JsonLinesFile> rows_;
};

}  // namespace andrea
