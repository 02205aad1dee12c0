#include "engine/run/history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/errors.h"
#include "engine/files/posix_file.h"

namespace andrea {
namespace {

// An array file ends with these two bytes, and an append begins by overwriting them.
constexpr char kClosing[] = "\n]";
constexpr std::int64_t kClosingBytes = 2;
constexpr char kEmptyArray[] = "[\n]";
constexpr std::int64_t kEmptyBytes = 3;

/// Opens or makes a file for reading and writing and hands its descriptor over.
PosixFile open_history(const std::string& path) {
  PosixFile file = PosixFile::open(path, O_RDWR | O_CREAT | O_NONBLOCK);
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode))
    throw IoError(path + " is not a regular file; move it away");
  return file;
}

/// Length of the file up to the end of its last complete line; 0 if it has none.
std::int64_t complete_lines(const PosixFile& file) {
  char block[4096];
  std::int64_t end = file.size();
  while (end > 0) {
    const std::int64_t begin =
        end > static_cast<std::int64_t>(sizeof block) ? end - static_cast<std::int64_t>(sizeof block) : 0;
    const std::size_t n = file.read_at(block, static_cast<std::size_t>(end - begin), begin);
    for (std::size_t i = n; i > 0; --i)
      if (block[i - 1] == '\n') return begin + static_cast<std::int64_t>(i);
    end = begin;
  }
  return 0;
}

/// Length, closing bracket included, of an array file whose last append was cut off by a kill: what was whole
/// before it stays.
std::int64_t mended_length(const PosixFile& file, std::int64_t size) {
  const std::int64_t lines = complete_lines(file);
  // One byte of the new text was written, a comma: the last element stands whole before ",]".
  if (size > lines + 2) {
    std::string last(static_cast<std::size_t>(size - lines), '\0');
    file.read_at(last.data(), last.size(), lines);
    const std::string element = last.substr(0, last.size() - 2);
    if (last.compare(element.size(), 2, ",]") == 0 && nlohmann::json::accept(element)) return size;
  }
  if (lines <= 2) return kEmptyBytes;
  char before = 0;
  file.read_at(&before, 1, lines - 2);
  return lines - 1 - (before == ',' ? 1 : 0) + kClosingBytes;
}

[[noreturn]] void too_short(const std::string& path, std::int64_t have, std::int64_t need) {
  throw DataError(path + " has " + std::to_string(have) + " bytes, the checkpoint says it had " +
                  std::to_string(need) + " at that step; put the file back, or start a new run");
}

