#include "engine/run/run_log.h"

#include <cstdio>
#include <filesystem>

#include "engine/errors.h"

namespace andrea {
namespace {

namespace fs = std::filesystem;

// Length to keep of the file at `path`; a file without one begins anew.
std::int64_t kept_bytes(const std::string& path,
                        const std::vector<std::pair<std::string, std::int64_t>>* keep) {
  if (keep != nullptr)
    for (const auto& [name, bytes] : *keep)
      if (name == fs::path(path).filename().string()) return bytes;
  std::error_code ignored;  // the file is most often not there
  fs::remove(path, ignored);
  return -1;
}

}  // namespace

RunLog::RunLog(const std::string& stem, const std::vector<std::pair<std::string, std::int64_t>>* keep,
               bool new_samples) {
  const auto open = [](Array* array, const std::string& path,
                       const std::vector<std::pair<std::string, std::int64_t>>* lengths) {
    array->name = fs::path(path).filename().string();
    array->file = std::make_unique<JsonArrayFile>(path, kept_bytes(path, lengths));
  };
  open(&losses_, loss_path(stem), keep);
  open(&samples_, samples_path(stem), new_samples ? nullptr : keep);
  rows_name_ = fs::path(rows_path(stem)).filename().string();
  rows_ = std::make_unique<JsonLinesFile>(rows_path(stem), kept_bytes(rows_path(stem), keep));
}

void RunLog::loss(std::int64_t step, float loss, bool applied) {
  losses_.waiting.push_back("[" + std::to_string(step) + ", " + (applied ? shortest(loss) : "null") + "]");
}

void RunLog::sample(const std::string& json_object) { samples_.waiting.push_back(json_object); }

void RunLog::line(const std::string& json) { rows_->append(json); }

void RunLog::write() {
  for (Array* array : {&losses_, &samples_}) {
    while (!array->waiting.empty()) {
      array->file->append(array->waiting.front());
      array->waiting.pop_front();
    }
  }
  rows_->flush();
}

std::string RunLog::flush() {
  try {
    write();
    return "";
  } catch (const IoError& error) {
    return error.what();
  }
}

void RunLog::sync_written() {
  losses_.file->sync_written();
  samples_.file->sync_written();
  rows_->sync_written();
}

std::vector<std::pair<std::string, std::int64_t>> RunLog::bytes() const {
  return {{losses_.name, losses_.file->bytes()},
          {samples_.name, samples_.file->bytes()},
          {rows_name_, rows_->bytes()}};
}

}  // namespace andrea
