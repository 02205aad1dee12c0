// JSON as text: a strict reader that knows where a fault stands, and a writer with one canonical form.
//
// Canonical: keys sorted, no white space, numbers as Python's repr() writes them, UTF-8 not escaped. It is
// what json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False) gives, so hashes of it
// agree.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace andrea {

using Json = nlohmann::json;

/// A fault of the text itself; `line` and `column` from 1, 0 if there is no place. After a fatal one the
/// value is not whole.
struct JsonFault {
  std::string message;
  std::size_t line = 0;
  std::size_t column = 0;
  bool fatal = true;
};

/// Reads one JSON value. Syntax errors, keys given twice, comments, numbers that no double or 64-bit integer
/// holds and nesting deeper than 100 are faults. The value is meaningful only if there are none.
Json parse_json(const std::string& text, std::vector<JsonFault>* faults);

/// "line 3, column 5: <message>".
std::string describe(const JsonFault& fault);

/// The canonical text of a value. Numbers that are not finite become null.
std::string canonical_json(const Json& value);

/// How messages call the type of a value: "a number", "an object" and so on.
const char* json_type_name(const Json& value);

}  // namespace andrea