/// Digits and exponent from std::to_chars, laid out as Python's repr() does: plain from 1e-4 up to 1e16.
template <class Float>
std::string shortest_digits(Float value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  std::string mantissa(text, end);
  const std::size_t e = mantissa.find('e');
  const int exponent = std::stoi(mantissa.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return mantissa;  // already as Python writes it: 1.5e-07, 1e+16
  mantissa.resize(e);
  const std::string sign = mantissa[0] == '-' ? "-" : "";
  std::string digits;
  for (const char c : mantissa)
    if (c >= '0' && c <= '9') digits.push_back(c);
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

/// Length of the well-formed UTF-8 sequence at `i`; 0 if there is none (RFC 3629).
std::size_t utf8_length(const std::string& text, std::size_t i) {
  const auto byte = [&](std::size_t k) -> unsigned {
    return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U;
  };
  const auto follows = [&](std::size_t k, unsigned low, unsigned high) {
    return byte(k) >= low && byte(k) <= high;
  };
  const unsigned first = byte(i);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(i + 1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = first == 0xED ? 0x9F : 0xBF;
    return follows(i + 1, low, high) && follows(i + 2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = first == 0xF4 ? 0x8F : 0xBF;
    return follows(i + 1, low, high) && follows(i + 2, 0x80, 0xBF) && follows(i + 3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

}  // namespace

JsonArrayFile::JsonArrayFile(std::string path, std::int64_t keep_bytes)
    : path_(std::move(path)), file_(std::make_unique<PosixFile>(open_history(path_))) {
  const std::int64_t size = file_->size();
  // Only a file of this layout is touched: cutting any other would lose what is in it.
  char first[2] = {};
  const std::size_t got = file_->read_at(first, 2, 0);
  if (got > 0 && (first[0] != '[' || (got == 2 && first[1] != '\n')))
    throw DataError(path_ + " is no history of a run (it does not begin with \"[\" on a line of its own); " +
                    "move it away, or put the right file back");
  if (keep_bytes >= 0) {
    if (size < keep_bytes) too_short(path_, size, keep_bytes);
    if (keep_bytes < kEmptyBytes)
      throw DataError(path_ + ": the checkpoint says it had " + std::to_string(keep_bytes) +
                      " bytes, an array has at least 3; the state is not of this file");
    bytes_ = keep_bytes;
  } else if (size == 0) {
    file_->write_at(kEmptyArray, kEmptyBytes, 0);
    bytes_ = kEmptyBytes;
    return;
  } else {
    char closing[kClosingBytes];
    if (size >= kEmptyBytes &&
        file_->read_at(closing, kClosingBytes, size - kClosingBytes) == kClosingBytes &&
        std::memcmp(closing, kClosing, kClosingBytes) == 0) {
      bytes_ = size;
    } else {
      bytes_ = mended_length(*file_, size);
    }
  }
  // The bracket first, the cut second: a kill in between leaves a file that this very cut mends.
  dirty_ = true;
  restore();
}

JsonArrayFile::~JsonArrayFile() = default;

void JsonArrayFile::restore() {
  if (!dirty_) return;
  file_->write_at(kClosing, kClosingBytes, bytes_ - kClosingBytes);
  file_->truncate(bytes_);
  dirty_ = false;
}

void JsonArrayFile::append(const std::string& element) {
  restore();
  const std::string text = (bytes_ == kEmptyBytes ? "\n" : ",\n") + element + kClosing;
  dirty_ = true;
  try {
    file_->write_at(text.data(), text.size(), bytes_ - kClosingBytes);
  } catch (const IoError&) {
    try {
      restore();
    } catch (const IoError&) {  // the next append tries again
    }
    throw;
  }
  dirty_ = false;
  bytes_ += static_cast<std::int64_t>(text.size()) - kClosingBytes;
}

void JsonArrayFile::sync() {
  restore();
  file_->sync();
}

void JsonArrayFile::sync_written() { file_->sync(); }

std::int64_t JsonArrayFile::bytes() const { return bytes_; }

JsonLinesFile::JsonLinesFile(std::string path, std::int64_t keep_bytes)
    : path_(std::move(path)), file_(std::make_unique<PosixFile>(open_history(path_))) {
  const std::int64_t size = file_->size();
  if (keep_bytes < 0) {
    written_ = complete_lines(*file_);  // a torn last line goes
  } else {
    if (size < keep_bytes) too_short(path_, size, keep_bytes);
    char last = '\n';
    if (keep_bytes > 0) file_->read_at(&last, 1, keep_bytes - 1);
    if (last != '\n')
      throw DataError(path_ + ": no line ends at byte " + std::to_string(keep_bytes) +
                      ", where the checkpoint says one does; put the right file back, or start a new run");
    written_ = keep_bytes;
  }
  if (written_ != size) file_->truncate(written_);
}

JsonLinesFile::~JsonLinesFile() {
  try {
    flush();
  } catch (const IoError&) {  // whoever needs to know calls flush() or sync() before
  }
}

void JsonLinesFile::append(const std::string& line) {
  buffer_ += line;
  buffer_.push_back('\n');
}

void JsonLinesFile::flush() {
  if (buffer_.empty()) return;
  try {
    file_->write_at(buffer_.data(), buffer_.size(), written_);
  } catch (const IoError&) {
    try {
      file_->truncate(written_);  // no torn line for readers; the buffer is kept
    } catch (const IoError&) {    // the next flush overwrites it
    }
    throw;
  }
  written_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void JsonLinesFile::sync() {
  flush();
  file_->sync();
}

void JsonLinesFile::sync_written() { file_->sync(); }

std::int64_t JsonLinesFile::bytes() const { return written_ + static_cast<std::int64_t>(buffer_.size()); }

std::string shortest(float value) { return shortest_digits(value); }
std::string shortest(double value) { return shortest_digits(value); }

std::string json_quote(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
      continue;
    }
    if (length > 1) {
      out.append(text, i, length);
    } else if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out.push_back(kHex[static_cast<unsigned char>(c) & 15]);
    } else {
      out.push_back(c);
    }
    i += length;
  }
  out.push_back('"');
  return out;
}

std::string row_line(const Row& row, const std::string& source) {
  return "{\"step\":" + std::to_string(row.step) + ",\"row\":" + std::to_string(row.row) +
         ",\"source\":" + json_quote(source) + ",\"documents\":" + std::to_string(row.documents) +
         ",\"loss\":" + shortest(row.loss) + "}";
}

}  // namespace andrea
