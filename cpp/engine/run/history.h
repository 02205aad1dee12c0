// The history of a run: files that grow, are valid after a kill at any moment, and are cut back at a resume.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/loader.h"

namespace andrea {

class PosixFile;

/// A JSON array on disk, one element a line. append() replaces the closing bracket with one pwrite, so the
/// file is valid JSON whenever no write is in flight.
class JsonArrayFile {
 public:
  /// Opens or makes the file. `keep_bytes` >= 0 cuts it to that length first (and restores the bracket): what
  /// a resume does. Without it a torn last line, left by a kill in the middle of a write, is cut off.
  /// IoError; DataError if the file is shorter than keep_bytes or no array.
  explicit JsonArrayFile(std::string path, std::int64_t keep_bytes = -1);
  ~JsonArrayFile();
  JsonArrayFile(const JsonArrayFile&) = delete;
  JsonArrayFile& operator=(const JsonArrayFile&) = delete;

  /// IoError if the element cannot be written (disk full): the file is then as it was before, and the caller
  /// keeps the element and appends it again later. A full disk need not end a run.
  void append(const std::string& element);
  void sync();                 ///< fsync
  void sync_written();         ///< the same for what is written already; may run in another thread
  std::int64_t bytes() const;  ///< length of the file with its closing bracket, the value for keep_bytes

 private:
  void restore();  ///< undoes an append that failed half-way

  std::string path_;
  std::unique_ptr<PosixFile> file_;
  std::int64_t bytes_ = 0;
  bool dirty_ = false;  ///< the file may differ from its first bytes_ bytes
};

/// One JSON value a line, buffered: flush() is called at least every second and before a checkpoint.
class JsonLinesFile {
 public:
  explicit JsonLinesFile(std::string path, std::int64_t keep_bytes = -1);
  ~JsonLinesFile();
  JsonLinesFile(const JsonLinesFile&) = delete;
  JsonLinesFile& operator=(const JsonLinesFile&) = delete;

  void append(const std::string& line);  ///< into the buffer; never fails
  /// IoError if the lines cannot be written: they stay in the buffer, and the next flush tries again.
  void flush();
  void sync();                 ///< flush and fsync
  void sync_written();         ///< fsync of what is written already; may run in another thread
  std::int64_t bytes() const;  ///< with what is buffered

 private:
  std::string path_;
  std::unique_ptr<PosixFile> file_;
  std::int64_t written_ = 0;
  std::string buffer_;
};

/// Shortest decimal digits that read back as the same number, laid out as Python's repr() does (7.1, 3.0,
/// 1e-05); "null" if it is not finite.
std::string shortest(float value);
std::string shortest(double value);

/// A JSON string literal, escaped; invalid UTF-8 becomes U+FFFD.
std::string json_quote(const std::string& text);

/// The line of a row in rows.jsonl.
std::string row_line(const Row& row, const std::string& source);

}  // namespace andrea
