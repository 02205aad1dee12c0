#include "engine/run/proxy_client.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>

#include "engine/errors.h"
#include "engine/files/json_text.h"
#include "engine/run/history.h"

namespace andrea {
namespace {

constexpr int kProtocol = 1;
constexpr std::size_t kMaxLine = std::size_t{16} << 20;
constexpr std::size_t kMaxUnseenRows = std::size_t{1} << 17;  // about 4 MB of a line
constexpr std::int64_t kFallbackSteps = 7;                    // the shortest phase: then it asks again
constexpr std::int64_t kMaxPhaseSteps = std::int64_t{1} << 31;
constexpr double kPatienceWhileLost = 5.0;  // seconds an attempt may take once the proxy is lost
constexpr double kRestAfterAttempt = 20.0;  // times the attempt's length: at most 5 % of a run goes into it
constexpr auto kPause = std::chrono::milliseconds(200);

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

/// The proxy answered, and its answer is no: trying again changes nothing.
class Refusal : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

Json parse_line(const std::string& line) {
  std::vector<JsonFault> faults;
  Json value = parse_json(line, &faults);
  if (!faults.empty()) throw ProxyFault("it speaks nonsense (" + describe(faults[0]) + ")");
  if (!value.is_object() || !value.contains("type") || !value["type"].is_string())
    throw ProxyFault("it speaks nonsense (no object with a type)");
  if (value["type"] == "error") {
    const std::string code = value.value("code", "");
    const std::string message = value.value("message", "");
    if (code == "busy") throw ProxyFault("it is busy: " + message);
    throw Refusal(message);
  }
  return value;
}

const Json& field(const Json& object, const char* name, bool (Json::*is)() const noexcept) {
  const auto found = object.find(name);
  if (found == object.end() || !((*found).*is)())
    throw ProxyFault(std::string("it speaks nonsense (field ") + name + " is missing or of another type)");
  return *found;
}

/// The JSON text inside a string field, whole and on one line.
std::string json_field(const Json& object, const char* name) {
  const auto text = field(object, name, &Json::is_string).get<std::string>();
  if (text.find('\n') != std::string::npos || !Json::accept(text))
    throw ProxyFault(std::string("it speaks nonsense (field ") + name + " holds no JSON on one line)");
  return text;
}

std::string base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t block = 0;
    for (std::size_t j = 0; j < 3; ++j)
      block = block << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      out.push_back(i + j <= bytes.size() ? kDigits[block >> (18 - 6 * j) & 63] : '=');
  }
  return out;
}

class ProxyPolicy final : public Policy {
 public:
  explicit ProxyPolicy(std::shared_ptr<ProxyClient> client) : client_(std::move(client)) {}
  Phase begin_phase(std::int64_t step, const std::vector<Row>& records) override {
    return client_->begin_phase(step, records);
  }
  std::string state() const override { return client_->state(); }
  void restore(const std::string& state) override { client_->restore(state); }
  std::int64_t not_reproducible_from() const override { return client_->not_reproducible_from(); }

 private:
  std::shared_ptr<ProxyClient> client_;
};

}  // namespace

ProxyClient::ProxyClient(ProxyOptions options, const Experiment& experiment, std::vector<SourceInfo> sources)
    : options_(std::move(options)),
      address_(parse_proxy_address(options_.address)),
      model_(experiment.name),
      seed_(experiment.train.seed),
      sources_(std::move(sources)) {}

Phase ProxyClient::begin_phase(std::int64_t step, const std::vector<Row>& records) {
  step_ = step;
  unseen_.insert(unseen_.end(), records.begin(), records.end());
  if (unseen_.size() > kMaxUnseenRows) {
    if (!dropped_) say(step, "the proxy is away for long: the oldest rows are no longer kept for it");
    dropped_ = true;
    unseen_.erase(unseen_.begin(), unseen_.end() - static_cast<std::ptrdiff_t>(kMaxUnseenRows));
  }
  if (lost_ && Clock::now() < not_before_) return last_weights(step, "");
  stopping_ = false;
  const Clock::time_point begun = Clock::now();
  const double patience =
      lost_ ? std::min(kPatienceWhileLost, options_.timeout_seconds) : options_.timeout_seconds;
  const Clock::time_point deadline = begun + seconds(patience);
  std::string why = "no answer in time";
  try {
    for (;;) {
      try {
        Phase phase = ask(step, deadline);
        if (lost_) say(step, "the proxy at " + options_.address + " answers again");
        lost_ = false;
        return phase;
      } catch (const ProxyFault& fault) {
        socket_.close();
        greeted_ = false;
        why = fault.what();
      }
      // A lost proxy is looked for once an edge; one that was there a moment ago, until the deadline.
      if (lost_ || Clock::now() + kPause >= deadline || give_up()()) break;
      std::this_thread::sleep_for(kPause);
    }
  } catch (const Refusal& refusal) {
    socket_.close();
    greeted_ = false;
    why = refusal.what();
    if (weights_.empty()) throw ConfigError("the proxy at " + options_.address + " refuses: " + why);
  }
  if (weights_.empty())
    throw ConfigError("no proxy answers at " + options_.address + ": " + why +
                      "; start `andrea proxy CONFIG --listen " + options_.address + "` first");
  // An attempt on a lost proxy that took long (it listens but is silent) earns a rest.
  const double spent = std::chrono::duration<double>(Clock::now() - begun).count();
  not_before_ = Clock::now() + seconds(lost_ ? spent * kRestAfterAttempt : 0.0);
  return last_weights(step, why);
}

