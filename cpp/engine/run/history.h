// The history of a run: files that grow, are valid after a kill at any moment, and are cut back at a resume.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/loader.h"

namespace andrea {

/// A JSON array on disk. append() replaces the closing bracket with one pwrite, so the file is valid JSON
/// whenever no write is in flight.
class JsonArrayFile {
 public:
  /// Opens or makes the file. `keep_bytes` >= 0 cuts it to that length first (and restores the bracket): what
  /// a resume does. IoError; DataError if the file is shorter than keep_bytes or no array.
  explicit JsonArrayFile(std::string path, std::int64_t keep_bytes = -1);
  ~JsonArrayFile();
  JsonArrayFile(const JsonArrayFile&) = delete;
  JsonArrayFile& operator=(const JsonArrayFile&) = delete;

  void append(const std::string& element);
  void sync();                 ///< fsync
  std::int64_t bytes() const;  ///< length of the file, the value for keep_bytes

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  bool empty_ = true;
};

/// One JSON value a line, buffered: flush() is called at least every second and before a checkpoint.
class JsonLinesFile {
 public:
  explicit JsonLinesFile(std::string path, std::int64_t keep_bytes = -1);
  ~JsonLinesFile();
  JsonLinesFile(const JsonLinesFile&) = delete;
  JsonLinesFile& operator=(const JsonLinesFile&) = delete;

  void append(const std::string& line);
  void flush();
  void sync();
  std::int64_t bytes() const;  ///< with what is buffered

 private:
  std::string path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  std::string buffer_;
};

/// Shortest decimal digits that read back as the same float; "null" if it is not finite.
std::string shortest(float value);
std::string shortest(double value);

/// A JSON string literal, escaped; invalid UTF-8 becomes U+FFFD.
std::string json_quote(const std::string& text);

/// The line of a row in rows.jsonl.
std::string row_line(const Row& row, const std::string& source);

}  // namespace andrea
