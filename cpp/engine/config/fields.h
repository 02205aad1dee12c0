// Reading an object of the experiment file field by field, with every fault noted and none thrown.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/files/json_text.h"

namespace andrea {

/// What is wrong with a file, each fault with its JSON path.
struct Faults {
  std::vector<std::string> lines;
  void add(const std::string& path, const std::string& what) {
    lines.push_back((path.empty() ? std::string("the file") : path) + ": " + what);
  }
};

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(const std::string& a, const std::string& b);
/// The candidate nearest to `word`, if it is near enough to be a misspelling; else empty.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);
/// `"a", "b", "c"`.
std::string quoted_list(const std::vector<std::string>& words);

/// The fields of one object. A value is assigned only if it is there and right; what was asked for is
/// remembered, so that unknown keys can be told at the end.
class Fields {
 public:
  /// `object` null: the section is absent and all defaults stand.
  Fields(const Json* object, std::string path, Faults* faults);

  void integer(const char* key, std::int64_t* out, std::int64_t low, std::int64_t high,
               bool required = false);
  /// Between low and high; `open_low`, `open_high`: the end itself is not allowed.
  void number(const char* key, double* out, double low, double high, bool open_low = false,
              bool open_high = false);
  void boolean(const char* key, bool* out);
  void text(const char* key, std::string* out, bool required = false);
  void choice(const char* key, std::string* out, const std::vector<std::string>& allowed);
  void texts(const char* key, std::vector<std::string>* out);
  /// A section that is an object; the result is null if it is absent or no object.
  const Json* object(const char* key, bool required = false);
  /// Calls `each` with every element of an array and its path; false if the key is absent or no array.
  bool array(const char* key, const std::function<void(const Json&, const std::string&)>& each,
             bool required = false);
  /// The raw value, or null.
  const Json* find(const char* key, bool required = false);

  bool has(const char* key) const;
  std::string path(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  void fault(const std::string& key, const std::string& what) { faults_->add(path(key), what); }

  /// Notes unknown keys. `elsewhere`: paths of all keys there are, to say where a key belongs.
  void finish(const std::vector<std::string>& elsewhere);

 private:
  const Json* object_;
  std::string path_;
  Faults* faults_;
  std::vector<std::string> known_;
};

}  // namespace andrea
