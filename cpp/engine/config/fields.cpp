#include "engine/config/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/run/history.h"

namespace andrea {
namespace {

/// A value as a message shows it, cut where it is long.
std::string shown(const Json& value) {
  std::string text = canonical_json(value);
  if (text.size() <= 60) return text;
  std::size_t end = 57;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

std::string wrong_type(const char* wanted, const Json& value) {
  return std::string("must be ") + wanted + ", is " + json_type_name(value) +
         (value.is_null() ? "" : " (" + shown(value) + ")");
}

/// A limit as people write it: 100, not 100.0.
std::string plain(double value) {
  std::string text = shortest(value);
  if (text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::size_t edit_distance(const std::string& a, const std::string& b) {
  // Rows i-2, i-1 and i of the table of Damerau and Levenshtein (optimal string alignment).
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 3 * word.size() + 8 || word.size() > 3 * candidate.size() + 8) continue;
    if (const std::size_t distance = edit_distance(word, candidate);
        distance < least && distance < std::max(word.size(), candidate.size())) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + json_quote(word);
  return list;
}

Fields::Fields(const Json* object, std::string path, Faults* faults)
    : object_(object), path_(std::move(path)), faults_(faults) {
  if (object_ != nullptr && !object_->is_object()) {
    faults_->add(path_, wrong_type("an object", *object_));
    object_ = nullptr;
  }
}

const Json* Fields::find(const char* key, bool required) {
  known_.emplace_back(key);
  if (object_ != nullptr)
    if (const auto found = object_->find(key); found != object_->end()) return &*found;
  if (required) fault(key, "is missing");
  return nullptr;
}

bool Fields::has(const char* key) const { return object_ != nullptr && object_->contains(key); }

void Fields::integer(const char* key, std::int64_t* out, std::int64_t low, std::int64_t high, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return;
  if (!value->is_number_integer()) {
    fault(key, wrong_type("a whole number", *value));
    return;
  }
  const bool above =
      value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  const auto number = above ? high : value->get<std::int64_t>();
  if (above || number < low || number > high)
    fault(key,
          "is " + shown(*value) + ", must be from " + std::to_string(low) + " to " + std::to_string(high));
  else
    *out = number;
}

void Fields::number(const char* key, double* out, double low, double high, bool open_low, bool open_high) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_number()) {
    fault(key, wrong_type("a number", *value));
    return;
  }
  const auto number = value->get<double>();
  const bool inside =
      (open_low ? number > low : number >= low) && (open_high ? number < high : number <= high);
  if (inside)
    *out = number == 0 ? 0.0 : number;  // -0.0 is 0.0
  else
    fault(key, "is " + shown(*value) + ", must be " + (open_low ? "above " : "at least ") + plain(low) +
                   " and " + (open_high ? "below " : "at most ") + plain(high));
}

void Fields::boolean(const char* key, bool* out) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (value->is_boolean())
    *out = value->get<bool>();
  else
    fault(key, wrong_type("true or false", *value));
}

void Fields::text(const char* key, std::string* out, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return;
  if (value->is_string())
    *out = value->get<std::string>();
  else
    fault(key, wrong_type("a string", *value));
}

void Fields::choice(const char* key, std::string* out, const std::vector<std::string>& allowed) {
  std::string value = *out;
  text(key, &value);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) {
    *out = value;
    return;
  }
  const std::string near = nearest(value, allowed);
  fault(key, "is " + json_quote(value) + ", must be one of " + quoted_list(allowed) +
                 (near.empty() ? "" : "; did you mean " + json_quote(near) + "?"));
}

void Fields::texts(const char* key, std::vector<std::string>* out) {
  std::vector<std::string> values;
  bool right = true;
  const bool there = array(key, [&](const Json& element, const std::string& at) {
    if (element.is_string()) {
      values.push_back(element.get<std::string>());
    } else {
      faults_->add(at, wrong_type("a string", element));
      right = false;
    }
  });
  if (there && right) *out = std::move(values);
}

const Json* Fields::object(const char* key, bool required) {
  const Json* value = find(key, required);
  if (value == nullptr || value->is_object()) return value;
  fault(key, wrong_type("an object", *value));
  return nullptr;
}

bool Fields::array(const char* key, const std::function<void(const Json&, const std::string&)>& each,
                   bool required) {
  const Json* value = find(key, required);
  if (value == nullptr) return false;
  if (!value->is_array()) {
    fault(key, wrong_type("an array", *value));
    return false;
  }
  for (std::size_t i = 0; i < value->size(); ++i)
    each((*value)[i], path(key) + "[" + std::to_string(i) + "]");
  return true;
}

void Fields::finish(const std::vector<std::string>& elsewhere) {
  if (object_ == nullptr) return;
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string advice;
    if (const std::string near = nearest(key, known_); !near.empty()) {
      advice = "did you mean " + json_quote(near) + "?";
    } else {
      for (const std::string& place : elsewhere)
        if (place.substr(place.find_last_of('.') + 1) == key)
          advice += (advice.empty() ? "it belongs to " : " or ") + place;
    }
    std::vector<std::string> keys = known_;
    std::sort(keys.begin(), keys.end());
    fault(key,
          "unknown key" + (advice.empty() ? "" : "; " + advice) + " (known here: " + quoted_list(keys) + ")");
  }
}

}  // namespace andrea