Phase ProxyClient::ask(std::int64_t step, Clock::time_point deadline) {
  const ProxySocket::GiveUp stop = give_up();
  if (!socket_.is_open()) {
    socket_.open(address_, deadline, stop);
    greeted_ = false;
  }
  const std::string line =
      greeted_ ? "{\"type\":\"records\",\"step\":" + std::to_string(step) + ",\"rows\":" + rows_json() + "}"
               : hello_line(step);
  socket_.send_line(line, deadline, stop);
  Phase phase = read_phase(socket_.receive_line(kMaxLine, deadline, stop), step);
  greeted_ = true;
  unseen_.clear();
  return phase;
}

Phase ProxyClient::read_phase(const std::string& line, std::int64_t step) {
  const Json reply = parse_line(line);
  if (reply["type"] != "phase" || field(reply, "step", &Json::is_number_integer) != step)
    throw ProxyFault("it speaks nonsense (no phase for step " + std::to_string(step) + ")");
  Phase phase;
  phase.first_step = step;
  phase.steps = field(reply, "steps", &Json::is_number_integer).get<std::int64_t>();
  if (phase.steps < 1 || phase.steps > kMaxPhaseSteps)
    throw ProxyFault("it speaks nonsense (a phase of " + std::to_string(phase.steps) + " steps)");
  double sum = 0;
  for (const Json& weight : field(reply, "weights", &Json::is_array)) {
    if (!weight.is_number() || !(weight.get<double>() >= 0) || !std::isfinite(weight.get<double>()))
      throw ProxyFault("it speaks nonsense (a weight that is none)");
    phase.weights.push_back(weight.get<double>());
    sum += phase.weights.back();
  }
  if (phase.weights.size() != sources_.size() || !(sum > 0) || !std::isfinite(sum))
    throw ProxyFault("it speaks nonsense (" + std::to_string(phase.weights.size()) + " weights for " +
                     std::to_string(sources_.size()) + " sources, sum " + shortest(sum) + ")");
  phase.log = json_field(reply, "log");
  state_ = json_field(reply, "state");
  weights_ = phase.weights;
  return phase;
}

Phase ProxyClient::last_weights(std::int64_t step, const std::string& why) {
  if (lost_since_ < 0) lost_since_ = step;
  if (!lost_)
    say(step, "the proxy at " + options_.address + " does not answer (" + why +
                  "): the last weights go on; not reproducible from step " + std::to_string(step));
  lost_ = true;
  Phase phase;
  phase.first_step = step;
  phase.steps = kFallbackSteps;
  phase.weights = weights_;
  phase.log = "{\"kind\":\"no answer\",\"step\":" + std::to_string(step) +
              ",\"steps\":" + std::to_string(kFallbackSteps) + ",\"why\":" + json_quote(why) + "}";
  return phase;
}

std::string ProxyClient::hello_line(std::int64_t step) const {
  std::string line = "{\"type\":\"hello\",\"protocol\":" + std::to_string(kProtocol) +
                     ",\"version\":" + json_quote(ANDREA_VERSION) + ",\"model\":" + json_quote(model_) +
                     ",\"seed\":" + std::to_string(seed_) + ",\"step\":" + std::to_string(step) +
                     ",\"sources\":[";
  for (std::size_t k = 0; k < sources_.size(); ++k) {
    const SourceInfo& source = sources_[k];
    line += (k > 0 ? "," : "") + ("{\"name\":" + json_quote(source.name)) +
            ",\"documents\":" + std::to_string(source.n_docs) +
            ",\"tokens\":" + std::to_string(source.n_tokens) +
            ",\"bytes\":" + std::to_string(source.n_bytes) + "}";
  }
  return line + "],\"state\":" + (state_ == "null" ? "null" : json_quote(state_)) +
         ",\"rows\":" + rows_json() + "}";
}

