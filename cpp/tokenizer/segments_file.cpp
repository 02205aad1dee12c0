#include "tokenizer/segments_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "engine/errors.h"
#include "engine/files/temporary_file.h"
#include "engine/hash/xxh64.h"
#include "tokenizer/utf8.h"

namespace andrea {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "andrea-harris-segments";

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags, 0644)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// The system would stop reading at the NUL and take another file.
void check_path(const std::string& path) {
  if (const std::size_t nul = path.find('\0'); nul != std::string::npos)
    throw IoError("the path of a tokenizer holds a NUL byte after " + path.substr(0, nul) +
                  "; check the path");
}

std::string read_whole_file(const std::string& path) {
  check_path(path);
  const auto refuse = [&path] {
    throw IoError("cannot read the tokenizer " + path + ": " + std::strerror(errno));
  };
  const OpenFile file(path, O_RDONLY | O_CLOEXEC);
  if (file.fd() < 0) refuse();
  std::string content;
  std::vector<char> block(1U << 16);
  for (;;) {
    const ssize_t n = ::read(file.fd(), block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refuse();
    if (n == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(n));
  }
}

// The value of `key` if it has the wanted kind, else a DataError that names both.
const json& field(const json& object, const char* key, bool (*is_kind)(const json&), const char* kind,
                  const std::string& path) {
  const auto found = object.find(key);
  if (found == object.end())
    throw DataError(path + ": key \"" + key + "\" is missing; is this a harris_segments.json?");
  if (!is_kind(*found)) throw DataError(path + ": \"" + key + "\" must be " + kind);
  return *found;
}

bool is_text(const json& value) { return value.is_string(); }
bool is_whole(const json& value) { return value.is_number_unsigned(); }
bool is_list(const json& value) { return value.is_array(); }
bool is_object(const json& value) { return value.is_object(); }

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
}

[[noreturn]] void refuse_write(const std::string& path, const char* what) {
  throw IoError("cannot write the tokenizer " + path + ": " + what + ": " + std::strerror(errno));
}

void write_durably(const std::string& path, const std::string& text) {
  check_path(path);
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw IoError("cannot write the tokenizer " + path +
                  ": a directory, a device or a pipe is there; choose another path");
  const std::string temporary = temporary_beside(path);
  try {
    const OpenFile file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (file.fd() < 0) refuse_write(path, "open");
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(file.fd(), text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) refuse_write(path, "write");
      done += static_cast<std::size_t>(n);
    }
    if (::fsync(file.fd()) != 0) refuse_write(path, "fsync");
    if (::rename(temporary.c_str(), path.c_str()) != 0) refuse_write(path, "rename");
  } catch (const IoError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  const std::size_t slash = path.rfind('/');
  const OpenFile directory(slash == std::string::npos ? "." : path.substr(0, slash + 1),
                           O_RDONLY | O_CLOEXEC);
  if (directory.fd() >= 0) ::fsync(directory.fd());
}

}  // namespace

void check_segments(const std::vector<std::string>& segments, const std::string& where) {
  if (segments.size() > kMaxSegments)
    throw DataError(where + ": " + std::to_string(segments.size()) + " segments; at most " +
                    std::to_string(kMaxSegments) + " are possible");
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::string& text = segments[i];
    const std::string name = where + ": segment " + std::to_string(i) + " " + quoted(text);
    if (text.size() < 2)
      throw DataError(name + " has fewer than 2 bytes; single bytes are ids 0..255 already");
    if (text.size() > kMaxSegmentBytes)
      throw DataError(name + " has " + std::to_string(text.size()) + " bytes; at most " +
                      std::to_string(kMaxSegmentBytes) + " are possible");
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Char c = first_utf8_char(rest);
      if (c.length == 0) throw DataError(name + " is not valid UTF-8");
      rest.remove_prefix(c.length);
    }
    const auto [first, is_new] = seen.emplace(text, i);
    if (!is_new) throw DataError(name + " is the same as segment " + std::to_string(first->second));
  }
}

std::uint64_t hash_segments(const std::vector<std::string>& segments) {
  Xxh64 hash;
  for (const std::string& text : segments) {
    const auto length = static_cast<std::uint32_t>(text.size());
    hash.update(&length, sizeof length);
    hash.update(text.data(), text.size());
  }
  return hash.digest();
}

SegmentTable read_segments_file(const std::string& path) {
  json document;
  try {
    document = json::parse(read_whole_file(path));
  } catch (const json::parse_error& error) {
    // Its own text may quote bytes that are no UTF-8.
    throw DataError(path + " is no JSON: damaged at byte " + std::to_string(error.byte));
  } catch (const json::exception&) {
    throw DataError(path + " holds a number that is too large to be read; the file was damaged or edited");
  }
  if (!document.is_object()) throw DataError(path + ": a JSON object is expected");
  const auto& format = field(document, "format", is_text, "a string", path);
  if (format != kFormat)
    throw DataError(path + ": format is " + quoted(format) + ", expected \"" + kFormat + "\"");
  const auto version = field(document, "version", is_whole, "a whole number", path).get<std::uint64_t>();
  if (version != kSegmentsFileVersion)
    throw DataError(path + ": version " + std::to_string(version) +
                    " of the format; this program reads version " + std::to_string(kSegmentsFileVersion));
  const auto n = field(document, "N", is_whole, "a whole number", path).get<std::uint64_t>();
  const json& list = field(document, "segments", is_list, "a list", path);
  if (list.size() != n)
    throw DataError(path + ": N is " + std::to_string(n) + " but " + std::to_string(list.size()) +
                    " segments are there; the file was cut or edited");
  SegmentTable table;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const json& pair = list[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number_unsigned())
      throw DataError(path + ": segments[" + std::to_string(i) +
                      "] must be [text, count], count a whole number");
    table.segments.push_back(pair[0].get<std::string>());
    table.counts.push_back(pair[1].get<std::int64_t>());
  }
  check_segments(table.segments, path);
  const auto& stated = field(document, "hash", is_text, "a string", path);
  const std::string found = hash_hex(hash_segments(table.segments));
  if (stated != found)
    throw DataError(path + ": hash is " + quoted(stated) + " but the segments have \"" + found +
                    "\"; the file was damaged or edited");
  table.training_json = field(document, "training", is_object, "an object", path).dump();
  return table;
}

void write_segments_file(const std::string& path, const SegmentTable& table) {
  std::string text = "{\n\"format\": \"" + std::string(kFormat) +
                     "\",\n\"version\": " + std::to_string(kSegmentsFileVersion) +
                     ",\n\"N\": " + std::to_string(table.segments.size()) + ",\n\"hash\": \"" +
                     hash_hex(hash_segments(table.segments)) +
                     "\",\n\"training\": " + json::parse(table.training_json).dump() + ",\n\"segments\": [";
  for (std::size_t i = 0; i < table.segments.size(); ++i)
    text += (i == 0 ? "\n[" : ",\n[") + json(table.segments[i]).dump() + ", " +
            std::to_string(table.counts[i]) + "]";
  text += "\n]\n}\n";
  write_durably(path, text);
}

}  // namespace andrea
