#include "engine/run/run_state.h"

#include <cmath>
#include <limits>
#include <set>

#include "engine/errors.h"
#include "engine/files/json_text.h"
#include "engine/hash/xxh64.h"
#include "engine/run/history.h"

namespace andrea {
namespace {

constexpr std::int64_t kFormat = 3;  // 1 had no recompute and no gemm_table, 2 no eval_hash

/// The value of a JSON text held as a string in RunState.
Json embedded(const std::string& text, const char* field) {
  std::vector<JsonFault> faults;
  Json value = parse_json(text, &faults);
  if (!faults.empty())
    throw CheckpointError(std::string("the state cannot be written: its ") + field + " is no JSON (" +
                          describe(faults.front()) + ")");
  return value;
}

// A float as the double with the same shortest digits, so that the file shows 0.1 and not 0.10000000149.
double as_written(float value) {
  return std::isfinite(value) ? std::stod(shortest(value)) : static_cast<double>(value);
}

/// Reads fields by name; each must be there, of the right type and range, and none may be left over.
class StateFields {
 public:
  StateFields(const Json& object, std::string where, std::string path)
      : object_(object), where_(std::move(where)), path_(std::move(path)) {
    if (!object.is_object()) fail("", "must be an object, is " + std::string(json_type_name(object)));
  }

  const Json& get(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end()) fail(name, "is missing");
    seen_.insert(name);
    return *found;
  }
  std::int64_t integer(const char* name, std::int64_t low = 0,
                       std::int64_t high = std::numeric_limits<std::int64_t>::max()) {
    const Json& value = get(name);
    if (!value.is_number_integer())
      fail(name, std::string("must be an integer, is ") + json_type_name(value));
    const bool too_large =
        value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
    if (too_large || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high)
      fail(name, "is " + value.dump() + ", outside " + std::to_string(low) + " to " + std::to_string(high));
    return value.get<std::int64_t>();
  }
  double number(const char* name) {
    const Json& value = get(name);
    if (!value.is_number()) fail(name, std::string("must be a number, is ") + json_type_name(value));
    return value.get<double>();
  }
  bool boolean(const char* name) {
    const Json& value = get(name);
    if (!value.is_boolean()) fail(name, std::string("must be true or false, is ") + json_type_name(value));
    return value.get<bool>();
  }
  std::string text(const char* name) {
    const Json& value = get(name);
    if (!value.is_string()) fail(name, std::string("must be a string, is ") + json_type_name(value));
    return value.get<std::string>();
  }
  std::uint64_t hash(const char* name) {
    const std::string digits = text(name);
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail(name, "must be 16 hexadecimal digits, is " + json_quote(digits));
    return std::stoull(digits, nullptr, 16);
  }
  void finish() {
    for (const auto& [name, value] : object_.items())
      if (seen_.count(name) == 0) fail(name, "is unknown; was it written by a newer version?");
  }
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    const std::string field = where_ + (where_.empty() || name.empty() ? "" : ".") + name;
    throw CheckpointError(path_ + ": " + (field.empty() ? "the state" : "field " + field) + " " + what);
  }

 private:
  const Json& object_;
  std::string where_;
  std::string path_;
  std::set<std::string> seen_;
};

GemmChoices read_gemm_table(const Json& object, const std::string& path) {
  StateFields table(object, "gemm_table", path);
  GemmChoices gemm;
  gemm.library = table.text("library");
  const Json& products = table.get("products");
  if (!products.is_array()) table.fail("products", "must be an array");
  for (std::size_t i = 0; i < products.size(); ++i) {
    StateFields fields(products[i], "gemm_table.products[" + std::to_string(i) + "]", path);
    GemmChoice choice;
    choice.product = fields.text("product");
    choice.algorithm = fields.text("algorithm");
    fields.finish();
    gemm.products.push_back(std::move(choice));
  }
  table.finish();
  return gemm;
}

}  // namespace

