#include "apps/proxy_hooks.h"

#include <limits>
#include <memory>
#include <utility>

#include "engine/run/proxy_client.h"
#include "engine/run/signals.h"

namespace andrea {

void use_proxy(const std::string& address, double timeout_seconds, TrainerHooks* hooks) {
  parse_proxy_address(address);
  // One conversation serves both hooks; the trainer makes the policy before it takes a sample.
  auto client = std::make_shared<std::shared_ptr<ProxyClient>>();
  const auto on_event = hooks->on_event;
  hooks->make_policy = [=](const Experiment& experiment, const std::vector<SourceInfo>& sources) {
    ProxyOptions options;
    options.address = address;
    options.timeout_seconds = timeout_seconds;
    options.stop_asked = [] { return SignalRequests::stop(); };
    options.say = [on_event](std::int64_t step, const std::string& message) {
      if (on_event) on_event({"warning", step, message, "null"});
    };
    *client = std::make_shared<ProxyClient>(std::move(options), experiment, sources);
    return proxy_policy(*client);
  };
  hooks->score = [client](const std::string& text) {
    if (*client) return (*client)->score(text);
    Coherence none;
    none.score = std::numeric_limits<double>::quiet_NaN();
    return none;
  };
}

}  // namespace andrea
