// The curriculum behind a socket: a Policy that asks `andrea proxy` (docs/PROXY.md has the protocol).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/policy.h"
#include "engine/run/proxy_socket.h"
#include "engine/run/trainer.h"

namespace andrea {

struct ProxyOptions {
  std::string address;                 ///< unix:PATH or tcp:127.0.0.1:PORT
  double timeout_seconds = 60.0;       ///< how long a phase edge may wait
  double stop_patience_seconds = 5.0;  ///< how long a wait goes on after a signal, for the sake of the bits
  /// Asked every 50 ms while waiting; true: a signal came.
  std::function<bool()> stop_asked;
  /// Told once when the proxy is lost, and once when it is back.
  std::function<void(std::int64_t step, const std::string& message)> say;
};

/// One conversation with a proxy. It never ends a run that has weights: without an answer in time the last
/// weights go on, `not_reproducible_from` says since when, and each later edge tries again. All rows the
/// proxy has not seen are kept and sent then. Whatever the proxy last said of its state is kept here, so a
/// proxy that was killed and started again within the timeout changes no number.
class ProxyClient {
 public:
  /// ConfigError if the address is none.
  ProxyClient(ProxyOptions options, const Experiment& experiment, std::vector<SourceInfo> sources);

  /// ConfigError if there are no weights yet and no proxy answers in time, or it has other sources.
  Phase begin_phase(std::int64_t step, const std::vector<Row>& records);
  std::string state() const;
  /// CheckpointError if `state` is no JSON.
  void restore(const std::string& state);
  std::int64_t not_reproducible_from() const { return lost_since_; }

  /// The proxy's verdict on a sample. Without an answer the score is NaN, which no gate counts as a failure.
  Coherence score(const std::string& text);

 private:
  using Clock = ProxySocket::Clock;

  Phase ask(std::int64_t step, Clock::time_point deadline);
  Phase read_phase(const std::string& line, std::int64_t step);
  Phase last_weights(std::int64_t step, const std::string& why);
  std::string hello_line(std::int64_t step) const;
  std::string rows_json() const;
  ProxySocket::GiveUp give_up();
  void say(std::int64_t step, const std::string& message) const;

  ProxyOptions options_;
  ProxyAddress address_;
  std::string model_;
  std::uint32_t seed_;
  std::vector<SourceInfo> sources_;
  ProxySocket socket_;
  bool greeted_ = false;  // the proxy of this connection has our hello
  bool lost_ = false;
  bool dropped_ = false;  // rows were thrown away, and that was told
  std::string state_ = "null";
  std::vector<double> weights_;
  std::vector<Row> unseen_;  // rows no answered request has carried
  std::int64_t lost_since_ = -1;
  std::int64_t step_ = 0;
  Clock::time_point not_before_;    // while lost: the next attempt
  Clock::time_point stop_seen_at_;  // when a stop was first seen in this wait
  bool stopping_ = false;
};

/// The client as the trainer's policy; the owner may keep the client to score samples.
std::unique_ptr<Policy> proxy_policy(std::shared_ptr<ProxyClient> client);

}  // namespace andrea