std::string to_json(const RunState& state) {
  Json sources = Json::array();
  for (const SourceState& source : state.sources)
    sources.push_back({{"name", source.name},
                       {"epoch", source.cursor.epoch},
                       {"position", source.cursor.position},
                       {"offset", source.cursor.offset},
                       {"content_hash", hash_hex(source.content_hash)},
                       {"eval_hash", source.eval_hash ? Json(hash_hex(*source.eval_hash)) : Json()}});
  Json history = Json::object();
  for (const auto& [file, bytes] : state.history_bytes) history[file] = bytes;
  Json products = Json::array();
  for (const GemmChoice& choice : state.gemm.products)
    products.push_back({{"product", choice.product}, {"algorithm", choice.algorithm}});
  const Json config = embedded(state.config, "config");
  const std::string config_text = canonical_json(config);

  Json object = {
      {"format", kFormat},
      {"step", state.step},
      {"bin_hash", hash_hex(state.bin_hash)},
      {"tokenizer_hash", hash_hex(state.tokenizer_hash)},
      {"config", config},
      {"config_hash", hash_hex(xxh64(config_text.data(), config_text.size()))},
      {"sources", sources},
      {"curriculum", embedded(state.curriculum.empty() ? "null" : state.curriculum, "curriculum")},
      {"loss_scale", as_written(state.loss_scale)},
      {"good_steps", state.good_steps},
      {"skipped_total", state.skipped_total},
      {"skipped_in_a_row", state.skipped_in_a_row},
      {"last_loss", as_written(state.last_loss)},
      {"has_smma", state.has_smma},
      {"smma", state.smma},
      {"best_smma", state.best_smma},
      {"best_step", state.best_step},
      {"gate_failures", state.gate_failures},
      {"stopped_by_gate", state.stopped_by_gate},
      {"edge_pending", state.edge_pending},
      {"finished", state.finished},
      {"not_reproducible_from", state.not_reproducible_from},
      {"history_bytes", history},
      {"version", state.version},
      {"device", state.device},
      {"arithmetic", state.arithmetic},
      {"precision", state.precision},
      {"recompute", state.recompute},
      {"gemm_table", {{"library", state.gemm.library}, {"products", products}}},
      {"threads", state.threads},
      {"written_unix", state.written_unix},
  };
  const std::string body = canonical_json(object);
  object["state_hash"] = hash_hex(xxh64(body.data(), body.size()));

  // One field a line, for people and for diff; white space is outside the hash.
  std::string out = "{";
  for (const auto& [name, value] : object.items())
    out += (out.size() > 1 ? ",\n " : "\n ") + json_quote(name) + ": " + canonical_json(value);
  return out + "\n}\n";
}

RunState parse_run_state(const std::string& text, const std::string& path) {
  std::vector<JsonFault> faults;
  Json object = parse_json(text, &faults);
  if (!faults.empty()) throw CheckpointError(path + " is no state file: " + describe(faults.front()));
  StateFields top(object, "", path);
  const std::uint64_t promised = top.hash("state_hash");
  Json body = object;
  body.erase("state_hash");
  const std::string body_text = canonical_json(body);
  if (const std::uint64_t hash = xxh64(body_text.data(), body_text.size()); hash != promised)
    throw CheckpointError(path + " is damaged: its content has hash " + hash_hex(hash) + ", it says " +
                          hash_hex(promised));
  const std::int64_t format = top.integer("format");
  if (format < 1 || format > kFormat)
    top.fail("format",
             "is " + std::to_string(format) + ", this program reads 1 to " + std::to_string(kFormat));

  RunState state;
  state.step = top.integer("step", 0, std::numeric_limits<std::int32_t>::max());
  state.bin_hash = top.hash("bin_hash");
  state.tokenizer_hash = top.hash("tokenizer_hash");
  state.config = canonical_json(top.get("config"));
  if (const std::uint64_t hash = xxh64(state.config.data(), state.config.size());
      hash != top.hash("config_hash"))
    top.fail("config_hash", "is not the hash of config");
  const Json& sources = top.get("sources");
  if (!sources.is_array()) top.fail("sources", "must be an array");
  for (std::size_t k = 0; k < sources.size(); ++k) {
    StateFields fields(sources[k], "sources[" + std::to_string(k) + "]", path);
    SourceState source;
    source.name = fields.text("name");
    source.cursor.epoch = fields.integer("epoch");
    source.cursor.position = fields.integer("position");
    source.cursor.offset = fields.integer("offset");
    source.content_hash = fields.hash("content_hash");
    if (format >= 3 && !fields.get("eval_hash").is_null()) source.eval_hash = fields.hash("eval_hash");
    fields.finish();
    state.sources.push_back(std::move(source));
  }
  state.curriculum = canonical_json(top.get("curriculum"));
  state.loss_scale = static_cast<float>(top.number("loss_scale"));
  state.good_steps =
      static_cast<std::int32_t>(top.integer("good_steps", 0, std::numeric_limits<std::int32_t>::max()));
  state.skipped_total = top.integer("skipped_total");
  state.skipped_in_a_row = top.integer("skipped_in_a_row");
  state.last_loss = static_cast<float>(top.number("last_loss"));
  state.has_smma = top.boolean("has_smma");
  state.smma = top.number("smma");
  state.best_smma = top.number("best_smma");
  state.best_step = top.integer("best_step", -1);
  state.gate_failures = top.integer("gate_failures");
  state.stopped_by_gate = top.boolean("stopped_by_gate");
  state.edge_pending = top.boolean("edge_pending");
  state.finished = top.boolean("finished");
  state.not_reproducible_from = top.integer("not_reproducible_from", -1);
  const Json& history = top.get("history_bytes");
  StateFields lengths(history, "history_bytes", path);
  for (const auto& [file, bytes] : history.items())
    state.history_bytes.emplace_back(file, lengths.integer(file.c_str()));
  state.version = top.text("version");
  state.device = top.text("device");
  state.arithmetic = top.text("arithmetic");
  state.precision = top.text("precision");
  if (format >= 2) {
    state.recompute = top.text("recompute");
    state.gemm = read_gemm_table(top.get("gemm_table"), path);
  }
  state.threads = top.integer("threads");
  state.written_unix = top.integer("written_unix");
  top.finish();
  return state;
}

}  // namespace andrea
