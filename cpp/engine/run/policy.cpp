#include "engine/run/policy.h"

#include <limits>
#include <utility>

#include "engine/errors.h"
#include "engine/run/history.h"

namespace andrea {
namespace {

/// Weights that never change; they follow from the experiment and the sources, so there is no state.
class ConstantPolicy : public Policy {
 public:
  ConstantPolicy(const std::string& name, const std::vector<SourceInfo>& sources, std::vector<double> weights)
      : weights_(std::move(weights)) {
    log_ = "{\"policy\":" + json_quote(name) + ",\"weights\":{";
    for (std::size_t k = 0; k < sources.size(); ++k)
      log_ += (k > 0 ? "," : "") + json_quote(sources[k].name) + ":" + shortest(weights_[k]);
    log_ += "}}";
  }

  Phase begin_phase(std::int64_t step, const std::vector<Row>&) override {
    return {step, std::numeric_limits<std::int64_t>::max() - step, weights_, log_};
  }
  std::string state() const override { return "null"; }
  void restore(const std::string&) override {}

 private:
  std::vector<double> weights_;
  std::string log_;
};

}  // namespace

std::unique_ptr<Policy> make_constant_policy(const Experiment& experiment,
                                             const std::vector<SourceInfo>& sources) {
  const std::string& policy = experiment.curriculum.policy;
  std::vector<double> weights;
  double total = 0;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    double weight = 1;
    if (policy == "proportional") {
      weight = static_cast<double>(sources[k].n_tokens);
    } else if (policy == "fixed") {
      weight = experiment.data.sources.at(k).weight.value_or(1.0);
    } else if (policy != "uniform") {
      throw ConfigError(
          "curriculum.policy: the engine alone knows \"uniform\", \"proportional\" and \"fixed\"; \"" +
          policy + "\" needs the Python package (`andrea train`) or a proxy (--proxy)");
    }
    weights.push_back(weight);
    total += weight;
  }
  if (!(total > 0))
    throw ConfigError("curriculum.policy \"" + policy +
                      "\": no source has a weight above 0; give one a weight, or add a source with text");
  return std::make_unique<ConstantPolicy>(policy, sources, std::move(weights));
}

}  // namespace andrea