std::string ProxyClient::rows_json() const {
  std::string step, source, documents, loss;
  for (const Row& row : unseen_) {
    const char* comma = step.empty() ? "" : ",";
    step += comma + std::to_string(row.step);
    source += comma + std::to_string(row.source);
    documents += comma + std::to_string(row.documents);
    loss += comma + shortest(row.loss);
  }
  return "{\"step\":[" + step + "],\"source\":[" + source + "],\"documents\":[" + documents + "],\"loss\":[" +
         loss + "]}";
}

std::string ProxyClient::state() const {
  if (unseen_.empty() || state_ == "null") return state_;
  // Rows that no answer covers yet go where the policy keeps its own waiting rows.
  Json state = Json::parse(state_);
  if (!state.contains("pending")) return state_;
  Json& pending = state["pending"];
  for (const Row& row : unseen_) {
    pending["step"].push_back(row.step);
    pending["source"].push_back(row.source);
    pending["documents"].push_back(row.documents);
    pending["loss"].push_back(std::isfinite(row.loss) ? Json(static_cast<double>(row.loss)) : Json());
  }
  return state.dump();
}

void ProxyClient::restore(const std::string& state) {
  const Json json = Json::parse(state, nullptr, false);
  if (json.is_discarded())
    throw CheckpointError("the curriculum state is no JSON; resume from an older checkpoint");
  state_ = state;
  unseen_.clear();
  greeted_ = false;
  weights_.clear();
  // What a dead proxy would leave us with: the weights of the phase in the state.
  if (json.is_object() && json.contains("phase") && json["phase"].is_object()) {
    const auto weights = json["phase"].find("weights");
    const auto number = [](const Json& w) { return w.is_number(); };
    if (weights != json["phase"].end() && weights->is_array() && weights->size() == sources_.size() &&
        std::all_of(weights->begin(), weights->end(), number))
      weights_ = weights->get<std::vector<double>>();
  }
}

Coherence ProxyClient::score(const std::string& text) {
  Coherence none;
  none.score = std::numeric_limits<double>::quiet_NaN();
  if (lost_ && Clock::now() < not_before_) return none;
  stopping_ = false;
  const Clock::time_point deadline =
      Clock::now() +
      seconds(lost_ ? std::min(kPatienceWhileLost, options_.timeout_seconds) : options_.timeout_seconds);
  try {
    const ProxySocket::GiveUp stop = give_up();
    if (!socket_.is_open()) {
      socket_.open(address_, deadline, stop);
      greeted_ = false;
    }
    socket_.send_line("{\"type\":\"sample\",\"text\":\"" + base64(text) + "\"}", deadline, stop);
    const Json reply = parse_line(socket_.receive_line(kMaxLine, deadline, stop));
    if (reply["type"] != "verdict" || !reply.contains("score")) throw ProxyFault("no verdict came");
    Coherence verdict = none;
    if (reply["score"].is_number())
      verdict.score = reply["score"].get<double>();
    else
      verdict.unscored = "the proxy at " + options_.address +
                         " scores no samples (it runs with --no-score, or its experiment names no tokenizer)";
    verdict.json = json_field(reply, "parts");
    return verdict;
  } catch (const std::runtime_error& wrong) {  // ProxyFault, Refusal: the next phase edge looks after it
    socket_.close();
    greeted_ = false;
    say(step_, "no verdict on a sample: " + std::string(wrong.what()));
    return none;
  }
}

ProxySocket::GiveUp ProxyClient::give_up() {
  return [this] {
    if (!options_.stop_asked || !options_.stop_asked()) return false;
    if (!stopping_) {
      stopping_ = true;
      stop_seen_at_ = Clock::now();
    }
    return Clock::now() - stop_seen_at_ > seconds(options_.stop_patience_seconds);
  };
}

void ProxyClient::say(std::int64_t step, const std::string& message) const {
  if (options_.say) options_.say(step, message);
}

std::unique_ptr<Policy> proxy_policy(std::shared_ptr<ProxyClient> client) {
  return std::make_unique<ProxyPolicy>(std::move(client));
}

}  // namespace andrea
