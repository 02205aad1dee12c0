#include "engine/files/json_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/run/history.h"

namespace andrea {
namespace {

constexpr std::size_t kDeepest = 100;

/// Builds a value from the events of the parser, and notes what the parser itself lets pass.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& text, std::vector<JsonFault>* faults) : text_(text), faults_(faults) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& digits) override {
    // The parser turns an integer of more than 64 bits into a double; that would change it silently.
    if (digits.find_first_of(".eE") == std::string::npos)
      faults_->push_back({"the integer " + digits + " does not fit 64 bits", 0, 0, false});
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second)
      faults_->push_back({"the key " + json_quote(name) + " stands twice in one object", 0, 0, false});
    key_ = name;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    std::string message = error.what();
    if (message.find("empty input") != std::string::npos) message = "nothing is in it";
    for (const char* start : {"syntax error", "number overflow"})
      if (const std::size_t at = message.find(start); at != std::string::npos) message = message.substr(at);
    place(position, std::move(message));
    return false;
  }

 private:
  void place(std::size_t position, std::string message) {
    const std::size_t end = std::min(position > 0 ? position - 1 : 0, text_.size());
    JsonFault fault{std::move(message), 1, 1};
    for (std::size_t i = 0; i < end; ++i) {
      if (text_[i] == '\n') {
        ++fault.line;
        fault.column = 1;
      } else if ((static_cast<unsigned char>(text_[i]) & 0xC0U) != 0x80U) {
        ++fault.column;  // characters, not bytes
      }
    }
    faults_->push_back(std::move(fault));
  }

  template <class Value>
  bool add(Value&& value) {
    insert(Json(std::forward<Value>(value)));
    return true;
  }

  Json* insert(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool open(Json container) {
    if (open_.size() == kDeepest) {
      faults_->push_back({"objects and arrays are nested deeper than " + std::to_string(kDeepest), 0, 0});
      return false;
    }
    open_.push_back(insert(std::move(container)));
    names_.emplace_back();
    return true;
  }

  bool close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }

  const std::string& text_;
  std::vector<JsonFault>* faults_;
  Json root_;
  // A container stays where it is while it is open: its parent grows again only after it is closed.
  std::vector<Json*> open_;
  std::vector<std::set<std::string>> names_;
  std::string key_;
};

void write(const Json& value, std::string* out) {
  switch (value.type()) {
    case Json::value_t::object: {
      out->push_back('{');
      bool first = true;
      for (const auto& [name, member] : value.items()) {
        if (!first) out->push_back(',');
        first = false;
        *out += json_quote(name) + ":";
        write(member, out);
      }
      out->push_back('}');
      break;
    }
    case Json::value_t::array: {
      out->push_back('[');
      bool first = true;
      for (const Json& element : value) {
        if (!first) out->push_back(',');
        first = false;
        write(element, out);
      }
      out->push_back(']');
      break;
    }
    case Json::value_t::string:
      *out += json_quote(value.get_ref<const std::string&>());
      break;
    case Json::value_t::boolean:
      *out += value.get<bool>() ? "true" : "false";
      break;
    case Json::value_t::number_integer:
      *out += std::to_string(value.get<std::int64_t>());
      break;
    case Json::value_t::number_unsigned:
      *out += std::to_string(value.get<std::uint64_t>());
      break;
    case Json::value_t::number_float:
      *out += shortest(value.get<double>());
      break;
    default:
      *out += "null";
  }
}

}  // namespace

Json parse_json(const std::string& text, std::vector<JsonFault>* faults) {
  Builder builder(text, faults);
  // The result of sax_parse says the same as the list of faults.
  Json::sax_parse(text, &builder);
  return builder.take();
}

std::string describe(const JsonFault& fault) {
  if (fault.line == 0) return fault.message;
  return "line " + std::to_string(fault.line) + ", column " + std::to_string(fault.column) + ": " +
         fault.message;
}

std::string canonical_json(const Json& value) {
  std::string out;
  write(value, &out);
  return out;
}

const char* json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return "a number";
    default:
      return "null";
  }
}

}  // namespace andrea
