#include "engine/run/phases.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/errors.h"

namespace andrea {

using Json = nlohmann::json;

Phases::Phases(std::unique_ptr<Policy> policy)
    : policy_(std::move(policy)), policy_state_(policy_->state()) {}

bool Phases::advance(std::int64_t step) {
  if (in_phase_ && step - phase_.first_step < phase_.steps) return false;
  // The policy sees steps up to step - 2: it is asked while step - 1 may still run on the device.
  const auto late =
      std::find_if(records_.begin(), records_.end(), [step](const Row& r) { return r.step > step - 2; });
  const std::vector<Row> shown(records_.begin(), late);
  records_.erase(records_.begin(), late);
  phase_ = policy_->begin_phase(step, shown);
  policy_state_ = policy_->state();
  in_phase_ = true;
  return true;
}

void Phases::record(const std::vector<Row>& rows) {
  records_.insert(records_.end(), rows.begin(), rows.end());
}

std::string Phases::state() const {
  Json records = Json::array();
  for (const Row& r : records_)
    records.push_back({r.step, r.row, r.source, r.documents,
                       std::isfinite(r.loss) ? Json(static_cast<double>(r.loss)) : Json()});
  Json phase;
  if (in_phase_)
    phase = {{"first_step", phase_.first_step}, {"steps", phase_.steps}, {"weights", phase_.weights}};
  return Json{{"policy", Json::parse(policy_state_)}, {"phase", phase}, {"records", records}}.dump();
}

void Phases::restore(const std::string& state, const std::vector<std::string>& sources,
                     const std::vector<std::string>& now, bool new_phase) {
  try {
    const Json json = Json::parse(state);
    policy_state_ = json.at("policy").dump();
    policy_->restore(policy_state_);
    const Json& phase = json.at("phase");
    in_phase_ = !phase.is_null() && !new_phase && sources == now;
    if (in_phase_) {
      phase_.first_step = phase.at("first_step").get<std::int64_t>();
      phase_.steps = phase.at("steps").get<std::int64_t>();
      phase_.weights = phase.at("weights").get<std::vector<double>>();
      if (phase_.weights.size() != now.size())
        throw CheckpointError("curriculum: the phase has other sources");
    }
    records_.clear();
    for (const Json& r : json.at("records")) {
      Row row;
      row.step = r.at(0).get<std::int64_t>();
      row.row = r.at(1).get<std::int64_t>();
      const std::string& name = sources.at(r.at(2).get<std::size_t>());
      const auto found = std::find(now.begin(), now.end(), name);
      if (found == now.end()) continue;  // a source that is no longer there
      row.source = found - now.begin();
      row.documents = r.at(3).get<std::int64_t>();
      row.loss = r.at(4).is_null() ? std::nanf("") : static_cast<float>(r.at(4).get<double>());
      records_.push_back(row);
    }
  } catch (const Json::exception& error) {
    throw CheckpointError(std::string("curriculum state: ") + error.what());
  } catch (const std::out_of_range&) {
    throw CheckpointError("curriculum state: a record names a source that is not in the state");
  }
}

}  // namespace andrea
